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
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.change_findings import (
    FEWEST,
    NOBODY,
    NOVEL,
    OLD_GONE,
    SAME_BELOW,
    TYPICAL,
    WAITING,
    Finding,
    Findings,
    Sides,
    class_p_values,
    summed_up,
    waiting_for,
)
from driftwise.stats.class_mix import multinomial, other_mix_of_counts
from driftwise.stats.corruption import out_of_place, repeated, without_content
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.kind_names import Kind
from driftwise.stats.kinds_unlabelled import without_labels
from driftwise.stats.multiplicity import holm
from driftwise.stats.novelty import KnownClasses
from driftwise.stats.permutation import refuse_infinite

__all__ = ["FEWEST", "OLD_GONE", "Finding", "Findings", "Mix", "judge"]

Mix = Mapping[int, float] | Literal["reference"] | None

_CLASSES, _OTHERS = 0.7, 0.1
"""how the level is shared: tests of classes, and tests for corruption, new classes and mix"""


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
    _refuse_settings(reference, labels_are, mix, level)
    current = torch.as_tensor(current)
    width = current.shape[-1] if current.ndim else 1

    def prepared(features: Tensor) -> Tensor:
        return _prepared(features, width, unit_length)

    current = prepared(current)
    every = {c: prepared(features) for c, features in reference.items()}
    testable = {c: features for c, features in every.items() if len(features) >= FEWEST}
    if labels is not None:
        labels = _whole_numbers(labels, "labels", len(current))
    if annotators is not None:
        annotators = _whole_numbers(annotators, "annotators", len(current))
    nothing = torch.zeros(len(current), dtype=torch.bool)
    waiting = {
        c: waiting_for("missing_reference", len(features))
        for c, features in every.items()
        if c not in testable
    }
    if not testable or not len(current):
        waiting |= {c: waiting_for("missing_current", 0) for c in testable}
        stream = Finding(kind="not testable", evidence={"testable_classes": float(len(testable))})
        return Findings(by_class=waiting, stream=(stream,), novel=nothing, quarantined=nothing)
    known = KnownClasses(testable)
    scored = known.score(current)
    groups = known.scored.nearest
    if labels is None:
        labels_are, places = "predicted", scored.nearest
    else:
        places = _places(labels, known)
        if reference_predictions is not None:
            if missing := [c for c in known.classes if c not in reference_predictions]:
                raise UserError(f"expected predictions of all reference samples; not of {missing}")
            predicted = [
                _whole_numbers(
                    reference_predictions[c], f"predictions of class {c}", len(testable[c])
                )
                for c in known.classes
            ]
            groups = _places(torch.cat(predicted), known)
    places = places.masked_fill(_of_waiting(every, known, current, labels), WAITING)
    sides = Sides(
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
        found = without_labels(sides, usual)
    kinds = {each.kind for each in found.by_class.values()}
    if found.kind == "none" and kinds == {"not testable"}:
        stream = Finding(kind="not testable", evidence={"samples": float(len(current))})
        found = replace(found, stream=(stream,))
    return replace(found, by_class={**found.by_class, **waiting})


def _refuse_settings(
    reference: Mapping[int, Tensor], labels_are: str, mix: Mix, level: float
) -> None:
    """A name that is misspelt, or a class with another name, would change the verdict silently."""
    if labels_are not in ("given", "predicted"):
        raise UserError(f"expected labels_are as 'given' or 'predicted'; got {labels_are!r}")
    if isinstance(mix, str) and mix != "reference":
        raise UserError(f"expected a mix by class, 'reference' or None; got {mix!r}")
    if not 0 < level < 1:
        raise UserError(f"expected a level between 0 and 1; got {level}")
    if other := [c for c in reference if not isinstance(c, (int, np.integer))]:
        raise UserError(f"expected whole numbers as classes of the reference; got {other[:3]}")


def _prepared(features: Any, width: int, unit_length: bool) -> Tensor:
    """Features (samples, width) in double precision, of length 1 where that is wanted."""
    given = torch.as_tensor(features).detach()
    if given.is_complex():
        raise UserError(f"expected features as real numbers; got {given.dtype}")
    found = given.double()
    if found.ndim != 2 or found.shape[1] != width or not width:
        raise UserError(
            f"expected features (samples, d) of one width everywhere; got {tuple(found.shape)}"
            f" beside current samples of width {width}"
        )
    # Squares of squared lengths occur below.
    refuse_infinite(found.square().sum(dim=1).square())
    return torch.nn.functional.normalize(found, dim=1) if unit_length else found


def _whole_numbers(values: Any, what: str, samples: int) -> Tensor:
    """Labels or names, int64 (samples,)."""
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"expected {what} as whole numbers; got {type(values)}: number them first, for example"
            " with numpy.unique(..., return_inverse=True)"
        ) from error
    if found.shape != (samples,):
        raise UserError(f"expected {what} of shape ({samples},); got {tuple(found.shape)}")
    whole = found.long()
    if not torch.equal(whole.to(found.dtype), found):
        raise UserError(f"expected {what} as whole numbers; got {found.dtype} with other values")
    return whole


def _places(labels: Tensor, known: KnownClasses) -> Tensor:
    """The place of each label among the known classes; -1: it is none of them."""
    places = torch.full((len(labels),), NOBODY)
    for place, label in enumerate(known.classes):
        places[labels == label] = place
    return places


def _of_waiting(
    reference: Mapping[int, Tensor], known: KnownClasses, current: Tensor, labels: Tensor | None
) -> Tensor:
    """Samples of classes with too few reference samples, bool (samples,): they are no new class."""
    few = {c: each for c, each in reference.items() if c not in known.classes}
    if labels is not None:
        return torch.isin(labels, torch.tensor(sorted(few), dtype=torch.int64))
    few = {c: each for c, each in few.items() if len(each)}
    if not few:
        return torch.zeros(len(current), dtype=torch.bool)
    means = known.whitened(torch.stack([each.mean(dim=0) for each in few.values()]))
    apart = torch.cdist(known.whitened(current), torch.cat([known.means, means]))
    return apart.argmin(dim=1) >= len(known.classes)


def _usual_mix(reference: Mapping[int, Tensor], mix: Mix) -> Tensor:
    """How often each class comes as a rule, adding up to 1, (classes,)."""
    weights = [
        mix.get(c, 0.0) if isinstance(mix, Mapping) else float(len(features))
        for c, features in reference.items()
    ]
    if not (min(weights) >= 0 and 0 < sum(weights) < float("inf")):
        raise UserError(f"expected how often each class comes, not negative; got {mix}")
    share = torch.tensor(weights, dtype=torch.float64)
    return share / share.sum()


def _known_from(reference: Mapping[int, Tensor], mix: Mix) -> float:
    """The samples from which the usual mix is known."""
    if mix is None:
        return 0.0
    return float(sum(map(len, reference.values()))) if mix == "reference" else float("inf")


# With labels


def _with_labels(
    sides: Sides,
    changed: Collection[int] | None,
    usual: Tensor,
    annotators: Tensor | None,
) -> Findings:
    stream: list[Finding] = []
    broken, why = repeated(sides)
    if not len(why):
        broken, why = without_content(sides)
    careless, wrong = out_of_place(sides, ~broken, annotators)
    if why or wrong:
        stream.append(Finding(kind="corrupted", evidence={**why, **wrong}))
    quarantined = broken | careless
    novel = torch.zeros_like(quarantined)
    unnamed = (sides.places == NOBODY) & ~quarantined
    if int(unnamed.sum()) >= FEWEST and (evidence := _belong_nowhere(sides, unnamed)):
        novel = unnamed & (sides.known.p_values(sides.scored) <= TYPICAL)
        stream.append(Finding(kind="new class", evidence=evidence))
    by_class = _explained(sides, changed, quarantined)
    stream += summed_up(by_class)
    named = (sides.places >= 0) & ~broken
    counts = torch.bincount(sides.places[named], minlength=len(usual)).double()
    if sides.mix_samples and (
        evidence := other_mix_of_counts(
            counts, usual, sides.level, multinomial(usual) / sides.mix_samples
        )
    ):
        stream.append(Finding(kind="mix", evidence=evidence))
    return Findings(
        by_class=by_class,
        stream=tuple(stream) or (Finding(kind="none"),),
        novel=novel,
        quarantined=quarantined,
    )


def _explained(
    sides: Sides, changed: Collection[int] | None, quarantined: Tensor
) -> dict[int, Finding]:
    """The kind of each class's change, apart from the samples in quarantine."""
    findings: dict[int, Finding] = {}
    pairs: dict[int, tuple[Tensor, Tensor]] = {}
    for label, kept in sides.reference.items():
        everyone = sides.places == sides.known.classes.index(label)
        total, bad = int(everyone.sum()), int((everyone & quarantined).sum())
        now = sides.of_class(label, ~quarantined)
        if len(now) < FEWEST:
            few = waiting_for("missing_current", len(now))
            findings[label] = replace(few, kind="corrupted") if bad > total / 2 else few
            continue
        if bad:
            findings[label] = Finding(
                kind="corrupted" if bad >= max(3, NOVEL * total) else "none",
                evidence={"corrupted_fraction": bad / total},
            )
        # A detector has tested the samples as they came: what is left is tested again.
        if changed is None or (label in changed and bad):
            pairs[label] = kept, now
        elif label in changed:
            findings[label] = _explain(sides, label, now)
    p_values = class_p_values(list(pairs.values()), sides.seed)
    threshold = holm(p_values, sides.class_level) if p_values else 0.0
    for (label, (_, now)), p_value in zip(pairs.items(), p_values, strict=True):
        if p_value <= threshold:
            findings[label] = _explain(sides, label, now, p_value)
        elif label not in findings:
            findings[label] = Finding(kind="none", evidence={"p_value": p_value})
    for label in sides.reference:
        findings.setdefault(label, Finding(kind="none"))
    return findings


def _explain(sides: Sides, label: int, now: Tensor, p_value: float | None = None) -> Finding:
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


def _belong_nowhere(sides: Sides, unnamed: Tensor) -> dict[str, float]:
    """The evidence that samples without a name are unlike all known classes; empty: there is none."""
    p_values = sides.known.p_values(sides.scored)[unnamed]
    novel = int((p_values <= NOVEL).sum())
    p_value = float(binom.sf(novel - 1, len(p_values), NOVEL))
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
    found = class_p_values(pairs, sides.seed)
    if not found or min(found) > holm(found, sides.level / 2):
        return {}
    return evidence | {"p_value": min(found)}
