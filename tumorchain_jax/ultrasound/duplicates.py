"""Near-duplicate pictures by perceptual hash: rescaled, re-encoded, or mirrored left to right.

The hash is the difference hash of 16 x 16 bits: whether each cell of a shrunk picture is brighter
than its neighbour on the right. It is taken of the picture without its black border. Two pictures
are near duplicates if at most `MOST_BITS` of 256 differ: among 795 pictures of three sets that
gives 74 pairs, all of them in BUSI; from 24 to 40 bits it would give 67 to 76.

Shape letters: N pictures, H W pixels, B bits.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int, UInt8
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

SIDE, MOST_BITS = 16, 28
BORDER = 8
"""Grey value up to which a row or column counts as border."""


def perceptual_hash(grey: UInt8[np.ndarray, "H W"]) -> str:
    """Hash a picture and its mirror image; 64 hexadecimal digits each."""
    bits = np.concatenate([_bits(grey), _bits(grey[:, ::-1])])
    return np.packbits(bits).tobytes().hex()


def _bits(grey: UInt8[np.ndarray, "H W"]) -> Bool[np.ndarray, " B"]:
    rows, columns = (grey.max(axis=axis) > BORDER for axis in (1, 0))
    if rows.any():
        (top, bottom), (left, right) = (np.flatnonzero(each)[[0, -1]] for each in (rows, columns))
        grey = grey[top : bottom + 1, left : right + 1]
    small = Image.fromarray(grey).resize((SIDE + 1, SIDE), Image.Resampling.LANCZOS)
    cells = np.asarray(small, int)
    return (cells[:, :-1] < cells[:, 1:]).ravel()


def near_duplicates(hashes: Sequence[str]) -> Int[np.ndarray, "pairs 2"]:
    """Pairs of near duplicates among pictures, as their numbers."""
    if not hashes:
        return np.zeros((0, 2), int)
    packed = np.array([np.frombuffer(bytes.fromhex(each), np.uint8) for each in hashes])
    bits, mirrored = np.split(np.unpackbits(packed, axis=1).astype(bool), 2, axis=1)
    near = np.zeros((len(bits), len(bits)), bool)
    for others in (bits, mirrored):
        # Differing bits of all pairs as a product: a + b - 2ab summed over bits.
        both = bits.astype(np.float32) @ others.T.astype(np.float32)
        near |= bits.sum(1)[:, None] + others.sum(1)[None] - 2 * both <= MOST_BITS
    return np.argwhere(np.triu(near | near.T, 1))


def clusters(patients: Sequence[str], hashes: Sequence[str]) -> Int[np.ndarray, " N"]:
    """Number the groups of pictures that may not be parted: of one patient, or near duplicates."""
    pairs = [tuple(pair) for pair in near_duplicates(hashes)]
    first: dict[str, int] = {}
    pairs += [(first.setdefault(name, number), number) for number, name in enumerate(patients)]
    a, b = np.array(pairs, int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(patients),) * 2)
    return connected_components(graph, directed=False)[1].astype(int)
