"""Everything a config can name can be built from objects, and gives the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import driftwise as dw
from driftwise.datasets.readers.digits import load_digits

EQUAL = ("faa", "forgetting", "accuracy_matrix", "per_class_accuracy", "labels", "flops")


def stream_of_digits() -> dw.streams.Stream:
    return dw.streams.class_incremental(
        load_digits(), num_tasks=5, num_drifts=1, transform="permutation", severity=5
    )


def loop_of(method: Any, detector: Any, adaptation: Any) -> dw.DriftLoop:
    network = dw.models.seeded(dw.models.MLP, input_shape=(1, 8, 8), num_classes=10, seed=0)
    learner = dw.Learner(network, method, buffer=dw.ReplayBuffer(100), lr=0.1)
    return dw.DriftLoop(learner, detector=detector, adaptation=adaptation)


def run_by_names(folder: Path, **names: Any) -> dict[str, Any]:
    config = dw.RunConfig(
        backbone="mlp", buffer_size=100, lr=0.1, epochs=2, batch_size=32, minibatch_size=32,
        reference="held-out", encoder="learner", num_drifts=1, transform="permutation", severity=5,
        num_tasks=5, **names,
    )  # fmt: skip
    return dw.run(config, folder)


@pytest.mark.usefixtures("one_figure")
@pytest.mark.parametrize(
    ("names", "objects"),
    [
        (
            {"method": "er", "detector": "ks", "adaptation": "amr"},
            lambda _: (dw.methods.ER(), dw.detect.KS(), dw.adapt.Realign()),
        ),
        (
            {"method": "der++", "detector": "combined", "adaptation": "fr"},
            lambda chosen: (dw.methods.DERpp(**chosen), dw.detect.Combined(), dw.adapt.Relearn()),
        ),
        (
            {"method": "cls-er", "detector": "oracle", "adaptation": "vanilla"},
            lambda chosen: (dw.methods.CLSER(**chosen), dw.detect.Oracle(), dw.adapt.Vanilla()),
        ),
    ],
    ids=["er-amr", "der++-fr", "cls-er-vanilla"],
)
def test_objects_give_the_numbers_of_the_command_line_bit_for_bit(
    names: dict[str, str], objects: Any, tmp_path: Path
) -> None:
    by_names = run_by_names(tmp_path / "names", **names)
    loop = loop_of(*objects(by_names["config"]["options"].get("method", {})))
    records = list(loop.run(stream_of_digits(), epochs=2))
    result = loop.result
    for key in EQUAL:
        assert result[key] == by_names[key], key
    assert {name: result[name] for name in names} == names
    assert records[-1].accuracy == pytest.approx(result["faa"])
    assert records[-1].labels == result["labels"]
    result.save(tmp_path / "objects")
    assert dw.write_report([tmp_path / "objects"], tmp_path / "report")


def test_a_loop_has_one_stream_and_a_result_at_its_end() -> None:
    loop = loop_of(dw.methods.ER(), dw.detect.KS(), dw.adapt.Realign())
    with pytest.raises(dw.UserError, match="has no stream yet"):
        _ = loop.stream
    next(loop.run(stream_of_digits()))
    with pytest.raises(dw.UserError, match="1 of 5 tasks are complete"):
        _ = loop.result
    with pytest.raises(dw.UserError, match="bound to another stream"):
        loop.bind(stream_of_digits())
