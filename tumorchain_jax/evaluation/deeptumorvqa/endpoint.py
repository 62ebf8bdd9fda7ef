"""A model behind an OpenAI-compatible endpoint, shown slices of each CT by a named policy."""

import hashlib
from collections.abc import Mapping, Sequence

from tumorchain_jax.evaluation.deeptumorvqa.answerers import Answerer
from tumorchain_jax.evaluation.deeptumorvqa.asking import ANSWER, asked_text, not_answerable
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question
from tumorchain_jax.evaluation.deeptumorvqa.scans import Scans
from tumorchain_jax.evaluation.reading.answer_part import ERROR_MARK
from tumorchain_jax.evaluation.slices.policy import SlicePolicy
from tumorchain_jax.evaluation.slices.sending import (
    INTRODUCTION,
    NO_REPLY,
    Sender,
    picture_request,
)
from tumorchain_jax.llm.reply import Reply
from tumorchain_jax.scan.read import read_ct

PROMPT = INTRODUCTION + ANSWER


class EndpointAnswers(Answerer):
    """See the head of the file.

    Args:
        mismatched: image_id -> the image whose slices are sent instead (the text-only baseline).
    """

    def __init__(
        self,
        scans: Scans,
        form: Format,
        policy: SlicePolicy,
        sender: Sender,
        mismatched: Mapping[str, str] | None = None,
    ):
        self.scans, self.form, self.policy, self.sender = scans, form, policy, sender
        self.mismatched = mismatched
        endpoint = sender.endpoint
        self.model = f"{endpoint.model} {endpoint.snapshot}".strip()
        prompt = hashlib.sha256(PROMPT.encode()).hexdigest()
        self.shown = f"slices {policy} ({policy.sha256[:12]}), prompt {prompt[:12]}"
        self.shown += ", of another patient" if mismatched else ""

    def answer(self, image_id: str, questions: Sequence[Question]) -> list[str | None]:
        """See `Answerer`; a reply that was cut or declined is an error, not an answer."""
        shown = self.mismatched[image_id] if self.mismatched else image_id
        pictures = self.policy.parts(read_ct(self.scans.ct(shown)))
        replies = self.sender.ask(
            picture_request(PROMPT, pictures, self.policy, asked_text(question, self.form))
            for question in questions
        )
        return list(map(_text, replies))

    def unfit(self, question: Question) -> str:
        """See `Answerer`."""
        return not_answerable(question.subtype, self.policy)


def _text(reply: Reply) -> str | None:
    failure = reply.failure
    if failure is None:
        return reply.text
    if failure.kind in NO_REPLY:
        return None
    return f"{ERROR_MARK} {failure.kind}: {failure.reason}: {reply.text}"
