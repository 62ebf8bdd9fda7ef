"""Inclusion and exclusion: each fault falls out at its own rule, and the counts add up."""

import json
from pathlib import Path

import numpy as np
import pytest
from bust_pictures import PLANTED, make, speckle
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.bust.cases import Rules, select, write_cases
from tumorchain_jax.ultrasound.lesion import read_manifest


def _with_text() -> np.ndarray:
    image = Image.fromarray(speckle(7))
    draw = ImageDraw.Draw(image)
    draw.fontmode = "1"
    draw.rectangle((0, 0, 160, 24), fill=0)
    draw.text((4, 1), "D O E J A N E", fill=255, font=ImageFont.load_default(13))
    return np.asarray(image)


def test_each_fault_falls_out_at_its_own_rule(tmp_path: Path) -> None:
    made = make(tmp_path / "data")
    made.add("good", speckle(0), "benign", "p0")
    made.add("normal", speckle(1), "normal", "p1")
    made.add("colour", np.stack([speckle(2), speckle(2) // 3, speckle(2)], -1), "benign", "p2")
    made.add("small", speckle(3)[:100], "benign", "p3")
    made.add("flat", (100 + speckle(4) // 20).astype(np.uint8), "benign", "p4")
    blurred = 4.0 * (ndimage.gaussian_filter(speckle(5).astype(float), 6) - 90)
    made.add("blurred", np.clip(blurred, 0, 255).astype(np.uint8), "benign", "p5")
    made.add("followed", speckle(6), "benign", "p6", histopathology="follow-up")
    made.add("named", _with_text(), "benign", "p7")
    made.add("mirrored", speckle(0)[:, ::-1].copy(), "benign", "p8")
    made.add("later", speckle(9), "benign", "p0")
    made.add("one", speckle(10), "benign", "p10")
    made.add("other", speckle(10), "malignant", "p11")
    chosen, reasons, flow = select(made.write(), Rules())
    assert {row.id for row in chosen} == {"good", "normal"}
    assert reasons == {
        "colour": "colour", "small": "small", "flat": "flat", "blurred": "blurred",
        "followed": "pathology", "named": "identifiers", "mirrored": "duplicate",
        "later": "second", "one": "pathology", "other": "pathology",
    }  # fmt: skip
    assert flow.start == 12
    assert flow.included == 2
    assert flow.steps[-1].left == 2
    assert flow.start - sum(sum(step.excluded.values()) for step in flow.steps) == 2


def test_cases_carry_no_names(cases: Path) -> None:
    rows = read_manifest(cases)
    assert len(rows) == 12
    for row in rows:
        content = (cases / row.image).read_bytes()
        assert PLANTED not in row.image
        assert PLANTED.encode() not in content
        assert len(row.id) == 12
        assert int(row.id, 16) >= 0
    flow = json.loads((cases / "flow.json").read_text())
    assert flow["included"] == 12
    assert flow["rules"]["least_side"] == 128
    assert "12 cases" in (cases / "flow.svg").read_text()
    assert "12  cases" in (cases / "flow.txt").read_text()


def test_nothing_left_is_refused(tmp_path: Path) -> None:
    made = make(tmp_path / "data")
    made.add("small", speckle(3)[:100], "benign", "p3")
    with pytest.raises(InputError, match="most fell out as small"):
        write_cases(made.write(), tmp_path / "cases", Rules())
    assert not (tmp_path / "cases").exists()
