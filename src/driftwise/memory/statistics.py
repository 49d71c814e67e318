"""Class statistics: what analytic methods keep instead of samples."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.memory.shared_scatter import SharedScatter
from driftwise.types import Moments

Scatter = Literal["class", "shared", "none"]
"""Whose deviations from class means are summed: each class's own, those of all, nobody's."""

_SCATTERS = ("class", "shared", "none")


class ClassStatistics:
    """Counts, means and scatters of classes of vectors: exact, in any order of arrival.

    A class takes `8 (d + 1)` bytes, and `8 d²` more with `scatter="class"`; `scatter="shared"` takes
    `8 d²` bytes for all classes together, and `8 d` for each of at most 32 samples that wait to be
    summed. Nothing grows with the number of samples.

    >>> statistics = ClassStatistics()
    >>> statistics.add(torch.tensor([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0]]), torch.tensor([0, 0, 1]))
    >>> statistics.counts(), statistics.moments(0).mean.tolist()
    ({0: 2.0, 1: 1.0}, [1.0, 1.0])
    """

    def __init__(self, *, scatter: Scatter = "class") -> None:
        """Statistics of no samples.

        Args:
            scatter: `class` makes it exact to drop or forget a class. `shared` is for many classes:
                the part of one class is then taken to be in proportion to its samples. `none` is
                enough for nearest class means.
        """
        if scatter not in _SCATTERS:
            raise UserError(f"scatter must be one of {', '.join(_SCATTERS)}; got {scatter!r}")
        self.kind = scatter
        self.version = 0
        """grows with every change"""
        self._classes: dict[int, Moments] = {}
        self._shared: SharedScatter | None = None
        self._prior: tuple[Tensor, float] | None = None
        self._dropped: dict[int, Moments] = {}
        """counts and means of classes that were dropped and have not come again"""

    def __len__(self) -> int:
        return len(self._classes)

    @property
    def labels(self) -> tuple[int, ...]:
        """The classes, sorted."""
        return tuple(sorted(self._classes))

    @property
    def dropped(self) -> tuple[int, ...]:
        """Classes that were dropped and have not come again."""
        return tuple(self._dropped)

    @property
    def dimension(self) -> int | None:
        """Features of a vector; None while there is none."""
        return next((len(each.mean) for each in self._classes.values()), None)

    def counts(self) -> dict[int, float]:
        """Samples of each class; a fraction of a sample may be left by `scale`."""
        return {label: self._classes[label].count for label in self.labels}

    def moments(self, label: int) -> Moments:
        """What is kept of one class."""
        return self._classes[label]

    def means(self) -> Tensor:
        """The means of all classes, (classes, d), in the order of `labels`."""
        return torch.stack([self._classes[label].mean for label in self.labels])

    def pooled(self) -> tuple[Tensor, float]:
        """The scatter within classes, (d, d), and its degrees of freedom.

        It includes the scatter of dropped classes, at the weight of at most d samples: the shape of
        classes outlives their position. When a dropped class comes again, elsewhere, the way from
        its old mean to its new one counts as scatter, too: where classes have drifted, they are less
        to be relied on.
        """
        if self.kind == "none":
            raise UserError("these statistics keep no scatter: make them with scatter='shared'")
        freedom = sum(max(0.0, each.count - 1) for each in self._classes.values())
        if self.kind == "shared":
            assert self._shared is not None
            scatter = self._shared.total()
        else:
            scatter = torch.zeros_like(self._scatter(self.labels[0]))
            for label in self.labels:
                scatter += self._scatter(label)
        if self._prior is not None:
            scatter += self._prior[0]
            freedom += self._prior[1]
        return scatter, freedom

    def covariance(self, label: int) -> Tensor:
        """The mean outer product of a class's deviations from its mean, (d, d).

        A shared scatter gives all classes the same one.
        """
        if self.kind == "class":
            return self._scatter(label) / self._classes[label].count
        scatter, freedom = self.pooled()
        return scatter / max(freedom, 1.0)

    def add(self, vectors: Tensor, labels: Tensor) -> None:
        """Count labelled vectors, (samples, d) and (samples,)."""
        self._check(vectors, labels)
        if not len(labels):
            return
        vectors = vectors.double()
        self.version += 1
        found, place, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        new = counts.double()[:, None]
        means = torch.zeros(len(found), vectors.shape[1], dtype=torch.float64)
        means.index_add_(0, place, vectors).div_(new)
        nothing = [Moments(count=0.0, mean=mean, scatter=None) for mean in means]
        held = [self._classes.get(c, none) for c, none in zip(found.tolist(), nothing, strict=True)]
        old = torch.tensor([each.count for each in held], dtype=torch.float64)[:, None]
        shift = means - torch.stack([each.mean for each in held])
        within = vectors - means[place]
        between = (old * new / (old + new)).sqrt() * shift
        grown = means - (old / (old + new)) * shift
        if self.kind == "shared":
            if self._shared is None:
                self._shared = SharedScatter.of_dimension(vectors.shape[1])
            # The deviations of a sample that is alone in its class are zero.
            self._shared.add(between if len(found) == len(labels) else torch.cat([within, between]))
        for i, label in enumerate(found.tolist()):
            scatter = held[i].scatter
            if self.kind == "class":
                rows = torch.cat([within[place == i], between[i : i + 1]])
                products = rows.T @ rows
                scatter = products if scatter is None else scatter + products
            self._classes[label] = Moments(
                count=float(old[i] + new[i]), mean=grown[i].clone(), scatter=scatter
            )
            self._retire_shift(label)

    def remove(self, vectors: Tensor, labels: Tensor) -> None:
        """Undo `add` of these very samples; a class without samples is gone."""
        self._check(vectors, labels)
        if not len(labels):
            return
        wanted = {label: int((labels == label).sum()) for label in torch.unique(labels).tolist()}
        for label, count in wanted.items():
            held = self._classes[label].count if label in self._classes else 0.0
            if count > held:
                raise UserError(
                    f"expected at most {held:g} samples of class {label}, as many as were added; "
                    f"got {count} to forget"
                )
        shared = None if self._shared is None else self._shared.total()
        changed: dict[int, Moments] = {}
        for label, count in wanted.items():
            old = self._classes[label]
            left = old.count - count
            deviations = vectors[labels == label].double() - old.mean
            mean = old.mean - deviations.sum(dim=0) / max(left, 1.0)
            removed = torch.cat([deviations, max(left, 0.0) ** 0.5 * (mean - old.mean)[None]])
            scatter = old.scatter
            if shared is not None:
                shared.addmm_(removed.T, removed, alpha=-1.0)
            if scatter is not None:
                scatter = scatter - removed.T @ removed
                _refuse_strangers(vectors, self._scatter(label), scatter)
            changed[label] = Moments(count=left, mean=mean, scatter=scatter)
        if shared is not None and self._shared is not None:
            _refuse_strangers(vectors, self._shared.total(), shared)
        self.version += 1
        self._shared = None if shared is None else SharedScatter(shared)
        self._classes |= changed
        self._classes = {c: each for c, each in self._classes.items() if each.count >= 1e-9}

    def scale(self, label: int, factor: float) -> None:
        """Count every sample of a class as `factor` of one; 0 drops the class.

        What goes leaves its shape in `pooled`, as by `drop`.
        """
        if not 0 <= factor <= 1:
            raise UserError(f"factor must be 0 to 1; got {factor}")
        old = self._classes[label]
        if factor == 0 and self.kind != "none":
            self._dropped[label] = dataclasses.replace(old, scatter=None)
        freedom = (1 - factor) * max(0.0, old.count - 1)
        scatter = self._take(label, 1 - factor)
        if scatter is not None and freedom:
            self._retire(scatter, freedom)

    def drop(self, label: int) -> float:
        """Drop the position of a class and keep its shape in `pooled`; returns its samples."""
        if label not in self._classes:
            return 0.0
        count = self._classes[label].count
        self.scale(label, 0.0)
        return count

    def forget(self, label: int) -> float:
        """Remove everything that samples of a class brought; returns their number.

        Exact with `scatter="class"`, unless samples of the class were dropped before: their shape
        is part of `pooled`.
        """
        self._dropped.pop(label, None)
        if label not in self._classes:
            return 0.0
        count = self._classes[label].count
        self._take(label, 1.0)
        return count

    def clear(self) -> None:
        """Forget everything, the shape of dropped classes included."""
        self.version += 1
        self._classes, self._shared, self._prior, self._dropped = {}, None, None, {}

    def replace(self, label: int, moments: Moments) -> None:
        """Put earlier statistics of a class in the place of its present ones."""
        self.version += 1
        self.drop(label)
        self._dropped.pop(label, None)
        if self._shared is not None:
            # Its own scatter is not known: as much as others of its size have.
            scatter, freedom = self.pooled()
            weight = max(0.0, moments.count - 1) / max(freedom, 1.0)
            self._shared = SharedScatter(self._shared.total() + weight * scatter)
            moments = dataclasses.replace(moments, scatter=None)
        self._classes[label] = moments

    def nbytes(self) -> int:
        """Bytes of all numbers kept."""
        arrays = [each.mean for each in self._classes.values()]
        arrays += [each.scatter for each in self._classes.values() if each.scatter is not None]
        arrays += [] if self._prior is None else [self._prior[0]]
        arrays += [each.mean for each in self._dropped.values()]
        shared = 0 if self._shared is None else self._shared.nbytes
        return shared + sum(array.nbytes for array in arrays)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        labels = self.labels
        state: dict[str, Any] = {"kind": self.kind, "labels": list(labels)}
        if labels:
            state["counts"] = torch.tensor(list(self.counts().values()), dtype=torch.float64)
            state["means"] = self.means()
        if self.kind == "class" and labels:
            state["scatters"] = torch.stack([self._scatter(label) for label in labels])
        if self._shared is not None:
            state |= self._shared.state_dict()
        if self._prior is not None:
            state["prior"], state["prior_freedom"] = self._prior
        if self._dropped:
            dropped = self._dropped.values()
            state["dropped"] = list(self._dropped)
            state["dropped_means"] = torch.stack([each.mean for each in dropped])
            state["dropped_counts"] = torch.tensor([each.count for each in dropped]).double()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; ValueError where the state is of another kind."""
        labels = state["labels"]
        if state["kind"] != self.kind:
            raise ValueError(f"expected statistics with scatter {self.kind}; got {state['kind']}")
        if len(set(labels)) != len(labels) or not all(type(label) is int for label in labels):
            raise ValueError("expected each class once, as a whole number")
        self.version += 1
        self._classes = {}
        dimension = state["means"].shape[1] if labels else 0
        shapes = {"counts": (), "means": (dimension,), "scatters": (dimension, dimension)}
        for name, shape in shapes.items():
            values = state.get(name)
            if values is not None and (
                values.dtype != torch.float64 or values.shape != (len(labels), *shape)
            ):
                raise ValueError(f"expected {name} as float64 {(len(labels), *shape)}")
        for name in ("shared", "prior"):
            if name in state and state[name].shape != (dimension, dimension) and labels:
                raise ValueError(f"expected {name} as float64 {(dimension, dimension)}")
        for position, label in enumerate(labels):
            self._classes[label] = Moments(
                count=float(state["counts"][position]),
                mean=state["means"][position],
                scatter=state["scatters"][position] if self.kind == "class" else None,
            )
        self._shared = SharedScatter.of_state(state)
        self._prior = (state["prior"], float(state["prior_freedom"])) if "prior" in state else None
        self._dropped = {
            label: Moments(
                count=float(state["dropped_counts"][position]),
                mean=state["dropped_means"][position],
                scatter=None,
            )
            for position, label in enumerate(state.get("dropped", ()))
        }

    def _check(self, vectors: Tensor, labels: Tensor) -> None:
        if vectors.ndim != 2 or len(vectors) != len(labels):
            raise UserError(
                "expected vectors, (samples, features), with a label each; got the shapes "
                f"{tuple(vectors.shape)} and {tuple(labels.shape)}"
            )
        if self.dimension is not None and vectors.shape[1] != self.dimension:
            raise UserError(
                f"expected vectors of {self.dimension} features, as before; got {vectors.shape[1]}"
            )
        check_labels(labels)

    def _scatter(self, label: int) -> Tensor:
        scatter = self._classes[label].scatter
        assert scatter is not None
        return scatter

    def _take(self, label: int, fraction: float) -> Tensor | None:
        """Remove a fraction of the weight of a class; returns the scatter that goes with it."""
        self.version += 1
        old = self._classes[label]
        going = None if old.scatter is None else fraction * old.scatter
        kept = None if going is None or old.scatter is None else old.scatter - going
        if self._shared is not None:
            total = sum(each.count for each in self._classes.values())
            shared = self._shared.total()
            going = shared * (fraction * old.count / total)
            self._shared = SharedScatter(shared - going)
        self._classes[label] = Moments(
            count=(1 - fraction) * old.count, mean=old.mean, scatter=kept
        )
        if fraction == 1:
            del self._classes[label]
        return going

    def _retire_shift(self, label: int) -> None:
        """Count the way of a class that was dropped and has come again as scatter.

        It weighs as much as it would if old and new samples were one class.
        """
        old, new = self._dropped.pop(label, None), self._classes[label]
        if old is not None:
            shift = (old.count * new.count / (old.count + new.count)) ** 0.5 * (new.mean - old.mean)
            self._retire(torch.outer(shift, shift), 1.0)

    def _retire(self, scatter: Tensor, freedom: float) -> None:
        """Keep the scatter of a dropped class at the weight of at most d samples, older ones less."""
        before, known = self._prior or (torch.zeros_like(scatter), 0.0)
        total, most = before + scatter, float(len(scatter))
        weight = min(1.0, most / (known + freedom))
        self._prior = (weight * total, weight * (known + freedom))


def check_labels(labels: Tensor) -> None:
    """UserError for anything but classes, (samples,)."""
    if labels.is_floating_point() or bool((labels < 0).any()):
        raise UserError("expected labels as whole numbers from 0 on; leave out unlabelled samples")


def _refuse_strangers(vectors: Tensor, before: Tensor, after: Tensor) -> None:
    """UserError if what is left of a scatter is none: the vectors were no part of it."""
    # Rounding, also that of an encoder in single precision, is far below.
    slack = 1e-3 * before.diagonal().mean() + 1e-9 * vectors.double().square().mean() + 1e-30
    if torch.linalg.cholesky_ex(after + slack * torch.eye(len(after), dtype=after.dtype)).info:
        raise UserError(
            "expected samples to forget that were learned, with the labels they had then; these lie "
            "too far from their classes to be among what is kept of them"
        )
