"""Markup in a report: formatting is taken off, and what a reader would not see says nothing.

Hidden are comments, attributes, and the content of elements that are neither formatting nor the
report's own structure.
"""

import re
from collections.abc import Iterator

_NAME = r"[a-z][a-z0-9_:-]{0,30}"
_TAG = re.compile(rf"</?(?P<name>{_NAME})(?P<attributes>(?:[\s/][^<>]{{0,600}})?)>")
_INLINE = frozenset(
    [
        "b",
        "i",
        "u",
        "s",
        "em",
        "strong",
        "span",
        "a",
        "font",
        "sub",
        "sup",
        "small",
        "big",
        "tt",
        "code",
        "mark",
        "label",
        "abbr",
        "ins",
        "cite",
        "q",
        "kbd",
        "var",
    ]
)
_BLOCK = frozenset(
    [
        "p",
        "div",
        "br",
        "hr",
        "tr",
        "td",
        "th",
        "li",
        "ul",
        "ol",
        "dl",
        "dd",
        "dt",
        "table",
        "tbody",
        "thead",
        "tfoot",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "section",
        "article",
        "center",
        "pre",
        "blockquote",
        "body",
        "html",
        "main",
        "header",
        "footer",
        "caption",
        "text",
        "paragraph",
        "content",
        "report",
        "document",
        "item",
        "list",
        "radiology",
        "doc",
        "root",
        "xml",
        "note_text",
    ]
)
_SECTIONS = frozenset(
    [
        "findings",
        "impression",
        "conclusion",
        "history",
        "technique",
        "comparison",
        "pathology",
        "indication",
        "recommendation",
        "recommendations",
        "observations",
    ]
)
_HIDDEN = re.compile(
    r"\bhidden\b|display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|"
    r"opacity\s*:\s*0(?![.\d])|"
    r"color\s*:\s*(?:white|#fff\w*|transparent)|aria-hidden"
)
_VOID = frozenset({"br", "hr", "img", "input", "meta", "link"})
_COMMENT = re.compile(
    r"<!--.{0,4000}?(?:-->|\Z)|&lt;!--.{0,4000}?(?:--&gt;|\Z)|<!\[cdata\[.{0,4000}?\]\]>|"
    r"<[?!%].{0,600}?>|/\*.{0,2000}?\*/|\{\{.{0,1000}?\}\}|\{%.{0,600}?%\}|\{#.{0,600}?#\}|"
    r"<#.{0,600}?#>|"
    r"!\[[^\]\n]{0,400}\]\([^)\n]{0,400}\)|(?<=\])\([a-z]+://[^)\n]{0,400}\)|"
    r"\[(?:comment|//)\]:[ ]?#[^\n]{0,400}|%%.{0,400}?(?:%%|\n)|"
    r"\\(?:hidden|comment|phantom|iffalse|textcolor\{white\})\b\{?[^}\n]{0,600}\}?|"
    r"\[/?(?:b|i|u|size|color|url|quote|center)(?:=[^\]\n]{0,60})?\]",
    re.DOTALL,
)


def take_off(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text of the same length without markup, and the characters that were hidden.

    Args:
        text: in small letters.
    """
    hidden = [match.span() for match in _COMMENT.finditer(text)]
    letters = list(text)
    for start, end in hidden:
        _blank(letters, start, end)
    if "<" in text:
        text = "".join(letters)
        for start, end, new in _edits(text):
            if new is None:
                hidden.append((start, end))
                _blank(letters, start, end)
            else:
                letters[start:end] = new.ljust(end - start)
    return "".join(letters), hidden


def _blank(letters: list[str], start: int, end: int) -> None:
    letters[start:end] = [c if c == "\n" else " " for c in letters[start:end]]


def _edits(text: str) -> Iterator[tuple[int, int, str | None]]:
    """Yield what takes the place of which characters; None for what is hidden."""
    done = 0
    for match in _TAG.finditer(text):
        name, start = match["name"], match.start()
        if start < done:
            continue
        opens = text[start + 1] != "/"
        known = name in _INLINE or name in _BLOCK or name in _SECTIONS
        seen = known and not _HIDDEN.search(match["attributes"])
        if not seen and opens and name not in _VOID and not match["attributes"].endswith("/"):
            close = text.find(f"</{name}", match.end(), match.end() + 2000)
            done = text.find(">", close) + 1 if close >= 0 else match.end()
            yield start, done, None
        elif name in _SECTIONS:
            yield start, match.end(), f"\n{name}:" if opens else "\n"
        else:
            if not known or re.search(r"[\"'=]", match["attributes"]):
                yield start, match.end(), None
            if known:
                yield start, match.end(), "\n" if name in _BLOCK else ""
