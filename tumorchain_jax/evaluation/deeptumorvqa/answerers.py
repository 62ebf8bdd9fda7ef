"""Who answers the questions about a scan: a model, a rule agent on masks, or nobody who looks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.deeptumorvqa.baselines import chance, majority
from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question, QuestionFile
from tumorchain_jax.evaluation.deeptumorvqa.ruler.agent import answer_question
from tumorchain_jax.evaluation.deeptumorvqa.ruler.measure import measure
from tumorchain_jax.evaluation.deeptumorvqa.ruler.search import find_lesions
from tumorchain_jax.evaluation.deeptumorvqa.scans import Scans
from tumorchain_jax.evaluation.reading.answer_part import ERROR_MARK
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.reasoning.prompt import with_choices
from tumorchain_jax.scan.read import read_ct, read_labels
from tumorchain_jax.segmentation.cache import SegmentationCache
from tumorchain_jax.segmentation.factory import nano_segmenter
from tumorchain_jax.segmentation.total import TotalSegmenter

By = Literal["nano", "rules", "majority", "chance"]
WITHOUT_SCANS: tuple[By, ...] = ("majority", "chance")
Masks = Literal["true", "segment"]
BATCH_SIZE = 8


class Answerer(ABC):
    """Answers the questions about one CT at a time.

    Attributes:
        model: who this is, kept with every answer.
        shown: what of the scan is used, kept with every answer.
    """

    model: str
    shown: str

    @abstractmethod
    def answer(self, image_id: str, questions: Sequence[Question]) -> Sequence[str | None]:
        """Return the whole text of each answer; None where no reply came.

        Raises:
            InputError: the scan cannot be used.
        """

    def unfit(self, question: Question) -> str:
        """Return why a question cannot be answered from what is shown; "" if it can."""
        return ""


class ModelAnswers(Answerer):
    """A TumorChain model.

    Args:
        checkpoint: its folder; None: nano.
        mismatched: image_id -> the image whose scan is shown instead (the text-only baseline).
    """

    def __init__(
        self,
        scans: Scans,
        checkpoint: Path | None,
        form: Format,
        masks: Masks,
        mismatched: dict[str, str] | None = None,
    ):
        self.scans, self.form, self.masks, self.mismatched = scans, form, masks, mismatched
        self.analyzer = Analyzer.load(checkpoint, batch_size=BATCH_SIZE)
        model = self.analyzer.checkpoint
        self.model = f"{model.name} {model.sha256[:12]}"
        organs = "true organ masks" if masks == "true" else "organ masks by the segmenter"
        self.shown = f"3D CT, {organs}" + (", of another patient" if mismatched else "")

    def answer(self, image_id: str, questions: Sequence[Question]) -> list[str]:
        """See `Answerer`; a question that is too long is an error, not an answer."""
        shown = self.mismatched[image_id] if self.mismatched else image_id
        mask = self.scans.mask(shown, "labels") if self.masks == "true" else None
        case = self.analyzer.prepare(self.scans.ct(shown), mask, force=True)
        texts: dict[str, str] = {}
        asked = []
        for question in questions:
            text = question.question
            if self.form == "mc":
                text = with_choices(text, list(question.options.values()))
            try:
                self.analyzer.check_question(text)
                asked.append((question.qid, text))
            except InputError as error:
                texts[question.qid] = f"{ERROR_MARK} InputError: {error}"
        answers = self.analyzer.run([(case, text) for _, text in asked])
        texts |= {qid: a.text for (qid, _), a in zip(asked, answers, strict=True)}
        return [texts[question.qid] for question in questions]


class RuleAnswers(Answerer):
    """Segment, measure, look up: the rule agent on true masks, or on those of a segmenter."""

    def __init__(self, scans: Scans, form: Format, masks: Masks):
        self.scans, self.form, self.masks = scans, form, masks
        self.model = "rule agent"
        self.shown = "true masks of organs and lesions"
        if masks == "segment":
            self.shown = f"organ masks by {self.segmenter.name}; lesions by HU"

    @cached_property
    def segmenter(self) -> TotalSegmenter:
        """The segmenter of the package; what it found is kept for other formats and runs."""
        return replace(nano_segmenter(), quiet=True, cache=SegmentationCache())

    def answer(self, image_id: str, questions: Sequence[Question]) -> list[str]:
        """See `Answerer`."""
        ct = read_ct(self.scans.ct(image_id))
        if self.masks == "true":
            labels = read_labels(self.scans.mask(image_id, "labels"), ct)
            lesions = read_labels(self.scans.mask(image_id, "lesions"), ct)
        else:
            labels = self.segmenter(ct)
            lesions = find_lesions(ct, labels)
        measured = measure(ct, labels, lesions)
        return [answer_question(measured, question, self.form) for question in questions]


class ConstantAnswers(Answerer):
    """Answers that were fixed beforehand, without any scan."""

    shown = "nothing"

    def __init__(self, model: str, answers: dict[str, str]):
        self.model, self.answers = model, answers

    def answer(self, image_id: str, questions: Sequence[Question]) -> list[str]:
        """See `Answerer`."""
        return [self.answers[question.qid] for question in questions]


def make_answerer(
    by: By,
    asked: QuestionFile,
    form: Format,
    *,
    scans: Path | None = None,
    checkpoint: Path | None = None,
    masks: Masks = "true",
    mismatched: bool = False,
) -> Answerer:
    """Make what `tumorchain deeptumorvqa predict` asks for.

    Raises:
        InputError: the options do not go together, a folder cannot be used, or the model was
            trained or calibrated on these digital patients.
    """
    if by in WITHOUT_SCANS:
        rule = majority if by == "majority" else chance
        return ConstantAnswers(by, rule(asked.questions, form))
    folder = scans_of(asked, scans)
    if by == "rules":
        return RuleAnswers(folder, form, masks)
    others = other_images(asked) if mismatched else None
    model = ModelAnswers(folder, checkpoint, form, masks, others)
    if asked.seeds:
        model.analyzer.checkpoint.measured.check_seeds(asked.seeds, "evaluation")
    return model


def scans_of(asked: QuestionFile, scans: Path | None) -> Scans:
    """Return the folder of the CTs, which has each that is asked about.

    Raises:
        InputError: none was named, or a CT is missing.
    """
    if scans is None:
        raise InputError("command line", "--scans", "none", "a folder of CTs", "name one")
    folder = Scans(scans)
    for image_id in asked.images:
        folder.ct(image_id)
    return folder


def other_images(asked: QuestionFile) -> dict[str, str]:
    """Pair each CT with the next one, which is shown in its place.

    Raises:
        InputError: there is one alone.
    """
    images = asked.images
    if len(images) < 2:
        hint = "ask about two CTs or more"
        raise InputError("command line", "--mismatched", "one CT", "another patient's", hint)
    return dict(zip(images, [*images[1:], images[0]], strict=True))
