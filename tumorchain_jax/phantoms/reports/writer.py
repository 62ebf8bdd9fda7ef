"""Radiology reports: the truth of a patient in the sentences of a style."""

from collections.abc import Sequence

from tumorchain_jax.anatomy.organs import DIGESTIVE, LIVER, PANCREAS, SPLEEN, display_name
from tumorchain_jax.phantoms.reports.draft import Block, Draft, Sentence, Slot
from tumorchain_jax.phantoms.reports.patients import (
    GALLBLADDER,
    KIDNEYS,
    Lesion,
    ReportPatient,
    site_of,
)
from tumorchain_jax.phantoms.reports.phrases import choose, slots_of
from tumorchain_jax.phantoms.reports.sentences import CERTAINTIES, OTHER_ORGANS, Sentences
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import Style

ABSENT: dict[int, tuple[str, ...]] = {
    5: ("mass", "cyst", "metastasis", "ductal dilatation"),
    7: ("mass", "ductal dilatation", "calcification", "pancreatitis", "cyst"),
    6: ("mass", "wall thickening"),
    20: ("mass", "wall thickening", "diverticulum"),
    15: ("mass", "wall thickening"),
    1: ("mass", "splenomegaly", "cyst"),
    4: ("gallstone", "wall thickening"),
    2: ("mass", "cyst"),
    3: ("mass", "cyst"),
}
"""Organ -> findings that a report may say it does not have."""
_ORDER = (LIVER, GALLBLADDER, SPLEEN, PANCREAS, *KIDNEYS, 6, 20, 15, 39, 10, 11, 12, 13, 14)
_GONE = (("cyst", 3), ("cyst", 2), ("haemangioma", LIVER), ("cyst", LIVER), ("gallstone", 4))
SKIPPED = 0.12
"""Share of a lesion's attributes that a report leaves out."""


def write_radiology(patient: ReportPatient, style: Style, seed: int) -> Draft:
    """Write a report; the same patient, style and seed give the same one."""
    return ReportWriter(patient, style, seed).draft()


class ReportWriter(Sentences):
    """Writes a report; twins of reports use its single sentences."""

    def draft(self) -> Draft:
        """Write all of it."""
        page = choose(self.rng, self.rng.choice(self.pen.phrases["page"]))
        plain = {"region": self.patient.region}
        if self.style.language == "de":
            plain = {"region": "Abdomen"}
        plain["earlier"] = self.rng.choice(("three months ago", "the previous year", "March"))
        blocks = {
            "clinical": ((self.clinical(),),),
            "technique": ((self.pen.say("technique", self.plain(plain)),),),
            "findings": self._findings(),
            "impression": self._impression(),
        }
        return Draft(self.style, self.patient, self.seed, page, blocks, plain)

    def _findings(self) -> Block:
        groups = [self._organ(label) for label in _ORDER]
        groups += [(self.normal(name),) for name in self._some(OTHER_ORGANS)]
        groups.append(self.nodes())
        if self.rng.random() < 0.4 + self.style.negations / 2:
            groups.append((self._things(),))
        if self.rng.random() < self.style.priors:
            groups.append(self._gone())
        found = [group for group in groups if group]
        if self.style.layout == "flow":  # what is abnormal is told first
            found.sort(key=lambda group: not any(s.is_current for e in group for s in e.statements))
        return tuple(found)

    def _organ(self, label: int) -> tuple[Sentence, ...]:
        patient = self.patient
        sentences: list[Sentence] = []
        if label == patient.organ:
            sentences += self._lesions()
        for look in patient.looks:
            if look.organ == label:
                sentences.append(self.look(look))
        for condition in patient.conditions:
            if site_of(condition) == label:
                made = Statement(display_name(label), "", 0, "finding", condition)
                sentences.append(self.pen.say(condition, {}, made, organ=display_name(label)))
        main = label in (LIVER, PANCREAS, SPLEEN) or label in patient.in_view
        if sentences:
            if self.rng.random() < self.style.negations / 2 and (items := self._absences(label)):
                sentences.append(self._absent(label, items))
        elif label in ABSENT and (main or self.rng.random() < 0.5):
            if label in DIGESTIVE and label not in patient.in_view:
                return ()
            items = self._absences(label)
            if items and self.rng.random() < self.style.negations:
                sentences.append(self._absent(label, items))
            else:
                sentences.append(self.normal(display_name(label)))
        return tuple(sentences)

    def _absences(self, label: int) -> list[str]:
        """List what may truly be said to be absent from an organ."""
        present = {look.finding for look in self.patient.looks if look.organ == label}
        present |= {each for each in self.patient.conditions if site_of(each) == label}
        if label == self.patient.organ:
            present |= {lesion.other for lesion in self.patient.lesions} | {"tumour"}
        unsaid = {"mass", "cyst", "wall thickening"} if present else set()
        return [each for each in ABSENT.get(label, ()) if each not in present | unsaid]

    def _absent(self, label: int, items: Sequence[str]) -> Sentence:
        organ = display_name(label)
        most = min(len(items), self.style.length)
        chosen = self.rng.sample(items, self.rng.randint(1, most))
        made = [Statement(organ, "", 0, "finding", each, "", "absent") for each in chosen]
        words = [self.rng.choice(self.pen.word(f"absent.{each}")) for each in chosen]
        slots = dict(self.where(organ, ""))
        if len(words) == 1 and self.style.length < 3:
            slots["absent"] = Slot(words)
            return self.pen.say("absent", slots, *made, organ=organ)
        if len(words) < self.style.length:
            words += self.rng.sample(self._other_things(), 1 if self.style.length < 4 else 2)
        slots["absents"] = Slot((self.joined(words, "or"),))
        slots["neither"] = Slot((" nor ".join(words),))
        return self.pen.say("absents", slots, *made, organ=organ)

    def _things(self) -> Sentence:
        things = self.rng.sample(self._other_things(), min(4, self.style.length + 1))
        slots = {
            "things": Slot((self.joined(things, "or"),)),
            "neither_things": Slot((" nor ".join(things),)),
        }
        return self.pen.say("things", slots)

    def _other_things(self) -> list[str]:
        """Findings outside the task that the patient does not have."""
        words = self.pen.word("other.things")
        return [each for each in words if not (self.patient.vessel and "vein" in each)]

    def _some(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.rng.random() < 0.4]

    def _lesions(self) -> list[Sentence]:
        lesions = self.patient.lesions
        sentences = []
        if len(lesions) > 1 and self.rng.random() < 0.8:
            count = Statement(self.name, "", 0, "count", str(len(lesions)))
            slots = dict(self.where(self.name, "")) | self.number(len(lesions))
            slots["findings"] = Slot(self.pen.word(f"findings.{self.word}"))
            sentences.append(self.pen.say("count", slots, count, organ=self.name))
        for lesion in lesions:
            sentences += self._lesion(lesion)
        if self.patient.vessel:
            words = self.pen.word(f"vessel.{self.patient.vessel}.{self.name}")
            sentences.append(self.pen.say("vessel", {"vessel": Slot(words)}, organ=self.name))
        return sentences

    def _lesion(self, lesion: Lesion) -> list[Sentence]:
        slots = self.lesion_slots(lesion)
        head = self.pen.say(
            "lesion" if lesion.number == 1 else "lesion.next",
            slots,
            self.said(lesion, "finding", self.word),
            organ=self.name,
            lesion=lesion.number,
        )
        said = {each.attribute for each in head.statements}
        left = {"size", "shape", "boundary", "density", "others", "depth"} - said
        if lesion.other == "none":
            left.discard("others")
        if lesion.depth is None:
            left.discard("depth")
        left = {each for each in sorted(left) if self.rng.random() >= SKIPPED}
        sentences = [head]
        while left:
            details = [
                t
                for t in (choose(self.rng, each) for each in self.pen.phrases["detail"])
                if (names := {_ATTRIBUTE_OF[s] for s in slots_of(t) & _ATTRIBUTE_OF.keys()})
                and names <= left
            ]
            template = self.rng.choice(details)
            left -= {_ATTRIBUTE_OF[s] for s in slots_of(template) & _ATTRIBUTE_OF.keys()}
            sentences.append(self.pen.fill(template, "detail", slots, (), self.name, lesion.number))
        if lesion.other == "none" and self.rng.random() < self.style.negations:
            value = self.rng.choice(("calcification", "necrosis"))
            made = self.said(lesion, "others", value).but(polarity="absent")
            words = {"absent": Slot(self.pen.word(f"absent.{value}"))}
            sentences.append(
                self.pen.say("other.absent", words, made, organ=self.name, lesion=lesion.number)
            )
        return sentences

    def _gone(self) -> tuple[Sentence, ...]:
        """Mention what was there once."""
        present = {(look.finding, look.organ) for look in self.patient.looks}
        finding, label = self.rng.choice([each for each in _GONE if each not in present])
        if label == self.patient.organ:
            return ()
        return (self.earlier(display_name(label), finding),)

    def _impression(self) -> Block:
        patient = self.patient
        if not patient.organ:
            made = Statement("", "", 0, "impression", "no tumour")
            region = self.plain({"region": patient.region})
            return ((self.pen.say("impression.none", region, made),),)
        certainty = self.rng.choices(CERTAINTIES, self.style.certain)[0]
        disease = patient.disease if self.rng.random() < 0.85 else "tumour"
        made = Statement(self.name, "", 0, "impression", disease, certainty=certainty)
        slots = self.lesion_slots(patient.lesions[0])
        slots["disease"] = Slot(self.pen.word(f"disease.{disease}"))
        if self.style.language == "de":
            slots["disease_g"] = Slot(self.pen.word(f"disease_g.{disease}"))
        role = "impression" if certainty == "definite" else f"impression.{certainty}"
        lines = [(self.pen.say(role, slots, made, organ=self.name, lesion=1),)]
        if patient.tnm and self.rng.random() < 0.6:
            lines.append((self.stage(),))
        return tuple(lines)


_ATTRIBUTE_OF = {
    "size": "size", "density": "density", "density_p": "density", "shape": "shape",
    "shape_p": "shape", "boundary": "boundary", "boundary_p": "boundary", "margin": "boundary",
    "other": "others", "depth": "depth",
}  # fmt: skip
