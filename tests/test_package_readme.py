"""The package's README maps its rooms: every folder, on the floor that import-linter checks."""

import re
from configparser import ConfigParser
from pathlib import Path

import tumorchain_jax

PACKAGE = Path(tumorchain_jax.__file__).parent
TABLE = re.findall(r"^\| (\d+|-) \| `(\w+)` \|", (PACKAGE / "README.md").read_text(), re.MULTILINE)


def test_rooms_of_the_readme_are_the_folders() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert sorted(room for _, room in TABLE) == sorted(folders)


def test_floors_of_the_readme_are_those_of_the_contract() -> None:
    config = ConfigParser()
    config.read(Path(__file__).parents[1] / "setup.cfg")
    layers = config["importlinter:contract:floors"]["layers"].split("\n")
    floors = [re.findall(r"\w+", layer) for layer in layers if layer]
    expected = {room: str(len(floors) - n) for n, rooms in enumerate(floors) for room in rooms}
    assert {room: floor for floor, room in TABLE if floor != "-"} == expected


def test_rooms_have_a_readme_that_the_top_level_map_links() -> None:
    top = (PACKAGE.parent / "README.md").read_text()
    for _, room in TABLE:
        assert (PACKAGE / room / "README.md").is_file(), room
        assert f"](tumorchain_jax/{room}/README.md)" in top, room
