"""Read a report or a chain of reasoning into triples, by rules.

Sentence by sentence and clause by clause: organs and parts by the names of Table 10, statements by
the patterns of `lexicon.py`, denials by their scope within a clause (as NegEx: Chapman et al., J
Biomed Inform 2001). What a sentence leaves open ("It is round.") is about the lesion last spoken
of. A hedge ("cannot be excluded") states nothing. Text that matches no pattern states nothing
either: instructions to a judge are only words.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from typing import NamedTuple

from tumorchain_jax.anatomy.organs import labels_named
from tumorchain_jax.evaluation.chain.lexicon import (
    AFTER_ORGANS,
    BEFORE_ORGANS,
    DENIES_AFTER,
    DENIES_BEFORE,
    EMPTY_DENIAL,
    INTRODUCED,
    LESION_COUNT,
    MEASURE,
    NODE_COUNT,
    NUMBERS,
    SCOPE_END,
    STAGES,
    UNSURE,
    Pattern,
)
from tumorchain_jax.evaluation.chain.triples import (
    ABDOMEN,
    ABNORMALITY,
    ANY_TUMOUR,
    ENLARGED_NODES,
    HAS,
    LACKS,
    LESION,
    METASTASIS,
    NODES,
    STAGE,
    SUGGESTS,
    TUMOUR,
    Triple,
    subject_of,
)
from tumorchain_jax.reasoning.answer_values import READERS

LONGEST = 100_000
"""Characters of a chain that are read; what follows is left out."""
_TRAITS = ("density", "shape", "boundary", "others", "depth", "size")
_SPLIT = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[;])\s*|(?<=\.)(?=[A-Z])")
_CLAUSE = re.compile(
    r";|,? (?:but|whereas|while|although|though|however|yet)(?= )"
    r"|, (?=(?:with )?no |without |and no )"
)
_MARKUP = re.compile(r"</?\w{1,20}>|[*`#|>]+|^\s*(?:[-+•]|\d+[.)])\s+", re.MULTILINE)
_ARABIC = {
    str(n): roman for n, roman in enumerate(["i", "ii", "iii", "iv", "v", "vi", "vii", "viii"], 1)
}


class Statement(NamedTuple):
    """A triple, and the words that state it."""

    triple: Triple
    evidence: str


class _Mention(NamedTuple):
    start: int
    end: int
    subject: str
    part: str


class _Word(NamedTuple):
    start: int
    end: int
    kind: str
    value: str
    denied: bool


def read_chain(text: str) -> list[Statement]:
    """Read the statements of a text, each once, in the order of the text."""
    return _Reader().read(text)


def triples_in(text: str) -> list[Triple]:
    """Read the triples of a text alone."""
    return [statement.triple for statement in read_chain(text)]


def plain_text(text: str) -> str:
    """Return a text without markup, in Unicode's compatible form, cut at `LONGEST` characters."""
    return _MARKUP.sub(" ", unicodedata.normalize("NFKC", text[:LONGEST]))


@dataclass
class _Reader:
    """What was said so far."""

    found: dict[Triple, str] = field(default_factory=dict)
    organ: str = ""
    lesion_organ: str = ""
    topic: str = ""
    counted: dict[str, int] = field(default_factory=dict)
    introduced: dict[str, int] = field(default_factory=dict)

    def read(self, text: str) -> list[Statement]:
        for sentence in _SPLIT.split(plain_text(text)):
            if sentence.strip():
                for clause in _CLAUSE.split(sentence):
                    self._clause(clause, sentence)
        for organ, count in self.introduced.items():
            self._say(organ, HAS, str(self.counted.get(organ, count)), "count", "")
        for organ, count in self.counted.items():
            self._say(organ, HAS, str(count), "count", "")
        return [Statement(triple, evidence) for triple, evidence in self.found.items()]

    def _say(self, subject: str, relation: str, value: str, kind: str, evidence: str) -> None:
        self.found.setdefault(Triple(subject, relation, value, kind), evidence.strip())

    def _clause(self, clause: str, sentence: str) -> None:
        plain = _spelled(clause)
        plain = EMPTY_DENIAL.sub(lambda match: " " * len(match[0]), plain)
        if UNSURE.search(plain):
            return
        for letter, category in STAGES.findall(_apart(plain)):
            self._say(ANY_TUMOUR, STAGE, letter.upper() + category, letter.upper(), clause)
        ends = [m.start() for m in SCOPE_END.finditer(plain)] + [len(plain)]
        denials = [
            (m.end(), min(end for end in ends if end >= m.end()))
            for m in DENIES_AFTER.finditer(plain)
        ]
        denied_before = [m.start() for m in DENIES_BEFORE.finditer(plain)]

        def words(patterns: tuple[Pattern, ...], searched: str) -> tuple[list[_Word], str]:
            found = []
            for kind, value, pattern in patterns:
                matches = [*pattern.finditer(searched)]
                for match in matches:
                    denied = any(at <= match.start() < end for at, end in denials)
                    denied |= any(at >= match.end() for at in denied_before)
                    found.append(_Word(match.start(), match.end(), kind, value, denied))
                if matches:
                    searched = pattern.sub(lambda match: " " * len(match[0]), searched)
            return found, searched

        before, searched = words(BEFORE_ORGANS, plain)
        mentions = _mentions(plain)
        for mention in mentions:
            blank = " " * (mention.end - mention.start)
            searched = searched[: mention.start] + blank + searched[mention.end :]
        after, _ = words(AFTER_ORGANS, searched)
        said = _Clause(clause, plain, mentions, sorted(before + after))
        self._topics(said)

    def _topics(self, said: "_Clause") -> None:
        """State what a clause says, kind by kind."""
        kinds = {word.kind for word in said.words}
        if "normal node" in kinds:
            return
        own = next((k for k in ("nodes", "metastasis", "benign") if k in kinds), "")
        if own:
            self.topic = own
        elif "lesion" in kinds or said.parts:
            self.topic = "lesion"
        if own == "nodes":
            self._nodes(said)
            return
        if own == "metastasis":
            self._metastases(said)
        if own == "benign":
            general = not said.mentions and re.search("harmless|follow.up|significan", said.text)
            for word in said.of("benign") if not general else ():
                self._each(said, word, HAS, LACKS, word.value, "benign")
            self._remember(said)
            return
        self._conditions(said)
        if "normal" in kinds and not kinds & {"lesion", "tumour", "metastasis"}:
            self._normal(said)
        if "tumour" in kinds:
            self._tumours(said)
        if own != "metastasis":
            self._lesions(said)
        self._thirds(said)
        self._remember(said)

    def _remember(self, said: "_Clause") -> None:
        if said.mentions:
            self.organ = said.mentions[-1].subject

    def _each(
        self, said: "_Clause", word: _Word, has: str, lacks: str, value: str, kind: str
    ) -> None:
        """State one thing about every organ that it is said of."""
        relation = lacks if word.denied else has
        for organ in said.organs_of(word) or [self.organ or ABDOMEN]:
            for subject in _apart_if(organ, relation == LACKS):
                self._say(subject, relation, value, kind, said.text)

    def _nodes(self, said: "_Clause") -> None:
        word = said.of("nodes")[0]
        named = any(each.value for each in said.of("nodes"))
        sized = re.search(
            r"enlarge\w*|patholog\w+|suspicious|metasta\w+|abnormal|prominent", said.plain
        )
        normal = any(w.kind == "normal" and not w.denied for w in said.words)
        count = NODE_COUNT.search(said.plain)
        if any(each.denied for each in said.of("nodes")) or (normal and not sized):
            self._say(NODES, LACKS, ENLARGED_NODES, "nodes", said.text)
            return
        at = re.search(r"not (?:\w+ )?(?:enlarged|pathological|suspicious)", said.plain)
        if at or not (named or sized or count):
            if at:
                self._say(NODES, LACKS, ENLARGED_NODES, "nodes", said.text)
            return
        self._say(NODES, HAS, ENLARGED_NODES, "nodes", said.text)
        if count is None and word.end and re.match(r".{0,30}lymph node(?!s)", said.plain):
            count = re.match(r"(?:an?) ()", said.plain)
        if count is not None:
            self._say(
                NODES, HAS, str(_number(count[1]) if count[1] else 1), "node count", said.text
            )

    def _metastases(self, said: "_Clause") -> None:
        for word in said.of("metastasis"):
            organs = [m.subject for m in said.mentions] or [ABDOMEN]
            relation = LACKS if word.denied else HAS
            for organ in organs:
                for subject in _apart_if(organ, relation == LACKS):
                    self._say(subject, relation, METASTASIS, "metastasis", said.text)

    def _conditions(self, said: "_Clause") -> None:
        homes = {"cirrhosis": "liver", "inflammation": "pancreas", "enlargement": "spleen"}
        for word in said.of("condition"):
            near = said.organs_of(word) or [self.organ]
            home = homes[word.value]
            named = re.search(r"cirrho|pancreatit|splenomegal", said.plain)
            if home in near or (named and not said.mentions):
                relation = LACKS if word.denied else HAS
                self._say(home, relation, word.value, "condition", said.text)

    def _normal(self, said: "_Clause") -> None:
        for word in said.of("normal"):
            ill = re.search(
                r"abnormal|patholog|^remarkable|^conspicuous", said.plain[word.start : word.end]
            )
            if bool(ill) != word.denied:
                continue
            for mention in said.mentions:
                if not mention.part:
                    for subject in _apart_if(mention.subject, True):
                        self._say(subject, LACKS, ABNORMALITY, "normal", said.text)

    def _tumours(self, said: "_Clause") -> None:
        for word in said.of("tumour"):
            organs = said.organs_of(word)
            if word.denied:
                for organ in organs or [ABDOMEN]:
                    self._say(organ, LACKS, TUMOUR, "tumour", said.text)
                return
            for organ in organs[:1] or ([self.lesion_organ] if self.lesion_organ else []):
                self._say(organ, SUGGESTS, TUMOUR, "tumour", said.text)

    def _lesions(self, said: "_Clause") -> None:
        """State a lesion and what it looks like."""
        words = said.of("lesion")
        organ = said.lesion_organ()
        if words and all(word.denied for word in words):
            for each in said.mentions:
                self._say(each.subject, LACKS, LESION, "lesion", said.text)
            return
        traits = [word for word in said.words if word.kind in _TRAITS]
        if words and not organ:
            # "A second lesion is smaller.": of the organ that the last one is in.
            organ = self.lesion_organ or self.organ
        if organ and (words or said.parts):
            if not words and not traits and not MEASURE.search(said.plain):
                return
            if words and organ:
                self.lesion_organ = organ
                self._say(organ, HAS, LESION, "lesion", said.text)
        elif (
            self.topic != "lesion"
            or not self.lesion_organ
            or (said.mentions and all(m.subject != self.lesion_organ for m in said.mentions))
        ):
            return
        else:
            organ = self.lesion_organ
        for part in said.parts:
            if part.subject == organ:
                self._say(organ, HAS, part.part, "part", said.text)
        for word in traits:
            self._say(organ, LACKS if word.denied and word.kind != "depth" else HAS,
                      word.value, word.kind, said.text)  # fmt: skip
        for value, unit in MEASURE.findall(said.plain):
            mm = float(value) * (10 if unit.startswith("c") else 1)
            self._say(organ, HAS, f"{mm:.0f} mm", "size", said.text)
        if count := LESION_COUNT.search(said.plain):
            self.counted[organ] = _number(count[1])
        elif words and INTRODUCED.search(said.plain):
            self.introduced[organ] = self.introduced.get(organ, 0) + 1

    def _thirds(self, said: "_Clause") -> None:
        for word in said.of("third"):
            for mention in said.mentions[:1]:
                self._say(mention.subject, HAS, word.value, "third", said.text)


@dataclass(frozen=True)
class _Clause:
    text: str
    plain: str
    mentions: list[_Mention]
    words: list[_Word]

    def of(self, kind: str) -> list[_Word]:
        return [word for word in self.words if word.kind == kind]

    @property
    def parts(self) -> list[_Mention]:
        return [mention for mention in self.mentions if mention.part]

    def organs_of(self, word: _Word) -> list[str]:
        """The organs that a word is said of: those joined to the nearest, which follows or not."""
        after = [m for m in self.mentions if m.start >= word.end]
        before = [m for m in self.mentions if m.start < word.end]
        joined = before[-1:] if before and word.end - before[-1].end <= 2 else after or before
        return list(dict.fromkeys(mention.subject for mention in joined))

    def lesion_organ(self) -> str:
        """The organ of a lesion: that of a part, else the first that is named."""
        named = self.parts or self.mentions
        return named[0].subject if named else ""


def _mentions(plain: str) -> list[_Mention]:
    found = []
    for mention in labels_named(plain):
        subject = subject_of(mention.labels)
        if subject:
            parts = READERS["segment"](mention.name)
            part = next(iter(parts)) if len(parts) == 1 else ""
            found.append(_Mention(mention.start, mention.end, subject, part))
    return found


def _spelled(clause: str) -> str:
    """Spell a clause as the patterns do: lower case, no hyphens, Roman segments, usual names."""
    plain = re.sub(r"[-_\u2010\u2011\u2013]", " ", clause.lower())
    plain = re.sub(r"\bcorpus\b", "body", plain)
    plain = re.sub(r"\b(segments?) ([1-8])\b", lambda m: f"{m[1]} {_ARABIC[m[2]]}", plain)
    plain = re.sub(r"\b(hepatic|liver) segment ", "liver segment ", plain)
    return re.sub(r"oesoph", "esoph", plain)


def _apart(plain: str) -> str:
    return re.sub(r"(?<=[0-9a-dx])(?=[nm][0-9x])", " ", plain)  # t4an1m0


def _apart_if(subject: str, lacking: bool) -> tuple[str, ...]:
    """Name each side of a pair that lacks something; what a pair has may be on one side."""
    if lacking and subject in ("lungs", "kidneys"):
        return tuple(f"{side} {subject[:-1]}" for side in ("left", "right"))
    return (subject,)


def _number(word: str) -> int:
    if word in ("single", "solitary"):
        return 1
    if word in ("both", "a pair of"):
        return 2
    return int(word) if word.isdigit() else NUMBERS.index(word) + 1
