"""The page in the distribution's Chromium: a CT is dropped, asked about, looked at, compared."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import nibabel as nib
import pytest
from chromium import Browser, chromium
from ct_clients import serving

from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.serve.ct.app import make_ct_app
from tumorchain_jax.serve.ct.cases import Cases
from tumorchain_jax.serve.ct.desk import Desk
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.store import Store

pytestmark = pytest.mark.system(haste=True)
# Sum of the colours that a plane shows.
LEVELS = (
    "(() => {{ const c = document.querySelector('.plane-{0}');"
    " return c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
    ".reduce((a, b) => a + b); }})()"
)
DOWNLOADED = "window.saved = []; URL.createObjectURL = (b) => { window.saved.push(b); return '#'; }"


@pytest.fixture(scope="module")
def page_url(root: Path) -> Iterator[str]:
    """A server that segments scans."""
    analyzer = Analyzer.load(batch_size=4, max_rounds=3)
    limits = Limits()
    desk, store = Desk(analyzer, Cases(analyzer, limits), limits), Store(root, 3600.0, 1 << 30)
    desk.start()
    with serving(make_ct_app(desk, store, "nano", "")) as url:
        yield url
    desk.stop()
    store.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium here")
    with chromium(program, tmp_path / "profile") as made:
        yield made


def caption(plane: str) -> str:
    return f"document.querySelector('.plane-{plane}').nextElementSibling.textContent"


def click(page: Browser, text: str, inside: str) -> None:
    find = f"[...{inside}.querySelectorAll('button')].find((b) => b.textContent === '{text}')"
    page.run(f"{find}.click()")


def test_page_in_a_browser(page_url: str, browser: Browser, root: Path, tmp_path: Path) -> None:
    page = browser
    page.size(1280, 900)
    page.call("Page.navigate", url=f"{page_url}/")
    page.wait("document.getElementById('root')?.options.length > 1")
    junk = tmp_path / "junk.nii.gz"
    junk.write_bytes(b"no scan")
    page.give_file("#file", junk)
    page.wait("document.getElementById('status').classList.contains('bad')")
    assert page.run("document.getElementById('status').textContent")
    assert ["400" in each for each in page.problems] == [True]
    page.problems.clear()

    page.requested.clear()
    page.drag_file("#drop", root / "p1" / "ct.nii.gz")
    page.wait("document.getElementById('drop').classList.contains('over')")
    assert page.requested == []  # nothing is sent before it is let go
    page.drop_file("#drop", root / "p1" / "ct.nii.gz")
    page.wait("!document.getElementById('send').disabled")
    assert page.requested[0] == f"{page_url}/v1/files"
    assert "organs found" in page.run("document.getElementById('status').textContent")
    assert not page.run("document.getElementById('drop').classList.contains('over')")
    assert page.run("document.querySelectorAll('#organs button').length") > 10
    for number, text in enumerate(("Where is the tumour in this CT?", "Is the liver normal?"), 1):
        page.run(f"document.getElementById('question').value = '{text}'")
        page.run("document.getElementById('send').click()")
        page.wait(f"document.querySelectorAll('.answer').length === {number}")
    assert page.run("document.querySelectorAll('.round').length") >= 3
    assert page.run("document.querySelectorAll('.writing').length") == 0

    before = page.run(caption("axial"))
    page.run("document.querySelector('.plane-axial').focus()")
    page.key("ArrowUp")
    assert page.run(caption("axial")) != before
    page.run("document.querySelector('article:last-child .round .text button').click()")
    after = page.run(caption("axial"))
    page.key("ArrowUp")
    page.run("document.querySelector('article:last-child .round .text button').click()")
    assert page.run(caption("axial")) == after  # where that organ is largest

    soft = page.run(LEVELS.format("axial"))
    page.run("document.querySelector('[data-window=lung]').click()")
    assert page.run(LEVELS.format("axial")) > soft > 0
    page.run("document.querySelector('[data-window=soft]').click()")

    # Two marks ten slices apart in the sagittal plane: ten times the slices' distance.
    spacing = float(nib.load(root / "p1" / "ct.nii.gz").header.get_zooms()[2])
    page.run("document.querySelector('.plane-sagittal').focus()")
    page.key("m")
    page.run("document.querySelector('.plane-axial').focus()")
    page.key("PageDown")
    page.run("document.querySelector('.plane-sagittal').focus()")
    page.key("m")
    told = page.run("document.querySelector('.told').textContent")
    assert told == f"Sagittal distance: {10 * spacing:.1f} mm"

    whole = page.run(LEVELS.format("coronal"))
    page.run("document.querySelector('.plane-coronal').focus()")
    page.key("+")
    assert page.run(LEVELS.format("coronal")) != whole
    page.key("0")
    assert page.run(LEVELS.format("coronal")) == whole

    click(page, "Compare", "document.querySelectorAll('article')[0]")
    click(page, "Compare", "document.querySelectorAll('article')[1]")
    assert page.run("document.querySelectorAll('.comparing article.compared').length") == 2
    assert page.run("document.getElementById('compared').textContent").startswith("Compared: ")

    page.run(DOWNLOADED)
    click(page, "Save the report", "document.querySelector('article')")
    page.wait("window.saved.length === 1")
    saved = page.run("window.saved[0].text()")
    assert "The chain of reasoning" in saved
    for width in (390, 1280):
        page.size(width, 800, dark=width == 390)
        assert page.run("document.documentElement.scrollWidth") <= width
    assert page.problems == []
    assert all(each.startswith((f"{page_url}/", "blob:")) for each in page.requested)

    # The saved report scrolls by itself, from disk.
    report = tmp_path / "report.html"
    report.write_text(saved)
    page.requested.clear()
    page.size(390, 800)
    page.call("Page.navigate", url=report.as_uri())
    page.wait("document.querySelector('.viewer .live')?.hidden === false")
    assert page.run("document.querySelector('.viewer .still').hidden")
    before = page.run(caption("axial")), page.run(LEVELS.format("axial"))
    page.run("document.querySelector('.plane-axial').focus()")
    page.key("PageUp")
    assert page.run(caption("axial")) != before[0]
    assert page.run(LEVELS.format("axial")) != before[1]
    page.run("document.querySelector('mark[role=button]').click()")
    assert page.run("document.querySelectorAll('.viewer-organ[aria-pressed=true]').length") >= 1
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.problems == []
    assert all(each.startswith(("file:", "data:")) for each in page.requested)
