"""The image tower of a CLIP model, as a fixed encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driftwise import rng
from driftwise.encoders import hub_files
from driftwise.encoders.base import EncoderContext, import_library
from driftwise.encoders.pretrained import PretrainedEncoder
from driftwise.errors import UserError
from driftwise.models.head import with_features
from driftwise.models.imagenet_resnet import digest_of

INSTALL = "pip install 'driftwise[open-clip]'"


class OpenClipEncoder(PretrainedEncoder):
    """Embeddings of images as the model makes them, not normalised; the whole image is resized."""

    def __init__(
        self,
        context: EncoderContext | None = None,
        *,
        model: str,
        pretrained: bool = True,
        weights: str | Path | None = None,
    ) -> None:
        """`model`: NAME/TAG, as open_clip.list_pretrained() names them; `weights`: a file instead."""
        library = import_library("open_clip", f"open-clip:{model}", INSTALL)
        name, _, tag = model.partition("/")
        if name not in library.list_models():
            raise UserError(f"open_clip has no model {name!r}; open_clip.list_models() names them")
        made: dict[str, Any] = {"pretrained": None if weights is None else str(weights)}
        if weights is None and pretrained:
            made = _weights_of(library, name, tag)
        with rng.as_global(rng.fork(0, "encoder", name)):  # weights that no file gives
            tower = library.create_model(name, **made).visual
        expects = tower.preprocess_cfg
        size = tower.image_size
        super().__init__(
            context,
            with_features(tower, ""),
            name=f"open-clip:{model} {digest_of(tower)}",
            size=size if isinstance(size, int) else int(size[0]),
            mean=expects["mean"],
            std=expects["std"],
            interpolation=expects["interpolation"],
        )


def _weights_of(library: Any, name: str, tag: str) -> dict[str, Any]:
    """The hub's file, if it is here or can be had; nobody waits for a network that is not there."""
    known = library.pretrained.get_pretrained_cfg(name, tag) if tag else {}
    repository = str(known.get("hf_hub") or "").strip("/")
    if not repository:
        tags = library.pretrained.list_pretrained_tags_by_model(name)
        raise UserError(
            f"the encoder open-clip:{name} needs a tag of its weights, open-clip:{name}/TAG with one"
            f" of {', '.join(tags)}; got {tag!r}"
        )
    try:
        file = hub_files.fetched(repository, "open_clip_model.safetensors")
    except hub_files.Absent as absence:
        raise UserError(
            f"the encoder open-clip:{name}/{tag} has no weights: {repository} could not be had from"
            f" the hub ({absence}); fetch it where there is a network, or give weights=FILE"
        ) from absence
    return {"pretrained": str(file), "force_quick_gelu": bool(known.get("quick_gelu"))}
