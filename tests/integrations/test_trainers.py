"""Realignment inside Lightning, transformers and Avalanche: the real packages, where they are installed."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from avalanche_side import ENVIRONMENT as AVALANCHE
from run_tools import ENVIRONMENT
from torch.utils.data import DataLoader, TensorDataset
from trainer_cases import (
    EPOCHS,
    LR,
    Classifier,
    Digits,
    hf_trainer,
    in_lightning,
    in_transformers,
    lightning_module,
    lightning_trainer,
    make_network,
    own_loop,
    pair,
    rows,
)

from driftwise.errors import UserError
from driftwise.integrations.realigner import Realigner
from driftwise.testing import same

pytestmark = pytest.mark.filterwarnings("ignore")  # of these packages' own


def equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return same(dict(one.state_dict()), dict(other.state_dict()))


@pytest.mark.parametrize(
    ("module", "package"),
    [("lightning", "Lightning"), ("transformers", "transformers"), ("avalanche", "Avalanche")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lightning.pytorch", "pytorch_lightning", "transformers", "avalanche.core"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"driftwise.integrations.{module}", raising=False)
    with pytest.raises(UserError) as raised:
        importlib.import_module(f"driftwise.integrations.{module}")
    assert str(raised.value) == f"{package} is not installed: pip install 'driftwise[{module}]'"


@pytest.mark.parametrize(
    ("module", "package", "call"),
    [
        ("mlflow", "mlflow", lambda module: module.load_model("model")),
        ("hub", "huggingface_hub", lambda module: module.from_hub("me/digits")),
    ],
)
def test_a_missing_store_is_named_with_the_command_that_installs_it(
    module: str, package: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"pip install 'driftwise\[{module}\]'"):
        call(importlib.import_module(f"driftwise.integrations.{module}"))


# Lightning


def test_lightning_with_our_batches_has_the_weights_of_our_own_loop_bit_for_bit() -> None:
    pytest.importorskip("lightning")
    _, module, callback = in_lightning(
        epochs=1,
        batches=lambda d: list(chain.from_iterable(map(d.batches, range(1, EPOCHS + 1)))),
    )
    loop, _ = own_loop()
    for mine, ours in zip(module.parameters(), loop.learner.network.parameters(), strict=True):
        assert torch.equal(mine, ours)
    labels = callback.realigner.ledger.labels
    assert labels["adaptation"] == loop.ledger.labels["adaptation"] > 0
    assert "training_step" not in vars(module)


def test_lightning_goes_on_from_a_checkpoint_within_a_task_bit_for_bit(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    from driftwise.integrations.lightning import Realignment

    def fit(digits: Digits, module: Any, callback: Any, *others: Any, **options: Any) -> None:
        data = TensorDataset(*pair(digits.task.train()))
        trainer = lightning_trainer(
            callbacks=[callback, *others], max_epochs=2, enable_checkpointing=bool(others)
        )
        trainer.fit(module, DataLoader(data, batch_size=32), **options)

    digits = Digits()
    module, callback = lightning_module(), Realignment(**digits.settings())
    for number in (1, 2):
        digits.task = digits.stream.task(number)
        fit(digits, module, callback)
    digits.task = digits.stream.task(3)
    saver = pl.callbacks.ModelCheckpoint(tmp_path, every_n_epochs=1, save_top_k=-1)
    fit(digits, module, callback, saver)
    first, _ = sorted(tmp_path.glob("*.ckpt"), key=lambda path: path.stat().st_mtime)

    again = Digits()
    again.task = again.stream.task(3)
    twin, resumed = lightning_module(), Realignment(**again.settings())
    fit(again, twin, resumed, ckpt_path=first)
    assert equal_weights(twin, module)
    assert same(resumed.state_dict()["buffer"], callback.state_dict()["buffer"])
    assert [each.drifted for each in resumed.realigner.records] == [(), (), (0, 1, 2, 3)]


def test_lightning_batches_without_labels_are_refused_and_the_module_is_left_as_it_was() -> None:
    pytest.importorskip("lightning")
    from driftwise.integrations.lightning import Realignment

    module, callback = lightning_module(), Realignment(current=lambda: None)
    loader: Any = DataLoader(list(torch.zeros(8, 1, 8, 8)), batch_size=4)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"batch has no labels.*got a tensor of torch.float32"):
        lightning_trainer(callbacks=[callback], max_epochs=1).fit(module, loader)
    assert "training_step" not in vars(module)


def fitted(
    epochs: int = 2,
    *,
    again: bool = False,
    evaluates: bool = False,
    workers: int = 0,
    **options: Any,
) -> tuple[Any, Any, list[list[Any]]]:
    """Three tasks in Lightning: module, callback, and the batches of each task as they were offered.

    `again`: one trainer fits all of them. `evaluates`: after every epoch.
    """
    from driftwise.integrations.lightning import Realignment

    digits = Digits()
    module, callback = lightning_module(), Realignment(**digits.settings())
    offered = recorded(callback.realigner)
    if evaluates:
        type(module).validation_step = lambda self, batch, _: self.log(
            "loss", self(batch[0]).mean()
        )
    trainer = None
    for number in (1, 2, 3):
        digits.task = digits.stream.task(number)
        data = TensorDataset(*pair(digits.task.train()))
        loader: DataLoader[Any] = DataLoader(
            data, batch_size=32, num_workers=workers, persistent_workers=workers > 0
        )
        if trainer is None or not again:
            trainer = lightning_trainer(callbacks=[callback], max_epochs=epochs, **options)
        else:
            trainer.fit_loop.max_epochs += epochs
        trainer.fit(module, loader, *([loader] if evaluates else []))
    return module, callback, offered


def lasting(callback: Any) -> dict[str, Any]:
    """All that changes, but the seconds."""
    state: dict[str, Any] = callback.realigner.state_dict()
    del state["ledger"]["seconds"]
    return state


def recorded(realigner: Realigner) -> list[list[Any]]:
    """The batches of each task, while they are offered."""
    tasks: list[list[Any]] = []
    begin, offer = realigner.begin_task, realigner.offer

    def begin_task() -> Any:
        tasks.append([])
        return begin()

    def offer_batch(batch: Any, **options: Any) -> None:
        tasks[-1].append((*(batch.values() if isinstance(batch, dict) else batch), options))
        offer(batch, **options)

    realigner.begin_task, realigner.offer = begin_task, offer_batch  # type: ignore[method-assign]
    return tasks


def accumulated(tasks: list[list[Any]], in_epoch: list[int], last: int) -> torch.nn.Module:
    """A bare loop with the same batches, whose optimiser makes a step after every second one.

    `in_epoch`: batches of an epoch, by task. `last`: what the last gradient of an epoch, which is alone
    where their number is odd, is divided by.
    """
    digits, network = Digits(), make_network()
    optimiser = torch.optim.SGD(network.parameters(), lr=LR)
    realigner = Realigner(network, **digits.settings())
    for number, (batches, count) in enumerate(zip(tasks, in_epoch, strict=True), 1):
        digits.task = digits.stream.task(number)
        realigner.begin_task()
        for place, (x, y, options) in enumerate(batches):
            is_last = place % count == count - 1
            inputs, labels = realigner.extend((x, y))
            loss = torch.nn.functional.cross_entropy(network(inputs), labels)
            (loss / (last if is_last and count % 2 else 2)).backward()  # type: ignore[no-untyped-call]
            if place % count % 2 or is_last:
                optimiser.step()
                optimiser.zero_grad()
            realigner.offer((x, y), **options)
        realigner.end_task()
    return network


@pytest.mark.parametrize(
    "options",
    [{"evaluates": True}, {"workers": 2}, {"again": True}],
    ids=lambda each: next(iter(each)),
)
def test_lightning_evaluation_workers_and_another_fit_of_a_trainer_change_nothing(
    options: dict[str, Any],
) -> None:
    pytest.importorskip("lightning")
    module, callback, _ = fitted()
    other, mine, _ = fitted(**options)
    assert equal_weights(other, module)
    assert same(lasting(mine), lasting(callback))


def test_lightning_finds_the_arguments_that_a_training_step_has() -> None:
    """A step without `batch_idx` is a step of Lightning's, too."""
    pl = pytest.importorskip("lightning.pytorch")
    from driftwise.integrations.lightning import Realignment

    class Short(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x)

        def training_step(self, batch: Any) -> Any:
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    x, y = torch.zeros(4, 4), torch.arange(4) % 2
    callback = Realignment(current=lambda: (x + 1, y), buffer=4)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", callbacks=[callback], **quiet)
    data = torch.utils.data.TensorDataset(x, y)
    trainer.fit(Short(), torch.utils.data.DataLoader(data))
    assert callback.realigner.steps == 4


def test_lightning_accumulates_gradients_of_batches_and_draws() -> None:
    pytest.importorskip("lightning")
    module, callback, tasks = fitted(accumulate_grad_batches=2)
    network = accumulated(tasks, [len(batches) // 2 for batches in tasks], last=2)
    assert equal_weights(module.network, network)
    assert callback.realigner.ledger.labels["stream"] == sum(
        len(batch[1]) for batches in tasks for batch in batches[: len(batches) // 2]
    )


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_lightning_in_another_precision_finds_the_drift(precision: str) -> None:
    """Where the trainer converts batches, what `current` and `labels` give is converted, too."""
    pytest.importorskip("lightning")
    _, callback, _ = fitted(precision=precision)
    assert callback.realigner.records[-1].drifted == (0, 1, 2, 3)
    assert callback.realigner.ledger.labels["adaptation"] == 100


# transformers


def trained(epochs: int = 2, *, evaluates: bool = False, **settings: Any) -> Any:
    """Three tasks in the Trainer of transformers: model, callback, and the batches of each task."""
    from driftwise.integrations.transformers import RealignmentCallback

    digits = Digits(form=lambda x: {"pixel_values": x})
    model, callback = Classifier(make_network()), RealignmentCallback(**digits.settings())
    offered = recorded(callback.realigner)
    with tempfile.TemporaryDirectory() as folder:
        for number in (1, 2, 3):
            digits.task = digits.stream.task(number)
            data = rows(digits)
            trainer = hf_trainer(
                *(model, data, callback, folder), epochs=epochs, seed=0, digits=digits, **settings
            )
            if evaluates:
                trainer.eval_dataset, trainer.args.eval_strategy = data, "epoch"
            trainer.train()
    return model, callback, offered


@pytest.mark.parametrize(
    "options",
    [
        {"evaluates": True},
        {"dataloader_num_workers": 2, "dataloader_persistent_workers": True},
    ],
    ids=lambda each: next(iter(each)),
)
def test_transformers_evaluation_and_workers_change_nothing(options: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model, callback, _ = trained()
    other, mine, _ = trained(**options)
    assert equal_weights(other, model)
    assert same(lasting(mine), lasting(callback))


def test_transformers_accumulates_gradients_of_batches_and_draws() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model, callback, tasks = trained(gradient_accumulation_steps=2)
    network = accumulated(tasks, [len(batches) // 2 for batches in tasks], last=1)
    for mine, other in zip(model.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)
    assert callback.realigner.ledger.labels["stream"] == sum(
        len(batch[1]) for batches in tasks for batch in batches[: len(batches) // 2]
    )


def test_transformers_counts_labels_of_a_data_set_of_unknown_length_once() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from driftwise.integrations.transformers import RealignmentCallback

    digits = Digits(form=lambda x: {"pixel_values": x})
    data = rows(digits)[:64]

    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(data)

    endless: Any = Endless()
    callback = RealignmentCallback(**digits.settings())
    with tempfile.TemporaryDirectory() as folder:
        trainer = hf_trainer(
            Classifier(make_network()),
            endless,
            *(callback, folder),
            epochs=1,
            seed=0,
            digits=digits,
            max_steps=10,
        )
        trainer.train()
    assert callback.realigner.steps == 10
    assert callback.realigner.ledger.labels["stream"] == len(data)


def test_transformers_batches_without_labels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the trainer takes the labels out, to compute the loss by itself."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setattr(Classifier, "config", None, raising=False)
    with pytest.raises(UserError, match=r"batch has no labels.*got a mapping with pixel_values"):
        trained(label_smoothing_factor=0.1)


def test_transformers_extends_and_offers_a_batch_once_in_a_step_of_several_forwards() -> None:
    pytest.importorskip("transformers")
    from driftwise.integrations.transformers import RealignmentCallback

    x, y = torch.zeros(4, 4), torch.arange(4) % 2
    callback = RealignmentCallback(current=lambda: {"x": x, "labels": y}, buffer=8)
    seen: list[Any] = []
    model = torch.nn.Module()
    model.forward = lambda **inputs: seen.append(inputs)
    args, state = SimpleNamespace(n_gpu=0, torch_compile=False), SimpleNamespace(global_step=0)
    callback.on_train_begin(args, state, None, model=model)
    for _ in range(2):
        callback.on_step_begin(args, state, None)
        model(x=x, labels=y)
        model(x=x, labels=y)
        callback.on_step_end(args, state, None)
    assert [len(each["labels"]) for each in seen] == [4, 4, 8, 8]
    assert seen[2]["x"] is seen[3]["x"]
    assert callback.realigner.ledger.labels["stream"] == 8


def test_transformers_finds_the_drifted_classes_and_realigns() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    _, model, callback = in_transformers()
    drifted = [record.drifted for record in callback.realigner.records]
    assert drifted == [(), (), (0, 1, 2, 3), (), ()]
    assert callback.realigner.ledger.labels["adaptation"] == 100
    assert not model.training


def test_transformers_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from driftwise.integrations.transformers import RealignmentCallback

    def started(save: str) -> tuple[Any, Any, Any]:
        digits = Digits(form=lambda x: {"pixel_values": x})
        model, callback = Classifier(make_network()), RealignmentCallback(**digits.settings())
        trainer = hf_trainer(
            *(model, rows(digits), callback, str(tmp_path)),
            epochs=2,
            seed=0,
            digits=digits,
            save_strategy=save,
        )
        return trainer, model, callback

    trainer, model, callback = started("epoch")
    trainer.train()
    first, last = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    again, twin, resumed = started("no")
    again.train(resume_from_checkpoint=str(first))
    assert equal_weights(twin, model)
    assert same(resumed.realigner.state_dict()["buffer"], callback.realigner.state_dict()["buffer"])
    (last / "realignment.pt").unlink()
    with pytest.raises(UserError, match=r"expected in .*realignment.pt, which does not exist"):
        started("no")[0].train(resume_from_checkpoint=str(last))


# Several processes

BEGIN = """
import os, sys, torch
from trainer_cases import LR, Digits, in_lightning, in_transformers, make_network, pair

size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
each = 32 // size
found = []

def note(realigner, module):
    found.append((realigner.state_dict(), module.state_dict(), realigner.records[2].drifted))
"""
IN_LIGHTNING = """
def batches(digits):
    whole = [(x, y) for x, y in digits.batches(1) if len(y) == 32]
    mine = slice(rank * each, (rank + 1) * each)
    return [(x[mine], y[mine]) for x, y in whole]

strategy = {"strategy": "ddp", "devices": size} if size > 1 else {}
_, module, callback = in_lightning(
    epochs=1, batches=batches, use_distributed_sampler=False, **strategy
)
note(callback.realigner, module)
"""
IN_TRANSFORMERS = """
_, module, callback = in_transformers(
    epochs=2, multiple_of=32, per_device_train_batch_size=each, ddp_find_unused_parameters=False
)
note(callback.realigner, module)
"""
WITH_ACCELERATE = """
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from driftwise import Realigner

digits, module = Digits(), make_network()
accelerator = Accelerator(cpu=True)
realigner = Realigner(module, **digits.settings())
network, optimiser = accelerator.prepare(module, torch.optim.SGD(module.parameters(), lr=LR))
for digits.task in digits.stream.tasks():
    x, y = pair(digits.task.train())
    count = len(y) // 32 * 32
    loader = accelerator.prepare(DataLoader(TensorDataset(x[:count], y[:count]), batch_size=each))
    realigner.begin_task()
    for batch in loader:
        inputs, labels = realigner.extend(batch)
        loss = torch.nn.functional.cross_entropy(network(inputs), labels)
        optimiser.zero_grad()
        accelerator.backward(loss)
        optimiser.step()
        realigner.offer(batch)
    realigner.end_task()
note(realigner, module)
"""
END = """
if rank == 0:
    torch.save(found, sys.argv[1])
"""


@pytest.mark.parametrize(
    ("packages", "work"),
    [
        (("lightning",), IN_LIGHTNING),
        (("transformers", "accelerate"), IN_TRANSFORMERS + WITH_ACCELERATE),
    ],
)
def test_two_processes_of_a_trainer_have_the_buffer_of_one_bit_for_bit_and_one_decision(
    packages: tuple[str, ...], work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in packages:
        pytest.importorskip(package)
    script, one_process, two_processes = (
        str(tmp_path / name) for name in ("work.py", "one", "two")
    )
    Path(script).write_text(BEGIN + work + END)
    monkeypatch.setattr(sys, "argv", [script, one_process])
    runpy.run_path(script)
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    done = subprocess.run(
        [sys.executable, *launch, script, two_processes],
        env={**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert Path(two_processes).exists(), done.stderr  # torch may abort after the work is done
    expected, found = (torch.load(path, weights_only=True) for path in (one_process, two_processes))
    assert len(found) == len(packages)
    for (one, weights, drifted), (two, others, also) in zip(expected, found, strict=True):
        assert same(two["buffer"], one["buffer"])
        assert drifted == also == (0, 1, 2, 3)
        assert one["ledger"]["labels"] == two["ledger"]["labels"]
        for name in weights:
            torch.testing.assert_close(others[name], weights[name], rtol=0, atol=1e-4)


# Avalanche, in its own environment


@pytest.mark.skipif(
    not (AVALANCHE / ".ready").exists(),
    reason="Avalanche is not installed: python benchmarks/avalanche_side.py",
)
def test_avalanche_finds_the_drifted_classes_and_realigns() -> None:
    work = Path(__file__).parents[2] / "benchmarks" / "trainer_avalanche.py"
    done = subprocess.run(
        [str(AVALANCHE / "bin" / "python"), str(work)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["drifted"] == [[], [], [0, 1, 2, 3], [], []]
    assert answer["labels"]["adaptation"] == 100
