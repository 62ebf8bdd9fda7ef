"""The chain of custody of one record: what it says, and the words in the reports it rests on."""

from collections.abc import Iterable, Sequence
from html import escape

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.engine.case import Claim, Review, Step
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import KnowledgeGraph
from tumorchain_jax.engine.run.reading import Kept, StoredCase
from tumorchain_jax.engine.run.verify import cited
from tumorchain_jax.report.page import page
from tumorchain_jax.report.pictures import organ_colour

LEVELS = {"finding": "Finding", "impression": "Impression", "reasoning": "Reasoning"}
_NOT_THERE = "not there"


def text(case: StoredCase, kept: Kept, graph: KnowledgeGraph) -> str:
    """The chain of custody as plain lines."""
    record, trace = kept.record, kept.trace
    lines = [
        f"record {trace.record}: {record.subtask}, scan {kept.scan}, patient {record.patient}",
        f"question: {record.question}",
        *([f"choices: {'; '.join(record.choices)}"] if record.choices else []),
        f"answer: {record.answer}",
    ]
    for number, each in enumerate(record.rounds, 1):
        looked = ", ".join(map(display_name, each.look_at))
        lines.append(f"round {number}{f', looks again at {looked}' if looked else ''}: {each.text}")
    for step in trace.steps:
        lines.append(f"{step.level}: {step.text}")
        for claim in step.claims:
            lines.append(f"  claim: {claim.subject} {claim.relation} {claim.object}")
            lines += [f"    fact {id}: {_fact_text(case, id)}" for id in claim.facts]
            lines += [f"    edge {id}: {_edge_text(graph, id)}" for id in claim.edges]
    lines += [f"answer rests on fact {id}: {_fact_text(case, id)}" for id in trace.answer_facts]
    lines += [f"answer rests on edge {id}: {_edge_text(graph, id)}" for id in trace.answer_edges]
    lines += [f"review: {_review_text(review)}" for review in trace.reviews]
    lines += [f"agent: {agent}: {backend}" for agent, backend in trace.agents]
    lines.append(f"knowledge graph: {trace.graph}")
    return "\n".join(lines)


def html(case: StoredCase, kept: Kept, graph: KnowledgeGraph) -> str:
    """The chain of custody as a page that needs nothing but itself."""
    record, trace = kept.record, kept.trace
    facts, _ = cited(trace)
    # Number facts as their words stand in the reports.
    order = sorted(
        (fact for id, fact in case.facts.items() if id in facts),
        key=lambda fact: (fact.source.kind, fact.source.document, fact.source.start, fact.id),
    )
    numbers = {fact.id: number for number, fact in enumerate(order, 1)}
    choices = "".join(f"<li>{escape(choice)}</li>" for choice in record.choices)
    content = f"""<header>
<p class="source">record {escape(trace.record)} · case {escape(case.id)} ·
 scan {escape(kept.scan)} · {escape(record.subtask.replace("_", " "))}</p>
<h1 class="free-text">{escape(record.question)}</h1>
{f'<ol type="A">{choices}</ol>' if choices else ""}
<div class="statements"><section class="statement conclusion"><h2>Answer</h2>
<p class="free-text">{escape(record.answer)}</p>
{_sources(trace.answer_facts, trace.answer_edges, case, graph, numbers)}</section></div>
</header>
<h2>The chain as it is learned</h2>
{_rounds(kept)}
<h2>What each step claims, and on what it rests</h2>
{"".join(_step(step, case, graph, numbers) for step in trace.steps)}
<h2>The reports</h2>
<p class="legend">Marked are the words that the facts above were read from, with their numbers.</p>
{"".join(_report(row, sha, order, numbers) for sha, row in sorted(case.documents.items()))}
{_measurements(order, numbers)}
<h2>Who made and reviewed it</h2>
{_table(("agent", "backend"), trace.agents)}
{_table(("draft", "reviewer", "verdict", "tried next"), map(_review_row, trace.reviews))}
<p class="legend">Knowledge graph {escape(trace.graph)}.</p>"""
    return page(f"{trace.record} · chain of custody", content)


def _rounds(kept: Kept) -> str:
    cards = []
    for number, each in enumerate(kept.record.rounds, 1):
        if each.look_at:
            names = ", ".join(map(display_name, each.look_at))
            cards.append(f'<li class="link">looks again at: {escape(names)}</li>')
        given = " (given: an error to recover from)" if each.given else ""
        cards.append(
            f'<li class="round"><article><h3>Round {number}{given}</h3>'
            f'<p class="free-text">{escape(each.text)}</p></article></li>'
        )
    return f'<ol class="chain">{"".join(cards)}</ol>'


def _step(step: Step, case: StoredCase, graph: KnowledgeGraph, numbers: dict[str, int]) -> str:
    rows = "".join(_claim(claim, case, graph, numbers) for claim in step.claims)
    level = LEVELS.get(step.level, step.level)
    return (
        f'<section class="statement"><h2>{escape(level)}</h2>'
        f'<p class="behind free-text">{escape(step.text)}</p><table>{rows}</table></section>'
    )


def _claim(claim: Claim, case: StoredCase, graph: KnowledgeGraph, numbers: dict[str, int]) -> str:
    said = escape(f"{claim.subject} {claim.relation.replace('_', ' ')} {claim.object}")
    rests = _sources(claim.facts, claim.edges, case, graph, numbers)
    return f'<tr><th scope="row">{said}</th><td>{rests}</td></tr>'


def _sources(
    facts: Iterable[str],
    edges: Iterable[str],
    case: StoredCase,
    graph: KnowledgeGraph,
    numbers: dict[str, int],
) -> str:
    lines = [
        f'<a href="#fact-{numbers[id]}">fact {numbers[id]}</a> {escape(_fact_text(case, id))}'
        if id in numbers
        else f"fact {escape(id)}: {_NOT_THERE}"
        for id in facts
    ]
    lines += [f"graph: {escape(_edge_text(graph, id))}" for id in edges]
    return "".join(f'<p class="behind free-text">{line}</p>' for line in lines)


def _report(
    row: dict[str, str], sha256: str, facts: Sequence[Fact], numbers: dict[str, int]
) -> str:
    text, pieces, done = row["text"], [], 0
    for fact in facts:
        start, end = fact.source.start, fact.source.end
        if fact.source.document != sha256 or not done <= start <= end <= len(text):
            if fact.source.document == sha256:  # words that a fact before has marked
                pieces.append(_anchor(numbers[fact.id]))
            continue
        number = numbers[fact.id]
        colour = ", ".join(map(str, organ_colour(number - 1)))
        line = f"--line:linear-gradient(rgb({colour}), rgb({colour}))"
        style = f"--tint:rgba({colour}, 0.18);{line}"
        pieces.append(escape(text[done:start]))
        pieces.append(f'<mark style="{style}">{escape(text[start:end])}</mark>{_anchor(number)}')
        done = end
    marked = "".join(pieces) + escape(text[done:])
    language = f", {escape(row['language'])}" if row["language"] else ""
    return (
        f'<section class="statement"><h2>{escape(row["kind"])}{language}, '
        f'{sha256[:16]}</h2><p class="behind free-text">{marked}</p></section>'
    )


def _anchor(number: int) -> str:
    return f'<sup id="fact-{number}">{number}</sup>'


def _measurements(facts: Sequence[Fact], numbers: dict[str, int]) -> str:
    rows = [
        f'<tr><th scope="row">{_anchor(numbers[fact.id])}</th><td>{escape(_said(fact))}, '
        f"{escape(fact.source.quote)}</td></tr>"
        for fact in facts
        if fact.source.kind == "mask"
    ]
    return f"<h2>Measured on masks</h2><table>{''.join(rows)}</table>" if rows else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f'<table class="index"><tr>{heads}</tr>{body}</table>'


def _review_row(review: Review) -> tuple[str, str, str, str]:
    verdict = review.issue or "passed"
    return str(review.attempt), review.agent, verdict, review.strategy.replace("_", " ")


def _review_text(review: Review) -> str:
    attempt, agent, verdict, then = _review_row(review)
    return f"draft {attempt}, {agent}: {verdict}{f'; tried next: {then}' if then else ''}"


def _fact_text(case: StoredCase, id: str) -> str:
    fact = case.facts.get(id)
    return _NOT_THERE if fact is None else f"{_said(fact)}: {fact.source.quote!r}"


def _said(fact: Fact) -> str:
    where = ", ".join(part for part in (fact.organ, fact.part) if part) or "no organ"
    lesion = f", lesion {fact.lesion}" if fact.lesion else ""
    unit = f" {fact.unit}" if fact.unit else ""
    how = [
        word
        for word, usual in (
            (fact.polarity, "present"),
            (fact.certainty, "definite"),
            (fact.time, "current"),
        )
        if word != usual
    ]
    meant = f" ({', '.join(how)})" if how else ""
    return f"{where}{lesion}: {fact.attribute} {fact.value}{unit}{meant}, {fact.source.kind}"


def _edge_text(graph: KnowledgeGraph, id: str) -> str:
    edge = graph.by_id.get(id)
    if edge is None:
        return _NOT_THERE
    source = graph.sources[edge.source]
    triple = f"{edge.subject} {edge.relation.replace('_', ' ')} {edge.object}"
    return f"{triple} (level {source.level}: {source.title}, {source.edition})"
