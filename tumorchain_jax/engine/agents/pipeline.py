"""The engine's agents at work on one case: a pure function of case, settings and replies."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.data.schema import TASK_OF, Record, RoundTarget
from tumorchain_jax.engine.agents.against_masks import contradictions
from tumorchain_jax.engine.agents.ask import Ask, Told, within
from tumorchain_jax.engine.agents.calibrator import calibrate
from tumorchain_jax.engine.agents.protocol import STRATEGIES, Agents, Chain, Strategy, View
from tumorchain_jax.engine.agents.questions import Mix, Question, draw, questions
from tumorchain_jax.engine.agents.reasoner import reason
from tumorchain_jax.engine.agents.rounds import asked_rounds, search_rounds, think
from tumorchain_jax.engine.agents.scan_asks import asks
from tumorchain_jax.engine.agents.setting_aside import WHOLE, set_aside, unplaced
from tumorchain_jax.engine.agents.statements import (
    GENERAL,
    TUMOUR,
    is_sure,
    is_tumour,
    labels_of,
    signs,
)
from tumorchain_jax.engine.agents.summarizer import summarize, suspects
from tumorchain_jax.engine.agents.traces import record_id, record_line
from tumorchain_jax.engine.case import Case, CaseResult, Rejected, Review, Step, Trace
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.graph.load import KnowledgeGraph, shipped_graph
from tumorchain_jax.engine.text.extract import extract

RULES = Agents(
    extract,
    reason,
    calibrate,
    summarize,
    tuple((name, "rules") for name in ("extractor", "reasoner", "calibrator", "summarizer")),
)
"""The agents without any language model."""


_SOLID = ("mass", TUMOUR)


@dataclass(frozen=True)
class Settings:
    """How a case is worked on.

    Attributes:
        mix: of questions, see `questions.py`.
        records: how many a case gets with the mix `paper`, if there is enough to ask.
        normal_share: of what could be asked of organs without findings, the share that is asked;
            with `paper` reports of them always are.
        drafts: how often the Reasoner may try before its chain is set aside.
        returns: how often the Summarizer may send a chain back.
        agents: who does what.
    """

    mix: Mix = "plain"
    records: int = 48
    normal_share: float = 0.5
    drafts: int = 3
    returns: int = 2
    agents: Agents = field(default=RULES)


def process(case: Case, settings: Settings | None = None) -> CaseResult:
    """Make the records of a case.

    Returns:
        The same for the same case, settings and replies, in whichever order cases are worked on.
    """
    return _Work(case, settings or Settings(), shipped_graph()).result()


@dataclass
class _Draft:
    """A chain on its way: what was tried, and what came of it."""

    chain: Chain = ()
    reviews: tuple[Review, ...] = ()
    wrong: Chain = ()
    attempts: int = 0
    issue: str = ""


class _Work:
    def __init__(self, case: Case, settings: Settings, graph: KnowledgeGraph):
        self.case, self.settings, self.graph = case, settings, graph
        self.agents = settings.agents
        found = [*self.agents.extractor(case), *case.measurements]
        self.facts = tuple({fact.id: fact for fact in found}.values())
        # The fence: from here on CT and pathology go separate ways.
        self.ct = tuple(fact for fact in self.facts if fact.source.kind != "pathology")
        self.pathology = tuple(fact for fact in self.facts if fact.source.kind == "pathology")
        self.rejected: list[Rejected] = []
        self.discordant: list[str] = []
        self.drafts: dict[str, _Draft] = {}
        self.aside: dict[str, str] = {}

    def result(self) -> CaseResult:
        """Have the agents work, and word the questions."""
        self.aside = set_aside(self.case, self.ct, self.graph)
        organs = self._organs()
        tellings = [told for organ in organs if (told := self._tell(organ)) is not None]
        tellings = [self._staged(told, tellings) for told in tellings]
        whole = not self.rejected and not unplaced(self.ct)
        measured = [f for f in self.ct if f.source.kind == "mask"]
        pool = asks(tellings, measured, self.graph, whole)
        pool = [ask for ask in pool if self._is_asked(ask)]
        records: list[Record] = []
        traces: list[Trace] = []
        asked = questions(self.case.id, pool, self.settings.mix, self.settings.records)
        seen: set[str] = set()
        for number, question in enumerate(asked):
            record, steps = self._record(question, number, tellings)
            trace = self._trace(question, record, steps)
            if trace.record not in seen:
                seen.add(trace.record)
                records.append(record)
                traces.append(trace)
        return CaseResult(
            self.facts,
            tuple(records),
            tuple(traces),
            tuple(self.rejected),
            tuple(dict.fromkeys((*self.discordant, *contradictions(self.ct)))),
        )

    @cached_property
    def visible(self) -> frozenset[int]:
        """Organs that the scan shows: those measured, else those that CT reports speak of."""
        measured = [f for f in self.ct if f.source.kind == "mask" and f.attribute == "volume"]
        named = measured or self.ct
        return frozenset(label for fact in named for label in labels_of(fact.organ))

    def _organs(self) -> list[str]:
        """Return the digestive organs that CT reports speak of and that are not set aside."""
        self.rejected += [Rejected(organ, reason, 0) for organ, reason in self.aside.items()]
        if WHOLE in self.aside:
            return []
        named = {fact.organ for fact in self.ct if fact.source.kind == "radiology"}
        return [name for name in map(display_name, DIGESTIVE) if name in named - {*self.aside}]

    def _is_asked(self, ask: Ask) -> bool:
        if ask.organ and ask.organ not in self.visible:
            return False
        if not ask.normal or (ask.kind == "report" and self.settings.mix == "paper"):
            return True
        drawn = draw(self.case.id, ask.organ, ask.kind, "normal") / 2**64
        return drawn < self.settings.normal_share

    # Agents.

    def _tell(self, organ: str) -> Told | None:
        """Reason, review and summarise until all agree, or the chain is set aside."""
        draft = self.drafts[organ] = _Draft()
        sent_back = 0
        strategy: Strategy = ""
        while True:
            view = self._calibrated(organ, draft, strategy)
            if view is None:
                reason_ = f"{draft.issue} (after {draft.attempts} drafts)"
                self.rejected.append(Rejected(organ, reason_, draft.attempts))
                return None
            summary = self.agents.summarizer(view, draft.chain, self._pathology_of(organ))
            if not summary.issue or sent_back == self.settings.returns:
                break
            sent_back += 1
            strategy = self._strategy(organ, draft.attempts)
            draft.issue = summary.issue
            review = Review("summarizer", summary.issue, strategy, draft.attempts)
            draft.reviews += (review,)
        self.discordant += summary.discordant
        if summary.issue and not summary.stages and self._pathology_of(organ):
            reason_ = f"TNM: {'; '.join(summary.discordant) or summary.issue}"
            self.rejected.append(Rejected(organ, reason_, draft.attempts))
        draft.reviews += (Review("summarizer", "", "", draft.attempts),)
        return Told(view, draft.chain, summary)

    def _staged(self, told: Told, tellings: Sequence[Told]) -> Told:
        """Leave out what imaging says of spread where it may come from another organ.

        Two organs may hold a primary, or what is set aside may hold a metastasis.
        """
        ill = [each for each in tellings if suspects(each.view.organ, self.ct, each.view.edges)]
        doubtful = {
            fact.value
            for fact in self.ct
            if fact.organ in self.aside and fact.value in ("metastasis", "lymph node")
        }
        if len(ill) < 2 and not doubtful:
            return told
        stages = tuple(s for s in told.summary.stages if s.letter == "T" or s.is_stated)
        return replace(told, summary=replace(told.summary, stages=stages))

    def _calibrated(self, organ: str, draft: _Draft, strategy: Strategy) -> View | None:
        for _ in range(self.settings.drafts):
            draft.attempts += 1
            view = self.view(organ, draft.attempts, strategy, draft.issue)
            chain = self.agents.reasoner(view)
            issue = self.agents.calibrator(view, chain)
            strategy = self._strategy(organ, draft.attempts) if issue else ""
            draft.reviews += (Review("calibrator", issue, strategy, draft.attempts),)
            draft.issue = issue
            if not issue:
                draft.chain = chain
                return view
            draft.wrong = draft.wrong or chain
        return None

    def _strategy(self, organ: str, attempt: int) -> Strategy:
        return STRATEGIES[draw(self.case.id, organ, attempt, "strategy") % len(STRATEGIES)]

    def _around(self, organ: str) -> set[str]:
        edges = [e for e in self.graph.touching(organ) if e.relation == "adjacent_to"]
        return {end for edge in edges for end in (edge.subject, edge.object)} - {organ}

    def view(self, organ: str, attempt: int, strategy: Strategy, issue: str) -> View:
        """Choose what Reasoner and Calibrator are shown; widening adds the neighbours' facts."""
        own = [fact for fact in self.ct if fact.organ in (organ, "")]
        near = self._around(organ) if strategy == "widen_region" else set()
        around = [fact for fact in self.ct if fact.organ in near]
        # Spread to other organs is part of any view: M is staged by it.
        around += [
            fact
            for fact in self.ct
            if fact.organ not in (organ, "") and fact.value == "metastasis" and fact not in around
        ]
        named = {"mass", *signs(own, organ)}
        named |= {fact.part for fact in own if fact.part}
        named |= {fact.value for fact in own if fact.attribute == "impression"}
        edges = self.graph.for_case(organ, named)
        return View(self.case.id, organ, tuple(own), tuple(around), edges, attempt, strategy, issue)

    def _pathology_of(self, organ: str) -> tuple[Fact, ...]:
        """Return the pathology of an organ; what names none is of the one organ with a tumour."""
        surely = [fact for fact in self.ct if is_sure(fact) or fact.certainty == "probable"]
        surely = [fact for fact in surely if fact.organ and fact.is_current]
        ill = {f.organ for f in surely if f.attribute == "impression" and self._is_tumour(f)}
        ill = ill or {f.organ for f in surely if f.attribute == "finding" and f.value in _SOLID}
        named = {f.organ for f in self.pathology if f.organ}
        mine = {organ} if named else ({organ, ""} if ill == {organ} else {organ})
        if organ in named and len(named) == 1:
            mine.add("")
        return tuple(fact for fact in self.pathology if fact.organ in mine)

    def _is_tumour(self, fact: Fact) -> bool:
        return fact.value == TUMOUR or any(
            is_tumour(edge, fact.value) for edge in self.graph.touching(fact.value)
        )

    # Records.

    def _record(
        self, question: Question, number: int, tellings: Sequence[Told]
    ) -> tuple[Record, Chain]:
        ask = question.ask
        if ask.subtask == "cot_report":
            summary = f"Conclusion: {ask.answer}."
        else:
            summary = f"Thus, the answer is {ask.answer}."
        steps = ask.steps
        if ask.search:
            chains = self._chains(ask, tellings)
            ill = next(
                (labels_of(t.view.organ)[0] for t in tellings if t.view.organ in ask.answer), 0
            )
            rounds, steps = search_rounds(chains, ill, summary, self.visible)
        else:
            rounds = asked_rounds(ask.organ, steps, summary, self.visible)
            rounds = self._corrected(ask, rounds, summary)
        record = Record(
            patient=self.case.patient,
            scan=0 if ask.subtask == "organ_position" else number % len(self.case.scans),
            task=TASK_OF[ask.subtask],
            subtask=ask.subtask,
            organ=ask.organ,
            question=question.text,
            choices=question.choices,
            rounds=rounds,
            reasoning=" ".join(each.text for each in rounds if not each.given),
            answer=ask.answer,
        )
        return record, steps

    def _chains(self, ask: Ask, tellings: Sequence[Told]) -> dict[int, Chain]:
        """Choose what a search tells of each organ: of healthy ones beside a tumour the least."""
        ill = any(told.view.organ in ask.answer for told in tellings)
        chains = {}
        for told in tellings:
            steps = told.chain
            if told.view.organ in ask.answer:
                steps = tuple(step for step in steps if step.level != "reasoning")
                steps += told.summary.steps if ask.subtask == "cot_report" else ()
            elif ill:
                steps = tuple(
                    step
                    for step in steps
                    if step.level == "finding" and step.claims[0].subject != GENERAL
                )
            chains[labels_of(told.view.organ)[0]] = within(ask.subtask, steps)
        return chains

    def _corrected(
        self, ask: Ask, rounds: tuple[RoundTarget, ...], summary: str
    ) -> tuple[RoundTarget, ...]:
        """Put a draft that was set aside before a report, as an error to recover from."""
        wrong = self.drafts[display_name(ask.organ)].wrong if ask.subtask == "cot_report" else ()
        if not wrong:
            return rounds
        first, last = rounds
        draft = RoundTarget(think(wrong, summary), last.look_at, given=True)
        return first, draft, replace(last, look_at=())

    def _trace(self, question: Question, record: Record, steps: tuple[Step, ...]) -> Trace:
        ask = question.ask
        organs = [display_name(ask.organ)] if ask.organ else list(self.drafts)
        reviews = [
            review
            for organ in organs
            if organ in self.drafts
            for review in self.drafts[organ].reviews
        ]
        cited = {id for step in steps for claim in step.claims for id in claim.facts}
        facts = tuple(id for id in ask.facts if id in cited or not ask.search)
        return Trace(
            record=record_id(record_line(record, self.case.scans)),
            case=self.case.id,
            form=question.form,
            steps=steps,
            answer_facts=facts,
            answer_edges=ask.edges,
            reviews=tuple(reviews),
            agents=self.agents.names,
            graph=self.graph.version,
        )
