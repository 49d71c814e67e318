"""Streams of vectors: drift, then a frozen encoder, then a scaling that the first task decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import driftwise as dw
from driftwise.errors import UserError
from driftwise.streams import Stream, class_incremental
from driftwise.types import Dataset, Samples

LABELS = np.arange(240) % 4
VECTORS = (
    (5 * np.random.default_rng(0).normal(size=(4, 6)))[LABELS]
    + np.random.default_rng(1).normal(size=(240, 6))
).astype(np.float32)
DATA = Dataset(images=VECTORS, labels=LABELS, class_names=tuple("abcd"))
IMAGES = replace(
    DATA, images=np.random.default_rng(2).integers(0, 256, (240, 4, 4, 1), dtype=np.uint8)
)


class Means:
    """A frozen encoder: the mean of each line of an image, and its square."""

    def __init__(self) -> None:
        self.networks: Sequence[nn.Module] = (nn.Sequential(nn.Flatten(), nn.Linear(16, 3)),)
        self.encoded = 0

    def features(self, samples: Any) -> Tensor:
        self.encoded += len(samples)
        means = samples.float().mean(dim=(2, 3))
        return torch.cat([means, means.square()], dim=1)


def stream_of(data: Dataset = DATA, **settings: Any) -> Stream:
    options: dict[str, Any] = {"num_drifts": 1, "transform": "shift"} | settings
    return class_incremental(data, num_tasks=2, **options)


def everything(stream: Stream) -> Samples:
    return Samples.concat(
        [
            samples
            for task in stream.tasks()
            for samples in (task.train(), task.monitored(), task.tests(), task.incoming(0))
        ]
    )


def test_scaling_is_fitted_on_the_first_tasks_training_samples_alone() -> None:
    stream = stream_of()
    first = stream.task(1).train().images
    torch.testing.assert_close(first.mean(dim=0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(first.std(dim=0, correction=0), torch.ones(6))

    learned = torch.zeros(240, dtype=torch.bool)
    learned[stream.task(1).train().ids] = True
    vectors = VECTORS.copy()
    vectors[~learned.numpy()] *= 1000  # whatever else comes changes nothing
    other = stream_of(replace(DATA, images=vectors))
    assert torch.equal(other.task(1).train().images, first)
    assert other.task(2).train().images.abs().max() == 10, "far values are clipped"


@pytest.mark.parametrize("scaling", ["none", dw.Scaling("signed-log").fit(torch.tensor(VECTORS))])
def test_a_scaling_can_be_chosen_and_a_fitted_one_stays(scaling: Any) -> None:
    samples = stream_of(scaling=scaling).task(1).train()
    raw = torch.from_numpy(VECTORS)[samples.ids]
    assert torch.equal(samples.images, raw if scaling == "none" else scaling(raw))


def test_drift_moves_vectors_by_deviations_of_the_first_task() -> None:
    stream = stream_of(severity=4, scaling=dw.Scaling(limit=None))
    before, after = (stream.samples("test", [0, 1], task).images for task in (1, 2))
    torch.testing.assert_close((after - before).abs(), torch.full_like(after, 2.0))


def test_two_streams_read_in_any_order_give_equal_samples() -> None:
    forwards = everything(stream_of(transform="gaussian-noise"))
    stream = stream_of(transform="gaussian-noise")
    stream.task(2).tests()
    assert torch.equal(forwards.images, everything(stream).images)


@pytest.mark.parametrize("transform", ["permutation", "defocus-blur"])
def test_images_drift_before_they_are_encoded_and_scaled_after(transform: str) -> None:
    encoder = Means()
    stream = stream_of(IMAGES, transform=transform, encoder=encoder)
    plain = stream_of(IMAGES, transform=transform)
    assert (stream.image_shape, stream.raw_shape) == ((8,), (4, 4, 1))
    assert stream.blank.shape == (2, 8)
    scaling = dw.Scaling().fit(encoder.features(plain.task(1).train().images))
    for task in (1, 2):
        raw, seen = plain.task(task).tests(), stream.task(task).tests()
        assert torch.equal(seen.images, scaling(encoder.features(raw.images)))
        assert torch.equal(seen.concepts, raw.concepts)


def test_a_sample_is_booked_once_for_each_of_its_concepts_also_after_a_resume() -> None:
    def booked(stream: Stream, into: list[int]) -> Stream:
        stream.book_encodings(into.append)
        return stream

    counts: list[int] = []
    stream = booked(stream_of(IMAGES, transform="rotation", encoder=Means()), counts)
    everything(stream)
    everything(stream)
    assert sum(counts) == len(everything(stream).distinct())

    again: list[int] = []
    resumed = booked(stream_of(IMAGES, transform="rotation", encoder=Means()), again)
    resumed.load_state_dict(stream.state_dict())
    everything(resumed)
    assert sum(again) == 0


def test_a_resumed_stream_scales_as_before() -> None:
    stream, resumed = stream_of(), stream_of()
    stream.task(1).train()
    state = stream.state_dict()
    state["scaling"]["mean"] = state["scaling"]["mean"] + 1
    resumed.load_state_dict(state)
    assert resumed.task(1).train().images.mean() < -0.05


def test_without_vectors_a_stream_has_no_state() -> None:
    assert stream_of(IMAGES, transform="rotation").state_dict() == {}


def test_every_class_may_drift_in_its_own_way() -> None:
    stream = stream_of(concept_per_class=True, transform="gaussian-noise")
    transforms = [concept.transform for concept in stream.schedule.concepts]
    assert transforms == ["gaussian-noise", "permutation"]
    everything(stream)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        (DATA, {"transform": "defocus-blur"}, "defocus-blur is for images.*use one of .*shift"),
        (IMAGES, {"transform": "shift"}, "shift is for vectors.*use one of .*defocus-blur"),
        (DATA, {"transform": "permutation", "permutation_unit": "row"}, "moves single features"),
        (DATA, {"transform": "squeeze"}, "unknown transform 'squeeze'"),
        (
            IMAGES,
            {"transform": "identity", "scaling": "standard"},
            "scaling is for feature vectors",
        ),
        (DATA, {"scaling": "log"}, "unknown scaling 'log'"),
        (replace(DATA, images=np.array(["word"] * 240)), {}, "holds texts.*encoder="),
    ],
)
def test_refusals(data: Dataset, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        stream_of(data, **settings)


def test_texts_are_encoded_when_the_stream_is_made() -> None:
    class Lengths:
        def features(self, samples: Any) -> Tensor:
            return torch.tensor([[len(each), each.count("a")] for each in samples.tolist()]).float()

    texts = np.array(["a" * (n % 7 + 1) + "b" * label for n, label in enumerate(LABELS)])
    stream = stream_of(replace(DATA, images=texts), encoder=Lengths(), scaling="none")
    samples = stream.task(1).train()
    assert samples.images.tolist() == [
        [len(texts[i]), texts[i].count("a")] for i in samples.ids.tolist()
    ]
    assert stream.image_shape == (2,)


def test_vectors_that_are_mapped_to_be_read_only_are_used_without_a_warning(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    torch.set_warn_always(True)  # else only the first array of a process is warned of
    try:
        seen = everything(stream_of(replace(DATA, images=mapped)))
    finally:
        torch.set_warn_always(False)
    assert torch.equal(seen.images, everything(stream_of()).images)
