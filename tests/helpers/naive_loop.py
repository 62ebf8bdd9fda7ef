"""A naive reasoning loop: host-side Python without a cache, for a tiny model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from tumorchain_jax.anatomy.organs import labels_named
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.reasoning.generate import Sampling
from tumorchain_jax.reasoning.interleaved import (
    MAX_ROUNDS,
    NO_NEW_ORGAN,
    TOKEN_BUDGET,
    LoopConfig,
)
from tumorchain_jax.reasoning.prompt import Chat, Interleaved

SLOTS = 5
MODEL = TumorChainConfig(
    encoder=ViT3DConfig((4, 8, 16), (1, 2, 4), 8, 12, 1, 2),
    decoder=Qwen2Config(
        vocab_size=512,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=False,
    ),
    roi_slots=SLOTS,
)
VISUAL_TOKENS = MODEL.roi.visual_tokens


@dataclass(frozen=True)
class Question:
    """One row of a batch: visual tokens `[M, K]`, their indices for each organ in the mask."""

    visual_tokens: np.ndarray
    prompt: Interleaved
    rois: dict[int, list[int]]
    visited: tuple[int, ...]
    rounds: int
    token_budget: int
    key: jax.Array


class NaiveRound(NamedTuple):
    """Logits of every step, the one that ended the answer too; spans in characters."""

    tokens: list[int]
    logits: list[np.ndarray]
    complete: bool
    spans: dict[int, tuple[int, int]]
    looked_at: list[int]
    tokens_in: int


Run = tuple[list[NaiveRound], int]
"""All rounds, and why there were no more."""
Runs = Callable[[str], list[Run]]
"""By config, then by question."""


class NaiveLoop:
    """Design section 4: every token recomputes the whole sequence with the scanned decoder."""

    def __init__(self, chat: Chat, params: dict, config: LoopConfig):
        self.chat, self.params, self.config = chat, params, config

    def __call__(self, question: Question) -> Run:
        """Answer a question."""
        sequence, tokens_in = question.prompt, len(question.prompt)
        visited, budget = set(question.visited), question.token_budget
        rounds: list[NaiveRound] = []
        while True:
            key = jax.random.fold_in(question.key, len(rounds))
            limit = min(budget, self.config.tokens_per_round)
            tokens, logits, complete = self.write(question.visual_tokens, sequence, limit, key)
            budget -= len(tokens)
            spans = self.spans(tokens)
            new = [organ for organ in spans if organ in question.rois and organ not in visited]
            stop = None
            if budget == 0 and not complete:
                stop = TOKEN_BUDGET
            elif not new:
                stop = NO_NEW_ORGAN
            elif len(rounds) + 1 == question.rounds:
                stop = MAX_ROUNDS
            organs = new[: self.config.organs_per_round] if stop is None else []
            rounds.append(NaiveRound(tokens, logits, complete, spans, organs, tokens_in))
            if stop is not None:
                return rounds, stop

            visited.update(organs)
            answer, turn = words(tokens), words([self.chat.tokenizer.im_end])
            turn = turn + self.chat.look_again((o, question.rois[o]) for o in organs)
            if self.config.history == "all":
                sequence, tokens_in = sequence + answer + turn, len(turn)
            else:
                sequence, tokens_in = question.prompt + answer + turn, len(answer + turn)

    def write(
        self, visual_tokens: np.ndarray, sequence: Interleaved, limit: int, key: jax.Array
    ) -> tuple[list[int], list[np.ndarray], bool]:
        """One round's tokens, the logits of its steps, whether the model ended it."""
        tokens: list[int] = []
        logits: list[np.ndarray] = []
        while len(tokens) < limit:
            logits.append(next_logits(self.params, visual_tokens, sequence + words(tokens)))
            step_key = jax.random.fold_in(key, len(tokens))
            token = naive_sample(logits[-1], step_key, self.config.sampling)
            if token == self.chat.tokenizer.im_end:
                return tokens, logits, True
            tokens.append(token)
        return tokens, logits, False

    def spans(self, tokens: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Organs in the order of their first mention; of several named at once, by label."""
        spans: dict[int, tuple[int, int]] = {}
        for mention in labels_named(self.chat.tokenizer.decode(tokens)):
            for label in sorted(mention.labels):
                spans.setdefault(label, (mention.start, mention.end))
        return spans


def words(tokens: Sequence[int]) -> Interleaved:
    piece = Interleaved()
    piece.add(tokens)
    return piece


def next_logits(params: dict, visual_tokens: np.ndarray, sequence: Interleaved) -> np.ndarray:
    """Logits of the token after a sequence; the pads behind it change nothing before them."""
    padded = np.zeros((2, 1, 224), np.int32)
    padded[0, 0, : len(sequence)] = sequence.tokens
    padded[1, 0, : len(sequence)] = sequence.visual_index
    return np.asarray(last_logits(params, visual_tokens[None], *padded, len(sequence) - 1))


@jax.jit
def last_logits(
    params: dict,
    visual_tokens: jax.Array,
    tokens: jax.Array,
    visual_index: jax.Array,
    last: jax.Array,
) -> jax.Array:
    def run(model: TumorChain) -> jax.Array:
        hidden, _ = model.decoder(model.embed(visual_tokens, tokens, visual_index))
        return model.logits(hidden[:, last][:, None])[0, 0]

    return TumorChain(MODEL).apply({"params": params}, method=run)


def naive_sample(logits: np.ndarray, key: jax.Array, sampling: Sampling) -> int:
    """Tokens are taken in, the most probable first, until they reach `top_p`."""
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    logits = logits / np.float32(sampling.temperature)
    weights = np.exp(logits.astype(np.float64) - logits.max())
    kept, reached = np.full_like(logits, -np.inf), 0.0
    for token in np.argsort(-logits, kind="stable"):
        kept[token] = logits[token]
        reached += weights[token] / weights.sum()
        if reached >= sampling.top_p:
            break
    return int(categorical(key, kept))


categorical = jax.jit(jax.random.categorical)
