"""Where CT reports contradict masks: organ, side, part, size, count.

A contradiction is a flag and corrects nothing: the parts of the label map are a sketch, and a mask
may be a machine's.
"""

from collections.abc import Iterable, Iterator

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.engine.agents.statements import is_sure, labels_of
from tumorchain_jax.engine.facts import Fact

# Sizes differ where they differ by more than both; reports round, and measure by hand.
_MM, _SHARE = 10.0, 0.35
# What a map of lesions holds; metastases elsewhere are mostly not in it.
_TUMOURS = ("mass", "tumour")
# Parts that reports know -> those that the label map gives, where the names differ.
_COARSE: dict[str, tuple[str, ...]] = {
    "right lobe of the liver": tuple(f"liver segment {n}" for n in ("V", "VI", "VII", "VIII")),
    **dict.fromkeys(
        (
            "caudate lobe of the liver",
            "quadrate lobe of the liver",
            *(f"liver segment {n}" for n in ("I", "II", "III", "IV", "IVa", "IVb")),
        ),
        ("left lobe of the liver",),
    ),
    "uncinate process of the pancreas": ("head of the pancreas",),
    "gastric cardia": ("gastric fundus", "gastric body"),
    "pylorus": ("gastric antrum",),
    "hepatic flexure": ("ascending colon", "transverse colon"),
    "splenic flexure": ("transverse colon", "descending colon"),
    "cervical esophagus": ("upper thoracic esophagus",),
    "abdominal esophagus": ("lower thoracic esophagus",),
}


def contradictions(facts: Iterable[Fact]) -> tuple[str, ...]:
    """List the contradictions between the facts of CT reports and of masks, a line each."""
    facts = tuple(facts)
    reports = [f for f in facts if f.source.kind == "radiology" and is_sure(f)]
    masks = [f for f in facts if f.source.kind == "mask"]
    return tuple(dict.fromkeys((*_unseen(reports, masks), *_lesions_differ(reports, masks))))


def _unseen(reports: list[Fact], masks: list[Fact]) -> Iterator[str]:
    """Organs, with their side, of which a report finds something and the masks show nothing."""
    measured = {label for f in masks if f.attribute == "volume" for label in labels_of(f.organ)}
    for fact in reports:
        labels = labels_of(fact.organ)
        if measured and labels and fact.attribute == "finding" and not {*labels} & measured:
            yield f"{fact.organ}: the report finds {fact.value} in it, the masks do not show it"


def _lesions_differ(reports: list[Fact], masks: list[Fact]) -> Iterator[str]:
    if not any(fact.lesion for fact in masks):
        return  # there is no map of lesions
    for organ in map(display_name, DIGESTIVE):
        said = [f for f in reports if f.organ == organ and f.lesion]
        seen = [f for f in masks if f.organ == organ and f.lesion]
        told = {f.lesion for f in said if f.attribute == "finding" and f.value in _TUMOURS}
        shown = {f.lesion for f in seen}
        if bool(told) != bool(shown):
            who, other = ("report", "masks") if told else ("masks", "report")
            yield f"{organ}: a lesion by the {who}, none by the {other}"
            continue
        if not told:
            continue
        if len(told) != len(shown) and not any(f.attribute == "count" for f in said):
            yield f"{organ}: the report has {len(told)} lesions, the masks {len(shown)}"
        yield from _sizes(organ, [f for f in said if f.lesion in told], seen)
        yield from _places(organ, [f for f in said if f.lesion in told], seen)


def _sizes(organ: str, said: list[Fact], seen: list[Fact]) -> Iterator[str]:
    told = [float(f.value) for f in said if f.attribute == "size" and _is_number(f.value)]
    shown = [float(f.value) for f in seen if f.attribute == "size"]
    if told and abs(max(told) - max(shown)) > max(_MM, _SHARE * max(shown)):
        sizes = f"{max(told):g} mm by the report, {max(shown):g} mm by the masks"
        yield f"{organ}: the largest lesion is {sizes}"


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _places(organ: str, said: list[Fact], seen: list[Fact]) -> Iterator[str]:
    shown = {f.part for f in seen if f.attribute == "finding"}
    for fact in said:
        if fact.attribute == "finding" and fact.part:
            allowed = {fact.part, *_COARSE.get(fact.part, ())}
            known = {part for each in SEGMENTS.values() for part in each}
            if allowed & known and not allowed & shown:
                places = " and ".join(sorted(shown))
                yield f"{organ}: the report's lesion is in {fact.part}, the masks' in {places}"
