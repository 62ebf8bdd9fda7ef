"""Prompts: versioned files, whose hash is part of every request's key and of every trace."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from tumorchain_jax.core.errors import InputError

AGENTS = ("extractor", "reasoner", "calibrator", "summarizer")


@dataclass(frozen=True)
class Prompt:
    """An agent's instruction.

    Attributes:
        agent: one of `AGENTS`.
        text: what the model is told before any data.
    """

    agent: str
    text: str

    @property
    def version(self) -> str:
        """Twelve hexadecimal digits that the text alone decides."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


@cache
def shipped_prompt(agent: str) -> Prompt:
    """Return the prompt in the package."""
    file = resources.files(__package__).joinpath("prompts", f"{agent}.md")
    return Prompt(agent, file.read_text(encoding="utf-8"))


def read_prompt(agent: str, folder: Path | None) -> Prompt:
    """Read `AGENT.md` of a folder; the package's own where there is none.

    Raises:
        InputError: it is empty, or no text in UTF-8.
    """
    path = None if folder is None else folder / f"{agent}.md"
    if path is None or not path.exists():
        return shipped_prompt(agent)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, "prompt", str(error), "a text in UTF-8", "write one") from error
    if not text.strip():
        raise InputError(path, "prompt", "nothing", "an instruction", "write one, or remove it")
    return Prompt(agent, text)
