"""The live learner for people who live in scikit-learn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import (
    assert_all_finite,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from driftwise.array_checks import refuse_odd
from driftwise.config.fields import shown
from driftwise.errors import UserError
from driftwise.live.inputs import UNKNOWN
from driftwise.live.live_learner import LiveLearner
from driftwise.live.reporter import Observation
from driftwise.live.components import can_grow, num_outputs_of
from driftwise.live.settings import LiveSettings


class LiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A `Keeper` as a classifier: `partial_fit` observes a batch, `fit` starts afresh.

    With a network of one's own, label k is output k where the first labels are whole numbers from
    0 on, and so are labels that come later, for which it grows. Where they are others (texts,
    numbers below 0 or beyond what it can grow to), labels take its outputs in the order of
    `classes`, or else of appearance, sorted within a batch.

    `classes_` holds the labels of `fit`, or the `classes` that `partial_fit` was told first, or
    else all that came. In this last case a network of one's own whose outputs are labels may have
    been trained before, and all of them are known from the first. Outputs whose label is not known
    are not predicted; what the network gives them is shared out among the others.

    >>> samples = np.eye(3).repeat(20, axis=0)
    >>> names = np.array(["ant", "bee", "cat"]).repeat(20)
    >>> LiveClassifier().fit(samples, names).predict(samples[::20])
    array(['ant', 'bee', 'cat'], dtype='<U3')
    """

    def __init__(
        self,
        network: nn.Module | str = "mlp",
        *,
        buffer_size: int = 500,
        method: str = "er",
        detector: str = "combined",
        adaptation: str = "amr",
        epochs: int = 20,
        batch_size: int = 32,
        lr: float | None = None,
        unlabelled: Any = UNKNOWN,
        random_state: int | np.random.RandomState | None = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Parameters are the `Keeper`'s, `settings` all those that have no place of their own.

        `fit` goes over the samples once, in batches and in random order, then `epochs` - 1 times over
        the memory. Samples without a label have -1 for one, by scikit-learn's convention, or None
        or NaN; they are watched for drift and not learned from. `unlabelled` is another mark in
        the place of -1, or None where there is none and -1 is a label.
        """
        self.network = network
        self.buffer_size = buffer_size
        self.method = method
        self.detector = detector
        self.adaptation = adaptation
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.unlabelled = unlabelled
        self.random_state = random_state
        self.settings = settings

    # Learning

    def fit(self, X: Any, y: Any) -> LiveClassifier:  # noqa: N803
        """Learn from samples and their labels, whatever was before.

        Samples are (samples, features); images are floats (samples[, channels], height, width) or bytes
        (samples, height, width[, channels]).
        """
        if y is None:
            raise UserError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        with self._unless_refused():
            samples, labels, known = self._taken(X, y, reset=True)
            if not len(labels):
                raise UserError("y has no label: expected one for some samples at least")
            if len(set(labels.tolist())) == 1 and self.unlabelled in set(np.asarray(y).tolist()):
                raise UserError(
                    f"y has one label beside {self.unlabelled!r}, which marks samples without one; "
                    "if it is a label, give unlabelled=None"
                )
            draw = check_random_state(self.random_state)
            self._begin(draw, samples)
            self._meet(labels, are_all=True)
            outputs = self._outputs_for(labels, known)
            # Labelled samples first: what the others look like can be told only from there on.
            order = draw.permutation(len(samples))
            order = order[np.argsort(~known[order], kind="stable")]
            for start in range(0, len(samples), self.batch_size):
                some = order[start : start + self.batch_size]
                self.keeper_.observe(samples[some], outputs[some])
            steps = -(-min(self.buffer_size, len(samples)) // self.batch_size)
            self.keeper_.rehearse((self.epochs - 1) * steps)
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        classes: Any = None,
    ) -> LiveClassifier:
        """Observe a batch: predict it, then watch, mend and learn; `y` may be missing.

        `classes` at the first call: all labels that may ever come, as elsewhere in scikit-learn.
        Without it labels may be new at any time. What was seen and done is in `observation_`.
        """
        with self._unless_refused():
            is_first = not hasattr(self, "keeper_")
            samples, labels, known = self._taken(X, y, reset=is_first)
            if is_first:
                self._begin(check_random_state(self.random_state), samples)
            if classes is not None:
                announced = _of_one_kind(column_or_1d(np.asarray(classes)))
                if not _is_known(announced, self.unlabelled).all():
                    raise UserError(
                        f"classes has {self.unlabelled!r}, which marks samples without a label; if "
                        "it is a label, give unlabelled=None"
                    )
                self._announce(announced, is_first=is_first)
            strangers = set(labels.tolist()).difference(self._output_of)
            if strangers and self._announced:
                raise UserError(
                    f"y has the label {min(strangers)!r}; expected one of "
                    f"{self.classes_.tolist()}, the classes that were announced at first"
                )
            if strangers or (len(labels) and self._keeps_outputs is None):
                self._meet(labels)
            outputs = self._outputs_for(labels, known)
            self.observation_: Observation = self.keeper_.observe(samples, outputs)
        return self

    @contextlib.contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """What is refused leaves no label, no class and no live learner behind."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # Predicting

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The labels, (samples,)."""
        probabilities = self.predict_proba(X)
        labels: np.ndarray = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities, (samples, classes), in the order of `classes_`; a sample's sum is 1."""
        check_is_fitted(self)
        said = self.keeper_.predict_proba(self._samples(X, reset=False))
        outputs = np.array([self._output_of[label] for label in self.classes_.tolist()], int)
        # A class that is announced, and has not come, may lie beyond the network's outputs.
        is_there = outputs < said.shape[1]
        probabilities = np.zeros((len(said), len(outputs)))
        probabilities[:, is_there] = said[:, outputs[is_there]]
        # Nothing may be left for these labels where a network is sure of one that is not known.
        is_lost = ~probabilities.any(axis=1)
        probabilities[is_lost] = is_there if is_there.any() else 1.0
        shares: np.ndarray = probabilities / probabilities.sum(axis=1, keepdims=True)
        return shares

    # What is within

    def _begin(self, draw: np.random.RandomState, samples: np.ndarray) -> None:
        """A live learner that has seen nothing, for samples like these."""
        counts = {
            name: _count(name, getattr(self, name))
            for name in ("buffer_size", "epochs", "batch_size")
        }
        settings = self._other_settings()
        self.keeper_ = LiveLearner(
            self.network,
            buffer_size=counts["buffer_size"],
            method=self.method,
            detector=self.detector,
            adaptation=self.adaptation,
            **{
                "batch_size": counts["batch_size"],
                "minibatch_size": counts["batch_size"],
                "lr": self.lr,
                "seed": int(draw.randint(2**31 - 1)),
                **settings,
            },
        )
        outputs = self._max_outputs = 0
        if isinstance(self.network, nn.Module):
            first = torch.from_numpy(samples[:2].copy())
            outputs = num_outputs_of(self.network, first)
            grows = settings.get("grow", LiveSettings.grow) and can_grow(self.network, first)
            most = settings.get("max_classes", LiveSettings.max_classes)
            self._max_outputs = max(outputs, most if grows else 0)
        self.classes_: np.ndarray = np.arange(outputs)
        self._output_of: dict[Any, int] = {number: number for number in range(outputs)}
        # Whether a label is the number of its output; None: no label has come that tells.
        self._keeps_outputs: bool | None = None
        self._announced = False

    def _other_settings(self) -> dict[str, Any]:
        """Those of a live learner that are no parameters here."""
        if self.settings is None:
            return {}
        if not isinstance(self.settings, Mapping):
            raise UserError(
                "settings must be a mapping of names to values, such as {'check_rows': 30}; got "
                f"{shown(self.settings)}"
            )
        for name in self.settings:
            if not isinstance(name, str):
                raise UserError(
                    f"settings must have texts for names, see LiveSettings; got {shown(name)}"
                )
            if name in self.get_params(deep=False):
                raise UserError(
                    "settings are for what is no parameter of its own; got "
                    f"{name!r}: give it as {type(self).__name__}({name}=...)"
                )
        if "labels" in self.settings:
            raise UserError(
                "settings must do without 'labels', which cannot be asked for through the "
                f"estimator; got {shown(self.settings['labels'])}: leave it out, or use a Keeper"
            )
        return dict(self.settings)

    def _announce(self, classes: np.ndarray, *, is_first: bool) -> None:
        """These are all the classes that there will be."""
        if is_first:
            self._meet(classes, are_all=True, in_order=True)
            self._announced = True
        elif not np.array_equal(np.unique(classes), self.classes_):
            raise UserError(
                f"classes were {self.classes_.tolist()} at first; got {classes.tolist()}: say them"
                " once, or leave them out"
            )

    def _meet(self, labels: np.ndarray, *, are_all: bool = False, in_order: bool = False) -> None:
        """Give labels that are new an output; `classes_` stays sorted, which outputs need not be.

        `are_all`: others are not known, whatever outputs there are. `in_order`: theirs counts.
        """
        is_output = _is_whole(labels, below=self._max_outputs)
        if self._keeps_outputs is None:
            self._keeps_outputs = bool(is_output.all())
            before = self.classes_ if self._keeps_outputs and not are_all else self.classes_[:0]
            alike = before.astype(labels.dtype)  # which may be too short a type to count so far
            self.classes_ = alike if bool((alike == before).all()) else before
        elif (labels.dtype.kind == "U") != (self.classes_.dtype.kind == "U"):
            raise UserError(
                f"labels are numbers, or texts, all alike; got {labels[0]!r} after "
                f"{self.classes_[0]!r}"
            )
        elif self._keeps_outputs and not is_output.all():
            raise UserError(
                "labels are numbers of the network's outputs here, from 0 to "
                f"{self._max_outputs - 1}; got {labels[~is_output].tolist()[0]!r}: announce all "
                "classes at first (classes=), or give the network more outputs"
            )
        outputs = {label: self._output_of[label] for label in self.classes_.tolist()}
        self.classes_ = np.unique(np.concatenate([self.classes_, labels]))
        for label in (labels if in_order else np.unique(labels)).tolist():
            outputs.setdefault(label, int(label) if self._keeps_outputs else len(outputs))
        self._output_of = outputs

    def _outputs_for(self, labels: np.ndarray, known: np.ndarray) -> np.ndarray:
        """int64 (samples,), UNKNOWN where there is no label."""
        outputs = np.full(len(known), UNKNOWN)
        names, where = np.unique(labels, return_inverse=True)
        outputs[known] = np.array([self._output_of[name] for name in names.tolist()], int)[where]
        return outputs

    def _taken(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        reset: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples, the labels that are known, and bool (samples,): which samples have one."""
        samples = self._samples(X, reset=reset)
        if np.ndim(self.unlabelled):
            raise UserError(
                "unlabelled must be one label, a number or a text, or None; got "
                f"{shown(self.unlabelled)}: mark all samples without a label alike"
            )
        if y is None:
            return samples, np.empty(0, dtype=int), np.zeros(len(samples), dtype=bool)
        refuse_odd(y, "y")
        labels = column_or_1d(y, warn=True)
        check_consistent_length(samples, labels)
        known = _is_known(labels, self.unlabelled)
        labels = _of_one_kind(labels[known])
        if len(labels):
            assert_all_finite(labels, input_name="y")
            check_classification_targets(labels)
        return samples, labels, known

    def _samples(self, X: Any, *, reset: bool) -> np.ndarray:  # noqa: N803
        """Floats as networks take them, or images as bytes."""
        refuse_odd(X, "X")
        samples: np.ndarray = validate_data(
            self, X, reset=reset, dtype=[np.float32, np.uint8], allow_nd=True
        )
        is_bytes = samples.dtype == np.uint8
        if samples.ndim == 3:
            return samples[..., None] if is_bytes else samples[:, None]
        return samples.astype(np.float32) if is_bytes and samples.ndim == 2 else samples


def _count(name: str, value: Any) -> int:
    """A parameter that counts something; numpy's whole numbers are as good as any."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UserError(
            f"{name} must be a whole number, at least 1; got {shown(value)}: give one, or leave "
            f"it out for {getattr(LiveClassifier(), name)}"
        )
    return int(value)


def _is_whole(labels: np.ndarray, *, below: int) -> np.ndarray:
    """bool (labels,): which are whole numbers from 0 on."""
    if labels.dtype.kind not in "biuf":
        return np.zeros(len(labels), dtype=bool)
    whole: np.ndarray = (labels >= 0) & (labels < below) & (labels % 1 == 0)
    return whole


def _is_known(labels: np.ndarray, unlabelled: Any) -> np.ndarray:
    """bool (samples,): which are labels."""
    if labels.dtype == object:
        is_missing = [
            label is None or label == unlabelled or (isinstance(label, float) and label != label)
            for label in labels.tolist()
        ]
        return ~np.array(is_missing, dtype=bool)
    known = ~np.isnan(labels) if labels.dtype.kind == "f" else np.ones(len(labels), dtype=bool)
    if unlabelled is not None and isinstance(unlabelled, str) == (labels.dtype.kind == "U"):
        known &= labels != unlabelled
    return known


def _of_one_kind(labels: np.ndarray) -> np.ndarray:
    """Numbers or texts; those that stood beside None are objects no longer."""
    if labels.dtype != object or not len(labels):
        return labels
    are_texts = {isinstance(label, str) for label in labels.tolist()}
    plain = np.array(labels.tolist()) if len(are_texts) == 1 else labels
    if plain.ndim != 1 or plain.dtype.kind not in "biufU":
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise UserError(f"labels are numbers, or texts, all alike; got {', '.join(kinds)}")
    return plain
