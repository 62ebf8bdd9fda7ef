"""What a question asks for: an organ, a part, yes or no, a number, a stage, an attribute, a report.

Rules over the wording, in order; the first that holds counts. An answer of another kind is no
answer: a stage does not say where the tumour is.
"""

import re
from dataclasses import dataclass
from typing import Literal

from tumorchain_jax.anatomy.organs import labels_named, normalise_name
from tumorchain_jax.reasoning.answer_values import READERS, choice_values, plain
from tumorchain_jax.reasoning.prompt import LETTERS

Kind = Literal[
    "organ", "segment", "third", "yes/no", "count", "number", "tumor", "node", "metastasis",
    "stage", "shape", "boundary", "density", "others", "report", "text",
]  # fmt: skip

NAMES: dict[Kind, str] = {
    "organ": "an organ",
    "segment": "a part of an organ",
    "third": "a third of the scan",
    "yes/no": "yes or no",
    "count": "a number",
    "number": "a number",
    "tumor": "a T category",
    "node": "an N category",
    "metastasis": "an M category",
    "stage": "a stage",
    "shape": "a shape",
    "boundary": "a border",
    "density": "a density",
    "others": "a further attribute",
    "report": "a report",
    "text": "words",
}
"""What each kind is called in a sentence."""

SUBTASK: dict[Kind, str] = {
    "organ": "tumor_position",
    "segment": "segment_localization",
    "third": "organ_position",
    "yes/no": "tumor_position",
    "count": "count",
    "tumor": "tumor",
    "node": "node",
    "metastasis": "metastasis",
    "shape": "shape",
    "boundary": "boundary",
    "density": "density",
    "others": "others",
    "report": "cot_report",
}
"""The subtask of Table 1 whose score tells how well questions of a kind are answered."""


@dataclass(frozen=True)
class QuestionKind:
    """What a question asks for.

    Attributes:
        kind: of the answer; of a question with options, what they are options for.
        choices: the options, empty for an open question.
        or_no: "no" is an answer as well ("Is there a tumour, and in which organ?").
    """

    kind: Kind
    choices: tuple[str, ...] = ()
    or_no: bool = False

    @property
    def answer_kind(self) -> str:
        """The kind as a report shows it: `choice` for a question with options."""
        return "choice" if self.choices else self.kind

    def why_unanswered(self, conclusion: str) -> str:
        """Say why a conclusion is no answer of this kind; "" if it is one."""
        if not re.search(r"\w", conclusion):
            return "the model gave no conclusion"
        if self.choices:
            if choice_values(self.choices, conclusion):
                return ""
            return f"the question asks for one of its options, the model gave {_given(conclusion)}"
        bare = plain(conclusion) in ("yes", "no")
        if self.or_no if bare and self.kind == "organ" else _names(self.kind, conclusion):
            return ""
        return f"the question asks for {NAMES[self.kind]}, the model gave {_given(conclusion)}"


_OPTION = re.compile(rf"^\s*[{LETTERS}][.:)]\s*(.+?)\s*$", re.MULTILINE)
_FINDING = (
    r"(?:tumou?rs?|lesions?|mass(?:es)?|cancers?|carcinomas?|malignanc\w+|neoplasms?"
    r"|abnormalit\w+|patholog\w+|diseases?|metastas[ei]s|cysts?|nodules?|findings?|primary)\b"
)
_ASKED = r"(?:what|which|how|describe|give|name|state|estimate|measure)\b.*\b"
_HELPERS = "is|are|was|were|does|do|did|has|have|can|could|will|would|should|may|might|any"
_POLITE = re.compile(
    r"^(?:please |kindly |(?:can|could|would|will) you (?:please )?(?!see\b|find any)"
    r"|(?:in|on|from) (?:this|the) (?:abdominal )?(?:ct|scan|image|picture)(?: scan| image)?,? "
    r"|(?:tell|show) (?:me|us) |i(?: would|'d) like to know |say )"
)
_YES_NO = re.compile(rf"^(?:{_HELPERS})\b")
_BOTH = re.compile(r"(?:,| and| if so)+ (?:in |at |to )?(?=(?:which|what|where|how)\b)")
# The first that is found decides. Letters are small, hyphens spaces, names of organs `ORGAN`.
_RULES: tuple[tuple[Kind, str], ...] = (
    ("third", r"(?:which|what) third\b|upper, middle,? or lower third|how high in th"),
    ("tumor", r"\bt (?:category|stage|staging|classification)\b"),
    ("node", r"\bn (?:category|stage|staging|classification)\b|nodal (?:stage|category)"),
    ("metastasis", r"\bm (?:category|stage|staging|classification)\b"),
    ("stage", r"\btnm\b|(?:what|which) (?:\w+ ){0,3}stag(?:e|ing)\b|how .*\bstaged\b"),
    (
        "count",
        rf"(?:how many|number of|^count) (?:\w+ ){{0,2}}(?:ORGAN )?{_FINDING}",
    ),
    ("organ", r"^(?:in |at )?(?:which|what) organs?\b"),
    ("number", r"how (?:many|much|large|big|long|wide|thick|often)\b"),
    ("number", _ASKED + r"(?:size|diameter|volume|length|hu|number|ratio|percent\w*|share)\b"),
    ("others", r"what else (?:is|do|does|can)\b"),
    ("others", r"(?:what|which) (?:other|further) (?:signs?|features?|attributes?)\b"),
    ("shape", _ASKED + r"(?:shape|shaped)\b"),
    ("boundary", _ASKED + r"(?:borders?|margins?|boundar(?:y|ies)|contours?|edges?|outline)\b"),
    ("boundary", r"how (?:well|sharply|clearly) (?:is|are)\b.*\b(?:defined|circumscribed)"),
    ("density", _ASKED + r"(?:density|attenuation)\b|how dense\b"),
    ("report", r"\b(?:report|summar\w+|impression|conclude|interpret\w*)\b"),
    ("report", r"^(?:describe|list)\b.*\b(?:findings|abnormalit\w+|scan|ct|image|picture)\b"),
    ("organ", r"\b(?:which|what|name the) (?:\w+ ){0,4}organs?\b"),
    ("segment", r"\b(?:which|what) (?:\w+ )?(?:part|segment|portion|lobe|region|section)s?\b"),
    ("segment", r"^where (?:\w+ )?(?:in|within|along|inside) (?:the |this )?ORGAN"),
    ("segment", rf"^where .*{_FINDING}.*\b(?:in|within|inside|of) (?:the )?ORGAN"),
    ("text", r"^where .*\brelat"),
    ("organ", rf"^where (?:(?!ORGAN)\S+ ){{1,6}}{_FINDING}"),
    ("organ", rf"(?:location|site|origin) of (?:\w+ ){{0,2}}{_FINDING}"),
    ("organ", rf"^(?:locate|find|locali[sz]e) (?:\w+ ){{0,2}}{_FINDING}"),
)


def question_kind(question: str) -> QuestionKind:
    """Tell what a question asks for.

    Args:
        question: in English; options, if any, on lines of their own: `A. liver`.
    """
    options = list(_OPTION.finditer(question))
    choices = tuple(option[1] for option in options) if len(options) > 1 else ()
    text = _simplified(question[: options[0].start()] if choices else question)
    asks_yes_no = _YES_NO.search(text) is not None
    both = _BOTH.search(text) if asks_yes_no else None
    if asks_yes_no and not both:
        return QuestionKind("text" if _offers_alternatives(text) else "yes/no", choices)
    if both:  # "Is there a tumour, and where?" -> "where is there a tumour"
        text = f"{text[both.end() :]} {text[: both.start()]}"
    kinds = (kind for kind, pattern in _RULES if re.search(pattern, text))
    return QuestionKind(next(kinds, "text"), choices, or_no=both is not None)


def _simplified(question: str) -> str:
    """Small letters, organs as `ORGAN`, without what is only polite."""
    pieces, done = [], 0
    for mention in labels_named(question):
        pieces += [normalise_name(question[done : mention.start]), "ORGAN"]
        done = mention.end
    text = " ".join([*pieces, normalise_name(question[done:])]).replace("is/are", "is")
    text = re.sub(r" (?=[,.?:;!'])", "", text).strip(" '\"?.!")
    while (shorter := _POLITE.sub("", text)) != text:
        text = shorter
    return text


def _offers_alternatives(text: str) -> bool:
    """Whether `X or Y` is asked, which neither yes nor no answers."""
    return " or " in text.replace(" or not", "").replace(" or more", "")


def _names(kind: Kind, conclusion: str) -> bool:
    """Whether a conclusion names a value of a kind."""
    match kind:
        case "text" | "report":
            # A bare category or a bare yes says nothing about a whole scan.
            return kind == "text" or bool(set(re.findall(r"[^\W\d]{4,}", conclusion)))
        case "stage":
            return any(_names(part, conclusion) for part in ("tumor", "node", "metastasis"))
        case "number":
            return bool(re.search(r"(?<![^\W_])\d", conclusion) or READERS["count"](conclusion))
        case "segment":
            side = r"\b(?:left|right|upper|lower|middle|head|body|tail|neck|dome|wall|segment)\b"
            return bool(READERS["organ"](conclusion) or re.search(side, conclusion.lower()))
        case "yes/no":
            return bool(READERS[kind](conclusion) or "none" in READERS["others"](conclusion))
        case "shape" | "boundary" | "density" | "others" if not READERS[kind](conclusion):
            # There are more words for attributes than the readers know.
            return not any(_names(other, conclusion) for other in ("stage", "number", "organ"))
    return bool(READERS[kind](conclusion))


def _given(conclusion: str) -> str:
    """`a stage (T3)`: the kind that a conclusion looks like, and its beginning."""
    shown = conclusion if len(conclusion) <= 40 else f"{conclusion[:40].rstrip()} ..."
    if plain(conclusion) in ("yes", "no"):
        return f'"{plain(conclusion)}"'
    for kind in _LOOKS:
        if _names(kind, conclusion):
            return f"{NAMES[kind]} ({shown})"
    return f'"{shown}"'


_LOOKS: tuple[Kind, ...] = (
    *("stage", "third", "organ", "shape", "boundary", "density", "count", "others"),
)
