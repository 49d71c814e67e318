"""Custom parts that write no `state_dict`: saved by their attributes, or refused, never lost."""

from __future__ import annotations

import copy
import itertools
import logging
import random
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import Stop, StopAt, complaint, lasting
from same_state import same
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import driftwise
from driftwise.adapt.realign import Realign
from driftwise.adapt.rehearsal import Rehearsal
from driftwise.methods import ER, SER, Draw, Inputs, Method, Outcome
from driftwise.part_state import PartState
from driftwise.protocols import AdaptationContext
from driftwise.runs.checkpoint import flatten, unflatten
from driftwise.runs.saving import Saving
from driftwise.types import AdaptationResult, Samples, Verdict


def stored(state: object) -> Any:
    """A state as it comes back from a checkpoint."""
    return unflatten(*flatten(state))


# --- in runs and in live learners ---------------------------------------------------------------------


class Teacher(Method):
    """Stays near the network as it was when the last task ended, and counts the steps."""

    def __init__(self, weight: float = 0.5) -> None:
        self.weight = weight
        self.teacher: nn.Module | None = None
        self.steps = 0
        self.mean: torch.Tensor | None = None

    def outcome(self, network: nn.Module, stream: Inputs, draw: Draw) -> Outcome:
        replay = draw()
        logits = network(stream.x)
        loss = cross_entropy(logits, stream.y)
        if replay is not None:
            loss = loss + cross_entropy(network(replay.x), replay.y)
        if self.teacher is not None:
            with torch.no_grad():
                before = self.teacher(stream.x)
            loss = loss + self.weight * mse_loss(logits, before)
        if self.mean is not None:
            loss = loss + 0.01 * mse_loss(logits.mean(0), self.mean)
        self.mean = logits.detach().mean(0)
        return Outcome(loss=loss * (1 + 0.01 * (self.steps % 3)), logits=logits)

    def begin_task(self, network: nn.Module, classes: Sequence[int]) -> None:
        self.teacher = copy.deepcopy(network).eval().requires_grad_(False)

    def after_step(self, network: nn.Module) -> None:
        self.steps += 1


class Running:
    """A detector whose verdicts follow from all that it has seen."""

    reads_monitored = True

    def __init__(self, context: Any) -> None:
        self.means: dict[int, list[float]] = defaultdict(list)
        self.draws = np.random.default_rng(context.seed)
        self.encode = context.encoder

    def check(self, task: int, classes: Any, monitored: Samples, reference: Any) -> list[Verdict]:
        verdicts = []
        for label in classes:
            samples = monitored.of_class(label)
            mean = float(samples.images.float().mean()) if len(samples) else 0.0
            score = abs(mean - float(np.mean([*self.means[label], mean])))
            self.means[label].append(mean + self.draws.normal())
            verdicts.append(Verdict(task=task, label=label, drifted=score > 0.2, score=score))
        return verdicts


class Every:
    """An adaptation that forgets at every second call; its counter decides."""

    def __init__(self) -> None:
        self.calls = 0
        self.chance = random.Random(5)
        self.log = logging.getLogger("every")

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        self.calls += 1
        if self.calls % 2 or not drifted:
            return AdaptationResult(notes=(f"call {self.calls}",))
        context.buffer.drop(self.chance.choice(drifted).label)
        return AdaptationResult(notes=(f"call {self.calls}: {self.chance.random()}",))


PARTS: dict[str, Any] = {
    "method": f"{__name__}:Teacher",
    "detector": f"{__name__}:Running",
    "adaptation": f"{__name__}:Every",
}


def test_a_run_of_stateful_parts_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    config = driftwise.RunConfig(**PARTS, epochs=1, max_per_class=30)
    driftwise.run(config, tmp_path / "whole")
    for task, step in ((2, 3), (4, 0), (5, 4)):
        resume, crash, often = task > 2, StopAt(task, step), Saving(seconds=None, steps=2)
        with pytest.raises(Stop):
            driftwise.run(config, tmp_path / "run", resume=resume, listener=crash, saving=often)
    driftwise.run(config, tmp_path / "run", resume=True)
    assert lasting(tmp_path / "run") == lasting(tmp_path / "whole")


def test_a_live_learner_of_stateful_parts_is_saved_and_loaded_to_the_last_bit(
    tmp_path: Path,
) -> None:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 255, (400, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(400) % 4
    soon: dict[str, Any] = {"watch_every": 2, "reference_size": 5, "check_rows": 5, "lr": 0.05}

    def feed(live_learner: driftwise.LiveLearner, start: int, end: int) -> list[Any]:
        message = [
            live_learner.observe(images[n : n + 10], labels[n : n + 10])
            for n in range(start, end, 10)
        ]
        return [(each.predicted.tolist(), each.notes, each.loss) for each in message]

    whole = driftwise.LiveLearner("mlp", folder=tmp_path / "whole", **PARTS, **soon)
    first, rest = feed(whole, 0, 230), feed(whole, 230, 400)
    half = driftwise.LiveLearner("mlp", folder=tmp_path / "half", **PARTS, **soon)
    assert feed(half, 0, 230) == first
    half.close()
    again = driftwise.LiveLearner.load(tmp_path / "half", trust_imports=True)
    assert feed(again, 230, 400) == rest
    states = [live_learner._state()["parts"] for live_learner in (whole, again)]
    for state in states:
        del state["ledger"]["seconds"]
    assert same(*states)
    assert any("call" in note for _, notes, _ in rest for note in notes)
    whole.close()
    again.close()


# --- one part -----------------------------------------------------------------------------------


class Holds:
    """Holds whatever it is given."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


VALUES: dict[str, Any] = {
    "numbers": [1, 2.5, float("inf"), -float("inf"), True, None, 10**30, 2 + 1j],
    "texts": {"a": "text", 3: ("x", b"bytes"), (1, "b"): {4, 5}, 2.5: frozenset({"q"})},
    "tensors": [torch.arange(6).reshape(2, 3), torch.tensor(2.5, dtype=torch.bfloat16)],
    "arrays": (np.arange(4.0)[::2], np.array(3, dtype=">i4"), np.float32(2.5), np.bool_(True)),
    "containers": [Counter("aab"), deque([1, 2, 3], maxlen=2), [[], {}, ()]],
    "kinds": [torch.device("cpu"), torch.float16, Path("here")],
    "rows": Samples(
        images=torch.zeros(2, 3),
        labels=torch.tensor([0, 1]),
        ids=torch.tensor([4, 5]),
        concepts=torch.tensor([0, 0]),
    ),
    "verdict": Verdict(task=2, label=1, drifted=None, p_values={"ks": 0.5}, moved_rows=(1, 2)),
}


def shown(value: object) -> str:
    return f"{type(value).__name__} {value!r} {getattr(value, 'dtype', '')}"


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_of_value_comes_back_exactly(name: str) -> None:
    part: Any = Holds(value=None)
    state = PartState(part, "part")
    part.value = VALUES[name]
    other: Any = Holds(value=None)
    PartState(other, "part").load_state_dict(stored(state.state_dict()))
    assert shown(other.value) == shown(VALUES[name])
    assert PartState(other, "part").state_dict().keys() == state.state_dict().keys()


def test_generators_go_on_where_they_were() -> None:
    def make() -> Any:
        return Holds(
            mine=torch.Generator().manual_seed(3),
            python=random.Random(3),
            numpy=np.random.default_rng(3),
            older=np.random.Generator(np.random.MT19937(3)),
            late=None,
        )

    def drawn(part: Any) -> list[float]:
        late = 0.0 if part.late is None else float(torch.rand((), generator=part.late))
        mine = torch.rand(2, generator=part.mine).tolist()
        return [late, part.python.random(), part.numpy.random(), part.older.random(), *mine]

    part, other = make(), make()
    state, taken = PartState(part, "part"), PartState(other, "part")
    part.late = torch.Generator().manual_seed(9)
    drawn(part)
    taken.load_state_dict(stored(state.state_dict()))
    assert drawn(other) == drawn(part)


def test_what_is_shared_stays_shared_and_what_is_the_networks_stays_the_networks() -> None:
    def make(net: nn.Module) -> Any:
        own = nn.Linear(2, 2)
        part = Holds(
            weights=list(net.parameters()),
            body=net[0],  # type: ignore[index]
            live=net,
            own=own,
            optimiser=torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.5),
            bias={"of own": own.bias},
            table=None,
            again=None,
        )
        return part, PartState(part, "part", lambda: net)

    net, other_net = network(), network()
    part, state = make(net)
    part.own(torch.ones(1, 2)).sum().backward()
    part.optimiser.step()
    part.table = part.again = [1]
    part.copy = copy.deepcopy(net).eval().requires_grad_(False)
    part.copied = [part.copy[2].weight]
    part.copy[0].weight.add_(1)
    other, taken = make(other_net)
    taken.load_state_dict(stored(state.state_dict()))
    assert [*map(id, other.weights)] == [*map(id, other_net.parameters())]
    assert other.live is other_net
    assert other.body is other_net[0]
    assert other.bias["of own"] is other.own.bias
    assert same(dict(other.own.state_dict()), dict(part.own.state_dict()))
    assert same(other.optimiser.state_dict()["state"], part.optimiser.state_dict()["state"])
    assert other.optimiser.param_groups[0]["params"][0] is other.own.weight
    assert other.table is other.again
    assert other.copied[0] is other.copy[2].weight
    assert same(dict(other.copy.state_dict()), dict(part.copy.state_dict()))
    assert not other.copy.training
    assert not any(weight.requires_grad for weight in other.copy.parameters())


def test_what_has_gone_is_gone_afterwards() -> None:
    part, other = Holds(a=1, b=2), Holds(a=1, b=2)
    state, taken = PartState(part, "part"), PartState(other, "part")
    del part.b  # type: ignore[attr-defined]
    taken.load_state_dict(stored(state.state_dict()))
    assert vars(other) == {"a": 1}


class Sums:
    """A helper of somebody's own."""

    def __init__(self) -> None:
        self.total = np.zeros(2)


UNCHANGING = {
    "a function": shown,
    "a logger": logging.getLogger("part"),
    "a lock": __import__("threading").Lock(),
    "a class": Sums,
    "functions by name": {"shown": shown, "n": 3},
    "an object": Sums(),
}


@pytest.mark.parametrize("name", UNCHANGING)
def test_what_cannot_be_saved_and_does_not_change_is_nobodys_trouble(name: str) -> None:
    part: Any = Holds(held=UNCHANGING[name], counter=0)
    state = PartState(part, "part")
    part.counter += 1
    logging.getLogger("part").debug("a logger keeps a cache")
    other = Holds(held=UNCHANGING[name], counter=0)
    PartState(other, "part").load_state_dict(stored(state.state_dict()))
    assert vars(other) == vars(part)


def refusal(change: Any, **held: Any) -> str:
    part = Holds(**held)
    state = PartState(part, "method")
    state.state_dict()
    change(part)
    return complaint(state.state_dict)


def test_a_change_that_cannot_be_saved_is_refused_by_the_name_of_the_attribute() -> None:
    def add(part: Any) -> None:
        part.sums.total += 1

    def make(part: Any) -> None:
        part.new = {"deep": [Sums()]}

    def replace(part: Any) -> None:
        part.how = len

    def lazy(part: Any) -> None:
        part.head = nn.Linear(2, 2)

    message = refusal(add, sums=Sums())
    assert message.startswith(
        "method Holds cannot be saved: its attribute sums holds a Sums, which"
    )
    assert "write state_dict() and load_state_dict(state)" in message
    assert "attribute new['deep'][0] holds a Sums" in refusal(make)
    assert "attribute how holds a builtin_function_or_method" in refusal(replace, how=shown)
    assert "attribute head holds a Linear" in refusal(lazy, head=None)


def test_an_iterator_is_refused_as_nobody_can_see_how_far_it_is() -> None:
    state = PartState(Holds(numbers=itertools.count()), "part")
    assert "attribute numbers holds a count" in complaint(state.state_dict)


class Shared:
    seen: list[int] = []  # noqa: RUF012
    names = ("a", "b")


def test_what_changes_in_a_class_is_refused() -> None:
    part = Shared()
    state = PartState(part, "detector")
    assert state.state_dict()["attributes"] == {}
    part.seen.append(1)
    assert "Shared.seen has changed, and belongs to the class" in complaint(state.state_dict)
    part.seen.clear()


class Writes(Holds):
    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n = state["n"]


def test_a_part_that_writes_its_state_is_taken_at_its_word() -> None:
    part, other = Writes(n=0, other=Sums()), Writes(n=0, other=Sums())
    state = PartState(part, "part")
    part.n = 3
    part.other.total += 1  # type: ignore[attr-defined]
    assert state.state_dict() == {"n": 3}
    PartState(other, "part").load_state_dict({"n": 3})
    assert other.n == 3


def test_half_of_a_state_is_refused() -> None:
    half = type("Half", (Holds,), {"state_dict": lambda self: {}, "__module__": __name__})
    assert "write both" in complaint(lambda: PartState(half(), "part"))


def test_built_in_parts_keep_their_own_format() -> None:
    assert PartState(ER(), "method").state_dict() == {}
    assert "inner" in PartState(Rehearsal(Realign()), "adaptation").state_dict()


class Counts(SER):
    """A built-in method with a counter of somebody's own."""

    steps = 0

    def after_step(self, network: nn.Module) -> None:
        self.steps = self.steps + 1


class Wraps:
    """A built-in adaptation inside one of somebody's own."""

    def __init__(self) -> None:
        self.inner = Rehearsal(Realign())


def test_what_is_added_to_a_built_in_part_is_saved_with_it() -> None:
    def make() -> tuple[Counts, PartState]:
        method, net = Counts(), network()
        method.attach(net, 0)
        return method, PartState(method, "method", lambda: net)

    (method, state), (other, taken) = make(), make()
    method.after_step(network())
    method.end_task(network())
    taken.load_state_dict(stored(state.state_dict()))
    assert other.steps == 1
    assert same(other.state_dict(), method.state_dict())

    part, wrapped = Wraps(), Wraps()
    both = PartState(part, "adaptation"), PartState(wrapped, "adaptation")
    part.inner._left = 2
    both[1].load_state_dict(stored(both[0].state_dict()))
    assert wrapped.inner._left == 2


def test_what_is_remembered_of_a_part_is_small() -> None:
    large = Holds(large=np.zeros(10**6), module=nn.Linear(1000, 100), sums=Sums())
    large.sums.total = np.zeros(10**6)  # type: ignore[attr-defined]
    state = PartState(large, "part")
    made = state._made
    assert not made._kept
    assert not made._places
    assert made.digest._held == []
    assert set(made.digests) == {"sums"}
