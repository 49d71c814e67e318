"""What a training step costs beside its network: every method against the bare PyTorch loop.

    python benchmarks/bench_step.py [--threads 1] [--turns 30] [--methods er der++] [--networks MLP]

Our side is the loop as `driftwise run` plays it: batches taken out of the stream, bytes turned into
floats, draws from memory, the method's loss, the optimiser, the offer to memory, accuracy and FLOPs
booked, a listener notified, a look at the clock whether to save. The bare side is the shortest loop
that does the same network's work: the same samples as floats that are ready, the forwards, losses and
copies of the method, the optimiser; it draws, keeps, counts and checks nothing. Where a network
treats samples apart (the MLP), both sides put all samples of a method through it at once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from ratios import Finding, arguments, begin, compare, finish, head, now, show
from step_cases import CASES, LR, NUM_CLASSES, Case, assembled, take_turns_with
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from driftwise.methods import CLSER, SER, DERpp
from driftwise.models.layers import treats_samples_independently

GOALS = {"MLP": 0.30, "ResNet-18 width 20": 0.10, "ResNet-18 width 64": 0.03}
"""overhead at most"""

Loss = Callable[[nn.Module], Tensor]


class BareLoop:
    """Network, loss and optimiser, on samples that are ready."""

    def __init__(self, network: nn.Module, method: str, case: Case) -> None:
        self.network = plain_copy(network).train()
        draw = torch.Generator().manual_seed(0)
        height, width, channels = case.image_shape
        shape = (2 * case.batch_size, channels, height, width)
        self.x = torch.rand(shape, generator=draw)
        self.y = torch.randint(NUM_CLASSES, (2 * case.batch_size,), generator=draw)
        self.stream_x, self.replay_x = (part.clone() for part in self.x.chunk(2))
        self.stream_y, self.replay_y = (part.clone() for part in self.y.chunk(2))
        self.said = torch.rand((case.batch_size, NUM_CLASSES), generator=draw)
        self.old = torch.arange(NUM_CLASSES) < NUM_CLASSES // 2
        self.three = torch.cat([self.stream_x, self.replay_x, self.replay_x])
        self.apart = treats_samples_independently(network)
        copies = 2 if method == "cls-er" else 1 if method == "ser" else 0
        self.copies = [plain_copy(network).requires_grad_(False) for _ in range(copies)]
        for each in self.copies:
            each.train(method == "cls-er")
        self.loss: Callable[[], Tensor] = {
            "finetune": self.finetune,
            "er": self.er,
            "er-ace": self.er_ace,
            "der++": self.der,
            "ser": self.ser,
            "cls-er": self.cls_er,
        }[method]
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=LR)
        self.steps = 0

    def run(self, steps: int) -> float:
        """Make so many steps; the seconds they took."""
        start = now()
        for _ in range(steps):
            loss = self.loss()
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
            if self.loss == self.cls_er:
                self.move_averages()
        return now() - start

    def finetune(self) -> Tensor:
        """The stream alone."""
        return cross_entropy(self.network(self.stream_x), self.stream_y)

    def er(self) -> Tensor:
        """One forward over stream and memory."""
        return cross_entropy(self.network(self.x), self.y)

    def both(self) -> tuple[Tensor, Tensor]:
        """What is said to the stream and to the draw."""
        if self.apart:
            stream, replay = self.network(self.x).chunk(2)
            return stream, replay
        return self.network(self.stream_x), self.network(self.replay_x)

    def er_ace(self) -> Tensor:
        """Two sets of samples."""
        logits, said = self.both()
        absent = self.old.index_fill(0, self.stream_y, False)
        competing = logits.masked_fill(absent, float("-inf"))
        return cross_entropy(competing, self.stream_y) + cross_entropy(said, self.replay_y)

    def der(self) -> Tensor:
        """Three sets of samples: the stream and two draws."""
        options = DERpp()
        if self.apart:
            logits, again, replayed = self.network(self.three).chunk(3)
        else:
            parts = (self.stream_x, self.replay_x, self.replay_x)
            logits, again, replayed = (self.network(part) for part in parts)
        loss = cross_entropy(logits, self.stream_y) + options.alpha * mse_loss(again, self.said)
        return loss + options.beta * cross_entropy(replayed, self.replay_y)

    def ser(self) -> Tensor:
        """Two sets of samples, and the frozen network's forward over the stream."""
        options = SER()
        logits, said = self.both()
        with torch.no_grad():
            before = self.copies[0](self.stream_x)
        loss = cross_entropy(logits, self.stream_y) + cross_entropy(said, self.replay_y)
        loss = loss + options.alpha * mse_loss(said, self.said)
        return loss + options.beta * mse_loss(logits, before)

    def cls_er(self) -> Tensor:
        """Both averages over the draw, the network over the draw and over everything."""
        with torch.no_grad():
            stable, plastic = (average(self.replay_x) for average in self.copies)
            right = self.replay_y[:, None]
            surer = stable.softmax(1).gather(1, right) > plastic.softmax(1).gather(1, right)
            target = torch.where(surer, stable, plastic)
        again = None if self.apart else self.network(self.replay_x)
        said = self.network(self.x)
        distance = mse_loss(said.chunk(2)[1] if again is None else again, target)
        return cross_entropy(said, self.y) + CLSER().reg_weight * distance

    @torch.no_grad()
    def move_averages(self) -> None:
        """As often as the method does on average: the plastic one nine times in ten."""
        self.steps += 1
        average = self.copies[self.steps % 10 > 0]
        torch._foreach_lerp_(
            list(average.parameters()), list(self.network.parameters()), 1 / (self.steps + 1)
        )


def plain_copy(network: nn.Module) -> nn.Module:
    """A copy that nothing monitors."""
    plain = copy.deepcopy(network)
    plain._forward_hooks.clear()
    return plain


def step_overhead(case: Case, method: str, turns: int) -> Finding:
    assembly = assembled(case, method, (turns + 2) * case.steps)
    bare = BareLoop(assembly.learner.network, method, case)
    turn = take_turns_with(assembly, case, bare.run, turns)
    return compare(
        "step",
        f"{method}, {case.name}",
        "the bare loop",
        ours=turn.ours,
        other=turn.others,
        measure="overhead",
        goal=GOALS[case.name],
    )


METHODS = ("finetune", "er", "er-ace", "der++", "ser", "cls-er")


def main() -> None:
    parser = arguments(__doc__, turns=30)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--networks", nargs="+", default=[case.name for case in CASES])
    options = parser.parse_args()
    begin(options)
    head("bare loop")
    findings = []
    for case in CASES:
        if case.name not in options.networks:
            continue
        for method in options.methods:
            turns = options.turns if case.width != 64 else max(6, options.turns // 2)
            findings.append(step_overhead(case, method, turns))
            show(findings[-1])
    finish("step", findings, options)


if __name__ == "__main__":
    main()
