"""Experience replay on the digits as one writes it for oneself, from data to accuracies.

    python benchmarks/bare_run.py [--backbone mlp|resnet18] [--width 20] [--epochs 10]

`bench_run.py` sets a whole `driftwise run` beside it. Five tasks of two classes, a plain reservoir
of floats, an accuracy per task after each task; nothing is saved, monitored, counted or reproducible
but by the seed. The samples of each part are those of the run.
"""

from __future__ import annotations

import argparse
import json
import random

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from driftwise.datasets.readers.digits import load_digits
from driftwise.models import MLP, ResNet18
from driftwise.streams.split import make_parts

TASKS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
CAPACITY, BATCH, LR = 100, 10, 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone", choices=("mlp", "resnet18"), default="mlp")
    parser.add_argument("--width", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    random.seed(0)

    digits = load_digits()
    parts = make_parts(digits, monitor_test=False, keep_reference=False, seed=0)
    images = torch.from_numpy(digits.images).permute(0, 3, 1, 2).float() / 255
    labels = torch.from_numpy(digits.labels)
    train, test = torch.from_numpy(parts.train), torch.from_numpy(parts.test)

    network: nn.Module = MLP(input_shape=(1, 8, 8))
    if options.backbone == "resnet18":
        network = ResNet18(input_shape=(1, 8, 8), width=options.width)
    optimiser = torch.optim.SGD(network.parameters(), lr=LR)
    kept: list[int] = []
    seen = 0
    accuracies: list[float] = []
    for number, classes in enumerate(TASKS, 1):
        own = train[torch.isin(labels[train], torch.tensor(classes))]
        network.train()
        for _ in range(options.epochs):
            for batch in torch.split(own[torch.randperm(len(own))], BATCH):
                rows = batch
                if kept:
                    drawn = random.sample(kept, min(BATCH, len(kept)))
                    rows = torch.cat([batch, torch.tensor(drawn)])
                loss = cross_entropy(network(images[rows]), labels[rows])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                for row in batch.tolist():
                    if len(kept) < CAPACITY:
                        kept.append(row)
                    elif (slot := random.randint(0, seen)) < CAPACITY:
                        kept[slot] = row
                    seen += 1
        network.eval()
        accuracies = []
        for old in TASKS[:number]:
            rows = test[torch.isin(labels[test], torch.tensor(old))]
            with torch.no_grad():
                right = network(images[rows]).argmax(1) == labels[rows]
            accuracies.append(100 * float(right.float().mean()))
    print(json.dumps({"faa": sum(accuracies) / len(accuracies)}))


if __name__ == "__main__":
    main()
