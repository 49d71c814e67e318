"""Scores of single samples for `kinds.py`: a linear classifier, and ways to find novel samples."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from driftwise.stats.c2st import held_out_scores
from driftwise.stats.change_findings import NOVEL
from driftwise.stats.novelty import KnownClasses, novelty_in_window
from driftwise.stats.permutation import observed_split
from driftwise.stats.scores import energy, max_probability
from driftwise.streams.changes import NOBODY, Window, Windows

NEW = ("new class near", "new class far")


def unit(features: np.ndarray) -> Tensor:
    """Features of length 1."""
    return torch.nn.functional.normalize(torch.from_numpy(features).double(), dim=1)


def logits_of(window: Window) -> tuple[dict[int, Tensor], Tensor]:
    """A linear classifier's logits of the reference, by class, and of the current samples."""
    labels = np.concatenate([np.full(len(each), c) for c, each in window.train.items()])
    train = unit(np.concatenate(list(window.train.values()))).numpy()
    model = LogisticRegression(C=30.0, max_iter=300).fit(train, labels)

    def logits(features: np.ndarray) -> Tensor:
        return torch.from_numpy(model.decision_function(unit(features).numpy()))

    return {c: logits(each) for c, each in window.reference.items()}, logits(window.current)


def predictions(window: Window) -> tuple[dict[int, Tensor], Tensor]:
    """The predicted classes of the reference, by class, and of the current samples."""
    before, now = logits_of(window)
    return {c: each.argmax(dim=1) for c, each in before.items()}, now.argmax(dim=1)


def scores_of(window: Window) -> dict[str, Tensor]:
    """Larger: more novel; of each current sample."""
    reference = {c: unit(each) for c, each in window.reference.items()}
    pooled, current = torch.cat(list(reference.values())), unit(window.current)
    logits = logits_of(window)[1]
    known = KnownClasses(reference)
    scored = known.score(current)
    found = {
        "novelty in the window (ours)": novelty_in_window(reference, current),
        "conformal distance (ours)": scored.novelty,
        "max softmax": -max_probability(logits),
        "energy": energy(logits),
        "Mahalanobis": scored.distances.amin(dim=1),
        "kNN": torch.cdist(current, pooled).topk(5, dim=1, largest=False).values[:, -1],
    }
    return found | _of_pytorch_ood(window, pooled, current, logits)


def _of_pytorch_ood(
    window: Window, pooled: Tensor, current: Tensor, logits: Tensor
) -> dict[str, Tensor]:
    """The scores of pytorch-ood; none where it is not installed."""
    try:
        # torchvision's wheel expects operators that a CPU build of torch does not have.
        library: Any = getattr(torch.library, "Library")("torchvision", "FRAGMENT")  # noqa: B009
        if not hasattr(torch.ops.torchvision, "nms"):
            for name in ("nms", "qnms"):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from pytorch_ood.detector import (
            KNN,
            RMD,
            EnergyBased,
            Mahalanobis,
            MaxSoftmax,
        )
    except ImportError:
        return {}
    labels = torch.cat([torch.full((len(each),), c) for c, each in window.reference.items()])
    found = {
        "pytorch-ood max softmax": MaxSoftmax.score(logits),
        "pytorch-ood energy": EnergyBased.score(logits),
    }
    for name, detector in (
        ("Mahalanobis", Mahalanobis(None)),
        ("relative Mahalanobis", RMD(None)),
        ("kNN", KNN(None)),
    ):
        fitted: Any = detector.fit_features(pooled.float(), labels)
        found[f"pytorch-ood {name}"] = fitted.predict_features(current.float())
    return {name: torch.as_tensor(each).double() for name, each in found.items()}


def area_under_curve(usual: np.ndarray, novel: np.ndarray) -> float:
    """How often a novel sample scores above another, ties counting half."""
    ordered = np.sort(usual)
    below = np.searchsorted(ordered, novel) + np.searchsorted(ordered, novel, side="right")
    return float(below.mean() / (2 * len(ordered)))


def auroc_of_scores(
    windows: Windows, count: int, processes: int
) -> dict[str, dict[str, list[float]]]:
    """By change and score: the area under the curve, its mean and 95 % interval over windows."""
    outcome = {}
    with get_context("fork").Pool(processes) as pool:
        for change in NEW:
            areas: dict[str, list[float]] = defaultdict(list)
            for found in pool.imap(partial(_areas, windows, change), range(count)):
                for name, area in found.items():
                    areas[name].append(area)
            outcome[change] = {name: _with_interval(each) for name, each in areas.items()}
    return outcome


def auroc_of_windows(windows: Windows, count: int, processes: int) -> dict[str, dict[str, float]]:
    """By change and score: how well windows with a new class are told from those without a change."""
    scores = {}
    with get_context("fork").Pool(processes) as pool:
        for change in ("none", *NEW):
            scores[change] = pool.map(partial(_of_window, windows, change), range(count))
    return {
        change: {
            name: area_under_curve(
                *(np.array([each[name] for each in scores[side]]) for side in ("none", change))
            )
            for name in scores[change][0]
        }
        for change in NEW
    }


def _of_window(windows: Windows, change: str, number: int) -> dict[str, float]:
    """How much a whole window seems to hold a new class, without labels; larger: more."""
    torch.set_num_threads(1)
    window = windows.make(change, number)
    reference = {c: unit(each) for c, each in window.reference.items()}
    current, known = unit(window.current), KnownClasses(reference)
    outliers = known.p_values(known.score(current)) <= NOVEL
    pooled = torch.cat([*reference.values(), current])
    return {
        "current told from reference": separability(pooled, len(current)),
        "fraction of outliers": float(outliers.double().mean()),
    }


def separability(pooled: Tensor, current: int) -> float:
    """How well held-out scores tell the last samples from the others, an area under the curve."""
    is_current = observed_split(1, (len(pooled) - current, current))
    order = torch.randperm(len(pooled), generator=torch.Generator().manual_seed(0))
    scores = held_out_scores(pooled[None], is_current, order=order, folds=10, ridge=100.0)[0, 0]
    return area_under_curve(scores[:-current].numpy(), scores[-current:].numpy())


def _areas(windows: Windows, change: str, number: int) -> dict[str, float]:
    """The area under the curve of each score in one window."""
    torch.set_num_threads(1)
    window = windows.make(change, number)
    novel = window.labels == NOBODY
    return {
        name: area_under_curve(scores.numpy()[~novel], scores.numpy()[novel])
        for name, scores in scores_of(window).items()
    }


def _with_interval(values: list[float]) -> list[float]:
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / len(values) ** 0.5)
    return [round(each, 4) for each in (mean, mean - 1.96 * error, mean + 1.96 * error)]
