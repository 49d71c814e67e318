"""The live learner for people who live in scikit-learn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
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

from recollect.errors import UserError
from recollect.live.intake import UNKNOWN
from recollect.live.keeper import Keeper
from recollect.live.observation import Observation


class KeeperClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A `Keeper` as a classifier: `partial_fit` observes a batch, `fit` starts afresh.

    >>> rows = np.eye(3).repeat(20, axis=0)
    >>> names = np.array(["ant", "bee", "cat"]).repeat(20)
    >>> KeeperClassifier().fit(rows, names).predict(rows[::20])
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
        lr: float = 0.1,
        unlabelled: Any = None,
        random_state: int | np.random.RandomState | None = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Parameters are the `Keeper`'s, `settings` all those that have no place of their own.

        `fit` goes over the rows once, in batches and in random order, then `epochs` - 1 times over
        the memory. Rows without a label have None or NaN for one, or what `unlabelled` says (-1,
        by scikit-learn's convention); they are watched for drift and not learned from.
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

    def fit(self, X: Any, y: Any) -> KeeperClassifier:  # noqa: N803
        """Learn from rows and their labels, whatever was before.

        Rows are (rows, features); pictures are floats (rows[, channels], height, width) or bytes
        (rows, height, width[, channels]).
        """
        if y is None:
            raise UserError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        rows, labels, known = self._taken(X, y, reset=True)
        if not len(labels):
            raise UserError("y has no label: expected one for some rows at least")
        draw = check_random_state(self.random_state)
        self._begin(draw)
        self._meet(labels)
        numbers = self._numbers(labels, known)
        # Labelled rows first: what the others look like can be told only from there on.
        order = draw.permutation(len(rows))
        order = order[np.argsort(~known[order], kind="stable")]
        for start in range(0, len(rows), self.batch_size):
            some = order[start : start + self.batch_size]
            self.keeper_.observe(rows[some], numbers[some])
        steps = -(-min(self.buffer_size, len(rows)) // self.batch_size)
        self.keeper_.rehearse((self.epochs - 1) * steps)
        return self

    def partial_fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        classes: Any = None,
    ) -> KeeperClassifier:
        """Observe a batch: predict it, then watch, mend and learn; `y` may be missing.

        `classes` at the first call: all labels that may ever come, as elsewhere in scikit-learn.
        Without it labels may be new at any time. What was seen and done is in `observation_`.
        """
        with self._unless_refused():
            is_first = not hasattr(self, "keeper_")
            rows, labels, known = self._taken(X, y, reset=is_first)
            if is_first:
                self._begin(check_random_state(self.random_state))
            if classes is not None:
                self._announce(np.unique(classes), is_first=is_first)
            if strangers := set(labels.tolist()).difference(self._number_of):
                if self._announced:
                    raise UserError(
                        f"y has the label {min(strangers)!r}; expected one of "
                        f"{self.classes_.tolist()}, the classes that were announced at first"
                    )
                self._meet(labels)
            numbers = self._numbers(labels, known)
            self.observation_: Observation = self.keeper_.observe(rows, numbers)
        return self

    @contextlib.contextmanager
    def _unless_refused(self) -> Iterator[None]:
        """What is refused leaves no label, no class and no keeper behind."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    # Predicting

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """The labels, (rows,)."""
        probabilities = self.predict_proba(X)
        labels: np.ndarray = self.classes_[probabilities.argmax(axis=1)]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities, (rows, classes), in the order of `classes_`; 0 for what never came."""
        check_is_fitted(self)
        said = self.keeper_.predict_proba(self._rows(X, reset=False))
        columns = {label: column for column, label in enumerate(self.classes_.tolist())}
        # A class that is announced, and has not come, may lie beyond the network's outputs.
        numbered = [columns[label] for label in list(self._number_of)[: said.shape[1]]]
        probabilities = np.zeros((len(said), len(columns)))
        probabilities[:, numbered] = said[:, : len(numbered)]
        return probabilities

    # What is within

    def _begin(self, draw: np.random.RandomState) -> None:
        """A keeper that has seen nothing."""
        self.keeper_ = Keeper(
            self.network,
            buffer_size=self.buffer_size,
            method=self.method,
            detector=self.detector,
            adaptation=self.adaptation,
            **{
                "batch_size": self.batch_size,
                "minibatch_size": self.batch_size,
                "lr": self.lr,
                "seed": int(draw.randint(2**31 - 1)),
                **(self.settings or {}),
            },
        )
        self.classes_ = np.empty(0, dtype=int)
        self._number_of: dict[Any, int] = {}
        self._announced = False

    def _announce(self, classes: np.ndarray, *, is_first: bool) -> None:
        """These are all the classes that there will be."""
        if is_first:
            self._meet(classes)
            self._announced = True
        elif not np.array_equal(classes, self.classes_):
            raise UserError(
                f"classes were {self.classes_.tolist()} at first; got {classes.tolist()}: say them"
                " once, or leave them out"
            )

    def _meet(self, labels: np.ndarray) -> None:
        """Number labels that are new; `classes_` stays sorted, which numbers need not be."""
        if self._number_of and (labels.dtype.kind == "U") != (self.classes_.dtype.kind == "U"):
            raise UserError(
                f"labels are numbers, or texts, all alike; got {labels[0]!r} after "
                f"{self.classes_[0]!r}"
            )
        met = np.concatenate([self.classes_, labels]) if self._number_of else labels
        self.classes_ = np.unique(met)
        numbers = dict(self._number_of)
        for label in np.unique(labels).tolist():
            numbers.setdefault(label, len(numbers))
        self._number_of = numbers

    def _numbers(self, labels: np.ndarray, known: np.ndarray) -> np.ndarray:
        """int64 (rows,), UNKNOWN where there is no label."""
        numbers = np.full(len(known), UNKNOWN)
        names, where = np.unique(labels, return_inverse=True)
        numbers[known] = np.array([self._number_of[name] for name in names.tolist()], int)[where]
        return numbers

    def _taken(
        self,
        X: Any,  # noqa: N803
        y: Any,
        *,
        reset: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows as a keeper takes them, the labels that are known, bool (rows,): of which rows."""
        rows = self._rows(X, reset=reset)
        if y is None:
            return rows, np.empty(0, dtype=int), np.zeros(len(rows), dtype=bool)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(rows, labels)
        known = _is_known(labels, self.unlabelled)
        labels = _of_one_kind(labels[known])
        if len(labels):
            assert_all_finite(labels, input_name="y")
            check_classification_targets(labels)
        return rows, labels, known

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:  # noqa: N803
        """Floats as networks take them, or pictures as bytes."""
        rows: np.ndarray = validate_data(
            self, X, reset=reset, dtype=[np.float32, np.uint8], allow_nd=True
        )
        is_bytes = rows.dtype == np.uint8
        if rows.ndim == 3:
            return rows[..., None] if is_bytes else rows[:, None]
        return rows.astype(np.float32) if is_bytes and rows.ndim == 2 else rows


def _is_known(labels: np.ndarray, unlabelled: Any) -> np.ndarray:
    """bool (rows,): which are labels."""
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
