"""However long the stream, a run holds what it held."""

from __future__ import annotations

from pathlib import Path

import pytest
from long_stream_tools import Recorder, is_supported, long_config

from driftwise import run
from driftwise.runs.saving import Saving


@pytest.mark.skipif(not is_supported(), reason="needs Linux's /proc")
def test_a_long_stream_takes_no_more_once_every_class_has_its_archive(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", every=20)
    run(long_config(160), tmp_path / "run", listener=recorder, saving=Saving(steps=5))
    *_, middle, end = recorder.seen  # the archives of three earlier concepts are full by then
    assert end.files == middle.files
    assert end.threads == middle.threads
    assert end.anonymous - middle.anonymous < 2 * 2**20
    # A larger checkpoint would be slower to save, too; numbers in it may have one more digit.
    assert abs(end.checkpoint - middle.checkpoint) < 256
