"""A scan on the model's grid, and the manifest of a data set."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import merge_labels
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import SUBSTRUCTURES, ModelScan, read_manifest
from tumorchain_jax.phantoms.dataset import model_scan
from tumorchain_jax.phantoms.patient import Patient, make_patient
from tumorchain_jax.phantoms.records import abnormal_organs
from tumorchain_jax.scan.preprocess import PreprocessConfig, preprocess, resample_labels

CONFIG = PreprocessConfig((8, 16, 16))


@pytest.fixture(scope="module")
def patients() -> list[Patient]:
    return [make_patient(0)]


def test_model_scan_is_within_half_a_step_of_the_preprocessed_image(
    patients: list[Patient],
) -> None:
    scan = model_scan(patients[0], CONFIG)
    prepared = preprocess(patients[0].ct, CONFIG)
    labels = merge_labels(resample_labels(patients[0].labels, prepared.transform))
    assert (scan.image.dtype, scan.image.shape) == (np.uint8, CONFIG.grid)
    np.testing.assert_allclose(scan.image / 255, prepared.image, atol=0.5001 / 255)
    np.testing.assert_array_equal(scan.labels, labels)
    np.testing.assert_array_equal(scan.abnormal, abnormal_organs(patients[0]))


def test_lesion_numbers_and_finding_kinds_survive_resampling(patients: list[Patient]) -> None:
    labels = patients[0].labels
    everywhere = replace(labels, voxels=np.uint8(3 * np.isin(labels.voxels, (5, 20))))
    scan = model_scan(replace(patients[0], lesion_map=everywhere, other_map=everywhere), CONFIG)
    for numbers in (scan.lesions, scan.others):
        np.testing.assert_array_equal(numbers, np.where(np.isin(scan.labels, (5, 20)), 3, 0))


def test_substructures_lie_in_their_organs_and_have_their_names(patients: list[Patient]) -> None:
    scan = model_scan(patients[0], PreprocessConfig((32, 80, 80)))
    shown = np.unique(scan.parts[scan.parts > 0])
    assert len(shown) > 12
    for number in shown.tolist():
        (organ,) = (
            organ for organ, names in SEGMENTS.items() if SUBSTRUCTURES[number - 1] in names
        )
        assert (scan.labels[scan.parts == number] == organ).all()


def test_model_scan_bytes_round_trip(patients: list[Patient]) -> None:
    scan = model_scan(patients[0], CONFIG)
    back = ModelScan.from_bytes(scan.to_bytes())
    for name, array in vars(scan).items():
        found = getattr(back, name)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_folder_without_a_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dataset\.json: found none"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"count": 6}', "format: found none, expected 3"),
        ('{"format": 1}', "format: found 1, expected 3"),
        ('{"format":', "JSON: found 'Expecting value"),
        ("[1]", "JSON: found"),
        ("[" * 10**5, "JSON: found"),
    ],
)
def test_data_set_of_another_format_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(InputError, match=message) as error:
        read_manifest(tmp_path)
    assert "\n" not in str(error.value)
