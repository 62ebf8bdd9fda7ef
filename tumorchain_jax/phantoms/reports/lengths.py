"""How lengths are written: units, axes, decimals."""

from collections.abc import Sequence
from random import Random

from tumorchain_jax.phantoms.reports.styles import Style


class Ruler:
    """Writes lengths of one report, mostly in one unit."""

    def __init__(self, style: Style, rng: Random):
        self.rng = rng
        self.comma = style.language == "de"
        self.mixed = style.units == "mixed"
        self.unit = rng.choice(("mm", "cm")) if self.mixed else style.units
        self.times = rng.choice((" x ", " x ", "x", " \u00d7 "))
        if style.name == "dictated":
            self.times = rng.choice((" by ", " x "))

    def length(self, millimetres: int) -> str:
        """Write one length."""
        return self.extent((millimetres,))

    def extent(self, millimetres: Sequence[int]) -> str:
        """Write the axes of one lesion, the longest mostly first."""
        unit = self.unit
        if self.mixed and self.rng.random() < 0.15:
            unit = "mm" if unit == "cm" else "cm"
        axes = [self._number(each, unit) for each in millimetres]
        if len(axes) > 1 and self.rng.random() < 0.1:
            axes = axes[1:] + axes[:1]
        return f"{self.times.join(axes)} {unit}"

    def _number(self, millimetres: int, unit: str) -> str:
        if unit == "mm":
            return str(millimetres)
        text = f"{millimetres / 10:.1f}"
        if text.endswith(".0") and self.rng.random() < 0.5:
            text = text[:-2]
        return text.replace(".", ",") if self.comma else text
