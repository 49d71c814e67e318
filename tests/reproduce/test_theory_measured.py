"""The measurement: plain data, repeatable, and about the rows that a run really has."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from run_tools import complaint, strict_json

from driftwise.config.schema import RunConfig
from driftwise.errors import UserError
from driftwise.reproduce import theory, theory_figures
from driftwise.reproduce.theory import measure_theory, reproduce_theory, theory_config

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


def test_at_the_event_both_branches_stand_at_the_same_place(measured: dict[str, Any]) -> None:
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


def test_realignment_leaves_no_stale_row_and_vanilla_most(measured: dict[str, Any]) -> None:
    after = [m for m in measured["moments"] if m["step"] == 3]
    assert all(m["stale_left"] == 0 for m in after if m["adaptation"] == "amr")
    assert all(
        m["stale_left"] >= 0.5 * m["num_stale"] for m in after if m["adaptation"] == "vanilla"
    )


def test_the_curves_begin_and_end_where_the_theorems_say(measured: dict[str, Any]) -> None:
    for moment in measured["moments"]:
        assert moment["formula"][-1] == pytest.approx(1)
        assert moment["mixture_formula"][0] == pytest.approx(moment["cosine"])
        assert moment["formula"] == sorted(moment["formula"])
        assert moment["measured"][-1] < 1  # rewritten rows are a sample, not the distribution


def test_it_is_plain_json_and_comes_out_the_same_again(measured: dict[str, Any]) -> None:
    text = json.dumps(measured, allow_nan=False)
    before = torch.get_rng_state()
    again = small()
    assert torch.equal(torch.get_rng_state(), before)
    assert strict_json(text) == strict_json(json.dumps(again, allow_nan=False))


def test_measuring_does_not_change_what_is_measured_later() -> None:
    """The last moment is the same whether or not others were measured on the way."""
    often, once = small(after_steps=(0, 1, 2, 3)), small(after_steps=())
    last = max(m["step"] for m in once["moments"])
    assert [m for m in often["moments"] if m["step"] == last] == [
        m for m in once["moments"] if m["step"] == last
    ]


def test_a_stream_without_drift_is_refused() -> None:
    assert "drifts" in complaint(lambda: measure_theory(RunConfig(num_drifts=0), [0]))
    assert "seeds" in complaint(lambda: measure_theory(SMALL, []))


def test_reproduce_writes_the_numbers_and_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: dict[str, Any]
) -> None:
    asked = []

    def instead(config: RunConfig, seeds: Any, **_: Any) -> dict[str, Any]:
        asked.append((config, list(seeds)))
        return measured

    monkeypatch.setattr(theory, "measure_theory", instead)
    files = reproduce_theory(tmp_path / "theory", "digits-cd", [0, 1])
    assert asked == [(theory_config("digits-cd"), [0, 1])]
    assert [file.name for file in files][:2] == ["theory.json", "theory-cosine.png"]
    assert len(files) == 7
    assert all(file.stat().st_size > 1000 for file in files)
    assert strict_json(files[0].read_text()) == strict_json(json.dumps(measured))


def test_theory_is_not_drawn_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(theory, "measure_theory", lambda *_, **__: {})
    image = SimpleNamespace(kind="cosine", png=b"png", svg=b"svg")
    monkeypatch.setattr(theory_figures, "draw_theory", lambda _: [image])
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("precious")
    (out / "figures").mkdir(parents=True)
    (out / "figures" / "theory-cosine.png").symlink_to(victim)
    reproduce_theory(out, "digits-cd", [0])
    assert victim.read_text() == "precious"
    assert (out / "figures" / "theory-cosine.png").read_bytes() == b"png"
    (out / "figures").rename(tmp_path / "elsewhere")
    (out / "figures").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="figures is a link"):
        reproduce_theory(out, "digits-cd", [0])
