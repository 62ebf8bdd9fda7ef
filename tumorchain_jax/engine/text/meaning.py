"""What a report says that a lesion is: "a mass, likely a cyst", "it is a haemangioma"."""

import re
from collections.abc import Sequence

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.notes import NODES, Mention, Notes
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.vocabulary import Term

MEANS = re.compile(
    r"\b(?:suggest\w*|consistent with|in keeping with|compatible with|suspicious (?:for|of)|"
    r"suspicion (?:of|for)|may well be|could well be|concern\w* for|worrisome for|likely|"
    r"probabl\w+|indicat\w+|represent\w*|"
    r"turn\w* out|prov(?:es|ed|en) to be|in fact|actually|erweist sich|stellt sich|"
    r"typical (?:of|for)|characteristic (?:of|for)|diagnostic of|favou?rs?|points? to|favou?r\w*|"
    r"vs|versus|presum\w+|impression of|diagnosis|read as|interpreted as|taken to be|"
    r"regarded as|reflect\w*|"
    r"think of|differential|correspond\w* to|in terms of|compatible|raises?|may be|could be|"
    r"might be|possibl\w+|perhaps|which is|that is|i\.e\.|namely|known|evidence of|"
    r"cannot exclude|excluded|vereinbar mit|verdächtig|verdacht|v\. ?a\.|hinweis\w* auf|passend zu|"
    r"am ehesten|dd|im sinne|entsprechend|entspricht|考虑|提示)(?![\w])|=|\(\s*$"
)
NEW = re.compile(
    r"\b(?:second|another|further|additional|third|fourth|other|more|also a|separate|new|"
    r"different|zweite\w*|weitere\w*|andere\w*)\b[^.;,]{0,40}$"
)
# "The lesion in segment VIII is a haemangioma".
_THE = re.compile(r"\b(?:the|this|that|these|those|die|der|diese[rs]?)\s+(?:\w+\s)?$")
_IS_A = re.compile(
    r"[^.;,:]{0,60}\b(?:is|are|represents?|corresponds? to|ist|sind|entspricht)\s+(?:(?:an?|the|"
    r"simple|"
    r"benign|typical|small|most|very|clearly|eine?\w?)\s+){0,3}"
)
# "It is a haemangioma": of the last lesion.
_IT_IS = re.compile(
    r"\W*(?:it|this|these|they|es|dies|diese|dieser|(?:the|this|that|die|der|dieser?) (?:lesion|"
    r"mass|nodule|finding|läsion|raumforderung|herd|befund))\W+(?:\w+\W+){0,3}?(?:is|are|"
    r"represents?|"
    r"suggests?|corresponds? to|ist|entspricht|likely|probably)\W+(?:(?:an?|the|most|very|likely|"
    r"probabl[ey]|benign|simple|typical|of|for|consistent|compatible|with|eine?\w?|am|ehesten|"
    r"therefore|thus|now|rather|in fact|small|large|characteristic)\W+)*"
)


def interpreted(
    notes: Notes, setting: Setting, term: Term, mentions: Sequence[Mention]
) -> Mention | None:
    """Return the mention before that this one says the nature of: "a mass, likely a cyst"."""
    for mention in reversed(mentions):
        if mention.term.kind in NODES or mention.context.time != "current":
            continue
        between = notes.text[mention.term.end : term.start]
        if not mention.lesions or re.search(r";|\.\s", between):
            return None
        means = bool(MEANS.search(between)) or _is_apposed(notes, setting, term, mention, between)
        lead = notes.text[max(setting.sentence.start, mention.term.start - 12) : mention.term.start]
        if not means and mention.term.value == "mass" and _THE.search(lead):
            means = bool(_IS_A.fullmatch(between))
        return mention if means and not NEW.search(between[-40:]) else None
    last = notes.lesions.last
    lead = notes.text[setting.sentence.start : term.start]
    if last and last.place.organ and _IT_IS.fullmatch(lead):
        return Mention(term, Context(), [last])
    return None


def _is_apposed(notes: Notes, setting: Setting, term: Term, mention: Mention, between: str) -> bool:
    """Whether a name ends the sentence after a comma: "three lesions up to 2 cm, metastases"."""
    alike = mention.term.value == "mass" and mention.term.plural == term.plural
    comma = between.rstrip().endswith((",", ":", "="))
    ends = not notes.text[term.end : setting.sentence.end].strip(" .;)")
    return alike and comma and ends and term.value != "mass"


def meant_next(notes: Notes, setting: Setting, term: Term) -> str:
    """Return what a conclusion goes on to call a lesion: "new lesion, likely a metastasis"."""
    for other in setting.terms:
        if other.kind == "lesion" and other.start >= term.end:
            means = MEANS.search(notes.text[term.end : other.start])
            return other.value if means else ""
    return ""
