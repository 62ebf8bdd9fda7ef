"""Patients to be reported on: the truth of a digital patient, drawn without an image.

Counts, odds and sizes follow the digital patients of this room's parent; the words for shape and
density are more, for a reader of reports meets more of them than a painter needs.
"""

from dataclasses import dataclass, field
from random import Random

from tumorchain_jax.anatomy.organs import (
    COLORECTUM,
    DIGESTIVE,
    ESOPHAGUS,
    LIVER,
    PANCREAS,
    SPLEEN,
    STOMACH,
    SUB_ORGANS,
)
from tumorchain_jax.anatomy.staging import Depth, Extent, stage
from tumorchain_jax.phantoms.incidental import AORTA, NODE_COUNTS, NODE_ODDS
from tumorchain_jax.phantoms.lesions import HOLLOW, NONE, OTHERS
from tumorchain_jax.phantoms.reports.statements import BOUNDARIES, DENSITIES, SHAPES

REGIONS = ("chest, abdomen and pelvis", "abdomen and pelvis", "upper abdomen")
LUNGS, KIDNEYS, GALLBLADDER = (10, 11, 12, 13, 14), (2, 3), 4
DISEASES: dict[int, tuple[str, ...]] = {
    LIVER: ("hepatocellular carcinoma", "intrahepatic cholangiocarcinoma"),
    PANCREAS: ("pancreatic adenocarcinoma", "pancreatic neuroendocrine tumour"),
    STOMACH: ("gastric adenocarcinoma", "gastrointestinal stromal tumour", "gastric lymphoma"),
    COLORECTUM: ("colorectal adenocarcinoma",),
    ESOPHAGUS: ("esophageal carcinoma",),
}
"""Digestive organ -> malignant diseases that its tumour may be, the usual one first."""
NOT_STAGED = (
    "gastrointestinal stromal tumour", "gastric lymphoma", "pancreatic neuroendocrine tumour",
)  # fmt: skip
"""Diseases that have another staging than the carcinomas of their organ: no stage is stated."""
HISTORIES: dict[int, tuple[str, ...]] = {
    LIVER: ("hepatitis B", "hepatitis C", "alcohol", "abnormal liver function"),
    PANCREAS: ("painless jaundice", "weight loss", "long-standing diabetes"),
    STOMACH: ("epigastric pain", "early satiety", "Helicobacter pylori"),
    COLORECTUM: ("rectal bleeding", "iron deficiency anaemia", "Lynch syndrome"),
    ESOPHAGUS: ("dysphagia", "weight loss", "gastroesophageal reflux"),
    0: ("abdominal pain", "weight loss", "follow-up", "abnormal liver function"),
}
_SOLITARY = {"cirrhosis": LIVER, "splenomegaly": SPLEEN, "pancreatitis": PANCREAS}
_LIVER_PARTS = tuple(
    part for part in SUB_ORGANS[LIVER] if not part.endswith(("quadrate lobe of the liver", " I"))
)
_DEPTHS: tuple[Depth, ...] = ("inner wall", "wall", "fat", "surface", "neighbour")
_DEPTH_ODDS = (10, 25, 35, 20, 10)


@dataclass(frozen=True)
class Lesion:
    """A lesion of the tumour.

    Attributes:
        number: within the organ, from 1.
        sizes_mm: one to three axes, the longest first.
        depth: in hollow organs, else None.
        other: `none`, or one of `OTHERS`.
    """

    organ: int
    number: int
    part: str
    sizes_mm: tuple[int, ...]
    density: str
    shape: str
    boundary: str
    depth: Depth | None
    other: str


@dataclass(frozen=True)
class Look:
    """A metastasis or a benign look-alike.

    Attributes:
        finding: canonical name.
        organ: merged label that it lies in.
        number: within the organ, from 1.
        part: of the organ, or empty.
        size_mm: of the largest; 0: too small or too many to be measured.
        count: how many there are.
    """

    finding: str
    organ: int
    number: int
    part: str
    size_mm: int
    count: int


@dataclass(frozen=True)
class ReportPatient:
    """What is true of a patient.

    Attributes:
        seed: that decides everything.
        region: of the scan, one of `REGIONS`.
        organ: merged label of the organ with the tumour, 0 without one.
        disease: what the tumour is.
        depth: of the deepest lesion, in hollow organs.
        vessel: `large` or `small`: a vessel of liver or pancreas that is invaded; else empty.
        nodes, node_mm: enlarged regional nodes, and the largest short axis.
        looks: metastases and benign look-alikes.
        conditions: of `cirrhosis`, `splenomegaly`, `pancreatitis`.
        tnm: stage by imaging; empty without a tumour, or of `NOT_STAGED`.
        examined, positive: nodes that pathology counted; 0, 0 where there was no surgery.
        pathology_tnm: stage by pathology, which may differ in N; empty without pathology.
    """

    seed: int
    sex: str
    age: int
    region: str
    history: str
    organ: int = 0
    disease: str = ""
    lesions: tuple[Lesion, ...] = ()
    depth: Depth | None = None
    vessel: str = ""
    nodes: int = 0
    node_mm: int = 0
    looks: tuple[Look, ...] = ()
    conditions: tuple[str, ...] = ()
    tnm: tuple[str, ...] = ()
    examined: int = 0
    positive: int = 0
    pathology_tnm: tuple[str, ...] = ()
    in_view: tuple[int, ...] = field(default=DIGESTIVE)


def draw_patient(seed: int, organ: int | None = None) -> ReportPatient:
    """Draw a patient; the same seed gives the same one.

    Args:
        organ: merged label of the digestive organ that shall have a tumour; 0: none shall; None:
            drawn, four of five have one.
    """
    rng = Random(f"patient {seed}")
    region = rng.choices(REGIONS, (5, 4, 2))[0]
    seen = [each for each in DIGESTIVE if each != ESOPHAGUS or region == REGIONS[0]]
    drawn = rng.choice(seen) if rng.random() < 0.8 else 0
    tumour = drawn if organ is None else organ
    if tumour == ESOPHAGUS:
        region, seen = REGIONS[0], list(DIGESTIVE)
    return _Drawing(rng, seed, region, seen, tumour).patient()


class _Drawing:
    def __init__(self, rng: Random, seed: int, region: str, seen: list[int], organ: int):
        self.rng, self.seed, self.region, self.seen, self.organ = rng, seed, region, seen, organ
        self.numbers: dict[int, int] = {}

    def patient(self) -> ReportPatient:
        rng, organ = self.rng, self.organ
        basics = (self.seed, rng.choice(("female", "male")), rng.randint(35, 88), self.region)
        history = rng.choice(HISTORIES[organ])
        conditions = self._conditions()
        if not organ:
            looks = self._benign()
            return ReportPatient(
                *basics, history, looks=looks, conditions=conditions, in_view=tuple(self.seen)
            )
        lesions = self._lesions()
        depths = [each.depth for each in lesions if each.depth]
        depth = max(depths, key=_DEPTHS.index) if depths else None
        vessel = ""
        if organ in (LIVER, PANCREAS):
            vessel = rng.choices(("", "large", "small" if organ == LIVER else ""), (7, 2, 1))[0]
        nodes = rng.choices(NODE_COUNTS, NODE_ODDS)[0]
        metastases = self._metastases()
        extent = Extent(
            organ,
            tuple(float(max(each.sizes_mm)) for each in lesions),
            depth or "wall",
            vessel == "small",
            vessel == "large",
            nodes,
            frozenset(look.organ for look in metastases),
        )
        first, *more = DISEASES[organ]
        disease = first if not more or rng.random() < 0.65 else rng.choice(more)
        staged = disease not in NOT_STAGED
        examined = rng.randint(12, 34) if rng.random() < 0.7 else 0
        positive = nodes if rng.random() < 0.8 else rng.choice(NODE_COUNTS)
        found = stage(Extent(organ, extent.diameters_mm, extent.depth, extent.small_vessel,
                             extent.large_vessel, positive, extent.metastases))  # fmt: skip
        return ReportPatient(
            *basics,
            history,
            organ,
            disease,
            lesions,
            depth,
            vessel,
            nodes,
            rng.randint(11, 25) if nodes else 0,
            metastases + self._benign(),
            conditions,
            stage(extent) if staged else (),
            examined,
            positive if examined else 0,
            found if staged and examined else (),
            tuple(self.seen),
        )

    def _next(self, organ: int) -> int:
        self.numbers[organ] = self.numbers.get(organ, 0) + 1
        return self.numbers[organ]

    def _size(self, least: int, most: int) -> int:
        return round(least * (most / least) ** self.rng.random())

    def _lesions(self) -> tuple[Lesion, ...]:
        rng, organ = self.rng, self.organ
        odds = (5, 3, 2) if organ == LIVER else (8, 2, 0)
        count = rng.choices((1, 2, 3), odds)[0]
        parts = _LIVER_PARTS if organ == LIVER else SUB_ORGANS[organ]
        places = rng.sample(parts, count)
        largest = sorted((self._size(9, 95) for _ in places), reverse=True)
        return tuple(self._lesion(part, size) for part, size in zip(places, largest, strict=True))

    def _lesion(self, part: str, size: int) -> Lesion:
        rng, organ = self.rng, self.organ
        more = sorted((round(size * rng.uniform(0.6, 0.97)) for _ in range(2)), reverse=True)
        other = rng.choice((*OTHERS[organ][1:], "necrosis")) if rng.random() < 0.55 else NONE
        density = rng.choices(DENSITIES, (45, 10, 20, 15, 10 if organ in (LIVER, PANCREAS) else 0))
        return Lesion(
            organ,
            self._next(organ),
            part,
            (size, *more[: rng.choice((0, 1, 1, 2))]),
            density[0],
            rng.choice(SHAPES),
            rng.choice(BOUNDARIES),
            rng.choices(_DEPTHS, _DEPTH_ODDS)[0] if organ in HOLLOW else None,
            other,
        )

    def _metastases(self) -> tuple[Look, ...]:
        sites = [LIVER] if self.organ != LIVER else []
        if self.region == REGIONS[0]:
            sites.append(self.rng.choice(LUNGS))
        return tuple(
            self._look("metastasis", site, (6, 40), self.rng.choice((1, 1, 2, 3, 4)))
            for site in sites
            if self.rng.random() < 0.22
        )

    def _look(self, finding: str, organ: int, sizes: tuple[int, int], count: int) -> Look:
        part = ""
        if organ == LIVER and count == 1:
            part = self.rng.choice(_LIVER_PARTS)
        elif organ == COLORECTUM:
            part = self.rng.choice(("sigmoid colon", "descending colon"))
        return Look(finding, organ, self._next(organ), part, self._size(*sizes), count)

    def _benign(self) -> tuple[Look, ...]:
        rng = self.rng
        recipes = (
            (0.28, "cyst", KIDNEYS, (8, 45), (1, 1, 2)),
            (0.18, "cyst", (LIVER,), (6, 40), (1, 1, 2)),
            (0.10, "haemangioma", (LIVER,), (8, 35), (1,)),
            (0.08, "fatty area", (LIVER,), (8, 25), (1,)),
            (0.18, "diverticulum", (COLORECTUM,), (4, 10), (3, 5)),
            (0.12, "accessory spleen", (SPLEEN,), (8, 20), (1,)),
            (0.15, "gallstone", (GALLBLADDER,), (4, 18), (1, 2, 3)),
            (0.10, "granuloma", LUNGS if self.region == REGIONS[0] else (SPLEEN,), (3, 8), (1,)),
            (0.25, "vascular calcification", (AORTA,), (3, 9), (3,)),
        )
        return tuple(
            # Merged labels of kidneys and lungs are TotalSegmentator's ids; the aorta's differs.
            self._look(name, 39 if (site := rng.choice(sites)) == AORTA else site, sizes,
                       rng.choice(counts))
            for odds, name, sites, sizes, counts in recipes
            if rng.random() < odds
        )  # fmt: skip

    def _conditions(self) -> tuple[str, ...]:
        rng = self.rng
        found = ["cirrhosis"] if rng.random() < (0.5 if self.organ == LIVER else 0.07) else []
        if rng.random() < (0.6 if found else 0.05):
            found.append("splenomegaly")
        if self.organ != PANCREAS and rng.random() < 0.07:
            found.append("pancreatitis")
        return tuple(found)


def site_of(condition: str) -> int:
    """Return the merged label of the organ that a condition is of."""
    return _SOLITARY[condition]
