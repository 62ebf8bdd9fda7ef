"""Variants of pictures: the first as they are, odd ones mirrored, each the same when seen again."""

import numpy as np
from PIL import Image

from tumorchain_jax.training.vision_language.variants import GAIN, varied


def test_variants_are_mirrored_moved_and_made_lighter_alike_each_time() -> None:
    values = np.full((60, 80), 100, np.uint8)
    values[5:30, 5:30] = 200  # a bright block, left above
    picture = Image.fromarray(values)
    assert varied([picture], 3, 0) == [picture]
    kinds = [varied([picture, picture], 3, variant) for variant in range(1, 7)]
    for variant, (one, other) in enumerate(kinds, start=1):
        grey = np.asarray(one.convert("L"), float)
        assert one.size == picture.size
        left, right = grey[:, :40].mean(), grey[:, 40:].mean()
        assert (right > left) == bool(variant % 2)
        assert grey[:30].mean() > grey[30:].mean()  # never upside down
        middle = grey[28:32, 38:42].mean()
        assert 100 * (1 - GAIN) - 1 <= middle <= 100 * (1 + GAIN) + 1
        assert one.tobytes() != other.tobytes()  # each picture has draws of its own
        assert one.tobytes() == varied([picture], 3, variant)[0].tobytes()
    assert len({one.tobytes() for one, _ in kinds}) == len(kinds)
