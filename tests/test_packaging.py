"""What surrounds the package: versions that agree, and files that name what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import driftwise

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_one_version_stands_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest is not None
    assert newest[1] == driftwise.__version__
    assert read("CITATION.cff")["version"] == driftwise.__version__


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_call_what_is_there(name: str) -> None:
    workflow = read(f".github/workflows/{name}.yml")
    assert workflow["permissions"] == {"contents": "read"}
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    pinned = [
        re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step
    ]
    assert pinned
    assert all(pinned), "a tag can be moved, a commit cannot"
    lines = [step["run"] for step in steps if "run" in step]
    assert lines
    for line in lines:
        for target in re.findall(r"^make (\w+)", line, re.M):
            assert re.search(rf"^{target}:", MAKEFILE, re.M), line
        for path in re.findall(r"(?:^|\s)((?:\.ci|tests)/[\w./]+)", line):
            assert (ROOT / path).exists(), line


@pytest.mark.parametrize("name", ["Dockerfile", "deploy/Dockerfile"])
def test_containers_copy_what_is_there_and_what_is_not_ignored(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.M) for word in line.split()[:-1]]
    kept = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.M)
    assert copied
    assert all((ROOT / word).exists() and word in kept for word in copied)
    assert re.search(r"^USER (?!root|0\b)", text, re.M), "not as root"


def test_issue_forms_ask_for_something() -> None:
    for file in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        if file.name != "config.yml":
            form = read(f".github/ISSUE_TEMPLATE/{file.name}")
            assert form["name"]
            assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_hooks_are_the_checks_of_the_makefile() -> None:
    (local,) = read(".pre-commit-config.yaml")["repos"]
    for hook in local["hooks"]:
        tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f"$(BIN)/{tool}" in MAKEFILE
