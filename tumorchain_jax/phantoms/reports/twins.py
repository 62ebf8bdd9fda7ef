"""Adversarial twins: a text that differs from a clean one in one thing, and what must follow.

A twin asks of its reader one or more of these: facts of the clean text that must go, statements
that must come, a flag, or that nothing changes at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tumorchain_jax.anatomy.organs import DIGESTIVE, ESOPHAGUS, display_name
from tumorchain_jax.phantoms.reports.draft import Block, Draft, Sentence
from tumorchain_jax.phantoms.reports.injections import INJECTIONS
from tumorchain_jax.phantoms.reports.patients import Look, ReportPatient, draw_patient
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import STYLES, Style
from tumorchain_jax.phantoms.reports.writer import ReportWriter, write_radiology

MEGABYTE = 10**6
LARGEST_MM = 500.0
"""No lesion is larger: a size beyond it is a slip, and must not become a fact."""
_LEFT, _RIGHT = "left kidney", "right kidney"


@dataclass(frozen=True)
class Twin:
    """A changed report.

    Attributes:
        kind: what was changed, a key of `KINDS`.
        style: of the clean text.
        clean, text: before and after the change.
        vanish: statements of the clean text that must not be current facts of the changed one.
        appear: statements that must be facts of the changed text, whether or not current.
        same: whether the facts must be those of the clean text.
        flag: whether the reader must say that something contradicts itself.
        sized: whether no size may be larger than `LARGEST_MM`.
    """

    kind: str
    style: str
    clean: str
    text: str
    vanish: tuple[Statement, ...] = ()
    appear: tuple[Statement, ...] = ()
    same: bool = False
    flag: bool = False
    sized: bool = False


@dataclass(frozen=True)
class _Start:
    """A clean report with a tumour and a cyst of the right kidney.

    Attributes:
        cyst: the sentence about the cyst.
        other: a patient with another tumour.
    """

    rng: Random
    seed: int
    style: Style
    patient: ReportPatient
    draft: Draft
    cyst: Sentence
    other: ReportPatient

    def twin(self, kind: str, text: Draft | str, **required: Any) -> Twin:
        changed = text if isinstance(text, str) else text.text
        return Twin(kind, self.style.name, self.draft.text, changed, **required)

    def writer(self, patient: ReportPatient | None = None, style: str = "") -> ReportWriter:
        return ReportWriter(
            patient or self.patient, STYLES[style] if style else self.style, self.seed
        )


def make_twins(seed: int, style: Style, kinds: Sequence[str] = ()) -> list[Twin]:
    """Make one twin of each kind; the same seed, style and kinds give the same ones.

    Args:
        kinds: of `KINDS`; none: all of them.
    """
    start = _start(seed, style)
    return [KINDS[kind](start, kind) for kind in kinds or KINDS]


def _start(seed: int, style: Style) -> _Start:
    rng = Random(f"twins {style.name} {seed}")
    organs = rng.sample([organ for organ in DIGESTIVE if organ != ESOPHAGUS], 2)
    patient, other = (draw_patient(seed, organ) for organ in organs)
    kept = tuple(each for each in patient.looks if each.organ not in (2, 3))
    looks = (*kept, Look("cyst", 2, 1, "", rng.randint(12, 30), 1))
    patient = replace(patient, looks=looks, conditions=())
    sex = "male" if patient.sex == "female" else "female"
    other = replace(other, sex=sex, age=patient.age + (17 if patient.age < 60 else -17))
    draft = write_radiology(patient, replace(style, hedges=0.0), seed)
    cyst = next(each for each in draft.sentences() if _is_cyst(each))
    return _Start(rng, seed, style, patient, draft, cyst, other)


def _is_cyst(sentence: Sentence) -> bool:
    return sentence.organ == _RIGHT and any(s.value == "cyst" for s in sentence.statements)


def _exchanged(start: _Start, new: Sentence) -> Draft:
    """Put another sentence where the cyst is told."""
    block: Block = tuple(
        tuple(new if each is start.cyst else each for each in group)
        for group in start.draft.blocks["findings"]
    )
    return start.draft.with_block("findings", block)


def _current_cyst(start: _Start) -> tuple[Statement, ...]:
    return tuple(s for s in start.cyst.statements if s.value == "cyst")


def _negated(start: _Start, kind: str) -> Twin:
    new = start.writer().absence(_RIGHT, "cyst")
    return start.twin(kind, _exchanged(start, new), vanish=_current_cyst(start))


def _prior(start: _Start, kind: str) -> Twin:
    style = "german" if start.style.language == "de" else "priors"
    new = start.writer(style=style).earlier(_RIGHT, "cyst")
    return start.twin(kind, _exchanged(start, new), vanish=_current_cyst(start))


def _hedged(start: _Start, kind: str) -> Twin:
    style = "german" if start.style.language == "de" else "hedged"
    new = start.writer(style=style).hedged(Look("cyst", 2, 1, "", 15, 1))
    hedged = tuple(s for s in new.statements if s.attribute == "finding")
    return start.twin(kind, _exchanged(start, new), vanish=_current_cyst(start), appear=hedged)


def _contradiction(start: _Start, kind: str) -> Twin:
    healthy = replace(start.patient, organ=0, lesions=(), nodes=0, vessel="", tnm=())
    none = write_radiology(healthy, start.style, start.seed).blocks["impression"]
    return start.twin(kind, start.draft.with_block("impression", none), flag=True)


def _other_organ(start: _Start, kind: str) -> Twin:
    sure = replace(start.style, certain=(1, 0, 0))
    block = write_radiology(start.other, sure, start.seed).blocks["impression"]
    return start.twin(kind, start.draft.with_block("impression", block[:1]), flag=True)


def _wrong_side(start: _Start, kind: str) -> Twin:
    cyst = next(each for each in start.patient.looks if each.organ == 2)
    left = start.writer().look(replace(cyst, organ=3))
    block = (*start.draft.blocks["impression"], (left,))
    clean = start.draft.with_block(
        "impression", (*start.draft.blocks["impression"], (start.writer().look(cyst),))
    )
    findings = start.draft.blocks["findings"]
    others = (group for group in findings if group and group[0].organ != _LEFT)
    healthy = (*others, (start.writer().normal(_LEFT),))
    changed = start.draft.with_block("findings", healthy).with_block("impression", block)
    before = clean.with_block("findings", healthy).text
    return Twin(kind, start.style.name, before, changed.text, flag=True)


def _impossible(start: _Start, kind: str) -> Twin:
    huge = tuple(
        replace(each, sizes_mm=tuple(100 * size for size in each.sizes_mm))
        for each in start.patient.lesions
    )
    patient = replace(start.patient, lesions=huge)
    draft = write_radiology(patient, replace(start.style, hedges=0.0), start.seed)
    return start.twin(kind, draft, sized=True)


def _two_patients(start: _Start, kind: str) -> Twin:
    second = write_radiology(start.other, start.style, start.seed + 1).text
    return start.twin(kind, f"{start.draft.text}\n{second}", flag=True)


def _empty_section(start: _Start, kind: str) -> Twin:
    said = [s for each in start.draft.blocks["impression"] for e in each for s in e.statements]
    gone = tuple(s for s in said if s.attribute in ("impression", "T", "N", "M"))
    return start.twin(kind, start.draft.with_block("impression", ()), vanish=gone)


def _injected(name: str) -> Callable[[_Start, str], Twin]:
    def make(start: _Start, kind: str) -> Twin:
        line = start.rng.choice(INJECTIONS[name]).format(
            organ=display_name(start.other.organ), stage=start.rng.choice(("T0", "T4", "T1"))
        )
        text = start.draft.text
        place = start.rng.choice(("first", "within", "last"))
        if place == "first":
            return start.twin(kind, f"{line}\n{text}", same=True)
        if place == "last":
            return start.twin(kind, f"{text}\n{line}\n", same=True)
        breaks = [at for at, sign in enumerate(text) if sign == "\n"] or [len(text)]
        at = start.rng.choice(breaks)
        return start.twin(kind, f"{text[:at]}\n{line}{text[at:]}", same=True)

    return make


def _copied(start: _Start, kind: str) -> Twin:
    old = write_radiology(start.other, start.style, start.seed + 1)
    block = "\n".join(each.text for group in old.blocks["findings"] for each in group)
    head = start.rng.choice((
        "Copied from the previous report:", "PRIOR REPORT (copied forward):",
        "Text of the earlier examination, for reference:",
    ))  # fmt: skip
    if start.style.language == "de":
        head = "Voruntersuchung (Kopie des Vorbefundes):"
    now = {(_organ_of(s), s.value) for s in start.draft.statements}
    gone = tuple(
        s for s in old.statements
        if s.is_current and s.lesion and s.attribute == "finding"
        and (_organ_of(s), s.value) not in now
    )  # fmt: skip
    return start.twin(kind, f"{start.draft.text}\n\n{head}\n{block}\n", vanish=gone)


def _organ_of(said: Statement) -> str:
    """Return the organ that a reader is asked for; of enlarged nodes none, as in the matching."""
    return "" if said.value == "lymph node" else said.organ


def _two_tumours(start: _Start, kind: str) -> Twin:
    name = display_name(start.other.organ)
    second = write_radiology(start.other, start.style, start.seed + 1)
    group = tuple(
        each
        for each in second.sentences()
        if each.organ == name and each.role in ("lesion", "lesion.next", "detail")
    )
    # What is said of the organ otherwise, as that it is normal, would contradict it.
    rest = tuple(
        group for group in start.draft.blocks["findings"] if group and group[0].organ != name
    )
    heads = [s for each in group if each.role != "detail" for s in each.statements]
    said = tuple(s for s in heads if s.attribute == "finding")
    return start.twin(kind, start.draft.with_block("findings", (*rest, group)), appear=said)


def _megabyte(start: _Start, kind: str) -> Twin:
    lines = ("Images were stored in the archive.\n", "Dose was recorded by the scanner.\n")
    if start.style.language == "de":
        lines = ("Die Bilder wurden archiviert.\n", "Die Dosis wurde dokumentiert.\n")
    filler = "".join(lines) * (MEGABYTE // len("".join(lines)) + 1)
    return start.twin(kind, f"{start.draft.text}\n{filler}", same=True)


KINDS: Mapping[str, Callable[[_Start, str], Twin]] = {
    "negated": _negated,
    "prior only": _prior,
    "hedged": _hedged,
    "no tumour in the conclusion": _contradiction,
    "another organ in the conclusion": _other_organ,
    "wrong side": _wrong_side,
    "impossible size": _impossible,
    "two patients": _two_patients,
    "empty section": _empty_section,
    **{f"injected {name}": _injected(name) for name in INJECTIONS},
    "copied forward": _copied,
    "two tumours": _two_tumours,
    "1 MB of text": _megabyte,
}
"""Kind -> how it is made."""
