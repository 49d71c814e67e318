"""The theorems measured: plain data, repeatable; and their figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import pytest
import torch
from figure_checks import check_drawn_and_uncut
from run_tools import complaint, strict_json

from driftwise import plot
from driftwise.config.schema import RunConfig
from driftwise.errors import UserError
from driftwise.reproduce import theory, theory_figures
from driftwise.reproduce.theory import measure_theory, reproduce_theory, theory_config
from driftwise.reproduce.theory_figures import draw_theory

SMALL = RunConfig(epochs=1, options={"backbone": {"hidden": (16,)}})


def small(**changes: Any) -> dict[str, Any]:
    settings = {"shares": (0.0, 0.5, 1.0), "after_steps": (0, 3), "repeats": 20, **changes}
    return measure_theory(SMALL, [0], **settings)


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return small()


def test_every_drifted_class_is_measured_at_every_moment(measured: dict[str, Any]) -> None:
    assert measured["event"]["task"] == 3
    assert measured["event"]["classes"] == [0, 1, 2, 3]
    moments = {(m["adaptation"], m["step"], m["class"]) for m in measured["moments"]}
    last = max(step for _, step, _ in moments)
    steps = (0, 3, last)
    assert moments == {(b, s, c) for b in ("vanilla", "amr") for s in steps for c in range(4)}
    assert len(measured["moments"]) == len(moments)


def test_both_branches_start_alike_and_realignment_leaves_no_stale_sample(
    measured: dict[str, Any],
) -> None:
    vanilla, amr = (
        [
            {key: value for key, value in m.items() if key != "adaptation"}
            for m in measured["moments"]
            if m["adaptation"] == branch and m["step"] == 0
        ]
        for branch in ("vanilla", "amr")
    )
    assert vanilla == amr
    assert all(m["stale_left"] == m["num_stale"] > 0 for m in vanilla)
    after = [m for m in measured["moments"] if m["step"] == 3]
    assert all(m["stale_left"] == 0 for m in after if m["adaptation"] == "amr")
    kept = [m for m in after if m["adaptation"] == "vanilla"]
    assert all(m["stale_left"] >= 0.5 * m["num_stale"] for m in kept)


def test_the_curves_start_and_end_where_the_theorems_state(measured: dict[str, Any]) -> None:
    for moment in measured["moments"]:
        assert moment["formula"][-1] == pytest.approx(1)
        assert moment["mixture_formula"][0] == pytest.approx(moment["cosine"])
        assert moment["formula"] == sorted(moment["formula"])
        assert moment["measured"][-1] < 1  # realigned samples are a draw, not the distribution


def test_it_is_plain_json_and_measuring_changes_nothing_that_is_measured_later(
    measured: dict[str, Any],
) -> None:
    """The last moment is the same whether or not others were measured on the way."""
    before = torch.get_rng_state()
    once = small(after_steps=())
    assert torch.equal(torch.get_rng_state(), before)
    last = max(m["step"] for m in once["moments"])
    for key, value in strict_json(json.dumps(once, allow_nan=False)).items():
        there = measured[key]
        if key == "moments":
            there = [m for m in there if m["step"] in (0, last)]
        assert value == strict_json(json.dumps(there, allow_nan=False)), key


def test_a_stream_without_drift_is_refused() -> None:
    assert "drifts" in complaint(lambda: measure_theory(RunConfig(num_drifts=0), [0]))
    assert "seeds" in complaint(lambda: measure_theory(SMALL, []))


def test_reproduce_writes_numbers_and_figures_and_nothing_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: dict[str, Any]
) -> None:
    asked = []

    def instead(config: RunConfig, seeds: Any, **_: Any) -> dict[str, Any]:
        asked.append((config, list(seeds)))
        return measured

    monkeypatch.setattr(theory, "measure_theory", instead)
    image = SimpleNamespace(kind="cosine", files={"png": b"png", "svg": b"svg"})
    monkeypatch.setattr(theory_figures, "draw_theory", lambda _: [image])
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "theory-cosine.png").symlink_to(victim)
    files = reproduce_theory(out, "digits-cd", [0, 1])
    assert asked == [(theory_config("digits-cd"), [0, 1])]
    assert [file.name for file in files] == [
        *("theory.json", "theory-cosine.png", "theory-cosine.svg"),
    ]
    assert strict_json(files[0].read_text()) == strict_json(json.dumps(measured))
    assert files[1].read_bytes() == b"png"
    assert victim.read_text() == "precious"
    (out / "figures").rename(tmp_path / "elsewhere")
    (out / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="figures is a link"):
        reproduce_theory(out, "digits-cd", [0])


def made_up(seeds: int = 2, **changes: Any) -> dict[str, Any]:
    moment = {
        "num_stale": 10,
        "cosine": 0.25,
        "same_look_cosine": 0.75,
        "formula": [0.7, 1.0],
        "measured": [0.6, 0.9],
        "mixture_formula": [0.25, 1.0],
        "mixture": [0.2, 0.8],
        **changes,
    }
    moments = [
        {
            "seed": seed,
            "adaptation": branch,
            "step": step,
            "class": label,
            "offered": 10 * step,
            "stale_left": 10 - step,
            **moment,
        }
        for seed in range(seeds)
        for branch in ("vanilla", "amr")
        for step in (0, 5)
        for label in (0, 1)
    ]
    simulated = {"replaced": [0.1, 0.5], "error": [0.01, 0.01], "all_replaced": [0.0, 0.0]}
    return {
        "config": {"buffer_policy": "reservoir"},
        "event": {"classes": [0, 1], "class_names": ["T-shirt/top and a long name", "b"]},
        "shares": [0.0, 1.0],
        "moments": moments,
        "reservoir": {
            "capacity": 20,
            "stale": 10,
            "seen": 100,
            "event_rows": 50,
            "rows": [10, 100],
            "repeats": 5,
            "paper": [0.4, 0.99],
            "exact": [0.09, 0.5],
            "paper_all": [1e-3, None],
            "exact_all": [0.0, 1e-5],
            "simulated": {"reservoir": simulated, "balanced": simulated},
        },
    }


def test_every_figure_is_drawn_uncut_with_its_numbers_in_words() -> None:
    before = dict(matplotlib.rcParams)
    images = draw_theory(made_up(3))
    assert dict(matplotlib.rcParams) == before
    assert [image.kind for image in images] == ["cosine", "efficiency", "replacement"]
    check_drawn_and_uncut(*images)
    cosine, efficiency, replacement = (image.alt for image in images)
    assert "mean 0.25" in cosine
    assert "mixture: 0.20 at 0, 0.80 at 1" in efficiency
    assert "paper 0.99, exact 0.50" in replacement
    assert b"mathdefault" not in images[2].svg
    assert list(plot.theory(made_up(3))) == [image.kind for image in images]


def test_one_seed_and_unknown_numbers_leave_gaps() -> None:
    check_drawn_and_uncut(*draw_theory(made_up(1, cosine=None, measured=None, mixture=None)))
