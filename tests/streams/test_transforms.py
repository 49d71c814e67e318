from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.ndimage
import scipy.stats
import torch
from torch import Tensor

from driftwise.streams import transforms
from driftwise.streams.transforms import SEVERITIES, TRANSFORMS, apply

SHAPES = [(0, 8, 8, 1), (3, 1, 1, 1), (2, 28, 28, 1), (2, 32, 32, 3), (2, 7, 5, 3), (2, 2, 3, 1)]
DETERMINISTIC = ("identity", "permutation", "rotation", "defocus-blur")
NOISES = ("gaussian-noise", "shot-noise", "speckle-noise")

# The published strengths, written out a second time on purpose.
PERMUTED_SHARE = {1: 0.10, 2: 0.25, 3: 0.50, 4: 0.75, 5: 1.0}
DEGREES = {1: 45, 2: 90, 3: 135, 4: 180, 5: 270}
RADIUS_AND_SIGMA = {1: (0.3, 0.4), 2: (0.4, 0.5), 3: (0.5, 0.6), 4: (1, 0.2), 5: (1.5, 0.1)}
GAUSSIAN_SIGMA = {1: 0.08, 2: 0.12, 3: 0.18, 4: 0.26, 5: 0.38}
SHOT_RATE = {1: 500, 2: 250, 3: 100, 4: 75, 5: 50}
SPECKLE_SIGMA = {1: 0.06, 2: 0.1, 3: 0.12, 4: 0.16, 5: 0.2}


def random_images(*shape: int) -> Tensor:
    values = np.random.RandomState(7).randint(0, 256, shape)
    return torch.from_numpy(values.astype(np.uint8))


def flat_images(level: int, num_pixels: int) -> Tensor:
    return torch.full((1, num_pixels, 1, 1), level, dtype=torch.uint8)


# The definitions, one image at a time


def literal_permutation(image: np.ndarray, share: float, seed: int, unit: str) -> np.ndarray:
    height, width, channels = image.shape
    x = image.copy() if unit == "row" else image.reshape(height * width, channels).copy()
    rs = np.random.RandomState(seed)
    s = rs.choice(len(x), int(share * len(x)), replace=False)
    x[s] = x[rs.permutation(s)]
    return x.reshape(image.shape)


def literal_rotation(image: np.ndarray, degrees: float) -> np.ndarray:
    """Before rounding: the source point of every output pixel, mixed from its four neighbours."""
    height, width, _ = image.shape
    centre_x, centre_y = width // 2, height // 2
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))

    def pixel(y: int, x: int) -> np.ndarray:
        inside: np.ndarray = image[min(max(y, 0), height - 1), min(max(x, 0), width - 1)]
        return inside.astype(np.float64)

    turned = np.zeros(image.shape)
    for y in range(height):
        for x in range(width):
            dx, dy = x - centre_x, y - centre_y
            source_x, source_y = centre_x + cos * dx - sin * dy, centre_y + sin * dx + cos * dy
            left, top = math.floor(source_x), math.floor(source_y)
            right_share, bottom_share = source_x - left, source_y - top
            turned[y, x] = (1 - bottom_share) * (
                (1 - right_share) * pixel(top, left) + right_share * pixel(top, left + 1)
            ) + bottom_share * (
                (1 - right_share) * pixel(top + 1, left) + right_share * pixel(top + 1, left + 1)
            )
    return turned


def literal_kernel(radius: float, alias_sigma: float) -> np.ndarray:
    grid = np.arange(-8, 9)
    x, y = np.meshgrid(grid, grid)
    disk = (x**2 + y**2 <= radius**2).astype(np.float64)
    disk /= disk.sum()
    weights = np.exp(-(np.array([-1.0, 0.0, 1.0]) ** 2) / (2 * alias_sigma**2))
    weights /= weights.sum()
    smoothed: np.ndarray = scipy.ndimage.correlate(disk, np.outer(weights, weights), mode="mirror")
    return smoothed


def literal_blur(image: np.ndarray, radius: float, alias_sigma: float) -> np.ndarray:
    """Before truncation: each channel correlated with the whole 17x17 kernel."""
    kernel = literal_kernel(radius, alias_sigma)
    channels = [
        scipy.ndimage.correlate(image[..., c].astype(np.float64), kernel, mode="mirror")
        for c in range(image.shape[2])
    ]
    return np.stack(channels, axis=-1)


def literal_noise(levels: np.ndarray, transform: str, severity: int) -> np.ndarray:
    """The noisy levels as floats, before clipping and truncation."""
    rs = np.random.RandomState(11)
    x = levels / 255
    if transform == "gaussian-noise":
        return (x + rs.normal(size=x.shape, scale=GAUSSIAN_SIGMA[severity])) * 255
    if transform == "speckle-noise":
        return (x + x * rs.normal(size=x.shape, scale=SPECKLE_SIGMA[severity])) * 255
    return rs.poisson(x * SHOT_RATE[severity]) * 255 / SHOT_RATE[severity]


# Known answers


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("unit", ["pixel", "row"])
@pytest.mark.parametrize("shape", SHAPES)
def test_permutation_is_the_published_draw(
    shape: tuple[int, ...], unit: str, severity: int
) -> None:
    images = random_images(*shape)
    drifted = apply(images, "permutation", severity, seed=42, unit=unit)
    for image, result in zip(images.numpy(), drifted.numpy(), strict=True):
        expected = literal_permutation(image, PERMUTED_SHARE[severity], 42, unit)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rotation_rounds_the_bilinear_mean_of_the_source_point(
    shape: tuple[int, ...], severity: int
) -> None:
    images = random_images(*shape)
    drifted = apply(images, "rotation", severity, seed=0)
    for image, result in zip(images.numpy(), drifted.numpy(), strict=True):
        expected = literal_rotation(image, DEGREES[severity])
        assert np.abs(result - expected).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_defocus_truncates_the_mirrored_correlation(shape: tuple[int, ...], severity: int) -> None:
    images = random_images(*shape)
    drifted = apply(images, "defocus-blur", severity, seed=0)
    for image, result in zip(images.numpy(), drifted.numpy(), strict=True):
        lost = literal_blur(image, *RADIUS_AND_SIGMA[severity]) - result
        assert lost.min() >= -2e-3
        assert lost.max() < 1


@pytest.mark.parametrize("severity", SEVERITIES)
def test_defocus_kernel_is_the_literal_one_without_its_empty_border(severity: int) -> None:
    kernel = transforms.defocus_kernel(*RADIUS_AND_SIGMA[severity])
    border = (17 - len(kernel)) // 2
    literal = literal_kernel(*RADIUS_AND_SIGMA[severity])
    np.testing.assert_allclose(np.pad(kernel, border), literal, atol=1e-15)
    assert kernel.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("transform", NOISES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_noise_has_the_distribution_of_its_clipped_and_truncated_definition(
    transform: str, severity: int
) -> None:
    for level in (1, 60, 128, 200, 255):
        num_pixels = 20_000
        raw = literal_noise(np.full(num_pixels, level), transform, severity)
        # counts / rate * 255 is often a whole number, which floats may miss from below
        literal = np.floor(np.clip(raw, 0, 255) + 1e-9).astype(int)
        drawn = apply(flat_images(level, num_pixels), transform, severity, seed=3).flatten().numpy()
        table = np.stack([np.bincount(v, minlength=256) for v in (drawn, literal)])
        common = table.sum(axis=0) >= 20
        rare = table[:, ~common].sum(axis=1, keepdims=True)
        pooled = np.hstack([table[:, common], rare])
        pooled = pooled[:, pooled.sum(axis=0) > 0]
        # 75 tests in all: a right noise fails one of them with chance 75e-6
        if pooled.shape[1] > 1:
            assert scipy.stats.chi2_contingency(pooled).pvalue > 1e-6


def test_noise_has_the_stated_mean_and_sigma_where_nothing_is_clipped() -> None:
    for transform, severity, level, sigma in (
        ("gaussian-noise", 1, 128, 255 * GAUSSIAN_SIGMA[1]),
        ("speckle-noise", 5, 120, 120 * SPECKLE_SIGMA[5]),
        ("speckle-noise", 5, 40, 40 * SPECKLE_SIGMA[5]),
    ):
        drifted = apply(flat_images(level, 50_000), transform, severity, seed=5).flatten()
        noise = drifted.numpy().astype(np.float64) - level
        # truncation takes half a level off
        assert noise.mean() == pytest.approx(-0.5, abs=5 * sigma / math.sqrt(len(noise)))
        assert noise.std() == pytest.approx(math.hypot(sigma, 1 / math.sqrt(12)), rel=0.016)


@pytest.mark.parametrize("transform", NOISES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_alias_table_holds_exactly_the_chances_of_the_noise(
    transform: str, severity: int
) -> None:
    keep, alias = np.divmod(transforms._alias_table(transform, severity).numpy(), 256)
    keep, alias = keep.reshape(256, 256), alias.reshape(256, 256)
    held = keep / 2**23 / 256
    np.add.at(held, (np.arange(256)[:, None], alias), (1 - keep / 2**23) / 256)
    np.testing.assert_allclose(
        held, transforms.noise_chances(transform, severity), rtol=0, atol=2**-24
    )


@pytest.mark.parametrize("severity", SEVERITIES)
def test_black_stays_black_under_shot_and_speckle_noise(severity: int) -> None:
    black = flat_images(0, 1000)
    for transform in ("shot-noise", "speckle-noise"):
        assert torch.equal(apply(black, transform, severity, seed=0), black)


def test_neighbouring_pixels_get_independent_noise() -> None:
    images = torch.full((4, 64, 64, 3), 128, dtype=torch.uint8)
    noise = apply(images, "gaussian-noise", 1, seed=0).double() - 127.5
    for dim in range(4):
        size = noise.shape[dim] - 1
        product = noise.narrow(dim, 0, size) * noise.narrow(dim, 1, size)
        assert abs(product.mean() / noise.var()) < 5 / math.sqrt(product.numel())


# Shape of the change


def test_a_quarter_turn_is_counter_clockwise() -> None:
    images = torch.zeros(1, 5, 5, 1, dtype=torch.uint8)
    images[0, 2, 3] = 255  # right of the centre (2, 2)
    expected = torch.zeros_like(images)
    expected[0, 1, 2] = 255  # above it
    assert torch.equal(apply(images, "rotation", 2, seed=0), expected)


def test_quarter_turns_of_an_odd_square_are_exact() -> None:
    images = random_images(2, 9, 9, 3)
    for severity, turns in ((2, 1), (4, 2), (5, 3)):
        exact = torch.rot90(images, turns, dims=(1, 2))
        assert torch.equal(apply(images, "rotation", severity, seed=0), exact)


def test_a_quarter_turn_of_an_even_square_shifts_by_a_pixel_and_replicates_the_edge() -> None:
    image = random_images(1, 4, 4, 1)
    half_turn = apply(image, "rotation", 4, seed=0)[0, :, :, 0]
    # about the pixel (2, 2): row y reads row 4 - y, and row 4 does not exist
    source = torch.tensor([3, 3, 2, 1])
    assert torch.equal(half_turn, image[0, :, :, 0][source][:, source])


def test_flat_images_survive_rotation_and_blur() -> None:
    flat = torch.arange(256, dtype=torch.uint8).view(256, 1, 1, 1).expand(256, 6, 5, 1)
    for severity in SEVERITIES:
        assert torch.equal(apply(flat, "rotation", severity, seed=0), flat)
        assert torch.equal(apply(flat, "defocus-blur", severity, seed=0), flat)


@pytest.mark.parametrize("unit", ["pixel", "row"])
def test_a_full_permutation_moves_nearly_all_positions_and_loses_none(unit: str) -> None:
    image = torch.arange(14 * 14, dtype=torch.uint8).view(1, 14, 14, 1)
    drifted = apply(image, "permutation", 5, seed=42, unit=unit)
    assert torch.equal(drifted.flatten().sort().values, image.flatten())
    assert (drifted != image).float().mean() > 0.75
    if unit == "row":  # rows of the image stay whole
        assert {tuple(r) for r in drifted[0, :, :, 0].tolist()} == {
            tuple(r) for r in image[0, :, :, 0].tolist()
        }


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("transform", DETERMINISTIC)
def test_every_channel_of_colour_changes_as_grey_does(transform: str, severity: int) -> None:
    colour = random_images(3, 12, 9, 3)
    drifted = apply(colour, transform, severity, seed=1)
    for c in range(3):
        grey = apply(colour[..., c : c + 1], transform, severity, seed=1)
        assert torch.equal(grey, drifted[..., c : c + 1])


@pytest.mark.parametrize("transform", [*NOISES, "defocus-blur", "permutation"])
def test_higher_severity_changes_more(transform: str) -> None:
    images = random_images(20, 16, 16, 1)
    changes = [
        (apply(images, transform, severity, seed=0).float() - images).abs().mean().item()
        for severity in SEVERITIES
    ]
    assert changes == sorted(changes)
    assert changes[0] > 0


# Contracts of every transform


every_transform = pytest.mark.parametrize("name", TRANSFORMS)


@pytest.fixture
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@every_transform
@pytest.mark.parametrize("shape", SHAPES)
def test_shape_and_dtype_stay_and_input_and_global_random_state_are_untouched(
    name: str, shape: tuple[int, ...]
) -> None:
    images, state = random_images(*shape), torch.get_rng_state()
    before = images.clone()
    drifted = apply(images, name, 3, seed=0)
    assert drifted.shape == images.shape
    assert drifted.dtype == torch.uint8
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


@every_transform
@pytest.mark.usefixtures("_threads_restored")
def test_seed_and_pixels_alone_decide(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(30, 32, 32, 3)  # large enough for torch to split the work
    torch.set_num_threads(1)
    whole = apply(images, name, 3, seed=2)
    torch.set_num_threads(2)
    assert torch.equal(apply(images, name, 3, seed=2), whole)
    strided = images.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert torch.equal(apply(strided, name, 3, seed=2), whole)
    # neither chunks nor the samples that follow change a sample
    assert torch.equal(apply(images[:4], name, 3, seed=2), whole[:4])
    for samples in (1, 7, 30):
        monkeypatch.setattr(transforms, "_CHUNK_SAMPLES", samples)
        assert torch.equal(apply(images, name, 3, seed=2), whole)
    other = torch.equal(apply(images, name, 3, seed=3), whole)
    assert other == (name in ("identity", "rotation", "defocus-blur"))


def test_identity_is_equal_at_every_severity() -> None:
    images = random_images(2, 8, 8, 3)
    for severity in SEVERITIES:
        assert torch.equal(apply(images, "identity", severity, seed=0), images)


ONE = random_images(1, 2, 2, 1)


@pytest.mark.parametrize(
    ("images", "name", "severity", "unit", "message"),
    [
        (ONE, "rotate", 1, "pixel", "unknown transform 'rotate'; did you mean 'rotation'"),
        (ONE, "permutation", 1, "rows", "unknown unit 'rows'; did you mean 'row'"),
        (ONE, "identity", 0, "pixel", "^severity must be 1 to 5; got 0$"),
        (ONE, "identity", 6, "pixel", "^severity must be 1 to 5; got 6$"),
        (ONE.float(), "rotation", 1, "pixel", r"uint8 \(samples, .*got float32 \(1, 2, 2, 1\)"),
        (ONE[0], "rotation", 1, "pixel", r"got uint8 \(2, 2, 1\)"),
        (ONE[:, :0], "rotation", 1, "pixel", r"got uint8 \(1, 0, 2, 1\)"),
    ],
)
def test_invalid_arguments_are_refused(
    images: Tensor, name: str, severity: int, unit: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        apply(images, name, severity, seed=0, unit=unit)
