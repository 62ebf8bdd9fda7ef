"""Pictures and masks: what is read, and what is refused in one line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.ultrasound.picture import read_mask, read_picture

GREY = np.tile(np.arange(64, dtype=np.uint8), (32, 1))
RGB = np.repeat(GREY[..., None], 3, axis=2)
OPAQUE = np.dstack([RGB, np.full_like(GREY, 255)])
Save = Callable[..., Path]


@pytest.mark.parametrize("image", [GREY, RGB, OPAQUE, Image.fromarray(GREY).convert("P")])
def test_grey_pictures_in_any_8_bit_form_are_read(picture: Save, image: object) -> None:
    np.testing.assert_array_equal(read_picture(picture(image)).grey, GREY)


def coloured() -> np.ndarray:
    image = RGB.copy()
    image[4:12, 4:12] = (200, 40, 40)
    return image


def see_through() -> np.ndarray:
    image = OPAQUE.copy()
    image[0, 0, 3] = 7
    return image


def rotated() -> tuple[Image.Image, dict]:
    exif = Image.Exif()
    exif[0x0112] = 6
    return Image.fromarray(GREY), {"exif": exif}


@pytest.mark.parametrize(
    ("image", "name", "said"),
    [
        (coloured(), "a.png", "colour"),
        (see_through(), "a.png", "see-through"),
        (np.zeros((64, 64), np.uint16), "a.png", "mode"),
        (np.zeros((1, 1), np.uint8), "a.png", "size"),
        (np.zeros((16, 3200), np.uint8), "a.png", "size"),
        (GREY, "a.gif", "format"),
    ],
)
def test_pictures_that_mislead_are_refused(
    picture: Save, image: np.ndarray, name: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        read_picture(picture(image, name))


def test_turned_and_moving_pictures_are_refused(picture: Save) -> None:
    image, options = rotated()
    with pytest.raises(InputError, match="EXIF"):
        read_picture(picture(image, "turned.png", **options))
    frames = [Image.fromarray(GREY), Image.fromarray(GREY[::-1].copy())]
    with pytest.raises(InputError, match="frames"):
        read_picture(picture(frames[0], "moving.tiff", save_all=True, append_images=frames[1:]))


def test_colour_can_be_allowed(picture: Save) -> None:
    found = read_picture(picture(coloured()), allow_colour=True)
    assert found.is_coloured
    assert found.grey[8, 8] == round((200 + 40 + 40) / 3)


@pytest.mark.parametrize("content", [b"", b"not a picture", b"\x89PNG\r\n\x1a\n" + bytes(40)])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.png"):
        read_picture(tmp_path / "a.png")
    with pytest.raises(InputError, match="none"):
        read_picture(tmp_path / "none.png")


def dicom(path: Path, pixels: np.ndarray, **fields: object) -> Path:
    data = pydicom.Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.6.1"
    data.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    data.Rows, data.Columns = pixels.shape[-2:]
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 8 * pixels.itemsize
    data.HighBit, data.PixelRepresentation = data.BitsStored - 1, 0
    for name, value in fields.items():
        setattr(data, name, value)
    data.PixelData = pixels.tobytes()
    data.save_as(path, enforce_file_format=True)
    return path


def test_dicom_of_one_grey_frame_is_read_and_others_are_refused(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_picture(dicom(tmp_path / "a", GREY)).grey, GREY)
    inverse = dicom(tmp_path / "b", GREY, PhotometricInterpretation="MONOCHROME1")
    np.testing.assert_array_equal(read_picture(inverse).grey, 255 - GREY)
    with pytest.raises(InputError, match="NumberOfFrames"):
        read_picture(dicom(tmp_path / "c", np.stack([GREY, GREY]), NumberOfFrames=2))
    with pytest.raises(InputError, match="BitsAllocated"):
        read_picture(dicom(tmp_path / "d", GREY.astype(np.uint16)))


def test_masks_of_another_size_and_empty_ones_are_refused(picture: Save) -> None:
    mask = np.zeros((32, 64), bool)
    mask[3:9, 5:20] = True
    found = read_mask(picture(mask, "m.png"), (32, 64))
    np.testing.assert_array_equal(found, mask)
    as_rgb = np.repeat((mask * np.uint8(255))[..., None], 3, axis=2)
    np.testing.assert_array_equal(read_mask(picture(as_rgb, "rgb.png"), (32, 64)), mask)
    with pytest.raises(InputError, match="size"):
        read_mask(picture(mask, "m.png"), (32, 63))
    with pytest.raises(InputError, match="no lesion"):
        read_mask(picture(np.zeros_like(mask), "e.png"), (32, 64))
