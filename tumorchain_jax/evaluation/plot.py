"""Bar chart of a score: accuracy of each subtask with its interval and both baselines."""

from collections.abc import Mapping
from html import escape
from typing import Any

ROW, LEFT, WIDTH, TOP = 28, 170, 400, 46
ACCURACY, MAJORITY, TEXT_ONLY = "#3b6ea8", "#c2571a", "#2f7d4f"


def bar_chart(score: Mapping[str, Any], title: str) -> str:
    """Draw what `evaluation/score.py: score` returns, as SVG.

    Args:
        title: text; stands above the chart.
    """
    rows = [(name, row) for name, row in score["subtasks"].items()]
    rows.append(("average", {**score, "accuracy": score["average"]}))
    height = TOP + ROW * len(rows) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 70}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20" font-weight="bold">{escape(title)}</text>',
        _key(TOP - 12),
    ]
    for percent in (0.0, 25.0, 50.0, 75.0, 100.0):
        x, foot = _x(percent), TOP + ROW * len(rows)
        parts.append(f'<path d="M{x} {TOP}V{foot}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{foot + 18}" text-anchor="middle">{percent:g} %</text>')
    for number, (name, row) in enumerate(rows):
        parts += _bar(TOP + ROW * number, name, row)
    return "\n".join([*parts, "</svg>", ""])


def _bar(y: int, name: str, row: Mapping[str, Any]) -> list[str]:
    middle = y + ROW // 2
    label = f"{name.replace('_', ' ')} ({row['n']})"
    parts = [
        f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(label)}</text>',
        f'<rect x="{LEFT}" y="{y + 6}" width="{_x(row["accuracy"]) - LEFT:g}" height="{ROW - 12}" '
        f'fill="{ACCURACY}" fill-opacity="0.7"/>',
    ]
    if row["ci95"]:
        low, high = map(_x, row["ci95"])
        line = f'<path d="M{low:g} {middle}H{high:g}" stroke="black" stroke-width="1.5"/>'
        parts.append(line)
    for name_of_baseline, colour in (("majority", MAJORITY), ("text_only", TEXT_ONLY)):
        if row[name_of_baseline] is not None:
            x = _x(row[name_of_baseline])
            path = f"M{x:g} {y + 3}V{y + ROW - 3}"
            parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="3"/>')
    return parts


def _key(y: int) -> str:
    words = (
        (ACCURACY, "accuracy, 95 % interval"),
        (MAJORITY, "majority"),
        (TEXT_ONLY, "mismatched image"),
    )
    spans = (f'<tspan fill="{colour}">■</tspan> {word}   ' for colour, word in words)
    return f'<text x="{LEFT}" y="{y}" xml:space="preserve">{"".join(spans)}</text>'


def _x(percent: float) -> float:
    return LEFT + WIDTH * percent / 100
