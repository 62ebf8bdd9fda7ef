"""`comparison.html` and `comparison.json`: a scan beside an earlier one of the same patient."""

import base64
import io
import json
from dataclasses import dataclass
from html import escape
from typing import Any

from PIL import Image

from tumorchain_jax import NOTICE
from tumorchain_jax.anatomy.organs import ORGANS, display_name
from tumorchain_jax.report.folder import CHANGES, COMPARISON, PAGE
from tumorchain_jax.report.pictures import organ_colour
from tumorchain_jax.report.record import ReportRecord
from tumorchain_jax.report.scan_pictures import Outlined, ScanPictures
from tumorchain_jax.report.shell import page
from tumorchain_jax.report.windows import WINDOWS
from tumorchain_jax.scan.registration import Registration
from tumorchain_jax.scan.volume import Volume

SHOWN = 4
"""Organs that are shown in pictures: those that the chains looked at, else the largest changes."""
LEGEND = (
    "Left the prior, moved onto the scan by a rotation and a shift; right the scan. The slice is "
    "where the organ is largest in the scan. Volumes are measured on each scan's own voxels."
)


@dataclass(frozen=True)
class OrganChange:
    """An organ in both scans.

    Attributes:
        name: in Table 10.
        before, after: volume in ml; None where the masks lack it.
        cut: whether it reaches the edge of either scan.
        dice: overlap of the two after registration, 0 to 1.
    """

    name: str
    before: float | None
    after: float | None
    cut: bool
    dice: float

    @property
    def percent(self) -> float | None:
        """Change of the volume in percent of the prior's; None if either is missing or cut."""
        if self.before is None or self.after is None or self.before == 0 or self.cut:
            return None
        return 100 * (self.after - self.before) / self.before


@dataclass(frozen=True)
class Comparison:
    """Two reports of one question, and how the scans lie to each other.

    Attributes:
        placed: the prior on the scan's voxels, HU.
        labels: the prior's label map on them; None without masks.
        organs: of both, in the order of Table 10.
        warnings: one line each.
    """

    prior: ReportRecord
    now: ReportRecord
    registration: Registration
    placed: Volume
    labels: Volume | None
    organs: tuple[OrganChange, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of `comparison.json`."""
        return {
            "question": self.now.question,
            "scan": self.now.source,
            "prior": self.prior.source,
            "answer": {"prior": self.prior.headline, "scan": self.now.headline},
            "registration": {
                "to_prior": self.registration.to_prior.tolist(),
                "degrees": self.registration.degrees,
                "shift_mm": self.registration.shift_mm,
                "mutual_information": self.registration.similarity,
            },
            "organs": {
                each.name: {
                    "prior_ml": each.before,
                    "scan_ml": each.after,
                    "percent": each.percent,
                    "cut": each.cut,
                    "dice": each.dice,
                }
                for each in self.organs
            },
            "warnings": list(self.warnings),
            "notice": NOTICE,
        }


def comparison_files(made: Comparison) -> dict[str, bytes]:
    """Make the two files of a comparison, by their names in the report's folder."""
    record = json.dumps(made.to_dict(), indent=2, ensure_ascii=False) + "\n"
    return {
        CHANGES: record.encode("utf-8", "replace"),
        COMPARISON: _page(made).encode("utf-8", "replace"),
    }


def _page(made: Comparison) -> str:
    same = made.prior.headline == made.now.headline
    answers = (
        f"<table><tr><th>Prior</th><td class='free-text'>{escape(made.prior.headline)}</td></tr>"
        f"<tr><th>Scan</th><td class='free-text'>{escape(made.now.headline)}</td></tr></table>"
        f"<p>{'The answers are the same.' if same else 'The answers differ.'}</p>"
    )
    warnings = "".join(f"<li>{escape(each)}</li>" for each in made.warnings)
    found = made.registration
    content = f"""<header>
<p class="source">{escape(made.now.name)} and its prior {escape(made.prior.name)}</p>
<h1 class="free-text">{escape(made.now.question)}</h1>
</header>
{answers}
<ul class="warnings">{warnings}</ul>
<h2>Volumes</h2>
{_table(made)}
<h2>Pictures</h2>
<p class="legend">{LEGEND} The prior was turned by {found.degrees:.1f} degrees and moved by
{found.shift_mm:.1f} mm.</p>
{_pictures(made)}
<p class="legend"><a href="{PAGE}">The report of the scan alone</a></p>"""
    return page(f"{made.now.name} and its prior · TumorChain report", content)


def _table(made: Comparison) -> str:
    if not made.organs:
        return "<p>No organ was segmented in both.</p>"
    heads = ("Organ", "Prior (ml)", "Scan (ml)", "Change", "Overlap (Dice)")
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    rows = "".join(_row(each) for each in made.organs)
    return f'<table class="index"><tr>{head}</tr>{rows}</table>'


def _row(each: OrganChange) -> str:
    name = display_name(ORGANS.index(each.name))
    values = ["" if ml is None else f"{ml:.1f}" for ml in (each.before, each.after)]
    change = "cut" if each.cut else "" if each.percent is None else f"{each.percent:+.1f} %"
    cells = "".join(f"<td>{value}</td>" for value in (*values, change, f"{each.dice:.2f}"))
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'


def _pictures(made: Comparison) -> str:
    assert made.now.ct is not None
    now = ScanPictures(made.now.ct, made.now.labels)
    prior = ScanPictures(made.placed, made.labels)
    figures = []
    for rank, label in enumerate(_labels(made)):
        at = now.best(label)[0]
        outlined = [Outlined(label, organ_colour(rank))] if label else []
        pair = [each.rgb(0, at, outlined, WINDOWS["soft"]) for each in (prior, now)]
        name = display_name(label) if label else "middle slice"
        figures.append(
            f'<figure><img src="{_uri(pair)}" alt="{escape(name)}: prior and scan" '
            f'style="width:100%"><figcaption>{escape(name)}</figcaption></figure>'
        )
    return "\n".join(figures)


def _labels(made: Comparison) -> list[int]:
    """The organs to show: 0 stands for none."""
    looked = [
        mention.label
        for report in (made.now, made.prior)
        for each in report.rounds
        for mention in each.organs
        if mention.outcome == "looked_at"
    ]
    by_change = sorted(made.organs, key=lambda each: -abs(each.percent or 0))
    order = dict.fromkeys([*looked, *(ORGANS.index(each.name) for each in by_change)])
    return [*order][:SHOWN] or [0]


def _uri(pair: list[Image.Image]) -> str:
    first, second = pair
    whole = Image.new("RGB", (first.width + 8 + second.width, max(first.height, second.height)))
    whole.paste(first, (0, 0))
    whole.paste(second, (first.width + 8, 0))
    buffer = io.BytesIO()
    whole.save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
