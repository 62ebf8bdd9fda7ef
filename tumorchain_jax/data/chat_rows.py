"""Chats about pictures, a JSON line each, as ms-swift and LLaMA-Factory write them.

    {"images": ["a.png"], "messages": [{"role": "user", "content": "<image>What is it?"},
                                       {"role": "assistant", "content": "A cyst."}]}
    {"images": ["a.png"], "conversations": [{"from": "human", "value": "<image>What is it?"},
                                            {"from": "gpt", "value": "A cyst."}]}

Each `<image>` is the place of the next picture; without any, all pictures stand before the first
user's text. Paths start from the folder of the rows, and do not leave it. Answers are learnt but
for those with `"loss": false`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, get_args

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.data.json_lines import LineFields, read_lines

IMAGE = "<image>"
"""The place of a picture in a text."""
Role = Literal["system", "user", "assistant"]
ROLES = get_args(Role)
SHAREGPT: dict[str, Role] = {"system": "system", "human": "user", "gpt": "assistant"}
HINT = "data/README.md shows a row of each kind"


class Turn(NamedTuple):
    """What one side says.

    Attributes:
        text: with `IMAGE` at each place of a picture.
        learnt: it is an answer that counts in the loss.
    """

    role: Role
    text: str
    learnt: bool = False


@dataclass(frozen=True)
class ChatRow:
    """A chat about pictures.

    Attributes:
        name: where it was read, for people.
        pictures: files, in the order of their places.
    """

    name: str
    pictures: tuple[Path, ...]
    turns: tuple[Turn, ...]


def read_chat_rows(path: Path, folder: Path | None = None) -> list[ChatRow]:
    """Read a file of rows.

    Args:
        folder: that paths of pictures start from; by default the file's own.

    Raises:
        InputError: it names file, line and field; no picture file is opened.
    """
    folder = folder or path.parent
    rows = [
        _read_row(LineFields(name, values, hint=HINT), folder)
        for name, _, values in read_lines(path)
    ]
    if not rows:
        raise InputError(path, "rows", "none", "one or more", HINT)
    return rows


def write_chat_rows(path: Path, rows: Sequence[ChatRow], folder: Path | None = None) -> None:
    """Write a file of rows in the first of the two forms; it appears whole.

    Args:
        folder: that pictures lie in; by default the file's own.

    Raises:
        ValueError: a picture lies elsewhere.
    """
    folder = (folder or path.parent).absolute()
    lines = [json.dumps(_to_dict(row, folder), ensure_ascii=False) + "\n" for row in rows]
    write_file(path, "".join(lines).encode())


def _to_dict(row: ChatRow, folder: Path) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for turn in row.turns:
        messages.append({"role": turn.role, "content": turn.text})
        if turn.role == "assistant" and not turn.learnt:
            messages[-1]["loss"] = False
    images = [picture.absolute().relative_to(folder).as_posix() for picture in row.pictures]
    return {"images": images, "messages": messages}


def _read_row(line: LineFields, folder: Path) -> ChatRow:
    is_sharegpt = "conversations" in line.values
    if is_sharegpt and "messages" in line.values:
        line.refuse("conversations", "either messages or conversations")
    if is_sharegpt:
        turns = [_sharegpt(each) for each in line.objects("conversations", '{"from", "value"}')]
    else:
        turns = [_message(each) for each in line.objects("messages", '{"role", "content"}')]
    if is_sharegpt and line.values.get("system"):
        turns = [Turn("system", line.text("system")), *turns]
    line.check_known(("id", "images", "messages", "conversations", *(["system"] * is_sharegpt)))
    pictures = _pictures(line, folder)
    turns = _placed(line, turns, len(pictures))
    _check_order(line, turns, "conversations" if is_sharegpt else "messages")
    return ChatRow(str(line.source), pictures, tuple(turns))


def _message(line: LineFields) -> Turn:
    line.check_known(("role", "content", "loss"))
    role: Any = line.one_of("role", ROLES)
    learnt = role == "assistant" and ("loss" not in line.values or line.boolean("loss"))
    return Turn(role, line.text("content", filled=role != "system"), learnt)


def _sharegpt(line: LineFields) -> Turn:
    line.check_known(("from", "value"))
    role = SHAREGPT[line.one_of("from", SHAREGPT)]
    return Turn(role, line.text("value", filled=role != "system"), role == "assistant")


def _pictures(line: LineFields, folder: Path) -> tuple[Path, ...]:
    names = line.values.get("images", [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        line.refuse("images", "a list of paths")
    for name in names:
        parts = PurePosixPath(name).parts
        if PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name or "\\" in name:
            expected = f"paths within {folder}, without .. and not from the root"
            line.refuse("images", expected, "copy the pictures into the folder")
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            line.refuse("images", f"pictures in {folder}, not links out of it", "copy them there")
    return tuple(folder / name for name in names)


def _placed(line: LineFields, turns: list[Turn], count: int) -> list[Turn]:
    """Turns with a place for each picture."""
    places = sum(turn.text.count(IMAGE) for turn in turns)
    if count and not places:
        first = next((n for n, turn in enumerate(turns) if turn.role == "user"), 0)
        turns[first] = turns[first]._replace(text=IMAGE * count + turns[first].text)
    elif places != count:
        expected = f"as many as the {places} places {IMAGE} of its texts"
        raise InputError(line.source, "images", str(count), expected, HINT)
    if any(IMAGE in turn.text for turn in turns if turn.role != "user"):
        found = f"{IMAGE} in a turn of system or assistant"
        raise InputError(line.source, "images", found, "pictures in a user's turn", HINT)
    return turns


def _check_order(line: LineFields, turns: Sequence[Turn], field: str) -> None:
    """Refuse turns that no chat has: user and assistant in turns, and an answer to learn."""
    roles = [turn.role for turn in turns if turn.role != "system"]
    wanted = ["user", "assistant"] * (len(roles) // 2)
    if roles != wanted or not wanted or any(turn.role == "system" for turn in turns[1:]):
        found = ", ".join(turn.role for turn in turns)[:80]
        expected = "user and assistant in turns, with system at most first"
        raise InputError(line.source, field, found, expected, HINT)
    if not any(turn.learnt for turn in turns):
        raise InputError(line.source, field, "no answer to learn", "one without loss: false", HINT)
