"""`tumorchain evaluate --by endpoint`: ask, judge, score, write."""

import json
from pathlib import Path
from typing import Any

from tumorchain_jax import NOTICE
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.evaluation.items import json_lines
from tumorchain_jax.evaluation.patients import Phantoms
from tumorchain_jax.evaluation.plot import bar_chart
from tumorchain_jax.evaluation.score import summary
from tumorchain_jax.evaluation.slices.policy import SlicePolicy
from tumorchain_jax.evaluation.slices.score import slices_score, slices_text
from tumorchain_jax.evaluation.slices.subject import ask_endpoint, identity
from tumorchain_jax.evaluation.tables import summary_text
from tumorchain_jax.llm.endpoint import Endpoint
from tumorchain_jax.report.folder import check_folder, write_folder

SUBJECT = "subject.json"


def evaluate_endpoint(
    endpoint: Endpoint,
    policy: SlicePolicy,
    patients: Phantoms,
    output: Path,
    allow_remote: bool = False,
    budget: float | None = None,
) -> tuple[dict[str, Any], str]:
    """Ask a model behind an endpoint, and score its answers as those of ours are.

    Args:
        output: new folder; the journal of the replies stays beside it.

    Returns:
        the score as plain values, with `subject` and `slices`, and as text.

    Raises:
        InputError: one of these cannot be used.
        Stopped: the budget is spent.
    """
    check_folder(output, overwrite=False)
    run = identity(endpoint, policy, patients)
    journal = output.with_name(f".{output.name}.replies.sqlite")
    items, sent = ask_endpoint(endpoint, policy, patients, journal, allow_remote, budget)
    score, slices = summary(items), slices_score(items, sent)
    text = f"{slices_text(run, slices)}\n\n{summary_text(score)}\n{NOTICE}\n"
    files = {
        "items.jsonl": json_lines(items),
        "sent.jsonl": "".join(json.dumps(known.values()) + "\n" for known in sent),
        SUBJECT: json.dumps({**run, "score": slices}, indent=1) + "\n",
        "score.json": json.dumps(score, indent=1) + "\n",
        "score.txt": text,
        "score.svg": bar_chart(score, f"{score['patients']} patients with made-up tumours"),
    }
    write_folder(output, files, overwrite=False)
    return {**score, "subject": run, "slices": slices}, text


def recorded_subject(items: Path) -> str:
    """Return the model that wrote the answers, where `evaluate` noted it beside them; else ""."""
    path = items.with_name(SUBJECT)
    model = read_json(path).get("model") if path.is_file() else ""
    return model if isinstance(model, str) else ""
