"""Data sets: known ones by name, one's own from a folder, a file, arrays or torch.

- `load("cifar-10")`: a known data set, found, or downloaded, and decoded once
- `from_folder("photos", size=64)`: images in folders (class/*.jpg, domain/class, split/class)
- `from_arrays(images, labels)`: arrays or tensors of images, or of vectors such as embeddings
- `from_table("readings.csv")`: feature vectors of a .csv, .parquet, .npz or .npy file, a data frame or
  a Hugging Face data set, columns by name
- `from_texts(texts, labels)`: texts, for a frozen encoder of texts
- `from_torch(dataset, test=...)`: any torch data set of (image or vector, label)
- `load_own("photos.npz")`: a folder, a file or a saved Hugging Face data set of either kind

All of them return a `driftwise.types.Dataset`: uint8 images (samples, height, width, channels) or
float32 vectors (samples, features), int64 labels (samples,), class names, and, where there are any, a
test part and domains.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from driftwise.datasets.arrays import from_arrays, from_torch, from_torch_dataset
    from driftwise.datasets.library import fetch, find, load, status
    from driftwise.datasets.own import from_folder, load_own
    from driftwise.datasets.readers.tabular import from_table, from_texts
    from driftwise.datasets.validate import group_domains

_HOMES = {
    "fetch": "library",
    "find": "library",
    "from_arrays": "arrays",
    "from_folder": "own",
    "from_table": "readers.tabular",
    "from_texts": "readers.tabular",
    "from_torch": "arrays",
    "from_torch_dataset": "arrays",
    "group_domains": "validate",
    "load": "library",
    "load_own": "own",
    "status": "library",
}

__all__ = [
    "fetch",
    "find",
    "from_arrays",
    "from_folder",
    "from_table",
    "from_texts",
    "from_torch",
    "from_torch_dataset",
    "group_domains",
    "load",
    "load_own",
    "status",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the catalogue must stay quick to import."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
