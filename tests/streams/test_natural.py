"""The laws of natural drift: a class comes back as other images, of another domain."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from streams_builders import (
    DOMAINS,
    PARTS,
    ROWS,
    TURNED,
    applied,
    assert_equal,
    domains_of,
    every_part,
    ids_showing,
    make_images,
    natural,
    original,
    parts_of,
    played,
    script,
    stream_of,
)

from driftwise.errors import UserError
from driftwise.streams import EventSpec, Stream
from driftwise.types import Dataset


def without_domains() -> Dataset:
    return dataclasses.replace(make_images(), domains=None, domain_names=())


@every_part
def test_the_first_domain_alone_is_there_before_drift(part: str) -> None:
    samples = natural().samples(part, range(4), 5)
    assert set(domains_of(samples)) == {"photo"}
    assert torch.equal(samples.images, original(samples))
    everything = played().samples(part, range(4), 5)
    assert set(domains_of(everything)) == set(DOMAINS)


@every_part
def test_natural_drift_shows_other_images_of_the_class_as_they_are(part: str) -> None:
    stream = natural(
        EventSpec(task=2, classes=(0, 1), transforms=TURNED),  # not what the sketches will show
        EventSpec(task=3, classes=(0, 1), domain="sketch"),
    )
    before, after = stream.samples(part, [0], 1), stream.samples(part, [0], 3)
    assert set(domains_of(before)) == {"photo"}
    assert set(domains_of(after)) == {"sketch"}
    assert not set(before.ids.tolist()) & set(after.ids.tolist())
    assert torch.equal(after.images, original(after))
    assert set(after.labels.tolist()) == {0}
    everything = make_images()
    in_parts = [stream.samples(name, [0], 3).ids for name in PARTS]
    assert everything.domains is not None
    sketches = (everything.labels == 0) & (everything.domains == DOMAINS.index("sketch"))
    assert sorted(torch.cat(in_parts).tolist()) == np.flatnonzero(sketches).tolist()


@every_part
def test_another_domain_can_come_transformed(part: str) -> None:
    stream = natural(EventSpec(task=2, classes=(0,), domain="sketch", transforms=TURNED))
    samples = stream.samples(part, [0], 2)
    assert set(domains_of(samples)) == {"sketch"}
    assert torch.equal(samples.images, applied(original(samples), stream.schedule.concepts[0]))


@every_part
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_partial_natural_drift_mixes_two_domains_in_the_stated_share(
    part: str, share: float
) -> None:
    """New modes of a class appear while the old ones stay."""
    stream = natural(EventSpec(task=3, classes=(0,), domain="cartoon", share=share))
    start, now = stream.samples(part, [0], 1), stream.samples(part, [0], 3)
    shown = Counter(domains_of(now))
    assert shown["cartoon"] == round(share * len(now))
    assert shown["photo"] == len(now) - shown["cartoon"]
    assert len(now) == len(start)
    photos = ids_showing(now, 0)
    assert photos <= set(start.ids.tolist())
    assert torch.equal(now.images, original(now))


@every_part
def test_gradual_natural_drift_exchanges_images_one_by_one(part: str) -> None:
    stream = natural(EventSpec(task=2, classes=(0,), domain="cartoon", over_tasks=3))
    samples = [stream.samples(part, [0], task) for task in range(1, 6)]
    assert len({len(now) for now in samples}) == 1
    for earlier, later in itertools.pairwise(samples):
        assert ids_showing(later, 0) <= ids_showing(earlier, 0)
        assert ids_showing(earlier, 1) <= ids_showing(later, 1)
    assert set(domains_of(samples[-1])) == {"cartoon"}


def test_only_a_class_that_mixes_domains_gives_up_samples() -> None:
    stream = natural(
        EventSpec(task=2, classes=(0,), domain="sketch", share=0.5),
        EventSpec(task=2, classes=(1,), domain="sketch"),
    )
    sizes = [
        sum(len(stream.samples(part, [label], task)) for part in PARTS)
        for label, task in ((0, 1), (0, 2), (1, 1), (1, 2), (2, 3))
    ]
    assert sizes == [20, 20, ROWS["photo"], ROWS["sketch"], ROWS["photo"]]


def test_domains_that_no_event_names_change_nothing() -> None:
    made = script(EventSpec(task=2, classes=(0, 1), transforms=TURNED, share=0.3))
    one, other = (
        Stream(dataset, parts_of(make_images()), made, batch_size=4, seed=0)
        for dataset in (make_images(), without_domains())
    )
    assert_equal(one.samples("train", [0, 1], 2), other.samples("train", [0, 1], 2))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_class_without_images_of_its_domain_is_refused_by_name(share: float) -> None:
    dataset = make_images(missing=(1, "cartoon"))
    made = script(
        EventSpec(task=2, classes=(0, 1), domain="cartoon", share=share), first_domain="photo"
    )
    with pytest.raises(UserError) as caught:
        stream_of(made, dataset=dataset)
    assert str(caught.value) == (
        "class 'dog' has no train images of domain 'cartoon', which it is to show; "
        "add some or leave the class out"
    )
    without = script(EventSpec(task=2, classes=(0,), domain="cartoon"), first_domain="photo")
    assert len(stream_of(without, dataset=dataset).samples("test", [0, 1], 2))


def test_unknown_domains_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="unknown domain 'carton'; did you mean 'cartoon'"):
        natural(EventSpec(task=2, classes=(0,), domain="carton"))
    with pytest.raises(UserError, match="unknown domain 'fotos'"):
        played(first_domain="fotos")
    parts = parts_of(make_images())
    with pytest.raises(UserError, match="names the domain 'photo'; the data set has no domains"):
        Stream(without_domains(), parts, script(first_domain="photo"), batch_size=4, seed=0)
