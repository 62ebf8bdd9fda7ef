"""Reading one breast ultrasound picture or mask as 8-bit grey values, or refusing it in one line.

Shape letters: H W pixels.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pydicom
from jaxtyping import Bool, UInt8
from PIL import Image, UnidentifiedImageError

from tumorchain_jax.core.errors import InputError

FORMATS = ("PNG", "JPEG", "BMP", "TIFF")
GREY_MODES = {"1", "L", "LA", "RGB", "RGBA", "P"}
LEAST_SIDE, LARGEST_ASPECT, MOST_PIXELS = 16, 10.0, 40_000_000
COLOUR_SPREAD, COLOUR_SHARE = 24, 0.002
"""Most difference of the channels of a grey pixel; least share of others in a coloured picture."""
HINT = "leave it out, or convert it to an 8-bit grey PNG"
COLOUR_HINT = "leave it out; `tumorchain bus prepare --allow-colour` takes it as grey"


@dataclass(frozen=True)
class Picture:
    """A picture as it was read.

    Attributes:
        grey: its pixels.
        colour_share: share of its pixels that are coloured.
    """

    grey: UInt8[np.ndarray, "H W"]
    colour_share: float

    @property
    def is_coloured(self) -> bool:
        """Whether it shows colour, as Doppler and elastography do."""
        return self.colour_share > COLOUR_SHARE


def read_picture(path: Path, allow_colour: bool = False) -> Picture:
    """Read a picture: PNG, JPEG, BMP or TIFF of 8 bits, or a DICOM file of one frame.

    Args:
        allow_colour: take a coloured picture as the mean of its channels.

    Raises:
        InputError: it cannot be read, or is none that a classifier of grey pictures may see: 16
            bits, see-through, turned by its EXIF tag, several frames, in colour, or of an
            impossible size.
    """
    pixels = _dicom(path) if _is_dicom(path) else _image(path)
    _check_size(path, pixels.shape[0], pixels.shape[1])
    if pixels.ndim == 2:
        return Picture(pixels, 0.0)
    spread = pixels.max(axis=2).astype(int) - pixels.min(axis=2)
    share = float((spread > COLOUR_SPREAD).mean())
    picture = Picture(np.round(pixels.mean(axis=2)).astype(np.uint8), share)
    if picture.is_coloured and not allow_colour:
        found = f"colour in {share:.1%} of the pixels (Doppler or elastography?)"
        raise InputError(path, "pixels", found, "a grey B-mode picture", COLOUR_HINT)
    return picture


def read_mask(path: Path, shape: tuple[int, int]) -> Bool[np.ndarray, "H W"]:
    """Read the mask of a lesion: whatever is not black.

    Args:
        shape: of the picture that it is for.

    Raises:
        InputError: it cannot be read, is of another size than its picture, or is empty.
    """
    pixels = _image(path)
    inside = (pixels if pixels.ndim == 2 else pixels.max(axis=2)) > 127
    if inside.shape != shape:
        found, expected = f"{inside.shape[1]} x {inside.shape[0]}", f"{shape[1]} x {shape[0]}"
        raise InputError(path, "size", found, f"{expected}, as its picture", "find its own mask")
    if not inside.any():
        raise InputError(path, "mask", "no lesion", "some pixels of one", "leave the mask out")
    return inside


def _is_dicom(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(132)[128:] == b"DICM"
    except OSError as error:
        found = error.strerror or type(error).__name__
        raise InputError(path, "file", found, "a picture", "check the path") from error


def _image(path: Path) -> UInt8[np.ndarray, "H W *C"]:
    try:
        with Image.open(path, formats=FORMATS) as opened:
            _check_header(path, opened)
            image: Image.Image = opened
            if image.mode == "P":
                image = image.convert("RGBA" if "transparency" in image.info else "RGB")
            if image.mode in ("LA", "RGBA"):
                if image.getchannel("A").getextrema() != (255, 255):
                    found, expected = "see-through pixels", "an opaque picture"
                    raise InputError(path, "alpha", found, expected, HINT)
                image = image.convert(image.mode[:-1])
            return np.asarray(image.convert("L") if image.mode == "1" else image, np.uint8)
    except UnidentifiedImageError as error:
        expected = f"one of {', '.join(FORMATS)}, or DICOM"
        raise InputError(path, "format", "none that is known", expected, HINT) from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        found = f"{type(error).__name__}: {error}"[:120]
        raise InputError(path, "pixels", found, "a whole picture", "replace the file") from error


def _check_header(path: Path, image: Image.Image) -> None:
    """Refuse by the header, before any pixel is decoded."""
    _check_size(path, image.height, image.width)
    if image.mode not in GREY_MODES:
        raise InputError(path, "mode", image.mode, "8 bits a channel", HINT)
    if getattr(image, "n_frames", 1) != 1:
        raise InputError(path, "frames", str(getattr(image, "n_frames", 0)), "one", HINT)
    if image.getexif().get(0x0112, 1) != 1:
        found, expected = "a turned or mirrored picture", "none"
        raise InputError(path, "EXIF orientation", found, expected, "turn it and its mask")


def _check_size(path: Path, height: int, width: int) -> None:
    aspect = max(height, width) / max(1, min(height, width))
    if min(height, width) < LEAST_SIDE or aspect > LARGEST_ASPECT:
        found, expected = f"{width} x {height}", f"sides from {LEAST_SIDE} px, of at most 10 to 1"
        raise InputError(path, "size", found, expected, "leave it out")
    if height * width > MOST_PIXELS:
        found, expected = f"{width} x {height}", f"at most {MOST_PIXELS:,} pixels"
        raise InputError(path, "size", found, expected, "shrink it")


def _dicom(path: Path) -> UInt8[np.ndarray, "H W *C"]:
    try:
        data = pydicom.dcmread(path)
        if (frames := int(data.get("NumberOfFrames", 1) or 1)) != 1:
            raise InputError(path, "NumberOfFrames", str(frames), "1", "export a single frame")
        if data.get("BitsAllocated") != 8:
            found = str(data.get("BitsAllocated"))
            raise InputError(path, "BitsAllocated", found, "8", "export it with 8 bits")
        kind = data.get("PhotometricInterpretation")
        pixels = np.asarray(data.pixel_array)
        if kind == "MONOCHROME1":
            return 255 - pixels
        if kind not in ("MONOCHROME2", "RGB"):
            expected = "MONOCHROME1, MONOCHROME2 or RGB"
            raise InputError(path, "PhotometricInterpretation", str(kind)[:40], expected, HINT)
        return pixels
    except InputError:
        raise
    except Exception as error:  # pydicom raises whatever its decoders do
        found = f"{type(error).__name__}: {error}"[:120]
        raise InputError(path, "pixels", found, "a DICOM picture", "replace the file") from error
