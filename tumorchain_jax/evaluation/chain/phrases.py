"""Banks of wordings, and reports written in them from the facts about a patient."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.evaluation.chain.facts import INFLAMMATION, CIRRHOSIS, Facts, NONE
from tumorchain_jax.phantoms.report_text import and_join

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


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
