"""The training settings that the paper publishes, by benchmark, method and buffer size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SIZES = (500, 5000)
"""The buffer sizes that settings were published for."""


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One line of the paper's table of settings."""

    benchmark: str
    method: str
    buffer_size: int
    training: Mapping[str, Any]
    options: Mapping[str, Any]
    """of the method"""


_EPOCHS = {"fmnist-cd": 1, "cifar10-cd": 50, "cifar100-cd": 50, "tinyimagenet-cd": 100}
_BATCH = {"fmnist-cd": 10, "cifar10-cd": 32, "cifar100-cd": 32, "tinyimagenet-cd": 32}

# (at 500 rows, at 5,000 rows)
_RATES = {
    "fmnist-cd": {
        "er": (0.1, 0.1),
        "er-ace": (0.03, 0.03),
        "der++": (0.1, 0.1),
        "ser": (0.1, 0.1),
        "cls-er": (0.1, 0.1),
    },
    "cifar10-cd": {
        "er": (0.1, 0.1),
        "er-ace": (0.03, 0.03),
        "der++": (0.03, 0.03),
        "ser": (0.03, 0.03),
        "cls-er": (0.1, 0.1),
    },
    "cifar100-cd": {
        "er": (0.1, 0.1),
        "er-ace": (0.03, 0.03),
        "der++": (0.03, 0.03),
        "ser": (0.03, 0.03),
        "cls-er": (0.1, 0.1),
    },
    "tinyimagenet-cd": {
        "er": (0.03, 0.1),
        "er-ace": (0.03, 0.03),
        "der++": (0.03, 0.03),
        "ser": (0.03, 0.03),
        "cls-er": (0.05, 0.05),
    },
}

# (alpha, beta)
_DISTANCES = {
    "fmnist-cd": {"der++": ((0.2, 0.5), (0.2, 0.5)), "ser": ((0.2, 0.2), (0.2, 0.2))},
    "cifar10-cd": {"der++": ((0.2, 0.5), (0.1, 1.0)), "ser": ((0.2, 0.2), (0.2, 0.2))},
    "cifar100-cd": {"der++": ((0.1, 0.5), (0.1, 0.5)), "ser": ((0.5, 0.5), (0.5, 0.5))},
    "tinyimagenet-cd": {"der++": ((0.2, 0.5), (0.1, 0.5)), "ser": ((0.2, 1.0), (0.2, 1.0))},
}

_AVERAGING = (
    "reg_weight",
    *("stable_update_freq", "stable_alpha"),
    *("plastic_update_freq", "plastic_alpha"),
)
_AVERAGES = {
    "fmnist-cd": ((1.0, 0.9, 0.99, 1.0, 0.99), (1.0, 0.8, 0.99, 1.0, 0.99)),
    "cifar10-cd": ((0.15, 0.1, 0.999, 0.9, 0.999), (0.15, 0.8, 0.999, 1.0, 0.999)),
    "cifar100-cd": ((0.15, 0.1, 0.999, 0.9, 0.999), (0.15, 0.8, 0.999, 1.0, 0.999)),
    "tinyimagenet-cd": ((0.1, 0.05, 0.999, 0.08, 0.999), (0.1, 0.07, 0.999, 0.08, 0.999)),
}


def paper_rows() -> Iterator[PaperRow]:
    """Every line of the table."""
    for benchmark, methods in _RATES.items():
        for method, rates in methods.items():
            for which, size in enumerate(SIZES):
                yield PaperRow(
                    benchmark=benchmark,
                    method=method,
                    buffer_size=size,
                    training={
                        "backbone": "resnet18",
                        "lr": rates[which],
                        "epochs": _EPOCHS[benchmark],
                        "batch_size": _BATCH[benchmark],
                        "minibatch_size": _BATCH[benchmark],
                        **_decay(benchmark),
                    },
                    options=_options(benchmark, method, which),
                )


def _decay(benchmark: str) -> dict[str, Any]:
    """Only CIFAR-100's rate drops within a task."""
    return {"scheduler": "steps", "lr_milestones": (35, 45)} if benchmark == "cifar100-cd" else {}


def _options(benchmark: str, method: str, which: int) -> dict[str, float]:
    if method in _DISTANCES[benchmark]:
        return dict(zip(("alpha", "beta"), _DISTANCES[benchmark][method][which], strict=True))
    if method == "cls-er":
        return dict(zip(_AVERAGING, _AVERAGES[benchmark][which], strict=True))
    return {}
