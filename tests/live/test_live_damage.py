"""What is wrong with a live learner's folder is said when it is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from live_tools import digits, live_learner, play
from run_tools import complaint

import driftwise
from driftwise.runs import checkpoint as state_file
from driftwise.runs import store


def saved_twice(folder: Path) -> None:
    """A live learner that was saved after 100 samples and after 200."""
    mine = live_learner(folder=folder)
    for start, images, labels in digits().batches(100):
        if start == 200:
            break
        mine.observe(images, labels)
        mine.save()
    mine._release()


def test_a_live_learner_that_falls_back_to_the_state_before_says_so(tmp_path: Path) -> None:
    saved_twice(tmp_path / "it")
    (tmp_path / "it" / store.CHECKPOINT).write_bytes(b"half")
    with pytest.warns(UserWarning, match="is damaged.*going on from the checkpoint before it"):
        mine = driftwise.LiveLearner.load(tmp_path / "it")
    assert mine.num_samples == 100
    mine.close()


def test_a_live_learner_of_which_nothing_is_saved_says_so(tmp_path: Path) -> None:
    mine = live_learner(folder=tmp_path / "it")
    play(mine, digits(), samples=50)
    mine._release()
    with pytest.warns(UserWarning, match="nothing is saved in .*: the live learner begins anew"):
        mine = driftwise.LiveLearner.load(tmp_path / "it")
    assert mine.num_samples == 0
    mine.close()


def test_a_state_that_no_live_learner_has_saved_gets_one_line(tmp_path: Path) -> None:
    saved_twice(tmp_path / "it")
    (tmp_path / "it" / store.PREVIOUS).unlink()
    file = tmp_path / "it" / store.CHECKPOINT
    saved = state_file.read(file, format=store.FORMAT)
    del saved["state"]["upkeep"]["window"]
    state_file.write(file, saved, format=store.FORMAT)
    assert "does not fit its config" in complaint(
        lambda: driftwise.LiveLearner.load(tmp_path / "it")
    )


def put(tree: Any, path: tuple[Any, ...], value: object) -> Any:
    """A tree with another value at one place."""
    if not path:
        return value
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    changed[path[0]] = put(tree[path[0]] if path[1:] else None, path[1:], value)
    return changed if isinstance(tree, dict) else type(tree)(changed)


FORGED: list[tuple[tuple[Any, ...], object]] = [
    (("upkeep", "window", "learned", "images"), None),
    (("upkeep", "window", "given", "current", "labels"), torch.zeros(2, 2)),
    (("upkeep", "window", "numbers", "counts"), torch.zeros(3)),
    (("upkeep", "window", "since"), {"x": 1}),
    (("upkeep", "behind"), "x"),
    (("upkeep", "untestable"), [None]),
    (("parts", "seen", "mean"), torch.zeros(1, 1, dtype=torch.float64)),
    (("parts", "seen", "count"), "x"),
    (("parts", "seen", "flags"), {"1": [2]}),
    (("teller", "counters", "samples_total"), [1]),
    (("teller", "steps"), "x"),
    (("intake", "count"), (3,)),
    (("intake", "shape"), [2**61, 8, 1]),
    (("parts", "learner", "steps"), 10**30),
    (("parts", "learner", "factor"), ()),
    (("parts", "learner", "optimiser", "param_groups", 0, "initial_lr"), "x"),
    (("parts", "learner", "optimiser", "param_groups", 0, "momentum"), "x"),
    (("parts", "learner", "memory", "slots", "order"), torch.zeros(3)),
    (("parts", "ledger"), [1, 2]),
    (("first_outputs",), 10**15),
    (("inbox", "answers"), 0.5),
]


@pytest.fixture(scope="module")
def forgeable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged") / "it"
    saved_twice(folder)
    (folder / store.PREVIOUS).unlink()
    return folder


@pytest.mark.parametrize(("path", "value"), FORGED, ids=[".".join(map(str, p)) for p, _ in FORGED])
def test_a_forged_state_is_refused_when_it_is_taken_up_in_one_line_that_names_it(
    path: tuple[Any, ...], value: object, forgeable: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "it"
    shutil.copytree(forgeable, folder)
    saved = state_file.read(folder / store.CHECKPOINT, format=store.FORMAT)
    saved["state"] = put(saved["state"], path, value)
    state_file.write(folder / store.CHECKPOINT, saved, format=store.FORMAT)
    with pytest.raises((driftwise.UserError, driftwise.RunFailure)) as caught:
        driftwise.LiveLearner.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lost", ["network", "detector"])
def test_a_config_that_no_live_learner_has_written_gets_one_line(lost: str, tmp_path: Path) -> None:
    saved_twice(tmp_path / "it")
    file = tmp_path / "it" / store.CONFIG
    config = json.loads(file.read_text())
    del config["keeper"][lost]
    file.write_text(json.dumps(config))
    (tmp_path / "it" / "checksums.json").unlink()  # whoever sends a folder sends fitting ones
    assert "does not fit its config" in complaint(
        lambda: driftwise.LiveLearner.load(tmp_path / "it")
    )


def with_setting(folder: Path, name: str, value: object) -> None:
    """Change what a live learner's folder says of its settings, as whoever sends one could."""
    file = folder / store.CONFIG
    config = json.loads(file.read_text())
    config["keeper"][name] = value
    file.write_text(json.dumps(config))
    (folder / "checksums.json").unlink()


@pytest.mark.parametrize("name", ["folder", "labels", "data"])
def test_settings_of_a_folder_that_no_live_learner_has_are_refused_and_lead_nowhere(
    name: str, tmp_path: Path
) -> None:
    saved_twice(tmp_path / "it")
    with_setting(tmp_path / "it", name, str(tmp_path / "elsewhere"))
    told = complaint(lambda: driftwise.LiveLearner.load(tmp_path / "it"))
    assert f"unknown setting of a live learner '{name}'" in told
    assert str(tmp_path / "it") in told
    assert not (tmp_path / "elsewhere").exists()


def test_settings_of_a_folder_that_are_of_no_use_name_the_folder(tmp_path: Path) -> None:
    saved_twice(tmp_path / "it")
    with_setting(tmp_path / "it", "buffer_size", "many")
    told = complaint(lambda: driftwise.LiveLearner.load(tmp_path / "it"))
    assert told.startswith(f"{tmp_path / 'it'}: buffer_size must be a whole number")


def test_a_live_learner_without_a_whole_checkpoint_says_what_can_be_done(tmp_path: Path) -> None:
    saved_twice(tmp_path / "it")
    for name in (store.CHECKPOINT, store.PREVIOUS):
        (tmp_path / "it" / name).write_bytes(b"half")
    told = complaint(lambda: driftwise.LiveLearner.load(tmp_path / "it"))
    assert told.endswith("begin anew in another folder")
    assert "--" not in told
