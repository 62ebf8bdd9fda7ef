"""Reference of `bench train`: the same model, loss and optimizer in PyTorch.

The encoder is put together from MONAI's blocks, as M3D does; the decoder is transformers' Qwen2.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tumorchain_jax.bench.transformers_models import transformers_model
from tumorchain_jax.convert.tumorchain import CLASSIFIER_TABLE
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.attention import Packing
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d import convert as vit3d
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.models.weight_map import Table, from_ours
from tumorchain_jax.training.pretraining.model import patch_encoder
from tumorchain_jax.training.tumorchain.loss import Batch, known_organs

IGNORED = -100
"""Label that `cross_entropy` ignores."""


class Hyperparameters(NamedTuple):
    """Hyperparameters of both optimizers, and alpha of Eq. 8."""

    learning_rate: float = 1e-4
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    alpha: float = 1.0


class StepTimes(NamedTuple):
    """Seconds of each part of a step, in the order in which they run."""

    encoder_forward: float
    decoder_forward: float
    decoder_backward: float
    encoder_backward: float
    optimizer: float


class TorchTrainer:
    """A model in PyTorch that trains on one batch, float32, on as many threads as cores."""

    def __init__(
        self,
        config: TumorChainConfig,
        params: Mapping[str, Any],
        batch: Batch,
        hyper: Hyperparameters,
    ):
        import torch

        ours = unflatten(params)
        self.config, self.hyper = config, hyper
        self.decoder = transformers_model(config.decoder, ours["decoder"]).train()
        self.encoder = m3d_encoder(patch_encoder(config))
        self.projector, self.classifier = _heads(config)
        _fill(self.encoder, vit3d.TABLE, ours["encoder"])
        _fill(self.projector, vit3d.PROJECTOR_TABLE, ours["projector"])
        _fill(self.classifier, CLASSIFIER_TABLE, ours["organ_classifier"])
        parts = (self.encoder, self.projector, self.classifier, self.decoder)
        self.parameters = [parameter for part in parts for parameter in part.parameters()]
        # `fused` is the fastest of its variants.
        self.optimizer = torch.optim.AdamW(
            self.parameters, hyper.learning_rate, weight_decay=hyper.weight_decay, fused=True
        )
        self._take(batch)

    def _take(self, batch: Batch) -> None:
        import torch

        def tensor(values: Any) -> Any:
            return torch.from_numpy(np.array(values))

        def visual_index(rows: np.ndarray) -> Any:
            """Indices of each scan's visual tokens -> indices of all scans' in a row."""
            scans = np.arange(len(rows)).reshape(-1, *[1] * (rows.ndim - 1))
            return tensor(np.maximum(rows, 0) + scans * per_scan).long()

        mask, known = Packing(batch.positions, batch.segment_ids).mask(), known_organs(batch)
        host: dict[str, np.ndarray] = {
            name: np.asarray(array) for name, array in batch._asdict().items()
        }
        per_scan = self.config.roi.visual_tokens
        self.volume, self.mask = tensor(host["volume"]), tensor(mask)
        self.tokens = tensor(host["tokens"]).long()
        self.positions = tensor(host["positions"]).long()
        self.is_visual = tensor(host["visual_index"] >= 0)[..., None]
        self.visual_rows = visual_index(host["visual_index"])
        self.roi_index = visual_index(host["roi_index"])
        self.roi_weight = tensor(host["roi_valid"])[..., None].float()
        labels = np.where(host["loss_mask"], host["tokens"], IGNORED)[:, 1:]
        self.labels = tensor(labels).long().flatten()
        self.abnormal = tensor(np.where(known, host["abnormal"], IGNORED)).long().flatten()

    def step(self) -> tuple[float, StepTimes]:
        """Make one update; the loss before it, and the seconds of its parts."""
        import torch

        ticks = [time.perf_counter()]

        def tick(_: Any = None) -> None:
            ticks.append(time.perf_counter())

        visual_tokens = self._encode()
        tick()
        visual_tokens.register_hook(tick)  # when the decoder's backward pass is through
        loss = self._loss(visual_tokens)
        tick()
        loss.backward()
        tick()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.hyper.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        tick()
        return loss.item(), StepTimes(*np.diff(ticks).tolist())

    def _encode(self) -> Any:
        import torch

        cells = self.encoder(self.volume.float() / 255)
        size = self.config.global_pool
        d, h, w = (n // size for n in self.config.encoder.cells)
        blocks = cells.reshape(len(cells), d, size, h, size, w, size, -1)
        pooled = blocks.mean(dim=(2, 4, 6)).flatten(1, 3)
        return self.projector.projector(torch.cat([pooled, cells], dim=1))

    def _loss(self, visual_tokens: Any) -> Any:
        import torch

        rows = visual_tokens.flatten(0, 1)
        visual = rows.index_select(0, self.visual_rows.flatten()).view(*self.tokens.shape, -1)
        words = self.decoder.get_input_embeddings()(self.tokens)
        logits = self.decoder(
            inputs_embeds=torch.where(self.is_visual, visual, words),
            position_ids=self.positions,
            attention_mask=self.mask,
            use_cache=False,
        ).logits
        roi = rows.index_select(0, self.roi_index.flatten()).view(*self.roi_index.shape, -1)
        weight = self.roi_weight
        means = (roi * weight).sum(dim=2) / weight.sum(dim=2).clamp(min=1)
        cross_entropy = torch.nn.functional.cross_entropy
        text = cross_entropy(logits[:, :-1].flatten(0, 1), self.labels, ignore_index=IGNORED)
        organs = self.classifier.fc(means).flatten(0, 1)
        return text + self.hyper.alpha * cross_entropy(organs, self.abnormal, ignore_index=IGNORED)


def m3d_encoder(config: ViT3DConfig) -> Any:
    """Build M3D-CLIP's encoder from MONAI's blocks, under the names of `vit3d.TABLE`.

    Source: LaMed/src/model/multimodal_encoder/vit.py of M3D; patch features only.

    Returns:
        a module that maps volumes `[B, D, H, W]` to the features of their cells `[B, N, C]`.
    """
    import torch
    from monai.networks.blocks import PatchEmbeddingBlock, TransformerBlock

    width, heads = config.hidden_size, config.num_heads

    class M3DEncoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch_embedding = PatchEmbeddingBlock(
                1, config.image, config.patch, width, heads, proj_type="perceptron"
            )
            self.blocks = torch.nn.ModuleList(
                TransformerBlock(width, config.mlp_size, heads) for _ in range(config.num_layers)
            )
            self.norm = torch.nn.LayerNorm(width)
            self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, width))

        def forward(self, volume: Any) -> Any:
            x = self.patch_embedding(volume[:, None])
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
            for block in self.blocks:
                x = block(x)
            return self.norm(x)[:, 1:]

    return M3DEncoder()


def _heads(config: TumorChainConfig) -> tuple[Any, Any]:
    """Projector and organ classifier, under the names of their tables."""
    from torch import nn

    width, features = config.encoder.features, config.decoder.hidden_size
    layers = nn.Linear(width, features), nn.ReLU(), nn.Linear(features, features)
    projector = nn.ModuleDict({"projector": nn.Sequential(*layers)})
    return projector, nn.ModuleDict({"fc": nn.Linear(features, 2)})


def _fill(module: Any, table: Table, ours: Mapping[str, Any]) -> None:
    import torch

    state = {key: torch.from_numpy(value.copy()) for key, value in from_ours(table, ours).items()}
    found = module.load_state_dict(state, strict=False)
    # Newer MONAI gives every block a cross-attention, which nothing uses.
    if wrong := [*found.unexpected_keys, *(k for k in found.missing_keys if "cross_attn" not in k)]:
        raise RuntimeError(f"this MONAI has other weights: {wrong}")
