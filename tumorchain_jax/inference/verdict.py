"""Judge an answer without knowing the truth: is it one, and can it be relied on?

The first of these that holds takes the place of the answer in the headline of a report:

1. the question is out of scope (it was asked with `force`);
2. it is about an organ that is not segmented;
3. its yes would say that nothing is found, the conclusion is not of the kind that was asked for, or
   the chain does not name the organ asked about;
4. the model is not above its baseline at such questions on scans of this kind (`evaluation.json`);
5. its calibrated confidence is below the threshold (`calibration.json`).
"""

import json
import re
from pathlib import Path

import numpy as np

from tumorchain_jax.anatomy.organs import ORGANS, display_name, labels_named, normalise_name
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.runner import Answer, check_text
from tumorchain_jax.reasoning.question_kind import SUBTASK, QuestionKind, question_kind
from tumorchain_jax.reasoning.question_scope import out_of_scope
from tumorchain_jax.report.conclusion import parse_conclusion
from tumorchain_jax.report.verdict import Confidence, Verdict
from tumorchain_jax.segmentation.masks import OrganMasks
from tumorchain_jax.weights.measured import Measured
from tumorchain_jax.weights.scores import DIGITAL, REAL, REALISTIC_DIGITAL, Score

BELOW_BASELINE = "not above its baseline on scans of this kind"
OTHER_WAY_ROUND = "no answer: a yes would say that nothing is found; ask whether there is a tumour"
OTHER_ORGANS = "no answer: the chain does not name the organ asked about"
_REVERSED = re.compile(
    r"\b(?:normal|healthy|unremarkable|intact|(?:clear|free) of|free from|without|no|(?<!or )not"
    r"|absent|absence|exclude\w*|rule[ds]? out|lack\w*)\b"
)


def verdict(answer: Answer, measured: Measured, domain: str | None = None) -> Verdict:
    """Judge an answer by what was measured of its model.

    Args:
        domain: the kind of scan; None: as `scan_domain` tells it.
    """
    kind, conclusion = question_kind(answer.question), parse_conclusion(answer.text)
    domain = domain or scan_domain(answer.case.source)
    score = _score(measured, domain, kind)
    confidence = _confidence(answer, measured, domain, kind)
    reason = (
        _scope(answer.question)
        or _not_segmented(answer.question, answer.case.masks)
        or _asked_the_other_way_round(kind, answer.question)
        or _another_kind(kind, conclusion)
        or _about_other_organs(kind, answer)
        or (BELOW_BASELINE if score and not score.above_baseline else "")
        or (f"cannot tell: {confidence.text}" if confidence.low else "")
    )
    about = _measured(measured, domain, score)
    return Verdict(kind.answer_kind, reason, confidence, domain, score, about)


def check_scope(question: str) -> None:
    """Raise InputError for a question that a model of abdominal CT cannot be asked."""
    check_text(question)
    if why := out_of_scope(question):
        expected = "a question in English about an abdominal CT"
        raise InputError("question", "scope", why, expected, "ask anyway with --force")


def scan_domain(source: str) -> str:
    """Tell a digital patient, in memory or written by `tumorchain phantoms`, from a real CT.

    A real CT with a painted tumour is a real CT.
    """
    path = Path(source)
    if source.startswith("digital patient ") and not path.exists():
        return DIGITAL
    try:
        truth = json.loads((path.parent / "truth.json").read_bytes())
        digital = path.name == "ct.nii.gz" and bool(truth["synthetic"] and truth["body"])
        realistic = "anatomy" in truth
    except (OSError, ValueError, TypeError, KeyError):
        return REAL
    if not digital:
        return REAL
    return REALISTIC_DIGITAL if realistic else DIGITAL


def conclusion_log_probability(answer: Answer) -> float | None:
    """Sum the log-probabilities of the conclusion's tokens, given the chain before them.

    None if the model gave no conclusion, or its words do not stand in the text as they are.
    """
    text = b"".join(piece for piece, _ in answer.tokens)
    conclusion = parse_conclusion(answer.text).encode(errors="replace")
    start = text.rfind(conclusion) if conclusion else -1
    if start < 0:
        return None
    end, offset, total = start + len(conclusion), 0, 0.0
    for piece, log_probability in answer.tokens:
        if offset < end and offset + len(piece) > start:
            total += log_probability
        offset += len(piece)
    return total


def not_segmented(question: str, masks: OrganMasks | None) -> list[str]:
    """Name the organs that a question names and the masks, if there are any, lack.

    Where one word names several ("kidneys"), it is enough that one of them is there.
    """
    if masks is None or masks.origin.kind == "none":
        return []
    named = [each.labels for each in labels_named(question)]
    lacking = [
        labels for labels in named if not any(ORGANS[label] in masks.statistics for label in labels)
    ]
    return list(dict.fromkeys(display_name(label) for labels in lacking for label in labels))


def _scope(question: str) -> str:
    why = out_of_scope(question)
    return f"out of scope: {why}" if why else ""


def _not_segmented(question: str, masks: OrganMasks | None) -> str:
    organs = not_segmented(question, masks)
    if not organs:
        return ""
    names = " and ".join(f"the {name}" for name in organs)
    return f"cannot tell: {names} {'is' if len(organs) == 1 else 'are'} not segmented"


def _asked_the_other_way_round(kind: QuestionKind, question: str) -> str:
    """Of "Is the liver normal?": models are trained on questions whose yes is a finding."""
    if kind.kind != "yes/no" or not _REVERSED.search(normalise_name(question)):
        return ""
    return OTHER_WAY_ROUND


def _about_other_organs(kind: QuestionKind, answer: Answer) -> str:
    """Of a yes or no about an organ that the whole chain does not name."""
    if kind.kind != "yes/no":
        return ""
    chain = "\n".join(each.text for each in answer.trace.rounds)
    asked, told = (
        {label for each in labels_named(text) for label in each.labels}
        for text in (answer.question, chain)
    )
    return "" if not asked or asked & told else OTHER_ORGANS


def _another_kind(kind: QuestionKind, conclusion: str) -> str:
    why = kind.why_unanswered(conclusion)
    return f"no answer: {why}" if why else ""


def _score(measured: Measured, domain: str, kind: QuestionKind) -> Score | None:
    scores = measured.domains.get(domain)
    return scores.subtasks.get(SUBTASK.get(kind.kind, "")) if scores else None


def _measured(measured: Measured, domain: str, score: Score | None) -> str:
    if not measured.domains:
        return "never evaluated"
    if score is None:
        return f"such questions were never evaluated on {domain}"
    low, high = score.ci95
    return (
        f"on {domain}, {score.accuracy:g} % of such answers were right (95 % interval {low:g} to "
        f"{high:g}, n {score.n}; baseline {score.baseline:g} %)"
    )


def _confidence(answer: Answer, measured: Measured, domain: str, kind: QuestionKind) -> Confidence:
    log_probability = conclusion_log_probability(answer)
    calibration = measured.calibration
    if calibration is None or log_probability is None:
        return Confidence(None, None, log_probability, "confidence not calibrated")
    if domain != DIGITAL:
        return Confidence(None, None, log_probability, f"confidence not calibrated on {domain}")
    of_kind = calibration.kinds.get(kind.kind)
    if of_kind is None:
        return Confidence(
            None, None, log_probability, "confidence not calibrated for such questions"
        )
    value = float(of_kind.confidence(np.array([log_probability]))[0])
    text = f"confidence {_percent(value)}"
    if value < calibration.threshold:
        text += f", below the threshold of {_percent(calibration.threshold)}"
    return Confidence(value, calibration.threshold, log_probability, text)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
