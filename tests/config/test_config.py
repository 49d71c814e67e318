from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from run_tools import complaint

from driftwise.cli.main import GROUPS
from driftwise.config.fields import field_docs
from driftwise.config.schema import PARTS, RunConfig, Settings


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("buffer_size", 1),
        ("num_tasks", 1),
        ("num_drifts", 0),
        ("max_classes_per_drift", 1),
        ("label_budget", 0),
        ("epochs", 1),
        ("batch_size", 1),
        ("minibatch_size", 1),
        ("momentum", 0),
        ("weight_decay", 0),
        ("threads", 1),
        ("seed", 0),
        ("severity", 1),
    ],
)
def test_a_number_may_be_the_least_there_is_and_no_less(name: str, least: int) -> None:
    enough: dict[str, Any] = {name: least}
    too_little: dict[str, Any] = {name: least - 1}
    assert getattr(RunConfig(**enough), name) == least
    message = complaint(lambda: RunConfig(**too_little))
    assert message.startswith(f"{name} must be ")
    assert f"got {least - 1}" in message


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"severity": 6}, "severity must be 1 to 5; got 6"),
        ({"lr": 1e7}, "lr must be above 0 and at most 1000000; got 10000000.0"),
        ({"weight_decay": 1e7}, "weight_decay must be at most 1000000; got 10000000.0"),
        ({"momentum": 1}, "momentum must be below 1; got 1.0"),
        (
            {"optimiser": "adam", "momentum": 0.9},
            "momentum is a setting of sgd; leave it out with adam",
        ),
        ({"lr_milestones": ()}, "lr_milestones must be epochs, counted from 1; got ()"),
        ({"lr_drop": 1.5}, "lr_drop must be at most 1; got 1.5"),
        ({"lr": 0}, "lr must be above 0 and at most 1000000; got 0.0"),
        (
            {"tasks": [[0], [1]], "num_tasks": 2},
            "tasks names the classes already: leave num_tasks and class_order out",
        ),
        (
            {"tasks": [[0], [1]], "class_order": [1, 0]},
            "tasks names the classes already: leave num_tasks and class_order out",
        ),
        # A word mistyped in Python must not pass for another one.
        (
            {"reference": "heldout"},
            "reference must be one of memory, held-out, fingerprint; got 'heldout'; "
            "did you mean held-out?",
        ),
        (
            {"monitor": "tests"},
            "monitor must be one of holdout, test; got 'tests'; did you mean test?",
        ),
        (
            {"scope": "all"},
            "scope must be one of since-last-event, all-seen, all-present; got 'all'",
        ),
        ({"permutation_unit": "col"}, "permutation_unit must be one of pixel, row; got 'col'"),
        ({"epochs": "3"}, "epochs must be a whole number; got '3'"),
        ({"epochs": 2.5}, "epochs must be a whole number; got 2.5"),
        ({"lr": float("nan")}, "lr must be a number; got nan"),
        ({"sequential": "no"}, "sequential must be true or false; got 'no'"),
        ({"class_order": 5}, "class_order must be a list of whole numbers; got 5"),
        ({"method": None}, "method must be text; got nothing"),
    ],
)
def test_an_impossible_setting_gets_one_line(settings: dict[str, Any], expected: str) -> None:
    assert complaint(lambda: RunConfig(**settings)) == expected


def test_unusual_but_sound_rates_pass() -> None:
    config = RunConfig(lr=1e6, momentum=0.9999, weight_decay=1e6)
    assert (config.lr, config.momentum, config.weight_decay) == (1e6, 0.9999, 1e6)


def test_lists_become_tuples_and_whole_numbers_floats() -> None:
    config = RunConfig(tasks=[[0, 1], []], lr=1)  # type: ignore[arg-type]
    assert config == RunConfig(tasks=((0, 1), ()), lr=1.0)
    assert isinstance(config.lr, float)


def test_a_config_comes_back_from_its_json_as_it_was() -> None:
    config = RunConfig(
        tasks=((0, 1), (), (2,)), lr=0.5, options={"backbone": {"hidden": [3, 4]}}, sequential=True
    )
    plain = json.loads(json.dumps(config.to_json()))
    assert list(plain) == [field.name for field in dataclasses.fields(RunConfig)]
    assert RunConfig(**plain) == config


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RunConfig().seed = 3  # type: ignore[misc]


def test_every_setting_has_a_docstring_and_one_place_in_the_help() -> None:
    names = [field.name for field in dataclasses.fields(Settings)]
    assert sorted(field_docs(Settings)) == sorted(names)
    grouped = [name for group in GROUPS.values() for name in group]
    assert sorted(grouped) == sorted(names)
    assert set(PARTS) <= set(names)
