"""The page on which a reader or the arbiter reads cases; it works from disk, without a network.

No truth, no file name and nothing of the source enters it: pixels and meaningless names alone.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.evaluation.bust.pixels import data_uri
from tumorchain_jax.evaluation.bust.study import FILE, Study, check_names, study_json
from tumorchain_jax.report.shell import form_script, form_style, page
from tumorchain_jax.ultrasound.lesion import read_manifest
from tumorchain_jax.ultrasound.lexicon import Lexicon


def page_name(reader: str) -> str:
    """Name of a reader's page."""
    return f"reading-{reader}.html"


def write_pages(
    cases: Path, output: Path, readers: Sequence[str], arbiter: str, seed: int, lexicon: Lexicon
) -> Study:
    """Write a new folder with a study and a page for each reader.

    Raises:
        InputError: the cases or a name cannot be used, or the output is there.
    """
    check_names(readers, arbiter)
    rows = {row.id: row for row in read_manifest(cases)}
    study = Study(tuple(sorted(rows)), tuple(readers), arbiter, seed, lexicon.sha256)
    pictures = {id: data_uri(cases / row.image) for id, row in rows.items()}
    with atomic_directory(output) as part:
        (part / FILE).write_bytes(study_json(study))
        for reader in readers:
            items = [{"id": id, "picture": pictures[id]} for id in study.order(reader)]
            html = render(study, reader, lexicon, items)
            (part / page_name(reader)).write_bytes(html.encode())
    return study


def arbiter_page(
    cases: Path, study: Study, lexicon: Lexicon, disputes: Mapping[str, Mapping[str, Any]]
) -> str:
    """The arbiter's page: cases in dispute, what was agreed, and what each reader said.

    Args:
        disputes: case -> `agreed`, `disputed` and `before`, as `adjudicate.py` makes them.

    Raises:
        InputError: the cases are not those of the study.
    """
    rows = {row.id: row for row in read_manifest(cases)}
    if missing := sorted(set(disputes) - set(rows)):
        raise InputError(cases, "cases", f"no {missing[0]}", "the study's cases", "name its folder")
    items = [
        {"id": id, "picture": data_uri(cases / rows[id].image), **disputes[id]}
        for id in study.order(study.arbiter)
        if id in disputes
    ]
    return render(study, study.arbiter, lexicon, items)


def render(study: Study, reader: str, lexicon: Lexicon, items: Sequence[Mapping[str, Any]]) -> str:
    """Render a page.

    Args:
        items: cases in the order in which they are shown.
    """
    fields = [
        {
            "name": each.name,
            "title": each.title,
            "values": each.values,
            "of": [each.of] if each.of else None,
        }
        for each in lexicon.fields
    ]
    data = {"study": study.digest, "reader": reader, "fields": fields, "cases": items}
    # Within a script element, a `<` could end it; JSON knows another spelling.
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    words = f"{len(items):,} pictures, read by {reader}; study {study.digest}; {lexicon.name}"
    content = f"""<header>
<p class="source">{escape(words)}</p>
</header>
{_read("reading.html")}
<script type="application/json" id="data">{text}</script>"""
    style = form_style() + _read("reading.css")
    return page(f"Reading by {reader}", content, form_script() + _read("reading.js"), style)


def _read(name: str) -> str:
    return files("tumorchain_jax.evaluation.bust").joinpath(name).read_text("utf-8")
