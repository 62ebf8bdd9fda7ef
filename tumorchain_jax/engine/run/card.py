"""The card of a data set: what is in it and how it was made, beside the paper's figures."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tumorchain_jax import NOTICE, __version__
from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.data.schema import SUBTASKS, TASK_OF
from tumorchain_jax.engine.run.store import Head, Lines

PAPER = {
    "records": 1_497_818,
    "lesion_attributes": 898_841,
    "cot_report": 280_242,
    "position": 165_209,
    "tnm_prediction": 153_526,
}
"""Pairs in all and of each task, from the shares that the paper's Fig. 2 prints."""
PAPER_SCANS, PAPER_REPORTS = 41_059, 10_708
MOST_FREQUENT = 0.6
"""Share of a subtask's most frequent answer from which the card warns."""
MOST_ROWS = 30
_SHOWN = 60


class Card:
    """Counts what a run wrote, a case at a time.

    Args:
        settings: of the run.
        mix: of the tasks, `natural` or `paper`.
    """

    def __init__(self, settings: Mapping[str, Any], mix: str):
        self._settings, self._mix = settings, mix
        self._totals: Counter[str] = Counter()
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._answers: dict[str, Counter[bytes]] = defaultdict(Counter)
        self._majority: dict[str, tuple[int, str]] = {}
        self._questions: set[bytes] = set()

    def add(self, head: Head, lines: Lines) -> list[str]:
        """Count what came of a case.

        Returns:
            The patients of its records.
        """
        self._totals.update(cases=1, rejected=sum(head.rejected.values()), failed=bool(head.error))
        self._counts["left out"].update(head.left_out)
        records = [json.loads(line) for line in lines.get("records", ())]
        for record in records:
            self._add_record(record)
        for line in lines.get("traces", ()):
            self._add_trace(json.loads(line))
        for line in lines.get("facts", ()):
            fact = json.loads(line)
            self._counts["fact"][fact["source"]["kind"]] += 1
            self._counts["attribute"][fact["attribute"]] += 1
        for line in lines.get("documents", ()):
            document = json.loads(line)
            kind = f"{document['kind']}, {document['language'] or 'language not said'}"
            self._counts["document"][kind] += 1
        for line in lines.get("rejected", ()):
            self._counts["rejected"][json.loads(line)["reason"]] += 1
        self._totals["discordant"] += len(lines.get("discordant", ()))
        self._totals["scans"] += len({record["scan"] for record in records})
        return [record["patient"] for record in records]

    def _add_record(self, record: Mapping[str, Any]) -> None:
        subtask, answer = record["subtask"], record["answer"]
        organ = display_name(record["organ"]) if record["organ"] else "none in particular"
        words = len(record["reasoning"].split())
        self._totals.update(records=1, words=words)
        self._counts["subtask"][subtask] += 1
        self._counts["organ"][organ] += 1
        self._counts["rounds"][str(len(record["rounds"]))] += 1
        self._counts["length"][_decade(words)] += 1
        self._totals["corrections"] += any(each["given"] for each in record["rounds"])
        self._questions.add(_digest(record["question"]))
        answers = self._answers[subtask]
        answers[_digest(answer)] += 1
        count = answers[_digest(answer)]
        if count > self._majority.get(subtask, (0, ""))[0]:
            self._majority[subtask] = count, answer

    def _add_trace(self, trace: Mapping[str, Any]) -> None:
        self._counts["form"][trace["form"]] += 1
        self._counts["graph"][trace["graph"]] += 1
        for agent, backend in trace["agents"]:
            self._counts["agent"][f"{agent}: {backend}"] += 1
        self._totals["claims"] += sum(len(step["claims"]) for step in trace["steps"])
        for review in trace["reviews"]:
            verdict = "passed" if not review["issue"] else "sent back"
            self._counts["review"][f"{review['agent']}: {verdict}"] += 1
            if review["strategy"]:
                self._counts["strategy"][review["strategy"]] += 1

    def text(self, patients: Mapping[str, Sequence[str]], thinned: int) -> str:
        """Write the card as Markdown.

        Args:
            patients: those that train and those that test.
            thinned: records left out for the mix of tasks.
        """
        totals = self._totals
        per_scan = totals["records"] / max(1, totals["scans"])
        rows = [
            ("records", f"{totals['records']:,}", f"{PAPER['records']:,}"),
            ("scans with records", f"{totals['scans']:,}", f"{PAPER_SCANS:,}"),
            ("records a scan", f"{per_scan:.1f}", "36.5"),
            ("cases", f"{totals['cases']:,}", f"{PAPER_REPORTS:,} radiology reports"),
            ("patients for training", f"{len(patients['train']):,}", "9 of 10"),
            ("patients for testing", f"{len(patients['test']):,}", "1 of 10"),
            ("claims with their source", f"{totals['claims']:,}", "not stated"),
            ("words of a chain, mean", _mean(totals["words"], totals["records"]), "not stated"),
            ("different questions", f"{len(self._questions):,}", "not stated"),
            ("records with a corrected error", f"{totals['corrections']:,}", "none"),
        ]
        left_out = self._counts["left out"] | Counter({"for the mix of tasks": thinned})
        config = json.dumps(self._settings, sort_keys=True, ensure_ascii=False)
        versions = [
            ("engine", __version__),
            ("knowledge graph", ", ".join(sorted(self._counts["graph"])) or "none used"),
            ("settings", f"`{hashlib.sha256(config.encode()).hexdigest()[:16]}`"),
            ("mix of tasks", self._mix),
        ]
        return "\n".join(
            [
                "# Data set card",
                "",
                f"Questions about CT scans with chains of thought, made from reports by "
                f"`tumorchain engine run`. {NOTICE} Chains say what reports say; nobody and "
                "nothing looked at the scans.",
                "",
                *_table(("", "here", "paper"), rows),
                "## Tasks and subtasks",
                "",
                *self._tasks(),
                *self._majorities(),
                *self._shares("Organs", "organ", "records"),
                *self._shares("Forms of question", "form", "records"),
                *self._shares("Rounds of a chain", "rounds", "records"),
                *self._shares("Words of a chain", "length", "records"),
                *self._shares("Sources", "document", "reports"),
                *self._shares("Facts by source", "fact", "facts"),
                *self._shares("Facts by what they say", "attribute", "facts"),
                "## Reviewers",
                "",
                "Verdicts on the drafts of accepted records.",
                "",
                *_counted(self._counts["agent"], "agent and backend", "records"),
                *_counted(self._counts["review"], "verdict", "drafts"),
                *_counted(self._counts["strategy"], "what was tried next", "drafts"),
                "## Left out and set aside",
                "",
                f"{totals['rejected']:,} chains were set aside, nothing came of "
                f"{totals['failed']:,} cases (`rejected.jsonl`); CT and pathology differ in "
                f"{totals['discordant']:,} places, which are kept apart (`discordant.jsonl`).",
                "",
                *_counted(self._counts["rejected"], "reason", "chains or cases"),
                *_counted(left_out, "record left out", "records"),
                "## How it was made",
                "",
                *_table(("", ""), versions),
                "```json",
                json.dumps(self._settings, indent=1, sort_keys=True, ensure_ascii=False),
                "```",
                "",
                "`facts.jsonl`, `documents.jsonl`, `rejected.jsonl` and `discordant.jsonl` hold "
                "words of the reports: to share the data set, share what `tumorchain engine "
                "export` writes.",
                "",
            ]
        )

    def _tasks(self) -> list[str]:
        counts, total = self._counts["subtask"], self._totals["records"]
        rows = []
        for task, subtasks in SUBTASKS.items():
            here = sum(counts[subtask] for subtask in subtasks)
            paper = f"{PAPER[task]:,} ({PAPER[task] / PAPER['records']:.2%})"
            rows.append((f"**{_spoken(task)}**", f"{here:,}", _share(here, total), paper))
            if len(subtasks) > 1:
                rows += [
                    (_spoken(each), f"{counts[each]:,}", _share(counts[each], total), "")
                    for each in subtasks
                ]
        return _table(("task", "records", "share", "paper"), rows)

    def _majorities(self) -> list[str]:
        rows, high = [], []
        for subtask in TASK_OF:
            if subtask not in self._majority:
                continue
            count, answer = self._majority[subtask]
            total = self._counts["subtask"][subtask]
            rows.append((_spoken(subtask), _cell(answer), _share(count, total)))
            if count > MOST_FREQUENT * total:
                high.append(_spoken(subtask))
        told = (
            [
                f"Above {MOST_FREQUENT:.0%} in {', '.join(high)}: most reports say the same there. "
                "Judge a model by how far it is above this baseline.",
                "",
            ]
            if high
            else []
        )
        title = [
            "## Most frequent answers",
            "",
            "What a model that cannot see would be right by.",
            "",
        ]
        return [*title, *_table(("subtask", "answer", "share"), rows), *told]

    def _shares(self, title: str, name: str, unit: str) -> list[str]:
        return [f"## {title}", "", *(_counted(self._counts[name], "", unit) or ["None.", ""])]


def _counted(counts: Mapping[str, int], what: str, unit: str) -> list[str]:
    total = sum(counts.values())
    order = sorted((name for name in counts if counts[name]), key=lambda n: (-counts[n], n))
    rows = [
        (_cell(name), f"{counts[name]:,}", _share(counts[name], total))
        for name in order[:MOST_ROWS]
    ]
    if others := sum(counts[name] for name in order[MOST_ROWS:]):
        rows.append((f"{len(order) - MOST_ROWS} others", f"{others:,}", _share(others, total)))
    return _table((what, unit, "share"), rows) if rows else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def lines() -> Iterator[str]:
        yield line(head)
        yield line(["---", *["---:"] * (len(head) - 1)])
        yield from map(line, rows)
        yield ""

    return list(lines())


def _cell(text: str) -> str:
    """Text of a record or report: one line that cannot leave its cell or become markup."""
    text = " ".join(text.split())
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return "".join(f"&#{ord(c)};" if c in "|<>`*_[]&\\" else c for c in text)


def _decade(words: int) -> str:
    steps = (20, 40, 80, 160, 320)
    return next((f"up to {step}" for step in steps if words <= step), f"over {steps[-1]}")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _mean(total: int, count: int) -> str:
    return f"{total / count:.0f}" if count else "none"


def _share(count: int, total: int) -> str:
    return f"{count / total:.2%}" if total else "0 %"


def _spoken(name: str) -> str:
    return name.replace("_", " ")
