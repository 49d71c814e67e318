"""Checks that cannot be made are known from the sizes, before anything is trained."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from driftwise import RunConfig, run
from driftwise.cli.main import command
from driftwise.config.build import assemble, untestable_warning
from driftwise.config.presets import resolve
from driftwise.datasets.readers.digits import load_digits

TASKS = ((0, 1, 2), (3, 4))
NOTE = r"not adapted: \d+ of \d+ checks untestable"


def config(**changes: Any) -> RunConfig:
    given = {"tasks": TASKS, "num_drifts": 1, "encoder": "random", "epochs": 1, **changes}
    return RunConfig(**given)


@pytest.mark.parametrize(
    "short",
    [
        {"reference": "memory", "buffer_size": 8},
        {"reference": "memory", "buffer_size": 8, "buffer_policy": "balanced"},
        {"reference": "memory", "buffer_size": 12, "epochs": 3},
        {"reference": "held-out", "max_per_class": 10},
        {"reference": "fingerprint", "fingerprint_size": 3},
        {"reference": "memory", "method": "finetune"},
        {"reference": "memory", "buffer_size": 8, "monitor_labels": "unknown"},
    ],
)
def test_as_many_checks_are_untestable_as_was_foretold(
    short: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.warns(UserWarning, match=r"."):
        result = run(config(**short), tmp_path / "run")
    (event,) = result["drift_events"]
    verdicts = [verdict for verdict in result["verdicts"] if verdict["task"] == event["task"]]
    untestable = sum(verdict["drifted"] is None for verdict in verdicts)
    message = [text for text in result["warnings"] if "will be untestable" in text]
    if untestable == 0:
        assert not message
        return
    found = re.match(r"of (\d+) checks? at tasks with drift (about )?(\d+) will be", message[0])
    assert found
    assert int(found[1]) == len(verdicts)
    assert abs(int(found[3]) - untestable) <= (1 if found[2] else 0)


@pytest.mark.parametrize("policy", ["reservoir", "balanced"])
def test_a_buffer_of_the_recommended_size_will_do(policy: str) -> None:
    small = resolve(config(reference="memory", buffer_size=8, buffer_policy=policy))
    text = untestable_warning(small, load_digits())
    assert "the buffer of 8 holds" in text
    found = re.search(r"use a buffer_size of (\d+) or more or the reference held-out", text)
    assert found
    large = resolve(config(reference="memory", buffer_size=int(found[1]), buffer_policy=policy))
    assert untestable_warning(large, load_digits()) == ""


def test_what_is_foreseen_without_a_network_is_what_a_run_warns_of() -> None:
    for short in ({"reference": "memory", "buffer_size": 8}, {"buffer_size": 100}):
        wanted = resolve(config(**short))
        text = untestable_warning(wanted, load_digits())
        assert Counter(assemble(wanted).warnings)[text] == bool(text)


def test_the_command_ends_with_what_was_not_adapted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = "--encoder random --reference memory --buffer-size 3 --num-drifts 1 --tasks [[0],[1]]"
    words = ["run", *short.split(), "--adaptation", "amr", "--out", str(tmp_path / "run")]
    assert command(words) == 0
    out, err = capsys.readouterr()
    assert re.search(rf"^FAA .*; {NOTE}; in ", out)
    assert err.index("will be untestable") < err.index("task 1/2")
    assert command([*words[:-1], str(tmp_path / "vanilla"), "--adaptation", "vanilla"]) == 0
    assert "not adapted" not in capsys.readouterr().out
