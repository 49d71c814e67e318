"""Verdicts with kinds: from a detector, from two data sets, and from a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import driftwise
from driftwise.detect.explain import with_kinds
from driftwise.detect.reference import EARLIER, FingerprintReference, HeldOutReference
from driftwise.encoders.identity import IdentityEncoder
from driftwise.stats.kind_names import ACTIONS
from driftwise.types import Samples, Verdict

WIDTH, SIZE = 10, 60


def cloud(label: int, samples: int, seed: int, by: float = 0.0) -> Tensor:
    draw = torch.Generator().manual_seed(100 * seed + label)
    features = torch.randn(samples, WIDTH, generator=draw)
    features[:, label] += 8
    features[:, -1] += by
    return features


def judged(verdicts: list[Verdict], now: dict[int, Tensor], **options: Any) -> list[Verdict]:
    reference = {c: cloud(c, SIZE, 0) for c in range(3)}
    return with_kinds(
        verdicts,
        reference=torch.cat(list(reference.values())),
        reference_labels=torch.arange(3).repeat_interleave(SIZE),
        current=torch.cat(list(now.values())),
        labels=torch.cat([torch.full((len(each),), c) for c, each in now.items()]),
        unit_length=False,
        **{"known": "given", **options},
    )


def verdict(label: int, drifted: bool | None, **values: Any) -> Verdict:
    counts = {"num_reference": SIZE, "num_current": SIZE}
    return Verdict(task=2, label=label, drifted=drifted, **{**counts, **values})


def test_every_verdict_gets_a_kind_that_agrees_with_it() -> None:
    now = {0: cloud(0, SIZE, 1, by=6), 1: cloud(1, SIZE, 1), 2: cloud(2, 10, 1)}
    came = [verdict(0, True, share=0.9), verdict(1, False), verdict(2, None, num_current=10)]
    first, second, third = judged(came, now)
    assert (first.kind, second.kind, third.kind) == ("drift", "none", "not testable")
    assert first.action == ACTIONS["drift"]
    assert third.kind_evidence == {"missing_reference": 0, "missing_current": 10}
    assert {each.stream_kind for each in (first, second, third)} == {"drift"}


def test_an_alarm_that_samples_do_not_explain_goes_by_the_drifted_fraction() -> None:
    # Two classes only, too few samples to be explained.
    now = {0: cloud(0, 8, 1), 1: cloud(1, 8, 1)}
    for share, kind in ((0.3, "new mode"), (0.95, "drift"), (None, "drift")):
        (found, _) = judged([verdict(0, True, share=share), verdict(1, False)], now)
        assert found.kind == found.stream_kind == kind


def test_with_labels_a_new_class_explains_no_drift_of_another_class() -> None:
    # Too few samples of class 0 to be explained by themselves, and a class that nobody knows.
    now = {
        0: cloud(0, 8, 1, by=6),
        1: cloud(1, SIZE, 1),
        2: cloud(2, SIZE, 1),
        7: cloud(7, SIZE, 1),
    }
    came = [verdict(0, True, share=0.9), verdict(1, False), verdict(2, False)]
    found = judged(came, now)
    assert [each.kind for each in found] == ["drift", "none", "none"]
    assert {each.stream_kind for each in found} == {"new class"}


def test_a_change_that_costs_nothing_is_harmless() -> None:
    now = {c: cloud(c, SIZE, 1, by=6.0 * (c == 0)) for c in range(3)}
    for harm, kind in ((0.5, "harmless"), (30.0, "drift")):
        found = judged([verdict(0, True, share=0.9, harm=harm, harm_error=0.5)], now)
        assert found[0].kind == kind


def test_a_mix_that_differs_is_reported_where_the_usual_one_is_known() -> None:
    now = {0: cloud(0, 90, 1), 1: cloud(1, SIZE, 1), 2: cloud(2, 20, 1)}
    quiet = [verdict(c, False) for c in range(3)]
    assert judged(quiet, now)[0].stream_kind == "none"
    found = judged(quiet, now, mix={0: 1.0, 1: 1.0, 2: 1.0})[0]
    assert (found.kind, found.stream_kind) == ("none", "mix")


def test_another_mix_explains_no_alarm_of_a_class_too_small_to_be_compared() -> None:
    now = {0: cloud(0, 10, 1, by=6), 1: cloud(1, 90, 1)}
    came = [verdict(0, True, share=0.9), verdict(1, False), verdict(2, False)]
    usual = {0: 1.0, 1: 1.0, 2: 1.0}
    for known in ("given", "unknown"):
        found = judged(came, now, known=known, mix=usual)
        assert (found[0].kind, found[0].stream_kind) == ("drift", "drift")


def held(label: int, seed: int) -> Samples:
    ids = torch.arange(30)
    labels = torch.full((30,), label)
    return Samples(images=cloud(label, 30, seed), labels=labels, ids=ids, concepts=labels * 0)


def archived(reference: HeldOutReference | FingerprintReference) -> list[Tensor]:
    return [each.images if isinstance(each, Samples) else each for each in reference.earlier_of(0)]


@pytest.mark.parametrize("kind", ["held-out", "fingerprint"])
def test_references_archive_what_a_class_was_and_save_it(kind: str) -> None:
    def fresh() -> HeldOutReference | FingerprintReference:
        if kind == "held-out":
            return HeldOutReference()
        return FingerprintReference(IdentityEncoder(), size=30, seed=0)

    reference = fresh()
    for seed in range(EARLIER + 3):
        reference.renew(0, held(0, seed))
    assert len(reference.earlier_of(0)) == EARLIER
    again = fresh()
    again.load_state_dict(reference.state_dict())
    for one, other in zip(archived(reference), archived(again), strict=True):
        assert torch.equal(one, other)
    assert torch.allclose(archived(reference)[-1], held(0, EARLIER + 1).images, atol=0.01)


def vectors(change: str) -> tuple[np.ndarray, np.ndarray]:
    current = torch.cat([cloud(c, SIZE, 1) for c in range(3)])
    labels = np.arange(3).repeat(SIZE)
    if change == "new mode":
        current[:30, -1] += 8
    elif change == "drift":
        current[:SIZE, -1] += 8
    elif change == "new class":
        current = torch.cat([current, cloud(7, SIZE, 1)])
        labels = np.concatenate([labels, np.full(SIZE, 7)])
    elif change == "mix":
        current, labels = current[SIZE - 15 :], labels[SIZE - 15 :]
    elif change == "corrupted":
        current[::4] = 0
    return current.numpy(), labels


@pytest.mark.parametrize("change", ["none", "drift", "new mode", "new class", "mix", "corrupted"])
def test_two_data_sets_are_told_apart_by_what_happened(change: str) -> None:
    reference = torch.cat([cloud(c, SIZE, 0) for c in range(3)]).numpy()
    detector = driftwise.DriftDetector().fit((reference, np.arange(3).repeat(SIZE)))
    report = detector.check(vectors(change))
    assert report.kind == change
    assert report.action == ACTIONS[change]
    if change in ("drift", "new mode"):
        kinds = {each.name: each.kind for each in report.classes}
        assert kinds == {"0": change, "1": "none", "2": "none"}
    plain = report.as_dict()
    assert plain["kind"] == change
    assert {"kind", "kind_evidence", "action"} <= plain["classes"][0].keys()


def test_a_run_names_kinds_and_auto_acts_on_them(tmp_path: Path) -> None:
    config = driftwise.RunConfig(
        adaptation="auto", epochs=2, num_drifts=1, detector="combined", encoder="random"
    )
    result = driftwise.run(config, tmp_path / "run")
    drifted = [each for each in result["verdicts"] if each["drifted"]]
    assert drifted
    assert all(each["kind"] in ACTIONS for each in result["verdicts"])
    assert {each["kind"] for each in drifted} <= {"drift", "new mode", "harmless", "recurring"}
    assert result["labels"]["adaptation"] > 0
