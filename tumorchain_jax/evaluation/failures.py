"""HTML page of wrong chains: question, image, text and truth, sorted by kind of error.

The kinds are this project's; each description names the kind of the paper (section 13.2) in it.
"""

from collections.abc import Sequence
from html import escape
from itertools import zip_longest

import numpy as np

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.data.dataset import ModelScan
from tumorchain_jax.evaluation.items import Item
from tumorchain_jax.evaluation.patients import Patients
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.phantoms.incidental import LOOK_ALIKE
from tumorchain_jax.reasoning.answer_values import NONE
from tumorchain_jax.reasoning.prompt import with_choices
from tumorchain_jax.reasoning.trace import OrganMention
from tumorchain_jax.report.cells import cell_mask
from tumorchain_jax.report.conclusion import parse_conclusion
from tumorchain_jax.report.figures import figure
from tumorchain_jax.report.page import heading, looked_at
from tumorchain_jax.report.pictures import organ_colour, planes
from tumorchain_jax.report.report import Report
from tumorchain_jax.report.shell import page
from tumorchain_jax.scan.preprocess import resample_labels
from tumorchain_jax.scan.volume import Volume

SHOWN = 20
SEEN, TRUE = organ_colour(0), organ_colour(1)
KINDS = {
    "false alarm": (
        "It names a tumour where there is none. The paper's first kind, false positives due to "
        "similar appearance, is among these; look-alikes in the scan are listed under the picture."
    ),
    "missed": (
        "It finds nothing where there is a tumour. The paper's second kind, small lesions missed "
        "at an organ's border, is among these."
    ),
    "wrong organ": (
        "It finds the tumour, but in another organ. The paper's third kind: a tumour that presses "
        "on the organ beside its own."
    ),
    "wrong part": "The part of the organ, or the third of the scan, is wrong.",
    "wrong attribute": "Shape, border, density, count or another attribute of the lesion is wrong.",
    "wrong stage": "The T, N or M category is wrong.",
    "no answer": "Nothing that was asked for can be read in what it concludes.",
}
_KIND_OF_TASK = {
    "position": "wrong part",
    "lesion_attributes": "wrong attribute",
    "tnm_prediction": "wrong stage",
}
Failure = tuple[int, Item]
"""A patient's number, and the wrong answer to one of its questions."""


def kind_of(item: Item) -> str:
    """Classify a wrong answer as one of the `KINDS`."""
    if not item.parsed:
        return "no answer"
    (truth, *truths), (said, *others) = item.truth.split("; "), item.parsed.split("; ")
    if item.subtask in ("tumor_position", "cot_report"):
        if truth in (NONE, "no"):
            return "false alarm"
        if truth == "yes" or said in (NONE, "-"):
            return "missed"
        if truth != said:
            return "wrong organ"
        wrong = next(true for true, other in zip(truths, others, strict=True) if true != other)
        return "wrong stage" if wrong[0] in "TNM" else "wrong part"
    if said == NONE and item.subtask != "others":
        return "missed"
    if item.subtask == "segment_localization":
        return "wrong part"
    return _KIND_OF_TASK[item.task]


def choose(items: Sequence[Sequence[Item]], count: int = SHOWN) -> list[Failure]:
    """Choose the first wrong answer of each patient in each kind, a kind in turn, up to `count`.

    Args:
        items: of each patient.

    Returns:
        sorted by kind.
    """
    wrong: dict[str, dict[int, Item]] = {kind: {} for kind in KINDS}
    for number, of_patient in enumerate(items):
        for item in of_patient:
            if not item.right:
                wrong[kind_of(item)].setdefault(number, item)
    turns = zip_longest(*(of_kind.items() for of_kind in wrong.values()))
    chosen = [failure for turn in turns for failure in turn if failure is not None][:count]
    return sorted(chosen, key=lambda failure: list(KINDS).index(kind_of(failure[1])))


def failures_page(
    analyzer: Analyzer, patients: Patients, items: Sequence[Sequence[Item]], count: int = SHOWN
) -> str:
    """Make the page; the chosen questions are asked once more, for their chains.

    Args:
        items: the answers of each of `patients`.
    """
    chosen = choose(items, count)
    cases = [
        (patients[number][0], with_choices(item.question, item.choices)) for number, item in chosen
    ]
    shown: dict[str, list[str]] = {}
    for (number, item), report in zip(chosen, analyzer.batch(cases), strict=True):
        section = _failure(item, report, patients.truth(number))
        shown.setdefault(kind_of(item), []).append(section)
    asked = [item for of_patient in items for item in of_patient]
    wrong = [kind_of(item) for item in asked if not item.right]
    kinds = "".join(
        f"<h2>{kind.capitalize()} ({wrong.count(kind)} answers)</h2>"
        f'<p class="legend">{escape(KINDS[kind])}</p>{"".join(sections)}'
        for kind, sections in shown.items()
    )
    return page("Where the model is wrong · TumorChain", _header(len(asked), wrong, chosen) + kinds)


def _header(asked: int, wrong: Sequence[str], chosen: Sequence[Failure]) -> str:
    counts = ", ".join(f"{wrong.count(kind)} {kind}" for kind in KINDS if kind in wrong)
    return f"""<header>
<h1>Where the model is wrong</h1>
<p class="legend">All patients here are synthetic. {len(wrong)} of {asked} answers are wrong:
{counts or "none"}. Shown are {len(chosen)}, not picked by hand: in the order of the patients, a
kind in turn, of each patient no more than one a kind. Pictures are the axial slice through the
middle of the tumour, or of the scan where there is none, as the model's grid has it; the patient's
right is on the left.</p>
</header>"""


def _failure(item: Item, report: Report, truth: ModelScan) -> str:
    again = ""
    if report.answer != item.answer:
        again = '<p class="legend">Asked again for this page, the model wrote another text.</p>'
    source = f"{item.patient} · {item.subtask.replace('_', ' ')}"
    question = with_choices(item.question, item.choices)
    return f"""<section>
{heading(source, question, parse_conclusion(item.answer), item.truth)}
{_pictures(report, truth)}
{again}{_chain(report)}
</section>
"""


def _pictures(report: Report, truth: ModelScan) -> str:
    """Draw the slice twice: with the cells that were looked at last, and with the truth."""
    looks = [mentions for each in report.trace.rounds if (mentions := looked_at(each))]
    last: list[OrganMention] = looks[-1] if looks else []
    seen = np.zeros(report.transform.grid, bool)
    for mention in last:
        seen |= _on_scan(report, mention)
    tumour, look_alike = truth.lesions > 0, truth.others == LOOK_ALIKE
    true = tumour if tumour.any() else look_alike
    slices = [
        planes(report.image, report.transform.to_world, mask, colour, through=true)[0]
        for mask, colour in ((seen, SEEN), (true, TRUE))
    ]
    looked = ", ".join(display_name(mention.label) for mention in last) or "nothing"
    outlined = f"the tumour ({_organs(truth, tumour)})"
    if not tumour.any():
        outlined = "a look-alike" if look_alike.any() else "nothing, there is no tumour"
    caption = (
        f"Outlined at the left: the cells looked at last ({looked}); at the right: {outlined}."
    )
    if look_alike.any():
        caption += f" Look-alikes (cysts, calcifications): {_organs(truth, look_alike)}."
    return figure(slices, escape(caption))


def _on_scan(report: Report, mention: OrganMention) -> np.ndarray:
    """The ROI cells of an organ, bool `[D, H, W]` on the scan's grid."""
    view = report.view(mention)
    mask = cell_mask(mention.cells, report.cells, view.transform.grid)
    if mention.crop is None:
        return mask
    cells = Volume(mask.astype(np.uint8), view.transform.to_world)
    return resample_labels(cells, report.transform) > 0


def _organs(truth: ModelScan, mask: np.ndarray) -> str:
    labels = np.unique(truth.labels[mask])
    return ", ".join(display_name(label) for label in labels.tolist() if label) or "no organ"


def _chain(report: Report) -> str:
    cards = []
    for number, each in enumerate(report.trace.rounds, start=1):
        looked = ", ".join(display_name(mention.label) for mention in looked_at(each))
        cards.append(
            f'<li class="round"><article><h3>Round {number}</h3>'
            f'<p class="free-text">{escape(each.text)}</p></article></li>'
        )
        if looked:
            cards.append(f'<li class="link">looked again at: {escape(looked)}</li>')
    return f'<ol class="chain">{"".join(cards)}</ol>'
