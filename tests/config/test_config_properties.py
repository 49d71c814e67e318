"""Whatever a config file says, it is understood or refused in one line."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from driftwise import RunConfig
from driftwise.config.config_files import from_mapping
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


@settings(max_examples=60)
@given(mappings)
def test_any_mapping_becomes_a_config_that_comes_back_from_its_file_or_one_line(
    mapping: dict[str, Any],
) -> None:
    message, plain = "", None
    try:
        plain = understood(mapping).to_json()
    except UserError as error:
        message = str(error)
    assert bool(message) is (plain is None)
    assert "\n" not in message
    for text in () if plain is None else (json.dumps(plain), yaml.safe_dump(plain)):
        assert understood(yaml.safe_load(text)).to_json() == plain
