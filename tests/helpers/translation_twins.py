"""CycleGAN's and CUT's networks and losses in PyTorch, in the order of the published layers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TwinBlock(nn.Module):
    def __init__(self, width: int, dropout: bool = False):
        super().__init__()
        drop = [nn.Dropout(0.5)] if dropout else []
        self.conv_block = nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width), nn.ReLU(),
            *drop, nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3), nn.InstanceNorm2d(width),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv_block(x)


class TwinGenerator(nn.Module):
    def __init__(self, channels: int, width: int, blocks: int, dropout: bool = False):
        super().__init__()
        layers: list[nn.Module] = [
            nn.ReflectionPad2d(3), nn.Conv2d(channels, width, 7), nn.InstanceNorm2d(width),
            nn.ReLU(),
        ]  # fmt: skip
        for k in (1, 2):
            layers += [nn.Conv2d(width * k, width * k * 2, 3, 2, 1),
                       nn.InstanceNorm2d(width * k * 2), nn.ReLU()]  # fmt: skip
        layers += [TwinBlock(width * 4, dropout) for _ in range(blocks)]
        for k in (4, 2):
            layers += [nn.ConvTranspose2d(width * k, width * k // 2, 3, 2, 1, output_padding=1),
                       nn.InstanceNorm2d(width * k // 2), nn.ReLU()]  # fmt: skip
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(width, channels, 7), nn.Tanh()]
        self.model = nn.Sequential(*layers)
        self.compared = (0, 4, 7, 10, 10 + min(4, blocks - 1))

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        found = []
        for number, layer in enumerate(self.model):
            x = layer(x)
            if number in self.compared:
                found.append(x)
        return x, found


class TwinDiscriminator(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2)]
        for into, out, stride in ((1, 2, 2), (2, 4, 2), (4, 8, 1)):
            layers += [nn.Conv2d(into * width, out * width, 4, stride, 1),
                       nn.InstanceNorm2d(out * width), nn.LeakyReLU(0.2)]  # fmt: skip
        self.model = nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def twin_project(params: dict[str, Any], layers: Sequence[Tensor], places: Sequence[Any]) -> list:
    """The linear maps of `params` (ours, as tensors of inputs x outputs) and unit vectors."""
    found = []
    for number, (layer, chosen) in enumerate(zip(layers, places, strict=True)):
        x = layer.permute(0, 2, 3, 1).flatten(1, 2)[:, chosen].flatten(0, 1)
        hidden, out = (params[f"layer{number}_{name}"] for name in ("hidden", "out"))
        x = F.relu(x @ hidden["kernel"] + hidden["bias"]) @ out["kernel"] + out["bias"]
        found.append(x / (x.pow(2).sum(1, keepdim=True).sqrt() + 1e-7))
    return found


def twin_nce(query: Tensor, key: Tensor, rows: int) -> Tensor:
    """Cross-entropy of each place against the others of its picture, temperature 0.07."""
    key = key.detach()
    right = torch.bmm(query.unsqueeze(1), key.unsqueeze(2)).reshape(-1, 1)
    query, key = (x.reshape(rows, -1, x.shape[1]) for x in (query, key))
    others = torch.bmm(query, key.transpose(2, 1))
    others.masked_fill_(torch.eye(others.shape[1], dtype=torch.bool)[None], -10.0)
    logits = torch.cat([right, others.flatten(0, 1)], dim=1) / 0.07
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
