"""Questions in our own words about what was measured, with options.

No sentence is the benchmark's. A definition that a reader needs to give the exact answer stands in
the question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tumorchain_jax.anatomy.organs import LIVER
from tumorchain_jax.anatomy.substructures import SEGMENTS
from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import Measured, organ_name
from tumorchain_jax.evaluation.deeptumorvqa.ruler.rules import GRADES, GROUPS, answer
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES

DIGITS = {"volume": 1, "HU": 1, "ratio": 2, "percent": 1, "length": 1, "count": 0}
STEPS = (0.7, 0.8, 0.9, 1.1, 1.2, 1.3)
"""Wrong numbers are the truth times one of these, as in the benchmark's sister set."""
_YES_NO = ("Yes", "No")
_LARGEST = "the largest lesion of the {0}"
_SOLID = "the largest solid lesion of the pancreas"
_TEXTS = {
    "PDAC existence": "Does the pancreas hold a ductal adenocarcinoma (solid, darker than it)?",
    "PNET existence": "Does the pancreas hold a neuroendocrine tumor (solid, brighter than it)?",
    "colon lesion existence": "Does the colon hold a lesion?",
    "kidney cyst existence": "Does a kidney hold a cyst?",
    "kidney lesion existence": "Does a kidney hold a lesion?",
    "kidney tumor existence": "Does a kidney hold a solid tumor?",
    "liver lesion existence": "Does the liver hold a lesion?",
    "pancreatic lesion existence": "Does the pancreas hold a lesion?",
    "splenomegaly detection": "Is the spleen larger than 314.5 cm3?",
    "lesion volume measurement": f"What is the volume of {_LARGEST}, in cm3?",
    "organ HU measurement": "What is the mean HU of the {0}, without its lesions?",
    "organ HU ratio": "What is the ratio of the mean HU of the {0} to that of the {1}?",
    "organ volume measurement": "What is the volume of the {0}, in cm3?",
    "tumor burden percentage": "What share of the {0} is lesion, in percent of its volume?",
    "adjacent organ": f"Which of these organs is nearest to {_LARGEST}?",
    "bilateral kidney asymmetry": "Which kidney holds the larger volume of lesions (equal: within "
    "10 %)?",
    "inter-segment comparison": "Which part of the liver holds the most lesions?",
    "kidney volume comparison": "Which kidney has the larger volume (equal: within 10 %)?",
    "largest lesion attenuation": f"How does {_LARGEST} compare with the organ around it (the "
    "same: within 10 HU)?",
    "largest lesion diameter": f"What is the longest diameter of {_LARGEST}, in cm?",
    "largest lesion location": f"In which part is {_LARGEST}?",
    "largest lesion slice": f"Which slice shows most of {_LARGEST}, in percent of the slices from "
    "the feet up?",
    "lesion count by location": "How many lesions lie in this part of the liver: {0}?",
    "lesion counting": "How many lesions does the CT show in the {0}?",
    "lesion outlier": f"Is {_LARGEST} at least three times the volume of the second?",
    "liver lesion clustering": "How are the lesions spread over the parts of the liver (highly: "
    "over half in one; somewhat: at least 75 % in two)?",
    "multi-organ lesion burden comparison": "Which organ holds the largest volume of lesions?",
    "organ aggregation": "What is the volume of {0} and {1} together, in cm3?",
    "organ enlargement": "Is the {0} enlarged?",
    "tumor organ HU difference": f"What is the mean HU of {_LARGEST} less that of the organ "
    "around it?",
    "PDAC vs PNET classification": f"Of which kind is {_SOLID}?",
    "fatty liver": "Is the liver fatty (mean HU less than that of the spleen)?",
    "hepatic steatosis grading": "Of which grade is the steatosis of the liver, by its mean HU "
    "(58, 51, 39)?",
    "lesion type classification": "Of which type is the largest lesion of the kidneys?",
    "pancreatic cyst resectability": "Should the largest cyst of the pancreas be resected (over "
    "3 cm3 or 3 cm)?",
    "pancreatic lesion resectability": f"Is {_SOLID} resectable, by its contact with great "
    "vessels (none, to 180 degrees, more)?",
    "pancreatic steatosis": "Is the pancreas fatty (mean HU below 0.7 of the spleen's)?",
    "pancreatic tumor staging": f"Of which T stage is {_SOLID}?",
    "portal hypertension assessment": "Are there signs of portal hypertension (spleen over 314.5 "
    "cm3, liver at most 1800 cm3)?",
    "pseudocyst determination": "Is the largest cyst of the pancreas a pseudocyst (over 14.5 HU)?",
    "renal mass characterization": "Is the largest lesion of the kidneys solid or cystic (limit: "
    "34.8 HU)?",
    "splenomegaly grading": "How large is the spleen (limits: 314.5, 500, 800 cm3)?",
}
"""Subtype -> question; {0} and {1} are what it is about."""
_ORGANS = tuple((n,) for n in ("liver", "spleen", "pancreas", "right kidney", "left kidney"))
_WITH_LESIONS = (("liver",), ("pancreas",), ("kidneys",), ("colon",))
_ABOUT: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(
        (
            "lesion volume measurement",
            "tumor burden percentage",
            "adjacent organ",
            "largest lesion diameter",
            "largest lesion slice",
            "lesion counting",
        ),
        _WITH_LESIONS,
    ),
    **dict.fromkeys(
        ("organ HU measurement", "organ volume measurement", "organ enlargement"), _ORGANS
    ),
    "organ HU ratio": (("liver", "spleen"), ("pancreas", "spleen")),
    "organ aggregation": (
        ("right kidney", "left kidney"),
        ("liver", "spleen"),
        ("pancreas", "spleen"),
    ),
    "largest lesion attenuation": (("liver",), ("pancreas",)),
    "tumor organ HU difference": (("liver",), ("pancreas",)),
    "largest lesion location": (("liver",), ("pancreas",), ("colon",)),
    "lesion outlier": (("liver",), ("kidneys",)),
    "lesion count by location": tuple((name,) for name in SEGMENTS[LIVER]),
}
"""Subtype -> what it may be about, where that is open."""
_CATEGORIES: dict[str, tuple[str, ...]] = {
    "bilateral kidney asymmetry": ("Left kidney", "Right kidney", "Both about equal"),
    "kidney volume comparison": ("Left", "Right", "About equal"),
    "largest lesion attenuation": ("Hypoattenuating", "Isoattenuating", "Hyperattenuating"),
    "liver lesion clustering": ("Highly clustered", "Somewhat clustered", "Widely distributed"),
    "multi-organ lesion burden comparison": ("Liver", "Pancreas", "Kidneys", "Colon"),
    "PDAC vs PNET classification": ("PDAC", "PNET"),
    "fatty liver": ("Normal", "Fatty"),
    "hepatic steatosis grading": tuple(f"Grade {number}" for number in range(4)),
    "lesion type classification": ("Cyst", "Tumor"),
    "pancreatic lesion resectability": ("Resectable", "Borderline resectable", "Unresectable"),
    "pancreatic tumor staging": ("T1", "T2", "T3", "T4"),
    "renal mass characterization": ("Solid", "Cystic"),
    "splenomegaly grading": GRADES,
}


@dataclass(frozen=True)
class Asked:
    """A question with its answer.

    Attributes:
        about: the organs or the part that it is about.
        answer: as text.
        options: shuffled; the answer is one of them.
    """

    subtype: str
    about: tuple[str, ...]
    question: str
    answer: str
    options: tuple[str, ...]


def ask_all(measured: Measured, rng: np.random.Generator) -> Iterator[Asked]:
    """Ask at most one question of each subtype, about a part that has an answer."""
    for subtype, text in _TEXTS.items():
        abouts = _ABOUT.get(subtype)
        for about in rng.permutation(np.array(abouts)).tolist() if abouts else [()]:
            value = answer(measured, subtype, about)
            options = None if value is None else _options(measured, subtype, about, value, rng)
            if value is None or options is None:
                continue
            question = text.format(*about)
            shuffled = tuple(rng.permutation(np.array(options)).tolist())
            yield Asked(subtype, tuple(about), question, options[0], shuffled)
            break


def _options(
    measured: Measured,
    subtype: str,
    about: Sequence[str],
    value: str | float,
    rng: np.random.Generator,
) -> list[str] | None:
    """Return the options, the answer first; None where there are not two that differ."""
    kind = SUBTYPES[subtype]
    if isinstance(value, float):
        assert kind.quantity is not None
        return _numbers(value, DIGITS[kind.quantity], rng)
    if kind.kind == "binary":
        others: Sequence[str] = _YES_NO
    elif subtype == "adjacent organ":
        others = _farther(measured, about[0], rng)
    elif subtype in ("largest lesion location", "inter-segment comparison"):
        organ = LIVER if subtype == "inter-segment comparison" else GROUPS[about[0]][0]
        names = [name[:1].upper() + name[1:] for name in SEGMENTS[organ]]
        others = [name for name in rng.permutation(np.array(names)).tolist() if name != value][:3]
    else:
        others = _CATEGORIES[subtype]
    options = [value, *(option for option in others if option != value)]
    return options if len(options) > 1 else None


def _farther(measured: Measured, name: str, rng: np.random.Generator) -> list[str]:
    """Organs that are clearly farther from the largest lesion than the nearest."""
    lesion = next(each for each in measured.lesions if each.organ in GROUPS[name])
    nearest = min(lesion.neighbours.values())
    far = [organ for organ, mm in lesion.neighbours.items() if mm > nearest + 3]
    names = [organ_name(organ) for organ in rng.permutation(np.array(far, int)).tolist()]
    return [each[:1].upper() + each[1:] for each in names[:3]]


def _numbers(value: float, digits: int, rng: np.random.Generator) -> list[str] | None:
    """Write a number and three others that are 10 to 30 % off; near 0 by whole steps."""
    truth = _written(value, digits)
    others = [_written(value * float(step), digits) for step in rng.permutation(np.array(STEPS))]
    others += [_written(value + sign * n, digits) for n in (1, 2, 3) for sign in (1, -1)]
    sound = [o for o in dict.fromkeys(others) if o != truth and (digits or not o.startswith("-"))]
    return [truth, *sound[:3]]


def _written(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text
