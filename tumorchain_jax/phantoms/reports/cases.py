"""Cases: the reports of a patient by one writer, with everything that they truly say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.reports.identifiers import Identifier, plant
from tumorchain_jax.phantoms.reports.pathology import write_pathology
from tumorchain_jax.phantoms.reports.patients import ReportPatient, draw_patient
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import STYLES, Style
from tumorchain_jax.phantoms.reports.writer import write_radiology


@dataclass(frozen=True)
class ReportCase:
    """A patient's reports.

    Attributes:
        id: of the case; the patient's name and that of the scan are made of the seed too.
        radiology, pathology: the texts; pathology is empty where no tissue was examined.
        statements: what both texts say.
        identifiers: of the radiology and of the pathology report, where they were asked for.
    """

    id: str
    style: Style
    patient: ReportPatient
    radiology: str
    pathology: str
    statements: tuple[Statement, ...]
    identifiers: tuple[tuple[Identifier, ...], tuple[Identifier, ...]] = ((), ())

    @property
    def files(self) -> tuple[str, str]:
        """Paths of the texts, relative to the case list; empty where there is none."""
        folder = f"texts/{self.patient.seed // 1000:06d}"
        pathology = f"{folder}/{self.id}.pathology.txt" if self.pathology else ""
        return f"{folder}/{self.id}.radiology.txt", pathology

    def entry(self) -> dict[str, Any]:
        """Return its line of the case list."""
        radiology, pathology = self.files
        name = f"phantom-{self.patient.seed}"
        return {
            "case": self.id,
            "patient": name,
            "scans": [name],
            "radiology": [radiology],
            "pathology": [pathology] if pathology else [],
            "language": self.style.language,
            "sex": self.patient.sex,
            "age": self.patient.age,
        }

    def truth(self) -> dict[str, Any]:
        """Return its line of the truth."""
        return {
            "case": self.id,
            "style": self.style.name,
            "held_out": self.style.held_out,
            "statements": [each.as_dict() for each in self.statements],
            "identifiers": {
                file: [[each.kind, each.start, each.end] for each in found]
                for file, found in zip(self.files, self.identifiers, strict=True)
                if file
            },
        }


def make_case(seed: int, style: Style, identifiers: bool = False) -> ReportCase:
    """Write the reports of the patient of a seed; the same seed and style give the same ones.

    Args:
        identifiers: put names, dates, numbers and addresses of nobody around the texts.
    """
    patient = draw_patient(seed)
    radiology = write_radiology(patient, style, seed)
    pathology = write_pathology(patient, style, seed)
    texts = (radiology.text, pathology.text if pathology else "")
    statements = radiology.statements + (pathology.statements if pathology else ())
    case = ReportCase(f"{style.name}-{seed}", style, patient, *texts, statements)
    return _with_identifiers(case) if identifiers else case


def _with_identifiers(case: ReportCase) -> ReportCase:
    language, seed = case.style.language, 2 * case.patient.seed
    radiology, found = plant(case.radiology, language, seed)
    pathology, more = plant(case.pathology, language, seed + 1) if case.pathology else ("", ())
    return replace(case, radiology=radiology, pathology=pathology, identifiers=(found, more))


def styles_named(names: Sequence[str]) -> list[Style]:
    """Return the styles of the names; of none all.

    Raises:
        InputError: there is no such style.
    """
    for name in names:
        if name not in STYLES:
            expected = f"one of {', '.join(STYLES)}"
            raise InputError("command line", "--style", name, expected, "choose one of them")
    return [STYLES[name] for name in names or STYLES]
