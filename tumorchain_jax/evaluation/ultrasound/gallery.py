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

SHOWN, SCALE, GAP = 8, 3, 6
"""Pictures of a group; pixels for each one that the classifier saw; between picture and map."""
OUTLINE, WARM, STRONGEST = (80, 220, 255), (255, 120, 0), 0.7


class Entry:
    """A picture of the gallery.

    Args:
        image: what the classifier saw.
        outline: True inside the lesion, as the classifier saw it; or None.
        heat: occlusion map; or None.
        beside: more pictures of the same size.
        words: texts beneath, each with what it is.
    """

    def __init__(
        self,
        name: str,
        truth: str,
        score: float | None,
        image: UInt8[np.ndarray, "S S"],
        outline: Bool[np.ndarray, "S S"] | None = None,
        heat: Float[np.ndarray, "G G"] | None = None,
        beside: Sequence[UInt8[np.ndarray, "S S"]] = (),
        words: Sequence[tuple[str, str]] = (),
    ):
        self.name, self.truth, self.score = name, truth, score
        self.image, self.outline, self.heat = image, outline, heat
        self.beside, self.words = beside, words


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
        parts.append(f"<h2>{escape(name.capitalize())}</h2><div class='gallery'>")
        parts += [_figure(entry) for entry in entries]
        parts.append("</div>")
    style = (
        ".gallery{display:flex;flex-wrap:wrap;gap:1em}.gallery figure{margin:0;width:29em}"
        ".gallery img{max-width:100%;image-rendering:auto}"
    )
    return page(title, "\n".join(parts), more_style=style)


def _figure(entry: Entry) -> str:
    probability = "none" if entry.score is None else f"{entry.score:.2f}"
    verdict = f"truth {entry.truth}, probability of malignancy {probability}"
    name, said = escape(entry.name), escape(verdict)
    texts = "".join(f"<p><b>{escape(who)}:</b> {escape(text)}</p>" for who, text in entry.words)
    return (
        f"<figure><img alt='{name}: {said}' src='{_picture(entry)}'>"
        f"<figcaption><b>{name}</b><br>{said}{texts}</figcaption></figure>"
    )


def _enlarged(image: UInt8[np.ndarray, "S S"]) -> Float[np.ndarray, "T T 3"]:
    side = SCALE * len(image)
    grey = np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC))
    return np.repeat(grey[..., None], 3, axis=2).astype(float)


def _picture(entry: Entry) -> str:
    """The picture with the outline and, on its right, the map and more pictures: a data URL."""
    plain = _enlarged(entry.image)
    side, shown = len(plain), [plain.copy()]
    if entry.outline is not None:
        mask = np.kron(entry.outline, np.ones((SCALE, SCALE))) > 0
        shown[0][mask ^ ndimage.binary_erosion(mask, iterations=2)] = OUTLINE
    if entry.heat is not None:
        heat = ndimage.zoom(np.clip(entry.heat, 0, None), side / len(entry.heat), order=1)
        strength = STRONGEST * heat[:side, :side] / max(heat.max(), 1e-9)
        shown += [
            np.full((side, GAP, 3), 245),
            plain + strength[..., None] * (np.array(WARM) - plain),
        ]
    for image in entry.beside:
        shown += [np.full((side, GAP, 3), 245), _enlarged(image)]
    file = io.BytesIO()
    whole = np.concatenate(shown, axis=1).astype(np.uint8)
    Image.fromarray(whole).save(file, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
