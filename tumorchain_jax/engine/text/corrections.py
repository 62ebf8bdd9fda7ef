"""Corrections: a report that takes back part of itself.

What an addendum takes back is not worked out: it may be any sentence before it. A report that is
corrected is told as such, so that nothing is made of it.
"""

import re

from tumorchain_jax.engine.text.wording import even

# An addendum may only add. What it says is a correction with one of these words.
_ADDENDUM = re.compile(
    r"\b(?:addend(?:um|a)|nachtrag|late entry|post ?script(?:um)?|p\.s\.|supplement(?:ary|al)? "
    r"(?:report|note|finding)s?)\b"
)
_TAKES_BACK = re.compile(
    r"\b(?:not|instead|rather|should|correct\w*|error\w*|erroneous\w*|wrong\w*|incorrect\w*|"
    r"mistak\w*|inadvertent\w*|revis\w*|amend\w*|misstat\w*|mis-?labell?ed|typ(?:o|ing)\w*|"
    r"transpos\w*|re-?review\w*|on review|review of|second (?:look|reading|opinion)|in retrospect|"
    r"reconsider\w*|re-?interpret\w*|retract\w*|withdraw\w*|disregard\w*|supersed\w*|replac\w*|"
    r"read(?:s)? as|in fact|actually|no longer|tumou?r board|mdt|multidisciplinary|biopsy|"
    r"histolog\w*|patholog\w*|clarif\w*|nicht|statt(?:dessen)?|sondern|korrig\w*|falsch\w*|"
    r"irrtüm\w*|richtig\w*|vielmehr|fehler\w*|versehentlich\w*)\b"
)
_CORRECTION = re.compile(
    r"\b(?:correct(?:ion|ed|s)(?: (?:report|to|of|version|above|the))?\s*[:.,-]|corrected report|"
    r"correction to (?:the )?(?:above|report|findings|impression)|corrigend(?:um|a)|errat(?:um|a)|"
    r"amended report|amendment\s*[:.-]|revised report|revision\s*:|"
    r"(?:scratch|strike|delete|disregard|ignore|cancel) (?:that|the (?:last|previous|above|prior) "
    r"(?:sentence|line|statement|finding|paragraph|impression|dictation|comment)s?)\b|"
    r"i mean\b|make that\b|sorry[,.]|rather[,:] i\b|"
    r"(?:the )?(?:above|report|findings?|impression|sentence|statement|text|side|laterality|"
    r"location|size|this|it|which) (?:\w+ )?(?:should|ought to|must) (?:instead )?(?:read|say|"
    r"state|be read|have read|be corrected|be changed)|"
    r"should (?:instead )?(?:read|have read|say|have said|state|have stated)\b|"
    r"(?:was|were|is|are|been) (?:\w+ly )?(?:dictated|stated|reported|entered|labell?ed|recorded|"
    r"transcribed|typed|written|listed|described) (?:in error|by mistake|erroneously|incorrectly|"
    r"wrongly)|(?:dictation|transcription|typing|typographical|laterality|voice recognition) "
    r"error|(?:erroneously|incorrectly|mistakenly|wrongly|inadvertently) (?:\w+ ){0,3}?(?:stated|"
    r"reported|dictated|described|labell?ed|recorded|listed|transcribed)|"
    r"berichtigung|korrektur|korrigiert(?:er|e)? (?:befund|fassung)|muss (?:richtig )?heißen|"
    r"muss es (?:richtig )?heißen|richtig muss|irrtümlich\w*|diktierfehler|schreibfehler)"
)
_FIGURATIVE = re.compile(r"\b(?:surgical(?:ly)?|scoliosis|deformity|attenuation|motion) correct\w*")


def find_correction(text: str) -> tuple[int, int] | None:
    """Return the characters of a report that say that it takes something back; None if none do.

    Args:
        text: of the report, as read.
    """
    plain = even(text)
    match = _CORRECTION.search(plain)
    if match and not _FIGURATIVE.search(plain, max(0, match.start() - 14), match.end()):
        return match.span()
    match = _ADDENDUM.search(plain)
    return match.span() if match and _TAKES_BACK.search(plain, match.end()) else None
