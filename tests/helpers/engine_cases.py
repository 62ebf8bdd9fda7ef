"""Cases of the engine with known facts: texts whose every span a fact quotes."""

import random
from collections.abc import Sequence
from dataclasses import replace

from tumorchain_jax.anatomy.organs import DIGESTIVE, SUB_ORGANS, display_name
from tumorchain_jax.engine.agents.ask import VALUES
from tumorchain_jax.engine.agents.calibrator import calibrate
from tumorchain_jax.engine.agents.pipeline import Settings
from tumorchain_jax.engine.agents.protocol import Agents
from tumorchain_jax.engine.agents.reasoner import reason
from tumorchain_jax.engine.agents.summarizer import summarize
from tumorchain_jax.engine.case import Case, Document
from tumorchain_jax.engine.facts import Fact, Source, SourceKind

CODE_WORD = "xylophone"
"""Stands in pathology texts alone."""
HOLLOW = ("stomach", "colon", "esophagus")
DEPTHS = ("inner wall", "wall", "fat", "surface", "neighbour")


class Paper:
    """A report that grows fact by fact."""

    def __init__(self, case: str, kind: SourceKind):
        self.case, self.kind, self.text = case, kind, "Report. "
        self._facts: list[Fact] = []

    def say(self, organ: str, attribute: str, value: str, **more: object) -> Fact:
        """Add a fact and the words that it quotes."""
        quote = f"{organ} {attribute} {value}".strip()
        start = len(self.text)
        self.text += f"{quote}. "
        values = {"part": "", "lesion": 0, "unit": "", "polarity": "present"}
        values |= {"certainty": "definite", "time": "current"} | more
        source = Source(self.kind, "", start, start + len(quote), quote)
        fact = Fact(
            case=self.case, organ=organ, attribute=attribute, value=value, source=source, **values
        )
        self._facts.append(fact)
        return fact

    def finish(self) -> tuple[Document, tuple[Fact, ...]]:
        """Return the document, and the facts with its hash."""
        document = Document(self.kind, self.text)
        sha256 = document.sha256
        return document, tuple(
            replace(fact, source=replace(fact.source, document=sha256)) for fact in self._facts
        )


def known_case(seed: int, tumour: bool | None = None) -> tuple[Case, tuple[Fact, ...]]:
    """Make a case with findings of all kinds, and its facts.

    Args:
        tumour: whether one organ has a tumour; None to draw it.
    """
    rng = random.Random(seed)
    name = f"case-{seed}"
    ct, pathology = Paper(name, "radiology"), Paper(name, "pathology")
    organs = [display_name(label) for label in DIGESTIVE]
    ill = rng.choice(organs) if (rng.random() < 0.7 if tumour is None else tumour) else ""
    for label, organ in zip(DIGESTIVE, organs, strict=True):
        if organ == ill:
            _tumour(rng, ct, organ, SUB_ORGANS[label])
        elif rng.random() < 0.2:
            part = rng.choice(SUB_ORGANS[label])
            ct.say(organ, "finding", "cyst", part=part, lesion=1)
            ct.say(organ, "density", "cystic", part=part, lesion=1)
        else:
            ct.say(organ, "finding", "mass", polarity="absent")
    if rng.random() < 0.3:
        ct.say("spleen", "finding", "splenomegaly")
    _spread(rng, ct, pathology, ill)
    document, facts = ct.finish()
    documents, found = [document], facts
    if ill:
        pathology.text += f"The {CODE_WORD} was seen. "
        document, more = pathology.finish()
        documents, found = [*documents, document], (*facts, *more)
    return Case(name, f"patient-{seed}", (f"scan-{seed}",), tuple(documents)), found


def _tumour(rng: random.Random, ct: Paper, organ: str, parts: Sequence[str]) -> None:
    count = rng.choice((1, 1, 2))
    for number, part in enumerate(rng.sample(list(parts), count), 1):
        place = {"part": part, "lesion": number}
        ct.say(organ, "finding", rng.choice(("mass", "tumour")), **place)
        ct.say(organ, "size", str(rng.randint(5, 90)), unit="mm", **place)
        for attribute in ("shape", "boundary", "density"):
            ct.say(organ, attribute, rng.choice(VALUES[attribute]), **place)
        if organ in HOLLOW:
            ct.say(organ, "depth", rng.choice(DEPTHS), **place)
        polarity = rng.choice(("present", "absent"))
        ct.say(organ, "others", rng.choice(VALUES["others"]), polarity=polarity, **place)
    if rng.random() < 0.5:
        part = rng.choice(parts)
        ct.say(organ, "finding", "cyst", part=part, lesion=count + 1, certainty="possible")
    if rng.random() < 0.5:
        ct.say(organ, "finding", "metastasis", lesion=count + 2, time="prior")
    ct.say(organ, "impression", "tumour", certainty=rng.choice(("definite", "probable")))


def _spread(rng: random.Random, ct: Paper, pathology: Paper, ill: str) -> None:
    nodes = rng.randint(1, 8) if ill and rng.random() < 0.5 else 0
    if nodes:
        ct.say(ill, "nodes", str(nodes))
    else:
        ct.say("", "finding", "lymph node", polarity="absent")
    if ill and ill != "liver" and rng.random() < 0.3:
        ct.say("lungs", "finding", "metastasis", lesion=1)
    else:
        ct.say("", "finding", "metastasis", polarity="absent")
    if ill:
        pathology.say(ill, "T", rng.choice(("T1", "T2", "T3", "T4")))
        pathology.say(ill, "N", rng.choice(("N0", "N1", "N2")))
        pathology.say(ill, "M", rng.choice(("M0", "M1")))


def knowing(facts: Sequence[Fact], **changes: object) -> Settings:
    """Return settings whose Extractor knows the facts."""
    names = tuple((name, "rules") for name in ("reasoner", "calibrator", "summarizer"))
    agents = Agents(lambda case: tuple(facts), reason, calibrate, summarize, names)
    return replace(Settings(agents=agents), **changes)
