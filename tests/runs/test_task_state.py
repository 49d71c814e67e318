"""Checkpoints in the middle of a task: going on from one equals never having stopped."""

from __future__ import annotations

import dataclasses
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from run_tools import ENVIRONMENT, Stop, StopAt, command_line, complaint, lasting, result_of
from safetensors.torch import load_file
from same_state import same

from driftwise import RunConfig, run
from driftwise.protocols import AdaptationContext
from driftwise.runs import checkpoint as state_file
from driftwise.runs import store
from driftwise.runs.listeners import Silent
from driftwise.runs.result import task_state_from_plain, task_state_to_plain
from driftwise.runs.saving import Saving
from driftwise.runs.store import RunFolder, read_checkpoint
from driftwise.types import AdaptationResult, Samples, TaskState, Verdict

SMALL = RunConfig(epochs=2, tasks=((0, 1), (2, 3)), detector="oracle")
EVERY_STEP = Saving(steps=1)


def config(method: str = "er", adaptation: str = "amr") -> RunConfig:
    return dataclasses.replace(SMALL, method=method, adaptation=adaptation)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """The folder of an undisturbed run, by method and adaptation."""
    top = tmp_path_factory.mktemp("whole")

    def of(method: str, adaptation: str) -> Path:
        folder = top / f"{method}-{adaptation}"
        run(config(method, adaptation), folder, resume=True)
        return folder

    return of


class StopAfterResuming(StopAt):
    """Crashes at the n-th step after a task was resumed in its middle."""

    def resumed(self, task: Any, task_state: TaskState, samples: int) -> None:
        assert samples > 0
        self._left = self._step


@pytest.mark.parametrize(
    ("method", "adaptation"),
    [("er", "fr"), ("er-ace", "amr"), ("der++", "amr"), ("ser", "fr"), ("cls-er", "amr")],
)
def test_going_on_in_the_middle_of_a_task_equals_never_having_stopped(
    method: str, adaptation: str, whole: Callable[[str, str], Path], tmp_path: Path
) -> None:
    undisturbed = whole(method, adaptation)
    wanted = config(method, adaptation)
    moments = random.Random(f"{method} {adaptation}")
    for crash in (
        StopAt(1, moments.randint(2, 20)),
        StopAt(2, moments.randint(2, 20)),
        StopAfterResuming(2, moments.randint(2, 5)),
    ):
        with pytest.raises(Stop):
            run(wanted, tmp_path / "run", resume=True, listener=crash, saving=EVERY_STEP)
    run(wanted, tmp_path / "run", resume=True, saving=EVERY_STEP)
    assert lasting(tmp_path / "run") == lasting(undisturbed)
    events = [(folder / "events.jsonl").read_bytes() for folder in (tmp_path / "run", undisturbed)]
    assert events[0] == events[1]
    states = [read_checkpoint(folder)["parts"] for folder in (tmp_path / "run", undisturbed)]
    for state in states:
        del state["ledger"]["seconds"]
    assert same(*states)


def test_a_method_with_frozen_logits_resumes_between_two_tasks(tmp_path: Path) -> None:
    """An adaptation rehearses there: the rate of the task before must not apply."""

    class BeginsTask3(Silent):
        def task_begins(self, task: Any) -> None:
            if task.number == 3:
                raise Stop

    wanted = dataclasses.replace(
        config("ser", "amr-recovery"), tasks=((0, 1), (2, 3), (4, 5), (6, 7)), num_drifts=1
    )
    run(wanted, tmp_path / "whole")
    with pytest.raises(Stop):
        run(wanted, tmp_path / "run", listener=BeginsTask3())
    run(wanted, tmp_path / "run", resume=True)
    assert lasting(tmp_path / "run") == lasting(tmp_path / "whole")


class AsksTwice:
    """Asks for labels before and after a task's training, and writes down what it is given."""

    given: ClassVar[list[tuple[int, int]]] = []
    """(task, id), in the order in which they came"""
    _task = 0

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        self._task = drifted[0].task if drifted else 0
        return AdaptationResult(notes=(self._ask(context),) if drifted else ())

    def follow_up(self, context: AdaptationContext) -> tuple[str, ...]:
        return (self._ask(context),) if self._task else ()

    def _ask(self, context: AdaptationContext) -> str:
        ids = context.labels.ask(0, 20).ids.tolist()
        self.given.extend((self._task, sample) for sample in ids)
        unlabelled = {(self._task, sample) for sample in context.labels.unlabelled().ids.tolist()}
        assert not unlabelled & {*self.given}
        return f"given: {ids}"

    def state_dict(self) -> dict[str, Any]:
        return {"task": self._task}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._task = state["task"]


def test_no_sample_is_given_or_booked_twice_within_a_task_resumed_or_not(tmp_path: Path) -> None:
    wanted = config(adaptation=f"{__name__}:AsksTwice")
    AsksTwice.given.clear()
    run(wanted, tmp_path / "whole")
    given = list(AsksTwice.given)
    assert len(given) == len(set(given)) == 40
    assert result_of(tmp_path / "whole")["labels"]["adaptation"] == 40

    AsksTwice.given.clear()
    with pytest.raises(Stop):
        run(wanted, tmp_path / "run", listener=StopAt(2, 9), saving=EVERY_STEP)
    run(wanted, tmp_path / "run", resume=True)
    assert AsksTwice.given == given
    assert lasting(tmp_path / "run") == lasting(tmp_path / "whole")


def test_a_run_goes_on_after_the_very_step_that_was_saved(tmp_path: Path) -> None:
    class Count(StopAt):
        steps = 0

        def stepped(self, epoch: int, report: Any) -> None:
            self.steps += 1
            super().stepped(epoch, report)

    first = Count(1, 7)
    with pytest.raises(Stop):
        run(SMALL, tmp_path, listener=first, saving=EVERY_STEP)
    rest = Count(9, 0)
    run(SMALL, tmp_path, resume=True, listener=rest)
    # The step at which it crashed had been made, and not been saved.
    assert first.steps - 1 + rest.steps == result_of(tmp_path)["gradient_steps"]


def test_seconds_decide_where_steps_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[object] = []
    monkeypatch.setattr(RunFolder, "save_checkpoint", lambda _, state: saved.append(state))
    run(SMALL, tmp_path / "rarely", saving=Saving(seconds=3600))
    assert len(saved) == 2  # the ends of both tasks
    saved.clear()
    run(SMALL, tmp_path / "always", saving=Saving(seconds=1e-9))
    assert len(saved) == result_of(tmp_path / "always")["gradient_steps"] + 2


@pytest.mark.parametrize("wrong", [{"seconds": 0.0}, {"seconds": -1.0}, {"steps": 0}])
def test_impossible_intervals_get_one_line(wrong: dict[str, Any]) -> None:
    assert "between checkpoints must be" in complaint(lambda: Saving(**wrong))


def test_a_task_under_way_comes_back_as_it_went() -> None:
    samples = Samples(
        images=torch.arange(8, dtype=torch.uint8).reshape(2, 2, 2, 1),
        labels=torch.tensor([0, 1]),
        ids=torch.tensor([5, 6]),
        concepts=torch.tensor([0, 2]),
    )
    given = TaskState(
        task=2,
        epoch=3,
        steps=4,
        verdicts=(
            Verdict(task=2, label=0, drifted=True, p_values={"ks": 0.1}, moved_rows=(5,)),
            Verdict(task=2, label=1, drifted=None, reason="too few samples"),
        ),
        result=AdaptationResult(extra=samples, renewed=(0,), notes=("a note",)),
    )
    state = task_state_to_plain(given)
    came = task_state_from_plain(state_file.unflatten(*state_file.flatten(state)))
    assert came.verdicts == given.verdicts
    assert (came.task, came.epoch, came.steps) == (2, 3, 4)
    assert came.result.refilled is None
    assert (came.result.renewed, came.result.notes) == ((0,), ("a note",))
    assert came.result.extra is not None
    for field in dataclasses.fields(Samples):
        assert torch.equal(getattr(came.result.extra, field.name), getattr(samples, field.name))
    for wrong in (
        {**state, "epoch": -1},
        {**state, "steps": "4"},
        {**state, "repair": {**state["repair"], "renewed": ("0",)}},
        {**state, "verdicts": [{**state["verdicts"][0], "p_values": {"ks": "small"}}]},
    ):
        with pytest.raises(ValueError, match="expected "):
            task_state_from_plain(wrong)


# --- interruptions ------------------------------------------------------------------------------


def test_an_interrupted_run_keeps_the_step_it_was_in(tmp_path: Path) -> None:
    flags = ("--epochs", 4000, "--tasks", "[[0,1],[2,3]]", "--detector", "oracle", "--quiet")
    process = subprocess.Popen(
        command_line("run", *flags, "--out", tmp_path / "run"),
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    )
    events = tmp_path / "run" / "events.jsonl"
    until(lambda: events.exists() and events.stat().st_size > 0)
    time.sleep(0.5)  # in the middle of the first task, which takes a minute
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 143
    assert message.endswith("; everything up to here is kept: go on with --resume\n")
    saved = read_checkpoint(tmp_path / "run")
    assert saved["tasks_done"] == 0
    assert saved["midway"]["task"] == 1
    assert saved["parts"]["learner"]["steps"] > 0


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


# --- damage -------------------------------------------------------------------------------------


def stopped(folder: Path) -> None:
    """A run that has crashed in its second task, and has two checkpoints."""
    with pytest.raises(Stop):
        run(SMALL, folder, listener=StopAt(2, 8), saving=EVERY_STEP)


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    tmp_path: Path, whole: Callable[[str, str], Path]
) -> None:
    stopped(tmp_path / "run")
    (tmp_path / "run" / store.CHECKPOINT).write_bytes(b"half")
    with pytest.warns(UserWarning, match="is damaged.*going on from the checkpoint before it"):
        run(SMALL, tmp_path / "run", resume=True)
    assert lasting(tmp_path / "run") == lasting(whole("er", "amr"))
    for name in (store.CHECKPOINT, store.PREVIOUS):  # both: no reason to start from zero
        (tmp_path / "run" / name).write_bytes(b"half")
    (tmp_path / "run" / store.RESULT).unlink()
    message = complaint(lambda: run(SMALL, tmp_path / "run", resume=True))
    for name in (store.CHECKPOINT, store.PREVIOUS):
        assert f"{tmp_path / 'run' / name} is damaged" in message
    assert message.endswith("start anew with overwrite=True")


@pytest.mark.parametrize("kind", ["flip", "cut"])
def test_no_damage_passes_for_a_checkpoint(kind: str, tmp_path: Path) -> None:
    stopped(tmp_path)
    (tmp_path / store.PREVIOUS).unlink()
    file = tmp_path / store.CHECKPOINT
    content = file.read_bytes()
    draw = random.Random(0)
    header = 8 + int.from_bytes(content[:8], "little")
    places = [draw.randrange(header) for _ in range(60)]
    places += [draw.randrange(header, len(content)) for _ in range(60)]
    for place in places:
        damaged = bytearray(content)
        if kind == "flip":
            damaged[place] ^= 1 << draw.randrange(8)
        else:
            del damaged[place:]
        file.write_bytes(damaged)
        assert "damaged" in complaint(lambda: read_checkpoint(tmp_path))


# --- older formats ------------------------------------------------------------------------------


def test_a_checkpoint_under_the_old_name_is_gone_on_with(
    tmp_path: Path, whole: Callable[[str, str], Path]
) -> None:
    with pytest.raises(Stop):
        run(SMALL, tmp_path / "run", listener=StopAt(2, 8), saving=Saving(seconds=None, steps=4))
    for file in (tmp_path / "run" / store.CHECKPOINT, tmp_path / "run" / store.PREVIOUS):
        content = file.read_bytes()
        assert content.count(b'{"driftwise":') == 1
        file.write_bytes(content.replace(b'{"driftwise":', b'{"recollect":'))
    run(SMALL, tmp_path / "run", resume=True)
    assert lasting(tmp_path / "run") == lasting(whole("er", "amr"))


@pytest.mark.parametrize("number", [3, store.FORMAT + 1])
def test_a_checkpoint_of_another_format_is_refused_although_one_of_ours_is_there(
    tmp_path: Path, number: int
) -> None:
    stopped(tmp_path)
    saved = state_file.read(tmp_path / store.CHECKPOINT, format=store.FORMAT)
    state_file.write(tmp_path / store.CHECKPOINT, saved, format=number)
    message = complaint(lambda: run(SMALL, tmp_path, resume=True))
    assert f"has format {number}, this version reads format {store.FORMAT}; start anew" in message
    assert load_file(tmp_path / store.PREVIOUS)
