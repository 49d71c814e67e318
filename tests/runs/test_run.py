from __future__ import annotations

import copy
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_tools import (
    Losses,
    Stop,
    StopAt,
    complaint,
    events_of,
    lasting,
    result_of,
    snapshot,
)
from same_state import same
from torch import Tensor, nn

from driftwise import LiveLearner, RunConfig, RunFailure, metrics, resume, rng, run
from driftwise.config.build import assemble
from driftwise.config.presets import resolve
from driftwise.runs.result import record_to_json, verdict_to_json, verdicts_of
from driftwise.runs.store import read_checkpoint
from driftwise.streams import Stream
from driftwise.types import TaskRecord, Verdict

KEYS = {
    *("benchmark", "method", "adaptation", "detector", "buffer_size", "num_drifts", "seed"),
    *("faa", "forgetting", "accuracy_matrix", "per_class_accuracy", "faa_drifted", "faa_stable"),
    *("labels", "flops", "seconds", "drift_events", "verdicts", "detection", "versions", "config"),
}
"""The keys that every result has, now and later."""


def quick(**settings: Any) -> RunConfig:
    return RunConfig(**{"epochs": 1, **settings})


def stream_of(config: RunConfig) -> Stream:
    return assemble(resolve(config)).stream


def samples_in(stream: Stream, part: str, *labels: int) -> int:
    """How many samples of some classes a part has."""
    return len(stream.samples(part, labels, 1))


def mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


# --- what every result must satisfy -------------------------------------------------------------


def check_result(result: dict[str, Any]) -> None:
    """The promises of `result.json`, recomputed from its own tables."""
    matrix, tasks = result["accuracy_matrix"], result["tasks"]
    num_tasks = len(tasks)
    assert set(result) >= KEYS

    assert [len(sample) for sample in matrix] == [num_tasks] * num_tasks
    for i, sample in enumerate(matrix):
        for j, value in enumerate(sample):
            assert (value is None) is (j > i or not tasks[j]), (i, j)
            assert value is None or 0 <= value <= 100

    final = {j: value for j, value in enumerate(matrix[-1]) if value is not None}
    assert result["faa"] == pytest.approx(mean(list(final.values())))
    falls = [
        max(matrix[i][j] for i in range(j, num_tasks)) - value
        for j, value in final.items()
        if j < num_tasks - 1
    ]
    assert result["forgetting"] == pytest.approx(mean(falls) or 0.0)

    seen: list[int] = []
    for new, per_class in zip(tasks, result["per_class_accuracy"], strict=True):
        seen += new
        assert sorted(map(int, per_class)) == sorted(seen)
    drifted = {
        label
        for event in result["drift_events"]
        for label in event["classes"]
        if event["transform"] != "identity"  # it changes no pixel
    }
    assert result["detection"]["num_drifts"] >= len(drifted)
    last = {int(label): value for label, value in result["per_class_accuracy"][-1].items()}
    assert result["faa_drifted"] == pytest.approx(mean([last[c] for c in sorted(drifted)]))
    stable = [value for label, value in last.items() if label not in drifted]
    assert result["faa_stable"] == pytest.approx(mean(stable))

    # Every class seen so far is checked at every task from the second on, in order of arrival.
    checks = [(v["task"], v["class"]) for v in result["verdicts"]]
    known = [(i + 1, c) for i in range(num_tasks) for before in tasks[:i] for c in before]
    assert checks == known
    for event in result["drift_events"]:
        assert 2 <= event["task"] <= num_tasks
        # A class that drifts once more shows all that has happened to it.
        taken = {tuple(step) for steps in event["by_class"].values() for step in steps}
        assert taken == {(result["config"]["transform"], result["config"]["severity"])}
        assert sorted(map(int, event["by_class"])) == sorted(event["classes"])
    assert result["num_drifts"] == len(result["drift_events"])

    assert set(result["labels"]) == {"stream", "monitoring", "adaptation"}
    for kind in ("flops", "seconds"):
        assert set(result[kind]) == {"train", "detect", "adapt", "evaluate"}
    assert "out" not in result["config"]


def test_the_default_run_keeps_every_promise_of_its_result(finished: Path) -> None:
    result = result_of(finished)
    check_result(result)
    assert result["config"] == json.loads((finished / "config.json").read_text())
    assert result["drift_events"] == [
        {
            "task": 3,
            "classes": [0, 1, 2, 3],
            "transform": "permutation",
            "severity": 5,
            "by_class": {str(label): [["permutation", 5]] for label in range(4)},
            "kind": "sudden",
            "share": 1.0,
            "over_tasks": 1,
            "over_steps": None,
            "domains": ["all"],
        }
    ]
    assert result["warnings"] == []
    versions = result["versions"]
    assert {"driftwise", "python", "torch", "numpy", "scipy", "threads", "commit"} <= set(versions)
    assert versions["threads"] == 1


def test_events_report_the_run_task_by_task(finished: Path) -> None:
    result = result_of(finished)
    message = events_of(finished)
    for number, classes in enumerate(result["tasks"], start=1):
        own = [event for event in message if event["task"] == number]
        verdicts = [
            {"event": "verdict", **verdict}
            for verdict in result["verdicts"]
            if verdict["task"] == number
        ]
        accuracy = result["accuracy_matrix"][number - 1][:number]
        assert own[0] == {"event": "task", "task": number, "new_classes": classes}
        # What a verdict says nothing about is left out of the log.
        assert [
            {**verdict, **event} for verdict, event in zip(verdicts, own[1:-2], strict=True)
        ] == verdicts
        assert all("p_value" in event for event in own[1:-2] if event["drifted"] is not None)
        assert own[-2]["event"] == "repair"
        assert own[-1] == {"event": "scores", "task": number, "accuracy": accuracy}


FEW = ((0,), (1,))
"""Two tasks of one class: enough where neither their number nor their size matters."""
VARIANTS: dict[str, dict[str, Any]] = {
    "a task without new classes, er-ace, gaussian-noise": {
        **{"tasks": ((0, 1), (), (2, 3)), "method": "er-ace", "lr": 0.05},
        **{"transform": "gaussian-noise", "severity": 2, "monitor": "test"},
    },
    "the first task without classes, finetune, permuted rows": {
        **{"tasks": ((), (0, 1), (2,)), "method": "finetune", "permutation_unit": "row"},
    },
    "the last task without classes, der++, rotation": {
        **{"tasks": ((0, 1), (2,), ()), "method": "der++", "lr": 0.05},
        **{"transform": "rotation", "severity": 3, "detector": "always"},
    },
    "one task, adam along a cosine": {
        **{"num_tasks": 1, "num_drifts": 0, "optimiser": "adam", "lr": 0.01, "scheduler": "cosine"},
    },
    "no drift, class order, balanced buffer": {
        **{"num_drifts": 0, "class_order": (9, 8, 7, 6, 5, 4, 3, 2, 1, 0)},
        **{"buffer_policy": "balanced", "buffer_size": 20},
    },
    "drifted classes in training, ser, reference in memory": {
        **{"recurring_in_training": True, "method": "ser", "lr": 0.05, "reference": "memory"},
    },
    "sequential, fr-flush, a buffer of one sample": {
        **{"sequential": True, "adaptation": "fr-flush", "buffer_size": 1, "minibatch_size": 1},
    },
    "all seen, fr-scratch, random encoder": {
        **{"scope": "all-seen", "num_drifts": 2, "adaptation": "fr-scratch", "encoder": "random"},
    },
    "at most one class drifts, no labels, speckle-noise, momentum": {
        **{"max_classes_per_drift": 1, "label_budget": 0, "momentum": 0.5, "weight_decay": 0.01},
        **{"transform": "speckle-noise", "severity": 4, "lr": 0.05, "tasks": FEW},
    },
    "one sample a step, cls-er, identity": {
        **{"batch_size": 1, "tasks": FEW, "method": "cls-er", "lr": 0.05, "transform": "identity"},
    },
    "one step an epoch, vanilla, a rate that drops, shot-noise": {
        **{"batch_size": 10_000, "minibatch_size": 100, "adaptation": "vanilla", "tasks": FEW},
        **{"scheduler": "steps", "lr_milestones": (1,), "transform": "shot-noise", "severity": 5},
    },
    "augmented, normal, in colour and in bfloat16": {
        **{"augmentation": "crop-flip", "normalise": True, "channels": 3, "tasks": FEW},
        **{"precision": "bf16", "detector": "never"},
    },
    "resnet18, defocus-blur": {
        **{"backbone": "resnet18", "options": {"backbone": {"width": 4}}, "tasks": FEW},
        **{"batch_size": 20, "lr": 0.05, "transform": "defocus-blur", "severity": 1},
    },
}
"""Every value of independent settings occurs once, not every combination."""


@pytest.mark.filterwarnings("ignore:the encoder has trained:UserWarning")
@pytest.mark.filterwarnings("ignore:the detector reads the samples that score:UserWarning")
@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS.keys())
def test_every_variant_keeps_the_promises_of_its_result(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = quick(**settings)
    before = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    run(config, tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert repr(np.random.get_state()) == before[1]  # noqa: NPY002
    result = result_of(tmp_path / "run")
    check_result(result)
    stream = stream_of(config)
    brought = sum(samples_in(stream, "train", *classes) for classes in result["tasks"])
    again = [label for event in result["drift_events"] for label in event["classes"]]
    if config.recurring_in_training:
        brought += samples_in(stream, "train", *again)
    assert result["labels"]["stream"] == brought


def test_a_network_that_learns_beats_chance_and_vanilla_forgets_drifted_classes(
    tmp_path: Path,
) -> None:
    results = {
        # As many epochs as the preset: after three, seeds end between 54 and 96 percent.
        name: run(RunConfig(adaptation=name, detector="oracle", epochs=10), tmp_path / name)
        for name in ("vanilla", "amr")
    }
    assert all(result["faa_stable"] > 80 for result in results.values())
    assert results["vanilla"]["faa_drifted"] < 30
    assert results["amr"]["faa_drifted"] > 80


# --- randomness ---------------------------------------------------------------------------------


def test_two_equal_runs_leave_equal_results_and_events(finished: Path, tmp_path: Path) -> None:
    run(quick(), tmp_path / "again")
    assert lasting(tmp_path / "again") == lasting(finished)
    for name in ("events.jsonl", "config.json", "samples.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (finished / name).read_bytes()
    learners = [
        read_checkpoint(folder)["parts"]["learner"] for folder in (finished, tmp_path / "again")
    ]
    assert same(*learners)


def losses_of(folder: Path, **settings: Any) -> Losses:
    losses = Losses()
    run(quick(**settings), folder, listener=losses)
    return losses


def test_all_adaptations_are_the_same_up_to_the_first_drift(tmp_path: Path) -> None:
    runs = {
        name: losses_of(tmp_path / name, adaptation=name, detector="oracle")
        for name in ("vanilla", "fr", "amr", "amr-plus")
    }
    first = runs["vanilla"].by_task
    for name, losses in runs.items():
        for task in (1, 2):
            assert losses.by_task[task] == first[task], name
        if name != "vanilla":
            assert losses.by_task[3] != first[3], name


@pytest.mark.filterwarnings("ignore:the encoder has trained:UserWarning")
@pytest.mark.parametrize(
    "watcher",
    [{"detector": "ks"}, {"detector": "ks", "encoder": "random"}, {"detector": "always"}],
    ids=str,
)
def test_monitoring_alone_changes_nothing_in_training(
    watcher: dict[str, Any], tmp_path: Path
) -> None:
    alone = losses_of(tmp_path / "never", adaptation="vanilla", detector="never")
    monitored = losses_of(tmp_path / "watched", adaptation="vanilla", **watcher)
    assert monitored.by_task == alone.by_task


@pytest.mark.parametrize(
    ("fixed", "bound", "encoder"), [("always", -1.0, "learner"), ("never", 2.0, "random")]
)
def test_detectors_that_flag_the_same_lead_to_the_same_training(
    fixed: str, bound: float, encoder: str, tmp_path: Path
) -> None:
    # No statistic lies below 0 or above 1: such bounds make a test that flags all, or none.
    options = {"detector": {"max_statistic": bound}}
    looking = run(quick(encoder=encoder, options=options), tmp_path / "looking")
    blind = run(quick(detector=fixed), tmp_path / "blind")
    flags = [[v["drifted"] for v in result["verdicts"]] for result in (looking, blind)]
    assert flags[0] == flags[1] == [fixed == "always"] * len(flags[0])
    learners = [
        read_checkpoint(tmp_path / name)["parts"]["learner"] for name in ("looking", "blind")
    ]
    assert same(*learners)


# --- the books ----------------------------------------------------------------------------------

MLP = [(64, 100), (100, 100), (100, 10)]
"""The default network's layers, inputs x outputs."""
FORWARD = sum(2 * inputs * outputs for inputs, outputs in MLP)
# The gradients of all weights, and of all inputs but the images.
BACKWARD = FORWARD + sum(2 * inputs * outputs for inputs, outputs in MLP[1:])


def test_every_flop_of_the_default_run_is_booked_where_it_arose(finished: Path) -> None:
    result = result_of(finished)
    stream = stream_of(quick())
    steps = trained = 0
    for classes in result["tasks"]:
        samples = samples_in(stream, "train", *classes)
        steps += -(-samples // 10)
        trained += samples
    assert result["gradient_steps"] == steps
    # Ten samples are replayed in every step but the first, in which the memory is empty.
    assert result["flops"]["train"] == (trained + 10 * (steps - 1)) * (FORWARD + BACKWARD)

    compared = sum(v["num_reference"] + v["num_current"] for v in result["verdicts"])
    assert result["flops"]["detect"] == compared * FORWARD
    assert result["flops"]["adapt"] == 0  # er keeps no logits beside samples: nothing to compute
    tested = sum(
        samples_in(stream, "test", *result["tasks"][j]) for i in range(5) for j in range(i + 1)
    )
    assert result["flops"]["evaluate"] == tested * FORWARD


def test_every_label_of_the_default_run_is_booked(finished: Path) -> None:
    result = result_of(finished)
    stream = stream_of(quick())
    assert result["labels"]["stream"] == samples_in(stream, "train", *range(10))
    monitored = sum(v["num_current"] for v in result["verdicts"])
    renewed = [c for e in events_of(finished) if e["event"] == "repair" for c in e["renewed"]]
    assert renewed
    kept = sum(samples_in(stream, "reference", label) for label in [*range(10), *renewed])
    assert result["labels"]["monitoring"] == monitored + kept


def test_joint_training_books_labels_of_earlier_tasks_only_where_a_class_has_drifted(
    tmp_path: Path,
) -> None:
    config = quick(method="joint", lr=0.05, detector="never", tasks=((0, 1), (2,), (3,)))
    result = run(config, tmp_path / "run")
    check_result(result)
    stream = stream_of(config)
    brought = [samples_in(stream, "train", *range(count)) for count in (2, 3, 4)]
    drifted = [label for event in result["drift_events"] for label in event["classes"]]
    assert drifted
    assert result["labels"]["stream"] == samples_in(stream, "train", *range(4)) + samples_in(
        stream, "train", *drifted
    )
    message = [event for event in events_of(tmp_path / "run") if event["event"] == "repair"]
    assert [event["training_rows"] for event in message] == brought


def memory_before(task: int, config: RunConfig, folder: Path) -> dict[int, int]:
    """Samples per class in memory when a task begins."""
    with pytest.raises(Stop):
        run(config, folder, listener=StopAt(task, 0))
    state = read_checkpoint(folder)
    assembly = assemble(resolve(config))
    assembly.load_state_dict(state["parts"])
    return assembly.learner.buffer.counts()


def test_amr_asks_for_as_many_labels_as_drifted_classes_have_slots(tmp_path: Path) -> None:
    config = quick(detector="oracle", num_drifts=2)
    events = {event.task: event.concepts for event in stream_of(config).schedule.events}
    assert {task: sorted(classes) for task, classes in events.items()} == {
        2: [0, 1],
        4: [2, 3, 4, 5],
    }
    slots = 0
    for task, classes in events.items():
        counts = memory_before(task, config, tmp_path / f"stopped-{task}")
        slots += sum(counts.get(label, 0) for label in classes)
    assert 100 < slots < 200, "at the second event some slots belong to other classes"
    result = run(config, tmp_path / "stopped-4", resume=True)
    assert result["labels"]["adaptation"] == slots


@pytest.mark.parametrize("adaptation", ["amr", "fr"])
def test_a_budget_of_labels_is_kept_and_what_it_refused_is_booked(
    adaptation: str, tmp_path: Path
) -> None:
    config: dict[str, Any] = {"adaptation": adaptation, "detector": "oracle"}
    asked = run(quick(**config), tmp_path / "free")["labels"]["adaptation"]
    result = run(quick(**config, label_budget=37), tmp_path / "bound")
    assert asked > 37
    if adaptation == "fr":
        assert asked == samples_in(stream_of(quick(**config)), "train", *range(4))
    assert result["labels"]["adaptation"] == 37
    assert result["labels_refused"] == asked - 37
    assert any(note["task"] == 3 for note in result["notes"])


# --- stopping and going on ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a finished run with momentum, by adaptation."""
    made: dict[str, Path] = {}

    def folder(adaptation: str) -> Path:
        if adaptation not in made:
            made[adaptation] = tmp_path_factory.mktemp("undisturbed") / adaptation
            run(quick(adaptation=adaptation, momentum=0.5, lr=0.1), made[adaptation])
        return made[adaptation]

    return folder


@pytest.mark.parametrize(
    ("adaptation", "stops"),
    [
        ("amr", [(1, 3)]),
        ("fr-scratch", [(3, 0)]),
        ("fr-scratch", [(2, 5), (3, 9), (3, 1), (5, 20)]),
    ],
    ids=["in the first task", "before a task", "again and again"],
)
def test_a_run_that_was_stopped_ends_like_one_that_was_not(
    stops: list[tuple[int, int]],
    adaptation: str,
    undisturbed: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    config = quick(adaptation=adaptation, momentum=0.5, lr=0.1)
    folder = tmp_path / "run"
    for task, step in stops:
        with pytest.raises(Stop):
            run(config, folder, resume=True, listener=StopAt(task, step))
        assert not (folder / "result.json").exists()
    run(config, folder, resume=True)
    whole = undisturbed(adaptation)
    assert lasting(folder) == lasting(whole)
    for name in ("events.jsonl", "samples.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    states = [read_checkpoint(path)["parts"] for path in (folder, whole)]
    for state in states:
        del state["ledger"]["seconds"]
    assert same(*states)


def test_a_run_that_lacks_only_its_result_is_completed_without_a_step(
    finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run(quick(), folder)
    (folder / "result.json").unlink()
    losses = Losses()
    run(quick(), folder, resume=True, listener=losses)
    assert losses.by_task == {}
    assert lasting(folder) == lasting(finished)


def test_a_finished_run_is_not_run_again(finished: Path) -> None:
    before = snapshot(finished)
    losses = Losses()
    result = run(quick(), finished, resume=True, listener=losses)
    assert (result, losses.by_task) == (result_of(finished), {})
    after = snapshot(finished)
    del before[".lock"], after[".lock"]  # says who held it last
    assert after == before


def test_as_many_threads_are_used_as_asked_for_and_no_longer_than_the_run(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    seen = []

    class Count(Losses):
        def task_ends(self, record: Any) -> None:
            seen.append(torch.get_num_threads())

    config = quick(threads=before + 1, tasks=((0,), (1,)))
    result = run(config, tmp_path / "run", listener=Count())
    assert seen == [before + 1] * 2
    assert result["versions"]["threads"] == before + 1
    assert torch.get_num_threads() == before


def test_images_of_drifted_classes_are_kept_before_and_after(finished: Path) -> None:
    from safetensors.torch import load_file

    samples = load_file(finished / "samples.safetensors")
    stream = stream_of(quick())
    assert samples["labels"].tolist() == [0, 1, 2, 3]
    assert samples["tasks"].tolist() == [3] * 4
    for sample, label in enumerate([0, 1, 2, 3]):
        for name, task in (("before", 2), ("after", 3)):
            shown = stream.samples("test", [label], task).images[0]
            assert torch.equal(samples[name][sample], shown)
    assert not torch.equal(samples["before"], samples["after"])


def test_classes_that_come_back_labelled_are_known_again(tmp_path: Path) -> None:
    config = quick(recurring_in_training=True, adaptation="vanilla", detector="oracle")
    result = run(config, tmp_path / "run")
    assert {(r["task"], r["class"]) for r in result["renewals"]} == {(3, c) for c in range(4)}
    assert result["detection"]["num_stable_checks"] == len(result["verdicts"]) - 4


# --- a custom network ---------------------------------------------------------------------


class Plain(nn.Module):
    """Logits from pixels."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.head = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits


@pytest.mark.parametrize("method", ["er", "joint"])
def test_a_run_learns_with_a_copy_of_the_network_it_is_given(method: str, tmp_path: Path) -> None:
    network = Plain().eval()
    before = copy.deepcopy(network.state_dict())
    config = quick(method=method, lr=0.05, adaptation="fr-scratch", detector="oracle")
    results = [run(config, tmp_path / name, network=network) for name in ("first", "second")]
    assert same(network.state_dict(), before)
    assert not network.training
    assert not network._forward_hooks
    assert lasting(tmp_path / "first") == lasting(tmp_path / "second")
    assert results[0]["config"]["backbone"] == f"{__name__}:Plain"
    learned = read_checkpoint(tmp_path / "first")["parts"]["learner"]["network"]
    assert learned.keys() == before.keys()
    assert not same(learned, dict(before))


class Hidden(nn.Module):
    """A body and a head, listed in either order."""

    def __init__(self, *order: str) -> None:
        super().__init__()
        with rng.as_global(rng.fork(0, "hidden")):
            layers = {"body": nn.Linear(64, 12), "head": nn.Linear(12, 10)}
        for name in order:
            setattr(self, name, layers[name])

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.get_submodule("head")(self.get_submodule("body")(x.flatten(1)).relu())
        return logits


class Doubled(Hidden):
    """No layer makes the outputs alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + super().forward(-x)


def test_a_network_without_a_head_is_refused_unless_its_features_are_given(tmp_path: Path) -> None:
    network = Doubled("body", "head")
    assert "pass features=" in complaint(lambda: run(quick(), tmp_path / "run", network=network))
    assert "pass features=" in complaint(lambda: LiveLearner(network).observe(IMAGES, [0, 1]))
    assert list(tmp_path.iterdir()) == []
    config = quick(lr=0.05, encoder="learner", detector="mmd", tasks=((0, 1), (2, 3)))
    result = run(config, tmp_path / "run", network=network, features="body")
    assert result["verdicts"]
    assert resume(tmp_path / "run", network=network, features="body")["faa"] == result["faa"]
    with LiveLearner(network, features="body", folder=tmp_path / "kept") as live_learner:
        assert live_learner.observe(IMAGES, [0, 1]).new_classes == (0, 1)
    with LiveLearner.load(tmp_path / "kept", network, features="body") as live_learner:
        assert live_learner.predict(IMAGES).shape == (2,)
    assert "features can be given along with a torch module" in complaint(
        lambda: LiveLearner("mlp", features="body")
    )


IMAGES = torch.zeros(2, 8, 8, 1, dtype=torch.uint8)


def test_a_network_that_was_given_is_needed_again_to_go_on(tmp_path: Path) -> None:
    network = Plain()
    config = quick(lr=0.05)
    run(config, tmp_path / "whole", network=network)
    with pytest.raises(Stop):
        run(config, tmp_path / "run", network=network, listener=StopAt(3, 4))
    message = complaint(lambda: run(config, tmp_path / "run", resume=True))
    assert "backbone" in message
    run(config, tmp_path / "run", network=network, resume=True)
    assert lasting(tmp_path / "run") == lasting(tmp_path / "whole")


# --- when learning fails ------------------------------------------------------------------------


class Bursting(Plain):
    """Learns for so many steps; from then on it says what is no number."""

    steps: Tensor

    def __init__(self, good_steps: int, bad: float) -> None:
        super().__init__()
        self.good_steps, self.bad = good_steps, bad
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += int(self.training)
        factor = self.bad if self.training and self.steps > self.good_steps else 1.0
        return super().forward(x) * factor


@pytest.mark.parametrize("bad", [float("inf")])
def test_a_loss_that_is_no_number_stops_the_run_at_once_and_keeps_the_last_good_checkpoint(
    bad: float, tmp_path: Path
) -> None:
    config = quick(lr=0.05)
    stream = stream_of(config)
    in_first_task = -(-samples_in(stream, "train", 0, 1) // 10)
    losses = Losses()
    network = Bursting(in_first_task + 7, bad)
    message = complaint(
        lambda: run(config, tmp_path / "run", network=network, listener=losses), RunFailure
    )
    assert message == (
        f"the loss became nan at step {in_first_task + 8}; try a lower learning rate"
    )
    assert [len(each) for each in losses.by_task.values()] == [in_first_task, 7]
    assert not (tmp_path / "run" / "result.json").exists()

    sound = Bursting(10_000, bad)
    sound.load_state_dict(network.state_dict())
    with pytest.raises(Stop):
        run(config, tmp_path / "sound", network=sound, listener=StopAt(2, 0))
    kept, expected = (read_checkpoint(tmp_path / name) for name in ("run", "sound"))
    for state in (kept, expected):
        del state["parts"]["ledger"]["seconds"]
    assert same(kept, expected)


def test_a_record_says_all_that_the_result_is_made_of_and_nothing_twice() -> None:
    verdicts = (
        Verdict(task=2, label=0, drifted=True, score=0.5, p_value=0.01, moved_rows=(3, 4)),
        Verdict(task=2, label=1, drifted=None, reason="too few"),
    )
    logits, labels = torch.eye(3)[[0, 2, 1]], torch.tensor([0, 1, 1])
    scores = metrics.score(logits, labels, [(0,), (1,)], task=2)
    record = TaskRecord(task=2, verdicts=verdicts, renewed=(), notes=(), scores=scores)
    kept = json.loads(json.dumps(record_to_json(record, is_last=True)))
    assert verdicts_of(kept) == [verdict_to_json(verdict) for verdict in verdicts]
    assert kept["scores"]["confusion_counts"] == [[0, 0, 1], [1, 1, 1], [1, 2, 1]]
    assert "harm" not in kept["verdicts"], "nobody said anything about it"
    assert "confusion_counts" not in record_to_json(record, is_last=False)["scores"]
    earlier = {**kept, "verdicts": [verdict_to_json(verdict) for verdict in verdicts]}
    assert verdicts_of(earlier) == verdicts_of(kept)


def test_a_record_grows_with_the_classes_that_it_speaks_of() -> None:
    def num_bytes(num_classes: int) -> int:
        labels = torch.arange(num_classes)
        scores = metrics.score(
            torch.eye(num_classes),
            labels,
            [(label,) for label in range(num_classes)],
            task=num_classes,
        )
        verdicts = tuple(
            Verdict(task=num_classes, label=label, drifted=False, score=1 / 3, p_value=1 / 7)
            for label in range(num_classes)
        )
        record = TaskRecord(
            task=num_classes, verdicts=verdicts, renewed=(), notes=(), scores=scores
        )
        return len(json.dumps(record_to_json(record, is_last=True)))

    few, many = num_bytes(100), num_bytes(500)
    assert many < 6 * few, "not with their square"
    assert many < 500 * 170, "bytes for each class: verdict, accuracies, F1, counts"
