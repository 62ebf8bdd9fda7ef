"""Faults planted in chains that were right: each returns the chain with one fault, or None.

A fault changes what a step says and what it claims, as a model that errs would write both, so that
only the facts and the graph can tell.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tumorchain_jax.anatomy.organs import SUB_ORGANS
from tumorchain_jax.engine.agents.ask import VALUES
from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.agents.statements import claim_of, labels_of, object_of
from tumorchain_jax.engine.case import Claim, Step

Fault = Callable[[random.Random, View, Chain], Chain | None]
ORGANS = ("liver", "pancreas", "stomach", "colon", "esophagus")


def _claims(chain: Chain, *relations: str) -> Iterator[tuple[int, Claim]]:
    for number, step in enumerate(chain):
        for claim in step.claims:
            if claim.relation in relations:
                yield number, claim


def _said(chain: Chain, number: int, old: Claim, new: Claim, text: str = "") -> Chain:
    """Put another claim in a step, in its words too."""
    step = chain[number]
    claims = tuple(new if claim == old else claim for claim in step.claims)
    text = text or step.text.replace(old.object, new.object)
    return (*chain[:number], Step(step.level, text, claims), *chain[number + 1 :])


def _other(attribute: str) -> Fault:
    def fault(rng: random.Random, view: View, chain: Chain) -> Chain | None:
        found = [(n, c) for n, c in _claims(chain, attribute) if not c.object.startswith("no ")]
        if not found:
            return None
        number, claim = rng.choice(found)
        value = rng.choice([v for v in VALUES[attribute] if v != claim.object])
        return _said(chain, number, claim, replace(claim, object=value))

    return fault


def wrong_organ(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    other = rng.choice([organ for organ in ORGANS if organ != view.organ])
    number = rng.randrange(len(chain))
    step = chain[number]
    claims = tuple(replace(c, subject=c.subject.replace(view.organ, other)) for c in step.claims)
    if claims == step.claims or view.organ not in step.text:
        return None
    changed = Step(step.level, step.text.replace(view.organ, other), claims)
    return (*chain[:number], changed, *chain[number + 1 :])


def wrong_side(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    sides = {"left": "right", "right": "left", "upper": "lower", "lower": "upper"}
    sides |= {"ascending": "descending", "descending": "ascending"}
    for number, claim in _claims(chain, "location"):
        for side, opposite in sides.items():
            if re.search(rf"\b{side}\b", claim.object):
                place = re.sub(rf"\b{side}\b", opposite, claim.object)
                return _said(chain, number, claim, replace(claim, object=place))
    step = chain[rng.randrange(len(chain))]
    if view.organ not in step.text:
        return None
    number = chain.index(step)
    text = step.text.replace(view.organ, f"{rng.choice(('left', 'right'))} {view.organ}", 1)
    return (*chain[:number], replace(step, text=text), *chain[number + 1 :])


def wrong_part(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    found = list(_claims(chain, "location"))
    if not found:
        return None
    number, claim = rng.choice(found)
    parts = SUB_ORGANS[labels_of(view.organ)[0]]
    other = rng.choice([part for part in parts if part != claim.object])
    return _said(chain, number, claim, replace(claim, object=other))


def wrong_size(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    found = list(_claims(chain, "size"))
    if not found:
        return None
    number, claim = rng.choice(found)
    size = int(claim.object.split()[0]) + rng.choice((-3, -1, 1, 10))
    return _said(chain, number, claim, replace(claim, object=f"{size} mm"))


def wrong_unit(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    found = list(_claims(chain, "size"))
    if not found:
        return None
    number, claim = rng.choice(found)
    unit = rng.choice(("cm", "m", "ml"))
    return _said(chain, number, claim, replace(claim, object=claim.object.replace("mm", unit)))


def wrong_count(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    found = list(_claims(chain, "nodes", "count"))
    if found:
        number, claim = rng.choice(found)
        count = str(int(claim.object) + rng.choice((1, 2, 5)))
        return _said(chain, number, claim, replace(claim, object=count))
    finding = next(iter(_claims(chain, "finding")), None)
    if finding is None or finding[1].object.startswith("no "):
        return None
    number, claim = finding
    text = re.sub(r"\ban? (?=\w)", f"{rng.randint(2, 5)} ", chain[number].text, count=1)
    return _said(chain, number, claim, claim, text) if text != chain[number].text else None


def wrong_polarity(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    number, claim = rng.choice(list(_claims(chain, "finding", "others")))
    if claim.object.startswith("no "):
        return _said(chain, number, claim, replace(claim, object=claim.object[3:]))
    text = re.sub(rf"\b(?:an? )?{claim.object}", f"no {claim.object}", chain[number].text, count=1)
    return _said(chain, number, claim, replace(claim, object=f"no {claim.object}"), text)


def prior_as_current(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    prior = [f for f in view.facts if f.time == "prior"]
    if not prior:
        return None
    claim = claim_of(replace(prior[0], time="current"))
    claim = replace(claim, facts=(prior[0].id,))
    step = Step(
        "finding", f"lesion {prior[0].lesion} of the {view.organ} is a {prior[0].value}", (claim,)
    )
    return (step, *chain)


def hedge_as_certain(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    for number, claim in _claims(chain, "finding"):
        if claim.object.startswith("possible "):
            return _said(chain, number, claim, replace(claim, object=claim.object[9:]))
    return None


def invented_finding(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    word = rng.choice(("necrosis", "haemangioma", "calcification", "ascites", "a fistula"))
    number = rng.randrange(len(chain))
    step = chain[number]
    if word in step.text:
        return None
    kind = rng.random()
    if kind < 0.4:
        changed = replace(step, text=f"{step.text} with {word}")
        return (*chain[:number], changed, *chain[number + 1 :])
    facts = step.claims[0].facts if kind < 0.7 else ("0" * 16,)
    claim = Claim(view.organ, "finding", word, facts)
    return (Step("finding", f"the {view.organ} shows {word}", (claim,)), *chain)


def missing_step(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    about = {
        c.subject.split(" lesion ")[0] for s in chain for c in s.claims if s.level == "finding"
    }
    steps = [
        number
        for number, step in enumerate(chain)
        if step.level != "reasoning" and all(c.subject.startswith(view.organ) for c in step.claims)
    ]
    if view.organ not in about or not steps:
        return None
    number = rng.choice(steps)
    return (*chain[:number], *chain[number + 1 :])


def wrong_edge(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    found = [(n, s) for n, s in enumerate(chain) if any(c.edges for c in s.claims)]
    if not found:
        return None
    number, step = rng.choice(found)
    claim = next(c for c in step.claims if c.edges)
    others = [e.id for e in view.edges if e.relation not in ("suggests", "arises_in")]
    wrong = rng.choice(("f" * 12, rng.choice(others), ""))
    edges = (wrong, *claim.edges[1:]) if wrong else ()
    return _said(chain, number, claim, replace(claim, edges=edges))


def conclusion_against(rng: random.Random, view: View, chain: Chain) -> Chain | None:
    found = list(_claims(chain, "impression"))
    if not found:
        return None
    number, claim = rng.choice(found)
    step = chain[number]
    if claim.object == "no tumour":
        text = step.text.replace("no tumour", "a tumour")
        return _said(chain, number, claim, replace(claim, object="tumour"), text)
    text = step.text.replace(f"a {claim.object}", "no tumour").replace(claim.object, "no tumour")
    denied = [f for f in view.facts if object_of(f).startswith("no ")]
    facts = tuple(f.id for f in denied) or claim.facts
    new = replace(claim, object="no tumour", facts=facts)
    return _said(chain, number, claim, new, text)


FAULTS: dict[str, Fault] = {
    "organ": wrong_organ,
    "side": wrong_side,
    "sub-organ": wrong_part,
    "size": wrong_size,
    "unit": wrong_unit,
    "density": _other("density"),
    "shape": _other("shape"),
    "border": _other("boundary"),
    "count": wrong_count,
    "polarity": wrong_polarity,
    "prior as current": prior_as_current,
    "hedge as certain": hedge_as_certain,
    "invented finding": invented_finding,
    "missing step": missing_step,
    "wrong edge": wrong_edge,
    "conclusion against findings": conclusion_against,
}
"""Kind -> how it is planted; T, N and M are the Summarizer's, see the test."""
