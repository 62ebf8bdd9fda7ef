"""The rounds of a record: what the model writes, and the organs that it then looks at again.

The first round sees the whole scan and says which organs need a closer look; an organ that a round
names is looked at before the next. The last round holds the two parts that the paper asks for
(11.3): the reasoning process and the summary.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from tumorchain_jax.anatomy.organs import display_name, labels_named
from tumorchain_jax.data.schema import RoundTarget
from tumorchain_jax.engine.agents.protocol import Chain
from tumorchain_jax.engine.case import Step

_ORDINALS = (
    "First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth", "Ninth", "Tenth",
)  # fmt: skip
_LUNGS = frozenset({10, 11, 12, 13, 14})
# The order of a systematic reading.
_SEARCH = ((5, 7), (6, 20), (15,))


@lru_cache(maxsize=4096)
def organs_named(text: str) -> tuple[int, ...]:
    """Return the merged labels that a text names, each once."""
    return tuple(dict.fromkeys(label for each in labels_named(text) for label in each.labels))


def think(steps: Sequence[Step], summary: str) -> str:
    """Write the last round: the reasoning process, step by step, and the summary."""
    said = []
    for number, step in enumerate(steps):
        ordinal = _ORDINALS[number] if number < len(_ORDINALS) else "Next"
        said.append(f"{ordinal}, {step.text}.")
    process = " ".join(said)
    return f"<think> Reasoning process: {process} </think> Summary: {summary}"


def asked_rounds(
    organ: int, steps: Chain, summary: str, visible: Collection[int]
) -> tuple[RoundTarget, ...]:
    """Write the rounds of a question about one organ."""
    last = think(steps, summary)
    others = [label for label in organs_named(last) if label != organ and label in visible]
    first = f"The question asks about the {display_name(organ)}, which needs a closer look."
    if others:
        first += f" {needs(others)}"
    looked = tuple(label for label in organs_named(first) if label in visible)
    return RoundTarget(first), RoundTarget(last, looked)


def search_rounds(
    chains: dict[int, Chain], ill: int, summary: str, visible: Collection[int]
) -> tuple[tuple[RoundTarget, ...], Chain]:
    """Write the rounds of a search through the organs, which ends where the tumour is found.

    Args:
        chains: organ -> the steps that may be told of it.
        ill: the organ with the tumour; 0 for none.

    Returns:
        The rounds, and the steps that they hold.
    """
    rounds: list[RoundTarget] = []
    looked: tuple[int, ...] = ()
    told: list[Step] = []
    begin: list[Step] = []
    for group in _SEARCH:
        organs = [organ for organ in group if organ in chains and organ in visible]
        if not organs:
            continue
        said = f"So far: {'; '.join(step.text for step in begin)}. " if begin else ""
        text = said + needs(organs)
        rounds.append(RoundTarget(text, looked))
        told += begin
        looked = tuple(
            label for label in organs_named(text) if label in visible and label not in _seen(rounds)
        )
        begin = _new((s for organ in organs if organ != ill for s in chains[organ]), told)
        if ill in organs:
            break
    last = _new((*begin, *chains.get(ill, ())), told)
    told += last
    rounds.append(RoundTarget(think(last, summary), looked))
    return tuple(rounds), tuple(told)


def _new(steps: Iterable[Step], told: Sequence[Step]) -> list[Step]:
    """Leave out what was told before, as of nodes that no organ's chain leaves out."""
    claimed = {step.claims for step in told}
    return list({s.claims: s for s in steps if s.claims not in claimed}.values())


def _seen(rounds: Iterable[RoundTarget]) -> set[int]:
    return {label for each in rounds for label in each.look_at}


def needs(organs: Sequence[int]) -> str:
    """`The liver and the pancreas need a closer look.`"""
    names = [f"the {display_name(label)}" for label in organs if label not in _LUNGS]
    if _LUNGS & set(organs):
        names.append("the lungs")
    plural = len(names) > 1 or names == ["the lungs"]
    return f"{_upper(' and '.join(names))} need{'' if plural else 's'} a closer look."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
