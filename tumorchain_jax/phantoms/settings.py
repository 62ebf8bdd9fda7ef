"""The kind of digital patients to draw, as a setting of commands, data sets and trainings."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tumorchain_jax.core.errors import InputError

SIMPLE, REALISTIC = "simple", "realistic"
KINDS = (SIMPLE, REALISTIC)


@dataclass(frozen=True)
class PatientSettings:
    """A kind of digital patients.

    Attributes:
        kind: SIMPLE (a smooth trunk with large, conspicuous tumours) or REALISTIC (several sources
            of anatomy, images by domain randomisation, tumours from 8 mm on).
        anatomies: folder of label maps that realistic patients are drawn from besides the
            parametric trunk; "" for none.

    Raises:
        InputError: there is no such kind or folder, or a folder is given for simple patients.
    """

    kind: str = SIMPLE
    anatomies: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError("digital patients", "kind", self.kind, " or ".join(KINDS), "change it")
        if self.anatomies and self.kind != REALISTIC:
            hint = f"ask for {REALISTIC} patients, or name no folder"
            raise InputError("digital patients", "anatomies", self.anatomies, "none", hint)
        if self.anatomies and not Path(self.anatomies).is_dir():
            hint = "name a folder of label maps"
            raise InputError(self.anatomies, "anatomies", "no folder", "a folder", hint)

    def facts(self) -> dict[str, str]:
        """Return what identifies these patients in a data set's manifest.

        Nothing for the simple kind, so that older data sets can be resumed. Of a folder it is the
        names and sizes of its files, wherever it lies.
        """
        if self.kind == SIMPLE:
            return {}
        if not self.anatomies:
            return {"kind": self.kind, "anatomies": "none"}
        folder = Path(self.anatomies)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        lines = [f"{path.relative_to(folder).as_posix()} {path.stat().st_size}" for path in files]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        return {"kind": self.kind, "anatomies": f"{len(files)} files {digest[:16]}"}


SIMPLE_PATIENTS = PatientSettings()
