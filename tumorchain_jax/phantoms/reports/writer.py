"""Radiology reports: the truth of a patient in the sentences of a style."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tumorchain_jax.anatomy.organs import DIGESTIVE, LIVER, PANCREAS, SPLEEN, display_name
from tumorchain_jax.phantoms.reports.draft import Block, Draft, Pen, Sentence, Slot
from tumorchain_jax.phantoms.reports.lengths import Ruler
from tumorchain_jax.phantoms.reports.patients import (
    GALLBLADDER,
    KIDNEYS,
    Lesion,
    Look,
    ReportPatient,
    site_of,
)
from tumorchain_jax.phantoms.reports.phrases import choose, slots_of
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
_OTHER_ORGANS = ("right adrenal", "duodenum", "bladder")
_MANY = ("diverticulum", "vascular calcification")
_GONE = (("cyst", 3), ("cyst", 2), ("haemangioma", LIVER), ("cyst", LIVER), ("gallstone", 4))
_CERTAINTIES = ("definite", "probable", "possible")
SKIPPED = 0.12
"""Share of a lesion's attributes that a report leaves out."""


def write_radiology(patient: ReportPatient, style: Style, seed: int) -> Draft:
    """Write a report; the same patient, style and seed give the same one."""
    return _Writer(patient, style, seed).draft()


@dataclass
class _Writer:
    patient: ReportPatient
    style: Style
    seed: int
    rng: Random = field(init=False)
    pen: Pen = field(init=False)
    ruler: Ruler = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(f"radiology {self.style.name} {self.seed}")
        self.pen = Pen(self.style, self.rng)
        self.ruler = Ruler(self.style, self.rng)
        self.name = display_name(self.patient.organ) if self.patient.organ else ""
        # One word for the lesions of a patient, as reports mostly have.
        self.word = self.rng.choice(("mass", "mass", "tumour"))

    def draft(self) -> Draft:
        page = choose(self.rng, self.rng.choice(self.pen.phrases["page"]))
        plain = {"region": self.patient.region}
        if self.style.language == "de":
            plain = {"region": "Abdomen"}
        plain["earlier"] = self.rng.choice(("three months ago", "the previous year", "March"))
        blocks = {
            "clinical": ((self._clinical(),),),
            "technique": ((self.pen.say("technique", self._plain(plain)),),),
            "findings": self._findings(),
            "impression": self._impression(),
        }
        return Draft(self.style, self.patient, self.seed, page, blocks, plain)

    # Slots.

    def _plain(self, texts: dict[str, str]) -> dict[str, Slot]:
        return {name: Slot((text,)) for name, text in texts.items()}

    def _where(self, organ: str, part: str) -> dict[str, Slot | Callable[[], Slot]]:
        """Slots that name a place; it is part of the statement that the sentence makes."""
        pen = self.pen
        german = self.style.language == "de"
        at = pen.word(f"part.{part}") if part else pen.word(f"in.{organ}" if german else f"organ.{organ}")
        bare = tuple(name.removeprefix("the ") for name in pen.word(f"organ.{organ}"))
        slots: dict[str, Slot | Callable[[], Slot]] = {
            "part": Slot(at),
            "where": Slot(at),
            "in_where": Slot(at),
            "organ": Slot(pen.word(f"organ.{organ}")),
            "bare": Slot(bare),
        }
        slots["short"] = slots["place"] = Slot(bare)
        if part and not german:
            slots["short"] = slots["place"] = Slot(pen.word(f"short.{part}"))
        if german:
            slots["in_organ"] = Slot(pen.words.get(f"in.{organ}", ()))
        return slots

    def _number(self, count: int) -> dict[str, Slot]:
        return {
            "number": Slot(self.pen.word(f"number.{count}")),
            "digit": Slot((str(count),)),
        }

    # Clinical data.

    def _clinical(self) -> Sentence:
        patient = self.patient
        age = Statement("", "", 0, "age", str(patient.age), "years")
        sex = Statement("", "", 0, "sex", patient.sex)
        slots = {
            "age": Slot((str(patient.age),), (age,)),
            "sex": Slot(self.pen.word(f"sex.{patient.sex}"), (sex,)),
            "history": Slot(self.pen.word(f"history.{patient.history}")),
        }
        return self.pen.say("clinical", slots)

    # Findings.

    def _findings(self) -> Block:
        groups = [self._organ(label) for label in _ORDER]
        groups += [(self._normal(name),) for name in self._some(_OTHER_ORGANS)]
        groups.append(self._nodes())
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
                sentences.append(self._look(look))
        for condition in patient.conditions:
            if site_of(condition) == label:
                made = Statement(display_name(label), "", 0, "finding", condition)
                sentences.append(
                    self.pen.say(condition, {}, made, organ=display_name(label))
                )
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
                sentences.append(self._normal(display_name(label)))
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
        slots = dict(self._where(organ, ""))
        if len(words) == 1 and self.style.length < 3:
            slots["absent"] = Slot(words)
            return self.pen.say("absent", slots, *made, organ=organ)
        if len(words) < self.style.length:
            words += self.rng.sample(self._other_things(), 1 if self.style.length < 4 else 2)
        slots["absents"] = Slot((self._joined(words, "or"),))
        slots["neither"] = Slot((" nor ".join(words),))
        return self.pen.say("absents", slots, *made, organ=organ)

    def _things(self) -> Sentence:
        things = self.rng.sample(self._other_things(), min(4, self.style.length + 1))
        slots = {
            "things": Slot((self._joined(things, "or"),)),
            "neither_things": Slot((" nor ".join(things),)),
        }
        return self.pen.say("things", slots)

    def _other_things(self) -> list[str]:
        """Findings outside the task that the patient does not have."""
        words = self.pen.word("other.things")
        return [each for each in words if not (self.patient.vessel and "vein" in each)]

    def _joined(self, words: Sequence[str], joint: str) -> str:
        *first, last = words
        if not first:
            return last
        return f"{', '.join(first)} {self.pen.word(f'join.{joint}')[0]} {last}"

    def _normal(self, organ: str) -> Sentence:
        return self.pen.say("normal", self._where(organ, "") if organ not in _OTHER_ORGANS else {
            "organ": Slot(self.pen.word(f"organ.{organ}")),
            "bare": Slot([w.removeprefix("the ") for w in self.pen.word(f"organ.{organ}")]),
        }, organ=organ)  # fmt: skip

    def _some(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.rng.random() < 0.4]

    # Lesions.

    def _lesions(self) -> list[Sentence]:
        lesions = self.patient.lesions
        sentences = []
        if len(lesions) > 1 and self.rng.random() < 0.8:
            count = Statement(self.name, "", 0, "count", str(len(lesions)))
            slots = dict(self._where(self.name, "")) | self._number(len(lesions))
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
            self._said(lesion, "finding", self.word),
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
            sentences.append(
                self.pen.fill(template, "detail", slots, (), self.name, lesion.number)
            )
        if lesion.other == "none" and self.rng.random() < self.style.negations:
            value = self.rng.choice(("calcification", "necrosis"))
            made = self._said(lesion, "others", value).but(polarity="absent")
            words = {"absent": Slot(self.pen.word(f"absent.{value}"))}
            sentences.append(
                self.pen.say("other.absent", words, made, organ=self.name, lesion=lesion.number)
            )
        return sentences

    def _said(self, lesion: Lesion, attribute: str, value: str, unit: str = "") -> Statement:
        return Statement(self.name, lesion.part, lesion.number, attribute, value, unit)

    def lesion_slots(self, lesion: Lesion) -> dict[str, Slot | Callable[[], Slot]]:
        """Slots that describe a lesion."""
        pen, name = self.pen, self.name
        size = self._said(lesion, "size", str(lesion.sizes_mm[0]), "mm")
        density = (self._said(lesion, "density", lesion.density),)
        shape = (self._said(lesion, "shape", lesion.shape),)
        boundary = (self._said(lesion, "boundary", lesion.boundary),)
        finding = (self._said(lesion, "finding", self.word),)
        old = max(5, round(lesion.sizes_mm[0] * 0.75))
        single = len(self.patient.lesions) == 1
        count = (Statement(name, "", 0, "count", "1"),) if single else ()
        slots = dict(self._where(name, lesion.part))
        slots |= {
            "size": lambda: Slot((self.ruler.extent(lesion.sizes_mm),), (size,)),
            "old": lambda: Slot(
                (self.ruler.length(old),), (size.but(value=str(old), time="prior"),)
            ),
            "density": Slot(pen.word(f"density.{lesion.density}"), density),
            "shape": Slot(pen.word(f"shape.{lesion.shape}"), shape),
            "boundary": Slot(pen.word(f"boundary.{lesion.boundary}"), boundary),
            "finding": Slot(pen.word(f"finding.{self.word}"), finding),
            "one": Slot(pen.word("number.1") if single else ("",), count),
        }
        if self.style.language == "de":
            slots["density_p"] = Slot(pen.word(f"density_p.{lesion.density}"), density)
            slots["shape_p"] = Slot(pen.word(f"shape_p.{lesion.shape}"), shape)
            slots["boundary_p"] = Slot(pen.word(f"boundary_p.{lesion.boundary}"), boundary)
        else:
            slots["margin"] = Slot(pen.word(f"margin.{lesion.boundary}"), boundary)
        if lesion.other != "none":
            words = pen.word(f"others.{lesion.other}.{name}", f"others.{lesion.other}")
            slots["other"] = Slot(words, (self._said(lesion, "others", lesion.other),))
        if lesion.depth is not None:
            words = pen.word(f"depth.{lesion.depth}.{name}", f"depth.{lesion.depth}")
            slots["depth"] = Slot(words, (self._said(lesion, "depth", lesion.depth),))
        return slots

    # Other findings.

    def _look(self, look: Look) -> Sentence:
        organ = display_name(look.organ)
        many = look.count > 1
        certainty = "definite"
        role = "looks" if many else "look"
        if not many and look.finding != "metastasis" and self.rng.random() < self.style.hedges:
            certainty = self.rng.choice(_CERTAINTIES[1:])
            role = f"look.{certainty}"
        made = Statement(organ, look.part, look.number, "finding", look.finding, certainty=certainty)
        size = made.but(attribute="size", value=str(look.size_mm), unit="mm", certainty="definite")
        slots = dict(self._where(organ, look.part))
        slots["noun"] = Slot(self.pen.word(f"benign{'s' * many}.{look.finding}"))
        slots["size"] = lambda: Slot((self.ruler.length(look.size_mm),), (size,))
        if many:
            count = made.but(attribute="count", value=str(look.count))
            words = self.pen.word(f"number.{look.count}")
            slots["number"] = Slot(words, (count,))
            slots["digit"] = Slot((str(look.count),), (count,))
        return self.pen.say(role, slots, made, organ=organ, lesion=look.number)

    def _nodes(self) -> tuple[Sentence, ...]:
        patient = self.patient
        if not patient.nodes:
            made = Statement("", "", 0, "finding", "lymph node", "", "absent")
            return (self.pen.say("nodes.none", {}, made),)
        lesion = 1 + len(patient.lesions)
        lesion += sum(look.organ == patient.organ for look in patient.looks)
        made = Statement(self.name, "", lesion, "finding", "lymph node")
        size = made.but(attribute="size", value=str(patient.node_mm), unit="mm")
        number = made.but(lesion=0, attribute="nodes", value=str(patient.nodes))
        station = self.pen.word(f"nodes.{self.name}")
        slots: dict[str, Slot | Callable[[], Slot]] = {
            "station": Slot(station),
            "station_a": Slot([word.removesuffix("r") for word in station]),
            "node_size": lambda: Slot((self.ruler.length(patient.node_mm),), (size,)),
            **self._number(patient.nodes),
            "one": Slot(self.pen.word("number.1")),
        }
        role = "node" if patient.nodes == 1 else "nodes"
        return (self.pen.say(role, slots, made, number, organ=self.name, lesion=lesion),)

    def _gone(self) -> tuple[Sentence, ...]:
        """Mention what was there once."""
        present = {(look.finding, look.organ) for look in self.patient.looks}
        finding, label = self.rng.choice([each for each in _GONE if each not in present])
        if label == self.patient.organ:
            return ()
        organ = display_name(label)
        made = Statement(organ, "", 0, "finding", finding, time="prior")
        slots = dict(self._where(organ, ""))
        slots["noun"] = Slot(self.pen.word(f"benign.{finding}"))
        slots["year"] = Slot((str(self.rng.randint(2004, 2021)),))
        role = self.rng.choice(("gone", "operated"))
        return (self.pen.say(role, slots, made, organ=organ),)

    # Conclusions.

    def _impression(self) -> Block:
        patient = self.patient
        if not patient.organ:
            made = Statement("", "", 0, "impression", "no tumour")
            slots = self._plain({"region": patient.region})
            return ((self.pen.say("impression.none", slots, made),),)
        certainty = self.rng.choices(_CERTAINTIES, self.style.certain)[0]
        disease = patient.disease if self.rng.random() < 0.85 else "tumour"
        made = Statement(self.name, "", 0, "impression", disease, certainty=certainty)
        slots = self.lesion_slots(patient.lesions[0])
        slots["disease"] = Slot(self.pen.word(f"disease.{disease}"))
        if self.style.language == "de":
            slots["disease_g"] = Slot(self.pen.word(f"disease_g.{disease}"))
        role = "impression" if certainty == "definite" else f"impression.{certainty}"
        lines = [(self.pen.say(role, slots, made, organ=self.name, lesion=1),)]
        if patient.tnm and self.rng.random() < 0.6:
            lines.append((self._stage(),))
        return tuple(lines)

    def _stage(self) -> Sentence:
        t, n, m = self.patient.tnm
        made = [
            Statement(self.name, "", 0, letter, value)
            for letter, value in zip("TNM", (t, n, m), strict=True)
        ]
        slots = self._plain({"t": t, "n": n, "m": m})
        return self.pen.say("stage", slots, *made, organ=self.name)


_ATTRIBUTE_OF = {
    "size": "size", "density": "density", "density_p": "density", "shape": "shape",
    "shape_p": "shape", "boundary": "boundary", "boundary_p": "boundary", "margin": "boundary",
    "other": "others", "depth": "depth",
}  # fmt: skip
