from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from rich.console import Console

from driftwise.config.schema import RunConfig
from driftwise.runs import display
from driftwise.runs.display import Display, RunDisplay
from driftwise.types import AdaptationResult, StepReport, TaskRecord, Verdict


@dataclass
class Clock:
    """Stands still until it is moved."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class NumberedTask:
    number: int


@dataclass
class Accuracies:
    accuracy: tuple[float | None, ...]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(display, "time", clock)
    return clock


def make(*, terminal: bool, num_runs: int = 1, quiet: bool = False) -> tuple[Display, io.StringIO]:
    written = io.StringIO()
    console = Console(
        file=written, force_terminal=terminal, width=120, quiet=quiet, legacy_windows=False
    )
    return Display(console, num_runs=num_runs), written


def begin(display: Display, num_tasks: int = 2) -> RunDisplay:
    return display.run("amr", RunConfig(epochs=2, batch_size=10), num_tasks)


def check(listener: RunDisplay, number: int, samples: int, **how: Any) -> None:
    task: Any = NumberedTask(number)
    listener.task_begins(task)
    listener.checked(task, how.get("verdicts", ()), how.get("result", AdaptationResult()), samples)


def end(listener: RunDisplay, number: int, *accuracy: float | None) -> None:
    listener.task_ends(
        TaskRecord(task=number, verdicts=(), renewed=(), notes=(), scores=Accuracies(accuracy))
    )


def step_of(loss: float) -> StepReport:
    """Three of ten samples are right."""
    logits = torch.tensor([[0.0, 1.0]] * 3 + [[1.0, 0.0]] * 7)
    return StepReport(loss=loss, logits=logits, labels=torch.ones(10, dtype=torch.int64))


STEP = step_of(0.5)


def test_elsewhere_than_on_a_terminal_every_task_leaves_one_plain_line(clock: Clock) -> None:
    display, written = make(terminal=False)
    with display:
        listener = begin(display)
        for number, accuracy in ((1, [None]), (2, [80.0, 70.0])):
            check(listener, number, samples=20)
            for _ in range(4):
                clock.now += 1
                listener.stepped(1, STEP)
            end(listener, number, *accuracy)
    assert written.getvalue().splitlines() == [
        "amr: task 1/2 done, accuracy so far unknown, loss 0.500, 4 s left",
        "amr: task 2/2 done, accuracy so far 75.0 %, loss 0.500, 0 s left",
    ]


def test_drifted_classes_and_notes_are_reported_at_once(clock: Clock) -> None:
    display, written = make(terminal=False)
    verdicts = [
        Verdict(task=2, label=0, drifted=True),
        Verdict(task=2, label=1, drifted=None),
        Verdict(task=2, label=2, drifted=False),
        Verdict(task=2, label=3, drifted=True),
    ]
    with display:
        result = AdaptationResult(notes=("3 fresh samples [for] 5 slots",))
        check(begin(display), 2, samples=20, verdicts=verdicts, result=result)
    assert written.getvalue().splitlines() == [
        "amr: task 2/2: drifted: 0, 3",
        "amr: task 2/2: not testable: 1",
        "amr: task 2/2: 3 fresh samples [for] 5 slots",
    ]


def test_a_quiet_display_prints_nothing(clock: Clock) -> None:
    for terminal in (True, False):
        display, written = make(terminal=terminal, quiet=True)
        with display:
            display.say("a line")
            listener = begin(display)
            check(listener, 1, samples=20, verdicts=[Verdict(task=1, label=0, drifted=True)])
            listener.stepped(1, STEP)
            end(listener, 1, 50.0)
        assert written.getvalue() == ""


def test_the_bar_shows_task_epoch_step_loss_and_accuracy(clock: Clock) -> None:
    display, written = make(terminal=True)
    with display:
        listener = begin(display)
        check(listener, 1, samples=25)
        clock.now += 1
        listener.stepped(1, STEP)
        display._bar.refresh()
    # 25 samples in batches of 10 are 3 steps an epoch, twice over.
    assert "amr task 1/2" in written.getvalue()
    assert "epoch 1/2 step 1/6 loss 0.500 acc 30 %" in written.getvalue()
    with display:
        end(listener, 1, 50.0)
        written.truncate(0)
        check(listener, 2, samples=20)
        display._bar.refresh()
    shown = written.getvalue().partition("task 2/2")[2]
    assert "checking" in shown
    assert "loss 0.500" not in shown, "of the task before"


def test_the_bar_moves_at_most_ten_times_a_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    display, _ = make(terminal=True)
    drawn = []
    monkeypatch.setattr(display, "update", lambda *args: drawn.append(args))
    listener = begin(display)
    check(listener, 1, samples=10_000)
    drawn.clear()
    for _ in range(1000):
        clock.now += 0.01
        listener.stepped(1, STEP)
    assert 90 <= len(drawn) <= 101


def test_the_running_loss_begins_with_the_first_step_and_then_moves_slowly(clock: Clock) -> None:
    display, written = make(terminal=False)
    with display:
        listener = begin(display)
        check(listener, 1, samples=100)
        for loss in (2.0, 1.0, 1.0):
            listener.stepped(1, step_of(loss))
        end(listener, 1, 50.0)
    expected = 0.95 * (0.95 * 2 + 0.05) + 0.05
    assert f"loss {expected:.3f}" in written.getvalue()


def test_stages_are_a_line_each_where_there_is_no_terminal_and_a_bar_on_one() -> None:
    display, written = make(terminal=False)
    with display:
        for done in range(5):
            display.progress("downloading [a]", done, 4)
        display.progress("unpacking a", 0, None)
        display.say("done")
    assert written.getvalue().splitlines() == ["downloading [a]", "unpacking a", "done"]
    display, written = make(terminal=True)
    with display:
        display.progress("decoding x", 1, 2)
        display.progress("decoding x", 2, 2)
    assert "decoding x" in written.getvalue()
    assert "100%" in written.getvalue()
    assert "\x1b[2K" in written.getvalue(), "the line is cleared at the end"


def test_the_time_left_is_what_the_pace_so_far_says(clock: Clock) -> None:
    display, _ = make(terminal=False, num_runs=4)
    assert display.left(0.0) == ""
    display.finished()
    clock.now += 30
    assert display.left(0.0) == "90 s left"
    assert display.left(0.5) == "50 s left"
    for _ in range(3):
        display.finished()
    assert display.left(0.0) == "0 s left"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_warning_is_heard_by_those_who_want_to_hear_nothing_else(quiet: bool) -> None:
    display, stream = make(terminal=False, quiet=quiet)
    with display:
        display.say("first")
        display.warn("it is damaged")
        display.say("second")
    heard = ["warning: it is damaged"] if quiet else ["first", "warning: it is damaged", "second"]
    assert stream.getvalue().splitlines() == heard
