"""A damaged file is refused or warned of; it never makes a wrong result."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import damaged_files
from fault_tools import Work

from driftwise.files import CHECKSUMS
from driftwise.runs import store

SMALL = Work(epochs=1, tasks="[[0,1],[2,3]]", steps=20)


@pytest.mark.parametrize(
    ("names", "came"),
    [
        ((store.CHECKPOINT,), {"warned"}),
        ((store.PREVIOUS,), {"no effect"}),
        ((store.CHECKPOINT, store.PREVIOUS), {"refused"}),
        ((store.CONFIG,), {"refused"}),
        ((store.EVENTS,), {"warned", "no effect"}),
        ((store.RECORDS,), {"refused", "warned", "no effect"}),
        ((CHECKSUMS,), {"refused", "no effect"}),
        ((store.ARRAYS["samples"],), {"no effect"}),
        ((store.ARRAYS["features"],), {"warned"}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_an_unfinished_run_with_damage_is_refused_or_ends_equal(
    names: tuple[str, ...], came: set[str], tmp_path: Path
) -> None:
    cases = list(damaged_files(SMALL, tmp_path, names, places=4, seed=1))
    assert [case for case in cases if case.fault] == []
    assert {case.came for case in cases} <= came


def test_a_damaged_result_is_refused(tmp_path: Path) -> None:
    cases = list(damaged_files(SMALL, tmp_path, [store.RESULT], places=4, seed=1, finished=True))
    assert [case for case in cases if case.fault] == []
    assert {case.came for case in cases} == {"refused"}
