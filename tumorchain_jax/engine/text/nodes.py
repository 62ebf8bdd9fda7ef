"""Lymph nodes: enlarged or not, and how many."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.counts import count_after, count_before
from tumorchain_jax.engine.text.notes import FIVE, Notes
from tumorchain_jax.engine.text.places import Place, locate
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.sizes import find_sizes
from tumorchain_jax.engine.text.vocabulary import Term

_ENLARGED = re.compile(
    r"\b(?:enlarg\w+|pathologic\w*|suspicious|metastatic|metastas[ie]s|involved|positive|necrotic|"
    r"bulky|prominent|increased|abnormal|malignant|rounded|swollen|vergrößert\w*|pathologisch\w*|"
    r"suspekt\w*|several|multiple|numerous|conglomerate\w*|big|thickened|infiltrated|disease|"
    r"involvement|mass|spread|增大|肿大)\b"
)
_NORMAL_NODE = re.compile(
    r"\b(?:normal(?:[- ]sized?)?|not (?:\w+ )?enlarged|non-?enlarged|unenlarged|unremarkable|"
    r"subcentimet\w+|sub-centimet\w+|reactive|benign|not pathological\w*|unauffällig\w*|"
    r"nicht vergrößert\w*|small|negative|within normal|uninvolved)\b"
)
_STATION = re.compile(
    r"\b(?:retroperitoneal\w*|mediastinal\w*|inguinal\w*|pelvic|iliac\w*|axillary|distant|other|"
    r"further|cervical|"
    r"hilar|para-?aortic|interaortocaval|retrocrural|supraclavicular|weitere\w*)\b(?: \w+){0,3} ?$"
)
_NAMES_DISEASE = re.compile(
    r"adenopath|metasta|disease|involvement|mass|enlargement|spread|deposit"
)
_UNTICKED_CHOICE = re.compile(r"(?:\[[ ]{0,3}\]|\u2610|\u25a1)[^\[\]|;,.\u2610-\u2612\u25a1]*")
_OF_NODES = re.compile(
    r"\b(?P<none>none|no|zero|0) (?:of|/|out of) (?:the )?\w+|\b(?P<count>\d{1,2})\s*(?:of|/|"
    r"out of|von)\s*"
    r"(?P<of>\d{1,3})\b|\b(?P<positive>\d{1,2}) (?:positive|involved|metastatic)\b|"
    r"\b(?:positive|involved|metastatic|with (?:tumou?r|metastas[ei]s|carcinoma)|"
    r"number (?:involved|positive))"
    r"(?: (?:lymph )?nodes?)?(?:\s*[:=]\s*|\s+)(?P<keyed>\d{1,2})\b(?!\s?(?:/|of|out|mm|cm|[.,]\d))"
)
_EXAMINED = re.compile(
    r"\b(?:examined|sampled|harvested|retrieved|dissected|total|identified|submitted|found)\b"
)


def read_node(
    notes: Notes, setting: Setting, term: Term, context: Context, others: Sequence[tuple[int, int]]
) -> None:
    """Draft what is said of lymph nodes: enlarged or not, and how many.

    Args:
        notes, setting: as they are now.
        term: how the nodes are named.
        context: what the sentence says of them.
        others: characters of the other things that it names.
    """
    sentence, words = setting.sentence, setting.words
    places = tuple(
        place
        for place in locate(notes.text, term.start, term.end, setting.loci, others, node=True)
        if place.organ in FIVE
    ) or tuple(
        Place(locus.places[0].organ)
        for locus in setting.loci
        if locus.start <= term.start and term.end <= locus.end
    )
    place = places[0] if places else None
    if setting.section == "pathology" and _nodes_of(notes, setting, term, place):
        return
    clause = _UNTICKED_CHOICE.sub(" ", words)
    told = count_before(notes.text, sentence.start, term.start) or count_after(
        notes.text, term.end, sentence.end
    )
    if told and setting.section == "pathology" and _EXAMINED.search(words):
        told = None
    if told and told.share and not _ENLARGED.search(clause):
        return  # "two of the three nodes ...": of which it is not said that they are enlarged
    sizes = find_sizes(notes.text, sentence.start, sentence.end)
    normal = _NORMAL_NODE.search(clause) and not _ENLARGED.search(_NORMAL_NODE.sub(" ", clause))
    named = notes.text[term.start : term.end]
    is_told = _ENLARGED.search(clause) or sizes or told or _NAMES_DISEASE.search(named)
    station = _STATION.search(notes.text, max(sentence.start, term.start - 40), term.start)
    if context.polarity == "absent" and place is None and station:
        return
    if told and told.count == 0:
        context = replace(context, polarity="absent")
    if context.polarity == "present" and normal:
        context = replace(context, polarity="absent")
    elif context.polarity == "present" and not is_told:
        return
    notes.draft(
        setting, "finding", "lymph node", term.start, term.end, context, place, None, about="node"
    )
    if told and context.polarity == "present" and context.time == "current":
        if told.rough and context.certainty == "definite":
            context = replace(context, certainty="probable")
        notes.draft(
            setting,
            "nodes",
            str(told.count),
            told.start,
            told.end,
            context,
            place,
            None,
            about="node",
        )


def _nodes_of(notes: Notes, setting: Setting, term: Term, place: Place | None) -> bool:
    """Draft "3 of 21 nodes": how many are involved."""
    match = _OF_NODES.search(setting.words)
    if not match:
        return False
    count = match["count"] or match["positive"] or match["keyed"] or "0"
    if match["of"] and int(count) > int(match["of"]):
        return False
    start = setting.sentence.start + match.start()
    notes.draft(
        setting, "nodes", str(int(count)), start, setting.sentence.start + match.end(),
        Context(), place, None, about="node",
    )  # fmt: skip
    return True
