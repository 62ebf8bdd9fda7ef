"""One report, read from its first sentence to its last."""

import bisect
import re
from collections.abc import Iterable
from dataclasses import replace

from tumorchain_jax.engine.case import Document
from tumorchain_jax.engine.facts import Fact, Source
from tumorchain_jax.engine.text.boxes import fill_in
from tumorchain_jax.engine.text.context import Context, goes_on, opens_list
from tumorchain_jax.engine.text.counts import SEVERAL
from tumorchain_jax.engine.text.describing import read_attributes
from tumorchain_jax.engine.text.headings import take_heading, take_table
from tumorchain_jax.engine.text.instructions import find_instructions, joined
from tumorchain_jax.engine.text.lesions import GENERIC, Lesion
from tumorchain_jax.engine.text.markup import take_off
from tumorchain_jax.engine.text.naming import name_lesions
from tumorchain_jax.engine.text.notes import CARRIERS, OTHERS, Draft, Notes, is_tumour
from tumorchain_jax.engine.text.patient import read_patient
from tumorchain_jax.engine.text.places import Place, exact_places, find_loci
from tumorchain_jax.engine.text.sections import Section, SectionKind, split_sections
from tumorchain_jax.engine.text.sentences import Sentence, split_sentences
from tumorchain_jax.engine.text.setting import Setting
from tumorchain_jax.engine.text.signs import read_normal, read_signs
from tumorchain_jax.engine.text.spelling import corrections
from tumorchain_jax.engine.text.stages import find_stages
from tumorchain_jax.engine.text.unseen import set_apart
from tumorchain_jax.engine.text.vocabulary import Term, find_terms
from tumorchain_jax.engine.text.wording import Wording

_SILENT: frozenset[SectionKind] = frozenset({"technique", "advice"})
_PAST = frozenset({"history", "comparison", "previous"})
_FURTHER = re.compile(
    r"\b(?:other|further|additional|second|new|another|residual|recurrent|more|weitere\w*)\b"
)
# Between two items of a list: a semicolon, or the end of a line.
_LIST_GAP = re.compile(r"[^.!?]?[ \t]*\n?[ \t]*|.?[ \t]*(?<=;)\s*")
_AGAIN = re.compile(r"\b(?:recurrent|residual)\b")
_SENTENCE_BEGINS = re.compile(r"(?:\A|[.!?]\s|\n[ \t]*\n)\s*([^\W\d_])")
_NO_TUMOUR = re.compile(
    r"\b(?:no|without|free of|free from|negative|neg|nil|ve|excluded|ruled out|ausgeschlossen|"
    r"nothing|absence|lack|kein\w*|ohne|not"
    r"|none|never|neither|nor|cannot|\w+n't|dont|doesnt|didnt|isnt|arent|wasnt)\b|无|未见"
)


class Reader:
    """Reads a report.

    Attributes:
        notes: what was read; its `slips` say what was left out and why.
    """

    def __init__(self, document: Document, case: str):
        """Read the document of a case."""
        self._document, self._case = document, case
        self._wording = Wording(document.text, corrections(document.text))
        orders = find_instructions(self._wording.text)
        text, hidden = take_off(_blanked(self._wording.text, orders))
        self._foreign = joined([*orders, *hidden])
        text, open_choices = fill_in(text)
        self.notes = Notes(self._wording, text, document.kind)
        self._cased = self._wording.cased if _begins_with_capitals(document.text) else ""
        for start, end in self._foreign:
            span = self._wording.original_span(start, end)
            self.notes.slips.append(("instruction", *span))
        self._blank = joined([*self._foreign, *open_choices])
        self._sections = split_sections(text, self._wording.cased)
        self._stages = self._read_stages()
        for section in self._sections:
            self._read_section(section)

    def facts(self) -> list[Fact]:
        """Return what the report says, in its order."""
        main = self.notes.lesions.main_organ()
        numbers = self.notes.lesions.numbers()
        tumorous = {x.place.organ for x in self.notes.lesions if is_tumour(x)}
        named: dict[int, set[str]] = {}
        for draft in self.notes.drafts:
            if draft.attribute == "finding" and not draft.about and draft.context == Context():
                named.setdefault(id(draft.lesion), set()).add(draft.value)
        drafts = [
            draft
            for draft in self.notes.drafts
            if not self._is_counted(draft) and not self._is_renamed(draft, named)
        ]
        made = [self._fact(draft, main, numbers, tumorous) for draft in drafts]
        made += [self._fact(draft, main, numbers, tumorous) for draft in self._stages]
        return sorted(dict.fromkeys(made), key=lambda f: (f.source.start, f.source.end))

    def _is_counted(self, draft: Draft) -> bool:
        """Whether "several" of a plural is told by a number, or lesion by lesion."""
        lesion = draft.lesion
        if draft.value != SEVERAL or lesion is None:
            return False
        numbers = {
            d.place.organ for d in self.notes.drafts
            if d.attribute == "count" and d.value != SEVERAL and d.place is not None
        }  # fmt: skip
        return lesion.place.organ in numbers or (draft.about != "many" and self._is_one(lesion))

    def _is_one(self, lesion: Lesion) -> bool:
        """Whether a lesion is one of several that the report tells apart."""
        organ, value = lesion.place.organ, lesion.value
        alike = [x for x in self.notes.lesions if (x.place.organ, x.value) == (organ, value)]
        return lesion.listed or len(alike) > 1

    def _is_renamed(self, draft: Draft, named: dict[int, set[str]]) -> bool:
        """Whether a mass is told later to be a cyst, or another thing that is no tumour."""
        if (draft.attribute, draft.value) != ("finding", "mass") or draft.lesion is None:
            return False
        return bool(named.get(id(draft.lesion), set()) - {*GENERIC, "metastasis", "polyp"})

    def _is_blank(self, start: int, end: int) -> bool:
        k = bisect.bisect_left(self._blank, (end, 0)) - 1
        return k >= 0 and self._blank[k][1] > start

    def _kind(self, section: Section) -> SectionKind:
        if self._document.kind == "pathology" and section.kind not in ("history", "advice"):
            return "pathology"
        return section.kind

    def _read_section(self, section: Section) -> None:
        kind = self._kind(section)
        if kind in _SILENT:
            return
        self.notes.begin_section()
        span = section.start, section.end
        last = section.start
        for sentence in split_sentences(self.notes.text, *span, self._cased):
            if not _LIST_GAP.fullmatch(self.notes.text, max(last - 1, 0), sentence.start):
                self.notes.denying = ""
            last = sentence.end
            found = find_terms(self._wording, sentence.start, sentence.end)
            terms = [term for term in found if not self._is_blank(term.start, term.end)]
            self.notes.terms += terms
            self._read_sentence(sentence, kind, tuple(terms))

    def _read_sentence(
        self, sentence: Sentence, kind: SectionKind, terms: tuple[Term, ...]
    ) -> None:
        notes = self.notes
        if sentence.opens and not notes.heading_holds:
            notes.heading = ()
        near = [place.organ for place in (*notes.heading, *notes.near)]
        if notes.lesions.last:
            near.append(notes.lesions.last.place.organ)
        loci = find_loci(notes.text, sentence.start, terms, near)
        things = [term.start for term in terms if term.kind in CARRIERS]
        loci, unseen = set_apart(notes.text, (sentence.start, sentence.end), loci, things)
        if kind not in _PAST:
            notes.unseen += unseen
        words = notes.text[sentence.start : sentence.end]
        denied = goes_on(words, notes.denying)
        notes.denying = notes.denying if denied else opens_list(words)
        setting = Setting(notes.text, sentence, kind, terms, tuple(loci), denied)
        read_patient(notes, setting)
        if take_table(notes, setting) or take_heading(notes, setting):
            return
        mentions = name_lesions(notes, setting)
        read_signs(notes, setting, mentions)
        read_normal(notes, setting, mentions)
        read_attributes(notes, setting, mentions)
        if places := [place for locus in loci if not locus.beside for place in locus.places]:
            notes.near = tuple(dict.fromkeys(exact_places(places)))

    def _read_stages(self) -> list[Draft]:
        """Draft the T, N and M categories; they are read in the report's own letters."""
        back = self._wording.original_span
        spans = [(self._kind(s), *back(s.start, s.end)) for s in self._sections]
        foreign = [back(*span) for span in self._blank]
        text, drafts = _blanked(self._document.text, foreign), []
        for mention in find_stages(text):
            kind: SectionKind = "open"
            kind = next((k for k, a, b in spans if a <= mention.start < b), kind)
            if kind in _SILENT:
                continue
            context = Context(time="prior" if kind in _PAST else "current")
            if text[mention.end : mention.end + 2].strip()[:1] == "?":
                context = replace(context, certainty="possible")
            start, end = mention.start, mention.end
            draft = Draft(mention.letter, mention.value, start, end, context, about="stage")
            draft.kind = self.notes.source(kind)
            drafts.append(draft)
        return drafts

    def _fact(self, draft: Draft, main: str, numbers: dict[int, int], tumorous: set[str]) -> Fact:
        start, end = draft.start, draft.end
        if draft.attribute not in ("T", "N", "M"):
            start, end = self._wording.original_span(start, end)
        attribute, value, polarity = draft.attribute, draft.value, draft.context.polarity
        place = draft.place
        if draft.lesion is not None:
            place = draft.place if draft.place and draft.place.part else draft.lesion.place
        if place is None or (draft.about == "node" and not place.organ):
            is_there = polarity == "present" or draft.about == "stage"
            place = Place(main if is_there else "")
        if draft.about == "sign" and value in OTHERS and place.organ in tumorous:
            attribute = "others"
        denied = attribute == "impression" and value == "tumour" and polarity == "absent"
        near = max(0, draft.start - 60), draft.end + 30
        further = _FURTHER.search(self.notes.text, max(0, draft.start - 25), draft.start)
        again = not tumorous and _AGAIN.search(self.notes.text, *near)
        if denied and (not further or again) and _NO_TUMOUR.search(self.notes.text, *near):
            value, polarity = "no tumour", "present"
        certainty = draft.context.certainty
        denies = polarity == "absent" and attribute in ("finding", "impression")
        if denies and self.notes.is_unseen(place):
            certainty = "possible"
        number = 0
        grouped = value == SEVERAL and draft.lesion and not self._is_one(draft.lesion)
        if draft.lesion is not None and (attribute != "count" or grouped):
            number = numbers[id(draft.lesion)]
        elif place.organ == "aorta" and polarity == "present":
            # The calcifications of a vessel have a size, so they are told as one lesion.
            number = int(attribute == "size" or value == "vascular calcification")
        text = self._document.text[start:end]
        source = Source(draft.kind, self._document.sha256, start, end, text)
        return Fact(
            self._case, place.organ, place.part, number, attribute, value, draft.unit, polarity,
            certainty, draft.context.time, source,
        )  # fmt: skip


def _begins_with_capitals(text: str) -> bool:
    """Whether a text is in small letters, with capitals where its sentences begin."""
    small = sum(map(str.islower, text))
    if 3 * small < sum(map(str.isupper, text)):
        return False  # "A 3.5 cm MASS"
    begins = [match[1] for match in _SENTENCE_BEGINS.finditer(text)]
    return 2 * sum(map(str.isupper, begins)) >= len(begins)


def _blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text of the same length with blanks at `spans`; line ends stay."""
    pieces: list[str] = []
    done = 0
    for start, end in sorted(spans):
        pieces += text[done:start], re.sub(r"[^\n]", " ", text[max(start, done) : end])
        done = max(done, end)
    return "".join(pieces) + text[done:]
