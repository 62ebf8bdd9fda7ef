"""What a sentence says of lesions: density, shape, boundary, size, depth, number."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.counts import count_key
from tumorchain_jax.engine.text.depth import find_depths
from tumorchain_jax.engine.text.judgement import judge
from tumorchain_jax.engine.text.lesions import Lesion
from tumorchain_jax.engine.text.linking import find_carrier, find_target, leads_to
from tumorchain_jax.engine.text.notes import OTHERS, Mention, Notes
from tumorchain_jax.engine.text.places import Place
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.sides import side_of
from tumorchain_jax.engine.text.sizes import Size, find_sizes
from tumorchain_jax.engine.text.tables import count_in
from tumorchain_jax.engine.text.vocabulary import Term

_NUMBER_OF = re.compile(r"\W*(?:number|no\.|count|anzahl)\b")
_COVERS = re.compile(r"\b(?:pleura\w*|pericardi\w+|diaphragm\w*|azygos|zwerchfell\w*)\b")
_HOLLOW = frozenset({"stomach", "colon", "esophagus"})
_MEASURED_SIGNS = frozenset(
    {"ductal dilatation", "wall thickening", "fluid collection", "splenomegaly"}
)


def read_attributes(notes: Notes, setting: Setting, mentions: Sequence[Mention]) -> None:
    """Draft the attributes of a sentence, each with the lesion that it belongs to."""
    sentence = setting.sentence
    # First the sizes, for they may tell several lesions apart.
    _sizes(notes, setting, mentions)
    adjectives = [t for t in setting.terms if t.kind in ("density", "shape", "boundary")]
    for term in adjectives:
        if setting.section == "pathology" and "margin" in notes.text[term.start : term.end]:
            continue  # of the specimen
        context = judge(setting, term.start, term.end)
        target = find_target(notes, setting, term.start, term.end, mentions)
        if context is None or target is None:
            continue
        lesions, told = target
        if told.polarity == "absent":
            continue
        if told.time != "current":
            context = replace(context, time=told.time)
        if told.certainty != "definite" and context.certainty == "definite":
            context = replace(context, certainty=told.certainty)
        said = setting, term.kind, term.value, term.start, term.end, context
        for lesion in lesions:
            notes.draft(*said, lesion.place, lesion)
        if not lesions:
            notes.draft(*said, Place(""))
    _depth(notes, setting, mentions)
    if not mentions or notes.cells or _NUMBER_OF.match(setting.words):
        key = count_in(notes.text, notes.cells) or count_key(
            notes.text, sentence.start, sentence.end
        )
        if key and not re.search(r"\b(?:lymph )?nodes?\b|\bln\b", setting.words):
            last = notes.told_last()
            named = [p for locus in setting.loci if not locus.beside for p in locus.places]
            place = Place(named[0].organ if named else last.place.organ if last else "")
            notes.draft(
                setting, "count", str(key.count), key.start, key.end, Context(), place, None
            )


def _sizes(notes: Notes, setting: Setting, mentions: Sequence[Mention]) -> None:
    sentence = setting.sentence
    sizes = find_sizes(notes.text, sentence.start, sentence.end)
    columns = [cell for cell in notes.cells if cell.is_size]
    if not sizes:
        sizes = [
            s for cell in columns for s in find_sizes(notes.text, cell.start, cell.end, cell.unit)
        ]
    old = [(cell.start, cell.end) for cell in notes.cells if cell.is_prior]
    sizes = [
        replace(s, prior=True) if any(a <= s.measure.start < b for a, b in old) else s
        for s in sizes
    ]
    signs = [t for t in setting.terms if t.kind == "sign"]
    taken: dict[int, int] = {}
    current = [size for size in sizes if not size.prior]
    for size in sizes:
        measure = size.measure
        if _of_sign(notes, setting, size, signs, mentions):
            continue
        target = find_target(notes, setting, measure.start, measure.end, mentions)
        if target is None or target[1].polarity == "absent":
            continue
        sign = [t for t in signs if t.end <= measure.start and t.value in _MEASURED_SIGNS]
        carriers = [m.term.end for m in mentions if m.term.end <= measure.start]
        carrier = find_carrier(notes, setting, measure.start, measure.end, mentions)
        follows = carrier is not None and leads_to(notes, measure.end, carrier)
        if sign and not follows and sign[-1].end > max(carriers, default=-1):
            continue
        lesions, told = target
        if len(lesions) > 1 and len(lesions) == len(current) and not size.prior:
            # "In the body and the antrum, of 33 and 21 mm", "right 12 mm and left 16 mm".
            side = side_of(notes.text, measure.start, measure.end)
            sided = [x for x in lesions if side and x.place.organ.startswith(side)]
            lesions = sided or [lesions[current.index(size)]]
        if len(lesions) != 1:
            continue
        lesion = lesions[0]
        if not measure.is_plausible:
            notes.slips.append(
                ("impossible size", *notes.wording.original_span(measure.start, measure.end))
            )
            continue
        context = replace(told, patient=True)
        if size.prior:
            context = replace(context, time="prior")
        if measure.upper and not lesion.several:
            context = replace(context, certainty="probable")
        turn = taken.get(id(lesion), 0)
        if not size.prior:
            taken[id(lesion)] = turn + 1
            if measure.mm not in lesion.sizes:
                lesion.sizes.append(measure.mm)
        part = _part_of_size(setting, lesion, sizes, sizes.index(size), carrier)
        if lesion.several and turn and not size.prior:
            # "Metastases of 20, 24 and 30 mm": each size is one of them.
            place = part or lesion.place
            lesion = notes.lesions.add(Lesion(place, lesion.value, True, [measure.mm]))
            notes.group.append(lesion)
            if carrier:
                name = carrier.term
                notes.draft(
                    setting, "finding", lesion.value, name.start, name.end, context, place, lesion
                )
        elif turn and not size.prior:
            continue
        notes.draft(
            setting, "size", f"{measure.mm:g}", measure.start, measure.end, context,
            lesion.place, lesion, unit="mm",
        )  # fmt: skip


def _of_sign(
    notes: Notes, setting: Setting, size: Size, signs: Sequence[Term], mentions: Sequence[Mention]
) -> bool:
    """Whether a size is that of a sign; that of calcified vessels is kept."""
    if mentions or size.prior or not signs:
        return False
    before = [sign for sign in signs if sign.end <= size.measure.start]
    sign = before[-1] if before else signs[0]
    if sign.value in OTHERS - {"ductal dilatation", "wall thickening"}:
        return False
    context = judge(setting, sign.start, sign.end)
    if sign.value == "vascular calcification" and context and context.polarity == "present":
        place, measure = Place(sign.entries[0].organ), size.measure
        notes.draft(
            setting, "size", f"{measure.mm:g}", measure.start, measure.end, context, place, None,
            unit="mm",
        )  # fmt: skip
    return True


def _part_of_size(
    setting: Setting,
    lesion: Lesion,
    sizes: Sequence[Size],
    turn: int,
    carrier: Mention | None,
) -> Place | None:
    """Return where one of several lesions is: "34 mm in segment 8 and 21 mm in segment 5"."""
    if not lesion.several or carrier is None or len(sizes) < 2:
        return None
    parts = [
        locus for locus in setting.loci
        if locus.places[0].part and locus.places[0].organ == lesion.place.organ
        and locus.start >= carrier.term.end and not locus.beside
    ]  # fmt: skip
    if len(parts) != len(sizes):
        return None
    place = parts[turn].places[0]
    if turn == 0:
        lesion.place = place
    return place


def _depth(notes: Notes, setting: Setting, mentions: Sequence[Mention]) -> None:
    sentence = setting.sentence
    for value, start, end, is_so in find_depths(notes.text, sentence.start, sentence.end):
        lesion: Lesion | None = None
        before = [m for m in mentions if m.lesions and m.term.start <= end]
        if before:
            lesion = before[-1].lesions[0]
        elif any(m.context.polarity == "absent" for m in mentions):
            continue
        elif notes.lesions.last:
            lesion = notes.lesions.last
        if lesion is None:
            continue
        if value in ("wall", "inner wall") and lesion.place.organ not in _HOLLOW:
            continue
        if value == "neighbour" and _names(notes.text[start:end], lesion.place.organ):
            continue
        if lesion.place.organ == "esophagus" and _COVERS.search(notes.text, start, end):
            value = "surface"  # T4a, as the serosa of other organs
        context = judge(setting, start, end) or Context()
        context = replace(context, polarity="present" if is_so else "absent")
        notes.draft(setting, "depth", value, start, end, context, lesion.place, lesion)


def _names(text: str, organ: str) -> bool:
    """Whether "involves the transverse colon" names the organ that the tumour is of."""
    return organ != "" and organ[-6:] in text.replace("oesoph", "esoph")
