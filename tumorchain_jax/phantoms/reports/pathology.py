"""Pathology reports of the patients that were operated on: histology, size, nodes, T, N and M."""

from collections.abc import Callable
from random import Random

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.phantoms.reports.draft import Draft, Pen, Slot
from tumorchain_jax.phantoms.reports.lengths import Ruler
from tumorchain_jax.phantoms.reports.patients import ReportPatient
from tumorchain_jax.phantoms.reports.phrases import choose
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import Style


def write_pathology(patient: ReportPatient, style: Style, seed: int) -> Draft | None:
    """Write a report, or None where no tissue was examined."""
    if not patient.examined:
        return None
    rng = Random(f"pathology {style.name} {seed}")
    pen, ruler = Pen(style, rng, style.pathology), Ruler(style, rng)
    organ = display_name(patient.organ)
    lesion = patient.lesions[0]

    def said(attribute: str, value: str, unit: str = "", number: int = 0) -> Statement:
        part = lesion.part if number else ""
        return Statement(organ, part, number, attribute, value, unit, source="pathology")

    t, n, m = patient.pathology_tnm or ("", "", "")
    size = said("size", str(lesion.sizes_mm[0]), "mm", lesion.number).but(part="")
    slots: dict[str, Slot | Callable[[], Slot]] = {
        "surgery": Slot(pen.word(f"surgery.{organ}")),
        "size": lambda: Slot((ruler.extent(lesion.sizes_mm),), (size,)),
        "disease": Slot(
            pen.word(f"disease.{patient.disease}"), (said("histology", patient.disease),)
        ),
        "positive": Slot((str(patient.positive),)),
        "examined": Slot((str(patient.examined),)),
        "t": Slot((t,), (said("T", t),)),
        "n": Slot((n,), (said("N", n),)),
        "m": Slot((m,), (said("M", m),)),
    }
    role = "nodes" if patient.positive else "nodes.none"
    nodes = said("nodes", str(patient.positive))
    blocks = {
        "specimen": ((pen.say("specimen", slots),),),
        "gross": ((pen.say("gross", slots, organ=organ, lesion=1),),),
        "micro": ((pen.say("micro", slots),),),
        "diagnosis": ((pen.say("diagnosis", slots, organ=organ),),),
        "nodes": ((pen.say(role, slots, nodes, organ=organ),),),
        "stage": ((pen.say("stage", slots, organ=organ),),) if t else (),
    }
    page = choose(rng, rng.choice(pen.phrases["page"]))
    return Draft(style, patient, seed, page, blocks, {})
