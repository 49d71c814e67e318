"""Every entry of the catalogue is put through the same suite; a new entry enrols itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from driftwise import testing
from driftwise.adapt import Realign
from driftwise.config import learners, registry
from driftwise.config.presets import resolve
from driftwise.config.registry import CATALOGUE, find, needs_vectors
from driftwise.config.schema import RunConfig
from driftwise.detect import KS, DetectorContext
from driftwise.errors import UserError
from driftwise.learner import Learner
from driftwise.methods import ER, Inputs, Outcome
from driftwise.models import MLP
from driftwise.protocols import AdaptationContext
from driftwise.streams import transforms
from driftwise.types import AdaptationResult, Dataset, Verdict


def names(kind: str) -> list[str]:
    # Methods of class statistics learn from vectors: tests/runs/test_vector_runs.py.
    return [name for name in CATALOGUE[kind] if kind != "method" or not needs_vectors(name)]


def learner_of(**settings: Any) -> Learner:
    return learners.make_learner(
        resolve(RunConfig(threads=1, lr=0.05, **settings)), testing.SHAPE, 10
    )


@pytest.mark.parametrize("name", names("benchmark"))
def test_a_benchmark_is_bytes_with_a_name_for_every_label(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_OFFLINE", "1")
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path))
    try:
        entry = CATALOGUE["benchmark"][name]
        data = entry.factory()(**entry.fixed)
    except UserError as error:
        message = str(error)  # not on this machine, or the user's own
    else:
        assert (data.images.dtype, data.labels.dtype) == ("uint8", "int64")
        assert data.images.ndim == 4
        assert len(data.images) == len(data.labels)
        assert set(data.labels.tolist()) == set(range(len(data.class_names)))
        return
    assert "data=" in message


# With each buffer policy and adaptation, methods are put through test_method_contract.py.
@pytest.mark.parametrize("name", names("method"))
def test_a_method_learns_remembers_and_goes_on_from_its_state(name: str) -> None:
    testing.check_learner(lambda: learner_of(method=name))


@pytest.mark.parametrize("name", names("backbone"))
def test_a_backbone_gives_one_logit_per_class_sample_by_sample(name: str) -> None:
    testing.check_model(CATALOGUE["backbone"][name].factory())


@pytest.mark.parametrize("name", names("adaptation"))
def test_an_adaptation_touches_drifted_classes_only_and_never_loses_one_for_nothing(
    name: str,
) -> None:
    config = resolve(RunConfig(adaptation=name))
    testing.check_adaptation(lambda: registry.make("adaptation", config))


@pytest.mark.parametrize("name", names("detector"))
def test_a_detector_gives_one_verdict_per_class_in_their_order(name: str) -> None:
    config = resolve(RunConfig(detector=name))
    testing.check_detector(lambda context: registry.make("detector", config, context))


@pytest.mark.parametrize("name", transforms.TRANSFORMS)
@pytest.mark.parametrize("severity", [1, 5])
def test_a_transform_gives_the_same_bytes_every_time(name: str, severity: int) -> None:
    images = testing.make_samples(6).images
    before = images.clone()
    apply = find("transform", name).factory()
    first = apply(images, name, severity, seed=3)
    assert torch.equal(apply(images, name, severity, seed=3), first)
    assert (first.shape, first.dtype) == (images.shape, torch.uint8)
    assert torch.equal(images, before)
    assert torch.equal(first, images) is (name == "identity")


class NeverLearns(ER):
    """Its loss has no gradient."""

    def outcome(self, network: nn.Module, stream: Inputs, draw: Any) -> Outcome:
        found = super().outcome(network, stream, draw)
        return replace(found, loss=0 * found.loss + 1)


class DropsAll(Realign):
    """Drops a class that has not drifted."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        context.buffer.drop(0)
        return super().adapt(drifted, context)


class Loses(Realign):
    """Drops before it knows that labels come."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        for verdict in drifted:
            context.buffer.drop(verdict.label)
        return AdaptationResult()


class ForgetsClasses:
    """Gives no verdict on a class that it takes for stable."""

    reads_monitored = True

    def __init__(self, context: DetectorContext) -> None:
        self._inner = KS().bind(context)

    def check(self, *arguments: Any) -> list[Verdict]:
        return [verdict for verdict in self._inner.check(*arguments) if verdict.drifted]


class SeedsTheWorld(ER):
    """Repeats itself by the global generator."""

    def outcome(self, network: nn.Module, stream: Inputs, draw: Any) -> Outcome:
        torch.manual_seed(0)
        return super().outcome(network, stream, draw)


class RenewsInSilence(Realign):
    """Replaces samples, and the old reference stays."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        result = super().adapt(drifted, context)
        return replace(result, renewed=result.renewed[1:])


class PutsStrangers(Realign):
    """Gives a drifted class's slots to a class that nobody has learned."""

    def adapt(self, drifted: Sequence[Verdict], context: AdaptationContext) -> AdaptationResult:
        result = super().adapt(drifted, context)
        for label in result.renewed[:1]:
            context.buffer.drop(label)
            context.buffer.put(testing.make_samples(2, seed=3, labels=(5,)))
        return result


class Careful(ForgetsClasses):
    """A detector as it should be; those below each break one rule."""

    def check(self, *arguments: Any) -> list[Verdict]:
        return self._inner.check(*arguments)


class Draws(Careful):
    def check(self, *arguments: Any) -> list[Verdict]:
        torch.rand(1)
        return super().check(*arguments)


class ChangesBuffer(Careful):
    def check(self, *arguments: Any) -> list[Verdict]:
        arguments[3].sample(2)
        return super().check(*arguments)


class AnswersInNumpy(Careful):
    def check(self, *arguments: Any) -> list[Verdict]:
        return [replace(each, drifted=np.bool_(each.drifted)) for each in super().check(*arguments)]  # type: ignore[arg-type]


class SaysNaN(Careful):
    def check(self, *arguments: Any) -> list[Verdict]:
        return [replace(each, p_value=float("nan")) for each in super().check(*arguments)]


class TakesNothingForStable(Careful):
    def check(self, *arguments: Any) -> list[Verdict]:
        found = super().check(*arguments)
        return [
            replace(each, drifted=False, reason=None) if each.drifted is None else each
            for each in found
        ]


def mixes_samples(**shapes: Any) -> nn.Module:
    """A sample's logits depend on the others of its batch."""
    network = MLP(**shapes)
    network.register_forward_hook(lambda module, given, logits: logits - logits.mean(dim=0))
    return network


def random_data() -> Dataset:
    return Dataset(
        images=np.random.default_rng().integers(0, 256, (4, 8, 8, 1), dtype=np.uint8),
        labels=np.array([0, 0, 1, 1]),
        class_names=("a", "b"),
    )


@pytest.mark.parametrize(
    ("check", "part", "message"),
    [
        (testing.check_method, NeverLearns, "smaller loss"),
        (testing.check_adaptation, DropsAll, "class 0, which has not drifted"),
        (testing.check_adaptation, Loses, "no class may lose samples"),
        (testing.check_detector, ForgetsClasses, "expected verdicts on the classes 2, 0, 1"),
        (testing.check_method, SeedsTheWorld, "global random generators"),
        (testing.check_adaptation, RenewsInSilence, "class 1, which is not among the renewed"),
        (testing.check_adaptation, PutsStrangers, "samples of the classes 0, 1 and 2"),
        (testing.check_detector, Draws, "global random generators"),
        (testing.check_detector, ChangesBuffer, "buffer as it was"),
        (testing.check_detector, AnswersInNumpy, "True, False or None"),
        (testing.check_detector, SaysNaN, "finite numbers"),
        (testing.check_detector, TakesNothingForStable, "without monitored samples"),
        (testing.check_model, mixes_samples, "not close"),
        (testing.check_dataset, random_data, "same images at each call"),
    ],
)
def test_a_check_refuses_a_component_that_breaks_its_contract(
    check: Callable[[Any], None], part: Any, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        check(part)
