"""Crops around organs: a lesion that the scan's grid misses is in them; without one, the scan."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import ORGANS, TOTALSEGMENTATOR, merge_labels
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.tumorchain.crops import CropConfig, Crops
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig, abstract_params
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.reasoning.crops import ScanCrops, cut_crops, place_crops, region_labels
from tumorchain_jax.reasoning.interleaved import Encoded, encode
from tumorchain_jax.reasoning.organ_cells import CropLabels, OrganCells, organ_cells
from tumorchain_jax.scan.crops import spacing_of
from tumorchain_jax.scan.preprocess import (
    PreparedScan,
    PreprocessConfig,
    preprocess,
    resample_labels,
)
from tumorchain_jax.scan.volume import Volume

LIVER, SPLEEN = ORGANS.index("liver"), ORGANS.index("spleen")
CONFIG = PreprocessConfig((8, 16, 16))
CROP = CropConfig(("liver", "lungs"), spacing_mm=3.0, margin_mm=0.0, candidate_margin_mm=0.0)


@pytest.fixture(scope="module")
def patient() -> Patient:
    return make_patient(2)


@pytest.fixture(scope="module")
def lens(tiny: TumorChainConfig) -> TumorChainConfig:
    return replace(tiny, roi_source="crop", crop=CROP)


def draw(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    return np.random.default_rng(sum(leaf.shape)).normal(0, 0.3, leaf.shape).astype(np.float32)


def look(
    ct: Volume, labels: Volume, model: TumorChainConfig
) -> tuple[PreparedScan, ScanCrops, OrganCells]:
    prepared = preprocess(ct, CONFIG)
    merged = merge_labels(resample_labels(labels, prepared.transform))
    assert model.crop is not None
    places = place_crops(ct, merged, prepared.transform, model.crop)
    crops = cut_crops(ct, labels, prepared.transform, places, CONFIG)
    return prepared, crops, organ_cells(merged, model.roi, CropLabels(crops.labels, crops.world))


def encoded(
    model: TumorChainConfig,
    params: dict,
    prepared: PreparedScan,
    crops: ScanCrops | None,
    cells: OrganCells,
) -> Encoded:
    batch = crops and Crops(jnp.asarray(crops.images)[None], jnp.asarray(crops.world)[None])
    table = jnp.asarray(cells.visual_index)[None], jnp.asarray(cells.valid)[None]
    return encode(TumorChain(model), params, jnp.asarray(prepared.image)[None], *table, batch)


def without(labels: Volume, organ: str) -> Volume:
    """The mask without an organ."""
    ids = [TOTALSEGMENTATOR.index(organ)]
    return replace(labels, voxels=np.where(np.isin(labels.voxels, ids), 0, labels.voxels))


def test_lesion_visible_in_a_crop_alone_reaches_the_roi_tokens(
    patient: Patient, lens: TumorChainConfig, tiny: TumorChainConfig
) -> None:
    """The scan's grid has a voxel every few centimetres: most small lesions lie between them."""
    prepared, crops, cells = look(patient.ct, patient.labels, lens)
    liver = np.argwhere(patient.labels.voxels == TOTALSEGMENTATOR.index("liver"))
    rng = np.random.default_rng(0)
    for centre in rng.permutation(liver)[:20]:
        voxels = patient.ct.voxels.copy()
        x, y, z = centre
        voxels[x - 6 : x + 7, y - 6 : y + 7, z - 1 : z + 2] = -60
        ill = replace(patient.ct, voxels=voxels)
        if np.array_equal(preprocess(ill, CONFIG).image, prepared.image):
            break
    else:
        pytest.fail("no lesion lies between the voxels of the scan's grid")
    prepared_ill, crops_ill, cells_ill = look(ill, patient.labels, lens)
    assert not np.array_equal(crops_ill.images[0], crops.images[0])
    np.testing.assert_array_equal(cells_ill.visual_index, cells.visual_index)

    def liver_tokens(model: TumorChainConfig, *seen: tuple) -> list[np.ndarray]:
        params = unflatten(jax.tree.map(draw, abstract_params(model)))
        found = [encoded(model, params, *each) for each in seen]
        return [np.asarray(each.visual_tokens[0, each.roi_index[0, LIVER]]) for each in found]

    healthy, ill_tokens = liver_tokens(
        lens, (prepared, crops, cells), (prepared_ill, crops_ill, cells_ill)
    )
    assert np.abs(healthy - ill_tokens).max() > 1e-3 * np.abs(healthy).max()
    merged = merge_labels(resample_labels(patient.labels, prepared.transform))
    plain = organ_cells(merged, tiny.roi)
    healthy, ill_tokens = liver_tokens(tiny, (prepared, None, plain), (prepared_ill, None, plain))
    np.testing.assert_array_equal(healthy, ill_tokens)


def test_organ_with_a_crop_takes_its_cells_from_it(
    patient: Patient, lens: TumorChainConfig
) -> None:
    _, crops, cells = look(patient.ct, patient.labels, lens)
    N, offset = lens.roi.cells, lens.roi.offset
    for label in np.flatnonzero(cells.valid.any(axis=1)).tolist():
        view = 1 if label == LIVER else 2 if label in region_labels("lungs") else 0
        assert cells.view[label] == view
        found = cells.visual_index[label][cells.valid[label]]
        assert ((offset + view * N <= found) & (found < offset + (view + 1) * N)).all()
        own = np.isin(crops.labels[view - 1], label) if view else None
        if own is not None:
            blocks = own.reshape(2, 4, 2, 8, 2, 8).any(axis=(1, 3, 5)).ravel()
            assert blocks[found - offset - view * N].all()
    assert cells.view[LIVER] == 1


def test_organ_that_the_mask_lacks_leaves_no_crop_and_others_as_they_are(
    patient: Patient, lens: TumorChainConfig, tiny: TumorChainConfig
) -> None:
    labels = without(patient.labels, "liver")
    prepared, crops, cells = look(patient.ct, labels, lens)
    assert crops.transforms[0] is None
    np.testing.assert_array_equal(crops.world[0], [1, 1, 1, 0, 0, 0, 0])
    assert not crops.images[0].any()
    assert not cells.valid[LIVER].any()
    merged = merge_labels(resample_labels(labels, prepared.transform))
    plain = organ_cells(merged, tiny.roi)
    np.testing.assert_array_equal(cells.visual_index[SPLEEN], plain.visual_index[SPLEEN])


def test_organ_that_its_crop_misses_falls_back_to_the_scan(
    patient: Patient, lens: TumorChainConfig, tiny: TumorChainConfig
) -> None:
    """A crop is there, yet none of the organ's voxels are in it."""
    prepared, crops, _ = look(patient.ct, patient.labels, lens)
    merged = merge_labels(resample_labels(patient.labels, prepared.transform))
    empty = CropLabels(np.zeros_like(crops.labels), crops.world)
    cells, plain = organ_cells(merged, lens.roi, empty), organ_cells(merged, tiny.roi)
    assert not cells.view.any()
    np.testing.assert_array_equal(cells.visual_index, plain.visual_index)
    np.testing.assert_array_equal(cells.valid, plain.valid)


def test_crop_holds_its_region_and_margin(patient: Patient) -> None:
    prepared = preprocess(patient.ct, PreprocessConfig((32, 48, 48)))
    merged = merge_labels(resample_labels(patient.labels, prepared.transform))
    config = CropConfig(("liver",), spacing_mm=3.0, margin_mm=20.0)
    (crop,) = place_crops(patient.ct, merged, prepared.transform, config)
    assert crop is not None
    assert spacing_of(crop).min() >= 3.0 - 1e-9
    organ = np.argwhere(merged == LIVER)
    low, high = np.quantile(organ, [0.02, 0.98], axis=0)
    index = (
        np.linalg.inv(crop.to_world)
        @ np.c_[prepared.transform.world(np.stack([low, high])), [1, 1]].T
    )
    edge_mm = index[:3].T * spacing_of(crop)
    assert (edge_mm[0] > 10).all()
    assert (edge_mm[1] < spacing_of(crop) * crop.grid - 10).all()


def test_jitter_depends_on_the_generator_alone(patient: Patient) -> None:
    prepared = preprocess(patient.ct, CONFIG)
    merged = merge_labels(resample_labels(patient.labels, prepared.transform))
    drawn = [
        place_crops(patient.ct, merged, prepared.transform, CROP, np.random.default_rng(seed))[0]
        for seed in (1, 1, 2)
    ]
    first, second, other = (crop.to_world for crop in drawn if crop)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, other)


def test_unknown_region_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"model\.crop\.regions: found knee") as error:
        region_labels("knee")
    assert "\n" not in str(error.value)
