"""The Calibrator by a language model: a second reader, after the rules.

What the rules refuse is refused without asking. A verdict is one of a few words, so that nothing a
model writes gets into the Reasoner's next prompt.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic import create_model

from tumorchain_jax.engine.agents.calibrator import calibrate
from tumorchain_jax.engine.agents.protocol import Chain, View
from tumorchain_jax.engine.language.model import Model
from tumorchain_jax.engine.language.reasoner import known, shown
from tumorchain_jax.llm.answer import Answer, one_of

Word = Literal["right", "unsupported", "contradicted", "out of order", "incomplete"]


class Verdict(Answer):
    """On a draft."""

    step: int | None
    verdict: Word


@lru_cache(maxsize=64)
def verdict_on(count: int) -> type[Verdict]:
    """The form of a verdict on `count` steps."""
    fields: dict[str, Any] = {"step": (one_of(*range(1, count + 1)) | None, ...)}
    return create_model("Verdict", __base__=Verdict, **fields)


@dataclass(frozen=True)
class LanguageCalibrator:
    """A Calibrator that finds what the rules find, and what the model finds."""

    model: Model

    def __call__(self, view: View, chain: Chain) -> str:
        """Return what is wrong with a draft; a model that gives no verdict passes none."""
        issue = calibrate(view, chain)
        if issue or not chain:
            return issue
        steps = [{"number": n, "text": step.text} for n, step in enumerate(chain, 1)]
        data = {"organ": view.organ, "statements": shown(known(view)), "steps": steps}
        verdict = self.model.ask(verdict_on(len(chain)), data, view.attempt)
        if verdict is None:
            return "the reviewer gave no verdict"
        if verdict.verdict == "right":
            return ""
        self.model.set_aside(f"drafts called {verdict.verdict}")
        where = f"step {verdict.step}" if verdict.step else "the draft"
        return f"{where}: the reviewer calls it {verdict.verdict}"
