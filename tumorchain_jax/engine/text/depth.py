"""How far a tumour of a hollow organ reaches, as sentences say it."""

import re
from collections.abc import Iterator

_ORGAN = (
    r"(?:stomach|spleen|liver|pancreas|duodenum|colon|bladder|urinary bladder|prostate|uterus|"
    r"aorta|trachea|bronchus|diaphragm|kidney|left kidney|adrenal|small bowel|small intestine|"
    r"jejunum|abdominal wall|pericardium|pleura|zwerchfell|pankreas|kolon|niere|prostata|"
    r"bauchwand|lung|vertebra\w*|vagina|transverse colon|"
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
    r"penetrat\w+(?: into)?|breach\w*(?: into)?|infiltriert|invadiert|wächst in|bricht in|"
    r"dringt in|erreicht|durchbricht|penetriert|reicht (?:bis )?(?:an|in)|"
    r"breaks? (?:through )?into|"
    r"protrud\w+ into|pass\w* into)"
)
_THE = (
    r"(?:\s+(?:the|its|of|around|into|an?|one|das|die|den|dem|der|ein\w*|umgebende\w*|"
    r"angrenzende\w*|"
    r"umliegende\w*|benachbarte\w*|peri\w+(?:ische|kale)\w*|adjacent|neighbou?ring|surrounding|"
    r"nearby|outer|"
    r"perigastric|pericolic))*\s+"
)
_DEPTHS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("neighbour", re.compile(
        rf"\b{_INTO}{_THE}(?:{_ORGAN}|(?:neighbou?ring |adjacent |another |other |nearby |"
        r"surrounding )(?:organs?|structures?|viscera|viscus)|neighbou?r\w*|nachbar\w+|organe?n?|"
        r"(?:organ|structure)s? (?:next|adjacent|beside|"
        r"close|near)\b)\b|\bnachbarorgane?n? (?:ist |sind |wird |werden )?(?:infiltriert|"
        r"invadiert)|"
        r"\b(?:invasion|infiltration|involvement) of" + _THE
        + rf"(?:{_ORGAN}|(?:neighbou?ring|adjacent|another|other|nearby) (?:organ|structure)s?)\b|"
        r"\binto (?:a |an )?(?:neighbou?ring|adjacent|another|other) organ|"
        r"\b(?:neighbou?ring|adjacent|another) (?:organ|structure)s? (?:is|are) (?:invaded|"
        r"infiltrated|involved)")),
    ("surface", re.compile(
        rf"\b(?:{_INTO}|perforat\w+|breach\w*|exten\w+ to|reach\w*|at|up to|touch\w*|involv\w+|"
        r"to|penetrat\w+)" + _THE
        + r"(?:outer surface|serosal? ?(?:surface)?|serosa|visceral peritoneum|outer (?:covering|"
        r"layer|lining|margin of the wall)|organ surface|surface(?: of the (?:organ|stomach|colon|"
        r"o?esophagus))?|peritoneal (?:surface|covering)|oberfläche)\b|"
        r"\bserosa(?:l surface)? (?:is |has been )?(?:reached|involved|breached|invaded|"
        r"infiltrated)|"
        r"\bserosal (?:invasion|involvement|breach|penetration|infiltration)|transserosal")),
    ("fat", re.compile(
        rf"\b{_INTO}{_THE}{_FAT}|\b(?:invasion|infiltration|involvement) of{_THE}{_FAT}|"
        r"\b(?:beyond|through|outside|past) (?:the )?(?:\w+ )?(?:wall|muscularis(?: propria)?|"
        r"muscle layer)|"
        r"\bextramural (?:extension|growth|spread|component|infiltration)|\btransmural (?:growth|"
        r"extension|infiltration|invasion|spread)|"
        + rf"\b{_FAT} (?:is|are) (?:invaded|infiltrated|involved|reached)|"
        r"\bsubserosa\w*|\bperi\w+ fat (?:invasion|infiltration|involvement|extension)|"
        r"\bwandüberschreitend\w*|\büberschreitet (?:die |das )?\w*(?:wand|muskularis|"
        r"muscularis)(?! nicht|\w* nicht)|"
        r"\b\binfiltration (?:des|in das) (?:\w+ )?fettgewebes?|"
        r"fettgewebsinfiltration")),
    ("inner wall", re.compile(
        r"\b(?:not|no|without|nor|never|nicht|ohne)\b[^.;]{0,40}?\b(?:beyond|past|pass\w*|"
        r"cross\w*|through|breach\w*|"
        r"outside|exceed\w*|transgress\w*|leav\w+)(?:\s+(?:the|its|of|"
        r"extension))*\s+(?:sub)?mucosa\w*|"
        r"\b(?:not|no|without|nor|never|nicht|ohne)\b[^.;]{0,30}?\b(?:reach\w*|involv\w+(?: of)?|"
        r"invad\w+|"
        r"invasion of|touch\w*|enter\w*|infiltrat\w+(?: of)?)(?:\s+(?:the|its|"
        r"of))*\s+(?:muscularis|muscle layer|"
        r"muscle coat|muscular layer|muskularis)|"
        r"\b(?:muscularis(?: propria)?|muscle layer|muscle coat|muskularis) (?:(?:is|remains|"
        r"appears|ist) )?(?:intact|spared|"
        r"preserved|free|uninvolved|not (?:involved|invaded|reached|infiltrated|affected)|intakt|"
        r"frei|nicht (?:erreicht|"
        r"infiltriert|befallen))|"
        r"\bonly (?:the )?(?:sub)?mucosa\w*|\b(?:above|superficial to) (?:the )?(?:muscularis|"
        r"muscle layer)|"
        r"\b(?:sub)?muk?cosa\w* (?:nicht|not) (?:\w+ )?(?:überschr\w+|passed|crossed|breached|"
        r"exceeded)|"
        r"\bauf (?:die )?(?:innere\w*|(?:sub)?mu[kc]osa\w*)\b[^.;]{0,30}(?:beschränkt|begrenzt)|"
        r"\b(?:confined to|limited to|within|restricted to|in|involv\w+|invad\w+|"
        r"infiltrat\w+(?: into)?|"
        r"exten\w+ (?:in)?to|stays? (?:with)?in|keeps? to|contained (?:with)?in|beschränkt auf|"
        r"into)"
        r"(?:\s+(?:the|its|die|only))*\s+"
        r"(?:inner (?:wall|half|part|layers?|third|aspect|portion)(?: (?:half |part |"
        r"layers? )?of (?:the |its )?(?:\w+ )?wall)?|"
        r"(?:sub)?mucosa\w*|mucosal layer|superficial (?:wall )?layers?|inner half)\b|"
        r"\b(?:intramucosal|submucosal invasion|superficial (?:wall )?involvement)\b")),
    ("wall", re.compile(
        r"\b(?:auf die|innerhalb der|in der) \w*wand (?:beschränkt|begrenzt|gelegen)|"
        r"\bbeschränkt (?:sich )?auf die \w*wand|\bbleibt (?:in|innerhalb) der \w*wand|"
        r"\büberschreitet (?:die |das )?(?:\w*wand|muskularis|muscularis)(?:grenze)? nicht|"
        r"\b(?:nicht|ohne) (?:\w+ )?(?:wandüberschr\w+|transmural\w*)|"
        r"\bohne überschreitung der \w*wand|"
        r"\b(?:muscularis(?: propria)?|muscle layer|\w*wall) (?:is |are )?not (?:breached|"
        r"crossed|passed|penetrated|exceeded|"
        r"transgressed)|"
        r"\b(?:confined to|limited to|within|restricted to|keep\w* to|stays? (?:with)?in|remains? "
        r"(?:with)?in|contained (?:with)?in|respects?|held by|beschränkt auf|invad\w+|"
        r"infiltrat\w+(?: into)?|exten\w+ (?:in)?to|into)"
        r"(?:\s+(?:the|its|die|thickness|of|only|to))*\s+(?:(?:gastric|bowel|colonic|o?esophageal|"
        r"organ|"
        r"stomach|muscular|rectal|outer|intestinal|muscle|visceral)\s+)*"
        r"(?:wall|muscularis(?: propria)?|muscle layer|muscle coat|wand)\b|"
        r"\b(?:not|no|without|nor)\b[^.;]{0,40}?\b(?:beyond|past|pass\w*|cross\w*|through|"
        r"breach\w*|"
        r"outside|exceed\w*|transgress\w*|leave|leaving)(?:\s+(?:the|its|of|"
        r"extension))*\s+(?:\w+\s+)?"
        r"(?:wall|muscularis)|\b(?:no|without)(?: \w+)? (?:extramural|transmural) (?:extension|"
        r"growth|"
        r"spread|component|invasion)|\bintramural\b|\b(?:outer )?(?:fat|serosa) (?:is |"
        r"are )?(?:intact|"
        r"preserved|clear|clean|not (?:involved|invaded|infiltrated|reached))")),
)  # fmt: skip
_DEPTH_KEY = re.compile(
    r"\b(?:depth|invasion|depth of invasion|wall invasion|tiefe|eindringtiefe|wall)\s*[:=|-]\s*"
    r"(?:(?P<neighbour>neighbou?r\w*|adjacent organ|other organ)|(?P<surface>(?:outer )?surface|"
    r"serosa)|"
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
