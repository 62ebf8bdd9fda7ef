"""The levels of a picture of the manifest, from what its data set says of it.

BrEaST has seven descriptors by radiologists, BUS-CoT four of its own words; BUS-BRA has a category,
BUSI a label alone. A word that is not known is refused, never passed over.
"""

from collections.abc import Mapping, Sequence

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.chains.record import Levels
from tumorchain_jax.ultrasound.lesion import Lesion

Words = Mapping[str, Mapping[str, str]]
"""Of each descriptor of the manifest: a source's word -> `field=value`."""
BREAST: Words = {
    "tissue": {
        "homogeneous: fat": "composition=homogeneous_fat",
        "homogeneous: fibroglandular": "composition=homogeneous_fibroglandular",
        "heterogeneous: predominantly fat": "composition=heterogeneous_mostly_fat",
        "heterogeneous: predominantly fibroglandular": (
            "composition=heterogeneous_mostly_fibroglandular"
        ),
        "lactating": "lactation=lactating",
    },
    "shape": {word: f"shape={word}" for word in ("oval", "round", "irregular")},
    "margin": {
        word: f"margin={word}"
        for word in ("circumscribed", "indistinct", "angular", "microlobulated", "spiculated")
    },
    "echo": {
        "complex cystic/solid": "echo=complex_cystic_and_solid",
        **{
            word: f"echo={word}"
            for word in ("anechoic", "hyperechoic", "hypoechoic", "isoechoic", "heterogeneous")
        },
    },
    "posterior": {
        "no": "posterior=none",
        **{word: f"posterior={word}" for word in ("enhancement", "shadowing", "combined")},
    },
    "halo": {"yes": "halo=yes", "no": "halo=no"},
    "calcifications": {
        "no": "calcifications=none",
        "in a mass": "calcifications=in_a_mass",
        "outside of a mass": "calcifications=outside_of_a_mass",
        "intraductal": "calcifications=intraductal",
        "indefinable": "calcifications=indefinable",
    },
    "skin_thickening": {"yes": "skin=thickened", "no": "skin=not_thickened"},
}
BUSCOT: Words = {
    "edge": {
        "Regular": "edge=regular",
        "PartiallyRegular": "edge=partially_regular",
        "Irregular": "edge=irregular",
    },
    "boundary": {
        "BoundaryClear": "boundary=clear",
        "BoundaryFairlyClear": "boundary=fairly_clear",
        "BoundarySomewhatUnclear": "boundary=somewhat_unclear",
        "BoundaryUnclear": "boundary=unclear",
    },
    "echo": {
        "LowEcho": "echo=hypoechoic",
        "SlightlyLowEcho": "echo=slightly_hypoechoic",
        "Isoechoic": "echo=isoechoic",
        "HighEcho": "echo=hyperechoic",
        "HeterogeneousEcho": "echo=heterogeneous",
        "CysticSolidMixedEcho": "echo=complex_cystic_and_solid",
        "NoEcho": "echo=anechoic",
    },
    "calcifications": {
        "NoCalcification": "calcifications=none",
        "Microcalcification": "calcifications=micro",
        "MultipleCalcifications": "calcifications=multiple",
        "MultipleClusteredMicrocalcifications": "calcifications=clustered_micro",
        "CoarseCalcification": "calcifications=coarse",
        "SuspectedCalcification": "calcifications=suspected",
    },
}
SOURCES: Mapping[str, Words] = {"breast": BREAST, "bus-cot": BUSCOT, "bus-bra": {}, "busi": {}}
NOT_CIRCUMSCRIBED = "not circumscribed - "


def levels_of(row: Lesion) -> Levels:
    """The levels of a picture.

    Whether calcifications were seen follows from their kind; suspected ones leave it open. A lesion
    of BrEaST with a shape is a mass; of other sets nothing says whether a lesion is one.

    Raises:
        InputError: a word of the set is not known, or the levels contradict each other.
    """
    values: dict[str, list[str]] = {}
    words = SOURCES.get(row.source)
    if words is None:
        known = ", ".join(SOURCES)
        raise InputError(row.id, "source", row.source, f"one of {known}", "add its words")
    for name, said in row.descriptors.items():
        for part in _parts(said):
            meant = words.get(name, {}).get(part)
            if meant is None:
                found, expected = f"{said!r}"[:80], f"one of {', '.join(words.get(name, {}))}"
                raise InputError(row.id, f"descriptors.{name}", found, expected, "add the word")
            field, _, value = meant.partition("=")
            values.setdefault(field, []).append(value)
    values["finding"] = [_finding(row, values)]
    if (kind := values.get("calcifications")) and kind != ["suspected"]:
        values["calcification"] = ["absent" if kind == ["none"] else "present"]
    values["category"] = [row.birads] if row.birads else []
    values["label"] = [row.label]
    split = "&" if row.source == "breast" else ", "
    names = [name.strip() for name in row.histopathology.split(split) if name.strip()]
    values["histopathology"] = [] if row.label == "normal" else names
    levels = Levels.of(values)
    levels.check(row.id)
    return levels


def _parts(said: str) -> Sequence[str]:
    return [part.strip() for part in said.removeprefix(NOT_CIRCUMSCRIBED).split("&")]


def _finding(row: Lesion, values: Mapping[str, Sequence[str]]) -> str:
    if row.label == "normal":
        return "none"
    return "mass" if row.source == "breast" and "shape" in values else "lesion"
