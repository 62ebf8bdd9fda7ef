"""Organs that an examination does not show well enough: what is not seen there may be there."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tumorchain_jax.engine.text.places import Locus, Place

_SEEN = (
    r"(?:seen|visuali[sz]ed|imaged|included|covered|depicted|delineated|displayed|identified|"
    r"dargestellt|erfasst|einsehbar|abgrenzbar|abgebildet)"
)
_JUDGED = (
    r"(?:assessed|assessable|evaluated|evaluable|interpretable|examined|judged|interpreted|"
    r"analy[sz]ed|beurteilbar|bewertbar|beurteilt)"
)
_WELL = r"(?:(?:well|fully|adequately|completely|optimally|reliably|clearly|entirely|sicher|" \
    r"ausreichend|vollständig|gut|hinreichend) )?"  # fmt: skip
_BE = (
    r"[\s,(:-]{1,3}(?:(?:which|region|area|itself|also|bereich) )?"
    r"(?:(?:is|are|was|were|remains?|appears?|being|ist|sind|bleibt) )?"
    r"(?:(?:\w+ly|in part|somewhat|teilweise|weitgehend|stark|deutlich) ){0,2}"
)
_NOT_JUDGED = re.compile(
    rf"{_BE}(?:obscured|hidden|degraded|overl\w+ by|masked|nondiagnostic|non-diagnostic|"
    rf"(?:not|nicht|un) ?{_WELL}{_JUDGED}|not (?:be )?{_WELL}{_JUDGED}|"
    rf"(?:cannot|can not|could not) be {_WELL}{_JUDGED}|non-?{_JUDGED}|"
    rf"(?:poorly|suboptimally|incompletely|inadequately|insufficiently|partially|hardly|barely|"
    rf"nur eingeschränkt|eingeschränkt|unzureichend|unvollständig|schlecht) (?:{_SEEN}|{_JUDGED})|"
    r"limited(?: by| due|,|\.|$| in (?:its )?(?:assessment|evaluation))|"
    r"suboptimal\b|überlagert|verdeckt|"
    r"(?:evaluation|assessment|visuali[sz]ation|beurteilbarkeit) (?:is |ist )?(?:limited|impaired|"
    r"eingeschränkt))"
)
_NOT_SEEN = re.compile(rf"{_BE}(?:not|nicht) {_WELL}{_SEEN}|{_BE}(?:cannot|could not) be {_SEEN}|"
                       rf"{_BE}non-?visuali[sz]ed")  # fmt: skip
_LIMITED = re.compile(
    r"\b(?:limited|restricted|suboptimal|poor|impaired|reduced|incomplete|inadequate|insufficient|"
    r"eingeschränkte?|unzureichende?) (?:\w+ )?(?:evaluation|assessment|visuali[sz]ation|view|"
    r"depiction|delineation|sensitivity|beurteilbarkeit|beurteilung|darstellung) "
    r"(?:of|for|in|der|des) (?:the )?$"
)
_JOINED = re.compile(r"[\s,]+(?:and|or|und|oder)?\s*(?:the\s+)?")


def set_apart(
    text: str, span: tuple[int, int], loci: Sequence[Locus], things: Sequence[int]
) -> tuple[list[Locus], list[Place]]:
    """Return the places of a sentence, and those of them that cannot be judged.

    What cannot be judged is no place of what the sentence tells of: it becomes a neighbour.

    Args:
        text: of the report.
        span: of the sentence.
        loci: the places that it names.
        things: where its lesions begin.
    """
    kept: list[Locus] = []
    unseen: list[Place] = []
    joined = False
    for locus in reversed(loci):
        after = text[locus.end : min(span[1], locus.end + 90)]
        before = text[max(span[0], locus.start - 60) : locus.start]
        own = bool(_NOT_JUDGED.match(after) or _LIMITED.search(before)) or (
            not any(span[0] <= at < locus.start for at in things) and bool(_NOT_SEEN.match(after))
        )
        joined = own or (joined and bool(_JOINED.fullmatch(text, locus.end, kept[-1].start)))
        if joined:
            unseen += locus.places
            locus = replace(locus, beside=True)
        kept.append(locus)
    return kept[::-1], unseen
