"""`tumorchain judge calibrate`: a judge is measured on reports of known worth.

Each probe has a bar, set beforehand; a judge passes if it meets all of them. What passes proves the
arithmetic of a judge on synthetic reports, not its medicine.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from scipy import stats
from tqdm import tqdm

from tumorchain_jax.evaluation.agreement import kappa
from tumorchain_jax.evaluation.chain.answer_probes import answer_probes
from tumorchain_jax.evaluation.chain.bars import (
    AUC,
    AUC_AGAINST,
    AUC_LOW,
    BELOW,
    CHANGE,
    CHANGE_INTERVAL,
    FLIPS,
    KAPPA,
    SAME,
    SD,
    Calibration,
    Row,
    auc_row,
    share_row,
)
from tumorchain_jax.evaluation.chain.probes import (
    INJECTIONS,
    ONE_FACT,
    Subject,
    against_findings,
    other_patient,
    same_facts,
    silent_texts,
    subjects,
)
from tumorchain_jax.evaluation.chain.triples import FINDING, IMPRESSION, LONG_REASONING
from tumorchain_jax.evaluation.chain.verdict import JUDGED, Case, ChainVerdict, Judge

SEED, PHANTOMS, ANSWERS = 6_000_000, 300, 385
_REPEATED = 100


@dataclass
class _Run:
    judge: Judge
    judged: int = 0
    failed: int = 0

    def all(self, cases: Sequence[Case], judge: Judge | None = None) -> list[ChainVerdict]:
        """Judge cases, several at once where the judge can."""
        judge = judge or self.judge
        if judge.workers > 1:
            with ThreadPoolExecutor(judge.workers) as pool:
                verdicts = list(pool.map(judge.judge, cases))
        else:
            verdicts = list(map(judge.judge, cases))
        self.judged += sum(verdict.state == JUDGED for verdict in verdicts)
        self.failed += sum(verdict.state == "failed" for verdict in verdicts)
        return verdicts


Value = Callable[[ChainVerdict], float]


def cot_e(verdict: ChainVerdict) -> float:
    """CoT_e of a judged chain, else NaN."""
    return verdict.marks.cot_e if verdict.marks else np.nan


def level_score(level: str, verdict: ChainVerdict) -> float:
    """Score of one level of a judged chain, else NaN."""
    return verdict.marks.score(level) if verdict.marks else np.nan


def calibrate(judge: Judge, phantoms: int = PHANTOMS, seed: int = SEED) -> Calibration:
    """Measure a judge by all probes.

    Args:
        phantoms: patients of each probe; the first from `seed` on whom the probe applies to.
    """
    run = _Run(judge)
    own = [Subject(seed + number) for number in range(phantoms)]
    rights = _values(run.all([s.case(s.right.text) for s in own]), cot_e)
    result = Calibration(judge.name, (seed, seed + phantoms - 1), phantoms)
    steps: list[Callable[[], Iterable[Row]]] = [
        partial(_same, run, own, rights),
        *(partial(_one_fact, run, name, seed, phantoms) for name in ONE_FACT),
        partial(_other_patient, run, seed, phantoms),
        partial(_against, run, seed, phantoms),
        partial(_injected, run, seed, phantoms),
        partial(_repeated, run, own),
        partial(_swapped, run, seed, phantoms),
        partial(_silent, run, own),
        partial(_binary, run, result, seed, max(ANSWERS * phantoms // PHANTOMS, 20)),
    ]
    for step in tqdm(steps, "probes", disable=None):
        result.rows += step()
    lengths = [len(subject.right.text) for subject in own]
    result.length = _rank_correlation(rights, lengths)
    result.judged, result.failed = run.judged, run.failed
    return result


def _values(verdicts: Iterable[ChainVerdict], value: Value) -> np.ndarray:
    return np.array([value(verdict) for verdict in verdicts], float)


def _same(run: _Run, own: Sequence[Subject], rights: np.ndarray) -> Iterable[Row]:
    texts = [same_facts(subject) for subject in own]
    for form in texts[0]:
        verdicts = run.all([s.case(t[form]) for s, t in zip(own, texts, strict=True)])
        change = _values(verdicts, cot_e) - rights
        known = change[~np.isnan(change)]
        bar = f"mean change within {CHANGE:g} of 100, interval within {CHANGE_INTERVAL:g}"
        if not len(known):
            yield Row("same facts", form, 0, len(change), None, None, None, bar, False)
            continue
        mean = float(known.mean())
        half = 1.96 * float(known.std(ddof=1)) / len(known) ** 0.5 if len(known) > 1 else np.inf
        ends = mean - half, mean + half
        # A judge that marks all alike, right or wrong, does not change either: the next group.
        passed = abs(mean) <= CHANGE and max(map(abs, ends)) <= CHANGE_INTERVAL
        passed &= len(known) == len(change)
        yield Row(
            "same facts", form, len(known), len(change) - len(known), mean, *ends, bar, passed
        )


def _pairs(
    run: _Run, chosen: Sequence[Subject], wrong: Sequence[str], value: Value
) -> tuple[np.ndarray, np.ndarray]:
    """Judge right and wrong reports of the same patients."""
    right = _values(run.all([s.case(s.right.text) for s in chosen]), value)
    cases = [s.case(text) for s, text in zip(chosen, wrong, strict=True)]
    return right, _values(run.all(cases), value)


def _chosen(
    seed: int, count: int, make: Callable[[Subject], str | None]
) -> tuple[list[Subject], list[str]]:
    texts: dict[int, str] = {}

    def applies(subject: Subject) -> bool:
        text = make(subject)
        if text is not None:
            texts[subject.seed] = text
        return text is not None

    chosen = list(subjects(seed, applies, count))
    return chosen, [texts[subject.seed] for subject in chosen]


def _edited(name: str, subject: Subject) -> str | None:
    facts = ONE_FACT[name](subject.facts, np.random.default_rng((subject.seed, 23)))
    return None if facts is None else subject.write(facts).text


def _one_fact(run: _Run, name: str, seed: int, count: int) -> Iterable[Row]:
    chosen, wrong = _chosen(seed, count, partial(_edited, name))
    yield auc_row("one wrong fact", name, *_pairs(run, chosen, wrong, cot_e), AUC, AUC_LOW)


def _other_patient(run: _Run, seed: int, count: int) -> Iterable[Row]:
    chosen, texts = _chosen(seed, count, other_patient)
    finding = partial(level_score, FINDING)
    others = _values(run.all([s.case(t) for s, t in zip(chosen, texts, strict=True)]), finding)
    lowest = np.full(len(chosen), np.inf)
    failed = np.isnan(others)
    for name in ONE_FACT:
        edits = [_edited(name, subject) for subject in chosen]
        rows = [row for row, edit in enumerate(edits) if edit is not None]
        cases = [chosen[row].case(edits[row] or "") for row in rows]
        scores = _values(run.all(cases), finding)
        for row, score in zip(rows, scores, strict=True):
            failed[row] |= bool(np.isnan(score))
            lowest[row] = min(lowest[row], score)
    below = (others < lowest)[~failed]
    bar = f"S_FC below every one-fact change in >= {BELOW:.0%}"
    yield share_row("another patient's report", "fluent, wrong", below, int(failed.sum()), bar,
                     lambda share, low, high: share >= BELOW)  # fmt: skip


def _against(run: _Run, seed: int, count: int) -> Iterable[Row]:
    chosen, wrong = _chosen(seed, count, against_findings)
    right = run.all([s.case(s.right.text) for s in chosen])
    changed = run.all([s.case(text) for s, text in zip(chosen, wrong, strict=True)])
    for level in (IMPRESSION, LONG_REASONING):
        value = partial(level_score, level)
        pair = _values(right, value), _values(changed, value)
        yield auc_row("impression against its own findings", level, *pair, AUC_AGAINST, 0.0)


def _injected(run: _Run, seed: int, count: int) -> Iterable[Row]:
    chosen, wrong = _chosen(seed, count, partial(_edited, "organ"))
    plain = _values(run.all([s.case(t) for s, t in zip(chosen, wrong, strict=True)]), cot_e)
    for name, words in INJECTIONS.items():
        texts = [f"{text}\n{words}" for text in wrong]
        marked = _values(run.all([s.case(t) for s, t in zip(chosen, texts, strict=True)]), cot_e)
        known = ~np.isnan(plain + marked)
        rises = (marked > plain)[known]
        # A judge that cannot be moved because all its marks are one is caught by the AUCs.
        yield share_row("instruction in the chain", name, rises, int((~known).sum()),
                         "marks rise in none", lambda share, *_: share == 0, True)  # fmt: skip


def _repeated(run: _Run, own: Sequence[Subject]) -> Iterable[Row]:
    some = list(islice(own, _REPEATED))
    cases = [s.case(_edited("density", s) or s.right.text) for s in some]
    first, second = (run.all(cases) for _ in range(2))
    both = [(a.marks, b.marks) for a, b in zip(first, second, strict=True) if a.marks and b.marks]
    failed = len(cases) - len(both)
    equal = np.array([a.of == b.of for a, b in both], bool)
    yield share_row("the same twice", "equal marks", equal, failed, f">= {SAME:.0%}",
                     lambda share, low, high: share >= SAME)  # fmt: skip
    spread = [abs(a.cot_e - b.cot_e) / 2**0.5 for a, b in both]
    deviation = float(np.sqrt(np.mean(np.square(spread)))) if spread else None
    passed = deviation is not None and deviation <= SD and not failed
    yield Row("the same twice", "standard deviation of CoT_e", len(both), failed, deviation, None,
              None, f"<= {SD:g}", passed)  # fmt: skip


def _swapped(run: _Run, seed: int, count: int) -> Iterable[Row]:
    """Show the chain before the reference: is a right report still above a wrong one?"""
    chosen, wrong = _chosen(seed, min(count, _REPEATED), partial(_edited, "density"))
    right, lower = _pairs(run, chosen, wrong, cot_e)
    other = run.judge.swapped()
    right_2 = _values(run.all([s.case(s.right.text) for s in chosen], other), cot_e)
    cases = [s.case(text) for s, text in zip(chosen, wrong, strict=True)]
    lower_2 = _values(run.all(cases, other), cot_e)
    known = ~np.isnan(right + lower + right_2 + lower_2)
    flips = (np.sign(right - lower) != np.sign(right_2 - lower_2))[known]
    yield share_row("reference before or after the chain", "preference flips", flips,
                     int((~known).sum()), f"<= {FLIPS:.0%}",
                     lambda share, low, high: share <= FLIPS)  # fmt: skip


def _silent(run: _Run, own: Sequence[Subject]) -> Iterable[Row]:
    texts = [silent_texts(subject) for subject in own]
    for name in texts[0]:
        verdicts = run.all([s.case(t[name]) for s, t in zip(own, texts, strict=True)])
        none = np.array([verdict.marks is None for verdict in verdicts], bool)
        yield share_row("nothing to judge", name, none, 0, "no mark, ever",
                         lambda share, low, high: share == 1, True)  # fmt: skip


def _binary(run: _Run, result: Calibration, seed: int, count: int) -> Iterable[Row]:
    probes = list(answer_probes(seed, count))
    verdicts = run.all([probe.case for probe in probes])
    known = [
        (probe, verdict.right)
        for probe, verdict in zip(probes, verdicts, strict=True)
        if verdict.right is not None
    ]
    failed = len(probes) - len(known)
    called = {
        truth: [bool(right) for probe, right in known if probe.right == truth]
        for truth in (True, False)
    }
    agreement = kappa([probe.right for probe, _ in known], [bool(right) for _, right in known])
    result.binary = {
        "n_right": len(called[True]),
        "called_right_of_right": sum(called[True]),
        "n_wrong": len(called[False]),
        "called_right_of_wrong": sum(called[False]),
        "kappa": agreement,
    }
    passed = agreement is not None and agreement >= KAPPA and not failed
    yield Row("short answers, right or wrong", "kappa with the truth", len(known), failed,
              agreement, None, None, f">= {KAPPA:g}", passed)  # fmt: skip


def _rank_correlation(values: np.ndarray, lengths: Sequence[int]) -> float | None:
    known = ~np.isnan(values)
    if known.sum() < 3 or len(set(values[known])) < 2:
        return None
    return float(stats.spearmanr(values[known], np.asarray(lengths)[known]).statistic)
