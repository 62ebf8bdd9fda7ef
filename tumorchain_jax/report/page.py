"""The report as one HTML page that needs nothing but itself.

No script but the viewer's own; `report/shell.py` has the frame that all pages share. Everything
that comes from a model, a user or a file is data and goes through `escape`.
"""

import re
from collections.abc import Iterable
from html import escape

import numpy as np

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.reasoning.trace import OrganMention, Outcome, Round, StopReason
from tumorchain_jax.report.cells import cell_mask
from tumorchain_jax.report.figures import figure
from tumorchain_jax.report.pictures import Colour, organ_colour, planes
from tumorchain_jax.report.record import NO_ANSWER, ReportRecord
from tumorchain_jax.report.scan_pictures import LESION_COLOUR, Cells, Outlined, ScanPictures
from tumorchain_jax.report.shell import page
from tumorchain_jax.report.tables import details, organs_table
from tumorchain_jax.report.verdict import Verdict
from tumorchain_jax.report.viewer import script, style, viewer
from tumorchain_jax.report.windows import window_filters
from tumorchain_jax.scan.crops import spacing_of

# What the pictures show: of the image as the model reads it, and of the scan itself.
CELLS_LEGEND = (
    "The outlines on the CT are the cells of the model's token grid that it read again for an "
    "organ, in the slices nearest to their centre."
)
SCAN_LEGEND = (
    "Pictures show the scan itself, in the slices where the organ is largest, or the true lesion "
    "if it is in that organ. Outlined is the organ's mask; tinted are the cells of the model's "
    "token grid that it read again for the organ."
)
LEGEND = (
    "Organs named in the text are marked. {pictures} Axial and coronal pictures show the patient's "
    "right on the left. The probability that an organ is abnormal comes from the organ classifier, "
    "not from the part of the model that writes the answer: the two may disagree."
)
# Characters of a page, so that it stays below 3 MB.
PAGE_LIMIT = 2_700_000
OUTCOMES: dict[Outcome, str] = {
    "looked_at": "looked at again",
    "already_seen": "already looked at",
    "not_in_mask": "not in the organ mask",
    "over_limit": "skipped, too many organs in one round",
    "stopped": "not looked at, the chain ended here",
}
NO_MASKS = "not looked at, there are no organ masks"
STOP_REASONS: dict[StopReason, str] = {
    "no_new_organ": "No further organ that the masks show was named, so the chain ended.",
    "max_rounds": "The chain ended at its limit of rounds.",
    "token_budget": "The chain ended because its token budget was spent.",
}
LESION_KEY = f'<span class="organ" style="--organ:rgba{(*LESION_COLOUR, 1)}">true lesion</span>'
_THINKING_TAG = re.compile(r"&lt;/?(?:think|answer)&gt;", re.IGNORECASE)

Colours = dict[int, Colour]


def render(report: ReportRecord) -> str:
    """Render the whole page."""
    shown = report.name, report.question, report.conclusion, report.truth, report.verdict
    pictures, colours = ScanPictures.of(report), _organ_colours(report)
    chain = _chain(report, pictures, colours)
    scan, code, more_style = "", "", ""
    if pictures is not None:
        scan = window_filters() + _viewer(report, pictures, colours, PAGE_LIMIT - len(chain))
        code, more_style = script(), style()
    seen = {mention.organ for each in report.trace.rounds for mention in looked_at(each)}
    content = f"""{heading(*shown)}
{_forced(report.forced)}
{_warnings(report.warnings)}
{scan}
<h2>The chain of reasoning</h2>
<p class="legend">{LEGEND.format(pictures=CELLS_LEGEND if pictures is None else SCAN_LEGEND)}</p>
{chain}
{organs_table(report, seen)}
{details(report)}"""
    return page(f"{report.name} · TumorChain report", content, code, more_style)


def heading(
    source: str,
    question: str,
    conclusion: str,
    truth: str | None,
    verdict: Verdict | None = None,
) -> str:
    """Show the scan, the question, the model's answer, and the truth if it is known.

    Args:
        verdict: how far the answer can be relied on; where it is none, the reason takes its place.
    """
    known = "" if truth is None else _statement("truth", "Synthetic truth", truth)
    return f"""<header>
<p class="source">{escape(source)}</p>
<h1 class="free-text">{escape(question)}</h1>
<div class="statements">
{_answer(conclusion or NO_ANSWER, verdict)}
{known}
</div>
</header>"""


def _answer(conclusion: str, verdict: Verdict | None) -> str:
    if verdict is None:
        return _statement("conclusion", "Model's answer", conclusion)
    behind = [f"{verdict.confidence.text}; {verdict.measured}."]
    if verdict.answered:
        return _statement("conclusion", "Model's answer", conclusion, behind)
    behind.insert(0, f"The model's text, not to be relied on: {conclusion}")
    return _statement("withheld", "No answer", verdict.reason, behind)


def _statement(name: str, title: str, text: str, behind: Iterable[str] = ()) -> str:
    lines = "".join(f'<p class="behind free-text">{escape(line)}</p>' for line in behind)
    return (
        f'<section class="statement {name}"><h2>{title}</h2>'
        f'<p class="free-text">{escape(text)}</p>{lines}</section>'
    )


def _warnings(warnings: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<section class="warnings"><h2>Warnings</h2><ul>{items}</ul></section>' if items else ""


def _forced(findings: Iterable[str]) -> str:
    """Say why the scan or its mask would have been refused without --force."""
    items = "".join(f"<li>{escape(finding)}</li>" for finding in findings)
    title = "Continued with --force: this scan or its mask is implausible"
    return f'<section class="warnings"><h2>{title}</h2><ul>{items}</ul></section>' if items else ""


def _viewer(report: ReportRecord, pictures: ScanPictures, colours: Colours, budget: int) -> str:
    """The viewer, opened where the lesion, or the organ that was looked at last, is largest."""
    seen = {m.label: m for each in report.trace.rounds for m in looked_at(each)}
    outlined = [Outlined(label, colours[label]) for label in seen]
    last = None if pictures.has_lesion or not seen else [*seen][-1]
    names = [_name(mention, colours) for mention in seen.values()]
    if pictures.has_lesion:
        names.append(LESION_KEY)
    key = f"Outlined: {', '.join(names)}." if names else "No organ was looked at."
    return viewer(report, pictures, outlined, pictures.best(last)[0], key, budget)


def _chain(report: ReportRecord, pictures: ScanPictures | None, colours: Colours) -> str:
    rounds = report.trace.rounds
    cards = []
    for number, each in enumerate(rounds, start=1):
        cards.append(_round(report, number, each, pictures, colours))
        if number < len(rounds):
            names = ", ".join(_name(mention, colours) for mention in looked_at(each))
            cards.append(f'<li class="link">looked again at: {names}</li>')
    end = STOP_REASONS[report.trace.stop_reason]
    return f'<ol class="chain">{"".join(cards)}<li class="end">{end}</li></ol>'


def _organ_colours(report: ReportRecord) -> Colours:
    """One colour an organ, in the order in which the chain names them."""
    labels = dict.fromkeys(mention.label for each in report.trace.rounds for mention in each.organs)
    return {label: organ_colour(rank) for rank, label in enumerate(labels)}


def _round(
    report: ReportRecord,
    number: int,
    each: Round,
    pictures: ScanPictures | None,
    colours: Colours,
) -> str:
    cut = "" if each.complete else '<p class="cut">This round was cut at its token limit.</p>'
    figures = [_organ_figure(report, mention, pictures, colours) for mention in looked_at(each)]
    if number == 1 and not figures:
        figures = [_whole_scan(report, pictures)]
    return f"""<li class="round"><article>
<h3>Round {number}</h3>
<p class="free-text">{_marked(report, each, colours)}</p>
{cut}{_other_organs(report, each, colours)}
<div class="figures">{"".join(figures)}</div>
</article></li>
"""


def looked_at(each: Round) -> list[OrganMention]:
    """Return the organs that the next round looked at, each once."""
    seen = {m.label: m for m in reversed(each.organs) if m.outcome == "looked_at"}
    return list(reversed(seen.values()))


def _outcome(report: ReportRecord, mention: OrganMention) -> str:
    """The outcome of a mention, in words."""
    without = report.masks is not None and report.masks.kind == "none"
    if without and mention.outcome == "not_in_mask":
        return NO_MASKS
    return OUTCOMES[mention.outcome]


def _marked(report: ReportRecord, each: Round, colours: Colours) -> str:
    """The round's text with the words that name organs marked; where two overlap, only the one
    that begins first (then the longer)."""
    named: dict[tuple[int, int], list[OrganMention]] = {}
    for mention in each.organs:
        named.setdefault(mention.span, []).append(mention)
    pieces, done = [], 0
    for start, end in sorted(named, key=lambda span: (span[0], -span[1])):
        if done <= start < end:
            pieces.append(_text(each.text[done:start]))
            pieces.append(_mark(report, each.text[start:end], named[start, end], colours))
            done = end
    return "".join(pieces) + _text(each.text[done:])


def _mark(report: ReportRecord, words: str, mentions: list[OrganMention], colours: Colours) -> str:
    """One mark; "kidneys" names two organs, whose colours share its underline."""
    title = ", ".join(f"{display_name(m.label)} ({_outcome(report, m)})" for m in mentions)
    share = 100 / len(mentions)
    stops = ", ".join(
        f"{_rgb(colours[mention.label])} {rank * share:.0f}% {(rank + 1) * share:.0f}%"
        for rank, mention in enumerate(mentions)
    )
    tint = _rgb(colours[mentions[0].label], alpha=0.18)
    style = f"--tint:{tint};--line:linear-gradient(to right, {stops})"
    return (
        f'<mark data-label="{mentions[0].label}" style="{style}" title="{escape(title)}">'
        f"{_text(words)}</mark>"
    )


def _text(text: str) -> str:
    """Escape a text; the tags around the reasoning are greyed."""
    return _THINKING_TAG.sub(r'<span class="tag">\g<0></span>', escape(text))


def _other_organs(report: ReportRecord, each: Round, colours: Colours) -> str:
    """List organs that were named but not looked at, and why."""
    seen = {mention.label for mention in looked_at(each)}
    reasons = dict.fromkeys(
        f"{_name(mention, colours)} ({_outcome(report, mention)})"
        for mention in each.organs
        if mention.label not in seen
    )
    return f'<p class="others">Also named: {", ".join(reasons)}.</p>' if reasons else ""


def _whole_scan(report: ReportRecord, pictures: ScanPictures | None) -> str:
    caption = "<strong>Whole scan</strong>: middle slices."
    if pictures is None:
        empty = np.zeros(report.transform.grid, bool)
        shown = planes(report.image, report.transform.to_world, empty, (0, 0, 0))
        return figure(shown, caption)
    if pictures.has_lesion:
        caption = f"<strong>Whole scan</strong>, where this is largest: {LESION_KEY}."
    return figure(pictures.planes(pictures.best(None), ()), caption)


def _organ_figure(
    report: ReportRecord, mention: OrganMention, pictures: ScanPictures | None, colours: Colours
) -> str:
    caption = f"<strong>{_name(mention, colours)}</strong>"
    box = report.box_mm(mention)
    if box is not None:
        edges = zip("xyz", box[:3], box[3:], strict=True)
        extent = ", ".join(f"{axis} {low:.0f} to {high:.0f}" for axis, low, high in edges)
        cells = len(mention.cells)
        caption += f": {cells} cell{'s' * (cells != 1)} within {extent} mm (RAS+)."
    view = report.view(mention)
    if view.name:
        through, *_, inside = spacing_of(view.transform)
        caption += f" Read in a crop at {through:.1f} x {inside:.1f} x {inside:.1f} mm a voxel."
    if mention.abnormal_probability is not None:
        caption += (
            f" Abnormal: {mention.abnormal_probability:.0%}, the organ classifier's probability, "
            "not a diagnosis."
        )
    colour = colours[mention.label]
    if pictures is None:
        mask = cell_mask(mention.cells, report.cells, view.transform.grid)
        return figure(planes(view.image, view.transform.to_world, mask, colour), caption)
    looked = Cells(view, cell_mask(mention.cells, report.cells, report.cells))
    at = pictures.best(mention.label)
    return figure(pictures.planes(at, [Outlined(mention.label, colour)], looked), caption)


def _name(mention: OrganMention, colours: Colours) -> str:
    style = f"--organ:{_rgb(colours[mention.label])}"
    return f'<span class="organ" style="{style}">{escape(display_name(mention.label))}</span>'


def _rgb(colour: Colour, alpha: float = 1.0) -> str:
    red, green, blue = colour
    return f"rgba({red}, {green}, {blue}, {alpha:g})"
