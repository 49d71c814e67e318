"""What realignment costs in Lightning: a ResNet-18 step with the callback against one without it.

    python benchmarks/bench_trainers.py [--turns 8] [--steps 3] [--save]

Both sides forward the same number of samples in a step: without the callback all from the batch, with it
half from the batch and half drawn from the buffer. Fits of a few steps take turns; ratios are medians of
the turns' own ratios, without turns in which other programs used more than a tenth of the machine, by
wall and by processor time. `share` is the part of a step's processor time that
is spent in the callback's own code. `--save` writes results/trainer_cost.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from bench_distributed import Clock
from ratios import around_the_median, calm, moment, processor, used_by_others
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from trainer_cases import lightning_trainer

from driftwise.models import ResNet18, seeded

SAVED = Path(__file__).resolve().parents[1] / "results" / "trainer_cost.json"
SAMPLES, CAPACITY = 64, 500


def make_module() -> Any:
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            make = seeded(ResNet18, input_shape=(3, 32, 32), num_classes=10, seed=0, width=20)
            self.network = make(0)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.network(x)
            return logits

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002
            return cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.03)

    return Module()


def loader(samples: int, steps: int) -> DataLoader[Any]:
    draw = torch.Generator().manual_seed(samples)
    count = samples * (steps + 1)
    x = torch.rand(count, 3, 32, 32, generator=draw)
    return DataLoader(
        TensorDataset(x, torch.randint(10, (count,), generator=draw)), batch_size=samples
    )


def step_clock() -> Any:
    """A callback that notes when steps end."""
    import lightning.pytorch as pl

    class StepClock(pl.Callback):
        def __init__(self) -> None:
            self.noted: list[tuple[float, float]] = []

        def on_train_batch_end(self, *_: Any) -> None:
            self.noted.append((time.perf_counter(), time.process_time()))

    return StepClock()


def step_seconds(noted: list[tuple[float, float]]) -> tuple[float, float]:
    """Wall and processor seconds of a step; the first one of a fit warms up."""
    (wall, cpu), (last_wall, last_cpu) = noted[0], noted[-1]
    steps = len(noted) - 1
    return (last_wall - wall) / steps, (last_cpu - cpu) / steps


def measure(turns: int, steps: int) -> dict[str, Any]:
    from driftwise.integrations.lightning import Realignment

    with_it, without = make_module(), make_module()
    empty = torch.empty(0, 3, 32, 32), torch.empty(0, dtype=torch.int64)
    callback = Realignment(current=lambda: empty, buffer=CAPACITY)
    fill = lightning_trainer(callbacks=[callback], max_epochs=1)
    fill.fit(with_it, loader(SAMPLES // 2, CAPACITY // (SAMPLES // 2) // 4))
    spent = Clock()
    realigner = callback.realigner
    realigner.extend = spent.around(realigner.extend)  # type: ignore[method-assign]
    realigner.offer = spent.around(realigner.offer)  # type: ignore[method-assign]
    taken: list[dict[str, float]] = []
    for turn in range(-1, 4 * turns):
        times, since = {}, moment()
        for name in ("ours", "plain") if turn % 2 else ("plain", "ours"):
            clock = step_clock()
            mine = [callback, clock] if name == "ours" else [clock]
            samples = SAMPLES // 2 if name == "ours" else SAMPLES
            spent.processor = spent.seconds = 0.0
            trainer = lightning_trainer(callbacks=mine, max_epochs=1)
            trainer.fit(with_it if name == "ours" else without, loader(samples, steps))
            times[name] = step_seconds(clock.noted)
            if name == "ours":
                share = spent.processor / (steps + 1) / times[name][1]
                share_wall = spent.seconds / (steps + 1) / times[name][0]
        if turn >= 0:
            taken.append(
                {
                    "others": used_by_others(since) or 0.0,
                    "wall": times["ours"][0] / times["plain"][0] - 1,
                    "processor": times["ours"][1] / times["plain"][1] - 1,
                    "share": share,
                    "share_wall": share_wall,
                    "step_ms": 1e3 * times["plain"][1],
                }
            )
        if len(calm(taken)) == turns:
            break
    used = calm(taken, at_least=turns // 2 + 1)
    found = {name: [turn[name] for turn in used] for name in used[0]}
    return {
        "slower_wall": [round(each, 4) for each in around_the_median(found["wall"])],
        "slower_processor": [round(each, 4) for each in around_the_median(found["processor"])],
        "share": round(statistics.median(found["share"]), 4),
        "share_wall": round(statistics.median(found["share_wall"]), 4),
        "turns": len(used),
        "left_out": len(taken) - len(used),
        "others": round(statistics.mean(found["others"]), 3),
        "plain_step_processor_ms": round(min(found["step_ms"]), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)  # they name the processor in every fit
    torch.set_num_threads(1)
    found = measure(options.turns, options.steps)
    print(json.dumps(found))
    if options.save:
        about = {"processor": processor(), "torch": torch.__version__, **vars(options)}
        SAVED.write_text(json.dumps({"about": about, "lightning": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
