"""A trained classifier asked about pictures.

Shape letters: N pictures, S side.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.families import ImageConfig, image_classifier
from tumorchain_jax.models.image.layers import STATISTICS
from tumorchain_jax.training.optimizer import STATISTICS as STATISTIC_PATHS
from tumorchain_jax.weights.classifier_folder import ClassifierFolder

BATCH = 64


class Classifier:
    """A classifier and its compiled program.

    Args:
        flips: average the probabilities of each picture and of its mirror image.
    """

    def __init__(self, folder: ClassifierFolder, flips: bool = False):
        self.folder, self.flips = folder, flips
        running = {path: leaf for path, leaf in folder.arrays.items() if _is_statistic(path)}
        params = {path: leaf for path, leaf in folder.arrays.items() if path not in running}
        self._variables = jax.device_put(
            {"params": unflatten(params), STATISTICS: unflatten(running)}
        )

    def scores(self, images: UInt8[np.ndarray, "N S S"]) -> Float[np.ndarray, " N"]:
        """Probability of the last class."""
        found = [
            self._batch(images[start : start + BATCH]) for start in range(0, len(images), BATCH)
        ]
        return np.concatenate(found).astype(float)

    def _batch(self, images: np.ndarray) -> np.ndarray:
        filled = np.zeros((BATCH, *images.shape[1:]), np.float32)
        filled[: len(images)] = images
        folder = self.folder
        program = _program(folder.model, folder.mean, folder.std)
        scores = program(self._variables, filled)
        if self.flips:
            scores = (scores + program(self._variables, filled[:, :, ::-1])) / 2
        return np.asarray(scores)[: len(images)]


@cache
def _program(model: ImageConfig, mean: tuple[float, ...], std: tuple[float, ...]) -> Any:
    """The compiled program, which all classifiers of a configuration share."""
    module = image_classifier(model).build(model)
    means, deviations = (np.array(each[: model.channels], np.float32) for each in (mean, std))

    def run(variables: dict, images: Float[Array, "N S S"]) -> Float[Array, " N"]:
        outputs: Any = module.apply(variables, (images[..., None] / 255 - means) / deviations)
        logits, _ = outputs
        return jax.nn.softmax(logits.astype(jnp.float32))[:, -1]

    return jax.jit(run)


def _is_statistic(path: str) -> bool:
    return STATISTIC_PATHS.fullmatch(f"/{path}") is not None
