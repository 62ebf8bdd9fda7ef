"""A prepared scan as the arrays that an exported PyTorch model reads."""

import numpy as np

from tumorchain_jax.inference.case import PreparedCase


def hub_inputs(case: PreparedCase) -> dict[str, np.ndarray]:
    """Return the arrays of `answer` in a repository that `convert export --hub` wrote.

    Returns:
        `image` float32 `[D, H, W]`; `roi_index` int32 and `roi_valid` bool `[O, S]`; of a model
        with crops `crops` float32 `[C, D, H, W]` and `crop_world` float32 `[C, 7]`.
    """
    arrays = {
        "image": np.asarray(case.scan.image, np.float32),
        "roi_index": np.asarray(case.cells.visual_index, np.int32),
        "roi_valid": np.asarray(case.cells.valid, bool),
    }
    if case.crops is not None:
        arrays["crops"] = np.asarray(case.crops.images, np.float32)
        arrays["crop_world"] = np.asarray(case.crops.world, np.float32)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}
