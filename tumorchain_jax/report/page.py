"""The report as one HTML page that needs nothing but itself.

No script, no network. Everything that comes from a model, a user or a file is data and goes
through `escape`; the page's policy forbids all else as a second line of defence.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files

from tumorchain_jax import NOTICE
from tumorchain_jax.anatomy.organs import ORGANS, display_name
from tumorchain_jax.reasoning.trace import OrganMention, Outcome, Round, StopReason
from tumorchain_jax.report.cells import cell_mask
from tumorchain_jax.report.pictures import Colour, Picture, organ_colour, planes
from tumorchain_jax.report.record import NO_ANSWER, ReportRecord, View
from tumorchain_jax.report.verdict import Verdict
from tumorchain_jax.scan.crops import spacing_of
from tumorchain_jax.segmentation.masks import MaskOrigin
from tumorchain_jax.segmentation.statistics import OrganStatistics

# Limit on the height of a picture: that of a long scan would fill the screen and more.
TALLEST_REM = 28
LEGEND = (
    "Organs named in the text are marked. The outlines on the CT are the cells of the model's "
    "token grid that it read again for an organ, in the slices nearest to their centre. Axial and "
    "coronal pictures show the patient's right on the left. The probability that an organ is "
    "abnormal comes from the organ classifier, not from the part of the model that writes the "
    "answer: the two may disagree."
)
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
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
_THINKING_TAG = re.compile(r"&lt;/?(?:think|answer)&gt;", re.IGNORECASE)

Colours = dict[int, Colour]


def render(report: ReportRecord) -> str:
    """Render the whole page."""
    shown = report.name, report.question, report.conclusion, report.truth, report.verdict
    content = f"""{heading(*shown)}
{_forced(report.forced)}
{_warnings(report.warnings)}
<h2>The chain of reasoning</h2>
<p class="legend">{LEGEND}</p>
{_chain(report)}
{_organs(report)}
{_details(report)}"""
    return page(f"{report.name} · TumorChain report", content)


def page(title: str, content: str) -> str:
    """Put content into a whole page, between two notices.

    Args:
        content: HTML.
    """
    style = files("tumorchain_jax.report").joinpath("page.css").read_text("utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<p class="notice">{escape(NOTICE)}</p>
{content}
<p class="notice">{escape(NOTICE)}</p>
</main>
</body>
</html>
"""


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


def _chain(report: ReportRecord) -> str:
    colours = _organ_colours(report)
    rounds = report.trace.rounds
    cards = []
    for number, each in enumerate(rounds, start=1):
        cards.append(_round(report, number, each, colours))
        if number < len(rounds):
            names = ", ".join(_name(mention, colours) for mention in looked_at(each))
            cards.append(f'<li class="link">looked again at: {names}</li>')
    end = STOP_REASONS[report.trace.stop_reason]
    return f'<ol class="chain">{"".join(cards)}<li class="end">{end}</li></ol>'


def _organ_colours(report: ReportRecord) -> Colours:
    """One colour an organ, in the order in which the chain names them."""
    labels = dict.fromkeys(mention.label for each in report.trace.rounds for mention in each.organs)
    return {label: organ_colour(rank) for rank, label in enumerate(labels)}


def _round(report: ReportRecord, number: int, each: Round, colours: Colours) -> str:
    cut = "" if each.complete else '<p class="cut">This round was cut at its token limit.</p>'
    pictures = [_organ_pictures(report, mention, colours) for mention in looked_at(each)]
    if number == 1 and not pictures:
        scan, caption = report.scan, "<strong>Whole scan</strong>: middle slices."
        pictures = [_figure(scan, report.cells, (), (0, 0, 0), caption)]
    return f"""<li class="round"><article>
<h3>Round {number}</h3>
<p class="free-text">{_marked(report, each, colours)}</p>
{cut}{_other_organs(report, each, colours)}
{"".join(pictures)}
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
    return f'<mark style="{style}" title="{escape(title)}">{_text(words)}</mark>'


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


def _organ_pictures(report: ReportRecord, mention: OrganMention, colours: Colours) -> str:
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
    return _figure(view, report.cells, mention.cells, colours[mention.label], caption)


def _figure(
    view: View, grid: tuple[int, int, int], cells: tuple[int, ...], colour: Colour, caption: str
) -> str:
    mask = cell_mask(cells, grid, view.transform.grid)
    return figure(planes(view.image, view.transform.to_world, mask, colour), caption)


def figure(pictures: Sequence[Picture], caption: str) -> str:
    """Show pictures of one scale side by side.

    Args:
        caption: HTML.
    """
    shown = "\n".join(_picture(picture) for picture in pictures)
    widths = sum(picture.width for picture in pictures)
    limit = TALLEST_REM * widths / max(picture.height for picture in pictures)
    return f"""<figure>
<div class="planes" style="max-width:{limit:.0f}rem">
{shown}
</div>
<figcaption>{caption}</figcaption>
</figure>
"""


def _picture(picture: Picture) -> str:
    places = ("left", "right", "top", "bottom")
    sides = "".join(
        f'<span class="side {place}">{side}</span>'
        for place, side in zip(places, picture.sides, strict=True)
    )
    # Equal mm per pixel in all three: their widths share the row by their pixels.
    return (
        f'<div class="plane" style="flex-grow:{picture.width}">'
        f'<div class="slice"><img src="{picture.uri}" alt="{picture.plane} slice" '
        f'width="{picture.width}" height="{picture.height}">{sides}</div>'
        f"<span>{picture.plane}</span></div>"
    )


def _name(mention: OrganMention, colours: Colours) -> str:
    style = f"--organ:{_rgb(colours[mention.label])}"
    return f'<span class="organ" style="{style}">{escape(display_name(mention.label))}</span>'


def _rgb(colour: Colour, alpha: float = 1.0) -> str:
    red, green, blue = colour
    return f"rgba({red}, {green}, {blue}, {alpha:g})"


def _organs(report: ReportRecord) -> str:
    """Show measurements of the organs that were looked at; the others are folded away."""
    if not report.organs:
        return ""
    seen = {mention.organ for each in report.trace.rounds for mention in looked_at(each)}
    looked = {name: organ for name, organ in report.organs.items() if name in seen}
    rest = {name: organ for name, organ in report.organs.items() if name not in seen}
    shown = _measurements(looked) if looked else ""
    folded = f"<details><summary>{len(rest)} other organs</summary>{_measurements(rest)}</details>"
    return f"""<section class="organs">
<h2>Organ measurements</h2>
<p class="legend">{escape(_mask_source(report.masks))} "At the edge": the organ
reaches the edge of the scan, and part of it may lie outside.</p>
{shown}{folded if rest else ""}
</section>"""


def _mask_source(masks: MaskOrigin | None) -> str:
    if masks is None:
        return ""
    if masks.kind == "none":
        return "There are no masks."
    if masks.kind == "given":
        return f"The masks come from the label map {masks.source}."
    return f"The masks were segmented automatically and nobody has reviewed them: {masks.source}."


def _mask_identities(masks: MaskOrigin | None) -> dict[str, str]:
    """The source of the masks, and each model's SHA-256 or another program's version."""
    if masks is None:
        return {"organ masks": "not known"}
    parts = {f"masks by {part}": identity for part, identity in masks.weights.items()}
    return {"organ masks": _mask_source(masks)} | parts


def _measurements(organs: Mapping[str, OrganStatistics]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(display_name(ORGANS.index(name)))}</th>'
        f"<td>{organ.volume_ml:,.1f}</td>"
        f"<td>{'' if organ.mean_hu is None else f'{organ.mean_hu:.1f}'}</td>"
        f"<td>{'at the edge' if organ.cut else ''}</td></tr>"
        for name, organ in organs.items()
    )
    heads = "".join(
        f'<th scope="col">{head}</th>' for head in ("Organ", "Volume, ml", "Mean density, HU", "")
    )
    return f'<table class="numbers"><tr>{heads}</tr>{rows}</table>'


def _details(report: ReportRecord) -> str:
    run = {
        "scan": report.source,
        "model": report.model,
        "weights (sha256)": report.weights_sha256,
        **_mask_identities(report.masks),
        "device": report.device,
        "seed": report.seed,
    }
    tokens = {
        f"round {number}": f"{each.tokens_in} read, {each.tokens_out} written, "
        f"mean log-probability {each.mean_log_probability:.2f}"
        for number, each in enumerate(report.trace.rounds, start=1)
    }
    seconds = {stage: f"{value:.2f} s" for stage, value in report.seconds.items()}
    return f"""<details>
<summary>Details: model, time, tokens, preprocessing, versions</summary>
{_table("Run", run)}
{_table("Time", seconds)}
{_table("Tokens", tokens)}
{_table("Preprocessing", report.to_dict()["preprocessing"])}
{_table("Versions", report.versions)}
</details>"""


def _table(title: str, values: dict) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(str(key))}</th><td>{escape(_cell(value))}</td></tr>'
        for key, value in values.items()
    )
    return f"<table><caption>{title}</caption>{rows}</table>"


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
