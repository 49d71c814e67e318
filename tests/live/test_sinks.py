"""What a live learner tells arrives in TensorBoard, W&B and MLflow: the real ones where they are here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from live_tools import digits, live_learner, play
from run_tools import complaint

import driftwise
from driftwise import live
from driftwise.live.events import Event
from driftwise.live.reporter import COUNTERS, GAUGES
from driftwise.live.sinks import Sink

NUMBERS = {*COUNTERS, *GAUGES, "accuracy", "loss"}


@pytest.fixture(scope="module")
def heard() -> list[Event]:
    """All that a live learner tells on a stream that drifts."""
    told: list[Event] = []
    with live_learner() as mine:
        mine.on("*", told.append)
        play(mine, digits(0, turn=400), samples=900)
    return told


def pass_on(heard: list[Event], sink: Sink) -> None:
    for event in heard:
        sink(event)


def numbers_told(heard: list[Event]) -> dict[int, dict[str, float]]:
    """By step, as they came to the ears of a plain callback."""
    told = {}
    for event in heard:
        if event.kind == "observed":
            details: Any = event.details
            told[event.step] = {
                **details["counters"],
                "accuracy": details["correct"] / details["labelled"],
                "loss": details["loss"],
            }
    return told


# Recorders with the same calls


class Recorder:
    """Answers every call, and remembers it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> None:
            self.calls.append((name, arguments, named))

        return call

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments, _ in self.calls if called == name]


def install(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_sink_of_tensorboard_writes_every_number_and_event(
    heard: list[Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Recorder()
    install(monkeypatch, "tensorboard")
    install(monkeypatch, "torch.utils.tensorboard", SummaryWriter=lambda *_, **__: writer)
    pass_on(heard, live.tensorboard("anywhere"))
    written: dict[int, dict[str, float]] = {}
    for name, value, step in writer.of("add_scalar"):
        written.setdefault(step, {})[name] = value
    assert written == numbers_told(heard)
    assert {kind for kind, _, _ in writer.of("add_text")} >= {"classes", "drifted", "realigned"}
    drifted = [event for event in heard if event.kind == "drifted"]
    assert [call[1:] for call in writer.of("add_text") if call[0] == "drifted"] == [
        (json.dumps(event.details), event.step) for event in drifted
    ]
    assert writer.calls[-1][0] == "close"


def test_a_sink_of_wandb_goes_by_a_step_of_its_own(
    heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = Recorder(), Recorder()
    install(monkeypatch, "wandb", init=lambda **init: begun.init(**init) or run)
    pass_on(heard, live.wandb(project="live", mode="offline"))
    assert begun.calls == [("init", (), {"project": "live", "mode": "offline"})]
    assert run.calls[1] == ("define_metric", ("driftwise/*",), {"step_metric": "driftwise/step"})
    logged = [values for (values,) in run.of("log") if "driftwise/samples_total" in values]
    told = numbers_told(heard)
    assert logged == [
        {"driftwise/step": step, **{f"driftwise/{name}": told[step][name] for name in told[step]}}
        for step in told
    ]
    assert any("driftwise/drifted" in values for (values,) in run.of("log"))
    assert run.calls[-1][0] == "finish"


def test_a_run_of_wandb_that_is_given_is_left_open(
    heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorder()
    install(monkeypatch, "wandb")
    pass_on(heard, live.wandb(run))
    assert run.of("log")
    assert not run.of("finish")
    assert "leave out project" in complaint(lambda: live.wandb(run, project="live"))


class Client(Recorder):
    """An MLflow that knows one experiment."""

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="7") if name == "known" else None

    def create_experiment(self, name: str) -> str:
        return f"new {name}"

    def create_run(self, experiment: str, run_name: str | None) -> Any:
        self.calls.append(("create_run", (experiment, run_name), {}))
        return SimpleNamespace(info=SimpleNamespace(run_id="r1"))


def test_a_sink_of_mlflow_writes_a_batch_of_metrics_per_step(
    heard: list[Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, asked = Client(), Recorder()
    entities = SimpleNamespace(Metric=lambda key, value, _, step: (key, value, step))
    install(
        monkeypatch,
        "mlflow",
        MlflowClient=lambda uri: asked.client(uri) or client,
        entities=entities,
    )
    pass_on(heard, live.mlflow("known", run_name="night", tracking_uri="file:x"))
    assert asked.of("client") == [("file:x",)]
    assert client.of("create_run") == [("7", "night")]
    batches = [named["metrics"] for name, _, named in client.calls if name == "log_batch"]
    assert batches == [
        [(name, value, step) for name, value in numbers.items()]
        for step, numbers in numbers_told(heard).items()
    ]
    assert any(tag == "last_drifted" for _, tag, _ in client.of("set_tag"))
    assert client.calls[-1] == ("set_terminated", ("r1",), {})
    live.mlflow("unknown")
    assert client.of("create_run")[-1] == ("new unknown", None)


def test_numbers_may_be_written_now_and_then_and_events_are_written_always(
    heard: list[Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Recorder()
    install(monkeypatch, "tensorboard")
    install(monkeypatch, "torch.utils.tensorboard", SummaryWriter=lambda *_, **__: writer)
    pass_on(heard, live.tensorboard("anywhere", every=7))
    assert {step for _, _, step in writer.of("add_scalar")} == set(range(7, 91, 7))
    texts = [event for event in heard if event.kind in {"drifted", "realigned", "watched"}]
    assert len(writer.of("add_text")) >= len(texts) > 0
    assert "every must be at least 1" in complaint(lambda: live.tensorboard("anywhere", every=0))


def test_a_sink_that_fails_stops_nothing_and_is_counted() -> None:
    class Broken(Sink):
        def write(self, numbers: Any, step: int) -> None:
            raise ConnectionError("no network")

        def write_text(self, kind: str, text: str, step: int) -> None:
            raise ConnectionError("no network")

        def close(self) -> None:
            raise ConnectionError("no network")

    mine, stream = live_learner(), digits(0)
    mine.on("*", Broken(every=1))
    (seen,) = play(mine, stream, samples=10)
    assert any("ConnectionError: no network" in note for note in seen.notes)
    assert "driftwise_callback_failures_total 2\n" in mine.counters  # classes, observed
    with pytest.warns(UserWarning, match="a callback on closed failed: ConnectionError"):
        mine.close()


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("tensorboard", lambda: live.tensorboard("anywhere")),
        ("wandb", live.wandb),
        ("mlflow", live.mlflow),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[], Sink]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    text = complaint(make)
    assert text == f"{package} is not installed: pip install 'driftwise[{package}]'"


def test_after_a_restart_the_counts_go_on(tmp_path: Path) -> None:
    stream = digits(0)
    with live_learner(folder=tmp_path / "kept") as mine:
        play(mine, stream, samples=50)
    heard: list[Event] = []
    with driftwise.LiveLearner.load(tmp_path / "kept") as again:
        again.on("observed", heard.append)
        again.observe(stream.images[50:60], stream.labels[50:60])
    counters: Any = heard[0].details["counters"]
    assert counters["samples_total"] == 60


# The real packages

NEEDS = "the real package is not installed here"


@pytest.mark.filterwarnings("ignore")  # other people's deprecations are theirs to mend
def test_the_real_tensorboard_reads_back_what_was_written(
    heard: list[Event], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard", reason=NEEDS)
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    pass_on(heard, live.tensorboard(tmp_path))
    board = module.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    told = numbers_told(heard)
    assert set(board.Tags()["scalars"]) == NUMBERS
    for name in NUMBERS:
        read = {each.step: each.value for each in board.Scalars(name)}
        assert read == pytest.approx({step: told[step][name] for step in told})
    texts = board.Tensors("drifted/text_summary")
    drifted = [event for event in heard if event.kind == "drifted"]
    assert [each.step for each in texts] == [event.step for event in drifted]
    assert json.loads(texts[0].tensor_proto.string_val[0]) == drifted[0].details


@pytest.mark.filterwarnings("ignore")
def test_the_real_mlflow_reads_back_what_was_written(
    heard: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package: Any = pytest.importorskip("mlflow", reason=NEEDS)
    # Its store in files is to be asked for; the one in a database needs more packages.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "store").as_uri()
    pass_on(heard, live.mlflow("live", run_name="night", tracking_uri=place))
    client = package.MlflowClient(place)
    (run,) = client.search_runs([client.get_experiment_by_name("live").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "night"
    told = numbers_told(heard)
    for name in NUMBERS:
        read = {each.step: each.value for each in client.get_metric_history(run.info.run_id, name)}
        assert read == pytest.approx({step: told[step][name] for step in told})
    assert run.data.tags["last_drifted"].startswith("step ")


@pytest.mark.filterwarnings("ignore")
def test_the_real_wandb_takes_what_is_written_and_keeps_it_offline(
    heard: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason=NEEDS)
    monkeypatch.setenv("WANDB_SILENT", "true")
    pass_on(heard, live.wandb(project="live", mode="offline", dir=str(tmp_path)))
    (kept,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = kept.read_bytes()
    for name in NUMBERS:
        assert f"driftwise/{name}".encode() in content
    last = numbers_told(heard)[max(numbers_told(heard))]
    assert str(int(last["samples_total"])).encode() in content
