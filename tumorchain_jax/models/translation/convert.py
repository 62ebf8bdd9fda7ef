"""The weights of pytorch-CycleGAN-and-pix2pix <-> ours.

Its files `N_net_G_A.pth` hold a state dict of numbered layers: of a generator of N blocks
`model.(1,4,7)`, `model.(10..).conv_block.(1,5)` (6 with dropout), two transposed convolutions and
the last; of a discriminator `model.(0,2,5,8,11)`. Instance normalization has no weights; files of
before PyTorch 0.4 that track statistics hold some, which are refused.
"""

from tumorchain_jax.models.weight_map import CONVOLUTION_2D, KEEP, Table, Transform

# (inputs, outputs, h, w), turned by half a circle; ours is (h, w, inputs, outputs).
TRANSPOSED_2D = Transform(
    lambda x: x[:, :, ::-1, ::-1].transpose(2, 3, 0, 1),
    lambda x: x.transpose(2, 3, 0, 1)[:, :, ::-1, ::-1],
    -1,
)


def generator_table(blocks: int, dropout: bool = False) -> Table:
    """Rows of a generator."""
    second, end = 6 if dropout else 5, 10 + blocks
    layers = {"first": 1, "down1": 4, "down2": 7, "last": end + 7}
    rows: list[tuple[str, str, Transform]] = []
    for name, number in layers.items():
        rows += _layer(name, f"model.{number}")
    for block in range(blocks):
        rows += _layer(f"block{block}/conv1", f"model.{10 + block}.conv_block.1")
        rows += _layer(f"block{block}/conv2", f"model.{10 + block}.conv_block.{second}")
    for name, number in (("up1", end), ("up2", end + 3)):
        rows += _layer(name, f"model.{number}", TRANSPOSED_2D)
    return rows


def discriminator_table() -> Table:
    """Rows of a discriminator."""
    numbers = enumerate((0, 2, 5, 8, 11))
    return [row for k, number in numbers for row in _layer(f"conv{k}", f"model.{number}")]


def _layer(path: str, key: str, transform: Transform = CONVOLUTION_2D) -> Table:
    return (f"{path}/kernel", f"{key}.weight", transform), (f"{path}/bias", f"{key}.bias", KEEP)
