"""The Summarizer by a language model: it confirms stages that the rules give.

Only the Summarizer sees pathology. A stage is kept where model and rules agree; what the two give
differently is left out and counted, never chosen between.
"""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import create_model

from tumorchain_jax.engine.agents.organ_asks import stage_options
from tumorchain_jax.engine.agents.protocol import Chain, Summary, View
from tumorchain_jax.engine.agents.statements import object_of, subject_of
from tumorchain_jax.engine.agents.summarizer import summarize
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import shipped_graph
from tumorchain_jax.engine.language.model import Model
from tumorchain_jax.llm.answer import Answer, one_of

UNKNOWN = "unknown"


class Stages(Answer):
    """Of a tumour."""

    T: str
    N: str
    M: str


def stages_of(organ: str, given: dict[str, str]) -> type[Stages]:
    """The form of an organ's stages: the graph's categories, those that the rules gave, unknown."""
    graph = shipped_graph()
    allowed: dict[str, Any] = {}
    for letter in "TNM":
        values = stage_options(graph, organ, letter, given.get(letter, UNKNOWN))
        allowed[letter] = (one_of(*dict.fromkeys((UNKNOWN, *values))), ...)
    return create_model("Stages", __base__=Stages, **allowed)


@dataclass(frozen=True)
class LanguageSummarizer:
    """A Summarizer whose stages are those of the rules that the model gives as well."""

    model: Model

    def __call__(self, view: View, chain: Chain, pathology: tuple[Fact, ...]) -> Summary:
        """Return the rules' summary without the stages that the model does not confirm."""
        summary = summarize(view, chain, pathology)
        if summary.issue or not summary.stages:
            return summary
        given = {stage.letter: stage.value for stage in summary.stages}
        data = {
            "organ": view.organ,
            "steps": [step.text for step in chain],
            "pathology": [f"{subject_of(f)} | {f.attribute} | {object_of(f)}" for f in pathology],
            "imaging": [step.text for stage in summary.stages for step in stage.steps],
        }
        said = self.model.ask(stages_of(view.organ, given), data, view.attempt)
        kept = tuple(s for s in summary.stages if said and getattr(said, s.letter) == s.value)
        self.model.set_aside("stages that were not confirmed", len(summary.stages) - len(kept))
        return replace(summary, stages=kept)
