"""Tables of the page: measurements of the organs, and what ran."""

import json
from collections.abc import Collection, Mapping
from html import escape

from tumorchain_jax.anatomy.organs import ORGANS, display_name
from tumorchain_jax.report.record import ReportRecord
from tumorchain_jax.segmentation.masks import MaskOrigin
from tumorchain_jax.segmentation.statistics import OrganStatistics


def organs_table(report: ReportRecord, seen: Collection[str]) -> str:
    """Show measurements of the organs that were looked at, `seen`; the others are folded away."""
    if not report.organs:
        return ""
    looked = {name: organ for name, organ in report.organs.items() if name in seen}
    rest = {name: organ for name, organ in report.organs.items() if name not in seen}
    shown = _measurements(looked) if looked else ""
    folded = f"<details><summary>{len(rest)} other organs</summary>{_measurements(rest)}</details>"
    return f"""<section class="organs">
<h2>Organ measurements</h2>
<p class="legend">{escape(_mask_source(report.masks))} "At the edge": the organ
reaches the edge of the scan, and part of it may lie outside.</p>
{shown}{folded if rest else ""}
</section>"""


def _mask_source(masks: MaskOrigin | None) -> str:
    if masks is None:
        return ""
    if masks.kind == "none":
        return "There are no masks."
    if masks.kind == "given":
        return f"The masks come from the label map {masks.source}."
    return f"The masks were segmented automatically and nobody has reviewed them: {masks.source}."


def _mask_identities(masks: MaskOrigin | None) -> dict[str, str]:
    """The source of the masks, and each model's SHA-256 or another program's version."""
    if masks is None:
        return {"organ masks": "not known"}
    parts = {f"masks by {part}": identity for part, identity in masks.weights.items()}
    return {"organ masks": _mask_source(masks)} | parts


def _measurements(organs: Mapping[str, OrganStatistics]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(display_name(ORGANS.index(name)))}</th>'
        f"<td>{organ.volume_ml:,.1f}</td>"
        f"<td>{'' if organ.mean_hu is None else f'{organ.mean_hu:.1f}'}</td>"
        f"<td>{'at the edge' if organ.cut else ''}</td></tr>"
        for name, organ in organs.items()
    )
    heads = "".join(
        f'<th scope="col">{head}</th>' for head in ("Organ", "Volume, ml", "Mean density, HU", "")
    )
    return f'<table class="numbers"><tr>{heads}</tr>{rows}</table>'


def details(report: ReportRecord) -> str:
    """Show, folded away, what ran and how long it took."""
    run = {
        "scan": report.name,
        "model": report.model,
        "weights (sha256)": report.weights_sha256,
        **_mask_identities(report.masks),
        "device": report.device,
        "seed": report.seed,
    }
    tokens = {
        f"round {number}": f"{each.tokens_in} read, {each.tokens_out} written, "
        f"mean log-probability {each.mean_log_probability:.2f}"
        for number, each in enumerate(report.trace.rounds, start=1)
    }
    seconds = {stage: f"{value:.2f} s" for stage, value in report.seconds.items()}
    return f"""<details class="provenance">
<summary>Details: model, time, tokens, preprocessing, versions</summary>
{_table("Run", run)}
{_table("Time", seconds)}
{_table("Tokens", tokens)}
{_table("Preprocessing", report.to_dict()["preprocessing"])}
{_table("Versions", report.versions)}
</details>"""


def _table(title: str, values: dict) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(str(key))}</th><td>{escape(_cell(value))}</td></tr>'
        for key, value in values.items()
    )
    return f"<table><caption>{title}</caption>{rows}</table>"


def _cell(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
