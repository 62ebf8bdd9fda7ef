"""Limits of the server of CTs."""

from dataclasses import dataclass

MB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a client may ask for.

    Attributes:
        upload: bytes of an upload; `inline`: of a body with a scan in base64.
        unpacked: bytes that an upload may hold when it is unpacked.
        voxels: of a scan.
        files: in an archive.
        ratio: bytes unpacked for each byte of an archive's member, beyond a first megabyte.
        upload_s: seconds in which an upload must have come; `answer_s`: an answer.
        waiting: questions that may wait.
        scans: that are kept in memory, made ready for questions.
    """

    upload: int = 512 * MB
    inline: int = 96 * MB
    unpacked: int = 2048 * MB
    voxels: int = 300_000_000
    files: int = 5000
    ratio: int = 200
    upload_s: float = 600.0
    answer_s: float = 300.0
    waiting: int = 32
    scans: int = 4
