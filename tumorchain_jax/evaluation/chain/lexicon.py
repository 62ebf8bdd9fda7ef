"""Words of radiology for the statements of the closed vocabulary, as patterns.

They match a text in lower case whose hyphens are spaces. A pattern stands before another one that
it contains. The lists are synonyms in general use, not the wordings of any one set of reports.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_FAT = r"(?:[a-z]+ )?(?:fat|fatty tissue)"
_INTO = (
    r"(?:reach|grow|extend|infiltrat|invad|spread|bulg|penetrat|involv)\w*|extension|infiltration"
    "|invasion|growth|spread"
)
_SURFACE = r"(?:serosa\w*|outer surface|serosal surface|surface|visceral peritoneum|capsule)"
_WALL = r"(?:bowel |gastric |muscular |esophageal )?wall"


class Pattern(NamedTuple):
    """An expression, and the kind and value that it stands for."""

    kind: str
    value: str
    pattern: re.Pattern[str]


def _patterns(rows: Iterable[tuple[str, str, str]]) -> tuple[Pattern, ...]:
    return tuple(
        Pattern(kind, value, re.compile(rf"(?<!\w)(?:{pattern})(?!\w)"))
        for kind, value, pattern in rows
    )


# What contains the name of an organ, looked for before organs are.
BEFORE_ORGANS = _patterns(
    (
        ("benign", "calcified granuloma", "calcified granulomas?|granulomas?"),
        ("benign", "vascular calcification",
         "vascular calcifications?|calcified plaques?|atheromatous calcifications?|arterioscler\\w+"
         "|atheroscler\\w+"),
        ("benign", "cyst", "(?:renal |kidney |hepatic |simple |benign )*cysts?"),
        ("benign", "haemangioma", "ha?emangiomas?"),
        ("benign", "fatty area", "fatty areas?|focal fat(?:ty)? \\w+|focal steatosis"),
        ("benign", "diverticulum", "diverticul\\w+"),
        ("benign", "accessory spleen", "accessory spleens?|splenules?|spleniculi|splenunculi"),
        ("benign", "gallstone", "gall ?(?:bladder )?stones?|cholelithiasis|cholecystolithiasis"),
        ("normal node", "", "normal lymph nodes?"),
        ("nodes", "metastatic",
         "(?:lymph node|nodal) (?:metasta\\w+|deposits?)|metastatic (?:lymph )?nodes?"),
        ("nodes", "named enlarged",
         "lymphadenopath\\w+|adenopath\\w+|nodal (?:disease|enlargement)"),
        ("nodes", "", "lymph ?nodes?|(?:lymphatic|regional) nodes?|lymph glands?|nodes?"),
        ("condition", "cirrhosis", "cirrho\\w+|nodular|nodularity"),
        ("condition", "inflammation",
         "pancreatitis|inflam\\w+|swollen|swelling|o?edemato\\w+|o?edema"),
        ("condition", "enlargement", "splenomegaly"),
        ("metastasis", "",
         "metasta\\w+|secondar(?:y|ies)(?: \\w+)?(?: deposits?)?|(?:tumou?r )?deposits?"
         "|distant (?:spread|disease)|(?:has|have|had) spread|spread (?:to|in|into)"
         "|disseminat\\w+(?: disease)?"),
    )
)  # fmt: skip

AFTER_ORGANS = _patterns(
    (
        ("depth", "wall",
         rf"(?:confined|limited|restricted|keeps?|kept|remains?|stays?"
         rf"|contained)[\w ]{{0,12}} (?:to|within|in|inside) "
         rf"(?:the )?{_WALL}|(?:does not|no|without|not)[\w ]{{0,24}}(?:pass|through|beyond"
         rf"|cross|leave|breach|outside)"
         rf"\w*[\w ]{{0,12}} (?:the )?{_WALL}|intramural"),
        ("depth", "surface",
         rf"(?:{_INTO}|breach\w*|cross\w*|perforat\w*|reached|involv\w*)[\w ]{{0,30}} {_SURFACE}"
         rf"|{_SURFACE}[\w ]{{0,16}} (?:is|are) (?:reached|breached|involved|infiltrated|invaded)"),
        ("depth", "fat",
         rf"(?:{_INTO})[\w ]{{0,40}} {_FAT}"
         rf"|{_FAT}[\w ]{{0,16}} (?:is|are) (?:infiltrated|invaded|involved|reached)"),
        ("others", "wall thickening",
         "(?:wall|mural)[\\w ]{0,20} thicken\\w+|(?:mural |wall )?thicken\\w+"
         "|thickened wall"),
        ("others", "ductal dilatation",
         "(?:ducts?|ductal)[\\w ]{0,24} dilat\\w+|dilat\\w+[\\w ]{0,20} ducts?|ductal dilat\\w+"
         "|(?:duct|ducts)[\\w ]{0,12} (?:is|are) (?:widened|enlarged|wide)"),
        ("others", "rim enhancement",
         "(?:rim|ring|peripheral|marginal)(?: of)? enhanc\\w+|enhanc\\w+[\\w ]{0,20} rim"
         "|enhanc\\w+"),
        ("others", "calcification", "calcifications?|calcified|calcific foc\\w+|calcific\\w*"),
        ("density", "hypodense",
         "hypo ?(?:dense|densit\\w+|attenuat\\w+)|(?:low|lower|decreased|reduced"
         "|diminished) (?:density|attenuation)"
         "|dark(?:er)?"),
        ("density", "hyperdense",
         "hyper ?(?:dense|densit\\w+|attenuat\\w+)|(?:high|higher|increased|raised"
         "|elevated) (?:density|attenuation)"
         "|bright(?:er)?"),
        ("density", "isodense", "iso ?(?:dense|attenuat\\w+)"),
        ("density", "heterogeneous", "heterogeneous|mixed (?:density|attenuation)"),
        ("boundary", "well-defined",
         "(?:well|clearly|sharply|smoothly|distinctly) (?:defined|circumscribed|demarcated"
         "|marginated|delineated|outlined"
         "|delimited)|(?:clear|sharp|smooth|distinct|crisp)(?:ly)? (?:borders?|margins?|edges?"
         "|boundar\\w+|contours?)"
         "|(?:borders?|margins?|edges?|boundar\\w+)[\\w ]{0,12} (?:clear|sharp|smooth|distinct"
         "|crisp)"),
        ("boundary", "ill-defined",
         "(?:ill|poorly|badly|vaguely|indistinctly) (?:defined|circumscribed|demarcated"
         "|marginated|delineated"
         "|outlined|delimited)"
         "|(?:unclear|blurr\\w+|fuzzy|indistinct|vague|hazy|infiltrative) (?:borders?|margins?"
         "|edges?|boundar\\w+|contours?)"
         "|(?:borders?|margins?|edges?|boundar\\w+)[\\w ]{0,12} (?:unclear|blurred|fuzzy"
         "|indistinct|vague|hazy)"
         "|indistinct"),
        ("shape", "round", "round(?:ed|ish)?|spherical|circular|globular|ball like|ball shaped"),
        ("shape", "oval", "oval|ovoid|ellipsoid\\w*"),
        ("shape", "lobulated", "lobulated|lobular"),
        ("shape", "irregular",
         "irregular(?:ly)?(?: shaped)?(?: in (?:outline|shape|contour))?|amorphous"),
        ("condition", "enlargement", "enlarged|enlargement|(?:increased|increase) in size"),
        ("third", "upper third", "upper third"),
        ("third", "middle third", "middle third"),
        ("third", "lower third", "lower third"),
        ("tumour", "",
         "tumou?rs?|tumou?ral|malignan\\w+|neoplas\\w+|cancers?|cancerous|(?:adeno)?carcinomas?"
         "|primary"
         "|hcc|sarcomas?"),
        ("lesion", "",
         "lesions?|mass(?:es)?|nodules?|space occupying|growths?|foc(?:us|i)"),
        ("normal", "",
         "normal|unremarkable|within normal limits|intact|preserved|regular|inconspicuous|healthy"
         "|clear|abnormal\\w*|remarkable|patholog\\w+ (?:change|finding)s?|conspicuous"),
        ("benign word", "", "benign|harmless"),
        ("size", "small", "small"),
        ("size", "medium", "medium(?: sized)?|moderate(?:ly)? (?:sized|large)"),
        ("size", "large", "large|sizeable|bulky"),
    )
)  # fmt: skip

MEASURE = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?) ?(mm|cm|millimet(?:er|re)s?|centimet(?:er|re)s?)(?!\w)"
)
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
           "twelve")  # fmt: skip
_NUMBER = rf"\d{{1,2}}|{'|'.join(NUMBERS)}|single|solitary|a pair of|both"
_THING = r"(?:lesions?|mass(?:es)?|nodules?|tumou?rs?|foci|growths?)"
LESION_COUNT = re.compile(rf"(?<![\w.])({_NUMBER})(?! ?[cm]m)(?:,? \w+){{0,6}}? {_THING}(?!\w)")
NODE_COUNT = re.compile(rf"(?<![\w.])({_NUMBER})(?![\w.]| ?[cm]m)(?! \w+ ?[cm]m)")
INTRODUCED = re.compile(rf"(?<!\w)(?:an?|another|further)(?: [\w.,]+){{0,8}}? {_THING}(?!\w)")
STAGES = re.compile(r"(?<![^\W_])[cpy]*([tnm])([0-4][a-d]?|is|x)(?![^\W_])(?! weighted)")

# Words that deny what follows them, up to the end of their clause; words that deny what is before.
DENIES_AFTER = re.compile(
    r"(?<!\w)(?:no|not|nothing|none|neither|nor|never|without|free (?:of|from)|absence of|lacks?"
    r"|lacking|negative for|ruled out|excludes?|devoid of|cannot|unlikely)(?!\w)"
)
DENIES_BEFORE = re.compile(
    r"(?<!\w)(?:(?:is|are|was|were|can|could|has|have)(?: been)? not|isn't|aren't|cannot be|not"
    r"|none|nowhere)(?: \w+)? (?:seen|identified|present|evident|found|visible|demonstrated"
    r"|detected"
    r"|observed|appreciated|shown|noted|recognised|recognized|made out)(?!\w)"
    r"|(?<!\w)(?:absent|excluded|ruled out|unlikely)(?!\w)|: (?:none|no|absent)(?!\w)"
)
UNSURE = re.compile(
    r"(?<!\w)(?:(?:can ?not|can't|could not)(?: be)? (?:exclude\w*|ruled? out)|not excluded"
    r"|uncertain"
    r"|unclear whether|unsure|either|looked for|search(?:ed)? for|asks? about"
    r"|needs? a closer look)(?!\w)"
)
# What ends the scope of a denial within a clause.
SCOPE_END = re.compile(r", (?:which|it|they|and (?:it|they|is|are))(?!\w)")
# Denials that deny nothing of the vocabulary.
EMPTY_DENIAL = re.compile(
    r"(?<!\w)(?:not only|no (?:significance|importance|follow up|further (?:action|follow up))"
    r"|no (?:clinical )?relevance|needs? no \w+|need no \w+|not (?:appl\w+|needed|required))(?!\w)"
)
