"""The optional library that DICOM objects are made with."""

from importlib.util import find_spec

from tumorchain_jax.core.errors import InputError


def check_extra() -> None:
    """Refuse to make DICOM objects where highdicom is not installed.

    Raises:
        InputError: it says what to install.
    """
    if find_spec("highdicom") is None:
        hint = "pip install 'tumorchain-jax[dicom]'"
        raise InputError("--dicom", "package", "no highdicom", "the extra `dicom`", hint)
