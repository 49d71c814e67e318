"""Custom parts: how they are found, distinguished, given options, and refused."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import complaint
from torch import nn
from torch.nn.functional import cross_entropy

import driftwise
from driftwise import RunConfig
from driftwise.cli import main as cli
from driftwise.config import registry
from driftwise.config.build import assemble
from driftwise.config.custom import NO_SOURCE, is_local
from driftwise.config.presets import resolve
from driftwise.detect import NeverDetector
from driftwise.files import CHECKSUMS
from driftwise.loop import run_tasks
from driftwise.methods import Method, Outcome
from driftwise.runs.listeners import Silent as NoListener
from driftwise.types import AdaptationResult, Dataset, Verdict

SMALL: dict[str, Any] = {"tasks": ((0, 1), (2, 3)), "epochs": 1, "max_per_class": 60}
"""A run of a few steps."""


def part(name: str) -> str:
    return f"{__name__}:{name}"


def refusal(**settings: Any) -> str:
    """The one line in which a run with such parts is refused, whenever that is."""

    def run() -> None:
        assembly = assemble(resolve(RunConfig(**{**SMALL, **settings})))
        tasks = run_tasks(
            assembly.stream.tasks(),
            handler=assembly.handler,
            context_of=assembly.context,
            evaluate=assembly.evaluate,
            epochs=1,
            listener=NoListener(),
        )
        list(tasks)

    return complaint(run)


class Plain(Method):
    """A method that does what it must."""

    def outcome(self, network: Any, stream: Any, draw: Any) -> Any:
        logits = network(stream.x)
        return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)


# --- contracts ----------------------------------------------------------------------------------


class NoOutcome(Method):
    pass


class NoObjective:
    def outcome(self, network: Any, stream: Any, draw: Any) -> None:
        pass


class TooFew(Method):
    def outcome(self, network: Any) -> Any:  # type: ignore[override]
        pass


class Wants(Plain):
    def __init__(self, network: nn.Module) -> None:
        pass


class Breaks(Plain):
    def __init__(self) -> None:
        raise KeyError("a\nstory")


class Leaves(Plain):
    def __init__(self) -> None:
        sys.exit(3)


def number() -> int:
    return 3


CONSTANT = 3


class ReturnsNone(Plain):
    def outcome(self, network: Any, stream: Any, draw: Any) -> Any:
        pass


class LossPerSample(Plain):
    def outcome(self, network: Any, stream: Any, draw: Any) -> Any:
        logits = network(stream.x)
        return Outcome(loss=cross_entropy(logits, stream.y, reduction="none"), logits=logits)


class Detached(Plain):
    def outcome(self, network: Any, stream: Any, draw: Any) -> Any:
        outcome = super().outcome(network, stream, draw)
        return Outcome(loss=outcome.loss.detach(), logits=outcome.logits)


class OneLogit(Plain):
    def outcome(self, network: Any, stream: Any, draw: Any) -> Any:
        outcome = super().outcome(network, stream, draw)
        return Outcome(loss=outcome.loss, logits=outcome.logits[:1])


class OddColumns(Plain):
    def columns(self, logits: torch.Tensor) -> Any:
        return {"logits": logits[:1]}


def test_the_place_of_an_error_in_a_constructor_is_reported_and_its_cause_kept() -> None:
    with pytest.raises(driftwise.UserError) as caught:
        registry.find("method", part("Breaks")).make()
    assert isinstance(caught.value.__cause__, KeyError)
    assert "test_custom.py, line " in str(caught.value)


class NoCheck:
    reads_monitored: Any = True

    def __init__(self, context: Any) -> None:
        pass


class Blind(NoCheck):
    reads_monitored: Any = None

    def check(self, task: int, classes: Any, monitored: Any, reference: Any) -> Any:
        return []


class NoContext(Blind):
    reads_monitored = False

    def __init__(self) -> None:
        pass


class Silent(NoContext):
    """Says nothing of any class."""

    def __init__(self, context: Any) -> None:
        pass


class Chatters(Silent):
    def check(self, task: int, classes: Any, monitored: Any, reference: Any) -> Any:
        return [Verdict(task=task, label=c, drifted=False) for c in (*classes, 7)]


class Repeats(Silent):
    def check(self, task: int, classes: Any, monitored: Any, reference: Any) -> Any:
        return [Verdict(task=task, label=c, drifted=False) for c in (*classes, *classes)]


class Booleans(Silent):
    def check(self, task: int, classes: Any, monitored: Any, reference: Any) -> Any:
        return [False for _ in classes]


class Unsure(Silent):
    def check(self, task: int, classes: Any, monitored: Any, reference: Any) -> Any:
        return [Verdict(task=task, label=c, drifted="maybe") for c in classes]  # type: ignore[arg-type]


class Nan(Silent):
    def check(self, task: int, classes: Any, monitored: Any, reference: Any) -> Any:
        return [Verdict(task=task, label=c, drifted=False, score=np.nan) for c in classes]


class NumpyDetector(Silent):
    """Answers in numpy's numbers."""

    def check(self, task: int, classes: Any, monitored: Any, reference: Any) -> Any:
        return [
            Verdict(
                task=np.int64(task),  # type: ignore[arg-type]
                label=np.int64(c),  # type: ignore[arg-type]
                drifted=np.bool_(True),  # type: ignore[arg-type]
                score=torch.tensor(0.5),  # type: ignore[arg-type]
            )
            for c in classes
        ]


def test_verdicts_in_numbers_of_numpy_are_as_good_as_plain_ones(tmp_path: Path) -> None:
    config = RunConfig(**SMALL, detector=part("NumpyDetector"))
    verdicts = driftwise.run(config, tmp_path / "run")["verdicts"]
    assert [(v["class"], v["drifted"], v["score"]) for v in verdicts] == [
        (0, True, 0.5),
        (1, True, 0.5),
    ]


class NoRepair:
    pass


class RepairsNothing:
    def adapt(self, drifted: Any, context: Any) -> Any:
        return None


class OneNote:
    def adapt(self, drifted: Any, context: Any) -> Any:
        return AdaptationResult(notes="all is well")  # type: ignore[arg-type]


def bad_data() -> Any:
    return [1, 2]


def broken_data() -> Any:
    raise OSError("no such disk")


CONTRACTS = {
    ("method", "NoOutcome"): "must have a method outcome(self, network, stream, draw)",
    ("method", "NoObjective"): "must be a subclass of driftwise.methods.Method",
    (
        "method",
        "TooFew",
    ): "must take outcome(self, network, stream, draw); its own is outcome(self, ",
    ("method", "Wants"): "cannot be made as Wants(): missing a required argument: 'network'",
    ("method", "Breaks"): "cannot be made as Breaks(): KeyError: 'a\\nstory' (",
    ("method", "Leaves"): "cannot be made as Leaves(): SystemExit: 3 (",
    ("method", "number"): "must make a driftwise.methods.Method; it made a int",
    ("method", "CONSTANT"): "must be a class or a function that makes one; it is a int",
    ("method", "ReturnsNone"): "outcome must return an Outcome(loss=..., logits=...); it returned",
    ("method", "LossPerSample"): "it is a tensor of shape (10,)",
    ("method", "Detached"): "it is a tensor of shape () without gradients",
    (
        "method",
        "OneLogit",
    ): "must be those of the stream batch, (10, classes); they are a tensor of",
    ("method", "OddColumns"): "columns must return tensors by name, each with an entry for each of",
    ("detector", "NoCheck"): "must have a method check(self, task, classes, monitored, reference)",
    ("detector", "Blind"): "must have an attribute reads_monitored",
    (
        "detector",
        "NoContext",
    ): "cannot be made as NoContext(context): too many positional arguments",
    (
        "detector",
        "Silent",
    ): "one verdict for each class it is asked about, [0, 1]; it gave verdicts for []",
    ("detector", "Chatters"): "it gave verdicts for [",
    ("detector", "Repeats"): "it gave verdicts for [",
    (
        "detector",
        "Booleans",
    ): "must return a list of Verdict, one for each class; got [",
    (
        "detector",
        "Unsure",
    ): "drifted must be True, False, or None where it is not testable; got 'maybe'",
    ("detector", "Nan"): "score of class 0 is nan",
    ("adaptation", "NoRepair"): "must have a method adapt(self, drifted, context)",
    ("adaptation", "RepairsNothing"): "RepairsNothing.adapt must return an AdaptationResult; it",
    ("adaptation", "OneNote"): "OneNote.adapt: notes must be a tuple of texts; got 'all is well'",
    ("benchmark", "bad_data"): "expected a driftwise.types.Dataset; got list",
    ("benchmark", "broken_data"): "cannot be made as broken_data(): OSError: no such disk (",
}


@pytest.mark.parametrize(("kind", "name"), CONTRACTS)
def test_a_component_that_breaks_its_contract_is_refused_by_name(kind: str, name: str) -> None:
    settings = {"tasks": ((0,), (1,))} if kind == "benchmark" else {}
    assert CONTRACTS[kind, name] in refusal(**{kind: part(name)}, **settings)


@pytest.mark.parametrize("kind", registry.OWN)
def test_what_cannot_be_a_component_is_never_called(kind: str) -> None:
    for path in (
        "..x:y",
        "json:loads",
        "os:system",
        "no_such_module:x",
        "collections:",
        ":x",
        "a:b:c",
    ):
        message = complaint(lambda path=path: registry.find(kind, path).make())  # type: ignore[misc]
        assert message.startswith(f"cannot import {path!r} (expected module:name)")


remove = shutil.rmtree


def test_what_a_module_has_from_python_itself_is_no_part_of_it(tmp_path: Path) -> None:
    message = refusal(benchmark=part("remove"), data=str(tmp_path))
    assert "belongs to Python itself (shutil)" in message
    assert tmp_path.is_dir()


# --- what goes wrong later ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder for modules of one's own, forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if is_local(getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


MODULE = """
import sys
from torch.nn.functional import cross_entropy
from driftwise.methods import Method, Outcome

class Fails(Method):
    def outcome(self, network, stream, draw):
        return self.divide(0)

    def divide(self, number):
        return 1 / number

class Leaves(Method):
    def outcome(self, network, stream, draw):
        sys.exit(0)
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Fails", "failed: ZeroDivisionError: division by zero (late_faults.py, line 11)"),
        ("Leaves", "failed: a custom part ended the run: SystemExit: 0 (late_faults.py, line 15)"),
    ],
)
def test_an_error_in_a_custom_part_is_one_line_with_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, expected: str
) -> None:
    (folder / "late_faults.py").write_text(MODULE)
    words = f"run --method late_faults:{name} --tasks [[0,1],[2,3]] --epochs 1 --quiet --out run"
    assert cli.command(words.split()) == 1
    assert capsys.readouterr().err == f"driftwise: {expected}\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import no_such_thing\n", "ModuleNotFoundError: No module named 'no_such_thing' ("),
        ("x = 1\nclass\n", "SyntaxError: invalid syntax (faulty.py, line 2) (faulty.py, line 2)"),
        ("raise SystemExit(4)\n", "SystemExit: 4 (faulty.py, line 1)"),
    ],
)
def test_a_module_that_cannot_be_imported_gets_one_line(
    folder: Path, source: str, expected: str
) -> None:
    (folder / "faulty.py").write_text(source)
    assert expected in complaint(lambda: registry.find("method", "faulty:X").factory())


# --- options ------------------------------------------------------------------------------------


class Weighted(Plain):
    """A method with options."""

    def __init__(  # type: ignore[no-untyped-def]
        self, alpha: float = 1, *, layers: tuple[int, ...] = (1,), name="a", deep=False, rest=None
    ):
        self.given = (alpha, layers, name, deep, rest)


def options_of(**settings: Any) -> Any:
    return resolve(RunConfig(**settings)).options


def test_keyword_arguments_are_options_typed_by_annotation_or_default() -> None:
    whole = {"alpha": 1.0, "layers": (1,), "name": "a", "deep": False}
    assert options_of(method=part("Weighted"))["method"] == whole
    given = {"alpha": 2, "layers": [3, 4], "deep": True}
    config = resolve(RunConfig(method=part("Weighted"), options={"method": given}))
    assert config.options["method"] == {**whole, "alpha": 2.0, "layers": (3, 4), "deep": True}
    stored = RunConfig(**json.loads(json.dumps(config.to_json())))
    for each in (config, stored):
        assert registry.make("method", each).given == (2.0, (3, 4), "a", True, None)


def test_unknown_and_mistyped_options_are_refused_with_the_nearest() -> None:
    def refused(**given: Any) -> str:
        return complaint(lambda: options_of(method=part("Weighted"), options={"method": given}))

    assert "unknown key 'alhpa'; did you mean alpha?" in refused(alhpa=1)
    assert "unknown key 'zzz'; known: alpha, layers, name, deep" in refused(zzz=1)
    assert "alpha must be a number; got 'much'" in refused(alpha="much")
    assert "needs a value for weight, which has no default: set the option method.weight" in (
        complaint(lambda: options_of(method=part("Needs")))
    )


class Needs(Plain):
    def __init__(self, *, weight: float) -> None:
        self.weight = weight


class Threshold(NeverDetector):
    def __init__(self, context: Any, limit: int = 20) -> None:
        super().__init__(context)
        self.limit = limit


class Net(nn.Sequential):
    def __init__(self, *, input_shape: tuple[int, ...], num_classes: int, hidden: int = 4) -> None:
        size = int(np.prod(input_shape))
        super().__init__(
            nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, num_classes)
        )


def stripes(noise: int = 60) -> Dataset:
    labels = np.repeat(np.arange(4), 30)
    images = np.random.default_rng(0).integers(0, noise, (120, 8, 8, 3), dtype=np.uint8)
    images[np.arange(120), labels * 2] += 180
    return Dataset(images=images, labels=labels, class_names=("a", "b", "c", "d"))


def test_every_kind_of_part_has_options_by_flag_file_and_python(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"method": "Weighted", "detector": "Threshold", "backbone": "Net"}
    parts["benchmark"] = "stripes"
    given: dict[str, dict[str, Any]] = {
        "method": {"alpha": 2.0},
        "detector": {"limit": 9},
        "backbone": {"hidden": 6},
        "benchmark": {"noise": 30},
    }
    settings: dict[str, Any] = {"num_tasks": 2, "epochs": 1, "seed": 1}
    names: dict[str, Any] = {kind: part(name) for kind, name in parts.items()}
    driftwise.run(RunConfig(**settings, **names, options=given), "python")

    written = {kind: {"name": names[kind], **given[kind]} for kind in names}
    (folder / "file.json").write_text(json.dumps({**settings, **written}))
    assert cli.command(["run", "--config", "file.json", "--out", "file", "--quiet"]) == 0

    flags = [f"--{key.replace('_', '-')}={value}" for key, value in {**settings, **names}.items()]
    flags += [f"--{kind}.{k}={v}" for kind, own in given.items() for k, v in own.items()]
    assert cli.command(["run", *flags, "--out", "flags", "--quiet"]) == 0
    configs = [json.loads((folder / out / "config.json").read_text()) for out in ("file", "flags")]
    assert configs == [json.loads((folder / "python" / "config.json").read_text())] * 2
    assert configs[0]["options"]["backbone"] == {"hidden": 6}
    network: Any = driftwise.load("flags", trust_imports=True).network
    assert network[1].out_features == 6

    assert cli.command(["run", *flags, "--method.alhpa", "1"]) == 2
    assert "unknown flag --method.alhpa; did you mean --method.alpha?" in capsys.readouterr().err


# --- identity -----------------------------------------------------------------------------------

Edit = Callable[[str, str], None]


@pytest.fixture
def edit(folder: Path) -> Edit:
    """Write a module, as a new process would find it."""

    def write(name: str, source: str) -> None:
        file = folder / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(source)
        for loaded in [each for each in sys.modules if each.startswith("identified")]:
            del sys.modules[loaded]
        importlib.invalidate_caches()

    return write


def identity(**settings: str) -> str | None:
    return resolve(RunConfig(**settings)).code_identity  # type: ignore[arg-type]


PART = """
from driftwise.adapt.vanilla import Vanilla
import identified_helper
class Part(Vanilla):
    def late(self):
        from identified_package import inner
"""


def test_the_identity_follows_the_source_of_a_part_and_of_local_modules_it_imports(
    edit: Edit,
) -> None:
    edit("identified_part", PART)
    edit("identified_helper", "import identified_deeper, numpy\n")
    edit("identified_deeper", "X = 1\n")
    edit("identified_package.__init__", "")
    edit("identified_package.inner", "from . import sibling\n")
    edit("identified_package.sibling", "")
    edit("identified_stranger", "X = 1\n")

    def now() -> str | None:
        return identity(adaptation="identified_part:Part")

    first = now()
    assert first is not None
    assert first == now()
    edit("identified_stranger", "X = 2\n")
    assert now() == first
    seen = {first}
    for name, source in {
        "identified_part": PART + "# a word\n",
        "identified_helper": "import identified_deeper, numpy, os\n",
        "identified_deeper": "X = 2\n",
        "identified_package.__init__": "# late\n",
        "identified_package.inner": "from . import sibling as other\n",
        "identified_package.sibling": "X = 3\n",
    }.items():
        edit(name, source)
        assert now() not in seen, name
        seen.add(now() or "")


def test_what_counts_is_what_was_loaded(edit: Edit, folder: Path) -> None:
    edit("identified_part", PART)
    edit("identified_helper", "")
    first = identity(adaptation="identified_part:Part")
    (folder / "identified_helper.py").write_text("X = 1\n")  # nobody loads it again
    assert identity(adaptation="identified_part:Part") == first
    importlib.reload(sys.modules["identified_helper"])
    assert identity(adaptation="identified_part:Part") != first


def test_a_config_made_with_other_source_is_refused(edit: Edit) -> None:
    edit("identified_part", PART)
    edit("identified_helper", "")
    config = resolve(RunConfig(adaptation="identified_part:Part"))
    assert resolve(config) == config
    edit("identified_helper", "X = 1\n")
    for refuse in (resolve, assemble):
        message = complaint(lambda: refuse(config))  # noqa: B023
        assert message.startswith(
            "the source of adaptation identified_part:Part, or of a local module"
        )


def test_a_live_learner_goes_on_with_an_edited_part_and_says_so(edit: Edit, tmp_path: Path) -> None:
    edit("identified_part", PART)
    edit("identified_helper", "")
    settings: dict[str, Any] = {"adaptation": "identified_part:Part", "lr": 0.1}
    with driftwise.LiveLearner("mlp", folder=tmp_path / "it", **settings) as live_learner:
        live_learner.observe(np.zeros((4, 8, 8, 1), dtype=np.uint8), np.arange(4) % 2)
    edit("identified_helper", "X = 1\n")
    with pytest.warns(UserWarning, match="the source of custom parts has changed since"):
        again = driftwise.LiveLearner.load(tmp_path / "it", trust_imports=True)
    assert again.num_samples == 4
    again.close()


def test_a_part_without_source_is_run_and_never_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import ModuleType

    from driftwise.adapt.vanilla import Vanilla
    from driftwise.sweeps.grid import Grid
    from driftwise.sweeps.plan import make_plan

    module = ModuleType("typed_in")
    module.Part = type("Part", (Vanilla,), {"__module__": "typed_in"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "typed_in", module)
    config = RunConfig(**SMALL, adaptation="typed_in:Part")
    assert driftwise.run(config, tmp_path / "run")["config"]["code_identity"] == NO_SOURCE
    message = complaint(lambda: driftwise.run(config, tmp_path / "run", resume=True))
    assert "a custom part whose source cannot be read" in message
    grid = Grid(axes={"seed": [0]}, base={"adaptation": "typed_in:Part"})
    assert "put it into a file" in complaint(lambda: make_plan("mine", grid))


def test_a_run_from_before_there_was_an_identity_of_code_is_the_same_run(
    finished: Path, tmp_path: Path
) -> None:
    old = tmp_path / "old"
    shutil.copytree(finished, old)
    config = json.loads((old / "config.json").read_text())
    assert config.pop("code_identity") is None
    (old / "config.json").write_text(json.dumps(config))
    (old / CHECKSUMS).unlink()
    result = driftwise.run(RunConfig(epochs=1), old, resume=True)
    assert result["faa"] == json.loads((finished / "result.json").read_text())["faa"]
