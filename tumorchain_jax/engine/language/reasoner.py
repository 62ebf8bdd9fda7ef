"""The Reasoner by a language model: it orders, joins and words what is known.

It is given the claims that the facts and the graph's edges back, each with an id, and cites these
ids: a claim of its own has no form. Its sentences are checked word by word by the Calibrator.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, create_model

from tumorchain_jax.engine.agents.calibrator import LEVELS
from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.agents.reasoner import reason
from tumorchain_jax.engine.agents.statements import object_of, subject_of
from tumorchain_jax.engine.case import Claim, Step
from tumorchain_jax.engine.language.model import Model
from tumorchain_jax.llm.answer import Answer, one_of

LONGEST = 240
"""Characters of a sentence."""
Known = dict[str, tuple[str, Claim]]
"""Id -> level and claim."""


class Drafted(Answer):
    """A sentence, with the ids of what it tells."""

    statements: list[str]
    text: str


class Draft(Answer):
    """A chain."""

    steps: list[Drafted]


@lru_cache(maxsize=64)
def draft_of(count: int) -> type[Draft]:
    """The form of a draft from `count` statements: no other ids, no more steps than these."""
    ids: Any = one_of(*(f"S{number}" for number in range(1, count + 1)))
    few = Field(min_length=1, max_length=min(count, 6))
    fields: dict[str, Any] = {
        "statements": (Annotated[list[ids], few], ...),
        "text": (Annotated[str, Field(min_length=1, max_length=LONGEST)], ...),
    }
    step: Any = create_model("Step", __base__=Drafted, **fields)
    many = Field(min_length=1, max_length=count)
    made: dict[str, Any] = {"steps": (Annotated[list[step], many], ...)}
    return create_model("Draft", __base__=Draft, **made)


def known(view: View) -> Known:
    """What can be claimed of an organ, in order, each with an id."""
    claims = {claim: step.level for step in reason(view) for claim in step.claims}
    return {f"S{n}": (level, claim) for n, (claim, level) in enumerate(claims.items(), 1)}


def shown(statements: Known) -> list[dict[str, str]]:
    """The statements as a model is given them."""
    return [
        {
            "id": id,
            "level": level,
            "subject": claim.subject,
            "relation": claim.relation,
            "object": claim.object,
        }
        for id, (level, claim) in statements.items()
    ]


@dataclass(frozen=True)
class LanguageReasoner:
    """A Reasoner whose claims are those that the facts and the graph back."""

    model: Model

    def __call__(self, view: View) -> Chain:
        """Return a draft; empty if there is nothing to tell, or the model gives none."""
        statements = known(view)
        if not statements:
            return ()
        around = [f"{subject_of(f)} | {f.attribute} | {object_of(f)}" for f in view.around]
        data: dict[str, Any] = {
            "organ": view.organ,
            "statements": shown(statements),
            "around": around if view.strategy == "widen_region" else [],
            "fault": view.issue,
        }
        draft = self.model.ask(draft_of(len(statements)), data, view.attempt)
        if draft is None:
            return ()
        return tuple(_step(drafted, statements) for drafted in draft.steps)


def _step(drafted: Drafted, statements: Known) -> Step:
    """A step of the first level that it tells of; that all are of one level is reviewed."""
    told = [statements[id] for id in dict.fromkeys(drafted.statements)]
    level = min((level for level, _ in told), key=LEVELS.index)
    return Step(level, drafted.text, tuple(claim for _, claim in told))
