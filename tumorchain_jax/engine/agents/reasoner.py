"""The Reasoner by rules: facts of CT and edges of the graph -> the chain of an organ.

Findings come first, lesion by lesion: where it lies, then what it is like. The impression follows,
with the edges of the graph that lead to it; then what the graph says of the signs. A fact of which
the report says the opposite elsewhere is told as it stands, and left out once the Calibrator has
said so.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.agents.setting_aside import left_out
from tumorchain_jax.engine.agents.statements import (
    LESIONS,
    NO_TUMOUR,
    TUMOUR,
    article,
    claim_of,
    denials,
    is_sure,
    is_tumour,
    located,
    may_be_suspicious,
    object_of,
    plural,
    signs,
    subject_of,
    the,
)
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import Edge

_ATTRIBUTES = {
    "size": ("it measures {object}", "its size is {object}", "its diameter is {object}"),
    "density": ("it is {object}", "its density is {object}", "in density it is {object}"),
    "shape": ("its shape is {object}", "it is {object} in shape"),
    "boundary": ("its border is {object}", "it is {object}"),
    "depth": ("it reaches the {object}", "in depth it reaches the {object}"),
    "others": ("it shows {object}", "in it there is {object}", "besides it shows {object}"),
    "finding": ("it shows {object}", "in it there is {object}"),
}  # fmt: skip
_NATURE = ("it is {object}",)
_FINDING = (
    "the {organ} shows {object}",
    "in the {organ} there is {object}",
    "there is {object} in the {organ}",
)
_FINDING_AT = (
    "the {organ} shows {object} in {part}",
    "in {part} there is {object}",
    "there is {object} in {part}",
)
_WHICH = "lesion {number} of the {organ} is {object}"
_AT = " in {part}"
_SIGN = ("the {organ} shows {object}", "there is {object} in the {organ}")
_SIGN_AT = ("there is {object} in {part}",)
_LYMPH_NODE = ("near the {organ} there is {object} that is enlarged",)
_NODES = ("there are {object} enlarged lymph nodes near the {organ}",)
_NODE = ("there is {object} enlarged lymph node near the {organ}",)
_COUNT = (
    "the {organ} shows {object} of them in all",
    "in all there are {object} of them in the {organ}",
)
_SUGGESTS = (
    "this suggests {object} of the {organ}",
    "the findings suggest {object} of the {organ}",
)
_IS = ("this suggests {object}", "the findings suggest {object}")
_NO_TUMOUR = (
    "the findings suggest {object} of the {organ}",
    "this suggests {object} of the {organ}",
)
_HARMLESS = ("{sign} suggests {impression}", "{sign} is a sign that suggests {impression}")
_SPREAD = ("lymph node", "metastasis")
_MIMICS = "{other} mimics {impression}"


class _Words:
    """Draws wordings; the same case, organ and attempt give the same ones."""

    def __init__(self, view: View):
        key = f"{view.case}\t{view.organ}\t{view.attempt}".encode()
        self._state = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")

    def pick(self, options: Sequence[str]) -> str:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return options[(self._state >> 33) % len(options)]


def reason(view: View) -> Chain:
    """Write the chain of an organ; empty if CT says nothing that can be told of it."""
    return tuple(_Writer(view).steps())


class _Writer:
    def __init__(self, view: View):
        self.view, self.words = view, _Words(view)
        told = left_out(view.facts) if view.issue.startswith("conflict") else {}
        self.facts = [
            fact
            for fact in view.facts
            if fact.time == "current" and fact.source.kind == "radiology" and fact.id not in told
        ]
        self.findings: list[Claim] = []

    def steps(self) -> Iterator[Step]:
        """Write findings, impressions and what the graph says of them."""
        yield from self._lesions()
        yield from self._organ()
        yield from self._general()
        yield from self._impressions()
        yield from self._differential()

    # Findings.

    def _lesions(self) -> Iterator[Step]:
        lesions: dict[int, list[Fact]] = defaultdict(list)
        for fact in self.facts:
            if fact.organ == self.view.organ and fact.lesion:
                lesions[fact.lesion].append(fact)
        named = {
            number: found
            for number, facts in lesions.items()
            if (found := [f for f in facts if f.attribute == "finding" and f.value in LESIONS])
        }
        for number in sorted(named):
            yield self._found(number, named[number], len(named) > 1)
            yield from self._attributes(lesions[number], named[number])

    def _found(self, number: int, found: list[Fact], several: bool) -> Step:
        first = max(found, key=lambda fact: (is_sure(fact), bool(fact.part)))
        same = [f for f in found if (f.value, object_of(f)) == (first.value, object_of(first))]
        placed = next((fact for fact in same if fact.part), None)
        claims = [claim_of(first, *same)]
        part = ""
        if placed is not None:
            claims.append(located(placed))
            part = the(placed.part)
        counts = [f for f in self._of(number, "count") if is_sure(f) and f.value != "1"]
        count = counts[0] if counts and is_sure(first) else None
        word = object_of(first)
        if count is not None:
            claims.append(claim_of(count))
            said = f"{count.value} {plural(word)}"
        else:
            said = word if first.polarity == "absent" else article(word)
        if several:
            text = _WHICH.format(number=number, organ=self.view.organ, object=said)
            text += _AT.format(part=part) if part else ""
        else:
            wording = self.words.pick(_FINDING_AT if part else _FINDING)
            text = wording.format(organ=self.view.organ, object=said, part=part)
        if count is not None:
            text = text.replace("there is", "there are").replace(
                " is ", " are ", 1 if several else 0
            )
        return Step("finding", text, tuple(claims))

    def _of(self, number: int, attribute: str) -> list[Fact]:
        organ = self.view.organ
        return [
            f for f in self.facts if (f.organ, f.lesion, f.attribute) == (organ, number, attribute)
        ]

    def _attributes(self, facts: list[Fact], told: list[Fact]) -> Iterator[Step]:
        first = max(told, key=lambda fact: (is_sure(fact), bool(fact.part)))
        for attribute, wordings in _ATTRIBUTES.items():
            for group in _alike(f for f in facts if f.attribute == attribute):
                said = object_of(group[0])
                if attribute == "finding":
                    if said == object_of(first):
                        continue
                    if group[0].value in LESIONS:
                        wordings = _NATURE
                        if group[0].polarity == "present":
                            said = article(said)
                text = self.words.pick(wordings).format(object=said)
                yield Step("finding", text, (claim_of(*group),))

    def _organ(self) -> Iterator[Step]:
        """Write what is said of the organ as a whole, or of a part without a lesion."""
        organ = self.view.organ
        whole = [f for f in self.facts if f.organ == organ and not f.lesion]
        for group in _alike(f for f in whole if f.attribute in ("finding", "others")):
            fact = group[0]
            claims = [claim_of(*group)]
            said = object_of(fact)
            if fact.value in LESIONS and fact.polarity == "present":
                said = article(said)
            if fact.part and fact.part != organ:
                claims.append(located(fact))
            wordings = _SIGN_AT if fact.part and fact.part != organ else _SIGN
            if fact.value == "lymph node":
                wordings = _LYMPH_NODE
                said = article(said) if fact.polarity == "present" else said
            text = self.words.pick(wordings).format(organ=organ, object=said, part=the(fact.part))
            yield Step("finding", text, tuple(claims))
        for group in _alike(f for f in whole if f.attribute == "nodes"):
            wordings = _NODE if object_of(group[0]) == "1" else _NODES
            text = self.words.pick(wordings).format(organ=organ, object=object_of(group[0]))
            yield Step("finding", text, (claim_of(*group),))
        for group in _alike(f for f in whole if f.attribute == "count" and f.value.isdigit()):
            if any(f.lesion for f in self.facts if f.organ == organ):
                text = self.words.pick(_COUNT).format(organ=organ, object=object_of(group[0]))
                yield Step("finding", text, (claim_of(*group),))

    def _general(self) -> Iterator[Step]:
        """Write what is said of no organ in particular: nodes, metastases."""
        for group in _alike(
            f for f in self.facts if not f.organ and (f.attribute == "nodes" or f.value in _SPREAD)
        ):
            fact = group[0]
            said = object_of(fact)
            if fact.value in LESIONS and fact.polarity == "present":
                said = article(said)
            text = (
                f"in the patient there is {said} that is enlarged"
                if fact.value == "lymph node"
                else f"in the patient there is {said}"
            )
            if fact.attribute == "nodes":
                text = f"in the patient there are {said} enlarged lymph nodes"
            yield Step("finding", text, (claim_of(*group),))

    # Impressions.

    def _impressions(self) -> Iterator[Step]:
        organ = self.view.organ
        here = [f for f in self.facts if f.organ == organ]
        told: dict[str, list[Fact]] = {}
        for group in _alike(f for f in here if f.attribute == "impression"):
            fact = group[0]
            edges = self._edges(fact.value)
            if NO_TUMOUR in (fact.value, object_of(fact)) or fact.polarity == "absent" or not edges:
                continue
            told[fact.value] = group
            wordings = _SUGGESTS if fact.value == TUMOUR else _IS
            said = article(object_of(fact)) if fact.value == TUMOUR else object_of(fact)
            text = self.words.pick(wordings).format(organ=organ, object=said)
            yield Step("impression", text, (claim_of(*group, edges=edges),))
        if not told:
            yield from self._tumour_or_none(here)
        elif TUMOUR not in told:
            yield from self._kind_of_tumour(told)

    def _kind_of_tumour(self, told: Mapping[str, list[Fact]]) -> Iterator[Step]:
        """Conclude from the impression of a kind of tumour that there is one."""
        for value, group in told.items():
            behaves = [e for e in self.view.edges if is_tumour(e, value)]
            if behaves and all(is_sure(f) or f.certainty == "probable" for f in group):
                ids = tuple(dict.fromkeys(fact.id for fact in group))
                edges = (*self._edges(TUMOUR), *(edge.id for edge in behaves))
                text = self.words.pick(_SUGGESTS).format(
                    organ=self.view.organ, object=article(TUMOUR)
                )
                yield Step(
                    "impression", text, (Claim(self.view.organ, "impression", TUMOUR, ids, edges),)
                )
                return

    def _tumour_or_none(self, here: list[Fact]) -> Iterator[Step]:
        """Conclude from the findings where the report does not."""
        organ = self.view.organ
        sure = [f for f in here if f.attribute == "finding" and is_sure(f)]
        tumours = [f for f in sure if f.value == TUMOUR]
        if tumours:
            ids = tuple(dict.fromkeys(f.id for f in tumours))
            claim = Claim(organ, "impression", TUMOUR, ids, self._edges(TUMOUR))
            text = self.words.pick(_SUGGESTS).format(organ=organ, object=article(TUMOUR))
            yield Step("impression", text, (claim,))
            return
        denied = denials(self.facts, organ)
        if denied and not may_be_suspicious(here):
            ids = tuple(dict.fromkeys(f.id for f in denied))
            claim = Claim(organ, "impression", NO_TUMOUR, ids, no_tumour_edges(self.view.edges))
            text = self.words.pick(_NO_TUMOUR).format(organ=organ, object=NO_TUMOUR)
            yield Step("impression", text, (claim,))

    def _edges(self, impression: str) -> tuple[str, ...]:
        """Return the edges that lead from what was found to an impression."""
        shown = signs(self.facts, self.view.organ)
        edges = [e for e in self.view.edges if e.object == impression and e.relation == "suggests"]
        edges = [edge for edge in edges if edge.subject in shown]
        arising = (impression, "arises_in", self.view.organ)
        edges += [e for e in self.view.edges if (e.subject, e.relation, e.object) == arising]
        return tuple(edge.id for edge in edges)

    def _differential(self) -> Iterator[Step]:
        """Write which impression the signs speak for by the graph, and what it is mistaken for."""
        shown = signs(self.facts, self.view.organ)
        leads: dict[str, list[Edge]] = defaultdict(list)
        for edge in self.view.edges:
            if edge.relation == "suggests" and edge.subject in shown and edge.object != TUMOUR:
                leads[edge.object].append(edge)
        if not leads or not {"mass", "focal wall thickening"} & shown.keys():
            return
        best = max(leads, key=lambda impression: len(leads[impression]))
        edge = leads[best][0]
        text = self.words.pick(_HARMLESS).format(sign=edge.subject, impression=best)
        claims = [graph_claim(edge, shown[edge.subject])]
        for other in self.view.edges:
            if other.relation == "mimics" and other.object == best:
                text += "; " + _MIMICS.format(other=other.subject, impression=best)
                claims.append(graph_claim(other))
                break
        yield Step("reasoning", text, tuple(claims))


def graph_claim(edge: Edge, facts: tuple[str, ...] = ()) -> Claim:
    """Return the claim that an edge makes."""
    return Claim(edge.subject, edge.relation, edge.object, facts, (edge.id,))


def no_tumour_edges(edges: Iterable[Edge]) -> tuple[str, ...]:
    """Return the edges that name a sign of a tumour, which is missing."""
    return tuple(e.id for e in edges if (e.relation, e.object) == ("suggests", TUMOUR))


def _alike(facts: Iterable[Fact]) -> list[list[Fact]]:
    """Group facts that say the same, in the order of the first of each."""
    groups: dict[tuple[str, str, str, str], list[Fact]] = {}
    for fact in facts:
        key = subject_of(fact), fact.attribute, object_of(fact), fact.part
        groups.setdefault(key, []).append(fact)
    return list(groups.values())
