"""Predict the labels of a scan as nnU-Net does (nnunetv2/inference)."""

from collections.abc import Iterator
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.scan.volume import Volume
from tumorchain_jax.segmentation.memory import check_memory, estimate_memory
from tumorchain_jax.segmentation.model_folder import SegmentationModel
from tumorchain_jax.segmentation.preprocess import (
    Grids,
    find_grids,
    preprocess,
    resize_back,
    restore,
)
from tumorchain_jax.segmentation.resample import resample_labels
from tumorchain_jax.segmentation.tiles import sliding_window, tile_program

Dtype = Literal["float32", "bfloat16"]


class Predictor:
    """A compiled segmentation model for any number of scans of any size.

    Args:
        model: of one channel.
        step: from tile to tile, as a share of a tile.
        mirror: take the mean over mirror images, where the model allows it.
        tiles_at_once: in a batch; the last batch of a row is filled up.
        dtype: of the network's weights and features.
        half_precision_sum: sum and resample logits in float16, as nnU-Net does, bit for bit where
            the network's own logits are.
        memory_gib: limit of host memory for a scan, beside itself; None: what is free.

    Raises:
        InputError: an argument is out of its range, or the model takes or gives what is not run
            here: several channels, logits resampled by a spline above order 1.
    """

    def __init__(
        self,
        model: SegmentationModel,
        *,
        step: float = 0.5,
        mirror: bool = True,
        tiles_at_once: int = 1,
        dtype: Dtype = "float32",
        half_precision_sum: bool = False,
        memory_gib: float | None = None,
    ):
        self.plan = plan = model.plan
        _check(model, step, tiles_at_once)
        self._step, self._tiles_at_once, self._half = step, tiles_at_once, half_precision_sum
        self._source, self._memory_gib = model.source, memory_gib
        self._folds = [
            jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params) for params in model.folds
        ]
        program = tile_program(plan.network, plan.mirror_axes if mirror else (), dtype)
        tiles = jax.ShapeDtypeStruct((tiles_at_once, *plan.patch_size), jnp.float32)
        # Compiled for this one shape: another scan cannot compile it again.
        self._program = jax.jit(program).lower(self._folds[0], tiles).compile()

    def __call__(self, scan: Volume) -> Volume:
        """Return the model's labels, uint8 (uint16 over 255 classes), on the scan's own grid.

        Raises:
            InputError: the scan does not fit into memory (before anything starts), has voxels that
                are not finite, is 0 everywhere, or is too thin; a logit is not finite.
        """
        plan = self.plan
        grids = find_grids(scan, plan)
        self._check_memory(grids, scan.source)
        slabs = sliding_window(
            preprocess(scan, plan, grids),
            self._program,
            self._folds,
            plan.patch_size,
            plan.network.classes,
            step=self._step,
            tiles_at_once=self._tiles_at_once,
            half_precision_sum=self._half,
        )
        resize = resize_back(plan, grids)
        labels = resample_labels(self._finite(slabs), resize, half_precision=self._half)
        return restore(labels, scan, plan, grids)

    def _check_memory(self, grids: Grids, source: str) -> None:
        sizes = self._program.memory_analysis()
        # A platform that does not report sizes counts as 0.
        program = sizes.temp_size_in_bytes + sizes.output_size_in_bytes if sizes else 0
        bands, bytes_each = (len(self._folds), 2) if self._half else (1, 4)
        peak = estimate_memory(self.plan, grids, program, bands, bytes_each)
        check_memory(peak, self._memory_gib, source)

    def _finite(self, slabs: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
        """Refuse logits that are not finite: weights may be broken, a float16 sum may overflow."""
        for slab in slabs:
            if not np.isfinite(slab).all():
                hint = "sum in float32" if self._half else "use other weights"
                raise InputError(self._source, "logits", "NaN or infinite", "finite numbers", hint)
            yield slab


def _check(model: SegmentationModel, step: float, tiles_at_once: int) -> None:
    plan = model.plan
    if plan.network.in_channels != 1:
        found, hint = f"{plan.network.in_channels} channels", "use a model for CT alone"
        raise InputError(model.source, "channel_names", found, "one", hint)
    orders = plan.resampling.logits.order, plan.resampling.logits.order_z
    if max(orders) > 1:
        found, expected = f"order {max(orders)}", "order 0 or 1"
        raise InputError(model.source, "resampling_fn_probabilities", found, expected, "change it")
    if not 0 < step <= 1:
        raise InputError("segment", "step", f"{step}", "over 0, at most 1", "change it")
    if tiles_at_once < 1:
        raise InputError("segment", "tiles_at_once", f"{tiles_at_once}", "1 or more", "change it")
