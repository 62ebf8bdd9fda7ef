"""Load a model once and ask about many scans: the Python API.

analyzer = Analyzer.load()                       # the nano models that ship with the package
report = analyzer("ct.nii.gz", "Where is the tumour?")
report.save(Path("out"))
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tumorchain_jax.anatomy.organs import labels_named
from tumorchain_jax.inference.case import PreparedCase, Scan, ensure_organs, prepare
from tumorchain_jax.inference.record import NANO_NAME, build_report
from tumorchain_jax.inference.runner import Answer, Asked, Runner
from tumorchain_jax.inference.verdict import check_scope
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.reasoning.generate import GREEDY, Sampling
from tumorchain_jax.report.report import Report
from tumorchain_jax.segmentation.cache import SegmentationCache
from tumorchain_jax.segmentation.factory import make_segmenter
from tumorchain_jax.segmentation.total import TotalSegmenter
from tumorchain_jax.weights.model_folder import ModelFolder, load_model, weights_sha256

TASKS = {
    "position": "Where is the tumour in this CT?",
    "report": "Write a report with findings, impression and conclusion.",
}


class Analyzer:
    """A model and a segmenter: prepare a scan, run questions about it, record the answers.

    `analyzer(scan, question)` does all three steps for one question.

    Args:
        checkpoint: a model folder that was read.
        batch_size: questions that run at once.
        max_rounds: limit on rounds of reasoning.
        sampling: how tokens are drawn.
        segmenter: makes the masks of scans that come without one; None: the nano segmenter of the
            package, with a cache of label maps.

    Attributes:
        runner: the compiled model.
    """

    def __init__(
        self,
        checkpoint: ModelFolder,
        batch_size: int = 1,
        max_rounds: int = 4,
        sampling: Sampling = GREEDY,
        segmenter: TotalSegmenter | None = None,
    ):
        self.runner = Runner(checkpoint, batch_size, max_rounds, sampling)
        self._segmenter = segmenter

    @classmethod
    def load(cls, checkpoint: str | Path | None = None, **options: Any) -> "Analyzer":
        """Read a checkpoint folder; None is the nano model that ships with the package.

        Args:
            options: of the constructor.

        Raises:
            InputError: it is no checkpoint, or its weights and configuration disagree.
        """
        folder = Path(checkpoint or NANO_CHECKPOINT)
        model = load_model(folder)
        if model.sha256 == weights_sha256(NANO_CHECKPOINT):  # wherever a copy of it lies
            model = replace(model, name=NANO_NAME)
        return cls(model, **options)

    @property
    def checkpoint(self) -> ModelFolder:
        """The model folder that was loaded."""
        return self.runner.checkpoint

    @cached_property
    def segmenter(self) -> TotalSegmenter:
        """The segmenter for scans without a mask."""
        return self._segmenter or make_segmenter(cache=SegmentationCache())

    def __call__(
        self,
        scan: Scan,
        question: str = TASKS["position"],
        *,
        mask: Scan | None = None,
        seed: int = 0,
        rounds: int | None = None,
        force: bool = False,
    ) -> Report:
        """Ask one question about one scan.

        Args:
            scan: a path (NIfTI or DICOM folder), a nibabel image, or (HU array, affine to RAS+ mm).
            mask: its TotalSegmentator v2 `total` label map, in any of the same forms; None: the
                segmenter makes one.
            rounds: limit on rounds of reasoning; by default, and at most, the analyzer's own.
            force: continue though the scan or the mask is implausible, or the question out of
                scope; the report then says so.

        Raises:
            InputError: the scan, the mask or the question cannot be used.
        """
        self.check_question(question)
        if not force:
            check_scope(question)
        case = self.prepare(scan, mask, force)
        return self.batch([(case, question)], seed=seed, rounds=rounds)[0]

    def check_question(self, question: str) -> None:
        """Raise InputError for a question that is empty, not valid Unicode, or too long."""
        self.runner.check_question(question)

    def prepare(self, scan: Scan, mask: Scan | None = None, force: bool = False) -> PreparedCase:
        """Step 1: read and preprocess a scan; read its mask, or segment the digestive organs.

        Args:
            force: continue though the scan or the mask is implausible.

        Raises:
            InputError: either cannot be used, or is implausible and not forced.
        """
        segmenter = self.segmenter if mask is None else None
        return prepare(scan, mask, self.checkpoint, segmenter, force)

    def run(
        self, asked: Sequence[Asked], *, seed: int = 0, rounds: int | None = None
    ) -> list[Answer]:
        """Step 2: answer many (case, question) pairs.

        Where a chain names an organ that the segmenter can find and has not looked for, the organ
        is segmented and all questions about that scan are asked again, at most once for each of the
        segmenter's models.
        """
        # By identity: a scan is segmented and encoded once, whatever it is asked.
        keys = [id(case) for case, _ in asked]
        cases = {key: case for key, (case, _) in zip(keys, asked, strict=True)}
        named: dict[int, set[int]] = {key: set() for key in keys}
        for key, (_, question) in zip(keys, asked, strict=True):
            named[key].update(label for each in labels_named(question) for label in each.labels)
        answers: dict[int, Answer] = {}
        pending = set(keys)
        while pending:
            for key in pending:
                cases[key] = ensure_organs(cases[key], named[key], self.checkpoint)
            numbers = [number for number, key in enumerate(keys) if key in pending]
            questions = [(cases[keys[number]], asked[number][1]) for number in numbers]
            found = self.runner.run(questions, seed=seed, rounds=rounds)
            for number, answer in zip(numbers, found, strict=True):
                answers[number] = answer
                mentions = [m.label for each in answer.trace.rounds for m in each.organs]
                named[keys[number]].update(mentions)
            pending = {key for key in pending if _incomplete(cases[key], named[key])}
        return [answers[number] for number in range(len(asked))]

    def record(self, answer: Answer) -> Report:
        """Step 3: make the report of an answer."""
        return build_report(answer, self.checkpoint)

    def batch(
        self, asked: Sequence[Asked], *, seed: int = 0, rounds: int | None = None
    ) -> list[Report]:
        """Steps 2 and 3: the reports of many (case, question) pairs; see `run`."""
        return [self.record(answer) for answer in self.run(asked, seed=seed, rounds=rounds)]


def _incomplete(case: PreparedCase, organs: set[int]) -> bool:
    return bool(case.masks and case.masks.missing_models(organs))
