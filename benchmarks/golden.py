"""Results that must not change, bit for bit, when code is only moved, renamed or made simpler.

    python benchmarks/golden.py make FILE       run everything and write what came out
    python benchmarks/golden.py compare A B     exit 1 where two such files differ

Floating-point results depend on the processor and on torch: make both files on one machine.
`results/golden.json` has what came out before the packages were moved and renamed; the runs called
"published" are those in which the learners are bit-equal to the paper's own code. What
a golden result holds: every accuracy, verdict and label of a run, and a digest of the logits that
its network gives at the end.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

import driftwise
from driftwise.cli.main import command
from driftwise.datasets.readers.digits import load_digits
from driftwise.runs.listeners import Silent
from driftwise.runs.saving import Saving

METHODS = ("er", "er-ace", "der++", "ser", "cls-er")
KEPT = ("faa", "forgetting", "accuracy_matrix", "per_class_accuracy", "labels", "verdicts")
VERDICT = ("task", "class", "drifted", "score", "p_value", "threshold")


def small_fashion(**settings: Any) -> driftwise.RunConfig:
    return driftwise.RunConfig(
        benchmark="fmnist-cd",
        max_per_class=120,
        backbone="cnn",
        epochs=1,
        buffer_size=60,
        lr=0.05,
        **settings,
    )


def configs() -> Iterator[tuple[str, driftwise.RunConfig]]:
    """The runs, by name."""
    for method in METHODS:
        for adaptation in ("vanilla", "fr", "amr", "amr-plus"):
            parts: dict[str, Any] = {"method": method, "adaptation": adaptation, "threads": 1}
            name = f"{method} {adaptation}"
            yield f"digits {name}", driftwise.RunConfig(epochs=3, **parts)
            yield f"fmnist {name}", small_fashion(**parts)
    # The runs in which the learners were found equal to the paper's own code, at a small size.
    for method in METHODS[:4]:
        for adaptation in ("vanilla", "fr", "amr"):
            for num_drifts in (1, 2):
                yield (
                    f"published {method} {adaptation} {num_drifts}",
                    small_fashion(
                        method=method,
                        adaptation=adaptation,
                        num_drifts=num_drifts,
                        detector="oracle",
                        encoder="random",
                        preset="published",
                        threads=1,
                    ),
                )
    for detector in ("mmd", "c2st", "combined", "reconstruction", "sequential"):
        yield (
            f"digits detector {detector}",
            driftwise.RunConfig(epochs=3, detector=detector, num_drifts=2, threads=1),
        )
    for adaptation in ("fr-flush", "fr-scratch", "amr-chosen", "amr-recovery", "amr-gradual"):
        yield (
            f"digits adaptation {adaptation}",
            driftwise.RunConfig(epochs=3, adaptation=adaptation, num_drifts=2, threads=1),
        )


def outcome_of(folder: Path) -> dict[str, Any]:
    """What is golden about a finished run."""
    result = json.loads((folder / "result.json").read_text())
    kept = {key: result[key] for key in KEPT}
    kept["verdicts"] = [[each.get(key) for key in VERDICT] for each in kept["verdicts"]]
    predictor = driftwise.load(folder)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(
        256, (16, *predictor.image_shape), generator=generator, dtype=torch.uint8
    )
    kept["logits"] = digest(predictor.logits(images).numpy())
    return kept


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def live(work: Path) -> dict[str, Any]:
    """A live learner on digits, half of them inverted after the middle, saved and loaded once."""
    digits = load_digits()
    images, labels = digits.images.copy(), digits.labels
    images[900:][labels[900:] < 5] = 16 - np.minimum(images[900:][labels[900:] < 5], 16)
    settings: dict[str, Any] = {
        "lr": 0.1,
        "optimiser": "sgd",
        "method": "der++",
        "adaptation": "amr-plus",
    }
    live_learner = driftwise.LiveLearner("mlp", folder=work, check_rows=20, **settings)
    drifted: list[Any] = []
    for start in range(0, 1780, 20):
        if start == 1000:
            live_learner.close()
            live_learner = driftwise.LiveLearner.load(work)
        now = slice(start, start + 20)
        report = live_learner.observe(images[now], labels[now] if start % 60 != 20 else None)
        drifted.append(list(map(str, report.drifted)))
    return {"drifted": drifted, "probabilities": digest(live_learner.predict_proba(images[:50]))}


def detection(work: Path) -> dict[str, Any]:
    """`detect` on two folders of digits, three classes of the second one turned upside down."""
    digits = load_digits()
    for position, (image, label) in enumerate(zip(digits.images, digits.labels, strict=True)):
        side = work / ("before" if position < 900 else "after") / str(label)
        side.mkdir(parents=True, exist_ok=True)
        shown = image[::-1] if position >= 900 and label in (2, 4, 7) else image
        Image.fromarray(np.minimum(shown[..., 0] * 15, 255).astype(np.uint8)).save(
            side / f"{position}.png"
        )
    folders = [str(work / "before"), str(work / "after")]
    command(["detect", *folders, "--encoder", "random", "--out", str(work / "out"), "--quiet"])
    report = json.loads((work / "out" / "report.json").read_text())
    keys = ("name", "verdict", "p_value", "threshold", "auc", "share")
    return {"classes": [[each[key] for key in keys] for each in report["classes"]]}


def sweep(work: Path) -> dict[str, Any]:
    """The table of a sweep of eight runs."""
    work.mkdir()
    grid = work / "grid.yaml"
    grid.write_text(
        yaml.safe_dump(
            {
                "base": {"epochs": 2, "threads": 1},
                "grid": {"adaptation": ["vanilla", "amr"], "seed": [0, 1], "method": ["er", "ser"]},
            }
        )
    )
    command(["sweep", str(grid), "--out", str(work / "sweep"), "--workers", "1", "--quiet"])
    found = sorted((work / "sweep").rglob("result.json"))
    return {str(each.parent.name): json.loads(each.read_text())["faa"] for each in found}


def resumed(work: Path) -> dict[str, Any]:
    """A run broken off in the middle of a task and taken up again."""

    class Stop(Exception):
        pass

    class StopAt(Silent):
        steps = 0

        def stepped(self, epoch: int, report: Any) -> None:
            del epoch, report
            self.steps += 1
            if self.steps == 250:
                raise Stop

    config = driftwise.RunConfig(epochs=3, method="cls-er", adaptation="amr-plus", threads=1)
    try:
        driftwise.run(config, work, listener=StopAt(), saving=Saving(steps=7))
    except Stop:
        pass
    else:
        raise AssertionError("the run was not broken off")
    driftwise.run(config, work, resume=True)
    whole = work.with_name("whole")
    driftwise.run(replace(config), whole)
    outcome = outcome_of(work)
    if outcome != outcome_of(whole):
        raise AssertionError("a run that was taken up again differs from an undisturbed one")
    return outcome


def make(file: Path) -> None:
    golden: dict[str, Any] = {"torch": torch.__version__}
    others: dict[str, Callable[[Path], dict[str, Any]]] = {
        "live": live,
        "detect": detection,
        "sweep": sweep,
        "resumed": resumed,
    }
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        for name, config in configs():
            folder = Path(temporary, name.replace(" ", "-"))
            driftwise.run(config, folder)
            golden[name] = outcome_of(folder)
            print(f"{time.monotonic() - began:6.0f} s  {name}: FAA {golden[name]['faa']:.2f}")
        for name, act in others.items():
            golden[name] = act(Path(temporary, name))
            print(f"{time.monotonic() - began:6.0f} s  {name}")
    file.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


def compare(one: Path, other: Path) -> int:
    before, after = (json.loads(file.read_text()) for file in (one, other))
    differ = [name for name in before | after if before.get(name) != after.get(name)]
    for name in differ:
        there, here = before.get(name) or {}, after.get(name) or {}
        print(
            f"{name}: differs in {sorted(k for k in there | here if there.get(k) != here.get(k))}"
        )
    print(f"{len(before | after) - len(differ)} equal, {len(differ)} differ")
    return int(bool(differ))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", file]:
            make(Path(file))
        case ["compare", one, other]:
            sys.exit(compare(Path(one), Path(other)))
        case _:
            sys.exit(__doc__)
