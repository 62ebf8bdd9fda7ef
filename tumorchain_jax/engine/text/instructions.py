"""Text in a report that addresses a program instead of a reader; it says nothing of the patient."""

import re
from collections.abc import Iterable

_TOKENS = re.compile(r"<\|[^|<>]{0,40}\|>|\[/?inst\]|<</?sys>>|</?s>|<(?:start|end)_of_turn>|```")
_BLOCK = re.compile(
    r"<\|(?:im_start|system|user|assistant|start_header_id)[^>]{0,20}\|?>.{0,2000}?"
    r"(?:<\|(?:im_end|end|eot_id|endoftext)[^>]{0,20}\|?>|\n\s*\n|$)|"
    r"\[inst\].{0,2000}?(?:\[/inst\]|\n\s*\n|$)|<<sys>>.{0,2000}?(?:<</sys>>|\n\s*\n|$)|"
    r"```.{0,2000}?(?:```|$)|<(script|style|answer|think|system|instruction\w*|tool\w*|assistant)\b"
    r"[^>]{0,200}>.{0,2000}?(?:</\1\s*>|\n\s*\n|$)|"
    r"\{\s*\"[^{}]{0,2000}(?:\{[^{}]{0,1000}\}[^{}]{0,1000}){0,10}\}",
    re.DOTALL,
)
_PROGRAM = (
    r"(?:language model|ai model|llm|ai|a\.i\.|chat ?bot|assistant|extractor|parser|annotator|"
    r"algorithm|automated reader|"
    r"automated system|machine reader|model|automation|crawler|pipeline|software|robot|bot)"
)
_READER = r"(?:language model|ai model|llm|ai|chat ?bot|assistant|extractor|parser|annotator|bot)"
_SPEAKS = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:previous|prior|above|all|any|"
    r"earlier|preceding|instructions?|rules?|everything|prompt|report|text)\b|"
    r"\b(?:system|developer|assistant|user)\s*(?:prompt|message)?\s*:\s|"
    r"\byou (?:are|must|should|will) (?:now )?(?:an? |to )?(?:ai|assistant|model|chatbot|language|"
    r"respond|answer|output|report|write|say|ignore|always|only|state|return|extract|set|treat|"
    r"label|classify|act|pretend)\b|"
    r"\b(?:as an ai|language model|llm|chatgpt|gpt|prompt injection|jailbreak)\b|"
    r"\b(?:new|updated|special|following|important|hidden|begin|end|your|these)\s+(?:system )?"
    r"instructions?\b|\b(?:override|instructions?|prompt|task|directive|command)\s*:\s|>>>|"
    rf"\b{_PROGRAM}s?\b[^.\n]{{0,30}}\b(?:must|shall|has to|have to|is to|are to)\b|"
    rf"\b{_READER}s?\s{{0,2}}(?:note\s{{0,2}})?:|"
    rf"(?:^|(?<=[.\n] )|(?<=\n))(?:{_READER}s?,|(?:to|for) (?:the |all |any |"
    rf"every )?{_PROGRAM}s?\b)|"
    rf"\b(?:dear|hey|hello|hi|attention|note to) (?:the |all |any |every )?{_PROGRAM}s?\b|"
    r"\bwhen(?:ever)? (?:you |asked |summari[sz]ing|reading|processing|extracting|answering|"
    r"reporting)[^.\n]{0,80}"
    r"\b(?:conclude|say|state|report|answer|write|output|record|respond|mention|claim|return|"
    r"use)\b|"
    r"\b(?:overrides?|supersedes?|replaces?) (?:the |all |any )?(?:above|previous|preceding|"
    r"earlier|findings|report|"
    r"everything|text)\b|\byour (?:task|job|role|answer|response|output|reply|goal)\b|"
    r"\byou now (?:describe|report|answer|write|are)\b|"
    r"(?:^|(?<=[.;\n] ))(?:please |kindly )?(?:do not|don't|never) (?:report|mention|extract|"
    r"record|include|list|output|"
    r"describe|tell|read|use|trust)\b|"
    r"\b(?:replace|change|swap|substitute|delete|remove|omit|drop) (?:all |every |the |"
    r"any )*(?:findings?|facts?|lesions?|"
    r"stages?|answers?|values?|sizes?) (?:by|with|to|from|in|above)\b|"
    r"\b(?:the )?(?:correct|right|true|expected|desired|final) (?:answer|response|output|label|"
    r"solution)\b|"
    r"\b(?:pretend|imagine|act as if|assume) (?:that |to |the |there |you )|"
    r"\bkindly (?:report|state|write|say|record|output|answer)\b|\bstop reading\b|"
    r"\b(?:human|user|assistant|ai|bot|model|system)\s*:\s|"
    r"\b(?:ignorier\w*|missachte\w*|vergiss|überschreibe\w*)\b[^.\n]{0,60}\b(?:anweisung\w*|"
    r"befund\w*|text\w*|oben\w*|"
    r"alle\w*|vorherig\w*|bisherig\w*)|\b(?:antworte|schreibe|gib aus|"
    r"melde)\b[^.\n]{0,20}[:,]? (?:dass|nur|mit)\b|"
    r"\b(?:note|attention|message|instructions?|reminder) (?:to|for) (?:the )?(?:ai|model|"
    r"assistant|extractor|system|parser|llm|reader software|software|program|algorithm)\b|"
    r"\b(?:answer|respond|reply|output|return|print|write|say|state|report|emit|record|classify|"
    r"label|mark|set)\s+(?:only |with |that |as |exactly |just |the )*(?:json|[\"'{]|t\d|n\d|m\d|"
    r"stage|no tumou?r|normal\b|there is|\"|'|the following|findings? (?:as|to))|"
    r"\b(?:instead|from now on|hereafter)\b,?[^.\n]{0,20}\b(?:answer|respond|reply|output|report|"
    r"write|say|state|treat)\b"
)
_REST_OF_ORDER = 300
"""Characters of a line after an order that are taken for a part of it."""
_STOP = re.compile(r"[.!?](?=\s|$)|\n")
_GOES_ON = re.compile(
    r"\s*(?:then |now |instead,? |and |also |please )*(?:answer|respond|reply|output|return|print|"
    r"write|say|state|report (?:that|as|only|no)|emit|record|classify|label|mark|set|do not|don't|"
    r"treat|the (?:correct |right |true )?answer)\b"
)


def find_instructions(text: str) -> list[tuple[int, int]]:
    """Return the characters of chat blocks, code, JSON and sentences that give orders.

    Args:
        text: in small letters.
    """
    spans = [match.span() for match in _BLOCK.finditer(text)]
    spans += [match.span() for match in _TOKENS.finditer(text)]
    for match in _SPEAKS.finditer(text):
        start = _sentence_start(text, match.start())
        spans.append((start, _sentence_end(text, match.end())))
        while going := _GOES_ON.match(text, spans[-1][1]):
            spans.append((spans[-1][1], _sentence_end(text, going.end())))
        spans.append((spans[-1][1], _line_end(text, start, spans[-1][1])))
    return joined(spans)


def _line_end(text: str, start: int, position: int) -> int:
    """Return the end of a line that begins with an order: what is left of it is part of that."""
    begin = text.rfind("\n", max(0, start - 20), start + 1) + 1
    if (not begin and "\n" not in text) or text[begin:start].strip(" \t\n-*>#\"'"):
        return position
    end = text.find("\n", position, position + _REST_OF_ORDER)
    if end < 0:
        end = len(text) if len(text) - position < _REST_OF_ORDER else position
    return end


def _sentence_start(text: str, position: int) -> int:
    low = max(0, position - 300)
    ends = [match.end() for match in _STOP.finditer(text, low, position)]
    return ends[-1] if ends else low


def _sentence_end(text: str, position: int) -> int:
    match = _STOP.search(text, position, position + 600)
    return match.end() if match else min(len(text), position + 600)


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, those that touch as one."""
    whole: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((start, end))
    return whole
