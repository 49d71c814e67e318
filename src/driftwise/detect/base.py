"""What a detector is, what it may do besides, and what it is given."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from driftwise.detect.reference import FingerprintReference
from driftwise.encoders.base import Encodes
from driftwise.errors import UserError
from driftwise.protocols import HasSamples
from driftwise.types import Encoding, Samples, Verdict

Reference = HasSamples | FingerprintReference
"""What current samples are compared with: samples, or their encodings by a fixed encoder."""

KnownLabels = Literal["given", "predicted", "unknown"]
"""What is known of monitored samples: their classes, the learner's predictions, or nothing."""


class Detector(Protocol):
    """Anything that gives a verdict on every class it is asked about."""

    reads_monitored: bool
    """whether it reads the monitored samples (and their labels are counted)"""

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class, in the order of `classes`.

        Where no labels of monitored samples were paid for, all of them are -1.
        """
        ...


def reads_monitored(detector: object) -> bool:
    """Whether a detector reads the monitored samples; its attribute `watches` is the former name."""
    answer = getattr(detector, "reads_monitored", None)
    if answer is None and (answer := getattr(detector, "watches", None)) is not None:
        warnings.warn(
            f"{type(detector).__name__}.watches is deprecated; rename it to reads_monitored",
            DeprecationWarning,
            stacklevel=2,
        )
    if not isinstance(answer, bool):
        raise UserError(
            f"{type(detector).__name__} must have an attribute reads_monitored: True where it reads "
            "the monitored samples, else False"
        )
    return answer


@runtime_checkable
class Accumulates(Protocol):
    """A detector whose evidence accumulates from check to check, sample by sample."""

    def renew(self, labels: Sequence[int], learned: Samples) -> None:
        """These classes were just learned, from these samples: earlier evidence is void."""
        ...

    def onset(self, label: int) -> int | None:
        """The id of the sample with which a drift began, if there is one; None: no sample yet."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        ...


@runtime_checkable
class ReportsObstacles(Protocol):
    """A detector that knows from the numbers of samples alone which classes it cannot test."""

    def obstacles(self, task: int, sizes: Mapping[int, tuple[int, int]]) -> Mapping[int, str]:
        """Of classes with so many reference and current samples, the untestable ones, and why."""
        ...


@dataclass(frozen=True, kw_only=True)
class DetectorContext:
    """What a detector is given to work with."""

    encoder: Callable[[], Encodes]
    """makes the encoder; only detectors that compare encodings need one"""
    drifting: Callable[[int], Sequence[int]]
    """the truth, task -> classes that drift there; for the oracle alone"""
    seed: int = 0
    """what tests that draw permutations draw them from"""
    labels: KnownLabels = "given"
    """what is known of monitored samples"""
    learner: Callable[[Tensor], Encoding] | None = None
    """the learner's own network, where the detector may use its predictions"""
    grows: bool = False
    """whether outputs may be added: with a single one, predictions have no uncertainty yet"""
    usual: Callable[[int], float] | None = None
    """how often a class has come so far, where the class mix may differ from the reference's;
    None: it does not"""
    quick_splits: int | None = None
    """random splits of a check of all classes, beyond which tests without any are preferred"""
