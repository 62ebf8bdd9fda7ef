"""The reader's and the arbiter's page in a browser, by keyboard: autosave, export, import."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser, chromium

from tumorchain_jax.evaluation.bust.adjudicate import adjudicate, read_reference
from tumorchain_jax.evaluation.bust.page import page_name, write_pages
from tumorchain_jax.evaluation.bust.simulate import ERRORS, simulated_reader, true_readings
from tumorchain_jax.evaluation.bust.study import Study, file_json, read_file, read_readers
from tumorchain_jax.ultrasound.lesion import read_manifest
from tumorchain_jax.ultrasound.lexicon import load_lexicon

pytestmark = pytest.mark.system(haste=True)
LEXICON = load_lexicon()


def read_by_keys(page: Browser, reading: dict[str, Any]) -> None:
    """Answer the fields that are asked for, in their order; Enter goes on to the next open case."""
    for field in LEXICON.fields:
        if reading.get(field.name) is not None:
            page.key(str(field.values.index(reading[field.name]) + 1))
    if "probability" in reading:
        page.type(str(reading["probability"]))  # it has the focus by now
    page.key("Enter")


def downloaded(page: Browser, folder: Path, name: str) -> Path:
    """Press the button and wait for its file."""
    page.keep_downloads(folder)
    page.run("document.getElementById('save').click()")
    end = time.monotonic() + 20
    while not (folder / name).is_file():
        assert time.monotonic() < end, [*folder.iterdir()]
        time.sleep(0.05)
    return folder / name


def state(page: Browser) -> str:
    return page.run("document.getElementById('state').textContent")


def test_readers_and_arbiter_by_keyboard(cases: Path, tmp_path: Path) -> None:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium here")
    folder = tmp_path / "study"
    study: Study = write_pages(cases, folder, ["ann", "bob"], "dee", 3, LEXICON)
    truth = true_readings({row.id: row.label for row in read_manifest(cases)}, LEXICON, 1)
    said = {
        reader: simulated_reader(truth, LEXICON, ERRORS[number], number)
        for number, reader in enumerate(study.readers)
    }
    with chromium(program, tmp_path / "profile") as page:
        page.size(1280, 900)
        page.open(folder / page_name("ann"))
        order = study.order("ann")
        for case in order[:5]:
            read_by_keys(page, said["ann"][case])
        # A number that is none is not kept, and the arrows leave the number as it is.
        page.key("p")
        page.type("145")
        page.key("Enter")
        assert "whole number" in state(page) or "Not complete" in state(page)
        page.open(folder / page_name("ann"))  # what was done is still there
        assert state(page).startswith("5 of 12 read.")
        page.run("document.getElementById('back').click()")
        assert page.run("document.querySelectorAll('input:checked').length") > 2
        page.run("document.getElementById('open').click()")
        for case in order[5:]:
            read_by_keys(page, said["ann"][case])
        assert state(page).startswith("12 of 12 read. All are read")
        ann = downloaded(page, tmp_path, "readings-ann.json")
        assert read_readers([ann, _file(tmp_path, study, said)], study, LEXICON) == said

        # Elsewhere: nothing is there until the file is loaded; a file of somebody else is refused.
        page.run("localStorage.clear()")
        page.open(folder / page_name("ann"))
        assert state(page).startswith("0 of 12")
        page.give_file("#load", tmp_path / "bob.json")
        page.wait("document.getElementById('state').textContent.includes('Not loaded')")
        page.give_file("#load", ann)
        page.wait("document.getElementById('state').textContent.startsWith('12 of 12')")

        files = [ann, tmp_path / "bob.json"]
        values = adjudicate(cases, folder, study, LEXICON, files, None)
        assert values["disputed"] > 0
        page.open(folder / page_name("dee"))
        assert page.run("document.querySelectorAll('.before').length") > 0
        disputes = json.loads(page.run("document.getElementById('data').textContent"))["cases"]
        for item in disputes:
            read_by_keys(page, {name: truth[item["id"]].get(name) for name in item["disputed"]})
        assert state(page).startswith(f"{len(disputes)} of {len(disputes)} read. All are read")
        dee = downloaded(page, tmp_path, "readings-dee.json")
        assert len(read_file(dee, study)[1]) == len(disputes)
        assert adjudicate(cases, folder, study, LEXICON, files, dee)["complete"]
        assert len(read_reference(folder, LEXICON)) == 12
        for width in (390, 1280):
            page.size(width, 800, dark=width == 390)
            assert page.run("document.documentElement.scrollWidth") <= width
        assert page.problems == []
        assert all(each.startswith(("file:", "data:", "blob:")) for each in page.requested)


def _file(folder: Path, study: Study, said: dict[str, dict[str, dict[str, Any]]]) -> Path:
    timed = {case: {**each, "at": 1} for case, each in said["bob"].items()}
    path = folder / "bob.json"
    path.write_bytes(file_json(study, "bob", timed))
    return path
