"""Banks of wordings, and reports written in them from the facts about a patient."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.evaluation.chain.facts import ENLARGEMENT, INFLAMMATION, Facts
from tumorchain_jax.evaluation.chain.triples import subject_of
from tumorchain_jax.phantoms.lesions import NONE
from tumorchain_jax.phantoms.report_text import and_join

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_CONDITIONS = {INFLAMMATION: "swelling", ENLARGEMENT: "spleen"}


@dataclass(frozen=True)
class Phrases:
    """A bank of wordings.

    Attributes:
        name: what a table calls it.
        headings: of findings, impression and stage.
        statements: statement -> its wordings.
        values: attribute of a lesion -> its wordings; the word itself where there is none.
    """

    name: str
    headings: tuple[str, str, str]
    statements: Mapping[str, tuple[str, ...]]
    values: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Report:
    """A report in three sections, each a list of sentences; findings organ by organ."""

    headings: tuple[str, str, str]
    findings: tuple[tuple[str, ...], ...]
    impression: tuple[str, ...]
    stage: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole report."""
        organs = [sentence for of_organ in self.findings for sentence in of_organ]
        sections = zip(self.headings, (organs, self.impression, self.stage), strict=True)
        return "\n".join(f"{heading} {' '.join(said)}" for heading, said in sections)


def write_report(facts: Facts, phrases: Phrases, seed: int) -> Report:
    """Write what the facts say, all of it and nothing else, in wordings drawn by the seed."""
    return _Writer(facts, phrases, np.random.default_rng(seed)).report()


@dataclass
class _Writer:
    facts: Facts
    phrases: Phrases
    rng: np.random.Generator

    def report(self) -> Report:
        facts = self.facts
        organs = [organ for organ in facts.in_view if organ != facts.organ]
        if facts.organ:
            organs.insert(0, facts.organ)
        findings = [tuple(self._organ(organ)) for organ in organs]
        if facts.nodes:
            what = "node" if facts.nodes == 1 else "nodes"
            findings.append((self._say(what, count=_NUMBERS[facts.nodes]),))
        else:
            findings.append((self._say("no nodes"),))
        return Report(
            self.phrases.headings, tuple(findings), tuple(self._impression()), (self._stage(),)
        )

    def _organ(self, organ: int) -> list[str]:
        facts, name = self.facts, _name(organ)
        said = self._lesions(name) if organ == facts.organ else []
        if organ in facts.metastases:
            said.append(self._say("metastases", organ=name))
        for home, condition in facts.conditions:
            if home == organ:
                said.append(self._say(_CONDITIONS.get(condition, condition)))
        said += [
            self._say("benign", organ=name, name=benign)
            for home, benign, _ in facts.benign
            if home == organ
        ]
        return said or [self._say("normal", organ=name, Organ=name[0].upper() + name[1:])]

    def _lesions(self, organ: str) -> list[str]:
        facts, largest = self.facts, self.facts.lesions[0]
        values = {
            "organ": organ,
            "count": _NUMBERS[len(facts.lesions)],
            "Count": _NUMBERS[len(facts.lesions)].capitalize(),
            "part": largest.part,
            "mm": f"{largest.mm:.0f}",
            "cm": f"{largest.mm / 10:.1f}",
            "density": self._value(facts.density),
            "shape": self._value(facts.shape),
            "border": self._value(facts.border),
        }
        said = [self._say("lesions" if len(facts.lesions) > 1 else "lesion", **values)]
        said += [self._say(facts.other)] if facts.other != NONE else []
        return said + ([self._say(facts.depth)] if facts.depth else [])

    def _impression(self) -> list[str]:
        facts = self.facts
        if not facts.suspected:
            return [self._say("no tumour")]
        said = [self._say("tumour", organ=_name(facts.suspected))]
        if not facts.metastases:
            return [*said, self._say("no spread")]
        sites = dict.fromkeys(map(_name, facts.metastases))
        return [*said, self._say("spread", sites=and_join(list(sites)))]

    def _stage(self) -> str:
        if self.facts.stage is None:
            return self._say("no stage")
        t, n, m = self.facts.stage
        return self._say("stage", t=t, n=n, m=m)

    def _value(self, word: str) -> str:
        return self._pick(self.phrases.values.get(word, (word,)))

    def _say(self, what: str, **facts: str) -> str:
        words = {"Count": facts.get("count", "").capitalize(), **facts}
        sentence = self._pick(self.phrases.statements[what]).format(**words)
        # A segment of the liver bears a number, like a name, and takes no article.
        return sentence.replace("the liver segment", "liver segment")

    def _pick(self, options: tuple[str, ...]) -> str:
        return options[int(self.rng.integers(len(options)))]


def _name(label: int) -> str:
    return subject_of((label,)) or display_name(label)
