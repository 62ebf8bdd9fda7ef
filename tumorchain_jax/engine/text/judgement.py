"""Whether what a report's sentence names is there, beyond the cue phrases: forms, lists, follow-up.

`context.py` reads the cues of a sentence; here its place in the report counts too: a key with its
answer, a box that is not ticked, a question mark, a section that tells of the past.
"""

import re
from dataclasses import replace

from tumorchain_jax.engine.text.context import Context, read_context
from tumorchain_jax.engine.text.notes import tumours
from tumorchain_jax.engine.text.readings import is_revised, is_shown_elsewhere
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.vocabulary import Term

# The answer after a key such as "Lymph nodes:", or in the next cell of a table.
_ANSWER = re.compile(
    r"[^\S\n]*(?:\([^()]{0,30}\))?[^\S\n]*(?:[:=|?]|[^\S\n]-{1,2}[^\S\n])[^\S\n|]*(?:\*\*)?"
    r"(?P<no>(?:no|none|nil|absent|negative|neg|not|without|normal|unremarkable|clear|0|nein|"
    r"keine?[rns]?|nicht|unauffällig|ohne|n/?a|n\.a\.?|无|未见)(?![\w])|-{1,3}(?=[^\S\n]*(?:$|\||\n)))"
)
# "Abscess, hydronephrosis or thrombosis: not present", whatever else the list holds.
_LIST_ANSWERED = re.compile(
    r"\s*(?:,|/|&|\band\b|\bor\b|\bnor\b)(?P<rest>[^.;:|?\[\]]{1,300}?)[:=]\s*(?:not (?:present|"
    r"seen|identified|"
    r"visible|found|detected|evident|demonstrated|appreciated|visuali[sz]ed|noted|there)|none|nil|"
    r"absent|negative|no|nein|nicht (?:nachweisbar|vorhanden|sichtbar)|"
    r"keine?s?)\b[^,;.:\d]{0,30}\W*$"
)
_TELLS = re.compile(r"\d|\b(?:is|are|was|were|has|have|shows?|with|seen|present|measur\w+|but)\b")
_LISTED = re.compile(r"[\s,/&]*(?:(?:and|or|nor|und|oder)\s+)?")
# "Ascites NO", "nodes none": an answer without a mark.
_BARE_ANSWER = re.compile(r"\s+(?:no|none|nil|neg|negative|absent|nein)\s*(?=[,;.\n]|$)")
_LISTED_PLACE = re.compile(r"\s+(?:of|in|within|der|des|im)\s+(?:the\s+)?")
_UNTICKED = re.compile(r"(?:\[[ ]{0,3}\]|\u2610|\u25a1|\( {1,3}\))[^\S\n]*(?:\w+[^\S\n]+){0,2}$")
_TICKED = re.compile(r"(?:\[[x*]\]|\u2611|\u2612|\(x\))[^\S\n]*(?:\w+[^\S\n]+){0,2}$")
# The subject of a clause is denied: "neither kidney shows", "no segment contains".
_NOWHERE = re.compile(
    r"(?:^|[;,]|\band\b|\bund\b)\W*(?:neither\b[^.;]*\bnor\b|none of (?:the|these)|(?:neither|no|"
    r"not one|no other) (?:of the |of these )?(?:part|region|area|segment|organ|lobe|kidney|lung|"
    r"adrenal|gland|side|"
    r"ovary|one|of (?:these|them))\b|nowhere|in (?:none of|neither|no)|nothing (?:in|within)|"
    r"weder\b[^.;]*\bnoch\b|in keinem)"
)
_CONTRAST = re.compile(r"\b(?:but|however|while|whereas|although|except|aber|jedoch)\b|;")
# "Duct not dilated" is found as one term, but "not well defined" says what a border is like.
_DENIES_ITSELF = re.compile(
    r"\b(?:not|nicht) (?:dilated|widened|distended|thickened|enlarged|large)\b"
)
# What the patient comes without is not what the scan does not show.
_UNKNOWN = re.compile(r"\bno (?:known|(?:personal |past )?history of)\s+(?:\w+\s+){0,2}$")
_FITS = re.compile(
    r"(?:\b(?:consistent with|compatible with|in keeping with|in line with)|(?<!\w)c/w)\b[^.;,]*$"
)
_SUSPECTED = re.compile(r"\s*(?:is |are )?(?:suspected|presumed|favou?red)\b")
_IS_GONE = re.compile(
    r"[^.;,]{0,60}?\b(?:is|are|has|have|was|were) (?:now |since |completely |entirely |meanwhile |"
    r"in the "
    r"meantime )*(?:gone|resolved|disappeared|vanished|regressed completely)\b"
)
_ANSWERED_NO = re.compile(
    r"\s*(?:-{1,2}\s*)?(?:no|none|nein|negative|absent|not (?:seen|present|found|identified)|"
    r"kein\w*)\b(?:\s*(?:[.;,\n]|$))"
)
_OPERATED = re.compile(
    r"\b(?:status post|s/p|post-?operative(?:ly)?|after (?:\w+ ){0,3}(?:resection|surgery|"
    r"operation|removal|excision|ablation)|(?:resection|surgery|operation|operated(?: on)?|treated|"
    r"treatment|ablation|embolization|tace|rfa) (?:for|of|due to|because of)|"
    r"zustand nach|nach (?:\w+ ){0,2}(?:resektion|operation|op)|follow[- ]?up (?:of|for|after)|"
    r"known history)\b"
)
_PRESENTED = re.compile(
    r"\b\d{1,3}[\s-]*(?:years?|yrs?|yr|yo|y/o|y\.o\.|jährige\w*|jahre)(?![^\W\d_])|"
    r"\b(?:complain\w*(?: of)?|c/o|work-?up (?:of|for)|present(?:ed|s|ing)? with|referred (?:for|"
    r"with)|"
    r"suffer\w* from|reports|reported history|eval\w* (?:of|for)|seen for|known to have|klagt über|"
    r"abklärung (?:bei|von|einer))(?!\w)"
)
_SHOWN = re.compile(
    r"\d\s?-?(?:mm|cm)\b|\b(?:seen|shows?|visible|demonstrat\w+|measur\w+|identified|there is|"
    r"zeigt\w*|sichtbar)\b"
)
_ASKED = re.compile(r"\?\s{0,2}$")
_STILL = re.compile(
    r"\b(?:unchanged|stable|again|persist\w*|larger|smaller|bigger|increas\w+|decreas\w+|grown|"
    r"growing|progress\w+|regress\w+|now|currently|today|still|re-?demonstrated|remains?|constant|"
    r"similar in size|no (?:significant |relevant |interval )*change|not changed|unverändert|"
    r"größenprogredient|größenkonstant|aktuell|jetzt|weiterhin|stationär|shr[iau]nk\w*)\b"
)
_GONE = re.compile(
    r"\b(?:resolved|disappeared|no longer|gone|vanished|not (?:seen|visible|identified) anymore|"
    r"nicht mehr)\b"
)
_QUESTION = re.compile(
    r"\b(?:rule out|exclude|query|suspected|ausschluss|evaluat\w+|assess|staging)\b"
)


def judge(setting: Setting, start: int, end: int) -> Context | None:
    """Read how the report means what stands at its characters `start` to `end`.

    Returns:
        The context, or None where a box before it is not ticked: then it says nothing.
    """
    text, begin = setting.text, setting.sentence.start
    before = text[max(begin, start - 40) : start]
    if _UNTICKED.search(before):
        return None
    context = read_context(setting.words, start - begin, end - begin)
    if _TICKED.search(before):
        context = replace(context, polarity="present")
    if setting.denied or _DENIES_ITSELF.search(text, start, end):
        context = replace(context, polarity="absent")
    if (nowhere := _NOWHERE.search(setting.words, 0, end - begin)) and not _CONTRAST.search(
        setting.words, nowhere.start() + 1, start - begin
    ):
        context = replace(context, polarity="absent")
    answer = _ANSWER.match(text, _list_end(setting, end), setting.sentence.end)
    if answer and not _says_more(text[answer.start("no") : setting.sentence.end]):
        context = replace(context, polarity="absent")
    if _BARE_ANSWER.match(text, end, setting.sentence.end):
        context = replace(context, polarity="absent")
    listed = _LIST_ANSWERED.match(text, end, setting.sentence.end)
    if listed and not _TELLS.search(listed["rest"]):
        context = replace(context, polarity="absent")
    if setting.words.rstrip().endswith("?") and context.polarity == "present":
        answered = _ANSWERED_NO.match(text, setting.sentence.end)
        context = replace(context, polarity="absent") if answered else context
        context = context if answered else replace(context, certainty="possible")
    if _ASKED.search(before) and context.polarity == "present":
        context = replace(context, certainty="possible")
    if text[end : end + 2].strip()[:1] == "?" and context.polarity == "present":
        context = replace(context, certainty="possible")
    if _IS_GONE.match(text, end, setting.sentence.end):
        context = replace(context, polarity="absent", time="current")
    if _SUSPECTED.match(text, end) and context.certainty == "definite":
        context = replace(context, certainty="probable")
    context = _in_time(setting, context)
    if context.time == "current" and is_shown_elsewhere(setting.words, start - begin, end - begin):
        context = replace(context, time="prior")
    return context


def judge_name(setting: Setting, term: Term) -> Context | None:
    """Read how the report means a lesion or disease that it names; as `judge`.

    A name that is an earlier reading, which the sentence revises, is of the past.
    """
    context = judge(setting, term.start, term.end)
    if context is None or term.value == "mass":
        return context
    malignant = term.kind == "impression" or term.value == "tumour"
    before = setting.text[max(setting.sentence.start, term.start - 60) : term.start]
    if malignant and context.certainty == "definite" and _FITS.search(before):
        # Of a cyst it is a way to say that it is one, of a cancer to leave it to pathology.
        context = replace(context, certainty="probable")
    if context.polarity == "absent" and _UNKNOWN.search(before):
        return replace(context, time="prior")
    here = context.time == "current" and setting.section not in ("impression", "pathology")
    if here and context.polarity == "present" and _is_past(setting, term):
        return replace(context, time="prior")
    begin = setting.sentence.start
    if context.time == "current" and is_revised(
        setting.words, term.start - begin, term.end - begin
    ):
        context = replace(context, time="prior", polarity="present")
    return context


def _is_past(setting: Setting, term: Term) -> bool:
    """Whether a disease is the one that was operated on, or that the patient comes with."""
    words = setting.words
    if term.kind == "state":
        return bool(_PRESENTED.search(words)) and not _SHOWN.search(words)
    if term.kind not in ("impression", "lesion") or term.value not in tumours() | {"metastasis"}:
        return False
    treated = [
        entry.organ
        for other in setting.terms
        for entry in other.entries
        if (entry.kind, entry.value) == ("history", "resection")
    ]
    if treated:
        named = {place.organ for locus in setting.loci for place in locus.places}
        return not named or bool(named & {*treated}) or bool(_OPERATED.search(words))
    if _OPERATED.search(words):
        return True
    return bool(_PRESENTED.search(words)) and not _SHOWN.search(words)


def _list_end(setting: Setting, end: int) -> int:
    """Return where the list ends that goes on after a thing: "masses, cysts and stones: none"."""
    for term in setting.terms:
        if term.start >= end:
            place = term.kind in ("organ", "part", "weak part")
            if not _LISTED.fullmatch(setting.text, end, term.start) and not (
                place and _LISTED_PLACE.fullmatch(setting.text, end, term.start)
            ):
                break
            end = term.end
    return end


def _says_more(answer: str) -> bool:
    """Whether what begins like a `no` goes on to say something: "not enlarged, 2 cm mass"."""
    return bool(re.match(r"(?:no change|not changed|normal size|0[.,]\d|0 ?x|unchanged)", answer))


def _in_time(setting: Setting, context: Context) -> Context:
    words = setting.words
    asks = setting.section == "open" and _PRESENTED.search(words) and _QUESTION.search(words)
    if context.time == "current" and (setting.section == "history" or asks):
        asked = "?" in words or _QUESTION.search(words)
        return replace(context, time="hypothetical" if asked else "prior")
    if setting.section in ("comparison", "previous"):
        return replace(context, time="prior")
    if context.time == "prior":
        if _GONE.search(words):
            return replace(context, time="current", polarity="absent")
        if (
            context.polarity == "present"
            and _STILL.search(words)
            and re.search(r"\b(?:previous|prior|former|früher|vor)\w*", words)
        ):
            return replace(context, time="current")
    return context
