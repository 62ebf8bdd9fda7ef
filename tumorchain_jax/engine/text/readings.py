"""Readings that are not this examination's: revised ones, and what another examination showed.

"Previously described as metastasis, represents a haemangioma" names a metastasis that is none;
"colonoscopy showed a tumour" names one that this scan need not show.
"""

import re

_BEFORE = (
    r"(?:previous\w*|prior(?:ly)?|former\w*|initial\w*|earlier|original\w*|once|at first|first|"
    r"formerly|outside|external\w*|elsewhere|last (?:time|report|year|study|ct|scan)|in \d{4}|"
    r"zuvor|früher\w*|vormals|ursprünglich\w*|initial\w*|damals|vorbefund\w*|extern\w*|auswärt\w*)"
)
_READ = (
    r"(?:describ\w+|report\w*|interpret\w+|read|label+\w+|called|characteri[sz]\w+|classif\w+|"
    r"thought|felt|believed|considered|suspected|suggested|diagnosed|taken|termed|deemed|"
    r"regarded|mistaken|judged|assessed|favou?red|presumed|suspicio\w+|concern\w*|documented|"
    r"(?:vor)?beschrieben\w*|gedeutet\w*|gewertet\w*|interpretiert\w*|eingestuft\w*|"
    r"angesehen\w*|befundet\w*|bezeichnet\w*|verdächtig\w*|suspekt\w*)"
)
_AS = r"(?:as(?: being)?|to be|to represent|to reflect|for|of|like|als|auf|für)"
_WORDS = (
    r"(?:[\"'(]|\b(?:an?|the|likely|probabl[ey]|possibl[ey]|suspected|presumed|further|"
    r"eine?[nrms]?|der|die|das|hepatic|liver|new|small|large|solitary|\w+ic|\w+al)\b|\s)*"
)
_READ_AS = re.compile(
    rf"(?:\b{_BEFORE}\b[^.;]{{0,50}}?\b{_READ}\b[^.;,]{{0,40}}?\b{_AS}\s+{_WORDS}|"
    rf"\b{_READ}\b[^.;,]{{0,30}}?\b{_BEFORE}\b[^.;,]{{0,30}}?\b{_AS}\s+{_WORDS}|"
    rf"\b(?:was|were|had been|have been|has been|wurden?)\s+(?:\w+ly\s+)?{_READ}\s+"
    rf"(?:(?:in|on|at|by) [^.;,]{{0,40}}?)?(?:as|to be|to represent)\s+{_WORDS}|"
    rf"\b(?:was|were|been)\s+(?:\w+ly\s+)?(?:called|termed|label+ed|deemed|considered|named|"
    rf"thought)\s+{_WORDS}|"
    rf"\b{_BEFORE}\b[^.;]{{0,40}}?\bals\s+{_WORDS}|"
    rf"\b{_BEFORE}\s+(?:diagnosis|suspicion|impression|reading|diagnose|verdacht)\s+"
    rf"(?:of|auf|einer?)\s+{_WORDS})$"
)
_GERMAN_VERB_LAST = re.compile(rf"\bals\s+{_WORDS}$")
_GERMAN_READ = re.compile(
    r"\s*(?:vor)?(?:beschrieben|gedeutet|gewertet|interpretiert|eingestuft|befundet|bezeichnet)"
)
_IS = r"(?:is|are|was|were|has been|have been|had been|can be|ist|sind|wurde)"
_REVISED = re.compile(
    r"[^.;]{0,70}?(?:"
    rf"\b{_IS}\s+(?:now\s+|today\s+)?(?:in fact|actually|in reality|rather|instead|truly|"
    r"tatsächlich|vielmehr)\b|"
    r"\b(?:in fact|actually|in retrospect|retrospectively|on review|rückblickend)\b|"
    r"\b(?:turn(?:s|ed)? out|prov(?:es|ed|en)|has proven|shown) (?:to be|as)\b|"
    r"\bre-?(?:interpreted|classified|assigned|categori[sz]ed|labell?ed|read) (?:as|to)\b|"
    r"\b(?:revised|changed|corrected|downgraded|amended) to\b|"
    r"\bnow (?:read|regarded|considered|thought|interpreted|favou?red|classified|judged|seen|"
    r"felt|believed|diagnosed|recogni[sz]ed)\b|"
    rf"\b{_IS} (?:no longer|not) (?:regarded|considered|thought|suspicious|suspected|favou?red|"
    r"confirmed|substantiated|supported|reproduced|verified|borne out)\b|"
    r"\b(?:cannot|could not|can not) (?:now )?be (?:confirmed|substantiated|reproduced|verified)\b|"
    r"\b(?:not|nicht) (?:\w+ )?(?:confirmed|bestätigt|bestätigen|nachvollzogen)\b|"
    r"\bbestätigt sich nicht\b|\b(?:erweist|erwies|stellt) sich\b|"
    r"\bentspricht (?:tatsächlich|nun|jetzt|heute|eher|vielmehr)\b)"
)
_OTHER = (
    r"(?:colonoscop\w+|gastroscop\w+|endoscop\w+|esophagoscop\w+|oesophagoscop\w+|egd|ogd|eus|"
    r"ercp|mri|mrcp|mrt|magnetic resonance(?: imaging)?|ultraso\w+|sonograph\w+|sonogram|pet|"
    r"pet[-/ ]ct|scintigra\w+|bone scan|biops\w+|laparoscop\w+|x-?rays?|radiographs?|"
    r"endosonograph\w+|mammogra\w+|barium \w+|angiogra\w+|koloskop\w+|gastroskop\w+|endoskop\w+|"
    r"ösophagoskop\w+|ögd|sonografi\w+|biopsie\w*|szintigra\w+|laparoskop\w+)"
)
_SHOWS = (
    r"(?:show\w*|reveal\w*|demonstrat\w*|found|finds|identif\w+|report\w*|describ\w+|diagnos\w+|"
    r"detect\w+|saw|seen|suggest\w*|disclos\w+|proved|confirmed|prove[ns]?|yield\w*|zeigt\w*|"
    r"ergab\w*|fand\w*|beschr\w+|:)"
)
_SHOWN_BEFORE = re.compile(rf"\b{_OTHER}\b[^.;,]{{0,45}}?(?:\b|(?=:)){_SHOWS}[^.;]{{0,60}}$")
_SHOWN_AFTER = re.compile(
    rf"[^.;,]{{0,40}}?\b(?:on|at|by|in|from|during|bei|in der|im|laut|per|durch)\s+"
    rf"(?:(?:the|a|his|her|prior|previous|recent|recently|outside|outpatient|external|"
    rf"performed|der|dem|einer|externen?)\s+){{0,4}}{_OTHER}\b"
)
_CLAUSE = re.compile(r"[,;]|\b(?:but|although|though|while|whereas|however|aber|obwohl|während)\b")
_ON_THIS = re.compile(
    r"\b(?:again|also|now|today|currently|confirm\w*|correspond\w*|correlat\w*|match\w*|"
    r"as (?:seen|described|shown|known)|known from|seen here|redemonstrat\w*|re-demonstrat\w*|"
    r"equivalent|korrel\w*|entsprech\w*|auch|ebenfalls)\b"
)


def is_revised(sentence: str, start: int, end: int) -> bool:
    """Whether a name at `start` to `end` is an earlier reading that the sentence takes back.

    Args:
        sentence: in small letters.
        start, end: of the name, which is not a general one such as `lesion`.
    """
    before = sentence[max(0, start - 130) : start]
    if _READ_AS.search(before) or _REVISED.match(sentence, end):
        return True
    return bool(_GERMAN_VERB_LAST.search(before) and _GERMAN_READ.match(sentence, end))


def is_shown_elsewhere(sentence: str, start: int, end: int) -> bool:
    """Whether the sentence says that another examination shows what stands at `start` to `end`."""
    before = sentence[max(0, start - 130) : start]
    shown = _SHOWN_BEFORE.search(before) or _SHOWN_AFTER.match(sentence, end)
    if not shown:
        return False
    breaks = [match.end() for match in _CLAUSE.finditer(sentence, 0, start)]
    clause = sentence[max([0, *breaks]) : end + 60]
    return not _ON_THIS.search(clause)
