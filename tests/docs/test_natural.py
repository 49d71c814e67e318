"""docs/explanations/natural.md says what results/natural.csv says, and the benchmark runs as it claims."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import natural
import natural_others
import natural_page
import numpy as np
import pytest
from natural import COURSES, RESULTS, Course, Outcome, append, measure, saved
from natural_page import PAGE, TITLES, Runs, page

from driftwise.config.presets import BENCHMARKS
from driftwise.types import Dataset


def test_the_tables_are_those_of_the_saved_runs() -> None:
    outcomes = saved()
    assert outcomes
    text = PAGE.read_text()
    assert page(text, Runs(outcomes)) == text
    assert set(COURSES) == set(TITLES)
    keys = [(each.stream, each.arm, each.fresh, each.seed) for each in outcomes]
    assert len(keys) == len(set(keys)), "a run stands in one line"


DESCRIPTIONS = {
    "pacs-frozen-cd": "741a5ce62887",
    "iwildcam-cd": "85538dc21be6",
    "yearbook-frozen-cd": "1abf32a7ef4b",
    "gas-sensor": "49031947ae5b",
    "electricity": "cf98745bd4a6",
    "outdoor": "8631e4ccd162",
    "spam": "1ec8294e3343",
    "cifar100-frozen-cd": "cdfb10aed8ba",
}
"""of each benchmark, the digest of its tasks, domains and settings: saved numbers belong to these"""


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_the_descriptions_of_benchmarks_are_frozen(name: str) -> None:
    described = json.dumps(BENCHMARKS[name], sort_keys=True)
    assert hashlib.sha256(described.encode()).hexdigest()[:12] == DESCRIPTIONS[name]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """Two classes; in the second period the first one is where the second was."""
    draw = np.random.default_rng(0)
    labels, period = np.arange(400) % 2, np.arange(400) // 200
    vectors = draw.normal(size=(400, 4)) + 6 * (labels + period)[:, None]
    data = Dataset(
        images=vectors.astype(np.float32),
        labels=labels,
        class_names=("a", "b"),
        domains=period,
        domain_names=("period 1", "period 2"),
    )
    monkeypatch.setitem(COURSES, "tiny", Course(benchmark="tiny", compared=(10,)))
    monkeypatch.setattr(natural, "data_of", lambda name: data)
    preset: dict[str, Any] = {
        "first_domain": "period 1",
        "domains": ("period 2",),
        "scope": "all-seen",
    }
    preset |= {"tasks": ((0, 1), ()), "num_drifts": 1}
    monkeypatch.setattr(natural, "preset_of", lambda name: preset)
    return "tiny"


def test_the_arms_do_what_they_are_called(tiny: str, tmp_path: Path) -> None:
    found = {arm: measure(tiny, arm, 10, 0, commit="none") for arm in natural.ARMS}
    assert found["nothing"].accuracy < 60
    assert found["realigned"].accuracy > 95
    assert found["added"].accuracy < found["realigned"].accuracy
    assert found["realigned"].adaptation == found["window"].adaptation == 20
    assert measure(tiny, "diverse", 10, 0, commit="none").accuracy > 95
    assert found["realigned"].monitoring == 0 < found["by-class"].monitoring
    assert found["all"].adaptation > 100
    assert found["known"].found == found["realigned"].found == 2
    for outcome in found.values():
        append(outcome, tmp_path / "natural.csv")
    assert saved(tmp_path / "natural.csv") == list(found.values())


def test_what_is_exported_are_the_labels_of_the_window(tiny: str, tmp_path: Path) -> None:
    natural.export(tiny, 10, 0, tmp_path)
    with np.load(tmp_path / "tiny-10-0.npz") as arrays:
        assert len(arrays["learn_y_1"]) > 100
        assert np.bincount(arrays["learn_y_2"]).tolist() == [10, 10]
        assert int(arrays["adaptation"]) == 20


def test_learners_of_other_libraries_get_the_samples_of_a_task_in_random_order(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Listener:
        def __init__(self, *sizes: int) -> None:
            seen.clear()

        def learn(self, x: np.ndarray, y: np.ndarray) -> None:
            seen.append((x, y))

        def predict(self, x: np.ndarray) -> np.ndarray:
            return np.zeros(len(x))

    seen: list[tuple[np.ndarray, np.ndarray]] = []
    monkeypatch.setitem(natural_others.ARMS, "listener", Listener)
    natural.export(tiny, 10, 0, tmp_path)
    file = tmp_path / "tiny-10-0.npz"
    natural_others.measure(file, "listener")
    with np.load(file) as arrays:
        for number, (x, y) in enumerate(seen, start=1):
            given, labels = arrays[f"learn_x_{number}"], arrays[f"learn_y_{number}"]
            if number == 2:
                assert (np.diff(labels) != 0).sum() == 1, "fresh labels come class by class"
            assert (np.diff(y) != 0).sum() > 2
            together = [np.column_stack(each) for each in ((x, y), (given, labels))]
            assert {*map(tuple, together[0])} == {*map(tuple, together[1])}


def test_the_figure_is_drawn_from_whatever_there_is(tmp_path: Path) -> None:
    plain = {"faa": 50.0, "accuracy": 50.0, "adaptation": 10, "monitoring": 0, "found": 1}
    plain |= {"missed": 0, "untestable": 0, "alarms": 0, "seconds": 0.1}
    runs = [
        Outcome(stream="outdoor", arm=arm, fresh=fresh, seed=seed, commit="none", **plain)  # type: ignore[arg-type]
        for arm, fresh in (("nothing", 0), ("realigned", 10))
        for seed in range(natural_page.FEWEST)
    ]
    natural_page.draw(Runs(runs), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert RESULTS.name == "natural.csv"
