from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from driftwise.sweeps.display import Overview
from driftwise.sweeps.job import Outcome


def told_after(seconds: Sequence[float], *, total: int, slots: int, running: int = 0) -> str:
    """The last line once runs have taken so long."""
    page = io.StringIO()
    overview = Overview(Console(file=page, width=200))
    overview.begins(total, 0, slots)
    for number in range(running):
        overview.started(f"other-{number}")
    for number, spent in enumerate(seconds):
        overview.started(f"run-{number}")
        overview.ended(
            Outcome(id=f"run-{number}", state="done", faa=50.0, seconds=spent), again=False
        )
    return page.getvalue().splitlines()[-1]


def test_time_left_is_that_of_the_runs_left_several_at_a_time() -> None:
    assert "about 15 s left" in told_after([6.0, 6.0], total=7, slots=2)
    assert "about 30 s left" in told_after([8.0, 4.0], total=7, slots=1)


def test_time_left_counts_on_all_that_run_at_once() -> None:
    assert "about 10 s left" in told_after([1.0, 1.0], total=12, slots=1)
    assert "about 2 s left" in told_after([1.0, 1.0], total=12, slots=1, running=5)


def test_what_a_run_warns_of_stands_before_how_it_ended() -> None:
    page = io.StringIO()
    overview = Overview(Console(file=page, width=200))
    overview.begins(1, 0, 1)
    overview.started("a")
    overview.ended(Outcome(id="a", state="done", faa=50.0, warnings=("half a file",)), again=False)
    assert "a: warning: half a file\na: FAA 50.0" in page.getvalue()
