"""Held against XLA's own count, of a model with one layer each: of a scan it counts one."""

from dataclasses import replace

import jax
import pytest

from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.layers.attention import one_sequence
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.flops import training_flops
from tumorchain_jax.models.tumorchain.model import (
    TUMORCHAIN_7B,
    TumorChain,
    TumorChainConfig,
    abstract_params,
)
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

B, T, ORGANS = 2, 64, 57
MODEL = TumorChainConfig(
    encoder=ViT3DConfig((8, 64, 64), (4, 8, 8), 256, 1024, 1, 4),
    decoder=Qwen2Config(512, 256, 1024, 1, 4, 2, 64, True),
    roi_slots=4,
)


def flops(config: TumorChainConfig, trained: set[str]) -> int:
    return training_flops(config, B, T, ORGANS, trained)


@pytest.mark.parametrize("tied", [True, False])
def test_forward_pass_is_what_xla_counts(tied: bool) -> None:
    config = replace(MODEL, decoder=replace(MODEL.decoder, tie_word_embeddings=tied))
    params = unflatten(abstract_params(config))
    array = jax.ShapeDtypeStruct
    tokens, volume = array((B, T), "int32"), array((B, 8, 64, 64), "float32")
    rois = array((B, ORGANS, 4), "int32"), array((B, ORGANS, 4), "bool")
    packing = jax.eval_shape(lambda: one_sequence(B, T))
    apply = jax.jit(TumorChain(config).apply)
    lowered = apply.lower({"params": params}, volume, tokens, tokens, packing, *rois)
    counted = lowered.compile().cost_analysis()["flops"]
    # It also counts norms, softmax, pads and what the causal mask hides.
    assert flops(config, {*abstract_params(config)}) / 3 == pytest.approx(counted, rel=0.08)


def test_frozen_matrices_take_two_passes_of_three() -> None:
    everything = {*abstract_params(MODEL)}
    kernel = "decoder/layers/mlp/up_proj/kernel"
    saved = flops(MODEL, everything) - flops(MODEL, everything - {kernel})
    assert saved == 2 * B * T * 256 * 1024


def test_adapters_cost_little_more_than_frozen() -> None:
    adapted = replace(MODEL, lora=LoRA((r"decoder/.*/(q|v)_proj",), rank=4))
    lora = {path for path in abstract_params(adapted) if "/lora_" in path}
    assert flops(MODEL, set()) < flops(adapted, lora) < 1.02 * flops(MODEL, set())


def test_seven_billion_parameters_take_six_times_their_number_a_token() -> None:
    """The usual estimate of 6 N D; attention adds some."""
    paths = {*abstract_params(TUMORCHAIN_7B)}
    matrices = 7_615_616_512 - 152_064 * 3584  # Qwen2.5-7B without its look-up table
    per_token = training_flops(TUMORCHAIN_7B, 1, 4096, ORGANS, paths) / 4096
    assert per_token == pytest.approx(6 * matrices, rel=0.1)
