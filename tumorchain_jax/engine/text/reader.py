"""One report, read from its first sentence to its last."""

import bisect
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tumorchain_jax.anatomy.organs import DIGESTIVE, display_name
from tumorchain_jax.engine.case import Document
from tumorchain_jax.engine.facts import Fact, Source, SourceKind
from tumorchain_jax.engine.text import attributes
from tumorchain_jax.engine.text.context import Context
from tumorchain_jax.engine.text.instructions import find_instructions
from tumorchain_jax.engine.text.judgement import Setting, judge
from tumorchain_jax.engine.text.lesions import GENERIC, Lesion, Lesions, are_compatible
from tumorchain_jax.engine.text.places import LOCATING, Locus, Place, find_loci, locate
from tumorchain_jax.engine.text.sections import Section, SectionKind, split_sections
from tumorchain_jax.engine.text.sentences import Sentence, split_sentences
from tumorchain_jax.engine.text.spelling import corrections
from tumorchain_jax.engine.text.stages import find_stages
from tumorchain_jax.engine.text.tables import Cell, count_in, read_header, read_row
from tumorchain_jax.engine.text.vocabulary import Entry, Term, find_terms
from tumorchain_jax.engine.text.wording import Wording

OTHERS = frozenset(
    {"calcification", "rim enhancement", "wall thickening", "ductal dilatation", "necrosis"}
)
"""Signs that are an attribute of a lesion where the organ has one."""
FIVE = frozenset(map(display_name, DIGESTIVE))
_SILENT: frozenset[SectionKind] = frozenset({"technique", "advice"})
_CARRIERS = ("lesion", "impression", "node", "nodal organ")
_NODES = ("node", "nodal organ")
_SPECIFIC_IMPRESSION = {
    ("cyst", "liver"): "hepatic cyst",
    ("haemangioma", "liver"): "hepatic haemangioma",
}
_MEANS = re.compile(
    r"\b(?:suggest\w*|consistent with|in keeping with|compatible with|suspicious (?:for|of)|"
    r"suspicion (?:of|for)|concern\w* for|worrisome for|likely|probabl\w+|indicat\w+|represent\w*|"
    r"typical (?:of|for)|characteristic (?:of|for)|diagnostic of|favou?rs?|points? to|favou?r\w*|"
    r"presum\w+|impression of|diagnosis|read as|interpreted as|taken to be|regarded as|reflect\w*|"
    r"think of|differential|correspond\w* to|in terms of|compatible|raises?|may be|could be|"
    r"might be|possibl\w+|perhaps|which is|that is|i\.e\.|namely|known|evidence of|"
    r"cannot exclude|excluded|vereinbar mit|verdächtig|verdacht|v\. ?a\.|hinweis\w* auf|passend zu|"
    r"am ehesten|dd|im sinne|entsprechend|考虑|提示)(?![\w])|=|\(\s*$"
)
_ALL = re.compile(r"\W*(?:both|all|each|they|these|the (?:lesions|masses|tumou?rs|nodules)|beide|alle)\b")
_NEW = re.compile(
    r"\b(?:second|another|further|additional|third|fourth|other|more|also a|separate|new|"
    r"different|zweite\w*|weitere\w*|andere\w*)\b[^.;,]{0,40}$"
)
_DEFINITE = re.compile(
    r"(?:\b(?:the|this|that|said|known|its|these|those|above|described|same|die|der|das|diese\w*)"
    r"\s+(?:(?!(?:is|are|was|were|there|in|of|on|at|shows?|has|have|contains?|and|with|a|an)\b)"
    r"[\w.-]+\s+){0,4}|^\W*)$"
)
_PLAIN_LEAD = re.compile(
    r"^(?:[\s,/()\"*-]|\b(?:and|or|but|yet|also|very|rather|somewhat|slightly|mildly|markedly|"
    r"soft|tissue|solid|focal|small|large|big|huge|tiny|sized|enhancing|single|solitary|in|"
    r"diameter|size|max|maximum|largest|long|short|axis|approximately|about|ca|subtle|new|known|"
    r"density|attenuation|sharp|shaped|contour|margin|margins|borders|bordered|outline|hepatic|"
    r"liver|pancreatic|gastric|colonic|esophageal|primary|malignant|benign|simple|sub|intramural|"
    r"exophytic|polypoid|suspicious|partly|predominantly|more|less|relatively|\w+ly|mm|cm|the|"
    r"lesions?|tail|head|body|segment|[ivx]+|und|oder|große\w*|kleine\w*|eher|ca\.|messende\w*|"
    r"durchmessende\w*|runde\w*|ovale\w*)\b)*$"
)
_LOCATION_KEY = re.compile(
    r"^\W*(?:tumou?r |lesion |anatomic(?:al)? |primary )?(?:location|site|organ|region|where|segment|"
    r"part|sub-?site|substructure|localization|localisation|lokalisation|organ system|area|"
    r"sub-?segment|position|abschnitt|level)\s*(?:of (?:the )?(?:lesion|tumou?r|mass))?\s*[:=|]"
)
_KEY = re.compile(r"^[\W\d]*(?P<key>[a-z][^:=|\n.]{0,60}?)\s*(?:[:=|]|\s-{1,2}\s|$)")
_SUBJECT = re.compile(r"^\s*(?:it|this|these|they|which|its|the|es|dies\w*|er|sie|mit|with)\b")
_GENERAL = re.compile(r"\b(?:is|are|shows?|appears?|ist|sind|has)\b")
_ENLARGED = re.compile(
    r"\b(?:enlarg\w+|pathologic\w*|suspicious|metastatic|metastas[ie]s|involved|positive|necrotic|"
    r"bulky|prominent|increased|abnormal|malignant|rounded|swollen|vergrößert\w*|pathologisch\w*|"
    r"suspekt\w*|several|multiple|numerous|conglomerate\w*|big|thickened|infiltrated|disease|"
    r"involvement|mass|spread|增大|肿大)\b"
)
_NORMAL_NODE = re.compile(
    r"\b(?:normal(?:[- ]sized?)?|not (?:\w+ )?enlarged|non-?enlarged|unenlarged|unremarkable|"
    r"subcentimet\w+|sub-centimet\w+|reactive|benign|not pathological\w*|unauffällig\w*|"
    r"nicht vergrößert\w*|small|negative|within normal|uninvolved)\b"
)
_NAMES_DISEASE = re.compile(r"adenopath|metasta|disease|involvement|mass|enlargement|spread|deposit")
_UNTICKED_CHOICE = re.compile(r"(?:\[[ ]{0,3}\]|\u2610|\u25a1)[^\[\]|;,.\u2610-\u2612\u25a1]*")
_OF_NODES = re.compile(
    r"\b(?P<none>none|no|zero|0) (?:of|/|out of) (?:the )?\w+|\b(?P<count>\d{1,2})\s*(?:of|/|out of|von)\s*"
    r"(?P<of>\d{1,3})\b|\b(?P<positive>\d{1,2}) (?:positive|involved|metastatic)\b|"
    r"\b(?:positive|involved|metastatic)(?: (?:lymph )?nodes?)?\s*[:=]\s*(?P<keyed>\d{1,2})\b"
)
_NO_OTHERS = re.compile(
    r"\b(?:others?|additional|associated|accompanying|secondary|ancillary|further)\s*"
    r"(?:features?|findings?|signs?|changes?|characteristics?)?\s*[:=|]\s*(?:none|no|nil|-)(?!\w)|"
    r"\bno (?:associated|accompanying|ancillary|secondary) (?:features?|findings?|signs?|changes?)\b|"
    r"\bwithout (?:associated|accompanying|ancillary|secondary) (?:features?|findings?|signs?|changes?)\b"
)
_NO_FURTHER = re.compile(r"\b(?:other|further|additional|second|new|more|another|residual|weiter\w*)\b")


@dataclass(eq=False)
class Draft:
    """A fact in the making.

    Attributes:
        attribute, value, unit: as in `Fact`.
        start, end: characters of the even text.
        context: what the report says of it.
        place: where it is; None where the lesion or the tumour decides.
        lesion: of which it is told.
        kind: the kind of source.
        about: `sign`, `node` or `stage` where the end of the report decides more; else empty.
    """

    attribute: str
    value: str
    start: int
    end: int
    context: Context
    place: Place | None = None
    lesion: Lesion | None = None
    unit: str = ""
    kind: SourceKind = "radiology"
    about: str = ""


@dataclass
class _Mention:
    term: Term
    context: Context
    lesions: list[Lesion]


class Reader:
    """Reads a report; `facts` returns what it says, `slips` what was left out and why."""

    def __init__(self, document: Document, case: str):
        self.document, self.case = document, case
        self.wording = Wording(document.text, corrections(document.text))
        self.text = self.wording.text
        self.terms = find_terms(self.wording)
        self.lesions = Lesions()
        self.drafts: list[Draft] = []
        self.slips: list[tuple[str, int, int]] = []
        self._heading: tuple[Place, ...] = ()
        self._heading_holds = False
        self._near: tuple[Place, ...] = ()
        self._columns: tuple[str, ...] = ()
        self._cells: list[Cell] = []
        self._pending: Place | None = None
        self._group: list[Lesion] = []
        self._read()

    # --- the text in order -------------------------------------------------------------------

    def _read(self) -> None:
        self._foreign = find_instructions(self.text)
        pieces, done = [], 0
        for start, end in self._foreign:
            self.slips.append(("instruction", *self.wording.original_span(start, end)))
            pieces += self.text[done:start], " " * (end - start)
            done = end
        self.text = "".join(pieces) + self.text[done:]
        self.terms = [t for t in self.terms if not self._is_foreign(t.start, t.end)]
        next_term = 0
        sections = split_sections(self.text)
        for section in sections:
            kind = self._kind(section)
            self._heading, self._heading_holds, self._near = (), False, ()
            self._columns, self._pending = (), None
            if kind in _SILENT:
                continue
            for sentence in split_sentences(self.text, section.start, section.end):
                while next_term < len(self.terms) and self.terms[next_term].start < sentence.start:
                    next_term += 1
                last = next_term
                while last < len(self.terms) and self.terms[last].end <= sentence.end:
                    last += 1
                terms = self.terms[next_term:last]
                next_term = last
                self._sentence(Setting(self.text, sentence, kind), terms)
        self._stages(sections)

    def _kind(self, section: Section) -> SectionKind:
        if self.document.kind == "pathology" and section.kind not in ("history", "advice"):
            return "pathology"
        return section.kind

    def _is_foreign(self, start: int, end: int) -> bool:
        k = bisect.bisect_left(self._foreign, (end, 0)) - 1
        return k >= 0 and self._foreign[k][1] > start

    def _sentence(self, setting: Setting, terms: Sequence[Term]) -> None:
        sentence = setting.sentence
        self._clinical(setting, terms)
        if sentence.opens and not self._heading_holds:
            self._heading = ()
        near = [place.organ for place in (*self._heading, *self._near)]
        if self.lesions.last:
            near.append(self.lesions.last.place.organ)
        loci = find_loci(self.text, sentence.start, terms, near)
        if self._is_table(setting, terms, loci) or self._is_heading(setting, terms, loci):
            return
        mentions = self._mentions(setting, terms, loci)
        self._signs(setting, terms, loci, mentions)
        self._normal(setting, terms, loci, mentions)
        self._attributes(setting, terms, loci, mentions)
        if places := [place for locus in loci if not locus.beside for place in locus.places]:
            self._near = tuple(places)

    def _is_table(
        self, setting: Setting, terms: Sequence[Term], loci: Sequence[Locus]
    ) -> bool:
        """Take in the head of a table, or what the columns say of a row; whether it was a head."""
        sentence, words = setting.sentence, setting.words
        self._cells = []
        if words.count("|") < 2:
            self._columns = ()
            return False
        if columns := read_header(words):
            self._columns = columns
            return True
        if not self._columns:
            return False
        self._cells = read_row(self.text, sentence.start, sentence.end, self._columns)
        places = [place for locus in loci for place in locus.places]
        told = any(t.kind in ("density", "shape", "boundary") for t in terms) or any(
            c.is_size and re.search(r"\d", self.text[c.start : c.end]) for c in self._cells
        )
        if places and told and not any(t.kind in _CARRIERS for t in terms):
            self._pending = next((p for p in places if p.part), places[0])
        self._heading, self._heading_holds = tuple(places[:1]), True
        return False

    # --- headings ------------------------------------------------------------------------------

    def _is_heading(
        self, setting: Setting, terms: Sequence[Term], loci: Sequence[Locus]
    ) -> bool:
        """Take in what a heading or key names; whether the sentence says nothing else."""
        sentence, words = setting.sentence, setting.words
        if _LOCATION_KEY.match(words):
            self._locate_by_key(loci)
            return not any(term.kind in _CARRIERS for term in terms)
        key = _KEY.match(words)
        if not key:
            return False
        key_end = sentence.start + key.end("key")
        in_key = [term for term in terms if term.end <= key_end]
        if any(term.kind not in (*LOCATING, "none") for term in in_key):
            return False
        named = [locus for locus in loci if locus.end <= key_end]
        alone = sentence.start + key.end() >= sentence.end
        if named and len(key["key"].split()) <= 8:
            rest = re.sub(r"\b(?:the|and|of|other|wall|tract|tree|biliary|system|upper|visible)\b", "", key["key"])
            covered = sum(locus.end - locus.start for locus in named)
            if alone and covered < 0.6 * len(rest.strip()):
                return False
            self._heading = tuple(place for locus in named for place in locus.places)
            self._heading_holds = alone
            return alone
        if not alone and sentence.opens and not in_key and not _is_attribute_key(key["key"]):
            self._heading, self._heading_holds = (), False
        return False

    def _locate_by_key(self, loci: Sequence[Locus]) -> None:
        places = [place for locus in loci for place in locus.places]
        if not places:
            return
        place = next((place for place in places if place.part), places[0])
        last = self.lesions.last
        if self._pending:
            self._pending = place
        elif last and not last.place.organ:
            last.place = place
        elif last and self._heading == (last.place,) and place.organ == last.place.organ:
            last.place = place if place.part else last.place
        else:
            self._pending = place
        self._heading = self._near = (place,)
        self._heading_holds = True

    def _told_last(self) -> Lesion | None:
        """Return the last lesion; one of which only the place was told so far becomes a lesion."""
        if self._pending:
            self.lesions.add(Lesion(self._pending, ""))
            self._pending = None
        return self.lesions.last

    # --- lesions and nodes -----------------------------------------------------------------------

    def _mentions(
        self, setting: Setting, terms: Sequence[Term], loci: Sequence[Locus]
    ) -> list[_Mention]:
        carriers = [term for term in terms if term.kind in (*_CARRIERS, "state")]
        spans = [(term.start, term.end) for term in carriers]
        mentions: list[_Mention] = []
        for term in carriers:
            context = judge(setting, term.start, term.end)
            if context is None or not context.patient:
                continue
            others = [span for span in spans if span != (term.start, term.end)]
            if term.kind in _NODES:
                self._node(setting, term, context, loci, others)
                mentions.append(_Mention(term, context, []))
                continue
            listed = context.polarity == "absent"
            own = locate(self.text, term.start, term.end, loci, others, listed=listed)
            lesions = self._lesion(setting, term, context, own, mentions)
            mentions.append(_Mention(term, context, lesions))
        if group := [lesion for mention in mentions for lesion in mention.lesions]:
            self._group = group
        return mentions

    def _lesion(
        self,
        setting: Setting,
        term: Term,
        context: Context,
        own: tuple[Place, ...],
        mentions: Sequence[_Mention],
    ) -> list[Lesion]:
        """Draft the finding or impression of a mention; return the lesions that it speaks of."""
        meant = self._interpreted(setting, term, mentions)
        places = own or self._implied(term) or self._carried(setting, term, context)
        if meant and (not own or {p.organ for p in own} <= {x.place.organ for x in meant.lesions}):
            places = tuple(lesion.place for lesion in meant.lesions) or places
        organ = places[0].organ if places else ""
        entry = term.meaning(organ) or term.entries[0]
        attribute, value = self._named(setting, term, entry.kind, entry.value, entry.organ, organ)
        if attribute == "":
            return []
        exists = context.polarity == "present" and context.time == "current"
        lesions: list[Lesion] = []
        if exists and entry.kind != "state":
            if meant and meant.lesions:
                lesions = meant.lesions
                self._merge(setting, meant, term, value, attribute, context)
            else:
                for place in places or (Place(""),):
                    lesions.append(self._find(setting, term, place, value, context))
        drafted: Iterable[tuple[Place, Lesion | None]] = (
            [(place, None) for place in places or (Place(""),)]
            if not lesions
            else [(lesion.place, lesion) for lesion in lesions]
        )
        if own and len(own) == len(lesions):
            drafted = list(zip(own, lesions, strict=True))
        for place, lesion in drafted:
            self._draft(setting, attribute, value, term.start, term.end, context, place, lesion)
            if attribute == "finding" and (value, place.organ) in _SPECIFIC_IMPRESSION and exists:
                if setting.section == "impression" or meant:
                    specific = _SPECIFIC_IMPRESSION[value, place.organ]
                    self._draft(setting, "impression", specific, term.start, term.end, context, place, lesion)
        if exists and entry.kind != "state":
            self._count(setting, term, places)
        return lesions

    def _named(
        self, setting: Setting, term: Term, kind: str, value: str, home: str, organ: str
    ) -> tuple[str, str]:
        """Return the attribute and value of a mention."""
        if kind in ("impression", "state"):
            if home != organ and (organ or _NEEDS_PLACE.fullmatch(self.text, term.start, term.end)):
                if value not in _tumours():
                    return "finding", "mass"
                value = "tumour"
            if setting.section == "pathology":
                return "histology", value
            return "impression", value
        if value != "tumour":
            return "finding", value
        if setting.section == "pathology":
            return "histology", "tumour"
        if setting.section == "impression" or self._is_conclusion(setting, term):
            return "impression", value
        return "finding", value

    def _is_conclusion(self, setting: Setting, term: Term) -> bool:
        before = self.text[setting.sentence.start : term.start]
        if _MEANS.search(before):
            return True
        if setting.section != "open" or _SEEN.search(setting.words):
            return False
        start, end = setting.sentence.start, setting.sentence.end
        told = attributes.find_sizes(self.text, start, end)
        described = any(
            t.kind in ("density", "shape", "boundary") for t in self._between(start, end)
        )
        return not told and not described

    def _interpreted(
        self, setting: Setting, term: Term, mentions: Sequence[_Mention]
    ) -> _Mention | None:
        """Return the mention before that this one says the nature of: "a mass, likely a cyst"."""
        for mention in reversed(mentions):
            if mention.term.kind in _NODES:
                continue
            between = self.text[mention.term.end : term.start]
            if not mention.lesions or re.search(r";|\.\s", between):
                return None
            return mention if _MEANS.search(between) and not _NEW.search(between[-40:]) else None
        return None

    def _merge(
        self, setting: Setting, meant: _Mention, term: Term, value: str, attribute: str, context: Context
    ) -> None:
        """Let a specific name take the place of "mass" for the same lesion."""
        if attribute != "finding" or value in GENERIC or context.certainty == "possible":
            return
        for lesion in meant.lesions:
            if lesion.value in GENERIC:
                lesion.value = value
        self.drafts = [
            draft for draft in self.drafts
            if not (draft.lesion in meant.lesions and draft.attribute == "finding"
                    and draft.value in GENERIC and draft.start == meant.term.start)
        ]  # fmt: skip

    def _implied(self, term: Term) -> tuple[Place, ...]:
        if _NEEDS_PLACE.fullmatch(self.text, term.start, term.end):
            return ()
        organs = {entry.organ for entry in term.entries if entry.organ}
        if len(organs) == 1 and len(term.entries) == 1:
            return (Place(organs.pop()),)
        return ()

    def _carried(self, setting: Setting, term: Term, context: Context) -> tuple[Place, ...]:
        """Return the place of the heading, or of the sentence before."""
        if term.value == "metastasis" and context.polarity == "absent":
            return ()
        if self._heading:
            return self._heading
        if context.polarity == "absent" or context.time != "current":
            return ()
        last = self.lesions.last
        if setting.section in ("impression", "pathology") or self._is_conclusion(setting, term):
            if term.value == "metastasis":
                return ()
            main = self.lesions.main_organ()
            if last and last.place.organ == main:
                return (Place(main, last.place.part if not self._is_several(main) else ""),)
            return (Place(main),) if main else ()
        if term.value == "metastasis":
            primary = self.lesions.main_organ()
            return tuple(place for place in self._near if place.organ != primary)
        return self._near or ((last.place,) if last else ())

    def _is_several(self, organ: str) -> bool:
        return len({x.place.part for x in self.lesions if x.place.organ == organ}) > 1

    def _find(
        self, setting: Setting, term: Term, place: Place, value: str, context: Context
    ) -> Lesion:
        """Return the lesion that a mention means: one told of before, or a new one."""
        sentence = setting.sentence
        before = self.text[max(sentence.start, term.start - 60) : term.start]
        sizes = [s.measure.mm for s in attributes.find_sizes(self.text, sentence.start, sentence.end)]
        later = setting.section in ("impression", "pathology")
        known = None
        if not _NEW.search(before):
            if later or self._is_conclusion(setting, term):
                known = self.lesions.match(place, value, sizes)
            elif _DEFINITE.search(before) or context.time != "current":
                known = self.lesions.match(place, value, sizes)
                last = self.lesions.last
                if last and last.place.organ == place.organ and known and are_compatible(
                    last.place.part, place.part
                ) and (value in GENERIC or last.value == value):  # fmt: skip
                    known = last
        if known is None and not term.plural and not _NEW.search(before):
            known = self.lesions.only_named(place, value)
        if known and (known.several == term.plural or later or term.plural is False):
            self.lesions.last = known
            if place.part and not known.place.part and known.place.organ == place.organ:
                known.place = place
            return known
        self._pending = None
        lesion = Lesion(place, value, term.plural, sizes, later, context.certainty == "possible")
        return self.lesions.add(lesion)

    def _count(self, setting: Setting, term: Term, places: Sequence[Place]) -> None:
        sentence = setting.sentence
        told = attributes.count_before(self.text, sentence.start, term.start)
        if not told or len(places) > 1:
            return
        count, start, end = told
        if count == 1 and self.text[start:end] in _ARTICLES:
            return
        if (count > 1) == term.plural or term.value in ("metastasis",) or count == 1:
            place = Place(places[0].organ if places else "")
            self._draft(setting, "count", str(count), start, end, Context(), place, None)

    def _node(
        self,
        setting: Setting,
        term: Term,
        context: Context,
        loci: Sequence[Locus],
        others: Sequence[tuple[int, int]],
    ) -> None:
        sentence, words = setting.sentence, setting.words
        places = tuple(
            place
            for place in locate(self.text, term.start, term.end, loci, others, node=True)
            if place.organ in FIVE
        ) or tuple(
            Place(locus.places[0].organ)
            for locus in loci
            if locus.start <= term.start and term.end <= locus.end
        )
        place = places[0] if places else None
        if setting.section == "pathology" and self._nodes_of(setting, term, place):
            return
        clause = _UNTICKED_CHOICE.sub(" ", words)
        told = attributes.count_before(
            self.text, sentence.start, term.start
        ) or attributes.count_after(self.text, term.end, sentence.end)
        if told and setting.section == "pathology" and _EXAMINED.search(words):
            told = None
        sizes = attributes.find_sizes(self.text, sentence.start, sentence.end)
        normal = _NORMAL_NODE.search(clause) and not _ENLARGED.search(_NORMAL_NODE.sub(" ", clause))
        named = self.text[term.start : term.end]
        is_told = _ENLARGED.search(clause) or sizes or told or _NAMES_DISEASE.search(named)
        if told and told[0] == 0:
            context = replace(context, polarity="absent")
        if context.polarity == "present" and normal:
            context = replace(context, polarity="absent")
        elif context.polarity == "present" and not is_told:
            return
        self._draft(
            setting, "finding", "lymph node", term.start, term.end, context, place, None, about="node"
        )
        if told and context.polarity == "present" and context.time == "current":
            self._draft(
                setting, "nodes", str(told[0]), told[1], told[2], context, place, None, about="node"
            )

    def _nodes_of(self, setting: Setting, term: Term, place: Place | None) -> bool:
        """Draft "3 of 21 nodes": how many are involved."""
        match = _OF_NODES.search(setting.words)
        if not match:
            return False
        count = match["count"] or match["positive"] or match["keyed"] or "0"
        if match["of"] and int(count) > int(match["of"]):
            return False
        start = setting.sentence.start + match.start()
        self._draft(
            setting, "nodes", str(int(count)), start, setting.sentence.start + match.end(),
            Context(), place, None, about="node",
        )  # fmt: skip
        return True

    # --- signs, normal organs, attributes ----------------------------------------------------------

    def _signs(
        self,
        setting: Setting,
        terms: Sequence[Term],
        loci: Sequence[Locus],
        mentions: Sequence[_Mention],
    ) -> None:
        signs = [term for term in terms if term.kind == "sign"]
        signs += self._large_spleen(setting, loci, signs)
        spans = [(m.term.start, m.term.end) for m in mentions]
        for term in signs:
            context = judge(setting, term.start, term.end)
            if context is None or not context.patient:
                continue
            carrier = self._carrier(setting, term.start, term.end, mentions)
            home = term.entries[0].organ
            lesion = carrier.lesions[0] if carrier and carrier.lesions else None
            if carrier and carrier.term.kind in _NODES:
                continue
            places: tuple[Place, ...]
            own = locate(self.text, term.start, term.end, loci, spans)
            inner = [l for l in loci if term.start <= l.start and l.end <= term.end]
            if term.value in _NOWHERE:
                places, lesion = (Place(""),), None
            elif home:
                places = tuple(p for p in own if p.organ == home) or (Place(home),)
                lesion = None
            elif lesion and not self._is_tumour(lesion) and term.value in OTHERS and not own:
                places, lesion = (Place(""),), None
            elif lesion and context.polarity == carrier_polarity(carrier) and not inner:
                places = (lesion.place,)
            elif own:
                places = own
                lesion = None
            elif carrier and carrier.context.polarity == "absent" and context.polarity == "present":
                continue
            elif lesion:
                places = (lesion.place,)
            elif self._goes_on(setting, context):
                lesion = self.lesions.last
                places = (self.lesions.last.place,) if self.lesions.last else ()
            elif self._heading:
                places = self._heading
            elif context.polarity == "present":
                places = self._near or (Place(""),)
            else:
                places = (Place(""),)
            for place in places:
                self._draft(
                    setting, "finding", term.value, term.start, term.end, context, place, lesion,
                    about="sign",
                )  # fmt: skip
        if match := _NO_OTHERS.search(setting.words):
            lesion = self.lesions.last
            if lesion:
                start = setting.sentence.start + match.start()
                end = setting.sentence.start + match.end()
                self._draft(setting, "others", "none", start, end, Context(), lesion.place, lesion)

    def _large_spleen(
        self, setting: Setting, loci: Sequence[Locus], signs: Sequence[Term]
    ) -> list[Term]:
        """Read "the spleen measures 15 cm and is enlarged"."""
        if any(sign.value == "splenomegaly" for sign in signs):
            return []
        for locus in loci:
            if locus.places == (Place("spleen"),) and not locus.beside:
                match = _LARGE.search(self.text, locus.end, setting.sentence.end)
                if match and not any(locus.end <= other.start < match.start() for other in loci):
                    entry = Entry("sign", "splenomegaly", "spleen")
                    return [Term((entry,), *match.span(), False)]
        if self._heading == (Place("spleen"),) and not loci:
            match = _LARGE.search(self.text, setting.sentence.start, setting.sentence.end)
            if match:
                return [Term((Entry("sign", "splenomegaly", "spleen"),), *match.span(), False)]
        return []

    def _goes_on(self, setting: Setting, context: Context) -> bool:
        """Whether a sentence that names no place goes on telling of the last lesion."""
        last = self._told_last()
        if last is None or context.time != "current" or setting.section == "history":
            return False
        return not self._heading or last.place.organ in {place.organ for place in self._heading}

    def _normal(
        self,
        setting: Setting,
        terms: Sequence[Term],
        loci: Sequence[Locus],
        mentions: Sequence[_Mention],
    ) -> None:
        """Draft that an organ has no mass where the report calls it normal."""
        if any(term.kind == "rest" for term in terms) or setting.section in ("history", "comparison"):
            return
        for term in terms:
            if term.kind != "normal":
                continue
            context = judge(setting, term.start, term.end)
            text = self.text[term.start : term.end]
            if context is None or context.time != "current":
                continue
            if context.polarity == "absent" and not text.startswith(("no", "without", "nil")):
                continue
            clause = self._clause(setting, term)
            if any(
                m.context.polarity == "present" and m.term.kind not in _NODES
                and clause[0] <= m.term.start < clause[1] for m in mentions
            ):  # fmt: skip
                continue
            inside = [l for l in loci if clause[0] <= l.start < clause[1] and not l.beside]
            before = [l for l in inside if l.end <= term.start]
            named = before or inside
            places = [p for l in named for p in l.places] or list(self._heading)
            if any(m.term.kind in _NODES and clause[0] <= m.term.start for m in mentions):
                continue
            for place in dict.fromkeys(places):
                absent = Context(polarity="absent")
                self._draft(setting, "finding", "mass", term.start, term.end, absent, place, None)

    def _clause(self, setting: Setting, term: Term) -> tuple[int, int]:
        sentence = setting.sentence
        breaks = [
            m.end() for m in re.finditer(r";|\bbut\b|\bwhile\b|\bexcept\b|\bwhereas\b|\baber\b", setting.words)
        ]
        edges = [sentence.start, *(sentence.start + b for b in breaks), sentence.end]
        start = max(edge for edge in edges if edge <= term.start)
        return start, min(edge for edge in edges if edge > term.start)

    def _attributes(
        self,
        setting: Setting,
        terms: Sequence[Term],
        loci: Sequence[Locus],
        mentions: Sequence[_Mention],
    ) -> None:
        sentence = setting.sentence
        adjectives = [t for t in terms if t.kind in ("density", "shape", "boundary")]
        for term in adjectives:
            context = judge(setting, term.start, term.end)
            target = self._target(setting, term.start, term.end, loci, mentions)
            if context is None or target is None:
                continue
            lesions, told = target
            if told.polarity == "absent":
                continue
            if told.time != "current":
                context = replace(context, time=told.time)
            if told.certainty != "definite" and context.certainty == "definite":
                context = replace(context, certainty=told.certainty)
            for lesion in lesions or [None]:
                place = lesion.place if lesion else Place("")
                self._draft(setting, term.kind, term.value, term.start, term.end, context, place, lesion)
        self._sizes(setting, terms, loci, mentions)
        self._depth(setting, loci, mentions)
        if not mentions or self._cells or _NUMBER_OF.match(setting.words):
            key = count_in(self.text, self._cells) or attributes.count_key(
                self.text, sentence.start, sentence.end
            )
            if key and not re.search(r"\b(?:lymph )?nodes?\b|\bln\b", setting.words):
                last = self._told_last()
                named = [p for locus in loci if not locus.beside for p in locus.places]
                place = Place(named[0].organ if named else last.place.organ if last else "")
                self._draft(setting, "count", str(key[0]), key[1], key[2], Context(), place, None)

    def _sizes(
        self,
        setting: Setting,
        terms: Sequence[Term],
        loci: Sequence[Locus],
        mentions: Sequence[_Mention],
    ) -> None:
        sentence = setting.sentence
        sizes = attributes.find_sizes(self.text, sentence.start, sentence.end)
        for cell in self._cells:
            if cell.is_size and cell.unit and not sizes:
                sizes = attributes.find_sizes(self.text, cell.start, cell.end, cell.unit)
        signs = [t for t in terms if t.kind == "sign"]
        taken: dict[int, int] = {}
        current = [size for size in sizes if not size.prior]
        for size in sizes:
            measure = size.measure
            target = self._target(setting, measure.start, measure.end, loci, mentions)
            if target is None or target[1].polarity == "absent":
                continue
            sign = [t for t in signs if t.end <= measure.start and t.value in _MEASURED_SIGNS]
            carriers = [m.term.end for m in mentions if m.term.end <= measure.start]
            carrier = self._carrier(setting, measure.start, measure.end, mentions)
            follows = carrier is not None and self._leads_to(measure.end, carrier)
            if sign and not follows and sign[-1].end > max(carriers, default=-1):
                continue
            lesions, told = target
            if len(lesions) > 1 and len(lesions) == len(current) and not size.prior:
                # "In the body and the antrum, of 33 and 21 mm".
                lesions = [lesions[current.index(size)]]
            if len(lesions) != 1:
                continue
            lesion = lesions[0]
            if not measure.is_plausible:
                self.slips.append(
                    ("impossible size", *self.wording.original_span(measure.start, measure.end))
                )
                continue
            context = replace(told, patient=True)
            if size.prior:
                context = replace(context, time="prior")
            if measure.upper and not lesion.several:
                context = replace(context, certainty="probable")
            turn = taken.get(id(lesion), 0)
            if not size.prior:
                taken[id(lesion)] = turn + 1
            part = self._part_of_size(lesion, loci, sizes, sizes.index(size), carrier)
            if lesion.several and turn and not size.prior:
                # "Metastases of 20, 24 and 30 mm": each size is one of them.
                place = part or lesion.place
                lesion = self.lesions.add(Lesion(place, lesion.value, True, [measure.mm]))
                self._group.append(lesion)
                if carrier:
                    name = carrier.term
                    self._draft(
                        setting, "finding", lesion.value, name.start, name.end, context, place, lesion
                    )
            elif turn and not size.prior:
                continue
            self._draft(
                setting, "size", f"{measure.mm:g}", measure.start, measure.end, context,
                lesion.place, lesion, unit="mm",
            )  # fmt: skip

    def _part_of_size(
        self,
        lesion: Lesion,
        loci: Sequence[Locus],
        sizes: Sequence[attributes.Size],
        turn: int,
        carrier: _Mention | None,
    ) -> Place | None:
        """Return where one of several lesions is: "34 mm in segment 8 and 21 mm in segment 5"."""
        if not lesion.several or carrier is None or len(sizes) < 2:
            return None
        parts = [
            locus for locus in loci
            if locus.places[0].part and locus.places[0].organ == lesion.place.organ
            and locus.start >= carrier.term.end and not locus.beside
        ]  # fmt: skip
        if len(parts) != len(sizes):
            return None
        place = parts[turn].places[0]
        if turn == 0:
            lesion.place = place
        return place

    def _depth(
        self, setting: Setting, loci: Sequence[Locus], mentions: Sequence[_Mention]
    ) -> None:
        sentence = setting.sentence
        for value, start, end, is_so in attributes.find_depths(self.text, sentence.start, sentence.end):
            lesion: Lesion | None = None
            before = [m for m in mentions if m.lesions and m.term.start <= end]
            if before:
                lesion = before[-1].lesions[0]
            elif any(m.context.polarity == "absent" for m in mentions):
                continue
            elif self.lesions.last:
                lesion = self.lesions.last
            if lesion is None:
                continue
            if value in ("wall", "inner wall") and lesion.place.organ not in _HOLLOW:
                continue
            context = judge(setting, start, end) or Context()
            context = replace(context, polarity="present" if is_so else "absent")
            self._draft(setting, "depth", value, start, end, context, lesion.place, lesion)

    def _target(
        self,
        setting: Setting,
        start: int,
        end: int,
        loci: Sequence[Locus],
        mentions: Sequence[_Mention],
    ) -> tuple[list[Lesion], Context] | None:
        """Return the lesions that an attribute tells of, and what is said of them; None if none."""
        carrier = self._carrier(setting, start, end, mentions)
        if carrier:
            if carrier.term.kind in _NODES:
                return None
            if not carrier.lesions and carrier.context.polarity == "present":
                return ([], carrier.context) if carrier.context.time == "prior" else None
            return carrier.lesions, carrier.context
        last = self._told_last() if setting.section not in ("history", "comparison") else None
        if last is None:
            return None
        if _ALL.match(setting.words) and last in self._group:
            return self._group, Context()
        named = [p for locus in loci if not locus.beside and locus.start < start for p in locus.places]
        if any(place.organ != last.place.organ for place in named) and last.place.organ:
            return None
        whole = [place for place in named if not place.part]
        if whole and last.place.part and _GENERAL.search(self.text[setting.sentence.start : start]):
            return None
        if self._heading and last.place.organ not in {p.organ for p in self._heading} and last.place.organ:
            return None
        return [last], Context()

    def _carrier(
        self, setting: Setting, start: int, end: int, mentions: Sequence[_Mention]
    ) -> _Mention | None:
        """Return the mention that an attribute at `start` to `end` belongs to."""
        after = [m for m in mentions if m.term.start >= end]
        before = [m for m in mentions if m.term.end <= start]
        if after:
            if self._leads_to(end, after[0]):
                return after[0]
        if before:
            between = self.text[before[-1].term.end : start]
            if after and re.search(r";|\.\s", between):
                return after[0]
            # What a sentence says last of a lesion and its nature holds for the lesion.
            return before[-1]
        return after[0] if after else None

    def _leads_to(self, end: int, mention: _Mention) -> bool:
        """Whether what ends at `end` stands before a noun like an adjective."""
        start = mention.term.start
        return start >= end and bool(_PLAIN_LEAD.match(self._without_terms(end, start)))

    def _without_terms(self, start: int, end: int) -> str:
        pieces, done = [], start
        for term in self._between(start, end):
            if term.kind in ("density", "shape", "boundary", "part", "organ", "weak part", "sign"):
                pieces.append(self.text[done : term.start])
                done = term.end
        pieces.append(self.text[done:end])
        return re.sub(r"\d+(?:[.,]\d+)?(?:\s?x)?", " ", " ".join(pieces))

    def _between(self, start: int, end: int) -> list[Term]:
        first = bisect.bisect_left(self.terms, start, key=lambda term: term.start)
        last = bisect.bisect_left(self.terms, end, key=lambda term: term.start)
        return [term for term in self.terms[first:last] if term.end <= end]

    # --- the patient, stages -------------------------------------------------------------------

    def _clinical(self, setting: Setting, terms: Sequence[Term]) -> None:
        sentence = setting.sentence
        for term in terms:
            if term.kind != "history" and not any(e.kind == "history" for e in term.entries):
                continue
            context = judge(setting, term.start, term.end)
            if context is None or not context.patient:
                continue
            entry = next(e for e in term.entries if e.kind == "history")
            treated = entry.value in ("resection", "chemotherapy", "radiotherapy")
            if context.time == "hypothetical" and setting.section != "history":
                continue
            context = replace(context, time="prior" if treated else "current")
            place = Place(entry.organ)
            self._draft(setting, "history", entry.value, term.start, term.end, context, place, None)
        for term in terms:
            if setting.section == "pathology" and term.kind == "histology":
                context = judge(setting, term.start, term.end)
                if context and context.patient:
                    self._draft(
                        setting, "histology", term.value, term.start, term.end, context,
                        None, None, about="stage",
                    )  # fmt: skip
        if setting.section in ("open", "history", "findings", "pathology"):
            if age := attributes.find_age(self.text, sentence.start, sentence.end):
                if not re.search(r"\b(?:mother|father|sister|brother|son|daughter|aunt|uncle)\b", setting.words):
                    self._draft(
                        setting, "age", str(age[0]), age[1], age[2], Context(), Place(""), None, unit="years"
                    )
        if setting.section in ("open", "history") or re.search(r"\b(?:sex|gender|geschlecht)\s*[:=]", setting.words):
            if sex := attributes.find_sex(self.text, sentence.start, sentence.end):
                self._draft(setting, "sex", *sex, Context(), Place(""), None)

    def _stages(self, sections: Sequence[Section]) -> None:
        spans = [
            (self._kind(s), *self.wording.original_span(s.start, s.end)) for s in sections
        ]
        foreign = [self.wording.original_span(*span) for span in self._foreign]
        for mention in find_stages(self.document.text):
            kind = next((k for k, a, b in spans if a <= mention.start < b), "open")
            if kind in _SILENT or any(a <= mention.start < b for a, b in foreign):
                continue
            context = Context(time="prior" if kind in ("history", "comparison") else "current")
            if self.document.text[mention.end : mention.end + 2].strip()[:1] == "?":
                context = replace(context, certainty="possible")
            draft = Draft(
                mention.letter, mention.value, mention.start, mention.end, context,
                kind=self._source(kind), about="stage",
            )  # fmt: skip
            self.stage_drafts.append(draft)

    @property
    def stage_drafts(self) -> list[Draft]:
        """Stages; their characters are the report's own."""
        return self.__dict__.setdefault("_stage_drafts", [])

    # --- facts ---------------------------------------------------------------------------------

    def _source(self, section: SectionKind) -> SourceKind:
        return "pathology" if section == "pathology" else self.document.kind

    def _draft(
        self,
        setting: Setting,
        attribute: str,
        value: str,
        start: int,
        end: int,
        context: Context,
        place: Place | None,
        lesion: Lesion | None,
        unit: str = "",
        about: str = "",
    ) -> None:
        kind = self._source(setting.section)
        self.drafts.append(
            Draft(attribute, value, start, end, context, place, lesion, unit, kind, about)
        )

    def facts(self) -> list[Fact]:
        """Return what the report says, in its order."""
        main = self.lesions.main_organ()
        made = [self._fact(draft, main, mapped=True) for draft in self.drafts]
        made += [self._fact(draft, main, mapped=False) for draft in self.stage_drafts]
        made += self._no_tumour()
        return sorted(dict.fromkeys(made), key=lambda f: (f.source.start, f.source.end))

    def _no_tumour(self) -> list[Fact]:
        return []

    def _fact(self, draft: Draft, main: str, mapped: bool) -> Fact:
        start, end = draft.start, draft.end
        if mapped:
            start, end = self.wording.original_span(start, end)
        attribute, value = draft.attribute, draft.value
        place = draft.place
        if draft.lesion is not None:
            place = draft.place if draft.place and draft.place.part else draft.lesion.place
        if place is None or (draft.about == "node" and not place.organ):
            is_there = draft.context.polarity == "present" or draft.about == "stage"
            place = Place(main if is_there else "")
        polarity = draft.context.polarity
        if draft.about == "sign" and value in OTHERS and self._has_lesion(place.organ):
            attribute = "others"
        denied = attribute == "impression" and value == "tumour" and polarity == "absent"
        if denied and _NO_TUMOUR.search(self.text[max(0, draft.start - 60) : draft.end + 30]):
            value, polarity = "no tumour", "present"
        number = 0
        if draft.lesion is not None and attribute != "count":
            number = self.lesions.number(draft.lesion)
        return Fact(
            self.case, place.organ, place.part, number, attribute, value, draft.unit, polarity,
            draft.context.certainty, draft.context.time,
            Source(draft.kind, self.document.sha256, start, end, self.document.text[start:end]),
        )  # fmt: skip

    def _has_lesion(self, organ: str) -> bool:
        return any(x.place.organ == organ and self._is_tumour(x) for x in self.lesions)

    @staticmethod
    def _is_tumour(lesion: Lesion) -> bool:
        return lesion.value in GENERIC or lesion.value in _tumours()


_SEEN = re.compile(
    r"\b(?:there (?:is|are)|shows?|is seen|are seen|located|demonstrates?|contains?|lies|present|"
    r"identified|visible|noted|visuali[sz]ed|detected|found|measur\w+|holds?|occupies|arises|"
    r"it is|infiltrat\w+|invad\w+|reaches|keeps|extends|confined|with a|segment|"
    r"zeigt|sichtbar|nachweisbar|lokalisiert)\b"
)
_NEEDS_PLACE = re.compile(
    r"lymphomas?|abscess(?:es)?|adenomas?|lipomas?|leiomyomas?|adenocarcinomas?|carcinomas?|"
    r"cancers?|squamous (?:cell )?(?:carcinoma|cancer)s?|nets?"
)
_NUMBER_OF = re.compile(r"\W*(?:number|no\.|count|anzahl)\b")
_NO_TUMOUR = re.compile(
    r"\b(?:no|without|free of|free from|negative|nothing|absence|lack|kein\w*|ohne|not (?:seen|"
    r"identified|detected|present)|none|never|neither|nor)\b|无|未见"
)
_EXAMINED = re.compile(r"\b(?:examined|sampled|harvested|retrieved|dissected|total|identified|submitted|found)\b")
_LARGE = re.compile(r"\b(?:not |nicht )?(?:enlarged|enlargement|too (?:large|big)|increased in size|vergrößert)\b")
_NOWHERE = frozenset({"ascites", "pleural effusion"})
_ARTICLES = frozenset({"a", "an", "eine", "einen", "einer", "ein"})
_HOLLOW = frozenset({"stomach", "colon", "esophagus"})
_MEASURED_SIGNS = frozenset({"ductal dilatation", "wall thickening", "fluid collection", "splenomegaly"})


def carrier_polarity(carrier: _Mention | None) -> str:
    """Return whether the mention says that something is there."""
    return carrier.context.polarity if carrier else ""


def _tumours() -> frozenset[str]:
    from tumorchain_jax.engine.graph.load import shipped_graph

    graph = shipped_graph()
    return frozenset(
        x for b in ("malignant", "of uncertain behaviour") for x in graph.subjects("behaves_as", b)
    )


def _is_attribute_key(key: str) -> bool:
    return bool(re.search(
        r"\b(?:size|dimension\w*|diameter|measure\w*|margins?|borders?|boundary|edges?|density|"
        r"attenuation|shape|form|contour|count|number|depth|enhancement|others?|features?|lesion|"
        r"mass|findings?|tumou?r|morphology|outline|invasion|größe|dichte|form|rand|begrenzung|"
        r"anzahl|tiefe|sonstiges|impression|[tnm]|stage|category)\b", key))  # fmt: skip
