"""The program and model that made a result, as DICOM names a device and its algorithm."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tumorchain_jax import __version__

if TYPE_CHECKING:
    from highdicom import AlgorithmIdentificationSequence

MANUFACTURER = "tumorchain_jax"
UNVERIFIED = "AI result, not verified"
"""In the description of every series that is written."""
LONGEST = 64
"""Characters of a DICOM long string."""


@dataclass(frozen=True)
class Device:
    """A model as a device.

    Attributes:
        model: its name.
        identity: of its weights: a SHA-256, or a program's version.
    """

    model: str
    identity: str

    @property
    def uid(self) -> str:
        """The device's UID: the same for the same weights."""
        digits = "".join(c for c in self.identity if c in "0123456789abcdef")[:32]
        return f"2.25.{int(digits or '0', 16)}"

    def equipment(self) -> dict[str, Any]:
        """Return what the objects of highdicom take about their equipment."""
        return {
            "manufacturer": MANUFACTURER,
            "manufacturer_model_name": self.model[:LONGEST],
            "software_versions": __version__,
            "device_serial_number": self.identity[:LONGEST],
        }

    def algorithm(self) -> "AlgorithmIdentificationSequence":
        """Return the algorithm that this device ran."""
        from highdicom import AlgorithmIdentificationSequence
        from pydicom.sr.codedict import codes

        family = codes.DCM.ArtificialIntelligence
        version = f"{__version__} {self.identity[:16]}"
        return AlgorithmIdentificationSequence(self.model[:LONGEST], family, version[:LONGEST])
