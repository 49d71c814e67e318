"""A finished run as a network that predicts."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from driftwise.array_checks import refuse_odd
from driftwise.config import registry
from driftwise.config.custom import is_import_path
from driftwise.config.files import from_mapping
from driftwise.config.learners import make_learner
from driftwise.config.schema import RunConfig
from driftwise.errors import UserError, warn_caller
from driftwise.learner import Learner
from driftwise.runs.checkpoint import errors_named_after
from driftwise.runs.store import CONFIG, read_checkpoint, read_config


class Predictor:
    """The network of a run as its last complete task left it."""

    def __init__(
        self, learner: Learner, class_names: tuple[str, ...], image_shape: tuple[int, ...]
    ) -> None:
        self.class_names = class_names
        self.image_shape = image_shape
        self._learner = learner

    @property
    def network(self) -> nn.Module:
        """The network that predicts, in evaluation mode."""
        return self._learner.method.predictor(self._learner.network).eval()

    def logits(self, images: np.ndarray | Tensor) -> Tensor:
        """uint8 (samples, height, width, channels) -> (samples, classes)."""
        refuse_odd(images, "images")
        samples = images if isinstance(images, Tensor) else np.asarray(images)
        dtype = str(samples.dtype).removeprefix("torch.")
        if dtype != "uint8" or tuple(samples.shape[1:]) != self.image_shape:
            raise ValueError(
                f"expected uint8 images of shape (samples, {', '.join(map(str, self.image_shape))});"
                f" got {dtype} {tuple(samples.shape)}"
            )
        if isinstance(samples, np.ndarray):  # torch takes no read-only and no mirrored arrays
            samples = torch.from_numpy(np.require(samples, requirements=["C", "W"]))
        return self._learner.logits(samples)

    def predict_proba(self, images: np.ndarray | Tensor) -> np.ndarray:
        """Probabilities, (samples, classes)."""
        return self.logits(images).softmax(dim=1).numpy()

    def predict(self, images: np.ndarray | Tensor) -> np.ndarray:
        """Class numbers, (samples,); `class_names[number]` is the name."""
        return self.logits(images).argmax(dim=1).numpy()


def load(
    folder: str | os.PathLike[str],
    *,
    trust_imports: bool = False,
    network: nn.Module | None = None,
) -> Predictor:
    """The predictor of a run folder, whether the run is finished or only has a checkpoint.

    A run may have been made with a method or network named by an import path. A folder that came
    from somebody else could name any code, so it is imported only with `trust_imports`. A run that
    was given a network as an object needs one of the same architecture again.
    """
    saved = read_config(folder)
    saved.pop("keeper", None)  # what a live learner has beside its parts does not predict
    given_by = str(Path(folder) / CONFIG)
    config = RunConfig(**from_mapping(RunConfig, saved, source=given_by))  # type: ignore[arg-type]
    for kind in ("method", "backbone"):
        name = getattr(config, kind)
        if name is None and kind == "backbone" and registry.is_analytic(config.method):
            continue
        if name is None:
            raise UserError(f"{Path(folder)} is no run's: its config names no {kind}")
        given = kind == "backbone" and network is not None
        if is_import_path(name) and not trust_imports and not given:
            raise UserError(
                f"the run in {Path(folder)} names code of its own ({kind} {name}); if you trust "
                f"it, load with trust_imports=True"
            )
    state: dict[str, Any] | None = read_checkpoint(folder, warn_caller)
    if state is None:
        raise UserError(f"{Path(folder)} has no checkpoint yet: its first task is not complete")
    # A run made on another kind of machine must still predict on this one.
    config = dataclasses.replace(config, device="auto", memory_format="contiguous")
    with errors_named_after(folder):
        image_shape = tuple(state["image_shape"])
        class_names = tuple(state["class_names"])
        learner = make_learner(config, image_shape, len(class_names), network=network)
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
    return Predictor(learner, class_names, image_shape)
