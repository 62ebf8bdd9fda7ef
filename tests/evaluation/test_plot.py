from xml.etree import ElementTree

from tumorchain_jax.evaluation.plot import LEFT, WIDTH, bar_chart

ROW = {"accuracy": 50.0, "ci95": [40.0, 60.0], "n": 7, "majority": 20.0, "text_only": None}
SCORE = {
    "average": 75.0,
    "ci95": [70.0, 80.0],
    "n": 9,
    "majority": 10.0,
    "text_only": 30.0,
    "subtasks": {"tumor_position": ROW},
}
SVG = "{http://www.w3.org/2000/svg}"


def test_bars_are_as_long_as_the_accuracy() -> None:
    root = ElementTree.fromstring(bar_chart(SCORE, "n < 9 & more"))
    bars = [float(bar.get("width", "")) for bar in root.iter(f"{SVG}rect") if bar.get("x")]
    assert bars == [0.5 * WIDTH, 0.75 * WIDTH]
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "n < 9 & more" in texts
    assert "tumor position (7)" in texts
    assert "average (9)" in texts


def test_baselines_and_intervals_stand_where_they_are() -> None:
    root = ElementTree.fromstring(bar_chart(SCORE, ""))
    paths = [path.get("d", "") for path in root.iter(f"{SVG}path")]
    interval = f"M{LEFT + 0.4 * WIDTH:g} "
    assert sum(path.startswith(interval) for path in paths) == 1
    thick = [p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("stroke-width") == "3"]
    starts = [path.split(" ")[0] for path in thick]
    assert starts == [f"M{LEFT + share * WIDTH:g}" for share in (0.2, 0.1, 0.3)]
