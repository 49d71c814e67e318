"""The formulas of the theorems: against definitions written out, and against real buffers."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from same_state import same
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.reproduce.theorems import (
    Pair,
    Replacement,
    chance_all_replaced,
    chance_replaced,
    cosine,
    efficiency,
    efficiency_slope,
    mean_gradient,
    mixture_efficiency,
    paper_chance_all_replaced,
    paper_chance_replaced,
    simulate,
)

FRACTIONS = torch.linspace(0, 1, 21, dtype=torch.float64)


def tiny_network() -> nn.Sequential:
    with rng.as_global(rng.fork(0, "network")):
        network = nn.Sequential(
            nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2)
        )
        network.train()(torch.randn(8, 3))  # statistics that differ from the initial ones
    return network


def samples(count: int = 7) -> tuple[Tensor, Tensor]:
    generator = rng.fork(0, "rows")
    return torch.randn(count, 3, generator=generator), torch.arange(count) % 2


def vectors(**gradients: tuple[float, float]) -> Pair:
    return Pair.of(*(torch.tensor(values, dtype=torch.float64) for values in gradients.values()))


@pytest.mark.parametrize("batch_size", [1, 3, 512])
def test_the_mean_gradient_is_the_mean_of_the_gradients_sample_by_sample(batch_size: int) -> None:
    network, (x, y) = tiny_network(), samples()
    network.eval()
    slow = []
    for i in range(len(y)):
        network.zero_grad()
        cross_entropy(network(x[i : i + 1]), y[i : i + 1]).backward()  # type: ignore[no-untyped-call]
        slow.append(
            torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
        )
    fast = mean_gradient(network, x, y, batch_size=batch_size)
    torch.testing.assert_close(fast, torch.stack(slow).double().mean(dim=0), rtol=1e-5, atol=1e-7)


def test_measuring_changes_nothing() -> None:
    network, (x, y) = tiny_network(), samples()
    network[0].eval()  # its own mode is restored, too
    cross_entropy(network(x), y).backward()  # type: ignore[no-untyped-call]

    def everything() -> list[object]:
        return [
            {name: value.clone() for name, value in network.state_dict().items()},
            [None if p.grad is None else p.grad.clone() for p in network.parameters()],
            [module.training for module in network.modules()],
            torch.get_rng_state(),
        ]

    before = everything()
    first = mean_gradient(network, x, y)
    assert same(before, everything())
    assert torch.equal(first, mean_gradient(network, x, y))


def test_frozen_weights_are_left_out_and_unused_ones_are_zero() -> None:
    network = nn.Linear(3, 2)
    network.spare = nn.Parameter(torch.ones(4))
    network.weight.requires_grad_(False)
    gradient = mean_gradient(network, *samples())
    assert gradient.shape == (2 + 4,)
    assert gradient[-4:].tolist() == [0, 0, 0, 0]


def test_no_samples_and_zero_gradients_have_no_direction() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        mean_gradient(nn.Linear(3, 2), torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    assert cosine(torch.zeros(3), torch.ones(3)) is None


def test_efficiency_is_the_cosine_written_out() -> None:
    generator = rng.fork(1, "gradients")
    old, new = torch.randn(2, 9, generator=generator, dtype=torch.float64)
    pair = Pair.of(old, new)
    for a, paper, mixture in zip(
        FRACTIONS.tolist(),
        efficiency(pair, FRACTIONS),
        mixture_efficiency(pair, FRACTIONS),
        strict=True,
    ):
        assert float(paper) == pytest.approx(cosine(new + (1 - a) * old + a * new, new))
        assert float(mixture) == pytest.approx(cosine((1 - a) * old + a * new, new))
    # Theorem 3: with all samples realigned both are 1.
    assert float(efficiency(pair, FRACTIONS)[-1]) == pytest.approx(1)
    assert float(mixture_efficiency(pair, FRACTIONS)[-1]) == pytest.approx(1)


def test_the_slope_is_the_derivative() -> None:
    pair, step = vectors(old=(-0.7, 2.0), new=(1.0, 0.3)), 1e-6
    inner = FRACTIONS[1:-1]
    rise = (efficiency(pair, inner + step) - efficiency(pair, inner - step)) / (2 * step)
    torch.testing.assert_close(efficiency_slope(pair, inner), rise, rtol=1e-6, atol=1e-8)


sizes = st.floats(0.1, 10)


@given(old=st.tuples(st.floats(-10, 10), sizes), new=st.tuples(sizes, st.just(0.0)))
def test_efficiency_never_falls_with_the_fraction(
    old: tuple[float, float], new: tuple[float, float]
) -> None:
    """Theorem 4, for all gradients that are not on one line; for the buffer alone as well."""
    pair = vectors(old=old, new=new)
    for curve in (efficiency(pair, FRACTIONS), mixture_efficiency(pair, FRACTIONS)):
        assert (curve.diff() > -1e-9).all()
    assert (efficiency_slope(pair, FRACTIONS) >= 0).all()


def test_two_inequalities_in_the_proof_of_theorem_4_fail_where_its_conclusion_holds() -> None:
    """It takes |new|^2 > old . new from a cosine below 1, and needs 1 / |sum| to rise."""
    pair = vectors(old=(2.0, 1.0), new=(1.0, 0.0))
    assert pair.cosine is not None
    assert pair.cosine < 1
    assert pair.new_new - pair.old_new < 0
    assert (efficiency(pair, FRACTIONS).diff() > 0).all()
    # Orthogonal gradients of norm 1: |sum|^2 = 2 + 2 a^2, so 1 / |sum| falls.
    old, new = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    sums = torch.outer(1 + FRACTIONS, new) + torch.outer(1 - FRACTIONS, old)
    torch.testing.assert_close(sums.norm(dim=1) ** 2, 2 + 2 * FRACTIONS**2)
    assert ((1 / sums.norm(dim=1)).diff() < 0).all()
    assert (efficiency(Pair.of(old, new), FRACTIONS).diff() > 0).all()


def test_a_small_old_gradient_leaves_efficiency_near_one_whatever_its_direction() -> None:
    """Theorem 1 expects little efficiency at a = 0 after strong drift; norms decide, not angles."""
    learned = vectors(old=(0.0, 0.02), new=(1.0, 0.0))
    assert float(efficiency(learned, FRACTIONS)[0]) > 0.999
    assert float(mixture_efficiency(learned, FRACTIONS)[0]) == 0


def test_opposite_gradients_cancel_and_have_no_efficiency_there() -> None:
    pair = vectors(old=(-1.0, 0.0), new=(1.0, 0.0))
    assert efficiency(pair, torch.tensor([0.0])).isnan().all()
    assert efficiency(pair, torch.tensor([0.5])).tolist() == [1.0]


FALSE_FAILURE = 1e-6
"""Had the seeds been drawn, a correct buffer would fail a test with at most this probability."""


def exact_law(offered: int, *, stale: int, seen: int) -> list[Fraction]:
    """Chances that 0, 1, ... of the stale slots are still there, sample by sample."""
    left = [Fraction(0)] * stale + [Fraction(1)]
    for j in range(seen + 1, seen + offered + 1):
        left = [
            left[s] * (1 - Fraction(s, j))
            + (left[s + 1] * Fraction(s + 1, j) if s < stale else Fraction(0))
            for s in range(stale + 1)
        ]
    return left


@pytest.mark.parametrize(("offered", "stale", "seen"), [(1, 1, 5), (4, 3, 6), (9, 4, 4), (2, 3, 8)])
def test_the_closed_forms_are_the_law_written_out(offered: int, stale: int, seen: int) -> None:
    law = exact_law(offered, stale=stale, seen=seen)
    assert sum(law) == 1
    kept = sum(s * chance for s, chance in enumerate(law)) / stale
    assert chance_replaced(offered, seen=seen, capacity=4) == pytest.approx(float(1 - kept))
    everything = chance_all_replaced(offered, stale=stale, seen=seen, capacity=4)
    assert everything == pytest.approx(float(law[0]))
    assert law[0] == Fraction(comb(offered, stale), comb(seen + offered, stale))


def simulated(
    before: np.ndarray,
    after: np.ndarray,
    offered: list[int],
    capacity: int,
    policy: str,
    times: int,
) -> Replacement:
    return simulate(
        before,
        after,
        drifted=0,
        offered=offered,
        capacity=capacity,
        policy=policy,
        repeats=times,
        seed=0,
    )


def test_a_real_reservoir_replaces_stale_samples_with_the_exact_chance() -> None:
    offered = [5, 20, 90]
    found = simulated(np.arange(60) % 3, np.full(90, 3), offered, 9, "reservoir", 1500)
    exact = chance_replaced(offered, seen=60, capacity=9)
    # Slots of one buffer are not independent: the spread over repeats gives the tolerance.
    reach = stats.norm.isf(FALSE_FAILURE / 6) * found.replaced_error
    assert (np.abs(found.replaced - exact) < reach).all(), (found.replaced, exact, reach)
    assert reach.max() < 0.05
    paper = paper_chance_replaced(offered, capacity=9)
    assert (np.abs(found.replaced - paper) > 4 * reach).all()
    every = np.mean(
        [chance_all_replaced(offered, stale=s, seen=60, capacity=9) for s in found.stale], axis=0
    )
    low, high = stats.binom.interval(1 - FALSE_FAILURE / 3, len(found.stale), every)
    hits = found.all_replaced * len(found.stale)
    assert ((low <= hits) & (hits <= high)).all(), (hits, low, high)


def test_a_buffer_that_is_not_full_replaces_nothing_until_it_is() -> None:
    assert chance_replaced([0, 5, 10], seen=5, capacity=10).tolist() == [0, 0, 1 / 3]
    zeros, ones = np.zeros(5, dtype=np.int64), np.ones(5, dtype=np.int64)
    assert simulated(zeros, ones, [5], 10, "reservoir", 2).replaced.tolist() == [0]


def test_a_balanced_buffer_replaces_no_more_than_it_must_to_stay_balanced() -> None:
    """Two classes of ten samples each make room for a third: about a third of each leaves, then the
    new class makes room for itself."""
    before, after = np.arange(40) % 2, np.full(4000, 2)
    found = simulated(before, after, [200, 4000], 20, "balanced", 40)
    assert found.replaced[-1] == pytest.approx(1 / 3, abs=0.06)
    assert found.all_replaced.tolist() == [0, 0]
    assert chance_replaced([4000], seen=40, capacity=20) > 0.98


def test_the_papers_two_formulas_disagree_on_one_sample_and_one_ends_at_the_capacity() -> None:
    assert paper_chance_all_replaced([5], stale=1, capacity=10) == pytest.approx(5 / 10)
    assert paper_chance_replaced([5], capacity=10) == pytest.approx(1 - 0.9**5)
    chances = paper_chance_all_replaced([4, 10, 11], stale=5, capacity=10)
    assert chances[:2].tolist() == pytest.approx([0, 1])
    assert np.isnan(chances[2])


def test_with_more_classes_one_class_is_replaced_more_easily_and_all_of_them_never() -> None:
    """Theorem 2's conclusion holds for all drifted classes together, since samples seen grow with
    them; for one class, of capacity / classes slots, both formulas say the opposite."""
    capacity, per_class = 60, 100
    one, paper_one, together = [], [], []
    for classes in (2, 3, 5, 10, 20, 30):
        seen, stale = classes * per_class, capacity // classes
        one.append(chance_all_replaced(per_class, stale=stale, seen=seen, capacity=capacity))
        paper_one.append(paper_chance_all_replaced(50, stale=stale, capacity=capacity))
        together.append(
            chance_all_replaced(per_class, stale=capacity, seen=seen, capacity=capacity)
        )
    assert (np.diff(one) > 0).all()
    assert (np.diff(paper_one) > 0).all()
    assert (np.diff(together) < 0).all()
    assert together[0] < 1e-30
