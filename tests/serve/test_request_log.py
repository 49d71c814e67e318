"""The log holds exactly what was acknowledged, whatever a crash or a disk does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driftwise.errors import RunFailure, UserError
from driftwise.serve.request_log import RequestLog

LARGE = 10**6


def filled(folder: Path, count: int) -> RequestLog:
    log = RequestLog(folder, max_bytes=LARGE)
    for number in range(count):
        log.append({"value": number / 3, "text": "ä\n"})
    return log


def numbers(log: RequestLog, since: int = 0) -> list[int]:
    return [each["n"] for each in log.records(since)]


def test_what_was_appended_comes_back_in_order(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    again = RequestLog(tmp_path, max_bytes=LARGE)
    assert list(again.records(1)) == [
        {"n": 2, "value": 1 / 3, "text": "ä\n"},
        {"n": 3, "value": 2 / 3, "text": "ä\n"},
    ]
    assert again.append({}) == 4
    assert again.dropped == 0


def test_half_a_record_is_dropped_at_every_length(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    second = len(b"".join(whole.splitlines(keepends=True)[:2]))
    for length in range(second, len(whole)):
        file.write_bytes(whole[:length])
        log = RequestLog(tmp_path, max_bytes=LARGE)
        assert numbers(log) == [1, 2]
        assert log.dropped == length - second
        assert log.append({"value": 0}) == 3
        assert numbers(RequestLog(tmp_path, max_bytes=LARGE)) == [1, 2, 3]


def test_damage_before_whole_records_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b"0.333", b"0.334"))
    with pytest.raises(UserError, match="damaged after"):
        RequestLog(tmp_path, max_bytes=LARGE)


def test_segments_go_once_all_their_records_are_saved(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    log.begin_segment()
    log.begin_segment()  # nothing has come: no second one
    log.append({})
    log.begin_segment()
    log.append({})
    log.drop_until(2)
    assert numbers(log) == [1, 2, 3, 4, 5]
    log.drop_until(3)
    assert numbers(log, 3) == [4, 5]
    log.drop_until(5)
    assert numbers(RequestLog(tmp_path, max_bytes=LARGE), 4) == [5]
    with pytest.raises(UserError, match="requests in between are missing"):
        numbers(log, 1)
    with pytest.raises(UserError, match="put the newer files back"):
        numbers(log, 9)


def test_a_full_log_refuses_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, max_bytes=100)
    while log.num_bytes < 100:
        log.append({"x": "y" * 20})
    with pytest.raises(RunFailure, match="see why the state cannot be saved"):
        log.append({})
    last = log.next_number - 1
    log.begin_segment()
    log.drop_until(last)
    assert log.append({}) == last + 1


def test_a_record_that_did_not_reach_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path, 1)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RunFailure, match="Input/output error"):
            log.append({"lost": True})
    assert log.append({"kept": True}) == 2
    assert list(RequestLog(tmp_path, max_bytes=LARGE).records(1)) == [{"n": 2, "kept": True}]
