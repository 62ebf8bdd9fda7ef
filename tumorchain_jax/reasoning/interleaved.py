"""Organ-guided iterative interleaved reasoning (paper, section 3.2) as one compiled program.

    round 1: prefill [global tokens, question]            decode R1            Eq. 4
    round i: extend [ROI prompt, ROI tokens of the        decode Ri            Eq. 3, 5, 6 and 7
              organs that the last answer named first]

An outer loop over rounds, an inner one over tokens, the organs matched on the device: nothing
crosses to the host before the end, and nothing about a question, its organs or its rounds changes
a shape. Rows of a batch that are done idle.

`reason` runs a batch to its end. `admit`, `write` and `close` are the same loop with the host in
between, so that text can be shown as it is written, and a row that is done can be given to another
question between two rounds.

Shape letters: B batch, P prompt positions, R rounds, T tokens of a round, O organs, Q organs of a
round, L ROI slots, S candidates for them, M visual tokens, K embedding, V vocabulary.
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
from tumorchain_jax.models.tumorchain.crops import Crops
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.reasoning.generate import (
    GREEDY,
    DecodeState,
    Generation,
    Sampling,
    Writing,
    extend,
    write_tokens,
)
from tumorchain_jax.reasoning.organ_matcher import NONE, OrganMatcher, OrganMatches, match_organs
from tumorchain_jax.reasoning.prompt import History
from tumorchain_jax.reasoning.roi import RoiPrompt, Turn, after_answer, roi_turn

NO_NEW_ORGAN, MAX_ROUNDS, TOKEN_BUDGET = 0, 1, 2


@dataclass(frozen=True)
class LoopConfig:
    """Shapes and policy of the loop; a change of any of them compiles again.

    Attributes:
        prompt_length: P, room for the question's turn, global tokens included.
        max_rounds: R, room for rounds; a request may ask for fewer.
        tokens_per_round: T.
        organs_per_round: Q, at most this many organs are looked at between two rounds.
        history: `all` accumulates every round (Eq. 3), `latest` keeps the question, the last answer
            and the new ROI (Eq. 7).
    """

    prompt_length: int
    max_rounds: int = 4
    tokens_per_round: int = 96
    organs_per_round: int = 2
    history: History = "all"
    sampling: Sampling = GREEDY


class Request(NamedTuple):
    """A batch of questions.

    Attributes:
        visual_tokens: of each row's scan.
        roi_index, roi_valid: visual indices of each organ's ROI tokens.
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
    """Record of a run, of fixed shape; rounds beyond a row's number are zero.

    Attributes:
        written: the text of each round, `[R, B, ...]`.
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


class _Inputs(NamedTuple):
    """Arrays that stay the same in every round."""

    params: Any
    matcher: OrganMatcher
    roi_prompt: RoiPrompt
    request: Request


class LoopState(NamedTuple):
    """Carry of the loop over rounds.

    Attributes:
        number: of the round that each row writes next, from 0.
        running: rows that have not stopped.
        visited: organs whose ROI tokens a row has read.
        decode: cache of the decoder.
        writing: the round that is being written.
        result: of the rounds before it.
    """

    number: Int[Array, " B"]
    running: Bool[Array, " B"]
    visited: Bool[Array, "B O"]
    decode: DecodeState
    writing: Writing
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
    inputs = _Inputs(params, matcher, roi_prompt, request)
    start = _begin(model, config, params, roi_prompt, request)

    def another(state: LoopState) -> LoopState:
        state = _write(model, config, inputs, state, config.tokens_per_round)
        return _close(model, config, inputs, state)

    return lax.while_loop(lambda state: jnp.any(state.running), another, start).result


@partial(jax.jit, static_argnames=("model", "config", "batch"))
def idle(
    model: TumorChain, config: LoopConfig, roi_prompt: RoiPrompt, request: Request, batch: int
) -> tuple[Request, LoopState]:
    """Make `batch` rows that all hold one question, none of which runs."""
    requests = jax.tree.map(lambda row: row[jnp.zeros(batch, jnp.int32)], request)
    empty = _empty_state(model, config, roi_prompt, requests)
    state = _start(config, requests, empty)
    return requests, state._replace(
        running=state.running & False, writing=state.writing._replace(running=state.running & False)
    )


@partial(jax.jit, static_argnames=("model", "config"), donate_argnames=("requests", "state"))
def admit(
    model: TumorChain,
    config: LoopConfig,
    params: Any,
    roi_prompt: RoiPrompt,
    requests: Request,
    state: LoopState,
    request: Request,
    number: Int[Array, ""],
) -> tuple[Request, LoopState]:
    """Let row `number` begin with a question; the others stay as they are, between rounds.

    Args:
        request: of a batch of one: no other row is read.
    """
    start = _begin(model, config, params, roi_prompt, request)

    def put(rows: Any, row: Any) -> Any:
        return jax.tree.map(lambda a, b: a.at[number].set(b[0]), rows, row)

    def put_second(rows: Any, row: Any) -> Any:
        return jax.tree.map(lambda a, b: a.at[:, number].set(b[:, 0]), rows, row)

    new, old = start.result, state.result
    result = Result(
        put_second(old.written, new.written),
        put_second(old.tokens_in, new.tokens_in),
        put_second(old.matches, new.matches),
        put_second(old.looked_at, new.looked_at),
        put(old.rounds, new.rounds),
        put(old.stop_reason, new.stop_reason),
    )
    return put(requests, request), LoopState(
        put(state.number, start.number),
        put(state.running, start.running),
        put(state.visited, start.visited),
        put(state.decode, start.decode),
        Writing(jnp.int32(0), *put(state.writing[1:], start.writing[1:])),
        result,
    )


@partial(jax.jit, static_argnames=("model", "config"), donate_argnames="state")
def write(
    model: TumorChain,
    config: LoopConfig,
    params: Any,
    matcher: OrganMatcher,
    roi_prompt: RoiPrompt,
    request: Request,
    state: LoopState,
    most: Int[Array, ""],
) -> LoopState:
    """Write the round of each running row, or at most `most` further tokens of it."""
    return _write(model, config, _Inputs(params, matcher, roi_prompt, request), state, most)


@partial(jax.jit, static_argnames=("model", "config"), donate_argnames="state")
def close(
    model: TumorChain,
    config: LoopConfig,
    params: Any,
    matcher: OrganMatcher,
    roi_prompt: RoiPrompt,
    request: Request,
    state: LoopState,
) -> LoopState:
    """Close the round, which all rows have written, and begin the next one."""
    return _close(model, config, _Inputs(params, matcher, roi_prompt, request), state)


def _begin(
    model: TumorChain, config: LoopConfig, params: Any, roi_prompt: RoiPrompt, request: Request
) -> LoopState:
    empty = _empty_state(model, config, roi_prompt, request)
    read = extend(model, params, request.visual_tokens, empty, request.prompt)
    return _start(config, request, read)


def _start(config: LoopConfig, request: Request, decode: DecodeState) -> LoopState:
    result = _empty_result(config, request)
    result = result._replace(tokens_in=result.tokens_in.at[0].set(decode.length))
    B = len(request.rounds)
    running = jnp.ones(B, bool)
    writing = Writing.begin(running, request.token_budget, config.tokens_per_round)
    return LoopState(jnp.zeros(B, jnp.int32), running, request.visited, decode, writing, result)


def _write(
    model: TumorChain,
    config: LoopConfig,
    inputs: _Inputs,
    state: LoopState,
    most: Int[Array, ""] | int,
) -> LoopState:
    """Write at most `most` tokens of a round (Eq. 4, 7)."""
    decode, writing = write_tokens(
        model,
        inputs.params,
        inputs.request.visual_tokens,
        state.decode,
        state.writing,
        keys=jax.vmap(jax.random.fold_in)(inputs.request.keys, state.number),
        end_token=inputs.roi_prompt.opening[0],
        sampling=config.sampling,
        most=most,
    )
    return state._replace(decode=decode, writing=writing)


def _close(model: TumorChain, config: LoopConfig, inputs: _Inputs, state: LoopState) -> LoopState:
    """Match a round's organs, and read the turn of the next one (Eq. 6)."""
    params, request, result, number = inputs.params, inputs.request, state.result, state.number
    decode, written, left = state.decode, state.writing.written, state.writing.limit
    matches = match_organs(inputs.matcher, written.tokens, written.length)
    new = (matches.first != NONE) & request.roi_valid.any(axis=2) & ~state.visited
    spent = ~written.complete & (written.length >= left)
    stop_reason = jnp.select([spent, ~new.any(axis=1)], [TOKEN_BUDGET, NO_NEW_ORGAN], MAX_ROUNDS)
    limit = jnp.minimum(request.rounds, config.max_rounds)
    running = state.running & ~spent & new.any(axis=1) & (number + 1 < limit)
    organs = _first_named(matches.first, new & running[:, None], config.organs_per_round)
    looked_at = jnp.any(organs[:, :, None] == jnp.arange(new.shape[1]), axis=1) & new

    def look_again(decode: DecodeState) -> tuple[DecodeState, Int[Array, " B"]]:
        turn = roi_turn(inputs.roi_prompt, organs, request.roi_index, request.roi_valid)
        if config.history == "latest":
            length = jnp.where(running, result.tokens_in[0], decode.length)
            decode = decode._replace(length=length)
            turn = after_answer(written.tokens, written.length, turn, running)
        before = decode.length
        decode = extend(model, params, request.visual_tokens, decode, turn)
        return decode, decode.length - before

    decode, tokens_in = lax.cond(
        jnp.any(running),
        look_again,
        lambda decode: (decode, jnp.zeros_like(decode.length)),
        decode,
    )
    # Rows that had stopped before keep their record.
    row, at = jnp.arange(len(number)), jnp.where(state.running, number, config.max_rounds)

    def put(all_: Array, one: Array) -> Array:
        return all_.at[at, row].set(one, mode="drop")

    result = Result(
        jax.tree.map(put, result.written, written),
        result.tokens_in.at[at + 1, row].set(tokens_in, mode="drop"),
        jax.tree.map(put, result.matches, matches),
        put(result.looked_at, looked_at),
        result.rounds + state.running,
        jnp.where(state.running, stop_reason, result.stop_reason),
    )
    number = number + state.running
    left = request.token_budget - result.written.length.sum(axis=0)
    writing = Writing.begin(running, left, config.tokens_per_round)
    return LoopState(number, running, state.visited | looked_at, decode, writing, result)


def _first_named(
    first: Int[Array, "B O"], new: Bool[Array, "B O"], count: int
) -> Int[Array, "B Q"]:
    """Order the labels of new organs by their first mention, ties by label; 0 pads."""
    order = jnp.argsort(jnp.where(new, first, NONE), axis=1, stable=True)[:, :count]
    is_new = jnp.take_along_axis(new, order, axis=1)
    return jnp.where(is_new, order, 0).astype(jnp.int32)


def _empty_state(
    model: TumorChain, config: LoopConfig, roi_prompt: RoiPrompt, request: Request
) -> DecodeState:
    """Make an empty cache with room for the longest run."""
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


def _empty_result(config: LoopConfig, request: Request) -> Result:
    B, organs = request.visited.shape
    R = config.max_rounds
    nowhere = jnp.full((R, B, organs), NONE, jnp.int32)
    return Result(
        Generation.empty(R, B, config.tokens_per_round),
        jnp.zeros((R, B), jnp.int32),
        OrganMatches(nowhere, nowhere),
        jnp.zeros((R, B, organs), bool),
        jnp.zeros(B, jnp.int32),
        jnp.zeros(B, jnp.int32),
    )


class Encoded(NamedTuple):
    """What the loop reads of a scan.

    Attributes:
        roi_index, roi_valid: visual indices of each organ's ROI tokens.
        abnormal: probability that each organ is, by the organ classifier.
    """

    visual_tokens: Float[Array, "B M K"]
    roi_index: Int[Array, "B O L"]
    roi_valid: Bool[Array, "B O L"]
    abnormal: Float[Array, "B O"]


@partial(jax.jit, static_argnames="model")
def encode(
    model: TumorChain,
    params: Any,
    volume: Float[Array, "B D H W"],
    roi_index: Int[Array, "B O S"],
    roi_valid: Bool[Array, "B O S"],
    crops: Crops | None = None,
) -> Encoded:
    """Compute a scan's visual tokens, choose each organ's ROI tokens, and classify the organs.

    Args:
        roi_index, roi_valid: the ROI tokens, or the candidates for them (`RoiSpec.candidates`).
    """
    visual_tokens = run(model, params, volume, crops, method="encode")
    roi_index, roi_valid = run(model, params, visual_tokens, roi_index, roi_valid, method="choose")
    logits = run(model, params, visual_tokens, roi_index, roi_valid, method="classify")
    return Encoded(visual_tokens, roi_index, roi_valid, jax.nn.softmax(logits, axis=-1)[:, :, 1])
