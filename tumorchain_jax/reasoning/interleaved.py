"""Organ-guided iterative interleaved reasoning (paper, section 3.2) as one compiled program.

    round 1: read [global tokens, question]               write R1             Eq. 4
    round i: read [ROI prompt, ROI tokens of the organs   write Ri             Eq. 6 and 7
              that the last answer named first]

An outer loop over rounds, an inner one over tokens, the organs matched on the device: nothing
crosses to the host before the end, and nothing about a question, its organs or its rounds changes
a shape. Rows of a batch that are done idle.

Shape letters: B batch, P prompt positions, R rounds, T tokens of a round, O organs, Q organs of a
round, L ROI slots, M bank rows, K embedding, V vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from tumorchain_jax.models.language.qwen2.model import empty_cache
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.reasoning.generate import (
    GREEDY,
    DecodeState,
    Generation,
    Sampling,
    generate_round,
    read,
)
from tumorchain_jax.reasoning.organ_matcher import NONE, OrganMatcher, OrganMatches, match_organs
from tumorchain_jax.reasoning.prompt import TEXT, History
from tumorchain_jax.reasoning.roi import RoiPrompt, Turn, roi_turn

NO_NEW_ORGAN, MAX_ROUNDS, TOKEN_BUDGET = 0, 1, 2


@dataclass(frozen=True)
class LoopConfig:
    """The shapes and the policy of the loop; a change of any compiles anew.

    Attributes:
        prompt_length: P, room for the question's turn, global tokens included.
        max_rounds: R, room for rounds; a request may ask for fewer.
        tokens_per_round: T.
        organs_per_round: Q, at most this many organs are looked at between two rounds.
        history: `all` accumulates every round (Eq. 3), `latest` keeps the question, the last answer
            and the new ROI (Eq. 7).
        keep_logits: return the logits of every written token.
    """

    prompt_length: int
    max_rounds: int = 4
    tokens_per_round: int = 96
    organs_per_round: int = 2
    history: History = "all"
    sampling: Sampling = GREEDY
    keep_logits: bool = False


class Request(NamedTuple):
    """A batch of questions.

    Attributes:
        bank: visual tokens of each row's scan.
        roi_index, roi_valid: bank rows of each organ's ROI.
        prompt: the question's turn, padded on the left.
        visited: organs whose ROI tokens the prompt already holds (`initial_roi`).
        rounds: rounds asked for, at most `max_rounds`.
        token_budget: tokens that all rounds together may write.
        keys: one a row.
    """

    visual_tokens: Float[Array, "B M K"]
    roi_index: Int[Array, "B O L"]
    roi_valid: Bool[Array, "B O L"]
    prompt: Turn
    visited: Bool[Array, "B O"]
    rounds: Int[Array, " B"]
    token_budget: Int[Array, " B"]
    keys: Key[Array, " B"]


class Result(NamedTuple):
    """All that happened, of fixed shape; rounds beyond a row's number are zero.

    Attributes:
        written: of each round.
        tokens_in: positions read before each round.
        matches: where each round's text first names each organ.
        looked_at: organs whose ROI tokens were read after each round.
        rounds: how many there were.
        stop_reason: NO_NEW_ORGAN, MAX_ROUNDS or TOKEN_BUDGET.
    """

    written: Generation
    tokens_in: Int[Array, "R B"]
    matches: OrganMatches
    looked_at: Bool[Array, "R B O"]
    rounds: Int[Array, " B"]
    stop_reason: Int[Array, " B"]


class _State(NamedTuple):
    number: Int[Array, ""]
    running: Bool[Array, " B"]
    visited: Bool[Array, "B O"]
    reading: DecodeState
    result: Result


@partial(jax.jit, static_argnames=("model", "config"))
def reason(
    model: TumorChain,
    config: LoopConfig,
    params: Any,
    matcher: OrganMatcher,
    roi_prompt: RoiPrompt,
    request: Request,
) -> Result:
    """Answer a batch of questions.

    Args:
        model: unrolled.
        params: for it, see `models/language/qwen2/model.py: unroll`.
    """
    nothing = _nothing_read(model, config, roi_prompt, request)
    start = read(model, params, request.visual_tokens, nothing, request.prompt)

    def running(state: _State) -> Bool[Array, ""]:
        return (state.number < config.max_rounds) & jnp.any(state.running)

    def one_round(state: _State) -> _State:
        return _round(model, config, params, matcher, roi_prompt, request, start.length, state)

    B = len(request.rounds)
    result = _no_result(config, request, start)
    result = result._replace(tokens_in=result.tokens_in.at[0].set(start.length))
    state = _State(jnp.int32(0), jnp.ones(B, bool), request.visited, start, result)
    return lax.while_loop(running, one_round, state).result


def _round(
    model: TumorChain,
    config: LoopConfig,
    params: Any,
    matcher: OrganMatcher,
    roi_prompt: RoiPrompt,
    request: Request,
    prompt_length: Int[Array, " B"],
    state: _State,
) -> _State:
    result, number = state.result, state.number
    left = request.token_budget - result.written.length.sum(axis=0)
    reading, written = generate_round(
        model,
        params,
        request.visual_tokens,
        state.reading,
        state.running,
        left,
        jax.vmap(jax.random.fold_in, (0, None))(request.keys, number),
        end_token=roi_prompt.opening[0],
        tokens_per_round=config.tokens_per_round,
        sampling=config.sampling,
        keep_logits=config.keep_logits,
    )
    matches = match_organs(matcher, written.tokens, written.length)
    new = (matches.first != NONE) & request.roi_valid.any(axis=2) & ~state.visited
    spent = ~written.complete & (written.length >= left)
    stop_reason = jnp.select([spent, ~new.any(axis=1)], [TOKEN_BUDGET, NO_NEW_ORGAN], MAX_ROUNDS)
    goes_on = state.running & ~spent & new.any(axis=1) & (number + 1 < request.rounds)
    organs = _first_named(matches.first, new & goes_on[:, None], config.organs_per_round)
    looked_at = jnp.any(organs[:, :, None] == jnp.arange(new.shape[1]), axis=1) & new

    def look_again(reading: DecodeState) -> tuple[DecodeState, Int[Array, " B"]]:
        turn = roi_turn(roi_prompt, organs, request.roi_index, request.roi_valid)
        if config.history == "latest":
            length = jnp.where(goes_on, prompt_length, reading.length)
            reading = reading._replace(length=length)
            turn = _after_answer(written, turn, goes_on)
        before = reading.length
        reading = read(model, params, request.visual_tokens, reading, turn)
        return reading, reading.length - before

    reading, tokens_in = lax.cond(
        jnp.any(goes_on),
        look_again,
        lambda reading: (reading, jnp.zeros_like(reading.length)),
        reading,
    )
    result = Result(
        jax.tree.map(lambda all_, one: all_.at[number].set(one), result.written, written),
        result.tokens_in.at[number + 1].set(tokens_in, mode="drop"),
        jax.tree.map(lambda all_, one: all_.at[number].set(one), result.matches, matches),
        result.looked_at.at[number].set(looked_at),
        result.rounds + state.running,
        jnp.where(state.running, stop_reason, result.stop_reason),
    )
    return _State(number + 1, goes_on, state.visited | looked_at, reading, result)


def _first_named(
    first: Int[Array, "B O"], new: Bool[Array, "B O"], count: int
) -> Int[Array, "B Q"]:
    """Labels of the new organs in the order of their first mention, ties by label; 0 pads."""
    order = jnp.argsort(jnp.where(new, first, NONE), axis=1, stable=True)[:, :count]
    is_new = jnp.take_along_axis(new, order, axis=1)
    return jnp.where(is_new, order, 0).astype(jnp.int32)


def _after_answer(written: Generation, turn: Turn, goes_on: Bool[Array, " B"]) -> Turn:
    """The answer just written, then the turn: what `history: latest` reads anew."""
    is_answer = jnp.arange(written.tokens.shape[1]) < written.length[:, None]
    return Turn(
        jnp.concatenate([written.tokens, turn.tokens], axis=1),
        jnp.concatenate([jnp.full_like(written.tokens, TEXT), turn.visual_index], axis=1),
        jnp.concatenate([is_answer & goes_on[:, None], turn.valid], axis=1),
    )


def _nothing_read(
    model: TumorChain, config: LoopConfig, roi_prompt: RoiPrompt, request: Request
) -> DecodeState:
    """An empty cache with room for the longest run."""
    B = len(request.rounds)
    per_organ = roi_prompt.sentences.shape[1] + 2 + request.roi_index.shape[2]
    ends = len(roi_prompt.opening) + len(roi_prompt.closing)
    turn = ends + config.organs_per_round * per_organ
    if config.history == "all":
        later = config.max_rounds * config.tokens_per_round + (config.max_rounds - 1) * turn
    else:
        later = 2 * config.tokens_per_round + turn
    decoder = model.config.decoder
    cache = empty_cache(decoder, B, config.prompt_length + later, jnp.dtype(model.config.dtype))
    return DecodeState(cache, jnp.zeros(B, jnp.int32), jnp.zeros((B, decoder.vocab_size)))


def _no_result(config: LoopConfig, request: Request, start: DecodeState) -> Result:
    B, organs = request.visited.shape
    R, T = config.max_rounds, config.tokens_per_round
    W = start.logits.shape[1] if config.keep_logits else 0
    written = Generation(
        jnp.zeros((R, B, T), jnp.int32),
        jnp.zeros((R, B), jnp.int32),
        jnp.zeros((R, B), bool),
        jnp.zeros((R, B, T)),
        jnp.zeros((R, B, T, W)),
    )
    nowhere = jnp.full((R, B, organs), NONE, jnp.int32)
    return Result(
        written,
        jnp.zeros((R, B), jnp.int32),
        OrganMatches(nowhere, nowhere),
        jnp.zeros((R, B, organs), bool),
        jnp.zeros(B, jnp.int32),
        jnp.zeros(B, jnp.int32),
    )


@partial(jax.jit, static_argnames="model")
def encode(
    model: TumorChain,
    params: Any,
    volume: Float[Array, "B D H W"],
    roi_index: Int[Array, "B O L"],
    roi_valid: Bool[Array, "B O L"],
) -> tuple[Float[Array, "B M K"], Float[Array, "B O"]]:
    """A scan's bank of visual tokens, and how probably each organ is abnormal (classifier)."""
    visual_tokens = run(model, params, volume, method="encode")
    logits = run(model, params, visual_tokens, roi_index, roi_valid, method="classify")
    return visual_tokens, jax.nn.softmax(logits, axis=-1)[:, :, 1]
