"""Time of a training step by its parts."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from tumorchain_jax.bench.timing import seconds
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.data.pipeline import ExampleSource, batches
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.parallel.partition import on_mesh, rows_of
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.tumorchain.dataset import layout_of
from tumorchain_jax.training.tumorchain.initial import random_params
from tumorchain_jax.training.tumorchain.loss import Batch, loss_sums
from tumorchain_jax.training.tumorchain.program import build_program

FIRST_SEED = 7_000_000


def bench_step(config: ConfigDict, repeats: int = 5) -> dict[str, float]:
    """Measure one training step of a configuration with random weights, and its parts.

    Parts that cannot be timed alone are differences of programs that hold more and less of it;
    `batch` is made in threads while the step before runs.
    """
    with TemporaryDirectory() as folder:
        data = Path(folder)
        preprocess = PreprocessConfig(config.model.encoder.image, **config.window)
        count = 4 * config.batch_size
        vocab_size = config.model.decoder.vocab_size
        crops = config.model.crop
        write_phantoms(data, FIRST_SEED, count, preprocess, vocab_size, 1, crops=crops)
        source = ExampleSource(data, layout_of(config))
        stream = batches(source, config.batch_size, 0, 0)
        batch_s = seconds(lambda: [next(stream) for _ in range(4)], repeats) / 4
        arrays = next(stream)

    mesh = make_mesh(dict(config.mesh))
    program = build_program(config, mesh)
    batch = Batch(**jax.device_put(arrays, rows_of(mesh)))
    state = [program.start(random_params(config.model, 0, program.params))]
    trained, frozen = jax.tree.map(jnp.copy, (state[0].trained, state[0].frozen))
    model = TumorChain(config.model, remat=config.remat, scan_unroll=config.scan_unroll)

    # All arrays are arguments: XLA would compute a frozen encoder of constants while it compiles.
    def loss(trained: dict[str, Any], frozen: dict[str, Any], batch: Batch) -> jax.Array:
        sums = loss_sums(model, unflatten(frozen | trained), batch, config.logits_chunks)
        return sums.token_loss + sums.organ_loss

    def update() -> TrainState:
        state[0], _ = program.step(state[0], batch)
        return state[0]

    forward, backward = jax.jit(loss), jax.jit(jax.grad(loss))
    encode = jax.jit(
        lambda params, batch: run(model, unflatten(params), *batch.inputs(), method="encode")
    )
    with on_mesh(mesh):
        encode_s = seconds(lambda: encode(frozen | trained, batch), repeats)
        forward_s = seconds(lambda: forward(trained, frozen, batch), repeats)
        backward_s = seconds(lambda: backward(trained, frozen, batch), repeats)
        step_s = seconds(update, repeats)
    return {
        "batch, s": batch_s,
        "encoder forward, s": encode_s,
        "decoder and losses forward, s": forward_s - encode_s,
        "backward, s": backward_s - forward_s,
        "optimizer, s": step_s - backward_s,
        "step, s": step_s,
    }
