from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_tools import Stop, StopAt, complaint, events_of, lasting, result_of, snapshot

from driftwise import RunConfig, run
from driftwise.config.presets import resolve
from driftwise.runs import compare as module
from driftwise.runs.compare import Comparison, compare
from driftwise.runs.display import Display
from driftwise.runs.store import RunFolder

BASE = RunConfig(epochs=1, tasks=((0, 1), (2, 3)))


def display() -> tuple[Display, io.StringIO]:
    written = io.StringIO()
    return Display(Console(file=written, width=200)), written


def carry_out(comparison: Comparison, out: Path, **how: Any) -> str:
    """Run a comparison; what was shown meanwhile."""
    shown, written = display()
    with shown:
        compare(comparison, out, display=shown, **how)
    return written.getvalue()


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **settings: object) -> None:
        raise AssertionError("training has begun")

    monkeypatch.setattr(module, "run_in", refuse)


def test_every_seed_meets_every_adaptation_and_nothing_else_differs() -> None:
    comparison = Comparison(base=RunConfig(seed=5), adaptations=("fr", "amr"), num_seeds=2)
    expected = [("fr", 5), ("amr", 5), ("fr", 6), ("amr", 6)]
    assert comparison.configs() == [
        resolve(RunConfig(adaptation=adaptation, seed=seed)) for adaptation, seed in expected
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"adaptations": ("amr", "bogus")}, "unknown adaptation 'bogus'"),
        ({"adaptations": ("amr", "fr", "amr")}, "each named once; got amr,fr,amr"),
        ({"adaptations": ()}, "one or more, each named once; got none"),
        ({"num_seeds": 0}, "num_seeds must be at least 1; got 0"),
    ],
)
def test_an_impossible_comparison_gets_one_line(settings: dict[str, Any], expected: str) -> None:
    assert expected in complaint(lambda: Comparison(base=BASE, **settings))


def test_each_run_equals_the_same_run_made_alone(tmp_path: Path) -> None:
    comparison = Comparison(base=BASE, adaptations=("vanilla", "amr"), num_seeds=1)
    carry_out(comparison, tmp_path / "both")
    for config in comparison.configs():
        run(config, tmp_path / config.adaptation)
        together = tmp_path / "both" / f"{config.adaptation}-seed0"
        assert lasting(together) == lasting(tmp_path / config.adaptation)


def test_no_run_is_made_through_a_link(tmp_path: Path, no_training: None) -> None:
    comparison = Comparison(base=BASE, adaptations=("vanilla", "amr"), num_seeds=1)
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "amr-seed0").symlink_to(tmp_path / "elsewhere")
    assert "amr-seed0 is a link" in complaint(lambda: carry_out(comparison, tmp_path / "out"))
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (tmp_path / "out" / "vanilla-seed0").exists()


def test_finished_runs_are_kept_and_an_unfinished_one_goes_on(tmp_path: Path) -> None:
    comparison = Comparison(base=BASE, adaptations=("vanilla", "amr"), num_seeds=1)
    first, second = comparison.configs()
    run(first, tmp_path / "out" / "vanilla-seed0")
    with pytest.raises(Stop):
        run(second, tmp_path / "out" / "amr-seed0", listener=StopAt(2, 3))
    kept = (tmp_path / "out" / "vanilla-seed0" / "result.json").stat().st_mtime_ns
    before = [e for e in events_of(tmp_path / "out" / "amr-seed0") if e["task"] == 1]

    shown = carry_out(comparison, tmp_path / "out", resume=True)
    assert (tmp_path / "out" / "vanilla-seed0" / "result.json").stat().st_mtime_ns == kept
    assert "vanilla-seed0: finished before" in shown
    assert "amr-seed0: task 1/2" not in shown, "the first task was complete"
    assert events_of(tmp_path / "out" / "amr-seed0")[: len(before)] == before
    assert result_of(tmp_path / "out" / "amr-seed0")["adaptation"] == "amr"


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("how", [{}, {"resume": True}])
def test_one_folder_that_is_refused_leaves_all_as_they_were(
    how: dict[str, bool], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    RunFolder.open(out / "amr-seed0", resolve(RunConfig(seed=3)).to_json()).close()
    before = snapshot(tmp_path)
    message = complaint(lambda: carry_out(Comparison(base=BASE), out, **how))
    assert str(out / "amr-seed0") in message
    after = snapshot(tmp_path)
    for files in (before, after):
        files.pop("out/amr-seed0/.lock")  # says who held it last
    assert after == before


@pytest.mark.usefixtures("no_training")
def test_a_folder_in_use_is_found_before_any_earlier_run_is_overwritten(tmp_path: Path) -> None:
    comparison = Comparison(base=BASE, adaptations=("vanilla", "amr"), num_seeds=1)
    first, second = comparison.configs()
    run(first, tmp_path / "vanilla-seed0")
    before = lasting(tmp_path / "vanilla-seed0")
    with RunFolder.open(tmp_path / "amr-seed0", second.to_json()):
        message = complaint(lambda: carry_out(comparison, tmp_path, overwrite=True))
    assert "amr-seed0 is in use" in message
    assert lasting(tmp_path / "vanilla-seed0") == before


@pytest.mark.usefixtures("no_training")
def test_a_run_of_its_own_is_not_a_place_for_a_comparison(finished: Path) -> None:
    before = snapshot(finished)
    for how in ({}, {"overwrite": True}, {"resume": True}):
        message = complaint(lambda how=how: carry_out(Comparison(base=BASE), finished, **how))  # type: ignore[misc]
        assert message == f"{finished} holds a run of its own; choose another folder"
    assert snapshot(finished) == before


def test_what_should_be_known_before_is_said_once(tmp_path: Path) -> None:
    base = RunConfig(epochs=1, tasks=((0,), (1,)), reference="memory")
    shown = carry_out(Comparison(base=base, adaptations=("vanilla", "amr"), num_seeds=1), tmp_path)
    assert shown.count("warning: ") == 1
    assert shown.startswith("warning: ")
