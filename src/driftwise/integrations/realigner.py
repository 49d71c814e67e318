"""Detection and realignment for a training loop of somebody else's: what all adapters share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.adapt import Realign
from driftwise.detect import (
    Combined,
    DetectorContext,
    EncoderContext,
    HeldOutReference,
    LearnerEncoder,
    Monitor,
)
from driftwise.distributed import Group
from driftwise.errors import UserError, warn_caller
from driftwise.integrations.batches import Batch, Inputs, Packing, read_all
from driftwise.learner import evaluating
from driftwise.loop import DriftChecks
from driftwise.memory import AnyBuffer, ReplayBuffer, ShardedBuffer
from driftwise.metrics import Ledger
from driftwise.models.head import encode_all
from driftwise.part_state import PartState
from driftwise.protocols import Adaptation, AdaptationContext, Choose, split_budget
from driftwise.runs.result import verdict_from
from driftwise.stats.fraction import estimate_shares
from driftwise.types import Encoding, Samples, TaskRecord

Current = Callable[[], Any]
"""Gives labelled samples of the known classes as they are now: a batch, or a data loader."""

Ask = Callable[[int, int], Any]
"""(class, count) -> inputs of up to so many freshly labelled samples of the class; None: none."""

_PARTS = ("detector", "adaptation")
"""settings whose state no other part can read"""

_AT_ONCE = 512
"""samples of a forward that nobody learns from"""

_TWINS = 0.1
"""part of the buffer's samples that may be among the monitored: data have samples of equal content"""


class Realigner:
    """Replay buffer, drift detector, adaptation and ledger beside a training loop.

    The loop calls `begin_task`, for each batch `extend` and `offer`, and `end_task`. Network, optimiser
    and data stay its own; a step learns from the batch and a draw from the buffer (experience replay).

    Under a process group of torch.distributed all processes make these calls together, each with its
    own batches. They have one buffer and one ledger; process 0 asks for samples and labels.

    >>> import torch
    >>> import driftwise as dw
    >>> x, y = torch.randn(100, 4), torch.arange(100) % 2
    >>> network = torch.nn.Linear(4, 2)
    >>> realigner = dw.Realigner(network, current=lambda: (x[50:], y[50:]), buffer=20)
    >>> found = realigner.begin_task()
    >>> inputs, labels = realigner.extend((x[:10], y[:10]))
    >>> realigner.offer((x[:10], y[:10]))
    >>> realigner.end_task()
    """

    def __init__(
        self,
        network: nn.Module | None = None,
        *,
        current: Current,
        labels: Ask | None = None,
        reference: Current | None = None,
        buffer: AnyBuffer | int = 500,
        replay: int | None = None,
        detector: Any = None,
        adaptation: Adaptation | None = None,
        label_budget: int | None = None,
        on_check: Callable[[TaskRecord[None]], object] = lambda _: None,
        seed: int = 0,
    ) -> None:
        """A realigner that has seen nothing.

        Args:
            network: gives logits for a batch's inputs; an adapter sets it later.
            current: gives labelled samples of the known classes as they are now, in the form of the
                loop's batches. They are monitored, and must never be trained on.
            labels: gives freshly labelled samples of a drifted class. None: those among `current`
                are used, and are no longer monitored.
            reference: gives held-out samples of the classes just learned. None: as `current`.
            buffer: the replay buffer, or its capacity; of several processes, the capacity.
            replay: samples drawn from the buffer in a step, by all processes together. None: as many
                as their batches have.
            detector: gives verdicts on classes. None: `detect.Combined()`.
            adaptation: what is done about drifted classes. None: `adapt.Realign()`.
            label_budget: labels that adaptation may use at most. None: no limit.
            on_check: is called with the record of each check.
            seed: what the buffer and the detector's permutations are drawn from.
        """
        for name, given in (("current", current), ("labels", labels), ("reference", reference)):
            if given is not None and not callable(given):
                raise UserError(
                    f"{name} must be a function, which is called whenever samples are needed; got a "
                    f"{type(given).__name__}: pass lambda: ..."
                )
        for name, part in (("detector", detector), ("adaptation", adaptation)):
            if isinstance(part, str):
                raise UserError(
                    f"{name} must be an object, such as dw.detect.KS() or dw.adapt.Realign(); got "
                    f"the name {part!r}"
                )
        if replay is not None and replay < 1:
            raise UserError(f"replay must be at least 1 sample; got {replay}")
        self.network = network
        self._given_buffer, self._seed = buffer, seed
        self._join()
        self.ledger = Ledger(label_budget=label_budget)
        self.records: list[TaskRecord[None]] = []
        """one for each check"""
        self.in_task = False
        self.steps = 0
        self._replay = replay
        self._ask = labels
        self._sources = {
            "monitored": ("current", current),
            "reference": ("current", current) if reference is None else ("reference", reference),
        }
        self._on_check = on_check
        self._packing = Packing()
        self._task = 0
        self._known: list[int] = []
        """classes learned before the task, in the order in which they came"""
        self._came: dict[int, None] = {}
        """classes that have come in the task"""
        self._renewed: tuple[int, ...] = ()
        self._used: set[int] = set()
        """ids of monitored samples that were put into the buffer"""
        self._wrapped: _TakesPacked | None = None
        self._adaptation_state = PartState(adaptation := adaptation or Realign(), "adaptation")
        encoder = LearnerEncoder(EncoderContext(learner=self.encode, image_shape=(), seed=seed))
        context = DetectorContext(
            encoder=lambda: encoder,
            drifting=_unknown_truth,
            seed=seed,
            learner=self.encode,
        )
        detector = Combined() if detector is None else detector
        self._monitor = Monitor(
            getattr(detector, "bind", detector)(context),
            HeldOutReference(),
            book=lambda count: self.ledger.book_labels("monitoring", count),
        )
        self._checks = DriftChecks(monitor=self._monitor, adaptation=adaptation, ledger=self.ledger)
        self._settings = {
            "replay": replay,
            "detector": type(detector).__name__,
            "adaptation": type(adaptation).__name__,
            "labels": "those of current" if labels is None else "a function",
            "label_budget": label_budget,
            "seed": seed,
        }

    def _join(self) -> None:
        """Trainers start their process group after this was made: find it, and have one buffer."""
        self._group = group = Group()
        given = self._given_buffer
        if isinstance(given, int):
            # Also in one process: only what is kept is copied from a device.
            self.buffer: AnyBuffer = ShardedBuffer(given, seed=self._seed, group=group)
        elif isinstance(given, ReplayBuffer) and group.size > 1:
            raise UserError(
                f"{group.size} processes need one buffer together: give its capacity, "
                f"buffer={given.capacity}; got a ReplayBuffer"
            )
        else:
            self.buffer = given

    def _refuse_other_realigners(self) -> None:
        """UserError where another process would decide something else."""
        buffer = {"buffer": type(self.buffer).__name__, "capacity": self.buffer.capacity}
        self._group.refuse_difference("realigner", {**buffer, **self._settings})

    @property
    def known_classes(self) -> tuple[int, ...]:
        """The classes that are checked, in the order in which they came."""
        return tuple(self._known)

    def begin_task(self) -> TaskRecord[None]:
        """Check the known classes, and adapt to those that have drifted; a task under way ends."""
        if self.in_task:
            self.end_task()
        if not self._task:
            self._join()
            self._refuse_other_realigners()
        self._task += 1
        self.in_task = True
        self._came, self._renewed = {}, ()
        monitored = self._read("monitored") if self._known else None
        task = _Task(self, monitored)
        verdicts, result = self._checks.check_and_adapt(task, self._context(task))
        if result.extra is not None or result.from_scratch:
            raise UserError(
                "this adaptation wants samples of its own trained on, or a fresh network, which "
                "needs a loop of ours; in another trainer use one that changes the replay buffer "
                "alone, such as adapt.Realign()"
            )
        self._renewed = result.renewed
        record = TaskRecord(
            task=self._task,
            verdicts=verdicts,
            renewed=result.renewed,
            notes=result.notes,
            scores=None,
            labels=dict(self.ledger.labels),
        )
        self.records.append(record)
        self._on_check(record)
        return record

    def extend(self, batch: Any) -> Any:
        """The batch, in its form, with samples drawn from the buffer behind its own."""
        self._refuse_between_tasks("extend")
        came = Batch.read(batch)
        if not len(self.buffer):
            # A copy: the loop may change it in place before it is offered.
            return came.copied().written(batch)
        wanted = self._replay or int(self._group.gather(torch.tensor([len(came)]), "extend").sum())
        drawn = self.buffer.sample(wanted).samples
        replayed = Batch(inputs=self._packing.unpack(drawn.images), labels=drawn.labels)
        self._packing.check(came)
        return came.joined(replayed).written(batch)

    def offer(self, batch: Any, *, repeated: bool = False) -> None:
        """A step was made with this batch: the buffer may keep some of it.

        `repeated`: the samples came before, in an earlier epoch; their labels count once.
        """
        self._refuse_between_tasks("offer")
        samples = self._packing.pack(Batch.read(batch))
        self.buffer.offer(samples)
        self.steps += 1
        self.ledger.add_step()
        labels = self._group.gather(samples.labels)
        if not repeated:
            self.ledger.book_labels("stream", len(labels))
        for label in sorted(set(labels.tolist())):
            self._came[label] = None

    def _refuse_between_tasks(self, call: str) -> None:
        """UserError where classes that come would never be checked."""
        if not self.in_task:
            raise UserError(f"no task is under way: call begin_task before {call}")

    def end_task(self) -> None:
        """The classes of the task are learned: their present samples are their reference."""
        if not self.in_task:
            raise UserError("no task is under way: call begin_task first")
        notes = self._checks.follow_up(self._context(_Task(self, None)))
        if notes and self.records:
            last = self.records[-1]
            self.records[-1] = replace(last, notes=(*last.notes, *notes))
        labels = tuple(dict.fromkeys((*self._renewed, *self._came)))
        if labels:
            learned = Samples.concat([self.buffer.samples_of(label) for label in labels])
            task = _Task(self, self._read("reference"))
            self._checks.renew_reference(task, labels, learned)
        self._known += [label for label in self._came if label not in self._known]
        self.in_task = False

    def encode(self, images: Tensor) -> Encoding:
        """Logits and features of the network as it is, on the CPU; no side effects."""
        network = self._network()
        weight = next(network.parameters(), None)
        device = torch.device("cpu") if weight is None else weight.device
        draws = rng.as_global(rng.fork(self._seed, "asking"))
        with evaluating(network), torch.no_grad(), draws:
            parts = [part.to(device) for part in torch.split(images, _AT_ONCE)]
            encoding = encode_all(network, parts)
        # Batch-norm statistics may differ between processes: all decide by those of process 0.
        here = slice(None) if self._group.rank == 0 else slice(0)
        columns = {"logits": encoding.logits[here], "features": encoding.features[here]}
        return Encoding(**self._group.gather_columns(columns))

    def _network(self) -> _TakesPacked:
        if self.network is None:
            raise UserError("a realigner needs the network that learns; set its network")
        if self._wrapped is None or self._wrapped.network is not self.network:
            self._wrapped = _TakesPacked(self.network, self._packing.unpack)
        return self._wrapped

    def _read(self, which: str) -> Samples:
        """What the user gives as monitored or reference samples, without those trained on."""
        name, source = self._sources[which]
        samples = self._once(lambda: self._pack(source(), f"what {name} returns"))
        used = torch.tensor(sorted(self._used), dtype=torch.int64)
        samples = samples[~torch.isin(samples.ids, used)]
        self._warn_of_trained(samples, name)
        return samples

    def _warn_of_trained(self, samples: Samples, name: str) -> None:
        """A warning where the buffer, which training fills, has many of these samples."""
        labels = set(samples.labels.tolist()) & self.buffer.counts().keys()
        kept = [self.buffer.ids_of(label) for label in labels]
        share = float(torch.isin(torch.cat(kept), samples.ids).float().mean()) if kept else 0.0
        if share > _TWINS and self._group.rank == 0:
            warn_caller(
                f"{100 * share:.0f} % of the buffer's samples are also among those that {name} returns: it "
                "must give samples that are never trained on, or verdicts compare what the network knows "
                "by heart with what it has not seen; keep some back from training"
            )

    def _pack(self, given: Any, what: str) -> Samples:
        return self._packing.pack(self._packing.converted(read_all(given, what)))

    def _once(self, ask: Callable[[], Samples]) -> Samples:
        """What process 0 is given, in every process."""
        if self._group.size == 1:
            return ask()
        samples, problem = self._packing.empty(), ""
        if self._group.rank == 0:
            try:
                samples = ask()
            except UserError as error:
                problem = str(error)
        if problem := self._group.texts(problem)[0]:
            raise UserError(problem)
        return Samples(**self._group.gather_columns(vars(samples)))

    def _context(self, task: _Task) -> AdaptationContext:
        return AdaptationContext(
            buffer=self.buffer,
            labels=_Labels(self, task),
            annotate=lambda _: {},
            encode=self.encode,
            rehearse=_refuse_rehearsal,
            steps=lambda: self.ledger.steps,
            monitored=lambda: self._monitor.as_seen(task),
            compare=lambda kept, now: estimate_shares([(kept, now)])[0],
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, as tensors and plain values; the network is saved by its owner."""
        return {
            "parts": {name: self._settings[name] for name in _PARTS},
            "buffer": self.buffer.state_dict(),
            "monitor": self._monitor.state_dict(),
            "adaptation": self._adaptation_state.state_dict(),
            "ledger": self.ledger.state_dict(),
            "packing": self._packing.state_dict(),
            "records": [
                {
                    **asdict(replace(record, verdicts=())),
                    "verdicts": [asdict(verdict) for verdict in record.verdicts],
                }
                for record in self.records
            ],
            "task": self._task,
            "in_task": self.in_task,
            "steps": self.steps,
            "known": list(self._known),
            "came": list(self._came),
            "renewed": list(self._renewed),
            "used": sorted(self._used),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`, with any number of processes."""
        for name, saved in state.get("parts", {}).items():
            if self._settings[name] != saved:
                raise UserError(
                    f"the state to load is of a realigner with the {name} {saved}; this one has "
                    f"{self._settings[name]}: make it with the same"
                )
        self._join()
        self.buffer.load_state_dict(state["buffer"])
        self._monitor.load_state_dict(state["monitor"])
        self._adaptation_state.load_state_dict(state["adaptation"])
        self.ledger.load_state_dict(state["ledger"])
        self._packing.load_state_dict(state["packing"])
        self.records = [
            TaskRecord(
                **{
                    **record,
                    "verdicts": tuple(verdict_from(each) for each in record["verdicts"]),
                    "renewed": tuple(record["renewed"]),
                    "notes": tuple(record["notes"]),
                }
            )
            for record in state["records"]
        ]
        self._task, self.in_task, self.steps = state["task"], state["in_task"], state["steps"]
        self._known = list(state["known"])
        self._came = dict.fromkeys(state["came"])
        self._renewed = tuple(state["renewed"])
        self._used = set(state["used"])


class _TakesPacked(nn.Module):
    """A network as our own code calls it: one tensor of packed inputs -> logits."""

    def __init__(self, network: nn.Module, unpack: Callable[[Tensor], Inputs]) -> None:
        super().__init__()
        self.network = network
        self._unpack = unpack

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (samples, classes)."""
        inputs = self._unpack(images)
        output = self.network(inputs[""]) if "" in inputs else self.network(**inputs)
        logits = output.get("logits") if isinstance(output, Mapping) else output
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            came = (
                f"the shape {tuple(logits.shape)}"
                if isinstance(logits, Tensor)
                else f"a {type(output).__name__}"
            )
            raise UserError(
                "the network must give logits, (samples, classes), or a mapping with them as "
                f"'logits', when it is called with a batch's inputs; got {came}"
            )
        return logits


@dataclass(frozen=True)
class _Task:
    """A task as the monitor sees it."""

    owner: Realigner
    given: Samples | None

    @property
    def number(self) -> int:
        return self.owner._task

    @property
    def known_classes(self) -> tuple[int, ...]:
        return self.owner.known_classes

    def monitored(self) -> Samples:
        if self.given is None:
            raise UserError(
                "this adaptation compares monitored samples after a task's last step, "
                "which needs a loop of ours; use adapt.Realign()"
            )
        known = torch.tensor(self.known_classes, dtype=torch.int64)
        return self.given[torch.isin(self.given.labels, known)]

    def reference(self, label: int) -> Samples:
        assert self.given is not None
        return self.given.of_class(label)


@dataclass(frozen=True)
class _Labels:
    """Where the adaptation gets labels: the user's function, or the monitored samples."""

    owner: Realigner
    task: _Task

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to `count` fresh samples of a class."""
        owner = self.owner
        if choose is not None:
            raise UserError(
                "this adaptation chooses which samples are labelled, which needs a loop of ours; in "
                "another trainer use adapt.Realign()"
            )
        if owner._ask is None:
            fresh = self.task.monitored().of_class(label).distinct()  # their labels are paid for
            fresh = fresh if count is None else fresh[:count]
            owner._used.update(fresh.ids.tolist())
            return fresh
        wanted = owner.ledger.allowance(owner.buffer.slots_of(label) if count is None else count)
        fresh = owner._once(lambda: self._answered(label, wanted))
        owner.ledger.book_labels("adaptation", len(fresh))
        return fresh

    def _answered(self, label: int, wanted: int) -> Samples:
        owner = self.owner
        assert owner._ask is not None
        answer = owner._ask(label, wanted) if wanted else None
        if answer is None or not len(answer):
            return owner._packing.empty()
        first = next(iter(answer.values())) if isinstance(answer, Mapping) else answer
        count = len(first) if isinstance(first, Tensor) else 0
        asked = f"what labels({label}, {wanted}) returns"
        pair = (answer, torch.full((count,), label))
        fresh = owner._pack(pair, asked)
        if len(fresh) > wanted:
            raise UserError(f"{asked} must be at most {wanted} samples; got {len(fresh)}")
        return fresh

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """As many as are wanted, or a fair share of what the budget allows."""
        owner = self.owner
        if owner._ask is None:
            return dict(wanted)
        counts = {
            label: owner.buffer.slots_of(label) if count is None else count
            for label, count in wanted.items()
        }
        total = sum(counts.values())
        granted = owner.ledger.allowance(total)
        return {**(split_budget(counts, granted) if granted < total else wanted)}

    def unlabelled(self) -> Samples:
        """Refused: nobody gives any."""
        raise UserError(
            "this adaptation reads unlabelled samples, which needs a loop of ours; in another "
            "trainer use adapt.Realign()"
        )


def _unknown_truth(task: int) -> Sequence[int]:
    del task
    return ()


def _refuse_rehearsal(batch: Samples | None, *, rate: float = 1.0) -> object:
    del batch, rate
    raise UserError(
        "this adaptation makes train steps of its own, and the optimiser is the trainer's; use one "
        "that changes the replay buffer alone, such as adapt.Realign()"
    )
