"""The forms of identifiers in reports: dates, numbers, addresses, names after a label or title."""

import re
from typing import Literal

Identifier = Literal["NAME", "DATE", "AGE", "ID", "PHONE", "MAIL", "ADDRESS", "URL", "PLACE"]

_MONTH = (
    r"(?:Jan(?:uary?|uar)?|Feb(?:ruar[y]?)?|Mar(?:ch)?|M(?:ä|ae)rz|Apr(?:il)?|May|Mai|June?|Juni|"
    r"July?|Juli|Aug(?:ust)?|Sept?(?:ember)?|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?)"
)
_YEAR = r"(?:1[89]|20|21)\d{2}"
_DAY = r"(?:3[01]|[12]\d|0?[1-9])"
_MONTHS = r"(?:1[0-2]|0?[1-9])"
_TIME = r"(?:[ T,]{1,3}(?:at |um )?\d{1,2}:\d{2}(?::\d{2})?(?: ?[AaPp]\.?[Mm]\.?| ?Uhr|Z)?)?"
_DATES = (
    rf"(?<![\d.,/-])(?:{_YEAR}[-/.]{_MONTHS}[-/.]{_DAY}|{_DAY}[-/.]{_MONTHS}[-/.](?:{_YEAR}|"
    rf"\d{{2}})|"
    rf"{_MONTHS}[-/]{_DAY}[-/](?:{_YEAR}|\d{{2}})){_TIME}(?![\d/-]|\.\d| ?(?:mm|cm)\b)",
    rf"(?<!\w){_DAY}(?:st|nd|rd|th|\.)?[ -]?(?:of )?{_MONTH}\.?,?[ -]?(?:{_YEAR}|'?\d{{2}}(?!\d|"
    rf" ?(?:mm|cm)))?"
    rf"{_TIME}(?!\w)",
    rf"(?<!\w){_MONTH}\.?[ -]{{1,2}}{_DAY}(?:st|nd|rd|th)?(?:,? {{1,2}}{_YEAR})?{_TIME}(?![\w.]\d|"
    rf"\w)",
    rf"(?<!\w){_MONTH}\.?,? (?:of )?{_YEAR}(?!\w)",
    rf"(?<![\d.,/-]){_MONTHS}/{_YEAR}(?![\d/])",
    r"(?<!\d)(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\d{6})?(?!\d)",
    r"(?<!\d)\d{4}年\d{1,2}月(?:\d{1,2}日)?",
)
_YEAR_ALONE = (
    rf"(?<=in ){_YEAR}(?![\w.,]?\d)(?! ?(?:mm|cm|HU))", rf"(?<=since ){_YEAR}(?!\d)",
    rf"(?<=from ){_YEAR}(?!\d| ?(?:mm|cm))", rf"(?<=of ){_YEAR}(?!\d| ?(?:mm|cm|HU))",
    rf"(?<=dated ){_YEAR}(?!\d)", rf"(?<=seit ){_YEAR}(?!\d)", rf"(?<=\(){_YEAR}(?=\))",
    rf"(?<=von ){_YEAR}(?!\d)", rf"(?<=vom ){_YEAR}(?!\d)",
)  # fmt: skip
_ID_LABEL = (
    r"(?:MRN|M\.R\.N\.|Medical [Rr]ecord(?: [Nn](?:o|umber|r))?|Accession(?: [Nn](?:o|umber))?|Acc|"
    r"ACC|Patient[- ]?(?:ID|[Nn](?:o|umber|r))|Pat\.?[- ]?(?:ID|[Nn]r)|Case [Nn](?:o|umber)|"
    r"Fall(?:nummer|-?[Nn]r)|Aufnahme(?:nummer|-?[Nn]r)|Auftrags(?:nummer|-?[Nn]r)|"
    r"Order(?: [Nn]o)?|"
    r"Exam(?:ination)?[- ](?:ID|[Nn](?:o|umber))|Study[- ](?:ID|[Nn](?:o|umber)|UID)|"
    r"Hospital [Nn](?:o|umber)|NHS(?: [Nn](?:o|umber))?|"
    r"SSN|Social [Ss]ecurity(?: [Nn](?:o|umber))?|Insurance(?: [Nn](?:o|umber)| ID)?|"
    r"Policy(?: [Nn](?:o|umber))?|"
    r"Versicherten(?:nummer|-?[Nn]r)|Encounter(?: [Nn](?:o|umber)| ID)?|Visit(?: [Nn](?:o|umber)|"
    r" ID)?|"
    r"Account(?: [Nn](?:o|umber))?|Chart(?: [Nn](?:o|umber))?|Specimen(?: [Nn](?:o|umber)| ID)?|"
    r"Lab(?: [Nn]o| ID)|"
    r"Path(?:ology)? [Nn](?:o|umber)|License(?: [Nn](?:o|umber))?|Passport(?: [Nn](?:o|umber))?|"
    r"Request(?: [Nn](?:o|umber)| ID)|"
    r"(?:SOP )?Instance UID|UID|ID|Unit [Nn](?:o|umber)|病历号|住院号|检查号)"
)
RULES: tuple[tuple[Identifier, tuple[str, ...]], ...] = (
    ("MAIL", (r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}",)),
    ("URL", (
        r"(?:https?://|www\.)[^\s<>\"')\]]{1,200}",
        r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])",
    )),
    ("ID", (
        rf"(?<![\w-]){_ID_LABEL}\.?\s{{0,2}}[#:=.]{{0,2}}\s{{0,3}}(?:is |was |[Nn]o\.? ?|"
        rf"[Nn]r\.? ?|#)?"
        r"(?P<x>(?=[A-Za-z./-]{0,12}\d)[A-Za-z0-9][A-Za-z0-9./-]{2,40}(?<=[A-Za-z0-9]))",
        r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])",
        r"(?<![\d.])(?:1\.2\.\d{1,6}|2\.16\.\d{1,6})(?:\.\d{1,30}){2,20}",
        r"(?<![\w.,/-])(?:[A-Z]{1,4}[-/ ]?)?\d{2}[-/]\d{4,8}(?![\w/-]|\.\d)",
        r"(?<![\w.,/-])[A-Z]{1,4}[-/]?\d{5,12}(?![\w/-]|\.\d)",
        r"(?<![\w.,/+-])\d{7,12}(?![\w/-]|\.\d)",
        r"(?<![\w.,/+-])\d{3}[- ]\d{3}[- ]\d{4}(?=\s*\(NHS)",
        r"(?<=#)\d{4,12}(?!\d)",
    )),
    ("PHONE", (
        r"(?:[Tt]el(?:ephone|efon)?|TEL|[Pp]hone|PHONE|[Ff]ax|FAX|[Mm]obile|[Cc]ell|[Pp]ager|"
        r"[Bb]leep|[Ee]xt(?:ension)?|"
        r"[Cc]all(?:back)?(?: at)?|Handy|Durchwahl|电话)\.?\s{0,2}(?:[Nn](?:o|umber|"
        r"r)\.?)?\s{0,2}[:#]?\s{0,3}"
        r"(?P<x>\+?[\d(][\d\s()./-]{2,22}\d)",
        r"(?<![\w+])\+\d{1,3}[\s./-]?(?:\(0?\d{1,4}\)[\s./-]?)?\d[\d\s./-]{5,16}\d(?!\w)",
        r"(?<![\w.,/-])\(\d{3,5}\)[\s.-]?\d{3,4}[\s.-]?\d{3,5}(?![\w-])",
        r"(?<![\w.,/-])\d{3}[-. ]\d{3}[-. ]\d{4}(?![\w-])",
        r"(?<![\w.,/-])0\d{2,4}[\s/-]\d{3,4}[\s-]?\d{3,6}(?![\w-])",
    )),
    ("DATE", (*_DATES, *_YEAR_ALONE)),
    ("AGE", (
        r"(?<![\w.,])(?P<x>(?:9\d|1[0-2]\d))(?=[\s-]*(?:years?|yrs?|y\.?o\.?|y/o|yo|jahre?|Jahre?|"
        r"-?jährige)\b)",
        r"(?<![\w.,])(?P<x>(?:9\d|1[0-2]\d))(?=[\s-]?(?:[yY]\s?/?\s?)?[MFmf]\b)",
        r"\b[Aa]ged?[\s:=]{1,3}(?:of )?(?P<x>(?:9\d|1[0-2]\d))(?!\d| ?(?:mm|cm))",
        r"\bAlter\s*[:=]\s*(?P<x>(?:9\d|1[0-2]\d))(?!\d)", r"(?<!\d)(?P<x>(?:9\d|1[0-2]\d))(?=岁)",
    )),
    ("ADDRESS", (
        r"(?<!\w)\d{1,5}[A-Za-z]?,? (?:[NSEW]\.? )?(?:[A-Z][a-z'-]{1,20} ){1,4}(?:Street|St|"
        r"Avenue|Ave|Road|Rd|"
        r"Boulevard|Blvd|Lane|Ln|Drive|Dr(?!\.? [A-Z])|Court|Ct|Place|Pl|Way|Terrace|Square|"
        r"Parkway|Pkwy|Highway|"
        r"Close|Crescent|Gardens|Row|Circle)\b\.?(?:,? (?:Apt|Suite|Unit|Floor|#)\.? ?\w{1,6})?"
        r"(?:,? [A-Z][a-z]+(?: [A-Z][a-z]+)?,? [A-Z]{2},? \d{5}(?:-\d{4})?)?",
        r"(?<!\w)[A-ZÄÖÜ][\wäöüß.-]{1,25}(?:straße|strasse|str\.|weg|platz|allee|gasse|ring|ufer|"
        r"damm)\s\d{1,4}\s?[a-z]?(?!\w)"
        r"(?:,?\s+\d{5}\s+[A-ZÄÖÜ][\wäöüß-]{2,25})?",
        r"(?<!\w)(?:P\.?O\.? Box|Postfach) \d{1,8}",
        r"(?<!\w)[A-Z]{2},? \d{5}(?:-\d{4})?(?![\w-])",
        r"(?<!\w)\d{5} [A-ZÄÖÜ][a-zäöüß]{3,25}(?= |,|\n|$|\.)(?! (?:mm|cm))",
        r"(?<!\w)[A-Z]{1,2}\d[A-Z\d]? \d[A-Z]{2}(?!\w)",
        r"(?:[Aa]ddress|ADDRESS|Anschrift|Adresse|Wohnhaft|"
        r"地址)\s{0,2}[:\uff1a]\s{0,3}(?P<x>[^\n;]{5,90}?)(?=\n|;|$|\. )",
    )),
    ("PLACE", (
        r"(?<!\w)(?:(?:St\.?|Saint|Mount|Mt\.?) )?(?:[A-Z][\w'.-]{1,20} ){1,4}(?:Hospital|"
        r"Medical Cent(?:er|re)|Clinic|Infirmary|"
        r"Health System|Imaging Cent(?:er|re)|Cancer Cent(?:er|re)|Healthcare|Health Cent(?:er|"
        r"re))(?!\w)",
        r"(?<!\w)(?:Universitätsklinikum|Klinikum|Krankenhaus|Universitätsklinik|Radiologie am|"
        r"MVZ|Praxis)(?: (?:am|der|des|im|zum|St\.|[A-ZÄÖÜ][\wäöüß.-]{2,20})){1,4}",
        r"[\u4e00-\u9fff]{2,10}医院",
    )),
)  # fmt: skip
"""Kind -> expressions; where one has a group `x`, that is the identifier."""
_NAME = r"(?:[A-ZÄÖÜÁÉ][a-zA-Zäöüßáéíóúñçèàê'\u2019-]{0,24}\.?)"
_PREFIX = r"(?:(?:van|von|de|der|den|zu|da|di|del|la|le|al|el|bin|ten|ter|dos)(?: |-)){0,2}"
_FULL = rf"{_PREFIX}{_NAME}(?:,? {_PREFIX}{_NAME}){{0,3}}"
_NAME_LABEL = (
    r"(?:Patient(?:'s)?(?: [Nn]ame)?|PATIENT(?: NAME)?|Pat\.?|Name|NAME|Full [Nn]ame|Surname|"
    r"First [Nn]ame|Last [Nn]ame|Given [Nn]ame|"
    r"Family [Nn]ame|Nachname|Vorname|Patientin|Radiologist|RADIOLOGIST|Reporting [Rr]adiologist|"
    r"Attending(?: [Pp]hysician)?|Referring(?: [Pp]hysician| [Dd]octor| MD)?|"
    r"Referred by|Requesting(?: [Pp]hysician| [Cc]linician)?|Ordering(?: [Pp]hysician|"
    r" [Pp]rovider)?|Physician|Consultant|Surgeon|Pathologist|Resident|"
    r"Dictated [Bb]y|DICTATED BY|Signed(?: [Bb]y)?|SIGNED BY|Electronically [Ss]igned(?: [Bb]y)?|"
    r"Reported [Bb]y|Read [Bb]y|Transcribed [Bb]y|Verified [Bb]y|Approved [Bb]y|"
    r"Interpreted [Bb]y|Reviewed [Bb]y|Author|Next of [Kk]in|Contact(?: [Pp]erson)?|Attention|"
    r"Attn|cc|CC|GP|"
    r"Zuweiser(?:in)?|Einsender(?:in)?|Befunder(?:in)?|Arzt|Ärztin|Oberarzt|Überweiser|gez\.|"
    r"Unterschrift|Dear|Sehr geehrte[r]?|姓名|患者|报告医师|审核医师)"
)
NAMED = (
    re.compile(rf"(?<![\w-]){_NAME_LABEL}\s{{0,2}}[:\uff1a=]\s{{0,3}}"
        rf"(?:(?:Mr|Mrs|Ms|Miss|Dr|Prof|Herr|Frau|med|Dr\. med)\.?\s)*(?P<x>{_FULL})"
    ),
    re.compile(
        r"(?<![\w-])(?:[Dd]ictated|[Ss]igned|[Rr]eported|[Rr]ead|[Tt]ranscribed|[Vv]erified|"
        r"[Aa]pproved|[Ii]nterpreted|[Rr]eviewed|"
        r"[Dd]iscussed|[Cc]ommunicated|[Rr]eferred|[Nn]otified|[Cc]onveyed|[Rr]elayed|"
        r"[Ee]scalated|[Pp]honed)"
        r"(?: (?:electronically|by|with|to|verbally))+ (?:(?:Mr|Mrs|Ms|Miss|Dr|Prof|Nurse)\.?\s)*"
        rf"(?P<x>{_FULL})"
    ),
    re.compile(
        r"(?<!\w)(?:Mr|Mrs|Ms|Miss|Mx|Dr|DR|MR|MRS|MS|Prof|PROF|Professor|Doctor|Nurse|Sister|"
        r"Herrn?|Frau|Fr|Hr)\.?"
        r"(?:\s(?:Prof|Dr|med|PD|Dipl)\.?)*\s{1,2}"
        rf"(?P<x>{_FULL})"
    ),
    re.compile(rf"(?<!\w)(?P<x>{_NAME}(?: {_NAME}){{1,3}}),? "
        r"(?:MD|M\.D\.|DO|D\.O\.|MBBS|FRCR|RN|PhD|Ph\.D\.|FRCPath|PA-C|NP|Facharzt|"
        r"Fachärztin)(?!\w)"),
    re.compile(r"(?<![\w-])(?P<x>[A-ZÄÖÜ][A-ZÄÖÜ'-]{2,20}, ?"
        r"[A-ZÄÖÜ][A-Za-zäöüß'-]{1,20}(?: [A-Z]\.?)?)"
        r"(?=\s*(?:\(|,|$|\n|;|DOB|MRN|\*|geb))",
        re.MULTILINE,
    ),
    re.compile(r"(?<=\^)(?P<x>[A-Za-z]{2,20})|(?<!\w)(?P<y>[A-Za-z]{2,20})(?=\^)"),
    re.compile(r"(?:姓名|患者姓名|报告医师|审核医师|医师)[:\uff1a]\s?(?P<x>[\u4e00-\u9fff]{2,4})"),
    re.compile(rf"(?:[Pp]atient|[Mm]an|[Ww]oman|[Ll]ady|[Gg]entleman)(?:,| named| called) "
        rf"(?P<x>{_NAME} {_NAME})(?=,| (?:is|was|has|presents))"),
)  # fmt: skip
"""Expressions for names after a label or title, or in the forms that registers have."""
# Words in capitals that follow a label or title and are no names.
NO_NAMES = frozenset(
    [
        "the",
        "and",
        "or",
        "of",
        "is",
        "was",
        "has",
        "had",
        "with",
        "no",
        "not",
        "in",
        "on",
        "at",
        "for",
        "to",
        "a",
        "an",
        "date",
        "dob",
        "sex",
        "gender",
        "age",
        "mrn",
        "id",
        "exam",
        "study",
        "history",
        "indication",
        "technique",
        "findings",
        "impression",
        "conclusion",
        "comparison",
        "clinical",
        "report",
        "ct",
        "mri",
        "male",
        "female",
        "none",
        "unknown",
        "weiblich",
        "männlich",
        "name",
        "department",
        "radiology",
        "surgery",
        "oncology",
        "hospital",
        "not",
        "available",
        "abdomen",
        "chest",
        "pelvis",
        "patient",
        "presents",
        "this",
        "that",
        "there",
        "time",
        "reason",
        "procedure",
        "md",
        "agreed",
        "final",
        "preliminary",
        "addendum",
        "electronically",
        "signed",
        "dr",
        "mr",
        "mrs",
        "ms",
        "prof",
        "his",
        "her",
        "he",
        "she",
        "by",
        "team",
        "liver",
        "spleen",
        "pancreas",
        "stomach",
        "colon",
        "clinic",
        "ward",
        "surgeons",
        "surgeon",
        "staff",
        "physician",
        "referring",
        "befund",
        "beurteilung",
        "klinische",
        "angaben",
        "technik",
        "geb",
        "geboren",
    ]
)
