"""Floating-point operations of the model, counted from its sizes.

Convention: a product of matrices of m x k and k x n is 2mkn; norms, activations and rotations are
left out. A backward pass through a matrix takes twice its forward pass: once for its input, once
for its weights, the latter only where they are trained (so LoRA is 2 + a little, not 3, forward
passes). Causal attention counts the half that is needed. What is computed again (remat) is no work
of the model and does not count, as in the MFU of PaLM (Chowdhery et al. 2022, appendix B).
"""

from collections.abc import Mapping, Set
from math import prod

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
    tokens = _tokens(config, length, organs)
    total = 0
    for path, leaf in abstract_params(config).items():
        if path.endswith(("/kernel", "/lora_a", "/lora_b")) or _is_tied_head(config, path):
            forward = 2 * prod(leaf.shape) * tokens[_part(path)]
            total += forward * (3 if path in trained else 2)
    attention = _attention(config, length)
    return batch_size * (total + 3 * attention)


def _part(path: str) -> str:
    return path.split("/")[0]


def _is_tied_head(config: TumorChainConfig, path: str) -> bool:
    return config.decoder.tie_word_embeddings and path == "decoder/embed_tokens/embedding"


def _tokens(config: TumorChainConfig, length: int, organs: int) -> Mapping[str, int]:
    """How many vectors of a row go through each part."""
    cells = prod(config.encoder.cells)
    return {
        "encoder": cells,
        "projector": config.roi.visual_tokens,
        "decoder": length,
        "organ_classifier": organs,
    }


def _attention(config: TumorChainConfig, length: int) -> int:
    """Scores and weighted sums of a row, forward."""
    encoder, decoder = config.encoder, config.decoder
    cells = prod(encoder.cells) + 1
    heads = decoder.num_attention_heads * decoder.head_dim
    return (
        encoder.num_layers * 4 * cells**2 * encoder.hidden_size
        + decoder.num_hidden_layers * 2 * length**2 * heads
    )
