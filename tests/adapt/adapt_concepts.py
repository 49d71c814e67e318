"""Classes with two concepts that are easily distinguished, and a learner that learns by rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from bench_tools import no_step
from torch import Tensor

from driftwise import rng
from driftwise.memory import POLICIES, ReplayBuffer
from driftwise.protocols import AdaptationContext, Choose
from driftwise.stats.fraction import estimate_shares
from driftwise.types import Encoding, Samples, StepReport

OLD, NEW = 0, 1
SIDE = 4


def concept_samples(label: int, count: int, concept: int, *, seed: int = 0) -> Samples:
    """Noisy images: old ones are bright above, new ones below; ids tell the seed apart."""
    draw = rng.fork(seed, "look", label, concept)
    images = torch.randint(0, 60, (count, SIDE, SIDE, 1), generator=draw, dtype=torch.uint8)
    half = slice(0, SIDE // 2) if concept == OLD else slice(SIDE // 2, SIDE)
    images[:, half] += 150
    images[:, :, label] += 40
    return Samples(
        images=images,
        labels=torch.full((count,), label),
        ids=torch.arange(count) + 1000 * (10 * seed + concept) + 100_000 * label,
        concepts=torch.full((count,), concept),
    )


def mixed(label: int, count: int, share: float, *, seed: int = 0) -> Samples:
    """A class of which this share shows the new concept."""
    new = round(share * count)
    both = [
        concept_samples(label, count - new, OLD, seed=seed),
        concept_samples(label, new, NEW, seed=seed),
    ]
    return Samples.concat([samples for samples in both if len(samples)])


def memory_of(*parts: Samples) -> ReplayBuffer:
    """A full memory."""
    samples = Samples.concat(list(parts))
    memory = ReplayBuffer(len(samples), policy=POLICIES["reservoir"](), seed=0)
    memory.put(samples)
    return memory


@dataclass
class Source:
    """Fresh samples of every class, as they come."""

    stock: dict[int, Samples]
    asked: list[tuple[int, int | None]] = field(default_factory=list)
    loose: Samples | None = None
    """what comes in without labels, with the truth"""

    def ask(self, label: int, count: int | None, *, choose: Choose | None = None) -> Samples:
        """Up to so many."""
        self.asked.append((label, count))
        samples = self.stock.get(label, concept_samples(label, 0, NEW))
        count = len(samples) if count is None else min(count, len(samples))
        return samples[torch.arange(count) if choose is None else choose(samples.images, count)]

    def spread(self, wanted: Mapping[int, int | None]) -> dict[int, int | None]:
        """There is no budget."""
        return dict(wanted)

    def unlabelled(self) -> Samples:
        """Without the truth."""
        samples = concept_samples(0, 0, NEW) if self.loose is None else self.loose
        return Samples(**{**vars(samples), "labels": torch.full_like(samples.labels, -1)})


class Pupil:
    """Knows the old concepts, and the new ones after enough rehearsals."""

    def __init__(self, memory: ReplayBuffer, *, needs: int) -> None:
        self.memory = memory
        self.needs = needs
        self.rehearsals = 0
        self.train_steps = 0
        """steps on a task's own samples"""
        self.rehearsed: list[Samples] = []
        self.rates: list[float] = []
        self.forgets_at: int | None = None
        """from so many rehearsals on, it no longer knows the new concepts"""

    def encode(self, images: Tensor) -> Encoding:
        """Logits by the bright column, wrong for new concepts that have not been learned."""
        flat = images.float() / 255
        columns = flat.mean(dim=(1, 3))  # (samples, columns)
        columns = columns - columns.mean(dim=1, keepdim=True)
        is_new = flat[:, SIDE // 2 :].mean(dim=(1, 2, 3)) > flat[:, : SIDE // 2].mean(dim=(1, 2, 3))
        logits = 60 * columns
        forgot = self.forgets_at is not None and self.rehearsals >= self.forgets_at
        if self.rehearsals < self.needs or forgot:
            logits = torch.where(is_new[:, None], logits.roll(1, dims=1), logits)
        return Encoding(logits=logits, features=flat.flatten(1))

    def rehearse(self, batch: Samples | None, *, rate: float = 1.0) -> StepReport:
        """One step."""
        self.rehearsals += 1
        self.rates.append(rate)
        if batch is not None:
            self.rehearsed.append(batch)
        return no_step(batch, rate=rate)


def context_of(pupil: Pupil, source: Source, monitored: Samples) -> AdaptationContext:
    """Everything at hand."""
    return AdaptationContext(
        buffer=pupil.memory,
        labels=source,
        annotate=lambda samples: {},
        encode=pupil.encode,
        rehearse=pupil.rehearse,
        steps=lambda: pupil.rehearsals + pupil.train_steps,
        monitored=lambda: monitored,
        compare=lambda kept, now: estimate_shares([(kept, now)])[0],
    )


def without_labels(samples: Samples) -> Samples:
    """Nobody has paid for them."""
    return Samples(**{**vars(samples), "labels": torch.full_like(samples.labels, -1)})
