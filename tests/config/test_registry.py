from __future__ import annotations

import subprocess
import sys

import pytest
from run_tools import ENVIRONMENT, complaint

from driftwise.config import registry
from driftwise.config.fields import field_docs, fields_of
from driftwise.config.registry import CATALOGUE, find
from driftwise.config.schema import PARTS, RunConfig


def test_every_entry_can_be_made_and_described() -> None:
    for kind, entries in CATALOGUE.items():
        assert getattr(RunConfig(), kind) in (None, *entries)
        for name, entry in entries.items():
            assert callable(entry.factory())
            assert entry.summary.strip()
            assert "\n" not in entry.summary
            assert find(kind, name) is entry
            options = entry.options_type()
            if options is not None:
                assert kind in PARTS, "otherwise no flag could reach them"
                assert set(field_docs(options)) == set(fields_of(options))
                options()  # every option has a default


def anything() -> None:
    """Makes a component of any kind."""


@pytest.mark.parametrize("kind", registry.OWN)
def test_a_part_of_ones_own_is_named_by_its_import_path(kind: str) -> None:
    assert find(kind, f"{__name__}:anything").factory() is anything


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
