"""Merging of an adapter into its base: W + scale B A, as PEFT merges."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tumorchain_jax.convert.adapter import CONFIG, EMBEDDING, HEAD, PREFIX
from tumorchain_jax.convert.adapter_config import MERGE, scale
from tumorchain_jax.convert.imported import SOURCE, Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.models.language.qwen2 import convert as qwen2
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.weight_map import canonical
from tumorchain_jax.weights.matching import Place


class _Low(NamedTuple):
    """Low-rank update of a weight: scale B A."""

    a: np.ndarray
    b: np.ndarray
    scale: float

    def add_to(self, values: np.ndarray, rows: slice) -> np.ndarray:
        """Merge it into some rows of a weight."""
        delta = (self.b[rows].astype(np.float32) @ self.a.astype(np.float32)) * self.scale
        return (values.astype(np.float32) + delta).astype(values.dtype)


class Merged:
    """View of an imported base that reads as if the adapter had been merged into it.

    Args:
        folder: of the imported adapter.

    Raises:
        InputError: the adapter was made for another base; or it changes the image tower in a way
            that is not plain LoRA of its linear layers.
    """

    def __init__(self, base: Imported, folder: Path):
        self.base, self.adapter, self.folder = base, Imported(folder), base.folder
        found = self.adapter.config.get("decoder")
        if self.adapter.family.name != "peft" or found != base.config.get("decoder"):
            expected = f"an adapter of {base.folder}"
            raise InputError(folder, "base", "another one", expected, "import it with that --base")
        self.lora = LoRA.from_dict(self.adapter.config["lora"])
        self._adapted = {e.place: key for key, e in self.adapter.entries.items() if e.place}
        self._replaced, self._tower = self._image_tower(folder)

    def pieces(self, key: str) -> Iterator[tuple[slice, np.ndarray]]:
        """Read a merged tensor, as `Imported.pieces`."""
        name = canonical(qwen2.RENAMES, key)
        place = self.base.entries[key].place
        if place is None and name == f"{HEAD}.weight":  # the copy of a tied embedding
            [key] = [k for k in self.base.entries if self._named(k) == f"{EMBEDDING}.weight"]
            place = self.base.entries[key].place
        pieces = self.base.pieces(key)
        module = place.path.rpartition("/")[0] if place else ""
        low = self._tower.get(name)
        if (
            place
            and Place(f"{module}/lora_a", place.layer) in self._adapted
            and (place.path.endswith("/kernel"))
        ):
            a, b = (self._adapted[Place(f"{module}/lora_{x}", place.layer)] for x in "ab")
            low = _Low(self.adapter.whole(a), self.adapter.whole(b), self.lora.scale_of(module))
        replaced = self._adapted.get(place) if place else None
        replaced = replaced or self._replaced.get(name)
        if replaced:  # by one of modules_to_save
            for (rows, values), (_, new) in zip(pieces, self.adapter.pieces(replaced), strict=True):
                yield rows, new.astype(values.dtype)
        elif low:
            for rows, values in pieces:
                yield rows, low.add_to(values, rows)
        else:
            yield from pieces

    def _named(self, key: str) -> str:
        return canonical(qwen2.RENAMES, key)

    def _image_tower(self, folder: Path) -> tuple[dict[str, str], dict[str, _Low]]:
        """Map what the adapter does to passthrough weights: {key: the adapter's}, {key: LoRA}."""
        fields = read_json(folder / SOURCE / CONFIG)
        ours = {self._named(key): entry for key, entry in self.base.entries.items()}
        theirs = {
            name: key
            for key in self.adapter.entries
            for name in [canonical(qwen2.LORA_RENAMES, key).removeprefix(PREFIX)]
            if name.startswith(qwen2.TOWER)
        }
        replaced = {name: key for name, key in theirs.items() if name in ours}
        low = {}
        for name in [name for name in theirs if name.endswith(".lora_A.weight")]:
            module = name.removesuffix(".lora_A.weight")
            pair = [f"{module}.lora_{part}.weight" for part in "AB"]
            base = ours.get(f"{module}.weight")
            if base is None or len(base.shape) != 2 or not all(n in theirs for n in pair):
                continue
            a, b = (self.adapter.whole(theirs[n]) for n in pair)
            if (len(b), a.shape[-1], len(a)) == (*base.shape, b.shape[-1]):
                low[f"{module}.weight"] = _Low(a, b, scale(fields, module))
                theirs = {n: key for n, key in theirs.items() if n not in pair}
        if unknown := sorted(theirs.keys() - replaced.keys()):
            expected = "LoRA of the base's linear layers"
            raise InputError(folder, unknown[0], "no place for it", expected, MERGE)
        return replaced, low
