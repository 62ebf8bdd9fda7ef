"""Sentences of radiology reports: single findings in the words of a style."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.phantoms.reports.draft import Pen, Sentence, Slot
from tumorchain_jax.phantoms.reports.lengths import Ruler
from tumorchain_jax.phantoms.reports.patients import Lesion, Look, ReportPatient
from tumorchain_jax.phantoms.reports.statements import Statement
from tumorchain_jax.phantoms.reports.styles import Style

OTHER_ORGANS = ("right adrenal", "duodenum", "bladder")
"""Organs that are named as normal, and never have a finding; keys of the words."""
CERTAINTIES = ("definite", "probable", "possible")


@dataclass
class Sentences:
    """Writes the sentences of one report, one after the other.

    Attributes:
        seed: with the style it decides what is drawn.
        name: display name of the organ with the tumour, or empty.
        word: `mass` or `tumour`: one for all lesions of a patient, as reports mostly have.
    """

    patient: ReportPatient
    style: Style
    seed: int
    rng: Random = field(init=False)
    pen: Pen = field(init=False)
    ruler: Ruler = field(init=False)
    name: str = field(init=False)
    word: str = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(f"radiology {self.style.name} {self.seed}")
        self.pen = Pen(self.style, self.rng)
        self.ruler = Ruler(self.style, self.rng)
        self.name = display_name(self.patient.organ) if self.patient.organ else ""
        self.word = self.rng.choice(("mass", "mass", "tumour"))

    def plain(self, texts: dict[str, str]) -> dict[str, Slot]:
        """Slots of given texts, which state nothing."""
        return {name: Slot((text,)) for name, text in texts.items()}

    def where(self, organ: str, part: str) -> dict[str, Slot | Callable[[], Slot]]:
        """Slots that name a place; it is part of the statement that the sentence makes."""
        pen = self.pen
        german = self.style.language == "de"
        at = (
            pen.word(f"part.{part}")
            if part
            else pen.word(f"in.{organ}" if german else f"organ.{organ}")
        )
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

    def number(self, count: int) -> dict[str, Slot]:
        """Slots of a number: as a word, and in digits."""
        return {
            "number": Slot(self.pen.word(f"number.{count}")),
            "digit": Slot((str(count),)),
        }

    def joined(self, words: Sequence[str], joint: str) -> str:
        """Join words by commas and, before the last, `and` or `or` of the language."""
        *first, last = words
        if not first:
            return last
        return f"{', '.join(first)} {self.pen.word(f'join.{joint}')[0]} {last}"

    def clinical(self) -> Sentence:
        """Tell age, sex and why the patient came."""
        patient = self.patient
        age = Statement("", "", 0, "age", str(patient.age), "years")
        sex = Statement("", "", 0, "sex", patient.sex)
        slots = {
            "age": Slot((str(patient.age),), (age,)),
            "sex": Slot(self.pen.word(f"sex.{patient.sex}"), (sex,)),
            "history": Slot(self.pen.word(f"history.{patient.history}")),
        }
        return self.pen.say("clinical", slots)

    def normal(self, organ: str) -> Sentence:
        """Tell that an organ is normal."""
        return self.pen.say("normal", self.where(organ, "") if organ not in OTHER_ORGANS else {
            "organ": Slot(self.pen.word(f"organ.{organ}")),
            "bare": Slot([w.removeprefix("the ") for w in self.pen.word(f"organ.{organ}")]),
        }, organ=organ)  # fmt: skip

    def absence(self, organ: str, finding: str) -> Sentence:
        """Tell that an organ does not have a finding."""
        made = Statement(organ, "", 0, "finding", finding, "", "absent")
        slots = dict(self.where(organ, ""))
        slots["absent"] = Slot(self.pen.word(f"absent.{finding}"))
        return self.pen.say("absent", slots, made, organ=organ)

    def earlier(self, organ: str, finding: str) -> Sentence:
        """Tell of a finding that was there once."""
        made = Statement(organ, "", 0, "finding", finding, time="prior")
        slots = dict(self.where(organ, ""))
        slots["noun"] = Slot(self.pen.word(f"benign.{finding}"))
        slots["year"] = Slot((str(self.rng.randint(2004, 2021)),))
        return self.pen.say(self.rng.choice(("gone", "operated")), slots, made, organ=organ)

    def said(self, lesion: Lesion, attribute: str, value: str, unit: str = "") -> Statement:
        """A statement about a lesion."""
        return Statement(self.name, lesion.part, lesion.number, attribute, value, unit)

    def lesion_slots(self, lesion: Lesion) -> dict[str, Slot | Callable[[], Slot]]:
        """Slots that describe a lesion."""
        pen, name = self.pen, self.name
        size = self.said(lesion, "size", str(lesion.sizes_mm[0]), "mm")
        density = (self.said(lesion, "density", lesion.density),)
        shape = (self.said(lesion, "shape", lesion.shape),)
        boundary = (self.said(lesion, "boundary", lesion.boundary),)
        finding = (self.said(lesion, "finding", self.word),)
        old = max(5, round(lesion.sizes_mm[0] * 0.75))
        single = len(self.patient.lesions) == 1
        count = (Statement(name, "", 0, "count", "1"),) if single else ()
        slots = dict(self.where(name, lesion.part))
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
            slots["other"] = Slot(words, (self.said(lesion, "others", lesion.other),))
        if lesion.depth is not None:
            words = pen.word(f"depth.{lesion.depth}.{name}", f"depth.{lesion.depth}")
            slots["depth"] = Slot(words, (self.said(lesion, "depth", lesion.depth),))
        return slots

    def look(self, look: Look) -> Sentence:
        """Tell of a metastasis or a look-alike, in the style's way of hedging."""
        certainty = "definite"
        if (
            look.count == 1
            and look.finding != "metastasis"
            and self.rng.random() < self.style.hedges
        ):
            certainty = self.rng.choice(CERTAINTIES[1:])
        return self._look(look, certainty)

    def hedged(self, look: Look) -> Sentence:
        """Tell of one as of something possible."""
        return self._look(look, "possible")

    def _look(self, look: Look, certainty: str) -> Sentence:
        organ = display_name(look.organ)
        many = look.count > 1
        role = "looks" if many else "look"
        if certainty != "definite":
            role = f"look.{certainty}"
        made = Statement(
            organ, look.part, look.number, "finding", look.finding, certainty=certainty
        )
        size = made.but(attribute="size", value=str(look.size_mm), unit="mm", certainty="definite")
        slots = dict(self.where(organ, look.part))
        slots["noun"] = Slot(self.pen.word(f"benign{'s' * many}.{look.finding}"))
        slots["size"] = lambda: Slot((self.ruler.length(look.size_mm),), (size,))
        if many:
            count = made.but(attribute="count", value=str(look.count))
            words = self.pen.word(f"number.{look.count}")
            slots["number"] = Slot(words, (count,))
            slots["digit"] = Slot((str(look.count),), (count,))
        return self.pen.say(role, slots, made, organ=organ, lesion=look.number)

    def nodes(self) -> tuple[Sentence, ...]:
        """Tell of enlarged nodes, or that there are none."""
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
            **self.number(patient.nodes),
            "one": Slot(self.pen.word("number.1")),
        }
        role = "node" if patient.nodes == 1 else "nodes"
        return (self.pen.say(role, slots, made, number, organ=self.name, lesion=lesion),)

    def stage(self) -> Sentence:
        """Tell the stage."""
        t, n, m = self.patient.tnm
        made = [
            Statement(self.name, "", 0, letter, value)
            for letter, value in zip("TNM", (t, n, m), strict=True)
        ]
        slots = self.plain({"t": t, "n": n, "m": m})
        return self.pen.say("stage", slots, *made, organ=self.name)
