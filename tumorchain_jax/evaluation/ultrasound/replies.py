"""Replies about lesions: texts, and the probability of malignancy at the slot of the answer.

A line of a file of replies: `id` of the record, `text` (all turns joined), and `malignant` or
`logprobs`, or neither:

malignant    probability of `1` against `0` at the answer, see `answer_probability`
logprobs     the `content` of an OpenAI-compatible endpoint: tokens with their `logprob`, and the
             `top_logprobs` of each
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, read_lines
from tumorchain_jax.ultrasound.chains.parser import Parsed, parse
from tumorchain_jax.ultrasound.chains.text import ANSWERS

HINT = "evaluation/ultrasound/README.md has a line of replies"
BEGIN = "<answer>"
BENIGN, MALIGNANT = ANSWERS["benign"], ANSWERS["malignant"]


@dataclass(frozen=True)
class Reply:
    """What a model said about a picture.

    Attributes:
        malignant: probability at the slot of the answer; None where it is not known.
    """

    text: str
    malignant: float | None

    @cached_property
    def parsed(self) -> Parsed:
        """The text, read."""
        return parse(self.text)

    @property
    def verdict(self) -> bool | None:
        """Whether it says malignant; None if it cannot be read."""
        said = self.parsed.verdict
        return None if said is None else said == MALIGNANT


def answer_probability(benign: float, malignant: float) -> float:
    """Probability of malignancy by the logits of the two answers' tokens at the slot.

    The softmax over the two; whatever else the model might have written there does not count.
    """
    return 1 / (1 + math.exp(min(benign - malignant, 700.0)))


def slot_probability(content: Sequence[Mapping[str, Any]]) -> float | None:
    """The same by the log-probabilities of the tokens of a reply.

    Where one of the two answers is not among the candidates, it gets at most what all candidates
    leave over; None where neither is, or no answer is begun.

    Raises:
        ValueError: a token has no text or no log-probability.
    """
    written = ""
    for token in content:
        before, piece = written, token.get("token")
        if not isinstance(piece, str):
            raise ValueError("a token without its text")
        written += piece
        at = before.rfind(BEGIN)
        if at >= 0 and piece.strip() and not before[at + len(BEGIN) :].strip():
            return _of_candidates(token)
    return None


def _of_candidates(token: Mapping[str, Any]) -> float | None:
    found: dict[str, float] = {}
    for each in (token, *token.get("top_logprobs", ())):
        log = each.get("logprob")
        if type(log) not in (int, float) or not log <= 1e-6:
            raise ValueError(f"logprob {log!r}"[:60])
        found[str(each.get("token"))] = math.exp(log)
    shares = {name: sum(p for t, p in found.items() if t.strip() == name) for name in ANSWERS_IN}
    if not any(shares.values()):
        return None
    left = max(0.0, 1 - sum(found.values()))
    benign, malignant = (shares[name] or left for name in ANSWERS_IN)
    return malignant / (benign + malignant)


ANSWERS_IN = (BENIGN, MALIGNANT)


def read_replies(path: Path) -> dict[str, Reply]:
    """Read a file of replies by the ids of their records.

    Raises:
        InputError: a line is malformed, or a record has two replies.
    """
    replies: dict[str, Reply] = {}
    for source, _, values in read_lines(path):
        line = LineFields(source, values, hint=HINT)
        line.check_known({"id", "text", "malignant", "logprobs"})
        name = line.text("id", filled=True)
        if name in replies:
            raise InputError(source, "id", f"{name} twice", "a reply for each record", HINT)
        replies[name] = Reply(line.text("text"), _probability(line))
    if not replies:
        raise InputError(path, "lines", "none", "a reply on each", HINT)
    return replies


def _probability(line: LineFields) -> float | None:
    value = line.values.get("malignant")
    if value is not None:
        if type(value) not in (int, float) or not 0 <= value <= 1:
            line.refuse("malignant", "a probability, from 0 to 1")
        return float(value)
    content = line.values.get("logprobs")
    if content is None:
        return None
    if not isinstance(content, list) or not all(isinstance(each, Mapping) for each in content):
        line.refuse("logprobs", "a list of tokens with their log-probabilities")
    try:
        return slot_probability(content)
    except (ValueError, TypeError) as error:
        raise InputError(line.source, "logprobs", str(error), "tokens", HINT) from error
