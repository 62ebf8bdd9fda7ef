"""A published model's weights <-> our parameters, by one table read in both directions.

A row is (regex over our parameter path, template of their key, transform). The regex matches the
whole path, as in `path_rules`, and its groups are put into the template: `\\1`. Where the template
holds `{layer}`, our parameter stacks all layers on its leading axis and there is one key a layer;
`{layer+1}` counts them from 1, for a stack without the first.
As our paths and shapes are known, so is the exact set of their keys: a key too many, a key too few
or another shape is an error, and nothing is left out in silence.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tumorchain_jax.core.path_rules import flatten


class Transform(NamedTuple):
    """A change of layout and its inverse, for the weights of one layer.

    Attributes:
        rows: the axis of ours along which their rows (their first axis) lie.
    """

    to_ours: Callable[[np.ndarray], np.ndarray]
    from_ours: Callable[[np.ndarray], np.ndarray]
    rows: int


LAYER = re.compile(r"\{layer(?:\+(\d+))?\}")
KEEP = Transform(lambda x: x, lambda x: x, 0)
# PyTorch keeps the weight of a linear layer as (outputs, inputs); ours is (inputs, outputs).
TRANSPOSE = Transform(np.transpose, np.transpose, -1)
# That of a convolution as (outputs, inputs, d, h, w); ours is (d, h, w, inputs, outputs), and
# (inputs, outputs) where the kernel is a single voxel.
CONVOLUTION = Transform(
    lambda x: x.transpose(2, 3, 4, 1, 0), lambda x: x.transpose(4, 3, 0, 1, 2), -1
)
POINTWISE = Transform(lambda x: x[:, :, 0, 0, 0].T, lambda x: x.T[:, :, None, None, None], -1)
# The same of 2D kernels.
CONVOLUTION_2D = Transform(lambda x: x.transpose(2, 3, 1, 0), lambda x: x.transpose(3, 2, 0, 1), -1)
POINTWISE_2D = Transform(lambda x: x[:, :, 0, 0].T, lambda x: x.T[:, :, None, None], -1)

Table = Sequence[tuple[str, str, Transform]]
Renames = Sequence[tuple[str, str]]
"""(regex over one of their keys, the name that a table has for it): other spellings of a key."""


def canonical(renames: Renames, key: str) -> str:
    """The spelling of a key that the table knows; the first regex that matches all of it wins."""
    for pattern, name in renames:
        if match := re.fullmatch(pattern, key):
            return match.expand(name)
    return key


class Source(NamedTuple):
    """What one parameter is made of: one key, or one per layer when it is `stacked`."""

    keys: list[str]
    stacked: bool
    transform: Transform

    def their_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of each key's tensor, for a parameter of this shape."""
        layer = np.broadcast_to(np.int8(0), shape[1:] if self.stacked else shape)
        return self.transform.from_ours(layer).shape


def sources(table: Table, flat: Mapping[str, Any]) -> dict[str, Source]:
    """The source of every parameter in `flat` ({path: anything with a shape}).

    Raises:
        ValueError: the table does not name every parameter once, or uses a key twice.
    """
    found = {}
    for path, leaf in flat.items():
        rows = [
            (match.expand(template), transform)
            for pattern, template, transform in table
            if (match := re.fullmatch(pattern, path))
        ]
        if len(rows) != 1:
            raise ValueError(f"parameter {path!r} is named by {len(rows)} rows, not by one")
        [(key, transform)] = rows
        stacked = LAYER.search(key) is not None
        layers = range(leaf.shape[0]) if stacked else [0]
        keys = [_of_layer(key, layer) for layer in layers]
        found[path] = Source(keys, stacked, transform)
    uses = Counter(key for source in found.values() for key in source.keys)
    if twice := sorted(key for key, count in uses.items() if count > 1):
        raise ValueError(f"keys that the table uses twice: {twice}")
    return found


def _of_layer(key: str, layer: int) -> str:
    return LAYER.sub(lambda match: str(layer + int(match[1] or 0)), key)


def from_ours(table: Table, tree: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Our parameter tree under their keys and in their layout."""
    flat = flatten(tree)
    theirs = {}
    for path, (keys, stacked, transform) in sources(table, flat).items():
        value = np.asarray(flat[path])
        for key, layer in zip(keys, value if stacked else [value], strict=True):
            theirs[key] = np.ascontiguousarray(transform.from_ours(layer))
    return theirs
