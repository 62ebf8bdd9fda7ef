"""The record of one question about one scan, as `report.json` stores it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax import NOTICE
from tumorchain_jax.reasoning.trace import OrganMention, Round, Trace
from tumorchain_jax.report.cells import cell_box
from tumorchain_jax.report.verdict import Verdict
from tumorchain_jax.scan.crops import spacing_of
from tumorchain_jax.scan.preprocess import Box, GridTransform
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.masks import MaskOrigin
from tumorchain_jax.segmentation.statistics import OrganStatistics

SCHEMA_VERSION = "1.3"
NO_ANSWER = "No answer was given."


@dataclass(frozen=True)
class View:
    """A volume that the model read: the whole scan, or a crop around an organ.

    Attributes:
        name: of the crop's region; empty for the scan.
        image: float32 `[D, H, W]` in [0, 1].
        transform: from its grid to the patient.
    """

    name: str
    image: np.ndarray
    transform: GridTransform


@dataclass(frozen=True, repr=False)
class ReportRecord:
    """An answer, the chain that led to it, and all that is needed to retrace it.

    Attributes:
        question: as it was asked.
        answer: the last round's full text.
        conclusion: the short answer in it.
        trace: the rounds.
        image: float32 `[D, H, W]` in [0, 1], the model grid: what the model saw.
        transform: from that grid to the patient.
        cells: the token grid; a ROI cell is a raster index in it and covers grid / cells voxels.
        preprocessing: what was done to the scan, fit for JSON.
        versions: of the packages that ran.
        model: name of the model, for people.
        weights_sha256: hash of the weights.
        seed: of the sampling.
        device: kind of device that it ran on.
        seconds: spent on each stage.
        warnings: one line each.
        source: the scan's path as it was given, or what else it came from.
        masks: where the organ masks came from, None if that is not known.
        organs: measurements of each organ in its mask, by its name in Table 10.
        truth: the known truth about a synthetic lesion, None for a real scan.
        crops: that the model read by their number, those that are there; no crops, none.
        forced: findings for which the scan or its mask would have been refused without --force.
        verdict: how far the conclusion can be relied on; None if that was not judged.
        ct: the scan itself, HU; None where only the model grid is at hand.
        labels: its organs, TotalSegmentator v2 ids; None without masks.
        lesion: nonzero in the lesions of a known truth; None for a real scan.
    """

    question: str
    answer: str
    conclusion: str
    trace: Trace
    image: np.ndarray
    transform: GridTransform
    cells: tuple[int, int, int]
    preprocessing: dict[str, Any]
    versions: dict[str, str]
    model: str
    weights_sha256: str
    seed: int
    device: str
    seconds: dict[str, float]
    warnings: tuple[str, ...]
    source: str
    masks: MaskOrigin | None = None
    organs: Mapping[str, OrganStatistics] = field(default_factory=dict)
    truth: str | None = None
    crops: Mapping[int, View] = field(default_factory=dict)
    forced: tuple[str, ...] = ()
    verdict: Verdict | None = None
    ct: Volume | None = None
    labels: Volume | None = None
    lesion: Volume | None = None

    def __repr__(self) -> str:
        """Summarise the report in one line."""
        rounds = f"{len(self.rounds)} round{'s' * (len(self.rounds) != 1)}"
        text = f"{self.name}: {self.question!r} -> {self.headline!r}, {rounds}"
        return f"{type(self).__name__}({text})"

    @property
    def headline(self) -> str:
        """The conclusion, or why there is no answer."""
        return (self.verdict and self.verdict.reason) or self.conclusion or NO_ANSWER

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds of reasoning, in order."""
        return self.trace.rounds

    @property
    def name(self) -> str:
        """The scan's file name."""
        return Path(self.source).name

    def box(self, mention: OrganMention) -> Box | None:
        """Return (min d, h, w, max d, h, w) of the organ's ROI cells in [0, 1] of the volume that
        they were read from (see `view`); None without."""
        return cell_box(mention.cells, self.cells)

    @property
    def scan(self) -> View:
        """The whole scan, as the model read it."""
        return View("", self.image, self.transform)

    def view(self, mention: OrganMention) -> View:
        """Return the volume whose tokens the organ's ROI cells are."""
        return self.scan if mention.crop is None else self.crops[mention.crop]

    def box_mm(self, mention: OrganMention) -> Box | None:
        """Return (min x, y, z, max x, y, z) of the ROI cells in mm RAS+; None without cells."""
        box = self.box(mention)
        return None if box is None else self.view(mention).transform.box_to_mm(box)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of `report.json`; NaN and infinity become None."""
        record = {
            "schema_version": SCHEMA_VERSION,
            "scan": self.source,
            "question": self.question,
            "answer": self.answer,
            "conclusion": self.conclusion,
            "rounds": [self._round(each) for each in self.rounds],
            "stop_reason": self.trace.stop_reason,
            "masks": asdict(self.masks) if self.masks else None,
            "organs": {name: asdict(organ) for name, organ in self.organs.items()},
            "preprocessing": self.preprocessing,
            "versions": self.versions,
            "model": self.model,
            "weights_sha256": self.weights_sha256,
            "seed": self.seed,
            "device": self.device,
            "seconds": self.seconds,
            "warnings": self.warnings,
            "notice": NOTICE,
        }
        if self.crops:
            record["crops"] = [_crop(view) for view in self.crops.values()]
        if self.verdict is not None:
            record |= {"headline": self.headline, **self.verdict.to_dict()}
        if self.truth is not None:
            record["truth"] = self.truth
        if self.forced:
            record["forced"] = self.forced
        return _plain(record)

    def _round(self, each: Round) -> dict[str, Any]:
        return {**asdict(each), "organs": [self._organ(mention) for mention in each.organs]}

    def _organ(self, mention: OrganMention) -> dict[str, Any]:
        cropped = {} if mention.crop is None else {"crop": self.view(mention).name}
        return {
            "organ": mention.organ,
            "label": mention.label,
            "matched": mention.matched,
            "span": mention.span,
            "outcome": mention.outcome,
            "cells": mention.cells,
            "box": self.box(mention),
            "box_mm": self.box_mm(mention),
            "abnormal_probability": mention.abnormal_probability,
            **cropped,
        }


def _crop(view: View) -> dict[str, Any]:
    """Region, box in mm RAS+, and spacing along D, H, W in mm of a crop."""
    box = view.transform.box_to_mm((0, 0, 0, 1, 1, 1))
    return {"region": view.name, "box_mm": box, "spacing_mm": spacing_of(view.transform)}


def _plain(value: Any) -> Any:
    """Convert a value to JSON's own types."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
