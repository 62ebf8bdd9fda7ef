"""An answer as a DICOM Structured Report of template TID 1500.

Beside what the template asks for (the model as observer, volume and mean density of each segment)
it holds the question, the chain of reasoning and the answer as text. It is never marked as
verified.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydicom.dataset import Dataset
from pydicom.sr.coding import Code

from tumorchain_jax.core.text import printable
from tumorchain_jax.dicom.device import LONGEST, MANUFACTURER, UNVERIFIED, Device
from tumorchain_jax.dicom.organ_codes import organ_codes
from tumorchain_jax.dicom.segmentation import SERIES_NUMBER
from tumorchain_jax.dicom.source import SourceSeries

if TYPE_CHECKING:
    from highdicom.seg import Segmentation
    from highdicom.sr import (
        EnhancedSR,
        TextContentItem,
        VolumetricROIMeasurementsAndQualitativeEvaluations,
    )

DEVICE = Code("121007", "DCM", "Device")
COMMENT = Code("121106", "DCM", "Comment")
FINDINGS, FINDING = Code("121070", "DCM", "Findings"), Code("121071", "DCM", "Finding")
CONCLUSIONS, CONCLUSION = Code("121076", "DCM", "Conclusions"), Code("121077", "DCM", "Conclusion")
VOLUME, ML = Code("118565006", "SCT", "Volume"), Code("mL", "UCUM", "milliliter")
ATTENUATION = Code("112031", "DCM", "Attenuation Coefficient")
HU = Code("[hnsf'U]", "UCUM", "Hounsfield unit")
MEAN = Code("373098007", "SCT", "Mean")
PROCEDURE = Code("25045-6", "LN", "CT Unspecified body region")


@dataclass(frozen=True)
class Findings:
    """What a report says.

    Attributes:
        question: as it was asked.
        rounds: the text of each round of the chain.
        conclusion: the answer, or why there is none.
        remarks: what a reader must know.
        organs: volume (ml) and mean (HU) by TotalSegmentator's name of an organ.
    """

    question: str
    rounds: Sequence[str]
    conclusion: str
    remarks: Sequence[str]
    organs: Mapping[str, tuple[float, float]]


def structured_report(
    source: SourceSeries, found: Findings, device: Device, masks: "Segmentation | None" = None
) -> "EnhancedSR":
    """Make the SR of an answer about a series.

    Args:
        masks: the SEG whose segments are measured; None: nothing is.
    """
    import highdicom
    from highdicom import sr

    observer = sr.DeviceObserverIdentifyingAttributes(
        uid=device.uid,
        name=device.model[:LONGEST],
        manufacturer_name=MANUFACTURER,
        model_name=device.model[:LONGEST],
        serial_number=device.identity[:LONGEST],
    )
    context = sr.ObserverContext(sr.CodedConcept.from_code(DEVICE), observer)
    report = sr.MeasurementReport(
        sr.ObservationContext(observer_device_context=context),
        PROCEDURE,
        _measured(masks, found.organs) if masks is not None else None,
        title=Code("126000", "DCM", "Imaging Measurement Report"),
    )
    [root] = report
    remarks = [f"{UNVERIFIED}.", f"Question: {found.question}", *found.remarks]
    root.ContentSequence.extend(
        [
            *_texts(COMMENT, remarks),
            _section(FINDINGS, FINDING, found.rounds),
            _section(CONCLUSIONS, CONCLUSION, [found.conclusion]),
        ]
    )
    evidence: list[Dataset] = [*source.slices]
    if masks is not None:
        evidence.append(masks)
    return sr.EnhancedSR(
        evidence,
        root,
        series_instance_uid=highdicom.UID(),
        series_number=SERIES_NUMBER + 1,
        sop_instance_uid=highdicom.UID(),
        instance_number=1,
        is_complete=True,
        is_final=False,
        is_verified=False,
        series_description=f"Report ({UNVERIFIED})",
        **device.equipment(),
    )


def _section(title: Code, name: Code, texts: Iterable[str]) -> Dataset:
    from highdicom.sr import ContainerContentItem, ContentSequence

    section = ContainerContentItem(title, relationship_type="CONTAINS")
    section.ContentSequence = ContentSequence(_texts(name, texts))
    return section


def _texts(name: Code, texts: Iterable[str]) -> "list[TextContentItem]":
    from highdicom.sr import TextContentItem

    # Text of a model or a file: without control characters, and never empty.
    plain = (printable(text, allowed="\n").strip() or "(nothing)" for text in texts)
    return [TextContentItem(name, text, "CONTAINS") for text in plain]


def _measured(
    masks: "Segmentation", organs: Mapping[str, tuple[float, float]]
) -> "list[VolumetricROIMeasurementsAndQualitativeEvaluations]":
    from highdicom import UID, sr

    groups = []
    for segment in masks.SegmentSequence:
        volume, mean = organs[segment.SegmentLabel]
        code = organ_codes()[segment.SegmentLabel]
        site = sr.FindingSite(code.site or code.kind, laterality=code.side)
        groups.append(
            sr.VolumetricROIMeasurementsAndQualitativeEvaluations(
                sr.TrackingIdentifier(UID(), segment.SegmentLabel),
                referenced_segment=sr.ReferencedSegment.from_segmentation(
                    masks, segment.SegmentNumber
                ),
                finding_type=code.kind,
                finding_sites=[site],
                measurements=[
                    sr.Measurement(VOLUME, round(volume, 3), ML),
                    sr.Measurement(ATTENUATION, round(mean, 2), HU, derivation=MEAN),
                ],
            )
        )
    return groups
