"""Analytic learners in the loop: vectors that drift, every adaptation, resumed exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import driftwise as dw
from driftwise import datasets
from driftwise.adapt import PartialRealign, Realign, Relearn
from driftwise.analytic_learner import AnalyticLearner
from driftwise.methods import SLDA, NearestMean, Ridge
from driftwise.streams import Stream

YEARS = ("year 1", "year 2", "year 3")


def sensors(*domains: str, seed: int = 0) -> dw.streams.Stream:
    """Readings of four substances in a table; each year one substance reads as another did."""
    draw = np.random.default_rng(seed)
    centres = 4 * draw.normal(size=(4, 6))
    labels, year = np.arange(1200) % 4, np.repeat(np.arange(3), 400)
    vectors = centres[(labels + year) % 4] + draw.normal(size=(1200, 6))
    table = {f"sensor {i}": vectors[:, i] for i in range(6)}
    years = np.array(YEARS)[year]
    data = datasets.from_table(table | {"gas": labels, "year": years}, label="gas", domain="year")
    return dw.streams.class_incremental(
        data,
        tasks=[[0, 1, 2, 3], *[[] for _ in domains or YEARS[1:]]],
        events=[
            {"task": task, "classes": "all-seen", "domain": domain}
            for task, domain in enumerate(domains or YEARS[1:], start=2)
        ],
        first_domain="year 1",
        seed=seed,
    )


def accuracy(stream: Stream, **options: Any) -> tuple[float, int]:
    """After the last task, and labels for adaptation."""
    learner = AnalyticLearner(options.pop("method", SLDA()), fresh_samples=10)
    loop = dw.DriftLoop(learner, encoder=dw.detect.RandomEncoder, **options)
    record = list(loop.run(stream))[-1]
    return record.accuracy, record.labels["adaptation"]


@pytest.mark.parametrize("method", [SLDA(), NearestMean(), Ridge(width=50)])
def test_realigned_statistics_follow_their_classes(method: dw.methods.AnalyticMethod) -> None:
    stays, none = accuracy(sensors(), method=method, adaptation=dw.adapt.Vanilla())
    follows, labels = accuracy(sensors(), method=method, adaptation=Realign())
    assert none == 0
    assert labels <= 2 * 4 * 10, "ten labels for each drifted class at each check"
    assert follows > 90 > 10 > stays


def test_every_adaptation_works_on_statistics() -> None:
    found = {
        "realign": accuracy(sensors(), adaptation=Realign()),
        "partial": accuracy(sensors(), adaptation=PartialRealign()),
        "flush": accuracy(sensors(), adaptation=Relearn(flush=True)),
    }
    assert all(final > 90 for final, _ in found.values()), found
    assert found["flush"][1] > 5 * found["realign"][1]
    added, _ = accuracy(sensors(), adaptation=Relearn())
    assert added < found["flush"][0], "old statistics beside the new ones do harm"


@pytest.mark.parametrize("method", [SLDA(), NearestMean(), Ridge(width=50)])
def test_statistics_of_a_concept_that_returns_are_restored_without_labels(
    method: dw.methods.AnalyticMethod,
) -> None:
    def last(adaptation: Any) -> tuple[float, int]:
        loop = dw.DriftLoop(
            AnalyticLearner(method, fresh_samples=10),
            encoder=dw.detect.RandomEncoder,
            adaptation=adaptation,
            reference="fingerprint",
        )
        records = list(loop.run(sensors(YEARS[1], YEARS[0], YEARS[0])))
        notes = " ".join(records[2].notes)
        assert ("its statistics restored without labels" in notes) == (
            not isinstance(adaptation, Realign)
        )
        assert not records[3].drifted, "the restored concept is the new reference"
        return records[3].accuracy, records[3].labels["adaptation"]

    accurate, labels = last(dw.adapt.RecurringConcepts(Realign()))
    assert labels == 4 * 10, "none for the second year"
    assert accurate > 90
    assert last(Realign())[1] == 2 * 4 * 10


def test_a_loop_that_is_saved_and_resumed_ends_with_the_same_numbers() -> None:
    options = {"encoder": dw.detect.RandomEncoder}
    whole = dw.DriftLoop(AnalyticLearner(SLDA()), **options)  # type: ignore[arg-type]
    records = [record.accuracy for record in whole.run(sensors())]
    first = dw.DriftLoop(AnalyticLearner(SLDA()), **options)  # type: ignore[arg-type]
    next(iter(first.run(sensors())))
    second = dw.DriftLoop(AnalyticLearner(SLDA()), **options)  # type: ignore[arg-type]
    second.bind(stream := sensors())
    second.load_state_dict(first.state_dict())
    assert [record.accuracy for record in second.run(stream, after=1)] == records[1:]
    assert whole.result["method"] == "slda"
