"""The sections of a report: what it found, what it concludes, and what is no finding at all."""

import re
from dataclasses import dataclass
from typing import Literal

SectionKind = Literal[
    "findings", "impression", "pathology", "history", "technique", "comparison", "advice", "open"
]

# How reports head their sections, in small letters; German ones after English.
_NAMES: dict[SectionKind, str] = {
    "findings": (
        "findings?|ct findings?|imaging findings?|observations?|description|report|body|"
        "findings? in the abdomen(?: and pelvis)?|abdomen(?:/| and )pelvis|details?|result|results|"
        "radiologic(?:al)? findings|narrative|"
        "befunde?|ct-befund|beschreibung|befundbericht"
    ),
    "impression": (
        "impressions?|conclusions?|opinion|summary|assessment|interpretation|diagnos[ei]s|"
        "comment|comments|final impression|overall impression|radiological diagnosis|imp|"
        "overall|bottom line|key findings|final diagnosis|in summary|in conclusion|"
        "beurteilung|zusammenfassung|diagnosen?|zusammenfassende beurteilung"
    ),
    "pathology": (
        "patholog(?:y|ic|ical)(?: report| findings| stage| staging| diagnosis| result| results)?|"
        "histolog(?:y|ical)(?: report| findings| diagnosis)?|histopathology(?: report)?|"
        "surgical pathology(?: report)?|microscopic description|gross description|synoptic report|"
        "microscopy|macroscopy|biopsy result|"
        "pathologie|histologie|pathologischer befund|pathologiebefund"
    ),
    "history": (
        "(?:clinical |relevant |past |medical |patient )*(?:history|information|details|data|"
        "context|background|indications?|question|notes?|problem)|indications?(?: for (?:exam|"
        "examination|study))?|reason for (?:the )?(?:exam|examination|study|scan|request|referral)|"
        "clinical(?: indication)?|request|referral|pmh|hx|presenting complaint|history and "
        "indication|"
        "klinische (?:angaben|fragestellung|information)|anamnese|fragestellung|indikation|"
        "vorgeschichte|rechtfertigende indikation"
    ),
    "technique": (
        "techniques?|procedures?|protocol|methods?|examination|exam|study|scan technique|"
        "ct technique|contrast|contrast medium|modality|quality|image quality|study type|"
        "technik|untersuchungstechnik|methodik|untersuchung|kontrastmittel"
    ),
    "comparison": (
        "comparisons?|compared (?:with|to)|prior stud(?:y|ies)|previous stud(?:y|ies)|"
        "priors?|previous imaging|prior imaging|prior report|previous report|previous findings?|"
        "old report|copied from (?:the )?(?:prior|previous)(?: report)?|"
        "vergleich|voruntersuchung(?:en)?|vorbefund|voraufnahmen"
    ),
    "advice": (
        "recommendations?|advice|advised?|plan|follow[- ]?up|suggestions?|management|next steps?|"
        "empfehlung(?:en)?|procedere|prozedere|signed(?: by)?|electronically signed(?: by)?|"
        "dictated(?: by)?|reported by|disclaimer"
    ),
}
# The signs that Chinese reports have for it.
_CHINESE: dict[SectionKind, str] = {
    "findings": "检查所见|影像所见|影像学表现|影像表现|所见|ct所见|表现",
    "impression": "诊断意见|影像诊断|印象|结论|意见|诊断|诊断印象",
    "history": "临床资料|病史|临床诊断|检查目的",
    "technique": "检查方法|检查技术|扫描方法",
    "pathology": "病理|病理诊断|病理结果",
    "advice": "建议",
}
_KINDS = {f"h{n}": kind for n, kind in enumerate(k for names in (_NAMES, _CHINESE) for k in names)}
_BAR = r"[ \t]*[=\-_*#]{0,5}[ \t]*"
_ALL = "|".join(
    f"(?P<h{n}>{name})"
    for n, name in enumerate(v for names in (_NAMES, _CHINESE) for v in names.values())
)
# At the start of a line or after a sentence; with a colon or dash, or alone on its line.
_START = re.compile(r"^[ \t]*|[.;!?)\]>,。][ \t]*(?=\S)", re.MULTILINE)
_HEADING = re.compile(
    rf"{_BAR}\**(?:\d{{1,2}}[.)][ \t]*)?[\[<(]?(?:{_ALL})"
    r"[\])>]?\**[ \t]*(?:\([^()\n]{0,30}\)[ \t]*)?"
    rf"(?:[:=]|[ \t]-{{1,2}}[ \t]|{_BAR}$)",
    re.MULTILINE,
)


# Where no heading says that findings begin, these sections are no longer than a line or a sentence.
_ENDS: dict[SectionKind, re.Pattern[str]] = {
    "comparison": re.compile(r"(?<=\S)(?:[.;](?=\s)|\n)"),
    "technique": re.compile(r"(?<=\S)(?:[.;](?=\s)|\n)"),
    "history": re.compile(r"(?<=\S)[ ]*\n"),
}


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        kind: what it holds; `open` before the first heading.
        start, end: its characters after the heading.
    """

    kind: SectionKind
    start: int
    end: int


def split_sections(text: str) -> list[Section]:
    """Return the sections of a text in small letters, in order; the headings are left out."""
    headings: list[tuple[int, int, SectionKind]] = []
    for begin in _START.finditer(text):
        match = _HEADING.match(text, begin.end())
        if match and not (headings and match.start() < headings[-1][1]):
            headings.append((match.start(), match.end(), _kind(match)))
    starts: list[tuple[int, SectionKind]] = [(0, "open"), *((e, k) for _, e, k in headings)]
    ends = [*(start for start, _, _ in headings), len(text)]
    told = any(kind == "findings" for _, _, kind in headings)
    sections = []
    for (start, kind), end in zip(starts, ends, strict=True):
        stop = None if told else _ENDS.get(kind)
        cut = stop.search(text, start + 1, end) if stop and text[start:end].strip() else None
        if cut:
            sections += [Section(kind, start, cut.start()), Section("open", cut.start(), end)]
        else:
            sections.append(Section(kind, start, end))
    return [section for section in sections if text[section.start : section.end].strip()]


def _kind(match: re.Match[str]) -> SectionKind:
    return _KINDS[next(name for name in _KINDS if match[name] is not None)]
