"""Reliability curve: accuracy of the answers by their confidence, as SVG."""

from collections.abc import Sequence
from html import escape

from tumorchain_jax.weights.calibration import Bin

LEFT, TOP, SIDE = 60, 46, 300
CURVE = "#3b6ea8"


def reliability_curve(bins: Sequence[Bin], title: str, caption: str) -> str:
    """Draw the bins of a reliability curve; the larger a dot, the more answers are in it.

    Args:
        bins: at least one, by rising confidence.
        title, caption: text above and below the curve.
    """
    foot = TOP + SIDE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + SIDE + 40}" height="{foot + 80}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-weight="bold">{escape(title)}</text>',
    ]
    for percent in (0, 25, 50, 75, 100):
        x, y = _x(percent / 100), _y(percent / 100)
        parts.append(f'<path d="M{x:g} {TOP}V{foot}M{LEFT} {y:g}H{LEFT + SIDE}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:g}" y="{foot + 18}" text-anchor="middle">{percent} %</text>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:g}" text-anchor="end">{percent} %</text>')
    parts.append(
        f'<path d="M{_x(0.0):g} {_y(0.0):g}L{_x(1.0):g} {_y(1.0):g}" stroke="#77808b" '
        'stroke-dasharray="5 4"/>'
    )
    points = [(_x(each.confidence), _y(each.accuracy), each.n) for each in bins]
    line = "L".join(f"{x:g} {y:g}" for x, y, _ in points)
    parts.append(f'<path d="M{line}" fill="none" stroke="{CURVE}" stroke-width="1.5"/>')
    total = sum(n for _, _, n in points)
    for x, y, n in points:
        radius = 2 + 14 * (n / total) ** 0.5
        dot = f'<circle cx="{x:g}" cy="{y:g}" r="{radius:.1f}" fill="{CURVE}" fill-opacity="0.5">'
        parts.append(f"{dot}<title>{n} answers</title></circle>")
    parts += [
        f'<text x="{LEFT}" y="{TOP - 10}">accuracy by confidence, {total} answers</text>',
        f'<text x="{LEFT}" y="{foot + 40}">confidence</text>',
        f'<text x="{LEFT}" y="{foot + 60}">{escape(caption)}</text>',
    ]
    return "\n".join([*parts, "</svg>", ""])


def _x(share: float) -> float:
    return round(LEFT + SIDE * share, 1)


def _y(share: float) -> float:
    return round(TOP + SIDE * (1 - share), 1)
