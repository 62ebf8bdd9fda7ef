"""Published weights that this package works with: where they are, how large, under what licence.

Sizes of TotalSegmentator's archives are those of its release; of the others, of their tensors.
"""

from dataclasses import dataclass

RELEASE = "https://github.com/wasserth/TotalSegmentator/releases/download/v2.0.0-weights"


@dataclass(frozen=True)
class Archive:
    """A zip archive of one model of TotalSegmentator.

    Attributes:
        name: of its folder, and with `.zip` of the file.
        size: of the file in bytes.
    """

    name: str
    size: int


@dataclass(frozen=True)
class Weights:
    """One entry.

    Attributes:
        name: for the command line.
        about: what it is for.
        licence: as its publisher states it.
        size: in bytes, about.
        archives: of TotalSegmentator's release.
        repo: of the Hugging Face Hub, as OWNER/NAME.
        files: patterns of the files to take from `repo`.
        after: the command that makes use of it; `{path}` is where it is.
    """

    name: str
    about: str
    licence: str
    size: int
    after: str
    archives: tuple[Archive, ...] = ()
    repo: str = ""
    files: tuple[str, ...] = ("*.safetensors", "*.json", "*.txt", "LICENSE*", "README.md")

    @property
    def source(self) -> str:
        """Where it comes from, for people."""
        return f"https://huggingface.co/{self.repo}" if self.repo else RELEASE


QWEN_RESEARCH = "Qwen RESEARCH LICENSE (no commercial use)"
APACHE = "Apache-2.0"
IMPORT = "tumorchain convert import -i {path} -o DST"
_TOTAL = (
    Archive("Dataset291_TotalSegmentator_part1_organs_1559subj", 233_742_255),
    Archive("Dataset292_TotalSegmentator_part2_vertebrae_1532subj", 234_050_721),
    Archive("Dataset293_TotalSegmentator_part3_cardiac_1559subj", 234_190_318),
    Archive("Dataset294_TotalSegmentator_part4_muscles_1559subj", 233_625_081),
    Archive("Dataset295_TotalSegmentator_part5_ribs_1559subj", 234_016_576),
)
_FAST = (Archive("Dataset297_TotalSegmentator_total_3mm_1559subj", 135_386_075),)
CATALOGUE: dict[str, Weights] = {
    each.name: each
    for each in (
        Weights(
            "totalsegmentator",
            "organ masks of `total`, 1.5 mm, five models",
            APACHE,
            sum(archive.size for archive in _TOTAL),
            "tumorchain segment and analyze take them by themselves",
            _TOTAL,
        ),
        Weights(
            "totalsegmentator-fast",
            "organ masks of `total`, 3 mm, one model",
            APACHE,
            _FAST[0].size,
            "tumorchain segment and analyze take them with --fast, or without the 1.5 mm ones",
            _FAST,
        ),
        Weights(
            "m3d-clip",
            "3D vision encoder",
            APACHE,
            349_600_000,
            IMPORT,
            repo="GoodBaiBai88/M3D-CLIP",
            files=("pretrained_ViT.bin", "README.md"),
        ),
        Weights(
            "qwen2.5-3b",
            "language model",
            QWEN_RESEARCH,
            6_171_877_376,
            IMPORT,
            repo="Qwen/Qwen2.5-3B-Instruct",
        ),
        Weights(
            "qwen2.5-7b",
            "language model",
            APACHE,
            15_231_233_024,
            IMPORT,
            repo="Qwen/Qwen2.5-7B-Instruct",
        ),
        Weights(
            "qwen2.5-vl-3b",
            "language model with an image tower",
            QWEN_RESEARCH,
            7_509_245_952,
            IMPORT,
            repo="Qwen/Qwen2.5-VL-3B-Instruct",
        ),
        Weights(
            "qwen2.5-vl-7b",
            "language model with an image tower",
            APACHE,
            16_584_333_312,
            IMPORT,
            repo="Qwen/Qwen2.5-VL-7B-Instruct",
        ),
    )
}
