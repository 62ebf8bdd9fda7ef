"""Planted identifiers looked for: what of them would leave the machine?"""

from collections import Counter

from tumorchain_jax.engine.text.deidentify import deidentify
from tumorchain_jax.phantoms.reports.cases import ReportCase


def identifiers_found(report: ReportCase) -> tuple[Counter[str], Counter[str], int]:
    """Look for the identifiers of a patient's reports.

    Returns:
        Those replaced whole, and all of them, by kind; and how many characters were replaced that
        are no identifier.
    """
    found: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    too_many = 0
    for text, identifiers in zip(
        (report.radiology, report.pathology), report.identifiers, strict=True
    ):
        gone = [(each.start, each.end) for each in deidentify(text).replaced]
        taken = bytearray(len(text))
        for start, end in gone:
            taken[start:end] = b"\1" * (end - start)
        for each in identifiers:
            planted[each.kind] += 1
            left = [
                sign for sign, hit in zip(text[each.start : each.end], taken[each.start : each.end],
                                          strict=True) if not hit
            ]  # fmt: skip
            found[each.kind] += not any(sign.isalnum() for sign in left)
            taken[each.start : each.end] = bytes(each.end - each.start)
        too_many += sum(taken)
    return found, planted, too_many
