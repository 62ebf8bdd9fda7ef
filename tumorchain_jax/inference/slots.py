"""Questions that come and go between rounds: the rows of a batch as slots.

slots = Slots(Runner(checkpoint, batch_size=8))
slots.admit({0: Question(case, scan, "Where is the tumour?")})
while slots.busy:
    for number, progress in slots.step().items():
        print(number, progress.answer.trace.rounds[-1].text, progress.done)
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax

from tumorchain_jax.inference.case import PreparedCase
from tumorchain_jax.inference.runner import Answer, EncodedScan, Runner
from tumorchain_jax.reasoning.interleaved import LoopState, Request


@dataclass(frozen=True)
class Question:
    """A question about a scan that was encoded.

    Attributes:
        rounds: limit on rounds of reasoning; None: the runner's own.
    """

    case: PreparedCase
    scan: EncodedScan
    text: str
    seed: int = 0
    rounds: int | None = None
    begun: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Progress:
    """A question after one more round.

    Attributes:
        answer: with the rounds so far.
        done: whether its chain has ended.
    """

    answer: Answer
    done: bool


class Slots:
    """The rows of a runner's batch, each with a question of its own or idle.

    Rows are independent: a question has the answer that it would have had alone. A row that is done
    is idle, and takes another question between two rounds of the others. All shapes are fixed, so
    what is compiled by the first question serves all others.
    """

    def __init__(self, runner: Runner):
        self._runner = runner
        self._questions: list[Question | None] = [None] * runner.batch_size
        self._request: Request | None = None
        self._state: LoopState | None = None

    @property
    def idle(self) -> list[int]:
        """Numbers of the slots without a question."""
        return [number for number, each in enumerate(self._questions) if each is None]

    @property
    def busy(self) -> bool:
        """Whether any question runs."""
        return any(self._questions)

    def admit(self, questions: Mapping[int, Question]) -> None:
        """Give idle slots, by their numbers, questions to begin with."""
        for number, question in questions.items():
            assert self._questions[number] is None, "the slot has a question"
            self._questions[number] = question
            asked = [(question.case, question.text)], [question.scan]
            request = self._runner.request(*asked, [question.seed], [question.rounds])
            if self._request is None or self._state is None:
                self._request, self._state = self._runner.idle(request)
            self._request, self._state = self._runner.admit(
                self._request, self._state, request, number
            )

    def write(self, most: int | None = None) -> dict[int, str]:
        """Write the round of every question.

        Args:
            most: tokens to write now in each; None: until all have ended the round.

        Returns:
            of each question the text of the round so far, without an unfinished character at its
            end; empty once the round is written and is to be closed.
        """
        assert self._request is not None, "no question was admitted"
        assert self._state is not None
        self._state = self._runner.write(self._request, self._state, most)
        if most is None:
            return {}
        writing = jax.device_get(self._state.writing)
        if writing.step == writing.written.tokens.shape[1] or not writing.running.any():
            return {}
        return {
            number: self._runner.text(writing.written, number)
            for number, each in enumerate(self._questions)
            if each is not None
        }

    def close(self) -> dict[int, Progress]:
        """Close the round that was written; questions that are done leave their slots."""
        assert self._request is not None
        assert self._state is not None
        self._state = self._runner.close(self._request, self._state)
        kept = self._state.running, self._state.result, self._request.visited
        running, result, visited = jax.device_get(kept)
        now, made = time.monotonic(), {}
        for number, each in enumerate(self._questions):
            if each is None:
                continue
            answer = self._runner.answer(
                result,
                number,
                (each.case, each.text),
                each.scan,
                each.seed,
                visited[number],
                now - each.begun,
            )
            made[number] = Progress(answer, not running[number])
            if not running[number]:
                self._questions[number] = None
        return made

    def step(self) -> dict[int, Progress]:
        """Write one round of every question, and close it."""
        self.write()
        return self.close()

    def drop(self, number: int) -> None:
        """Give up a question between two rounds; its slot is idle."""
        state = self._state
        assert state is not None
        self._questions[number] = None
        writing = state.writing._replace(running=state.writing.running.at[number].set(False))
        running = state.running.at[number].set(False)
        self._state = state._replace(running=running, writing=writing)
