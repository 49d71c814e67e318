"""Whether a reader ever fails in a way of its own: valid small files, spoilt, thousands of times.

    python benchmarks/fuzz.py [--seconds 120] [--seed 0] [--only NAME,...] [--case NUMBER]

Every reader takes turns. What cannot be read must be reported in one line: any exception but the
library's own is a fault, and so is an error of several lines. A fault names its case, which
`--only READER --case NUMBER` repeats. Exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import functools
import gzip
import itertools
import json
import lzma
import pickle
import random
import resource
import shutil
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import data_tools
from same_state import same

import driftwise
from driftwise.config.config_files import (
    from_mapping,
    read_config_file,
    split_parts,
    unfold_data,
)
from driftwise.config.presets import options_type, resolve
from driftwise.config.schema import PARTS, RunConfig
from driftwise.datasets import from_table
from driftwise.datasets.archive import extract
from driftwise.datasets.readers import cifar, clear, decode, folders, idx, npz, tiny_imagenet
from driftwise.errors import RunFailure, UserError
from driftwise.report.parse import DamagedError
from driftwise.report.read import find_runs, read_run
from driftwise.report.sweeps import read_sweep
from driftwise.runs import checkpoint as state_file
from driftwise.runs import store
from driftwise.runs.store import RunFolder, read_checkpoint, read_config, read_result
from driftwise.sweeps.grid import Grid, read_grid_file
from driftwise.sweeps.plan import Plan, make_plan, write_plan
from driftwise.sweeps.scale import scale_named

OWN = (UserError, RunFailure, DamagedError)
MEMORY = 6 * 2**30
"""bytes of address space: a header that claims more than there is must be found out"""

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 10**30, 1e308, 0.5, "", "x", "nan", [], {}, [[]], [None], {"": None}),
    *({"a": [1]}, "\x00", "é", [1, "2"], -0.0, "2026-01-01", [[0, 1], [2]], {"detector": {}}),
)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How its files are made, and how they are read."""

    make: Callable[[Path], object]
    """writes into a new folder"""
    read: Callable[[Path], object]
    """reads the folder"""
    victims: str = "*"
    """which of its files are spoilt"""
    spoil: Callable[[bytes, random.Random], bytes] = lambda content, draw: spoilt(content, draw)


@dataclass
class Tally:
    """What came of a reader's cases."""

    read: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)


# --- spoiling -------------------------------------------------------------------------------------


def spoilt(content: bytes, draw: random.Random) -> bytes:
    """A few changes of the kinds that disks, networks and editors make."""
    text = _as_tree(content) if draw.random() < 0.7 else None
    if text is not None:
        return _with_odd_value(*text, draw)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        content = _changed(content, draw)
    return content


def _changed(content: bytes, draw: random.Random) -> bytes:
    # Half of the changes near the beginning, where headers are.
    reach = len(content) if draw.random() < 0.5 else min(len(content), 512)
    at = draw.randrange(reach + 1)
    end = min(len(content), at + draw.choice((1, 2, 4, 16, 300)))
    match draw.randrange(7):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + content[end:]
        case 2:
            return content[:end] + content[at:]
        case 3:
            return content[:at] + bytes(end - at) + content[end:]
        case 4:
            number = draw.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, draw.getrandbits(32)))
            four = number.to_bytes(4, "little")
            return content[:at] + draw.choice((four, four[::-1])) + content[at + 4 :]
        case 5:
            return content[:at] + draw.randbytes(end - at) + content[end:]
    if at == len(content):
        return content + b"\n"
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def forged(content: bytes, draw: random.Random) -> bytes:
    """A state with one value changed, and a digest that fits: what damage never makes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "it"
        file.write_bytes(content)
        saved = state_file.read(file, format=store.FORMAT)
        state_file.write(
            file, {**saved, "state": _forged(saved["state"], draw)}, format=store.FORMAT
        )
        return file.read_bytes()


def _forged(tree: Any, draw: random.Random) -> Any:
    """By a walk from the top, so that every part of a state is met as often as its size allows."""
    if isinstance(tree, dict | list | tuple) and len(tree) and draw.random() < 0.85:
        pairs = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree))
        place = draw.randrange(len(pairs))
        key, value = pairs[place]
        gone = draw.random() < 0.1
        pairs[place : place + 1] = [] if gone else [(key, _forged(value, draw))]
        return dict(pairs) if isinstance(tree, dict) else type(tree)(each for _, each in pairs)
    if isinstance(tree, torch.Tensor) and draw.random() < 0.6:
        changes = (tree[None], tree.reshape(-1)[:-1], tree.to(torch.float64), tree.new_zeros(0))
        return draw.choice(changes)
    finite = [each for each in ODD if not isinstance(each, dict) or "" not in each]
    return draw.choice([*finite, torch.full((4,), -5), ()])


def _as_tree(content: bytes) -> tuple[Any, Callable[[Any], str]] | None:
    """A JSON or YAML mapping with what writes it."""
    for load, dump in ((json.loads, json.dumps), (yaml.safe_load, yaml.safe_dump)):
        try:
            tree = load(content.decode())
        except (UnicodeDecodeError, ValueError, yaml.YAMLError):
            continue
        if isinstance(tree, dict):
            return tree, dump
    return None


def _with_odd_value(tree: Any, dump: Callable[[Any], str], draw: random.Random) -> bytes:
    """One value, wherever it stands, becomes another, goes missing or is renamed."""
    places: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        places += [(node, key) for key in keys]
        stack += [node[key] for key in keys if isinstance(node[key], dict | list)]
    if not places:
        return b""
    node, key = draw.choice(places)
    if draw.random() < 0.2:
        del node[key]
    elif isinstance(node, dict) and draw.random() < 0.1:
        node[f"{key}_"] = node.pop(key)
    else:
        node[key] = draw.choice(ODD)
    return dump(tree).encode()


# --- the readers ----------------------------------------------------------------------------------


def _binary_cifar10(folder: Path) -> None:
    place = folder / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    rows = data_tools.pixels(10, 3073)
    rows[:, 0] = range(10)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (place / f"{name}.bin").write_bytes(rows.tobytes())
    (place / "batches.meta.txt").write_text("\n".join(f"kind {number}" for number in range(10)))


def _images(ending: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        for number, mode in enumerate(("RGB", "L") if ending == "jpg" else ("RGB", "L", "P")):
            image = Image.fromarray(data_tools.pixels(12, 9, 3)).convert(mode)
            image.save(folder / f"{number}.{ending}")

    return make


def _decoded(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        decode.decode_all([file], np.empty((1, 8, 8, 3), dtype=np.uint8), workers=1)


def _archive(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "in").mkdir()
        (folder / "in" / "a.txt").write_bytes(b"some text " * 50)
        (folder / "in" / "b.bin").write_bytes(data_tools.pixels(900).tobytes())
        if kind == "zip":
            with zipfile.ZipFile(folder / "it.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                for file in (folder / "in").iterdir():
                    archive.write(file, f"in/{file.name}")
        else:
            with tarfile.open(folder / "plain", "w") as tar:
                tar.add(folder / "in", "in")
            pack: dict[str, Callable[[bytes], bytes]]
            pack = {"tar": bytes, "tar.gz": gzip.compress, "tar.bz2": bz2.compress}
            packed = pack.get(kind, lzma.compress)((folder / "plain").read_bytes())
            (folder / f"it.{kind}").write_bytes(packed)
            (folder / "plain").unlink()
        shutil.rmtree(folder / "in")

    return make


def _extracted(folder: Path) -> None:
    archive = next(folder.glob("it.*"))
    before = set(folder.iterdir())
    try:
        extract(archive, folder / "out", max_bytes=2**20)
    except OWN:
        assert set(folder.iterdir()) == before, "something was left behind"
        raise
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)


_CONFIG: dict[str, Any] = {
    "benchmark": "digits-cd",
    "method": "der++",
    "adaptation": "fr",
    "seed": 3,
    "tasks": [[0, 1], [2, 3], []],
    "lr": 0.05,
    "scheduler": "steps",
    "lr_milestones": [2, 3],
    "epochs": 4,
    "sequential": True,
    "label_budget": None,
    "detector": {"name": "ks", "level": 0.01},
}


def _read_settings(folder: Path) -> None:
    """What `driftwise run --config` does before anything is loaded."""
    file = next(folder.iterdir())
    settings, options = split_parts(unfold_data(read_config_file(file), source="it"), PARTS)
    values: dict[str, Any] = from_mapping(RunConfig, settings, source="it")
    options = {**values.pop("options", {}), **options}
    resolved = resolve(RunConfig(**values))
    for part, given in options.items():
        options[part] = from_mapping(options_type(resolved, part), given, source=part)
    resolve(RunConfig(**values, options=options))


def _sealed_run(folder: Path) -> None:
    driftwise.run(driftwise.RunConfig(epochs=1, tasks=((0, 1), (2, 3))), folder / "run")


def _run(folder: Path) -> None:
    _sealed_run(folder)
    (folder / "run" / "checksums.json").unlink()  # or all of it would end there


def _stopped_run(folder: Path) -> None:
    _run(folder)
    (folder / "run" / "result.json").unlink()


def _plan() -> Plan:
    return make_plan("it", Grid(axes={"seed": range(2), "method": ["er", "ser"]}))


def _write_plan_again(folder: Path) -> None:
    """What starting the same sweep again does to the plan that is there."""
    file = next(folder.rglob("it.json"))
    content = file.read_bytes()
    try:
        write_plan(_plan(), folder)
    finally:
        file.write_bytes(content)


def _read_no_other_checkpoint() -> Callable[[Path], object]:
    kept: list[Any] = []

    def read(folder: Path) -> None:
        state = read_checkpoint(folder / "run")
        if not kept:
            kept.append(state)  # the first time, nothing is spoilt
        assert same(state, kept[0]), "damage has passed for a state"

    return read


def _go_on_with_no_other_records() -> Callable[[Path], object]:
    kept: list[Any] = []

    def read(folder: Path) -> None:
        copy = folder / "copy"  # going on changes what is there
        shutil.copytree(folder / "run", copy)
        try:
            with RunFolder.open(copy, read_config(copy), resume=True) as run:
                run.load_checkpoint()
                records = run.records()
        finally:
            shutil.rmtree(copy)
        if not kept:
            kept.extend(records)  # the first time, nothing is spoilt
        assert records == kept[: len(records)], "damage has passed for a record"

    return read


def _at(name: str, read: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: read(folder / name)


def _table(folder: Path) -> None:
    """The same few vectors as .csv, .npy and .npz."""
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 3
    lines = [
        ",".join(map(repr, [*vector, label]))
        for vector, label in zip(x.tolist(), y.tolist(), strict=True)
    ]
    (folder / "it.csv").write_text("\n".join(["a,b,c,label", *lines]) + "\n")
    np.save(folder / "x.npy", x)
    np.save(folder / "x_labels.npy", y)
    np.savez(folder / "it.npz", features=x, labels=y, year=2000 + y)


READERS: dict[str, Reader] = {
    "idx": Reader(
        make=lambda folder: data_tools.write_fashion_mnist(folder, zipped=False),
        read=idx.read_idx,
    ),
    "idx-gz": Reader(make=data_tools.write_fashion_mnist, read=idx.read_idx),
    "cifar-pickle": Reader(make=data_tools.write_cifar10, read=cifar.read_cifar10),
    "cifar-100": Reader(make=data_tools.write_cifar100, read=cifar.read_cifar100),
    "cifar-binary": Reader(make=_binary_cifar10, read=cifar.read_cifar10),
    "npz": Reader(
        make=lambda folder: data_tools.write_yearbook(folder / "it.npz"),
        read=_at("it.npz", npz.read_npz),
    ),
    "table-csv": Reader(make=_table, read=_at("it.csv", from_table), victims="it.csv"),
    "table-npy": Reader(make=_table, read=_at("x.npy", from_table), victims="x*.npy"),
    "table-npz": Reader(make=_table, read=_at("it.npz", from_table), victims="it.npz"),
    "png": Reader(make=_images("png"), read=_decoded),
    "jpg": Reader(make=_images("jpg"), read=_decoded),
    "folders": Reader(
        make=data_tools.write_pacs, read=lambda folder: folders.read_folder(folder, size=8)
    ),
    "tiny-imagenet": Reader(
        make=data_tools.write_tiny_imagenet,
        read=_at("tiny-imagenet-200", tiny_imagenet.read_tiny_imagenet),
    ),
    "clear": Reader(
        make=data_tools.write_clear10, read=lambda folder: clear.read_clear10(folder, size=8)
    ),
    **{
        kind: Reader(make=_archive(kind), read=_extracted)
        for kind in ("zip", "tar", "tar.gz", "tar.bz2", "tar.xz")
    },
    "config-yaml": Reader(
        make=lambda folder: (folder / "it.yaml").write_text(yaml.safe_dump(_CONFIG)),
        read=_read_settings,
    ),
    "config-json": Reader(
        make=lambda folder: (folder / "it.json").write_text(json.dumps(_CONFIG)),
        read=_read_settings,
    ),
    "checkpoint": Reader(
        make=_run, read=_read_no_other_checkpoint(), victims="checkpoint*.safetensors"
    ),
    "records": Reader(
        make=_stopped_run, read=_go_on_with_no_other_records(), victims="records.jsonl"
    ),
    "checksums": Reader(
        make=_sealed_run,
        read=_at("run", lambda run: (read_config(run), read_result(run))),
        victims="checksums.json",
    ),
    "result": Reader(make=_run, read=_at("run", read_run), victims="result.json"),
    "samples": Reader(
        make=_run, read=_at("run", lambda run: find_runs([run])), victims="samples.safetensors"
    ),
    "plan": Reader(
        make=lambda folder: write_plan(_plan(), folder),
        read=lambda folder: read_sweep(next(folder.rglob("it.json"))),
    ),
    "plan-again": Reader(make=lambda folder: write_plan(_plan(), folder), read=_write_plan_again),
}


def _stopped_keeper(folder: Path) -> None:
    draw = np.random.default_rng(0)
    live_learner = driftwise.LiveLearner("mlp", folder=folder / "run", lr=0.1, **_SOON)
    for _ in range(20):
        rows = draw.normal(size=(10, 4)) + (np.arange(10) % 2)[:, None]
        live_learner.observe(rows, [*(np.arange(8) % 2), None, None])
    live_learner.close()


_SOON: dict[str, Any] = {"check_rows": 10, "reference_size": 15, "buffer_size": 30}


def _go_on_with_keeper(folder: Path) -> None:
    with copied(folder / "run") as copy:
        live_learner = driftwise.LiveLearner.load(copy)
        try:
            rows = np.random.default_rng(1).normal(size=(10, 4))
            live_learner.predict(rows)
            live_learner.observe(rows, np.arange(10) % 2)
        finally:
            live_learner._release()


def _go_on_with_run(folder: Path) -> None:
    with copied(folder / "run") as copy:
        driftwise.load(copy).predict(np.zeros((2, 8, 8, 1), np.uint8))
        (copy / "result.json").unlink(missing_ok=True)
        driftwise.run(RunConfig(**read_config(copy)), copy, resume=True)


@contextlib.contextmanager
def copied(run: Path) -> Iterator[Path]:
    """A copy to go on with, which changes it; the checkpoint before must not do instead."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(run, copy)
        (copy / store.PREVIOUS).unlink(missing_ok=True)
        yield copy


READERS |= {
    "forged-run": Reader(make=_run, read=_go_on_with_run, victims=store.CHECKPOINT, spoil=forged),
    "forged-keeper": Reader(
        make=_stopped_keeper, read=_go_on_with_keeper, victims=store.CHECKPOINT, spoil=forged
    ),
}


# --- arrays ---------------------------------------------------------------------------------------

_VALID = b"valid"


def _seed(_: bytes, draw: random.Random) -> bytes:
    """What arrays are drawn from."""
    return draw.randbytes(8)


def _odd_array(draw: random.Random) -> Any:
    """Samples for somebody who takes vectors of four numbers: nearly right, or not at all."""
    shape = draw.choice(((10, 4), (10, 4), (10, 4), (0, 4), (10, 0), (10,), (), (10, 2, 2), (1, 4)))
    values = np.random.default_rng(draw.getrandbits(32)).normal(size=shape)
    if values.size and draw.random() < 0.5:
        odd = (np.nan, np.inf, -np.inf, 1e300, -1e-320, 1e9, 255, -1)
        values.reshape(-1)[draw.randrange(values.size)] = draw.choice(odd)
    kinds = ("f8", "f4", "f2", "u1", "i1", "i8", "u8", "c8", "?", "O", "U3", "S2", "M8[s]", ">f4")
    with np.errstate(all="ignore"):
        array = values.astype(draw.choice(kinds))
    ways: tuple[Callable[[], Any], ...] = (
        *(lambda: array,) * 6,
        lambda: array[::-1],
        lambda: np.asfortranarray(array),
        lambda: np.broadcast_to(array[:1], array.shape),
        lambda: np.ma.masked_array(array, mask=values > 1),
        lambda: array.tolist(),
        lambda: [*array.tolist(), [1.0]],
        lambda: [None] * 10,
        lambda: np.ascontiguousarray(values).data,
        lambda: array.tobytes(),
        lambda: {"x": array},
        lambda: iter(array),
        lambda: np.zeros(10, dtype=[("a", "f4"), ("b", "i4")]),
        lambda: torch.from_numpy(values),
        lambda: torch.from_numpy(values).to(draw.choice(_TORCH)),
        lambda: torch.from_numpy(values).requires_grad_(),
        lambda: torch.from_numpy(values).to_sparse(),
        lambda: torch.from_numpy(values).to("meta"),
        lambda: torch.quantize_per_tensor(torch.from_numpy(values).float(), 0.1, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([torch.zeros(2, 4), torch.zeros(3, 4)]),
        lambda: torch.from_numpy(values).conj(),
        lambda: draw.choice(ODD),
    )
    try:
        return draw.choice(ways)()
    except (TypeError, ValueError, IndexError, RuntimeError):  # numpy or torch has no such array
        return array


_TORCH = (
    *(torch.float16, torch.bfloat16, torch.complex64, torch.bool, torch.int32, torch.uint16),
    torch.float8_e4m3fn,
)


def _odd_labels(draw: random.Random) -> Any:
    labels: list[Any] = [draw.randrange(2) for _ in range(10)]
    if draw.random() < 0.6:
        odd: tuple[Any, ...] = (
            None,
            -1,
            2,
            10**5,
            10**12,
            2**63,
            2**64 - 1,
            0.5,
            1.0,
            float("nan"),
            "1",
            True,
            [],
        )
        labels[draw.randrange(10)] = draw.choice(odd)
    ways: tuple[Callable[[], Any], ...] = (
        *(lambda: labels,) * 4,
        lambda: labels[:9],
        lambda: np.array(labels),
        lambda: np.array(labels, dtype=draw.choice(("u8", "i1", "f4", "?", "U2", "O", "M8[s]"))),
        lambda: np.array([labels]),
        lambda: np.ma.masked_array(labels, mask=[True, *[False] * 9]),
        lambda: torch.tensor(labels),
        lambda: torch.tensor(labels).to("meta"),
        lambda: torch.tensor(labels, dtype=draw.choice(_TORCH)),
        lambda: dict(enumerate(labels)),
        lambda: tuple(labels),
        lambda: draw.choice(ODD),
    )
    try:
        return draw.choice(ways)()
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return labels


def _with_arrays(use: Callable[[Any, Any, random.Random], object]) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        content = (folder / "it").read_bytes()
        draw = random.Random(content)
        x: Any = np.random.default_rng(0).normal(size=(10, 4))
        y: Any = np.arange(10) % 2
        odd = draw.choice(("x", "y", "both")) if content != _VALID else ""
        use(
            _odd_array(draw) if odd in ("x", "both") else x,
            _odd_labels(draw) if odd in ("y", "both") else y,
            draw,
        )

    return read


@functools.cache
def _begun_keeper() -> bytes:
    live_learner = driftwise.LiveLearner("mlp", lr=0.1, **_SOON)
    draw = np.random.default_rng(0)
    for _ in range(6):
        rows = draw.normal(size=(10, 4)) + (np.arange(10) % 2)[:, None]
        live_learner.observe(rows, [*(np.arange(8) % 2), None, None])
    return pickle.dumps(live_learner)


def _observe(x: Any, y: Any, draw: random.Random) -> None:
    """Whatever is given, nothing that was learned may break."""
    live_learner = driftwise.LiveLearner("mlp", **_SOON)
    if draw.random() < 0.8:
        live_learner = pickle.loads(_begun_keeper())
    use = draw.choice(
        (
            live_learner.observe,
            live_learner.observe,
            live_learner.fit_reference,
            live_learner.answer,
        )
    )
    try:
        use(x, y)
        live_learner.predict_proba(x) if use == live_learner.observe else None
    finally:
        assert live_learner._failure is None, "the live learner has broken off"


@functools.cache
def _fitted() -> driftwise.DriftDetector:
    draw = np.random.default_rng(0)
    return driftwise.DriftDetector(detector="ks", encoder=_itself).fit(
        (draw.normal(size=(60, 4)), np.arange(60) % 2)
    )


def _itself(samples: torch.Tensor) -> torch.Tensor:
    return samples.float()


def _check(x: Any, y: Any, draw: random.Random) -> None:
    given: Any = draw.choice(((x, y), (x, y), (x, y), x, [x, y], {"x": x, "y": y}))
    if draw.random() < 0.7:
        _fitted().check(given)
    else:
        driftwise.DriftDetector(detector="ks", encoder=_itself).fit(given)


def _expand_grid(folder: Path) -> None:
    """What `driftwise sweep` does before anything is run."""
    asked = read_grid_file(next(folder.iterdir()))
    make_plan(
        asked.name, asked.grid, scale=None if asked.scale is None else scale_named(asked.scale)
    )


_GRID: dict[str, Any] = {
    "name": "it",
    "base": {"epochs": 2, "tasks": [[0, 1], [2, 3]], "detector": {"name": "ks", "level": 0.01}},
    "grid": {"method": ["er", "ser"], "seed": [0, 1], "adaptation": ["amr", "fr"]},
    "without": [{"method": "ser", "adaptation": ["fr"]}],
}


READERS |= {
    "observe": Reader(
        make=lambda folder: (folder / "it").write_bytes(_VALID),
        read=_with_arrays(_observe),
        spoil=_seed,
    ),
    "drift-detector": Reader(
        make=lambda folder: (folder / "it").write_bytes(_VALID),
        read=_with_arrays(_check),
        spoil=_seed,
    ),
    "grid": Reader(
        make=lambda folder: (folder / "it.yaml").write_text(yaml.safe_dump(_GRID)),
        read=_expand_grid,
    ),
}


def try_case(name: str, reader: Reader, folder: Path, number: int, seed: int) -> str | None:
    """Spoil one file, read, mend the file; "read", None (refused), or what is at fault."""
    draw = random.Random(f"{seed} {name} {number}")
    files = sorted(file for file in folder.rglob(reader.victims) if file.is_file())
    # Both checkpoints, or the one before would do.
    victims = files if name == "checkpoint" else [draw.choice(files)]
    contents = {file: file.read_bytes() for file in victims}
    for file, content in contents.items():
        while (changed := reader.spoil(content, draw)) == content:
            pass  # some changes change nothing
        file.write_bytes(changed)
    try:
        reader.read(folder)
    except OWN as error:
        return f"several lines: {error}" if "\n" in str(error) else None
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(place.filename).name}:{place.lineno}"
        return f"{type(error).__name__}: {error} ({at}, {victims[0].name})"
    finally:
        for file, content in contents.items():
            file.write_bytes(content)
    return "read"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(READERS), metavar="NAME,...")
    parser.add_argument("--case", type=int, metavar="NUMBER", help="this one case only")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    tallies = {name: Tally() for name in arguments.only.split(",")}
    with tempfile.TemporaryDirectory() as top:
        for name in tallies:
            (Path(top) / name).mkdir()
            READERS[name].make(Path(top) / name)
            READERS[name].read(Path(top) / name)  # as it is, it can be read
        deadline = time.monotonic() + arguments.seconds
        cases = itertools.count() if arguments.case is None else [arguments.case]
        for number in cases:
            for name, tally in tallies.items():
                came = try_case(name, READERS[name], Path(top) / name, number, arguments.seed)
                tally.read += came == "read"
                tally.refused += came is None
                if came not in ("read", None):
                    tally.faults.append(f"--only {name} --case {number}: {came}")
            if time.monotonic() > deadline:
                break
    print(f"{'reader':<15}{'cases':>8}{'read':>8}{'refused':>9}{'faults':>8}")
    for name, tally in tallies.items():
        total = tally.read + tally.refused + len(tally.faults)
        print(f"{name:<15}{total:>8}{tally.read:>8}{tally.refused:>9}{len(tally.faults):>8}")
    for tally in tallies.values():
        for fault in tally.faults[:5]:
            print(fault)
    return 1 if any(tally.faults for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
