"""All checks: of a scan, and of a label map with its scan."""

from collections.abc import Iterable

from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.agreement import check_agreement
from tumorchain_jax.scope.coarse import CoarseScan
from tumorchain_jax.scope.few_ids import check_few_ids
from tumorchain_jax.scope.findings import Finding
from tumorchain_jax.scope.image import check_image
from tumorchain_jax.scope.organ_table import organ_table
from tumorchain_jax.scope.position import check_position
from tumorchain_jax.scope.region import check_region


def check_scan(ct: Volume, coarse: CoarseScan) -> list[Finding]:
    """Find what speaks against a scan being an abdominal CT; refusals first."""
    return _sorted([*check_image(ct, coarse), *check_region(ct, coarse)])


def check_labels(labels: Volume, coarse: CoarseScan) -> list[Finding]:
    """Find what speaks against a label map being that of a scan; refusals first.

    Args:
        labels: uint8 TotalSegmentator v2 ids on the scan's voxels.
        coarse: of the scan.
    """
    table = organ_table(labels, coarse)
    checks = (check_few_ids(table), check_agreement(table, coarse), check_position(table))
    return _sorted(finding for check in checks for finding in check)


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: not finding.refuse)
