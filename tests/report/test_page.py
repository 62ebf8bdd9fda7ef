import base64
import io
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from tumorchain_jax import NOTICE
from tumorchain_jax.reasoning.trace import OrganMention, Outcome, Round
from tumorchain_jax.report.page import render
from tumorchain_jax.report.pictures import organ_colour
from tumorchain_jax.report.report import Report
from tumorchain_jax.report.shell import POLICY
from tumorchain_jax.scan.preprocess import GridTransform
from tumorchain_jax.segmentation.masks import MaskOrigin
from tumorchain_jax.segmentation.statistics import OrganStatistics

MakeReport = Callable[..., Report]

EVIL = '<script>alert(\'x\')</script>"><img src=x onerror="y">&amp; http://evil.example'
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Tags with their attributes, and the text inside each open tag."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.marks: list[str] = []
        self.chains: list[str] = []
        self._open: list[str] = []
        self._free = 0
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "mark":
            self.marks.append("")
        if tag == "article":
            self.chains.append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "mark" in self._open:
            self.marks[-1] += data
        if "article" in self._open:
            self.chains[-1] += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def mention(
    span: tuple[int, int],
    label: int = 5,
    outcome: Outcome = "looked_at",
    organ: str = "liver",
    matched: str = "liver",
) -> OrganMention:
    cells = () if outcome == "not_in_mask" else (3, 7)
    return OrganMention(label, organ, matched, span, outcome, cells, 0.5)


def a_round(text: str, *organs: OrganMention, complete: bool = True) -> Round:
    return Round(text, organs, 10, 5, complete, -0.5)


def test_everything_from_outside_is_escaped(make_report: MakeReport) -> None:
    evil = mention((0, 8), organ=EVIL, matched=EVIL)
    absent = mention((9, 12), label=6, outcome="not_in_mask", organ=EVIL, matched=EVIL)
    report = make_report(
        a_round(EVIL, evil, absent),
        a_round(EVIL),
        question=EVIL,
        answer=EVIL,
        conclusion=EVIL,
        source=EVIL,
        truth=EVIL,
        warnings=(EVIL,),
        device=EVIL,
        model=EVIL,
        weights_sha256=EVIL,
        versions={EVIL: EVIL},
        seconds={EVIL: 1.0},
        preprocessing={EVIL: [EVIL]},
    )
    html = render(report)
    page = Page(html)
    assert "<script" not in html.lower()
    assert not {"script", "a", "link", "iframe", "object", "form"} & {tag for tag, _ in page.tags}
    assert page.count("img") == 3
    assert all("onerror" not in attributes for _, attributes in page.tags)
    assert html.count("&lt;script&gt;") >= 14


def test_page_needs_no_network(make_report: MakeReport) -> None:
    html = render(make_report())
    assert not re.search(r"https?:|url\((?!#)|@import", html)
    page = Page(html)
    for _, attributes in page.tags:
        assert not {"href", "srcset", "action"} & set(attributes)
        assert (attributes.get("src") or "data:").startswith("data:")
    policy = [a["content"] for t, a in page.tags if a.get("http-equiv")]
    assert policy == [POLICY] == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_marks_sit_on_the_words(make_report: MakeReport) -> None:
    text = "The líver 🫀 liver<b>spleen&amp; spleen"
    spans = [(12, 17), (20, 26), (32, 38)]
    labels = [5, 1, 1]
    assert [text[a:b] for a, b in spans] == ["liver", "spleen", "spleen"]
    organs = [mention(s, label, "already_seen") for s, label in zip(spans, labels, strict=True)]
    html = render(make_report(a_round(text, *reversed(organs))))
    page = Page(html)
    assert page.marks == ["liver", "spleen", "spleen"]
    assert text in page.chains[0]
    styles = [attributes["style"] for tag, attributes in page.tags if tag == "mark"]
    assert styles[1] == styles[2] != styles[0]


@pytest.mark.parametrize(
    ("spans", "marks"),
    [
        ([(0, 5), (5, 10)], ["abcde", "fghij"]),  # touching
        ([(0, 3), (0, 6)], ["abcdef"]),  # the longer of two that begin together
        ([(0, 5), (3, 8)], ["abcde"]),  # the first of two that overlap
        ([(2, 3), (0, 5), (6, 7)], ["abcde", "g"]),  # one inside another
        ([(0, 5), (0, 5)], ["abcde"]),  # twice the same
        ([(4, 4), (10, 12)], []),  # nothing there
    ],
)
def test_overlapping_marks(
    make_report: MakeReport, spans: list[tuple[int, int]], marks: list[str]
) -> None:
    text = "abcdefghij"
    organs = [mention(span, label) for label, span in enumerate(spans, start=1)]
    page = Page(render(make_report(a_round(text, *organs))))
    assert [mark for mark in page.marks if mark] == marks
    assert text in page.chains[0]


def test_text_name_and_picture_share_the_colour(make_report: MakeReport) -> None:
    html = render(make_report())
    colour = organ_colour(0)
    written = f"rgba{(*colour, 1)}"
    assert set(re.findall(r"--organ:([^;\"]+)", html)) == {written}
    assert f"linear-gradient(to right, {written} 0% 100%)" in html
    png = base64.b64decode(re.findall(r"base64,([^\"]+)", html)[0])
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    assert (pixels == colour).all(axis=2).any()


def test_word_that_names_two_organs(make_report: MakeReport) -> None:
    right = mention((4, 11), label=2, organ="kidney_right")
    left = mention((4, 11), label=3, outcome="over_limit", organ="kidney_left")
    report = make_report(a_round("The kidneys.", right, left), a_round("Fine."))
    html = render(report)
    assert Page(html).marks == ["kidneys"]
    assert "right kidney (looked at again), left kidney (skipped" in html
    assert len(set(re.findall(r"--organ:([^;\"]+)", html))) == 2
    (line,) = re.findall(r"linear-gradient\(to right, ([^\"]+)\)\"", html)
    assert line.count("rgba") == 2
    assert "0% 50%" in line
    assert "50% 100%" in line


def test_rounds_say_what_was_looked_at(make_report: MakeReport) -> None:
    twice = [mention((0, 5)), mention((6, 11), outcome="already_seen")]
    later = mention((0, 6), label=1, outcome="over_limit", organ="spleen")
    report = make_report(
        a_round("liver liver", *twice),
        a_round("spleen and liver", later, mention((11, 16), outcome="already_seen")),
        a_round("kidney", complete=False),
        stop_reason="max_rounds",
    )
    html = render(report)
    words = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", html)))
    assert html.count("<article>") == 3
    assert "looked again at: liver" in words
    assert "looked again at: liver, liver" not in words
    also = "spleen (skipped, too many organs in one round), liver (already looked at)"
    assert f"Also named: {also}." in words
    assert words.count("Also named") == 1
    assert "The chain ended at its limit of rounds." in words
    assert words.count("cut at its token limit") == 1
    # One organ was looked at: one row of three pictures, with its box and probability.
    assert html.count("<img") == 3
    assert "2 cells within x" in words
    assert "Abnormal: 50%, the organ classifier's probability, not a diagnosis." in words
    assert "not from the part of the model that writes the answer" in words


def test_without_organs_only_the_first_round_shows_the_scan(make_report: MakeReport) -> None:
    html = render(make_report(a_round("Nothing."), a_round("Still nothing.")))
    assert html.count("<img") == 3
    assert html.index("<img") < html.index("Still nothing.")
    assert "Whole scan" in html


def test_head_and_foot(make_report: MakeReport) -> None:
    html = render(make_report())
    assert html.count(f'<p class="notice">{NOTICE}</p>') == 2
    assert html.index(NOTICE) < html.index("Is there a lesion?") < html.index("no lesion</p>")
    assert "Synthetic truth" not in html
    assert "Warnings" not in html
    with_more = render(make_report(truth="a cyst", warnings=("no mask given",), conclusion=""))
    assert "Synthetic truth</h2>" in with_more
    assert "a cyst" in with_more
    assert "<li>no mask given</li>" in with_more
    assert "No answer was given." in with_more


def test_organs_are_measured_in_a_table(make_report: MakeReport) -> None:
    report = make_report(
        masks=MaskOrigin("predicted", EVIL, {EVIL: EVIL}),
        organs={
            "spleen": OrganStatistics(9, 210.04, -3.25, cut=True),
            "liver": OrganStatistics(9, 1480.0, 55.0, cut=False),
            "colorectum": OrganStatistics(9, 90.0, 1.0, cut=False),
        },
    )
    html = render(report)
    assert "<script" not in html.lower()
    section = html[html.index('<section class="organs">') :].split("</section>")[0]
    looked_at, folded = section.split("<details>")
    assert "reviewed them: &lt;script&gt;" in looked_at
    assert '<th scope="row">liver</th><td>1,480.0</td><td>55.0</td><td></td>' in looked_at
    assert "spleen" not in looked_at
    assert "2 other organs" in folded
    assert '<th scope="row">spleen</th><td>210.0</td><td>-3.2</td><td>at the edge</td>' in folded
    assert '<th scope="row">colon</th>' in folded
    assert ".numbers td { text-align: right" in html
    assert '<section class="organs">' not in render(make_report())
    given = make_report(masks=MaskOrigin("given", "seg.nii.gz", {}), organs=report.organs)
    assert "The masks come from the label map seg.nii.gz." in render(given)


def shown_run(report: Report) -> dict[str, str]:
    """The rows of the table of what ran."""
    table = render(report).split("<caption>Run</caption>")[1].split("</table>")[0]
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', table)
    return {unescape(key): unescape(value) for key, value in rows}


def test_what_ran_is_told_in_words(make_report: MakeReport) -> None:
    run = shown_run(make_report(source="scans/ct.nii.gz", model="a model"))
    assert run == {
        "scan": "ct.nii.gz",
        "model": "a model",
        "weights (sha256)": "ab" * 32,
        "organ masks": "not known",
        "device": "cpu",
        "seed": "7",
    }
    given = shown_run(make_report(masks=MaskOrigin("given", "seg.nii.gz", {})))
    assert given["organ masks"] == "The masks come from the label map seg.nii.gz."
    made = shown_run(make_report(masks=MaskOrigin("predicted", "nano", {"part 1": "cd"})))
    assert (
        made["organ masks"]
        == "The masks were segmented automatically and nobody has reviewed them: nano."
    )
    assert made["masks by part 1"] == "cd"


def test_without_masks_no_mask_is_blamed(make_report: MakeReport) -> None:
    organs = a_round("liver", mention((0, 5), outcome="not_in_mask"))
    assert "liver (not in the organ mask)" in render(make_report(organs))
    none = make_report(organs, masks=MaskOrigin("none", "none", {}))
    html = render(none)
    assert "in the organ mask" not in html
    assert html.count("(not looked at, there are no organ masks)") == 2
    assert shown_run(none)["organ masks"] == "There are no masks."


def test_heading_has_the_name_of_the_file(make_report: MakeReport) -> None:
    html = render(make_report(source="scans/ct.nii.gz"))
    assert '<p class="source">ct.nii.gz</p>' in html
    assert "<title>ct.nii.gz · " in html


def test_sides_are_labelled(make_report: MakeReport) -> None:
    sides = re.findall(r'class="side (\w+)">(\w)<', render(make_report()))
    assert sides[:4] == [("left", "R"), ("right", "L"), ("top", "A"), ("bottom", "P")]
    assert sides[4:8] == [("left", "R"), ("right", "L"), ("top", "S"), ("bottom", "I")]
    assert sides[8:] == [("left", "A"), ("right", "P"), ("top", "S"), ("bottom", "I")]


def test_full_page_is_light(make_report: MakeReport) -> None:
    grid = (32, 256, 256)
    to_world = np.diag([-1.6, -1.6, 9.0, 1.0])[:, [2, 1, 0, 3]]
    text = "liver spleen kidney"
    spans = [(0, 5), (6, 12), (13, 19)]
    organs = [mention(span, label) for label, span in enumerate(spans, start=1)]
    rounds = [a_round(text, *organs) for _ in range(3)] + [a_round(text)]
    # Noise of 20 HU in a window of 400 HU.
    image = 0.5 + 0.05 * np.random.default_rng(0).standard_normal(grid, np.float32)
    report = make_report(
        *rounds, image=image, transform=GridTransform(grid, to_world), cells=(8, 16, 16)
    )
    html = render(report)
    assert html.count("<img") == 27
    assert len(html.encode()) < 1_500_000
