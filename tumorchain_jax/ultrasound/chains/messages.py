"""Rows of messages: what a model is asked about a picture, and what it is taught to answer.

direct    the answer alone
chain     the chain, then the answer
look      the interleaved second look: what is seen, then the region of the lesion as a second
          picture of a finer scale, then its features, category and the answer

What is asked depends on the picture alone: pictures have names that tell nothing, and the words are
the arm's own. `check_asked` refuses a row that has anything else in it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.chains.fields import LEVELS, Level, load_wording
from tumorchain_jax.ultrasound.chains.record import Levels
from tumorchain_jax.ultrasound.chains.text import answer, sentences

Arm = Literal["direct", "chain", "look"]
ARMS: tuple[Arm, ...] = get_args(Arm)
PICTURE = "<image>"
QUESTION = f"{PICTURE}Is the lesion in this breast ultrasound picture benign or malignant?"
ANSWER = "End with <answer> 0 </answer> for benign or <answer> 1 </answer> for malignant."
THINK = "Say before, within <reasoning> and </reasoning>, what is seen and what speaks for it."
LOOK_AGAIN = f"{PICTURE}Look again at the region of the lesion, and go on."
FILE = re.compile(r"(pictures|regions)/[0-9a-f]{16}\.png")
KEYS = ("id", "messages", "images")
Row = dict[str, Any]


def neutral_name(identity: str) -> str:
    """A name that tells nothing of a picture to who does not know its id."""
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def asked(arm: Arm, name: str) -> Row:
    """What a model is given: the turns of the user, and the files of the pictures.

    Args:
        name: of the picture, neutral.
    """
    words = {"direct": f"{QUESTION} {ANSWER}"}.get(arm, f"{QUESTION} {THINK} {ANSWER}")
    turns = [words, LOOK_AGAIN] if arm == "look" else [words]
    images = [f"{folder}/{name}.png" for folder, _ in zip(FOLDERS, turns, strict=False)]
    messages = [{"role": "user", "content": each} for each in turns]
    return {"id": name, "messages": messages, "images": images}


FOLDERS = ("pictures", "regions")


def taught(arm: Arm, name: str, levels: Levels, with_pathology: bool) -> Row:
    """The same with the turns that a model is to write.

    Args:
        with_pathology: the chain says the pathology before the answer does, as the paper's; its
            probabilities at the answer then tell nothing more than its words.
    """
    row = asked(arm, name)
    rest: Sequence[Level] = LEVELS[1:] if with_pathology else LEVELS[1:-1]
    begun = f"<reasoning> {load_wording().opening} {sentences(levels, LEVELS[:1])}".strip()
    ended = f"{sentences(levels, rest)} </reasoning>{answer(levels)}".strip()
    said = {
        "direct": [answer(levels).strip()],
        "chain": [f"{begun} {ended}"],
        "look": [begun, ended],
    }[arm]
    row["messages"] = [
        turn
        for question, reply in zip(row["messages"], said, strict=True)
        for turn in (question, {"role": "assistant", "content": reply})
    ]
    return row


def check_asked(arm: Arm, row: Mapping[str, Any], source: object) -> None:
    """Refuse a row that gives a model more than the picture and the arm's own words.

    Raises:
        InputError: it names what is told.
    """
    hint = "ask with the files `asked-ARM.jsonl` that `tumorchain bus chains` wrote"
    if strange := sorted(set(row) - set(KEYS)):
        raise InputError(source, strange[0], "a field that tells", f"only {', '.join(KEYS)}", hint)
    expected = asked(arm, str(row.get("id", "")))
    for name in ("images", "messages"):
        given, own = row.get(name), expected[name]
        if given != own:
            extra = [each for each in given if each not in own] if isinstance(given, list) else []
            differing = extra[0] if extra else given
            found = f"{differing!r}"[:100]
            raise InputError(source, name, found, f"what {arm} asks of every picture", hint)
    for path in expected["images"]:
        if not FILE.fullmatch(path):
            raise InputError(source, "images", path[:80], "a neutral name", hint)
