"""A chain of thought to levels: our own wording exactly, others' as far as it is understood.

Read are the forms that exist: `<reasoning>..</reasoning> <answer> 0 </answer>` as released, the
paper's `<think>` that is never closed, and either cut off anywhere. A sentence in our wording gives
its field. Of any other sentence the phrases of the paper and of the released texts are taken,
unless a denial or doubt stands in it that is none of these phrases. What was not read is told.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.chains.fields import NAME, load_wording
from tumorchain_jax.ultrasound.chains.record import Levels
from tumorchain_jax.ultrasound.chains.text import ANSWERS

TAG = re.compile(r"</?(?:reasoning|think)>")
ANSWER = re.compile(r"<answer>\s*([^<]*?)\s*(?:</answer>|<[^>]*$|$)")
ANSWER_WORDS = {**{digit: digit for digit in ANSWERS.values()}, **ANSWERS}
SENTENCE = re.compile(r"(?:[^.]|(?<=\d)\.(?=\d))+\.?")
DOUBT = re.compile(
    r"\b(?:no|not|without|unlikely|rather than|neither|nor|cannot|absence|excluded?|ruled? out"
    r"|possibl[ey]|probabl[ey]|may|might|could|if|versus|or)\b",
    re.IGNORECASE,
)
MARGINS = {
    "well-defined": "circumscribed",
    "well defined": "circumscribed",
    "circumscribed": "circumscribed",
    "indistinct": "indistinct",
    "angular": "angular",
    "microlobulated": "microlobulated",
    "micro-lobulated": "microlobulated",
    "spiculated": "spiculated",
}
_MARGIN = "|".join(map(re.escape, MARGINS))
_LIST = rf"(?:not )?(?:{_MARGIN})(?:(?:,| and|/|\s)+(?:{_MARGIN}))*"
_ECHO = "complex cystic and solid|slightly hypoechoic|(?:an|hyper|hypo|iso)echoic|heterogeneous"


def _plain(words: str) -> list[str]:
    return [words.lower().replace(" ", "_").replace("-", "_")]


def _margins(words: str) -> list[str]:
    if words.lower().startswith("not "):  # which of the other margins it is remains open
        return []
    return [MARGINS[each.lower()] for each in re.findall(_MARGIN, words, re.IGNORECASE)]


def _always(value: str) -> Callable[[str], list[str]]:
    return lambda words: [value]


PHRASES: tuple[tuple[str, str, Callable[[str], list[str]]], ...] = (
    ("orientation", r"lesion is (not parallel|parallel)\b", _plain),
    ("orientation", r"(not parallel|parallel) orientation", _plain),
    ("axis_ratio", r"long-to-short axis ratio\s*(?:>|above) 1\b", _always("above_1")),
    ("axis_ratio", r"long-to-short axis ratio\s*(?:<=?|≤|below) 1\b", _always("not_above_1")),
    ("margin", rf"({_LIST})[\s-]+margins?\b", _margins),
    ("shape", r"(oval|round|irregular)[ -]shaped?\b", _plain),
    ("echo", rf"({_ECHO})(?=\s*with\b|\s+(?:echo|pattern))", _plain),
    ("calcifications", r"(?:absence of|no) calcif\w*(?: deposits)?", _always("none")),
    ("calcification", r"presence of (?:\w+ )?calcif\w*(?: deposits)?", _always("present")),
    ("category", r"BI-?RADS:?\s*(?:category\s*)?([0-6][abc]?)\b", _plain),
    ("label", r"(?:is|as|features of|consistent with) a (benign|malignant) lesion\b", _plain),
    ("histopathology", rf"histopathology (?:type|category):?\s+({NAME})", lambda words: [words]),
)  # fmt: skip
_READERS = [(name, re.compile(rf"(?<!\w){p}", re.IGNORECASE), read) for name, p, read in PHRASES]


@dataclass(frozen=True)
class Parsed:
    """What a text says.

    Attributes:
        answer: what stands in the answer's tags: `0` benign, `1` malignant; None if nothing does,
            or nothing else than that.
        form: of the text.
        closed: every thought and answer that was begun was ended.
        loose: sentences in other words than ours, of which something was taken.
        unread: sentences of which nothing was.
        cut: the beginning of a sentence with which the text breaks off, of which nothing is taken.
        faults: what contradicts itself or cannot be.
    """

    levels: Levels
    answer: str | None
    form: Literal["reasoning", "think", "plain"]
    closed: bool
    loose: tuple[str, ...]
    unread: tuple[str, ...]
    cut: str
    faults: tuple[str, ...]

    @property
    def verdict(self) -> str | None:
        """The answer; in the paper's form, which has no answer's tags, that of the pathology."""
        if self.form == "think" and self.answer is None and not self._faulty_answer:
            return ANSWERS.get(self.levels.one("label"))
        return self.answer

    @property
    def _faulty_answer(self) -> bool:
        return any(fault.startswith(("answer:", "label:")) for fault in self.faults)

    def check(self, source: object) -> Levels:
        """The levels of a text that says all of it, without contradiction, in our words.

        Raises:
            InputError: it does not.
        """
        hint = "write it as `tumorchain bus chains` does"
        if self.faults:
            raise InputError(source, "chain", self.faults[0], "no contradiction", hint)
        for name, given in (("sentence", (*self.loose, *self.unread)), ("end", (self.cut,))):
            if found := [each for each in given if each]:
                raise InputError(source, f"chain's {name}", repr(found[0][:80]), "our words", hint)
        return self.levels


def parse(text: str) -> Parsed:
    """Read a chain of thought, however it is written or cut; nothing is raised."""
    form: Literal["reasoning", "think", "plain"] = "plain"
    if "<reasoning>" in text or "<answer>" in text:
        form = "reasoning"
    elif "<think>" in text:
        form = "think"
    said, faults = _answer(text)
    is_open = any(text.count(f"<{tag}>") != text.count(f"</{tag}>") for tag in _TAGS)
    body = TAG.sub("\n", text[: text.index("<answer>")] if "<answer>" in text else text)
    parts = [part.strip() for line in body.splitlines() for part in SENTENCE.findall(line)]
    parts = [part for part in parts if part]
    # Without the end of its thought, a sentence without its full stop may lack words.
    ended = "<answer>" in text or re.search(r"</(?:reasoning|think)>\s*$", text) is not None
    cut = parts.pop() if parts and not ended and not parts[-1].endswith(".") else ""
    values: dict[str, list[str]] = {}
    loose: list[str] = []
    unread: list[str] = []
    for part in parts:
        exact = dict(_exact(part))
        found = exact or dict(_phrases(part))
        for name, given in found.items():
            values.setdefault(name, []).extend(given)
        if not exact and part != load_wording().opening:
            (loose if found else unread).append(part)
    levels = Levels.of(values)
    faults += levels.faults()
    label = ANSWERS.get(levels.one("label"))
    if said is not None and label is not None and said != label:
        faults.append(f"answer: {said}, and the chain says {levels.one('label')}")
    return Parsed(levels, said, form, not is_open, tuple(loose), tuple(unread), cut, tuple(faults))


_TAGS = ("reasoning", "think", "answer")


def _answer(text: str) -> tuple[str | None, list[str]]:
    said = [match.group(1) for match in ANSWER.finditer(text)]
    known = {ANSWER_WORDS.get(each.lower().rstrip(".")) for each in said if each}
    if len(known) > 1:
        return None, [f"answer: {' and '.join(said)}"[:80]]
    if None in known:
        return None, [f"answer: {said[0]!r}"[:80]]
    return (known.pop() if known else None), []


def _exact(part: str) -> Iterator[tuple[str, list[str]]]:
    for name, each in load_wording().fields.items():
        if part.startswith(each.beginning) and (match := each.pattern.fullmatch(part)):
            if each.words:
                words = re.split(r", | and ", match[1]) if each.many else [match[1]]
                yield name, [each.by_words[word] for word in words]
            else:
                yield name, match[1].split("; ")


def _phrases(part: str) -> Iterator[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    rest = part
    for name, pattern, read in _READERS:
        for match in pattern.finditer(part):
            rest = rest.replace(match[0], " ")
            if given := read(match[1] if match.lastindex else match[0]):
                found.setdefault(name, []).extend(given)
    if not DOUBT.search(rest):
        yield from found.items()
