"""Benchmark of training steps against the same steps in PyTorch, part by part."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import optax
from tqdm import tqdm

from tumorchain_jax.bench.own_process import OwnProcess
from tumorchain_jax.bench.timing import REPEATS, seconds
from tumorchain_jax.bench.torch_training import (
    Hyperparameters,
    StepTimes,
    TorchTrainer,
)
from tumorchain_jax.bench.transformers_models import require
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.data.pipeline import ExampleSource, Layout, batches
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig, init_params
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.phantoms.dataset import write_phantoms
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.optimizer import make_optimizer
from tumorchain_jax.training.state import TrainState
from tumorchain_jax.training.step import make_step
from tumorchain_jax.training.tumorchain.loss import (
    Batch,
    HybridLoss,
    hybrid_loss,
    loss_sums,
    totals,
)

MODEL = TumorChainConfig(
    encoder=ViT3DConfig((32, 128, 128), (4, 16, 16), 384, 1536, 6, 6),
    decoder=Qwen2Config(
        vocab_size=32_768,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=2,
        head_dim=64,
        tie_word_embeddings=True,
    ),
    roi_slots=32,
)
"""A decoder of 98 and, in M3D's form, an encoder of 11 million parameters."""
FIRST_SEED = 7_000_000
WARM_UP = 2
TOLERANCE = 1e-4
"""Relative, of the loss of a step."""


def bench_train(
    model: TumorChainConfig = MODEL, rows: int = 2, length: int = 768, repeats: int = REPEATS
) -> dict[str, float]:
    """Measure the seconds of one step of both, and the speedup.

    Both start from the same weights and train on the same batch, float32, on the same number of
    threads, with AdamW: `same losses` is the share of steps whose losses agree to `TOLERANCE`.
    Each has a process of its own, one after the other: a virtual machine may give memory that is
    idle for seconds back to its host, so steps in turns would be slower than real training.

    Of our step, which is one program, the parts are timed as programs of their own, and the
    backward passes are what is left; `decoder` includes the vocabulary and the loss, `encoder` the
    projector.

    Args:
        rows: of the batch, each one digital patient and the questions about him.
        length: positions of a row.

    Raises:
        InputError: PyTorch or MONAI is not installed.
    """
    require("torch", "monai", "einops")
    batch, hyper = _make_batch(model, rows, length), Hyperparameters()
    steps = WARM_UP + repeats
    with OwnProcess(_Trainer, model, batch, hyper) as ours:
        our_losses, step_s = zip(*_train(ours, steps, "our steps"), strict=True)
        our_s, our_peak = median(step_s[WARM_UP:]), ours.peak_gb()
        parts = ours("parts", our_s, repeats)
        values = {"parameters, millions": ours("parameters") / 1e6}
    with OwnProcess(_reference_trainer, model, batch, hyper) as reference:
        reference_losses, reference_times = zip(
            *_train(reference, steps, "PyTorch's steps"), strict=True
        )
        reference_peak = reference.peak_gb()
    reference_s = median(sum(times) for times in reference_times[WARM_UP:])
    apart = [abs(a - b) / abs(b) for a, b in zip(our_losses, reference_losses, strict=True)]
    medians = StepTimes(*map(median, zip(*reference_times[WARM_UP:], strict=True)))
    values |= {
        "positions of a batch": float(rows * length),
        "first loss": our_losses[0],
        "first loss of PyTorch": reference_losses[0],
        "last loss": our_losses[-1],
        "last loss of PyTorch": reference_losses[-1],
        "losses apart, relative, at most": max(apart),
        f"same losses (to {TOLERANCE:g}), share": sum(a <= TOLERANCE for a in apart) / len(apart),
        "step, s": our_s,
        "step of PyTorch, s": reference_s,
        "step, speedup": reference_s / our_s,
    }
    for name, part in parts._asdict().items():
        spelt = name.replace("_", " ")
        values |= {f"{spelt}, s": part, f"{spelt} of PyTorch, s": getattr(medians, name)}
    return values | {"peak GB": our_peak, "peak of PyTorch, GB": reference_peak}


def _train(trainer: OwnProcess, steps: int, what: str) -> list[Any]:
    return [trainer("step") for _ in tqdm(range(steps), what, disable=None)]


def _make_batch(model: TumorChainConfig, rows: int, length: int) -> Batch:
    """Make rows of training, as the input pipeline packs them."""
    layout = Layout(model.roi, length, "all")
    with TemporaryDirectory() as folder:
        data = Path(folder)
        preprocess = PreprocessConfig(model.encoder.image)
        vocab_size = model.decoder.vocab_size
        write_phantoms(data, FIRST_SEED, 4 * rows, preprocess, vocab_size, processes=1)
        arrays = next(batches(ExampleSource(data, layout), rows, 0, 0))
    return Batch(**arrays)


def _initial(model: TumorChainConfig) -> dict[str, jax.Array]:
    return jax.jit(partial(init_params, model))(jax.random.key(0))


def _reference_trainer(
    config: TumorChainConfig, batch: Batch, hyper: Hyperparameters
) -> TorchTrainer:
    return TorchTrainer(config, _initial(config), jax.device_put(batch), hyper)


class _Trainer:
    """Our training on one batch."""

    def __init__(self, config: TumorChainConfig, batch: Batch, hyper: Hyperparameters):
        self.model = TumorChain(config, scan_unroll=config.decoder.num_hidden_layers)
        self.batch, self.alpha = jax.device_put(batch), hyper.alpha
        self.optimizer = make_optimizer(
            "adamw",
            optax.constant_schedule(hyper.learning_rate),
            hyper.weight_decay,
            hyper.clip_norm,
        )
        self.update = make_step(HybridLoss(self.model, hyper.alpha), self.optimizer)
        params = _initial(config)
        moments = jax.jit(self.optimizer.init)(params)
        self.state = TrainState(jnp.int32(0), params, {}, moments)

    def parameters(self) -> int:
        """Number of parameters."""
        return sum(leaf.size for leaf in self.state.trained.values())

    def step(self) -> tuple[float, float]:
        """Make one update; the loss before it, and its seconds."""
        started = time.perf_counter()
        self.state, metrics = self.update(self.state, self.batch)
        jax.block_until_ready(self.state)
        return float(metrics["loss"]), time.perf_counter() - started

    def parts(self, step_s: float, repeats: int) -> StepTimes:
        """Measure the seconds of each part of a step."""
        model, alpha, batch = self.model, self.alpha, self.batch
        volume = batch.volume.astype(jnp.float32) / 255
        seen = {
            path: leaf
            for path, leaf in self.state.trained.items()
            if path.startswith(("encoder/", "projector/"))
        }

        def encode(params: dict[str, Any], volume: jax.Array) -> jax.Array:
            return run(model, unflatten(params), volume, method="encode")

        def half_square(params: dict[str, Any], volume: jax.Array) -> jax.Array:
            return 0.5 * jnp.sum(encode(params, volume) ** 2)

        def loss(params: dict[str, Any], batch: Batch) -> jax.Array:
            return hybrid_loss(loss_sums(model, unflatten(params), batch), *totals(batch), alpha)

        encoder = _seconds_of(encode, (seen, volume), repeats)
        encoder_both = _seconds_of(jax.grad(half_square), (seen, volume), repeats)
        forward = _seconds_of(loss, (self.state.trained, batch), repeats)
        optimizer = self._optimizer_seconds(repeats)
        return StepTimes(
            encoder_forward=encoder,
            decoder_forward=forward - encoder,
            decoder_backward=step_s - optimizer - forward - (encoder_both - encoder),
            encoder_backward=encoder_both - encoder,
            optimizer=optimizer,
        )

    def _optimizer_seconds(self, repeats: int) -> float:
        def apply(state: TrainState, gradient: dict[str, Any]) -> TrainState:
            updates, new = self.optimizer.update(gradient, state.optimizer, state.trained)
            trained = optax.apply_updates(state.trained, updates)
            return state._replace(trained=trained, optimizer=new)

        compiled = jax.jit(apply, donate_argnums=0)
        gradient = jax.jit(partial(jax.tree.map, jnp.copy))(self.state.trained)

        def update() -> TrainState:
            self.state = compiled(self.state, gradient)
            return self.state

        return seconds(update, repeats)


def _seconds_of(function: Callable[..., Any], args: tuple[Any, ...], repeats: int) -> float:
    compiled = jax.jit(function)
    return seconds(lambda: compiled(*args), repeats)
