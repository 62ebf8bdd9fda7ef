"""Patients to ask about: digital patients, painted real CTs, the test patients of a data set."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from grain.sources import ArrayRecordDataSource
from nibabel.orientations import axcodes2ornt

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import (
    ModelScan,
    check_preprocess,
    preprocess_values,
    read_manifest,
    read_records,
    shard_paths,
)
from tumorchain_jax.data.leaks import check_split
from tumorchain_jax.data.schema import Record
from tumorchain_jax.data.splits import read_split
from tumorchain_jax.evaluation.ask import Asked
from tumorchain_jax.inference.analyzer import Analyzer, PreparedCase
from tumorchain_jax.phantoms.dataset import model_scan
from tumorchain_jax.phantoms.patient import Patient, make_patient, paint_lesion
from tumorchain_jax.phantoms.records import largest, patient_records
from tumorchain_jax.phantoms.settings import (
    CONSPICUOUS,
    MIXED,
    REALISTIC,
    SIMPLE,
    SIMPLE_PATIENTS,
    PatientSettings,
)
from tumorchain_jax.reasoning.crops import ScanCrops
from tumorchain_jax.reasoning.organ_cells import organ_cells
from tumorchain_jax.scan.crops import place
from tumorchain_jax.scan.orientation import reorient
from tumorchain_jax.scan.preprocess import GridTransform, PreparedScan
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.weights.model_folder import ModelFolder
from tumorchain_jax.weights.scores import (
    CONSPICUOUS_DIGITAL,
    DIGITAL,
    MIXED_DIGITAL,
    REAL,
    REALISTIC_DIGITAL,
)
from tumorchain_jax.weights.seeds import Seeds

# A stored scan has no affine; its pictures assume a trunk of this size.
TRUNK_MM = (300.0, 360.0, 360.0)
# The axes of a digital patient, whose records take the last for its height.
UPRIGHT = axcodes2ornt(("R", "A", "S"))

DIGITAL_DOMAINS = {
    SIMPLE: DIGITAL,
    REALISTIC: REALISTIC_DIGITAL,
    CONSPICUOUS: CONSPICUOUS_DIGITAL,
    MIXED: MIXED_DIGITAL,
}
"""Under which name a score on digital patients of a kind is kept: each has its own."""


class Patients(ABC):
    """Patients by number, each made on request.

    Attributes:
        source: identifies these patients.
        domain: the kind of scan.
        seeds: first seed and number of digital patients; None for others.
    """

    source: str
    domain: str = DIGITAL
    seeds: Seeds | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Number of patients."""

    @abstractmethod
    def __getitem__(self, number: int) -> Asked:
        """A patient's scan and records."""

    @abstractmethod
    def truth(self, number: int) -> ModelScan:
        """The same scan with the maps of what is in it."""

    def tumour_mm(self, number: int) -> float | None:
        """Diameter of the largest tumour of a patient that was asked for; None if not compared."""
        return None

    def __iter__(self) -> Iterator[Asked]:
        """One patient after the other."""
        return map(self.__getitem__, range(len(self)))


class Phantoms(Patients):
    """Digital patients of `count` consecutive seeds.

    Args:
        predicted: their organ masks are the analyzer's segmenter's, not the true ones.
        settings: the kind of patients.
    """

    def __init__(
        self,
        analyzer: Analyzer,
        first_seed: int,
        count: int,
        predicted: bool = False,
        settings: PatientSettings = SIMPLE_PATIENTS,
    ):
        self.analyzer, self.predicted, self.settings = analyzer, predicted, settings
        self.first_seed, self.count = self.seeds = first_seed, count
        self.domain = DIGITAL_DOMAINS[settings.kind]
        self._tumour_mm: dict[int, float] = {}
        self.source = f"{count} digital patients from seed {first_seed} on"
        self.source += "".join(f", {name} {fact}" for name, fact in settings.facts().items())
        self.source += _whose_masks(analyzer, predicted)

    def __len__(self) -> int:
        """Number of patients."""
        return self.count

    def __getitem__(self, number: int) -> Asked:
        """Make a patient as data sets do."""
        return self.with_truth(number)[1]

    def with_truth(self, number: int) -> tuple[Patient, Asked]:
        """Make a patient, and what is asked about it."""
        patient = self._patient(number)
        if patient.lesions and self.settings.kind != SIMPLE:
            self._tumour_mm[number] = largest(patient.lesions).diameter_mm
        return patient, _asked(self.analyzer, patient, number, self.predicted)

    def tumour_mm(self, number: int) -> float | None:
        """Diameter of the largest tumour of a realistic patient that was asked for."""
        return self._tumour_mm.get(number)

    def truth(self, number: int) -> ModelScan:
        """The patient as a data set would store it."""
        return _stored(self._patient(number), self.analyzer.checkpoint)

    def _patient(self, number: int) -> Patient:
        seeds = range(self.first_seed, self.first_seed + self.count)
        return make_patient(seeds[number], self.settings)


class PaintedScans(Patients):
    """Real CTs, each with `count` synthetic tumours, one at a time, to measure generalisation.

    Questions are those of a digital patient but for the stage, as the nodes of the real patient are
    unknown. An organ without a painted tumour counts as healthy.

    Args:
        scans: each a CT and its TotalSegmentator v2 label map.
        predicted: the organ masks are the analyzer's segmenter's; the label map is only painted by.

    Raises:
        InputError: one of them cannot be read, or there is no room for a tumour.
    """

    domain = REAL

    def __init__(
        self,
        analyzer: Analyzer,
        scans: Sequence[tuple[Path, Path]],
        first_seed: int,
        count: int,
        predicted: bool = False,
    ):
        self.analyzer, self.first_seed, self.count = analyzer, first_seed, count
        self.predicted = predicted
        self._scans = []
        for ct_path, labels_path in scans:
            ct = read_ct(ct_path)
            labels = read_labels(labels_path, ct)
            self._scans.append((reorient(ct, UPRIGHT), reorient(labels, UPRIGHT)))
        names = ", ".join(f"{ct.name} with {labels.name}" for ct, labels in scans)
        self.source = f"{count} tumours from seed {first_seed} on in each of {names}"
        self.source += _whose_masks(analyzer, predicted)

    def __len__(self) -> int:
        """Number of painted tumours in all CTs."""
        return len(self._scans) * self.count

    def _painted(self, number: int) -> Patient:
        ct, labels = self._scans[number // self.count]
        return paint_lesion(ct, labels, self.first_seed + number % self.count)

    def __getitem__(self, number: int) -> Asked:
        """Paint a CT; the patient is named after its file and the seed."""
        patient = self._painted(number)
        case, records = _asked(self.analyzer, patient, number, self.predicted)
        name = f"{Path(patient.ct.source).name} with tumour {patient.seed}"
        return case, [replace(record, patient=name) for record in records]

    def truth(self, number: int) -> ModelScan:
        """The painted CT as a data set would store it."""
        return _stored(self._painted(number), self.analyzer.checkpoint)


def _stored(patient: Patient, checkpoint: ModelFolder) -> ModelScan:
    """The patient as a data set for this model would store it."""
    return model_scan(patient, checkpoint.preprocess, checkpoint.model.crop)


def _asked(analyzer: Analyzer, patient: Patient, number: int, predicted: bool) -> Asked:
    """Prepare the scan; the records are about what the true masks show, whichever are used.

    A scan that seems implausible is asked about too: leaving it out would flatter the score.
    """
    case = analyzer.prepare(patient.ct, patient.labels, force=True)
    visible = np.flatnonzero(case.cells.valid.any(axis=1)).tolist()
    if predicted:
        case = analyzer.prepare(patient.ct, force=True)
    return case, each_once(patient_records(patient, number, visible))


def each_once(records: Sequence[Record]) -> list[Record]:
    """Leave out what an earlier record asks in the same words about the same scan."""
    asked: dict[tuple[object, ...], Record] = {}
    for r in records:
        truth = r.answer.strip().casefold()
        asked.setdefault((r.patient, r.scan, r.subtask, r.question, r.choices, truth), r)
    return list(asked.values())


def _whose_masks(analyzer: Analyzer, predicted: bool) -> str:
    return f", organ masks by {analyzer.segmenter.name}" if predicted else ""


def made_patients(
    analyzer: Analyzer,
    real: Sequence[tuple[Path, Path]],
    tumours: int,
    phantoms: int,
    seed: int,
    predicted: bool = False,
    settings: PatientSettings = SIMPLE_PATIENTS,
) -> Patients:
    """Patients that are made for the evaluation: `tumours` in each `real` CT, else `phantoms`."""
    if real:
        return PaintedScans(analyzer, real, seed, tumours, predicted)
    return Phantoms(analyzer, seed, phantoms, predicted, settings)


class StoredPatients(Patients):
    """The test patients of a data set, one for each of their scans.

    Raises:
        InputError: the folder is no data set, has no records or no test patient, its split leaks,
            or its scans were not preprocessed as the checkpoint's were.
    """

    def __init__(self, analyzer: Analyzer, folder: Path):
        self.checkpoint = analyzer.checkpoint
        check_preprocessing(folder, self.checkpoint)
        self.domain = DIGITAL if "first_seed" in read_manifest(folder) else REAL
        self._records = _test_records(folder)
        self._scans = ArrayRecordDataSource(shard_paths(folder, "scans"))
        lines = "\n".join(record.to_json() for _, of_scan in self._records for record in of_scan)
        self.source = f"data set {hashlib.sha256(lines.encode()).hexdigest()}"

    def __len__(self) -> int:
        """Number of scans of test patients."""
        return len(self._records)

    def __getitem__(self, number: int) -> Asked:
        """A scan as it is stored, and its records."""
        records = self._records[number][1]
        return stored_case(self.truth(number), records[0].patient, self.checkpoint), records

    def truth(self, number: int) -> ModelScan:
        """The scan as it is stored."""
        return ModelScan.from_bytes(self._scans[self._records[number][0]])


def stored_case(scan: ModelScan, patient: str, checkpoint: ModelFolder) -> PreparedCase:
    """Turn a data set's scan into what `Analyzer.run` takes."""
    config, grid = checkpoint.model, checkpoint.preprocess.grid
    depth, height, width = np.divide(TRUNK_MM, grid)
    to_world = np.zeros((4, 4))
    to_world[(2, 1, 0, 3), (0, 1, 2, 3)] = depth, -height, -width, 1
    image, transform = scan.image.astype(np.float32) / 255, GridTransform(grid, to_world)
    return PreparedCase(
        patient,
        PreparedScan(image, transform, (), {}),
        organ_cells(scan.labels, config.roi, scan.cropped),
        (),
        {},
        crops=_stored_crops(scan, transform) if config.crop else None,
    )


def _stored_crops(scan: ModelScan, transform: GridTransform) -> ScanCrops:
    images, places = scan.crops.astype(np.float32) / 255, []
    for world in scan.crop_world:
        places.append(place(world, transform.grid, transform) if world[-1] else None)
    return ScanCrops(images, scan.crop_labels, scan.crop_world, tuple(places))


def _test_records(folder: Path) -> list[tuple[int, list[Record]]]:
    """The scans of test patients, and the records about each."""
    records = read_records(folder)
    if not records:
        raise InputError(folder, "records", "none", "one or more", "make or complete it first")
    check_split(folder)
    test = read_split(folder)["test"]
    by_scan: dict[int, list[Record]] = {}
    for record in records:
        if record.patient in test:
            by_scan.setdefault(record.scan, []).append(record)
    if not by_scan:
        found, hint = f"none of {len(records)} records", "make a larger data set"
        raise InputError(folder / "split.json", "test", found, "patients with records", hint)
    return [(scan, each_once(of_scan)) for scan, of_scan in sorted(by_scan.items())]


def check_preprocessing(folder: Path, checkpoint: ModelFolder) -> None:
    """Refuse a data set whose preprocessing is not the checkpoint's.

    Raises:
        InputError: it is no data set, or preprocessed in another way.
    """
    expected = preprocess_values(checkpoint.preprocess, checkpoint.model.crop)
    hint = "evaluate on a data set that was made for this model"
    check_preprocess(folder, read_manifest(folder), expected, hint)
