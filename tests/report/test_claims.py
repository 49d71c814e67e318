from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper_sweep_builders import Place, asked, places_of, write_sweep
from scipy import stats

from recollect.report.paper.claim_evidence import Share
from recollect.report.paper.claims import Claim, claims
from recollect.report.paper.claims_render import as_csv, as_html, as_markdown, as_text
from recollect.report.paper.intervals import Interval, Paired, both, interval_of
from recollect.report.paper.published import table
from recollect.report.sweeps import Sweep

KEYS = [
    *("matches-relearning", "fewer-labels", "less-compute", "larger-buffers-hurt"),
    *("stable-classes-kept", "500-rows", "any-backbone", "natural-drift", "harmless-transforms"),
]
FEW = [place for place in places_of("table1") if place["method"] in ("er", "ser")]
Result = Callable[[Place, int], dict[str, Any] | None]


def found_in(*sweeps: Sweep, extra: dict[str, Share] | None = None) -> dict[str, Claim]:
    return {claim.key: claim for claim in claims(sweeps, extra)}


def test_the_interval_is_students() -> None:
    values = [1.0, 4.0, -2.0, 0.5, 3.0]
    interval = interval_of(values)
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval_of([3.0]) == Interval(mean=3.0, low=None, high=None)


def test_a_claim_is_decided_only_by_a_whole_interval() -> None:
    interval = Interval(mean=0.0, low=-0.5, high=0.5)
    assert interval.at_least(-0.5) == "holds"
    assert interval.at_least(0.0) == "undecided"
    assert interval.at_least(0.6) == "does not hold"
    assert interval.below(0.6) == "holds"
    assert interval.below(-0.5) == "does not hold"
    assert Interval(mean=9.0, low=None, high=None).at_least(0.0) == "undecided"


def test_claims_together_are_as_good_as_the_worst() -> None:
    assert both("holds", "holds") == "holds"
    assert both("holds", "undecided") == "undecided"
    assert both("undecided", "does not hold", "holds") == "does not hold"


def test_cells_are_the_unit_and_seeds_where_there_is_one_cell() -> None:
    two = Paired(cells=((1.0, 3.0), (4.0, 4.0, 7.0)))
    assert two.means == [2.0, 5.0]
    assert two.interval == interval_of([2.0, 5.0])
    assert two.num_seeds == (2, 3)
    assert two.seed_sd == pytest.approx(math.sqrt((2.0 + 6.0) / 3))
    assert Paired(cells=((1.0, 3.0),)).interval == interval_of([1.0, 3.0])
    assert Paired(cells=((1.0,),)).seed_sd is None


def test_without_runs_nothing_is_said_to_be_measured() -> None:
    found = found_in()
    assert list(found) == KEYS
    assert {claim.holds for claim in found.values()} == {"not measured"}
    assert {claim.measured for claim in found.values()} == {"not measured here"}


def test_the_published_numbers_are_counted_as_they_are_printed() -> None:
    found = found_in()
    gaps = []
    for name in ("table1", "table2", "table3", "table4"):
        ends = {(c.buffer_size, c.method, c.num_drifts, c.adaptation): c.faa for c in table(name)}
        gaps += [v - ends[*key[:3], "fr"] for key, v in ends.items() if key[3] == "amr"]
    assert len(gaps) == 80
    low, high = stats.t.interval(0.95, 79, np.mean(gaps), stats.sem(gaps))
    told = found["matches-relearning"]
    assert told.published.startswith("amr at or above fr in 29 of 80 cells")
    assert f"mean {np.mean(gaps):+.2f} points" in told.published
    assert f"{low:+.2f} to {high:+.2f}" in told.published
    assert told.holds_published == "undecided"  # the interval straddles a point below


def test_published_labels_follow_from_the_protocol() -> None:
    told = found_in()["fewer-labels"]
    # Fashion-MNIST, one drift: 4 classes x 6000 rows against the whole buffer: 24000 / 500 = 48.
    # CIFAR-10, two drifts: 6 x 5000 against 500 + 2/3 x 500: 36. Tiny-ImageNet, two: 80.
    assert "buffer 500: 20000 to 80000 against 500 to 1042" in told.published
    assert "cells 36 to 80, holds" in told.published
    assert "cells 3.6 to 8, does not hold" in told.published
    assert told.holds_published == "does not hold"


def test_other_published_findings() -> None:
    found = found_in()
    assert "in 39 of 40 cells" in found["larger-buffers-hurt"].published
    assert found["larger-buffers-hurt"].holds_published == "holds"
    assert "cifar100-cd: amr at or below vanilla in 1 of 10" in found["500-rows"].published
    assert "tinyimagenet-cd: amr at or below vanilla in 5 of 10" in found["500-rows"].published
    assert "resnet152 +2.12, vit-s +1.70" in found["any-backbone"].published
    for key in ("less-compute", "stable-classes-kept", "natural-drift", "harmless-transforms"):
        assert found[key].holds_published == "no numbers"


def ends(gap: float = 0.0, stable_gap: float = 0.0, labels: int = 10) -> Result:
    """vanilla loses 10 points by drift, 15 with the larger buffer; fr ends at 80, amr near it."""

    def result(place: Place, seed: int) -> dict[str, Any]:
        loss = 0 if not place["num_drifts"] else 15 if place["buffer_size"] == 5000 else 10
        wobble = {"er": 0.1, "ser": -0.1}.get(place["method"], 0.0) + 0.01 * seed
        name = place["adaptation"]
        faa = {"vanilla": 70 - loss, "fr": 80, "amr": 80 + gap}[name]
        cost = {"vanilla": 1e9, "fr": 3e9, "amr": 1.5e9}[name]
        return {
            "faa": faa + (wobble if name == "amr" else 0),
            "faa_stable": 90 + (stable_gap + wobble if name == "amr" else 0),
            "labels": asked(name, 400, labels),
            "flops": {"train": cost, "detect": 0, "adapt": 0, "evaluate": 1e12},
        }

    return result


def test_a_sweep_decides_what_it_measures(tmp_path: Path) -> None:
    found = found_in(write_sweep(tmp_path, FEW, ends()))
    holding = {key: claim.holds for key, claim in found.items()}
    assert holding == {
        "matches-relearning": "holds",
        "fewer-labels": "holds",
        "less-compute": "does not hold",
        "larger-buffers-hurt": "holds",
        "stable-classes-kept": "holds",
        "500-rows": "not measured",
        "any-backbone": "not measured",
        "natural-drift": "not measured",
        "harmless-transforms": "not measured",
    }
    told = found["matches-relearning"].measured
    for words in ("of 8 cells", "2 seeds, deviation over seeds", "scale smoke", "fmnist-cd"):
        assert words in told
    assert "buffer 500 stands for 16 rows, 5000 stands for 166 rows" in told
    assert "deviation over seeds a factor of 1;" in found["fewer-labels"].measured
    assert "buffer 500: 400 against 10, 40 times" in found["fewer-labels"].measured
    assert "3e+09 against 1.5e+09, 2 times" in found["less-compute"].measured
    assert "mean +5.00 points" in found["larger-buffers-hurt"].measured


def test_what_is_worse_by_more_than_the_margin_does_not_hold(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path, FEW, ends(gap=-3, stable_gap=-4, labels=100))
    found = found_in(sweep)
    for key in ("matches-relearning", "stable-classes-kept", "fewer-labels"):
        assert found[key].holds == "does not hold"
    assert "amr at or above fr in 0 of 8 cells" in found["matches-relearning"].measured


def test_one_pair_decides_nothing(tmp_path: Path) -> None:
    places = [place for place in places_of("table1") if place["method"] == "er"][:7]
    places = [place for place in places if place["num_drifts"] == 1]
    found = found_in(write_sweep(tmp_path, places, ends(), seeds=1))
    assert found["matches-relearning"].holds == "undecided"
    assert "1 seed" in found["matches-relearning"].measured
    assert "deviation" not in found["matches-relearning"].measured


def test_runs_are_paired_by_seed(tmp_path: Path) -> None:
    """Seeds 0 and 1 differ by 20 points, amr and fr by a tenth: pairing sees the tenth."""

    def result(place: Place, seed: int) -> dict[str, Any]:
        tenth = 0.1 if place["adaptation"] == "amr" else 0.0
        return {"faa": 50 + 20 * seed + tenth * (1 + 0.1 * seed)}

    places = [p for p in places_of("table1")[:7] if p["num_drifts"] == 1]
    found = found_in(write_sweep(tmp_path, places, result))
    assert found["matches-relearning"].holds == "holds"

    def unmatched(place: Place, seed: int) -> dict[str, Any] | None:
        return result(place, seed) if (place["adaptation"] == "amr") == bool(seed) else None

    found = found_in(write_sweep(tmp_path / "b", places, unmatched))
    assert found["matches-relearning"].holds == "not measured"


def test_the_largest_scale_speaks_and_scales_are_never_mixed(tmp_path: Path) -> None:
    smoke = write_sweep(tmp_path, FEW, ends())
    small = write_sweep(tmp_path, FEW, ends(gap=-3), scale="small")
    told = found_in(smoke, small)["matches-relearning"]
    assert told.holds == "does not hold"
    assert "scale small" in told.measured
    assert "of 8 cells" in told.measured


def test_grids_that_vary_something_else_do_not_count_as_the_papers_cells(tmp_path: Path) -> None:
    places = [{**place, "tpr": 0.5, "fpr": 0.0} for place in FEW]
    found = found_in(write_sweep(tmp_path, places, ends(gap=-3), reproduces=None))
    assert found["matches-relearning"].holds == "not measured"


def test_500_rows_must_be_enough_here_and_not_there(tmp_path: Path) -> None:
    def gaining(on_tiny: float) -> Result:
        def result(place: Place, seed: int) -> dict[str, Any]:
            gain = 6.0 if place["benchmark"] == "cifar100-cd" else on_tiny
            return {"faa": 10 + (gain + 0.01 * seed if place["adaptation"] == "amr" else 0)}

        return result

    for on_tiny, expected in ((0.0, "holds"), (5.0, "does not hold")):
        folder = tmp_path / expected
        sweeps = [
            write_sweep(folder, places_of(name)[:14], gaining(on_tiny), reproduces=name)
            for name in ("table3", "table4")
        ]
        assert found_in(*sweeps)["500-rows"].holds == expected
        assert found_in(sweeps[0])["500-rows"].holds == "not measured"


def test_backbones_are_judged_by_their_own_sweep(tmp_path: Path) -> None:
    tables = write_sweep(tmp_path, FEW, ends(gap=-3))
    sweep = write_sweep(tmp_path, places_of("backbones"), ends(gap=1), reproduces="backbones")
    found = found_in(tables, sweep)
    assert found["any-backbone"].holds == "holds"
    assert "resnet152 +1.1" in found["any-backbone"].measured
    assert found["matches-relearning"].holds == "does not hold"


def test_natural_drift_comes_from_elsewhere_or_from_runs(tmp_path: Path) -> None:
    extra = {"ks": Share(found=50, of=100), "mmd": Share(found=99, of=100)}
    told = found_in(extra=extra)["natural-drift"]
    assert told.holds == "holds"
    assert "ks 50 of 100 (50%; 40% to 60%), mmd 99 of 100" in told.measured
    extra["ks"] = Share(found=98, of=100)
    assert found_in(extra=extra)["natural-drift"].holds == "does not hold"
    assert found_in(extra={"ks": Share(found=1, of=2)})["natural-drift"].holds == "not measured"

    def result(place: Place, seed: int) -> dict[str, Any]:
        found = 2 if place["detector"] == "ks" else 4
        return {
            "detector": place["detector"],
            "detection": {"tpr": found / 4, "num_detected": found, "num_drifts": 4},
            "drift_events": [
                {"task": 2, "classes": [0, 1], "transform": "natural", "severity": None}
            ],
        }

    places = [{**places_of("clear10")[3], "detector": name} for name in ("ks", "mmd")]
    sweep = write_sweep(tmp_path, places, result, reproduces="clear10", seeds=10)
    told = found_in(sweep)["natural-drift"]
    assert "ks 20 of 40" in told.measured
    assert "mmd 40 of 40" in told.measured
    assert "scale smoke" in told.measured
    assert told.holds == "holds"


def test_transforms_are_judged_at_their_highest_severity(tmp_path: Path) -> None:
    lost = {"defocus-blur": 0.1, "shot-noise": 0.0}
    place = {"benchmark": "digits-cd", "method": "er", "buffer_size": 500, "adaptation": "vanilla"}
    names = ("identity", "defocus-blur", "shot-noise", "gaussian-noise", "rotation", "permutation")
    places = [
        {**place, "num_drifts": 2, "transform": name, "severity": severity}
        for name in names
        for severity in (1, 5)
    ]

    def result(place: Place, seed: int) -> dict[str, Any]:
        name = place["transform"]
        full = 0.0 if name == "identity" else lost.get(name, 20.0)
        return {"faa": 70 - (full + 0.01 * seed if place["severity"] == 5 else 0.0)}

    sweep = write_sweep(tmp_path, places, result, reproduces="severity")
    told = found_in(sweep)["harmless-transforms"]
    assert told.holds == "holds"
    assert "defocus-blur mean +0.10 points" in told.measured
    lost["shot-noise"] = 9.0
    sweep = write_sweep(tmp_path / "b", places, result, reproduces="severity")
    assert found_in(sweep)["harmless-transforms"].holds == "does not hold"
    without = write_sweep(tmp_path / "c", places[2:], result, reproduces="severity")
    assert found_in(without)["harmless-transforms"].holds == "not measured"


def test_every_rendering_has_every_claim_with_its_verdicts(tmp_path: Path) -> None:
    found = claims([write_sweep(tmp_path, FEW, ends())])
    text = as_text(found)
    assert max(map(len, text.splitlines())) <= 120
    told = ("HOLDS:", "DOES NOT HOLD:", "UNDECIDED:", "NO NUMBERS:", "not measured here")
    assert sum(text.count(f"  {words}") for words in told) == 2 * len(KEYS)
    rows = list(csv.DictReader(io.StringIO(as_csv(found))))
    assert [Claim(**row) for row in rows] == found
    grid = [line for line in as_markdown(found).splitlines() if line.startswith("|")]
    assert len(grid) == 2 + len(KEYS)
    assert as_html(found).count("<tr>") == 1 + len(KEYS)


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    places = [{**place, "benchmark": "<script>|x"} for place in FEW]
    found = claims([write_sweep(tmp_path, places, ends())])
    assert "<script>" not in as_html(found)
    assert "&lt;script&gt;" in as_html(found)
    assert r"\<script\>\|x" in as_markdown(found)
