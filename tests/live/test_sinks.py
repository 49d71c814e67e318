"""Events and counters arrive in TensorBoard, W&B and MLflow: the real ones where installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from live_tools import digits, feed, live_learner
from run_tools import complaint

from driftwise import live
from driftwise.live.events import Event
from driftwise.live.reporter import COUNTERS, GAUGES
from driftwise.live.sinks import Sink

NUMBERS = {*COUNTERS, *GAUGES, "accuracy", "loss"}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """All events of a live learner on a stream that drifts."""
    expected: list[Event] = []
    with live_learner() as mine:
        mine.on("*", expected.append)
        feed(mine, digits(2, classes=4, turn=360), samples=700)
    return expected


def pass_on(events: list[Event], sink: Sink) -> None:
    for event in events:
        sink(event)


def numbers_of(events: list[Event]) -> dict[int, dict[str, float]]:
    """By step, as a plain callback gets them."""
    expected = {}
    for event in events:
        if event.kind == "observed":
            details: Any = event.details
            expected[event.step] = {
                **details["counters"],
                "accuracy": details["correct"] / details["labelled"],
                "loss": details["loss"],
            }
    return expected


# Recorders with the same calls


class Recorder:
    """Records every call."""

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
    events: list[Event],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Recorder()
    install(monkeypatch, "tensorboard")
    install(monkeypatch, "torch.utils.tensorboard", SummaryWriter=lambda *_, **__: writer)
    pass_on(events, live.tensorboard("anywhere"))
    written: dict[int, dict[str, float]] = {}
    for name, value, step in writer.of("add_scalar"):
        written.setdefault(step, {})[name] = value
    assert written == numbers_of(events)
    assert {kind for kind, _, _ in writer.of("add_text")} >= {"classes", "drifted", "realigned"}
    drifted = [event for event in events if event.kind == "drifted"]
    assert [call[1:] for call in writer.of("add_text") if call[0] == "drifted"] == [
        (json.dumps(event.details), event.step) for event in drifted
    ]
    assert writer.calls[-1][0] == "close"
    writer.calls.clear()
    pass_on(events, live.tensorboard("anywhere", every=7))
    assert {step for _, _, step in writer.of("add_scalar")} == set(range(7, 71, 7))
    assert len(writer.of("add_text")) >= 2 * len(drifted) > 0, "events are always written"
    assert "every must be at least 1" in complaint(lambda: live.tensorboard("anywhere", every=0))


def test_a_sink_of_wandb_goes_by_a_step_of_its_own(
    events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, begun = Recorder(), Recorder()
    install(monkeypatch, "wandb", init=lambda **init: begun.init(**init) or run)
    pass_on(events, live.wandb(project="live", mode="offline"))
    assert begun.calls == [("init", (), {"project": "live", "mode": "offline"})]
    assert run.calls[1] == ("define_metric", ("driftwise/*",), {"step_metric": "driftwise/step"})
    logged = [values for (values,) in run.of("log") if "driftwise/samples_total" in values]
    expected = numbers_of(events)
    assert logged == [
        {
            "driftwise/step": step,
            **{f"driftwise/{name}": expected[step][name] for name in expected[step]},
        }
        for step in expected
    ]
    assert any("driftwise/drifted" in values for (values,) in run.of("log"))
    assert run.calls[-1][0] == "finish"
    given = Recorder()
    pass_on(events, live.wandb(given))
    assert given.of("log")
    assert not given.of("finish"), "a given run is left open"
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
    events: list[Event],
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
    pass_on(events, live.mlflow("known", run_name="night", tracking_uri="file:x"))
    assert asked.of("client") == [("file:x",)]
    assert client.of("create_run") == [("7", "night")]
    batches = [named["metrics"] for name, _, named in client.calls if name == "log_batch"]
    assert batches == [
        [(name, value, step) for name, value in numbers.items()]
        for step, numbers in numbers_of(events).items()
    ]
    assert any(tag == "last_drifted" for _, tag, _ in client.of("set_tag"))
    assert client.calls[-1] == ("set_terminated", ("r1",), {})
    live.mlflow("unknown")
    assert client.of("create_run")[-1] == ("new unknown", None)


def test_a_sink_that_fails_stops_nothing_and_is_counted() -> None:
    class Broken(Sink):
        def write(self, *_: Any) -> None:
            raise ConnectionError("no network")

        def write_text(self, *_: Any) -> None:
            self.write()

        def close(self) -> None:
            self.write()

    mine, stream = live_learner(), digits(0)
    mine.on("*", Broken(every=1))
    (seen,) = feed(mine, stream, samples=10)
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


# The real packages

NEEDS = "the real package is not installed here"


@pytest.mark.filterwarnings("ignore")  # deprecations of other packages
def test_the_real_tensorboard_reads_back_what_was_written(
    events: list[Event], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard", reason=NEEDS)
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    pass_on(events, live.tensorboard(tmp_path))
    board = module.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    expected = numbers_of(events)
    assert set(board.Tags()["scalars"]) == NUMBERS
    for name in NUMBERS:
        read = {each.step: each.value for each in board.Scalars(name)}
        assert read == pytest.approx({step: expected[step][name] for step in expected})
    texts = board.Tensors("drifted/text_summary")
    drifted = [event for event in events if event.kind == "drifted"]
    assert [each.step for each in texts] == [event.step for event in drifted]
    assert json.loads(texts[0].tensor_proto.string_val[0]) == drifted[0].details


@pytest.mark.filterwarnings("ignore")
def test_the_real_mlflow_reads_back_what_was_written(
    events: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package: Any = pytest.importorskip("mlflow", reason=NEEDS)
    # Its store in files is to be asked for; the one in a database needs more packages.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "store").as_uri()
    pass_on(events, live.mlflow("live", run_name="night", tracking_uri=place))
    client = package.MlflowClient(place)
    (run,) = client.search_runs([client.get_experiment_by_name("live").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "night"
    expected = numbers_of(events)
    for name in NUMBERS:
        read = {each.step: each.value for each in client.get_metric_history(run.info.run_id, name)}
        assert read == pytest.approx({step: expected[step][name] for step in expected})
    assert run.data.tags["last_drifted"].startswith("step ")


@pytest.mark.filterwarnings("ignore")
def test_the_real_wandb_takes_what_is_written_and_keeps_it_offline(
    events: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason=NEEDS)
    monkeypatch.setenv("WANDB_SILENT", "true")
    pass_on(events, live.wandb(project="live", mode="offline", dir=str(tmp_path)))
    (kept,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = kept.read_bytes()
    for name in NUMBERS:
        assert f"driftwise/{name}".encode() in content
    last = numbers_of(events)[max(numbers_of(events))]
    assert str(int(last["samples_total"])).encode() in content
