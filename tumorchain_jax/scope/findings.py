"""Findings of the plausibility checks, and what follows from them: a refusal or a warning."""

from collections.abc import Sequence
from dataclasses import dataclass

from tumorchain_jax.core.errors import InputError

FORCE_HINT = "--force to continue (force=True)"


@dataclass(frozen=True)
class Finding:
    """One thing that is implausible about a scan or its label map.

    Attributes:
        refuse: the scan cannot be an abdominal CT, or the label map cannot belong to it; else the
            finding is only a warning.
        field: what was checked, in a word or two.
        found, expected: as of `InputError`.
        hint: what the user can do about it.
    """

    refuse: bool
    field: str
    found: str
    expected: str
    hint: str

    def __str__(self) -> str:
        """Return the finding as one line without the file's name."""
        return f"{self.field}: found {self.found}, expected {self.expected}; {self.hint}"


@dataclass(frozen=True)
class Assessment:
    """What remains of findings that did not end the work.

    Attributes:
        warnings: one line each.
        forced: findings that would have refused the input, one line each.
    """

    warnings: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()

    def __add__(self, other: "Assessment") -> "Assessment":
        """Join two assessments."""
        return Assessment(self.warnings + other.warnings, self.forced + other.forced)


def enforce(
    source: object, findings: Sequence[Finding], force: bool = False, hint: str = FORCE_HINT
) -> Assessment:
    """Refuse an input because of its findings, or return what a reader must know.

    Args:
        source: the scan or the label map, for the message.
        force: continue in spite of findings that refuse.
        hint: how to force it; empty where there is no way.

    Raises:
        InputError: for the first finding that refuses, unless `force`.
    """
    refusals = [finding for finding in findings if finding.refuse]
    if refusals and not force:
        first = refusals[0]
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        advice = f"{first.hint}, or {hint}" if hint else first.hint
        raise InputError(source, first.field, first.found + more, first.expected, advice)
    warnings = tuple(str(finding) for finding in findings if not finding.refuse)
    return Assessment(warnings, tuple(str(finding) for finding in refusals))
