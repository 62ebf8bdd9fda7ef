"""What can be asked of a case: of where its organs lie, of each organ, and of the whole scan."""

from collections.abc import Iterator, Sequence

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.engine.agents.ask import NONE, THIRDS, Ask, Told, rests_on, within
from tumorchain_jax.engine.agents.organ_asks import OrganAsks
from tumorchain_jax.engine.agents.statements import NO_TUMOUR, TUMOUR
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import KnowledgeGraph

_PLACES = (("third", ""), ("box", "grid"))


def asks(
    tellings: Sequence[Told], masks: Sequence[Fact], graph: KnowledgeGraph, whole: bool = True
) -> list[Ask]:
    """List what can be asked of a case, in a fixed order.

    Args:
        tellings: of the organs.
        masks: facts of masks.
        graph: for parts, options and criteria.
        whole: ask of the whole scan too: nothing was set aside, and all that is suspicious has
            its place.
    """
    found: list[Ask] = list(_positions(masks))
    for told in tellings:
        found += OrganAsks(told, graph).all()
    return found + (list(_whole(tellings)) if whole else [])


def _positions(masks: Sequence[Fact]) -> Iterator[Ask]:
    """Ask where organs lie that the masks show whole."""
    label = {display_name(each): each for each in DIGESTIVE}
    for fact in masks:
        if fact.organ not in label or (fact.attribute, fact.unit) not in _PLACES:
            continue
        claim = Claim(fact.organ, fact.attribute, fact.value, (fact.id,))
        third = fact.attribute == "third"
        text = f"the centre of the {fact.organ} lies in the {fact.value} of the scan"
        if not third:
            text = f"the box around the {fact.organ} is ({fact.value})"
        yield Ask(
            "organ_position",
            fact.attribute,
            label[fact.organ],
            (("organ", fact.organ),),
            fact.value if third else f"({fact.value})",
            THIRDS if third else (),
            (Step("finding", text, (claim,)),),
            (fact.id,),
        )


def _whole(tellings: Sequence[Told]) -> Iterator[Ask]:
    """Ask of the whole scan: which organ holds the tumour, and a report of all."""
    ill: list[Told] = []
    for told in tellings:
        said = {c.object for s in told.chain for c in s.claims if c.relation == "impression"}
        if not said:
            return
        if any(each.startswith("possible") for each in said):
            return
        if said != {NO_TUMOUR}:
            if TUMOUR not in said:
                return
            ill.append(told)
    if not tellings or len(ill) > 1:
        return
    options = (*map(display_name, DIGESTIVE), NONE)
    answer = ill[0].view.organ if ill else NONE
    steps = tuple(s for told in tellings for s in told.chain)
    position = within("tumor_position", steps)
    ordered = (answer, *(each for each in options if each != answer))
    yield Ask(
        "tumor_position", "which organ", 0, (), answer, ordered, position, *rests_on(position),
        search=True,
    )  # fmt: skip
    conclusion = f"a tumour of the {answer}" if ill else "no tumour"
    yield Ask(
        "cot_report", "whole report", 0, (), conclusion, (), steps, *rests_on(steps), search=True
    )
