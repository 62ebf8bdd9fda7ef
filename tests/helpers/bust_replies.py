"""What a stub endpoint says about pictures: drawn by the request alone, so that reruns agree."""

import hashlib
import json
from typing import Any

import numpy as np
from llm_questions import endpoint

from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.ultrasound.lexicon import PROBABILITY, load_lexicon

LEXICON = load_lexicon()
THINKING = {"on": {"reasoning_effort": "high"}, "off": {"reasoning_effort": "none"}}
REFUSAL, PROSE = "I'm sorry, but I can't help with that.", "Looks fine."


def reading(rng: np.random.Generator) -> dict[str, Any]:
    """A whole reading of a mass, or of nothing."""
    finding = "mass" if rng.random() < 0.8 else "none"
    values = {f.name: str(rng.choice(f.values)) for f in LEXICON.wanted(finding)}
    values |= {"finding": finding, PROBABILITY: int(rng.integers(0, 101))}
    values["category"] = "1" if finding == "none" else str(rng.choice(LEXICON.categories[1:]))
    return values


def say(body: dict[str, Any]) -> str:
    """A reading; now and then a refusal, prose, or that there is nothing to read."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    rng = np.random.default_rng(list(digest))
    kind = rng.random()
    if kind < 0.08:
        return REFUSAL
    if kind < 0.2:
        return PROSE
    empty = dict.fromkeys([*LEXICON.by_name, PROBABILITY])
    values = {"observations": "x", "readable": kind < 0.9, "concern": "none", **empty}
    if values["readable"]:
        values |= reading(rng)
        values["concern"] = str(rng.choice(["none", "text_does_not_fit"], p=[0.8, 0.2]))
    return json.dumps(values)


def stub(url: str, **fields: Any) -> Endpoint:
    """The endpoint of a stub, with a switch for thinking."""
    defaults = {"schema": "json_schema", "timeout_s": 20.0, "thinking": THINKING}
    return endpoint(url, **{**defaults, **fields})
