"""Counters are exact and as Prometheus reads them; failures of callbacks stop nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tools import STABLE, feed, live_learner
from same_state import same

from driftwise.live import Event
from driftwise.live.reporter import COUNTERS, GAUGES, PREFIX, prometheus_text

LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*) (\S+)")


def parsed(text: str) -> dict[str, tuple[str, str, float]]:
    """Kind, help and value by name: the text format as far as there are no labels."""
    assert text.endswith("\n")
    found, lines = {}, text.splitlines()
    for about, kind, sample in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        match = LINE.fullmatch(sample)
        assert match, sample
        name, value = match.groups()
        assert about.startswith(f"# HELP {name} ")
        assert re.fullmatch(rf"# TYPE {name} (counter|gauge)", kind)
        found[name] = (kind.split()[-1], about.split(" ", 3)[3], float(value))
    return found


@given(count=st.integers(min_value=0, max_value=2**53), share=st.floats(min_value=0, max_value=1))
def test_every_digit_of_a_count_and_of_a_fraction_is_written(count: int, share: float) -> None:
    text = prometheus_text({"samples_total": count, "accuracy_recent": share})
    assert f"\n{PREFIX}samples_total {count}\n" in text
    assert parsed(text)[f"{PREFIX}accuracy_recent"][2] == share


def test_every_counter_and_gauge_is_there_once_with_its_kind_and_meaning() -> None:
    mine = live_learner()
    assert "accuracy_recent" not in mine.counters, "it is not known yet"
    feed(mine, STABLE, samples=200)
    found = parsed(mine.counters)
    assert set(found) == {PREFIX + name for name in (*COUNTERS, *GAUGES)}
    for names, kind in ((COUNTERS, "counter"), (GAUGES, "gauge")):
        for name, meaning in names.items():
            assert found[PREFIX + name][:2] == (kind, meaning)
            assert found[PREFIX + name][2] >= 0
    assert found[f"{PREFIX}samples_total"][2] == 200
    assert found[f"{PREFIX}accuracy_recent"][2] == mine.accuracy


def test_the_reader_of_prometheus_reads_the_same() -> None:
    reader = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is missing")
    mine = live_learner()
    feed(mine, STABLE, samples=200)
    assert parsed(mine.counters) == {
        sample.name: (family.type, family.documentation, sample.value)
        for family in reader.text_string_to_metric_families(mine.counters)
        for sample in family.samples
    }


def test_first_labels_count_as_wrong_and_rehearsal_changes_weights_alone_and_counts_steps() -> None:
    mine = live_learner()
    assert mine.rehearse() is None, "the buffer is empty"
    first = mine.observe(STABLE.images[:20], [0] * 10 + [1] * 10)
    assert (first.predicted == -1).all(), "there was no class to predict"
    assert first.accuracy == mine.accuracy == 0
    before = mine._state()["parts"]["learner"]["memory"]
    loss, last = mine.rehearse(), mine.rehearse(49)
    after = mine._state()["parts"]["learner"]["memory"]
    assert {key for key in before if not same(before[key], after[key])} == {"generators"}
    assert loss is not None
    assert last is not None
    assert last < loss
    assert mine.num_samples == 20
    assert "driftwise_steps_total 51\n" in mine.counters


def test_callbacks_get_the_events_they_wait_for_and_their_failures_stop_nothing() -> None:
    mine, kinds = live_learner(), list[str]()
    mine.on("*", lambda event: kinds.append(event.kind))

    def broken(event: Event) -> None:
        raise RuntimeError(f"cannot use {event.kind}\nat all")

    mine.on("observed", broken)
    seen = mine.observe(STABLE.images[:10], STABLE.labels[:10])
    assert "a callback on observed failed: RuntimeError: cannot use observed" in seen.notes
    assert kinds == ["classes", "observed"]
    assert "driftwise_callback_failures_total 1\n" in mine.counters
