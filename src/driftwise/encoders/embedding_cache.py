"""Features on disk: a sample that any process has encoded is not encoded again.

A cache is a folder for one encoder:

    encoder.json    whose features these are, and how many there are of a sample
    features.f32    the features, raw, one sample after the other
    keys.bin        of each sample a digest of its content and a checksum, 20 bytes

Features are written before their keys: whatever has a key is complete, and a write that was broken
off is overwritten by the next one. Nothing is moved or cut off, since other processes map the file.
Checksums are compared whenever features are read; a sample whose features are damaged is encoded
again.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.encoders.base import Encoder, RawSamples, are_numbers, check_samples
from driftwise.encoders.digests import identity_of
from driftwise.encoders.encoding_cache import KEY_BYTES, PORTION, encode_in_portions, keys_of
from driftwise.encoders.identity import IdentityEncoder
from driftwise.errors import RunFailure, UserError, warn_caller
from driftwise.files import (
    JSON,
    alone,
    open_regular,
    own_file,
    quietly,
    read_object,
    reason,
    write_json,
)
from driftwise.paths import cache_home
from driftwise.types import Dataset

FORMAT = 1
META, FEATURES, KEYS = "encoder.json", "features.f32", "keys.bin"
CHUNK = 8 * PORTION
"""samples that are looked up, encoded and written at a time"""

_RECORD = np.dtype([("key", f"S{KEY_BYTES}"), ("checksum", "<u4")])


class EmbeddingCache:
    """The features that a fixed encoder makes of samples, each computed once and kept on disk.

    Processes may share a folder. One at a time encodes what is missing, so that each sample is
    encoded once; what is there is read without waiting.

    >>> import tempfile
    >>> import driftwise as dw
    >>> cache = EmbeddingCache(dw.encoders.load("random"), tempfile.mkdtemp())
    >>> cache.features(dw.datasets.load("digits").images[:3]).shape
    torch.Size([3, 128])
    """

    def __init__(self, encoder: Encoder, folder: str | os.PathLike[str] | None = None) -> None:
        """Without a folder: one for this encoder, below the user's folder for caches."""
        if not encoder.fixed:
            raise UserError(
                f"the encoder {encoder.name} learns, so that its features of a sample expire;"
                " expected one that is fixed"
            )
        self.encoder = encoder
        identity = identity_of(encoder)
        self._has_temporary = False
        self._stores: list[_Store] = []
        self.folder: Path | None = None
        """where features are kept; None: for this process alone"""
        if identity is not None:
            home = Path(folder) if folder is not None else cache_home() / "embeddings" / identity
            self.folder = home.absolute()
            self._stores.append(_Store(self.folder, encoder.name, identity))
        elif folder is not None:
            raise UserError(
                f"features of the encoder {encoder.name} cannot be kept in {folder}: nothing says"
                " when it changes; give it an identity, as in encoders.load(..., identity='mine 1')"
            )

    @property
    def networks(self) -> Sequence[nn.Module]:
        """Those of the encoder."""
        return self.encoder.networks

    def features(self, samples: RawSamples) -> Tensor:
        """float32 (samples, d), in the order of the samples.

        Args:
            samples: uint8 images (samples, height, width, channels), float vectors (samples,
                features) or texts (samples,), as the encoder takes them.
        """
        check_samples(self.encoder, samples)
        if isinstance(self.encoder, IdentityEncoder):
            return self._encode(torch.as_tensor(samples))
        if not len(samples):
            return self._encode(samples)
        chunks = range(0, len(samples), CHUNK)
        first = self._chunk(samples[:CHUNK])
        made = torch.empty(len(samples), first.shape[1])
        for start in chunks:
            part = first if not start else self._chunk(samples[start : start + CHUNK])
            made[start : start + CHUNK] = torch.from_numpy(part)
        return made

    def encoded(self, data: Dataset) -> Dataset:
        """The data set with features in the place of its images or texts."""
        features = self.features(data.images).numpy()
        return replace(data, images=features, feature_names=())

    def _chunk(self, samples: RawSamples) -> np.ndarray:
        """float32 (samples, d) of a few samples."""
        if isinstance(samples, np.ndarray) and are_numbers(samples):
            samples = torch.from_numpy(samples.copy())  # it may be mapped and read-only
        keys = np.array(keys_of(samples), dtype=_RECORD["key"])
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        rows: dict[int, np.ndarray] = {}
        self._look_up(distinct, rows)
        if len(rows) < len(distinct):
            with contextlib.ExitStack() as stack:
                store = self._locked(stack)
                self._look_up(distinct, rows)  # another process may have been quicker
                missing = sorted(set(range(len(distinct))) - rows.keys(), key=lambda i: first[i])
                if missing:
                    fresh = self._encode(_at(samples, first[missing])).numpy()
                    rows |= dict(zip(missing, fresh, strict=True))
                    if store is not None:
                        self._append(store, distinct[missing], fresh)
        return np.stack([rows[place] for place in inverse])

    def _look_up(self, keys: np.ndarray, rows: dict[int, np.ndarray]) -> None:
        """Add the features of the keys that have none yet, by their places."""
        for store in self._stores:
            for renew in (False, True):
                missing = np.array([place for place in range(len(keys)) if place not in rows], int)
                if not len(missing):
                    return
                if renew:
                    store.refresh()
                found, features = store.find(keys[missing])
                rows |= dict(zip(missing[found].tolist(), features, strict=True))

    def _encode(self, samples: RawSamples) -> Tensor:
        """float32 (samples, d): finite, each of its sample alone."""
        if isinstance(samples, Tensor):
            blank = samples.new_zeros(1, *samples.shape[1:])
            given = samples if len(samples) else blank
            features = encode_in_portions(self.encoder, given).features
        else:
            texts: Any = samples if len(samples) else [""]
            features = self.encoder.encode(texts).features
        features = features[: len(samples)].detach().cpu().float()
        if features.ndim != 2 or not features.isfinite().all():
            what = (
                f"{tuple(features.shape)}" if features.ndim != 2 else "values that are not finite"
            )
            raise UserError(
                f"the encoder {self.encoder.name} must make finite features (samples, d); got {what}"
            )
        return features.contiguous()

    def _locked(self, stack: contextlib.ExitStack) -> _Store | None:
        """The store to write to, with its lock; a temporary one where there is no other."""
        while True:
            if not self._stores or self._stores[-1].problem is not None:
                if self._has_temporary:  # full as well
                    return None
                self._has_temporary = True
                home = Path(tempfile.mkdtemp(prefix="driftwise-features-"))
                weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
                self._stores.append(_Store(home, self.encoder.name, "temporary"))
                self._report()
            store = self._stores[-1]
            try:
                store.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(alone(store.folder / FEATURES))
            except (OSError, RunFailure) as error:
                store.problem = reason(error) if isinstance(error, OSError) else str(error)
            else:
                return store

    def _append(self, store: _Store, keys: np.ndarray, features: np.ndarray) -> None:
        try:
            store.append(keys, features)
        except (OSError, RunFailure) as error:
            store.problem = reason(error) if isinstance(error, OSError) else str(error)

    def _report(self) -> None:
        """Why features are kept for this process alone."""
        name = self.encoder.name
        if len(self._stores) > 1:
            warn_caller(
                f"features of the encoder {name} are kept for this process alone"
                f" ({self._stores[0].problem}); let DRIFTWISE_CACHE name a folder that you may write to"
            )
        else:
            warn_caller(
                f"features of the encoder {name} are kept for this process alone, as nothing says"
                " when it changes; give it an identity, as in encoders.load(..., identity='mine 1')"
            )


_NO_FEATURES = np.empty((0, 0), np.float32)


class _Index(NamedTuple):
    """What was in the files at some time; never changed, so that threads may read it."""

    keys: np.ndarray
    """in order, of equal ones the newest last"""
    rows: np.ndarray
    checksums: np.ndarray
    records: int
    """read so far"""
    inode: int
    mapped: mmap.mmap | None = None
    features: np.ndarray = _NO_FEATURES
    """float32 (samples, d), a view of the mapped file"""


_NOTHING = _Index(
    np.empty(0, _RECORD["key"]), np.empty(0, np.int64), np.empty(0, _RECORD["checksum"]), 0, 0
)


class _Store:
    """The files of one folder."""

    def __init__(self, folder: Path, name: str, identity: str) -> None:
        self.folder = folder
        self.problem: str | None = None
        self._name, self._identity = name, identity
        self._index = _NOTHING
        self._meta()  # refused at once if it is another encoder's

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these keys have undamaged features, bool (keys,), and the features of those."""
        index = self._index
        found = np.zeros(len(keys), bool)
        if index.mapped is None:
            return found, _NO_FEATURES
        places = np.searchsorted(index.keys, keys, side="right") - 1
        rows = index.rows[places]
        # To read beyond the end of a file that somebody has cut off would end the process.
        in_file = min(len(index.features), index.mapped.size() // index.features[0].nbytes)
        hits = np.flatnonzero((places >= 0) & (index.keys[places] == keys) & (rows < in_file))
        features = np.asarray(index.features[rows[hits]])
        intact = [
            self._checksum(key, row) == checksum
            for key, row, checksum in zip(
                keys[hits], features, index.checksums[places[hits]], strict=True
            )
        ]
        found[hits[intact]] = True
        return found, features[intact]

    def refresh(self) -> None:
        """Take in what was written since."""
        try:
            with open_regular(self.folder / KEYS) as file:
                state = os.fstat(file.fileno())
                index, count = self._index, state.st_size // _RECORD.itemsize
                if index.inode != state.st_ino or count < index.records:
                    index = _NOTHING
                if count == index.records and index.mapped is not None:
                    return
                meta = self._meta()
                if meta is None or not count:
                    self._index = _NOTHING
                    return
                file.seek(index.records * _RECORD.itemsize)
                fresh = np.frombuffer(
                    file.read((count - index.records) * _RECORD.itemsize), dtype=_RECORD
                )
            self._index = self._extended(index, fresh, state.st_ino, meta["features"])
        except FileNotFoundError:
            self._index = _NOTHING
        except OSError as error:
            self.problem, self._index = reason(error), _NOTHING

    def _extended(self, index: _Index, fresh: np.ndarray, inode: int, width: int) -> _Index:
        order = np.argsort(fresh["key"], kind="stable")
        places = np.searchsorted(index.keys, fresh["key"][order], side="right")
        count = index.records + len(fresh)
        rows = np.arange(index.records, count)[order]
        with open_regular(self.folder / FEATURES) as file:
            whole = min(count, os.fstat(file.fileno()).st_size // (4 * width))
            mapped, features = None, _NO_FEATURES
            if whole:
                mapped = mmap.mmap(file.fileno(), whole * 4 * width, access=mmap.ACCESS_READ)
                features = np.frombuffer(mapped, "<f4").reshape(whole, width)
        return _Index(
            keys=np.insert(index.keys, places, fresh["key"][order]),
            rows=np.insert(index.rows, places, rows),
            checksums=np.insert(index.checksums, places, fresh["checksum"][order]),
            records=count,
            inode=inode,
            mapped=mapped,
            features=features,
        )

    def append(self, keys: np.ndarray, features: np.ndarray) -> None:
        """Write features, then their keys; whoever calls has the lock."""
        meta = self._meta()
        if meta is None:  # none, or damaged: whose features these were cannot be known
            for name in (KEYS, FEATURES):
                quietly((self.folder / name).unlink)
            content: dict[str, JSON] = {
                "format": FORMAT,
                "encoder": self._name,
                "identity": self._identity,
            }
            content["features"] = features.shape[1]
            write_json(self.folder / META, content)
        elif meta["features"] != features.shape[1]:
            raise UserError(
                f"the encoder {self._name} made {features.shape[1]} features of a sample, and"
                f" {meta['features']} before ({self.folder}); give it another identity"
            )
        records = np.empty(len(keys), _RECORD)
        records["key"] = keys
        records["checksum"] = [self._checksum(*each) for each in zip(keys, features, strict=True)]
        with _opened(self.folder / KEYS) as key_file, _opened(self.folder / FEATURES) as file:
            count = os.fstat(key_file.fileno()).st_size // _RECORD.itemsize
            file.seek(count * features[0].nbytes)
            file.write(np.ascontiguousarray(features, dtype="<f4").tobytes())
            file.flush()
            key_file.seek(count * _RECORD.itemsize)
            key_file.write(records.tobytes())

    def _checksum(self, key: bytes, features: np.ndarray) -> int:
        """Of an entry; another one for another encoder."""
        start = zlib.crc32(self._identity.encode())
        return zlib.crc32(np.ascontiguousarray(features).data, zlib.crc32(key, start))

    def _meta(self) -> dict[str, Any] | None:
        """The description, None if there is none or it is damaged."""
        file = self.folder / META
        try:
            found = read_object(file)
        except UserError:
            return None
        expected = {"format": int, "encoder": str, "identity": str, "features": int}
        if found is None or any(type(found.get(key)) is not kind for key, kind in expected.items()):
            return None
        if found["features"] < 1:
            return None
        if found["format"] != FORMAT:
            raise UserError(
                f"{self.folder} holds features in format {found['format']}; this version reads"
                f" {FORMAT}: remove the folder, or choose another one"
            )
        if found["identity"] != self._identity:
            raise UserError(
                f"{self.folder} holds features of the encoder {found['encoder']}"
                f" ({found['identity'][:12]}); got {self._name} ({self._identity[:12]}): choose"
                " another folder"
            )
        return found


def _opened(file: Path) -> BinaryIO:
    """To be written anywhere; made if there is none."""
    # "r+" alone would make none, and "a" writes at the end only.
    return open(file, "r+b", opener=lambda path, flags: own_file(path, flags | os.O_CREAT))


def _at(samples: RawSamples, places: np.ndarray) -> RawSamples:
    if isinstance(samples, Tensor):
        return samples.index_select(0, torch.from_numpy(places))
    return [samples[place] for place in places]
