"""From the queue to the slots: one thread prepares scans, one owns the compiled loop."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.inference.slots import Progress, Question, Slots
from tumorchain_jax.inference.verdict import check_scope
from tumorchain_jax.phantoms.demo_case import phantom_patient
from tumorchain_jax.reasoning.trace import Trace
from tumorchain_jax.serve.ct.cases import Cases, organs_of
from tumorchain_jax.serve.ct.job import Again, Answered, Event, Job, Wrote
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.store import Stored
from tumorchain_jax.serve.refusal import Refusal

log = logging.getLogger(__name__)
WARM_SEED = 0


class Desk:
    """Answers questions about CTs in the slots of one compiled loop.

    Args:
        analyzer: its batch size is the number of slots.
    """

    def __init__(self, analyzer: Analyzer, cases: Cases, limits: Limits):
        self.analyzer, self.cases, self.limits = analyzer, cases, limits
        self._slots = Slots(analyzer.runner)
        self._running: dict[int, Job] = {}
        self._new: deque[Job] = deque()
        self._prepared: deque[Job] = deque()
        self._preparing: Job | None = None
        self._changed = threading.Condition()
        self._closing = False
        self.warm = False
        self._seconds = 2.0
        self.compiled: list[str] = []
        self._threads = [
            threading.Thread(target=self._prepare_all, name="scans", daemon=True),
            threading.Thread(target=self._answer_all, name="model", daemon=True),
        ]

    def start(self) -> None:
        """Compile everything with a digital patient, and begin to work."""
        patient = phantom_patient(WARM_SEED)
        case = self.analyzer.prepare(patient.ct, patient.labels)
        scan = self.analyzer.runner.encode(case)
        slots = Slots(self.analyzer.runner)
        slots.admit({0: Question(case, scan, "Where is the tumour?", rounds=1)})
        slots.write(1)
        slots.step()
        B, rounds = self.analyzer.runner.batch_size, self.analyzer.runner.max_rounds
        self.compiled = [f"scan {'x'.join(map(str, case.scan.image.shape))}"]
        self.compiled += [f"{B} slots, up to {rounds} rounds"]
        self.warm = True
        self.begin()

    def begin(self) -> None:
        """Begin to work; the first question compiles what is not."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Take no more questions, refuse those that wait; those that run are finished."""
        with self._changed:
            self._closing = True
            waiting = [*self._new, *self._prepared]
            self._new.clear()
            self._prepared.clear()
            self._changed.notify_all()
        for job in waiting:
            job.tell(Refusal(503, "the server is going down", retry_after_s=30))

    def stop(self) -> None:
        """Close, and wait for what runs."""
        self.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    @property
    def closing(self) -> bool:
        """Whether the server is going down."""
        return self._closing

    @property
    def waiting(self) -> int:
        """Questions that are in no slot yet."""
        return len(self._new) + len(self._prepared) + (self._preparing is not None)

    @property
    def running(self) -> int:
        """Questions that are in slots."""
        return len(self._running)

    def health(self) -> dict[str, Any]:
        """Numbers for `/health`."""
        return {
            "status": "closing" if self._closing else "ok",
            "slots": self.analyzer.runner.batch_size,
            "rounds": self.analyzer.runner.max_rounds,
            "busy": self.running,
            "waiting": self.waiting,
            "most_waiting": self.limits.waiting,
            "compiled": self.compiled,
        }

    def check(self, question: str) -> None:
        """Raise Refusal (400) for a question that cannot be asked."""
        try:
            self.analyzer.check_question(question)
            check_scope(question)
        except InputError as error:
            message = f"question: found {error.found}, expected {error.expected}"
            raise Refusal(400, message, "messages") from None

    def submit(
        self,
        file: Stored,
        mask: Stored | None,
        question: str,
        seed: int,
        rounds: int | None,
        tell: Callable[[Event], None],
        stream: bool = False,
    ) -> Job:
        """Queue a question.

        Args:
            stream: tell each token as it is written.

        Raises:
            Refusal: (400) it cannot be asked; (429) too many wait; (503) the server goes down.
        """
        self.check(question)
        deadline = time.monotonic() + self.limits.answer_s
        job = Job(file, mask, question, seed, rounds, deadline, tell, organs_of(question), stream)
        with self._changed:
            if self._closing:
                raise Refusal(503, "the server is going down", retry_after_s=30)
            if self.waiting >= self.limits.waiting:
                slots = self.analyzer.runner.batch_size
                wait_s = round(self._seconds * self.limits.waiting / slots / 2)
                message = "too many questions wait"
                raise Refusal(429, message, retry_after_s=min(60, max(1, wait_s)))
            self._new.append(job)
            self._changed.notify_all()
        return job

    def _prepare_all(self) -> None:
        while True:
            with self._changed:
                while not self._new and not self._closing:
                    self._changed.wait()
                if not self._new:
                    return
                job = self._preparing = self._new.popleft()
            try:
                if self._wanted(job):
                    job.ready = self.cases.get(job.file, job.mask, job.organs)
            except Refusal as refusal:
                job.tell(refusal)
            except Exception:
                log.exception("a scan could not be prepared")
                job.tell(Refusal(500, "the scan could not be read; the server's log says why"))
            with self._changed:
                self._preparing = None
                closing = self._closing
                if job.ready is not None and not closing:
                    self._prepared.append(job)
                self._changed.notify_all()
            if closing and job.ready is not None:
                job.tell(Refusal(503, "the server is going down", retry_after_s=30))

    def _wanted(self, job: Job) -> bool:
        """Whether somebody waits for a job, in time; if it is late, the client is told."""
        if job.cancelled.is_set():
            return False
        if time.monotonic() > job.deadline:
            job.tell(Refusal(408, f"no answer within {self.limits.answer_s:.0f} s"))
            return False
        return True

    def _answer_all(self) -> None:
        while True:
            with self._changed:
                while not self._prepared and not self._running and not self._closing:
                    self._changed.wait()
                if not self._prepared and not self._running:
                    return
            try:
                self._turn()
            except Exception:
                log.exception("a round failed")
                for job in self._running.values():
                    job.tell(Refusal(500, "the model failed; the server's log says why"))
                self._running.clear()
                self._slots = Slots(self.analyzer.runner)

    def _turn(self) -> None:
        """Fill idle slots, and write one round."""
        for number, job in [*self._running.items()]:
            if not self._wanted(job):
                del self._running[number]
                self._slots.drop(number)
        new: dict[int, Question] = {}
        for number in self._slots.idle:
            found = self._next()
            if found is None:
                break
            job, ready = found, found.ready
            assert ready is not None
            self._running[number] = job
            new[number] = Question(ready.case, ready.scan, job.question, job.seed, job.rounds)
        if new:
            self._slots.admit(new)
        if not self._running:
            return
        self._write_round()
        for number, progress in self._slots.close().items():
            job = self._running[number]
            if progress.done:
                del self._running[number]
            self._tell(job, progress)

    def _write_round(self) -> None:
        """Write a round; token by token where somebody wants to see them."""
        while any(job.stream for job in self._running.values()):
            texts = self._slots.write(1)
            if not texts:
                return
            for number, text in texts.items():
                self._running[number].tell_text(text)
        self._slots.write()

    def _next(self) -> Job | None:
        while True:
            with self._changed:
                if not self._prepared:
                    return None
                job = self._prepared.popleft()
            if self._wanted(job):
                return job

    def _tell(self, job: Job, progress: Progress) -> None:
        answer = progress.answer
        if not progress.done and not job.stream:
            return
        report = self.analyzer.record(answer)
        job.tell_text(answer.text)
        job.rounds_written, job.told = job.rounds_written + 1, 0
        job.tell(Wrote(report))
        if not progress.done:
            return
        named = _named(answer.trace)
        masks = answer.case.masks
        if masks is not None and masks.missing_models(named | job.organs) and not self._closing:
            job.organs |= named
            job.ready, job.rounds_written = None, 0
            job.tell(Again())
            with self._changed:
                self._new.append(job)
                self._changed.notify_all()
            return
        self._seconds += 0.2 * (report.seconds.get("reason", 0.0) - self._seconds)
        job.tell(Answered(report))


def _named(trace: Trace) -> set[int]:
    return {mention.label for each in trace.rounds for mention in each.organs}
