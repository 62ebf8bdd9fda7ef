"""What measurements answer: the benchmark's thresholds for each of the 42 subtypes.

Thresholds are facts of version 2's knowledge base; those marked "ours" it does not state. `None`
says that there is nothing to ask about (no such organ, no lesion).
"""

from collections import Counter
from collections.abc import Callable, Sequence

from tumorchain_jax.anatomy.organs import COLORECTUM, LIVER, PANCREAS, SPLEEN
from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import (
    KIDNEY_SOLID_HU,
    KIDNEYS,
    Lesion,
    Measured,
    organ_name,
)

RIGHT_KIDNEY, LEFT_KIDNEY = KIDNEYS
GROUPS: dict[str, tuple[int, ...]] = {
    "liver": (LIVER,),
    "spleen": (SPLEEN,),
    "pancreas": (PANCREAS,),
    "kidneys": KIDNEYS,
    "right kidney": (RIGHT_KIDNEY,),
    "left kidney": (LEFT_KIDNEY,),
    "colon": (COLORECTUM,),
}
"""How a question names what it asks about -> TotalSegmentator ids."""
SPLEEN_CM3 = (314.5, 500.0, 800.0)
LARGE_CM3 = {"liver": 1800.0, "spleen": 314.5, "right kidney": 260.0, "left kidney": 260.0}
LARGE_CM3["pancreas"] = 100.0
STEATOSIS_HU = (58, 51, 39)
FATTY_LIVER, FATTY_PANCREAS = 1.0, 0.70
PSEUDOCYST_HU, RESECT_CM3, RESECT_CM, STAGE_CM = 14.5, 3.0, 3.0, (2.0, 4.0)
ENCASED_DEGREES = 180.0
OUTLIER, OUTLIER_LESIONS, CLUSTERED, SOMEWHAT = 3.0, 3, 0.50, 0.75
SAME_HU, SAME_VOLUME = 10.0, 0.10  # ours
GRADES = ("Normal", "Mild", "Moderate", "Severe")
Answer = str | float | None
Rule = Callable[[Measured, Sequence[str]], Answer]


def answer(measured: Measured, subtype: str, about: Sequence[str] = ()) -> Answer:
    """Answer a question of a subtype.

    Args:
        about: names of organs (`GROUPS`), or of a part of the liver, that the question is about.

    Returns:
        A text (`Yes`, `No`, a category), a number in the question's unit, or None.
    """
    return RULES[subtype](measured, about)


def _lesions(measured: Measured, name: str, *kinds: str) -> list[Lesion]:
    organs = GROUPS[name]
    return [
        lesion
        for lesion in measured.lesions
        if lesion.organ in organs and (not kinds or lesion.kind in kinds)
    ]


def _volume(measured: Measured, name: str) -> float | None:
    parts = [measured.volumes_cm3.get(organ) for organ in GROUPS[name]]
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _hu(measured: Measured, name: str) -> float | None:
    return measured.hu.get(GROUPS[name][0])


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]


def _yes(value: bool) -> str:
    return "Yes" if value else "No"


def _exists(name: str, *kinds: str) -> Rule:
    def rule(measured: Measured, about: Sequence[str]) -> Answer:
        known = any(organ in measured.volumes_cm3 for organ in GROUPS[name])
        return _yes(bool(_lesions(measured, name, *kinds))) if known else None

    return rule


def _of_largest(value: Callable[[Measured, Lesion], Answer], name: str = "", *kinds: str) -> Rule:
    """Make a rule about the largest lesion, of the organ in the question unless `name` is given."""

    def rule(measured: Measured, about: Sequence[str]) -> Answer:
        found = _lesions(measured, name or about[0], *kinds)
        return value(measured, found[0]) if found else None

    return rule


def _ratio(measured: Measured, about: Sequence[str]) -> float | None:
    above, below = (_hu(measured, name) for name in about)
    return None if above is None or below is None or below <= 0 else above / below


def _burden(measured: Measured, about: Sequence[str]) -> Answer:
    volume, found = _volume(measured, about[0]), _lesions(measured, about[0])
    return 100 * sum(each.volume_cm3 for each in found) / volume if volume and found else None


def _sum_of_volumes(measured: Measured, about: Sequence[str]) -> Answer:
    volumes = [_volume(measured, name) for name in about]
    known = [volume for volume in volumes if volume is not None]
    return sum(known) if len(known) == len(volumes) else None


def _adjacent(measured: Measured, lesion: Lesion) -> Answer:
    near = lesion.neighbours
    return _capital(organ_name(min(near, key=lambda each: near[each]))) if near else None


def _sides(left: float, right: float, names: tuple[str, str, str]) -> str:
    if abs(left - right) <= SAME_VOLUME * max(left, right):
        return names[2]
    return names[0] if left > right else names[1]


def _asymmetry(measured: Measured, about: Sequence[str]) -> Answer:
    left, right = (
        sum((each.volume_cm3 for each in _lesions(measured, f"{side} kidney")), 0.0)
        for side in ("left", "right")
    )
    names = ("Left kidney", "Right kidney", "Both about equal")
    return _sides(left, right, names) if left or right else None


def _larger_kidney(measured: Measured, about: Sequence[str]) -> Answer:
    left, right = (_volume(measured, f"{side} kidney") for side in ("left", "right"))
    if left is None or right is None:
        return None
    return _sides(left, right, ("Left", "Right", "About equal"))


def _segments(measured: Measured) -> list[tuple[str, int]]:
    return Counter(lesion.segment for lesion in _lesions(measured, "liver")).most_common()


def _most_lesions(measured: Measured, about: Sequence[str]) -> Answer:
    counts = _segments(measured)
    tie = len(counts) > 1 and counts[0][1] == counts[1][1]
    return None if tie or not counts else _capital(counts[0][0])


def _count_in(measured: Measured, about: Sequence[str]) -> Answer:
    if LIVER not in measured.volumes_cm3:
        return None
    return float(dict(_segments(measured)).get(about[0], 0))


def _count(measured: Measured, about: Sequence[str]) -> Answer:
    known = any(organ in measured.volumes_cm3 for organ in GROUPS[about[0]])
    return float(len(_lesions(measured, about[0]))) if known else None


def _outlier(measured: Measured, about: Sequence[str]) -> Answer:
    found = _lesions(measured, about[0])
    if len(found) < OUTLIER_LESIONS:
        return None
    return _yes(found[0].volume_cm3 >= OUTLIER * found[1].volume_cm3)


def _clustering(measured: Measured, about: Sequence[str]) -> Answer:
    counts = [count for _, count in _segments(measured)]
    if sum(counts) < 2:
        return None
    if counts[0] / sum(counts) > CLUSTERED:
        return "Highly clustered"
    return (
        "Somewhat clustered" if sum(counts[:2]) / sum(counts) >= SOMEWHAT else "Widely distributed"
    )


def _heaviest(measured: Measured, about: Sequence[str]) -> Answer:
    burdens = {
        name: sum((each.volume_cm3 for each in _lesions(measured, name)), 0.0)
        for name in ("liver", "pancreas", "kidneys", "colon")
    }
    return (
        max(burdens, key=lambda each: burdens[each]).capitalize() if any(burdens.values()) else None
    )


def _attenuation(measured: Measured, lesion: Lesion) -> Answer:
    off = lesion.hu - measured.hu[lesion.organ]
    if abs(off) <= SAME_HU:
        return "Isoattenuating"
    return "Hyperattenuating" if off > 0 else "Hypoattenuating"


def _large(measured: Measured, about: Sequence[str]) -> Answer:
    volume = _volume(measured, about[0])
    return None if volume is None else _yes(volume > LARGE_CM3[about[0]])


def _spleen_grade(measured: Measured, about: Sequence[str]) -> Answer:
    volume = _volume(measured, "spleen")
    return None if volume is None else GRADES[sum(volume > limit for limit in SPLEEN_CM3)]


def _fatty_liver(measured: Measured, about: Sequence[str]) -> Answer:
    ratio = _ratio(measured, ("liver", "spleen"))
    return None if ratio is None else "Fatty" if ratio < FATTY_LIVER else "Normal"


def _steatosis(measured: Measured, about: Sequence[str]) -> Answer:
    """Grade by whole HU, as the limits are stated."""
    hu = _hu(measured, "liver")
    return None if hu is None else f"Grade {sum(round(hu) < limit for limit in STEATOSIS_HU)}"


def _fatty_pancreas(measured: Measured, about: Sequence[str]) -> Answer:
    ratio = _ratio(measured, ("pancreas", "spleen"))
    return None if ratio is None else _yes(ratio < FATTY_PANCREAS)


def _stage(measured: Measured, lesion: Lesion) -> Answer:
    if lesion.vessel_degrees > ENCASED_DEGREES:
        return "T4"
    return f"T{1 + sum(lesion.diameter_cm > limit for limit in STAGE_CM)}"


def _resectable(measured: Measured, lesion: Lesion) -> Answer:
    if not lesion.vessel_degrees:
        return "Resectable"
    return "Borderline resectable" if lesion.vessel_degrees <= ENCASED_DEGREES else "Unresectable"


def _portal_hypertension(measured: Measured, about: Sequence[str]) -> Answer:
    """Ours: a large spleen beside a liver that is not large."""
    spleen, liver = _volume(measured, "spleen"), _volume(measured, "liver")
    if spleen is None or liver is None:
        return None
    return _yes(spleen > SPLEEN_CM3[0] and liver <= LARGE_CM3["liver"])


def _resect_cyst(measured: Measured, lesion: Lesion) -> Answer:
    return _yes(lesion.volume_cm3 > RESECT_CM3 or lesion.diameter_cm > RESECT_CM)


_SOLID = ("PDAC", "PNET")
RULES: dict[str, Rule] = {
    "PDAC existence": _exists("pancreas", "PDAC"),
    "PNET existence": _exists("pancreas", "PNET"),
    "colon lesion existence": _exists("colon"),
    "kidney cyst existence": _exists("kidneys", "cyst"),
    "kidney lesion existence": _exists("kidneys"),
    "kidney tumor existence": _exists("kidneys", "tumor"),
    "liver lesion existence": _exists("liver"),
    "pancreatic lesion existence": _exists("pancreas"),
    "splenomegaly detection": lambda measured, about: _large(measured, ("spleen",)),
    "lesion volume measurement": _of_largest(lambda measured, lesion: lesion.volume_cm3),
    "organ HU measurement": lambda measured, about: _hu(measured, about[0]),
    "organ HU ratio": _ratio,
    "organ volume measurement": lambda measured, about: _volume(measured, about[0]),
    "tumor burden percentage": _burden,
    "adjacent organ": _of_largest(_adjacent),
    "bilateral kidney asymmetry": _asymmetry,
    "inter-segment comparison": _most_lesions,
    "kidney volume comparison": _larger_kidney,
    "largest lesion attenuation": _of_largest(_attenuation),
    "largest lesion diameter": _of_largest(lambda measured, lesion: lesion.diameter_cm),
    "largest lesion location": _of_largest(lambda measured, lesion: _capital(lesion.segment)),
    "largest lesion slice": _of_largest(lambda measured, lesion: lesion.slice_percent),
    "lesion count by location": _count_in,
    "lesion counting": _count,
    "lesion outlier": _outlier,
    "liver lesion clustering": _clustering,
    "multi-organ lesion burden comparison": _heaviest,
    "organ aggregation": _sum_of_volumes,
    "organ enlargement": _large,
    "tumor organ HU difference": _of_largest(
        lambda measured, lesion: lesion.hu - measured.hu[lesion.organ]
    ),
    "PDAC vs PNET classification": _of_largest(
        lambda measured, lesion: lesion.kind, "pancreas", *_SOLID
    ),
    "fatty liver": _fatty_liver,
    "hepatic steatosis grading": _steatosis,
    "lesion type classification": _of_largest(
        lambda measured, lesion: lesion.kind.capitalize(), "kidneys"
    ),
    "pancreatic cyst resectability": _of_largest(_resect_cyst, "pancreas", "cyst"),
    "pancreatic lesion resectability": _of_largest(_resectable, "pancreas", *_SOLID),
    "pancreatic steatosis": _fatty_pancreas,
    "pancreatic tumor staging": _of_largest(_stage, "pancreas", *_SOLID),
    "portal hypertension assessment": _portal_hypertension,
    "pseudocyst determination": _of_largest(
        lambda measured, lesion: _yes(lesion.hu > PSEUDOCYST_HU), "pancreas", "cyst"
    ),
    "renal mass characterization": _of_largest(
        lambda measured, lesion: "Solid" if lesion.hu > KIDNEY_SOLID_HU else "Cystic", "kidneys"
    ),
    "splenomegaly grading": _spleen_grade,
}
"""Subtype -> rule."""
