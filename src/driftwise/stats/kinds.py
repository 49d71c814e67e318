"""What kind of change it is: drift, a new mode, an earlier concept, a new class, mix, corruption.

A two-sample test says that samples have changed. Here the changes are explained one after the other,
the plainest first; what one explanation accounts for is set aside before the next is tried:

1. corrupted samples: many current samples are one reading (a dead or stuck sensor); or outliers of
   several classes among which labels mean nothing (content is lost);
2. corrupted labels: samples that are typical of another class than their label says, above all
   those of one annotator;
3. new class: samples without a name that are unlike all known classes;
4. of each class that is still different: recurring, if it is like an archived concept; new mode, if
   the old concept is still there beside the new one; drift otherwise;
5. mix: classes come in other proportions.

Where labels are predictions, a sample of a changed class may carry any label. Then novelty is
attributed by what is missing: drift takes typical samples away from a class, a new class does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from scipy.stats import binom, chi2, fisher_exact
from torch import Tensor

from driftwise import rng
from driftwise.errors import UserError
from driftwise.stats.c2st import c2st
from driftwise.stats.combine import cauchy
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.kind_names import ACTIONS, Kind
from driftwise.stats.mmd import mmd
from driftwise.stats.multiplicity import holm
from driftwise.stats.novelty import KnownClasses, Scored, repeats, upper_p_values

FEWEST = 20
"""samples of a class, on either side, below which its change is not explained"""
SAME_BELOW = 0.6
"""an archived concept is back where the fraction of samples that differ from it is smaller than this
part of the fraction that differs from the reference"""
OLD_GONE = 0.75
"""of the samples of a class: if more of them are new, the old concept is gone"""
_NOVEL = 0.05
"""conformal p-values up to it call a sample novel, an outlier of its class"""
_OUT_OF_PLACE = 0.02
"""likewise for samples that lie nearer to another class than their label's"""
_TYPICAL = 0.1
"""p-values from which on a sample is typical of a class"""
_SPLITS = 999
"""of the tests of classes"""
_RIDGE = 10.0
"""penalty of their classifier: so strong that 100 samples of 1,280 features separate"""
_CLASSES, _OTHERS = 0.7, 0.1
"""how the level is shared: tests of classes, and tests for corruption, new classes and mix"""
_LOST = 0.5
"""of outliers, labels that neighbours predict so much worse than in the reference mean nothing"""
_STILL_THERE = 0.65
"""of the usual number of samples of a class: if more are unchanged, what is new is no part of it"""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The kind of a change, with the numbers that show it."""

    kind: Kind
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def action(self) -> str:
        """What to do."""
        return ACTIONS[self.kind]


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """What happened to each class and to the stream."""

    by_class: Mapping[int, Finding]
    stream: tuple[Finding, ...]
    """one for each kind of change, the most urgent first; one of kind none if nothing changed"""
    novel: Tensor
    """bool (samples,): unlike all known classes"""
    quarantined: Tensor
    """bool (samples,): corrupted, or labelled by an annotator who is wrong too often"""

    @property
    def kind(self) -> Kind:
        """The most urgent kind of change."""
        return self.stream[0].kind


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sides:
    """Reference and current samples, and how the current ones lie beside the known classes."""

    reference: Mapping[int, Tensor]
    known: KnownClasses
    current: Tensor
    scored: Scored
    places: Tensor
    """of the class of each current sample; -1: none of the known ones"""
    groups: Tensor
    """of the class that each reference sample is taken for, where labels are predictions"""
    archived: Mapping[int, Sequence[Tensor]]
    level: float
    """of each of the tests for corruption, new classes and mix"""
    mix_samples: float
    """from which the usual mix is known; infinite: it is known exactly; 0: not at all"""
    class_level: float
    """of the tests of all classes together"""
    seed: int

    def of_class(self, label: int, left: Tensor) -> Tensor:
        """The current samples of a class that are left."""
        return self.current[(self.places == self.known.classes.index(label)) & left]


def judge(
    reference: Mapping[int, Tensor],
    current: Tensor,
    labels: Tensor | None,
    *,
    labels_are: Literal["given", "predicted"] = "given",
    reference_predictions: Mapping[int, Tensor] | None = None,
    changed: Collection[int] | None = None,
    archived: Mapping[int, Sequence[Tensor]] | None = None,
    mix: Mapping[int, float] | Literal["reference"] | None = None,
    annotators: Tensor | None = None,
    level: float = 0.05,
    unit_length: bool = True,
    seed: int = 0,
) -> Findings:
    """Say what kind of change there is between reference and current samples.

    Args:
        reference: features (samples, d) by class.
        current: features (samples, d) of all classes together.
        labels: (samples,); classes without a reference, and -1, are none of the known classes.
            None: the class with the nearest mean is predicted.
        labels_are: given by somebody, or predicted.
        reference_predictions: of predicted labels, those of the reference samples by class. None:
            the class with the nearest mean.
        changed: classes that a detector found changed; None: they are tested here.
        archived: by class, features of earlier concepts.
        mix: how often each class comes as a rule, exactly; "reference": about as often as in the
            reference. None: not known, so that another mix is not looked for.
        annotators: (samples,), who labelled each sample. None: not known.
        level: probability of any false alarm.
        unit_length: whether features are brought to length 1 first, as is good for those of image
            encoders, whose length says how much of anything there is.
        seed: of the tests' permutations.
    """

    def prepared(features: Tensor) -> Tensor:
        return (
            torch.nn.functional.normalize(features.double(), dim=1)
            if unit_length
            else features.double()
        )

    testable = {c: prepared(each) for c, each in reference.items() if len(each) >= FEWEST}
    current = prepared(current)
    nothing = torch.zeros(len(current), dtype=torch.bool)
    waiting = {
        c: Finding(kind="not testable", evidence={"missing_reference": FEWEST - len(features)})
        for c, features in reference.items()
        if c not in testable
    }
    if len(testable) < 1 or not len(current):
        stream = Finding(kind="not testable", evidence={"testable_classes": len(testable)})
        return Findings(by_class=waiting, stream=(stream,), novel=nothing, quarantined=nothing)
    known = KnownClasses(testable)
    scored = known.score(current)
    groups = known.scored.nearest
    if labels is None:
        labels_are, places = "predicted", scored.nearest
    else:
        places = _places(labels, known)
        if reference_predictions is not None:
            predicted = torch.cat([reference_predictions[c] for c in known.classes])
            groups = _places(predicted, known)
    sides = _Sides(
        reference=testable,
        known=known,
        current=current,
        scored=scored,
        places=places,
        groups=groups,
        archived={c: [prepared(each) for each in some] for c, some in (archived or {}).items()},
        mix_samples=_known_from(testable, mix),
        level=_OTHERS * level,
        class_level=_CLASSES * level,
        seed=seed,
    )
    usual = _usual_mix(testable, mix)
    if labels_are == "given":
        found = _with_labels(sides, changed, usual, annotators)
    else:
        found = _without_labels(sides, usual)
    return Findings(
        by_class={**found.by_class, **waiting},
        stream=found.stream,
        novel=found.novel,
        quarantined=found.quarantined,
    )


def _places(labels: Tensor, known: KnownClasses) -> Tensor:
    """The place of each label among the known classes; -1: it is none of them."""
    places = torch.full((len(labels),), -1)
    for place, label in enumerate(known.classes):
        places[labels == label] = place
    return places


# With labels


def _with_labels(
    sides: _Sides,
    changed: Collection[int] | None,
    usual: Tensor,
    annotators: Tensor | None,
) -> Findings:
    stream: list[Finding] = []
    broken, why = _repeated(sides)
    if not len(why):
        broken, why = _without_content(sides)
    careless, wrong = _out_of_place(sides, ~broken, annotators)
    if why or wrong:
        stream.append(Finding(kind="corrupted", evidence={**why, **wrong}))
    quarantined = broken | careless
    novel = torch.zeros_like(quarantined)
    unnamed = (sides.places < 0) & ~quarantined
    if int(unnamed.sum()) >= FEWEST and (evidence := _belong_nowhere(sides, unnamed)):
        novel = unnamed & (sides.known.p_values(sides.scored) <= _TYPICAL)
        stream.append(Finding(kind="new class", evidence=evidence))
    by_class = _explained(sides, changed, quarantined)
    stream += _summed_up(by_class)
    named = (sides.places >= 0) & ~broken
    counts = torch.bincount(sides.places[named], minlength=len(usual)).double()
    if evidence := _other_mix(counts, usual, sides.level, sides.mix_samples):
        stream.append(Finding(kind="mix", evidence=evidence))
    return Findings(
        by_class=by_class,
        stream=tuple(stream) or (Finding(kind="none"),),
        novel=novel,
        quarantined=quarantined,
    )


def _explained(
    sides: _Sides, changed: Collection[int] | None, quarantined: Tensor
) -> dict[int, Finding]:
    """The kind of each class's change, apart from the samples in quarantine."""
    findings: dict[int, Finding] = {}
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    for label, kept in sides.reference.items():
        everyone = sides.places == sides.known.classes.index(label)
        total, bad = int(everyone.sum()), int((everyone & quarantined).sum())
        now = sides.of_class(label, ~quarantined)
        if len(now) < FEWEST:
            evidence = {"missing_current": float(FEWEST - len(now))}
            kind: Kind = "corrupted" if bad > total / 2 else "not testable"
            findings[label] = Finding(kind=kind, evidence=evidence)
            continue
        if bad:
            findings[label] = Finding(
                kind="corrupted" if bad >= max(3, _NOVEL * total) else "none",
                evidence={"corrupted_fraction": bad / total},
            )
        # A detector has tested the samples as they came: what is left is tested again.
        if changed is None or (label in changed and bad):
            pairs[label] = kept, now
        elif label in changed:
            findings[label] = _explain(sides, label, now)
    p_values = _class_p_values(list(pairs.values()), sides.seed)
    threshold = holm(p_values, sides.class_level) if p_values else 0.0
    for (label, (_, now)), p_value in zip(pairs.items(), p_values, strict=True):
        if p_value <= threshold:
            findings[label] = _explain(sides, label, now, p_value)
        elif label not in findings:
            findings[label] = Finding(kind="none", evidence={"p_value": p_value})
    for label in sides.reference:
        findings.setdefault(label, Finding(kind="none"))
    return findings


def _explain(sides: _Sides, label: int, now: Tensor, p_value: float | None = None) -> Finding:
    """Drift, a new mode or an earlier concept: which of them explains a class that has changed."""
    evidence = {} if p_value is None else {"p_value": p_value}
    earlier = [each for each in sides.archived.get(label, ()) if len(each) >= FEWEST]
    shares = estimate_shares([(each, now) for each in (sides.reference[label], *earlier)])
    evidence["fraction_new"] = shares[0].share
    if earlier:
        nearest = min(shares[1:], key=lambda each: each.share)
        evidence["fraction_unlike_earlier"] = nearest.share
        if nearest.share < SAME_BELOW * shares[0].share:
            return Finding(kind="recurring", evidence=evidence)
    kind: Kind = "drift" if shares[0].share > OLD_GONE else "new mode"
    return Finding(kind=kind, evidence=evidence)


def _class_p_values(pairs: Sequence[tuple[Tensor, Tensor]], seed: int) -> list[float]:
    """Of each class, by kernel and by classifier, merged."""
    if not pairs:
        return []
    tests = (
        mmd(pairs, permutations=_SPLITS, generator=rng.fork(seed, "kinds", "mmd")),
        c2st(pairs, permutations=_SPLITS, ridge=_RIDGE, generator=rng.fork(seed, "kinds", "c2st")),
    )
    return [
        float(cauchy(np.array([each.p_value for each in by_test])))
        for by_test in zip(*tests, strict=True)
    ]


# Corruption


def _repeated(sides: _Sides) -> tuple[Tensor, dict[str, float]]:
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


def _without_content(sides: _Sides) -> tuple[Tensor, dict[str, float]]:
    """Outliers of most classes among which labels mean nothing."""
    nothing = torch.zeros(len(sides.current), dtype=torch.bool)
    named = (sides.places >= 0).nonzero().squeeze(1)
    if len(named) < FEWEST or len(sides.known.classes) < 2:
        return nothing, {}
    scored = Scored(
        distances=sides.scored.distances[named], neighbours=sides.scored.neighbours[named]
    )
    p_values = sides.known.own_p_values(scored, sides.places[named])
    outliers = named[p_values <= _NOVEL]
    counts = torch.bincount(sides.places[outliers], minlength=len(sides.known.classes))
    totals = torch.bincount(sides.places[named], minlength=len(sides.known.classes))
    raised = _num_raised(counts, totals, 2 * _NOVEL, sides.level)
    if raised <= len(counts) / 2 or len(outliers) < FEWEST:
        return nothing, {}
    information = _information(sides.current[outliers], sides.places[outliers])
    usual = _information(torch.cat(list(sides.reference.values())), sides.known.places)
    if information >= _LOST * usual:
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


def _out_of_place(
    sides: _Sides, left: Tensor, annotators: Tensor | None
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


def _typical_of_others(sides: _Sides, named: Tensor) -> Tensor:
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
        is_typical = upper_p_values(own[known.places == place], distances[there]) >= _TYPICAL
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


# New classes, mix


def _belong_nowhere(sides: _Sides, unnamed: Tensor) -> dict[str, float]:
    """The evidence that samples without a name are unlike all known classes; empty: there is none."""
    p_values = sides.known.p_values(sides.scored)[unnamed]
    novel = int((p_values <= _NOVEL).sum())
    p_value = float(binom.sf(novel - 1, len(p_values), _NOVEL))
    evidence = {"samples": float(len(p_values)), "novel_fraction": novel / len(p_values)}
    if p_value <= sides.level / 2:
        return evidence | {"p_value": p_value}
    # One by one they may resemble a class: as a group they do not.
    pairs = []
    nearest = sides.scored.nearest
    taken_for = sides.known.scored.nearest
    pooled = torch.cat(list(sides.reference.values()))
    for place in range(len(sides.known.classes)):
        now = sides.current[unnamed & (nearest == place)]
        kept = pooled[taken_for == place]
        if min(len(now), len(kept)) >= FEWEST:
            pairs.append((kept, now))
    found = _class_p_values(pairs, sides.seed)
    if not found or min(found) > holm(found, sides.level / 2):
        return {}
    return evidence | {"p_value": min(found)}


Mix = Mapping[int, float] | Literal["reference"] | None


def _known_from(reference: Mapping[int, Tensor], mix: Mix) -> float:
    """The samples from which the usual mix is known."""
    if mix is None:
        return 0.0
    return float(sum(map(len, reference.values()))) if mix == "reference" else float("inf")


def other_mix(
    counts: Mapping[int, float],
    usual: Mapping[int, float],
    *,
    known_from: float = float("inf"),
    level: float = 0.005,
) -> dict[str, float]:
    """The evidence that classes come in other proportions than usual; empty: there is none.

    Args:
        counts: current samples by class.
        usual: how often each class comes as a rule, in any unit.
        known_from: samples from which that is known; infinite: it is known exactly.
        level: of the test.
    """
    weights = torch.tensor([float(usual[c]) for c in usual], dtype=torch.float64)
    came = torch.tensor([float(counts.get(c, 0)) for c in usual], dtype=torch.float64)
    if not len(weights) or float(weights.sum()) <= 0:
        return {}
    return _other_mix(came, weights / weights.sum(), level, known_from)


def _usual_mix(reference: Mapping[int, Tensor], mix: Mix) -> Tensor:
    """How often each class comes as a rule, adding up to 1, (classes,)."""
    weights = [
        mix.get(c, 0.0) if isinstance(mix, Mapping) else float(len(features))
        for c, features in reference.items()
    ]
    if min(weights) < 0 or sum(weights) <= 0:
        raise UserError(f"expected how often each class comes, not negative; got {mix}")
    share = torch.tensor(weights, dtype=torch.float64)
    return share / share.sum()


def _other_mix(counts: Tensor, usual: Tensor, level: float, known_from: float) -> dict[str, float]:
    """The evidence that classes come in other proportions; empty: there is none.

    Where the usual proportions are those of samples, these vary as the current ones do.
    """
    expected = counts.sum() * usual
    likely = expected >= 5
    if int(likely.sum()) < 2 or not known_from:
        return {}
    statistic = float(((counts - expected)[likely].square() / expected[likely]).sum())
    statistic /= 1 + float(counts.sum()) / known_from
    p_value = float(chi2.sf(statistic, int(likely.sum()) - 1))
    if p_value > level:
        return {}
    ratios = (counts / expected.clamp(min=1e-9))[likely]
    return {"p_value": p_value, "largest_ratio": float(ratios.max())}


def _summed_up(by_class: Mapping[int, Finding]) -> list[Finding]:
    """One finding for each kind of change that classes underwent, the most frequent first."""
    counts: dict[Kind, int] = {}
    for each in by_class.values():
        if each.kind in ("drift", "new mode", "recurring"):
            counts[each.kind] = counts.get(each.kind, 0) + 1
    ordered = sorted(counts, key=lambda kind: -counts[kind])
    return [Finding(kind=kind, evidence={"classes": float(counts[kind])}) for kind in ordered]


# Without labels


def _without_labels(sides: _Sides, usual: Tensor) -> Findings:
    """Group samples by predictions, and attribute what is new to the classes that miss samples."""
    broken, why = _repeated(sides)
    stream = [Finding(kind="corrupted", evidence=why)] if why else []
    counts, old, novel, smallest = _unchanged_amounts(sides, ~broken)
    expected = _group_mix(sides, usual)
    by_class: dict[int, Finding] = {}
    if bool(novel.any()):
        # As many as there would be if some classes had kept theirs.
        expected = expected * (old / expected.clamp(min=1e-9)).quantile(0.6)
        for place, label in enumerate(sides.known.classes):
            kept = float(old[place] / expected[place].clamp(min=1e-9))
            missing = float(expected[place] - old[place])
            if kept >= _STILL_THERE or missing < 2.5 * float(expected[place]) ** 0.5:
                continue
            by_class[label] = _what_replaced(sides, label, kept, novel)
        if not by_class:
            evidence = {"samples": float(novel.sum()), "p_value": smallest}
            stream.append(Finding(kind="new class", evidence=evidence))
    stream += _summed_up(by_class)
    if not stream and (evidence := _other_mix(counts, expected, sides.level, sides.mix_samples)):
        stream.append(Finding(kind="mix", evidence=evidence))
    return Findings(
        by_class={c: by_class.get(c, Finding(kind="none")) for c in sides.reference},
        stream=tuple(stream) or (Finding(kind="none"),),
        novel=novel,
        quarantined=broken,
    )


def _unchanged_amounts(sides: _Sides, left: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
    """By group: samples, and unchanged ones among them; then which are new; the least p-value."""
    pooled = torch.cat(list(sides.reference.values()))
    places = range(len(sides.known.classes))
    rows = [((sides.places == place) & left).nonzero().squeeze(1) for place in places]
    counts = torch.tensor([len(each) for each in rows], dtype=torch.float64)
    pairs = {
        place: (pooled[sides.groups == place], sides.current[rows[place]])
        for place in places
        if len(rows[place]) >= FEWEST and int((sides.groups == place).sum()) >= FEWEST
    }
    p_values = _class_p_values(list(pairs.values()), sides.seed)
    threshold = holm(p_values, sides.class_level) if p_values else 0.0
    changed = [place for place, p in zip(pairs, p_values, strict=True) if p <= threshold]
    old, novel = counts.clone(), torch.zeros_like(left)
    for place, found in zip(changed, estimate_shares([pairs[c] for c in changed]), strict=True):
        old[place] *= 1 - found.share
        novel[rows[place][found.evidence > 0.5]] = True
    return counts, old, novel, min(p_values, default=1.0)


def _group_mix(sides: _Sides, usual: Tensor) -> Tensor:
    """How often each class is predicted as a rule, (classes,)."""
    expected = torch.zeros_like(usual)
    for place, share in enumerate(usual.tolist()):
        groups = sides.groups[(sides.known.places == place) & (sides.groups >= 0)]
        counts = torch.bincount(groups, minlength=len(usual)).double()
        expected += share * counts / counts.sum().clamp(min=1)
    return expected / expected.sum()


def _what_replaced(sides: _Sides, label: int, kept: float, novel: Tensor) -> Finding:
    """The kind of change of a class that misses samples, given all samples that are new."""
    evidence = {"fraction_new": 1 - kept}
    now = sides.current[novel]
    earlier = [each for each in sides.archived.get(label, ()) if len(each) >= FEWEST]
    if earlier and len(now) >= FEWEST:
        shares = estimate_shares([(each, now) for each in earlier])
        evidence["fraction_unlike_earlier"] = min(each.share for each in shares)
        if evidence["fraction_unlike_earlier"] < SAME_BELOW:
            return Finding(kind="recurring", evidence=evidence)
    kind: Kind = "drift" if 1 - kept > OLD_GONE else "new mode"
    return Finding(kind=kind, evidence=evidence)
