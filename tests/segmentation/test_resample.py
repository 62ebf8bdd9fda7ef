from collections.abc import Iterator

import numpy as np
import pytest
from scipy import ndimage

from tumorchain_jax.segmentation.plans import Spline
from tumorchain_jax.segmentation.resample import (
    Shape,
    Spacing,
    plan_resize,
    resample,
    resample_to_labels,
    resampled_shape,
)

CUBIC, LINEAR = Spline(3, 0, None, 3.0), Spline(1, 0, None, 3.0)
TOLERANCE = 1e-5
ONE = (1.0, 1.0, 1.0)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def zoomed(image: np.ndarray, shape: tuple[int, ...], order: int) -> np.ndarray:
    """skimage's `resize`, as nnU-Net calls it."""
    factors = [new / old for new, old in zip(shape, image.shape, strict=True)]
    out = ndimage.zoom(
        image.astype(np.float64), factors, order=order, mode="nearest", grid_mode=True
    )
    return np.clip(out, image.min(), image.max())


@pytest.mark.parametrize(
    ("shape", "new_shape"),
    [((9, 14, 11), (17, 14, 5)), ((100, 7, 70), (71, 19, 90)), ((1, 8, 8), (2, 5, 5))],
)
@pytest.mark.parametrize("spline", [CUBIC, LINEAR])
def test_scan_is_resampled_as_by_one_spline(shape: Shape, new_shape: Shape, spline: Spline) -> None:
    image = random(*shape)
    got = resample(image, plan_resize(spline, shape, new_shape, ONE, ONE))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, zoomed(image, new_shape, spline.order), atol=TOLERANCE)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_planes_far_apart_are_resampled_one_by_one(axis: int) -> None:
    image = np.moveaxis(random(6, 14, 12), 0, axis)
    spacing, new_spacing = [1.0, 1.0, 1.0], (1.5, 1.5, 1.5)
    spacing[axis] = 5.0
    shape = resampled_shape(image.shape, spacing, new_spacing)
    resize = plan_resize(CUBIC, image.shape, shape, spacing, new_spacing)
    assert resize.separate == axis
    planes = [
        zoomed(plane, tuple(np.delete(shape, axis)), 3) for plane in np.moveaxis(image, axis, 0)
    ]
    nearest = np.floor((np.arange(20) + 0.5) * 6 / 20).astype(int)
    expected = np.moveaxis(np.stack(planes)[nearest], 0, axis)
    np.testing.assert_allclose(resample(image, resize), expected, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("spline", "spacing", "new_spacing", "axis"),
    [
        (CUBIC, (3.0, 1.0, 1.0), ONE, None),  # no more than the threshold
        (CUBIC, (3.000001, 1.0, 1.0), ONE, None),  # but for a rounding error
        (CUBIC, (5.000001, 5.0, 1.0), ONE, None),
        (CUBIC, (3.1, 1.0, 1.0), ONE, 0),
        (CUBIC, ONE, (1.0, 1.0, 4.0), 2),  # the new spacing decides
        (CUBIC, (5.0, 5.0, 1.0), ONE, None),  # two coarse axes
        (Spline(3, 0, False, 3.0), (5.0, 1.0, 1.0), ONE, None),
        (Spline(3, 0, True, 3.0), (2.0, 1.0, 1.0), ONE, 0),
    ],
)
def test_when_an_axis_is_apart(
    spline: Spline, spacing: Spacing, new_spacing: Spacing, axis: int | None
) -> None:
    assert plan_resize(spline, (8, 8, 8), (9, 9, 9), spacing, new_spacing).separate == axis


def test_grid_that_stays_is_left_alone() -> None:
    image = random(4, 5, 6)
    resize = plan_resize(CUBIC, (4, 5, 6), (4, 5, 6), ONE, ONE)
    np.testing.assert_array_equal(resample(image, resize), image)


def test_tie_of_sizes_does_not_hang_on_rounding() -> None:
    """50.5 goes to the even number; spacings from an affine are off in the last digit."""
    for spacing in (3.0, 3.0000002, 2.9999998):
        assert resampled_shape((101, 101, 101), [spacing] * 3, (6.0, 6.0, 6.0)) == (50, 50, 50)


@pytest.mark.parametrize("planes", [1, 3, 20])
@pytest.mark.parametrize("new_shape", [(31, 9, 17), (7, 20, 9), (20, 8, 9)])
def test_labels_are_the_largest_of_resampled_logits(planes: int, new_shape: Shape) -> None:
    logits = random(4, 20, 8, 9)
    resize = plan_resize(LINEAR, (20, 8, 9), new_shape, ONE, ONE)
    each = [zoomed(values, new_shape, 1) for values in logits]
    got = resample_to_labels(slabs(logits, planes), resize)
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, np.argmax(each, axis=0))


def slabs(logits: np.ndarray, planes: int) -> Iterator[np.ndarray]:
    return (logits[:, at : at + planes] for at in range(0, logits.shape[1], planes))


def test_of_equal_logits_the_first_class_is_taken() -> None:
    logits = np.zeros((3, 2, 2, 2), np.float32)
    logits[1:, 0] = 1
    # Apart in float32, the same in float16.
    logits[2, 0] += 1e-4
    resize = plan_resize(LINEAR, (2, 2, 2), (2, 2, 2), ONE, ONE)
    assert resample_to_labels(iter([logits]), resize)[:, 0, 0].tolist() == [2, 0]
    assert resample_to_labels(iter([logits]), resize, half_precision=True)[:, 0, 0].tolist() == [
        1,
        0,
    ]


def test_many_classes_need_a_larger_type() -> None:
    logits = np.zeros((300, 1, 1, 2), np.float32)
    logits[299, ..., 1] = 1
    resize = plan_resize(LINEAR, (1, 1, 2), (1, 1, 2), ONE, ONE)
    got = resample_to_labels(iter([logits]), resize)
    assert got.dtype == np.uint16
    assert got.ravel().tolist() == [0, 299]
