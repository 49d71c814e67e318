"""digits-cd for other people's trainers, and what our own loop makes of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import driftwise as dw
from driftwise.models.inputs import to_input
from driftwise.streams import Stream, StreamLabels, Task
from driftwise.types import Samples

EPOCHS, CAPACITY, LR, REPLAY = 3, 100, 0.1, 32


def make_stream(seed: int = 0, **options: Any) -> Stream:
    data = dw.datasets.load("digits")
    return dw.streams.class_incremental(data, num_tasks=5, num_drifts=1, seed=seed, **options)


def make_network(seed: int = 0) -> nn.Module:
    make = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=seed)
    return make(0)


def pair(samples: Samples) -> tuple[Tensor, Tensor]:
    return to_input(samples.images), samples.labels


class Digits:
    """The stream of one seed, as a user of another trainer has it."""

    def __init__(
        self, seed: int = 0, form: Callable[[Tensor], Any] = lambda x: x, **options: Any
    ) -> None:
        self.stream = make_stream(seed, **options)
        self.seed = seed
        self.task: Task = self.stream.task(1)
        self._form = form
        self._labels = StreamLabels(allowance=lambda n: n, book=lambda _: None, seed=seed)

    def settings(self) -> dict[str, Any]:
        """Of the callback or plugin."""
        return {
            "current": self.current,
            "reference": self.reference,
            "labels": self.ask,
            "buffer": CAPACITY,
            "replay": REPLAY,
            "detector": dw.detect.KS(),
            "seed": self.seed,
        }

    def current(self) -> Any:
        """Monitored samples of the task."""
        x, y = pair(self.task.monitored())
        return self._form(x), y

    def reference(self) -> Any:
        """Reference samples of all classes so far."""
        classes = (*self.task.known_classes, *self.task.new_classes)
        x, y = pair(Samples.concat([self.task.reference(label) for label in classes]))
        return self._form(x), y

    def ask(self, label: int, count: int) -> Any:
        """Fresh samples of a class."""
        return self._form(pair(self._labels.of(self.task).ask(label, count))[0])

    def batches(self, epoch: int) -> list[tuple[Tensor, Tensor]]:
        """Of the task's samples."""
        return [pair(batch) for batch in self.task.batches(self.task.train(), epoch=epoch)]

    def accuracy(self, logits: Callable[[Tensor], Tensor]) -> float:
        """Mean over tasks of the accuracy on their classes, in percent (after the last: FAA)."""
        x, y = pair(self.task.tests())
        with torch.no_grad():
            right = (logits(x).argmax(dim=1) == y).float()
        tasks = [torch.isin(y, torch.tensor(each)) for each in self.task.classes_by_task()]
        return 100 * float(torch.stack([right[each].mean() for each in tasks]).mean())


def own_loop(
    seed: int = 0, adaptation: Any = None, epochs: int = EPOCHS
) -> tuple[dw.DriftLoop, float]:
    learner = dw.Learner(
        make_network(seed),
        dw.methods.ER(),
        buffer=dw.ReplayBuffer(CAPACITY, seed=seed),
        lr=LR,
        seed=seed,
    )
    loop = dw.DriftLoop(learner, detector=dw.detect.KS(), adaptation=adaptation, seed=seed)
    *_, last = loop.run(make_stream(seed), epochs=epochs)
    return loop, last.accuracy


# The same stream in the loops of others


def lightning_module(seed: int = 0) -> Any:
    """A module as a user of Lightning writes it."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = make_network(seed)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.network(x)
            return logits

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:  # noqa: ARG002
            x, y = batch
            return nn.functional.cross_entropy(self(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=LR)

    return Module()


def in_lightning(
    seed: int = 0,
    epochs: int = EPOCHS,
    batches: Callable[[Digits], Iterable[Any]] | None = None,
    **settings: Any,
) -> tuple[Digits, Any, Any]:
    """Digits at the last task, the module and the callback; `batches`: instead of shuffled ones."""
    from torch.utils.data import DataLoader, TensorDataset

    from driftwise.integrations.lightning import Realignment

    digits = Digits(seed)
    module, callback = lightning_module(seed), Realignment(**digits.settings())
    torch.manual_seed(seed)
    for task in digits.stream.tasks():
        digits.task = task
        if batches is None:
            data = TensorDataset(*pair(digits.task.train()))
            loader: Any = DataLoader(data, batch_size=digits.stream.batch_size, shuffle=True)
        else:
            loader = DataLoader(list(batches(digits)), batch_size=None)  # type: ignore[arg-type]
        lightning_trainer(callbacks=[callback], max_epochs=epochs, **settings).fit(module, loader)
    return digits, module.eval(), callback


def lightning_trainer(**settings: Any) -> Any:
    import lightning.pytorch as pl

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
    }
    return pl.Trainer(**{**quiet, **settings})


class Classifier(nn.Module):
    """A model as the Trainer of transformers wants it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Logits, and the loss where labels are given."""
        logits = self.network(pixel_values)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def in_transformers(
    seed: int = 0, epochs: int = EPOCHS, *, multiple_of: int = 1, **settings: Any
) -> tuple[Digits, Any, Any]:
    """Digits at the last task, the model and the callback; `multiple_of`: samples of a task."""
    from driftwise.integrations.transformers import RealignmentCallback

    digits = Digits(seed, form=lambda x: {"pixel_values": x})
    model = Classifier(make_network(seed))
    callback = RealignmentCallback(**digits.settings())
    with tempfile.TemporaryDirectory() as folder:
        for task in digits.stream.tasks():
            digits.task = task
            data = rows(digits)
            trainer = hf_trainer(
                *(model, data[: len(data) // multiple_of * multiple_of], callback, folder),
                epochs=epochs,
                seed=seed,
                digits=digits,
                **settings,
            )
            trainer.train()
    return digits, model.network.eval(), callback


def rows(digits: Digits) -> list[dict[str, Any]]:
    x, y = pair(digits.task.train())
    return [{"pixel_values": a, "labels": int(b)} for a, b in zip(x, y, strict=True)]


def hf_trainer(
    model: nn.Module,
    data: list[dict[str, Any]],
    callback: Any,
    folder: str,
    *,
    epochs: int,
    seed: int,
    digits: Digits,
    **settings: Any,
) -> Any:
    from transformers import Trainer, TrainingArguments

    quiet: dict[str, Any] = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "max_grad_norm": 0.0,
        "lr_scheduler_type": "constant",
        "per_device_train_batch_size": digits.stream.batch_size,
    }
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=epochs,
        seed=seed,
        **{**quiet, **settings},
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        callbacks=[callback],
        optimizers=(optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0)),
    )
