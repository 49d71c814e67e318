"""Any image model of timm as a fixed encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from driftwise import rng
from driftwise.encoders import hub_files
from driftwise.encoders.base import EncoderContext, import_library
from driftwise.encoders.pretrained import PretrainedEncoder, check_size
from driftwise.errors import UserError
from driftwise.models.head import with_features
from driftwise.models.imagenet_resnet import digest_of

INSTALL = "pip install 'driftwise[timm]'"


class TimmEncoder(PretrainedEncoder):
    """A model with its own mean, deviation, size and interpolation; features are what its head reads.

    The whole image is resized; nothing is cropped.
    """

    def __init__(
        self,
        context: EncoderContext | None = None,
        *,
        model: str,
        pretrained: bool = True,
        weights: str | Path | None = None,
        size: int | None = None,
    ) -> None:
        """`weights`: a safetensors file, instead of the hub's; `size`: of the input, in pixels."""
        if size is not None:
            check_size(size)
        timm = import_library("timm", f"timm:{model}", INSTALL)
        if not timm.is_model(model):
            raise UserError(f"timm has no model {model!r}; timm.list_models() names them")
        made: dict[str, Any] = {"pretrained": pretrained or weights is not None}
        if made["pretrained"]:
            file = weights or _weights_of(timm, model)
            made["pretrained_cfg_overlay"] = {"file": str(file)}
        with rng.as_global(rng.fork(0, "encoder", model)):  # weights that no file gives
            network = _create(timm, model, made, size)
        expects = timm.data.resolve_model_data_config(network)
        digest = digest_of(network)  # before it is split
        super().__init__(
            context,
            with_features(_Split(network), "body"),
            name=f"timm:{model} {digest}",
            size=size or int(expects["input_size"][-1]),
            mean=expects["mean"],
            std=expects["std"],
            interpolation=expects["interpolation"]
            if expects["interpolation"] in ("bilinear", "bicubic")
            else "bicubic",
        )


class _Split(nn.Module):
    """A model of timm in two parts, so that what its head reads is known."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        head = network.get_classifier()
        self.head = head if isinstance(head, nn.Linear) else nn.Identity()
        network.reset_classifier(0)
        self.body = network

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or features where there is no head of one layer."""
        logits: Tensor = self.head(self.body(x))
        return logits


def _create(timm: Any, model: str, made: dict[str, Any], size: int | None) -> Any:
    if size is not None:
        try:  # transformers are built for a size
            return timm.create_model(model, img_size=size, **made)
        except TypeError:
            pass
    return timm.create_model(model, **made)


def _weights_of(timm: Any, model: str) -> Path:
    """The hub's file, if it is here or can be had; nobody waits for a network that is not there."""
    known = timm.get_pretrained_cfg(model)
    repository = getattr(known, "hf_hub_id", None)
    if not repository:
        raise UserError(f"timm has no weights for {model}; give weights=FILE or pretrained=False")
    try:
        return hub_files.fetched(repository, "model.safetensors")
    except hub_files.Absent as absence:
        raise UserError(
            f"the encoder timm:{model} has no weights: {repository} could not be had from the hub"
            f" ({absence}); fetch it where there is a network, or give weights=FILE (safetensors)"
        ) from absence
