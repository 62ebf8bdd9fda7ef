"""A base model with an adapter folded into its weights: W + scale B A, as PEFT merges."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.models.layers.linear import LoRA

WHOLE = slice(None)


class Merged:
    """An imported base that reads as if the adapter had been merged into it.

    Args:
        folder: of the imported adapter.

    Raises:
        InputError: the adapter was made for another base.
    """

    def __init__(self, base: Imported, folder: Path):
        self.base, self.adapter, self.folder = base, Imported(folder), base.folder
        found = self.adapter.config.get("decoder")
        if self.adapter.family != "peft" or found != base.config.get("decoder"):
            expected = f"an adapter of {base.folder}"
            raise InputError(folder, "base", "another one", expected, "import it with that --base")
        self.lora = LoRA.from_dict(self.adapter.config["lora"])

    def pieces(self, key: str) -> Iterator[tuple[slice, np.ndarray]]:
        """As `Imported.pieces`."""
        place = self.base.entries[key].place
        arrays = self.adapter.arrays
        module = place.path.rpartition("/")[0] if place else ""
        if place and place.path in arrays.specs:  # of modules_to_save
            for rows, values in self.base.pieces(key):
                yield rows, arrays.read(*place, rows).astype(values.dtype)
        elif place and f"{module}/lora_a" in arrays.specs and place.path.endswith("/kernel"):
            a = arrays.read(f"{module}/lora_a", place.layer, WHOLE).astype(np.float32)
            b = arrays.read(f"{module}/lora_b", place.layer, WHOLE).astype(np.float32)
            scale = np.float32(self.lora.scale_of(module))
            for rows, values in self.base.pieces(key):
                delta = (b[rows] @ a) * scale
                yield rows, (values.astype(np.float32) + delta).astype(values.dtype)
        else:
            yield from self.base.pieces(key)
