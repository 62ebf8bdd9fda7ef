"""The judge by rules: offline, the same every time, exact where the vocabulary reaches.

It marks what can be read as triples. A finding weighs its harm (a normal organ a little), so that
ten healthy organs do not make up for a tumour in the wrong one. What no rule reads is not marked
down: a chain without a single readable statement is an abstention.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tumorchain_jax import __version__
from tumorchain_jax.evaluation.chain.rubric import Marks, mark
from tumorchain_jax.evaluation.chain.triples import (
    ABDOMEN,
    EXISTENCE,
    FINDING,
    LACKS,
    LONG_REASONING,
    SUGGESTS,
    Triple,
    same_place,
)
from tumorchain_jax.evaluation.chain.truth import same_statement
from tumorchain_jax.evaluation.chain.verdict import (
    ABSTAINED,
    FAILED,
    JUDGED,
    Case,
    ChainVerdict,
    silence,
)
from tumorchain_jax.report.conclusion import parse_conclusion

_NORMAL_WEIGHT = 0.05
_STAGES = ("T", "N", "M")


@dataclass(frozen=True)
class RulesJudge:
    """See the head of the file."""

    name: str = f"rules {__version__}"
    workers: int = 1

    def judge(self, case: Case) -> ChainVerdict:
        """Judge one chain."""
        if why := silence(case.chain):
            return ChainVerdict(ABSTAINED, why)
        said = [statement.triple for statement in case.said]
        answered = bool(parse_conclusion(case.chain)) and case.right is not None
        if not said and not answered:
            return ChainVerdict(ABSTAINED, "nothing readable")
        if not case.true.required:
            return ChainVerdict(FAILED, "reference not readable")
        return ChainVerdict(JUDGED, marks=_Marker(case, said).marks(), right=case.right)

    def swapped(self) -> "RulesJudge":
        """The same judge: rules read chain and reference apart."""
        return self


class _Marker:
    def __init__(self, case: Case, said: list[Triple]):
        self.case, self.truth, self.said = case, case.true, said
        self.findings = [triple for triple in said if triple.level == FINDING]
        self.impressions = [triple for triple in said if triple.kind == "tumour"]
        self.conclusions = [triple for triple in said if triple.level == LONG_REASONING]
        # The conclusion of a question about one attribute is that attribute.
        self.asked = case.subtask not in ("cot_report", "")
        self.answered = not self.asked or bool(parse_conclusion(case.chain))

    def marks(self) -> Marks:
        return Marks({**self._finding(), **self._impression(), **self._long_reasoning()})

    # Findings, compared with the truth.

    def _finding(self) -> dict[str, int]:
        required = [t for t in self.truth.required if t.level == FINDING]
        there = [t for t in required if t.kind in EXISTENCE]
        said_there = [t for t in self.findings if t.kind in EXISTENCE]
        wrong_there = self._wrong(said_there)
        missing_there = self._missing(there)
        return {
            "existence": mark(
                _share(missing_there + wrong_there, _weight(there) + wrong_there, not there)
            ),
            "completeness": mark(_share(self._missing(required), _weight(required), not required)),
            "accuracy": mark(self._inaccuracy(bool(required))),
        }

    def _inaccuracy(self, expected: bool) -> float:
        wrong = self._wrong(self.findings)
        right = _weight(t for t in self.findings if self.truth.worth(t) == "right")
        if not wrong + right:
            return float(expected)
        return wrong / (wrong + right)

    def _wrong(self, said: Iterable[Triple]) -> float:
        wrong = (t for t in said if self.truth.worth(t) == "wrong")
        return sum((max(self.truth.harm_if_wrong(t), _NORMAL_WEIGHT) for t in wrong), 0.0)

    def _missing(self, required: Iterable[Triple]) -> float:
        return _weight(
            true
            for true in required
            if not any(same_statement(true, triple) for triple in self.said)
        )

    # Impressions, compared with the chain's own findings.

    def _impression(self) -> dict[str, int]:
        expected = {t.kind for t in self.truth.required if t.kind in ("tumour", "metastasis")}
        if "tumour" not in expected and not self.impressions:
            # Nothing to suspect in the question: the conclusion stands for the impression.
            own = mark(self._unsupported(self.findings[:0]))
            clear = 10 if self.answered else 0
            return {"clarity": clear, "consistency": own if self.answered else 0, "utility": clear}
        suspected = {t.subject for t in self.impressions if t.relation == SUGGESTS}
        denied = any(t.relation == LACKS and t.subject == ABDOMEN for t in self.impressions)
        said = {t.kind for t in self.said}
        rivals = len(suspected) + denied - 1
        return {
            "clarity": mark(1.0 if rivals < 0 else 0.5 * min(rivals, 1)),
            "consistency": mark(self._unsupported(self.impressions) if rivals >= 0 else 1.0),
            "utility": mark(len(expected - said) / max(len(expected), 1)),
        }

    def _unsupported(self, impressions: Collection[Triple]) -> float:
        """Share of impressions and of conclusions that the chain's own findings contradict."""
        ill = [t for t in self.findings if t.kind in ("lesion", "part") and t.relation != LACKS]
        faults = []
        for triple in impressions:
            here = any(same_place(t.subject, triple.subject) for t in ill)
            if triple.relation == SUGGESTS:
                faults.append(not here and (bool(ill) or self._normal(triple.subject)))
            else:
                faults.append(here or (triple.subject == ABDOMEN and bool(ill)))
        return sum(faults) / len(faults) if faults else 0.0

    def _normal(self, subject: str) -> bool:
        return any(t.kind == "normal" and same_place(t.subject, subject) for t in self.findings)

    # Long reasoning.

    def _long_reasoning(self) -> dict[str, int]:
        true_levels = {t.level for t in self.truth.required if t.harm}
        levels = {t.level for t in self.said if t.harm} | (
            {LONG_REASONING} if self.answered and self.asked else set()
        )
        concluded = {t.kind for t in self.truth.required if t.kind in (*_STAGES, "tumour")}
        said = {t.kind for t in self.said}
        contradicted = [t for t in (*self.conclusions, *self.impressions)
                        if self.truth.worth(t) == "wrong"]  # fmt: skip
        stated = len(self.conclusions) + len(self.impressions)
        unsupported = self._unsupported(self.impressions)
        wrong = len(contradicted) / stated if stated else 0.0
        if self.asked and self.case.right is False:
            wrong = 1.0 if not stated else max(wrong, 0.5)
        nothing = not stated and bool(concluded) and not (self.asked and self.answered)
        return {
            "logical_completeness": mark(_share(len(true_levels - levels), len(true_levels))),
            "depth": mark(_share(len(concluded - said), len(concluded))),
            "relevance": 10 if self.answered and (self.asked or self.impressions) else 0,
            "evidence": mark(1.0 if nothing else max(wrong, unsupported)),
        }


def _value(triple: Triple) -> float:
    return max(triple.harm, _NORMAL_WEIGHT)


def _weight(triples: Iterable[Triple]) -> float:
    return sum(map(_value, triples), 0.0)


def _share(part: float | int, whole: float | int, none_expected: bool = False) -> float:
    if none_expected and not part:
        return 0.0
    return min(part / whole, 1.0) if whole else 0.0
