"""Merging of an adapter into its base: W + scale B A, as PEFT merges."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tumorchain_jax.convert.adapter import EMBEDDING, HEAD
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.language.qwen2 import convert as qwen2
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.weight_map import canonical
from tumorchain_jax.weights.matching import Place


class _Low(NamedTuple):
    """Low-rank update of a weight, of a linear layer or a convolution: scale B A."""

    a: np.ndarray
    b: np.ndarray
    scale: float

    def add_to(self, values: np.ndarray, rows: slice) -> np.ndarray:
        """Merge it into some rows of a weight."""
        a, b = (each.reshape(len(each), -1).astype(np.float32) for each in (self.a, self.b))
        delta = (b[rows] @ a).reshape(values.shape) * self.scale
        return (values.astype(np.float32) + delta).astype(values.dtype)


class Merged:
    """View of an imported base that reads as if the adapter had been merged into it.

    Args:
        folder: of the imported adapter.

    Raises:
        InputError: the adapter was made for another base, or for a tower that it is without.
    """

    def __init__(self, base: Imported, folder: Path):
        self.base, self.adapter, self.folder = base, Imported(folder), base.folder
        has_tower = any(path.startswith("tower/") for path in self.adapter.arrays.specs)
        parts = ("decoder", "tower") if has_tower else ("decoder",)
        same = all(self.adapter.config.get(part) == base.config.get(part) for part in parts)
        if self.adapter.family.name != "peft" or not same:
            expected = f"an adapter of {base.folder}"
            hint = "import it with that --base" + (", and that with --tower" if has_tower else "")
            raise InputError(folder, "base", "another one", expected, hint)
        self.lora = LoRA.from_dict(self.adapter.config["lora"])
        self._adapted = {e.place: key for key, e in self.adapter.entries.items() if e.place}

    def pieces(self, key: str) -> Iterator[tuple[slice, np.ndarray]]:
        """Read a merged tensor, as `Imported.pieces`."""
        place = self.base.entries[key].place
        if place is None and self._named(key) == f"{HEAD}.weight":  # the copy of a tied embedding
            [key] = [k for k in self.base.entries if self._named(k) == f"{EMBEDDING}.weight"]
            place = self.base.entries[key].place
        pieces = self.base.pieces(key)
        module, _, leaf = place.path.rpartition("/") if place else ("", "", "")
        if place in self._adapted:  # replaced by one of modules_to_save
            new_pieces = self.adapter.pieces(self._adapted[place])
            for (rows, values), (_, new) in zip(pieces, new_pieces, strict=True):
                yield rows, new.astype(values.dtype)
        elif place and leaf == "kernel" and Place(f"{module}/lora_a", place.layer) in self._adapted:
            a, b = (self._adapted[Place(f"{module}/lora_{x}", place.layer)] for x in "ab")
            whole = (self.adapter.whole(a), self.adapter.whole(b))
            low = _Low(*whole, self.lora.scale_of(module))
            for rows, values in pieces:
                yield rows, low.add_to(values, rows)
        else:
            yield from pieces

    def _named(self, key: str) -> str:
        return canonical(qwen2.RENAMES, key)
