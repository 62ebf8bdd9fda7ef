"""The kind of digital patients to draw, as a setting of commands, data sets and trainings."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.phantoms.sources import Sources, load_sources

SIMPLE, REALISTIC, CONSPICUOUS, MIXED = "simple", "realistic", "conspicuous", "mixed"
KINDS = (SIMPLE, REALISTIC, CONSPICUOUS, MIXED)


@dataclass(frozen=True)
class PatientSettings:
    """A kind of digital patients.

    Attributes:
        kind: SIMPLE (a smooth trunk with large, conspicuous tumours), REALISTIC (several sources
            of anatomy, images by domain randomisation, tumours from 8 mm on), CONSPICUOUS (anatomy
            and image of the realistic kind with tumours of the simple kind) or MIXED (one of the
            three by the seed).
        anatomies: folder of label maps that anatomies are drawn from besides the parametric trunk;
            "" for none. Simple patients have none.

    Raises:
        InputError: there is no such kind or folder, or a folder is given for simple patients.
    """

    kind: str = SIMPLE
    anatomies: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError("digital patients", "kind", self.kind, " or ".join(KINDS), "change it")
        if self.anatomies and self.kind == SIMPLE:
            hint = f"ask for {REALISTIC} patients, or name no folder"
            raise InputError("digital patients", "anatomies", self.anatomies, "none", hint)
        if self.anatomies and not Path(self.anatomies).is_dir():
            hint = "name a folder of label maps"
            raise InputError(self.anatomies, "anatomies", "no folder", "a folder", hint)

    def facts(self) -> dict[str, str]:
        """Return what identifies these patients in a data set's manifest.

        Nothing for the simple kind, so that older data sets can be resumed.

        Raises:
            InputError: the folder cannot be used.
        """
        if self.kind == SIMPLE:
            return {}
        return {"kind": self.kind, "anatomies": self.sources().fingerprint or "none"}

    def kind_of(self, seed: int) -> str:
        """Return the kind of the patient of a seed: SIMPLE, REALISTIC or CONSPICUOUS."""
        return KINDS[seed % 3] if self.kind == MIXED else self.kind

    def sources(self) -> Sources:
        """Read what realistic patients are drawn from, once in a process.

        Raises:
            InputError: the folder cannot be used.
        """
        return _sources(self.anatomies)


@lru_cache(maxsize=2)
def _sources(folder: str) -> Sources:
    return load_sources(Path(folder) if folder else None)


SIMPLE_PATIENTS = PatientSettings()
