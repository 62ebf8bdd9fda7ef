"""Charts of the report: ROC curve, reliability of stated probabilities, shares, as SVG.

Shape letters: N lesions.
"""

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from tumorchain_jax.evaluation.auc import reliability

SIDE, EDGE = 260, 40


def roc_svg(labels: Bool[np.ndarray, " N"], scores: Float[np.ndarray, " N"]) -> str:
    """ROC curve; lesions of one score are one step."""
    cuts = [*np.unique(scores)[::-1]]
    hits = [(scores[labels] >= cut).mean() for cut in cuts]
    alarms = [(scores[~labels] >= cut).mean() for cut in cuts]
    points = [(0.0, 0.0), *zip(alarms, hits, strict=True)]
    path = "M" + "L".join(f"{_x(x)} {_y(y)}" for x, y in points)
    drawn = f'<path d="{path}" fill="none" stroke="#1f5f8b" stroke-width="2"/>'
    return _frame("ROC curve", "1 - specificity", "sensitivity", drawn)


def reliability_svg(labels: Bool[np.ndarray, " N"], scores: Float[np.ndarray, " N"]) -> str:
    """Share of malignant lesions by stated probability, in ten bins; larger dots: more lesions."""
    means, shares, counts = reliability(labels, scores)
    dots = "".join(
        f'<circle cx="{_x(x)}" cy="{_y(y)}" r="{2 + 10 * np.sqrt(n / counts.sum()):.1f}" '
        'fill="#1f5f8b" fill-opacity="0.6"/>'
        for x, y, n in zip(means, shares, counts, strict=True)
    )
    return _frame("Reliability", "stated probability", "malignant", dots)


def shares_svg(title: str, rows: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Shares with their 95 % intervals, one row each; a share that is undefined is said so."""
    drawn, height = [], 34
    for number, (name, row) in enumerate(rows.items()):
        y = 30 + height * number
        drawn.append(f'<text x="4" y="{y + 4}">{escape(name)}</text>')
        if row is None or row["value"] is None:
            drawn.append(f'<text x="150" y="{y + 4}">undefined</text>')
            continue
        low, value, high = (
            150 + 260 * (row["value"] if each is None else each)
            for each in (row["ci95"][0], row["value"], row["ci95"][1])
        )
        drawn.append(
            f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="#1f5f8b" stroke-width="2"/>'
            f'<circle cx="{value:.1f}" cy="{y}" r="5" fill="#1f5f8b"/>'
            f'<text x="420" y="{y + 4}">{row["value"]:.2f}</text>'
        )
    foot = 30 + height * len(rows)
    ticks = "".join(
        f'<path d="M{x} 12V{foot - 10}" stroke="#ddd"/>'
        f'<text x="{x}" y="{foot + 6}" text-anchor="middle">{share}</text>'
        for share, x in ((0, 150), (0.5, 280), (1, 410))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 470 {foot + 14}" width="470" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">'
        f'<rect width="100%" height="100%" fill="white"/>{ticks}{"".join(drawn)}</svg>'
    )


def _x(share: float) -> str:
    return f"{EDGE + SIDE * share:.1f}"


def _y(share: float) -> str:
    return f"{EDGE / 2 + SIDE * (1 - share):.1f}"


def _frame(title: str, below: str, beside: str, drawn: str) -> str:
    whole = SIDE + 2 * EDGE
    foot, middle = EDGE / 2 + SIDE, EDGE + SIDE / 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}" width="{whole}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{title}">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<rect x="{EDGE}" y="{EDGE / 2}" width="{SIDE}" height="{SIDE}" fill="none" '
        f'stroke="#888"/><path d="M{_x(0.0)} {_y(0.0)}L{_x(1.0)} {_y(1.0)}" stroke="#bbb" '
        f'stroke-dasharray="4"/>{drawn}'
        f'<text x="{middle}" y="{foot + 32}" text-anchor="middle">{title}: {below}, 0 to 1</text>'
        f'<text x="14" y="{foot / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {foot / 2})">{beside}, 0 to 1</text></svg>'
    )
