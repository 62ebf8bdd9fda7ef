"""What a linear probe reads of a scan: its visual tokens, pooled over lesions and organs.

Shape letters: N cells, M visual tokens, K embedding, F features, S digestive organs, L ROI slots.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.core.progress import progress
from tumorchain_jax.data.dataset import ModelScan
from tumorchain_jax.evaluation.ask import BATCH_SIZE
from tumorchain_jax.models.tumorchain.crops import Crops
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.reasoning.interleaved import encode
from tumorchain_jax.reasoning.organ_cells import coverage, organ_cells
from tumorchain_jax.weights.model_folder import ModelFolder


class Features(NamedTuple):
    """What probes read of a scan with a tumour.

    Attributes:
        lesion: of the true lesions and their organ, see `lesion_features`.
        organs: of each digestive organ, see `organ_features`.
        seen: which of these the model's grid shows.
        abnormal: probability of each by the model's organ classifier.
    """

    lesion: Float[np.ndarray, " F"]
    organs: Float[np.ndarray, "S F"]
    seen: Bool[np.ndarray, " S"]
    abnormal: Float[np.ndarray, " S"]


def compute_features(
    checkpoint: ModelFolder, scan: Callable[[int], ModelScan], organs: dict[int, int]
) -> dict[int, Features]:
    """Compute the features of each scan; `organs` maps a scan to its organ with a tumour."""
    config, params = checkpoint.model, jax.device_put(unflatten(checkpoint.params))
    model = TumorChain(config)
    features, order = {}, sorted(organs)
    batches = range(0, len(order), BATCH_SIZE)
    for first in progress(batches, len(batches), "probe", "batches of scans"):
        numbers = order[first : first + BATCH_SIZE]
        scans = [scan(number) for number in numbers]
        images = np.stack([each.image for each in scans]).astype(np.float32) / 255
        tables = [organ_cells(each.labels, config.roi, each.cropped) for each in scans]
        index = np.stack([table.visual_index for table in tables])
        valid = np.stack([table.valid for table in tables])
        crops = _crops(scans) if config.crop else None
        # A last batch that is not full is filled up: another size would compile again.
        inputs = (jnp.asarray(_filled(rows)) for rows in (images, index, valid))
        encoded = jax.device_get(encode(model, params, *inputs, crops))
        for number, each, *of_scan in zip(numbers, scans, *encoded, strict=False):
            tokens, chosen, is_chosen, abnormal = of_scan
            rows = [(tokens, chosen[organ], is_chosen[organ]) for organ in DIGESTIVE]
            features[number] = Features(
                lesion_features(tokens, each, organs[number], config.roi),
                np.stack([organ_features(*row) for row in rows]),
                is_chosen[list(DIGESTIVE)].any(axis=1),
                abnormal[list(DIGESTIVE)],
            )
    return features


def _filled(rows: np.ndarray) -> np.ndarray:
    return np.resize(rows, (BATCH_SIZE, *rows.shape[1:]))


def _crops(scans: Sequence[ModelScan]) -> Crops:
    images = np.stack([scan.crops for scan in scans]).astype(np.float32) / 255
    world = np.stack([scan.crop_world for scan in scans])
    return Crops(jnp.asarray(_filled(images)), jnp.asarray(_filled(world)))


def lesion_features(
    visual_tokens: Float[np.ndarray, "M K"], scan: ModelScan, organ: int, roi: RoiSpec
) -> Float[np.ndarray, " F"]:
    """Pool the tokens of the lesions' cells and of the organ's by mean and maximum; add the organ.

    The lesions' mean is weighted by their voxels. What the model's grid does not show is zero. Of
    an organ with a crop, cells and lesions are those of the crop, and with `roi_rank: evidence` its
    cells are all candidates.
    """
    table = organ_cells(scan.labels, roi, scan.cropped)
    view = int(table.view[organ])
    cells = roi.cell_tokens(visual_tokens, view)
    mask = scan.crop_lesions[view - 1] if view else scan.lesions
    lesions = coverage((mask > 0).astype(np.uint8), roi.grid)[1]
    own = np.bincount(table.cells[organ], table.valid[organ], len(cells))
    one_hot = np.equal(DIGESTIVE, organ)
    return np.concatenate([_pooled(cells, lesions), _pooled(cells, own), one_hot])


def organ_features(
    visual_tokens: Float[np.ndarray, "M K"],
    index: Int[np.ndarray, " L"],
    valid: Bool[np.ndarray, " L"],
) -> Float[np.ndarray, " F"]:
    """Pool an organ's ROI tokens, which the decoder reads as well, by mean and maximum."""
    return _pooled(visual_tokens[index], valid)


def _pooled(cells: Float[np.ndarray, "N K"], weights: np.ndarray) -> Float[np.ndarray, " 2*K"]:
    if not weights.any():
        return np.zeros(2 * cells.shape[1])
    mean = np.average(cells, axis=0, weights=weights)
    return np.concatenate([mean, cells[weights > 0].max(axis=0)])
