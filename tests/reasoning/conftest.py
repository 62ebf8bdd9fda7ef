"""A small vocabulary to reason in, and the reasoning loop again: naive, on the host, with no cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
import pytest

from tumorchain_jax.data.chat import SYSTEM, Chat, Interleaved
from tumorchain_jax.data.tokenizer import Tokenizer
from tumorchain_jax.reasoning.generate import Sampling
from tumorchain_jax.reasoning.interleaved import LoopConfig
from tumorchain_jax.reasoning.trace import StopReason
from tumorchain_jax.scan.organs import ORGANS, display_name, labels_named


@pytest.fixture(scope="session")
def chat() -> Chat:
    """The template over 512 tokens, among them whole words such as ` liver` and ` kidney`."""
    organs = [display_name(label) for label in range(1, len(ORGANS))]
    sentences = [f"The question requires greater attention to the {organ}." for organ in organs]
    template = [f"system\n{SYSTEM}", "user\n", "assistant\n", " naïve", " 肝"]
    return Chat(Tokenizer.train([*sentences, *template] * 3, 512))


@dataclass(frozen=True)
class Question:
    """One row of a batch, on the host.

    Attributes:
        bank: visual tokens `[M, K]`.
        rois: organ -> bank rows of its ROI; organs that are not in the mask are missing.
        visited: organs that the prompt already shows.
    """

    bank: np.ndarray
    prompt: Interleaved
    rois: dict[int, list[int]]
    visited: tuple[int, ...]
    rounds: int
    token_budget: int
    key: jax.Array


class NaiveRound(NamedTuple):
    """Logits are those of every step, the one that ends the answer too; spans are in characters."""

    tokens: list[int]
    logits: list[np.ndarray]
    complete: bool
    spans: dict[int, tuple[int, int]]
    looked_at: list[int]
    tokens_in: int


NextLogits = Callable[[np.ndarray, Interleaved], np.ndarray]
"""Bank and whole sequence -> logits of the token after it."""


class NaiveLoop:
    """Design section 4 in plain Python: each token recomputes the whole sequence."""

    def __init__(self, chat: Chat, next_logits: NextLogits, config: LoopConfig):
        self.chat, self.next_logits, self.config = chat, next_logits, config

    def __call__(self, question: Question) -> tuple[list[NaiveRound], StopReason]:
        """All rounds of one question, and why they ended."""
        sequence, tokens_in = question.prompt, len(question.prompt)
        visited, budget = set(question.visited), question.token_budget
        rounds: list[NaiveRound] = []
        while True:
            key = jax.random.fold_in(question.key, len(rounds))
            limit = min(budget, self.config.tokens_per_round)
            tokens, logits, complete = self._write(question.bank, sequence, limit, key)
            budget -= len(tokens)
            spans = self._spans(tokens)
            new = [organ for organ in spans if organ in question.rois and organ not in visited]
            looked_at = new[: self.config.organs_per_round]
            stop: StopReason | None = None
            if budget == 0 and not complete:
                stop = "token_budget"
            elif not new:
                stop = "no_new_organ"
            elif len(rounds) + 1 == question.rounds:
                stop = "max_rounds"
            if stop:
                looked_at = []
            rounds.append(NaiveRound(tokens, logits, complete, spans, looked_at, tokens_in))
            if stop:
                return rounds, stop

            visited.update(looked_at)
            answer = Interleaved()
            answer.add(tokens)
            turn = Interleaved()
            turn.add([self.chat.tokenizer.im_end])
            turn = turn + self.chat.look_again((o, question.rois[o]) for o in looked_at)
            if self.config.history == "all":
                sequence, tokens_in = sequence + answer + turn, len(turn)
            else:
                sequence, tokens_in = question.prompt + answer + turn, len(answer + turn)

    def _write(
        self, bank: np.ndarray, sequence: Interleaved, limit: int, key: jax.Array
    ) -> tuple[list[int], list[np.ndarray], bool]:
        tokens: list[int] = []
        logits: list[np.ndarray] = []
        while len(tokens) < limit:
            so_far = Interleaved()
            so_far.add(tokens)
            logits.append(self.next_logits(bank, sequence + so_far))
            token = naive_sample(logits[-1], jax.random.fold_in(key, len(tokens)), self.config)
            if token == self.chat.tokenizer.im_end:
                return tokens, logits, True
            tokens.append(token)
        return tokens, logits, False

    def _spans(self, tokens: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Organs by first mention, where several begin together by label."""
        spans: dict[int, tuple[int, int]] = {}
        for mention in labels_named(self.chat.tokenizer.decode(tokens)):
            for label in sorted(mention.labels):
                spans.setdefault(label, (mention.start, mention.end))
        return spans


def naive_sample(logits: np.ndarray, key: jax.Array, config: LoopConfig) -> int:
    """Tokens are taken from the most probable on until they reach top_p."""
    sampling: Sampling = config.sampling
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits / np.float32(sampling.temperature)
    probability = np.exp(scaled - scaled.max(), dtype=np.float64)
    probability /= probability.sum()
    kept, reached = np.full_like(scaled, -np.inf), 0.0
    for token in np.argsort(-probability, kind="stable"):
        kept[token] = scaled[token]
        reached += probability[token]
        if reached >= sampling.top_p:
            break
    return int(jax.random.categorical(key, kept))
