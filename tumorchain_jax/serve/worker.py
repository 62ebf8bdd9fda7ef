"""The one thread that owns the model: jobs wait for it in a queue of limited length."""

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tumorchain_jax.inference.language_model import LanguageModel
from tumorchain_jax.serve.chat_request import ChatRequest
from tumorchain_jax.serve.decoding import Choice, Chosen, TokenDecoder
from tumorchain_jax.serve.grammar import Grammar
from tumorchain_jax.serve.refusal import Refusal

DEFAULT_TOKENS = 1024
"""Of a reply to a request that sets no limit."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Piece:
    """Some of a reply.

    Attributes:
        text: that has become certain; an unfinished character waits.
        tokens: that were written since the last piece, with their texts.
    """

    text: str
    tokens: tuple[tuple[Chosen, str], ...]


@dataclass(frozen=True)
class Done:
    """The end of a reply."""

    finish_reason: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int


Event: TypeAlias = Piece | Done | Refusal


@dataclass
class Job:
    """A request on its way.

    Attributes:
        tell: takes what happens, in the worker's thread.
        cancelled: set when nobody waits any more.
    """

    request: ChatRequest
    prompt: list[int]
    limit: int
    matcher: Any
    tell: Callable[[Event], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


class Worker:
    """Answers chat requests, one after the other.

    Args:
        model: the language model.
        name: under which it is served.
        waiting: the most requests that may wait.
        context: the most tokens of a prompt and its reply.
    """

    def __init__(self, model: LanguageModel, name: str, waiting: int, context: int):
        self.name, self.waiting = name, waiting
        self.decoder = TokenDecoder(model, context)
        self._model = model
        self._grammar = Grammar(model.tokenizer, self.decoder.vocabulary, sorted(self.decoder.ends))
        self._jobs: queue.Queue[Job | None] = queue.Queue(waiting)
        self._seconds = 1.0
        self.busy = False
        self._tokens = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)

    def start(self) -> None:
        """Compile what is needed first, and begin to work."""
        self.decoder.warm()
        self._thread.start()

    def stop(self) -> None:
        """End after the jobs that wait."""
        self._jobs.put(None)
        self._thread.join()

    def token_text(self, token: int) -> str:
        """A token by itself."""
        with self._tokens:
            return self._model.tokenizer.decode([token])

    def health(self) -> dict[str, Any]:
        """Numbers for `/health`."""
        return {
            "status": "ok",
            "model": self.name,
            "slots": 1,
            "busy": int(self.busy),
            "waiting": self._jobs.qsize(),
            "most_waiting": self.waiting,
            "context": self.decoder.context,
            "compiled": sorted(self.decoder.compiled),
        }

    def submit(self, request: ChatRequest, tell: Callable[[Event], None]) -> Job:
        """Check a request against the model, and queue it.

        Raises:
            Refusal: (400, 404) it cannot be answered; (429) the queue is full.
        """
        if request.model != self.name:
            raise Refusal(
                404, f"model: there is no {request.model!r:.80}, only {self.name}", "model"
            )
        with self._tokens:  # tokenizers are not for several threads at once
            prompt = self._model.prompt(request.turns)
        room = self.decoder.context - len(prompt)
        limit = request.max_tokens or min(room, DEFAULT_TOKENS)
        if limit > room or room < 1:
            asked = f"{len(prompt)} tokens of messages and {limit} of the reply"
            message = f"messages: {asked} are more than the context of {self.decoder.context}"
            raise Refusal(400, message, "messages")
        matcher = None if request.schema is None else self._grammar.matcher(request.schema)
        job = Job(request, prompt, limit, matcher, tell)
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            wait_s = max(1, round(self._seconds * self.waiting / 2))
            raise Refusal(429, "too many requests wait", retry_after_s=min(wait_s, 60)) from None
        return job

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.busy = True
            started = time.monotonic()
            try:
                self._answer(job)
            except Refusal as refusal:
                job.tell(refusal)
            except Exception:
                log.exception("a request failed")
                job.tell(Refusal(500, "the model failed; the server's log says why"))
            self._seconds += 0.2 * (time.monotonic() - started - self._seconds)
            self.busy = False

    def _answer(self, job: Job) -> None:
        request = job.request
        seed = secrets.randbits(32) if request.seed is None else request.seed % (1 << 32)
        choice = Choice(request.temperature, request.top_p, seed, request.logprobs or 0)
        writer = _Writer(self._model.tokenizer, request.stop)
        finish: Literal["stop", "length"] = "length"
        count = 0
        for chosen in self.decoder.reply(job.prompt, job.limit, choice, job.matcher):
            if job.cancelled.is_set():
                return
            count += 1
            if chosen.token in self.decoder.ends:
                finish = "stop"
                break
            if piece := writer.add(chosen):
                job.tell(piece)
            if writer.stopped:
                finish = "stop"
                break
        else:
            finish = "stop" if job.matcher is not None and job.matcher.complete else "length"
        if piece := writer.end():
            job.tell(piece)
        job.tell(Done(finish, len(job.prompt), count))


class _Writer:
    """Turns tokens into text that will not change any more."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...]):
        self._tokenizer, self._stop = tokenizer, stop
        self._ids: list[int] = []
        self._text = ""
        self._told = 0
        self._untold: list[tuple[Chosen, str]] = []
        self._held = max(map(len, stop), default=1) - 1
        self.stopped = False

    def add(self, chosen: Chosen) -> Piece | None:
        """Take a token; returns what has become certain with it."""
        before = len(self._text)
        self._ids.append(chosen.token)
        text = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        found = [at for stop in self._stop if (at := text.find(stop)) >= 0]
        self.stopped = bool(found)
        self._text = text[: min(found)] if found else text
        self._untold.append((chosen, text[before:]))
        if self.stopped or text.endswith("\ufffd"):
            return None
        return self._tell(len(self._text) - self._held)

    def end(self) -> Piece | None:
        """What is left."""
        return self._tell(len(self._text))

    def _tell(self, until: int) -> Piece | None:
        if until <= self._told and not self._untold:
            return None
        text = self._text[self._told : max(until, self._told)]
        self._told = max(until, self._told)
        tokens, self._untold = tuple(self._untold), []
        return Piece(text, tokens) if text or tokens else None
