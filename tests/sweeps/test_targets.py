"""The grids of the paper's tables and figures."""

from __future__ import annotations

from typing import Any

import pytest
from run_tools import complaint

from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.reproduce.grids import TARGETS
from driftwise.reproduce.published import find
from driftwise.sweeps.plan import Plan, make_plan
from driftwise.sweeps.scale import SCALES

TABLES = {"table1": 70, "table2": 70, "table3": 70, "table4": 70, "clear10": 12, "backbones": 16}


def plan_of(name: str, scale: str = "paper", seeds: int = 1, **changes: Any) -> Plan:
    target = TARGETS[name]
    other = changes.get("benchmark") not in (None, *target.benchmarks)
    return make_plan(
        f"{name}-{scale}",
        target.grid(range(seeds), **changes),
        scale=SCALES[scale],
        reproduces=name,
        published_on=target.benchmarks[0] if other else None,
    )


@pytest.mark.parametrize(("name", "places"), TABLES.items())
def test_a_table_has_a_place_for_every_published_number(name: str, places: int) -> None:
    runs = plan_of(name).runs
    assert len(runs) == places
    standing: dict[str, Any] = {"method": "er", "backbone": "resnet18"}
    cells = [{**standing, **run.place} for run in runs]
    found = {find(**{key: cell[key] for key in cell if key != "seed"}) for cell in cells}
    assert None not in found
    assert len(found) == places
    undrifted = [run for run in runs if not run.place["num_drifts"]]
    assert {run.place["adaptation"] for run in undrifted} == {"vanilla"}


@pytest.mark.parametrize("name", TARGETS)
def test_everything_can_be_planned_on_its_own_data_and_on_digits(name: str) -> None:
    plan = plan_of(name, "small")
    assert plan.reproduces == name
    assert {run.config.preset for run in plan.runs} == {"published"}
    assert {run.config.threads for run in plan.runs} == {1}
    digits = plan_of(name, "smoke", benchmark="digits-cd")
    assert {run.config.benchmark for run in digits.runs} == {"digits-cd"}


def test_every_transform_of_severity_is_one_of_images() -> None:
    runs = plan_of("severity", "smoke", benchmark="digits-cd").runs
    assert len(runs) == 31  # no drift, six transforms at five severities
    for run in runs:
        if run.place["severity"] == 1:
            assemble(run.config)


def test_the_runs_of_cost_are_runs_of_table2() -> None:
    cost, table = ({run.id for run in plan_of(name, "small").runs} for name in ("cost", "table2"))
    assert len(cost) == 30
    assert cost < table


def test_seeds_multiply_the_runs_and_places_name_the_papers_buffers() -> None:
    plan = plan_of("clear10", "smoke", seeds=3)
    assert len(plan.runs) == 36
    assert [run.place["seed"] for run in plan.runs[:3]] == [0, 1, 2]
    smoke = plan_of("table1", "smoke")
    assert {run.place["buffer_size"] for run in smoke.runs} == {500, 5000}
    assert {run.config.buffer_size for run in smoke.runs} == {17, 167}


def test_other_settings_reach_every_run_and_may_not_replace_an_axis() -> None:
    plan = plan_of("cost", "smoke", settings={"min_harm": 5})
    assert {run.config.min_harm for run in plan.runs} == {5}
    line = complaint(lambda: plan_of("cost", settings={"method": "er"}))
    assert "in the grid and in the base" in line


def test_every_target_detects_drift_in_the_same_valid_way() -> None:
    for name, target in TARGETS.items():
        place = next(target.grid([0]).places())
        config = resolve(target.grid([0]).config_at(place))
        expected = {"detector-errors": "oracle", "natural": "ks"}.get(name, "combined")
        assert (config.detector, config.encoder, config.reference) == (
            expected,
            "learner",
            "held-out",
        )


def test_natural_drift_has_two_detectors_on_any_data_that_have_it() -> None:
    runs = plan_of("natural", "smoke").runs
    assert [(run.config.benchmark, run.config.detector) for run in runs] == [
        ("clear10-cd", "ks"),
        ("clear10-cd", "mmd"),
    ]
    for benchmark, drifts in (("pacs-cd", 3), ("yearbook-cd", 7), ("iwildcam-cd", 3)):
        runs = plan_of("natural", "paper", benchmark=benchmark).runs
        assert {(run.config.benchmark, run.config.num_drifts) for run in runs} == {
            (benchmark, drifts)
        }
        assert {run.config.detector for run in runs} == {"ks", "mmd"}


def test_natural_drift_of_vectors_is_checked_as_that_of_images() -> None:
    images, vectors = (
        {run.config.detector: run.config for run in plan_of("natural", benchmark=name).runs}
        for name in ("pacs-cd", "iwildcam-cd")
    )
    shared = ("checked", "monitor", "monitor_labels", "reference", "encoder", "buffer_policy")
    for detector, config in images.items():
        other = vectors[detector]
        for key in (*shared, "realigned_logits", "drift_seed", "min_harm"):
            assert getattr(other, key) == getattr(config, key), key
        for key in ("level", "correction"):
            sides = (each.options["detector"][key] for each in (config, other))
            assert len({*sides}) == 1, key
