from __future__ import annotations

import pytest
from run_tools import complaint
from sweep_tools import tiny_plan

from driftwise.sweeps.plan import chosen

PLAN = tiny_plan(
    axes={
        "detector.tpr": [0.5, 1.0],
        "concept_per_class": [False, True],
        "drift_seed": [None, 1],
    },
    detector="oracle",
)


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("tpr=1", "tpr", {1.0}),
        ("detector.tpr=1.0", "tpr", {1.0}),
        ("tpr=1.0,.5", "tpr", {0.5, 1.0}),
        ("concept_per_class=true", "concept_per_class", {True}),
        ("concept-per-class=False", "concept_per_class", {False}),
        ("drift_seed=null", "drift_seed", {None}),
        ("drift_seed=None", "drift_seed", {None}),
        ("seed=0", "seed", {0}),
    ],
)
def test_a_value_may_be_written_as_in_yaml_and_a_setting_as_in_the_grid(
    text: str, name: str, values: set[object]
) -> None:
    expected = [run.id for run in PLAN.runs if run.place[name] in values]
    assert [run.id for run in chosen(PLAN, [text])] == expected


def test_settings_narrow_each_other_and_values_of_one_add_up() -> None:
    both = chosen(PLAN, ["tpr=1", "detector.tpr=0.5", "drift_seed=1"])
    assert [run.place["tpr"] for run in both] == [0.5, 0.5, 1.0, 1.0]
    assert {run.place["drift_seed"] for run in both} == {1}


@pytest.mark.parametrize("text", ["drift_seed=true", "concept_per_class=1", "tpr=2", "tpr=["])
def test_a_value_that_no_run_has_is_refused(text: str) -> None:
    assert "unknown value of" in complaint(lambda: chosen(PLAN, [text]))
