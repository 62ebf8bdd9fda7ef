"""Command-line flags that choose the segmenter."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tumorchain_jax.segmentation.total import TotalSegmenter


def takes_segmenter(command: argparse.ArgumentParser, kinds: list[str]) -> None:
    """Which segmenter, with which weights."""
    add = command.add_argument
    add(
        "--segmenter",
        choices=kinds,
        default="jax",
        help="jax: the networks here; totalsegmentator: hand scans to the program if installed"
        + ("; none: no masks, the global view alone" if "none" in kinds else ""),
    )
    add(
        "--weights",
        nargs="?",
        const="",
        metavar="DIR",
        help="of an nnU-Net model, or all of TotalSegmentator's; without DIR: where it keeps them; "
        "default: the nano segmenter of the package, which has only seen digital patients",
    )
    add(
        "--segmenter-dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="in which the networks here compute: bfloat16 is for TPUs and GPUs",
    )
    add("-f", "--fast", action="store_true", help="TotalSegmentator's 3 mm model")
    add(
        "--no-cache",
        action="store_true",
        help="make masks anew; else those of the same scan and weights are kept, without a name, "
        "in ~/.cache/tumorchain/segmentations (XDG_CACHE_HOME), up to 2 GiB",
    )


def segmenter_of(
    options: argparse.Namespace,
    order: int = 1,
    organs: list[str] | None = None,
    quiet: bool = False,
) -> "TotalSegmenter":
    """The one that the flags of `takes_segmenter` name."""
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
