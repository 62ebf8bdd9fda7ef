"""Faults planted in chains that were right: 15 kinds, each changes what a step says and claims.

As a model that errs would, a fault writes the same wrong thing in the sentence and in the claim, so
that only facts and graph can tell.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

from tumorchain_jax.anatomy.organs import DIGESTIVE, SUB_ORGANS, display_name
from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.phantoms.reports.statements import BOUNDARIES, DENSITIES, DEPTHS, OTHERS, SHAPES

Fault = Callable[[Random, View, Chain], Chain | None]
"""Returns a chain with one fault, or None where the chain has no place for it."""
_SIDES = (("left", "right"), ("upper", "lower"), ("ascending", "descending"), ("head", "tail"),
          ("fundus", "antrum"), ("II", "VII"), ("V", "VIII"))  # fmt: skip


def _places(chain: Chain, relations: Sequence[str]) -> list[tuple[int, Claim]]:
    return [
        (number, claim)
        for number, step in enumerate(chain)
        for claim in step.claims
        if claim.relation in relations
    ]


def _put(
    chain: Chain, number: int, old: Claim, new: Claim, text: str | None = None
) -> Chain | None:
    """Exchange a claim of a step, in its words too; None where the words do not have it."""
    step = chain[number]
    if text is None:
        pattern = rf"(?<!\w){re.escape(old.object)}(?!\w)"
        text = re.sub(pattern, new.object, step.text, count=1)
    claims = tuple(new if claim == old else claim for claim in step.claims)
    if text == step.text or claims == step.claims:
        return None
    return (*chain[:number], Step(step.level, text, claims), *chain[number + 1 :])


def _value(relation: str, values: Sequence[str]) -> Fault:
    def fault(rng: Random, view: View, chain: Chain) -> Chain | None:
        found = [(n, c) for n, c in _places(chain, (relation,)) if c.object in values]
        if not found:
            return None
        number, claim = rng.choice(found)
        # A value that the lesion has as well would be none.
        said = {c.object for _, c in _places(chain, (relation,)) if c.subject == claim.subject}
        other = rng.choice([value for value in values if value not in said])
        return _put(chain, number, claim, replace(claim, object=other))

    return fault


def _number(relation: str, change: Callable[[Random, float], float]) -> Fault:
    def fault(rng: Random, view: View, chain: Chain) -> Chain | None:
        found = [(n, c) for n, c in _places(chain, (relation,)) if re.match(r"\d", c.object)]
        if not found:
            return None
        number, claim = rng.choice(found)
        value, _, unit = claim.object.partition(" ")
        other = f"{change(rng, float(value)):g} {unit}".strip()
        return _put(chain, number, claim, replace(claim, object=other))

    return fault


def _organ(rng: Random, view: View, chain: Chain) -> Chain | None:
    other = rng.choice([display_name(o) for o in DIGESTIVE if display_name(o) != view.organ])
    numbers = [n for n, step in enumerate(chain) if re.search(rf"\b{view.organ}\b", step.text)]
    if not numbers:
        return None
    number = rng.choice(numbers)
    step = chain[number]
    claims = tuple(replace(c, subject=c.subject.replace(view.organ, other)) for c in step.claims)
    if claims == step.claims:
        return None
    text = re.sub(rf"\b{view.organ}\b", other, step.text)
    return (*chain[:number], Step(step.level, text, claims), *chain[number + 1 :])


def _part(rng: Random, view: View, chain: Chain) -> Chain | None:
    found = _places(chain, ("location",))
    if not found:
        return None
    number, claim = rng.choice(found)
    parts = next((p for p in SUB_ORGANS.values() if claim.object in p), ())
    others = [p for p in parts if p not in (claim.object, *(c.object for _, c in found))]
    return _put(chain, number, claim, replace(claim, object=rng.choice(others))) if others else None


def _side(rng: Random, view: View, chain: Chain) -> Chain | None:
    for number, claim in _places(chain, ("location",)):
        for one, other in (*_SIDES, *((b, a) for a, b in _SIDES)):
            if re.search(rf"\b{one}\b", claim.object):
                place = re.sub(rf"\b{one}\b", other, claim.object)
                return _put(chain, number, claim, replace(claim, object=place))
    return None


def _invented(rng: Random, view: View, chain: Chain) -> Chain | None:
    if not chain or not chain[0].claims:
        return None
    known = {fact.value for fact in (*view.facts, *view.around)}
    value = rng.choice([v for v in ("cyst", "haemangioma", "granuloma") if v not in known])
    cited = rng.choice(chain[0].claims)
    claim = Claim(f"{view.organ} lesion 9", "finding", value, cited.facts)
    return (Step("finding", f"the {view.organ} shows a {value}", (claim,)), *chain)


def _missing(rng: Random, view: View, chain: Chain) -> Chain | None:
    numbers = [n for n, step in enumerate(chain) if step.level == "finding"]
    told = [n for n in numbers if any(_tells(claim) for claim in chain[n].claims)]
    if not told:
        return None
    number = rng.choice(told)
    return (*chain[:number], *chain[number + 1 :])


def _tells(claim: Claim) -> bool:
    return claim.relation in ("finding", "size", "density", "shape", "boundary") and not (
        claim.object.startswith(("no ", "earlier ", "questioned "))
    )


def _edge(rng: Random, view: View, chain: Chain) -> Chain | None:
    found = [(n, c) for n, step in enumerate(chain) for c in step.claims if c.edges]
    wrong = [edge.id for edge in view.edges if edge.relation in ("drains_to", "adjacent_to")]
    if not found or not wrong:
        return None
    number, claim = rng.choice(found)
    step = chain[number]
    new = replace(claim, edges=(rng.choice(wrong), *claim.edges[1:]))
    claims = tuple(new if each == claim else each for each in step.claims)
    return (*chain[:number], replace(step, claims=claims), *chain[number + 1 :])


def _contradiction(rng: Random, view: View, chain: Chain) -> Chain | None:
    for number, claim in _places(chain, ("impression",)):
        other = "no tumour" if claim.object == "tumour" else "tumour"
        if claim.object in ("tumour", "no tumour"):
            step = chain[number]
            swap = {"no tumour": "no tumour", "tumour": "a tumour"}
            text = step.text.replace(swap[claim.object], swap[other], 1)
            return _put(chain, number, claim, replace(claim, object=other), text)
    return None


def _polarity(rng: Random, view: View, chain: Chain) -> Chain | None:
    found = [(n, c) for n, c in _places(chain, ("finding",)) if c.object.startswith("no ")]
    if not found:
        return None
    number, claim = rng.choice(found)
    value = claim.object.removeprefix("no ")
    text = re.sub(rf"\bno {value}\b", f"a {value}", chain[number].text, count=1)
    return _put(chain, number, claim, replace(claim, object=value), text)


def _diagnosis(rng: Random, view: View, chain: Chain) -> Chain | None:
    found = [(n, c) for n, c in _places(chain, ("impression",)) if "tumour" not in c.object.split()]
    named = {edge.subject for edge in view.edges if edge.relation == "arises_in"}
    said = {c.object for _, c in _places(chain, ("impression",))}
    known = {fact.value for fact in view.facts}
    others = sorted(named - said - known)
    if not found or not others:
        return None
    number, claim = rng.choice(found)
    return _put(chain, number, claim, replace(claim, object=rng.choice(others)))


def _longer(rng: Random, size: float) -> float:
    return float(round(size * rng.choice((0.5, 1.3, 2, 10))))


def _more(rng: Random, count: float) -> float:
    return float(count + rng.choice((1, 2, 3)))


FAULTS: dict[str, Fault] = {
    "organ": _organ,
    "part": _part,
    "side": _side,
    "size": _number("size", _longer),
    "count": _number("count", _more),
    "nodes": _number("nodes", _more),
    "density": _value("density", DENSITIES),
    "shape": _value("shape", SHAPES),
    "boundary": _value("boundary", BOUNDARIES),
    "depth or accompanying finding": lambda rng, view, chain: (
        _value("depth", DEPTHS)(rng, view, chain) or _value("others", OTHERS)(rng, view, chain)
    ),
    "invented finding": _invented,
    "missing step": _missing,
    "wrong edge": _edge,
    "contradiction": _contradiction,
    "negation turned round": _polarity,
    "diagnosis": _diagnosis,
}
"""Kind -> fault; the stage is planted in `agents.py`, for the Summarizer draws it."""


def plantings(rng: Random, view: View, chain: Chain) -> Iterator[tuple[str, Chain]]:
    """Yield a chain with one fault, for each kind that has a place in it."""
    for kind, fault in FAULTS.items():
        faulty = fault(rng, view, chain)
        if faulty is not None and faulty != chain:
            yield kind, faulty
