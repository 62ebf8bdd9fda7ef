"""Whether a sentence says what its claims do: nothing less, nothing more.

The check knows no template. What a claim says of its subject must stand in the sentence word for
word, in the standard term; and every word of the sentence must be a claim's or one of the plain
words below, which say nothing by themselves. So a value, side, number, denial or doubt that no
claim backs has no place to hide.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from tumorchain_jax.engine.case import Claim, Step

_PLAIN = frozenset(
    re.findall(
        r"\w+",
        """
        a an the this that these it its them there here in on of at to near into within with by as
        and is are be shows show seen see holds contains lies has have also besides moreover all
        lesion lesions finding findings sign signs suggests suggest suggesting mimics which organ
        compared measures measure size diameter shape border density depth reaches located location
        lymph nodes node enlarged patient one another imaging pathology states stated gives alone
        category stage from what ct follows so thus hence reasoning shown report
        centre scan box around
        """,
    )
)
_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
_PLURALS = {"metastases": "metastasis", "diverticula": "diverticulum", "masses": "mass"}
_DENIALS = frozenset({"no", "not", "none", "without", "never", "neither", "nor", "nothing", "free"})


def wording_issue(step: Step) -> str:
    """Return what a sentence says beyond its claims, or fails to say; empty for neither."""
    words = _words(step.text)
    allowed: set[str] = set(_PLAIN)
    numbers: Counter[str] = Counter()
    denials = 0
    for claim in step.claims:
        said = _words(claim.object)
        if claim.relation in ("count", "nodes") or not _holds(words, said):
            if not _holds(words, _words(claim.object.removeprefix("no "))):
                return f"it does not say that {claim.subject} has {claim.relation} {claim.object}"
            if claim.object.startswith("no ") and "no" not in words:
                return f"it does not deny {claim.object.removeprefix('no ')}"
        allowed.update(said)
        allowed.update(_words(claim.subject))
        numbers.update(dict.fromkeys((w for w in said if w[0].isdigit()), 1))
        denials += sum(word in _DENIALS for word in said)
    for word in words:
        if word not in allowed and not word[0].isdigit():
            return f"it says {word!r}, which no fact does"
    return _number_issue(step.claims, words, denials)


def _number_issue(claims: Sequence[Claim], words: Sequence[str], denials: int) -> str:
    """Check numbers and denials one by one: a word that is allowed once is not allowed twice."""
    backed = Counter(w for c in claims for w in _words(c.object) if w[0].isdigit())
    for position, word in enumerate(words):
        if not word[0].isdigit():
            continue
        if position and words[position - 1] == "lesion":
            numbered = {w for c in claims for w in _words(c.subject) if w[0].isdigit()}
            if word in numbered:
                continue
        if not backed[word]:
            return f"it says {word}, which no fact does"
    if sum(word in _DENIALS for word in words) > denials:
        return "it denies more than the facts do"
    return ""


def _holds(words: Sequence[str], part: Sequence[str]) -> bool:
    size = len(part)
    return any(tuple(words[i : i + size]) == tuple(part) for i in range(len(words) - size + 1))


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return tuple(_PLURALS.get(w, _singular(w)) for w in _TOKEN.findall(text.casefold()))


def _singular(word: str) -> str:
    known = word[:-1]
    return known if word.endswith("s") and known in _COUNTED else word


_COUNTED = frozenset(
    re.findall(
        r"\w+",
        "tumour cyst haemangioma granuloma area spleen gallstone stone polyp infarct calcification "
        "lesion node",
    )
)
