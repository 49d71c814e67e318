"""A frozen encoder in front of a live learner: it learns from vectors, and people label samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from driftwise.array_checks import refuse_odd
from driftwise.config.custom import is_import_path
from driftwise.config.learners import first_line
from driftwise.encoders import load
from driftwise.encoders.base import check_samples
from driftwise.encoders.digests import identity_of
from driftwise.encoders.names import LIBRARIES
from driftwise.errors import UserError
from driftwise.live.labels import Request


class FrozenEncoder:
    """Turns samples into vectors, and keeps those samples that somebody may be asked to label."""

    def __init__(self, encoder: Any) -> None:
        """`encoder`: whatever `encoders.load` takes."""
        self.given = encoder
        self._encoder = load(encoder)
        self._kept: dict[int, Any] = {}
        """samples as they came, by id"""
        self.shape: tuple[int, ...] = ()
        """of the last sample; empty: a text"""

    @property
    def description(self) -> dict[str, Any]:
        """What a folder keeps of it: a name by which it is found again, or else its own."""
        has_name = isinstance(self.given, str)
        name = self.given if has_name else self._encoder.name
        return {"name": name, "is_given": not has_name, "identity": identity_of(self._encoder)}

    def vectors(self, x: Any, width: int | None) -> Tensor:
        """Samples as they came -> (samples, d); `width`: d, where it is known already."""
        samples = _as_samples(x)
        check_samples(self._encoder, samples)
        if not len(samples) and width is not None:
            return torch.zeros(0, width)
        try:
            return self._encoder.encode(samples).features.float()  # type: ignore[arg-type]
        except UserError:
            raise
        except Exception as error:  # the code of others may raise anything
            raise UserError(
                f"the encoder {self._encoder.name} cannot take these samples: {first_line(error)}"
            ) from error

    def keep(self, ids: Tensor, x: Any) -> None:
        """Keep the samples of a batch."""
        samples = _as_samples(x)
        self.shape = tuple(samples.shape[1:])
        for number, identifier in enumerate(ids.tolist()):
            sample = samples[number]
            self._kept[identifier] = sample.clone() if isinstance(sample, Tensor) else sample

    def keep_only(self, ids: Iterable[int]) -> None:
        """Keep no other samples than these."""
        self._kept = {each: self._kept[each] for each in ids if each in self._kept}

    def shown(self, request: Request) -> Request:
        """A request with the samples as they came in the place of their vectors."""
        kept = [self._kept[identifier] for identifier in request.ids.tolist()]
        if kept and isinstance(kept[0], Tensor):
            same = len({each.shape for each in kept}) == 1
            arrays = [each.numpy() for each in kept]
            images = np.stack(arrays) if same else _objects(arrays)
        else:
            images = _objects(kept)
        return replace(request, images=images)

    def state_dict(self) -> dict[str, Any]:
        """The samples that are kept."""
        kept = {"ids": list(self._kept), "samples": list(self._kept.values())}
        return {"shape": list(self.shape), **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        ids, samples = state["ids"], state["samples"]
        if len(ids) != len(samples) or not all(type(each) is int for each in ids):
            raise ValueError("expected samples with their ids")
        if not all(isinstance(each, Tensor | str) for each in samples):
            raise ValueError("expected samples as tensors or texts")
        self._kept = dict(zip(ids, samples, strict=True))
        self.shape = tuple(state["shape"])


def names_code(encoder: str) -> bool:
    """Whether the name of an encoder is an import path."""
    return is_import_path(encoder) and encoder.partition(":")[0] not in LIBRARIES


def _as_samples(x: Any) -> Tensor | np.ndarray:
    """A tensor of images or vectors, or an array of texts."""
    complaint = "expected an array of images, of vectors or of texts"
    refuse_odd(x, complaint)
    if isinstance(x, Tensor):
        return x.detach().cpu()
    try:
        array = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise UserError(f"{complaint}; got {type(x).__name__}") from error
    if array.dtype.kind in "UO":
        if array.ndim != 1 or not all(isinstance(each, str) for each in array.tolist()):
            raise UserError(f"{complaint}; got objects that are no texts")
        return array.astype(object)
    if array.dtype.kind not in "uif" or not array.ndim:
        raise UserError(f"{complaint}; got {array.dtype}")
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def _objects(values: list[Any]) -> np.ndarray:
    """An array of these objects, (values,)."""
    made = np.empty(len(values), dtype=object)
    for number, value in enumerate(values):
        made[number] = value
    return made
