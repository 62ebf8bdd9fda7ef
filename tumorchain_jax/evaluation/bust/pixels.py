"""Pictures as they leave a study: pixels alone, encoded anew, without metadata or a name."""

import base64
import io
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from tumorchain_jax.ultrasound.picture import read_picture


def png(pixels: UInt8[np.ndarray, "H W *C"]) -> bytes:
    """A PNG of pixels; the same pixels give the same bytes."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def data_uri(path: Path) -> str:
    """A grey picture's pixels as a `data:` address.

    Raises:
        InputError: it cannot be read.
    """
    return "data:image/png;base64," + base64.b64encode(png(read_picture(path).grey)).decode()
