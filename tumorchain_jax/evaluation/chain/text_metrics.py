"""Appendix: what overlap of words is worth, as BLEU, chrF and ROUGE measure it.

The measure of a metric is its phantom AUC: how often a right report in other words scores above the
reference's own words with a single fact changed. 1 is perfect, 0.5 is chance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.chain.cases import draw_truth
from tumorchain_jax.evaluation.chain.f1 import weigh
from tumorchain_jax.evaluation.chain.phrases import write_report
from tumorchain_jax.evaluation.chain.probes import ONE_FACT, Subject
from tumorchain_jax.evaluation.chain.rad_eval import LOWER_IS_BETTER, rad_eval
from tumorchain_jax.evaluation.chain.reader import triples_in
from tumorchain_jax.evaluation.chain.truth import Truth
from tumorchain_jax.evaluation.chain.wordings import PLAIN
from tumorchain_jax.evaluation.statistics import wilson
from tumorchain_jax.phantoms.report_text import free_text

HARM_F1 = "triples, F1 by harm"
_CHANGED = ("part", "density", "shape", "border", "count", "T", "N", "M")


@dataclass(frozen=True)
class MetricRow:
    """A metric on the phantoms.

    Attributes:
        right, wrong: mean score of right reports in other words, and of those with a wrong fact.
        auc, low, high: the phantom AUC with its 95 % interval.
        n: pairs.
        signature: what exactly was computed.
    """

    metric: str
    right: float
    wrong: float
    auc: float
    low: float
    high: float
    n: int
    signature: str


Metric = Callable[[str, str, Truth], float]


def text_metrics(
    phantoms: int = 40, seed: int = 9100, others: tuple[Path, Sequence[str]] | None = None
) -> list[MetricRow]:
    """Measure the metrics on digital patients.

    Args:
        others: metrics of RadEval as well: the interpreter that has it, and their names.

    Raises:
        InputError: the optional packages are not installed, or fail.
    """
    metrics = _metrics()
    subjects = [Subject(seed + number) for number in range(phantoms)]
    pairs = []
    for subject in subjects:
        reference = subject.right.text
        other = free_text(draw_truth(subject.seed), 2).partition("\n")[2].strip()
        for name in _CHANGED:
            rng = np.random.default_rng((subject.seed, 24))
            facts = ONE_FACT[name](subject.facts, rng)
            if facts is not None:
                changed = write_report(facts, PLAIN, 1_000_003 * subject.seed + 1).text
                pairs.append((reference, other, changed, subject.truth))
    rows = []
    for metric, (score, signature) in metrics.items():
        right = np.array([score(other, reference, truth) for reference, other, _, truth in pairs])
        wrong = np.array([score(text, reference, truth) for reference, _, text, truth in pairs])
        rows.append(_row(metric, right, wrong, signature))
    if others:
        python, names = others
        references = [reference for reference, *_ in pairs]
        texts = [other for _, other, *_ in pairs] + [changed for *_, changed, _ in pairs]
        version, scores = rad_eval(python, names, references * 2, texts)
        for metric, values in scores.items():
            lower = metric.startswith(LOWER_IS_BETTER)
            halves = np.array(values[: len(pairs)]), np.array(values[len(pairs) :])
            signature = f"radeval {version}{', lower is better' if lower else ''}"
            rows.append(_row(metric, *halves, signature, lower))
    return rows


def _row(
    metric: str,
    right: Float[np.ndarray, " pairs"],
    wrong: Float[np.ndarray, " pairs"],
    signature: str,
    lower: bool = False,
) -> MetricRow:
    better = right < wrong if lower else right > wrong
    higher = float(np.sum(better) + 0.5 * np.sum(right == wrong))
    n = len(right)
    low, high = wilson(round(higher), n)
    means = float(right.mean()), float(wrong.mean())
    return MetricRow(metric, *means, higher / n, low, high, n, signature)


def _metrics() -> dict[str, tuple[Metric, str]]:
    bleu, chrf = _package("sacrebleu").BLEU(effective_order=True), _package("sacrebleu").CHRF()
    scorer = _package("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rougeL"])

    def overlap(score: Any) -> Metric:
        return lambda text, reference, truth: score.sentence_score(text, [reference]).score

    def rouge(name: str) -> Metric:
        return lambda text, reference, truth: 100 * scorer.score(reference, text)[name].fmeasure

    def harm(text: str, reference: str, truth: Truth) -> float:
        return weigh(triples_in(text), truth).f1 or 0.0

    # Signatures are known after a first score.
    for metric in (bleu, chrf):
        metric.sentence_score("a", ["a"])
    return {
        "BLEU": (overlap(bleu), str(bleu.get_signature())),
        "chrF": (overlap(chrf), str(chrf.get_signature())),
        "ROUGE-1": (rouge("rouge1"), "rouge-score, no stemmer, F"),
        "ROUGE-L": (rouge("rougeL"), "rouge-score, no stemmer, F"),
        HARM_F1: (harm, "rules"),
    }


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        found, expected = f"no {name.partition('.')[0]}", "the extra report-metrics"
        hint = 'pip install "tumorchain-jax[report-metrics]"'
        raise InputError("text metrics", "packages", found, expected, hint) from error


def metrics_text(rows: list[MetricRow]) -> str:
    """Format the metrics as a table."""
    head = f"{'metric':<22}{'other words':>12}{'one fact wrong':>16}{'AUC':>7}{'95 % from':>11}"
    lines = [f"{head}{'to':>7}{'n':>6}  signature"]
    lines += [
        f"{row.metric:<22}{row.right:>12.1f}{row.wrong:>16.1f}{row.auc:>7.2f}{row.low:>11.3f}"
        f"{row.high:>7.3f}{row.n:>6}  {row.signature}"
        for row in rows
    ]
    return "\n".join(lines)
