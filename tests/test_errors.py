"""Messages for people are of a length that people read."""

from __future__ import annotations

import pickle

import pytest

from driftwise.errors import MAX_LENGTH, RunFailure, UserError, unknown_name


@pytest.mark.parametrize("kind", [UserError, RunFailure])
def test_a_message_of_any_length_is_cut_in_the_middle(kind: type[Exception]) -> None:
    error = kind("expected " + "x" * 300_000 + "; do this")
    assert len(str(error)) == MAX_LENGTH
    assert str(error).startswith("expected ")
    assert str(error).endswith("; do this")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(kind("short")) == "short"


def test_a_name_among_very_many_is_reported_in_bounds() -> None:
    message = str(unknown_name("layer", "y" * 10_000, (f"layer {n}" for n in range(10_000))))
    assert len(message) == MAX_LENGTH
