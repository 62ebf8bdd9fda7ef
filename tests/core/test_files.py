from pathlib import Path

import pytest

from tumorchain_jax.core.files import atomic_path, write_file


def test_atomic_path_shows_nothing_until_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "ct.nii.gz"
    with atomic_path(target) as part:
        assert part.name.startswith(".")
        assert part.name.endswith("ct.nii.gz")  # nibabel takes the format from the ending
        part.write_bytes(b"whole")
        assert not target.exists()
    assert [path.name for path in target.parent.iterdir()] == ["ct.nii.gz"]
    assert target.read_bytes() == b"whole"


def write_half(target: Path) -> None:
    with atomic_path(target) as part:
        part.write_bytes(b"half")
        raise KeyboardInterrupt


def test_atomic_path_leaves_the_old_file_on_any_error(tmp_path: Path) -> None:
    target = tmp_path / "labels.nii.gz"
    write_file(target, b"old")
    with pytest.raises(KeyboardInterrupt):
        write_half(target)
    assert list(tmp_path.iterdir()) == [target]
    assert target.read_bytes() == b"old"
