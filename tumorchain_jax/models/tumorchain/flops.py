"""Floating-point operations of the model, counted from its sizes.

Convention: a product of matrices of m x k and k x n is 2mkn; norms, activations and rotations are
left out. A backward pass through a matrix takes twice its forward pass: once for its input, once
for its weights, the latter only where they are trained (so LoRA is 2 + a little, not 3, forward
passes). Causal attention counts the half that is needed. What is computed again (remat) is no work
of the model and does not count, as in the MFU of PaLM (Chowdhery et al. 2022, appendix B).
"""

from collections.abc import Set
from math import prod

from tumorchain_jax.models.families import vision_encoder
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params


def training_flops(
    config: TumorChainConfig, batch_size: int, length: int, organs: int, trained: Set[str]
) -> int:
    """Of one step on `batch_size` rows.

    Args:
        length: T, positions of a row.
        organs: O, that the classifier is asked about.
        trained: paths of the parameters that are trained.
    """
    encoder, total = vision_encoder(config.encoder), 0
    vectors = {  # of a row that go through each part
        "projector": config.roi.visual_tokens,
        "decoder": length,
        "organ_classifier": organs,
        "crop_embedding": len(config.roi.regions),
    }
    if config.roi_rank == "evidence":
        vectors["organ_classifier"] += config.roi.visual_tokens
    for path, leaf in abstract_params(config).items():
        if path.endswith(("/kernel", "/lora_a", "/lora_b")) or _is_tied_head(config, path):
            part, _, inner = path.partition("/")
            if part == "encoder":
                forward = encoder.kernel_flops(config.encoder, inner, leaf.shape) * config.volumes
            else:
                forward = 2 * prod(leaf.shape) * vectors[part]
            total += forward * (3 if path in trained else 2)
    decoder = config.decoder
    heads = decoder.num_attention_heads * decoder.head_dim
    attention = encoder.attention_flops(config.encoder) * config.volumes
    attention += decoder.num_hidden_layers * 2 * length**2 * heads
    return batch_size * (total + 3 * attention)


def _is_tied_head(config: TumorChainConfig, path: str) -> bool:
    return config.decoder.tie_word_embeddings and path == "decoder/embed_tokens/embedding"
