"""Every Python example of the documentation runs, and does what the page says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from avalanche_side import ENVIRONMENT as AVALANCHE
from pages import PAGES, ROOT, block, commands, executes
from PIL import Image
from serve_tools import served
from torch import nn

import driftwise
import driftwise.live
from driftwise.cli import main as cli
from driftwise.datasets.readers.digits import load_digits

ARCHITECTURE = "docs/explanations/architecture.md"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))


def run_block(page: str, marker: str, **given: Any) -> dict[str, Any]:
    names = dict(given)
    exec(block(page, marker), names)
    return names


def result_of(folder: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    return result


@executes("README.md", "RunConfig")
def test_a_benchmark_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_block("README.md", "RunConfig")
    assert found["result"]["labels"]["adaptation"] > 0
    assert found["predictor"].predict(np.zeros((2, 8, 8, 1), dtype=np.uint8)).shape == (2,)
    assert "'adaptation'" in capsys.readouterr().out


@executes("docs/index.md", "RunConfig")
def test_the_first_lines_of_the_site(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_block("docs/index.md", "RunConfig")
    assert found["result"]["faa"] > 80
    assert result_of("runs/first")["labels"]["adaptation"] > 0


@executes("docs/how-to/budgets.md", "label_budget")
def test_a_budget_is_kept() -> None:
    assert (
        0
        < run_block("docs/how-to/budgets.md", "label_budget")["result"]["labels"]["adaptation"]
        <= 40
    )


@executes("docs/how-to/production.md", "shadow")
def test_a_shadow_reports_drift_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    live = run_block("docs/how-to/production.md", "shadow")["live"]
    assert "drifted" in capsys.readouterr().out
    assert live.status["labels"]["adaptation"] == 0


@executes("README.md", "dw.DriftLoop")
def test_a_loop_of_objects(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_block("README.md", "dw.DriftLoop")
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert found["task"].accuracy > 80
    saved = result_of("runs/objects")
    assert (saved["method"], saved["detector"], saved["adaptation"]) == ("der++", "combined", "amr")
    assert saved["labels"] == found["task"].labels
    assert {verdict["class"] for verdict in saved["verdicts"] if verdict["drifted"]} == {0, 1, 2, 3}


@executes("README.md", "dw.Realigner")
def test_a_bare_loop_with_realignment_takes_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    code = block("README.md", "dw.Realigner")
    assert [line for line in code.splitlines() if re.search("realigner[. ]", line)][5:] == [
        "print(realigner.ledger.labels)"
    ]
    assert len(code[code.index("realigner =") :].splitlines()) <= 20
    found = run_block("README.md", "dw.Realigner")
    assert "(0, 1, 2, 3)\n" in capsys.readouterr().out
    x, y, held_out = found["x"], found["y"], ~found["trained"]
    right = found["network"](x[held_out]).argmax(dim=1) == y[held_out]
    assert right.float().mean() > 0.75


TRAINERS = "docs/how-to/trainers.md"


@executes(TRAINERS, "lightning.pytorch")
@pytest.mark.filterwarnings("ignore")
def test_a_module_of_lightning_with_realignment() -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed")
    code = block(TRAINERS, "lightning.pytorch").replace("max_epochs=20", "max_epochs=3")
    found: dict[str, Any] = {}
    exec(code, found)
    records = found["realignment"].realigner.records
    assert [record.drifted for record in records] == [(), (), (0, 1, 2, 3), (), ()]


@executes(TRAINERS, "RealignmentCallback")
@pytest.mark.filterwarnings("ignore")
def test_a_model_of_transformers_with_realignment() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    code = block(TRAINERS, "RealignmentCallback").replace("epochs=10", "epochs=3")
    found: dict[str, Any] = {"__name__": "example"}
    exec(code.replace("range(5)", "range(3)"), found)
    first, second, third = (record.drifted for record in found["realignment"].realigner.records)
    assert (first, second) == ((), ())
    assert third
    assert set(third) <= {0, 1, 2, 3}


@executes(TRAINERS, "RealignmentPlugin")
@pytest.mark.skipif(
    not (AVALANCHE / ".ready").exists(),
    reason="Avalanche is not installed: python benchmarks/avalanche_side.py",
)
def test_a_strategy_of_avalanche_with_realignment() -> None:
    importable = "import avalanche_worker\n"  # beside a torch without GPUs
    code = block(TRAINERS, "RealignmentPlugin").replace("train_epochs=20", "train_epochs=3")
    done = subprocess.run(
        [str(AVALANCHE / "bin" / "python"), "-c", importable + code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "benchmarks")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "(0, 1, 2, 3)" in done.stderr, done.stderr  # where the worker prints to


@executes("docs/how-to/hub.md", "export(")
def test_a_run_in_a_folder_as_the_hub_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_block("docs/how-to/hub.md", "export(")
    assert found["predictor"].predict(np.zeros((2, 8, 8, 1), dtype=np.uint8)).shape == (2,)
    assert "## Drift history" in capsys.readouterr().out


@executes(ARCHITECTURE, "loop.check_and_adapt")
def test_a_loop_by_hand_gives_the_numbers_of_the_loop() -> None:
    found = run_block(ARCHITECTURE, "loop.check_and_adapt")
    dw = found["dw"]
    learner = dw.Learner(found["network"], dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.Realign())
    expected = [task.scores.accuracy for task in loop.run(found["stream"], epochs=2)]
    assert found["accuracy"] == expected


@executes("README.md", "LiveLearner")
@pytest.mark.parametrize("seed", [0, 1, 2])  # ten: benchmarks/live_accuracy.py --readme
def test_a_live_learner_reaches_what_the_readme_promises(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code = block("README.md", "LiveLearner")
    assert "seed = load_digits(), 0\n" in code
    found: dict[str, Any] = {}
    exec(code.replace("load_digits(), 0\n", f"load_digits(), {seed}\n"), found)
    assert found["held_out"] > 0.9
    assert found["live"].num_samples == 1500
    assert found["live"].waiting == ()
    printed = capsys.readouterr().out
    assert "driftwise_samples_total 1500" in printed
    assert "driftwise_drifts_total 0" in printed
    assert Path("runs/live/checkpoint.safetensors").is_file()


@executes("README.md", "DriftDetector")
def test_a_detector_finds_the_class_that_changed() -> None:
    assert run_block("README.md", "DriftDetector")["report"].names("drifted") == ["3"]


def save_photos(folder: Path) -> None:
    """Two classes that can be distinguished, in the layout that the page describes."""
    for number, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for shot in range(60):
            image = Image.new("RGB", (40, 36), (200 * number, 4 * shot, 90))
            image.save(folder / name / f"{shot}.jpg")


@executes("docs/how-to/own_data.md", "size=32")
def test_your_own_images_take_five_lines_or_one_file() -> None:
    page = "docs/how-to/own_data.md"
    save_photos(Path("photos"))
    assert len([line for line in block(page, "size=32").splitlines() if line.strip()]) <= 5
    assert run_block(page, "size=32")["result"]["class_names"] == ["cat", "dog"]

    (yaml,) = re.findall(r"```yaml\n(.*?)```", PAGES[page], re.DOTALL)
    Path("photos.yaml").write_text(yaml)
    words = ["run", "--config", "photos.yaml", "--out", "runs/photos-from-file", "--quiet"]
    assert " ".join(words[:-1]) in PAGES[page]
    assert cli.command(words) == 0
    (event,) = result_of("runs/photos-from-file")["drift_events"]
    assert (event["transform"], event["kind"]) == ("rotation+gaussian-noise", "partial")


@executes("docs/how-to/own_data.md", "readings.csv")
def test_a_table_becomes_a_data_set() -> None:
    data = run_block("docs/how-to/own_data.md", "readings.csv")["data"]
    assert (data.feature_names, data.class_names) == (("width", "height"), ("even", "odd"))
    assert data.domain_names == tuple(f"period {number}" for number in range(1, 5))


@executes("docs/how-to/detect.md", "from_table")
def test_the_sensor_that_moved_is_named() -> None:
    found = run_block("docs/how-to/detect.md", "from_table")
    assert found["report"].names("drifted") == ["neon"]
    assert found["moved"].name == "sensor 4"
    assert found["moved"].shift == pytest.approx(2, abs=0.4)


@executes("docs/how-to/custom_parts.md", "own-objects")
def test_a_network_and_a_data_set_given_as_objects() -> None:
    result = run_block("docs/how-to/custom_parts.md", "own-objects")["result"]
    assert result["config"]["benchmark"] == "own"
    assert result["faa"] > 20


@executes("docs/how-to/vectors.md", "from_table", "HybridLearner")
def test_a_table_is_learned_without_rehearsal(capsys: pytest.CaptureFixture[str]) -> None:
    run_block("docs/how-to/vectors.md", 'open("readings.csv"')
    found = run_block("docs/how-to/vectors.md", "from_table")
    last = found["task"]
    assert last.number == 3
    assert last.drifted == (0, 1, 2, 3)
    assert last.accuracy > 90
    assert last.labels["adaptation"] == 2 * 4 * 5
    assert "40 labels" in capsys.readouterr().out.splitlines()[-1]
    exec(block("docs/how-to/vectors.md", "HybridLearner"), found)
    assert capsys.readouterr().out.count("%") == 3


@executes("docs/how-to/vectors.md", 'open("readings.csv"', 'dw.load("runs/gas")')
def test_a_table_is_run_by_the_commands_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_block("docs/how-to/vectors.md", 'open("readings.csv"')
    for words in commands("docs/how-to/vectors.md"):
        assert cli.command([*words, "--quiet"]) == 0
    assert result_of("runs/gas")["faa"] > 90
    assert result_of("runs/gas")["labels"]["adaptation"] == 2 * 4 * 5
    compared = [result_of(f"runs/gas-compared/{name}-seed0") for name in ("vanilla", "amr")]
    assert compared[0]["faa"] < 60 < 90 < compared[1]["faa"]
    assert result_of("runs/gas-er/amr-seed0")["drift_events"][0]["transform"] == "shift"
    assert result_of("runs/digits-features")["config"]["frozen_encoder"] == "random"
    capsys.readouterr()
    run_block("docs/how-to/vectors.md", 'dw.load("runs/gas")', **found)
    assert len(capsys.readouterr().out.split(",")) == 4


@executes("docs/reference/run_folder.md", "result.json")
def test_a_run_folder_has_the_files_and_keys_of_the_page() -> None:
    page = "docs/reference/run_folder.md"
    result = run_block(page, "result.json")["result"]
    files, keys = PAGES[page].split("|---|---|")[1:]
    named = set(re.findall(r"`([\w-]+\.\w+)`", files.partition("\n\n")[0]))
    assert named <= {path.name for path in Path("runs/files").iterdir()}
    for line in keys.strip().splitlines():
        if line.startswith("|"):
            assert set(re.findall(r"`(\w+)`", line.split("|")[1])) <= result.keys()
    assert result["faa"] == pytest.approx(np.mean(result["accuracy_matrix"][-1]))


OWN = (
    "class WeightedReplay",
    "class Brightness",
    "class FewLabels",
    "def stripes",
    "class TinyNet",
)


@executes(ARCHITECTURE, *OWN)
@pytest.mark.parametrize("number", range(5))
def test_a_component_of_your_own(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = block(ARCHITECTURE, OWN[number]), commands(ARCHITECTURE)[number]
    assert len(code.splitlines()) <= 30
    first = code.splitlines()[0].removeprefix("# ")
    Path(first).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert any(word.startswith(first.replace(".py", ":")) for word in words)
    assert cli.command([*words, "--quiet"]) == 0
    result = result_of(words[words.index("--out") + 1])
    assert result["faa"] > 70
    if first == "few_labels.py":
        drifted = sum(len(event["classes"]) for event in result["drift_events"])
        assert 0 < result["labels"]["adaptation"] <= 8 * drifted
    if first == "brightness.py":
        assert result["detection"]["num_detected"] == 4
        assert result["detection"]["num_false_alarms"] == 0


def test_the_grid_of_the_sweeps_page_is_a_grid(capsys: pytest.CaptureFixture[str]) -> None:
    page = "docs/how-to/sweeps.md"
    (grid,) = (each for each in re.findall(r"```yaml\n(.*?)```", PAGES[page], re.DOTALL))
    Path("buffers.yaml").write_text(grid)
    assert cli.command(commands(page)[0]) == 0
    runs = [line for line in capsys.readouterr().out.splitlines() if "digits-cd-er" in line]
    assert len(runs) == 2 * 3 * (2 * 2 - 1) * 3


# docs/how-to/live.md: one block after the other, with the names that a reader would have


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@executes(
    "docs/how-to/live.md",
    "for x, y in stream",
    "fit_reference",
    "def ask(request)",
    "def notify(request)",
    "in readings",
    "encoder=embed",
    'live.on("drifted"',
    "LiveClassifier",
)
def test_the_examples_of_the_live_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/how-to/live.md"
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.labels))
    x, y = (data.images[order] / 16).astype(np.float32), data.labels[order]
    paged: list[object] = []
    sinks: dict[str, list[Any]] = {"tensorboard": [], "wandb": [], "mlflow": []}
    for name, heard in sinks.items():
        monkeypatch.setattr(driftwise.live, name, lambda *_, _to=heard, **__: _to.append)
    names: dict[str, Any] = {
        "driftwise": driftwise,
        "network": small_network(),
        "stream": [(x[i : i + 20], y[i : i + 20] if i < 400 else None) for i in range(0, 600, 20)],
        "label_of": lambda image: 0,
        "page_somebody": paged.append,
        "readings": [(x[i : i + 50].reshape(50, -1), y[i : i + 50]) for i in range(0, 300, 50)],
        "embed": nn.Flatten(),
        "images": data.images[order][:200],
        "labels": y[:200],
        "x_last_year": x[600:1200],
        "y_last_year": y[600:1200],
    }
    exec(block(page, "def ask(request)"), names)
    request = types.SimpleNamespace(images=x[:2])
    assert names["ask"](request) == [0, 0]
    exec(block(page, "def notify(request)"), names)
    assert names["live"].waiting == ()
    assert "images" not in repr(names["request"])
    assert names["live"].counters.count("driftwise_adaptations_total 1\n") == 1
    exec(block(page, "for x, y in stream"), names)
    live = names["live"]
    assert live.num_samples == 600
    exec(block(page, "in readings"), names)
    assert names["live"].num_samples == 300
    exec(block(page, "encoder=embed"), names)
    assert names["live"].predict(names["images"]).shape == (200,)
    names["live"] = live
    exec(block(page, "fit_reference"), names)
    exec(block(page, 'live.on("drifted"'), names)
    live.observe(x[1200:1220], y[1200:1220])
    assert all("observed" in [event.kind for event in heard] for heard in sinks.values())
    live.close()

    flat = x.reshape(len(x), -1)
    names |= {"X": flat[:600], "y": y[:600], "X_test": flat[600:], "y_test": y[600:]}
    exec(block(page, "LiveClassifier"), names)
    assert names["model"].score(names["X_test"], names["y_test"]) > 0.8
    assert names["classifier"].observation_.drifted == ()


def test_a_package_installed_by_pip_adds_its_components_to_the_list_the_flags_and_the_checks() -> (
    None
):
    """A package made of the components of the page, under the entry points of the other page."""
    pytest.importorskip("setuptools", reason="nothing here builds a package")
    kinds = ("method", "detector", "adaptation", "dataset", "model")
    names = [block(ARCHITECTURE, own).splitlines()[0][2:].removesuffix(".py") for own in OWN]
    lines = ['[project]\nname = "their-parts"\nversion = "1.0"\n[tool.setuptools]']
    lines.append(f"py-modules = {json.dumps(names)}")
    for kind, name, own in zip(kinds, names, OWN, strict=True):
        group = f'[project.entry-points."driftwise.{kind}s"]'
        assert f"`driftwise.{kind}s`" in PAGES["docs/how-to/custom_parts.md"]
        lines += [group, f'{name.replace("_", "-")} = "{name}:{own.split()[1]}"']
        Path(f"package/{name}.py").parent.mkdir(exist_ok=True)
        Path(f"package/{name}.py").write_text(block(ARCHITECTURE, own))
    Path("package/pyproject.toml").write_text("\n".join(lines) + "\n")
    pip = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet")
    place = ("--no-build-isolation", "--no-warn-script-location", "--target", "installed")
    subprocess.run([*pip, *place, "./package"], check=True, capture_output=True)
    path = os.pathsep.join(["installed", *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def done(*words: str) -> str:
        command = [sys.executable, *words]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    listing = done("-m", "driftwise", "list")
    assert listing.count("offered by the package their-parts") == len(OWN)
    for flag in ("--method.weight", "--detector.level", "--adaptation.count"):
        assert flag in listing
    chosen = (
        "--method",
        "weighted-replay",
        "--detector",
        "brightness",
        "--adaptation",
        "few-labels",
    )
    data = ("--benchmark", "stripes", "--backbone", "tiny-net", "--num-tasks", "2", "--epochs", "5")
    run = ("-m", "driftwise", "run", *chosen, *data, "--transform", "gaussian-noise", "--quiet")
    done(*run, "--method.weight", "0.5", "--backbone.width", "16", "--out", "run")
    result = result_of("run")
    assert (result["method"], result["detector"]) == ("weighted-replay", "brightness")
    assert result["config"]["options"]["method"] == {"weight": 0.5}
    assert result["class_names"] == ["top", "upper", "lower", "bottom"]
    checks = "".join(
        f"from {name} import {own.split()[1]}; testing.check_{kind}({own.split()[1]})\n"
        for kind, name, own in zip(kinds, names, OWN, strict=True)
    )
    done("-c", f"from driftwise import testing\n{checks}")


@executes("docs/how-to/custom_parts.md", "check_adaptation")
def test_contract_checks_for_components_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    run_block("docs/how-to/custom_parts.md", "check_adaptation")
    assert "without labels no class may lose samples" in capsys.readouterr().out


@executes("docs/reference/run_folder.md", "driftwise.results")
def test_results_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_block("docs/reference/run_folder.md", "driftwise.results")["found"]
    assert [row["seed"] for row in found.runs] == [0, 1]
    assert "vanilla" in capsys.readouterr().out


@executes("docs/reference/api/plot.md", "plot.accuracy")
def test_figures_of_results() -> None:
    run_block("docs/reference/api/plot.md", "plot.accuracy")
    assert Path("accuracy.pdf").read_bytes().startswith(b"%PDF-")


@executes("docs/how-to/serve.md", "driftwise.Client(")
def test_a_client_of_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("uvicorn")
    from driftwise.serve import Learning, open_service
    from driftwise.serve.api import make_app

    code = block("docs/how-to/serve.md", "driftwise.Client(")
    with (
        open_service(tmp_path / "state", Learning(network="mlp")) as service,
        served(make_app(service)) as url,
    ):
        found: dict[str, Any] = {}
        exec(code.replace("http://127.0.0.1:8000", url), found)
        assert service.live.num_samples == 420
        assert (found["client"].predict(found["x"]).predicted == found["y"]).mean() > 0.9
        found["client"].close()
    assert capsys.readouterr().out.endswith("[] [0, 1, 2]\n")


ENCODERS = "docs/how-to/encoders.md"


@executes(ENCODERS, "num_tasks=5", "body = nn", "class Edges", "from_texts")
def test_the_examples_of_frozen_encoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "cache"))
    names = run_block(ENCODERS, "num_tasks=5")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert float(lines[-1].split()[-2]) > 50
    for marker in ("body = nn", "from_texts"):
        exec(block(ENCODERS, marker), names)
    assert names["mine"].encode(names["photos"]).features.shape == (10, 32)
    assert names["vectors"].images.shape == (120, 14)
    (tmp_path / "edges.py").write_text(block(ENCODERS, "class Edges"))
    assert len(block(ENCODERS, "class Edges").splitlines()) <= 30
    monkeypatch.syspath_prepend(tmp_path)
    edges = driftwise.encoders.load("edges:Edges")
    cache = driftwise.encoders.EmbeddingCache(edges)
    features = cache.features(names["photos"])
    assert features.shape == (10, 32)
    assert torch.allclose(features.sum(1), torch.tensor(2.0))
    assert cache.folder is not None
    assert cache.folder.parent == tmp_path / "cache" / "embeddings"


@executes("docs/how-to/distributed.md", "joined()")
def test_a_loop_of_processes(capsys: pytest.CaptureFixture[str]) -> None:
    """With one process; tests/test_distributed.py compares several."""
    run_block("docs/how-to/distributed.md", "joined()")
    assert [line[0] for line in capsys.readouterr().out.splitlines()] == list("12345")
    assert result_of("runs/several")["labels"]["adaptation"] >= 0


@executes("docs/explanations/open_questions.md", "longest_hidden")
def test_the_bound_on_hidden_drift(capsys: pytest.CaptureFixture[str]) -> None:
    run_block("docs/explanations/open_questions.md", "longest_hidden")
    # The bounds of the page's table; the last line has none.
    assert capsys.readouterr().out.split() == ["1.0", "9", "0.5", "45", "None"]


@executes("docs/explanations/kinds.md", "judge(")
def test_the_kind_of_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    run_block("docs/explanations/kinds.md", "judge(")
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("drift realign")
    assert second == "{0: 'none', 1: 'none', 2: 'drift', 3: 'none'}"
    assert third == "drift"


@executes("docs/explanations/kinds.md", 'adaptation="auto"')
def test_adaptation_by_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_block("docs/explanations/kinds.md", 'adaptation="auto"')
    drifted, labels = capsys.readouterr().out.splitlines()
    assert "drift" in drifted
    assert int(labels) > 0
