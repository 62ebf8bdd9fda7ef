"""Whether a finding that a sentence names is present, certain, current and the patient's own.

The method is that of NegEx (Chapman et al. 2001) and ConText (Harkema et al. 2009): cue phrases
reach forward or backward within their clause, up to the next phrase that ends it (`cues.py`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tumorchain_jax.engine.facts import Certainty, Polarity, Time
from tumorchain_jax.engine.text.cues import Cue, find_cues, normal_form


@dataclass(frozen=True)
class Context:
    """How a sentence means a finding that it names.

    Attributes:
        polarity: whether the finding is there.
        certainty: how sure the writer is.
        time: of this examination, of an earlier one, or of a question or plan.
        patient: whether it is the patient's own finding, not that of a relative.
    """

    polarity: Polarity = "present"
    certainty: Certainty = "definite"
    time: Time = "current"
    patient: bool = True


# A clause of its own after a comma or "and": its subject, then a finite verb.
_VERB = (
    r"(?:is|are|was|were|has|have|had|shows?|measures?|measuring|demonstrates?|contains?|appears?|"
    r"remains?|reveals?|exhibits?|invades?|extends?)"
)
_NEW_CLAUSE = re.compile(
    rf"(?:,|;|\band\b)\s+(?:the\s+|there\s+|a\s+|"
    rf"an\s+)?(?:[\w-]+\s+){{0,4}}?{_VERB}\b(?!\s+(?:not|no)\b)",
    re.IGNORECASE,
)
_REACH = 250
"""Characters that a cue reaches at most; the head of a list reaches farther."""
_LIST_REACH = 700
_SEMICOLON = re.compile(r";|:\s|\.\s")
# What leads from a denying phrase to its list: "not seen in the liver: a, b", "absent are a, b".
_LEAD = (
    r"[\s)]*(?:\w+(?:ed|ing|en|ble|nt|wn|bar|en|t)\b[\s)]*)?"
    r"(?:(?:in|within|of|on|at|for|from|the|any|these|following|im|in der|am)\b[^.;:,|\n]{0,50}?)?"
)
_LIST_HEAD = re.compile(rf"{_LEAD}\s*(?:\(\s*)?(?::|\s-{{1,2}}\s)")
_LIST_VERB = re.compile(rf"{_LEAD}\s*\b(?:is|are|was|were|sind|ist)\s")
_ANSWERS = frozenset({"no", "none", "nil", "negative", "unlikely", "normal"})
_LIST_END = re.compile(
    r":\s|\.\s|\b(?:present|yes|seen|found|positive|visible|noted|normal|measur\w+)\b|\|",
)
# An item that cannot belong to a list of what is not there.
_NO_ITEM = re.compile(
    rf"\b{_VERB}\b|:|\d\s?(?:mm|cm)\b|\b(?:present|yes|seen|found|positive|visible|noted|normal|"
    r"unremarkable|known|previous\w*|unauffällig\w*|zeigt)\b|\[|\|",
)
_LEADS_ON = re.compile(
    r"(?:^|[.:;,(-]|\b(?:is|are|was|were|with|shows?|has|have|see|find|of|but|and))\W*$"
)
_OPEN_END = re.compile(
    r"(?:\s+(?:any|the|of|following|for|these|findings?|signs?|evidence))*\s*[:-]?\s*$"
)
# A thing of its own after a denied one: "no ascites and a 3 cm mass is seen".
_OWN_THING = re.compile(
    r"(?:,|;|\band\b)\s+(?:also\s+)?(?:an?|one|two|three|four|five|several|multiple|"
    r"\d+)\s[^,;]{0,70}$"
)
# "Without other abnormality than two cysts": these are there.
_OTHER_THAN = re.compile(
    r"\b(?:other|else|more|further|different|additional|andere\w*|weitere\w*)\b[^,;.]{0,50}?"
    r"\b(?:than|als|außer)\b"
)
_THE_REST = re.compile(
    r"\b(?:(?:the|all|die|alle) (?:other|rest|remain|übrig|ander|rest)\w*|others)\b"
)
_IS_THERE = re.compile(
    r"[^,;.]{0,40}?\b(?:is|are|was|were)\s+(?:seen|present|noted|visible|identified|found|located|"
    r"visuali[sz]ed|demonstrated|detected|again|also|now)\b"
)
# A judgement of its own after a denied thing: "no washout, likely haemangioma".
_NEW_JUDGEMENT = re.compile(
    r"(?:[,(]|\s-{1,2}\s|\b(?:but|thus|therefore|hence|so|and|daher|somit|und|also)\b)\s*"
    r"(?:(?:this|these|which|it|they|thus|therefore|hence|so|most|more|very|overall|is|are|and|"
    r"all|rather|also|findings?|features?|lesion|appearances?|somit|daher|also|am)\s+){0,4}"
    r"(?:likely|probabl[ey]|presum\w+|suggest\w*|favou?r\w*|consistent with|compatible with|"
    r"in keeping with|in line with|typical (?:of|for)|characteristic (?:of|for)|diagnostic of|"
    r"represent\w*|suspicious (?:for|of)|suspected|possibl[ey]|perhaps|indicat\w+|"
    r"(?:may|could|might) (?:be|represent|reflect)|thought to|felt to|"
    r"ehesten|wahrscheinlich|vermutlich|vereinbar mit|passend zu|verdächtig auf|möglicherweise|"
    r"v\. ?a\.|v\.?d\.? auf|im sinne|entsprechend|dd)(?!\w)",
    re.IGNORECASE,
)
_MEASURED = re.compile(r"\d\s?-?(?:mm|cm)\b")
_ALTERNATIVE = re.compile(r"\b(?:or|nor|oder|noch)\b")
# "Formerly 21 mm, the mass is 34 mm": the past ends with its size.
_ENDED_SIZE = re.compile(r"\d\s?-?(?:mm|cm)\b[^,;]*[,;]")
_COPULA = re.compile(
    r"\b(?:is|are|was|were|has been|have been)(?:\s+(?:all|both|each|also|likewise|either|"
    r"\w+ly))*\s*$"
)
_JOINED = re.compile(r"\b(?:and|or|nor|und|oder|sowie|all|both)\b|[/&]")


def read_context(sentence: str, start: int, end: int) -> Context:
    """Read what a sentence says of the finding at its characters `start` to `end`."""
    context = Context()
    cues = list(_reaching(sentence, start, end))
    # "Likely a cyst, enhancement not seen": what follows is about another thing.
    hedged = any(cue.meaning in ("probable", "possible") and cue.end <= start for cue in cues)
    denial = min((c.end for c in cues if c.meaning == "absent" and c.end <= start), default=end)
    for cue in cues:
        if cue.meaning in ("probable", "possible") and denial <= cue.start < start:
            continue  # "nothing here suggests a mass": the doubt is denied with the mass
        if hedged and cue.meaning == "absent" and "," in sentence[end : max(end, cue.start)]:
            continue
        match cue.meaning:
            case "absent":
                context = replace(context, polarity="absent")
            case "probable" if context.certainty == "definite":
                context = replace(context, certainty="probable")
            case "possible":
                context = replace(context, certainty="possible")
            case "prior" | "hypothetical" as time:
                context = replace(context, time=time)
            case "other":
                context = replace(context, patient=False)
    return context


def _reaching(sentence: str, start: int, end: int) -> Iterator[Cue]:
    """Yield the cues that reach the characters `start` to `end`."""
    low, high = start - _LIST_REACH, end + _REACH
    cues = [
        cue for cue in find_cues(sentence) if low <= cue.end <= start or end <= cue.start <= high
    ]
    stops = [cue for cue in cues if cue.meaning == "stop"]
    for cue in cues:
        if cue.meaning in ("stop", "plain"):
            continue
        between = (cue.end, start) if cue.end <= start else (end, cue.start)
        if any(between[0] <= stop.start and stop.end <= between[1] for stop in stops):
            continue
        text = sentence[slice(*between)]
        if cue.end <= start and _leaves_brackets(text):
            continue
        if cue.end <= start:
            near = cue.reach in ("forward", "both") and len(text) <= _REACH
            if near and not _SEMICOLON.search(text) and not _NEW_CLAUSE.search(text):
                own = cue.meaning == "absent" and (
                    _is_own(sentence, text, end) or bool(_NEW_JUDGEMENT.search(text))
                )
                if not own and not (cue.meaning == "prior" and _ENDED_SIZE.search(text)):
                    yield cue
            elif cue.meaning == "absent" and (head := _list_head(sentence, cue)):
                rest = sentence[head:start] if head <= start else ":"
                over = _LIST_END.search(rest) or _NEW_CLAUSE.search(rest)
                if not over and not _NEW_JUDGEMENT.search(rest):
                    yield cue
        elif cue.reach in ("backward", "both") and _reaches_back(text):
            yield cue


def _leaves_brackets(text: str) -> bool:
    """Whether a text closes a bracket that it does not open."""
    closed = text.find(")")
    return closed >= 0 and "(" not in text[:closed]


def _is_own(sentence: str, between: str, end: int) -> bool:
    """Whether what follows a denied thing is told as a thing of its own."""
    if _OTHER_THAN.search(between):
        return True
    own = _OWN_THING.search(between)
    if not own:
        return False
    return bool(_MEASURED.search(own.group()) or _IS_THERE.match(sentence, end))


def _is_told(between: str) -> bool:
    """Whether what stands before a comma tells of its thing: "a mass of 2 cm, washout not seen"."""
    hedged = any(cue.meaning in ("probable", "possible") for cue in find_cues(between))
    return hedged or bool(_MEASURED.search(between))


def _reaches_back(between: str) -> bool:
    """Whether a cue after a thing is about it: "masses, cysts and stones are all absent"."""
    if _THE_REST.search(between):
        return False
    if _SEMICOLON.search(between) or ("," in between and _is_told(between)):
        return False
    copula = _COPULA.search(between)
    lead = between[: copula.start()] if copula else between
    if copula and re.search(rf"\b{_VERB}\b", lead):
        return not _NEW_CLAUSE.search(between)
    if "," in lead and not _JOINED.search(lead):
        return not (copula or _NEW_CLAUSE.search(between))
    return not _NEW_CLAUSE.search(lead)


def _list_head(sentence: str, cue: Cue) -> int | None:
    """Return where the list of a denying phrase begins: after "not seen:", "absent are"."""
    first = not any(map(str.isalnum, sentence[: cue.start]))
    answers = normal_form(sentence[cue.start : cue.end]) in _ANSWERS
    if first or not answers or sentence.startswith(" of ", cue.end):
        if head := _LIST_HEAD.match(sentence, cue.end):
            return head.end()
        before = sentence[: cue.start].rstrip().endswith(("but", "and", ",", ":", "aber"))
        if (first or before) and (head := _LIST_VERB.match(sentence, cue.end)):
            return head.end()
    return None


def opens_list(sentence: str) -> Literal["", "headed", "begun"]:
    """Say how a sentence ends within a list of what is not there, which the next may go on with.

    Returns:
        `headed` where the list has a head, "not seen: a, b;", `begun` where it may be over:
        "no a, b;", or an empty text where there is no list.
    """
    begun: Literal["", "begun"] = ""
    for cue in find_cues(sentence):
        if cue.meaning == "stop":
            begun = ""
        if cue.meaning != "absent":
            continue
        if cue.reach != "backward" and _OPEN_END.match(sentence, cue.end):
            answers = normal_form(sentence[cue.start : cue.end]) in _ANSWERS
            if not answers or _LEADS_ON.search(sentence[: cue.start]):
                return "headed"
            continue  # "ascites: no"
        head = _list_head(sentence, cue)
        if head and not _NO_ITEM.search(sentence, head):
            return "headed"
        if cue.reach != "backward" and not _NO_ITEM.search(sentence, cue.end):
            begun = "begun"
    return begun


def goes_on(sentence: str, begun: str) -> bool:
    """Whether a sentence may be an item of a list: it says nothing of its own.

    Args:
        sentence: after the one that ended within a list.
        begun: how that ended; without a head, only what `or` joins goes on with the list.
    """
    if not begun or (begun == "begun" and not _ALTERNATIVE.search(sentence)):
        return False
    stops = any(cue.meaning == "stop" for cue in find_cues(sentence))
    return not stops and not _NO_ITEM.search(sentence)
