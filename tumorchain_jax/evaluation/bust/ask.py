"""Asking a model about cases and about the safety set, so that no reply is paid for twice.

    RUN/run.json        model, prompt, lexicon and plan, with their hashes; a resumed run must agree
    RUN/journal.sqlite  every reply, see `llm/`
    RUN/replies.jsonl   a line for each question, in the order of the plan, once all are answered

Every item is asked at temperature 0, in the first mode of thinking where modes are chosen. The
sweep asks a draw of the cases five times at each of four temperatures, and every case once at
temperature 0 in the other mode. What is sent is the prompt, the note and the pixels: no name, no
metadata.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image as PillowImage

from tumorchain_jax import __version__
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.data.json_lines import read_lines
from tumorchain_jax.evaluation.bust.answer import form, prompt, read_reply, user_text
from tumorchain_jax.evaluation.bust.pixels import png
from tumorchain_jax.evaluation.bust.plan import plan
from tumorchain_jax.evaluation.bust.safety import read_safety
from tumorchain_jax.llm.breaker import EndpointFailed
from tumorchain_jax.llm.client import ask_all
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.llm.progress import Progress
from tumorchain_jax.llm.reply import Reply
from tumorchain_jax.llm.request import Image, Message, Request, Sampling
from tumorchain_jax.ultrasound.lesion import read_manifest
from tumorchain_jax.ultrasound.lexicon import Lexicon
from tumorchain_jax.ultrasound.picture import read_picture

RUN, JOURNAL, REPLIES = "run.json", "journal.sqlite", "replies.jsonl"
TEMPERATURES, REPEATS = (0.0, 0.3, 0.7, 1.0), 5
MAX_TOKENS = 2048


@dataclass(frozen=True)
class Item:
    """A picture that a model is asked about.

    Attributes:
        group: of the safety set; empty: a case.
        image: its file, of which the pixels alone are sent.
        note: text that goes with it.
    """

    id: str
    group: str
    image: Path
    note: str = ""


class Question(NamedTuple):
    """One call."""

    item: Item
    temperature: float
    repeat: int
    thinking: str = ""


def items_of(cases: Path, safety: Path | None) -> list[Item]:
    """The cases, then the safety set.

    Raises:
        InputError: a folder cannot be used.
    """
    found = [Item(row.id, "", cases / row.image) for row in read_manifest(cases)]
    if safety is not None:
        found += [
            Item(each.id, each.group, safety / each.image, each.note)
            for each in read_safety(safety)
        ]
    return found


def questions(
    items: Sequence[Item], sweep: int, seed: int, thinking: Sequence[str] = ()
) -> Iterator[Question]:
    """Every item at temperature 0; the sweep over cases drawn by a seed; other modes of thinking.

    Args:
        thinking: `on` and `off`, or one of them; all but the last part is in the first.
    """
    first, *others = thinking or ("",)
    for item in items:
        yield Question(item, 0.0, 0, first)
    cases = [item for item in items if not item.group]
    drawn = sorted(cases, key=lambda item: hashlib.sha256(f"{seed} {item.id}".encode()).digest())
    for item in drawn[:sweep]:
        for temperature in TEMPERATURES:
            for repeat in range(REPEATS):
                if (temperature, repeat) != (0.0, 0):  # was asked above
                    yield Question(item, temperature, repeat, first)
    for mode in others:
        for item in cases:
            yield Question(item, 0.0, 0, mode)


def request_of(question: Question, lexicon: Lexicon) -> Request:
    """What is sent: the prompt, the note and the pixels, encoded anew.

    Raises:
        InputError: the picture cannot be read.
    """
    instruction, sha256 = prompt(lexicon.version)
    item = question.item
    content = (user_text(item.note), Image(_pixels(item)))
    return Request(
        (Message("system", instruction), Message("user", content)),
        form(lexicon),
        Sampling(
            question.temperature,
            max_tokens=MAX_TOKENS,
            seed=question.repeat,
            thinking=question.thinking,
        ),
        prompt=sha256,
        attempt=question.repeat,
    )


def _pixels(item: Item) -> bytes:
    if not item.group:
        return png(read_picture(item.image).grey)
    # The safety set also has coloured pictures, which a case may not be.
    with PillowImage.open(item.image, formats=("PNG",)) as image:
        return png(np.asarray(image.convert("RGB"), np.uint8))


def ask(
    cases: Path, safety: Path | None, folder: Path, endpoint: Endpoint, lexicon: Lexicon, *,
    sweep: int = 0, thinking: Sequence[str] = (), seed: int = 0,
    budget: float | None = None, allow_remote: bool = False,
    tell: Callable[[Progress], None] | None = None,
) -> dict[str, int]:  # fmt: skip
    """Ask every question that the journal has not answered, and write `replies.jsonl`.

    Args:
        sweep: cases that are asked at all temperatures.
        thinking: modes that are compared, the first for everything else.
        seed: of the draw of these cases.
        tell: called with the progress after each reply.

    Returns:
        how many replies are in each state.

    Raises:
        InputError: an input cannot be used, the folder is of another run, the endpoint is on
            another machine without permission, or names no switch for thinking.
        EndpointFailed: the endpoint gives no reply; the same command goes on later.
        Stopped: the budget is spent.
    """
    endpoint.check_address(allow_remote)  # before a folder is made
    for mode in thinking:
        endpoint.switch(mode)
    items = items_of(cases, safety)
    how = {"lexicon": lexicon.sha256, "sweep": sweep, "thinking": list(thinking), "seed": seed}
    _begin(folder, endpoint, items, how | {"prompt": prompt(lexicon.version)[1]})
    asked = list(questions(items, sweep, seed, thinking))
    requests = (request_of(question, lexicon) for question in asked)
    replies = ask_all(
        endpoint, folder / JOURNAL, requests, tell,
        draws=1, budget=budget, allow_remote=allow_remote, total=len(asked),
    )  # fmt: skip
    lines = [
        _line(question, reply, lexicon) for question, reply in zip(asked, replies, strict=True)
    ]
    write_file(folder / REPLIES, "".join(json.dumps(each) + "\n" for each in lines).encode())
    counts: dict[str, int] = {}
    for line in lines:
        counts[line["state"]] = counts.get(line["state"], 0) + 1
    if counts.get("none") == len(lines):
        raise EndpointFailed("no question got a reply")
    return counts


def _begin(folder: Path, endpoint: Endpoint, items: Sequence[Item], how: Mapping[str, Any]) -> None:
    """Write `run.json`, or see that it is of this run."""
    content = json.dumps([[item.id, item.group, item.note] for item in items])
    values = {
        "model": endpoint.model,
        "snapshot": endpoint.snapshot,
        "endpoint": endpoint.name,
        **how,
        "plan": plan().sha256,
        "items": hashlib.sha256(content.encode()).hexdigest(),
        "max_tokens": MAX_TOKENS,
        "version": __version__,
    }
    path = folder / RUN
    if path.is_file():
        earlier = read_json(path)
        for name, value in values.items():
            if earlier.get(name) != value:
                found = f"{str(earlier.get(name))[:40]} in the run that is there"
                raise InputError(path, name, found, str(value)[:40], "name another folder by -o")
        return
    folder.mkdir(parents=True, exist_ok=True)
    begun = {"begun": datetime.now(UTC).isoformat(timespec="seconds")}
    write_file(path, (json.dumps(values | begun, indent=1) + "\n").encode())


def _line(question: Question, reply: Reply, lexicon: Lexicon) -> dict[str, Any]:
    read = read_reply(reply, lexicon)
    return {
        "item": question.item.id,
        "group": question.item.group,
        "temperature": question.temperature,
        "repeat": question.repeat,
        "thinking": question.thinking,
        "state": read.state,
        "why": read.why,
        "concern": read.concern,
        "contradiction": read.contradiction,
        "reading": dict(read.reading),
        "text": reply.text,
        "model": reply.model,
        "tokens": [reply.usage.prompt_tokens, reply.usage.completion_tokens],
        "calls": reply.usage.calls,
        "keys": list(reply.keys),
    }


def read_replies(folder: Path) -> list[Mapping[str, Any]]:
    """Read `replies.jsonl`.

    Raises:
        InputError: the run is not complete.
    """
    if not (folder / REPLIES).is_file():
        hint = "run the same `tumorchain bust ask` again to go on"
        raise InputError(folder / REPLIES, "replies", "none", "a complete run", hint)
    return [values for _, _, values in read_lines(folder / REPLIES)]
