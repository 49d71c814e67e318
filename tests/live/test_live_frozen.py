"""A live learner behind a frozen encoder: it learns from vectors, people label samples."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live_tools import STABLE, engine_of, state_of
from run_tools import complaint
from same_state import same

import driftwise
from driftwise import encoders
from driftwise.live import LiveLearner, Request

NEVER: dict[str, Any] = {"watch_every": 10**9, "check_rows": 10**9}
SOON: dict[str, Any] = {
    "detector": "mmd",
    "watch_every": 3,
    "reference_size": 15,
    "check_rows": 10,
}


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 30), torch.nn.ReLU())


def mirrored(images: torch.Tensor) -> torch.Tensor:
    """A function as an encoder, floats (samples, channels, height, width)."""
    return images.flip(3).flatten(1)


class Digits:
    """Digits that stand on their heads from sample 700 on, and whoever labels them."""

    def __init__(self) -> None:
        self.images, self.labels = STABLE.images.copy(), STABLE.labels
        self.images[700:] = self.images[700:, ::-1]
        self.requests: list[Request] = []

    def ask(self, request: Request) -> np.ndarray:
        self.requests.append(request)
        labels: np.ndarray = self.labels[request.ids]
        return labels

    def feed(self, live: LiveLearner, until: int, *, labelled: int = 10**9) -> None:
        for start in range(live.num_samples, until, 10):
            labels = self.labels[start : start + 10] if start < labelled else None
            live.observe(self.images[start : start + 10], labels)


@pytest.mark.parametrize("method", ["slda", "er"])
def test_it_learns_what_it_would_learn_from_the_vectors(method: str) -> None:
    encoder = encoders.load(network())
    behind, bare = LiveLearner(encoder=encoder, method=method, **NEVER), LiveLearner(
        method=method, **NEVER
    )  # fmt: skip
    for start in range(0, 200, 20):
        images, labels = STABLE.images[start : start + 20], STABLE.labels[start : start + 20]
        vectors = encoder.encode(torch.from_numpy(images)).features
        found, expected = behind.observe(images, labels), bare.observe(vectors, labels)
        assert found.predicted.tolist() == expected.predicted.tolist()
    assert same(state_of(behind)["parts"]["learner"], state_of(bare)["parts"]["learner"])
    assert len(engine_of(behind).learner.encode(vectors).features.shape) == 2


def test_people_are_asked_about_samples_as_they_came_and_the_class_recovers(
    tmp_path: Path,
) -> None:
    stream = Digits()
    live = LiveLearner(
        encoder=network(), method="slda", labels=stream.ask, folder=tmp_path / "live", **SOON
    )
    stream.feed(live, 1300, labelled=600)
    assert stream.requests
    for request in stream.requests:
        assert np.array_equal(request.images, stream.images[request.ids])
    assert live._frozen is not None
    kept = live._frozen.state_dict()["ids"]
    window = engine_of(live).window
    assert len(kept) == len(window.unlabelled) + len(window.requested)
    live.close()


def test_open_requests_survive_a_restart_with_their_samples(tmp_path: Path) -> None:
    stream, later = Digits(), list[Request]()
    settings = {"method": "slda", **SOON}

    def never(request: Request) -> None:
        later.append(request)

    whole = LiveLearner(encoder=network(), labels=never, **settings)
    stream.feed(whole, 900, labelled=600)
    with LiveLearner(
        encoder=network(), labels=never, folder=tmp_path / "live", **settings
    ) as first:
        stream.feed(first, 800, labelled=600)
    with LiveLearner.load(tmp_path / "live", encoder=network(), labels=never) as second:
        stream.feed(second, 900, labelled=600)
        assert same(state_of(second), state_of(whole))
        asked = second.open_requests
        assert asked
        for request in asked:
            assert np.array_equal(request.images, stream.images[request.ids])
    copied = copy.deepcopy(whole)
    assert same(state_of(copied), state_of(whole))


def test_a_folder_finds_its_encoder_by_name_and_refuses_another(tmp_path: Path) -> None:
    for name, encoder in (("named", "random"), ("given", network())):
        with LiveLearner(encoder=encoder, method="slda", folder=tmp_path / name, **NEVER) as live:
            live.observe(STABLE.images[:50], STABLE.labels[:50])
            expected = live.predict_proba(STABLE.images[50:60])
        again = {} if name == "named" else {"encoder": network()}
        given = {} if name == "named" else {"frozen_encoder": network()}
        predictor = driftwise.load(tmp_path / name, **given)  # type: ignore[arg-type]
        found = predictor.predict_proba(STABLE.images[50:60])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        with LiveLearner.load(tmp_path / name, **again) as live:  # type: ignore[arg-type]
            assert np.array_equal(live.predict_proba(STABLE.images[50:60]), expected)
    said = complaint(lambda: LiveLearner.load(tmp_path / "given"))
    assert "needs its encoder again" in said
    said = complaint(lambda: LiveLearner.load(tmp_path / "given", encoder=network(1)))
    assert "got another one" in said
    said = complaint(lambda: LiveLearner.load(tmp_path / "named", encoder=network()))
    assert "got another one" in said


def test_texts_are_learned_through_an_encoder_that_takes_them() -> None:
    words = ["red apple", "green apple", "blue car", "fast car"]

    def count(texts: Any) -> np.ndarray:
        letters = "abcdefgrlnptus"
        return np.array([[text.count(each) for each in letters] for text in texts], np.float32)

    asked: list[Request] = []
    encoder = encoders.load(count, accepts="texts")
    live = LiveLearner(encoder=encoder, method="ncm", labels=asked.append, **NEVER)
    texts = [words[number % 4] for number in range(40)]
    live.observe(texts, [number % 4 // 2 for number in range(40)])
    assert live.predict(["apple", "car"]).tolist() == [0, 1]
    assert "takes texts; these samples are numbers" in complaint(
        lambda: live.predict(np.zeros((2, 14)))
    )
    live.observe(["a car", "an apple"])
    assert live._frozen is not None
    assert live._frozen.state_dict()["samples"] == ["a car", "an apple"]


def failing(images: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no such image")


BAD: dict[str, tuple[Any, str]] = {
    "an unknown name": (lambda: LiveLearner(encoder="resnet-18"), "unknown encoder 'resnet-18'"),
    "the learner": (lambda: LiveLearner(encoder="learner"), "the encoder learner belongs to a run"),
    "no encoder": (lambda: LiveLearner(encoder=3), "encoder must be a name"),
    "an encoder that fails": (
        lambda: LiveLearner(encoder=failing).observe(STABLE.images[:5], STABLE.labels[:5]),
        "cannot take these samples: RuntimeError: no such image",
    ),
    "text where images are expected": (
        lambda: LiveLearner(encoder=network(), method="slda").observe(["a", "b"], [0, 1]),
        "takes numbers; these samples are texts",
    ),
    "objects": (
        lambda: LiveLearner(encoder=network()).observe([{}, {}], [0, 1]),
        "expected an array of images, of vectors or of texts",
    ),
    "other images": (lambda: _trained().predict(np.zeros((2, 9, 9, 1), np.uint8)), "cannot take"),
}


def _trained() -> LiveLearner:
    live = LiveLearner(encoder=network(), method="slda", **NEVER)
    live.observe(STABLE.images[:50], STABLE.labels[:50])
    return live


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_what_is_refused(call: Any, message: str) -> None:
    assert message in complaint(call)


def test_code_of_others_is_not_imported_unasked(tmp_path: Path) -> None:
    with LiveLearner(
        encoder="test_live_frozen:mirrored", method="slda", folder=tmp_path / "live", **NEVER
    ) as live:
        live.observe(STABLE.images[:50], STABLE.labels[:50])
    said = complaint(lambda: LiveLearner.load(tmp_path / "live"))
    assert "uses custom code (test_live_frozen:mirrored)" in said
    LiveLearner.load(tmp_path / "live", trust_imports=True).close()
