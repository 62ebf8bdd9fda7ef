"""From the readers' files to one reference: agreement, disputes, the arbiter, and the log.

    STUDY/agreement.json, agreement.txt   how far the readers agree, field by field
    STUDY/reading-ARBITER.html            disputes, if there are any
    STUDY/reference.jsonl                 a reading of each case, once nothing is in dispute
    STUDY/adjudication.jsonl              who decided what, when, before and after

Where all readers agree on a field, that is its value; else the arbiter's. The probability of the
reference is the mean of the readers'.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import write_file
from tumorchain_jax.evaluation.agreement import all_readers, pair
from tumorchain_jax.evaluation.auc import Estimate
from tumorchain_jax.evaluation.bust.page import arbiter_page, page_name
from tumorchain_jax.evaluation.bust.study import Reading, Study, read_file, read_readers
from tumorchain_jax.ultrasound.lesion import Lesion, read_manifest
from tumorchain_jax.ultrasound.lexicon import PROBABILITY, Field, Lexicon

REFERENCE, LOG = "reference.jsonl", "adjudication.jsonl"
Readings = Mapping[str, Mapping[str, Reading]]
"""Reader -> case -> reading."""


def adjudicate(
    cases: Path, folder: Path, study: Study, lexicon: Lexicon, paths: Sequence[Path],
    arbiter: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """Import the readers' files; write agreement, then the arbiter's page or the reference.

    Args:
        arbiter: the arbiter's file; None: not at hand yet.

    Returns:
        the agreement, and counts of cases and disputes.

    Raises:
        InputError: a file cannot be used, or the arbiter has left disputes open.
    """
    readers = read_readers(paths, study, lexicon)
    rows = {row.id: row for row in read_manifest(cases)}
    if missing := sorted(set(study.cases) - set(rows)):
        raise InputError(cases, "cases", f"no {missing[0]}", "the study's cases", "name its folder")
    disputes = disputes_of(study, lexicon, readers)
    values = {
        "cases": len(study.cases),
        "disputed": len(disputes),
        "disputed_fields": sum(len(each["disputed"]) for each in disputes.values()),
        "agreement": agreement(readers, lexicon, rows),
    }
    decided: dict[str, dict[str, Any]] = {}
    if arbiter is not None:
        decided = _decisions(arbiter, study, lexicon, disputes)
    write_file(folder / "agreement.json", (json.dumps(values, indent=1) + "\n").encode())
    write_file(folder / "agreement.txt", (agreement_text(values) + "\n").encode())
    if disputes and arbiter is None:
        html = arbiter_page(cases, study, lexicon, disputes)
        write_file(folder / page_name(study.arbiter), html.encode())
    else:
        reference = _reference(study, readers, disputes, decided)
        text = "".join(json.dumps(each) + "\n" for each in reference)
        write_file(folder / REFERENCE, text.encode())
        log = "".join(json.dumps(each) + "\n" for each in _log(study, disputes, decided))
        write_file(folder / LOG, log.encode())
    return values | {"complete": not disputes or arbiter is not None}


def disputes_of(study: Study, lexicon: Lexicon, readers: Readings) -> dict[str, dict[str, Any]]:
    """Case -> what was agreed, what is in dispute, and what each reader said of that."""
    found = {}
    for case in study.cases:
        dispute = _dispute(lexicon, {name: read[case] for name, read in readers.items()})
        if dispute is not None:
            found[case] = dispute
    return found


def _dispute(lexicon: Lexicon, read: Mapping[str, Reading]) -> dict[str, Any] | None:
    """Fields on which readers of a case differ; None where there are none.

    Where the finding is in dispute, so are the fields that only some findings have.
    """
    agreed: dict[str, str] = {}
    disputed: list[str] = []
    findings = {str(each["finding"]) for each in read.values()}
    for field in lexicon.fields:
        said = {each.get(field.name) for each in read.values()}
        if said == {None}:
            continue
        if len(said) == 1 and (not field.of or len(findings) == 1):
            agreed[field.name] = str(said.pop())
        else:
            disputed.append(field.name)
    if len(findings) > 1:  # the arbiter may choose a finding whose fields no reader was asked
        disputed += [f.name for f in lexicon.fields if f.of and f.name not in disputed]
    if not disputed:
        return None
    before = {
        name: {reader: each.get(name, "") for reader, each in read.items()} for name in disputed
    }
    return {"agreed": agreed, "disputed": disputed, "before": before}


def _decisions(
    path: Path, study: Study, lexicon: Lexicon, disputes: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The arbiter's values of all that is in dispute, checked."""
    who, given = read_file(path, study)
    if who != study.arbiter:
        hint = "hand it in by --files"
        raise InputError(path, "reader", who, f"{study.arbiter}, the arbiter", hint)
    if extra := sorted(set(given) - set(disputes)):
        raise InputError(
            path, "readings", f"{extra[0]}, which is not in dispute", "disputed cases alone",
            "the readers' files have changed since the arbiter's page was made",
        )  # fmt: skip
    if missing := sorted(set(disputes) - set(given)):
        found = f"{len(given)} of {len(disputes)} disputes decided; {missing[0]} is open"
        raise InputError(path, "readings", found, "every dispute decided", "finish the page")
    for case, reading in given.items():
        dispute = disputes[case]
        if settled := sorted(set(reading) - {"at", *dispute["disputed"]}):
            found = f"{settled[0]}, which is not in dispute"
            raise InputError(path, f"readings.{case}", found, "disputed fields alone", "remove it")
        whole = {**dispute["agreed"], **reading, PROBABILITY: 0}
        lexicon.check({k: v for k, v in whole.items() if k != "at"}, path, f"readings.{case}")
    return given


def _reference(
    study: Study,
    readers: Readings,
    disputes: Mapping[str, Mapping[str, Any]],
    decided: Mapping[str, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    first = next(iter(readers.values()))
    for case in study.cases:
        if case in disputes:
            chosen = {**disputes[case]["agreed"], **decided[case]}
            reading = {name: value for name, value in chosen.items() if name != "at"}
        else:
            reading = {name: value for name, value in first[case].items() if name != PROBABILITY}
        chance = sum(read[case][PROBABILITY] for read in readers.values()) / len(readers)
        yield {"case": case, **dict(sorted(reading.items())), PROBABILITY: chance}


def _log(
    study: Study,
    disputes: Mapping[str, Mapping[str, Any]],
    decided: Mapping[str, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    for case in study.cases:
        if case not in disputes:
            continue
        when = datetime.fromtimestamp(decided[case]["at"] / 1000, UTC).isoformat()
        for name in disputes[case]["disputed"]:
            yield {
                "case": case,
                "field": name,
                "who": study.arbiter,
                "when": when,
                "before": disputes[case]["before"][name],
                "after": decided[case].get(name),
            }


def agreement(
    readers: Readings, lexicon: Lexicon, rows: Mapping[str, Lesion]
) -> dict[str, dict[str, Any]]:
    """Agreement of each two readers and of all, field by field, with intervals over patients.

    A field that only some findings have is compared where all compared readers have it.
    """
    found: dict[str, dict[str, Any]] = {}
    for field in lexicon.fields:
        row: dict[str, Any] = {"pairs": {}}
        for one, other in combinations(readers, 2):
            row["pairs"][f"{one} and {other}"] = _pair(field, rows, readers[one], readers[other])
        every = _cases_with(field, list(readers.values()))
        row["n"] = len(every)
        if every:
            said = [[str(read[case][field.name]) for read in readers.values()] for case in every]
            kappa = all_readers(said, field.values, [cluster(rows[case]) for case in every])
            row["fleiss"] = plain(kappa)
        found[field.name] = row
    return found


def _pair(
    field: Field, rows: Mapping[str, Lesion], one: Mapping[str, Reading],
    other: Mapping[str, Reading],
) -> dict[str, Any]:  # fmt: skip
    both = _cases_with(field, [one, other])
    if not both:
        return {"n": 0}
    first, second = ([str(read[case][field.name]) for case in both] for read in (one, other))
    patients = [cluster(rows[case]) for case in both]
    values = pair(first, second, field.values, patients, field.ordered)
    return {"n": len(both)} | {name: plain(each) for name, each in values.items()}


def _cases_with(field: Field, reads: Sequence[Mapping[str, Reading]]) -> list[str]:
    return [case for case in sorted(reads[0]) if all(field.name in read[case] for read in reads)]


def cluster(row: Lesion) -> str:
    """What a bootstrap draws together: a patient, with near duplicates."""
    return str(row.cluster)


def plain(estimate: Estimate) -> dict[str, Any]:
    """An estimate as JSON holds it; None where it is not a number."""

    def number(value: float) -> float | None:
        return value if value == value else None

    return {"value": number(estimate.value), "ci95": [number(each) for each in estimate.ci95]}


MEASURES = {
    "weighted_kappa": "kappa, quadratic weights",
    "kappa": "kappa",
    "ac1": "AC1",
    "agreement": "agree",
}


def agreement_text(values: Mapping[str, Any]) -> str:
    """The agreement for people."""
    lines = [
        f"{values['cases']} cases; {values['disputed']} in dispute, in "
        f"{values['disputed_fields']} fields; 95 % intervals over patients"
    ]
    for name, row in values["agreement"].items():
        if "fleiss" in row:
            lines.append(f"{name}: Fleiss' kappa {shown(row['fleiss'])}, n {row['n']}")
        for pair_name, each in row["pairs"].items():
            told = [
                f"{word} {shown(each[measure])}"
                for measure, word in MEASURES.items()
                if measure in each
            ]
            lines.append(f"  {pair_name}, n {each['n']}: " + "; ".join(told))
    return "\n".join(lines)


def shown(row: Mapping[str, Any], signs: int = 3) -> str:
    """A value with its interval."""
    if row["value"] is None:
        return "undefined"
    ends = ["?" if each is None else f"{each:.{signs}f}" for each in row["ci95"]]
    return f"{row['value']:.{signs}f} [{', '.join(ends)}]"


def read_reference(folder: Path, lexicon: Lexicon) -> dict[str, dict[str, Any]]:
    """Read `reference.jsonl` of a study.

    Returns:
        case -> reading.

    Raises:
        InputError: the study is not adjudicated yet, or the file is malformed.
    """
    path = folder / REFERENCE
    if not path.is_file():
        hint = "run `tumorchain bust adjudicate`, with the arbiter's file if readers differ"
        raise InputError(path, "reference", "none", "an adjudicated study", hint)
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text("utf-8").splitlines():
        values = json.loads(line)
        case = values.pop("case")
        lexicon.check({**values, PROBABILITY: 0}, path, case)
        found[case] = values
    return found
