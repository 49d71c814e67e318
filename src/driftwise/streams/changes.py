"""Windows of a stream in which one thing has changed, and what it was.

A window has reference samples of each class, and current samples that are as before but for one
change: drift, a new mode, an earlier concept, a class that nobody knows, another class mix, a broken
sensor or a careless annotator. A class is made of subclasses, so that a subclass not seen before is a
new mode of its class. Samples may be images or feature vectors; they are taken from pools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from driftwise import rng
from driftwise.errors import UserError, unknown_name
from driftwise.streams.faults import careless_labels

CHANGES = (
    "none",
    "drift",
    "new mode",
    "recurring",
    "new class near",
    "new class far",
    "mix",
    "careless annotator",
    "broken sensor",
    "several",
)
"""what may happen to a window; `kind_of` says which kind of change each of them is"""

Pools = Mapping[str, Mapping[int, np.ndarray]]
"""samples by concept and subclass; the concept `clean` is how subclasses looked at first"""

NOBODY = -1
"""the label of a sample that belongs to no known class: nobody could name it"""
NUM_ANNOTATORS = 4


def kind_of(change: str) -> str:
    """The kind of a change, as a verdict names it.

    >>> kind_of("new class near"), kind_of("broken sensor"), kind_of("mix")
    ('new class', 'corrupted', 'mix')
    """
    if change in ("careless annotator", "broken sensor"):
        return "corrupted"
    return "new class" if change.startswith("new class") else change


@dataclass(frozen=True, kw_only=True, eq=False)
class Window:
    """Reference samples by class, and the current samples of all classes together."""

    change: str
    train: dict[int, np.ndarray]
    """samples by class for whoever predicts classes; no other part shares a sample with them"""
    reference: dict[int, np.ndarray]
    archived: dict[int, list[np.ndarray]]
    """samples of earlier concepts of each class"""
    current: np.ndarray
    labels: np.ndarray
    """int64 (current samples,), as annotators gave them"""
    annotators: np.ndarray
    """int64 (current samples,): who labelled each"""
    kinds: dict[int, str] = field(default_factory=dict)
    """of the classes that have changed, the kind"""


class Windows:
    """Makes windows out of pools of samples."""

    def __init__(
        self,
        pools: Pools,
        classes: Sequence[Sequence[int]],
        *,
        siblings: Mapping[int, Sequence[int]],
        strangers: Sequence[int],
        concepts: Sequence[str],
        size: int = 100,
        archived: int | None = None,
        new_fraction: tuple[float, float] = (0.4, 0.6),
        seed: int = 0,
    ) -> None:
        """What there is.

        Args:
            pools: samples by concept and subclass. `black` and `shifted` are those of a broken
                sensor.
            classes: the subclasses of each known class.
            siblings: by class, subclasses that resemble it: new modes of it, or new near classes.
            strangers: subclasses that resemble no known class: new far classes.
            concepts: those that a class may drift to.
            size: samples of a class on either side.
            archived: samples of an earlier concept of a class; None: as many.
            new_fraction: what part of a class is of a new mode, the least and the most.
            seed: of all that is drawn.
        """
        if len(classes) < 2:
            raise UserError(f"expected at least two classes; got {len(classes)}")
        if missing := {"clean", *concepts}.difference(pools):
            raise UserError(f"there is no pool of the concepts {sorted(missing)}")
        self._pools = pools
        self._classes = [tuple(each) for each in classes]
        self._siblings = siblings
        self._strangers = tuple(strangers)
        self._concepts = tuple(concepts)
        self._size = size
        self._archived = size if archived is None else archived
        self._new_fraction = new_fraction
        self._seed = seed

    def make(self, change: str, number: int) -> Window:
        """The window of this number with this change; equal arguments give equal windows."""
        if change not in CHANGES:
            raise unknown_name("change", change, CHANGES)
        draw = np.random.default_rng(rng.derive(self._seed, "changes", change, number))
        supply = _Supply(self._pools, draw)
        labels = range(len(self._classes))
        train = {c: supply.take("clean", self._classes[c], self._size) for c in labels}
        kinds = self._kinds(change, draw)
        reference = {c: supply.take("clean", self._classes[c], self._size) for c in labels}
        counts = draw.multinomial(self._size * len(labels), self._mix(change, draw))
        archived: dict[int, list[np.ndarray]] = {c: [] for c in labels}
        parts: list[tuple[int, np.ndarray]] = []
        for c, count in enumerate(counts.tolist()):
            earlier = list(draw.permutation(self._concepts))
            # Every class has an earlier concept, which returns or does not.
            archived[c] = [supply.take(earlier[0], self._classes[c], self._archived)]
            if c not in kinds:
                parts.append((c, supply.take("clean", self._classes[c], count)))
            elif kinds[c] == "recurring":
                parts.append((c, supply.take(earlier[0], self._classes[c], count)))
            else:
                novel = count if kinds[c] == "drift" else round(self._fraction(draw) * count)
                parts.append((c, self._novel(c, novel, earlier[1:], supply, draw)))
                if count > novel:
                    parts.append((c, supply.take("clean", self._classes[c], count - novel)))
        if change.startswith("new class"):
            parts.append((NOBODY, self._nobody(change, supply, draw)))
        window = Window(
            change=change,
            train=train,
            reference=reference,
            archived=archived,
            current=np.concatenate([part for _, part in parts]),
            labels=np.concatenate([np.full(len(part), c) for c, part in parts]),
            annotators=draw.integers(0, NUM_ANNOTATORS, sum(len(part) for _, part in parts)),
            kinds=kinds,
        )
        if change == "careless annotator":
            window = self._mislabelled(window, number, draw)
        if change == "broken sensor":
            window = self._broken(window, supply, draw)
        return _shuffled(window, draw)

    def _kinds(self, change: str, draw: np.random.Generator) -> dict[int, str]:
        """The classes that change, one to three of them, and how."""
        most = min(int(draw.integers(1, 4)), len(self._classes))
        chosen = draw.choice(len(self._classes), size=most, replace=False)
        if change == "several":
            three = draw.permutation(len(self._classes))[:3].tolist()
            return dict(zip(three, ("drift", "new mode", "recurring"), strict=False))
        changes = change in ("drift", "new mode", "recurring")
        return dict.fromkeys(sorted(chosen.tolist()), change) if changes else {}

    def _fraction(self, draw: np.random.Generator) -> float:
        """The fraction of a class that is new where a mode is added to it."""
        return float(draw.uniform(*self._new_fraction))

    def _mix(self, change: str, draw: np.random.Generator) -> np.ndarray:
        """The probability of each class: even, or with weights between 1 and 4."""
        weights = np.ones(len(self._classes))
        if change == "mix":
            weights = 4.0 ** draw.random(len(self._classes))
            weights[draw.permutation(len(weights))[:2]] = 1.0, 4.0
        share: np.ndarray = weights / weights.sum()
        return share

    def _novel(
        self,
        c: int,
        count: int,
        concepts: Sequence[str],
        supply: _Supply,
        draw: np.random.Generator,
    ) -> np.ndarray:
        """Samples of a class as it was never seen: another concept, or another subclass."""
        siblings = tuple(self._siblings.get(c, ()))
        if siblings and (not concepts or draw.random() < 0.5):
            return supply.take("clean", siblings, count)
        return supply.take(concepts[0], self._classes[c], count)

    def _nobody(self, change: str, supply: _Supply, draw: np.random.Generator) -> np.ndarray:
        """Samples of one class that nobody knows."""
        if change.endswith("near"):
            c = int(draw.integers(len(self._classes)))
            subclass = int(draw.choice(np.array(self._siblings[c])))
        else:
            subclass = int(draw.choice(np.array(self._strangers)))
        return supply.take(
            "clean", (subclass,), int(draw.integers(self._size // 2, self._size + 1))
        )

    def _mislabelled(self, window: Window, number: int, draw: np.random.Generator) -> Window:
        """One of the annotators is wrong in 60 to 100 % of answers."""
        who = draw.integers(NUM_ANNOTATORS)
        mine = window.annotators == who
        wrong = careless_labels(
            window.labels,
            float(draw.uniform(0.6, 1.0)),
            np.arange(len(self._classes)),
            seed=rng.derive(self._seed, number),
        )
        return replace(window, labels=np.where(mine, wrong, window.labels))

    def _broken(self, window: Window, supply: _Supply, draw: np.random.Generator) -> Window:
        """10 to 30 % of the samples of all classes are black, a stuck reading, or shifted."""
        fault = draw.choice(["black", "stuck", "shifted"])
        current = window.current.copy()
        hit = np.flatnonzero(draw.random(len(current)) < draw.uniform(0.1, 0.3))
        if fault == "black":
            current[hit] = next(iter(self._pools["black"].values()))[0]
        elif fault == "stuck":
            current[hit] = current[hit[0]]
        else:
            for c, subclasses in enumerate(self._classes):
                mine = hit[window.labels[hit] == c]
                current[mine] = supply.take("shifted", subclasses, len(mine))
        return replace(window, current=current)


class _Supply:
    """Takes samples out of pools, none of them twice in a window."""

    def __init__(self, pools: Pools, draw: np.random.Generator) -> None:
        self._pools = pools
        self._draw = draw
        self._left: dict[tuple[str, int], list[int]] = {}

    def take(self, concept: str, subclasses: Sequence[int], count: int) -> np.ndarray:
        """So many samples, the subclasses in turn."""
        taken = []
        for place, subclass in enumerate(subclasses):
            pool = self._pools[concept][subclass]
            left = self._left.setdefault(
                (concept, subclass), self._draw.permutation(len(pool)).tolist()
            )
            wanted = (count + len(subclasses) - 1 - place) // len(subclasses)
            if wanted > len(left):
                raise UserError(
                    f"a window needs {wanted} more samples of the concept {concept} of subclass"
                    f" {subclass}; {len(left)} of {len(pool)} are left: give larger pools"
                )
            taken.append(pool[left[:wanted]])
            del left[:wanted]
        return np.concatenate(taken)


def _shuffled(window: Window, draw: np.random.Generator) -> Window:
    order = draw.permutation(len(window.current))
    return replace(
        window,
        current=window.current[order],
        labels=window.labels[order],
        annotators=window.annotators[order],
    )
