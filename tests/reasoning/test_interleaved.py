"""The compiled reasoning loop against a naive one: host-side Python that keeps no cache."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.data.chat import Chat, Interleaved
from tumorchain_jax.models.qwen2.model import Qwen2Config, unroll
from tumorchain_jax.models.tumorchain import TumorChain, TumorChainConfig, abstract_params
from tumorchain_jax.models.vit3d.model import ViT3DConfig
from tumorchain_jax.path_rules import unflatten
from tumorchain_jax.reasoning.generate import Sampling
from tumorchain_jax.reasoning.interleaved import (
    MAX_ROUNDS,
    NO_NEW_ORGAN,
    TOKEN_BUDGET,
    LoopConfig,
    Request,
    Result,
    encode,
    reason,
)
from tumorchain_jax.reasoning.organ_matcher import NONE, OrganMatcher, build_matcher, character_span
from tumorchain_jax.reasoning.roi import RoiPrompt, Turn, build_roi_prompt
from tumorchain_jax.scan.organs import ORGANS, labels_named

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
BANK_ROWS = MODEL.global_tokens + 64
GREEDY = LoopConfig(
    prompt_length=96, max_rounds=3, tokens_per_round=8, organs_per_round=2, keep_logits=True
)
SAMPLED = replace(GREEDY, sampling=Sampling(temperature=1.3, top_p=0.9))
CONFIGS = {
    "all-greedy": GREEDY,
    "all-sampled": SAMPLED,
    "latest-greedy": replace(GREEDY, history="latest"),
    "latest-sampled": replace(SAMPLED, history="latest"),
}
# What the model likes to say. The bladder, the heart and the lungs are never in a mask.
SAID = " spleen liver pancreas stomach colon aorta bladder heart lung left right kidney the ., 肝"
IN_MASK = tuple(map(ORGANS.index, "spleen liver pancreas stomach colorectum aorta".split()))
IN_MASK += tuple(map(ORGANS.index, ("kidney_left", "kidney_right")))


# The naive loop.


@dataclass(frozen=True)
class Question:
    """One row of a batch: the scan's visual tokens `[M, K]`, bank rows of each organ in the mask."""

    bank: np.ndarray
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


class NaiveLoop:
    """Design section 4: every token recomputes the whole sequence with the scanned decoder."""

    def __init__(self, chat: Chat, params: dict, config: LoopConfig):
        self.chat, self.params, self.config = chat, params, config

    def __call__(self, question: Question) -> tuple[list[NaiveRound], int]:
        """All rounds and the stop reason."""
        sequence, tokens_in = question.prompt, len(question.prompt)
        visited, budget = set(question.visited), question.token_budget
        rounds: list[NaiveRound] = []
        while True:
            key = jax.random.fold_in(question.key, len(rounds))
            limit = min(budget, self.config.tokens_per_round)
            tokens, logits, complete = self.write(question.bank, sequence, limit, key)
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
        self, bank: np.ndarray, sequence: Interleaved, limit: int, key: jax.Array
    ) -> tuple[list[int], list[np.ndarray], bool]:
        """One round's tokens, the logits of its steps, whether the model ended it."""
        tokens: list[int] = []
        logits: list[np.ndarray] = []
        while len(tokens) < limit:
            logits.append(next_logits(self.params, bank, sequence + words(tokens)))
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


def next_logits(params: dict, bank: np.ndarray, sequence: Interleaved) -> np.ndarray:
    """Logits of the token after a sequence; the pads behind it change nothing before them."""
    padded = np.zeros((2, 1, 288), np.int32)
    padded[0, 0, : len(sequence)] = sequence.tokens
    padded[1, 0, : len(sequence)] = sequence.bank_rows
    return np.asarray(last_logits(params, bank[None], *padded, len(sequence) - 1))


@jax.jit
def last_logits(
    params: dict, bank: jax.Array, tokens: jax.Array, bank_rows: jax.Array, last: jax.Array
) -> jax.Array:
    def run(model: TumorChain) -> jax.Array:
        hidden, _ = model.decoder(model.embed(bank, tokens, bank_rows))
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


# Questions, and the two loops side by side.


class World(NamedTuple):
    """A random model that likes to name organs, and scans for it to look at."""

    chat: Chat
    params: dict
    matcher: OrganMatcher
    roi_prompt: RoiPrompt
    banks: np.ndarray

    def reason(self, config: LoopConfig, request: Request) -> Result:
        """The compiled loop."""
        params = self.params | {"decoder": unroll(self.params["decoder"])}
        model = TumorChain(MODEL, unrolled=True)
        return reason(model, config, params, self.matcher, self.roi_prompt, request)

    def question(self, seed: int) -> Question:
        """Random words, masks, ROI sizes, limits and key."""
        rng = np.random.default_rng(seed)
        rois = {}
        for organ in IN_MASK:
            if rng.random() < 0.8:
                rows = rng.choice(np.arange(MODEL.global_tokens, BANK_ROWS), SLOTS, replace=False)
                rois[organ] = sorted(rows[: rng.integers(1, SLOTS + 1)].tolist())
        visited = tuple(organ for organ in list(rois)[:1] if rng.random() < 0.3)
        text = "".join(rng.choice(SAID.split(), rng.integers(1, 12)))
        prompt = self.chat.question(
            text, ["yes", "no"], MODEL.global_tokens, [(organ, rois[organ]) for organ in visited]
        )
        rounds = int(rng.choice([1, 2, 3, 3, 3]))
        budget = int(rng.choice([rng.integers(0, 20), 100], p=[0.3, 0.7]))
        bank = self.banks[rng.integers(len(self.banks))]
        return Question(bank, prompt, rois, visited, rounds, budget, jax.random.key(seed))


@pytest.fixture(scope="module")
def world(chat: Chat) -> World:
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(0, 0.7, leaf.shape).astype(np.float32)  # noqa: E731
    params = unflatten(jax.tree.map(draw, abstract_params(MODEL)))
    said = [chat.tokenizer.im_end, *chat.tokenizer.encode(SAID)]
    scale = np.full(MODEL.decoder.vocab_size, 0.2, np.float32)
    scale[said] = 1.4
    params["decoder"]["lm_head"]["kernel"] *= scale
    params["decoder"]["norm"]["weight"][:] = 1
    params = jax.tree.map(jnp.asarray, params)
    volumes = jnp.asarray(rng.random((3, *MODEL.encoder.image), np.float32))
    roi_rows = jnp.zeros((3, len(ORGANS), SLOTS), jnp.int32)
    banks, _ = encode(TumorChain(MODEL), params, volumes, roi_rows, roi_rows > 0)
    matcher = build_matcher(chat.tokenizer.token_bytes)
    return World(chat, params, matcher, build_roi_prompt(chat), np.asarray(banks))


def request_of(questions: Sequence[Question]) -> Request:
    """The batch that the compiled loop takes."""
    B, P = len(questions), GREEDY.prompt_length
    prompt = np.zeros((2, B, P), np.int32)
    valid = np.zeros((B, P), bool)
    roi_rows = np.zeros((B, len(ORGANS), SLOTS), np.int32)
    roi_valid = np.zeros((B, len(ORGANS), SLOTS), bool)
    visited = np.zeros((B, len(ORGANS)), bool)
    for b, question in enumerate(questions):
        start = P - len(question.prompt)
        prompt[:, b, start:] = question.prompt.tokens, question.prompt.bank_rows
        valid[b, start:] = True
        for organ, rows in question.rois.items():
            roi_rows[b, organ, : len(rows)] = rows
            roi_valid[b, organ, : len(rows)] = True
        visited[b, list(question.visited)] = True
    request = Request(
        np.stack([question.bank for question in questions]),
        roi_rows,
        roi_valid,
        Turn(*prompt, valid),
        visited,
        np.array([question.rounds for question in questions], np.int32),
        np.array([question.token_budget for question in questions], np.int32),
        jnp.stack([question.key for question in questions]),
    )
    return jax.tree.map(jnp.asarray, request)


def assert_row_equals(result: Result, row: int, world: World, question: Question, run: tuple):
    """One row of the compiled loop's result is what the naive loop did."""
    rounds, stop = run
    written = jax.tree.map(lambda leaf: leaf[:, row], result.written)
    assert result.rounds[row] == len(rounds)
    assert result.stop_reason[row] == stop
    for number, expected in enumerate(rounds):
        n, steps = len(expected.tokens), len(expected.logits)
        assert written.length[number] == n
        assert written.tokens[number].tolist() == expected.tokens + [0] * (
            len(written.tokens[0]) - n
        )
        assert written.complete[number] == expected.complete
        assert result.tokens_in[number, row] == expected.tokens_in
        if steps:
            logits = np.stack(expected.logits)
            np.testing.assert_allclose(written.logits[number, :steps], logits, atol=1e-4)
            log_probabilities = jax.nn.log_softmax(logits)[np.arange(n), expected.tokens]
            np.testing.assert_allclose(
                written.log_probabilities[number, :n], log_probabilities, atol=1e-4
            )
        assert not written.logits[number, steps:].any()
        assert not written.log_probabilities[number, n:].any()

        data = world.chat.tokenizer.decode_bytes(expected.tokens)
        first, end = (np.asarray(leaf[number, row]).tolist() for leaf in result.matches)
        spans = {o: (f, e) for o, (f, e) in enumerate(zip(first, end)) if f != NONE}
        assert {o: character_span(data, *span) for o, span in spans.items()} == expected.spans
        assert sorted(expected.looked_at) == np.flatnonzero(result.looked_at[number, row]).tolist()
    beyond = (*written, result.tokens_in[:, row], result.looked_at[:, row])
    assert not any(leaf[len(rounds) :].any() for leaf in beyond)


@pytest.mark.parametrize("name", CONFIGS)
def test_equals_the_naive_loop(world: World, name: str) -> None:
    config = CONFIGS[name]
    questions = [world.question(seed) for seed in range(15)]
    naive = NaiveLoop(world.chat, world.params, config)
    runs = [naive(question) for question in questions]
    for start in range(0, 15, 3):
        result = jax.device_get(world.reason(config, request_of(questions[start : start + 3])))
        for row in range(3):
            at = start + row
            assert_row_equals(result, row, world, questions[at], runs[at])
    print(
        Counter(stop for _, stop in runs),
        Counter(len(r) for r, _ in runs),
        Counter(len(x.looked_at) for r, _ in runs for x in r),
        Counter(x.complete for r, _ in runs for x in r),
    )
