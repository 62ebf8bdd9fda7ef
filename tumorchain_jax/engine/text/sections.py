"""The sections of a report: what it found, what it concludes, and what is no finding at all."""

import re
from dataclasses import dataclass
from typing import Literal

SectionKind = Literal[
    "findings",
    "impression",
    "pathology",
    "history",
    "technique",
    "comparison",
    "previous",
    "advice",
    "open",
]

# How reports head their sections, in small letters; German ones after English.
_NAMES: dict[SectionKind, str] = {
    "findings": (
        "findings?|ct findings?|imaging findings?|observations?|description|report|body|"
        "findings? in the abdomen(?: and pelvis)?|abdomen(?:/| and )pelvis|details?|result|results|"
        "radiologic(?:al)? findings|narrative|"
        "f(?=:[ \t]*$)|"
        "befunde?|ct-befund|beschreibung|befundbericht"
    ),
    "impression": (
        "impressions?|conclusions?|opinion|summary|assessment|interpretation|diagnos[ei]s|"
        "comment|comments|final impression|overall impression|radiological diagnosis|imp|"
        "i(?=:[ \t]*$)|"
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
        "clinical(?: indication)?|request|referral|pmh|hx|cl|ci|ind|req|presenting complaint|"
        "history and "
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


_RUN_ON = re.compile(
    rf"(?:{_ALL})(?=[ \t]+(?!(?:of|is|are|was|were|and|with|in|on|to|as|may|suggest\w*|consistent|"
    r"compatible)\b)[\w(])"
)


_SUMMING_UP = re.compile(
    r"(?:in summary|in conclusion|to conclude|to summari[sz]e|summing up|in short|to sum up|"
    r"zusammenfassend|zusammengefasst|abschließend)(?:[,:]|\b)"
)
_REST = re.compile(r"[ \t]*\S")
_FIELD = re.compile(r"[ \t]*[a-z][\w /()-]{1,30}[:=][ \t]*\S[^\n]*$")
_EARLIER = r"(?:previous|prior|earlier|last|old|former|preceding|historical|outside)"
_TEXT = r"(?:report|findings|finding|result|text|dictation|note|record|impression)s?"
_STUDY = r"(?:stud(?:y|ies)|exam(?:ination)?s?|ct|scan|imaging)"
_REST_OF_NAME = (
    r"(?:[^\n:.;,(]|[.,](?=\s?\d)|,(?= (?:for|as|zur) \w+[ \t]*:)|\([^()\n]{0,80}\)){0,60}"
)
_RULE = r"[=\-_*#~\[(<]{0,12}[ \t]{0,3}"
# Headings of a text that is taken over from an earlier report; `line`: only the line after it is.
_PREVIOUS = re.compile(
    rf"(?:^[ \t>]{{0,12}}|(?<=[.;!?\])] )){_RULE}(?:"
    r"(?:\w+ ){0,4}?(?:copied|carried|pasted|imported|transferred|quoted|pulled|excerpt|copy|"
    rf"auto-?populated|brought)(?: (?:forward|over|in|automatically|unchanged))*(?: (?:from|"
    rf"of)\b{_REST_OF_NAME})?|"
    rf"(?:(?:from|text of|copy of|findings of|extract of|content of|in) )?(?:the )?{_EARLIER} "
    rf"(?:(?:ct|radiology|imaging|study|exam|abdominal) )?{_TEXT}\b{_REST_OF_NAME}|"
    rf"{_TEXT} (?:of|from) (?:the |an |a )?{_EARLIER}\b{_REST_OF_NAME}|"
    rf"(?P<dated>(?:{_TEXT}|{_STUDY}) (?:of|from|dated|on) {_REST_OF_NAME}\d{{4}}{_REST_OF_NAME})|"
    rf"previously (?:reported|described|documented|noted|dictated)|"
    rf"(?P<line>(?:(?:from|in|on) )?(?:the )?{_EARLIER} {_STUDY}\b{_REST_OF_NAME})|"
    rf"(?:vorbefund|text des vorbefund\w*|befund der voruntersuchung|"
    rf"aus dem vorbefund)\b{_REST_OF_NAME}"
    r"|(?P<copy>(?:this|the) (?:\w+ ){1,6}?(?:copied|carried|pasted|taken|quoted|"
    r"repeated)\b(?: \w+){0,10}(?=\.\s))"
    r")[ \t]{0,4}(?::[ \t]{0,4}[=\-_*#~\])>]{0,12}|[=\-_*#~\])>]{1,12}[ \t]{0,4}(?=\n|\w)|$|"
    r"(?<=\w)\.(?=\s(?(copy)|(?!))))",
    re.MULTILINE,
)
_PREVIOUS_END = re.compile(
    rf"^[ \t]{{0,12}}{_RULE}(?:end of (?:the )?(?:previous|prior|copied|earlier|old|"
    rf"quoted)\b[^\n]{{0,40}}|"
    r"end (?:of )?(?:copy|quote|excerpt)[^\n]{0,20}|(?:the )?(?:current|present|today'?s|new|this) "
    r"(?:study|exam(?:ination)?|report|ct|scan|findings?|imaging)[^\n:]{0,30}(?::|$)|"
    r"addendum\b[^\n:]{0,20}(?::|$))",
    re.MULTILINE,
)
_PROSE = re.compile(
    r"\b(?:show\w*|is|are|was|were|measur\w*|had|has|have|no|not|with|which|there|compar\w*|a|an)\b"
)
_BRIEF = re.compile(r"(?<![a-z])(?:hx|cl|ci|ind|req)[ \t]*:[ \t]*$")
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


def split_sections(text: str, cased: str = "") -> list[Section]:
    """Return the sections of a text in small letters, in order; the headings are left out.

    Args:
        text: of a report, in small letters.
        cased: the same text with its own letters; a heading in capitals needs no colon.
    """
    headings: list[tuple[int, int, SectionKind]] = []
    for begin in _START.finditer(text):
        match = _HEADING.match(text, begin.end()) or _run_on(text, begin, cased)
        if match and not (headings and match.start() < headings[-1][1]):
            if _is_field(text, match):
                continue
            headings.append((match.start(), match.end(), _kind(match)))
        elif match := _SUMMING_UP.match(text, begin.end()):
            headings.append((match.start(), match.end(), "impression"))
    headings = _without_previous(text, headings)
    starts: list[tuple[int, SectionKind]] = [(0, "open"), *((e, k) for _, e, k in headings)]
    ends = [*(start for start, _, _ in headings), len(text)]
    told = any(kind == "findings" for _, _, kind in headings)
    sections = []
    for (start, kind), end in zip(starts, ends, strict=True):
        brief = kind == "history" and _BRIEF.search(text, max(0, start - 8), start)
        stop = None if told else _ENDS.get("comparison" if brief else kind)
        cut = stop.search(text, start + 1, end) if stop and text[start:end].strip() else None
        if cut:
            sections += [Section(kind, start, cut.start()), Section("open", cut.start(), end)]
        else:
            sections.append(Section(kind, start, end))
    return [section for section in sections if text[section.start : section.end].strip()]


def _run_on(text: str, begin: re.Match[str], cased: str) -> re.Match[str] | None:
    """Return a heading in capitals at the begin of a line that its text follows without a mark."""
    match = _RUN_ON.match(text, begin.end()) if begin.group().strip() == "" else None
    if match is None or not cased[match.start() : match.end()].isupper():
        return None
    line = cased[match.end() : cased.find("\n", match.end()) % (len(cased) + 1)]
    # Where all is in capitals, few words are sure to be headings.
    sure = match.group() in ("findings", "impression", "conclusion")
    return match if sure or not line.isupper() else None


def _without_previous(
    text: str, headings: list[tuple[int, int, SectionKind]]
) -> list[tuple[int, int, SectionKind]]:
    """Take the headings within a text that is copied from an earlier report for its own."""
    taken = list(headings)
    for match in _PREVIOUS.finditer(text):
        if _is_wrapped_prose(text, match):
            continue
        before = any(at < match.start() and k in ("findings", "impression") for at, _, k in taken)
        if match["dated"] and not before:
            continue
        later = [heading for heading in taken if heading[0] >= match.end()]
        end = _previous_end(text, match.end(), len(text), before, bool(match["line"]), later)
        taken = [h for h in taken if not match.start() <= h[0] < end]
        taken.append((match.start(), match.end(), "previous"))
        if end < len(text) and not any(at == end for at, _, _ in taken):
            mark = _PREVIOUS_END.match(text, end)
            taken.append((end, mark.end() if mark else end, "open"))
        taken.sort()
    return taken


def _is_wrapped_prose(text: str, match: re.Match[str]) -> bool:
    """Whether a match without colon or rule is a line of running text that happens to break."""
    if match.group().rstrip()[-1:] in ":.=-_*#~])>":
        return False
    before = text[: match.start()].rstrip(" \t")[-1:]
    line = text[max(0, match.start() - 200) : match.start()].rstrip()[-1:]
    runs_on = (before != "\n" and before != "") or line not in ("", *".:;!?=-_*#]")
    return runs_on or bool(_PROSE.search(match.group()))


def _is_field(text: str, match: re.Match[str]) -> bool:
    """Whether `Finding: mass` is one of the fields of a form and no heading."""
    name = match.group().strip(" \t*=:-")
    if name not in ("finding", "result", "description") or not _REST.match(text, match.end()):
        return False
    line = text.rfind("\n", 0, match.start())
    return bool(_FIELD.match(text, text.rfind("\n", 0, max(line, 0)) + 1, max(line, 0)))


def _previous_end(
    text: str,
    start: int,
    end: int,
    before: bool,
    line: bool,
    later: list[tuple[int, int, SectionKind]],
) -> int:
    """Return where a text taken over from an earlier report ends.

    Args:
        text: in small letters.
        start, end: of what follows the heading that says so.
        before: the report's own findings or conclusion precede it.
        line: text on the line of the heading is all of it.
        later: the headings after it.
    """
    if mark := _PREVIOUS_END.search(text, start, end):
        return mark.start()
    if line and text[start:end].split("\n", 1)[0].strip():
        return text.find("\n", start, end) % (end + 1)
    if before:
        return end
    findings = [at for at, _, kind in later if kind == "findings"]
    if findings:
        return findings[-1]
    return next((at for at, _, kind in later if kind in ("impression", "pathology")), end)


def _kind(match: re.Match[str]) -> SectionKind:
    return _KINDS[next(name for name in _KINDS if match[name] is not None)]
