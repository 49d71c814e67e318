"""The Avalanche side, in an environment of its own: it gets orders line by line, in JSON.

`avalanche_side.py` starts it. Everything that could slow it down and is not needed is left out: its
images are floats that are ready, nothing is logged or evaluated, no transform is at work.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # for the networks' definitions, and nothing else

import torch  # noqa: E402

from driftwise.models import MLP, ResNet18  # noqa: E402

NUM_CLASSES = 10
ANSWERS = sys.stdout
sys.stdout = sys.stderr  # whatever is printed on the way is no answer


def import_avalanche() -> Any:
    """Avalanche, beside a torch for processors only, whose torchvision lacks two operators."""
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    with contextlib.suppress(RuntimeError):  # where torchvision has them
        for name in ("nms", "qnms"):
            schema = f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            library.define(schema)  # type: ignore[no-untyped-call]
    warnings.simplefilter("ignore")
    return importlib.import_module("avalanche"), library


AVALANCHE = import_avalanche()  # the library must live as long as its operators are wanted
benchmarks = importlib.import_module("avalanche.benchmarks")
utils = importlib.import_module("avalanche.benchmarks.utils")
supervised = importlib.import_module("avalanche.training.supervised")
plugins = importlib.import_module("avalanche.training.plugins")
storage = importlib.import_module("avalanche.training.storage_policy")
training_utils = importlib.import_module("avalanche.training.utils")


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
now = CLOCKS["wall"]


class Closed(Exception):
    """Enough steps have been made."""


def listen() -> dict[str, Any]:
    """The next order; the process ends when nobody is left to give one."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    order: dict[str, Any] = json.loads(line)
    return order


def answer(**values: Any) -> None:
    ANSWERS.write(json.dumps(values) + "\n")
    ANSWERS.flush()


def dataset_of(images: torch.Tensor, labels: torch.Tensor) -> Any:
    """Samples of one task, as its benchmarks have them: image, class, task."""
    attributes = [
        utils.DataAttribute(labels.tolist(), name="targets"),
        utils.DataAttribute([0] * len(labels), name="targets_task_labels", use_in_getitem=True),
    ]
    pairs = torch.utils.data.TensorDataset(images, labels)
    dataset = utils.make_avalanche_dataset(pairs, data_attributes=attributes)
    return utils.as_classification_dataset(dataset)


def network_of(order: dict[str, Any]) -> torch.nn.Module:
    if order["width"] is None:
        return MLP(input_shape=tuple(order["shape"]), num_classes=NUM_CLASSES)
    return ResNet18(
        input_shape=tuple(order["shape"]), num_classes=NUM_CLASSES, width=order["width"]
    )


SupervisedPlugin: Any = plugins.SupervisedPlugin


class TakesOrders(SupervisedPlugin):  # type: ignore[misc]
    """Stops before an iteration until it gets the number to make; answers what they took.

    From one such stop to the next lie whole iterations, the loading of their batches included.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left = 0
        self.began: float | None = None
        self.rows = 0
        self.counting: Any = None

    def count_rows(self, network: torch.nn.Module) -> None:
        """Of every forward of the first order, so that it can be seen what a step does."""

        def count(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            self.rows += len(inputs[0])

        self.rows = 0
        self.counting = network.register_forward_pre_hook(count)

    def before_training_iteration(self, strategy: Any, **_: Any) -> None:
        """Go on, or answer and wait."""
        if strategy.experience.current_experience == 0:  # it is there to fill the memory
            strategy.stop_training()
            return
        if self.left > 0:
            self.left -= 1
        if self.left == 0:
            if self.began is not None:
                answer(seconds=now() - self.began, rows=self.rows)
            order = listen()
            if order["do"] == "close":
                raise Closed
            if self.began is None:
                self.count_rows(strategy.model)
            elif self.counting is not None:
                self.counting.remove()
                self.rows, self.counting = 0, None
            self.left = order["steps"]
            self.began = now()


def strategy_of(order: dict[str, Any], orders: TakesOrders) -> Any:
    network = network_of(order)
    common = {
        "model": network,
        "optimizer": torch.optim.SGD(network.parameters(), lr=order["lr"]),
        "train_mb_size": order["batch_size"],
        "train_epochs": 1_000_000,
        "evaluator": None,
        "plugins": [orders],
    }
    capacity, draw = order["capacity"], order["draw"]
    match order["method"]:
        case "er":
            policy = storage.ReservoirSamplingBuffer(capacity)
            common["plugins"].append(
                plugins.ReplayPlugin(
                    capacity,
                    batch_size=order["batch_size"],
                    batch_size_mem=draw,
                    storage_policy=policy,
                )
            )
            return supervised.Naive(**common)
        case "er-ace":
            return supervised.ER_ACE(mem_size=capacity, batch_size_mem=draw, **common)
        case "der++":
            return supervised.DER(
                mem_size=capacity, batch_size_mem=draw, alpha=0.2, beta=0.5, **common
            )
    raise ValueError(order["method"])


def make_steps(order: dict[str, Any]) -> None:
    """Two experiences: one to fill the memory, one to be timed."""
    torch.manual_seed(0)
    experiences = []
    for classes, rows in (((0, 1), order["capacity"]), (tuple(range(2, NUM_CLASSES)), 3_200)):
        labels = torch.tensor(classes)[torch.arange(rows) % len(classes)]
        experiences.append(dataset_of(torch.rand(rows, *order["shape"]), labels))
    stream = benchmarks.benchmark_from_datasets(train=experiences).train_stream
    orders = TakesOrders()
    strategy = strategy_of(order, orders)
    answer(ready=True)
    try:
        for experience in stream:
            strategy.train(experience, eval_streams=[])
    except Closed:
        answer(closed=True)


class Memory:
    """Its reservoir, as its online strategies fill it and as its methods draw from it."""

    def __init__(self, order: dict[str, Any]) -> None:
        torch.manual_seed(0)
        capacity, batch = order["capacity"], order["batch_size"]
        self.buffer = storage.ReservoirSamplingBuffer(capacity)
        self.batch = dataset_of(
            torch.rand(batch, *order["shape"]), torch.arange(batch) % NUM_CLASSES
        )
        held = min(capacity, order["seen"])
        if held:
            rows = dataset_of(torch.rand(held, *order["shape"]), torch.arange(held) % NUM_CLASSES)
            self.buffer.update_from_dataset(rows)
            # What has been seen shows in the weights of what is left: the largest of them all.
            weights = torch.rand(order["seen"]).sort(descending=True).values
            self.buffer._buffer_weights = weights[:held]
        self.label = 0
        self.refill = dataset_of(
            torch.rand(max(1, capacity // NUM_CLASSES), *order["shape"]),
            torch.zeros(max(1, capacity // NUM_CLASSES), dtype=torch.int64),
        )
        self.loader: Any = None

    def add(self) -> None:
        """One batch."""
        self.buffer.update_from_dataset(self.batch)

    def sample(self) -> None:
        """One batch, from a loader as its methods make them."""
        if self.loader is None:
            loader = torch.utils.data.DataLoader(
                self.buffer.buffer,
                batch_size=len(self.batch),
                shuffle=True,
                drop_last=True,
                collate_fn=self.buffer.buffer.collate_fn,
            )
            self.loader = training_utils.cycle(loader)
        next(self.loader)

    def drop(self) -> None:
        """The samples of one class, written with what it offers: it has no such operation."""
        kept = [i for i, label in enumerate(self.buffer.buffer.targets) if label != self.label]
        self.buffer.buffer = self.buffer.buffer.subset(kept)

    def put(self) -> None:
        """A tenth of the capacity, the same way."""
        self.buffer.buffer = self.buffer.buffer.concat(self.refill)


def work_on_memory(order: dict[str, Any]) -> None:
    memory = Memory(order)
    answer(ready=True)
    while (order := listen())["do"] != "close":
        seconds = []
        for name in order["calls"]:
            call = getattr(memory, name)
            start = now()
            call()
            seconds.append(now() - start)
        answer(seconds=seconds)
    answer(closed=True)


def main() -> None:
    global now
    answer(ready=True, version=AVALANCHE[0].__version__, torch=torch.__version__)
    while True:
        order = listen()
        torch.set_num_threads(order["threads"])
        now = CLOCKS[order["clock"]]
        if order["do"] == "steps":
            make_steps(order)
        else:
            work_on_memory(order)


if __name__ == "__main__":
    main()
