"""Options that a text names in words: spelling, hyphens, synonyms and denials."""

import re
from collections.abc import Mapping

# Spelled otherwise -> as it is compared; on options and texts alike.
_SYNONYMS: tuple[tuple[str, str], ...] = (
    (r"\btumou?rs?\b|\bneoplasms?\b", "tumor"),
    (r"\b(hypo|iso|hyper)[- ]?dens(?:e|ity)\b", r"\1attenuating"),
    (r"\b(?:pancreatic )?ductal adenocarcinoma\b", "pdac"),
    (r"\b(?:pancreatic )?neuroendocrine tumor\b", "pnet"),
    (r"\bg ?([0-4])\b", r"grade \1"),
    (r"\bt ([0-4])\b", r"t\1"),
    (r"\b[cpy]?(t[0-4])[a-d]?(?=n[0-3x])", r"\1 "),
    (r"\b(?:[cpy]{1,2}(t[0-4])|(t[0-4])[a-d])\b", r"\1\2"),
    (r"\b(?:roughly|approximately|nearly|almost) equal\b", "about equal"),
    (r"\b(?:non-?|not )resectable\b|\binoperable\b", "unresectable"),
    (r"\b(kidney|liver|spleen|stomach|cyst)s\b", r"\1"),
    (r"\bcolorectum\b|\blarge bowel\b", "colon"),
    (r"\boesophagus\b", "esophagus"),
)
_ROMAN = {r: str(n) for n, r in enumerate(["i", "ii", "iii", "iv", "v", "vi", "vii", "viii"], 1)}
_BEFORE = re.compile(
    r"(?:\b(?:not|no|never|without|neither|nor|than|unlike|excluded?|excluding)|\binstead of|"
    r"\brul(?:e|ed|ing) out|n't)\s+(?:(?:a|an|the|be|likely|really|any|in|to)\s+)*$"
)
_AFTER = re.compile(
    r"\W*(?:\w+\W+){0,2}(?:is|are|was|were|seems?|looks?)\s+"
    r"(?:very |highly |quite )?(?:unlikely|excluded|ruled out|not\b|wrong|incorrect|absent|"
    r"(?:the )?(?:smaller|smallest|less|lower|fewer))"
)


def named_options(options: Mapping[str, str], text: str) -> set[str]:
    """Return the letters of the options that a text names and does not deny.

    The longest option wins where one is part of another. A parenthesis in an option may be left
    out, as may be hyphens; a text that is the first or last words of one option names it.

    Args:
        options: letter -> text.
    """
    spoken = {letter: spelling(option) for letter, option in options.items()}
    said = spelling(text)
    short = said.strip(" .,:;!?*_`\"'()[]{}$#>-")
    exact = {letter for letter, option in spoken.items() if short in (option, _bare(option))}
    if exact:
        return exact
    if part := _by_part(spoken, short):
        return part
    patterns = {
        f"o{number}": (letter, _pattern(spoken[letter]))
        for number, letter in enumerate(sorted(spoken, key=lambda each: -len(spoken[each])))
        if spoken[letter]
    }
    if not patterns:
        return set()
    either = "|".join(f"(?P<{name}>{pattern})" for name, (_, pattern) in patterns.items())
    return {
        patterns[match.lastgroup or ""][0]
        for match in re.finditer(rf"(?<!\w)(?<!\d\.)(?:{either})(?!\w|\.\d)", said)
        if not _denied(said, match)
    }


def _denied(text: str, match: re.Match[str]) -> bool:
    if match[0] in ("yes", "no"):  # "no, there is not"
        return bool(_BEFORE.search(text[: match.start()]))
    return bool(_BEFORE.search(text[: match.start()]) or _AFTER.match(text[match.end() :]))


def spelling(text: str) -> str:
    """Return a text in lower case, with one spelling for each synonym."""
    said = re.sub(r"\s+", " ", text).strip().lower()
    for pattern, plain in _SYNONYMS:
        said = re.sub(pattern, plain, said)
    return re.sub(
        r"\bsegment (viii|vii|vi|iv|v|iii|ii|i)\b", lambda m: f"segment {_ROMAN[m[1]]}", said
    )


def _bare(option: str) -> str:
    return re.sub(r"\s*\([^)]*\)", "", option).strip()


def _by_part(options: Mapping[str, str], short: str) -> set[str]:
    """Options of which a whole text is the first or the last words: `7` of `segment 7`."""
    words = short.split()
    number = [_ROMAN.get(word, word) for word in words]
    found = set()
    for letter, option in options.items():
        parts = _bare(option).split()
        length = len(words)
        ends = (parts[:length], parts[-length:]) if 0 < length < len(parts) else ()
        if words in ends or (parts[:1] == ["segment"] and number == parts[1:]):
            found.add(letter)
    return found


def _pattern(option: str) -> str:
    main, parenthesis = _bare(option), re.search(r"\(([^)]*)\)", option)
    pattern = r"[\s\-]+".join(_word(word) for word in main.split())
    if parenthesis and parenthesis[1].strip():
        inner = r"[\s\-]+".join(_word(word) for word in parenthesis[1].split())
        pattern += rf"(?:\s*\(?{inner}\)?)?"
    return pattern


def _word(word: str) -> str:
    """Match a word with hyphens between its letters or without."""
    letters = [re.escape(letter) for letter in word if letter != "-"]
    return r"-?".join(letters) if word.replace("-", "").isalpha() else re.escape(word)
