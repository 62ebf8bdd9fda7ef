"""Headings, keys and tables: what the sentences under or after them are about."""

import re
from collections.abc import Sequence

from tumorchain_jax.engine.text.cues import find_cues
from tumorchain_jax.engine.text.notes import CARRIERS, Notes
from tumorchain_jax.engine.text.places import LOCATING, Locus
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.tables import read_header, read_row

_LOCATION_KEY = re.compile(
    r"^\W*(?:tumou?r |lesion |anatomic(?:al)? |primary )?(?:location|site|specimen|organ|region|"
    r"where|"
    r"segment|"
    r"part|sub-?site|substructure|localization|localisation|lokalisation|organ system|area|"
    r"sub-?segment|position|abschnitt|level)\s*(?:of (?:the )?(?:lesion|tumou?r|mass))?\s*[:=|]"
)
# Headings of forms that name what their lines are about, and tell of none.
_BARE_HEADING = re.compile(
    r"[\W\d]*(?:(?:non-?\s?|other )?(?:target|measurable|focal|index|listed|individual|known)\s+)?"
    r"(?:lesions|nodules|masses|tumou?rs|läsionen|zielläsionen|targetläsionen)\W*|"
    r"[\W\d]*(?:\w+ )?(?:cancer|tumou?r|carcinoma|neoplasm|lesion) (?:case )?(?:summary|synopsis|"
    r"data|"
    r"characteristics|description|details|report|protocol|checklist|template|staging)\W*"
)
_SIDE = re.compile(
    r"(?:the )?(?:left|right|both|lt|rt|l|r|links|rechts|bilateral)(?: (?:side|one))?"
)
_KEY = re.compile(r"^[\W\d]*(?P<key>[a-z][^:=|\n.]{0,60}?)\s*(?:[:=|]|\s-{1,2}\s|$)")


def take_table(notes: Notes, setting: Setting) -> bool:
    """Take in the head of a table, or what the columns say of a row; whether it was a head."""
    sentence, words = setting.sentence, setting.words
    notes.cells = []
    if words.count("|") < 2:
        notes.columns = ()
        return False
    if columns := read_header(words):
        notes.columns = columns
        return True
    if not notes.columns:
        return False
    notes.cells = read_row(notes.text, sentence.start, sentence.end, notes.columns)
    locus = _most_exact(setting.loci)
    told = any(t.kind in ("density", "shape", "boundary") for t in setting.terms) or any(
        c.is_size and re.search(r"\d", notes.text[c.start : c.end]) for c in notes.cells
    )
    if locus and told and not any(t.kind in CARRIERS for t in setting.terms):
        notes.pending = locus.places[0], setting, locus.start, locus.end
    notes.heading, notes.heading_holds = locus.places[:1] if locus else (), True
    return False


def take_heading(notes: Notes, setting: Setting) -> bool:
    """Take in what a heading or key names; whether the sentence says nothing else."""
    sentence, words = setting.sentence, setting.words
    notes.stray_key = False
    if notes.heading_passes and not setting.denied:
        notes.heading, notes.heading_passes = (), False
    if sentence.opens and _BARE_HEADING.fullmatch(words):
        return True
    if _LOCATION_KEY.match(words):
        _locate_by_key(notes, setting)
        return not any(term.kind in CARRIERS for term in setting.terms)
    here = {p.organ for x in setting.loci if not x.beside for p in x.places}
    if not notes.heading_holds and here - {place.organ for place in notes.heading}:
        notes.heading = ()  # running text has gone on to another organ
    key = _KEY.match(words)
    if not key:
        return False
    key_end = sentence.start + key.end("key")
    in_key = [term for term in setting.terms if term.end <= key_end]
    if any(term.kind not in (*LOCATING, "none") for term in in_key):
        return False
    named = [locus for locus in setting.loci if locus.end <= key_end]
    alone = sentence.start + key.end() >= sentence.end
    if named and len(key["key"].split()) <= 8:
        rest = re.sub(
            r"\b(?:the|and|of|other|wall|tract|tree|biliary|system|upper|visible)\b", "", key["key"]
        )
        covered = sum(locus.end - locus.start for locus in named)
        if alone and covered < 0.6 * len(rest.strip()):
            return False
        notes.heading = tuple(place for locus in named for place in locus.places)
        notes.heading_holds = alone
        # "Not seen in the liver: a, b." is a list, whose end ends the heading.
        notes.heading_passes = any(cue.meaning == "absent" for cue in find_cues(key["key"]))
        return alone
    if alone or in_key or _SIDE.fullmatch(key["key"]) or _is_attribute_key(key["key"]):
        return False
    stray = ":" in key.group() and len(key["key"].split()) <= 3
    notes.stray_key = stray and setting.section != "pathology"
    if sentence.opens:
        notes.heading, notes.heading_holds = (), False
    return False


def _locate_by_key(notes: Notes, setting: Setting) -> None:
    locus = _most_exact(setting.loci)
    if locus is None:
        return
    place, last = locus.places[0], notes.lesions.last
    if not notes.pending and last and not last.place.organ:
        last.place = place
    elif not notes.pending and last and notes.heading == (last.place,) and (
        place.organ == last.place.organ
    ):  # fmt: skip
        last.place = place if place.part else last.place
    else:
        notes.pending = place, setting, locus.start, locus.end
    notes.heading = notes.near = (place,)
    notes.heading_holds = True


def _most_exact(loci: Sequence[Locus]) -> Locus | None:
    """Return the first place that is a part of an organ, else the first one."""
    return next((x for x in loci if x.places[0].part), loci[0] if loci else None)


def _is_attribute_key(key: str) -> bool:
    return bool(re.search(
        r"\b(?:size|dimension\w*|diameter|measure\w*|margins?|borders?|boundary|edges?|density|"
        r"attenuation|shape|form|contour|count|number|depth|enhancement|others?|features?|lesion|"
        r"mass|findings?|tumou?r|morphology|outline|invasion|größe|dichte|form|rand|begrenzung|"
        r"anzahl|tiefe|sonstiges|impression|[tnm]|stage|category)\b", key))  # fmt: skip
