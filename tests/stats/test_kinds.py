"""What kind of change it is, on classes that are normal clouds."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from driftwise.errors import UserError
from driftwise.stats.class_mix import multinomial, other_mix, other_mix_of_counts
from driftwise.stats.kind_names import ACTIONS, Kind
from driftwise.stats.kinds import FEWEST, judge

WIDTH, SIZE, CLASSES = 12, 60, 4


def cloud(label: int, samples: int, seed: int, *, along: int = 0, by: float = 0.0) -> Tensor:
    """Samples of a class, around a point of its own; the change goes along another axis."""
    draw = torch.Generator().manual_seed(1000 * seed + label)
    features = torch.randn(samples, WIDTH, generator=draw, dtype=torch.float64)
    features[:, label] += 8
    features[:, CLASSES + along] += by
    return features


REFERENCE = {c: cloud(c, SIZE, 0) for c in range(CLASSES)}


def window(changed: dict[int, Tensor] | None = None, **counts: int) -> tuple[Tensor, Tensor]:
    parts = {
        c: (changed or {}).get(c, cloud(c, counts.get(f"c{c}", SIZE), 1)) for c in range(CLASSES)
    }
    labels = torch.cat([torch.full((len(part),), c) for c, part in parts.items()])
    return torch.cat(list(parts.values())), labels


def found(current: Tensor, labels: Tensor | None, **options: Any) -> Any:
    return judge(REFERENCE, current, labels, unit_length=False, mix="reference", **options)


def test_nothing_has_changed() -> None:
    findings = found(*window())
    assert findings.kind == "none"
    assert {each.kind for each in findings.by_class.values()} == {"none"}
    assert found(window()[0], None).kind == "none"


def test_drift_a_new_mode_and_an_earlier_concept_are_told_apart_class_by_class() -> None:
    changed = {
        0: cloud(0, SIZE, 2, along=0, by=6),
        1: torch.cat([cloud(1, 30, 3), cloud(1, 30, 4, along=1, by=6)]),
        2: cloud(2, SIZE, 5, along=2, by=6),
    }
    archived = {c: [cloud(c, SIZE, 6, along=2, by=6)] for c in range(CLASSES)}
    current, labels = window(changed)
    findings = found(current, labels, archived=archived)
    kinds = {c: each.kind for c, each in findings.by_class.items()}
    assert kinds == {0: "drift", 1: "new mode", 2: "recurring", 3: "none"}
    assert findings.by_class[1].evidence["fraction_new"] == pytest.approx(0.5, abs=0.15)
    assert {each.kind for each in findings.stream} == {"drift", "new mode", "recurring"}


def test_a_detector_s_alarms_are_explained_and_no_others() -> None:
    current, labels = window({c: cloud(c, SIZE, 2, by=6) for c in (0, 1)})
    kinds = {c: each.kind for c, each in found(current, labels, changed={1}).by_class.items()}
    assert kinds == {0: "none", 1: "drift", 2: "none", 3: "none"}


def test_samples_that_nobody_could_name_are_a_new_class_only_if_they_are_unlike_all_classes() -> (
    None
):
    current, labels = window()
    stranger = torch.cat([current, cloud(0, 40, 7, along=5, by=9)])
    unnamed = torch.cat([labels, torch.full((40,), -1)])
    findings = found(stranger, unnamed)
    assert [each.kind for each in findings.stream] == ["new class"]
    assert int(findings.novel[-40:].sum()) >= 38
    known = torch.cat([current, cloud(0, 40, 8)])
    assert found(known, unnamed).kind in ("none", "mix")


def test_another_class_mix_is_no_drift_with_labels_and_without() -> None:
    current, labels = window(c0=120, c1=20)
    for names in (labels, None):
        findings = found(current, names)
        assert findings.kind == "mix"
        assert {each.kind for each in findings.by_class.values()} == {"none"}


def test_a_dead_sensor_is_corruption_and_what_is_left_has_not_drifted() -> None:
    current, labels = window()
    current[::5] = 0.0
    findings = found(current, labels)
    assert findings.kind == "corrupted"
    assert findings.quarantined.nonzero().flatten().tolist() == list(range(0, len(current), 5))
    assert {each.kind for each in findings.by_class.values()} == {"corrupted"}
    assert found(current, None).kind == "corrupted"


def test_content_that_is_lost_is_corruption_and_a_shift_that_keeps_it_is_not() -> None:
    current, labels = window()
    lost = current.clone()
    draw = torch.Generator().manual_seed(9)
    lost[::4] = torch.randn(len(lost[::4]), WIDTH, generator=draw, dtype=torch.float64) * 3 - 6
    assert found(lost, labels).kind == "corrupted"
    kept = current.clone()
    kept[::4, -1] += 9
    assert found(kept, labels).kind == "new mode"


def test_a_careless_annotator_is_named_and_only_that_one_is_put_into_quarantine() -> None:
    current, labels = window()
    annotators = torch.arange(len(labels)) % 3
    wrong = torch.where(annotators == 2, (labels + 1) % CLASSES, labels)
    findings = found(current, wrong, annotators=annotators)
    assert findings.kind == "corrupted"
    assert findings.stream[0].evidence["annotator"] == 2
    assert torch.equal(findings.quarantined, annotators == 2)
    # Without names, wrong labels of most classes show, too.
    assert found(current, wrong).kind == "corrupted"


def test_without_labels_novelty_goes_to_the_class_that_misses_samples() -> None:
    replaced, _ = window({0: cloud(0, SIZE, 2, by=6)})
    findings = found(replaced, None)
    assert [each.kind for each in findings.stream] == ["drift"]
    assert findings.by_class[0].kind == "drift"
    added = torch.cat([window()[0], cloud(0, SIZE, 2, by=6)])
    assert found(added, None).kind == "new class"
    returned = found(replaced, None, archived={0: [cloud(0, SIZE, 9, by=6)]})
    assert returned.by_class[0].kind == "recurring"


def test_without_labels_a_drift_of_all_classes_is_no_new_class() -> None:
    current, _ = window({c: cloud(c, SIZE, 2, by=3) for c in range(CLASSES)})
    findings = found(current, None)
    assert [each.kind for each in findings.stream] == ["drift"]
    assert {each.kind for each in findings.by_class.values()} == {"drift"}


def test_too_few_samples_are_not_testable_and_it_is_said_how_many_are_missing() -> None:
    few = {0: cloud(0, FEWEST - 3, 0), 1: cloud(1, SIZE, 0)}
    current, labels = cloud(1, SIZE, 1), torch.ones(SIZE, dtype=torch.int64)
    findings = judge(few, current, labels, unit_length=False)
    assert findings.by_class[0].kind == "not testable"
    assert findings.by_class[0].evidence == {"missing_reference": 3}
    assert judge({0: few[0]}, current, labels).kind == "not testable"


@pytest.mark.parametrize("samples", [1, FEWEST - 1])
@pytest.mark.parametrize("with_labels", [True, False])
def test_a_class_with_few_reference_samples_is_no_new_class(
    with_labels: bool, samples: int
) -> None:
    few = {**REFERENCE, 0: REFERENCE[0][:samples]}
    current, labels = window()
    findings = judge(few, current, labels if with_labels else None, unit_length=False)
    assert findings.kind == "none"
    assert findings.by_class[0].evidence == {"missing_reference": FEWEST - samples}
    # A class that nobody knows is found beside it.
    added = torch.cat([current, cloud(1, 60, 7, along=5, by=9)])
    names = torch.cat([labels, torch.full((60,), -1)]) if with_labels else None
    assert judge(few, added, names, unit_length=False).kind == "new class"


@pytest.mark.parametrize("with_labels", [True, False])
@pytest.mark.parametrize("samples", [0, 1, FEWEST - 1])
def test_a_window_of_few_samples_is_not_testable_rather_than_unchanged(
    samples: int, with_labels: bool
) -> None:
    current, labels = window()
    findings = found(current[:samples], labels[:samples] if with_labels else None)
    assert findings.kind == "not testable"
    assert {each.kind for each in findings.by_class.values()} == {"not testable"}
    assert min(each.evidence["missing_current"] for each in findings.by_class.values()) >= 1


def test_without_labels_classes_of_few_samples_are_not_testable_rather_than_unchanged() -> None:
    few = FEWEST - 1
    current = torch.cat([cloud(0, SIZE, 1), *(cloud(c, few, 1, by=6) for c in (1, 2, 3))])
    findings = found(current, None).by_class
    assert findings[0].kind == "none"
    assert {findings[c].kind for c in (1, 2, 3)} == {"not testable"}
    assert findings[1].evidence == {"missing_current": 1}


def test_another_mix_of_classes_that_are_confused_changes_no_class() -> None:
    def near(label: int, samples: int, seed: int) -> Tensor:
        features = cloud(label, samples, seed)[:, :2]
        features[:, label] -= 20 / 3
        return features

    current = torch.cat([near(0, 300, 1), near(1, 100, 1)])
    reference = {c: near(c, 200, 0) for c in range(2)}
    findings = judge(reference, current, None, unit_length=False, mix="reference")
    assert [each.kind for each in findings.stream] == ["mix"]
    assert {each.kind for each in findings.by_class.values()} == {"none"}


@pytest.mark.parametrize("with_labels", [True, False])
def test_a_single_class_has_kinds_too(with_labels: bool) -> None:
    labels = torch.zeros(SIZE, dtype=torch.int64) if with_labels else None
    for by, kind in ((0.0, "none"), (6.0, "drift")):
        findings = judge({0: REFERENCE[0]}, cloud(0, SIZE, 1, by=by), labels, unit_length=False)
        assert (findings.kind, findings.by_class[0].kind) == (kind, kind)


@pytest.mark.parametrize("unit_length", [True, False])
@pytest.mark.parametrize("with_labels", [True, False])
def test_constant_features_have_not_changed_and_a_single_reading_is_corruption(
    with_labels: bool, unit_length: bool
) -> None:
    current, labels = window()
    names = labels if with_labels else None
    for constant in (0.0, 1.0):
        same = {c: torch.full_like(each, constant) for c, each in REFERENCE.items()}
        now = torch.full_like(current, constant)
        assert judge(same, now, names, unit_length=unit_length).kind == "none"
        assert found(now, names).kind == "corrupted"
        # From one constant to another, there is no content that could have been lost.
        moved = judge(same, now + 1, names, unit_length=False)
        assert moved.kind in ("drift", "new class")


def test_features_that_never_told_classes_apart_have_lost_no_content() -> None:
    reference = {c: torch.zeros(50, 6, dtype=torch.float64) for c in range(3)}
    moved = torch.tensor([1.0, 1, -1, -1, 1, 1], dtype=torch.float64).expand(120, 6)
    findings = judge(reference, moved, torch.arange(120) // 40, unit_length=False)
    assert {each.kind for each in findings.by_class.values()} == {"drift"}


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_unit_of_features_does_not_matter(scale: float) -> None:
    reference = {c: scale * each for c, each in REFERENCE.items()}
    current, labels = window({0: cloud(0, SIZE, 2, by=6)})
    findings = judge(reference, scale * current, labels, unit_length=False)
    plain = judge(REFERENCE, current, labels, unit_length=False)
    kinds = {c: each.kind for c, each in findings.by_class.items()}
    assert kinds == {c: each.kind for c, each in plain.by_class.items()}
    assert kinds[0] == "drift"


def test_samples_and_labels_of_other_types_give_the_same_verdict() -> None:
    current, labels = window({0: cloud(0, SIZE, 2, by=6)})
    expected = {c: each.kind for c, each in found(current, labels).by_class.items()}
    as_arrays: Any = {c: each.numpy().astype(np.float32) for c, each in REFERENCE.items()}
    for other in (labels.tolist(), labels.numpy(), labels.to(torch.int8), labels.double()):
        given: Any = other
        findings = judge(as_arrays, current.requires_grad_(), given, unit_length=False)
        assert {c: each.kind for c, each in findings.by_class.items()} == expected


@pytest.mark.parametrize("unit_length", [True, False])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e160])
def test_numbers_that_are_not_finite_or_overflow_are_refused(bad: float, unit_length: bool) -> None:
    current, labels = window()
    spoilt = current.clone()
    spoilt[3, 0] = bad
    archived = {0: [spoilt]}
    for names in (labels, None):
        with pytest.raises(UserError, match="NaN or huge numbers"):
            judge(REFERENCE, spoilt, names, unit_length=unit_length)
    with pytest.raises(UserError, match="NaN or huge numbers"):
        judge({0: spoilt}, current, labels, unit_length=unit_length)
    with pytest.raises(UserError, match="NaN or huge numbers"):
        judge(REFERENCE, current, labels, archived=archived, unit_length=unit_length)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": torch.zeros(7)}, "labels of shape"),
        ({"labels": torch.full((CLASSES * SIZE,), torch.nan)}, "labels as whole numbers"),
        ({"labels": ["cat"] * CLASSES * SIZE}, "labels as whole numbers"),
        ({"annotators": torch.zeros(7)}, "annotators of shape"),
        ({"annotators": ["ann"] * CLASSES * SIZE}, "annotators as whole numbers"),
        ({"labels_are": "predict"}, "'given' or 'predicted'"),
        (
            {"labels_are": "predicted", "reference_predictions": {0: torch.zeros(SIZE)}},
            r"not of \[1, 2, 3\]",
        ),
        ({"mix": "usual"}, "'reference' or None"),
        ({"mix": {0: float("nan"), 1: 1.0}}, "how often each class comes"),
        ({"level": 0.0}, "between 0 and 1"),
        ({"level": 5.0}, "between 0 and 1"),
        ({"current": torch.zeros(CLASSES * SIZE, WIDTH - 1)}, "of one width"),
        ({"current": torch.zeros(CLASSES * SIZE)}, "of one width"),
        ({"reference": {"cat": REFERENCE[0]}}, "whole numbers as classes"),
        ({"current": torch.zeros(CLASSES * SIZE, WIDTH, dtype=torch.complex64)}, "real numbers"),
    ],
)
def test_what_would_change_the_verdict_silently_is_refused(
    options: dict[str, Any], message: str
) -> None:
    current, labels = window()
    everything: Any = {"reference": REFERENCE, "current": current, "labels": labels} | options
    with pytest.raises(UserError, match=message):
        judge(**everything, unit_length=False)


def test_the_level_holds_for_all_kinds_together() -> None:
    alarms = 0
    for seed in range(20, 60):
        reference = {c: cloud(c, 40, 2 * seed) for c in range(3)}
        parts = [cloud(c, 40, 2 * seed + 1) for c in range(3)]
        labels = torch.arange(3).repeat_interleave(40)
        annotators = torch.arange(120) % 3
        findings = judge(
            reference, torch.cat(parts), labels, annotators=annotators, unit_length=False, seed=seed
        )
        alarms += findings.kind != "none"
    assert alarms <= 6  # of 40 at level 0.05: more have a probability of one in a thousand


def test_the_mix_is_compared_with_what_is_known_of_it() -> None:
    assert not other_mix({0: 60, 1: 40}, {0: 0.5, 1: 0.5})
    assert other_mix({0: 80, 1: 20}, {0: 0.5, 1: 0.5})["largest_ratio"] == pytest.approx(1.6)
    # From ten samples nobody knows the mix.
    assert not other_mix({0: 70, 1: 30}, {0: 5, 1: 5}, known_from=10)


@pytest.mark.parametrize("is_counted", [True, False])
def test_the_level_of_a_mix_holds_where_confusions_are_known_from_few_samples(
    is_counted: bool,
) -> None:
    draw, share = np.random.default_rng(0), torch.full((4,), 0.25, dtype=torch.float64)
    taken_for = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    alarms = 0
    for _ in range(300):
        came = draw.multinomial(200, share.numpy())
        counts = sum(draw.multinomial(came[c], taken_for[c]) for c in range(4))
        known = torch.tensor(np.stack([draw.multinomial(50, p) / 50 for p in taken_for]))
        error = (share[:, None, None] ** 2 * multinomial(known)).sum(dim=0) / 50 * is_counted
        alarms += bool(
            other_mix_of_counts(torch.tensor(counts).double(), share @ known, 0.05, error)
        )
    # 15 are expected; without the error many more.
    assert alarms <= 25 if is_counted else alarms > 40


def test_every_kind_has_an_action() -> None:
    assert set(ACTIONS) == set(get_args(Kind))
    assert all(ACTIONS.values())
