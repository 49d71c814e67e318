"""The pages that follow from the code are what the code says; messages and files are as described."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_pages
from pages import PAGES, ROOT

import driftwise

SCHEMAS = ROOT / "docs" / "reference" / "schemas"


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    if name == "http_api.md":
        pytest.importorskip("fastapi")
    is_same = PAGES[f"docs/reference/{name}"] == reference_pages.made(name)
    assert is_same, f"docs/reference/{name} is out of date: run python tools/reference_pages.py"


def check(content: Any, schema: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    described = json.loads((SCHEMAS / schema).read_text())
    jsonschema.Draft202012Validator.check_schema(described)
    jsonschema.validate(content, described)


def test_a_result_and_its_events_fit_their_schemas(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    check(result, "result.schema.json")
    described = json.loads((SCHEMAS / "result.schema.json").read_text())
    assert set(result) == set(described["properties"])
    lines = (finished / "events.jsonl").read_text().splitlines()
    assert {json.loads(line)["event"] for line in lines} == {"task", "verdict", "repair", "scores"}
    for line in lines:
        check(json.loads(line), "event.schema.json")


def test_a_result_without_a_buffer_or_drift_fits_too(tmp_path: Path) -> None:
    config = driftwise.RunConfig(
        method="finetune", detector="never", num_drifts=0, num_tasks=2, epochs=1
    )
    check(dict(driftwise.run(config, tmp_path / "run")), "result.schema.json")


def test_events_of_a_live_learner_fit_their_schema(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    with driftwise.LiveLearner(method="slda", folder=tmp_path / "live") as live:
        live.observe(draw.normal(size=(40, 4)), np.arange(40) % 2)
    lines = (tmp_path / "live" / "events.jsonl").read_text().splitlines()
    assert len(lines) > 0
    for line in lines:
        check(json.loads(line), "live-event.schema.json")


def test_every_explained_error_is_one_that_can_be_raised() -> None:
    page = PAGES["docs/how-to/errors.md"]
    headings = re.findall(r"^### (.+)$", page, re.MULTILINE)
    assert len(headings) > 20
    files = (ROOT / "src" / "driftwise").rglob("*.py")
    # Messages are written as adjacent literals: `"... a " f"b ..."`.
    source = re.sub(r'"\s+f?"', "", "".join(file.read_text() for file in files))
    assert [each for each in headings if each not in source] == []
