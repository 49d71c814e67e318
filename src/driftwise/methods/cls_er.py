"""CLS-ER: a plastic and a stable average of the network guide it on replayed samples."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from driftwise import rng
from driftwise.errors import UserError
from driftwise.methods.base import Draw, Inputs, Method, Outcome
from driftwise.models.layers import treats_samples_independently


@dataclass(kw_only=True, eq=False)
class CLSER(Method):
    """Complementary learning systems: the averages are of parameters only.

    They stay in training mode, so their batch-norm statistics come from the draws they see.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.CLSER(reg_weight=0.2), buffer=dw.ReplayBuffer(100), lr=0.1)
    """

    reg_weight: float = 0.15
    """weight of the squared distance to the better average's logits"""
    stable_update_freq: float = 0.1
    """probability that a step updates the stable average"""
    stable_alpha: float = 0.999
    """decay of the stable average in an update"""
    plastic_update_freq: float = 0.9
    """probability that a step updates the plastic average"""
    plastic_alpha: float = 0.999
    """decay of the plastic average in an update"""
    predict: Literal["stable", "working"] = "stable"
    """which network predicts; the published tables use the working one"""

    def __post_init__(self) -> None:
        if self.reg_weight < 0:
            raise UserError(f"reg_weight must be at least 0; got {self.reg_weight}")
        for name in ("stable_update_freq", "stable_alpha", "plastic_update_freq", "plastic_alpha"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie between 0 and 1; got {getattr(self, name)}")
        self._averages: dict[str, nn.Module] = {}
        self._chance: dict[str, torch.Generator] = {}
        self._steps = 0

    def attach(self, network: nn.Module, seed: int) -> None:
        """Both averages begin as the network does."""
        self._steps = 0
        for name in ("stable", "plastic"):
            self._averages[name] = copy.deepcopy(network).requires_grad_(False).train()
            if name not in self._chance:
                self._chance[name] = rng.fork(seed, "cls-er", name)

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        """One cross-entropy over stream and buffer, and the distance to the better average."""
        replay = draw()
        if replay is None:
            logits = network(stream.x)
            return Outcome(loss=cross_entropy(logits, stream.y), logits=logits)
        target = self._better(replay)
        again = None if treats_samples_independently(network) else network(replay.x)
        both = network(Inputs.together(stream, replay))
        logits, replayed = torch.split(both, [len(stream.y), len(replay.y)])
        loss = cross_entropy(both, torch.cat([stream.y, replay.y]))
        distance = mse_loss(replayed if again is None else again, target)
        return Outcome(loss=loss + self.reg_weight * distance, logits=logits)

    @torch.no_grad()
    def _better(self, replay: Inputs) -> Tensor:
        """(samples, classes): of each sample, the logits of the average that is surer of its class."""
        stable, plastic = self._averages["stable"](replay.x), self._averages["plastic"](replay.x)
        right = replay.y[:, None]
        # In float32: bfloat16 probabilities near 1 would tie, and ties all go one way.
        sure_stable, sure_plastic = (
            logits.float().softmax(1).gather(1, right) for logits in (stable, plastic)
        )
        trust_stable = sure_stable > sure_plastic
        return torch.where(trust_stable, stable, plastic)

    @torch.no_grad()
    def after_step(self, network: nn.Module) -> None:
        """Update each average with its own probability."""
        self._steps += 1
        self._move("plastic", self.plastic_update_freq, self.plastic_alpha, network)
        self._move("stable", self.stable_update_freq, self.stable_alpha, network)

    def _move(self, name: str, probability: float, alpha: float, network: nn.Module) -> None:
        if float(torch.rand((), generator=self._chance[name])) >= probability:
            return
        keep = min(1 - 1 / (self._steps + 1), alpha)
        average: list[Tensor] = [*self._averages[name].parameters()]
        current: list[Tensor] = [*network.parameters()]
        torch._foreach_lerp_(average, current, 1 - keep)  # all at once: one call instead of many

    def copies(self) -> tuple[nn.Module, ...]:
        """Both averages."""
        return tuple(self._averages.values())

    def predictor(self, network: nn.Module) -> nn.Module:
        """The stable average, unless `predict` is "working"."""
        return network if self.predict == "working" else self._averages["stable"]

    def state_dict(self) -> dict[str, Any]:
        """The averages, their chances, and the number of steps."""
        return {
            "steps": self._steps,
            "averages": {name: each.state_dict() for name, each in self._averages.items()},
            "chance": {name: each.get_state() for name, each in self._chance.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        assert self._averages, "the method has not been attached to a network"
        self._steps = state["steps"]
        for name, average in self._averages.items():
            average.load_state_dict(state["averages"][name])
            self._chance[name].set_state(state["chance"][name])
