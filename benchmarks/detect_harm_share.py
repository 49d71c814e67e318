"""How well the harm of a drift and the fraction of drifted samples are estimated, on real images.

    python benchmarks/detect_harm_share.py [--seeds 3] [--samples test] [--figure PATH] [--json PATH]

A small network learns Fashion-MNIST from 12,000 samples. Then every transform at every severity drifts
test samples. Harm: the accuracy that each class truly loses, on all its test samples, against estimates
from 50 reference and 100 monitored samples. Share: samples of which 0 to all have drifted, in the learner's
features, against the estimate, its standard error and the evidence on single samples; a drift is clear
where drifted samples stand above reference samples nine times out of ten, else faint.

The estimators were chosen on test samples; `--samples left-out` measures them on training samples that no
choice has seen and the network has not learned.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from torch import Tensor, nn

from driftwise import rng
from driftwise.datasets.library import load
from driftwise.models.cnn import SmallCNN
from driftwise.models.head import encode_all
from driftwise.models.inputs import to_input
from driftwise.report import style
from driftwise.report.facets import facets, to_png
from driftwise.stats.c2st import areas_under_curve, held_out_scores
from driftwise.stats.fraction import estimate_shares
from driftwise.stats.harm import Harm, _assigned, _checked, _harm, _Side, estimate_harm_by_class
from driftwise.stats.scores import max_probability
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, apply
from driftwise.types import Dataset, Encoding

NUM_CLASSES, NUM_TRAIN, EPOCHS = 10, 12_000, 3
NUM_REFERENCE, NUM_MONITORED = 50, 100
HARMFUL = 5.0
"""points"""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
LARGER = ((50, 500), (500, 500))
LARGER_SEVERITIES = (3,)
CLEAR = 0.9

Drift = tuple[str, int]
DRIFTS: tuple[Drift, ...] = tuple(
    (transform, severity)
    for transform in TRANSFORMS
    for severity in SEVERITIES
    if transform != "identity"
)
Pairs = list[tuple[float, float]]
"""(estimate, truth)"""


# --- the learner, and what it makes of drifted images -----------------------------------------


def parts_of(dataset: Dataset, name: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images and labels to learn from, and those to measure on, 1,000 of each class."""
    assert dataset.is_test is not None
    left_out = np.zeros_like(dataset.is_test)
    for label in range(NUM_CLASSES):
        left_out[np.flatnonzero(~dataset.is_test & (dataset.labels == label))[-1000:]] = True
    images, labels = (torch.from_numpy(np.array(each)) for each in (dataset.images, dataset.labels))
    measured = torch.from_numpy(np.array(dataset.is_test if name == "test" else left_out))
    learned = torch.from_numpy(~(dataset.is_test | left_out))
    return (images[learned], labels[learned]), (images[measured], labels[measured])


def trained(images: Tensor, labels: Tensor, seed: int) -> nn.Module:
    """A small network after a few epochs on a part of the samples."""
    with rng.as_global(rng.fork(seed, "weights")):
        network = SmallCNN(input_shape=(1, 28, 28), num_classes=NUM_CLASSES)
    draw = rng.fork(seed, "rows")
    rows = torch.randperm(len(images), generator=draw)[:NUM_TRAIN]
    steps = EPOCHS * -(-NUM_TRAIN // 64)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(EPOCHS):
        order = rows[torch.randperm(len(rows), generator=draw)]
        for batch in torch.split(order, 64):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(network(to_input(images[batch])), labels[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return network.eval()


@dataclass(frozen=True, kw_only=True)
class World:
    """Test samples as they were, and the same samples drifted, as one learner sees them."""

    plain: Encoding
    labels: Tensor
    rows: tuple[Tensor, ...]
    """by class"""

    def draw(self, generator: torch.Generator, sizes: tuple[int, int]) -> list[tuple[Tensor, ...]]:
        """For each class, so many samples and so many others."""
        drawn = []
        for rows in self.rows:
            order = rows[torch.randperm(len(rows), generator=generator)]
            drawn.append(torch.split(order[: sum(sizes)], list(sizes)))
        return drawn

    def lost(self, drifted: Encoding) -> list[float]:
        """Points of accuracy that each class loses, on all its samples."""
        before, after = (self.labels == side.logits.argmax(dim=1) for side in (self.plain, drifted))
        change = before.double() - after.double()
        return [100 * float(change[rows].mean()) for rows in self.rows]


# --- harm ---------------------------------------------------------------------------------------


def _by_transport(reference: _Side, current: _Side) -> float:
    counts = torch.bincount(reference.labels).double()
    # Both sides are dealt out: that this is cheaper than the truth cancels.
    before, after = _assigned(reference.logits, counts), _assigned(current.logits, counts)
    return float(after.costs.mean() - before.costs.mean())


def _by_threshold(reference: _Side, current: _Side) -> float:
    """A sample is right above a certainty that as many reference samples exceed as are right."""
    certainty = max_probability(reference.logits)
    num_wrong = int((~reference.is_right).sum())
    if num_wrong == len(certainty):
        return 0.0
    threshold = certainty.sort().values[num_wrong]
    is_above = max_probability(current.logits) >= threshold
    return float((certainty >= threshold).double().mean() - is_above.double().mean())


def _by_confidence(reference: _Side, current: _Side) -> float:
    """Accuracy falls as far as confidence does."""
    return float(max_probability(reference.logits).mean() - max_probability(current.logits).mean())


METHODS: Mapping[str, Callable[[_Side, _Side], float]] = {
    "transport": _by_transport,
    "threshold": _by_threshold,
    "confidence": _by_confidence,
}


def estimate_harm(
    reference_logits: Tensor,
    current_logits: Tensor,
    reference_labels: Tensor,
    current_labels: Tensor | None = None,
    *,
    method: str = "transport",
) -> Harm | None:
    """Accuracy lost on some samples together, by any of `METHODS`; None where a side has none."""
    reference = _checked(reference_logits, reference_labels)
    current = _checked(current_logits, current_labels)
    if not len(reference.logits) or not len(current.logits):
        return None
    return _harm(
        reference.is_right,
        current.is_right if current_labels is not None else None,
        METHODS[method](reference, current),
    )


def measure_harm(
    world: World, drifted: Encoding, generator: torch.Generator, found: Mapping[str, Pairs]
) -> None:
    """Adds estimates and truths by way of estimating."""
    lost = world.lost(drifted)
    drawn = world.draw(generator, (NUM_REFERENCE, NUM_MONITORED))
    for label, (kept, now) in enumerate(drawn):
        sides = world.plain.logits[kept], drifted.logits[now], world.labels[kept]
        for method in METHODS:
            harm = estimate_harm(*sides, world.labels[now], method=method)
            assert harm is not None
            assert harm.with_labels is not None
            assert harm.error is not None
            found[f"class known, {method}"].append((harm.without_labels, lost[label]))
            if method == "transport":
                found["labels"].append((harm.with_labels, lost[label]))
                found["standard errors"].append((harm.error, harm.with_labels - lost[label]))
    measure_unlabelled(world, drifted, drawn, generator, found)


def measure_unlabelled(
    world: World,
    drifted: Encoding,
    drawn: list[tuple[Tensor, ...]],
    generator: torch.Generator,
    found: Mapping[str, Pairs],
) -> None:
    """Half of the classes have drifted, and nothing says which row is of which class."""
    lost = world.lost(drifted)
    has_drifted = torch.randperm(NUM_CLASSES, generator=generator) < NUM_CLASSES // 2
    kept, now = (torch.cat(side) for side in zip(*drawn, strict=True))
    moved = has_drifted[world.labels[now]][:, None]
    reference, labels = world.plain.logits[kept], world.labels[kept]
    current = torch.where(moved, drifted.logits[now], world.plain.logits[now])
    truth = [each if has_drifted[label] else 0.0 for label, each in enumerate(lost)]
    for label, harm in estimate_harm_by_class(reference, current, labels).items():
        found["stream, transport by class"].append((harm.without_labels, truth[label]))
    # A class comes with 30 to 100 samples, and the reference's mix says: all alike.
    counts = torch.randint(30, NUM_MONITORED + 1, (NUM_CLASSES,), generator=generator)
    stays = torch.arange(len(now)) % NUM_MONITORED < counts[world.labels[now]]
    uneven = current[stays]
    known = dict(enumerate(counts.double().tolist()))
    for name, mix in (("not known", None), ("known", known)):
        for label, harm in estimate_harm_by_class(reference, uneven, labels, mix=mix).items():
            found[f"stream, uneven mix {name}"].append((harm.without_labels, truth[label]))
    for method in ("threshold", "confidence"):
        for label in range(NUM_CLASSES):
            before, after = reference.argmax(dim=1) == label, current.argmax(dim=1) == label
            grouped = estimate_harm(
                reference[before], current[after], labels[before], method=method
            )
            if grouped is not None:
                pair = grouped.without_labels, truth[label]
                found[f"stream, {method} by prediction"].append(pair)
    for method in METHODS:
        whole = estimate_harm(reference, drifted.logits[now], labels, method=method)
        assert whole is not None
        found[f"whole stream, {method}"].append((whole.without_labels, float(np.mean(lost))))


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How estimates of harm compare with the truth."""

    mean_absolute_error: float
    bias: float
    correlation: float
    found_harmful: float
    """share of harmful drifts that are called so"""
    false_harmful: float
    """share of the others that are"""
    right: float
    num: int


def agreement(pairs: Pairs) -> Agreement:
    estimate, truth = np.array(pairs).T
    called, is_harmful = estimate > HARMFUL, truth > HARMFUL
    return Agreement(
        mean_absolute_error=float(np.abs(estimate - truth).mean()),
        bias=float((estimate - truth).mean()),
        correlation=float(np.corrcoef(estimate, truth)[0, 1]),
        found_harmful=float(called[is_harmful].mean()),
        false_harmful=float(called[~is_harmful].mean()),
        right=float((called == is_harmful).mean()),
        num=len(pairs),
    )


# --- share --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ShareTrial:
    """One class, one drift, one share, and what was made of it."""

    sizes: tuple[int, int]
    is_clear: bool
    truth: float
    ways: Mapping[str, float]
    """by way of estimating"""
    error: float
    area: float | None
    """of the evidence on single samples; None: all have drifted, or none"""


def measure_share(
    world: World, drifted: Encoding, generator: torch.Generator, sizes: tuple[int, int]
) -> Iterator[ShareTrial]:
    """All classes at all shares."""
    is_clear = [False] * NUM_CLASSES
    for share in reversed(SHARES):  # at 1 it shows how clear the drift is
        pairs, moved = [], []
        for kept, now in world.draw(generator, sizes):
            has_moved = torch.randperm(len(now), generator=generator) < round(share * len(now))
            current = torch.where(
                has_moved[:, None], drifted.features[now], world.plain.features[now]
            )
            pairs.append((world.plain.features[kept], current))
            moved.append(has_moved)
        reference, current = unseen_scores(pairs, sizes)
        if share == 1:
            is_clear = [area(*both) >= CLEAR for both in zip(reference, current, strict=True)]
        rivals = {
            "storey": storey(reference, current),
            "two normals": two_normals(reference, current),
        }
        for place, (found, has_moved) in enumerate(zip(estimate_shares(pairs), moved, strict=True)):
            yield ShareTrial(
                sizes=sizes,
                is_clear=is_clear[place],
                truth=share,
                ways={"ours": found.share} | {name: each[place] for name, each in rivals.items()},
                error=found.error,
                area=area(found.evidence[~has_moved], found.evidence[has_moved])
                if 0 < share < 1
                else None,
            )


def area(low: Tensor, high: Tensor) -> float:
    """How often one of the second outscores one of the first."""
    is_high = torch.arange(len(low) + len(high)) >= len(low)
    return float(areas_under_curve(torch.cat([low, high])[None, None], is_high[None, None]))


def unseen_scores(pairs: list[tuple[Tensor, Tensor]], sizes: tuple[int, int]) -> tuple[Tensor, ...]:
    """What the estimate is made of, for its rivals: (classes, samples) on either side."""
    order = torch.randperm(sum(sizes), generator=rng.fork(0, "folds"))
    pooled = torch.stack([torch.cat(pair) for pair in pairs])[:, order]
    is_current = (order >= sizes[0]).expand(len(pairs), 1, -1)
    scores = torch.empty(len(pairs), sum(sizes), dtype=torch.float64)
    scores[:, order] = held_out_scores(pooled, is_current, folds=10, ridge=1.0)[:, 0]
    return torch.split(scores, list(sizes), dim=1)


def storey(reference: Tensor, current: Tensor) -> list[float]:
    """Current samples below the reference's median, twice, are those that stayed."""
    stayed = (current <= reference.median(dim=1, keepdim=True).values).double().mean(dim=1)
    return (1 - 2 * stayed).clamp(0, 1).tolist()


def two_normals(reference: Tensor, current: Tensor) -> list[float]:
    """Expectation-maximisation: two normal curves of one width, and three samples said to have stayed.

    Without these, any share explains samples of which none has drifted.
    """
    rows = reference.shape[1] + current.shape[1]
    low, share = reference.mean(dim=1, keepdim=True), torch.full((len(current), 1), 0.5).double()
    high = current.sort(dim=1).values[:, current.shape[1] // 2 :].mean(dim=1, keepdim=True)
    variance = reference.var(dim=1, keepdim=True)
    for _ in range(100):
        odds = (high - low) * (current - (high + low) / 2) / variance + share.logit()
        moved = odds.sigmoid()
        total = moved.sum(dim=1, keepdim=True)
        share = (total / (current.shape[1] + 3)).clamp(1e-6, 1 - 1e-6)
        high = (moved * current).sum(dim=1, keepdim=True) / total.clamp(min=1e-9)
        stayed = ((1 - moved) * current).sum(dim=1, keepdim=True)
        low = (reference.sum(dim=1, keepdim=True) + stayed) / (rows - total)
        squares = (moved * (current - high).square() + (1 - moved) * (current - low).square()).sum(
            1
        )
        variance = ((reference - low).square().sum(1) + squares)[:, None] / rows
    return share[:, 0].tolist()


def share_rows(trials: list[ShareTrial]) -> list[dict[str, Any]]:
    """One row of the table per sizes, clearness and true share."""
    groups: dict[tuple[tuple[int, int], bool, float], list[ShareTrial]] = defaultdict(list)
    for trial in trials:
        groups[trial.sizes, trial.is_clear, trial.truth].append(trial)
    rows = []
    for (sizes, is_clear, truth), group in sorted(groups.items()):
        row: dict[str, Any] = {
            "reference": sizes[0],
            "current": sizes[1],
            "drift": "clear" if is_clear else "faint",
            "share": truth,
            "num": len(group),
        }
        for way in group[0].ways:
            errors = np.array([trial.ways[way] for trial in group]) - truth
            row[f"{way} bias"] = float(errors.mean())
            row[f"{way} rmse"] = float(np.sqrt(np.square(errors).mean()))
            row[f"{way} spread"] = float(errors.std())
        ours = np.array([(trial.ways["ours"] - truth, trial.error) for trial in group])
        row["within 2 errors"] = float((np.abs(ours[:, 0]) <= 2 * ours[:, 1]).mean())
        areas = [trial.area for trial in group if trial.area is not None]
        row["area"] = float(np.mean(areas)) if areas else None
        rows.append(row)
    return rows


# --- what is shown ------------------------------------------------------------------------------


def print_harm(table: Mapping[str, Agreement]) -> None:
    print(f"\n{'points of accuracy lost':36}{'error':>7}{'bias':>7}{'corr.':>7}", end="")
    print(f"{'found':>8}{'false':>7}{'right':>7}{'cases':>7}   (harmful: > {HARMFUL:g} points)")
    for name, each in table.items():
        print(
            f"{name:36}{each.mean_absolute_error:7.1f}{each.bias:+7.1f}{each.correlation:7.2f}"
            f"{each.found_harmful:8.2f}{each.false_harmful:7.2f}{each.right:7.2f}{each.num:7}"
        )


def print_shares(rows: list[dict[str, Any]]) -> None:
    ways = ("ours", "storey", "two normals")
    heads = "".join(f"{way:>16}" for way in ways)
    print(f"\n{'rows':>9}  {'drift':7}{'share':>5}{heads}   within 2 errors   area   cases")
    for row in rows:
        sizes = f"{row['reference']}/{row['current']}"
        numbers = "".join(f"{row[f'{w} bias']:+9.2f} ±{row[f'{w} rmse']:5.2f}" for w in ways)
        shown = "     -" if row["area"] is None else f"{row['area']:6.2f}"
        print(
            f"{sizes:>9}  {row['drift']:7}{row['share']:5.2f}{numbers}"
            f"{row['within 2 errors']:18.2f} {shown}{row['num']:8}"
        )
    print("(bias, and root of the mean squared error; area: of the evidence on single samples)")


def figure_of(found: Mapping[str, Pairs], rows: list[dict[str, Any]]) -> bytes:
    """Estimated against true harm, and estimated against true share."""
    styles = style.styles_of(["amr", "fr-flush"])
    with matplotlib.rc_context(style.RC):
        grid = facets(2, (4.4, 4.2))
        harm, share = grid.panels
        for name, legend, line in (
            ("stream, transport by class", "without labels, classes mixed", styles["fr-flush"]),
            ("labels", "with labels", styles["amr"]),
        ):
            estimate, truth = np.array(found[name]).T
            harm.scatter(
                truth, estimate, s=9, alpha=0.45, linewidths=0, color=line.colour,
                marker=line.marker, label=legend,
            )  # fmt: skip
        ends = (-70, 105)
        harm.plot(ends, ends, color=style.MUTED, linewidth=0.8, zorder=0)
        harm.set(xlim=ends, ylim=ends, title="Harm of a drift to a class")
        harm.set(xlabel="accuracy lost, in points", ylabel="estimated, in points")
        for drift, line, offset in (
            ("clear", styles["amr"], -0.012),
            ("faint", styles["fr-flush"], 0.012),
        ):
            lines = [
                (row["share"], row["ours bias"] + row["share"], row["ours spread"])
                for row in rows
                if row["drift"] == drift and (row["reference"], row["current"]) == (50, 100)
            ]
            truth, mean, spread = np.array(lines).T
            share.errorbar(
                truth + offset, mean, yerr=spread, color=line.colour, marker=line.marker,
                linestyle=line.line, linewidth=1.2, markersize=5, capsize=2, label=f"{drift} drift",
            )  # fmt: skip
        share.plot((0, 1), (0, 1), color=style.MUTED, linewidth=0.8, zorder=0)
        share.set(
            xlim=(-0.06, 1.06), ylim=(-0.06, 1.12), title="Fraction of a class that has drifted"
        )
        share.set(xlabel="fraction that has drifted", ylabel="estimated share")
        share.set_xticks(SHARES)
        for axes in (harm, share):
            axes.grid(visible=True)
            scale = 1.8 if axes is harm else 1.0
            axes.legend(loc="upper left", handletextpad=0.4, markerscale=scale)
        return to_png(grid.figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", choices=("test", "left-out"), default="test")
    parser.add_argument("--figure", type=Path, help="write a PNG here")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    learned, shown = parts_of(load("fashion-mnist"), arguments.samples)
    found: Mapping[str, Pairs] = defaultdict(list)
    trials: list[ShareTrial] = []
    for seed in range(arguments.seeds):
        encode = encoder_of(trained(*learned, seed))
        images, labels = shown
        rows = tuple((labels == label).nonzero()[:, 0] for label in range(NUM_CLASSES))
        world = World(plain=encode(images), labels=labels, rows=rows)
        right = float((world.plain.logits.argmax(dim=1) == world.labels).double().mean())
        print(f"seed {seed}: accuracy {100 * right:.1f} before any drift", flush=True)
        for transform, severity in DRIFTS:
            drifted = encode(apply(images, transform, severity, seed=42))
            draw = rng.fork(seed, transform, severity)
            measure_harm(world, drifted, draw, found)
            trials += measure_share(world, drifted, draw, (NUM_REFERENCE, NUM_MONITORED))
            if seed == 0 and severity in LARGER_SEVERITIES:
                for sizes in LARGER:
                    trials += measure_share(world, drifted, draw, sizes)
    errors, misses = np.array(found["standard errors"]).T
    within = float((np.abs(misses) <= 2 * errors).mean())
    agreements = {
        name: agreement(pairs) for name, pairs in sorted(found.items()) if name != "standard errors"
    }
    table = share_rows(trials)
    print_harm(agreements)
    print(f"with labels, {100 * within:.0f} % lie within two standard errors of the truth")
    print_shares(table)
    print(f"\n{time.perf_counter() - started:.0f} seconds, one thread")
    if arguments.figure:
        arguments.figure.write_bytes(figure_of(found, table))
    if arguments.json:
        harm = {name: asdict(each) for name, each in agreements.items()}
        numbers = {"harm": harm, "labels within 2 errors": within, "share": table}
        arguments.json.write_text(json.dumps(numbers, indent=1) + "\n")
    return 0


def encoder_of(network: nn.Module) -> Callable[[Tensor], Encoding]:
    return lambda images: encode_all(network, [to_input(part) for part in torch.split(images, 512)])


if __name__ == "__main__":
    raise SystemExit(main())
