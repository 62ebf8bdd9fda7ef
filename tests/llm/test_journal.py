"""The journal on its own: damage, versions, locks, a full disk."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.llm.journal import Journal, Kept


def kept(number: int, text: str = "text") -> Kept:
    return Kept(f"{number:064}", "", "", text, "stop", "m", 10, 5, 0.25, 0.1)


def fill(path: Path, count: int) -> None:
    async def work() -> None:
        journal = Journal(path)
        await asyncio.gather(*(journal.put(kept(number)) for number in range(count)))
        await journal.close()

    asyncio.run(work())


def read(path: Path, numbers: range) -> tuple[list[bool], list[str], float]:
    """Which replies are there, what was told, and the cost in all."""
    told: list[str] = []

    async def work() -> tuple[list[bool], list[str], float]:
        journal = Journal(path, told.append)
        found = [journal.get(kept(number).key) == kept(number) for number in numbers]
        cost = journal.spent.cost
        await journal.close()
        return found, told, cost

    return asyncio.run(work())


def test_replies_come_back(tmp_path: Path) -> None:
    fill(tmp_path / "j", 100)
    assert read(tmp_path / "j", range(101)) == ([True] * 100 + [False], [], 25.0)
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


def test_changed_row_is_left_out_and_told(tmp_path: Path) -> None:
    fill(tmp_path / "j", 3)
    connection = sqlite3.connect(tmp_path / "j")
    connection.execute("UPDATE replies SET text = 'other' WHERE key = ?", (kept(1).key,))
    connection.commit()
    connection.close()
    found, told, _ = read(tmp_path / "j", range(3))
    assert found == [True, False, True]
    assert len(told) == 1
    assert "is damaged" in told[0]


@pytest.mark.parametrize("damage", ["zeros", "cut", "text", "other", "version"])
def test_damaged_or_foreign_file_is_kept_aside(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "j"
    fill(path, 500)
    content = path.read_bytes()
    if damage == "zeros":
        path.write_bytes(content[:4096] + bytes(8192) + content[12288:])
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "text":
        path.write_bytes(b"this is no database" * 100)
    else:
        connection = sqlite3.connect(path)
        pragma = "application_id = 7" if damage == "other" else "user_version = 99"
        connection.execute(f"PRAGMA {pragma}")
        connection.close()
    before = path.read_bytes()
    found, told, cost = read(path, range(5))
    assert (found, cost) == ([False] * 5, 0.0)
    assert len(told) == 1
    assert "kept as j.aside-1" in told[0]
    assert (tmp_path / "j.aside-1").read_bytes() == before
    fill(path, 5)
    assert read(path, range(5)) == ([True] * 5, [], 1.25)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    async def work() -> None:
        journal = Journal(tmp_path / "j")
        with pytest.raises(InputError, match="another process"):
            Journal(tmp_path / "j")
        await journal.close()
        await Journal(tmp_path / "j").close()

    asyncio.run(work())


def test_full_disk_is_one_line_and_what_was_kept_stays(tmp_path: Path) -> None:
    fill(tmp_path / "j", 3)

    async def work() -> None:
        journal = Journal(tmp_path / "j")
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(InputError, match="full"):
            await journal.put(kept(3, "x" * 100_000))
        await journal.close()

    asyncio.run(work())
    assert read(tmp_path / "j", range(3))[0] == [True] * 3


def test_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="journal"):
        Journal(tmp_path / "file" / "j")
