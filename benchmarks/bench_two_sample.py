"""How long the two-sample tests take for all classes of a check, against the loops they replace.

    python benchmarks/bench_two_sample.py [--alibi-python PATH]

Best milliseconds of a check, encoding excluded, one thread; the sides take turns, so that whatever
else the machine does meets all of them. Kolmogorov-Smirnov is timed against one scipy call per
class, twice: with nothing remembered of earlier checks, and with everything; the two permutation
tests against a plain loop over the permutations. PATH is an interpreter of a virtual environment
that has alibi-detect 0.13 with torch: its KSDrift and MMDDrift get the same samples and the same
kernels, and the statistics are compared, too. Making its detectors is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from driftwise.stats import ks
from driftwise.stats.c2st import c2st
from driftwise.stats.mmd import mmd

Pair = tuple[Tensor, Tensor]

NUM_PERMUTATIONS = 100
KS_SIZES = (
    (20, 20),
    (50, 100),
    (48, 101),
    (100, 500),
    (500, 500),
    (499, 500),
    (5000, 5000),
    (5000, 4999),
)
KS_GOALS = {(50, 100): 5.0}
FEATURE_SIZES = ((20, 100, 64), (50, 100, 64), (50, 100, 512), (500, 500, 64))


def scores(classes: int, n: int, m: int, draw: torch.Generator) -> list[Pair]:
    """Half of the classes have drifted a little."""
    return [
        (
            torch.randn(n, generator=draw, dtype=torch.float64),
            torch.randn(m, generator=draw, dtype=torch.float64) + 0.3 * (label % 2),
        )
        for label in range(classes)
    ]


def features(classes: int, n: int, m: int, width: int, draw: torch.Generator) -> list[Pair]:
    """Single precision, as networks give them."""
    return [
        (torch.randn(n, width, generator=draw), torch.randn(m, width, generator=draw) + 0.1)
        for _ in range(classes)
    ]


def take_turns(parties: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """Best milliseconds of each."""
    best = [float("inf")] * len(parties)
    for _ in range(turns):
        for place, party in enumerate(parties):
            start = time.perf_counter()
            party()
            best[place] = min(best[place], (time.perf_counter() - start) * 1e3)
    return best


def verdict(ratio: float, goal: float | None) -> str:
    if goal is None:  # a tenth is within the noise of two equal sides
        return "never slower: " + ("reached" if ratio >= 0.9 else "MISSED")
    return f"at least {goal:g}x: " + ("reached" if ratio >= goal else "MISSED")


# The loops


def scipy_calls(pairs: Sequence[Pair]) -> None:
    for first, second in pairs:
        stats.ks_2samp(first.numpy(), second.numpy())


def mmd_loop(pairs: Sequence[Pair], draw: np.random.Generator) -> list[float]:
    """One kernel matrix per class, and one shuffled copy of it per permutation."""
    p_values = []
    for reference, current in pairs:
        rows = np.concatenate([reference.numpy(), current.numpy()]).astype(np.float64)
        n, total = len(reference), len(rows)
        norms = np.square(rows).sum(axis=1)
        squared = np.maximum(norms[:, None] + norms - 2 * rows @ rows.T, 0)
        kernel = np.exp(-squared / np.median(squared[np.triu_indices(total, 1)]))
        np.fill_diagonal(kernel, 0)

        def discrepancy(kernel: np.ndarray, n: int = n, m: int = total - n) -> float:
            within = kernel[:n, :n].sum() / (n * (n - 1)) + kernel[n:, n:].sum() / (m * (m - 1))
            return float(within - 2 * kernel[:n, n:].mean())

        observed, at_least = discrepancy(kernel), 1
        for _ in range(NUM_PERMUTATIONS):
            order = draw.permutation(total)
            at_least += discrepancy(kernel[order][:, order]) >= observed
        p_values.append(at_least / (1 + NUM_PERMUTATIONS))
    return p_values


def c2st_loop(pairs: Sequence[Pair], draw: np.random.Generator) -> list[float]:
    """One ridge fit per fold and permutation."""
    p_values = []
    for reference, current in pairs:
        rows = np.concatenate([reference.numpy(), current.numpy()]).astype(np.float64)
        rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        penalty = 0.01 * np.square(rows).sum() / len(rows)
        is_current = np.arange(len(rows)) >= len(reference)
        folds = np.array_split(draw.permutation(len(rows)), 10)
        areas = []
        for number in range(1 + NUM_PERMUTATIONS):
            labels = draw.permutation(is_current) if number else is_current
            held_out = np.empty(len(rows))
            for fold in folds:
                rest = np.setdiff1d(np.arange(len(rows)), fold)
                x, y = rows[rest] - rows[rest].mean(axis=0), labels[rest] - labels[rest].mean()
                dual = np.linalg.solve(x @ x.T + penalty * np.eye(len(rest)), y)
                held_out[fold] = (rows[fold] - rows[rest].mean(axis=0)) @ (x.T @ dual)
            ranks = stats.rankdata(held_out)
            least = labels.sum() * (labels.sum() + 1) / 2
            areas.append((ranks[labels].sum() - least) / (labels.sum() * (~labels).sum()))
        p_values.append(float(np.mean(np.array(areas) >= areas[0])))
    return p_values


# The tables


def forget_and_test(pairs: Sequence[Pair]) -> None:
    ks._answered.clear()
    ks.kolmogorov_smirnov(pairs)


def bench_ks(draw: torch.Generator) -> None:
    print(f"\n{'KS, 10 classes':24}{'scipy':>9}{'new':>9}{'faster':>9}{'known':>9}{'faster':>9}")
    for n, m in KS_SIZES:
        pairs = scores(10, n, m, draw)
        sides = (scipy_calls, forget_and_test, ks.kolmogorov_smirnov)
        turns = 50 if max(n, m) <= 500 else 5
        scipy, new, known = take_turns([partial(side, pairs) for side in sides], turns)
        times = f"{scipy:9.2f}{new:9.2f}{scipy / new:8.1f}x{known:9.2f}{scipy / known:8.1f}x"
        print(f"{f'{n} against {m}':24}{times}   {verdict(scipy / new, KS_GOALS.get((n, m)))}")


def bench_permutations(draw: torch.Generator) -> None:
    print(f"\n{f'{NUM_PERMUTATIONS} permutations, a class':34}{'loop':>9}{'ours':>9}{'faster':>9}")
    plain = np.random.default_rng(0)
    for n, m, width in FEATURE_SIZES:
        pairs = features(10 if n < 500 else 2, n, m, width, draw)
        tests = {"MMD": (mmd, mmd_loop, pairs), "C2ST": (c2st, c2st_loop, pairs[:1])}
        if n >= 500:
            del tests["C2ST"]  # its loop takes minutes
        for name, (ours, loop, looped) in tests.items():
            sides: list[Callable[[], object]] = [
                partial(loop, looped, plain),
                partial(ours, pairs, permutations=NUM_PERMUTATIONS, generator=draw),
            ]
            slow, fast = take_turns(sides, 10 if name == "MMD" and n < 500 else 3)
            slow, fast = slow / len(looped), fast / len(pairs)
            what = f"{name}, {n} against {m}, {width} wide"
            print(f"{what:34}{slow:9.1f}{fast:9.2f}{slow / fast:8.1f}x", flush=True)


# Beside alibi-detect

ALIBI = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
torch.set_num_threads(1)
from alibi_detect.cd import KSDrift, MMDDrift
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    kind, path, permutations = json.loads(line)
    data = np.load(path)
    classes = range(len(data["sigmas"]))
    if kind == "KS":
        made = [KSDrift(data[f"reference{c}"]) for c in classes]
    else:
        made = [
            MMDDrift(
                data[f"reference{c}"], backend="pytorch", n_permutations=permutations, device="cpu",
                sigma=data["sigmas"][c : c + 1], configure_kernel_from_x_ref=False,
            )
            for c in classes
        ]
    start = time.perf_counter()
    said = [detector.predict(data[f"current{c}"])["data"] for c, detector in enumerate(made)]
    seconds = time.perf_counter() - start
    statistics = [float(np.ravel(data["distance"])[0]) for data in said]
    print(json.dumps({"ms": seconds * 1e3, "statistics": statistics}), flush=True)
"""


class Alibi:
    """alibi-detect in an interpreter of its own, asked over a pipe."""

    def __init__(self, python: str, folder: Path) -> None:
        self._samples = folder / "samples.npz"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            [python, "-c", ALIBI],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={key: value for key, value in environment.items() if key != "PYTHONPATH"},
        )
        if self._answer() != "ready":
            raise SystemExit(f"{python} cannot import alibi_detect.cd with torch")

    def give(self, pairs: Sequence[Pair]) -> None:
        """The samples of all classes, and the width of our kernels."""
        arrays: dict[str, Any] = {}
        for label, (reference, current) in enumerate(pairs):
            # Scores are features one wide.
            arrays[f"reference{label}"] = reference.reshape(len(reference), -1).float().numpy()
            arrays[f"current{label}"] = current.reshape(len(current), -1).float().numpy()
        np.savez(self._samples, sigmas=np.array([sigma(pair) for pair in pairs]), **arrays)

    def ask(self, kind: str) -> dict[str, Any]:
        """Milliseconds and statistics of one check."""
        assert self._process.stdin is not None
        print(
            json.dumps([kind, str(self._samples), NUM_PERMUTATIONS]),
            file=self._process.stdin,
            flush=True,
        )
        answer: dict[str, Any] = self._answer()
        return answer

    def close(self) -> None:
        """End the interpreter."""
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None


def sigma(pair: Pair) -> float:
    """The kernel's width in alibi-detect's terms: exp(-distance^2 / (2 sigma^2))."""
    pooled = torch.cat([side.reshape(len(side), -1).double() for side in pair])
    return float((torch.pdist(pooled).square().median() / 2).sqrt())


def bench_alibi(alibi: Alibi, draw: torch.Generator) -> None:
    print(f"\n{'10 classes':34}{'alibi':>9}{'ours':>9}{'faster':>9}   statistics differ by")
    for n, m in ((20, 100), (50, 100), (500, 500), (5000, 5000)):
        pairs = [(a.float(), b.float()) for a, b in scores(10, n, m, draw)]
        beside(
            alibi, "KS", f"KS, {n} against {m}", pairs, forget_and_test, 5.0 if n == 50 else None
        )
    for n, m, width in FEATURE_SIZES:
        pairs = features(10, n, m, width, draw)
        ours = partial(mmd, permutations=NUM_PERMUTATIONS, generator=draw)
        beside(alibi, "MMD", f"MMD, {n} against {m}, {width} wide", pairs, ours, 20.0)


def beside(
    alibi: Alibi,
    kind: str,
    what: str,
    pairs: Sequence[Pair],
    ours: Callable[[Sequence[Pair]], object],
    goal: float | None,
) -> None:
    """One line of the table; KSDrift's p-values are asymptotic, so statistics alone compare."""
    alibi.give(pairs)
    theirs: list[dict[str, Any]] = []
    turns = 20 if len(pairs[0][0]) < 500 else 3
    _, fast = take_turns([lambda: theirs.append(alibi.ask(kind)), lambda: ours(pairs)], turns)
    slow = min(answer["ms"] for answer in theirs)
    test = ks.kolmogorov_smirnov if kind == "KS" else partial(mmd, generator=torch.Generator())
    found = np.array([statistic for statistic, _ in test(pairs)])
    gap = np.abs(found - theirs[0]["statistics"]).max()
    ratio = f"{slow:9.1f}{fast:9.2f}{slow / fast:8.1f}x"
    print(f"{what:34}{ratio}   {gap:.0e}   {verdict(slow / fast, goal)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--alibi-python", metavar="PATH", help="interpreter with alibi-detect")
    python = parser.parse_args().alibi_python
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
    draw = torch.Generator().manual_seed(0)
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    print(f"best milliseconds; load averages {load} on {os.cpu_count()} cores")
    bench_ks(draw)
    bench_permutations(draw)
    if python is not None:
        with tempfile.TemporaryDirectory() as folder:
            alibi = Alibi(python, Path(folder))
            bench_alibi(alibi, draw)
            alibi.close()
    print(f"load average after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
