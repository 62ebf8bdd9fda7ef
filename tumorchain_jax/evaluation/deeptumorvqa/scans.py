"""Where the CTs of a question file lie."""

from pathlib import Path

from tumorchain_jax.core.errors import InputError


class Scans:
    """A folder of CTs: `ID/ct.nii.gz` with `labels.nii.gz` and `lesions.nii.gz`, or `ID.nii.gz`.

    Raises:
        InputError: there is no such folder.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        if not folder.is_dir():
            raise InputError(folder, "--scans", "no folder", "a folder of CTs", "check the path")

    def find(self, image_id: str) -> Path | None:
        """Return the path of a CT; None if there is none, or the name is no plain one."""
        if Path(image_id).name != image_id:
            return None
        ways = (f"{image_id}/ct.nii.gz", f"{image_id}.nii.gz", image_id)
        return next((p for p in map(self.folder.joinpath, ways) if p.is_file()), None)

    def ct(self, image_id: str) -> Path:
        """Return the path of a CT.

        Raises:
            InputError: there is none.
        """
        if path := self.find(image_id):
            return path
        expected = f"{image_id}/ct.nii.gz or {image_id}.nii.gz"
        raise InputError(
            self.folder, "image_id", f"no scan of {image_id}", expected, "put it there"
        )

    def mask(self, image_id: str, name: str) -> Path:
        """Return the path of `labels` or `lesions` of a CT.

        Raises:
            InputError: there is none.
        """
        path = self.folder / image_id / f"{name}.nii.gz"
        if path.is_file():
            return path
        raise InputError(path, "masks", "no such file", "the true masks", "use --masks segment")
