"""How soon drift is found where the level is promised once for a whole stream; false alarms.

    python benchmarks/sequential_delay.py [--data fmnist] [--encoder random] [--classes 0 5 6]
        [--seeds 3] [--quiet-streams 40] [--skip NAME ...] [--json PATH]

A stream is one class, sample by sample, after 100 reference samples; every detector promises at most 5 %
false alarms in all of it. `sequential` tests every sample; `ks` and `combined` check every 50 samples
against the reference and spend their level by inverse squares. First, streams of 5,000 samples in
which nothing changes (`combined` is left out: by its hundredth check it would need a million
permutations). Then streams that change after 200 to 249 samples, by six transforms at severities 1, 3
and 5: the median number of samples until the alarm, and the share of streams with an alarm within 500.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from detect_common import (
    LEVEL,
    by_class,
    common_arguments,
    drawn,
    encoded,
    encoder_named,
    images_of,
    load_data,
    say,
    say_load,
    write_json,
)
from torch import Tensor

from driftwise import rng
from driftwise.detect import Detector, DetectorContext, HeldOutReference
from driftwise.detect.detectors import KS, Combined
from driftwise.detect.sequential import Sequential
from driftwise.streams.transforms import apply
from driftwise.types import Dataset, Encoding, Samples

TRANSFORMS = (
    "permutation",
    "rotation",
    "defocus-blur",
    "gaussian-noise",
    "shot-noise",
    "speckle-noise",
)
SEVERITIES = (1, 3, 5)
NUM_REFERENCE = 100
CHECK_ROWS = 50
QUIET_ROWS = 200
DRIFTED_ROWS = 500
LONG = 5000


class Known:
    """An encoder for samples that stand for themselves: logits and features, side by side."""

    def __init__(self, num_logits: int) -> None:
        self._num_logits = num_logits

    def encode(self, images: Tensor) -> Encoding:
        """(samples, logits + features) -> both."""
        return Encoding(
            logits=images[:, : self._num_logits], features=images[:, self._num_logits :]
        )


def side_by_side(encoding: Encoding) -> Tensor:
    return torch.cat([encoding.logits, encoding.features], dim=1)


def numbered(values: Tensor, first: int) -> Samples:
    """Samples of one class, numbered from the first."""
    none = torch.zeros(len(values), dtype=torch.int64)
    return Samples(images=values, labels=none, ids=first + torch.arange(len(values)), concepts=none)


def detectors(num_logits: int, seed: int) -> dict[str, tuple[Detector, int]]:
    """By name, with the number of samples of a check."""
    context = DetectorContext(encoder=lambda: Known(num_logits), drifting=lambda _: (), seed=seed)
    return {
        "sequential": (Sequential(level=LEVEL).bind(context), 1),
        "ks": (KS(level=LEVEL, spending="inverse-square").bind(context), CHECK_ROWS),
        "combined": (
            Combined(level=LEVEL, spending="inverse-square").bind(context),
            CHECK_ROWS,
        ),
    }


def alarm(
    detector: Detector, rows: int, reference: Tensor, stream: Tensor, *, start: int = 0
) -> int | None:
    """How many samples of the stream had come when a check of so many samples found drift.

    Checks that lie wholly before `start` are counted, and made only by a detector that goes on.
    """
    kept = HeldOutReference()
    kept.renew(0, numbered(reference, 10**6))
    for number, end in enumerate(range(rows, len(stream) + 1, rows), 2):
        if rows > 1 and end <= start:
            continue
        current = numbered(stream[end - rows : end], end - rows)
        (verdict,) = detector.check(number, (0,), current, kept)
        if verdict.drifted:
            return end
    return None


def false_alarms(concepts: Sequence[Tensor], num_logits: int, streams: int) -> dict[str, int]:
    """Alarms in long streams in which nothing changes."""
    alarms = dict.fromkeys(("sequential", "ks"), 0)
    for number in range(streams):
        values = concepts[number % len(concepts)]
        order = torch.randperm(len(values), generator=rng.fork(number, "quiet"))
        reference, stream = values[order[:NUM_REFERENCE]], values[order[NUM_REFERENCE:][:LONG]]
        for name in alarms:
            detector, rows = detectors(num_logits, number)[name]
            # A block of samples at once is as good for a detector that goes on, and quicker.
            found = alarm(detector, max(rows, CHECK_ROWS), reference, stream)
            alarms[name] += found is not None
    return alarms


def delays(
    before: Tensor, after: Tensor, num_logits: int, seed: int, names: Sequence[str]
) -> Iterator[tuple[str, float]]:
    """Samples from the change to the alarm, by detector; infinite where it does not come."""
    draw = rng.fork(seed, "delays")
    start = QUIET_ROWS + int(torch.randint(CHECK_ROWS, (), generator=draw))
    order = torch.randperm(len(before), generator=draw)
    reference = before[order[:NUM_REFERENCE]]
    quiet = before[order[NUM_REFERENCE:][:start]]
    drifted = after[torch.randperm(len(after), generator=draw)[:DRIFTED_ROWS]]
    stream = torch.cat([quiet, drifted])
    for name in names:
        detector, rows = detectors(num_logits, seed)[name]
        found = alarm(detector, rows, reference, stream, start=start)
        # An alarm before anything has changed is a false one.
        yield name, np.inf if found is None or found <= start else found - start


def encodings_of(
    dataset: Dataset, rows: np.ndarray, encoder: str, concept: tuple[str, int] | None
) -> tuple[Tensor, int]:
    """Samples in a concept as their encodings, and how many of the numbers are logits."""
    images = images_of(dataset, rows)
    if concept is not None:
        images = apply(images, transform=concept[0], severity=concept[1], seed=0)
    encoding = encoded(encoder_named(encoder, None, dataset.images.shape[1:], 0), images)
    return side_by_side(encoding), encoding.logits.shape[1]


def parsed() -> argparse.Namespace:
    parser = common_arguments(__doc__, "random")
    parser.add_argument("--data", default="fmnist")
    parser.add_argument("--classes", type=int, nargs="+", default=[0, 5, 6])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quiet-streams", type=int, default=40)
    parser.add_argument("--skip", nargs="*", default=[], help="detectors to leave out")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    say_load()
    dataset = load_data(arguments.data)
    draw = rng.fork(0, "rows")
    of_class = by_class(dataset.labels, np.arange(len(dataset.labels)), len(dataset.class_names))
    mixed = [drawn(of_class[label], len(of_class[label]), draw) for label in arguments.classes]
    before, num_logits = [], 0
    for rows in mixed:
        values, num_logits = encodings_of(dataset, rows, arguments.encoder, None)
        before.append(values)
    alarms = false_alarms(before, num_logits, arguments.quiet_streams)
    for name, count in alarms.items():
        say(
            f"{name}: false alarms in {count} of {arguments.quiet_streams} streams of {LONG} samples"
        )

    names = [name for name in detectors(num_logits, 0) if name not in arguments.skip]
    say(f"| drift | {' | '.join(names)} |")
    table = {}
    for concept in ((transform, severity) for transform in TRANSFORMS for severity in SEVERITIES):
        found: dict[str, list[float]] = {name: [] for name in names}
        for place, rows in enumerate(mixed):
            # Samples that no quiet part of the stream is drawn from.
            half = len(rows) // 2
            after, _ = encodings_of(dataset, rows[half : half + 1000], arguments.encoder, concept)
            for seed in range(arguments.seeds):
                for name, delay in delays(before[place][:half], after, num_logits, seed, names):
                    found[name].append(delay)
        cells = [_cell(found[name]) for name in names]
        table[f"{concept[0]} {concept[1]}"] = found
        say(f"| {concept[0]} {concept[1]} | {' | '.join(cells)} |")
    plain = {
        concept: {name: [None if np.isinf(d) else d for d in each] for name, each in found.items()}
        for concept, found in table.items()
    }
    write_json(arguments.json, {"false_alarms": alarms, "delays": plain})


def _cell(delays: Sequence[float]) -> str:
    """Median, and the share that was found."""
    middle = float(np.median(delays))
    share = float(np.isfinite(delays).mean())
    return f"{'-' if np.isinf(middle) else round(middle)} ({share:.2f})"


if __name__ == "__main__":
    main()
