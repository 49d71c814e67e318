r"""What kind of change is it? Windows of CIFAR-100 in which one thing has changed, and the verdicts.

    DRIFTWISE_DATA=... python benchmarks/kinds.py --source reported --labels given --windows 50 \
        --out results/kinds

Thresholds were chosen on the half `development` of CIFAR-100; numbers to report come from the half
`reported`, which shares no class with it, and from `pacs` and `gas-sensor`. 100 samples of each class on
either side; images as features of a frozen EfficientNet-Lite0 (`kinds_data.py`). With `--auroc`, how
well scores find single samples of new classes, ours beside max softmax, energy, Mahalanobis and kNN,
those of pytorch-ood where it is installed. Results are one JSON file per source and kind of labels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kinds_data import SOURCES, source_named
from kinds_scores import auroc_of_scores, auroc_of_windows, predictions
from torch import Tensor

from driftwise.stats.kinds import Findings, judge
from driftwise.streams.changes import CHANGES, Window, Windows, kind_of

LABELS = ("given", "anonymous", "predicted", "none")
"""labels with the names of annotators, labels without, a classifier's predictions, nothing"""


def judged(window: Window, labels: str, unit_length: bool) -> Findings:
    """The verdict on a window."""
    reference = tensors(window.reference)
    options: dict[str, Any] = {
        "archived": {c: list(map(torch.from_numpy, each)) for c, each in window.archived.items()},
        "mix": dict.fromkeys(reference, 1.0),  # by design
        "unit_length": unit_length,
    }
    known: Tensor | None = torch.from_numpy(window.labels)
    if labels == "given":
        options["annotators"] = torch.from_numpy(window.annotators)
    elif labels == "predicted":
        before, known = predictions(window)
        options |= {"labels_are": "predicted", "reference_predictions": before}
    elif labels == "none":
        known = None
    return judge(reference, torch.from_numpy(window.current), known, **options)


def tensors(by_class: Mapping[int, np.ndarray]) -> dict[int, Tensor]:
    """Features by class."""
    return {c: torch.from_numpy(features) for c, features in by_class.items()}


def interval(right: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a fraction."""
    z, share = 1.96, right / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z * (share * (1 - share) / total + z**2 / (4 * total**2)) ** 0.5 / (1 + z**2 / total)
    return centre - half, centre + half


def main() -> None:
    """Judge windows and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", choices=SOURCES, default="development")
    parser.add_argument("--labels", choices=LABELS, default="given")
    parser.add_argument("--windows", type=int, default=10, help="of each change")
    parser.add_argument(
        "--quiet-times", type=int, default=3, help="as many of no change and of another mix"
    )
    parser.add_argument("--size", type=int, default=100, help="samples of a class on either side")
    parser.add_argument("--fraction", type=float, help="of a new mode, in place of 0.4 to 0.6")
    parser.add_argument("--changes", help="separated by commas; all that the source has")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    parser.add_argument("--auroc", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="folder for features")
    parser.add_argument("--out", type=Path, help="folder for the results")
    arguments = parser.parse_args()
    source = source_named(arguments.source, arguments.cache)
    if arguments.changes is None:
        no_near = () if source.siblings else ("new class near",)
        arguments.changes = ",".join(each for each in CHANGES if each not in no_near)
    fraction = arguments.fraction
    windows = source.windows(
        size=arguments.size,
        seed=arguments.seed,
        new_fraction=(0.4, 0.6) if fraction is None else (fraction, fraction),
    )
    outcome: dict[str, Any] = {
        "source": arguments.source,
        "labels": arguments.labels,
        "size": arguments.size,
        "seed": arguments.seed,
    }
    if arguments.auroc:
        outcome["auroc"] = auroc_of_scores(windows, arguments.windows, arguments.processes)
        outcome["auroc_of_windows"] = auroc_of_windows(
            windows, arguments.windows, arguments.processes
        )
    else:
        outcome |= confusion(windows, source.unit_length, arguments)
    print(json.dumps(outcome, indent=1))
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        name = "auroc" if arguments.auroc else arguments.labels
        if arguments.fraction is not None:
            name += f"-{arguments.fraction:g}"
        path = arguments.out / f"{arguments.source}-{name}.json"
        path.write_text(json.dumps(outcome, indent=1) + "\n")


def one_window(
    windows: Windows, unit_length: bool, labels: str, job: tuple[str, int]
) -> tuple[str, list[tuple[str, str]], float]:
    """The kind found in a window, the true and found kinds of its classes, processor seconds."""
    torch.set_num_threads(1)
    window = windows.make(*job)
    begun = time.process_time()
    findings = judged(window, labels, unit_length)
    took = time.process_time() - begun
    by_class = findings.by_class
    kinds = [(window.kinds.get(c, "none"), str(by_class[c].kind)) for c in window.reference]
    return findings.kind, kinds, took


def confusion(windows: Windows, unit_length: bool, arguments: argparse.Namespace) -> dict[str, Any]:
    """What was found, by what had changed: in windows, and in the classes of all windows."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    by_class: dict[str, Counter[str]] = defaultdict(Counter)
    jobs: list[Any] = []
    for change in arguments.changes.split(","):
        # Without labels a careless annotator changes nothing.
        if change == "careless annotator" and arguments.labels in ("predicted", "none"):
            continue
        often = arguments.quiet_times if change in ("none", "mix") else 1
        jobs += [(number / often, change, number) for number in range(often * arguments.windows)]
    seconds = []
    # In turns, so that a run that is stopped has some windows of every change.
    jobs = [(change, number) for _, change, number in sorted(jobs)]
    stop = time.monotonic() + 60 * arguments.minutes
    work = partial(one_window, windows, unit_length, arguments.labels)
    with get_context("fork").Pool(arguments.processes) as pool:
        for (change, _), (kind, kinds, took) in zip(jobs, pool.imap(work, jobs), strict=False):
            found[change][kind] += 1
            seconds.append(took)
            if kind_of(change) != "corrupted":
                for truth, verdict in kinds:
                    by_class[truth][verdict] += 1
            print(change, dict(found[change]), file=sys.stderr, flush=True)
            if time.monotonic() > stop:
                pool.terminate()
                break
    counted: dict[str, Any] = {
        "windows": {change: dict(kinds) for change, kinds in found.items()},
        "classes": {kind: dict(kinds) for kind, kinds in by_class.items()},
        "processor_seconds_median": float(np.median(seconds)),
    }
    return counted | summary(counted["windows"])


def summary(windows: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What the confusion matrix comes to."""
    found = {change: Counter(kinds) for change, kinds in windows.items()}
    rates = defaultdict(list)
    for change, kinds in found.items():
        if change != "several":
            rates[kind_of(change)].append(kinds[kind_of(change)] / kinds.total())
    outcome: dict[str, Any] = {
        "right_by_kind": {kind: float(np.mean(each)) for kind, each in rates.items()},
    }
    outcome["macro_average"] = float(np.mean(list(outcome["right_by_kind"].values())))
    wrong = {
        "none": ("false_alarms", [kind for kind in found.get("none", ()) if kind != "none"]),
        "mix": ("mix_called_drift", ["drift", "new mode", "recurring"]),
    }
    for change, (name, kinds_meant) in wrong.items():
        if change in found:
            count = sum(found[change][kind] for kind in kinds_meant)
            total = found[change].total()
            outcome[name] = {"windows": total, "count": count, "interval": interval(count, total)}
    return outcome


if __name__ == "__main__":
    main()
