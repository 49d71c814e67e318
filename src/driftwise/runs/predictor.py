"""A finished run as a network that predicts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from driftwise import encoders
from driftwise.analytic_learner import UNSEEN
from driftwise.array_checks import columns_of, in_column_order, refuse_odd
from driftwise.config import registry
from driftwise.config.build import frozen_of
from driftwise.config.config_files import from_mapping
from driftwise.config.learners import make_learner
from driftwise.config.schema import RunConfig
from driftwise.encoders import EmbeddingCache
from driftwise.errors import UserError, warn_caller
from driftwise.learner import Learner
from driftwise.runs.checkpoint import errors_named_after
from driftwise.runs.store import CONFIG, read_checkpoint, read_config
from driftwise.scaling import Scaling
from driftwise.streams.stream import MakesFeatures, refuse_other_encoder


class Predictor:
    """The learner of a run as its last complete task left it.

    Samples are what the run's data set held: its frozen encoder and its scaling are applied here.
    `driftwise.load` makes it.

    >>> import tempfile
    >>> import driftwise
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> config = driftwise.RunConfig(epochs=1, max_per_class=40)  # few images: a quick example
    >>> result = driftwise.run(config, folder)
    >>> predictor = driftwise.load(folder)
    >>> digits = driftwise.datasets.load("digits").images  # uint8 (samples, 8, 8, 1)
    >>> predictor.predict(digits[:5]).shape, predictor.predict_proba(digits[:5]).shape
    ((5,), (5, 10))
    """

    def __init__(
        self,
        learner: Learner,
        class_names: tuple[str, ...],
        image_shape: tuple[int, ...],
        *,
        input_shape: tuple[int, ...] | None = None,
        encoder: MakesFeatures | None = None,
        scaling: Scaling | None = None,
        feature_names: tuple[str, ...] = (),
    ) -> None:
        """`image_shape`: of a sample as it is given; () for texts.

        `input_shape`: of what the learner is given, where an encoder changes it. `feature_names`: of
        vectors, by which the columns of a data frame are matched; (): they have none.
        """
        self.class_names = class_names
        self.image_shape = image_shape
        self.input_shape = image_shape if input_shape is None else input_shape
        self.encoder = encoder
        self.scaling = scaling
        self.feature_names = feature_names
        self._learner = learner

    @property
    def network(self) -> nn.Module:
        """The network that predicts, in evaluation mode; UserError where there is none."""
        if not self._learner.networks:
            method = type(self._learner.method).__name__
            raise UserError(f"{method} predicts from class statistics and has no network")
        return self._learner.predictor.eval()

    def logits(self, images: np.ndarray | Tensor | Sequence[str]) -> Tensor:
        """Images, vectors or texts as in the run's data -> (samples, classes).

        uint8 (samples, height, width, channels), numbers (samples, features), or texts. The columns
        of a data frame are matched by name.
        """
        if len(self.image_shape) == 1 and columns_of(images) is not None:
            images = self._matched(images)
        refuse_odd(images, "images")
        samples = images if isinstance(images, Tensor) else np.asarray(images)
        self._refuse_other(samples)
        if isinstance(samples, np.ndarray) and self.image_shape:
            # torch takes no read-only and no mirrored arrays
            samples = torch.from_numpy(np.require(samples, requirements=["C", "W"]))
        if len(self.image_shape) == 1:
            samples = torch.as_tensor(samples).float()
        inputs = samples if self.encoder is None else self.encoder.features(samples)
        if self.scaling is not None:
            inputs = self.scaling(torch.as_tensor(inputs))
        logits = self._learner.logits(torch.as_tensor(inputs))
        # An analytic learner has no output yet for classes that it has not met.
        missing = len(self.class_names) - logits.shape[1]
        return pad(logits, (0, missing), value=UNSEEN) if missing > 0 else logits

    def _matched(self, frame: Any) -> np.ndarray:
        if not self.feature_names:
            raise UserError(
                "the run does not know its features by name: give their values as an array, in the "
                "order of the run's data"
            )
        return in_column_order(frame, self.feature_names, "the run's")

    def _refuse_other(self, samples: np.ndarray | Tensor) -> None:
        """ValueError for samples that are not like those of the run."""
        dtype = str(samples.dtype).removeprefix("torch.")
        shape = ", ".join(["samples", *map(str, self.image_shape)])
        if not self.image_shape:
            expected, fits = f"texts ({shape},)", np.asarray(samples).dtype.kind in "UO"
        elif len(self.image_shape) == 1:
            expected, fits = (
                f"vectors of numbers ({shape})",
                dtype.startswith(("float", "int", "uint")),
            )
        else:
            expected, fits = f"uint8 images of shape ({shape})", dtype == "uint8"
        if not fits or samples.ndim == 0 or tuple(samples.shape[1:]) != self.image_shape:
            raise ValueError(f"expected {expected}; got {dtype} {tuple(samples.shape)}")

    def predict_proba(self, images: np.ndarray | Tensor | Sequence[str]) -> np.ndarray:
        """Probabilities, (samples, classes)."""
        return self.logits(images).softmax(dim=1).numpy()

    def predict(self, images: np.ndarray | Tensor | Sequence[str]) -> np.ndarray:
        """Class numbers, (samples,); `class_names[number]` is the name."""
        return self.logits(images).argmax(dim=1).numpy()


def load(
    folder: str | os.PathLike[str],
    *,
    trust_imports: bool = False,
    network: nn.Module | None = None,
    frozen_encoder: Any = None,
) -> Predictor:
    """The predictor of a run folder, whether the run is finished or only has a checkpoint.

    A run may have been made with a method or network named by an import path. A folder that came
    from somebody else could name any code, so it is imported only with `trust_imports`. A run that
    was given a network as an object needs one of the same architecture again, and one that was
    given a frozen encoder needs that.

    >>> import tempfile
    >>> import driftwise
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> config = driftwise.RunConfig(epochs=1, max_per_class=40)  # few images: a quick example
    >>> result = driftwise.run(config, folder)
    >>> driftwise.load(folder).class_names[:2]
    ('0', '1')
    """
    saved = read_config(folder)
    saved.pop("keeper", None)  # what a live learner has beside its parts does not predict
    given_by = str(Path(folder) / CONFIG)
    config = RunConfig(**from_mapping(RunConfig, saved, source=given_by))  # type: ignore[arg-type]
    objects = {"backbone": network, "frozen_encoder": frozen_encoder}
    given = [kind for kind, each in objects.items() if each is not None]
    refuse_own_code(config, folder, given=given, trust_imports=trust_imports)
    state: dict[str, Any] | None = read_checkpoint(folder, warn_caller)
    if state is None:
        raise UserError(f"{Path(folder)} has no checkpoint yet: its first task is not complete")
    # A run made on another kind of machine must still predict on this one.
    config = dataclasses.replace(config, device="auto", memory_format="contiguous")
    with errors_named_after(folder):
        image_shape = tuple(state["image_shape"])
        class_names = tuple(state["class_names"])
        # Vectors are the only samples with one axis; a live learner may also have float images.
        dtype = torch.float32 if len(image_shape) == 1 else torch.uint8
        learner = make_learner(config, image_shape, len(class_names), dtype=dtype, network=network)
        try:
            learner.load_state_dict(state["parts"]["learner"])
            if state.get("published") is not None:  # a live learner predicts with an average
                learner.predictor.load_state_dict(state["published"])
        except RuntimeError as error:
            if network is None:
                raise
            raise UserError(
                f"the network given does not fit the weights in {Path(folder)}: expected the one "
                f"that the run was made with, a {config.backbone}"
            ) from error
        of_stream = state["parts"].get("stream", {})
        encoder = (
            frozen_of(config)
            if frozen_encoder is None
            else EmbeddingCache(encoders.load(frozen_encoder))
        )
        if encoder is not None and "encoder" in of_stream:
            refuse_other_encoder(of_stream["encoder"], encoder)
        scaling = None
        if (kept := of_stream.get("scaling")) is not None:
            scaling = Scaling(kept["kind"], limit=kept["limit"])
            scaling.load_state_dict(kept)
    return Predictor(
        learner,
        class_names,
        tuple(state.get("raw_shape", image_shape)),
        input_shape=image_shape,
        encoder=encoder,
        scaling=scaling,
        feature_names=tuple(
            state.get("feature_names") or state.get("intake", {}).get("columns") or ()
        ),
    )


def refuse_own_code(
    config: RunConfig,
    place: str | os.PathLike[str],
    *,
    given: Collection[str] = (),
    trust_imports: bool = False,
) -> None:
    """UserError where the config names no run's parts, or code that nobody has said to trust.

    `given`: the parts that are objects of the user's own.
    """
    for kind in ("method", "backbone"):
        name = getattr(config, kind)
        if name is None and kind == "backbone" and registry.is_analytic(config.method):
            continue
        if name is None:
            raise UserError(f"{Path(place)} is no run's: its config names no {kind}")
    for kind, name in registry.own_code(config).items():
        predicts = kind in ("method", "backbone", "frozen_encoder")
        if predicts and not trust_imports and kind not in given:
            raise UserError(
                f"the run in {Path(place)} names code of its own ({kind} {name}); if you trust "
                f"it, load with trust_imports=True"
            )
