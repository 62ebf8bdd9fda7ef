"""Find the short answer in a model's full text."""

import re
import string

_TAG = re.compile(r"</?(?:think|answer)>", re.IGNORECASE)
_END_OF_THINKING = re.compile(r"</think>", re.IGNORECASE)
# A full stop after a lone letter belongs to a choice ("B. Liver"), not to a sentence.
_SENTENCE_END = re.compile(r"(?<!\b\w)\.(?=\s)|[!?](?=\s)|\n")
# What begins an answer, and what ends it.
_MARKS = (
    (re.compile(r"<answer>", re.IGNORECASE), re.compile(r"</answer>", re.IGNORECASE)),
    (re.compile(r"\bconclusion\**\s*:", re.IGNORECASE), re.compile(r"\n\s*\n")),
    (re.compile(r"\bthe answer is\b:?", re.IGNORECASE), _SENTENCE_END),
)


def parse_conclusion(text: str) -> str:
    """Return the answer that follows the reasoning; "" if there is none, never an error.

    It is looked for after the last `</think>`, or in the whole text where nothing stands there
    (no such tag, or a text cut before its answer). The first of these that is not empty counts,
    in upper or lower case, the last of its kind in the text:

    1. `<Answer> ... </Answer>`, closed or not;
    2. `Conclusion: ...`, up to the end of its paragraph;
    3. `(Thus | Therefore), the answer is ...`, up to the end of its sentence;
    4. all that follows `</think>`;
    5. the last sentence.

    Tags, outer white space and `*`, and a full stop or comma at the end are dropped.
    """
    *thoughts, answer = _END_OF_THINKING.split(text)
    thought = bool(thoughts and _tidy(answer))
    searched = answer if thought else text
    marked = [
        end.split(part)[0] for start, end in _MARKS for part in reversed(start.split(searched)[1:])
    ]
    rest = [answer] if thought else reversed(_SENTENCE_END.split(_TAG.sub("\n", text)))
    return next(filter(None, map(_tidy, [*marked, *rest])), "")


def _tidy(answer: str) -> str:
    outer = "*" + string.whitespace
    return _TAG.sub(" ", answer).strip(outer).rstrip(".,").rstrip(outer)
