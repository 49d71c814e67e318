"""Whatever a config file says, it is understood or refused in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from driftwise import RunConfig
from driftwise.config.files import from_mapping
from driftwise.config.presets import resolve
from driftwise.errors import UserError

NAMES = sorted(field.name for field in dataclasses.fields(RunConfig))

leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["er", "ks", "none", "oracle", "cosine", "all-seen", "digits-cd"])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
mappings = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=6), values, max_size=4)


def understood(mapping: dict[str, Any]) -> RunConfig:
    values: dict[str, Any] = from_mapping(RunConfig, mapping, source="FILE")
    return resolve(RunConfig(**values))


@given(mappings)
def test_any_mapping_becomes_a_config_or_one_line(mapping: dict[str, Any]) -> None:
    told = "understood"
    try:
        understood(mapping)
    except UserError as error:
        told = str(error)
    assert told
    assert "\n" not in told


@given(mappings)
def test_a_config_that_was_understood_comes_back_from_json_and_yaml(
    mapping: dict[str, Any],
) -> None:
    with contextlib.suppress(UserError):
        plain = understood(mapping).to_json()
        for text in (json.dumps(plain), yaml.safe_dump(plain)):
            assert understood(yaml.safe_load(text)).to_json() == plain
