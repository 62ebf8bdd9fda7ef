"""A compiled model that answers questions about prepared scans; it knows no files and no report."""

import time
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.inference.case import PreparedCase
from tumorchain_jax.models.language.qwen2.model import unroll
from tumorchain_jax.models.tumorchain.crops import Crops
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.reasoning.generate import GREEDY, Generation, Sampling
from tumorchain_jax.reasoning.interleaved import (
    LoopConfig,
    LoopState,
    Request,
    Result,
    admit,
    close,
    encode,
    idle,
    reason,
    write,
)
from tumorchain_jax.reasoning.organ_cells import OrganCells
from tumorchain_jax.reasoning.organ_matcher import build_matcher
from tumorchain_jax.reasoning.prompt import (
    INITIAL_ORGANS,
    MAX_QUESTION_TOKENS,
    TEXT,
    Chat,
    initial_rois,
)
from tumorchain_jax.reasoning.roi import Turn, build_roi_prompt
from tumorchain_jax.reasoning.trace import Trace, build_trace
from tumorchain_jax.weights.model_folder import ModelFolder

Asked = tuple[PreparedCase, str]
"""A scan and a question about it."""


@dataclass(frozen=True)
class Answer:
    """What the model wrote about one question to one scan.

    Attributes:
        case: the scan, with the masks that were used.
        trace: every round, and why the chain stopped.
        seed: of the sampling.
        seconds: spent on each stage.
        tokens: the bytes and the log-probability (temperature 1) of each token of the last round.
    """

    case: PreparedCase
    question: str
    trace: Trace
    seed: int
    seconds: dict[str, float]
    tokens: tuple[tuple[bytes, float], ...] = ()

    @property
    def text(self) -> str:
        """The last round's full text."""
        return self.trace.rounds[-1].text


class EncodedScan(NamedTuple):
    """A scan's visual tokens and its ROI table, as a batch of one.

    Attributes:
        cells: the same table on the host.
        abnormal: `[O]`, the organ classifier's probability for each organ.
        seconds: spent on encoding.
    """

    visual_tokens: Float[Array, "1 M K"]
    roi_index: Int[Array, "1 O L"]
    roi_valid: Bool[Array, "1 O L"]
    cells: OrganCells
    abnormal: Float[np.ndarray, " O"]
    seconds: float


def check_text(question: str) -> None:
    """Raise InputError for a question that is empty or not valid Unicode."""
    if not question.strip():
        raise InputError("question", "text", "nothing", "some words", "ask something")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        found = f"half of a character (U+{ord(question[error.start]):X})"
        hint = "use a terminal and a locale with UTF-8"
        raise InputError("question", "text", found, "text in UTF-8", hint) from None


class Runner:
    """A model that is loaded and compiled once, for batches of `batch_size` questions.

    Attributes:
        checkpoint: the model folder that was loaded.
        batch_size: questions that run at once.
        max_rounds: limit on rounds of reasoning.
    """

    def __init__(
        self,
        checkpoint: ModelFolder,
        batch_size: int = 1,
        max_rounds: int = 4,
        sampling: Sampling = GREEDY,
    ):
        self.checkpoint, self.batch_size, self.max_rounds = checkpoint, batch_size, max_rounds
        self._chat = Chat(checkpoint.tokenizer, checkpoint.model.template)
        self._model = TumorChain(checkpoint.model, unrolled=True)
        params = unflatten(checkpoint.params)
        params["decoder"] = unroll(params["decoder"])
        self._params = jax.device_put(params)
        self._matcher = build_matcher(checkpoint.tokenizer.token_bytes)
        self._roi_prompt = build_roi_prompt(self._chat)
        self._loop = LoopConfig(
            prompt_length=self._prompt_length(),
            max_rounds=max_rounds,
            history=checkpoint.history,
            sampling=sampling,
        )

    def check_question(self, question: str) -> None:
        """Raise InputError for a question that is empty, not valid Unicode, or too long."""
        check_text(question)
        # A token has at least one byte: a very long text need not be tokenized to be refused.
        n_tokens = len(question)
        if n_tokens <= 50 * MAX_QUESTION_TOKENS:
            global_tokens = self.checkpoint.model.roi.global_tokens
            n_tokens = len(self._chat.question(question, (), global_tokens).tokens) - global_tokens
            if n_tokens <= MAX_QUESTION_TOKENS:
                return
        limit = f"at most {MAX_QUESTION_TOKENS} tokens with the template"
        found = f"{len(question)} characters, about {n_tokens} tokens"
        raise InputError("question", "length", found, limit, "ask in fewer words")

    def encode(self, case: PreparedCase) -> EncodedScan:
        """Compute a scan's visual tokens and the probability that each organ is abnormal."""
        started = time.monotonic()
        cells, roi = case.cells, self.checkpoint.model.roi
        candidates = jnp.asarray(cells.visual_index)[None], jnp.asarray(cells.valid)[None]
        volume, crops = jnp.asarray(case.scan.image)[None], _crops(case)
        encoded = encode(self._model, self._params, volume, *candidates, crops)
        visual_tokens, roi_index, roi_valid, _ = encoded
        index, valid, abnormal = (array[0] for array in jax.device_get(encoded[1:]))
        chosen = cells.chosen(roi, index, valid)
        seconds = time.monotonic() - started
        return EncodedScan(visual_tokens, roi_index, roi_valid, chosen, abnormal, seconds)

    def run(
        self, asked: Sequence[Asked], *, seed: int = 0, rounds: int | None = None
    ) -> list[Answer]:
        """Answer many questions, `batch_size` at a time; a scan is encoded once for all of its own.

        Args:
            seed: gives each question the draws it would have had alone.
            rounds: limit on rounds of reasoning; by default, and at most, the loop's own.
        """
        # By identity: the same case may be asked many things.
        encoded = {key: self.encode(case) for key, case in {id(c): c for c, _ in asked}.items()}
        answers: list[Answer] = []
        for first in range(0, len(asked), self.batch_size):
            batch = asked[first : first + self.batch_size]
            scans = [encoded[id(case)] for case, _ in batch]
            answers += self._run_batch(batch, scans, seed, rounds)
        return answers

    def _run_batch(
        self, asked: Sequence[Asked], scans: Sequence[EncodedScan], seed: int, rounds: int | None
    ) -> list[Answer]:
        started = time.monotonic()
        # A last batch that is not full is filled up: another size would compile again.
        rows = [min(row, len(asked) - 1) for row in range(self.batch_size)]
        each = [asked[i] for i in rows], [scans[i] for i in rows]
        request = self.request(*each, [seed] * len(rows), [rounds] * len(rows))
        with jax.transfer_guard("disallow"):
            result = reason(
                self._model, self._loop, self._params, self._matcher, self._roi_prompt, request
            )
        result, visited = jax.device_get((result, request.visited))
        reason_seconds = time.monotonic() - started

        return [
            self.answer(result, row, each, scan, seed, visited[row], reason_seconds)
            for row, (each, scan) in enumerate(zip(asked, scans, strict=True))
        ]

    def answer(
        self,
        result: Result,
        row: int,
        asked: Asked,
        scan: EncodedScan,
        seed: int,
        visited: Bool[np.ndarray, " O"],
        reason_seconds: float,
    ) -> Answer:
        """Put one row of a result into words.

        Args:
            result: on the host.
            visited: organs that the prompt had already looked at.
        """
        case, question = asked
        tokenizer = self.checkpoint.tokenizer
        trace = build_trace(result, row, tokenizer, scan.cells, scan.abnormal, visited)
        seconds = case.seconds | {"encode": scan.seconds, "reason": reason_seconds}
        return Answer(case, question, trace, seed, seconds, self._last_round(result, row))

    def idle(self, request: Request) -> tuple[Request, LoopState]:
        """Rows that hold the question of a batch of one, none of which runs."""
        return idle(self._model, self._loop, self._roi_prompt, request, self.batch_size)

    def admit(
        self, requests: Request, state: LoopState, request: Request, row: int
    ) -> tuple[Request, LoopState]:
        """Let a row begin with the question of a batch of one, between two rounds of the others."""
        loop = self._model, self._loop, self._params, self._roi_prompt
        return admit(*loop, requests, state, request, jnp.int32(row))

    def write(self, request: Request, state: LoopState, most: int | None = None) -> LoopState:
        """Write the round of each running row; at most `most` further tokens of it."""
        loop = self._model, self._loop, self._params, self._matcher, self._roi_prompt
        limit = self._loop.tokens_per_round if most is None else most
        return write(*loop, request, state, jnp.int32(limit))

    def close(self, request: Request, state: LoopState) -> LoopState:
        """Close the round that was written, and begin the next one."""
        loop = self._model, self._loop, self._params, self._matcher, self._roi_prompt
        return close(*loop, request, state)

    def text(self, written: Generation, row: int) -> str:
        """The text of a round so far, without an unfinished character at its end."""
        ids = written.tokens[row, : int(written.length[row])].tolist()
        decoder = getincrementaldecoder("utf-8")("replace")
        return decoder.decode(self.checkpoint.tokenizer.decode_bytes(ids))

    def _last_round(self, result: Result, row: int) -> tuple[tuple[bytes, float], ...]:
        """Bytes and log-probability of each token that a row wrote in its last round."""
        last = int(result.rounds[row]) - 1
        length = int(result.written.length[last, row])
        ids = result.written.tokens[last, row, :length].tolist()
        log_probabilities = result.written.log_probabilities[last, row, :length].tolist()
        # One by one, so that an id of the padded vocabulary, which no token has, stands for none.
        pieces = [self.checkpoint.tokenizer.decode_bytes([each]) for each in ids]
        return tuple(zip(pieces, log_probabilities, strict=True))

    def request(
        self,
        asked: Sequence[Asked],
        scans: Sequence[EncodedScan],
        seeds: Sequence[int],
        rounds: Sequence[int | None],
    ) -> Request:
        """Make the arrays of a batch, one question a row."""
        prompt, visited = self._prompts(asked, scans)
        B, limit = len(asked), self._loop.max_rounds
        return Request(
            jnp.concatenate([scan.visual_tokens for scan in scans]),
            jnp.concatenate([scan.roi_index for scan in scans]),
            jnp.concatenate([scan.roi_valid for scan in scans]),
            prompt,
            jnp.asarray(visited),
            jnp.asarray([min(each or limit, limit) for each in rounds], jnp.int32),
            jnp.full(B, limit * self._loop.tokens_per_round, jnp.int32),
            jnp.stack([jax.random.key(seed) for seed in seeds]),
        )

    def _prompts(
        self, asked: Sequence[Asked], scans: Sequence[EncodedScan]
    ) -> tuple[Turn, Bool[np.ndarray, "B O"]]:
        """The questions' turns, padded on the left to one length, and the organs in them."""
        global_tokens = self.checkpoint.model.roi.global_tokens
        shape = (len(asked), self._loop.prompt_length)
        tokens = np.zeros(shape, np.int32)
        visual_index = np.full(shape, TEXT, np.int32)
        valid = np.zeros(shape, bool)
        visited = np.zeros((len(asked), len(ORGANS)), bool)
        for row, ((_, question), scan) in enumerate(zip(asked, scans, strict=True)):
            rois = []
            if self.checkpoint.initial_roi:
                rois = initial_rois(question, scan.cells.rois())
            prompt = self._chat.question(question, (), global_tokens, rois)
            visited[row, [label for label, _ in rois]] = True
            tokens[row, -len(prompt) :] = prompt.tokens
            visual_index[row, -len(prompt) :] = prompt.visual_index
            valid[row, -len(prompt) :] = True
        return Turn(jnp.asarray(tokens), jnp.asarray(visual_index), jnp.asarray(valid)), visited

    def _prompt_length(self) -> int:
        """The positions that the longest allowed question takes."""
        roi = self.checkpoint.model.roi
        length = roi.global_tokens + MAX_QUESTION_TOKENS
        if self.checkpoint.initial_roi:
            sentence = self._roi_prompt.sentences.shape[1]
            length += INITIAL_ORGANS * (sentence + 2 + roi.slots)
        return length


def _crops(case: PreparedCase) -> Crops | None:
    """The crops of a scan as a batch of one."""
    if case.crops is None:
        return None
    return Crops(jnp.asarray(case.crops.images)[None], jnp.asarray(case.crops.world)[None])
