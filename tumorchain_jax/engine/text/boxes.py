"""Forms: choices with a box before or after them, of which only the ticked ones say something.

A choice that is not ticked is blanked out, so that nothing of it is read; the mark of a ticked one
goes as well. A box alone behind its key is its answer and becomes `yes`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MARK = re.compile(
    r"(?P<yes>\[[ ]?(?:x|\*|v|o|yes|ja|\+|\u2713|\u2714)[ ]?\]|\((?:x|o|\*|\+|\u2713|\u2714)\)|"
    r"[\u2611\u2612\u2713\u2714\u2705\u25a0\u25c9\u25fc]|(?<!\w)_+x_+(?!\w)|<x>)|"
    r"(?P<no>\[[ \t._-]{0,4}\]|\([ \t_-]{1,4}\)|\(\)|[\u2610\u25a1\u25cb\u25fb\u2717\u2718\u274c]|"
    r"(?<!\w)_{2,6}(?=[ \t]+\w)|<[ ]>)"
)
_SIGNS = {"(-)", "[-]", "\u2717", "\u2718", "\u274c"}
"""Marks that deny what they stand by rather than leave it open."""
_EDGE = re.compile(r"[ \t]{2,}|[|;]")
_KEY = re.compile(
    r"(?:^|[ \t]{2,}|[,;|.][ \t]*|(?<=[ \t]))(?P<key>[^,;|.:\n]{1,40}?)[ \t]*[:=][ \t]*$"
)
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class _Box:
    start: int
    end: int
    ticked: bool
    denies: bool


def fill_in(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return a text of the same length without what is not ticked, and the characters of that.

    Args:
        text: in small letters with plain signs.
    """
    if not _MARK.search(text):
        return text, []
    letters, blanked = list(text), []
    start = 0
    for line in text.splitlines(keepends=True):
        if marks := list(_MARK.finditer(line)):
            boxes = [_box(match, start) for match in marks]
            for edit_start, edit_end, new in _edits(text, start, start + len(line), boxes):
                letters[edit_start:edit_end] = new.ljust(edit_end - edit_start)
                if not new.strip():
                    blanked.append((edit_start, edit_end))
        start += len(line)
    return "".join(letters), blanked


def _box(match: re.Match[str], start: int) -> _Box:
    denies = match.group() in _SIGNS
    return _Box(start + match.start(), start + match.end(), match["yes"] is not None, denies)


def _edits(text: str, start: int, end: int, boxes: list[_Box]) -> Iterator[tuple[int, int, str]]:
    """Yield what takes the place of which characters of a line."""
    end = start + len(text[start:end].rstrip())
    lead = text[start : boxes[0].start]
    denied = False
    after = bool(_LETTER.search(lead)) and not lead.rstrip().endswith((":", "=", "|", "-"))
    for k, box in enumerate(boxes):
        following = boxes[k + 1].start if k + 1 < len(boxes) else end
        before = boxes[k - 1].end if k else start
        if _is_answer(text, before, box.start, box.end, following):
            yield box.start, box.end, "yes" if box.ticked else "no" if box.denies else ""
            if not box.ticked and not box.denies:
                yield _start_of_key(text, before, box.start), box.end, ""
        elif after:
            choice = _choice_before(text, before, box.start)
            if box.denies:
                yield box.start, min(box.end + 1, end), ":no;"
            else:
                yield (box.start, box.end, ";") if box.ticked else (choice, box.end, "")
        elif box.ticked:
            yield box.start, box.end, ";" if denied else ""
        elif box.denies:
            yield box.start, box.end, "no"
        else:
            yield box.start, _choice_end(text, box.end, following, following == end), ""
        denied = box.denies


def _is_answer(text: str, before: int, start: int, end: int, following: int) -> bool:
    """Whether a box stands alone behind its key: `necrosis: [x]  calcification: [ ]`."""
    if not _KEY.search(text[before:start]):
        return False
    rest = text[end:following].strip()
    return not _LETTER.search(rest) or bool(
        _EDGE.match(text, end, following) or rest.endswith((":", "="))
    )


def _start_of_key(text: str, before: int, start: int) -> int:
    match = _KEY.search(text[before:start])
    return before + match.start("key") if match else start


def _choice_before(text: str, before: int, start: int) -> int:
    """Return where the choice before a box begins, after its line's key."""
    lead = text[before:start]
    edges = [match.end() for match in re.finditer(r"[:=|;,][ \t]*|[ \t]{2,}", lead[:-1].rstrip())]
    return before + (edges[-1] if edges else 0)


def _choice_end(text: str, start: int, end: int, last: bool) -> int:
    """Return where the choice after a box ends: before the key of the next, or at an edge."""
    stop = end
    content = start + len(text[start:end]) - len(text[start:end].lstrip())
    if edge := re.compile(r"[|;]|[ \t]{3,}").search(text, content, end):
        stop = edge.start()
    if not last and (
        key := re.search(
            r"(?:[ \t]{2,}|[,;.|][ \t]*|[ \t])[^\s,;|.:]+(?:[ \t][^\s,;|.:]+)?[ \t]*[:=][ \t]*$",
            text[content:end],
        )
    ):
        stop = min(stop, content + key.start())
    return stop
