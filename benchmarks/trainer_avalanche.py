"""digits-cd in Avalanche's Naive strategy with our plugin; runs in Avalanche's environment.

Prints a line of JSON: final average accuracy and labels.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import avalanche_worker  # first: it lets Avalanche be imported
import torch
from torch import nn
from trainer_cases import EPOCHS, LR, Digits, make_network, pair

from driftwise.integrations.avalanche import RealignmentPlugin


def in_avalanche(seed: int, epochs: int) -> tuple[Digits, nn.Module, Any]:
    """Digits at the last task, the network and the plugin."""
    from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets
    from avalanche.benchmarks.utils import _make_taskaware_tensor_classification_dataset
    from avalanche.training import Naive

    digits = Digits(seed)
    network = make_network(seed)
    plugin = RealignmentPlugin(**digits.settings())
    torch.manual_seed(seed)
    tasks = list(digits.stream.tasks())
    sets = []
    for task in tasks:
        x, y = pair(task.train())
        sets.append(_make_taskaware_tensor_classification_dataset(x, y, task_labels=[0] * len(y)))
    benchmark = benchmark_from_datasets(train=sets)
    strategy = Naive(
        model=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=LR),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=digits.stream.batch_size,
        train_epochs=epochs,
        plugins=[plugin],
        evaluator=None,
    )
    for task, experience in zip(tasks, benchmark.train_stream, strict=True):
        digits.task = task
        strategy.train(experience)
    return digits, network.eval(), plugin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    digits, network, plugin = in_avalanche(options.seed, options.epochs)
    realigner = plugin.realigner
    answer = {"faa": digits.accuracy(network), "labels": realigner.ledger.labels}
    drifted = [list(record.drifted) for record in realigner.records]
    print(json.dumps({**answer, "drifted": drifted}), file=avalanche_worker.ANSWERS)


if __name__ == "__main__":
    main()
