"""The learner: network, optimiser, replay buffer and method, one train step at a time."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.compiled import Compiled
from driftwise.devices import to_device
from driftwise.distributed import Group, digest_of, share_out, whole
from driftwise.errors import Diverged, UserError
from driftwise.memory import AnyBuffer, PrefetchingBuffer, ReplayBuffer, Stored
from driftwise.methods.base import Inputs, Method, SampleKeys, check_columns, check_outcome
from driftwise.models.head import encode_all, grow_head, grow_optimiser, is_sharded
from driftwise.models.inputs import Augmentation, Readback, augment, to_host, to_input
from driftwise.models.layers import draws_nothing, take_single_samples
from driftwise.part_state import PartState
from driftwise.types import Encoding, Extras, Samples, StepReport

Rate = Callable[[int, int], float]
"""(epoch from 1, epochs of the task) -> factor"""


def constant_rate(epoch: int, epochs: int) -> float:
    """Always 1."""
    del epoch, epochs
    return 1.0


def step_rate(milestones: Sequence[int], drop: float) -> Rate:
    """Times `drop` after each of the milestones.

    >>> rate = step_rate((35, 45), 0.1)
    >>> [round(rate(epoch, 50), 3) for epoch in (1, 35, 36, 45, 46)]
    [1.0, 1.0, 0.1, 0.1, 0.01]
    """

    def rate(epoch: int, epochs: int) -> float:
        del epochs
        return float(drop ** sum(epoch > milestone for milestone in milestones))

    return rate


def cosine_rate(floor: float) -> Rate:
    """Half a cosine from 1 at the first epoch towards `floor`, which it would reach after the last.

    >>> rate = cosine_rate(0.01)
    >>> [round(rate(epoch, 100), 4) for epoch in (1, 51, 101)]
    [1.0, 0.505, 0.01]
    """

    def rate(epoch: int, epochs: int) -> float:
        return floor + (1 - floor) * (1 + math.cos(math.pi * (epoch - 1) / epochs)) / 2

    return rate


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How train steps are made, whatever the method."""

    minibatch_size: int = 32
    """samples of a draw from the buffer"""
    device: torch.device | str = "cpu"
    memory_format: torch.memory_format = torch.contiguous_format
    bf16: bool = False
    """forwards in bfloat16; weights, losses and kept values stay in float32"""
    fp16: bool = False
    """forwards in float16, with losses scaled so that small gradients do not vanish"""
    augmentation: Augmentation = "none"
    """of stream samples and of samples drawn from the buffer"""
    rate: Rate = constant_rate
    """factor on the learning rate, by epoch"""
    annotate_in_training: bool = False
    """whether stored logits of samples that no step has seen come from a training-mode forward of
    all of them, as published, with its effect on batch-norm statistics"""
    compiled_samples: tuple[int, ...] = ()
    """numbers of samples for which training forwards are compiled; all others are not"""
    cuda_graphs: bool = False
    """whether compiled forwards are recorded as CUDA graphs, which saves launches of small kernels"""
    max_gradient: float | None = None
    """longer gradients, all weights together, are shortened to this; None: none are"""
    shard: Callable[[nn.Module], object] | None = None
    """what makes each of several processes keep a part of the network's weights, gradients and of the
    optimiser's state (FSDP2): `distributed.shard_blocks`, `fully_shard` of torch, or a function that
    calls it; None: each keeps all"""


class Learner:
    """Learns from labelled batches one step at a time and predicts in between.

    Under an initialised process group of torch.distributed, all processes make each call together
    and with the same batch. Each learns from its part of the batch, and gradients are averaged: the
    network is the same in all of them.

    >>> import driftwise as dw
    >>> data = dw.datasets.load("digits")
    >>> stream = dw.streams.class_incremental(data, num_tasks=5, num_drifts=1)
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=dw.adapt.Realign())
    """

    def __init__(
        self,
        network: nn.Module | Callable[[int], nn.Module],
        method: Method,
        *,
        buffer: AnyBuffer,
        lr: float = 0.03,
        optimiser: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
        settings: TrainSettings | None = None,
        seed: int = 0,
    ) -> None:
        """A learner that has seen nothing.

        Args:
            network: a torch module, of which a copy is trained; or a function of an attempt number
                that makes one (`models.seeded`): an adaptation may start from scratch, which takes
                new weights from the function and the initial weights of a module.
            method: how a batch and samples from the buffer become a loss.
            buffer: the replay buffer; of several processes, a `ShardedBuffer` or `ReplicatedBuffer`.
            lr: learning rate of SGD; not used where an `optimiser` is given.
            optimiser: makes the optimiser of a network.
            settings: how steps are made, whatever the method.
            seed: what augmentation, dropout and the method's own draws are drawn from.
        """
        self._group = Group()
        if self._group.size > 1 and isinstance(buffer, ReplayBuffer):
            raise UserError(
                f"{self._group.size} processes need one buffer together; expected a ShardedBuffer or "
                "a ReplicatedBuffer of driftwise.memory, got a ReplayBuffer"
            )
        if not isinstance(method, Method):
            raise UserError(
                "expected a method of a network, such as methods.ER(); got "
                f"{method if isinstance(method, str) else type(method).__name__} (analytic methods "
                "are for AnalyticLearner)"
            )
        self.buffer = buffer
        self.method = method
        self.steps = 0
        self.between: Callable[[], object] = lambda: None
        """called between the operations of a step, so that other threads can run"""
        self._settings = settings = settings or TrainSettings()
        self._device = torch.device(settings.device)
        self._seed = seed
        self._make_network = _maker_of(network)
        self._make_optimiser = optimiser or (
            lambda trained: torch.optim.SGD(trained.parameters(), lr=lr)
        )
        self._restarts = 0
        self._known: set[int] = set()
        self._in_task = False
        self._factor = 1.0
        self._images_return = False
        self._splits = False
        """whether each process makes a part of the step"""
        self._compares = self._group.size > 1
        """whether the next batch, the first of a task, is compared with that of other processes"""
        self._grown_to: int | None = None
        self._augmenting = rng.fork(seed, "augmentation")
        self._dropping = rng.fork(seed, "dropout")
        self.network = self._make_network(0).to(self._device)
        self.network.to(memory_format=settings.memory_format)  # type: ignore[call-overload]
        self._optimiser = self._make_optimiser(self.network)
        self._trained = self.network
        if settings.compiled_samples:
            self._trained = Compiled(
                self.network, settings.compiled_samples, cuda_graphs=settings.cuda_graphs
            )
        self._scaler = torch.amp.GradScaler(self._device.type) if settings.fp16 else None
        self.method.attach(self.network, seed)
        self._shapes_gradients = type(method).after_backward is not Method.after_backward
        self._method_state = PartState(method, "method", lambda: self.network)
        self._is_sharded = False
        if self._group.size > 1:
            self._refuse_other_learners()
            if settings.shard is not None:
                self._refuse_to_shard()

    def _refuse_other_learners(self) -> None:
        """UserError where another process has a learner that would learn something else."""
        self._group.refuse_difference(
            "learner",
            {
                "method": type(self.method).__name__,
                "seed": self._seed,
                "buffer": type(self.buffer).__name__,
                "capacity": self.buffer.capacity,
                "minibatch_size": self._settings.minibatch_size,
                "optimiser": type(self._optimiser).__name__,
                "lr": [group["lr"] for group in self._optimiser.param_groups],
                "initial weights": digest_of(self.network.state_dict().values()),
            },
        )

    def _refuse_to_shard(self) -> None:
        """UserError for what needs the whole network in every process."""
        method, settings = self.method, self._settings
        obstacles = {
            f"{type(method).__name__}, which copies the network": (
                type(method).copies is not Method.copies
            ),
            "compile": bool(settings.compiled_samples),
            "fp16": settings.fp16,
        }
        if found := [name for name, is_there in obstacles.items() if is_there]:
            raise UserError(
                f"a network whose weights are shared out between processes does not work with "
                f"{found[0]}: leave one of them out"
            )

    def _shard(self) -> None:
        """Keep a part of the weights in each process, from the first task on.

        Not before: what looks at a network, such as the search for its head, tries a whole copy.
        """
        if self._settings.shard is None or self._group.size == 1 or self._is_sharded:
            return
        self._is_sharded = True
        self._settings.shard(self.network)
        self._optimiser = self._make_optimiser(self.network)
        self._set_rate()

    def _whole(self, state: Any) -> Any:
        return whole(state) if self._is_sharded else state

    def _load_weights(self, state: Mapping[str, Tensor]) -> None:
        if self._is_sharded:
            state = share_out(state, self.network.state_dict())
        self.network.load_state_dict(state)

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self._device

    @property
    def memory_format(self) -> torch.memory_format:
        """The order in which images lie in memory."""
        return self._settings.memory_format

    @property
    def bf16(self) -> bool:
        """Whether networks compute in bfloat16."""
        return self._settings.bf16

    @property
    def networks(self) -> tuple[nn.Module, ...]:
        """Every network that a step may evaluate: the trained one and the method's copies of it."""
        return (self.network, *self.method.copies())

    @property
    def predictor(self) -> nn.Module:
        """The network that predicts: the trained one, or the method's copy of it."""
        return self.method.predictor(self.network)

    def begin_task(self, classes: Sequence[int], *, from_scratch: bool = False) -> None:
        """Begin a task with these new classes; a task under way ends.

        `from_scratch` takes new weights first, as some methods do at every task.
        """
        if self._in_task:
            self.end_task()
        self._shard()
        if from_scratch or (self.method.starts_afresh and self._known):
            self.restart()
        self._known.update(classes)
        self._in_task = True
        self._compares = self._group.size > 1
        self.method.begin_task(self.network, classes)

    def begin_epoch(self, epoch: int, epochs: int) -> None:
        """Set the learning rate for the epoch, counted from 1, of a task that has so many."""
        self._factor = self._settings.rate(epoch, epochs)
        self._images_return = epochs > 1 and self._settings.augmentation == "none"
        self._set_rate()

    def end_task(self) -> None:
        """End the task."""
        self.refuse_diverged_weights()
        self._in_task = False
        self._images_return = False
        self.method.end_task(self.network)

    @torch.no_grad()
    def refuse_diverged_weights(self) -> None:
        """Diverged where an update made weights infinite: a loss is checked before its update."""
        groups = self._optimiser.param_groups
        weights: list[Tensor] = [weight for group in groups for weight in group["params"]]
        largest = torch.stack(self._whole(torch._foreach_norm(weights))).max()
        if not bool(largest < LARGEST_WEIGHT):  # this way round, so that NaN is refused, too
            raise Diverged(
                f"weights were not finite after step {self.steps}; try a lower learning rate"
            )

    def observe(self, batch: Samples) -> StepReport:
        """One train step on a labelled batch; then the batch is offered to the buffer.

        Classes that no task has announced begin one.
        """
        if not len(batch):
            raise ValueError("a step needs at least one sample; got an empty batch")
        if self._compares:  # samplers for parallel training give each process a batch of its own
            content = digest_of([batch.images, batch.labels])
            self._group.refuse_difference("batch", {"samples": len(batch), "content": content})
            self._compares = False
        if strangers := set(batch.labels.tolist()) - self._known:
            self.begin_task(sorted(strangers))
        self._begin_step(len(batch))
        report = self._step(self._part(batch), batch.labels)
        if self.method.rehearses:
            samples, logits = batch, report.logits
            if self._group.size > 1:  # each process offers its part
                mine = self._group.share(len(batch))
                samples, logits = batch[mine], logits if self._splits else logits[mine]
            self.buffer.offer(samples, self._columns(logits))
            if isinstance(self.buffer, PrefetchingBuffer):
                self.buffer.prefetch()
            self.between()
        return report

    def rehearse(self, batch: Samples | None = None, *, rate: float = 1.0) -> StepReport:
        """One step on a batch and the buffer, or the buffer alone; the buffer does not change.

        Samples drawn from the buffer then take the place of the stream's. `rate`: factor on the learning
        rate, for this step.
        """
        if not len(self.buffer if batch is None else batch):
            raise ValueError("nothing to rehearse: the buffer is empty")
        self._begin_step(0 if batch is None else len(batch))
        if batch is None:
            mine = self._sampled(self._settings.minibatch_size).samples
            labels = self._group.gather(mine.labels) if self._splits else mine.labels
        else:
            mine, labels = self._part(batch), batch.labels
        self._set_rate(rate)
        try:
            return self._step(mine, labels)
        finally:
            self._set_rate()

    def _begin_step(self, samples: int) -> None:
        """Decide whether processes split the step: all parts must be equal, or means would differ.

        A step that cannot be split evenly, such as the last of an epoch, is made by every process.
        """
        size, held = self._group.size, len(self.buffer)
        drawn = (min(self._settings.minibatch_size, held), min(samples, held))
        self._splits = size > 1 and not any(count % size for count in (samples, *drawn))

    def _part(self, batch: Samples) -> Samples:
        """What this process learns from a batch."""
        return batch[self._group.share(len(batch))] if self._splits else batch

    def _sampled(self, count: int) -> Stored:
        """What this process learns from a draw of so many samples."""
        if self._group.size == 1 or isinstance(self.buffer, ReplayBuffer):
            return self.buffer.sample(count)
        return self.buffer.sample(count, whole=not self._splits)

    def _step(self, batch: Samples, labels: Tensor) -> StepReport:
        """Update the network by one batch; `labels`: those of the parts of all processes."""
        if self._settings.cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        if not self.network.training:  # train() walks over all modules: 60 us in a ResNet-18
            self.network.train()
        keys = SampleKeys(batch.ids, batch.concepts) if self._images_return else None
        stream = self._inputs(batch.images, batch.labels, {}, keys, labels)
        with self._forward_context():
            try:
                outcome = self.method.outcome(self._trained, stream, self._draw)
            except ValueError as error:
                _report_single_samples(error)
                raise
        check_outcome(outcome, len(batch), self.method)
        loss = Readback(outcome.loss)
        self.between()
        self.steps += 1
        # A tenth of what `zero_grad` takes: 6 us, not 55.
        weights = [weight for group in self._optimiser.param_groups for weight in group["params"]]
        for each in weights:
            each.grad = None
        scaled = outcome.loss if self._scaler is None else self._scaler.scale(outcome.loss)
        scaled.backward()  # type: ignore[no-untyped-call]
        if self._group.size > 1:
            loss = self._average_over_processes(weights, outcome.loss)
        number = loss.wait()
        if not math.isfinite(number):
            raise Diverged(
                f"the loss became {number} at step {self.steps}; try a lower learning rate"
            )
        if self._scaler is not None:
            self._scaler.unscale_(self._optimiser)
        if self._shapes_gradients:
            with self._forward_context():
                self.method.after_backward(self.network)
        self.between()
        if self._settings.max_gradient is not None:
            nn.utils.clip_grad_norm_(weights, self._settings.max_gradient)
        if self._scaler is None:
            self._optimiser.step()
        else:  # a step whose gradients are not finite is left out, and the scale falls
            self._scaler.step(self._optimiser)
            self._scaler.update()
        self.method.after_step(self.network)
        self.between()
        # They stay where they are: a copy to the host would wait for the whole step.
        logits = outcome.logits.detach() if outcome.logits.requires_grad else outcome.logits
        logits = logits if logits.dtype == torch.float32 else logits.float()
        return StepReport(loss=number, logits=logits, labels=batch.labels)

    def _average_over_processes(self, weights: Sequence[nn.Parameter], loss: Tensor) -> Readback:
        """Average gradients and batch-norm statistics over all processes; returns the mean loss."""
        for each in weights:
            if each.requires_grad and each.grad is None:  # another process may have one
                each.grad = torch.zeros_like(each)
        gradients = [each.grad for each in weights if each.grad is not None]
        if self._is_sharded:  # the backward pass has averaged them
            gradients = []
        buffers = [buffer for network in self.networks for buffer in network.buffers()]
        statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
        mean = loss.detach().float().clone()
        self._group.average([*gradients, *statistics, mean])
        return Readback(mean)

    def logits(self, images: Tensor) -> Tensor:
        """Logits of the predicting network, (samples, h, w, c) -> (samples, classes), on the CPU.

        No side effects: evaluation mode, no gradients, no batch-norm update.
        """
        return self._evaluate(self.predictor, images)

    @torch.no_grad()
    def logits_of(self, network: nn.Module, images: Tensor) -> Tensor:
        """Logits of a copy of a network, in the mode it is in, computed as the learner's own are.

        The learner is not touched: other threads may call this while it learns.
        """
        with self._precision():
            if len(images) <= _EVALUATED_AT_ONCE:
                return to_host(network(self._to_input(images)))
            parts = torch.split(images, _EVALUATED_AT_ONCE)
            return torch.cat([to_host(network(self._to_input(part))) for part in parts])

    def encode(self, images: Tensor) -> Encoding:
        """Logits and features of the predicting network, on the CPU; no side effects."""
        network, mine = self.predictor, self._evaluated_here(images)
        with self._evaluation(network):
            parts = [self._to_input(part) for part in torch.split(mine, _EVALUATED_AT_ONCE)]
            encoding = encode_all(network, parts)
        if mine is images:
            return Encoding(logits=encoding.logits.cpu(), features=encoding.features.cpu())
        gather = self._group.gather
        return Encoding(logits=gather(encoding.logits), features=gather(encoding.features))

    def annotate(self, samples: Samples) -> Extras:
        """What the method keeps beside samples that no train step has seen."""
        if type(self.method).columns is Method.columns:
            return {}  # a method that keeps nothing: spare the forward
        if not self._settings.annotate_in_training:
            return self._columns(self._evaluate(self.network, samples.images))
        self.network.train()
        with self._forward_context(), torch.no_grad():
            return self._columns(to_host(self.network(self._to_input(samples.images))))

    def restart(self) -> None:
        """New weights, a new optimiser and new copies; the buffer stays."""
        self._restarts += 1
        self.go_back(self._make_network(self._restarts))

    def go_back(self, network: nn.Module) -> None:
        """Take the weights of a copy, with a new optimiser; the buffer stays."""
        if self._grown_to is not None:
            network = copy.deepcopy(network)
            grow_head(network, self._grown_to)
        self._load_weights(network.state_dict())
        self._optimiser = self._make_optimiser(self.network)
        self._set_rate()
        self.method.attach(self.network, self._seed)

    def grow(self, outputs: int) -> None:
        """Add outputs for classes beyond those of the network; nothing learned is lost.

        Stored logits get 0 for the new classes, as new outputs do.
        """
        if self._is_sharded:
            raise UserError(
                "a network whose weights are shared out between processes cannot take on new classes; "
                "give it enough outputs from the start"
            )
        replaced = grow_head(self.network, outputs)
        if not replaced:
            return
        self._grown_to = outputs
        grow_optimiser(self._optimiser, replaced)
        for network in self.method.copies():
            grow_head(network, outputs)
        self.buffer.widen(outputs)

    def _set_rate(self, rate: float = 1.0) -> None:
        for group in self._optimiser.param_groups:
            full = group.setdefault("initial_lr", group["lr"])
            group["lr"] = full * self._factor * rate

    def _evaluate(self, network: nn.Module, images: Tensor) -> Tensor:
        """Logits on the CPU, a part of the samples at a time; each process makes some of them."""
        mine = self._evaluated_here(images)
        with self._evaluation(network):
            logits = self.logits_of(network, mine)
        return logits if mine is images else self._group.gather(logits)

    def _evaluated_here(self, images: Tensor) -> Tensor:
        """What this process evaluates of samples that all have; all of them, if they are few."""
        if not 1 < self._group.size <= len(images):
            return images
        if self._is_sharded and len(images) % self._group.size:
            return images  # all processes make the same number of forwards, or wait for ever
        return images[self._group.share(len(images))]

    @contextlib.contextmanager
    def _evaluation(self, network: nn.Module) -> Iterator[None]:
        """Evaluate a network without side effects."""
        # A network that draws random numbers in evaluation mode draws the same ones every time.
        draws = rng.as_global(rng.fork(self._seed, "asking"))
        with evaluating(network), torch.no_grad(), self._precision(), draws:
            yield

    def _columns(self, logits: Tensor) -> Extras:
        columns = self.method.columns(logits)
        if columns:
            check_columns(columns, len(logits), self.method)
        return columns

    def _draw(self, count: int | None = None) -> Inputs | None:
        if not len(self.buffer):
            return None
        # A method counts the samples that it sees, and the buffer those of all processes.
        parts = self._group.size if self._splits else 1
        stored = self._sampled(self._settings.minibatch_size if count is None else count * parts)
        return self._inputs(stored.samples.images, stored.samples.labels, stored.extras)

    def _inputs(
        self,
        images: Tensor,
        labels: Tensor,
        extras: Extras,
        keys: SampleKeys | None = None,
        step_labels: Tensor | None = None,
    ) -> Inputs:
        if self._device.type != "cpu":  # where samples are already
            images, labels = to_device(images, self._device), to_device(labels, self._device)
            extras = {name: to_device(column, self._device) for name, column in extras.items()}
        return Inputs(
            images,
            labels,
            extras,
            convert=self._to_augmented,
            keys=keys,
            step_labels=step_labels,
        )

    def _to_augmented(self, images: Tensor, *counts: int) -> Tensor:
        """Network inputs; `counts`: of the batches and draws that they are made of, if of several."""
        x, how = self._to_input(images), self._settings.augmentation
        if not self._splits or how == "none":
            return augment(x, how, self._augmenting)
        rank, size, rows, start = self._group.rank, self._group.size, [], 0
        for count in counts or (len(images),):
            rows.append(torch.arange(count) + start + rank * count)
            start += count * size
        return augment(x, how, self._augmenting, rows=torch.cat(rows), whole=start)

    def _to_input(self, images: Tensor) -> Tensor:
        return to_input(images, self._device, memory_format=self._settings.memory_format)

    def _forward_context(self) -> contextlib.AbstractContextManager[object]:
        """Randomness and precision of a training forward.

        Dropout knows the global state only: it is lent a generator, saved with the rest.
        """
        if draws_nothing(self.network):  # lending costs up to a tenth of an MLP's step
            return self._precision()
        dropping = self._dropping
        if self._splits:  # other samples than elsewhere, and other dropout
            seed = int(torch.randint(2**62, (), generator=dropping))
            dropping = rng.fork(seed, self._group.rank)
        stack = contextlib.ExitStack()
        stack.enter_context(rng.as_global(dropping))
        stack.enter_context(self._precision())
        return stack

    def _precision(self) -> contextlib.AbstractContextManager[object]:
        if not (self._settings.bf16 or self._settings.fp16):
            return _NOTHING  # entering a disabled autocast costs 5 us
        dtype = torch.bfloat16 if self._settings.bf16 else torch.float16
        return torch.autocast(self._device.type, dtype)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "network": self._whole(self.network.state_dict()),
            "optimiser": self._whole(self._optimiser.state_dict()),
            "memory": self.buffer.state_dict(),
            "objective": self._method_state.state_dict(),
            "steps": self.steps,
            "restarts": self._restarts,
            "grown_to": self._grown_to,
            "known": sorted(self._known),
            "in_task": self._in_task,
            "factor": self._factor,
            "pictures_return": self._images_return,
            "augmenting": self._augmenting.get_state(),
            "dropping": self._dropping.get_state(),
            **({} if self._scaler is None else {"scaler": self._scaler.state_dict()}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off."""
        if (outputs := state.get("grown_to")) is not None:
            self.grow(outputs)
        self._shard()
        self._load_weights(state["network"])
        self._optimiser.load_state_dict(_checked(state["optimiser"], self._optimiser))
        self.buffer.load_state_dict(state["memory"])
        self._method_state.load_state_dict(state["objective"])
        counts = state["steps"], state["restarts"], *state["known"]
        if not all(type(count) is int and 0 <= count < 2**62 for count in counts):
            raise ValueError("expected whole numbers of steps, restarts and known classes")
        returns = state.get("pictures_return", False)
        are_flags = {type(state["in_task"]), type(returns)} == {bool}
        if type(state["factor"]) not in (int, float) or not are_flags:
            raise ValueError("expected a factor of the rate, and whether a task is under way")
        self.steps = state["steps"]
        self._restarts = state["restarts"]
        self._known = set(state["known"])
        self._in_task = state["in_task"]
        self._factor = state["factor"]
        self._images_return = returns
        self._augmenting.set_state(state["augmenting"])
        self._dropping.set_state(state["dropping"])
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])


_NOTHING = contextlib.nullcontext()
LARGEST_WEIGHT = 1e9
"""a norm of weights that no network has which learns: a few such layers, and all is infinite"""

_EVALUATED_AT_ONCE = 512
"""samples of a forward that nobody learns from"""


def _maker_of(network: nn.Module | Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    if not isinstance(network, nn.Module):
        return network
    if is_sharded(network):
        raise UserError(
            "a Learner copies its network, and one that processes share (fully_shard) cannot be "
            "copied: give it whole, and say how with TrainSettings(shard=fully_shard)"
        )
    given = copy.deepcopy(network)
    take_single_samples(given)
    return lambda _: copy.deepcopy(given)


def _checked(state: Mapping[str, Any], optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    """An optimiser's state; ValueError where it holds settings or sums of another kind."""
    mine = optimiser.state_dict()["param_groups"]
    for own in mine:  # a fresh optimiser has none
        own.pop("initial_lr", None)
    groups = [{**own, **group} for own, group in zip(mine, state["param_groups"], strict=True)]
    for own, group in zip(mine, groups, strict=True):
        for name, given in group.items():
            value = own["lr"] if name == "initial_lr" else own[name]
            is_number = type(value) in (int, float)
            if type(given) not in (int, float) if is_number else given != value:
                raise ValueError(f"expected {name} of an optimiser like {value!r}")
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    mine_of: dict[Any, dict[str, Any]] = {}
    for number, sums in state["state"].items():
        weight = weights[int(number)]
        for name, value in sums.items():
            if isinstance(value, Tensor) and value.ndim and value.shape != weight.shape:
                raise ValueError(
                    f"expected {name} of an optimiser with the shape {tuple(weight.shape)}"
                )
        own = copy.deepcopy(dict(sums))  # torch would go on in the tensors that it is given
        mine_of[number] = share_out(own, dict.fromkeys(own, weight))
    return {"state": mine_of, "param_groups": groups}


def _report_single_samples(error: ValueError) -> None:
    """UserError where a custom batch norm refuses a single sample (torch's own are replaced)."""
    if "more than 1 value per channel" in str(error):
        raise UserError(
            "the network's batch norm cannot learn from a single sample, and a step has one: choose "
            "a batch_size that leaves no sample over and a minibatch_size above 1, or another norm"
        ) from error


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode for the moment, every module back in its own mode afterwards."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
