"""A service on a real Ray that is started here."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_server import MLP

from driftwise.cli.main import command

pytest.importorskip("uvicorn")


def test_a_killed_replica_loses_no_answer_and_gives_no_wrong_one(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray.serve", exc_type=ImportError)
    from serve_ray import kill_and_compare

    found = kill_and_compare(tmp_path, kills=1, clients=2, seconds=0.5)  # more: serve_ray.py
    assert found["predictions"] > 50
    assert found["snapshots"] > 5, "replicas follow the learner"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--replicas", "many"], "--replicas is MIN or MIN:MAX, such as 1:4; got 'many'"),
        (["--replicas", "3:2"], "expected at least 1 replica"),
        (["--workers", "2"], "--ray has replicas of its own"),
        (["--ray", "nowhere"], "a Ray cluster's address is host:port, auto or local"),
    ],
)
def test_refusals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], message: str
) -> None:
    folder = ["--folder", str(tmp_path / "state")]
    assert command(["serve", *MLP, *folder, "--ray", "local", *flags]) == 2
    assert message in capsys.readouterr().err
