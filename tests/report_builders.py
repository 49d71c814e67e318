"""Run folders with known numbers, as the report finds them on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from driftwise.report.cells import Setting, group
from driftwise.report.read import find_runs


def small_result(**changes: Any) -> dict[str, Any]:
    """Two tasks of two classes; classes 0 and 1 drift at task 2; numbers to check by hand."""
    result: dict[str, Any] = {
        "benchmark": "toy-cd",
        "method": "er",
        "adaptation": "amr",
        "detector": "ks",
        "buffer_size": 20,
        "num_drifts": 1,
        "seed": 0,
        "faa": 80.0,
        "forgetting": 10.0,
        "accuracy_matrix": [[90.0, None], [70.0, 90.0]],
        "accuracy_matrix_til": [[96.0, None], [90.0, 98.0]],
        "per_class_accuracy": [
            {"0": 80.0, "1": 100.0},
            {"0": 60.0, "1": 80.0, "2": 100.0, "3": 80.0},
        ],
        "macro_f1": [90.0, 79.0],
        "faa_drifted": 70.0,
        "faa_stable": 90.0,
        "forgetting_since_event": 0.0,
        "backward_transfer": -20.0,
        "labels": {"stream": 200, "monitoring": 40, "adaptation": 10},
        "flops": {"train": 3_000_000_000, "detect": 1_000_000_000, "adapt": 0, "evaluate": 9e9},
        "seconds": {"train": 2.0, "detect": 0.5, "adapt": 0.25, "evaluate": 100.0},
        "drift_events": [{"task": 2, "classes": [0, 1], "transform": "permutation", "severity": 5}],
        "verdicts": [
            {
                "task": 2,
                "class": 0,
                "drifted": True,
                "score": 0.9,
                "p_value": 0.0001,
                "threshold": 0.025,
                "num_current": 20,
                "harm": 40.0,
                "harm_error": 7.5,
                "harm_unlabelled": 31.0,
                "share": 0.5,
                "share_error": 0.04,
                "moved_rows": [3, 5, 8],
                "spared": False,
            },
            {"task": 2, "class": 1, "drifted": False, "score": 0.2, "p_value": 0.081},
        ],
        "detection": {"tpr": 0.5, "fpr": None, "delay": 0.0, "num_drifts": 2},
        "calibration": {
            "ece": 0.1,
            "bins": [
                {"confidence": None, "accuracy": None, "count": 0},
                {"confidence": 0.55, "accuracy": 0.5, "count": 10},
                {"confidence": 0.95, "accuracy": 0.8, "count": 30},
            ],
        },
        "confusion_matrix": [[6, 4, 0, 0], [2, 8, 0, 0], [0, 0, 10, 0], [0, 0, 2, 8]],
        "class_names": ["ant", "bee", "cat", "dog"],
        "tasks": [[0, 1], [2, 3]],
        "gradient_steps": 120,
        "notes": [{"task": 2, "text": "class 0 realigned with 10 samples"}],
        "versions": {"driftwise": "0.1.0", "python": "3.12"},
        "config": {"method": "er", "adaptation": "amr", "seed": 0, "threads": 1, "severity": 5},
    }
    config = {**result["config"], **changes.pop("config", {})}
    result |= changes
    names = {key: result[key] for key in ("method", "adaptation", "detector", "seed")}
    return result | {"config": {**config, **names}}


def write_run(folder: Path, result: dict[str, Any], *, samples: bool = False) -> Path:
    """A run folder as a finished run leaves it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(result["config"]))
    (folder / "result.json").write_text(json.dumps(result))
    if samples:
        write_samples(folder / "samples.safetensors")
    return folder


def write_samples(path: Path, *, num: int = 4, side: int = 6) -> None:
    """Images of classes 0 and 1: a bright square before, its negative after."""
    before = np.zeros((num, side, side, 1), dtype=np.uint8)
    before[:, 1:3, 1:3] = 255
    save_file(
        {
            "before": before,
            "after": 255 - before,
            "labels": np.arange(num) % 2,
            "tasks": np.full(num, 2),
        },
        path,
    )


def write_small_comparison(folder: Path, **changes: Any) -> Path:
    """Three adaptations with two seeds each: FAA vanilla 50 and 54, fr 91 and 93, amr 88 and 92."""
    ends = {"vanilla": (50.0, 54.0), "fr": (91.0, 93.0), "amr": (88.0, 92.0)}
    asked = {"vanilla": 0, "fr": 400, "amr": 100}
    for adaptation, values in ends.items():
        for seed, faa in enumerate(values):
            result = small_result(
                adaptation=adaptation,
                seed=seed,
                faa=faa,
                labels={"stream": 200, "monitoring": 40, "adaptation": asked[adaptation]},
                **changes,
            )
            write_run(folder / f"{adaptation}-{seed}", result, samples=adaptation == "amr")
    return folder


def settings_in(folder: Path) -> Sequence[Setting]:
    """The runs of a folder in their settings."""
    return group(find_runs([folder]).runs).settings


class PageReader(HTMLParser):
    """Tags with their attributes, the text that a reader sees, and the content of each script."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.inside = "", ""
        self.scripts: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts[-1] += data
        elif self.inside != "style":
            self.text += data

    def all(self, tag: str, attribute: str) -> list[str]:
        """An attribute of every tag of a kind that has it."""
        return [a[attribute] or "" for name, a in self.tags if name == tag and attribute in a]
