"""The 57 merged labels of the paper's Table 10, and the search of a text for their names.

The search works on the UTF-8 bytes of the text, which are of three kinds
(`reasoning/organ_matcher.py` does the same on the device):

- word: ASCII letters (case is ignored), digits, and the bytes 0xC3..0xE1, which begin the letters
  U+00C0..U+1FFF (accented Latin, Greek, Cyrillic and so on);
- soft separator: ASCII white space, `-` and `_`; any run of them between two words of a name
  counts as one space ("small bowel", "small-bowel", "kidney_left");
- hard separator: everything else, among it typographic dashes and quotes, Chinese, and emoji.

A name counts only between two bytes that are not word bytes. Of overlapping names the leftmost
wins, then the longest. One compromise keeps the rule bytewise: a letter of U+00C0..U+1FFF stops a
name it follows ("hipólito" names no hip) but not one it precedes.
"""

import re
import string
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tumorchain_jax.core.errors import InputError

SOFT_SEPARATORS = b" \t\n\r\f\v-_"
WORD_BYTES = string.ascii_letters.encode() + string.digits.encode() + bytes(range(0xC3, 0xE2))

# Paper, Table 10. One row a merged label, from 0 on: its name, the TotalSegmentator v2 `total` ids
# merged into it, and how a sentence names it.
_TABLE_10: tuple[tuple[str, Iterable[int], str], ...] = (
    ("background", (0,), "background"),
    ("spleen", (1,), "spleen"),
    ("kidney_right", (2,), "right kidney"),
    ("kidney_left", (3,), "left kidney"),
    ("gallbladder", (4,), "gallbladder"),
    ("liver", (5,), "liver"),
    ("stomach", (6,), "stomach"),
    ("pancreas", (7,), "pancreas"),
    ("adrenal_gland_right", (8,), "right adrenal gland"),
    ("adrenal_gland_left", (9,), "left adrenal gland"),
    ("lung_upper_lobe_left", (10,), "upper lobe of the left lung"),
    ("lung_lower_lobe_left", (11,), "lower lobe of the left lung"),
    ("lung_upper_lobe_right", (12,), "upper lobe of the right lung"),
    ("lung_middle_lobe_right", (13,), "middle lobe of the right lung"),
    ("lung_lower_lobe_right", (14,), "lower lobe of the right lung"),
    ("esophagus", (15,), "esophagus"),
    ("trachea", (16,), "trachea"),
    ("thyroid_gland", (17,), "thyroid gland"),
    ("small_bowel", (18,), "small bowel"),
    ("duodenum", (19,), "duodenum"),
    ("colorectum", (20,), "colon"),
    ("urinary_bladder", (21,), "urinary bladder"),
    ("prostate", (22,), "prostate"),
    ("kidney_cyst", (23, 24), "kidney cyst"),
    ("vertebrae_S1", (26,), "S1 vertebra"),
    ("lumbar_vertebrae", range(27, 32), "lumbar vertebrae"),
    ("thoracic_vertebrae", range(32, 44), "thoracic vertebrae"),
    ("cervical_vertebrae", range(44, 51), "cervical vertebrae"),
    ("sacrum", (25,), "sacrum"),
    ("humerus", (69, 70), "humerus"),
    ("scapula", (71, 72), "scapula"),
    ("clavicula", (73, 74), "clavicle"),
    ("femur", (75, 76), "femur"),
    ("hip", (77, 78), "hip bone"),
    ("rib_left", range(92, 104), "left ribs"),
    ("rib_right", range(104, 116), "right ribs"),
    ("sternum", (116,), "sternum"),
    ("costal_cartilages", (117,), "costal cartilages"),
    ("heart", (51,), "heart"),
    ("aorta", (52,), "aorta"),
    ("pulmonary_vein", (53,), "pulmonary vein"),
    ("brachiocephalic_trunk", (54,), "brachiocephalic trunk"),
    ("subclavian_artery", (55, 56), "subclavian artery"),
    ("common_carotid_artery", (57, 58), "common carotid artery"),
    ("brachiocephalic_vein", (59, 60), "brachiocephalic vein"),
    ("atrial_appendage_left", (61,), "left atrial appendage"),
    ("superior_vena_cava", (62,), "superior vena cava"),
    ("inferior_vena_cava", (63,), "inferior vena cava"),
    ("portal_vein_and_splenic_vein", (64,), "portal vein and splenic vein"),
    ("iliac_artery", (65, 66), "iliac artery"),
    ("iliac_vena", (67, 68), "iliac vein"),
    ("gluteus", range(80, 86), "gluteus"),
    ("autochthon", (86, 87), "autochthonous back muscles"),
    ("iliopsoas", (88, 89), "iliopsoas"),
    ("spinal_cord", (79,), "spinal cord"),
    ("brain", (90,), "brain"),
    ("skull", (91,), "skull"),
)

ORGANS: tuple[str, ...] = tuple(name for name, _, _ in _TABLE_10)
"""Names of the 57 merged labels, index = label."""

_TOTAL = """
background spleen kidney_right kidney_left gallbladder liver stomach pancreas
adrenal_gland_right adrenal_gland_left lung_upper_lobe_left lung_lower_lobe_left
lung_upper_lobe_right lung_middle_lobe_right lung_lower_lobe_right esophagus trachea
thyroid_gland small_bowel duodenum colon urinary_bladder prostate kidney_cyst_left
kidney_cyst_right sacrum vertebrae_S1 vertebrae_L5 vertebrae_L4 vertebrae_L3 vertebrae_L2
vertebrae_L1 vertebrae_T12 vertebrae_T11 vertebrae_T10 vertebrae_T9 vertebrae_T8 vertebrae_T7
vertebrae_T6 vertebrae_T5 vertebrae_T4 vertebrae_T3 vertebrae_T2 vertebrae_T1 vertebrae_C7
vertebrae_C6 vertebrae_C5 vertebrae_C4 vertebrae_C3 vertebrae_C2 vertebrae_C1 heart aorta
pulmonary_vein brachiocephalic_trunk subclavian_artery_right subclavian_artery_left
common_carotid_artery_right common_carotid_artery_left brachiocephalic_vein_left
brachiocephalic_vein_right atrial_appendage_left superior_vena_cava inferior_vena_cava
portal_vein_and_splenic_vein iliac_artery_left iliac_artery_right iliac_vena_left
iliac_vena_right humerus_left humerus_right scapula_left scapula_right clavicula_left
clavicula_right femur_left femur_right hip_left hip_right spinal_cord gluteus_maximus_left
gluteus_maximus_right gluteus_medius_left gluteus_medius_right gluteus_minimus_left
gluteus_minimus_right autochthon_left autochthon_right iliopsoas_left iliopsoas_right brain
skull rib_left_1 rib_left_2 rib_left_3 rib_left_4 rib_left_5 rib_left_6 rib_left_7 rib_left_8
rib_left_9 rib_left_10 rib_left_11 rib_left_12 rib_right_1 rib_right_2 rib_right_3 rib_right_4
rib_right_5 rib_right_6 rib_right_7 rib_right_8 rib_right_9 rib_right_10 rib_right_11
rib_right_12 sternum costal_cartilages
"""

TOTALSEGMENTATOR: tuple[str, ...] = tuple(_TOTAL.split())
"""Names of TotalSegmentator v2 `total`, index = id."""


def _merge_table() -> np.ndarray:
    table = np.zeros(len(TOTALSEGMENTATOR), np.uint8)
    for label, (_, ids, _) in enumerate(_TABLE_10):
        table[list(ids)] = label
    table.flags.writeable = False
    return table


MERGE: np.ndarray = _merge_table()
"""uint8 [118]: TotalSegmentator id -> merged label."""

SPLEEN, LIVER, STOMACH, PANCREAS, ESOPHAGUS, COLORECTUM = 1, 5, 6, 7, 15, 20
"""Table 10 keeps TotalSegmentator's ids 1 to 22, so these are ids as well as merged labels."""
DIGESTIVE: tuple[int, ...] = (LIVER, PANCREAS, STOMACH, COLORECTUM, ESOPHAGUS)
"""The paper's five digestive organs."""

_COUINAUD = ("II", "III", "IV", "IVa", "IVb", "V", "VI", "VII", "VIII")

SUB_ORGANS: dict[int, tuple[str, ...]] = {
    5: (
        *(f"{lobe} lobe of the liver" for lobe in ("right", "left", "caudate", "quadrate")),
        *(f"liver segment {number}" for number in ("I", *_COUINAUD)),
    ),
    7: tuple(
        f"{part} of the pancreas" for part in ("head", "neck", "body", "tail", "uncinate process")
    ),
    6: ("gastric cardia", "gastric fundus", "gastric body", "gastric antrum", "pylorus"),
    20: (
        "cecum",
        "ascending colon",
        "hepatic flexure",
        "transverse colon",
        "splenic flexure",
        "descending colon",
        "sigmoid colon",
        "rectum",
    ),
    15: (
        "cervical esophagus",
        *(f"{third} thoracic esophagus" for third in ("upper", "middle", "lower")),
        "abdominal esophagus",
    ),
}
"""Names of parts of the five digestive organs; the label map has no ids for them."""

_LUNGS = (10, 11, 12, 13, 14)
_SPINE = (24, 25, 26, 27)

# What radiology reports call the organs, besides the names above: labels, then their names. The
# ordinary spelling is enough, see `_spellings`. Left out, for they mostly mean something else:
# head, body, neck, tail, fundus, segment I, and the bare levels T1-T4 (tumour stages), S1 (a liver
# segment) and C1-C7.
_SYNONYMS: tuple[tuple[tuple[int, ...], str], ...] = (
    ((1,), "spleens, splenic, splenic hilum, accessory spleen, splenule, splenomegaly"),
    ((1, 5), "hepatosplenomegaly"),
    ((2, 3), "kidney, kidneys, renal, hydronephrosis, nephrolithiasis, pyelonephritis"),
    ((2,), "right renal, right hydronephrosis, right sided hydronephrosis"),
    ((3,), "left renal, left hydronephrosis, left sided hydronephrosis"),
    ((2, 3, 23), "renal cyst, renal cysts, kidney cysts"),
    ((2, 23), "right renal cyst, right renal cysts, right kidney cyst, cyst of the right kidney"),
    ((3, 23), "left renal cyst, left renal cysts, left kidney cyst, cyst of the left kidney"),
    ((4,), "gallbladders, gall bladder, cholecystic, cystic duct, gallstone, gallstones"),
    ((4,), "cholecystitis, cholelithiasis, cholecystolithiasis, pericholecystic"),
    ((5,), "livers, hepatic, intrahepatic, hepatocellular, hepatomegaly, hepatitis, cirrhosis"),
    ((5,), "right hepatic lobe, left hepatic lobe, right liver lobe, left liver lobe"),
    ((5,), "caudate lobe, quadrate lobe, porta hepatis"),
    ((5,), ", ".join(f"segment {number}" for number in _COUINAUD)),
    ((6,), "stomachs, gastric, gastritis, cardia, antrum, antral, pyloric, pyloric antrum"),
    ((6,), "fundus of the stomach, body of the stomach, antrum of the stomach, gastric angle"),
    ((6,), "greater curvature, lesser curvature, angular incisure, incisura angularis"),
    ((6, 15), "gastroesophageal, esophagogastric, ge junction"),
    ((6, 19), "gastroduodenal"),
    ((7,), "pancreatic, peripancreatic, intrapancreatic, pancreatic duct, pancreatitis"),
    ((7,), "pancreatic head, pancreatic neck, pancreatic body, pancreatic tail"),
    ((7,), "uncinate process, pancreatic uncinate process"),
    ((7, 19), "pancreaticoduodenal, pancreatoduodenal"),
    ((8, 9), "adrenal, adrenals, adrenal gland, adrenal glands, suprarenal gland"),
    ((8,), "right adrenal, right suprarenal gland"),
    ((9,), "left adrenal, left suprarenal gland"),
    (_LUNGS, "lung, lungs, pulmonary, intrapulmonary, pneumonia"),
    ((10, 11), "left lung, left pulmonary"),
    ((12, 13, 14), "right lung, right pulmonary"),
    ((10,), "left upper lobe, left upper lung lobe, left upper lung, lingula, lingular"),
    ((11,), "left lower lobe, left lower lung lobe, left lower lung"),
    ((12,), "right upper lobe, right upper lung lobe, right upper lung"),
    ((13,), "right middle lobe, right middle lung lobe, middle lobe"),
    ((14,), "right lower lobe, right lower lung lobe, right lower lung"),
    ((10, 12), "upper lobes, upper lobes of both lungs"),
    ((11, 14), "lower lobes, lower lobes of both lungs"),
    ((15,), "esophageal, esophagitis, thoracic esophagus"),
    ((15,), "upper esophagus, middle esophagus, lower esophagus, distal esophagus"),
    ((16,), "tracheal, windpipe"),
    ((17,), "thyroid"),
    ((18,), "small intestine, small intestines, small intestinal"),
    ((18,), "jejunum, jejunal, ileum, ileal, terminal ileum"),
    ((18, 20), "bowel, bowels, intestine, intestines, intestinal, ileocecal, ileocolic"),
    ((19,), "duodenal, duodenal bulb"),
    ((20,), "colonic, colorectal, colitis, large bowel, large intestine, hemicolon"),
    ((20,), "left hemicolon, right hemicolon, left colon, right colon"),
    ((20,), "cecal, appendix, appendiceal, appendicitis, right colic flexure, left colic flexure"),
    ((20,), "sigmoid, rectosigmoid, rectosigmoid junction, rectal, anorectal, anal canal"),
    ((21,), "bladder, bladders, vesical, cystitis"),
    ((22,), "prostates, prostatic, prostate gland, prostatitis"),
    (_SPINE, "vertebra, vertebrae, vertebral, vertebral column, intervertebral"),
    (_SPINE, "spine, spinal, spinal column"),
    ((25,), "lumbar, lumbar vertebra, lumbar spine, L1, L2, L3, L4, L5"),
    ((26,), "thoracic vertebra, thoracic spine, T5, T6, T7, T8, T9, T10, T11, T12"),
    ((27,), "cervical vertebra, cervical spine"),
    ((25, 26), "thoracolumbar"),
    ((24, 25), "lumbosacral"),
    ((24, 28), "sacral"),
    ((28, 33), "sacroiliac"),
    ((29,), "humeri, humeral"),
    ((30,), "scapulae, scapular, shoulder blade"),
    ((31,), "clavicles, clavicular, collarbone"),
    ((32,), "femurs, femora, femoral, femoral head, femoral neck, thigh bone"),
    ((33,), "hips, hip bones, hip joint, pelvic bone, pelvic bones, bony pelvis"),
    ((33,), "iliac bone, iliac crest, iliac wing, ilium, ischium, ischial, pubis, pubic"),
    ((33,), "acetabulum, acetabular"),
    ((34, 35), "rib, ribs, costal, rib cage, ribcage"),
    ((34,), "left rib"),
    ((35,), "right rib"),
    ((36,), "sternal, breastbone, manubrium, xiphoid"),
    ((37,), "costal cartilage, rib cartilage"),
    ((38,), "cardiac, cardiomegaly, myocardium, pericardium, pericardial, coronary artery"),
    ((38,), "left atrium, right atrium, left ventricle, right ventricle, coronary arteries"),
    ((39,), "aortas, aortic"),
    ((40,), "pulmonary veins, pulmonary venous, left pulmonary vein, left pulmonary veins"),
    ((40,), "right pulmonary vein, right pulmonary veins"),
    ((41,), "brachiocephalic artery, innominate artery"),
    ((42,), "subclavian arteries"),
    ((43,), "common carotid arteries, carotid artery, carotid arteries"),
    ((44,), "brachiocephalic veins, innominate vein, innominate veins"),
    ((45,), "left auricle"),
    ((46,), "svc"),
    ((47,), "ivc"),
    ((46, 47), "vena cava, venae cavae"),
    ((48,), "portal vein, portal veins, portal venous, splenic vein, splenic veins"),
    ((49,), "iliac arteries"),
    ((50,), "iliac veins"),
    ((49, 50), "iliac vessels"),
    ((51,), "gluteal"),
    ((52,), "back muscles, erector spinae, paraspinal muscle, paraspinal muscles"),
    ((53,), "psoas, iliacus"),
    ((54,), "spinal canal, thecal sac"),
    ((55,), "cerebral, cerebrum, cerebellum, cerebellar, intracranial, brainstem"),
    ((56,), "skulls, cranium, calvarium, calvarial"),
)

_VESSELS = (
    *("hepatic artery", "hepatic arteries", "hepatic vein", "hepatic veins", "hepatic duct"),
    *("gastric artery", "gastric arteries", "gastric vein", "gastric veins", "hepatic ducts"),
    *("renal artery", "renal arteries", "renal vein", "renal veins", "splenic artery"),
    *("femoral artery", "femoral arteries", "femoral vein", "femoral veins"),
    *("pulmonary artery", "pulmonary arteries", "vertebral artery", "vertebral arteries"),
)

# These name no organ of the table. Being longer, they win over the organ word that they contain.
_NO_ORGAN = (
    *(f"{side}{vessel}" for side in ("", "left ", "right ") for vessel in _VESSELS),
    *("common hepatic artery", "common hepatic duct", "gastroduodenal artery"),
    *("pancreaticoduodenal artery", "ileocolic artery", "rectal artery", "cerebral artery"),
    *("internal carotid artery", "external carotid artery", "pulmonary trunk"),
    *("pulmonary embolism", "hepatic arterial phase", "portal venous phase", "pancreatic phase"),
)


def normalise_name(name: str) -> str:
    """Lower-case `name` with every run of soft separators as one space."""
    return re.sub(rf"[{re.escape(SOFT_SEPARATORS.decode())}]+", " ", name).strip().lower()


def _spellings(name: str) -> set[str]:
    """`name`, normalised, in American and British spelling, with and without the article."""
    plain = normalise_name(name)
    british = plain.replace("esophag", "oesophag").replace("cec", "caec")
    return {plain, british} | {n.replace(" of the ", " of ") for n in (plain, british)}


def _sources() -> Iterator[tuple[tuple[int, ...], str]]:
    """Every (labels, name) of the tables above."""
    for label, (name, _, in_a_sentence) in enumerate(_TABLE_10):
        yield (label,), name
        yield (label,), in_a_sentence
    for label, name in zip(MERGE.tolist(), TOTALSEGMENTATOR, strict=True):
        yield (label,), name
        region, _, level = name.partition("_")
        if region == "vertebrae":
            yield (label,), f"{level} vertebra"
            yield (label,), f"{level} vertebral body"
    for label, sub_organs in SUB_ORGANS.items():
        for name in sub_organs:
            yield (label,), name
    for labels, listed in _SYNONYMS:
        for name in listed.split(", "):
            yield labels, name
    for name in _NO_ORGAN:
        yield (), name


def _names() -> dict[str, tuple[int, ...]]:
    names: dict[str, tuple[int, ...]] = {}
    for labels, name in _sources():
        for spelling in _spellings(name):
            if names.setdefault(spelling, labels) != labels:
                raise ValueError(f"{spelling!r} names both {names[spelling]} and {labels}")
    del names["background"]
    return names


NAMES: dict[str, tuple[int, ...]] = _names()
"""Normalised name or synonym -> the merged labels it names (none: no organ of the table)."""


class Mention(NamedTuple):
    """A name found in a text: `[start, end)`, the name as `NAMES` has it, the labels it names."""

    start: int
    end: int
    name: str
    labels: tuple[int, ...]


def name_pattern(names: Iterable[str]) -> re.Pattern[bytes]:
    """Compile the expression that finds normalised `names`; see the module docstring."""
    soft = b"[" + re.escape(SOFT_SEPARATORS) + b"]+"
    word = b"[" + re.escape(WORD_BYTES) + b"]"
    longest_first = sorted(names, key=len, reverse=True)
    choices = b"|".join(soft.join(name.encode().split()) for name in longest_first)
    return re.compile(b"(?<!%b)(?:%b)(?!%b)" % (word, choices, word), re.IGNORECASE)


_PATTERN = name_pattern(NAMES)


def labels_named(text: str) -> list[Mention]:
    """Find the organs that `text` names, left to right; offsets count characters.

    A name that names no merged organ ("hepatic artery") is left out.
    """
    # A lone surrogate, which UTF-8 cannot hold, becomes "?": still one character.
    data = text.encode(errors="replace")
    mentions = []
    for match in _PATTERN.finditer(data):
        name = normalise_name(match[0].decode())
        if NAMES[name]:
            start = len(data[: match.start()].decode())
            mentions.append(Mention(start, start + len(match[0]), name, NAMES[name]))
    return mentions


def display_name(label: int) -> str:
    """Return the name of a merged organ for a sentence: 3 -> "left kidney", 20 -> "colon"."""
    return _TABLE_10[label][2]


def merge_labels(ids: np.ndarray) -> np.ndarray:
    """Merge TotalSegmentator v2 `total` ids into the labels of Table 10.

    Args:
        ids: integers 0..117, any shape.

    Returns:
        uint8 labels 0..56 of the same shape.

    Raises:
        InputError: an id outside 0..117, or values that are no integers.
    """
    if not np.issubdtype(ids.dtype, np.integer):
        raise InputError(
            "label map", "voxel type", str(ids.dtype), "integers", "save organ ids as integers"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < len(MERGE):
        raise InputError(
            "label map",
            "organ ids",
            f"{ids.min()}..{ids.max()}",
            "0..117",
            "use the label map of TotalSegmentator v2, task `total`",
        )
    return MERGE[ids]
