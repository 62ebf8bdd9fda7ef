"""nnU-Net's keys <-> our parameters. See `weight_map`.

PyTorch names some tensors of nnU-Net twice or more: every convolution and norm again as
`all_modules.0` and `all_modules.1`, and the encoder again as `decoder.encoder`. These copies are
compared and left out on the way in (PyTorch would load the copy last) and made again on the way
out, for PyTorch wants them all.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from tumorchain_jax.models.unet3d.model import UNet3DConfig
from tumorchain_jax.models.weight_map import (
    CONVOLUTION,
    KEEP,
    POINTWISE,
    Renames,
    Table,
    Transform,
)

Leaf = TypeVar("Leaf")

# PyTorch keeps the weight of a transposed convolution as (in, out, d, h, w).
TRANSPOSED = Transform(
    lambda x: x.transpose(2, 3, 4, 0, 1), lambda x: x.transpose(3, 4, 0, 1, 2), -2
)

# Of torch.compile and of DistributedDataParallel.
RENAMES: Renames = ((r"(?:_orig_mod\.|module\.)+(.*)", r"\1"),)
_TWIN = r"(?:decoder\.(?=encoder\.))?(.*)\.all_modules"
COPIES: Renames = (
    (_TWIN + r"\.0\.(weight|bias)", r"\1.conv.\2"),
    (_TWIN + r"\.[12]\.(weight|bias)", r"\1.norm.\2"),  # 2 where there is dropout between
    (r"decoder\.(encoder\..*)", r"\1"),
)
"""Second and third names of a tensor, and its first."""


def table(config: UNet3DConfig) -> Table:
    """The rows for a network of this configuration."""
    pooled = "|".join(str(s) for s, strides in enumerate(config.strides) if strides != (1, 1, 1))
    layers = (
        (r"encoder/stem", r"encoder.stem.convs.0"),
        (r"encoder/stage(\d+)_conv(\d+)", r"encoder.stages.\1.0.convs.\2"),
        (r"encoder/stage(\d+)_block(\d+)/(conv\d)", r"encoder.stages.\1.blocks.\2.\3"),
        # Of the shortcut, pooling comes first where there is any.
        (rf"encoder/stage({pooled})_block0/skip", r"encoder.stages.\1.blocks.0.skip.1"),
        (rf"encoder/stage((?!(?:{pooled})_)\d+)_block0/skip", r"encoder.stages.\1.blocks.0.skip.0"),
        (r"decoder/stage(\d+)_conv(\d+)", r"decoder.stages.\1.convs.\2"),
    )
    rows = [
        row
        for path, key in layers
        for row in (
            (f"{path}/kernel", f"{key}.conv.weight", CONVOLUTION),
            (f"{path}/bias", f"{key}.conv.bias", KEEP),
            (f"{path}/norm_scale", f"{key}.norm.weight", KEEP),
            (f"{path}/norm_bias", f"{key}.norm.bias", KEEP),
        )
    ]
    return (
        *rows,
        (r"decoder/stage(\d+)_upsample/kernel", r"decoder.transpconvs.\1.weight", TRANSPOSED),
        (r"decoder/stage(\d+)_upsample/bias", r"decoder.transpconvs.\1.bias", KEEP),
        (r"decoder/stage(\d+)_head/kernel", r"decoder.seg_layers.\1.weight", POINTWISE),
        (r"decoder/stage(\d+)_head/bias", r"decoder.seg_layers.\1.bias", KEEP),
    )


def with_copies(theirs: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """All names that PyTorch has for the tensors of a network.

    Args:
        theirs: each tensor once, as `from_ours` gives it.
    """
    named = dict(theirs)
    for kind, place in (("conv", 0), ("norm", 1)):
        for key, leaf in theirs.items():
            copy = re.sub(rf"\.{kind}\.(weight|bias)$", rf".all_modules.{place}.\1", key)
            named[copy] = leaf
    encoder = {key: leaf for key, leaf in named.items() if key.startswith("encoder.")}
    return named | {f"decoder.{key}": leaf for key, leaf in encoder.items()}
