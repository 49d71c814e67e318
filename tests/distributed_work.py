"""What each process of the tests does: it compares buffers and learners with those of one process."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy import stats
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map
from trainer_cases import CAPACITY as KEPT
from trainer_cases import LR, Digits, make_network

from driftwise import AnalyticLearner, DriftLoop, HybridLearner, LiveLearner
from driftwise.adapt import Realign, Vanilla
from driftwise.datasets.readers.digits import load_digits
from driftwise.detect import KS, RandomEncoder
from driftwise.distributed import Group, shard_blocks
from driftwise.errors import RunFailure, UserError
from driftwise.integrations.realigner import Realigner
from driftwise.learner import Learner, TrainSettings
from driftwise.memory import PrefetchingBuffer, ReplayBuffer, ReplicatedBuffer, ShardedBuffer
from driftwise.memory.policies import Balanced, Policy, Reservoir
from driftwise.methods import CLSER, ER, ERACE, SER, SLDA, DERpp, Method
from driftwise.models import MLP, seeded
from driftwise.models.head import is_sharded
from driftwise.models.inputs import Augmentation
from driftwise.runs.store import read_result
from driftwise.streams import class_incremental
from driftwise.testing import same
from driftwise.types import Extras, Samples

CAPACITY, BATCHES = 40, 12


def batch(number: int, *, size: int = 11, labels: tuple[int, ...] = (0, 1, 2)) -> Samples:
    draw = np.random.default_rng(number)
    return Samples(
        images=torch.from_numpy(draw.integers(0, 256, (size, 2, 3, 1), dtype=np.uint8)),
        labels=torch.from_numpy(draw.choice(labels, size)),
        ids=torch.arange(size) + number * size,
        concepts=torch.full((size,), number % 3),
    )


def logits_of(samples: Samples) -> Extras:
    return {"logits": samples.images.float().flatten(1)[:, :4]}


def part(samples: Samples, extras: Extras, group: Group) -> tuple[Samples, Extras]:
    mine = group.share(len(samples))
    return samples[mine], {name: column[mine] for name, column in extras.items()}


def draws_together(buffer: Any, whole: ReplayBuffer, group: Group, count: int) -> None:
    """The parts of all processes are the draw of one, each sample with its own values."""
    expected, mine = whole.sample(count), buffer.sample(count)
    sizes = group.gather(torch.tensor([len(mine)])).tolist()
    assert max(sizes) - min(sizes) <= 1, "equal parts"
    ids = group.gather(mine.samples.ids)
    assert len(set(ids.tolist())) == len(ids), "without repeats"
    order, place = ids.argsort(), expected.samples.ids.argsort()
    for name, column in vars(mine.samples).items():
        assert torch.equal(group.gather(column)[order], getattr(expected.samples, name)[place])
    logits = group.gather(mine.extras["logits"])
    assert torch.equal(logits[order], expected.extras["logits"][place])


def one_history(
    kind: Any,
    policy: type[Policy],
    group: Group,
    *,
    capacity: int = CAPACITY,
    by_class: bool = False,
) -> None:
    """A stream in which a class drifts. `by_class`: a process sees only some classes."""
    whole = ReplayBuffer(capacity, policy=policy(), seed=7)
    buffer = kind(capacity, policy=policy(), seed=7, group=group)
    assert [len(buffer.sample(3, whole=each)) for each in (False, True)] == [0, 0], (
        "before any came"
    )
    for number in range(BATCHES):
        samples = batch(number)
        if by_class:
            samples = samples[samples.labels.argsort(stable=True)]
        whole.offer(samples, logits_of(samples))
        buffer.offer(*part(samples, logits_of(samples), group))
        if number % 3 == 0:
            draws_together(buffer, whole, group, 8)
        if number == 6:  # a class has drifted
            held = whole.slots_of(1)
            assert (buffer.drop(1), whole.drop(1)) == (held, held)
            fresh = batch(99, size=held, labels=(1,))
            for each in (whole, buffer):
                each.put(fresh, logits_of(fresh))
        if isinstance(buffer, PrefetchingBuffer):
            buffer.prefetch()
    assert buffer.counts() == whole.counts()
    assert (len(buffer), buffer.seen, buffer.free) == (len(whole), whole.seen, whole.free)
    for label in (0, 1, 2):
        ours, theirs = vars(buffer.samples_of(label)), vars(whole.samples_of(label))
        assert same(dict(ours), dict(theirs))
    only = torch.arange(whole.slots_of(0)) % 2 == 0
    assert buffer.drop(0, only) == whole.drop(0, only)
    for each in (whole, buffer):
        each.widen(6)
    state = buffer.state_dict()
    assert same(state, whole.state_dict()), "the state is that of one process"
    again = kind(capacity, policy=policy(), seed=0, group=group)
    again.load_state_dict(state)
    draws_together(again, whole, group, 40)
    alone = ReplayBuffer(capacity, policy=policy(), seed=0)
    alone.load_state_dict(state)  # other numbers of processes go on with it
    assert same(alone.state_dict(), state)


def goes_on_in_others(kind: Any, group: Group, later_kind: Any, later: Group) -> None:
    """A buffer of some processes goes on in others, and in the other layout, as one that never stopped."""
    whole, buffer = ReplayBuffer(CAPACITY, seed=7), kind(CAPACITY, seed=7, group=group)
    for number in range(6):
        samples = batch(number)
        whole.offer(samples, logits_of(samples))
        buffer.offer(*part(samples, logits_of(samples), group))
    state = buffer.state_dict()
    if later.rank < 0:  # this process is not among them
        return
    again = later_kind(CAPACITY, seed=0, group=later)
    again.load_state_dict(state)
    for number in range(6, BATCHES):
        samples = batch(number)
        whole.offer(samples, logits_of(samples))
        again.offer(*part(samples, logits_of(samples), later))
        draws_together(again, whole, later, 8)
    assert same(again.state_dict(), whole.state_dict())


def refused_samples_change_nothing(kind: Any, group: Group) -> None:
    buffer, samples = kind(CAPACITY, group=group), batch(0)
    buffer.offer(*part(samples, logits_of(samples), group))
    before = copy.deepcopy(buffer.state_dict())
    wide = {"logits": torch.zeros(len(samples), 9)}
    for extras, expected in (({}, "expected the columns"), (wide, r"of torch.float32 and shape")):
        for take in (lambda s, e: buffer.offer(*part(s, e, group)), buffer.put):
            with pytest.raises(ValueError, match=expected):
                take(samples, extras)
    many = batch(1, size=CAPACITY)
    with pytest.raises(ValueError, match="one per free slot; got 40"):
        buffer.put(many, logits_of(many))
    assert same(buffer.state_dict(), before)


def keeps_its_share(group: Group) -> None:
    """A long stream: no process keeps more than about its part."""
    buffer = ShardedBuffer(300, group=group)
    for number in range(20):
        samples = batch(number, size=200)
        buffer.offer(*part(samples, logits_of(samples), group))
    kept = group.gather(torch.tensor([len(buffer._values)]))
    assert int(kept.max()) <= 2 * 300 // group.size + 256 + 200


def collectives(group: Group) -> None:
    group.refuse_difference("config", {"seed": 1})
    assert group.texts("ab" * group.rank) == ["ab" * rank for rank in range(group.size)]
    mine = torch.full((group.rank + 1, 2), float(group.rank), dtype=torch.bfloat16)
    everybody = group.gather(mine)
    assert everybody.dtype == torch.bfloat16
    assert everybody[:, 0].tolist() == [r for r in range(group.size) for _ in range(r + 1)]
    if group.size > 2:
        with pytest.raises(UserError, match=r"rank 2 has seed 1, rank 0 0; lr null, rank 0 0\.1:"):
            group.refuse_difference(
                "config", {"seed": group.rank // 2} | ({} if group.rank > 1 else {"lr": 0.1})
            )
    with pytest.raises(RunFailure, match="processes make different calls at the same point"):
        group.gather(torch.zeros(1), "extend" if group.rank else "offer")
    gradients = [torch.ones(2, 2), torch.full((3,), float(group.rank))]
    group.average(gradients)
    assert gradients[0].tolist() == [[1.0] * 2] * 2
    assert gradients[1].tolist() == [(group.size - 1) / 2] * 3
    large = [torch.full((257, 300), float(group.rank)), torch.full((300, 257), float(group.rank)).T]
    large += [gradients[1], torch.full((2**16,), float(group.rank), dtype=torch.bfloat16)]
    for tensors in (large, large[:1]):
        for tensor in tensors:
            tensor.copy_(group.rank * torch.ones_like(tensor))
        group.average(tensors)
        for tensor in tensors:
            assert torch.equal(tensor, torch.full_like(tensor, (group.size - 1) / 2))


MAKE = seeded(MLP, input_shape=(1, 2, 3), num_classes=4, seed=3)
METHODS = (
    lambda: ER(),
    lambda: ERACE(),
    lambda: DERpp(alpha=0.3, beta=0.5),
    lambda: SER(alpha=0.2, beta=0.2),
    lambda: CLSER(),
)


def alone(work: Callable[[], Any]) -> Any:
    """Done as if there were no other process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.distributed.is_initialized", lambda: False)
        return work()


def learner_like_one_process(
    make: Callable[[], Method],
    group: Group,
    *,
    last: int = 7,
    network: Callable[[int], nn.Module] = MAKE,
    shard: Callable[[nn.Module], object] | None = None,
    augmentation: Augmentation = "none",
    device: torch.device | str = "cpu",
) -> None:
    """Two tasks, a rehearsal, a checkpoint: weights to rounding, the buffer bit for bit.

    `last`: samples of the last batch, which may not be a multiple of the processes. `shard`: what lets
    each process keep a part of the weights. `device`: that of the several processes.
    """

    def learner(buffer: Any) -> Learner:
        several = not isinstance(buffer, ReplayBuffer)
        settings = TrainSettings(
            minibatch_size=8,
            shard=shard,
            augmentation=augmentation,
            device=device if several else "cpu",
        )
        with pytest.MonkeyPatch.context() as patch:
            if several:  # some of all processes
                patch.setattr("driftwise.learner.Group", lambda: group)
            return made(buffer, settings)

    def made(buffer: Any, settings: TrainSettings) -> Learner:
        return Learner(
            network,
            make(),
            buffer=buffer,
            optimiser=lambda trained: torch.optim.SGD(trained.parameters(), 0.05, momentum=0.5),
            settings=settings,
        )

    def train(learner: Learner) -> None:
        for task, labels in enumerate(((0, 1), (2, 3))):
            learner.begin_task(labels)
            learner.begin_epoch(1, 1)
            for number in range(5):
                size = last if number == 4 else 8
                learner.observe(batch(10 * task + number, size=size, labels=labels))
            learner.rehearse()
            learner.end_task()

    ours = learner(ShardedBuffer(20, group=group))
    theirs: Learner = alone(lambda: learner(ReplayBuffer(20)))
    train(ours)
    alone(lambda: train(theirs))
    state = tree_map(
        lambda each: each.cpu() if isinstance(each, Tensor) else each, ours.state_dict()
    )
    mine, other = state["memory"]["columns"], theirs.buffer.state_dict()["columns"]
    assert list(mine) == list(other)
    for name in other:
        if name.startswith("extras."):  # stored logits
            torch.testing.assert_close(mine[name], other[name], rtol=0, atol=1e-5)
        else:
            assert torch.equal(mine[name], other[name]), "bit for bit"
    assert torch.equal(state["augmenting"], theirs.state_dict()["augmenting"])
    assert is_sharded(ours.network) == (shard is not None)
    if shard is not None:
        held = sum(
            w.to_local().numel() for w in ours.network.parameters() if isinstance(w, DTensor)
        )
        total = sum(weight.numel() for weight in theirs.network.parameters())
        assert total / group.size * 0.5 < held < total / group.size * 1.5, "a part of the weights"
    for name, weight in theirs.network.named_parameters():
        found = state["network"][name].detach().cpu()
        torch.testing.assert_close(found, weight, rtol=0, atol=1e-6)
        everybody = group.gather(found[None])
        assert all(torch.equal(each, everybody[0]) for each in everybody), "one network for all"
    images = batch(50).images
    torch.testing.assert_close(ours.logits(images), theirs.logits(images), rtol=0, atol=1e-5)
    again = learner(ShardedBuffer(20, group=group))
    again.load_state_dict(ours.state_dict())
    for each in (ours, again):
        each.begin_task([0])
        each.observe(batch(60, size=8))
    assert same(again.state_dict(), ours.state_dict()), "exact after a resume"
    one = alone(lambda: learner(ReplayBuffer(20)))
    alone(lambda: one.load_state_dict(state))
    assert same(alone(one.state_dict), state), "in one process, too"
    again.restart()
    theirs.restart()
    torch.testing.assert_close(again.logits(images), alone(lambda: theirs.logits(images)))


def dropout_is_drawn_by_each_process(group: Group) -> None:
    """And for all alike in a step that all make; a checkpoint goes on with the same draws."""
    seen: list[Tensor] = []

    def network(attempt: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), MAKE(attempt))

    def learner() -> Learner:
        made = Learner(network, ER(), buffer=ShardedBuffer(20, group=group))
        made.network.get_submodule("1").register_forward_hook(
            lambda _, given, out: seen.append(out[:2] != 0)
        )
        made.begin_task((0, 1))
        return made

    first = learner()
    for size in (8, 7):
        first.observe(batch(size, size=size, labels=(0, 1)))
    everybody = [group.gather(mask[None]) for mask in seen]
    assert [bool((masks == masks[0]).all()) for masks in everybody] == [False, True]
    again = learner()
    again.load_state_dict(first.state_dict())
    for each in (first, again):
        each.observe(batch(9, size=8, labels=(0, 1)))
    assert torch.equal(seen[-1], seen[-2])
    assert same(again.state_dict(), first.state_dict())


class TinyTransformer(nn.Module):
    """Two blocks of attention over the pixels of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, 1, height, width) -> (samples, 4)."""
        tokens = self.embed(x.flatten(1)[:, :, None])
        for block in self.blocks:
            tokens = block(tokens)
        logits: Tensor = self.head(tokens.mean(dim=1))
        return logits


def every_sample_is_equally_likely(group: Group) -> None:
    """The reservoir's law over the whole stream, whichever process saw a sample (chi-square)."""
    capacity, offered, seeds = 5, 20, 120
    kept = np.zeros(offered)
    for seed in range(seeds):
        buffer = ShardedBuffer(capacity, seed=seed, group=group)
        for number in range(2):
            samples = batch(number, size=offered // 2)
            buffer.offer(*part(samples, {}, group))
        assert len(buffer) == capacity, "capacity is exact"
        kept[buffer.state_dict()["columns"]["ids"].numpy()] += 1
    expected = seeds * capacity / offered
    # Kept samples exclude one another, which makes the sum smaller than for independent ones.
    statistic = ((kept - expected) ** 2 / (expected * (1 - capacity / offered))).sum()
    statistic *= (offered - 1) / offered
    assert stats.chi2.sf(statistic, offered - 1) > 1e-3, kept


def loop_of_objects(group: Group, folder: Path) -> None:
    """`DriftLoop` in all processes, against one process: verdicts, labels, ledger, result."""
    data = load_digits()

    def loop(buffer: Any) -> tuple[DriftLoop, Any]:
        stream = class_incremental(data, num_tasks=2, num_drifts=1, batch_size=16, severity=5)
        network = seeded(MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
        learner = Learner(network, DERpp(), buffer=buffer, lr=0.1)
        return DriftLoop(
            learner, detector=KS(), encoder=RandomEncoder, adaptation=Realign()
        ), stream

    ours, stream = loop(ShardedBuffer(100, group=group))
    records = list(ours.run(stream))
    theirs, whole = alone(lambda: loop(ReplayBuffer(100)))
    expected = alone(lambda: list(theirs.run(whole)))
    for mine, other in zip(records, expected, strict=True):
        assert mine.drifted == other.drifted
        assert mine.labels == other.labels
        for one, two in zip(mine.verdicts, other.verdicts, strict=True):
            assert (one.label, one.drifted) == (two.label, two.drifted)
            assert one.p_value == pytest.approx(two.p_value, abs=1e-4)
    assert any(record.drifted for record in records), "a drift was found and adapted to"
    assert ours.ledger.labels == theirs.ledger.labels, "labels are asked for once"
    assert ours.ledger.labels["adaptation"] > 0
    assert ours.ledger.steps == theirs.ledger.steps
    assert ours.learner.buffer.counts() == theirs.learner.buffer.counts()
    ours.result.save(folder / "objects")  # all processes call it, one writes
    assert read_result(folder / "objects")["labels"] == theirs.ledger.labels
    state = ours.state_dict()
    again, stream = alone(lambda: loop(ReplayBuffer(100)))
    alone(lambda: again.bind(stream).load_state_dict(state))  # in one process
    assert same(again.learner.buffer.state_dict(), ours.learner.buffer.state_dict())


def realigner_like_one_process(group: Group, wrap: Callable[[nn.Module], Any]) -> None:
    """A training loop of somebody else's, each process with its part of every batch.

    `wrap`: what makes a network one of several processes, DDP or FSDP2.
    """

    def train(digits: Digits, size: int) -> tuple[Realigner, nn.Module]:
        network = make_network()
        trained = wrap(network) if size > 1 else network
        optimiser = torch.optim.SGD(network.parameters(), lr=LR)
        realigner = Realigner(network, **{**digits.settings(), "buffer": KEPT})
        for number in (1, 2, 3):  # before the third, classes drift
            digits.task = digits.stream.task(number)
            realigner.begin_task()
            for x, y in digits.batches(epoch=1):
                if len(y) % group.size:  # the means of parts would weigh samples differently
                    continue
                mine = group.share(len(y)) if size > 1 else slice(None)
                batch = x[mine], y[mine]
                optimiser.zero_grad()
                inputs, labels = realigner.extend(batch)
                nn.functional.cross_entropy(trained(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                realigner.offer(batch)
            realigner.end_task()
        return realigner, network

    digits, asked = Digits(batch_size=16), []
    ask = digits.ask
    digits.ask = lambda *order: asked.append(order) or ask(*order)  # type: ignore[method-assign,func-returns-value]
    ours, network = train(digits, group.size)
    theirs, expected = alone(lambda: train(Digits(batch_size=16), 1))
    for mine, other in zip(network.parameters(), expected.parameters(), strict=True):
        whole = mine.full_tensor() if isinstance(mine, DTensor) else mine
        torch.testing.assert_close(whole, other, rtol=0, atol=1e-4)
    assert [record.drifted for record in ours.records] == [
        record.drifted for record in theirs.records
    ]
    assert any(record.drifted for record in ours.records)
    assert ours.ledger.labels == theirs.ledger.labels
    assert bool(asked) == (group.rank == 0), "labels are asked for once"
    state, other_state = ours.state_dict(), alone(theirs.state_dict)
    assert same(state["buffer"], other_state["buffer"]), "bit for bit"
    assert (state["known"], state["task"]) == (other_state["known"], other_state["task"])
    again = alone(lambda: Realigner(network, **{**digits.settings(), "buffer": KEPT}))
    alone(lambda: again.load_state_dict(state))  # in one process
    assert same(alone(again.state_dict), state)
    with pytest.raises(UserError, match="give its capacity, buffer=5; got a ReplayBuffer"):
        Realigner(network, current=lambda: None, buffer=ReplayBuffer(5))
    if is_sharded(network):
        with pytest.raises(
            UserError, match=r"give it whole, and say how with TrainSettings\(shard"
        ):
            Learner(network, ER(), buffer=ShardedBuffer(5, group=group))
        with pytest.raises(UserError, match="does not work with SER, which copies the network"):
            Learner(
                MAKE,
                SER(),
                buffer=ShardedBuffer(5, group=group),
                settings=TrainSettings(shard=fully_shard),
            )


def realigner_with_uneven_batches(group: Group) -> None:
    """Parts of any size, one without samples, and classes that one process sees: the buffer of one."""
    x, y = torch.randn(40, 4, generator=torch.Generator().manual_seed(1)), torch.arange(40) // 8
    counts = (7, 0, 1, 2)  # of the processes; a batch of 10 in all
    begin = sum(counts[: group.rank])

    def train(rows: slice) -> Realigner:
        realigner = Realigner(nn.Linear(4, 5), current=lambda: (x + 1, y), buffer=6, replay=4)
        realigner.begin_task()
        for number in range(4):
            batch = x[10 * number :][rows], y[10 * number :][rows]
            extended, labels = realigner.extend(batch)
            assert len(extended) == len(labels) >= len(batch[0])
            realigner.offer(batch)
        realigner.end_task()
        return realigner

    ours = train(slice(begin, begin + counts[group.rank]))
    theirs = alone(lambda: train(slice(10)))
    assert same(ours.buffer.state_dict(), theirs.buffer.state_dict())
    assert ours.known_classes == theirs.known_classes
    assert ours.ledger.labels == theirs.ledger.labels
    another = Realigner(nn.Linear(4, 5), current=lambda: (x + 1, y), buffer=6)
    another.begin_task()
    another.offer((x[:4], y[:4]))
    with pytest.raises(RunFailure, match="does one have more batches than another"):
        another.extend((x[:4], y[:4])) if group.rank == 2 else another.end_task()
    with pytest.raises(
        UserError, match=r"same realigner in all 4 processes; rank 2 has capacity 8,"
    ):
        Realigner(current=lambda: (x, y), buffer=8 if group.rank == 2 else 6).begin_task()


def refuses_what_differs(group: Group) -> None:
    def learner(seed: int = 0) -> Learner:
        network = seeded(MLP, input_shape=(1, 8, 8), num_classes=10, seed=seed)
        return Learner(network, ER(), buffer=ShardedBuffer(20, group=group))

    with pytest.raises(UserError, match="rank 1 has initial weights"):
        learner(seed=group.rank)
    own = learner()
    with pytest.raises(UserError, match=r'same batch in all 4 processes; rank 1 has content "'):
        own.observe(batch(group.rank))
    data = load_digits()
    if group.rank == 3:
        data.images[0] ^= 1
    with pytest.raises(
        UserError, match=r"same stream in all 4 processes; rank 3 has (training|test)"
    ):
        DriftLoop(learner()).bind(class_incremental(data, num_tasks=2))
    other = Vanilla() if group.rank == 1 else Realign()
    with pytest.raises(UserError, match='rank 1 has adaptation "Vanilla", rank 0 "Realign"'):
        DriftLoop(learner(), adaptation=other).bind(class_incremental(load_digits(), num_tasks=2))


def made_ahead(*given: Any, **named: Any) -> PrefetchingBuffer:
    return PrefetchingBuffer(ShardedBuffer(*given, **named), "cpu")


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    two, three = dist.new_group([0, 1]), Group(dist.new_group([0, 1, 2]))
    groups = [Group()] + ([Group(two)] if dist.get_rank() < 2 else [])
    for group in groups:
        collectives(group)
        one_history(ReplicatedBuffer, Reservoir, group)
        one_history(ShardedBuffer, Reservoir, group)
        for kind in (ReplicatedBuffer, ShardedBuffer):
            one_history(kind, Reservoir, group, capacity=1, by_class=True)
        one_history(made_ahead, Reservoir, group, capacity=5)
    one_history(ShardedBuffer, Balanced, groups[0], by_class=True)
    goes_on_in_others(ShardedBuffer, groups[0], ReplicatedBuffer, three)
    goes_on_in_others(ReplicatedBuffer, groups[0], ShardedBuffer, three)
    keeps_its_share(groups[0])
    for kind in (ReplicatedBuffer, ShardedBuffer):
        refused_samples_change_nothing(kind, groups[0])
    with pytest.raises(UserError, match="need one buffer together"):
        Learner(MLP(input_shape=(1, 2, 3), num_classes=4), ER(), buffer=ReplayBuffer(5))
    with pytest.raises(
        UserError, match=r"live learner works in one process; this one is rank \d of 4"
    ):
        LiveLearner("mlp").observe(batch(0).images.numpy(), batch(0).labels.numpy())
    with pytest.raises(UserError, match="hybrid learner works in one process"):
        HybridLearner(AnalyticLearner(SLDA()), None)  # type: ignore[arg-type]
    for group in groups:
        for method in METHODS:
            learner_like_one_process(method, group)
        learner_like_one_process(METHODS[2], group, augmentation="crop-flip")
    learner_like_one_process(ER, groups[0], last=2)
    if three.rank >= 0:
        learner_like_one_process(DERpp, three)
    dropout_is_drawn_by_each_process(groups[0])
    learner_like_one_process(ERACE, groups[0], shard=fully_shard)
    blocks = seeded(TinyTransformer, seed=3)
    learner_like_one_process(DERpp, groups[0], network=blocks, shard=shard_blocks)
    for group in groups:
        every_sample_is_equally_likely(group)
    refuses_what_differs(groups[0])
    loop_of_objects(groups[0], Path(sys.argv[1]))
    realigner_like_one_process(groups[0], DistributedDataParallel)
    realigner_like_one_process(groups[0], fully_shard)
    realigner_with_uneven_batches(groups[0])
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']} compared {[group.size for group in groups]}", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # see driftwise.cli.main
