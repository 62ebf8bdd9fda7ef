"""Lower the programs of a configuration for the devices of a mesh, without making an array.

Shape letters: B scans or tiles of one, M visual tokens, O organs, L ROI slots, P prompt positions.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ml_collections import ConfigDict

from tumorchain_jax.anatomy.organs import ORGANS
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import (
    TumorChain,
    TumorChainConfig,
    attention_heads,
    logical_axes,
)
from tumorchain_jax.models.unet3d.model import UNet3D
from tumorchain_jax.parallel.partition import on_mesh, param_shardings, rows_of
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.reasoning.interleaved import LoopConfig, Request, reason
from tumorchain_jax.reasoning.organ_matcher import build_matcher
from tumorchain_jax.reasoning.prompt import MAX_QUESTION_TOKENS, Chat
from tumorchain_jax.reasoning.roi import RoiPrompt, Turn, build_roi_prompt
from tumorchain_jax.segmentation.tiles import tile_program
from tumorchain_jax.training.program import Program
from tumorchain_jax.training.registry import task_name

LONGEST_TOKEN = 128
"""Bytes of the longest of Qwen's tokens, which is 128 spaces."""


def lower_training(program: Program, mesh: Mesh) -> Any:
    """One optimizer step of any training task."""
    with on_mesh(mesh, program.rules):
        step: Any = program.step
        return step.lower(program.state, program.batch)


def lower_inference(config: ConfigDict, name: str, mesh: Mesh, batch_size: int) -> Any:
    """The inference program of a task: `reason` or `segment`.

    Raises:
        InputError: the task of the configuration has no such program.
    """
    task = task_name(config)
    own, lower = INFERENCE[task]
    if name != own:
        expected = f"train or {own}, the programs of the task {task}"
        raise InputError("command line", "--program", name, expected, "choose one")
    return lower(config, mesh, batch_size)


def lower_reasoning(config: ConfigDict, mesh: Mesh, batch_size: int) -> Any:
    """The whole reasoning loop on `batch_size` questions, weights in the dtype of computation."""
    model: TumorChainConfig = config.model
    dtype = jnp.dtype(model.dtype)
    places = param_shardings(logical_axes(model, unrolled=True), attention_heads(model), mesh)
    named = logical_axes(model, unrolled=True)
    params = unflatten(
        {
            path: jax.ShapeDtypeStruct(shape, dtype, sharding=places[path])
            for path, (_, shape) in named.items()
        }
    )
    everywhere = NamedSharding(mesh, PartitionSpec())
    # The template has about as many tokens with one tokenizer as with another.
    chat = Chat(Tokenizer.load(NANO_CHECKPOINT), model.template)
    matcher = build_matcher([b"x" * LONGEST_TOKEN] * model.decoder.vocab_size)
    prompt = build_roi_prompt(chat)
    tables: tuple[Any, RoiPrompt] = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=everywhere),
        (matcher, prompt),
    )
    loop = LoopConfig(model.roi.global_tokens + MAX_QUESTION_TOKENS, history=config.history)
    request = _request(model, loop, rows_of(mesh), batch_size)
    with on_mesh(mesh):
        return reason.lower(TumorChain(model, unrolled=True), loop, params, *tables, request)


def lower_segmentation(config: ConfigDict, mesh: Mesh, batch_size: int) -> Any:
    """The segmenter's program on `batch_size` tiles, weights in the dtype of computation."""
    segmenter = config.segmenter
    dtype = jnp.dtype(segmenter.dtype)
    everywhere = NamedSharding(mesh, PartitionSpec())

    def stored(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=everywhere)

    shape = (batch_size, *segmenter.patch_size)
    tiles = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rows_of(mesh))
    init = partial(UNet3D(segmenter.network).init, jax.random.key(0))
    made = jax.eval_shape(init, jax.ShapeDtypeStruct((*shape, 1), jnp.float32))
    params = jax.tree.map(stored, nn.meta.unbox(made)["params"])
    with on_mesh(mesh):
        return jax.jit(tile_program(segmenter.network, (), dtype)).lower(params, tiles)


INFERENCE = {
    "tumorchain": ("reason", lower_reasoning),
    "segmentation": ("segment", lower_segmentation),
}
"""Task -> its program at inference, and what lowers it."""


def _request(
    model: TumorChainConfig, loop: LoopConfig, rows: NamedSharding, batch_size: int
) -> Request:
    def array(shape: Sequence[int], dtype: Any) -> Any:
        return jax.ShapeDtypeStruct((batch_size, *shape), dtype, sharding=rows)

    prompt, rois = (loop.prompt_length,), (len(ORGANS), model.roi.slots)
    return Request(
        visual_tokens=array((model.roi.visual_tokens, model.decoder.hidden_size), model.dtype),
        roi_index=array(rois, jnp.int32),
        roi_valid=array(rois, jnp.bool_),
        prompt=Turn(array(prompt, jnp.int32), array(prompt, jnp.int32), array(prompt, jnp.bool_)),
        visited=array((len(ORGANS),), jnp.bool_),
        rounds=array((), jnp.int32),
        token_budget=array((), jnp.int32),
        keys=array((), jax.random.key(0).dtype),
    )
