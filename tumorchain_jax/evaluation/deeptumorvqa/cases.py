"""`tumorchain deeptumorvqa cases`: hold a rule set against a file of cases with known outcomes."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.json_lines import LineFields, read_lines
from tumorchain_jax.evaluation.deeptumorvqa import rule_sets
from tumorchain_jax.evaluation.deeptumorvqa.fixed import FORMATS
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import subtype_named

_HINT = "take the cases.jsonl of the shared cases, whole"
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
    outcomes = []
    seen: dict[str, str] = {}
    for source, _, row in read_lines(path, _HINT):
        line = LineFields(source, row, hint=_HINT)
        name = line.text("id", filled=True)
        if (first := seen.setdefault(name, source)) != source:
            raise InputError(source, "id", f"{name} again, as in {first}", "each once", _HINT)
        if outcome := _outcome(line, rules):
            outcomes.append((name, *outcome))
    if not outcomes:
        raise InputError(path, "cases", "none", f"some with an outcome of {rules}", _HINT)
    readings, credited = None, 0
    if rules == "fixed":
        readings = sum(want["reading"] == got["reading"] for _, want, got in outcomes)
        credited = sum(
            got["score"] == 1 and want["score"] != got["score"] for _, want, got in outcomes
        )
        outcomes = [(id_, want["verdict"], got["verdict"]) for id_, want, got in outcomes]
    wrong = [(id_, json.dumps(want), json.dumps(got)) for id_, want, got in outcomes if want != got]
    count = len(outcomes)
    return Checked(rules, count, count - len(wrong), readings, credited, tuple(wrong))


def _outcome(line: LineFields, rules: Rules) -> tuple[Any, Any] | None:
    """Return what is expected and what the rules make of it; None if they do not apply."""
    op, row = line.one_of("op", ("score", "aggregate")), line.values
    expected = {"upstream": "upstream", "v1": "v1_third_party", "fixed": "fixed"}[rules]
    if op == "aggregate":
        line.one_of("format", FORMATS)
        for name in ("questions", "predictions"):
            each = row.get(name)
            if not isinstance(each, list) or {type(part) for part in each} - {dict}:
                line.refuse(name, "a list of objects")
        _object(line, "upstream")
        return (row["upstream"], rule_sets.upstream_table(row)) if rules == "upstream" else None
    line.one_of("format", FORMATS)
    for name in ("subtype", "kind", "truth", "output"):
        line.text(name)
    if {type(text) for text in _object(line, "options").values()} - {str}:
        line.refuse("options", "letter -> text")
    needed = {"fixed": {"verdict", "reading", "score"}, "v1": {"score"}, "upstream": {"reading"}}
    if needed[rules] - set(_object(line, expected)):
        line.refuse(expected, f"an object with {', '.join(sorted(needed[rules]))}")
    if rules == "upstream":
        return row["upstream"], rule_sets.upstream_case(row)
    if rules == "v1":
        return row["v1_third_party"]["score"], rule_sets.v1_case(row)
    subtype = subtype_named(row["subtype"])
    if subtype is None:
        line.refuse("subtype", "one of the 42 subtypes")
    return row["fixed"], rule_sets.fixed_case(row, subtype)


def _object(line: LineFields, name: str) -> dict[str, Any]:
    value = line.values.get(name)
    if not isinstance(value, dict):
        line.refuse(name, "an object")
    return value


def checked_text(checked: Checked) -> str:
    """Describe the outcome in a few lines."""
    what = "verdicts" if checked.rules == "fixed" else "outcomes"
    lines = [f"{checked.rules}: {checked.equal} of {checked.cases} {what} as expected"]
    if checked.readings is not None:
        lines.append(f"readings as expected: {checked.readings} of {checked.cases}")
        lines.append(f"wrong or abstaining answers scored right: {checked.false_credits}")
    lines += [f"  {id_}: expected {want}, found {got}" for id_, want, got in checked.differing]
    return "\n".join(lines)
