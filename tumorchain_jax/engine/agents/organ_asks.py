"""What can be asked of one organ, from what the agents agreed to tell of it."""

from collections.abc import Iterator, Sequence

from tumorchain_jax.anatomy.organs import DIGESTIVE, SUB_ORGANS, display_name
from tumorchain_jax.engine.agents.ask import (
    ALIKE,
    COUNTS,
    FENCES,
    NO,
    NONE,
    VALUES,
    YES,
    Ask,
    Told,
    rests_on,
    within,
)
from tumorchain_jax.engine.agents.statements import (
    LESIONS,
    NO_TUMOUR,
    SUSPICIOUS,
    TUMOUR,
    denials,
    is_sure,
    is_tumour,
    lesion_findings,
    plural,
    subject,
    the,
)
from tumorchain_jax.engine.case import Step
from tumorchain_jax.engine.graph.load import KnowledgeGraph
from tumorchain_jax.engine.text.counts import SEVERAL


class OrganAsks:
    """Asks of one organ."""

    def __init__(self, told: Told, graph: KnowledgeGraph):
        self.told, self.graph = told, graph
        self.view, self.chain = told.view, told.chain
        self.name = told.view.organ
        label = {display_name(each): each for each in DIGESTIVE}
        self.label = label[self.name]
        here = {id for step in self.chain for claim in step.claims for id in claim.facts}
        self.facts = [fact for fact in self.view.facts if fact.id in here]
        found = lesion_findings(f for f in self.facts if f.organ == self.name)
        self.lesions = {number: fact for (_, number), fact in found.items()}
        self.doubtful = {
            f.lesion: f for f in self.view.facts
            if f.organ == self.name and f.attribute == "finding" and f.value in LESIONS
            and f.is_current and f.lesion not in self.lesions
        }  # fmt: skip
        self.all_known = not self.doubtful
        self.denied = denials(self.view.facts, self.name)
        self.clear = bool(self.denied) and not self.lesions and self.all_known

    def all(self) -> Iterator[Ask]:
        """Yield all that can be asked, subtask by subtask."""
        yield from self._tumour_here()
        yield from self._parts_without()
        for number in self.lesions:
            yield from self._of_lesion(number)
        yield from self._without_value()
        yield from self._counts()
        yield from self._stages()
        yield from self._report()

    def _ask(
        self,
        subtask: str,
        kind: str,
        answer: str,
        steps: Sequence[Step],
        options: tuple[str, ...] = (),
        **words: str,
    ) -> Iterator[Ask]:
        steps = within(subtask, steps)
        if not steps:
            return
        named = (("organ", self.name), *words.items())
        facts, edges = rests_on(steps)
        yield Ask(
            subtask, kind, self.label, named, answer, options, steps, facts, edges,
            normal=self.clear,
        )  # fmt: skip

    def _steps_of(self, number: int, *relations: str) -> list[Step]:
        """Return where a lesion is, then its steps that claim one of the relations."""
        about = subject(self.name, number)
        own = [s for s in self.chain if any(c.subject == about for c in s.claims)]
        first = [s for s in own if any(c.relation == "finding" for c in s.claims)][:1]
        return first + [
            s for s in own if s not in first and any(c.relation in relations for c in s.claims)
        ]

    def _findings(self) -> list[Step]:
        return [s for s in self.chain if any(c.relation == "finding" for c in s.claims)]

    def _denials(self) -> list[Step]:
        ids = {fact.id for fact in self.denied}
        told = [s for s in self.chain if any(set(c.facts) & ids for c in s.claims)]
        return [s for s in told if s.level == "finding"] or told

    # Position.

    def _tumour_here(self) -> Iterator[Ask]:
        steps = [s for s in self.chain if s.level == "impression"]
        said = {c.object for s in steps for c in s.claims if c.relation == "impression"}
        firm = {each for each in said if not each.startswith(("possible", "no "))}
        if NO_TUMOUR in said:
            told = within("tumor_position", (*self._denials(), *steps))
            yield from self._ask("tumor_position", "tumour here", NO, told)
        elif firm:
            tumours = [n for n, fact in self.lesions.items() if fact.value in SUSPICIOUS]
            found = [step for n in tumours for step in self._steps_of(n)]
            if found and TUMOUR in firm:
                yield from self._ask("tumor_position", "tumour here", YES, [*found, *steps])

    def _parts_without(self) -> Iterator[Ask]:
        """Ask of a part whether it holds a lesion."""
        placed = {n: fact.part for n, fact in self.lesions.items()}
        for part in SUB_ORGANS[self.label]:
            inside = [n for n, place in placed.items() if part in (place, *self._wholes(place))]
            if inside:
                steps = [step for n in inside for step in self._steps_of(n)]
                if all(self._has_location(n) for n in inside):
                    yield from self._ask(
                        "tumor_position", "lesion in part", YES, steps, part=the(part)
                    )
            elif self.clear:
                yield from self._ask(
                    "tumor_position", "lesion in part", NO, self._denials(), part=the(part)
                )

    def _wholes(self, part: str) -> tuple[str, ...]:
        return self.graph.wholes(part) if part in self.graph.kinds else ()

    def _has_location(self, number: int) -> bool:
        steps = self._steps_of(number)
        return any(c.relation == "location" for s in steps for c in s.claims)

    # Attributes of one lesion.

    def _of_lesion(self, number: int) -> Iterator[Ask]:
        for name in self._names(number):
            yield from self._segment(number, name)
            for attribute, values in VALUES.items():
                yield from self._attribute(number, name, attribute, values)

    def _names(self, number: int) -> list[str]:
        """Return words that name this lesion and no other of the organ, doubtful ones too."""
        grouped = any(
            f.attribute == "count"
            and f.organ == self.name
            and ((f.lesion == number and f.value != "1") or f.value == SEVERAL)
            for f in self.view.facts
        )
        if grouped:
            return []
        every = self.lesions | self.doubtful
        if len(every) == 1:
            return [f"lesion in the {self.name}"]
        finding = self.lesions[number]
        solid = finding.value in SUSPICIOUS
        same = [
            n for n, fact in every.items()
            if fact.value == finding.value or (solid and fact.value in SUSPICIOUS)
        ]  # fmt: skip
        if same == [number]:
            return [f"{finding.value} in the {self.name}"]
        here = [n for n in same if every[n].part == finding.part]
        if finding.part and here == [number] and all(every[n].part for n in same):
            return [f"{finding.value} in {the(finding.part)}"]
        return []

    def _segment(self, number: int, name: str) -> Iterator[Ask]:
        part = self.lesions[number].part
        if not part or part in name or not self._has_location(number):
            return
        wrong = [
            other
            for other in SUB_ORGANS[self.label]
            if other != part and part not in self._wholes(other) and other not in self._wholes(part)
        ]
        steps = self._steps_of(number)
        options = (part, *wrong) if part in SUB_ORGANS[self.label] else ()
        yield from self._ask("segment_localization", "segment", part, steps, options, lesion=name)
        for value, answer in ((part, YES), *((each, NO) for each in wrong)):
            yield from self._ask(
                "segment_localization", "in part", answer, steps, lesion=name, part=the(value)
            )

    def _attribute(
        self, number: int, name: str, attribute: str, values: Sequence[str]
    ) -> Iterator[Ask]:
        said = [
            fact
            for fact in self.facts
            if (fact.lesion, fact.organ, fact.attribute) == (number, self.name, attribute)
        ]
        there = {f.value for f in said if is_sure(f)}
        missing = {f.value for f in said if f.polarity == "absent" and f.certainty == "definite"}
        missing &= set(values)
        steps = self._steps_of(number, attribute)
        if len(there) == 1 and there <= set(values):
            (value,) = there
            alike = {value, *ALIKE.get(value, ())}
            options = (value, *(v for v in values if v not in alike))
            yield from self._ask(attribute, attribute, value, steps, options, lesion=name)
        if attribute != "others":
            # One value rules out the others, but for those that may go with it.
            missing = set(values) - there if len(there) == 1 and there <= set(values) else set()
            missing -= {other for value in there for other in ALIKE.get(value, ())}
        for value in values:
            if value in there | missing:
                answer = YES if value in there else NO
                kind = f"is {attribute}"
                yield from self._ask(attribute, kind, answer, steps, lesion=name, value=value)

    def _without_value(self) -> Iterator[Ask]:
        """Ask an organ without lesions for lesions of a kind."""
        if not self.clear:
            return
        for attribute in ("shape", "boundary", "density"):
            for value in VALUES[attribute]:
                yield from self._ask(
                    attribute, f"any {attribute}", NO, self._denials(), value=value
                )

    def _counts(self) -> Iterator[Ask]:
        if self.clear:
            yield from self._ask("count", "count", NONE, self._denials(), (NONE, *COUNTS[:3]))
            return
        kinds = {fact.value for fact in self.lesions.values()}
        if not self.all_known or len(kinds) != 1:
            return
        number = 0
        for lesion in self.lesions:
            said = [
                f for f in self.view.facts
                if (f.organ, f.lesion, f.attribute) == (self.name, lesion, "count") and is_sure(f)
            ]  # fmt: skip
            if any(not f.value.isdigit() for f in said):
                return
            number += int(said[0].value) if said else 1
        whole = [
            f for f in self.view.facts
            if (f.organ, f.lesion, f.attribute) == (self.name, 0, "count") and f.is_current
        ]  # fmt: skip
        if any(f.value != str(number) for f in whole):
            return
        steps = [step for n in self.lesions for step in self._steps_of(n)]
        near = [c for c in COUNTS if c != str(number)]
        near.sort(key=lambda c: abs(int(c) - number))
        options = (str(number), *near[:3])
        (kind,) = kinds
        named = "lesions" if kind in ("mass", TUMOUR) else plural(kind)
        yield from self._ask("count", "count", str(number), steps, options, things=named)

    # Stage and report.

    def _stages(self) -> Iterator[Ask]:
        subtask = {"T": "tumor", "N": "node", "M": "metastasis"}
        for stage in self.told.summary.stages:
            kind = subtask[stage.letter]
            tumours = [n for n, fact in self.lesions.items() if fact.value in SUSPICIOUS]
            found = [s for n in tumours for s in self._steps_of(n, *FENCES[kind])]
            found += [
                s for s in self.chain
                if kind == "node" and s not in found and any(
                    c.relation == "nodes" or c.object.endswith("lymph node") for c in s.claims
                )
            ]  # fmt: skip
            steps = (*within(kind, found), *stage.steps)
            options = stage_options(self.graph, self.name, stage.letter, stage.value)
            named = (("organ", self.name),)
            yield Ask(
                kind, kind, self.label, named, stage.value, options, steps, stage.facts, stage.edges
            )
            if stage.letter != "T":
                none = stage.value[1] == "0"
                words = (*named, ("value", "x"))
                yield Ask(
                    kind, f"any {kind}", self.label, words, NO if none else YES, (), steps,
                    stage.facts, stage.edges,
                )  # fmt: skip
        if not self.told.summary.stages and self.clear:
            yield from self._nothing_to_stage()

    def _nothing_to_stage(self) -> Iterator[Ask]:
        yield from self._ask("tumor", "any tumor", NO, self._denials())
        near = [f for f in self.view.facts if f.organ in ("", self.name)]
        for subtask, value in (("node", "lymph node"), ("metastasis", "metastasis")):
            ids = {
                f.id for f in near
                if (f.attribute, f.value, f.polarity, f.certainty, f.time, f.part)
                == ("finding", value, "absent", "definite", "current", "")
            }  # fmt: skip
            told = [s for s in self.chain if any(set(c.facts) & ids for c in s.claims)]
            yield from self._ask(subtask, f"any {subtask}", NO, told)

    def _report(self) -> Iterator[Ask]:
        if not self.chain:
            return
        said = [c.object for s in self.chain for c in s.claims if c.relation == "impression"]
        sure = [each for each in said if each != NO_TUMOUR and not each.startswith("possible")]
        steps = (*self.chain, *(self.told.summary.steps if sure else ()))
        if NO_TUMOUR in said:
            answer = f"no tumour of the {self.name}"
        elif sure:
            if not any(each == TUMOUR or self._is_tumour(each) for each in sure) and any(
                f.organ == self.name and f.attribute == "finding" and f.value in SUSPICIOUS
                for f in self.view.facts
                if f.is_current
            ):
                return  # what is harmless is not all that there is
            what = "a tumour" if TUMOUR in sure else sure[0]
            part = self._one_part()
            answer = (
                f"{what} of the {self.name}" if TUMOUR in sure else f"{what} in the {self.name}"
            )
            answer += f", in {the(part)}" if part else ""
        else:
            return
        named = (("organ", self.name),)
        facts, edges = rests_on(steps)
        yield Ask(
            "cot_report", "report", self.label, named, answer, (), steps, facts, edges,
            normal=self.clear,
        )  # fmt: skip

    def _is_tumour(self, impression: str) -> bool:
        return any(is_tumour(edge, impression) for edge in self.view.edges)

    def _one_part(self) -> str:
        tumours = [fact for fact in self.lesions.values() if fact.value in SUSPICIOUS]
        parts = {fact.part for fact in tumours}
        return parts.pop() if len(parts) == 1 else ""


def stage_options(graph: KnowledgeGraph, organ: str, letter: str, value: str) -> tuple[str, ...]:
    """Return the categories of an organ's tumour, the true one first; coarse ones beside finer."""
    prefix = f"{organ} {letter}"
    known = [e.object for e in graph.edges if e.relation == "staged_as"]
    found = dict.fromkeys(
        each.removeprefix(f"{organ} ") for each in known if each.startswith(prefix)
    )
    return (value, *(v for v in found if not v.startswith(value) and not value.startswith(v)))
