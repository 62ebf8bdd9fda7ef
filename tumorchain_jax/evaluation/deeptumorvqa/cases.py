"""`tumorchain deeptumorvqa cases`: hold a rule set against a file of cases with known outcomes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, read_lines
from tumorchain_jax.evaluation.deeptumorvqa import rule_sets
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import SUBTYPES, Subtype, subtype_named

Rules = Literal["upstream", "v1", "fixed"]


@dataclass(frozen=True)
class Checked:
    """How a rule set did on the cases.

    Attributes:
        rules: its name.
        cases: how many it was held against.
        equal: how many came out as expected (`fixed`: by their verdict).
        readings: of the answers that `fixed` scores, how many are also read as expected.
        false_credits: wrong or abstaining answers that were scored right.
        differing: the others: id, expected, found.
    """

    rules: Rules
    cases: int
    equal: int
    readings: int | None
    false_credits: int
    differing: tuple[tuple[str, str, str], ...]


def check_cases(path: Path, rules: Rules) -> Checked:
    """Run a rule set on a file of cases.

    Raises:
        InputError: the file cannot be read, or holds no case for the rules.
    """
    rows = list(read_lines(path))
    outcomes = [(row, _outcome(LineFields(source, row), rules)) for source, _, row in rows]
    held = [(row, outcome) for row, outcome in outcomes if outcome is not None]
    if not held:
        hint = "name a cases.jsonl"
        raise InputError(path, "cases", "none", f"some with an outcome of {rules}", hint)
    wrong = [
        (str(row["id"]), json.dumps(expected), json.dumps(found))
        for row, (expected, found) in held
        if expected != found
    ]
    credited = readings = None
    if rules == "fixed":
        verdicts = [rule_sets.fixed_case(row, _subtype(row)) for row, _ in held]
        both = list(zip((row["fixed"] for row, _ in held), verdicts, strict=True))
        credited = sum(v["score"] == 1 and (w["score"] or 0) < 1 for w, v in both)
        readings = sum(w["reading"] == v["reading"] for w, v in both)
    return Checked(rules, len(held), len(held) - len(wrong), readings, credited or 0, tuple(wrong))


def _outcome(line: LineFields, rules: Rules) -> tuple[Any, Any] | None:
    """Return what is expected and what the rules make of it; None if they do not apply."""
    op, row = line.one_of("op", ("score", "aggregate")), line.values
    line.text("id", filled=True)
    expected = {"upstream": "upstream", "v1": "v1_third_party", "fixed": "fixed"}[rules]
    needed = (expected, "options") if op == "score" else ("upstream", "questions", "predictions")
    for name in needed:
        if not isinstance(row.get(name), dict | list):
            line.refuse(name, "an object", "take a whole file of cases")
    if op == "aggregate":
        return (row["upstream"], rule_sets.upstream_table(row)) if rules == "upstream" else None
    for name in ("format", "subtype", "kind", "truth", "output"):
        line.text(name)
    if rules == "upstream":
        return row["upstream"], rule_sets.upstream_case(row)
    if rules == "v1":
        return row["v1_third_party"]["score"], rule_sets.v1_case(row)
    return row["fixed"]["verdict"], rule_sets.fixed_case(row, _subtype(row))["verdict"]


def _subtype(row: Mapping[str, Any]) -> Subtype:
    return subtype_named(row["subtype"]) or SUBTYPES[row["subtype"]]


def checked_text(checked: Checked) -> str:
    """Describe the outcome in a few lines."""
    what = "verdicts" if checked.rules == "fixed" else "outcomes"
    lines = [f"{checked.rules}: {checked.equal} of {checked.cases} {what} as expected"]
    if checked.readings is not None:
        lines.append(f"readings as expected: {checked.readings} of {checked.cases}")
        lines.append(f"wrong or abstaining answers scored right: {checked.false_credits}")
    lines += [f"  {id_}: expected {want}, found {got}" for id_, want, got in checked.differing]
    return "\n".join(lines)
