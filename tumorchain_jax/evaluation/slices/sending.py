"""Send slices of a scan with a question to a model behind an endpoint, whoever asks."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.slices.policy import SlicePolicy
from tumorchain_jax.llm.breaker import EndpointFailed
from tumorchain_jax.llm.client import ask_all
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.reply import Reply
from tumorchain_jax.llm.request import Image, Message, Request, Sampling

INTRODUCTION = """\
You are shown slices of one abdominal CT as 8-bit pictures, {order}, in a window with
centre {level:g} HU and width {width:g} HU. The caption before each picture says its plane and
place. Axial and coronal pictures have the patient's right on the left side; sagittal ones have the
patient's front on the left side. Answer the question after the pictures."""
"""Begins the instruction; how to answer comes after it."""
MOST_TOKENS = 1024
DRAWS = 1
"""Of the client: a reply, and one more with a remark where it was cut off or empty."""
NO_REPLY = ("refused", "broken", "deadline")
"""Failures of an exchange; they are kept nowhere and asked again."""


def picture_request(
    prompt: str, pictures: tuple[str | Image, ...], policy: SlicePolicy, question: str
) -> Request:
    """Put a question about a scan, after its captions and pictures.

    Args:
        prompt: `INTRODUCTION`, and how to answer.
        pictures: of `SlicePolicy.parts`.
    """
    order = ", then ".join(f"{count} {plane}" for plane, count in policy.planes)
    system = prompt.format(order=order, level=policy.level, width=policy.width)
    return Request(
        (Message("system", system), Message("user", (*pictures, question))),
        sampling=Sampling(temperature=0.0, max_tokens=MOST_TOKENS),
        prompt=f"{hashlib.sha256(prompt.encode()).hexdigest()} {policy.sha256}",
    )


@dataclass(frozen=True)
class Sender:
    """An endpoint with its journal.

    Attributes:
        journal: replies that are in it are not asked for again.
        allow_remote: whether pictures may leave this machine.
        budget: price of all replies in the journal at which asking stops; None: none.
    """

    endpoint: Endpoint
    journal: Path
    allow_remote: bool = False
    budget: float | None = None

    def ask(self, requests: Iterable[Request]) -> list[Reply]:
        """Return the replies, in the order of the requests.

        Raises:
            InputError: the endpoint cannot be used, or gives no reply for long.
            Stopped: the budget is spent; the same command goes on.
        """
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {
            "allow_remote": self.allow_remote,
            "budget": self.budget,
            "draws": DRAWS,
        }
        try:
            return ask_all(self.endpoint, self.journal, requests, None, **options)
        except EndpointFailed as error:
            expected, hint = "replies", "rerun the same command to go on"
            raise InputError(self.endpoint.name, "endpoint", str(error), expected, hint) from error
