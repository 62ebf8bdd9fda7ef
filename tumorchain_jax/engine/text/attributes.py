"""Attributes that no single term says: counts, current and former sizes, depth, age and sex."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tumorchain_jax.engine.text.measures import Measure, count_of, find_measures

# A length that follows or precedes these is no lesion's.
_NO_SIZE_AFTER = re.compile(
    r"^[\s)]*(?:from|above|below|proximal|distal|away|off|slices?|thick slices?|collimation|"
    r"sections?|reconstruct\w*|interval|deep|inferior to|superior to|cranial|caudal|margin|"
    r"from the|apart|distance|schicht\w*|oberhalb|unterhalb|entfernt|ab ano)\b"
)
_NO_SIZE_BEFORE = re.compile(
    r"\b(?:slice thickness|thickness of|distance(?: of)?|slices? of|collimation(?: of)?|reconstructed"
    r"(?: at| to)?|every|wall thickness|spans?|duct(?: is| measures?| of| up to| dilated(?: to)?|"
    r" measuring)*(?: up to)?|cali(?:ber|bre)(?: of)?|length of|segment of|over|within|less than|"
    r"below|under|smaller than|margin of|spleen(?: is| measures)?|threshold(?: of)?|"
    r"limit(?: of)?|schichtdicke|abstand)[\s:]*(?:approx\w*\.?|about|ca\.|up to)?\s*$"
)
_PRIOR_BEFORE = re.compile(
    r"(?:\b(?:previous\w*|prior(?:ly)?|former\w*|before|earlier|initial\w*|originally|baseline|"
    r"last (?:time|study|exam\w*|ct|scan)|zuvor|vormals|früher|vorher|ehemals|voruntersuchung|was|"
    r"were|had been|measured|old)\b[\s:,(=]*(?:(?:measur\w+|was|were|being|size|of|at|it|the|in|"
    r"diameter|mass|lesion|about|approximately|ca\.|up|to|with|had|a|on|study|ct|scan|exam\w*|"
    r"\d{4}|gemessen|mit)[\s:,(]*){0,6}|\b(?:compared (?:to|with)|versus|vs\.?|against|instead of|"
    r"rather than|from|von|gegenüber|im vergleich zu)\s+)$"
)
_WEAK_PRIOR = re.compile(r"\b(?:was|were|measured|had been|before|from|von|old)\b[^.]{0,40}$")
_FOLLOW_UP = re.compile(
    r"\b(?:now|current\w*|today|previous\w*|prior|formerly|increas\w+|decreas\w+|grown|grew|"
    r"enlarg\w+ from|progress\w+|regress\w+|shr[iau]nk\w*|aktuell|jetzt|zuvor|vormals|"
    r"größenprogredient|zunahme|abnahme|larger|smaller|compar\w+)\b"
)
_PRIOR_AFTER = re.compile(
    r"^[\s),]*(?:previously|before|earlier|formerly|at (?:that|the) time|on (?:the )?"
    r"(?:prior|previous|last|old|earlier|comparison)|in (?:the )?(?:prior|previous)|"
    r"(?:on|in|from|at|dated|vom|am) (?:\d{1,2}[./-]|\d{4}\b|jan|feb|mar|apr|may|jun|jul|aug|sep|"
    r"oct|nov|dec)|(?:weeks|months|years) ago|zuvor|vormals|in der voruntersuchung|initially|"
    r"at baseline)"
)
_THAN = re.compile(r"\b(?:compared|comparison|vs|versus|previous\w*|was|prior|up|down|related)\.? (?:to |with )?[^,;.(]{0,12}$")
_NOW_BEFORE = re.compile(r"\b(?:now|currently|today|presently|aktuell|jetzt|heute|to|auf)\b[^,;.(]{0,30}$")


@dataclass(frozen=True, slots=True)
class Size:
    """A length that may be a lesion's.

    Attributes:
        measure: the length.
        prior: it was so at an earlier time.
    """

    measure: Measure
    prior: bool


def find_sizes(text: str, start: int, end: int, unit: str = "") -> list[Size]:
    """Return the lengths of a sentence that may be sizes, with the time they hold for."""
    sentence = text[start:end]
    follow_up = bool(_FOLLOW_UP.search(sentence))
    sizes: list[Size] = []
    for measure in find_measures(text, start, end, unit):
        before = text[max(start, measure.start - 60) : measure.start]
        after = text[measure.end : min(end, measure.end + 40)]
        if _NO_SIZE_AFTER.match(after) or _NO_SIZE_BEFORE.search(before):
            continue
        if _is_now(before) and follow_up:
            # "The 3 cm mass now measures 4 cm".
            sizes = [Size(size.measure, True) for size in sizes]
        sizes.append(Size(measure, _is_prior(before, after, follow_up)))
    return sizes


def _is_now(before: str) -> bool:
    return bool(_NOW_BEFORE.search(before)) and not _THAN.search(before)


def _is_prior(before: str, after: str, follow_up: bool) -> bool:
    if _PRIOR_AFTER.match(after):
        return True
    if _is_now(before):
        return False
    match = _PRIOR_BEFORE.search(before)
    if not match:
        return False
    # "was", "measured" and "from" tell of the past only where something is compared.
    weak = _WEAK_PRIOR.match(before, match.start())
    return follow_up or not weak or before.rstrip().endswith(("(was", "(were", "(vs", "(vs."))


_COUNT_KEY = re.compile(
    r"\b(?:counts?|numbers?(?: of (?:the )?(?:\w+ ){0,2}(?:lesions?|masses|tumou?rs?|nodules?|foci|"
    r"metastases|nodes|cysts))?|no\. of (?:lesions|nodes)|anzahl(?: der (?:herde|läsionen))?|"
    r"lesion count|multiplicity|how many)"
    r"\s*[:=|]\s*(?P<count>\d{1,2}\b(?![.,]\d|\s?(?:mm|cm))|[a-zäöü]+)"
)
_CHINESE_COUNT = re.compile(r"(\d{1,2}|[一二三四五六七八九十两]) ?[枚个处][^,;.。]*$")
_SKIPPED = re.compile(
    r"[^\S\n]*(?:[-,]|\b(?:and|or|of|the|hypo\w*|hyper\w*|iso\w*|\w+ly|\w+ed|\w+ing|\w+al|\w+ic|"
    r"\w+ous|\w+ar|\w+ent|\w+ant|\w+ive|\w+ior|small|large|largest|big|further|other|more|new|"
    r"separate|distinct|sharp|liver|low|high|density|attenuation|tiny|round|oval|dense|ill|well|"
    r"soft|tissue|lymph|short|axis|similar|mixed|vague|known|lung|bowel|adjacent|sized|"
    r"positive|subtle|dark|bright|deep|additional|discrete|possible|suspected|mm|cm|x|"
    r"\d+(?:[.,]\d+)?|weitere\w*|neue\w*|runde\w*|scharf|unscharf|begrenzte\w*|vergrößerte\w*|\w+dense\w*|"
    r"große\w*|kleine\w*|pathologische\w*|\w+ige\w*|\w+iche\w*|\w+äre\w*|leber))[^\S\n]*$"
)


def count_before(text: str, begin: int, start: int) -> tuple[int, int, int] | None:
    """Return the number before a noun with the characters that say it: "two hypodense [lesions]".

    Args:
        text: of the report.
        begin: of the sentence.
        start: of the noun.
    """
    if chinese := _CHINESE_COUNT.search(text, max(begin, start - 16), start):
        count = count_of(chinese[1])
        return None if count is None else (count, *chinese.span(1))
    position = start
    for _ in range(12):
        before = text[max(begin, position - 40) : position].rstrip(" \t-\n(")
        position_end = max(begin, position - 40) + len(before)
        word = re.search(r"[\w.]+$", before)
        if not word:
            if before.endswith(","):
                position = position_end - 1
                continue
            return None
        at = position_end - len(word.group())
        count = count_of(word.group())
        if count is not None and not _is_label(text[max(begin, at - 14) : at], text[at:start]):
            return count, at, position_end
        if not _SKIPPED.search(" " + word.group()):
            return None
        position = at
    return None


_COUNT_AFTER = re.compile(
    r"\s*(?:\((?:n ?= ?)?(?P<bracket>\d{1,2})\)|[x*] ?(?P<times>\d{1,2})\b(?!\s?(?:mm|cm|x))|"
    r"[:=|]\s*(?P<key>\d{1,2}|[a-zäöü]{3,8})\b(?!\s?(?:mm|cm|[.,]\d|x\b))|n ?= ?(?P<n>\d{1,2})\b|"
    r"(?P<bare>\d{1,2})(?=\s*(?:,|;|enlarged|\(|$|up to|with)))"
)


def count_after(text: str, start: int, end: int) -> tuple[int, int, int] | None:
    """Return the number right after a noun: "nodes: 3", "nodes x 5", "nodes (n=4)"."""
    match = _COUNT_AFTER.match(text, start, end)
    if not match:
        return None
    name = next(name for name, found in match.groupdict().items() if found)
    count = count_of(match[name])
    return None if count is None else (count, *match.span(name))


def _is_label(before: str, rest: str) -> bool:
    """Whether a number belongs to a length or a name: "3 cm", "segment 7"."""
    if re.match(r"\d+(?:[.,]\d+)?[\s-]*(?:mm|cm|x|%|/|\.\d)", rest):
        return True
    return bool(re.search(r"(?:segments?|seg\.?|level|image|series|grade|stage|x|type|no\.?|[.,/])\s*$", before))


def count_key(text: str, start: int, end: int) -> tuple[int, int, int] | None:
    """Return the number that a key such as `Number of lesions:` gives, with its characters."""
    match = _COUNT_KEY.search(text, start, end)
    count = count_of(match["count"]) if match else None
    return (count, *match.span("count")) if match and count is not None else None


_ORGAN = (
    r"(?:stomach|spleen|liver|pancreas|duodenum|colon|bladder|urinary bladder|prostate|uterus|"
    r"aorta|trachea|bronchus|diaphragm|kidney|left kidney|adrenal|small bowel|small intestine|"
    r"jejunum|abdominal wall|pericardium|pleura|lung|vertebra\w*|vagina|transverse colon|"
    r"mesocolon|seminal vesicles?|heart|left atrium|milz|leber|magen|harnblase)"
)
_FAT = (
    r"(?:(?:surrounding |adjacent |perigastric |pericolic |pericolonic |paracolic |perirectal |"
    r"mesorectal |peri-?(?:o?esophageal|intestinal|visceral) |mesenteric |perivisceral |"
    r"neighbou?ring |perilesional |outer |nearby )*(?:fat(?:ty tissue)?|soft tissue|adipose tissue|"
    r"mesorectum|fettgewebe|subserosa\w*|adventitia|fatty tissue))"
)
_INTO = (
    r"(?:in(?:to|vad\w+|filtrat\w+|volv\w+|vasion of|vasion into|filtration of)|exten\w+ (?:in)?to|"
    r"extension (?:in)?to|reach\w*(?: into)?|grow\w* (?:in)?to|growth into|spread\w* into|"
    r"penetrat\w+(?: into)?|breach\w*(?: into)?|infiltriert|wächst in|breaks? (?:through )?into|"
    r"protrud\w+ into|pass\w* into)"
)
_THE = r"(?:\s+(?:the|its|of|around|into|das|die|den|adjacent|neighbou?ring|surrounding|nearby|outer|perigastric|pericolic))*\s+"
_DEPTHS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("neighbour", re.compile(
        rf"\b{_INTO}{_THE}(?:{_ORGAN}|(?:neighbou?ring |adjacent |another |other |nearby |"
        r"surrounding )(?:organs?|structures?|viscera|viscus)|neighbou?r\w*|nachbarorgane?)\b|"
        r"\b(?:invasion|infiltration|involvement) of" + _THE
        + rf"(?:{_ORGAN}|(?:neighbou?ring|adjacent|another|other|nearby) (?:organs?|structures?))\b|"
        r"\binto (?:a |an )?(?:neighbou?ring|adjacent|another|other) organ|"
        r"\b(?:neighbou?ring|adjacent|another) (?:organ|structure)s? (?:is|are) (?:invaded|infiltrated|involved)")),
    ("surface", re.compile(
        rf"\b(?:{_INTO}|perforat\w+|breach\w*|exten\w+ to|reach\w*|at|up to|touch\w*|involv\w+|"
        r"to|penetrat\w+)" + _THE
        + r"(?:outer surface|serosal? ?(?:surface)?|serosa|visceral peritoneum|outer (?:covering|"
        r"layer|lining|margin of the wall)|organ surface|surface(?: of the (?:organ|stomach|colon|"
        r"o?esophagus))?|peritoneal (?:surface|covering)|oberfläche)\b|"
        r"\bserosa(?:l surface)? (?:is |has been )?(?:reached|involved|breached|invaded|infiltrated)|"
        r"\bserosal (?:invasion|involvement|breach|penetration|infiltration)|transserosal")),
    ("fat", re.compile(
        rf"\b{_INTO}{_THE}{_FAT}|\b(?:invasion|infiltration|involvement) of{_THE}{_FAT}|"
        r"\b(?:beyond|through|outside|past) (?:the )?(?:\w+ )?(?:wall|muscularis(?: propria)?|"
        r"muscle layer)|"
        r"\bextramural (?:extension|growth|spread|component|infiltration)|\btransmural (?:growth|"
        r"extension|infiltration|invasion|spread)|"
        + rf"\b{_FAT} (?:is|are) (?:invaded|infiltrated|involved|reached)|"
        r"\bsubserosa\w*|\bperi\w+ fat (?:invasion|infiltration|involvement|extension)|"
        r"\bwandüberschreitend|\binfiltration (?:des|in das) (?:\w+ )?fettgewebes?|fettgewebsinfiltration")),
    ("inner wall", re.compile(
        r"\b(?:confined to|limited to|within|restricted to|in|involv\w+|invad\w+|infiltrat\w+(?: into)?|"
        r"exten\w+ (?:in)?to|stays? (?:with)?in|keeps? to|contained (?:with)?in|beschränkt auf|into)"
        r"(?:\s+(?:the|its|die|only))*\s+"
        r"(?:inner (?:wall|half|part|layers?|third|aspect|portion)(?: (?:half |part |layers? )?of (?:the |its )?(?:\w+ )?wall)?|"
        r"(?:sub)?mucosa\w*|mucosal layer|superficial (?:wall )?layers?|inner half)\b|"
        r"\b(?:intramucosal|submucosal invasion|superficial (?:wall )?involvement)\b")),
    ("wall", re.compile(
        r"\b(?:confined to|limited to|within|restricted to|keep\w* to|stays? (?:with)?in|remains? "
        r"(?:with)?in|contained (?:with)?in|respects?|held by|beschränkt auf|invad\w+|"
        r"infiltrat\w+(?: into)?|exten\w+ (?:in)?to|into)"
        r"(?:\s+(?:the|its|die|thickness|of|only|to))*\s+(?:(?:gastric|bowel|colonic|o?esophageal|organ|"
        r"stomach|muscular|rectal|outer|intestinal|muscle|visceral)\s+)*"
        r"(?:wall|muscularis(?: propria)?|muscle layer|muscle coat|wand)\b|"
        r"\b(?:not|no|without|nor)\b[^.;]{0,40}?\b(?:beyond|past|pass\w*|cross\w*|through|breach\w*|"
        r"outside|exceed\w*|transgress\w*|leave|leaving)(?:\s+(?:the|its|of|extension))*\s+(?:\w+\s+)?"
        r"(?:wall|muscularis)|\b(?:no|without)(?: \w+)? (?:extramural|transmural) (?:extension|growth|"
        r"spread|component|invasion)|\bintramural\b|\b(?:outer )?(?:fat|serosa) (?:is |are )?(?:intact|"
        r"preserved|clear|clean|not (?:involved|invaded|infiltrated|reached))")),
)  # fmt: skip
_DEPTH_KEY = re.compile(
    r"\b(?:depth|invasion|depth of invasion|wall invasion|tiefe|eindringtiefe|wall)\s*[:=|-]\s*"
    r"(?:(?P<neighbour>neighbou?r\w*|adjacent organ|other organ)|(?P<surface>(?:outer )?surface|serosa)|"
    r"(?P<fat>(?:\w+ )?fat|subserosa)|(?P<inner>inner|mucosa|submucosa)|(?P<wall>wall|muscul\w+))"
)
_DENIED = re.compile(r"\b(?:no|not|without|nor|never|neither|kein\w*|ohne|nicht)\b[^.;,]{0,50}$")


def find_depths(text: str, start: int, end: int) -> Iterator[tuple[str, int, int, bool]]:
    """Yield how far a tumour of a hollow organ reaches: value, characters, whether it is so.

    The deepest that is affirmed comes alone; what is denied comes besides.
    """
    if key := _DEPTH_KEY.search(text, start, end):
        value = next(name for name, found in key.groupdict().items() if found)
        yield "inner wall" if value == "inner" else value, *key.span(), True
        return
    found = False
    stays = _DEPTHS[-1][1].search(text, start, end)
    for value, pattern in _DEPTHS:
        match = pattern.search(text, start, end)
        if not match:
            continue
        before = text[max(start, match.start() - 60) : match.start()]
        denied = value not in ("wall", "inner wall") and bool(_DENIED.search(before))
        if denied and stays and stays.start() < match.end() and match.start() < stays.end():
            continue
        if denied:
            yield value, *match.span(), False
        elif not found:
            found = True
            yield value, *match.span(), True


_AGE = re.compile(
    r"(?<![\w.,])(?P<age>\d{1,3})(?:[\s-]*(?:years?|yrs?|y\.?o\.?|y/o|yo|jahre?)(?:[\s-]*(?:old|alt))?|"
    r"[\s-]*(?P<initial>y(?=\s*/?\s*[mf]\b)|(?=[mf]\b)|-?jährige[rn]?))(?![a-z])|"
    r"\bage[d]?[\s:=]{1,3}(?P<keyed>\d{1,3})\b|\balter\s*[:=]\s*(?P<alter>\d{1,3})\b|(?P<chinese>\d{1,3})岁"
)
_SEX = re.compile(
    r"\b(?:sex|gender|geschlecht)\s*[:=]\s*(?P<key>female|male|f|m|w|weiblich|männlich)\b|"
    r"\b(?P<female>wom[ae]n|female|lady|mrs|ms|frau|patientin|weiblich)\b|"
    r"\b(?P<male>m[ae]n|male|gentleman|mr|herr|männlich)\b|"
    r"\b\d{1,3}[\s-]*(?:y(?:/?o|rs?|ears?)?(?:[\s-]*old)?[\s,/]*)?(?P<letter>[mfw])\b(?!\s*\d)"
)


def find_age(text: str, start: int, end: int) -> tuple[int, int, int] | None:
    """Return the patient's age in years with its characters."""
    for match in _AGE.finditer(text, start, end):
        name = next(n for n in ("age", "keyed", "alter", "chinese") if match[n])
        after = text[match.end() : match.end() + 12].lstrip()
        if not after.startswith(("ago", "before", "after", "history", "of", "previous", "earlier")):
            if 0 < int(match[name]) <= 120:
                return int(match[name]), *match.span(name)
    return None


def find_sex(text: str, start: int, end: int) -> tuple[str, int, int] | None:
    """Return `female` or `male` with its characters."""
    match = _SEX.search(text, start, end)
    if not match:
        return None
    name = next(n for n in ("key", "female", "male", "letter") if match[n])
    word = match[name]
    if name in ("female", "male"):
        return name, *match.span(name)
    return "female" if word[0] in "fw" else "male", *match.span(name)
