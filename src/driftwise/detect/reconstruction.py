"""Drift by reconstruction: a small autoencoder reconstructs samples of another concept badly.

At a check an autoencoder learns half of each class's reference, and its errors on the other half
are compared with those on the current samples. It has learned neither, so that errors differ only where
samples do, whatever the learner was trained on. The price is half of the reference.

Training is in the seconds of a check but not in its FLOPs, which count a run's own networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.detect.base import DetectorContext, Reference
from driftwise.detect.class_tests import ClassTests, ComparisonOptions
from driftwise.detect.reference import FingerprintReference
from driftwise.detect.two_sample import by_ks
from driftwise.errors import UserError
from driftwise.models.inputs import to_input
from driftwise.types import Encoding, Samples, Verdict

_BATCH_SIZE = 32
_RATE = 5e-3
_CHUNK_SIZE = 512
"""whose errors are computed at once"""


@dataclass(frozen=True, kw_only=True)
class Reconstruction(ComparisonOptions):
    """Kolmogorov-Smirnov on an autoencoder's errors; the encoder is not used.

    >>> import driftwise as dw
    >>> network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    >>> learner = dw.Learner(network, dw.methods.ER(), buffer=dw.ReplayBuffer(100), lr=0.1)
    >>> detector = dw.detect.Reconstruction(level=0.01)
    >>> loop = dw.DriftLoop(learner, detector=detector, adaptation=dw.adapt.Realign())
    """

    steps: int = 200
    """of training the autoencoder, at every check"""
    width: int = 8
    """maps of its first layer, twice those of its bottleneck; of tables, numbers that a sample is
    squeezed into"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1 or self.width < 1:
            raise UserError(
                f"the detector's steps and width must be at least 1; got {self.steps} and "
                f"{self.width}"
            )

    def bind(self, context: DetectorContext) -> ReconstructionDetector:
        """The detector, for one stream and one learner."""
        if context.labels != "given":
            raise UserError(
                f"the detector reconstruction goes by given labels, not {context.labels} ones; use "
                'monitor_labels="given", or another detector'
            )
        return ReconstructionDetector(self, seed=context.seed)


class ReconstructionDetector:
    """Compares an autoencoder's errors on current and on reference samples, both unseen."""

    reads_monitored = True

    def __init__(self, options: Reconstruction, *, seed: int = 0) -> None:
        self._options = options
        self._seed = seed
        comparison = by_ks("reconstruction", lambda encoding: encoding.features[:, 0])
        self._tests = ClassTests([comparison], options, seed=seed)

    def check(
        self, task: int, classes: Sequence[int], monitored: Samples, reference: Reference
    ) -> list[Verdict]:
        """One verdict per class, on the half of its distinct reference samples that is not learned."""
        if isinstance(reference, FingerprintReference):
            raise UserError(
                "the detector by reconstruction learns from samples, and fingerprints hold none; keep "
                "held-out samples or the memory as the reference"
            )
        current = monitored.distinct()
        now = [current.of_class(label).images for label in classes]
        # Of the check's own: how many draws earlier checks took makes no difference.
        draw = rng.fork(self._seed, "autoencoder", task)
        learned, unseen = [], []
        for label in classes:
            kept = reference.samples_of(label).distinct().images
            order = torch.randperm(len(kept), generator=draw)
            learned.append(kept[order[: len(kept) // 2]])
            unseen.append(kept[order[len(kept) // 2 :]])
        sides = [*unseen, *now]
        errors = [torch.zeros(len(side)) for side in sides]  # without samples to learn from
        if any(map(len, learned)):
            samples = torch.cat([part for part in learned if len(part)])
            steps, width = self._options.steps, self._options.width
            fitted = fit(samples, steps=steps, width=width, generator=draw)
            errors = [fitted.errors(side) for side in sides]
        encoded = [Encoding(logits=each[:, None], features=each[:, None]) for each in errors]
        pairs = zip(encoded[: len(classes)], encoded[len(classes) :], strict=True)
        return self._tests.verdicts(task, dict(zip(classes, pairs, strict=True)))

    def obstacles(self, task: int, sizes: Mapping[int, tuple[int, int]]) -> Mapping[int, str]:
        """Of classes with so many reference and current samples, the untestable ones, and why."""
        unseen = {label: (kept - kept // 2, now) for label, (kept, now) in sizes.items()}
        return self._tests.obstacles(task, unseen)


@dataclass(frozen=True, kw_only=True)
class Autoencoder:
    """A trained network, and the scale of what it was trained on."""

    network: nn.Module
    mean: Tensor
    """of each number of a sample"""
    deviation: Tensor
    """from it: one for all pixels, or one for each column of a table"""

    @torch.no_grad()
    def errors(self, images: Tensor) -> Tensor:
        """Mean squared error of each sample's reconstruction, (samples, ...) -> (samples,)."""
        parts = [torch.empty(0)]
        for chunk in torch.split(images, _CHUNK_SIZE) if len(images) else ():
            samples = (to_input(chunk) - self.mean) / self.deviation
            parts.append(
                (self.network(samples) - samples).square().flatten(start_dim=1).mean(dim=1)
            )
        return torch.cat(parts)


def fit(images: Tensor, *, steps: int, width: int, generator: torch.Generator) -> Autoencoder:
    """Train an autoencoder on samples as they are stored: images, or float vectors.

    All randomness is the generator's, and gradients reach nothing else.
    """
    # A check may run where gradients are off.
    with torch.inference_mode(mode=False), torch.enable_grad():
        samples = to_input(images)
        mean = samples.mean(dim=0)
        # Columns of a table have units of their own; pixels share theirs, lest those that hardly
        # vary weigh as much as the others.
        variance = (samples - mean).square().mean(dim=0 if samples.ndim == 2 else None)
        deviation = torch.where(variance > 0, variance.sqrt(), 1.0)
        samples = (samples - mean) / deviation
        with rng.as_global(generator):
            network = (
                _for_tables(samples, width) if samples.ndim == 2 else _for_images(samples, width)
            )
        optimiser = torch.optim.Adam(network.parameters(), lr=_RATE)
        for _ in range(steps):
            batch = samples[torch.randint(len(samples), (_BATCH_SIZE,), generator=generator)]
            loss = (network(batch) - batch).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return Autoencoder(network=network, mean=mean, deviation=deviation)


def _for_images(samples: Tensor, width: int) -> nn.Module:
    """Two convolutions that halve the image, and two that bring it back, of any size."""
    _, channels, *size = samples.shape
    half = [(side + 1) // 2 for side in size]
    narrow = max(1, width // 2)

    def back(maps_in: int, maps_out: int, size: Sequence[int]) -> nn.Module:
        # An even side needs the pixel that halving an odd one does not lose.
        lost = [1 - side % 2 for side in size]
        return nn.ConvTranspose2d(
            maps_in, maps_out, 3, stride=2, padding=1, output_padding=(lost[0], lost[1])
        )

    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, narrow, 3, stride=2, padding=1),
        back(narrow, width, half),
        nn.ReLU(),
        back(width, channels, size),
    )


def _for_tables(samples: Tensor, width: int) -> nn.Module:
    """Fully connected; a bottleneck as wide as the table would be none."""
    columns = samples.shape[1]
    narrow = max(1, min(width, columns // 2))
    return nn.Sequential(
        nn.Linear(columns, 4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, narrow),
        nn.Linear(narrow, 4 * width),
        nn.ReLU(),
        nn.Linear(4 * width, columns),
    )
