"""Asks all questions of a stub, in a process that a test kills."""

import sys
from pathlib import Path

from llm_questions import endpoint, questions

from tumorchain_jax.llm.client import ask_all

if __name__ == "__main__":
    url, journal, count = sys.argv[1:]
    target = endpoint(url, concurrency=8, timeout_s=30.0)
    replies = ask_all(target, Path(journal), questions(int(count)), lambda now: print(now.done))
    print("all", sum(reply.ok for reply in replies))
