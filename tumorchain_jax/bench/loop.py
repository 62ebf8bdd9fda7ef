"""Benchmark of the reasoning loop against the same loop around transformers' `generate`.

Random weights name no organ. So here every token is spelt as the names of as many organs as there
are rounds, and each round names one that was not looked at yet: three rounds of 64 tokens, with 64
ROI tokens between them.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tumorchain_jax.anatomy.organs import ORGANS, display_name, labels_named
from tumorchain_jax.bench.timing import REPEATS, seconds
from tumorchain_jax.bench.transformers_models import (
    QWEN2_5_HALF_B,
    random_decoder,
    transformers_model,
)
from tumorchain_jax.models.language.qwen2.model import Qwen2Config, unroll
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.reasoning.interleaved import LoopConfig, Request, reason
from tumorchain_jax.reasoning.organ_matcher import build_matcher
from tumorchain_jax.reasoning.prompt import TEXT, Chat
from tumorchain_jax.reasoning.roi import Turn, build_roi_prompt

M3D = ViT3DConfig()
QUESTION = "Where is the tumour in this CT?"


@dataclass(frozen=True)
class Scene:
    """One question about one synthetic scan.

    Attributes:
        visual_tokens: `[1, M, K]`.
        roi_index: visual indices of each organ's ROI tokens, `[1, O, L]`.
        words: the text of every token.
    """

    chat: Chat
    global_tokens: int
    visual_tokens: np.ndarray
    roi_index: np.ndarray
    words: str
    rounds: int
    tokens: int


def bench_loop(
    decoder: Qwen2Config = QWEN2_5_HALF_B,
    encoder: ViT3DConfig = M3D,
    rounds: int = 3,
    tokens: int = 64,
    roi_slots: int = 64,
    repeats: int = REPEATS,
) -> dict[str, float]:
    """Measure seconds of one answer, and the speedup; the reference reuses its cache too.

    Raises:
        InputError: PyTorch is not installed.
    """
    config = replace(TumorChainConfig(encoder, decoder), roi_slots=roi_slots)
    scene = _scene(config, rounds, tokens)
    stacked = random_decoder(decoder)
    reference_model = transformers_model(decoder, stacked)
    ours = _ours(config, {"decoder": unroll(stacked)}, scene)
    del stacked
    reference = _ReferenceLoop(reference_model, scene)
    ours_s, reference_s = seconds(ours, repeats), seconds(reference, repeats)
    written = np.asarray(ours())[:, 0]
    return {
        "loop, s": ours_s,
        "loop around transformers, s": reference_s,
        "loop, speedup": reference_s / ours_s,
        "same text, share": float(np.mean(written == reference())),
    }


def _scene(config: TumorChainConfig, rounds: int, tokens: int) -> Scene:
    rng = np.random.default_rng(0)
    chat = Chat(Tokenizer.train([QUESTION], config.decoder.vocab_size))
    roi = config.roi
    shape = (1, roi.visual_tokens, config.decoder.hidden_size)
    visual_tokens = rng.normal(0, 0.02, shape).astype(np.float32)
    cells = rng.integers(roi.offset, roi.visual_tokens, (1, len(ORGANS), roi.slots))
    words = f" {', '.join(display_name(label) for label in range(1, rounds + 1))} "
    return Scene(chat, roi.global_tokens, visual_tokens, cells, words, rounds, tokens)


def _ours(config: TumorChainConfig, params: Any, scene: Scene) -> Any:
    prompt = scene.chat.question(QUESTION, (), scene.global_tokens)
    loop = LoopConfig(len(prompt), scene.rounds, scene.tokens, organs_per_round=1)
    valid = np.ones(scene.roi_index.shape, bool)
    valid[:, 0] = False  # the background
    request = Request(
        jnp.asarray(scene.visual_tokens),
        jnp.asarray(scene.roi_index, jnp.int32),
        jnp.asarray(valid),
        Turn(
            jnp.asarray([prompt.tokens], jnp.int32),
            jnp.asarray([prompt.visual_index], jnp.int32),
            jnp.ones((1, len(prompt)), bool),
        ),
        jnp.zeros((1, len(ORGANS)), bool),
        jnp.full(1, scene.rounds, jnp.int32),
        jnp.full(1, scene.rounds * scene.tokens, jnp.int32),
        jax.random.split(jax.random.key(0), 1),
    )
    model = TumorChain(config, unrolled=True)
    matcher = build_matcher([scene.words.encode()] * config.decoder.vocab_size)
    roi_prompt = build_roi_prompt(scene.chat)
    return lambda: reason(model, loop, params, matcher, roi_prompt, request).written.tokens


class _ReferenceLoop:
    """The loop written around `generate`; the cache is reused from round to round."""

    def __init__(self, model: Any, scene: Scene):
        import torch

        self.model, self.scene = model, scene
        self.visual_tokens = torch.from_numpy(scene.visual_tokens[0])

    def __call__(self) -> np.ndarray:
        """Run the loop; the tokens of each round."""
        import torch
        from transformers import DynamicCache

        scene, chat, cache = self.scene, self.scene.chat, DynamicCache()
        turn, visited, written = chat.question(QUESTION, (), scene.global_tokens), set(), []
        ids, rows = turn.tokens, turn.visual_index
        with torch.no_grad():
            for _ in range(scene.rounds):
                self._read(ids[:-1], rows[:-1], cache)
                length = cache.get_seq_length()
                prompt = torch.zeros((1, length + 1), dtype=torch.long)
                prompt[0, -1] = ids[-1]
                out = self.model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    past_key_values=cache,
                    max_new_tokens=scene.tokens,
                    eos_token_id=None,
                )[0, length + 1 :].tolist()
                written.append(out)
                text = scene.words * len(out)
                named = [label for mention in labels_named(text) for label in mention.labels]
                organ = next(label for label in named if label not in visited)
                visited.add(organ)
                turn = chat.look_again([(organ, scene.roi_index[0, organ])])
                # The last token was written but not read; a cut answer is then closed.
                ids = [out[-1], chat.tokenizer.im_end, *turn.tokens]
                rows = [TEXT, TEXT, *turn.visual_index]
        return np.array(written)

    def _read(self, ids: list[int], rows: list[int], cache: Any) -> None:
        import torch

        tokens, visual = torch.tensor([ids]), torch.tensor([rows])
        embeddings = self.model.get_input_embeddings()(tokens)
        embeddings[visual >= 0] = self.visual_tokens[visual[visual >= 0]]
        self.model(inputs_embeds=embeddings, past_key_values=cache, logits_to_keep=1)
