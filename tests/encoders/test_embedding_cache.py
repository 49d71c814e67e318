"""Features on disk: each sample encoded once, by whichever process; never a wrong one."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from run_tools import complaint
from torch import Tensor, nn

from driftwise import files
from driftwise.encoders import EmbeddingCache, LearnerEncoder, OwnEncoder, embedding_cache
from driftwise.encoders.embedding_cache import CHUNK, FEATURES, KEYS, META
from driftwise.encoders.encoding_cache import PORTION
from driftwise.errors import UserError
from driftwise.types import Encoding

WIDTH = 5


class Counting:
    """Five features of a sample: its first byte times 1 to 5; records what it was given."""

    fixed: ClassVar[bool] = True

    def __init__(self, identity: str | None = "counting", *, factor: float = 1) -> None:
        self.name = f"counting {identity}"
        self.identity = identity
        self.networks: Sequence[nn.Module] = ()
        self.given: list[int] = []
        self.factor = factor

    def encode(self, images: Tensor) -> Encoding:
        first = images.flatten(1)[:, :1].float()
        self.given += [int(each) for each in first if each]
        features = self.factor * first * torch.arange(1, WIDTH + 1)
        return Encoding(logits=features, features=features)


def numbered(*numbers: int) -> Tensor:
    """Images of 2x2x1 that begin with their number (1 to 255)."""
    images = torch.ones(len(numbers), 2, 2, 1, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.tensor(numbers, dtype=torch.uint8)
    return images


def expected(*numbers: int) -> list[list[float]]:
    return [[float(number * k) for k in range(1, WIDTH + 1)] for number in numbers]


def test_each_content_is_encoded_once_also_after_a_restart(tmp_path: Path) -> None:
    counting = Counting()
    cache = EmbeddingCache(counting, tmp_path / "cache")
    features = cache.features(numbered(3, 1, 3, 2))
    assert features.dtype == torch.float32
    assert features.tolist() == expected(3, 1, 3, 2)
    assert counting.given == [3, 1, 2]
    features.zero_()  # the result is the caller's to change
    assert cache.features(numbered(2, 4, 3)).tolist() == expected(2, 4, 3)
    assert counting.given == [3, 1, 2, 4]
    later = Counting()
    again = EmbeddingCache(later, tmp_path / "cache")
    assert again.features(numbered(4, 1).numpy()).tolist() == expected(4, 1)
    assert not later.given
    other_shape = numbered(4).reshape(1, 4, 1, 1)
    again.features(other_shape)
    assert later.given == [4], "equal bytes in another shape are another image"
    assert again.features(numbered()).shape == (0, WIDTH)


def test_one_cache_sees_at_once_what_another_one_wrote(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    caches = [EmbeddingCache(each, tmp_path) for each in (first, second)]
    caches[0].features(numbered(1, 2))
    caches[1].features(numbered(2, 3))
    caches[0].features(numbered(3, 1))
    assert (first.given, second.given) == ([1, 2], [3])


def test_a_sample_is_encoded_alike_in_whatever_company(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 32))
    encoder = OwnEncoder(network, identity="mine")
    images = torch.randint(256, (PORTION + 9, 4, 4, 3), dtype=torch.uint8)
    whole = EmbeddingCache(encoder, tmp_path / "whole").features(images)
    single = EmbeddingCache(encoder, tmp_path / "single")
    assert torch.equal(torch.cat([single.features(each[None]) for each in images]), whole)


def test_many_samples_are_worked_on_in_bounded_chunks(tmp_path: Path) -> None:
    numbers = np.arange(3 * CHUNK + 7, dtype=np.float32)[:, None] + 1
    sizes: list[int] = []

    class Measured(Counting):
        def encode(self, images: Tensor) -> Encoding:
            sizes.append(len(images))
            return super().encode(images)

    counting = Measured()
    cache = EmbeddingCache(counting, tmp_path)
    found = cache.features(numbers)
    assert np.array_equal(found.numpy(), numbers * np.arange(1, WIDTH + 1, dtype=np.float32))
    assert set(sizes) == {PORTION}
    assert len(counting.given) == len(numbers)
    assert torch.equal(EmbeddingCache(Counting(), tmp_path).features(numbers), found)


def test_each_encoder_has_a_folder_of_its_own_below_the_users_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path))
    caches = [EmbeddingCache(Counting(name, factor=k)) for k, name in enumerate("abc", 1)]
    assert [cache.features(numbered(7))[0, 0].item() for cache in caches] == [7, 14, 21]
    folders = {cache.folder for cache in caches}
    assert folders == set((tmp_path / "embeddings").iterdir())
    outside = EmbeddingCache(Counting("../../outside"))
    assert outside.folder is not None
    assert outside.folder.resolve().parent == tmp_path / "embeddings"


def test_other_weights_other_preprocessing_and_other_attributes_are_another_encoder() -> None:
    def make(seed: int = 0, **options: Any) -> OwnEncoder:
        torch.manual_seed(seed)
        return OwnEncoder(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ELU(0.5)), **options)

    def halved(images: Tensor) -> Tensor:
        return images.float() / 2

    changed = OwnEncoder(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ELU(0.25)))
    changed_weights = make(1)
    same = make()
    assert make().identity == same.identity is not None
    identities = {
        each.identity
        for each in (same, changed, changed_weights, make(preprocess=halved), make(identity="v1"))
    }
    assert len(identities) == 5
    assert None not in identities
    names = {make(identity=text).name for text in ("v1", "v2")}
    assert len(names) == 2, "runs and detectors know encoders by their names"


def test_functions_of_one_name_and_file_are_told_apart_by_their_code() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))

    def halves(kind: str) -> Any:
        return (lambda x: x.float() / 2) if kind == "all" else (lambda x: x[:, ::2].float() / 2)

    identities = {OwnEncoder(network, preprocess=halves(kind)).identity for kind in ("all", "some")}
    assert len(identities) == 2
    assert None not in identities
    by_factor = [lambda x, factor=factor: x * factor for factor in (1, 2)]
    names = [OwnEncoder(each).name for each in (halves("all"), halves("some"), *by_factor)]
    assert len(set(names)) == 4, "a resumed run knows its encoder by its name"
    assert names[0] == OwnEncoder(halves("all")).name


SOURCE = """
from torch import nn

STRENGTH = {strength}


def helped(images):
    return images.float() * STRENGTH


class Net(nn.Linear):
    def forward(self, x):
        return helped(x) {more}
"""


def test_another_line_of_source_or_another_global_is_another_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def identity(strength: float = 1.0, more: str = "", later: float | None = None) -> str | None:
        (tmp_path / "own_net.py").write_text(SOURCE.format(strength=strength, more=more))
        importlib.invalidate_caches()
        sys.modules.pop("own_net", None)
        module: Any = importlib.import_module("own_net")
        if later is not None:
            module.STRENGTH = later
        torch.manual_seed(0)
        return OwnEncoder(module.Net(2, 2), preprocess=module.helped).identity

    assert identity() == identity() is not None
    assert len({identity(), identity(2.0), identity(more="+ 1"), identity(later=3.0)}) == 4
    sys.modules.pop("own_net", None)
    typed_in: dict[str, Any] = {}
    exec("def typed(images): return images.float()", typed_in)
    assert OwnEncoder(nn.Linear(2, 2), preprocess=typed_in["typed"]).identity is None


def test_what_may_change_unseen_has_no_identity_and_is_kept_for_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path))
    hooked = nn.Linear(4, 3)
    hooked.register_forward_hook(lambda *_: None)
    strange = nn.Linear(4, 3)
    strange.helper = object()  # type: ignore[assignment]
    assert [OwnEncoder(each).identity for each in (hooked, strange, lambda x: x)] == [None] * 3
    counting = Counting(None)
    cache = EmbeddingCache(counting)
    with pytest.warns(UserWarning, match="this process alone.*identity"):
        cache.features(numbered(1, 2))
    assert cache.features(numbered(2, 1)).tolist() == expected(2, 1)
    assert counting.given == [1, 2]
    assert cache.folder is None
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="give it an identity"):
        EmbeddingCache(counting, tmp_path)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "another encoder's folder": (
        lambda folder: EmbeddingCache(Counting("other"), folder),
        r"holds features of the encoder counting counting .*got counting other.*another folder",
    ),
    "an encoder that learns": (
        lambda folder: EmbeddingCache(
            LearnerEncoder(type("Context", (), {"learner": None})()), folder
        ),
        "expected one that is fixed",
    ),
    "another number of features": (
        lambda folder: EmbeddingCache(Widened(), folder).features(numbered(9)),
        "made 4 features of a sample, and 5 before",
    ),
    "features that are not finite": (
        lambda folder: EmbeddingCache(Counting(factor=float("inf")), folder).features(numbered(9)),
        "must make finite features",
    ),
}


class Widened(Counting):
    def encode(self, images: Tensor) -> Encoding:
        found = super().encode(images)
        return Encoding(logits=found.logits, features=found.features[:, :-1])


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    EmbeddingCache(Counting(), tmp_path).features(numbered(1))
    act, message = REFUSED[case]
    assert re.search(message, complaint(lambda: act(tmp_path)))
    later = Counting()
    EmbeddingCache(later, tmp_path).features(numbered(1))
    assert not later.given, "what was there is there"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a changed feature": lambda folder: flip(folder / FEATURES, 4 * WIDTH + 3),
    "a changed key": lambda folder: flip(folder / KEYS, 3),
    "a changed checksum": lambda folder: flip(folder / KEYS, 17),
    "features cut off": lambda folder: os.truncate(folder / FEATURES, 4 * WIDTH + 2),
    "no features": lambda folder: (folder / FEATURES).unlink(),
    "keys cut off": lambda folder: os.truncate(folder / KEYS, 27),
    "keys out of step": lambda folder: (folder / KEYS).write_bytes(
        (folder / KEYS).read_bytes()[1:]
    ),
    "no keys": lambda folder: (folder / KEYS).unlink(),
    "a description that is no JSON": lambda folder: (folder / META).write_text("{"),
    "a description without its fields": lambda folder: (folder / META).write_text("{}"),
    "no description": lambda folder: (folder / META).unlink(),
}


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 0x40
    file.write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_detected_and_mended_once(damage: str, tmp_path: Path) -> None:
    warm = EmbeddingCache(Counting(), tmp_path)
    warm.features(numbered(1, 2, 3))
    DAMAGES[damage](tmp_path)
    assert warm.features(numbered(3, 2, 1)).tolist() == expected(3, 2, 1), "mapped before"
    cache = EmbeddingCache(Counting(), tmp_path)
    for number in (1, 2, 3):  # what is mended for one lies behind what was mapped for it
        assert cache.features(numbered(number)).tolist() == expected(number)
    last = Counting()
    assert EmbeddingCache(last, tmp_path).features(numbered(2, 1, 3)).tolist() == expected(2, 1, 3)
    assert not last.given


def test_a_folder_that_is_removed_meanwhile_is_made_again(tmp_path: Path) -> None:
    cache = EmbeddingCache(Counting(), tmp_path / "cache")
    cache.features(numbered(1))
    shutil.rmtree(tmp_path / "cache")
    assert cache.features(numbered(1, 2)).tolist() == expected(1, 2)
    later = Counting()
    EmbeddingCache(later, tmp_path / "cache").features(numbered(2))
    assert not later.given


def test_a_folder_that_cannot_be_written_to_is_read_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EmbeddingCache(Counting(), tmp_path).features(numbered(1))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    real = files.own_file

    def refuses(path: str, flags: int) -> int:
        if Path(path).parent == tmp_path:
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags)

    monkeypatch.setattr(files, "own_file", refuses)
    read_only_law(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def read_only_law(folder: Path) -> None:
    counting = Counting()
    cache = EmbeddingCache(counting, folder)
    with pytest.warns(UserWarning, match=r"this process alone .*Permission denied"):
        assert cache.features(numbered(1, 2)).tolist() == expected(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert cache.features(numbered(2, 3, 1)).tolist() == expected(2, 3, 1)
    assert counting.given == [2, 3]


def test_a_full_disk_loses_nothing_and_nothing_wrong_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting()
    cache = EmbeddingCache(counting, tmp_path)
    cache.features(numbered(1))
    with monkeypatch.context() as patch:
        opened = embedding_cache._opened

        class Full:
            def __init__(self, file: Any) -> None:
                self._file = file

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                self._file.close()

            def __getattr__(self, name: str) -> Any:
                return getattr(self._file, name)

            def write(self, content: bytes) -> None:
                self._file.write(content[:7])
                self._file.flush()
                raise OSError(28, "No space left on device")

        patch.setattr(
            embedding_cache,
            "_opened",
            lambda file: Full(opened(file)) if file.parent == tmp_path else opened(file),
        )
        assert cache.features(numbered(2)).tolist() == expected(2)
        with pytest.warns(UserWarning, match="No space left"):
            assert cache.features(numbered(1, 3)).tolist() == expected(1, 3)
    later = Counting()
    again = EmbeddingCache(later, tmp_path)
    assert again.features(numbered(1, 2, 3)).tolist() == expected(1, 2, 3)
    assert later.given == [2, 3]


APPENDING = """
import sys, time
from pathlib import Path
import torch
from test_embedding_cache import Counting, numbered
from driftwise.encoders import EmbeddingCache

class Slow(Counting):
    def encode(self, images):
        time.sleep(float(sys.argv[3]))
        return super().encode(images)

slow = Slow()
cache = EmbeddingCache(slow, Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in eval(sys.argv[2]):
    cache.features(numbered(number))
    print(number, flush=True)
print("encoded", *slow.given, flush=True)
"""


def started(folder: Path, numbers: str, seconds: float) -> subprocess.Popen[str]:
    paths = [str(Path(__file__).parent), *filter(None, sys.path)]
    process = subprocess.Popen(
        [sys.executable, "-c", APPENDING, str(folder), numbers, str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_that_append_at_once_encode_each_sample_once_between_them(
    tmp_path: Path,
) -> None:
    orders = ["range(1, 61)", "range(60, 0, -1)"]
    processes = [started(tmp_path, order, 0.001) for order in orders]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split("encoded")[1].split() for process in processes]
    assert all(said), "both had work, or nothing was tried"
    assert sorted(int(number) for each in said for number in each) == list(range(1, 61))
    counting = Counting()
    every = EmbeddingCache(counting, tmp_path).features(numbered(*range(1, 61)))
    assert every.tolist() == expected(*range(1, 61))
    assert not counting.given


def test_a_killed_writer_loses_nothing_that_was_complete_and_leaves_nothing_wrong(
    tmp_path: Path,
) -> None:
    process = started(tmp_path, "range(1, 251)", 0.0)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    said = [process.stdout.readline() for _ in range(20)]
    time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    said += process.communicate()[0].splitlines(keepends=True)
    complete = [int(line) for line in said if line.endswith("\n") and line.strip().isdigit()]
    counting = Counting()
    cache = EmbeddingCache(counting, tmp_path)
    assert cache.features(numbered(*range(1, 251))).tolist() == expected(*range(1, 251))
    assert len(complete) >= 20
    assert not set(complete) & set(counting.given)


@pytest.mark.parametrize("bytes_of", [(FEATURES, 4 * WIDTH), (KEYS, 20)], ids=["features", "keys"])
def test_a_write_broken_off_at_any_byte_is_overwritten(
    bytes_of: tuple[str, int], tmp_path: Path
) -> None:
    name, size = bytes_of
    EmbeddingCache(Counting(), tmp_path).features(numbered(1, 2))
    whole = {file: (tmp_path / file).read_bytes() for file in (FEATURES, KEYS)}
    for cut in range(0, size + 1, 3):
        (tmp_path / KEYS).write_bytes(whole[KEYS][: 20 + (cut if name == KEYS else 0)])
        kept = 4 * WIDTH + (cut if name == FEATURES else 4 * WIDTH)
        (tmp_path / FEATURES).write_bytes(whole[FEATURES][:kept])
        counting = Counting()
        cache = EmbeddingCache(counting, tmp_path)
        assert cache.features(numbered(1, 3)).tolist() == expected(1, 3)
        assert counting.given == [3]
        again = EmbeddingCache(Counting(), tmp_path)
        assert again.features(numbered(3, 2, 1)).tolist() == expected(3, 2, 1)
