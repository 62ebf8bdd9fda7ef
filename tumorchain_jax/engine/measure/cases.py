"""Cases of the engine made of test reports."""

from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.facts import SourceKind
from tumorchain_jax.phantoms.reports.cases import ReportCase


def case_of(report: ReportCase) -> Case:
    """Return the case that the engine's reader would make of a patient's reports."""
    texts: tuple[tuple[SourceKind, str], ...] = (
        ("radiology", report.radiology),
        ("pathology", report.pathology),
    )
    documents = tuple(Document(kind, text, report.style.language) for kind, text in texts if text)
    entry = report.entry()
    return Case(report.id, entry["patient"], tuple(entry["scans"]), documents, (),
                report.patient.sex, report.patient.age)  # fmt: skip


def text_case(text: str, language: str) -> Case:
    """Return a case of one radiology report."""
    return Case("twin", "twin", ("twin",), (Document("radiology", text, language),))
