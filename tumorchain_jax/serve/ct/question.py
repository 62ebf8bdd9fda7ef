"""Requests of `/v1/chat/completions` about a CT: one scan, one question."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tumorchain_jax.serve.fields import Fields, refuse

MOST_CHARACTERS = 4000
"""Of a question; the model's own limit in tokens is lower."""
NO_BEARING = ("max_tokens", "max_completion_tokens", "top_p", "stop")
"""Fields that are accepted and change nothing: a chain ends by its rounds."""
MASK = "mask"


@dataclass(frozen=True)
class ScanName:
    """How a request names a scan: exactly one of these is filled.

    Attributes:
        content: base64; `filename` belongs to it.
        path: under the server's root.
    """

    file_id: str = ""
    path: str = ""
    content: str = ""
    filename: str = "scan"


@dataclass(frozen=True)
class CTRequest:
    """A question about a scan.

    Attributes:
        mask: the scan's label map; None: the server segments the scan.
        rounds: limit on rounds of reasoning; None: the server's.
    """

    model: str
    question: str
    scan: ScanName
    mask: ScanName | None
    rounds: int | None
    seed: int
    stream: bool
    stream_usage: bool


def read_question(body: bytes, most_rounds: int) -> CTRequest:
    """Read a request.

    Raises:
        Refusal: (400) it is not as it should be, or asks for what is not served.
    """
    fields = Fields(body)
    question, scan = _message(fields.take("messages"))
    metadata = fields.take("metadata", {})
    if not isinstance(metadata, dict):
        refuse("metadata", "is no object")
    stream, stream_usage = fields.stream()
    if fields.number("temperature", 0.0, 0.0, 2.0) not in (0.0, 1.0):
        refuse("temperature", "the most likely words are taken: leave it out, or 0")
    made = CTRequest(
        model=fields.text("model"),
        question=question,
        scan=scan,
        mask=_mask(metadata),
        rounds=fields.integer("max_rounds", 1, most_rounds),
        seed=fields.integer("seed", 0, (1 << 63) - 1) or 0,
        stream=stream,
        stream_usage=stream_usage,
    )
    fields.refuse_others(NO_BEARING)
    return made


def _message(turns: Any) -> tuple[str, ScanName]:
    if not isinstance(turns, list) or len(turns) != 1 or not isinstance(turns[0], dict):
        refuse("messages", "is no list of one message: each question stands alone")
    turn = turns[0]
    if turn.get("role") != "user":
        refuse("messages[0]", "its role is not user")
    content = turn.get("content")
    if not isinstance(content, list):
        refuse("messages[0].content", "is no list of a text part and a file part")
    texts, files = [], []
    for number, part in enumerate(content):
        where = f"messages[0].content[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind == "file" and isinstance(part.get("file"), dict):
            files.append(_file(where, part["file"]))
        else:
            refuse(where, "is neither a text part nor a file part")
    question = "\n".join(texts).strip()
    if len(files) != 1:
        refuse("messages[0].content", f"has {len(files)} file parts: one CT is needed")
    if not question:
        refuse("messages[0].content", "has no question")
    if len(question) > MOST_CHARACTERS:
        found = f"has {len(question)} characters of text, at most {MOST_CHARACTERS} are read"
        refuse("messages[0].content", found)
    return question, files[0]


def _file(where: str, values: Mapping[str, Any]) -> ScanName:
    given = {name: value for name, value in values.items() if value is not None}
    if not all(isinstance(value, str) and value for value in given.values()):
        refuse(f"{where}.file", "has a field that is no text")
    sources = given.keys() - {"filename"}
    if len(sources) != 1 or sources - {"file_id", "file_data", "path"}:
        refuse(f"{where}.file", "needs one of file_id, file_data, path")
    return ScanName(
        given.get("file_id", ""),
        given.get("path", ""),
        given.get("file_data", ""),
        given.get("filename", "scan"),
    )


def _mask(metadata: Mapping[str, Any]) -> ScanName | None:
    """A label map: `metadata.mask` is a file id, or a path under the root."""
    named = metadata.get(MASK)
    if named is None:
        return None
    if not isinstance(named, str) or not named:
        refuse("metadata.mask", "is neither a file id nor a path under the root")
    return ScanName(file_id=named) if named.startswith("file-") else ScanName(path=named)
