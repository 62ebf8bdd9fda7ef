"""What a report says of the patient: age, sex, risks, former treatment; what a pathologist sees."""

import re
from dataclasses import replace

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.judgement import judge
from tumorchain_jax.engine.text.notes import Notes
from tumorchain_jax.engine.text.places import Place
from tumorchain_jax.engine.text.setting import Setting

_AGE = re.compile(
    r"(?<![\w.,])(?P<age>\d{1,3})(?:[\s-]*(?:years?|yrs?|y\.?o\.?|y/o|yo|jahre?|y(?![a-z/]|"
    r"\s*/?\s*[mf]\b))(?:[\s-]*(?:old|"
    r"alt))?|"
    r"[\s-]*(?P<initial>y(?=\s*/?\s*[mf]\b)|(?=[mf]\b)|-?jährige[rn]?))(?![a-z])|"
    r"\bage[d]?[\s:=]{1,3}(?P<keyed>\d{1,3})\b|\balter\s*[:=]\s*(?P<alter>\d{1,3})\b|"
    r"(?P<chinese>\d{1,3})岁"
)
_SEX = re.compile(
    r"\b(?:sex|gender|geschlecht)\s*[:=]\s*(?P<key>female|male|f|m|w|weiblich|männlich)\b|"
    r"\b(?P<female>wom[ae]n|female|lady|mrs|ms|frau|patientin|weiblich)\b|"
    r"\b(?P<male>m[ae]n|male|gentleman|mr|herrn?|männlich\w*|patienten)\b|"
    r"\b\d{1,3}[\s-]*jährige(?P<ending>[rnms]?)\b(?:\s+(?P<noun>patientin|frau|patienten?|mann|"
    r"herrn?))?|"
    r"\b\d{1,3}\s+jahre\s+alte(?P<old>[rns]?)\b(?:\s+(?P<who>patientin|frau|patienten?|mann|"
    r"herrn?))?|"
    r"\b(?P<first>[mfw])\s?[,/]?\s?\d{1,3}\s?-?(?:y|j)\w*\b|"
    r"\b\d{1,3}[\s-]*(?:y(?:/?o|rs?|ears?)?(?:[\s-]*old)?[\s,/]*)?(?P<letter>[mfw])\b(?!\s*\d)"
)


_RELATIVE = re.compile(r"\b(?:mother|father|sister|brother|son|daughter|aunt|uncle|wife|husband)\b")
_SEX_KEY = re.compile(r"\b(?:sex|gender|geschlecht)\s*[:=]")


def read_patient(notes: Notes, setting: Setting) -> None:
    """Draft age, sex, history and histology."""
    sentence = setting.sentence
    for term in setting.terms:
        if term.kind != "history" and not any(e.kind == "history" for e in term.entries):
            continue
        context = judge(setting, term.start, term.end)
        if context is None or not context.patient:
            continue
        entry = next(e for e in term.entries if e.kind == "history")
        treated = entry.value in ("resection", "chemotherapy", "radiotherapy")
        if context.time == "hypothetical" and setting.section != "history":
            continue
        context = replace(context, time="prior" if treated else "current")
        place = Place(entry.organ)
        notes.draft(setting, "history", entry.value, term.start, term.end, context, place, None)
    for term in setting.terms:
        if setting.section == "pathology" and term.kind == "histology":
            context = judge(setting, term.start, term.end)
            if context and context.patient:
                notes.draft(
                    setting, "histology", term.value, term.start, term.end, context,
                    None, None, about="stage",
                )  # fmt: skip
    own = not _RELATIVE.search(setting.words)
    age = find_age(notes.text, sentence.start, sentence.end)
    if age and own and setting.section in ("open", "history", "findings", "pathology"):
        years, start, end = age
        notes.draft(setting, "age", str(years), start, end, Context(), Place(""), unit="years")
    sex = find_sex(notes.text, sentence.start, sentence.end)
    if sex and own and (setting.section in ("open", "history") or _SEX_KEY.search(setting.words)):
        notes.draft(setting, "sex", *sex, Context(), Place(""))


def find_age(text: str, start: int, end: int) -> tuple[int, int, int] | None:
    """Return the patient's age in years with its characters."""
    for match in _AGE.finditer(text, start, end):
        name = next(n for n in ("age", "keyed", "alter", "chinese") if match[n])
        after = text[match.end() : match.end() + 12].lstrip()
        is_span = after.startswith(
            ("ago", "before", "after", "history", "of", "previous", "earlier")
        )
        if not is_span and 0 < int(match[name]) <= 120:
            return int(match[name]), *match.span(name)
    return None


def find_sex(text: str, start: int, end: int) -> tuple[str, int, int] | None:
    """Return `female` or `male` with its characters."""
    match = _SEX.search(text, start, end)
    if not match:
        return None
    if match["ending"] is not None or match["old"] is not None:
        return _german_sex(match)
    name = next(n for n in ("key", "female", "male", "first", "letter") if match[n])
    word = match[name]
    if name in ("female", "male"):
        return name, *match.span(name)
    return "female" if word[0] in "fw" else "male", *match.span(name)


def _german_sex(match: re.Match[str]) -> tuple[str, int, int] | None:
    """Read the sex from the noun or the ending: "64-jähriger Patient", "71 Jahre alte Frau"."""
    noun = match["noun"] or match["who"]
    ending = match["ending"] if match["ending"] is not None else match["old"]
    if noun:
        return "female" if noun in ("patientin", "frau") else "male", *match.span()
    if ending in ("r", "s"):
        return "male", *match.span()
    return ("female", *match.span()) if ending == "" else None
