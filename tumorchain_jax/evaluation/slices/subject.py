"""Ask a model behind an endpoint about digital patients, by slices of their scans."""

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tqdm import tqdm

from tumorchain_jax import __version__
from tumorchain_jax.data.schema import Record
from tumorchain_jax.evaluation.chain.verdict import silence
from tumorchain_jax.evaluation.items import Item, make_item
from tumorchain_jax.evaluation.patients import Phantoms
from tumorchain_jax.evaluation.slices.policy import SlicePolicy
from tumorchain_jax.evaluation.slices.sending import (
    INTRODUCTION,
    MOST_TOKENS,
    NO_REPLY,
    Sender,
    picture_request,
)
from tumorchain_jax.evaluation.slices.visible import is_visible, not_answerable
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.reply import Reply
from tumorchain_jax.llm.request import Request
from tumorchain_jax.reasoning.prompt import with_choices
from tumorchain_jax.scan.orientation import canonical
from tumorchain_jax.scan.volume import Volume

State = Literal["answered", "refused", "unread", "failed"]
"""refused: the model or its server declined. unread: nothing that was asked for is in the answer.
failed: no reply came; the same command asks again."""
ANSWER = """ Reason briefly from
findings to what they mean; then write one last line, "Conclusion: " followed by the answer alone.
Where options are given, answer with the letter and text of one option."""
PROMPT = INTRODUCTION + ANSWER
PROMPT_SHA256 = hashlib.sha256(PROMPT.encode()).hexdigest()


@dataclass(frozen=True)
class Sent:
    """What is known of a question beside its item.

    Attributes:
        patient, subtask, question: of the item.
        visible: whether what it asks about is on a slice that was sent; None without a lesion.
        not_answerable: why slices cannot answer it; "" if they can.
        state: see `State`.
        why: of a refusal or failure.
    """

    patient: str
    subtask: str
    question: str
    visible: bool | None
    not_answerable: str
    state: State
    why: str = ""

    def values(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def identity(endpoint: Endpoint, policy: SlicePolicy, patients: Phantoms) -> dict[str, Any]:
    """Return what makes two runs the same run; no address and no key."""
    return {
        "version": __version__,
        "model": endpoint.model,
        "snapshot": endpoint.snapshot,
        "slices": str(policy),
        "slices_sha256": policy.sha256,
        "window": [policy.level, policy.width],
        "prompt_sha256": PROMPT_SHA256,
        "most_tokens": MOST_TOKENS,
        "patients": patients.source,
    }


def make_request(pictures: tuple[Any, ...], policy: SlicePolicy, record: Record) -> Request:
    """Put a question about a scan, after its captions and pictures (`SlicePolicy.parts`)."""
    question = with_choices(record.question, record.choices)
    return picture_request(PROMPT, pictures, policy, question)


def ask_endpoint(
    endpoint: Endpoint,
    policy: SlicePolicy,
    patients: Phantoms,
    journal: Path,
    allow_remote: bool = False,
    budget: float | None = None,
) -> tuple[list[Item], list[Sent]]:
    """Ask every question; replies that are in the journal are not asked for again.

    Returns:
        items in the order of the patients, and what is known of each.

    Raises:
        InputError: the endpoint cannot be used, or gives no reply for long.
        Stopped: the budget is spent; the same command goes on.
    """
    asked: list[tuple[Record, bool | None, float | None]] = []

    def requests() -> Iterator[Request]:
        for number in tqdm(range(len(patients)), "patients", disable=None):
            patient, (_, records) = patients.with_truth(number)
            pictures = policy.parts(patient.ct)
            cuts = policy.cuts(_shape(patient.ct))
            for record in records:
                visible = is_visible(patient, record, cuts)
                asked.append((record, visible, patients.tumour_mm(number)))
                yield make_request(pictures, policy, record)

    replies = Sender(endpoint, journal, allow_remote, budget).ask(requests())
    items, sent = [], []
    for (record, visible, tumour_mm), reply in zip(asked, replies, strict=True):
        item, known = _judged(record, visible, reply, policy)
        items.append(replace(item, tumour_mm=tumour_mm))
        sent.append(known)
    return items, sent


def _shape(ct: Volume) -> tuple[int, int, int]:
    return canonical(ct).shape


def _judged(
    record: Record, visible: bool | None, reply: Reply, policy: SlicePolicy
) -> tuple[Item, Sent]:
    kind = reply.failure.kind if reply.failure else ""
    failed = kind in NO_REPLY
    text = "" if failed else reply.text
    item = make_item(record, text, chain=text)
    state, why = _state(item, kind)
    if failed and reply.failure:
        why = f"{kind}: {reply.failure.reason}"
    unfit = not_answerable(record, policy)
    withheld = ""
    if state in ("failed", "refused"):
        withheld = f"{'no reply' if failed else 'refused'}: {why}"
    elif unfit:
        withheld = f"not answerable from slices: {unfit}"
    known = Sent(record.patient, record.subtask, record.question, visible, unfit, state, why)
    return replace(item, withheld=withheld), known


def _state(item: Item, kind: str) -> tuple[State, str]:
    if kind in NO_REPLY:
        return "failed", kind
    if kind == "filtered":
        return "refused", kind
    if item.parsed:
        return "answered", ""
    why = silence(item.answer)
    return ("refused", why) if why == "refusal" else ("unread", kind or why)
