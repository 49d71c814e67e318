"""The live learner as a scikit-learn estimator."""

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
from driftwise.config import registry
from driftwise.config.fields import shown
from driftwise.errors import UserError
from driftwise.live.components import can_grow, num_outputs_of
from driftwise.live.input_reader import UNKNOWN
from driftwise.live.live_learner import LiveLearner
from driftwise.live.reporter import Observation
from driftwise.live.settings import LiveSettings


class LiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A `LiveLearner` as a classifier: `partial_fit` observes a batch, `fit` starts afresh.

    Without a `network` it learns with a small one, or with none where the `method` is analytic (ncm,
    slda, ridge). With a torch module as `network`, label k is output k if the first labels are whole numbers
    from 0 on; later labels are too, and the network grows for them. Other labels (texts, negative
    numbers, numbers beyond `max_classes`) take its outputs in the order of `classes`, or else of
    appearance, sorted within a batch.

    `classes_` holds the labels of `fit`, or the `classes` of the first `partial_fit`, or else all
    labels so far. In this last case a module whose outputs are labels may have been trained before,
    and all its outputs are known from the start. Outputs without a known label are not predicted;
    their probability is shared among the others.

    >>> samples = np.eye(3).repeat(20, axis=0)
    >>> names = np.array(["ant", "bee", "cat"]).repeat(20)
    >>> LiveClassifier().fit(samples, names).predict(samples[::20])
    array(['ant', 'bee', 'cat'], dtype='<U3')
    """

    def __init__(
        self,
        network: nn.Module | str | None = None,
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
        """Parameters are those of `LiveLearner`; all others go into `settings`.

        `fit` goes over the samples once, in batches and in random order, then `epochs` - 1 times
        over the replay buffer. Unlabelled samples have the label -1, by scikit-learn's convention,
        None or NaN; they are monitored for drift and not learned. `unlabelled` is another mark in
        place of -1; None: there is none, and -1 is a label.
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
        """Learn from labelled samples; everything before is forgotten.

        Args:
            X: (samples, features); images are floats (samples[, channels], height, width) or bytes
                (samples, height, width[, channels]).
            y: Labels, (samples,).
        """
        if y is None:
            raise UserError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        with self._unless_refused():
            samples, labels, known = self._checked(X, y, reset=True)
            if not len(labels):
                raise UserError("y has no label: expected one for some samples at least")
            if len(set(labels.tolist())) == 1 and self.unlabelled in set(np.asarray(y).tolist()):
                raise UserError(
                    f"y has one label beside {self.unlabelled!r}, which marks samples without one; "
                    "if it is a label, give unlabelled=None"
                )
            draw = check_random_state(self.random_state)
            self._begin(draw, samples)
            self._add_labels(labels, are_all=True)
            outputs = self._outputs_for(labels, known)
            # Labelled samples first: unlabelled ones are monitored by predicted class.
            order = draw.permutation(len(samples))
            order = order[np.argsort(~known[order], kind="stable")]
            for start in range(0, len(samples), self.batch_size):
                some = order[start : start + self.batch_size]
                self.live_learner_.observe(samples[some], outputs[some])
            steps = -(-min(self.buffer_size, len(samples)) // self.batch_size)
            self.live_learner_.rehearse((self.epochs - 1) * steps)
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        classes: Any = None,
    ) -> LiveClassifier:
        """Observe a batch: predict it, then monitor, adapt and learn. The report is `observation_`.

        Args:
            X: As for `fit`.
            y: Labels, (samples,); None: unlabelled.
            classes: At the first call all labels that may come, as elsewhere in scikit-learn;
                None: new labels may come at any time.
        """
        with self._unless_refused():
            is_first = not hasattr(self, "live_learner_")
            samples, labels, known = self._checked(X, y, reset=is_first)
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
            unknown = set(labels.tolist()).difference(self._output_of)
            if unknown and self._announced:
                raise UserError(
                    f"y has the label {min(unknown)!r}; expected one of "
                    f"{self.classes_.tolist()}, the classes that were announced at first"
                )
            if unknown or (len(labels) and self._labels_are_outputs is None):
                self._add_labels(labels)
            outputs = self._outputs_for(labels, known)
            self.observation_: Observation = self.live_learner_.observe(samples, outputs)
        return self

    @contextlib.contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """A call that is refused changes nothing."""
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
        best = self.predict_proba(X).argmax(axis=1)
        labels: np.ndarray = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities, (samples, classes), in the order of `classes_`; a sample's sum is 1."""
        check_is_fitted(self)
        raw = self.live_learner_.predict_proba(self._samples(X, reset=False))
        outputs = np.array([self._output_of[label] for label in self.classes_.tolist()], int)
        # A class that is announced, and has not come, may have no output yet.
        has_output = outputs < raw.shape[1]
        probabilities = np.zeros((len(raw), len(outputs)))
        probabilities[:, has_output] = raw[:, outputs[has_output]]
        # A network that is sure of an unknown label leaves 0 for all known ones.
        is_zero = ~probabilities.any(axis=1)
        probabilities[is_zero] = has_output if has_output.any() else 1.0
        shares: np.ndarray = probabilities / probabilities.sum(axis=1, keepdims=True)
        return shares

    # Labels and outputs

    def _begin(self, draw: np.random.RandomState, samples: np.ndarray) -> None:
        """Make a new live learner for samples like these."""
        names = ("buffer_size", "epochs", "batch_size")
        buffer_size, _, batch_size = (_count(name, getattr(self, name)) for name in names)
        settings = self._other_settings()
        own: dict[str, Any] = {"batch_size": batch_size}
        if not registry.is_analytic(self.method):
            own |= {"minibatch_size": batch_size, "lr": self.lr}
        self.live_learner_ = LiveLearner(
            self.network,
            buffer_size=buffer_size,
            method=self.method,
            detector=self.detector,
            adaptation=self.adaptation,
            **{**own, "seed": int(draw.randint(2**31 - 1)), **settings},
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
        # Whether each label is the index of its output; None: no label has come.
        self._labels_are_outputs: bool | None = None
        self._announced = False

    def _other_settings(self) -> dict[str, Any]:
        """The settings that are not parameters here."""
        settings: Any = {} if self.settings is None else self.settings
        if not isinstance(settings, Mapping):
            raise UserError(
                "settings must be a mapping of names to values, such as {'check_rows': 30}; got "
                f"{shown(settings)}"
            )
        for name, value in settings.items():
            if not isinstance(name, str):
                raise UserError(
                    f"settings must have texts for names, see LiveSettings; got {shown(name)}"
                )
            if name in self.get_params(deep=False):
                raise UserError(
                    "settings are for what is not a parameter; got "
                    f"{name!r}: give it as {type(self).__name__}({name}=...)"
                )
            if name == "labels":
                raise UserError(
                    "settings must not have 'labels': the estimator requests none; got "
                    f"{shown(value)}: leave it out, or use a LiveLearner"
                )
        return dict(settings)

    def _announce(self, classes: np.ndarray, *, is_first: bool) -> None:
        """Fix the classes, or check that they are as at the first call."""
        if is_first:
            self._add_labels(classes, are_all=True, in_order=True)
            self._announced = True
        elif not np.array_equal(np.unique(classes), self.classes_):
            raise UserError(
                f"classes were {self.classes_.tolist()} at first; got {classes.tolist()}: give "
                "them once, or leave them out"
            )

    def _add_labels(
        self, labels: np.ndarray, *, are_all: bool = False, in_order: bool = False
    ) -> None:
        """Give each new label an output; `classes_` is sorted, outputs need not be.

        `are_all`: there are no others, whatever outputs there are. `in_order`: of `labels`.
        """
        is_output = _is_whole(labels, below=self._max_outputs)
        if self._labels_are_outputs is None:
            self._labels_are_outputs = bool(is_output.all())
            before = (
                self.classes_ if self._labels_are_outputs and not are_all else self.classes_[:0]
            )
            cast = before.astype(labels.dtype)  # a short type may not hold all numbers
            self.classes_ = cast if bool((cast == before).all()) else before
        elif (labels.dtype.kind == "U") != (self.classes_.dtype.kind == "U"):
            raise UserError(
                f"labels must be all numbers or all texts; got {labels[0]!r} after "
                f"{self.classes_[0]!r}"
            )
        elif self._labels_are_outputs and not is_output.all():
            raise UserError(
                "labels are indices of the network's outputs here, from 0 to "
                f"{self._max_outputs - 1}; got {labels[~is_output].tolist()[0]!r}: announce all "
                "classes at first (classes=), or give the network more outputs"
            )
        outputs = {label: self._output_of[label] for label in self.classes_.tolist()}
        self.classes_ = np.unique(np.concatenate([self.classes_, labels]))
        for label in (labels if in_order else np.unique(labels)).tolist():
            outputs.setdefault(label, int(label) if self._labels_are_outputs else len(outputs))
        self._output_of = outputs

    def _outputs_for(self, labels: np.ndarray, known: np.ndarray) -> np.ndarray:
        """int64 (samples,): the output of each label, UNKNOWN where there is none."""
        outputs = np.full(len(known), UNKNOWN)
        names, where = np.unique(labels, return_inverse=True)
        outputs[known] = np.array([self._output_of[name] for name in names.tolist()], int)[where]
        return outputs

    def _checked(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        reset: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Samples, the known labels, and bool (samples,): which samples have one."""
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
        """Floats, or images as bytes, in the shapes that networks take."""
        refuse_odd(X, "X")
        samples: np.ndarray = validate_data(
            self, X, reset=reset, dtype=[np.float32, np.uint8], allow_nd=True
        )
        is_bytes = samples.dtype == np.uint8
        if samples.ndim == 3:
            return samples[..., None] if is_bytes else samples[:, None]
        return samples.astype(np.float32) if is_bytes and samples.ndim == 2 else samples


def _count(name: str, value: Any) -> int:
    """A parameter that is a count, of Python or numpy."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise UserError(
            f"{name} must be a whole number, at least 1; got {shown(value)}: give one, or leave "
            f"it out for {getattr(LiveClassifier(), name)}"
        )
    return int(value)


def _is_whole(labels: np.ndarray, *, below: int) -> np.ndarray:
    """bool (labels,): which are whole numbers from 0 to `below` - 1."""
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
    """An array of numbers or texts out of one of objects."""
    if labels.dtype != object or not len(labels):
        return labels
    are_texts = {isinstance(label, str) for label in labels.tolist()}
    plain = np.array(labels.tolist()) if len(are_texts) == 1 else labels
    if plain.ndim != 1 or plain.dtype.kind not in "biufU":
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise UserError(f"labels must be all numbers or all texts; got {', '.join(kinds)}")
    return plain
