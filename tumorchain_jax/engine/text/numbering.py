"""How many of a thing a report tells of, where it names it."""

import re
from collections.abc import Sequence

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.counts import SEVERAL, count_before
from tumorchain_jax.engine.text.lesions import GENERIC, Lesion
from tumorchain_jax.engine.text.notes import Notes
from tumorchain_jax.engine.text.places import Place
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.vocabulary import Term

_MANY = re.compile(
    r"\b(?:multiple|several|numerous|innumerable|many|few|countless|disseminated|diffuse|"
    r"widespread|extensive|scattered|various|plural|myriad|cluster of|number of|couple of|"
    r"multifocal|bilobar|multiple\w*|mehrere\w*|zahlreiche\w*|viele\w*|einige\w*|unzählige\w*|"
    r"disseminierte\w*|diffuse\w*|vereinzelte\w*)\b[^.;,]*$"
)
_ARTICLES = frozenset({"a", "an", "eine", "einen", "einer", "ein"})


def draft_count(
    notes: Notes,
    setting: Setting,
    term: Term,
    context: Context,
    places: Sequence[Place],
    lesions: Sequence[Lesion],
) -> None:
    """Draft how many there are; several where only the plural says so."""
    sentence = setting.sentence
    told = count_before(notes.text, sentence.start, term.start)
    # "Knoten" may be one or several.
    plural = term.plural and not notes.text.endswith("knoten", term.start, term.end)
    many = _MANY.search(notes.text, max(sentence.start, term.start - 45), term.start)
    if plural and (not told or told.share or len(places) > 1) and (
        many or not _are_told(notes, term, lesions)
    ):  # fmt: skip
        for lesion in lesions:
            span = term.start, term.end
            notes.draft(
                setting,
                "count",
                SEVERAL,
                *span,
                context,
                lesion.place,
                lesion,
                about="many" if many else "",
            )
    if not told or told.share or len(places) > 1:
        return
    start, end = told.start, told.end
    if told.count == 1 and notes.text[start:end] in _ARTICLES:
        return
    if (told.count > 1) == term.plural or term.value in ("metastasis",) or told.count == 1:
        place = Place(places[0].organ if places else "")
        sure = Context(certainty="probable" if told.rough else "definite")
        notes.draft(setting, "count", str(told.count), start, end, sure, place, None)


def _are_told(notes: Notes, term: Term, lesions: Sequence[Lesion]) -> bool:
    """Whether what a plural names was told of one by one before."""
    organs = {lesion.place.organ for lesion in lesions}
    same = [x for x in notes.lesions if x.place.organ in organs]
    same = [x for x in same if x.value in (term.value, *GENERIC) or term.value in GENERIC]
    return len(same) > len(organs)
