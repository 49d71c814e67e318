"""Gradients against a row-by-row version; the laws of Theorems 1, 3 and 4."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from same_state import same
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from driftwise import rng
from driftwise.reproduce.gradient_alignment import (
    Pair,
    cosine,
    efficiency,
    efficiency_slope,
    mean_gradient,
    mixture_efficiency,
)

SHARES = torch.linspace(0, 1, 21, dtype=torch.float64)


def tiny_network() -> nn.Sequential:
    with rng.as_global(rng.fork(0, "network")):
        network = nn.Sequential(
            nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 2)
        )
        network.train()(torch.randn(8, 3))  # statistics that are not the first ones
    return network


def rows(count: int = 7) -> tuple[Tensor, Tensor]:
    generator = rng.fork(0, "rows")
    return torch.randn(count, 3, generator=generator), torch.arange(count) % 2


def vectors(**gradients: tuple[float, float]) -> Pair:
    return Pair.of(*(torch.tensor(values, dtype=torch.float64) for values in gradients.values()))


@pytest.mark.parametrize("batch_rows", [1, 3, 512])
def test_the_mean_gradient_is_the_mean_of_the_gradients_row_by_row(batch_rows: int) -> None:
    network, (x, y) = tiny_network(), rows()
    network.eval()
    slow = []
    for i in range(len(y)):
        network.zero_grad()
        cross_entropy(network(x[i : i + 1]), y[i : i + 1]).backward()  # type: ignore[no-untyped-call]
        slow.append(
            torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
        )
    fast = mean_gradient(network, x, y, batch_rows=batch_rows)
    torch.testing.assert_close(fast, torch.stack(slow).double().mean(dim=0), rtol=1e-5, atol=1e-7)


def test_measuring_changes_nothing() -> None:
    network, (x, y) = tiny_network(), rows()
    network[0].eval()  # modes of its own come back, too
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
    gradient = mean_gradient(network, *rows())
    assert gradient.shape == (2 + 4,)
    assert gradient[-4:].tolist() == [0, 0, 0, 0]


def test_no_rows_have_no_gradient() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        mean_gradient(nn.Linear(3, 2), torch.empty(0, 3), torch.empty(0, dtype=torch.int64))


def test_a_zero_gradient_has_no_direction() -> None:
    assert cosine(torch.zeros(3), torch.ones(3)) is None


def test_efficiency_is_the_cosine_of_the_pull_written_out() -> None:
    generator = rng.fork(1, "gradients")
    old, new = torch.randn(2, 9, generator=generator, dtype=torch.float64)
    pair = Pair.of(old, new)
    for a, paper, mixture in zip(
        SHARES.tolist(), efficiency(pair, SHARES), mixture_efficiency(pair, SHARES), strict=True
    ):
        assert float(paper) == pytest.approx(cosine(new + (1 - a) * old + a * new, new))
        assert float(mixture) == pytest.approx(cosine((1 - a) * old + a * new, new))


def test_all_rows_rewritten_means_full_efficiency() -> None:
    """Theorem 3."""
    pair = vectors(old=(-3.0, 0.5), new=(1.0, 0.0))
    assert float(efficiency(pair, SHARES)[-1]) == 1
    assert float(mixture_efficiency(pair, SHARES)[-1]) == 1


def test_the_slope_is_the_derivative() -> None:
    pair, step = vectors(old=(-0.7, 2.0), new=(1.0, 0.3)), 1e-6
    inner = SHARES[1:-1]
    rise = (efficiency(pair, inner + step) - efficiency(pair, inner - step)) / (2 * step)
    torch.testing.assert_close(efficiency_slope(pair, inner), rise, rtol=1e-6, atol=1e-8)


sizes = st.floats(0.1, 10)


@given(old=st.tuples(st.floats(-10, 10), sizes), new=st.tuples(sizes, st.just(0.0)))
def test_efficiency_never_falls_with_the_share(
    old: tuple[float, float], new: tuple[float, float]
) -> None:
    """Theorem 4, for all gradients that are not on one line; for the memory alone as well."""
    pair = vectors(old=old, new=new)
    for curve in (efficiency(pair, SHARES), mixture_efficiency(pair, SHARES)):
        assert (curve.diff() > -1e-9).all()
    assert (efficiency_slope(pair, SHARES) >= 0).all()


def test_the_second_inequality_of_theorem_4_fails_where_its_conclusion_holds() -> None:
    """The proof needs 1 / |pull| to rise. Orthogonal gradients of equal norm: |pull|^2 = 2 + 2 a^2,
    so it falls."""
    old, new = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    pulls = torch.outer(1 + SHARES, new) + torch.outer(1 - SHARES, old)
    torch.testing.assert_close(pulls.norm(dim=1) ** 2, 2 + 2 * SHARES**2)
    assert ((1 / pulls.norm(dim=1)).diff() < 0).all()
    assert (efficiency(Pair.of(old, new), SHARES).diff() > 0).all()


def test_the_first_inequality_of_theorem_4_fails_where_its_conclusion_holds() -> None:
    """The proof takes |new|^2 > old . new from a cosine below 1; a long old gradient defies it."""
    pair = vectors(old=(2.0, 1.0), new=(1.0, 0.0))
    assert pair.cosine is not None
    assert pair.cosine < 1
    assert pair.new_new - pair.old_new < 0
    assert (efficiency(pair, SHARES).diff() > 0).all()


def test_a_small_old_gradient_leaves_efficiency_near_one_whatever_its_direction() -> None:
    """Theorem 1 expects little efficiency at a = 0 after strong drift; norms decide, not angles."""
    learned = vectors(old=(0.0, 0.02), new=(1.0, 0.0))
    assert float(efficiency(learned, SHARES)[0]) > 0.999
    assert float(mixture_efficiency(learned, SHARES)[0]) == 0


def test_opposite_gradients_cancel_and_have_no_efficiency_there() -> None:
    pair = vectors(old=(-1.0, 0.0), new=(1.0, 0.0))
    assert efficiency(pair, torch.tensor([0.0])).isnan().all()
    assert efficiency(pair, torch.tensor([0.5])).tolist() == [1.0]
