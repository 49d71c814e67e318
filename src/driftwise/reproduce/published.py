"""The numbers that the paper publishes, under this project's names."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from driftwise.errors import unknown_name

SOURCE = (
    '"Holistic Continual Learning under Concept Drift with Adaptive Memory Realignment", TMLR 2026'
)
NUM_RUNS = 3
"""behind each published mean and deviation"""

_BENCHMARKS = {
    "S-FMNIST-CD": "fmnist-cd",
    "S-CIFAR10-CD": "cifar10-cd",
    "S-CIFAR100-CD": "cifar100-cd",
    "S-Tiny-ImageNet-CD": "tinyimagenet-cd",
    "S-CLEAR10-CD": "clear10-cd",
}
_BACKBONES = {"ResNet-18": "resnet18", "ResNet-152": "resnet152", "ViT-S": "vit-s"}
_TABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "table1": ("accuracy_tables.csv", ("fmnist-cd",)),
    "table2": ("accuracy_tables.csv", ("cifar10-cd",)),
    "table3": ("accuracy_tables.csv", ("cifar100-cd",)),
    "table4": ("accuracy_tables.csv", ("tinyimagenet-cd",)),
    "clear10": ("clear10_table.csv", ("clear10-cd",)),
    "backbones": ("backbone_table.csv", ("cifar10-cd", "cifar100-cd")),
}
"""name -> file and benchmarks"""

NAMES = tuple(_TABLES)
MAIN = ("table1", "table2", "table3", "table4")
"""the tables that the claims of the text rest on"""


@dataclass(frozen=True, kw_only=True)
class PublishedCell:
    """One published result, in percent."""

    benchmark: str
    buffer_size: int
    method: str
    backbone: str
    adaptation: str
    num_drifts: int
    faa: float
    faa_std: float | None
    """over three runs; None: not published"""
    forgetting: float


def table(name: str) -> tuple[PublishedCell, ...]:
    """All cells of a published table, in its order.

    >>> len(table("table1")), len(table("clear10")), len(table("backbones"))
    (70, 12, 16)
    """
    if name not in _TABLES:
        raise unknown_name("published table", name, NAMES)
    file, benchmarks = _TABLES[name]
    return tuple(cell for cell in _read(file) if cell.benchmark in benchmarks)


def find(
    *,
    benchmark: str,
    buffer_size: int,
    method: str,
    adaptation: str,
    num_drifts: int,
    backbone: str = "resnet18",
) -> PublishedCell | None:
    """The published result of a configuration; None if there is none.

    >>> find(benchmark="fmnist-cd", buffer_size=500, method="er", adaptation="amr",
    ...      num_drifts=1).faa
    86.3
    """
    place = (benchmark, buffer_size, method, backbone, adaptation, num_drifts)
    return _by_place().get(place)


@cache
def _by_place() -> Mapping[tuple[str | int, ...], PublishedCell]:
    return {
        (c.benchmark, c.buffer_size, c.method, c.backbone, c.adaptation, c.num_drifts): c
        for name in NAMES
        for c in table(name)
    }


@cache
def _read(file: str) -> tuple[PublishedCell, ...]:
    text = files("driftwise.reproduce").joinpath("published_numbers", file).read_text("utf-8")
    return tuple(_cell(line) for line in csv.DictReader(text.splitlines()))


def _cell(line: Mapping[str, str]) -> PublishedCell:
    deviation = line.get("faa_std")
    return PublishedCell(
        benchmark=_BENCHMARKS[line["benchmark"]],
        buffer_size=int(line["buffer_size"]),
        method=line["method"].lower(),
        backbone=_BACKBONES[line.get("backbone", "ResNet-18")],
        adaptation=line["adaptation"].lower(),
        num_drifts=int(line["num_drifts"]),
        faa=float(line["faa"]),
        faa_std=None if deviation is None else float(deviation),
        forgetting=float(line["forgetting"]),
    )
