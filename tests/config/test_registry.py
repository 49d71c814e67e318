from __future__ import annotations

import subprocess
import sys

import pytest
from run_tools import ENVIRONMENT, complaint

from driftwise.config import registry
from driftwise.config.fields import field_docs, fields_of
from driftwise.config.registry import CATALOGUE, Entry, find
from driftwise.config.schema import PARTS, RunConfig

ENTRIES = [
    pytest.param(kind, name, entry, id=f"{kind}-{name}")
    for kind, entries in CATALOGUE.items()
    for name, entry in entries.items()
]


@pytest.mark.parametrize(("kind", "name", "entry"), ENTRIES)
def test_every_entry_can_be_made_and_described(kind: str, name: str, entry: Entry) -> None:
    assert callable(entry.factory())
    assert entry.summary.strip()
    assert "\n" not in entry.summary
    assert find(kind, name) is entry
    options = entry.options_type()
    if options is not None:
        assert kind in PARTS, "otherwise no flag could reach them"
        assert set(field_docs(options)) == set(fields_of(options))
        options()  # every option has a default


def test_every_kind_is_a_setting_and_its_default_is_in_it() -> None:
    for kind, entries in CATALOGUE.items():
        chosen = getattr(RunConfig(), kind)
        assert chosen is None or chosen in entries


def test_an_unknown_name_is_told_the_nearest_and_all_others() -> None:
    assert complaint(lambda: find("buffer_policy", "balance")) == (
        "unknown buffer policy 'balance'; did you mean 'balanced'? (known: balanced, reservoir)"
    )


def anything() -> None:
    """Makes a part of any kind, for all that is known before it is called."""


@pytest.mark.parametrize("kind", registry.OWN)
def test_a_part_of_ones_own_is_named_by_its_import_path(kind: str) -> None:
    assert find(kind, f"{__name__}:anything").factory() is anything


@pytest.mark.parametrize(
    "path", ["no_such_module:x", "collections:NoSuchName", "collections:", ":x", "a b:c"]
)
def test_an_import_path_that_leads_nowhere_gets_one_line(path: str) -> None:
    message = complaint(lambda: find("method", path).factory())
    assert message.startswith(f"cannot import {path!r} (expected module:name)")


def test_a_kind_that_cannot_be_brought_along_knows_no_import_paths() -> None:
    assert complaint(lambda: find("transform", "collections:Counter")).startswith(
        "unknown transform 'collections:Counter'"
    )


def test_reading_the_catalogue_imports_nothing_heavy() -> None:
    code = "import sys, driftwise.config.registry; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
