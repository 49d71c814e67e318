"""Where data is searched for, in which order, and how one process at a time writes it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
from data_tools import empty_machine

from driftwise import paths
from driftwise.datasets import cache
from driftwise.datasets.library import is_offline
from driftwise.encoders.imagenet_weights import resnet18_at_hand
from driftwise.errors import RunFailure, UserError
from driftwise.files import alone
from driftwise.paths import (
    cache_home,
    candidates,
    data_home,
    environment,
    locate,
)

HINTS = ("cifar-10-batches-py", "cifar10")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any settings, working in an empty folder, on a system without packages."""
    empty_machine(tmp_path, monkeypatch)
    for variable in ("DRIFTWISE_CACHE", "DRIFTWISE_OFFLINE"):
        monkeypatch.delenv(variable)
    return tmp_path / "home"


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_the_nearer_place_wins_at_every_step(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = home.parent
    named = [base / "one", base / "two"]
    monkeypatch.setenv("DRIFTWISE_DATA", os.pathsep.join(["", *map(str, named), ""]))
    from_far_to_near = [
        base / "system/cifar10",
        home / "data/cifar10",
        base / "work/data/cifar-10-batches-py",
        home / ".local/share/recollect/cifar10",
        home / ".local/share/driftwise/cifar10",
        base / "two/cifar10",
        base / "one/cifar10",
        base / "one/cifar-10-batches-py",
    ]
    assert locate(HINTS, lambda path: True) is None
    for path in from_far_to_near:
        folder(path)
        assert locate(HINTS, lambda found: found.name in HINTS) == path
    assert locate(HINTS, Path.is_dir, explicit=folder(base / "three")) == base / "three"


def test_a_folder_named_by_the_user_may_be_the_data_set_or_hold_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder(home.parent / "sets")
    (root / "is-it").touch()
    for holder in (root, folder(home.parent / "outer")):
        inner = holder / "cifar10"
        inner.mkdir()
        (inner / "is-it").touch()
    right = "is-it"
    monkeypatch.setenv("DRIFTWISE_DATA", str(root))
    # What is named inside goes before the folder, what is given goes before what it holds.
    assert locate(HINTS, lambda path: (path / right).exists()) == root / "cifar10"
    assert locate(HINTS, lambda path: (path / right).exists(), explicit=root) == root
    outer = home.parent / "outer"
    assert locate(HINTS, lambda path: (path / right).exists(), explicit=outer) == outer / "cifar10"


def test_an_explicit_file_is_its_only_candidate(home: Path) -> None:
    file = home / "yearbook.npz"
    file.touch()
    assert [place.path for place in candidates(("yearbook",), explicit=Path("~/yearbook.npz"))] == [
        file
    ]


def test_wrong_or_unreadable_places_are_passed_over(home: Path) -> None:
    for path in (home / ".local/share/driftwise/cifar10", home / "data/cifar10"):
        folder(path)
    (home / ".local/share/driftwise/cifar-10-batches-py").touch()

    def looks_right(path: Path) -> bool:
        if "share" in path.parts and path.is_dir():
            raise PermissionError(13, "Permission denied")
        return path.is_dir()

    assert locate(HINTS, looks_right) == home / "data/cifar10"


def test_no_place_is_listed_twice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)  # ./data is ~/data
    monkeypatch.setenv("DRIFTWISE_DATA", "data")
    paths = [place.path for place in candidates(HINTS)]
    assert len(paths) == len(set(paths))
    assert paths[:2] == [home / "data" / hint for hint in HINTS]
    assert all(path.is_absolute() for path in paths)


@pytest.mark.parametrize(
    ("platform", "variables", "data", "cache"),
    [
        ("linux", {}, "home/.local/share/driftwise", "home/.cache/driftwise"),
        ("linux", {"XDG_DATA_HOME": "x", "XDG_CACHE_HOME": "y"}, "x/driftwise", "y/driftwise"),
        (
            "darwin",
            {},
            "home/Library/Application Support/driftwise",
            "home/Library/Caches/driftwise",
        ),
        ("win32", {"LOCALAPPDATA": "local"}, "local/driftwise", "local/driftwise/cache"),
        ("linux", {"DRIFTWISE_CACHE": "mine"}, "home/.local/share/driftwise", "mine"),
    ],
)
def test_homes_are_where_the_system_expects_them(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    variables: dict[str, str],
    data: str,
    cache: str,
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, str(home.parent / value))
    monkeypatch.setattr(sys, "platform", platform)
    assert (data_home(), cache_home()) == (home.parent / data, home.parent / cache)
    # A folder under the package's old name is searched next, but nothing is written there.
    searched = [place.path.parent for place in candidates(("x",))]
    assert searched[:2] == [data_home(), data_home().with_name("recollect")]


@pytest.mark.parametrize("name", ["DATA", "CACHE", "OFFLINE", "RESNET18"])
def test_a_variable_under_the_old_name_counts_with_one_warning(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    new, old = f"DRIFTWISE_{name}", f"RECOLLECT_{name}"
    monkeypatch.delenv(new, raising=False)
    paths._warn_of_old_name.cache_clear()
    monkeypatch.setenv(old, str(home / "old"))
    with pytest.warns(UserWarning, match=f"{old} is the old name of {new}") as caught:
        assert environment(new) == environment(new) == str(home / "old")
    assert len(caught) == 1
    paths._warn_of_old_name.cache_clear()
    monkeypatch.setenv(new, str(home / "new"))
    assert environment(new) == str(home / "new")
    monkeypatch.setenv(new, "")
    assert environment(new) == ""


def test_old_variables_are_read_where_the_new_ones_are(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths._warn_of_old_name.cache_clear()
    monkeypatch.setenv("RECOLLECT_DATA", str(home / "sets"))
    monkeypatch.setenv("RECOLLECT_CACHE", str(home / "cache"))
    monkeypatch.setenv("RECOLLECT_OFFLINE", "1")
    monkeypatch.setenv("RECOLLECT_RESNET18", str(home / "weights"))
    monkeypatch.delenv("DRIFTWISE_RESNET18", raising=False)
    (home / "weights").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert candidates(("x",))[0].path == home / "sets/x"
        assert cache_home() == home / "cache"
        assert is_offline()
        assert resnet18_at_hand() == home / "weights"


def test_relative_xdg_folders_are_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "somewhere")
    assert data_home() == home / ".local/share/driftwise"


def test_a_user_without_a_home_is_reported_in_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UserError, match="set HOME"):
        data_home()


def test_the_lock_admits_one_at_a_time_and_leaves_no_file(tmp_path: Path) -> None:
    inside, most, entered = 0, 0, 0
    count = threading.Lock()

    def work() -> None:
        nonlocal inside, most, entered
        for _ in range(20):
            with alone(tmp_path / "thing"):
                with count:
                    inside, entered = inside + 1, entered + 1
                    most = max(most, inside)
                time.sleep(0.0005)
                with count:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, entered) == (1, 120)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_cannot_be_had_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunFailure, match=r"cannot write .*Not a directory"),
        alone(tmp_path / "file" / "thing"),
    ):
        pass


def test_finding_and_fetching_data_load_neither_torch_nor_numpy() -> None:
    folder_of = str(Path(cache.__file__).parent)
    # Stands in for the package, so that only the modules themselves are on trial.
    script = f"""
import sys, types
package = types.ModuleType("driftwise.datasets")
package.__path__ = [{folder_of!r}]
sys.modules["driftwise.datasets"] = package
import driftwise.paths, driftwise.datasets.download
assert not {{"torch", "numpy", "urllib.request", "ssl"}} & set(sys.modules)
import driftwise.datasets.cache
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
