"""UPSTREAM'S rules: what the public scorer of DeepTumorVQA v2 (commit 1df7460) computes.

For comparison with published numbers alone: it credits crashes and misses right answers (see the
room's README). Reimplemented from a description in prose; compared on 427 cases.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

PERCENT = (5, 10, 20, 50)
Pairs = Sequence[tuple[str, str]]  # (text of the model, truth) of each question


def without_reasoning(text: str) -> str:
    """Drop closed and unclosed lower-case think tags with what is in them."""
    return re.sub("(?s)<think>.*", "", re.sub("(?s)<think>.*?</think>", "", text)).strip()


def letter(text: str) -> str:
    """Read A to D: the first character, else the first that stands alone; "" for none."""
    said = without_reasoning(text).upper()
    if said[:1] in tuple("ABCD"):
        return said[0]
    alone = re.search(r"\b([ABCD])\b", said)
    return alone[1] if alone else ""


def number(text: str, reasoning: bool = False) -> float | None:
    """Read the first number; `reasoning`: keep the think tags, as for a truth."""
    found = re.search(r"-?\d+\.?\d*", text if reasoning else without_reasoning(text))
    return float(found[0]) if found else None


def yes_no(text: str) -> str:
    """Read yes or no by how the text begins, else by a word in it; "" for neither."""
    said = without_reasoning(text).lower()
    for word in ("yes", "no"):
        if said.startswith(word):
            return word
    for word in ("yes", "no"):
        if re.search(rf"\b{word}\b", said):
            return word
    return ""


def category(text: str) -> str:
    """Return a text in lower case without punctuation."""
    said = re.sub(r"[^\w\s-]", "", without_reasoning(text).lower())
    return re.sub(r"\s+", " ", said)


def _mra(read: float | None, truth: float) -> float:
    if read is None or not truth:
        return float(read == truth)
    return max(0.0, 1 - abs(read - truth) / abs(truth))


def _near(read: float | None, truth: float, share: float) -> bool:
    return read == truth if read is None or not truth else abs(read - truth) / abs(truth) <= share


def _mean(values: Sequence[float | bool]) -> float:
    return round(sum(values) / len(values), 4) if values else 0.0


def _choices(pairs: Pairs) -> dict[str, Any]:
    read = [letter(text) for text, _ in pairs]
    right = [r == t.strip().upper() for r, (_, t) in zip(read, pairs, strict=True)]
    return {"metric": "exact_match", "accuracy": _mean(right), "n_parsed": sum(map(bool, read))}


def _numeric(pairs: Pairs) -> dict[str, Any]:
    rows = [(number(text), t) for text, truth in pairs if (t := number(truth, True)) is not None]
    within = {f"tol_{each}%": _mean([_near(p, t, each / 100) for p, t in rows]) for each in PERCENT}
    values = {"mean_mra": _mean([_mra(p, t) for p, t in rows]), "tolerance_acc": within}
    return {"metric": "MRA", **values, "n_scored": len(rows)}


def _binary(pairs: Pairs) -> dict[str, Any]:
    read = [(yes_no(text), yes_no(truth)) for text, truth in pairs]
    found = _mean([p == "yes" for p, t in read if t == "yes"])
    refused = _mean([p != "yes" for p, t in read if t == "no"])
    values = {"accuracy": _mean([p == t != "" for p, t in read]), "sensitivity": found}
    return {"metric": "exact_match", **values, "specificity": refused}


def _categorical(pairs: Pairs) -> dict[str, Any]:
    read = [(category(text), category(truth)) for text, truth in pairs]
    partial = [p == t or bool(p and t and (p in t or t in p)) for p, t in read]
    values = {"accuracy": _mean([p == t for p, t in read]), "partial_accuracy": _mean(partial)}
    return {"metric": "exact_match", **values}


READERS: dict[str, Callable[[str], Any]] = {
    "mc": letter, "numeric": number, "binary": yes_no, "categorical": category,
}  # fmt: skip
ROWS: dict[str, Callable[[Pairs], dict[str, Any]]] = {
    "mc": _choices, "numeric": _numeric, "binary": _binary, "categorical": _categorical,
}  # fmt: skip


def table(rows: Sequence[tuple[str, str, str, str, str]]) -> dict[str, Any]:
    """Compute the table of (type of the subtype, subtype, format or kind, text, truth)."""
    groups: dict[str, list[tuple[str, str, str, str, str]]] = {}
    for row in rows:
        groups.setdefault(row[1], []).append(row)
    subtypes, types = {}, dict[str, list[float]]()
    for name, group in groups.items():
        found = subtypes[name] = ROWS[group[0][2]]([row[3:] for row in group])
        found["n_total"] = len(group)
        value = found["mean_mra" if "mean_mra" in found else "accuracy"]
        types.setdefault(group[0][0], []).extend([value] * len(group))
    by_type = {
        name: {"accuracy": _mean(each), "n_total": len(each)} for name, each in types.items()
    }
    overall = _mean([value for each in types.values() for value in each])
    total = {"accuracy": overall, "n_total": len(rows), "n_subtypes": len(groups)}
    return {"overall": total, "by_super_type": by_type, "by_subtype": subtypes}
