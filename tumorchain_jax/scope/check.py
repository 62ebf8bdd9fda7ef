"""All checks of a scan."""

from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.scope.coarse import coarse_scan
from tumorchain_jax.scope.findings import Finding
from tumorchain_jax.scope.image import check_image
from tumorchain_jax.scope.region import check_region


def check_scan(ct: Volume) -> list[Finding]:
    """Find what speaks against a scan being an abdominal CT, that which refuses it first."""
    coarse = coarse_scan(ct)
    findings = [*check_image(ct, coarse), *check_region(ct, coarse)]
    return sorted(findings, key=lambda finding: not finding.refuse)
