"""Checks of a network of your own, before anything is trained."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from driftwise import rng
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.models.layers import take_single_samples
from driftwise.runs.checkpoint import flatten


def taken_over(network: object, name: str) -> nn.Module:
    """A copy that can be trained, copied and saved; UserError for a network that cannot be."""
    if not isinstance(network, nn.Module):
        raise UserError(f"{name} must be a torch module; got {type(network).__name__}")
    for module in network.modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError(f"{name} is compiled by torch.jit; give the module it was made from")
        if hasattr(module, "_orig_mod"):
            raise UserError(
                f"{name} is compiled by torch.compile; give the module it was made from, and set "
                "compile=True"
            )
        if any(
            isinstance(h, WeightNorm | SpectralNorm) for h in module._forward_pre_hooks.values()
        ):
            raise UserError(
                f"{name} has a norm of torch.nn.utils on its weights, which cannot be copied; use "
                "the norm of that name in torch.nn.utils.parametrizations"
            )
    for key, weight in network.named_parameters():
        if is_lazy(weight):
            raise UserError(
                f"{name} does not know the shape of {key} yet; pass it a batch of images first"
            )
        if weight.requires_grad and weight.dtype != torch.float32:
            raise UserError(
                f"{name} has weights of {weight.dtype} ({key}); expected torch.float32: call "
                ".float() on it"
            )
    if not any(weight.requires_grad for weight in network.parameters()):
        raise UserError(f"{name} has no weights that can be trained; unfreeze some")
    try:
        taken = copy.deepcopy(network)
        flatten(taken.state_dict())
    except Exception as error:  # anybody's code runs here, and may raise anything
        raise UserError(
            f"{name} cannot be copied and saved, as it must: {first_line(error)}"
        ) from error
    take_single_samples(taken)
    return taken


def check_head(network: nn.Module, images: Tensor, num_classes: int) -> None:
    """Refuse a network that does not give each image a logit per class, in either mode.

    `num_classes` 0: nobody knows how many, and the network did not say.
    """
    samples, *shape = images.shape
    probe = copy.deepcopy(network)
    for training in (False, True):
        when = " in training" if training else ""
        try:
            with torch.no_grad(), rng.as_global(rng.fork(0, "probe")):
                said = probe.train(training)(images)
        except Exception as error:  # anybody's code runs here, and may raise anything
            raise UserError(
                f"the network cannot take images of shape {tuple(shape)} "
                f"(channels, height, width){when}: {first_line(error)}"
            ) from error
        if not isinstance(said, Tensor):
            raise UserError(
                f"the network must return a tensor of logits, ({samples}, {num_classes or 'classes'}) "
                f"for {samples} images; it returned a {type(said).__name__}{when}: wrap it "
                "in a module that picks out the logits"
            )
        if said.shape != (samples, num_classes):
            raise UserError(
                f"the network's head must give {num_classes or 'a sample of'} logits, one per class "
                f"of the stream; for {samples} images{when} it gave the shape {tuple(said.shape)}"
            )


def refuse_without_features(
    learner: Learner, image_shape: tuple[int, ...], dtype: torch.dtype = torch.uint8
) -> None:
    """Refuse a network of which it cannot be told what its features are, before it is trained."""
    learner.encode(torch.zeros(2, *image_shape, dtype=dtype))


def first_line(error: BaseException) -> str:
    """What went wrong, without the rest of a long story."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]
