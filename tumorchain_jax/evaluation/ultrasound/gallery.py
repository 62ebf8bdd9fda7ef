"""A page of pictures: right, wrong and most uncertain, with the lesion's outline and the map."""

import base64
import io
from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from scipy import ndimage

from tumorchain_jax.report.shell import page

SHOWN, SCALE = 8, 3
OUTLINE, WARM = (80, 220, 255), (255, 120, 0)


class Entry:
    """A picture of the gallery.

    Args:
        image: what the classifier saw.
        outline: True inside the lesion, as the classifier saw it; or None.
        heat: occlusion map; or None.
    """

    def __init__(
        self,
        name: str,
        truth: str,
        score: float,
        image: UInt8[np.ndarray, "S S"],
        outline: Bool[np.ndarray, "S S"] | None,
        heat: Float[np.ndarray, "G G"] | None,
    ):
        self.name, self.truth, self.score = name, truth, score
        self.image, self.outline, self.heat = image, outline, heat

    @property
    def is_right(self) -> bool:
        """Whether a threshold of one half gives the truth."""
        return (self.score >= 0.5) == (self.truth == "malignant")


def choose(scores: Float[np.ndarray, " N"], malignant: np.ndarray) -> dict[str, list[int]]:
    """Numbers of the pictures of each group: most certain right, most certain wrong, uncertain."""
    margin = np.abs(scores - 0.5)
    right = (scores >= 0.5) == malignant
    order = np.argsort(-margin, kind="stable")
    return {
        "right, most certain": [int(k) for k in order if right[k]][:SHOWN],
        "wrong, most certain": [int(k) for k in order if not right[k]][:SHOWN],
        "most uncertain": [int(k) for k in order[::-1]][:SHOWN],
    }


def gallery_page(title: str, note: str, groups: Sequence[tuple[str, Sequence[Entry]]]) -> str:
    """Write the page.

    Args:
        note: a line on what the pictures are.
        groups: title and pictures of each.
    """
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(note)}</p>"]
    for name, entries in groups:
        parts.append(f"<h2>{escape(name)}</h2><div class='gallery'>")
        parts += [_figure(entry) for entry in entries]
        parts.append("</div>")
    style = (
        ".gallery{display:flex;flex-wrap:wrap;gap:1em}.gallery figure{margin:0;width:300px}"
        ".gallery img{width:100%;image-rendering:auto}"
    )
    return page(title, "\n".join(parts), more_style=style)


def _figure(entry: Entry) -> str:
    words = f"{entry.name}: truth {entry.truth}, probability of malignancy {entry.score:.2f}"
    return (
        f"<figure><img alt='{escape(words)}' src='{_png(entry)}'>"
        f"<figcaption>{escape(words)}</figcaption></figure>"
    )


def _png(entry: Entry) -> str:
    side = SCALE * len(entry.image)
    grey = np.asarray(Image.fromarray(entry.image).resize((side, side), Image.Resampling.BICUBIC))
    colour = np.repeat(grey[..., None], 3, axis=2).astype(float)
    if entry.heat is not None and np.abs(entry.heat).max() > 0:
        heat = ndimage.zoom(np.clip(entry.heat, 0, None), side / len(entry.heat), order=1)
        strength = 0.55 * heat[:side, :side] / max(heat.max(), 1e-9)
        colour += strength[..., None] * (np.array(WARM) - colour)
    if entry.outline is not None:
        mask = np.kron(entry.outline, np.ones((SCALE, SCALE))) > 0
        edge = mask ^ ndimage.binary_erosion(mask, iterations=2)
        colour[edge] = OUTLINE
    file = io.BytesIO()
    Image.fromarray(colour.astype(np.uint8)).save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
