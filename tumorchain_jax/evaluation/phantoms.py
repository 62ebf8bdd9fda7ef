"""Tumour position on digital patients that no training has seen.

One question a patient, greedy decoding, the whole reasoning loop. The organ that the conclusion
names is held against the truth; an answer that names none, or several, says "none".
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scipy.stats import binomtest
from tqdm import tqdm

from tumorchain_jax.analyze import TASKS, Analyzer
from tumorchain_jax.scan.organs import ORGANS, labels_named
from tumorchain_jax.scan.phantom import make_patient

NONE = "none"


@dataclass(frozen=True)
class Item:
    """One patient's truth and answer, as organ names or `none`."""

    seed: int
    truth: str
    answer: str
    first_round: str
    rounds: int


def evaluate_position(analyzer: Analyzer, first_seed: int, count: int) -> dict[str, Any]:
    """Ask where the tumour is in `count` patients of consecutive seeds.

    Returns:
        `ill` (is the tumour's organ right?), `all` (healthy patients included, for whom `none` is
        right) and `first_round` (ill patients, by the first organ that round 1 names), each with
        accuracy in percent, n, 95 % interval (Wilson) and majority-class baseline; `items`.
    """
    items: list[Item] = []
    size = analyzer.batch_size
    starts = range(first_seed, first_seed + count, size)
    for start in tqdm(starts, "phantoms", unit=" batches", disable=None):
        seeds = range(start, min(start + size, first_seed + count))
        patients = [make_patient(seed) for seed in seeds]
        cases = [(analyzer.prepare(p.ct, p.labels), TASKS["position"]) for p in patients]
        for patient, report in zip(patients, analyzer.batch(cases), strict=True):
            truth = ORGANS[patient.lesions[0].organ] if patient.lesions else NONE
            first = report.trace.rounds[0].organs
            items.append(
                Item(
                    patient.seed,
                    truth,
                    _organ_named(report.conclusion),
                    first[0].organ if first else NONE,
                    len(report.trace.rounds),
                )
            )
    ill = [item for item in items if item.truth != NONE]
    return {
        "ill": _score([i.truth for i in ill], [i.answer for i in ill]),
        "all": _score([i.truth for i in items], [i.answer for i in items]),
        "first_round": _score([i.truth for i in ill], [i.first_round for i in ill]),
        "items": [asdict(item) for item in items],
    }


def _organ_named(conclusion: str) -> str:
    labels = {label for mention in labels_named(conclusion) for label in mention.labels}
    return ORGANS[labels.pop()] if len(labels) == 1 else NONE


def _score(truths: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
    n = len(truths)
    right = sum(truth == answer for truth, answer in zip(truths, answers, strict=True))
    interval = binomtest(right, n).proportion_ci(method="wilson")
    majority = Counter(truths).most_common(1)[0][1] / n
    return {
        "accuracy": round(100 * right / n, 1),
        "n": n,
        "ci95": [round(100 * float(interval.low), 1), round(100 * float(interval.high), 1)],
        "majority": round(100 * majority, 1),
    }
