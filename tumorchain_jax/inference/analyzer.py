"""The Python front door: load a model once, ask about many scans.

analyzer = Analyzer.load()                       # the nano models that ship with the package
report = analyzer("ct.nii.gz", "Where is the tumour?")
report.save(Path("out"))
"""

import platform
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from nibabel.spatialimages import SpatialImage

from tumorchain_jax import __version__
from tumorchain_jax.anatomy.organs import DIGESTIVE, ORGANS, display_name, labels_named
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.qwen2.model import unroll
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.reasoning.generate import GREEDY, Sampling
from tumorchain_jax.reasoning.interleaved import LoopConfig, Request, encode, reason
from tumorchain_jax.reasoning.organ_cells import OrganCells, organ_cells
from tumorchain_jax.reasoning.organ_matcher import build_matcher
from tumorchain_jax.reasoning.prompt import (
    INITIAL_ORGANS,
    MAX_QUESTION_TOKENS,
    TEXT,
    Chat,
    initial_rois,
)
from tumorchain_jax.reasoning.roi import Turn, build_roi_prompt
from tumorchain_jax.reasoning.trace import build_trace
from tumorchain_jax.report.conclusion import parse_conclusion
from tumorchain_jax.report.report import Report
from tumorchain_jax.scan.checks import check_ct, check_mask
from tumorchain_jax.scan.preprocess import PreparedScan, preprocess
from tumorchain_jax.scan.read import align_labels, from_array, from_nibabel, read_ct, read_labels
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.cache import SegmentationCache
from tumorchain_jax.segmentation.factory import make_segmenter
from tumorchain_jax.segmentation.label_file import made_by
from tumorchain_jax.segmentation.masks import OrganMasks, given_masks, lazy_masks
from tumorchain_jax.segmentation.total import TotalSegmenter
from tumorchain_jax.weights.model_folder import ModelFolder, load_model

NANO_NAME = "nano, which has seen digital patients alone"
TOY = f"the model is {NANO_NAME}: what it says of a real CT means nothing"
MADE = "the label map says that it was segmented by {}: a machine's, if nobody has fixed it"
NOT_SHOWN = "the question names {}, which the masks do not show"
TASKS = {
    "position": "Where is the tumour in this CT?",
    "report": "Write a report with findings, impression and conclusion.",
}
Scan = str | Path | SpatialImage | Volume | tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class PreparedCase:
    """A scan in its model shape, with its organs.

    Attributes:
        source: the scan's path as it was given, or what else it came from.
        warnings: of the scan and the label map, one line each.
        masks: what `cells` were made from; None where they were kept without it.
    """

    source: str
    scan: PreparedScan
    cells: OrganCells
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    masks: OrganMasks | None = None


class _Encoded(NamedTuple):
    """A scan's bank of visual tokens and its ROI table, as a batch of one.

    Attributes:
        abnormal: `[O]`, the classifier's probability of each organ.
        seconds: that it took.
    """

    visual_tokens: Float[Array, "1 M K"]
    roi_index: Int[Array, "1 O L"]
    roi_valid: Bool[Array, "1 O L"]
    abnormal: Float[np.ndarray, " O"]
    seconds: float


class Analyzer:
    """A model that is loaded and compiled once.

    Attributes:
        checkpoint: what was loaded.
        batch_size: cases that run at once.
    """

    def __init__(
        self,
        checkpoint: ModelFolder,
        batch_size: int = 1,
        max_rounds: int = 4,
        sampling: Sampling = GREEDY,
        segmenter: TotalSegmenter | None = None,
    ):
        self.checkpoint = checkpoint
        self._segmenter = segmenter
        config = checkpoint.model
        self._chat = Chat(checkpoint.tokenizer, config.template)
        self._model = TumorChain(config, unrolled=True)
        params = unflatten(checkpoint.params)
        params["decoder"] = unroll(params["decoder"])
        self._params = jax.device_put(params)
        self._matcher = build_matcher(checkpoint.tokenizer.token_bytes)
        self._roi_prompt = build_roi_prompt(self._chat)
        self.batch_size = batch_size
        self._loop = LoopConfig(
            prompt_length=self._prompt_room(),
            max_rounds=max_rounds,
            history=checkpoint.history,
            sampling=sampling,
        )

    @cached_property
    def segmenter(self) -> TotalSegmenter:
        """Makes the masks of scans that come without one."""
        return self._segmenter or make_segmenter(cache=SegmentationCache())

    @classmethod
    def load(cls, checkpoint: str | Path | None = None, **options: Any) -> "Analyzer":
        """Read a checkpoint folder; None is the nano model that ships with the package.

        Args:
            options: of the constructor; `segmenter` makes the masks of scans that come without
                one, by default with the nano segmenter that ships with the package.

        Raises:
            InputError: it is no checkpoint, or its weights and configuration disagree.
        """
        folder = Path(checkpoint or NANO_CHECKPOINT)
        exported = load_model(folder)
        if folder.resolve() == NANO_CHECKPOINT.resolve():
            exported = replace(exported, name=NANO_NAME)
        return cls(exported, **options)

    def __call__(
        self,
        scan: Scan,
        question: str = TASKS["position"],
        *,
        mask: Scan | None = None,
        seed: int = 0,
        rounds: int | None = None,
    ) -> Report:
        """Ask one question about one scan.

        Args:
            scan: a path (NIfTI or DICOM folder), a nibabel image, or (HU array, affine to RAS+ mm).
            mask: its TotalSegmentator v2 `total` label map, in any of the same forms; None: the
                segmenter makes one.
            rounds: at most this many; the loop's own limit by default.

        Raises:
            InputError: the scan, the mask or the question cannot be used.
        """
        self.check_question(question)
        return self.batch([(self.prepare(scan, mask), question)], seed=seed, rounds=rounds)[0]

    def check_question(self, question: str) -> None:
        """Raise InputError for a question that is empty or too long."""
        if not question.strip():
            raise InputError("question", "text", "nothing", "some words", "ask something")
        # A token has at least one byte: a very long text need not be tokenized to be refused.
        n_tokens = len(question)
        if n_tokens <= 50 * MAX_QUESTION_TOKENS:
            config = self.checkpoint.model
            n_tokens = len(self._chat.question(question, (), config.global_tokens).tokens)
            n_tokens -= config.global_tokens
            if n_tokens <= MAX_QUESTION_TOKENS:
                return
        room = f"at most {MAX_QUESTION_TOKENS} tokens with the template"
        found = f"{len(question)} characters, about {n_tokens} tokens"
        raise InputError("question", "length", found, room, "ask in fewer words")

    def prepare(self, scan: Scan, mask: Scan | None = None) -> PreparedCase:
        """Read and preprocess a scan; read its mask, or segment the digestive organs.

        Raises:
            InputError: either cannot be used.
        """
        started = time.monotonic()
        ct = _volume(scan)
        warnings = check_ct(ct)
        labels = None
        if mask is not None:
            if isinstance(mask, str | Path):
                labels = read_labels(mask, ct)
                if Path(mask).is_file() and (segmenter := made_by(Path(mask))):
                    warnings += (MADE.format(segmenter),)
            else:
                labels = align_labels(_volume(mask), ct)
            warnings += check_mask(labels, ct)
        read_done = time.monotonic()
        prepared = preprocess(ct, self.checkpoint.preprocess)
        if labels is None:
            masks = lazy_masks(ct, prepared.transform, self.segmenter)
        else:
            masks = given_masks(ct, labels, prepared.transform)
        seconds = {"read": read_done - started, "preprocess": time.monotonic() - read_done}
        case = PreparedCase(
            ct.source,
            prepared,
            self._cells(masks),
            warnings + prepared.warnings,
            seconds,
            masks,
        )
        return self._showing(case, DIGESTIVE)

    def _cells(self, masks: OrganMasks) -> OrganCells:
        config = self.checkpoint.model
        return organ_cells(masks.merged, config.roi_grid, config.roi_slots)

    def _showing(self, case: PreparedCase, organs: Collection[int]) -> PreparedCase:
        """The case with these organs segmented; itself, if they were, or cannot be."""
        started = time.monotonic()
        masks = case.masks and case.masks.showing(organs)
        if masks is None or masks is case.masks:
            return case
        spent = case.seconds.get("segment", 0.0) + time.monotonic() - started
        seconds = case.seconds | {"segment": spent}
        return replace(case, masks=masks, cells=self._cells(masks), seconds=seconds)

    def batch(
        self,
        cases: Sequence[tuple[PreparedCase, str]],
        *,
        seed: int = 0,
        rounds: int | None = None,
    ) -> list[Report]:
        """Answer many (scan, question) pairs, `batch_size` at a time, in one compiled program.

        Where a chain names an organ that the segmenter finds and has not looked for, it is
        segmented, and the scan's questions are asked again: at most once for each part.
        """
        # By identity: a scan is segmented and encoded once, whatever it is asked.
        keys = [id(case) for case, _ in cases]
        scans = {key: case for key, (case, _) in zip(keys, cases, strict=True)}
        named: dict[int, set[int]] = {key: set() for key in keys}
        for key, (_, question) in zip(keys, cases, strict=True):
            named[key].update(label for each in labels_named(question) for label in each.labels)
        reports: dict[int, Report] = {}
        again = set(keys)
        while again:
            scans |= {key: self._showing(scans[key], named[key]) for key in again}
            numbers = [number for number, key in enumerate(keys) if key in again]
            asked = [(scans[keys[number]], cases[number][1]) for number in numbers]
            for number, report in zip(numbers, self._answer(asked, seed, rounds), strict=True):
                reports[number] = report
                named[keys[number]].update(m.label for r in report.trace.rounds for m in r.organs)
            again = {key for key in again if _lacks(scans[key], named[key])}
        return [reports[number] for number in range(len(cases))]

    def _answer(
        self, cases: Sequence[tuple[PreparedCase, str]], seed: int, rounds: int | None
    ) -> list[Report]:
        scans = {id(case): self._encode(case) for case in {id(c): c for c, _ in cases}.values()}
        reports: list[Report] = []
        for i in range(0, len(cases), self.batch_size):
            some = cases[i : i + self.batch_size]
            reports += self._run(some, [scans[id(case)] for case, _ in some], seed, rounds)
        return reports

    def _encode(self, case: PreparedCase) -> _Encoded:
        started = time.monotonic()
        roi_index = jnp.asarray(case.cells.cells + np.int32(self.checkpoint.model.roi_offset))[None]
        roi_valid = jnp.asarray(case.cells.valid)[None]
        volume = jnp.asarray(case.scan.image)[None]
        visual_tokens, abnormal = encode(self._model, self._params, volume, roi_index, roi_valid)
        probabilities = jax.device_get(abnormal)[0]
        return _Encoded(
            visual_tokens, roi_index, roi_valid, probabilities, time.monotonic() - started
        )

    def _run(
        self,
        cases: Sequence[tuple[PreparedCase, str]],
        scans: Sequence[_Encoded],
        seed: int,
        rounds: int | None,
    ) -> list[Report]:
        started = time.monotonic()
        B = self.batch_size
        # A last batch that is not full is filled up: another size would compile anew.
        filled = [min(i, len(cases) - 1) for i in range(B)]
        visual_tokens, roi_index, roi_valid = (
            jnp.concatenate([getattr(scans[i], field) for i in filled])
            for field in ("bank", "roi_index", "roi_valid")
        )
        turn, visited = self._turn([cases[i] for i in filled])
        limit = self._loop.max_rounds
        request = Request(
            visual_tokens,
            roi_index,
            roi_valid,
            turn,
            jnp.asarray(visited),
            jnp.full(B, min(rounds or limit, limit), jnp.int32),
            jnp.full(B, limit * self._loop.tokens_per_round, jnp.int32),
            # The same seed gives each case of a batch the draw it would have had alone.
            jnp.broadcast_to(jax.random.key(seed), (B,)),
        )
        with jax.transfer_guard("disallow"):
            result = reason(
                self._model, self._loop, self._params, self._matcher, self._roi_prompt, request
            )
        result = jax.device_get(result)
        reason_seconds = time.monotonic() - started

        reports = []
        for row, ((case, question), scan) in enumerate(zip(cases, scans, strict=True)):
            seconds = case.seconds | {"encode": scan.seconds, "reason": reason_seconds}
            trace = build_trace(
                result,
                row,
                self.checkpoint.tokenizer,
                case.cells,
                scan.abnormal,
                visited[row],
            )
            answer = trace.rounds[-1].text
            reports.append(
                Report(
                    question=question,
                    answer=answer,
                    conclusion=parse_conclusion(answer),
                    trace=trace,
                    image=case.scan.image,
                    transform=case.scan.transform,
                    cells=self.checkpoint.model.roi_grid,
                    preprocessing=case.scan.parameters,
                    versions=versions(),
                    model=self.checkpoint.name,
                    weights_sha256=self.checkpoint.sha256,
                    seed=seed,
                    device=jax.devices()[0].device_kind,
                    seconds={k: round(v, 3) for k, v in seconds.items()},
                    warnings=self._warnings(case, question),
                    source=case.source,
                    masks=case.masks.origin if case.masks else None,
                    organs=case.masks.statistics if case.masks else {},
                )
            )
        return reports

    def _warnings(self, case: PreparedCase, question: str) -> tuple[str, ...]:
        toy = (TOY,) if self.checkpoint.name == NANO_NAME else ()
        if case.masks is None:
            return toy + case.warnings
        return toy + case.warnings + case.masks.warnings + _not_shown(question, case.masks)

    def _prompt_room(self) -> int:
        config = self.checkpoint.model
        room = config.global_tokens + MAX_QUESTION_TOKENS
        if self.checkpoint.initial_roi:
            sentence = self._roi_prompt.sentences.shape[1]
            room += INITIAL_ORGANS * (sentence + 2 + config.roi_slots)
        return room

    def _turn(
        self, rows: Sequence[tuple[PreparedCase, str]]
    ) -> tuple[Turn, Bool[np.ndarray, "B O"]]:
        """The questions' turns, padded on the left to one length, and the organs they look at."""
        config = self.checkpoint.model
        shape = (len(rows), self._loop.prompt_length)
        tokens = np.zeros(shape, np.int32)
        visual_index = np.full(shape, TEXT, np.int32)
        valid = np.zeros(shape, bool)
        visited = np.zeros((len(rows), len(ORGANS)), bool)
        for row, (case, question) in enumerate(rows):
            rois = []
            if self.checkpoint.initial_roi:
                rois = initial_rois(question, case.cells.visual_index(config.roi_offset))
            prompt = self._chat.question(question, (), config.global_tokens, rois)
            visited[row, [label for label, _ in rois]] = True
            tokens[row, -len(prompt) :] = prompt.tokens
            visual_index[row, -len(prompt) :] = prompt.visual_index
            valid[row, -len(prompt) :] = True
        return Turn(jnp.asarray(tokens), jnp.asarray(visual_index), jnp.asarray(valid)), visited


def _lacks(case: PreparedCase, organs: Collection[int]) -> bool:
    return bool(case.masks and case.masks.missing_models(organs))


def _not_shown(question: str, masks: OrganMasks) -> tuple[str, ...]:
    """A warning of the organs that a question names and the masks, if there are any, lack.

    Where one word names several ("kidneys"), it is enough that one of them is there.
    """
    if masks.origin.kind == "none":
        return ()
    named = [each.labels for each in labels_named(question)]
    lacking = [
        labels for labels in named if not any(ORGANS[label] in masks.statistics for label in labels)
    ]
    names = dict.fromkeys(f"the {display_name(label)}" for labels in lacking for label in labels)
    return (NOT_SHOWN.format(", ".join(names)),) if names else ()


@cache
def versions() -> dict[str, str]:
    """Of the packages that decide a result."""
    packages = ("jax", "jaxlib", "flax", "numpy", "scipy", "nibabel", "pydicom", "transformers")
    own = {"tumorchain_jax": __version__, "python": platform.python_version()}
    return own | {package: version(package) for package in packages}


def _volume(scan: Scan) -> Volume:
    if isinstance(scan, Volume):
        return scan
    if isinstance(scan, str | Path):
        return read_ct(scan)
    if isinstance(scan, SpatialImage):
        return from_nibabel(scan)
    return from_array(*scan)
