"""The page on which a reviewer judges a sample; it works from disk, without a network."""

import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.data.schema import TASK_OF
from tumorchain_jax.engine.review.sample import Sample, draw, write_sample
from tumorchain_jax.engine.run.reading import Kept, StoredCase, read_stored
from tumorchain_jax.engine.run.verify import cited
from tumorchain_jax.report.shell import form_script, form_style, page

Item = dict[str, Any]
_ROOM = "tumorchain_jax.engine.review"


def page_name(reviewer: str) -> str:
    """Name of a reviewer's page."""
    return f"review-{reviewer}.html"


def check_reviewers(reviewers: Sequence[str]) -> None:
    """Refuse names that no file can have, or one name for two reviewers.

    Raises:
        InputError: they are not usable.
    """
    for name in reviewers:
        if not (name.isalnum() and name.isascii() and len(name) <= 40):
            expected = "letters and digits"
            raise InputError("command line", "--reviewers", repr(name), expected, "change it")
    if len({name.lower() for name in reviewers}) < len(reviewers):
        found, expected = " ".join(reviewers), "different names"
        raise InputError("command line", "--reviewers", found, expected, "change one")


def write_review(
    run: Path, output: Path, reviewers: Sequence[str], size: int, seed: int
) -> dict[str, int]:
    """Write a new folder with a sample and a page for each reviewer, who sees no other's verdicts.

    Returns:
        Subtask -> records in the sample.

    Raises:
        InputError: the run is not complete, the output exists, or a name is not usable.
    """
    check_reviewers(reviewers)
    sample = draw(run, size, seed)
    documents, items = _items(run, sample)
    with atomic_directory(output) as part:
        write_sample(part, sample)
        for reviewer in reviewers:
            # Each in an order of their own, so that tiredness does not fall on the same records.
            order = sorted(items, key=lambda item: _rank(reviewer, item["id"]))
            html = render(sample, reviewer, documents, order)
            (part / page_name(reviewer)).write_bytes(html.encode())
    counts: dict[str, int] = {}
    for subtask in sample.subtasks.values():
        counts[subtask] = counts.get(subtask, 0) + 1
    return counts


def render(sample: Sample, reviewer: str, documents: Sequence[Item], items: Sequence[Item]) -> str:
    """Render a reviewer's page.

    Args:
        documents: reports, as `items` number them.
        items: records, in the order in which the reviewer sees them.
    """
    data = {
        "sample": sample.digest, "reviewer": reviewer, "documents": documents, "items": items
    }  # fmt: skip
    # Within a script element, a `<` could end it; JSON knows another spelling.
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    content = f"""<header>
<p class="source">Review of {len(items):,} records by {escape(reviewer)}, sample {sample.digest}</p>
</header>
{_read("review.html")}
<script type="application/json" id="data">{text}</script>"""
    # A page from disk may not connect to anything; `--serve` hands out the same page.
    return page(
        f"Review by {reviewer}",
        content,
        form_script() + _read("review.js"),
        form_style() + _read("review.css"),
        "connect-src 'self'",
    )


def _read(name: str) -> str:
    return files(_ROOM).joinpath(name).read_text("utf-8")


def _rank(reviewer: str, id: str) -> bytes:
    return hashlib.sha256(f"{reviewer} {id}".encode()).digest()


def _items(run: Path, sample: Sample) -> tuple[list[Item], list[Item]]:
    documents: list[Item] = []
    items: list[Item] = []
    for case in read_stored(run):
        chosen = [kept for kept in case.records if kept.trace.record in sample.subtasks]
        if chosen:
            numbers = {}
            for sha256, row in case.documents.items():
                numbers[sha256] = len(documents)
                documents.append({name: row[name] for name in ("kind", "language", "text")})
            items += (_item(case, kept, numbers) for kept in chosen)
    return documents, items


def _item(case: StoredCase, kept: Kept, numbers: dict[str, int]) -> Item:
    record, trace = kept.record, kept.trace
    facts, _ = cited(trace)
    marks = []
    for id in sorted(facts & case.facts.keys()):
        source = case.facts[id].source
        if source.document in numbers:
            text = case.documents[source.document]["text"]
            start, end = (_utf16(text[:end]) for end in (source.start, source.end))
            marks.append([numbers[source.document], start, end])
    return {
        "id": trace.record,
        "scan": kept.scan,
        "task": TASK_OF[record.subtask],
        "subtask": record.subtask,
        "question": record.question,
        "choices": record.choices,
        "rounds": [
            {
                "text": each.text,
                "given": each.given,
                "look_at": ", ".join(map(display_name, each.look_at)),
            }
            for each in record.rounds
        ],
        "answer": record.answer,
        "documents": sorted(numbers.values()),
        "marks": sorted(marks),
    }


def _utf16(text: str) -> int:
    """Length of a text as JavaScript counts it."""
    return len(text.encode("utf-16-le")) // 2
