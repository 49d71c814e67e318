from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_tools import ENVIRONMENT, complaint

from driftwise import run
from driftwise.cli.main import command
from driftwise.config import registry
from driftwise.config.fields import field_docs, fields_of
from driftwise.config.registry import CATALOGUE, find
from driftwise.config.schema import PARTS, RunConfig
from driftwise.errors import UserError


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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that offers a method, a detector that is broken, and a name of ours."""
    (tmp_path / "others_parts.py").write_text(
        "from driftwise.methods import ER\n\n\n"
        "class Weighted(ER):\n"
        "    def __init__(self, *, weight: float = 0.5):\n"
        "        self.weight = weight\n"
    )
    info = tmp_path / "others_parts-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others-parts\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[driftwise.methods]\nweighted = others_parts:Weighted\ner = others_parts:Weighted\n"
        "[driftwise.detectors]\nbroken = others_parts:Missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.installed.cache_clear()
    yield
    registry.installed.cache_clear()


@pytest.mark.usefixtures("package")
def test_an_installed_package_adds_components_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig(method="weighted", options={"method": {"weight": 0.25}}, epochs=1)
    result = run(config, tmp_path / "run")
    assert result["method"] == "weighted"
    assert result["config"]["options"]["method"] == {"weight": 0.25}
    assert result["config"]["code_identity"], "its source is part of the run's identity"
    assert registry.find("method", "er").summary.startswith("experience replay"), "ours come first"
    with pytest.raises(UserError, match="did you mean 'weighted'"):
        registry.find("method", "weigted")
    assert command(["list"]) == 0
    listing = capsys.readouterr().out
    assert "offered by the package others-parts" in listing
    assert "--method.weight" in listing
    assert "cannot be used: cannot import 'others_parts:Missing'" in listing


@pytest.mark.usefixtures("package")
def test_a_name_that_two_packages_offer_is_refused_where_it_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = tmp_path / "rivals-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rivals\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[driftwise.methods]\nweighted = rivals:Other\n")
    registry.installed.cache_clear()
    with pytest.raises(UserError, match="'weighted' is the name of several components") as refusal:
        run(RunConfig(method="weighted"), tmp_path / "run")
    for path in ("rivals:Other", "others_parts:Weighted"):
        assert path in str(refusal.value)
    assert command(["list", "method"]) == 0
    assert "cannot be used: method 'weighted' is the name of several" in " ".join(
        capsys.readouterr().out.split()
    )
