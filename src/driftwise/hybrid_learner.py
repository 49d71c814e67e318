"""An analytic learner and a trained one together: class statistics and a replay buffer of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from driftwise.analytic_learner import UNSEEN, AnalyticLearner, StatisticsMemory
from driftwise.distributed import Group
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.memory import AnyBuffer
from driftwise.methods import AnalyticMethod, Method
from driftwise.types import Encoding, Extras, Samples, StepReport

_NO_EXTRAS: Extras = MappingProxyType({})


class HybridMemory:
    """A replay buffer and class statistics that an adaptation changes together.

    What is dropped or put goes to both. Samples are those of the buffer: partial and recurring
    drift are judged by them, and statistics follow in the same proportion.
    """

    def __init__(self, statistics: StatisticsMemory, replay: AnyBuffer) -> None:
        self.statistics = statistics
        self.replay = replay

    def __len__(self) -> int:
        return len(self.replay)

    def counts(self) -> dict[int, int]:
        """Samples of each class that the statistics have counted."""
        return self.statistics.counts()

    def slots_of(self, label: int) -> int:
        """Fresh samples that replace a class: those of the buffer, or of the statistics alone."""
        return self.replay.slots_of(label) or self.statistics.slots_of(label)

    def samples_of(self, label: int) -> Samples:
        """The samples of a class in the buffer."""
        return self.replay.samples_of(label)

    def drop(self, label: int, only: Tensor | None = None) -> int:
        """Drop a class from both, or the samples that `only` marks and their part of the statistics."""
        self.statistics.drop(label, only)
        has_samples = self.replay.slots_of(label) > 0
        return self.replay.drop(label, only if has_samples else None)

    def put(self, samples: Samples, extras: Extras = _NO_EXTRAS) -> None:
        """Count samples, and keep as many of them as there are free slots."""
        self.statistics.put(samples)
        free = self.replay.free
        self.replay.put(samples[:free], {name: values[:free] for name, values in extras.items()})


class HybridNetwork(nn.Module):
    """Two networks whose log-probabilities are added, those of class statistics softened."""

    def __init__(self, analytic: nn.Module, trained: nn.Module, temperature: float) -> None:
        super().__init__()
        self.analytic = analytic
        self.trained = trained
        self._temperature = temperature

    def forward(self, vectors: Tensor) -> Tensor:
        """(samples, d) -> logits, (samples, outputs of the trained network)."""
        trained: Tensor = self.trained(vectors)
        return add_scores(self.analytic(vectors), trained, self._temperature)


def add_scores(analytic: Tensor, trained: Tensor, temperature: float) -> Tensor:
    """Log-probabilities of both, up to a constant of the sample, (samples, outputs).

    A class without statistics has been seen by neither.
    """
    missing = trained.shape[1] - analytic.shape[1]
    analytic = nn.functional.pad(analytic, (0, missing), value=UNSEEN)
    scores = analytic / temperature + trained.float().log_softmax(dim=1)
    return torch.where(analytic > UNSEEN, scores, UNSEEN)


@dataclass(frozen=True, kw_only=True)
class Hybrid:
    """A hybrid learner by the names of its methods, whose own options have their defaults."""

    analytic: Literal["ncm", "slda", "ridge"] = "slda"
    """the method of the class statistics"""
    trained: Literal["er", "er-ace", "der++", "ser", "cls-er"] = "der++"
    """the method of the network and the replay buffer"""
    temperature: float = 3.0
    """by which the log-probabilities of the class statistics are divided before those of the network
    are added"""

    rehearses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)


class HybridMethod:
    """Both methods of a hybrid learner."""

    rehearses = True

    def __init__(self, analytic: AnalyticMethod, trained: Method) -> None:
        self.analytic = analytic
        self.trained = trained

    def samples_per_draw(self, *, minibatch_size: int, batch_size: int) -> int:
        """Those of the trained method."""
        return self.trained.samples_per_draw(minibatch_size=minibatch_size, batch_size=batch_size)


class HybridLearner:
    """Predicts by class statistics and by a network trained on the same vectors, both together.

    It has the interface of `Learner`. Adaptations act on both memories: the statistics, and the
    small replay buffer that the network's method needs.

    >>> import driftwise as dw
    >>> head = dw.models.seeded(dw.models.MLP, input_shape=(6, 1, 1), num_classes=3, seed=0)
    >>> learner = HybridLearner(
    ...     dw.AnalyticLearner(dw.methods.SLDA()),
    ...     dw.Learner(head, dw.methods.DERpp(), buffer=dw.ReplayBuffer(60), lr=0.05),
    ... )
    """

    def __init__(
        self, analytic: AnalyticLearner, trained: Learner, *, temperature: float = 3.0
    ) -> None:
        """A learner of both.

        Args:
            analytic: class statistics and their classifier; without an encoder of its own.
            trained: a network for the same vectors, with an output for each class that may come.
            temperature: by which the log-probabilities of the statistics are divided before those
                of the network are added; they are too sure, the more so the more features.
        """
        Group().refuse_several("a hybrid learner")
        _check_temperature(temperature)
        if not isinstance(analytic, AnalyticLearner) or not isinstance(trained, Learner):
            raise UserError(
                "expected HybridLearner(an AnalyticLearner, a Learner); got "
                f"{type(analytic).__name__} and {type(trained).__name__}"
            )
        self.analytic = analytic
        self.trained = trained
        self.temperature = temperature
        self.buffer = HybridMemory(analytic.buffer, trained.buffer)
        self.method = HybridMethod(analytic.method, trained.method)

    @property
    def steps(self) -> int:
        """Train steps so far."""
        return self.trained.steps

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """Every network that a step may evaluate."""
        return self.trained.networks

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self.trained.device

    @property
    def network(self) -> nn.Module:
        """The network that is trained."""
        return self.trained.network

    @property
    def predictor(self) -> HybridNetwork:
        """Both networks as they predict between steps."""
        return HybridNetwork(self.analytic.predictor, self.trained.predictor, self.temperature)

    @property
    def between(self) -> Callable[[], object]:
        """Called between the operations of a step, so that other threads can run."""
        return self.trained.between

    @between.setter
    def between(self, call: Callable[[], object]) -> None:
        self.trained.between = self.analytic.between = call

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool = False) -> None:
        """Begin a task with these new classes; `from_scratch` takes new weights first."""
        self.analytic.begin_task(classes)
        self.trained.begin_task(classes, from_scratch=from_scratch)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """The network learns in every epoch; samples are counted in the first."""
        self.analytic.begin_epoch(epoch, epochs)
        self.trained.begin_epoch(epoch, epochs)

    def end_task(self) -> None:
        """End the task."""
        self.analytic.end_task()
        self.trained.end_task()

    def observe(self, batch: Samples) -> StepReport:
        """One train step, and the samples are counted; the report is that of the step."""
        report = self.trained.observe(batch)
        self.analytic.observe(batch)
        return report

    def rehearse(self, batch: Samples | None = None, *, rate: float = 1.0) -> StepReport:
        """One step of the network on a batch and the buffer, or the buffer alone."""
        return self.trained.rehearse(batch, rate=rate)

    def annotate(self, samples: Samples) -> Extras:
        """What the method keeps beside samples that no train step has seen."""
        return self.trained.annotate(samples)

    def logits(self, images: Tensor) -> Tensor:
        """Log-probabilities of both, up to a constant of the sample, (samples, outputs)."""
        analytic, trained = self.analytic.logits(images), self.trained.logits(images)
        return add_scores(analytic, trained, self.temperature)

    def logits_of(self, network: nn.Module, images: Tensor) -> Tensor:
        """Logits by a copy of `predictor`; other threads may call this."""
        return self.trained.logits_of(network, images)

    def encode(self, images: Tensor) -> Encoding:
        """Logits of both, and the vectors as the statistics count them, which training leaves alone."""
        return Encoding(logits=self.logits(images), features=self.analytic.encode(images).features)

    def grow(self, outputs: int) -> None:
        """Add outputs for classes beyond those of the network."""
        self.analytic.grow(outputs)
        self.trained.grow(outputs)

    def restart(self) -> None:
        """New weights of the network; both memories stay."""
        self.trained.restart()

    def go_back(self, network: nn.Module) -> None:
        """Take the weights of a copy of `predictor`; both memories stay."""
        assert isinstance(network, HybridNetwork)
        self.trained.go_back(network.trained)

    def refuse_diverged_weights(self) -> None:
        """Diverged where an update made weights infinite."""
        self.trained.refuse_diverged_weights()

    def forget(self, samples: Samples) -> None:
        """Remove samples from the statistics and from the buffer; weights keep what they learned."""
        self.analytic.forget(samples)
        for label in set(samples.labels.tolist()):
            held = self.trained.buffer.samples_of(label)
            self.trained.buffer.drop(label, torch.isin(held.ids, samples.ids))

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"analytic": self.analytic.state_dict(), "trained": self.trained.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.analytic.load_state_dict(state["analytic"])
        self.trained.load_state_dict(state["trained"])


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise UserError(f"temperature must be above 0; got {temperature}")
