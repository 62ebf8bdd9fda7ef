"""How well the rules read reports that were written apart from them: `phantoms/reports/`.

Those reports know what each of their sentences states. Of the kinds below, recall is the share of
stated triples that is read, and precision the share of read triples that is stated. Attributes are
compared with those of the organ, whichever of its lesions they are said of. No rule was written or
mended by these reports.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from tumorchain_jax.evaluation.chain.reader import triples_in
from tumorchain_jax.evaluation.chain.triples import (
    ANY_TUMOUR,
    ENLARGED_NODES,
    HAS,
    LACKS,
    LESION,
    METASTASIS,
    NODES,
    STAGE,
    SUGGESTS,
    TUMOUR,
    Triple,
    same_place,
)
from tumorchain_jax.evaluation.chain.verdict import silence
from tumorchain_jax.evaluation.statistics import wilson
from tumorchain_jax.phantoms.reports.patients import draw_patient
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import STYLES, Style
from tumorchain_jax.phantoms.reports.writer import write_radiology

SEED = 7_000_000
_KINDS = ("lesion", "part", "density", "shape", "boundary", "others", "nodes", "metastasis",
          "tumour", "T", "N", "M")  # fmt: skip
_VALUES = {"mixed": "heterogeneous"}
_DIGESTIVE = ("liver", "pancreas", "stomach", "colon", "esophagus")
_UNREAD = ("cystic", "necrosis")
"""Values that the vocabulary does not have."""


@dataclass(frozen=True)
class StyleRow:
    """The reading of one style.

    Attributes:
        silent: reports that `silence` turns away, such as those in another language.
        recall, precision: shares; with `stated` and `read`, the numbers of triples.
    """

    style: str
    reports: int
    silent: int
    stated: int
    found: int
    read: int
    right: int

    @property
    def recall(self) -> float | None:
        """Share of stated triples that is read."""
        return self.found / self.stated if self.stated else None

    @property
    def precision(self) -> float | None:
        """Share of read triples that is stated."""
        return self.right / self.read if self.read else None


def read_styles(reports: int = 100, seed: int = SEED) -> list[StyleRow]:
    """Read reports of every style."""
    return [_row(style, reports, seed) for style in STYLES.values()]


def _row(style: Style, reports: int, seed: int) -> StyleRow:
    silent = stated = found = read = right = 0
    for number in range(seed, seed + reports):
        draft = write_radiology(draw_patient(number), style, number)
        if silence(draft.text):
            silent += 1
            continue
        true = [*dict.fromkeys(_triples(draft.statements))]
        said = [t for t in triples_in(draft.text) if t.kind in _KINDS and t.relation != LACKS]
        stated += len(true)
        found += sum(any(_same(t, s) for s in said) for t in true)
        read += len(said)
        right += sum(any(_same(t, s) for t in true) for s in said)
    return StyleRow(style.name, reports, silent, stated, found, read, right)


def _same(true: Triple, said: Triple) -> bool:
    return true[1:] == said[1:] and same_place(true.subject, said.subject)


def _triples(statements: Iterable[Statement]) -> Iterator[Triple]:
    """Turn what a report states to be there now into triples of the vocabulary."""
    current = [statement for statement in statements if statement.is_current]
    tumours = {
        s.organ for s in current if s.attribute == "finding" and s.value in ("mass", "tumour")
    }
    for statement in current:
        organ = _subject(statement.organ)
        make = partial(Triple, organ, HAS)
        match statement.attribute, statement.value:
            case "finding", "mass" | "tumour" if organ in _DIGESTIVE:
                yield make(LESION, "lesion")
                if statement.value == "tumour":
                    yield Triple(organ, SUGGESTS, TUMOUR, "tumour")
                if statement.part:
                    yield make(statement.part, "part")
            case "finding", "metastasis":
                yield make(METASTASIS, "metastasis")
            case "finding", "lymph node":
                yield Triple(NODES, HAS, ENLARGED_NODES, "nodes")
            case ("shape" | "boundary" | "density" | "others") as kind, value:
                if value not in _UNREAD and statement.organ in tumours:
                    yield make(_VALUES.get(value, value), kind)
            case "impression", _ if organ in _DIGESTIVE:
                yield Triple(organ, SUGGESTS, TUMOUR, "tumour")
            case ("T" | "N" | "M") as letter, value:
                yield Triple(ANY_TUMOUR, STAGE, value, letter)


def _subject(organ: str) -> str:
    if organ.endswith("lung"):
        return "left lung" if "left" in organ else "right lung"
    return organ


def styles_text(rows: Iterable[StyleRow]) -> str:
    """Format the reading of all styles."""
    lines = [f"{'style':<14}{'reports':>8}{'silent':>8}{'recall %':>10}{'95 %':>14}"
             f"{'of':>7}{'precision %':>13}{'95 %':>14}{'of':>7}"]  # fmt: skip
    for row in rows:
        cells = _cells(row.found, row.stated, 10) + _cells(row.right, row.read, 13)
        lines.append(f"{row.style:<14}{row.reports:>8}{row.silent:>8}{cells}")
    return "\n".join(lines)


def _cells(count: int, n: int, width: int) -> str:
    if not n:
        return f"{'-':>{width}}{'':>14}{0:>7}"
    low, high = wilson(count, n)
    return f"{100 * count / n:>{width}.1f}{f'{100 * low:.1f}-{100 * high:.1f}':>14}{n:>7}"


def plain(row: StyleRow) -> Mapping[str, object]:
    """Return a row as plain values."""
    return {**vars(row), "recall": row.recall, "precision": row.precision}
