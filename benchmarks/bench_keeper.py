"""What a live learner costs beside the model it keeps: a batch, a check, a prediction meanwhile.

    python benchmarks/bench_keeper.py [--threads 1] [--turns 30]

- observe: a labelled batch when no check is due, against the method's own step and one forward for
  the prediction, on the same samples; without replay steps, and with those of the defaults (8 after a
  batch for an MLP, 2 for a network of more than a million weights), which cost what steps cost.
- statistics: a labelled batch of 32 vectors without a network, against the update of the same class
  statistics and one prediction by a classifier that is not computed anew.
- check: ten classes, 100 reference samples and 50 current ones, encodings kept, against
  one training step of ResNet-18 at batch 64; a stream's first check, its tenth and its thousandth,
  which have less and less of the level left.
- predict: the 99th percentile of single images while another thread learns, against the same
  when nobody does; blocks of calls take turns. Calls come every 2 ms, without a pause, or from
  four threads without a pause. What they cost the learning thread stands beside it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from ratios import Finding, arguments, begin, compare, finish, head, show, take_turns
from step_cases import CASES, LR, NUM_CLASSES, Case, make_images
from torch.nn.functional import cross_entropy

import driftwise
from driftwise import rng
from driftwise.learner import Learner
from driftwise.live.components import monitor_of
from driftwise.live.engine import LiveEngine
from driftwise.live.settings import settings_from
from driftwise.models import ResNet18
from driftwise.types import Samples

MOST_ADDED = 0.10
"""of a step and a forward, where the network is what costs"""
NEVER = 10**9
CAPACITY = 320
METHODS = ("er", "der++")
CALLS = 200
"""single predictions in a block"""
WAYS = {"every 2 ms": (1, 0.002), "without a pause": (1, 0.0), "4 without a pause": (4, 0.0)}
"""threads that predict, and seconds between one prediction and the next"""


def keeper_of(case: Case, method: str, replay_steps: int | None = 0) -> driftwise.LiveLearner:
    """A live learner that never checks, its memory full."""
    with rng.as_global(rng.fork(0, "network")):
        network = case.make_network()
    live_learner = driftwise.LiveLearner(
        network,
        method=method,
        detector="ks",
        buffer_size=CAPACITY,
        minibatch_size=case.batch_size,
        optimiser="sgd",
        lr=LR,
        batch_size=case.batch_size,
        replay_steps=replay_steps,
        check_rows=NEVER,
        watch_every=NEVER,
    )
    data = make_images(case.image_shape, [CAPACITY // NUM_CLASSES] * NUM_CLASSES)
    live_learner.observe(data.images, data.labels)
    return live_learner


def learner_of(live_learner: driftwise.LiveLearner) -> Learner:
    assert live_learner._engine is not None
    return live_learner._engine.learner


def batches_of(case: Case) -> Callable[[], Samples]:
    """One after the other, round and round."""
    data = make_images(case.image_shape, [8 * case.batch_size // NUM_CLASSES + 1] * NUM_CLASSES)
    order = np.random.default_rng(0).permutation(len(data.labels))
    images, labels = torch.from_numpy(data.images[order]), torch.from_numpy(data.labels[order])
    rows = _rows(images, labels)
    parts = [part for part in rows.split(case.batch_size) if len(part) == case.batch_size]
    numbers = iter(range(NEVER))
    return lambda: parts[next(numbers) % len(parts)]


def _rows(images: torch.Tensor, labels: torch.Tensor) -> Samples:
    ids = torch.arange(len(labels))
    return Samples(images=images, labels=labels, ids=ids, concepts=torch.zeros_like(ids))


def observing(case: Case, method: str, turns: int, *, replay: bool = False) -> Finding:
    live_learner = keeper_of(case, method, replay_steps=None if replay else 0)
    twin = keeper_of(case, method)
    learner = learner_of(twin)
    mine, theirs = batches_of(case), batches_of(case)

    def observe() -> None:
        rows = mine()
        live_learner.observe(rows.images, rows.labels)

    def step_and_forward() -> None:
        rows = theirs()
        learner.logits(rows.images)
        learner.observe(rows)

    with twin._engine.ledger.phase("train"):  # type: ignore[union-attr]
        seconds = take_turns(
            {"ours": observe, "other": step_and_forward}, turns=turns, calls=case.steps
        )
    return compare(
        "observe",
        f"{method}, {case.name}" + (", replay steps" if replay else ""),
        "its step and a forward",
        ours=seconds["ours"],
        other=seconds["other"],
        measure="overhead",
        goal=None if case.width is None or replay else MOST_ADDED,
    )


def observing_vectors(method: str, features: int, turns: int) -> Finding:
    """A live learner of class statistics, which has seen 4,000 samples."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(NUM_CLASSES, features, generator=draw)
    labels = torch.arange(4000) % NUM_CLASSES
    vectors = centres[labels] + torch.randn(4000, features, generator=draw)
    live_learner, twin = (
        driftwise.LiveLearner(
            method=method, detector="ks", check_rows=NEVER, watch_every=NEVER, batch_size=None
        )
        for _ in range(2)
    )
    for each in (live_learner, twin):
        each.observe(vectors, labels)
    bare, number = learner_of(twin), iter(range(NEVER))
    samples = _rows(vectors, labels)
    parts = list(samples[:3968].split(32))

    def observe() -> None:
        batch = parts[next(number) % len(parts)]
        live_learner.observe(batch.images, batch.labels)

    def update_and_predict() -> None:
        batch = parts[next(number) % len(parts)]
        bare.observe(batch)  # the report has the predictions before

    seconds = take_turns({"ours": observe, "other": update_and_predict}, turns=turns, calls=10)
    return compare(
        "statistics",
        f"{method}, {features} features, {NUM_CLASSES} classes",
        "its update and a prediction",
        ours=seconds["ours"],
        other=seconds["other"],
        measure="overhead",
    )


def checking(detector: str, number: int, turns: int) -> Finding:
    config, live = settings_from({"detector": detector, "encoder": "random"}, backbone="mlp")
    data = make_images((32, 32, 3), [150] * NUM_CLASSES)
    rows = _rows(torch.from_numpy(data.images), torch.from_numpy(data.labels))
    engine = LiveEngine(
        config, live, rows, NUM_CLASSES, network=None, requester=None, snapshot=lambda: None
    )
    monitor, monitored = monitor_of(engine.handlers[0]), _Watched(rows, number=number + 1)
    with engine.ledger.phase("detect"):
        monitor.renew(monitored, range(NUM_CLASSES), rows[:0])
        monitor.check(monitored)  # from here on the encodings are kept
    network = ResNet18(input_shape=(3, 32, 32), num_classes=NUM_CLASSES, width=64)
    optimiser = torch.optim.SGD(network.parameters(), lr=LR)
    x, y = torch.rand(64, 3, 32, 32), torch.arange(64) % NUM_CLASSES

    def check() -> None:
        with engine.ledger.phase("detect"):
            monitor.check(monitored)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    seconds = take_turns({"ours": check, "other": step}, turns=max(5, turns // 5))
    return compare(
        "check",
        f"{detector}, 10 classes, check {number:,}",
        "a step of ResNet-18 at batch 64",
        ours=seconds["ours"],
        other=seconds["other"],
        measure="speedup",
        goal=1.0,
    )


class _Watched:
    """100 reference samples and 50 current ones of every class."""

    def __init__(self, rows: Samples, *, number: int) -> None:
        self.number = number
        self.known_classes = tuple(range(NUM_CLASSES))
        self._by_class = [rows.of_class(label) for label in self.known_classes]

    def monitored(self) -> Samples:
        return Samples.concat([rows[100:] for rows in self._by_class])

    def reference(self, label: int) -> Samples:
        return self._by_class[label][:100]


class Learning:
    """A thread that observes one batch after the other, while it may."""

    def __init__(self, live_learner: driftwise.LiveLearner, batches: Callable[[], Samples]) -> None:
        self._keeper = live_learner
        self._batches = batches
        self._may, self._over = threading.Event(), threading.Event()
        self._done = 0
        self._thread = threading.Thread(target=self._learn, daemon=True)
        self._thread.start()

    def _learn(self) -> None:
        while not self._over.is_set():
            self._may.wait()
            rows = self._batches()
            self._keeper.observe(rows.images, rows.labels)
            self._done += 1

    @contextlib.contextmanager
    def going_on(self) -> Iterator[None]:
        """Meanwhile."""
        self._may.set()
        time.sleep(0.1)  # a thread that was just woken runs where the other one does
        yield
        self._may.clear()

    def seconds_a_batch(self, meanwhile: Callable[[], object]) -> float:
        """While something else is done."""
        done, start = self._done, time.perf_counter()
        meanwhile()
        return (time.perf_counter() - start) / max(1, self._done - done)

    def end(self) -> None:
        """For good."""
        self._over.set()
        self._may.set()
        self._thread.join()


def predicting(case: Case, way: str, turns: int) -> list[Finding]:
    """The 99th percentile of each block, quiet blocks and busy ones in turns; and what it costs."""
    live_learner, batches = keeper_of(case, "er"), batches_of(case)
    one = batches().images[:1]
    learning = Learning(live_learner, batches)
    callers, pause = WAYS[way]
    taken: list[float] = []

    def call() -> None:
        for _ in range(CALLS // callers):
            if pause:
                time.sleep(pause)
            start = time.perf_counter()  # waiting counts, whatever the clock of the other parts
            live_learner.predict(one)
            taken.append(time.perf_counter() - start)

    def block() -> float:
        taken.clear()
        others = [threading.Thread(target=call) for _ in range(callers - 1)]
        for each in others:
            each.start()
        call()
        for each in others:
            each.join()
        return float(np.percentile(taken, 99))

    quiet, busy, beside, alone = [], [], [], []
    for _ in range(turns):
        time.sleep(0.5)  # a step that is under way ends
        quiet.append(block())
        with learning.going_on():
            beside.append(learning.seconds_a_batch(lambda: busy.append(block())))
            alone.append(learning.seconds_a_batch(lambda: time.sleep(0.5)))
    learning.end()
    case_name = f"{way}, {case.name}"
    return [
        compare(
            "predict",
            f"p99 while learning, {case_name}",
            "the same when nobody learns",
            ours=busy,
            other=quiet,
            measure="overhead",
            goal=1.0,
        ),
        compare(
            "observe",
            f"while predicting, {case_name}",
            "the same when nobody predicts",
            ours=beside,
            other=alone,
            measure="overhead",
        ),
    ]


def main() -> None:
    parser = arguments(__doc__, turns=30)
    parser.add_argument(
        "--only", choices=("observe", "statistics", "check", "predict"), help="one of the parts"
    )
    options = parser.parse_args()
    begin(options)
    head("other")
    findings = []
    mlp, narrow = CASES[:2]
    if options.only in (None, "observe"):
        for case in (mlp, narrow):
            for method in METHODS:
                findings.append(observing(case, method, options.turns))
                show(findings[-1])
            findings.append(observing(case, "er", options.turns, replay=True))
            show(findings[-1])
    if options.only in (None, "statistics"):
        for method, features in (("ncm", 128), ("slda", 128), ("slda", 1280)):
            findings.append(observing_vectors(method, features, options.turns))
            show(findings[-1])
    if options.only in (None, "check"):
        for detector in ("ks", "combined"):
            for number in (1, 10, 1000):
                findings.append(checking(detector, number, options.turns))
                show(findings[-1])
    if options.only in (None, "predict"):
        for case in (mlp, narrow):
            for way in WAYS:
                for finding in predicting(case, way, max(8, options.turns // 2)):
                    findings.append(finding)
                    show(finding)
    finish("keeper", findings, options)


if __name__ == "__main__":
    main()
