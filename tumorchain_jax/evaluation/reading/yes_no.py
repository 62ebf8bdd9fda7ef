"""Yes or no, in words of many kinds."""

import re
from typing import Literal

from tumorchain_jax.evaluation.reading.answer_part import Abstained, no_image, refuses

YesNo = Literal["yes", "no"]
_BARE: dict[str, YesNo] = {
    **dict.fromkeys(("y", "yes", "yep", "yeah", "true", "positive", "是", "有", "是的"), "yes"),
    **dict.fromkeys(("n", "no", "nope", "false", "negative", "否", "无", "没有", "不是"), "no"),
}
_ECHO = re.compile(r"\byes\s*(?:or|/)\s*no\b\??", re.IGNORECASE)
_BOTH = re.compile(r"\byes\s+and\s+no\b|\bno\s+and\s+yes\b", re.IGNORECASE)
# Words with no or not that deny nothing, and a yes that is denied.
_IDLE = re.compile(
    r"\b(?:no doubt|without (?:a )?doubt|not sure|not certain|not only|no question)\b|"
    r"(?:\bnot|n't|\bcannot)(?: \w+)? yes\b",
    re.IGNORECASE,
)
_MARKED = re.compile(
    r"(?:\b(?:answer|conclusion)\b|答案)[\s\"'*:]*(?:is|was)?[\s\"'*:]*\b(yes|no)\b"
    r"|[:?]\s*\**(yes|no)\b\W*$",
    re.IGNORECASE,
)
_FIRST = re.compile(r"\W*(?:(yes)\b|(no)\b\s*(?:[^\w\s]|$))", re.IGNORECASE)
_YES = re.compile(r"\byes\b", re.IGNORECASE)
# A denial reaches to the end of its sentence, or to a "but".
_DENIAL = re.compile(
    r"\b(?:no|not|none|nothing|never|without|neither)\b.*?(?=$|[.;\n]|\b(?:but|however|although)\b)"
    r"|n't\b.*?(?=$|[.;\n]|\b(?:but|however|although)\b)",
    re.IGNORECASE,
)
_ABSENT = re.compile(
    r"\b(?:absent|absence|free of|normal|unremarkable|negative|excluded|unlikely)\b", re.IGNORECASE
)
_PRESENT = re.compile(
    r"\b(?:present|presence|visible|seen|detected|identified|found|evident|positive|enlarged|recommended|"
    r"indicated|advised|abnormal|there (?:is|are)(?=\s+\w)|shows?|reveals?)\b",
    re.IGNORECASE,
)


def read_yes_no(text: str) -> YesNo | Abstained:
    """Read yes or no: a bare word, after "answer", at the start, anywhere, or presence in words.

    Args:
        text: as `answer_part` gives it.
    """
    bare = re.sub(r"\\(?:boxed|text)\b", "", text).strip(" \t\n.,:;!?*_`\"'(){}[]\\$>#-").lower()
    if bare in _BARE:
        return _BARE[bare]
    if _BOTH.search(text):
        return Abstained("ambiguous")
    rest = _IDLE.sub(" ", _ECHO.sub(" ", text))
    if no_image(text):
        return Abstained("refusal")
    marked = {(after or last).lower() for after, last in _MARKED.findall(rest)}
    first = _FIRST.match(rest)
    if marked:
        said = marked
    elif first:
        said = {"yes" if first[1] else "no"}
    else:
        said = _in_words(rest)
    if len(said) > 1:
        return Abstained("ambiguous")
    if said:
        return "yes" if said == {"yes"} else "no"
    return Abstained("refusal" if refuses(text) else "no_yes_no")


def _in_words(text: str) -> set[str]:
    if refuses(text) and not _YES.search(text):
        return set()
    said = {"no"} if _DENIAL.search(text) else set()
    rest = _DENIAL.sub(" ", text)
    if _YES.search(rest):
        return said | {"yes"}
    if _ABSENT.search(rest):
        said.add("no")
    if _PRESENT.search(rest):
        said.add("yes")
    return said
