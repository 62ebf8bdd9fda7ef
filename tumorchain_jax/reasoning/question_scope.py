"""Questions that a model of abdominal CT can be asked at all.

A question is in scope if its words are about the body, findings, stages, the scan or a report. The
rules are about words, not about sense: they stop what no answer could be right for ("What is the
capital of France?") before a model answers it in its usual confident way.
"""

import re

from tumorchain_jax.anatomy.organs import labels_named, normalise_name

# Words that alone put a question in scope: they are hardly used outside medicine and imaging.
_STRONG = re.compile(
    r"\b(?:"
    r"tumou?r\w*|lesion\w*|cancer\w*|carcino\w*|adenocarcino\w*|neoplas\w*|malignan\w*|benign"
    r"|metasta\w*|nodul\w*|\w*cyst\w*|polyp\w*|abscess\w*|hemangioma\w*|haemangioma\w*"
    r"|lymph\w*|\w+noma\w*|\w+coma\b|\w+phoma\b|\w+itis|\w*adenopath\w*|\w+megaly|steato\w*"
    r"|stenos\w*|fibros\w*|thromb\w*|necro\w*|divertic\w*|calcif\w*|hyper\w*dens\w*"
    r"|hypo\w*dens\w*|isodens\w*|\w*attenuat\w*|opacit\w*|ascites|\w*peritone\w*|mesenter\w*"
    r"|omentum|omental|hernia\w*|obstruct\w*|perforat\w*|intuss\w*|embol\w*|aneurysm\w*"
    r"|ectatic|dilat\w*|edema\w*|oedema\w*|inflam\w*|phlegmon|infiltrat\w*|effusion\w*"
    r"|h[ae]+morrh\w*|bleed\w*|gallston\w*|patholog\w*|anatom\w*|radiolog\w*|radiograph\w*"
    r"|tomogra\w*|ct|cts|mri|x ray|hu|hounsfield|tnm|diagnos\w*|prognos\w*|staging|resect\w*"
    r"|biops\w*|biliary|vascul\w*|hypertension|artery|arteries|vein|veins|vessels?|duct\w*"
    r"|parenchym\w*|lumen|luminal|abdom\w*|pelvi\w*|thorax|thoracic|chest|trunk|retroperit\w*"
    r"|gastrointestinal|gi|uter\w+|ovar\w+|ureter\w*|testi\w+|diaphragm|axial|coronal"
    r"|saggit\w*|sagittal|transverse|scans?|scanning|modality|organs?|patients?|abnormal\w*"
    r"|findings?|disease\w*|symptom\w*|[tnm] (?:category|stage|classification)|fat stranding"
    r"|fatty|free (?:air|fluid|gas)|air fluid|is this a study of"
    r"|(?:this|in the|of the|does the) (?:image|picture|slice|mass)"
    r")\b"
)
# Words that mean something else as often: they must be at least as many as words of no kind here.
_WEAK = re.compile(
    r"\b(?:"
    r"mass(?! of)|masses(?! of)|nodes?|stage[ds]?|image[ds]?|pictures?|pictured|slices?"
    r"|planes?|view|body|reports?|impressions?|contrast|enhanc\w*|densit\w*|dense|denser|fluid"
    r"|air|gas|fat|tissues?|skin|wall|walls|muscle\w*|musculature|bones?|joints?|skelet\w*"
    r"|nerv\w*|blood|enlarged|thicken\w*|swollen|swelling|normal|healthy|damage|injur\w*"
    r"|lacerat\w*|level|border\w*|margins?|contours?|shape\w*|volume|diameter|spread|growth\w*"
    r"|suspicious|anomal\w*|supine|prone|medical|study|section|structures?|homogen\w*|cut"
    r"|feces|stool|urine|conclusion|conclude|signs?"
    r")\b"
)
# Ordinary words of questions, which say nothing about their subject.
_ORDINARY_WORDS = """
    a about above across after all along also am an and another any anything apart appear appears
    appearance approximately are around as ask at be been before behind below beside besides best
    between big bigger biggest both but by can clear clearly close closer compare compared could
    consistent contain contains count describe detail did different do does each either else
    estimate evidence ever every evident exact exist existing exists far feature features few find
    first for form from further get give given has have having here high hold holds how i identify
    if imaging in indicate inside into involve involved involves is it its just kind know large
    larger largest leave left level lie lies like likely list little locate located location long
    look looks lot low lower main many may me mean means measure middle might more most much must
    my name near nearest next no non not nothing now number of off often on one only or other our
    out outside over part parts percent per place please point position possible present probably
    properly question reach region regular right same say second see seem seems seen several shall
    share should show showing shown shows side similar single site size small smaller smallest so
    some something state still such summarise summarize suggest suggests sure take taken tell than
    that the their them then there these they thing third this those three together
    too top toward towards two type types typical under unusual up upper us use used using usual
    value very via visible visualized was we well were what when where whether which while who whole
    why wide will with within without would write wrong yes you your
"""
# Frequent words of German, French, Spanish, Italian, Portuguese and Dutch that English lacks.
_FOREIGN_WORDS = """
    der das ist sind und wo wie welche welches welcher ein eine einen gibt es auf mit nicht
    le la les est sont une où quel quelle dans du cette il elle au aux
    el los las es está hay en qué cuál dónde donde un una del este esta
    lo gli è nel nella dove quale che di
    os é há uma qual onde na da dos de het een waar welke zijn van er
"""
_ORDINARY, _FOREIGN = frozenset(_ORDINARY_WORDS.split()), frozenset(_FOREIGN_WORDS.split())
# Parts that no label of Table 10 covers and an abdominal CT does not show.
_ELSEWHERE = (
    r"knees?|menisc\w*|cruciate|acl|patella\w*|ankles?|foot|feet|toes?|achilles|tibia\w*|fibula\w*"
    r"|shins?|calf|wrists?|hands?|fingers?|thumbs?|elbows?|forearms?|shoulders?|rotator cuff"
    r"|radius|ulna\w*|carpal|tooth|teeth|dental|molars?|jaw|mandib\w*|maxill\w*|eyes?|eyeball\w*"
    r"|retina\w*|cornea\w*|optic|ears?|eardrum|cochlea\w*|nose|nasal|sinus|sinuses|tongue|tonsil\w*"
    r"|larynx|parotid|scalp|breasts?|mammar\w*|nipples?|fingernails?|hair"
)
_OTHER_PART = re.compile(rf"\b(?:{_ELSEWHERE})\b")
_OTHER_MODALITY = re.compile(
    r"\b(?:(?:this|the|my|his|her|our|their|these|those) (?:(?!an?\b)\w+ ){0,2}?"
    r"|(?:on|in|from|of) (?:an? )?)"
    r"(?:mri|mris|mr image|x ?rays?|ultraso\w+|sonogra\w+|echocardio\w*|ecg|ekg|eeg"
    r"|electrocardio\w*|mammogra\w+|pet|pet scan|endoscop\w+|colonoscop\w+|angiogram|oct|dexa"
    r"|photograph|photo|selfie|blood test|histology slide|slide)\b"
)
# Whether something is in the picture at all may be asked of anything.
_PRESENCE = re.compile(
    r"\b(?:appear|exist|visible|shown|present|see|there)\w*\b.*\b(?:image|picture|scan|ct)\b"
    r"|\b(?:image|picture|scan|ct) (?:contain|show)\w*\b|\bstudy of\b"
)
# Orders to a chat bot rather than questions about a scan.
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass) .*\b(?:instruction\w*|rules?|prompts?|above"
    r"|guardrails?|training)\b|\bsystem prompt\b|\byou are now\b|\b(?:pretend|act as|role ?play)\b"
    r"|\bjailbreak\w*|\bdeveloper mode\b|\bpassword\w*|\bapi key\b"
    r"|\b(?:write|tell|compose|sing|give|make) (?:me |us )?(?:an? |some )?(?:\w+ )?(?:poem|story"
    r"|joke|song|haiku|essay|limerick|novel|email|letter|tweet|recipe|code|script|program|function)"
    r"|\b(?:python|javascript|java|sql|html|c\+\+|bash|regex)\b|\btranslat\w+"
    r"|\b(?:def|import|select|print|sudo|rm|curl)\b[ (].*[(;*/=]"
)


def out_of_scope(question: str) -> str:
    """Say why a question is out of scope; "" if it is in scope."""
    text = normalise_name(question)
    words = re.findall(r"[^\W\d_]+", question)
    latin = sum(word.isascii() for word in words)
    if words and 2 * latin < len(words):
        return "a question that is not in English"
    lower = [word.lower() for word in words]
    foreign = sum(word in _FOREIGN for word in lower)
    if foreign > 1 and foreign > sum(word in _ORDINARY for word in lower):
        return "a question that is not in English"
    if _ORDERS.search(text):
        return "an order that is no question about a scan"
    if _OTHER_MODALITY.search(text) and not re.search(r"\b(?:ct|tomogra\w+)\b", text):
        return "a question about another kind of image"
    part = _OTHER_PART.search(text)
    if part and not labels_named(question) and not _PRESENCE.search(text):
        return f"a question about a part of the body that is not in an abdominal CT ({part[0]})"
    if not _about_a_scan(question, text, words):
        return "nothing that names an organ, a finding, a stage, the scan or a report"
    return ""


def _about_a_scan(question: str, text: str, words: list[str]) -> bool:
    if labels_named(question) or _STRONG.search(text):
        return True
    weak = set(_WEAK.findall(text))
    other = [word for word in words if word.lower() not in _ORDINARY]
    strange = [word for word in other if not _WEAK.search(word.lower())]
    # A name ("Earth", "France") counts twice: it says what the question is about.
    names = [word for word in strange if word[0].isupper() and not question.startswith(word)]
    return bool(weak) and len(weak) >= len(strange) + len(names)
