"""Texts as a data set: taken as they are, and refused wherever nothing encodes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from run_tools import complaint

import driftwise as dw
from driftwise.datasets.validate import check_dataset, identity_of
from driftwise.types import Dataset

CSV = """label,body,when
ham,"hello, ""you""
there",2001-01-02
spam,buy,2001-02-01
ham,,2002-01-01
"""


def lengths(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), text.count("e")] for text in texts], dtype=np.float32)


def mails(count: int = 40) -> Dataset:
    texts = [
        f"see {'very ' * (number % 7)}cheap" if number % 2 else "no" for number in range(count)
    ]
    return dw.datasets.from_texts(
        texts, ["ham", "spam"] * (count // 2), time=range(count), periods=2
    )


def test_texts_keep_their_content_labels_and_times(tmp_path: Path) -> None:
    (tmp_path / "mails.csv").write_text(CSV)
    expected = ['hello, "you"\nthere', "buy", ""]
    from_file = dw.datasets.from_table(tmp_path / "mails.csv", text="body", time="when", periods=3)
    given = dw.datasets.from_texts(
        expected, ["ham", "spam", "ham"], time=["2001-01-02", "2001-02-01", "2002-01-01"], periods=3
    )
    own = dw.load_own(tmp_path / "mails.csv", text="body", time="when", periods=3)
    for data in (from_file, given, own):
        assert data.images.tolist() == expected
        assert data.images.dtype == object
        assert data.labels.tolist() == [0, 1, 0]
        assert data.class_names == ("ham", "spam")
        assert data.domains is not None
        assert data.domains.tolist() == [0, 1, 2]
    assert len({identity_of(data) for data in (from_file, given, own)}) == 1


def test_the_identity_of_texts_is_that_of_their_content() -> None:
    def identity(*texts: str) -> str:
        return identity_of(dw.datasets.from_texts(list(texts), [0] * len(texts)))

    assert identity("ab", "c") == identity("".join(["a", "b"]), "c")
    assert len({identity("ab", "c"), identity("a", "bc"), identity("c", "ab")}) == 3


def test_encoded_texts_are_a_data_set_of_vectors(tmp_path: Path) -> None:
    encoder = dw.encoders.load(lengths, accepts="texts", identity="lengths 1")
    cache = dw.encoders.EmbeddingCache(encoder, tmp_path)
    data = cache.encoded(mails())
    assert data.images.dtype == np.float32
    assert data.images[:2].tolist() == [[2, 0], [14, 4]]
    assert check_dataset(data, source="data") is data
    stream = dw.streams.class_incremental(mails(), num_tasks=2, num_drifts=0, encoder=cache)
    assert stream.image_shape == (2,)


def test_a_detector_compares_the_embeddings_of_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRIFTWISE_CACHE", str(tmp_path))
    encoder = dw.encoders.load(lengths, accepts="texts", identity="lengths 1")
    draw = np.random.default_rng(0)

    def letters(longest: int) -> Dataset:
        sizes = draw.integers(1, [20, longest], (60, 2)).ravel()
        return dw.datasets.from_texts(["e" * size for size in sizes], ["short", "long"] * 60)

    detector = dw.DriftDetector(encoder=encoder).fit(letters(40))
    report = detector.check(letters(400))
    assert report.encoder == encoder.name
    assert [each.name for each in report.classes if each.verdict == "drifted"] == ["long"]
    data = letters(40)
    pair = (data.images, data.labels)
    assert not detector.check(pair, class_names=data.class_names).drifted
    again = dw.DriftDetector(encoder=encoder)
    again.load_state_dict(detector.state_dict())
    assert not again.check(data).drifted
    line = complaint(lambda: dw.DriftDetector().load_state_dict(detector.state_dict()))
    assert "was encoded by" in line
    numbers = (np.zeros((10, 2), dtype=np.float32), np.zeros(10, dtype=np.int64))
    assert "takes texts" in complaint(lambda: detector.check(numbers))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a stream": (
        lambda: dw.streams.class_incremental(mails(), num_tasks=2),
        "texts, which a frozen encoder turns into vectors",
    ),
    "a detector": (lambda: dw.DriftDetector().fit(mails()), r"texts become vectors by.*encoded"),
    "arrays of images": (lambda: dw.datasets.from_arrays(["a", "b"], [0, 1]), "go into from_texts"),
    "columns of texts": (
        lambda: dw.datasets.from_arrays([["a", "b"]], [0]),
        "texts in columns are encoded first",
    ),
    "a gap": (lambda: dw.datasets.from_texts(["a", None], [0, 1]), "no text in 1 of 2 samples"),  # type: ignore[list-item]
    "one text": (lambda: dw.datasets.from_texts("abc", [0, 1, 1]), "got one text"),
    "fewer labels": (
        lambda: dw.datasets.from_texts(["a", "b"], [0]),
        "columns must be of one length",
    ),
    "text and features": (
        lambda: dw.datasets.from_table({"a": ["x"], "label": [0]}, text="a", features=["a"]),
        "text or features, not both",
    ),
    "a number among texts": (
        lambda: check_dataset(
            Dataset(
                images=np.array(["a", 3], dtype=object),
                labels=np.array([0, 1]),
                class_names=("x", "y"),
            ),
            source="data",
        ),
        "sample 1 must be a text.*got int",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, message = REFUSED[case]
    assert re.search(message, complaint(call)), complaint(call)
