"""Training from a configuration to an exported checkpoint, on one process.

Order on start: data set (made if need be), model, optimizer, latest checkpoint if there is one.
A run that was stopped and starts again goes on as if it had not: the batch of a step depends on
the seed and the step alone.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from tumorchain_jax.data.dataset import preprocess_values, read_manifest, write_phantoms
from tumorchain_jax.data.pipeline import ExampleSource, Layout, batches
from tumorchain_jax.data.splits import check_split
from tumorchain_jax.data.tokenizer import Tokenizer
from tumorchain_jax.errors import InputError
from tumorchain_jax.models.tumorchain import TumorChain, TumorChainConfig, init_params
from tumorchain_jax.path_rules import unflatten
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.training.checkpoint import check_vocabulary, export
from tumorchain_jax.training.encoder import pretrain_encoder
from tumorchain_jax.training.fit import fit
from tumorchain_jax.training.initial import initial_params
from tumorchain_jax.training.loss import Batch
from tumorchain_jax.training.optimizer import learning_rate, make_optimizer, split_trainable
from tumorchain_jax.training.step import TrainState, make_step


def train(config: ConfigDict, workdir: Path) -> None:
    """Train and export to `workdir/export`.

    Raises:
        InputError: the configuration is at odds with itself, the data or the checkpoint.
        FloatingPointError: the loss is no longer finite.
    """
    if config.batch_size % config.accumulation:
        raise InputError(
            "config",
            "accumulation",
            str(config.accumulation),
            f"a divisor of batch_size {config.batch_size}",
            "choose another",
        )
    workdir.mkdir(parents=True, exist_ok=True)

    # ---------------------------------------------------------------- data
    model_config: TumorChainConfig = config.model
    preprocess = PreprocessConfig(
        model_config.encoder.image, config.window.level, config.window.width
    )
    data = Path(config.data.folder or workdir / "data")
    if config.data.phantoms:
        vocab_size = model_config.decoder.vocab_size
        write_phantoms(data, config.data.first_seed, config.data.phantoms, preprocess, vocab_size)
    _check_preprocess(data, preprocess)
    check_split(data)
    tokenizer = Tokenizer.load(data)
    check_vocabulary(data, tokenizer, model_config)
    source = ExampleSource(data, layout_of(config))

    # --------------------------------------------------- model and optimizer
    model = TumorChain(model_config)
    schedule = learning_rate(config.learning_rate, config.steps, config.warmup_ratio)
    optimizer = make_optimizer(
        config.optimizer, schedule, config.weight_decay, config.clip_norm, config.rate_scale
    )
    params = jax.jit(init_params, static_argnums=0)(model_config, jax.random.key(config.seed))
    if config.init:
        params = initial_params(config, tokenizer, params)
    elif config.encoder.alone.steps:
        params |= pretrain_encoder(config, data, workdir)
    trained, frozen = split_trainable(unflatten(params), config.trainable)
    del params  # the step consumes its state: nothing else may hold these arrays
    state = TrainState(jnp.zeros((), jnp.int32), trained, frozen, optimizer.init(trained))

    # ------------------------------------------------------------------ loop
    state = fit(
        workdir,
        state,
        make_step(model, optimizer, config.alpha, config.accumulation),
        lambda step: (
            Batch(**batch) for batch in batches(source, config.batch_size, config.seed, step)
        ),
        schedule,
        config.steps,
        config,
    )

    # ---------------------------------------------------------------- export
    arrays = jax.device_get(state.frozen | state.trained)
    export(
        workdir / "export",
        model_config,
        preprocess,
        config.history,
        arrays,
        tokenizer,
        config.initial_roi,
    )


def layout_of(config: ConfigDict) -> Layout:
    """The shapes of an example, from a training configuration."""
    model: TumorChainConfig = config.model
    return Layout(
        model.roi_grid,
        model.roi_offset,
        model.roi_slots,
        model.global_tokens,
        config.data.length,
        config.history,
        config.initial_roi,
        config.cot,
        config.iir,
    )


def _check_preprocess(data: Path, preprocess: PreprocessConfig) -> None:
    found, expected = read_manifest(data).get("preprocess"), preprocess_values(preprocess)
    if found != expected:
        raise InputError(
            data / "dataset.json", "preprocess", str(found), str(expected), "name another folder"
        )
