"""Corrupted samples and labels: repeated readings, lost content, careless annotators."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import binom, fisher_exact
from torch import Tensor

from driftwise.stats.change_findings import FEWEST, NOVEL, TYPICAL, Sides
from driftwise.stats.novelty import Scored, repeats, upper_p_values

_OUT_OF_PLACE = 0.02
"""likewise for samples that lie nearer to another class than their label's"""
_LOST = 0.5
"""of outliers, labels that neighbours predict so much worse than in the reference mean nothing"""


def repeated(sides: Sides) -> tuple[Tensor, dict[str, float]]:
    """Current samples that are one reading, if there are more of them than in the reference."""
    is_repeat = repeats(sides.known.whitened(sides.current), sides.known)
    before = repeats(sides.known.reference, sides.known)
    if float(is_repeat.double().mean()) <= float(before.double().mean()):
        return torch.zeros_like(is_repeat), {}
    table = [
        [int(is_repeat.sum()), int((~is_repeat).sum())],
        [int(before.sum()), int((~before).sum())],
    ]
    p_value = float(fisher_exact(np.array(table), alternative="greater").pvalue)
    if p_value > sides.level / 3:
        return torch.zeros_like(is_repeat), {}
    return is_repeat, {"repeated_fraction": table[0][0] / len(is_repeat)}


def without_content(sides: Sides) -> tuple[Tensor, dict[str, float]]:
    """Outliers of most classes among which labels mean nothing."""
    nothing = torch.zeros(len(sides.current), dtype=torch.bool)
    named = (sides.places >= 0).nonzero().squeeze(1)
    if len(named) < FEWEST or len(sides.known.classes) < 2:
        return nothing, {}
    scored = Scored(
        distances=sides.scored.distances[named], neighbours=sides.scored.neighbours[named]
    )
    p_values = sides.known.own_p_values(scored, sides.places[named])
    outliers = named[p_values <= NOVEL]
    counts = torch.bincount(sides.places[outliers], minlength=len(sides.known.classes))
    totals = torch.bincount(sides.places[named], minlength=len(sides.known.classes))
    raised = _num_raised(counts, totals, 2 * NOVEL, sides.level)
    if raised <= len(counts) / 2 or len(outliers) < FEWEST:
        return nothing, {}
    information = _information(sides.current[outliers], sides.places[outliers])
    usual = _information(torch.cat(list(sides.reference.values())), sides.known.places)
    if usual <= 0 or information >= _LOST * usual:  # what was never known cannot be lost
        return nothing, {}
    nothing[outliers] = True
    return nothing, {
        "fraction_without_content": len(outliers) / len(named),
        "information": information / usual,
    }


def _num_raised(counts: Tensor, totals: Tensor, usual: float, level: float) -> int:
    """Of how many classes more samples are counted than a usual fraction explains."""
    p_values = np.asarray(binom.sf(counts.numpy() - 1, totals.numpy(), usual))
    return int((p_values <= level).sum())


def _information(features: Tensor, places: Tensor) -> float:
    """How well the nearest others predict the labels: 0 as by chance, 1 always."""
    distances = torch.cdist(features, features)
    distances.fill_diagonal_(torch.inf)
    neighbours = distances.topk(min(5, len(features) - 1), dim=1, largest=False).indices
    votes = torch.nn.functional.one_hot(places[neighbours]).sum(dim=1)
    agree = float((votes.argmax(dim=1) == places).double().mean())
    chance = float((torch.bincount(places).double() / len(places)).square().sum())
    return (agree - chance) / max(1e-9, 1 - chance)


def out_of_place(
    sides: Sides, left: Tensor, annotators: Tensor | None
) -> tuple[Tensor, dict[str, float]]:
    """The samples of a careless annotator; without names, those that are typical of other classes."""
    nothing = torch.zeros_like(left)
    if len(sides.known.classes) < 2:
        return nothing, {}
    named = ((sides.places >= 0) & left).nonzero().squeeze(1)
    wrong = torch.zeros_like(left)
    wrong[named] = _typical_of_others(sides, named)
    if annotators is not None:
        return _careless(wrong, named, annotators, sides.level / 3)
    counts = torch.bincount(sides.places[wrong], minlength=len(sides.known.classes))
    totals = torch.bincount(sides.places[named], minlength=len(sides.known.classes))
    raised = _num_raised(counts, totals, 2 * _OUT_OF_PLACE, sides.level)
    if raised <= len(counts) / 2:
        return nothing, {}
    return wrong, {"mislabelled_fraction": float(wrong.sum()) / len(named)}


def _typical_of_others(sides: Sides, named: Tensor) -> Tensor:
    """Which samples lie far nearer to another class than their own does, and are typical of it."""
    known, places = sides.known, sides.places[named]
    margins, others = _margins(sides.scored.distances[named], places)
    usual, _ = _margins(known.scored.distances, known.places)
    own = known.scored.distances.gather(1, known.places[:, None])[:, 0]
    distances = sides.scored.distances[named].gather(1, others[:, None])[:, 0]
    found = torch.zeros(len(named), dtype=torch.bool)
    for place in range(len(known.classes)):
        here = places == place
        found[here] = upper_p_values(usual[known.places == place], margins[here]) <= _OUT_OF_PLACE
        there = others == place
        is_typical = upper_p_values(own[known.places == place], distances[there]) >= TYPICAL
        found[there] &= is_typical
    return found


def _margins(distances: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """How much nearer the nearest other class is than the own one, and which that is."""
    own = distances.gather(1, places[:, None])
    others = distances.scatter(1, places[:, None], torch.inf)
    nearest = others.min(dim=1)
    return own[:, 0] - nearest.values, nearest.indices


def _careless(
    wrong: Tensor, named: Tensor, annotators: Tensor, level: float
) -> tuple[Tensor, dict[str, float]]:
    """The samples of annotators who are wrong more often than all others together."""
    names = torch.unique(annotators[named]).tolist()
    found, evidence = torch.zeros_like(wrong), dict[str, float]()
    if len(names) < 2:
        return found, evidence
    for name in names:
        mine = annotators[named] == name
        bad, all_bad = int(wrong[named][mine].sum()), int(wrong[named].sum())
        table = [
            [bad, int(mine.sum()) - bad],
            [all_bad - bad, int((~mine).sum()) - (all_bad - bad)],
        ]
        p_value = float(fisher_exact(np.array(table), alternative="greater").pvalue)
        if p_value <= level / len(names):
            found |= annotators == name
            evidence |= {"annotator": float(name), "mislabelled_fraction": bad / int(mine.sum())}
    return found, evidence
