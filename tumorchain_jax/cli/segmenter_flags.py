"""Command-line flags that choose the segmenter."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tumorchain_jax.segmentation.total import TotalSegmenter


def takes_segmenter(command: argparse.ArgumentParser, kinds: list[str]) -> None:
    """Add the flags that choose a segmenter and its weights."""
    add = command.add_argument
    add(
        "--segmenter",
        choices=kinds,
        default="jax",
        help="jax: the networks of this package; totalsegmentator: the program of that name, if "
        "it is installed"
        + ("; none: no masks, the global view alone" if "none" in kinds else "")
        + "; default: jax",
    )
    add(
        "--weights",
        nargs="?",
        const="",
        metavar="DIR",
        help="weights of an nnU-Net model, or TotalSegmentator's; without DIR: the folder in which "
        "TotalSegmentator keeps them; default: that folder if `weights pull` filled it, else the "
        "nano segmenter of the package, which has seen digital patients alone",
    )
    add(
        "--segmenter-dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="precision of the networks of this package: bfloat16 is for TPUs and GPUs; default: "
        "float32",
    )
    add("-f", "--fast", action="store_true", help="TotalSegmentator's 3 mm model")
    add(
        "--no-cache",
        action="store_true",
        help="segment again: do not use masks cached in ~/.cache/tumorchain/segmentations "
        "(XDG_CACHE_HOME; up to 2 GiB, named by a hash of scan and weights)",
    )


HINT = (
    "The organ masks are the nano segmenter's, which has seen digital patients alone. For real "
    "scans fetch TotalSegmentator's weights once: tumorchain weights pull totalsegmentator"
)


def segmenter_hint(segmenter: "TotalSegmenter") -> str:
    """Return what to say of the segmenter that was used; "" for any but the nano segmenter."""
    from tumorchain_jax.segmentation.factory import NANO_NAME

    return HINT if segmenter.name == NANO_NAME else ""


def segmenter_of(
    options: argparse.Namespace,
    order: int = 1,
    organs: list[str] | None = None,
    quiet: bool = False,
) -> "TotalSegmenter":
    """Make the segmenter that the flags of `takes_segmenter` choose."""
    from tumorchain_jax.segmentation.cache import SegmentationCache
    from tumorchain_jax.segmentation.factory import make_segmenter

    return make_segmenter(
        options.segmenter,
        options.weights,
        fast=options.fast,
        order=order,
        dtype=options.segmenter_dtype,
        organs=organs,
        cache=None if options.no_cache else SegmentationCache(),
        quiet=quiet,
    )
