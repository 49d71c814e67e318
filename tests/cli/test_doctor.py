"""`driftwise doctor`: what is missing is named, and what must work is tried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import driftwise
from driftwise.cli import doctor
from driftwise.cli import main as cli


def test_a_sound_machine_is_called_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.command(["doctor", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["works"] is True
    found = {(each["topic"], each["name"]): each["text"] for each in outcome["findings"]}
    assert found["versions", "driftwise"].startswith(driftwise.__version__)
    assert found["data", "digits"] == "inside a package"
    assert "bfloat16" in found["devices", "cpu"]
    assert found["self-test", "run"].startswith("learned, saved and loaded; FAA ")
    assert "GiB free" in found["write access", "working folder"]


def test_a_folder_that_cannot_be_written_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path / "file"))
    assert cli.command(["doctor", "--no-test"]) == 1
    text = capsys.readouterr().out
    assert f"! cache            {tmp_path / 'file'} cannot be written: " in text
    assert text.endswith("1 problem, marked with !\n")


def test_a_self_test_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> str:
        raise RuntimeError("no kernel\nfor this machine")

    monkeypatch.setattr(doctor, "_short_run", fail)
    (finding,) = doctor.self_test()
    assert finding.is_problem
    assert finding.text == "RuntimeError: no kernel for this machine"


def test_an_extra_that_is_not_installed_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = ["torch>=2.6", "absent-package>=1; extra == 'other'", "numpy; extra == 'arrays'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: needed)
    found = {each.name: each.text for each in doctor.extras()}
    assert found["other"] == "not installed: pip install 'driftwise[other]'"
    assert found["arrays"].startswith("numpy ")
    assert "torch" not in found
