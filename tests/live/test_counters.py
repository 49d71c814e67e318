"""Counters are exact, and are what Prometheus reads."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tools import digits, live_learner, play

from driftwise.live.reporter import COUNTERS, GAUGES, PREFIX, prometheus_text

LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*) (\S+)")


def parsed(text: str) -> dict[str, tuple[str, str, float]]:
    """Kind, help and value by name: as much of the text format as there is without labels."""
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
def test_every_digit_of_a_count_and_of_a_share_is_written(count: int, share: float) -> None:
    text = prometheus_text({"samples_total": count, "accuracy_recent": share})
    assert f"\n{PREFIX}samples_total {count}\n" in text
    assert parsed(text)[f"{PREFIX}accuracy_recent"][2] == share


def test_every_counter_and_gauge_is_there_once_with_its_kind_and_meaning() -> None:
    mine = live_learner()
    play(mine, digits(0), samples=300)
    found = parsed(mine.counters)
    meanings = {**COUNTERS, **GAUGES}
    assert set(found) == {PREFIX + name for name in meanings}
    for name, meaning in meanings.items():
        kind, said, value = found[PREFIX + name]
        assert kind == ("counter" if name in COUNTERS else "gauge")
        assert said == meaning
        assert value >= 0
    assert found[f"{PREFIX}samples_total"][2] == 300


def test_prometheus_own_reader_reads_the_same() -> None:
    reader = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is missing")
    mine = live_learner()
    play(mine, digits(0), samples=300)
    read = {
        sample.name: (family.type, family.documentation, sample.value)
        for family in reader.text_string_to_metric_families(mine.counters)
        for sample in family.samples
    }
    assert read == parsed(mine.counters)
