"""Lengths that may be a lesion's size, and whether they hold now or held before."""

import re
from dataclasses import dataclass

from tumorchain_jax.engine.text.measures import Measure, find_measures

# A length that follows or precedes these is no lesion's.
_NO_SIZE_AFTER = re.compile(
    r"^[\s)]*(?:from(?!\s+\d)|above|below|proximal|distal|away|off|slices?|thick slices?|"
    r"collimation|"
    r"sections?|reconstruct\w*|interval|deep|inferior to|superior to|cranial|caudal|margin|"
    r"from the|apart|distance|schicht\w*|oberhalb|unterhalb|entfernt|ab ano)\b"
)
_NO_SIZE_BEFORE = re.compile(
    r"(?:\b(?:slice thickness|thickness of|distance(?: of)?|slices? of|collimation(?: of)?|"
    r"reconstructed"
    r"(?: at| to)?|every|wall thickness|duct(?: is| measures?| of| up to| dilated(?: to)?|"
    r" measuring)*(?: up to)?|cali(?:ber|bre)(?: of)?|length of|segment of|over|within|less than|"
    r"below|under|smaller than|margin of|threshold(?: of)?|"
    r"(?:grown|increased?|decreased?|larger|smaller|enlarged|shrunk|grew|change|progressed) by|um|"
    r"limit(?: of)?|schichtdicke|abstand)|"
    r"[<>\u2264\u2265]|^\W*(?:the )?spleen(?: is| measures)?)[\s:]*(?:approx\w*\.?|about|ca\.|"
    r"up to)?\s*$"
)
# "Spans 5 cm" is how long an affected stretch is, "spans 17 x 15 mm" a size.
_SPANS = re.compile(r"\bspans?\s+(?:about|approx\w*\.?|up to)?\s*$")
_AXES = re.compile(r"\d[^\d]{0,8}[x*]")
_PRIOR_BEFORE = re.compile(
    r"(?:\b(?:previous\w*|prior(?:ly)?|former\w*|before|earlier|initial\w*|originally|baseline|"
    r"last (?:time|study|exam\w*|ct|scan)|zuvor|vormals|früher|vorher|ehemals|voruntersuchung|was|"
    r"were|had been|measured|old)\b[\s:,(=]*(?:(?:measur\w+|was|were|being|size|of|at|it|the|in|"
    r"diameter|mass|lesion|about|approximately|ca\.|up|to|with|had|a|on|study|ct|scan|exam\w*|"
    r"\d{4}|gemessen|mit)[\s:,(]*){0,6}|\b(?:compared (?:to|with)|versus|vs\.?|against|instead of|"
    r"rather than|from|von|gegenüber|im vergleich zu)\s+)$"
)
_WEAK_PRIOR = re.compile(r"\b(?:was|were|measured|had been|before|from|von|old)\b[^.]{0,40}$")
_FOLLOW_UP = re.compile(
    r"\b(?:now|current\w*|today|previous\w*|prior|formerly|increas\w+|decreas\w+|grown|grew|"
    r"enlarg\w+ from|progress\w+|regress\w+|shr[iau]nk\w*|aktuell|jetzt|zuvor|vormals|"
    r"größenprogredient|zunahme|abnahme|larger|smaller|compar\w+|earlier|last|old|before|then|"
    r"growth|interval|damals|früher|voraufnahme)\b"
)
_PRIOR_AFTER = re.compile(
    r"^[\s),]*(?:(?:previously|before|earlier|formerly|zuvor|vormals)\b(?![^.;]{0,25}\d)|"
    r"at (?:that|the) time|then\b|back then|damals|on (?:the )?"
    r"(?:prior|previous|last|old|earlier|comparison)|in (?:the )?(?:prior|previous)|"
    r"(?:on|in|from|at|dated|vom|am) (?:\d{1,2}[./-]|\d{4}\b|jan|feb|mar|apr|may|jun|jul|aug|sep|"
    r"oct|nov|dec)|(?:weeks|months|years) ago|in der voruntersuchung|initially|"
    r"at baseline)"
)
_NOW_AFTER = re.compile(
    r"\s*(?:today|now|currently|at present|on (?:the )?(?:current|present|today's)|aktuell|jetzt|"
    r"heute)\b"
)
_THAN = re.compile(
    r"\b(?:compared|comparison|vs|versus|against|instead|rather|from|previous\w*|was|prior|up|"
    r"down|related)\.? (?:to |"
    r"with )?[^,;.(]{0,12}$"
)
_NOW_BEFORE = re.compile(
    r"\b(?:now|currently|today|presently|aktuell|jetzt|heute|to|auf)\b[^,;.(]{0,30}$"
)


@dataclass(frozen=True, slots=True)
class Size:
    """A length that may be a lesion's.

    Attributes:
        measure: the length.
        prior: it was so at an earlier time.
    """

    measure: Measure
    prior: bool


def find_sizes(text: str, start: int, end: int, unit: str = "") -> list[Size]:
    """Return the lengths of a sentence that may be sizes, with the time they hold for."""
    sentence = text[start:end]
    follow_up = bool(_FOLLOW_UP.search(sentence))
    sizes: list[Size] = []
    for measure in find_measures(text, start, end, unit):
        before = text[max(start, measure.start - 60) : measure.start]
        after = text[measure.end : min(end, measure.end + 40)]
        if _NO_SIZE_AFTER.match(after) or _NO_SIZE_BEFORE.search(before):
            continue
        if _SPANS.search(before) and not _AXES.search(text, measure.start, measure.end):
            continue
        if _is_now(before) and follow_up:
            # "The 3 cm mass now measures 4 cm".
            sizes = [Size(size.measure, True) for size in sizes]
        sizes.append(Size(measure, _is_prior(before, after, follow_up)))
    return sizes


def _is_now(before: str) -> bool:
    return bool(_NOW_BEFORE.search(before)) and not _THAN.search(before)


def _is_prior(before: str, after: str, follow_up: bool) -> bool:
    if _PRIOR_AFTER.match(after):
        return True
    if _NOW_AFTER.match(after):
        return False
    if _is_now(before):
        return False
    match = _PRIOR_BEFORE.search(before)
    if not match:
        return False
    # "was", "measured" and "from" tell of the past only where something is compared.
    weak = _WEAK_PRIOR.match(before, match.start())
    return follow_up or not weak or before.rstrip().endswith(("(was", "(were", "(vs", "(vs."))
