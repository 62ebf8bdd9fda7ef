"""Qwen2.5-VL whole against transformers, on random weights in float32."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from tumorchain_jax.convert.command import convert
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.language.qwen2.model import Decoder, unroll
from tumorchain_jax.models.qwen_vl.model import Pictures, QwenVL, QwenVLConfig
from tumorchain_jax.models.qwen_vl.pictures import PictureConfig, bucketed, patches_of, resized
from tumorchain_jax.models.qwen_vl.plan import Grid, plan
from tumorchain_jax.models.qwen_vl.positions import Positions, rope_positions
from tumorchain_jax.models.qwen_vl.tower import TOWER_3B, TOWER_7B, Tower, TowerConfig
from tumorchain_jax.reasoning.text import Embedded, continue_text
from tumorchain_jax.weights.matching import module_shapes

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
vision_utils = pytest.importorskip("transformers.vision_utils")
pil = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")

pytestmark = pytest.mark.program
# Largest difference over the largest value, in float32.
HIDDEN, LOGITS, GRADIENTS = 1e-5, 1e-4, 1e-4
TOWER = {"depth": 4, "hidden_size": 48, "intermediate_size": 52, "num_heads": 3}
TOWER |= {"out_hidden_size": 40, "fullatt_block_indexes": [1, 3]}
TEXT = {
    "vocab_size": 97,
    "hidden_size": 40,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]},
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
PICTURE, START, END = 90, 91, 92
SLOW = pytest.mark.system(haste=True)
"""Of what a test without it proves too, on another input or a stage later."""
GRIDS: list[list[Grid]] = [[(16, 16)], [(20, 20)], [(6, 10)], [(8, 4), (10, 12)]]
# What a row of text has between its pictures.
ROWS: list[tuple[list[int], list[Grid]]] = [
    ([4, 5], [(6, 10)]),
    ([9], []),
    ([3, 2, 6], [(4, 4), (8, 6)]),
]


@pytest.fixture(scope="module")
def model() -> Any:
    config = transformers.Qwen2_5_VLConfig(
        text_config=TEXT,
        vision_config=TOWER,
        tie_word_embeddings=False,
        image_token_id=PICTURE,
        vision_start_token_id=START,
        vision_end_token_id=END,
        attn_implementation="eager",
    )
    found = transformers.Qwen2_5_VLForConditionalGeneration(config)
    torch.manual_seed(0)
    for name, parameter in found.named_parameters():
        norm = "norm" in name or "ln_q" in name
        fan_in = 1 if parameter.ndim == 1 else parameter[0].numel()
        spread = 0.2 if parameter.ndim == 1 else 1.4 * fan_in**-0.5
        torch.nn.init.normal_(parameter, float(norm), spread)
    return found.eval()


@pytest.fixture(scope="module")
def folders(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What transformers saves, as `theirs`, and its import, as `ours`."""
    folder = tmp_path_factory.mktemp("qwen_vl")
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder / "theirs")
    convert("import", folder / "theirs", folder / "ours", tower=True)
    return folder


@pytest.fixture(scope="module")
def config(folders: Path) -> QwenVLConfig:
    values = Imported(folders / "ours").config
    return QwenVLConfig(
        TowerConfig.from_dict(values["tower"]), decoder_from_dict(values["decoder"])
    )


@pytest.fixture(scope="module")
def params(folders: Path) -> dict[str, Any]:
    return Imported(folders / "ours").restore()


def patches(grids: Sequence[Grid], seed: int = 0) -> np.ndarray:
    count = sum(rows * columns for rows, columns in grids)
    return np.random.default_rng(seed).normal(size=(count, 1176)).astype(np.float32)


def thw(grids: Sequence[Grid]) -> Any:
    return torch.tensor([[1, *grid] for grid in grids])


def bucket(grids: Sequence[Grid], values: np.ndarray, size: int) -> Pictures:
    """One row, pads filled with what must not be seen."""
    full = np.full((1, size, values.shape[1]), 7.0, np.float32)
    full[0, : len(values)] = values
    return Pictures(jnp.asarray(full), *(jnp.asarray(each[None]) for each in plan(grids, size)))


def close(ours: Any, theirs: Any, tolerance: float) -> None:
    theirs = np.asarray(theirs)
    assert np.abs(np.asarray(ours) - theirs).max() <= tolerance * np.abs(theirs).max()


def window_order(grids: Sequence[Grid]) -> np.ndarray:
    """Ours of the patches that transformers has at each place."""
    index, _ = vision_utils.get_vision_window_index(thw(grids), 2, 112, 14)
    return (index.numpy()[:, None] * 4 + np.arange(4)).reshape(-1)


@pytest.mark.parametrize(
    "grids",
    [*(pytest.param(grids, marks=SLOW) for grids in GRIDS[:-1]), GRIDS[-1]],
    ids=[str(grids) for grids in GRIDS],
)
def test_every_block_the_merger_and_gradients_are_those_of_transformers(
    grids: list[Grid], model: Any, config: QwenVLConfig, params: dict[str, Any]
) -> None:
    values, tower = patches(grids), model.model.visual
    blocks: list[Any] = []
    hooks = [
        block.register_forward_hook(lambda _, __, output: blocks.append(output.detach().numpy()))
        for block in tower.blocks
    ]
    x = torch.tensor(values, requires_grad=True)
    merged = tower(x, thw(grids)).pooler_output
    for hook in hooks:
        hook.remove()
    weights = np.random.default_rng(1).normal(size=merged.shape).astype(np.float32)
    model.zero_grad()
    (merged * torch.from_numpy(weights)).sum().backward()

    pictures = bucket(grids, values, 484)
    module = Tower(config.tower)

    def loss(params: Any, patches: jax.Array) -> tuple[jax.Array, Any]:
        ours, outputs = module.apply({"params": params}, patches, *pictures[1:])
        return (ours[0, : len(weights)] * weights).sum(), (ours, outputs)

    run = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    (_, (ours, outputs)), gradients = run(params["tower"], pictures.patches)
    order = window_order(grids)
    assert len(outputs) == len(blocks)
    for one, other in zip(outputs, blocks, strict=True):
        close(one[0][order], other, HIDDEN)
    close(ours[0, : len(weights)], merged.detach(), HIDDEN)
    close(gradients[1][0, : len(values)], x.grad, GRADIENTS)
    assert not np.any(gradients[1][0, len(values) :]), "pads are not seen"
    theirs = {
        "patch_embed/kernel": tower.patch_embed.proj.weight.grad.reshape(48, -1).T,
        "merger/mlp_0/kernel": tower.merger.mlp[0].weight.grad.T,
    }
    for name in ("attn.qkv", "attn.proj", "mlp.gate_proj", "mlp.down_proj"):
        of_blocks = [block.get_submodule(name).weight.grad.T for block in tower.blocks]
        theirs[f"blocks/{name.replace('.', '/')}/kernel"] = torch.stack(of_blocks)
    for path, gradient in theirs.items():
        close(flatten(gradients[0])[path], gradient, GRADIENTS)


@pytest.mark.parametrize(
    ("grids", "sizes"),
    [
        ([(16, 16)], [64] * 4),
        ([(20, 20)], [64, 64, 32, 64, 64, 32, 32, 32, 16]),
        ([(6, 10)], [48, 12]),
        ([(8, 8), (2, 2)], [64, 4]),
        ([(18, 34), (4, 26)], None),
    ],
)
def test_windows_are_those_of_transformers(grids: list[Grid], sizes: list[int] | None) -> None:
    _, ends = vision_utils.get_vision_window_index(thw(grids), 2, 112, 14)
    found = plan(grids, 1024)
    count = sum(rows * columns for rows, columns in grids)
    windows = found.window[:count][window_order(grids)]
    lengths = np.diff(ends.numpy())
    assert windows.tolist() == np.repeat(np.arange(len(lengths)), lengths).tolist()
    assert sizes is None or lengths.tolist() == sizes
    assert (found.window[count:] == -1).all()
    assert (
        found.picture[:count].tolist()
        == np.repeat(np.arange(len(grids)), [rows * columns for rows, columns in grids]).tolist()
    )


def batch(side: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of the rows and where they are valid, pads on one side."""
    rng, rows = np.random.default_rng(3), []
    for counts, grids in ROWS:
        row: list[int] = []
        for number, count in enumerate([*counts, 3]):
            row += rng.integers(1, 90, count).tolist()
            if number < len(grids):
                visual = grids[number][0] * grids[number][1] // 4
                row += [START, *[PICTURE] * visual, END]
        rows.append(row)
    length = max(map(len, rows)) + 2
    tokens, valid = np.zeros((len(rows), length), np.int32), np.zeros((len(rows), length), bool)
    for number, row in enumerate(rows):
        at = slice(length - len(row), None) if side == "left" else slice(len(row))
        tokens[number, at], valid[number, at] = row, True
    return tokens, valid


def inputs(tokens: np.ndarray, valid: np.ndarray) -> dict[str, Any]:
    """Those of transformers, pictures in the order of the rows."""
    grids = [grid for _, each in ROWS for grid in each]
    values = [patches(each, row) for row, (_, each) in enumerate(ROWS)]
    return {
        "input_ids": torch.from_numpy(tokens).long(),
        "attention_mask": torch.from_numpy(valid).long(),
        "pixel_values": torch.from_numpy(np.concatenate(values)),
        "image_grid_thw": thw(grids),
        "mm_token_type_ids": torch.from_numpy(tokens == PICTURE).int(),
    }


def pictures_of_rows() -> Pictures:
    buckets = [bucket(grids, patches(grids, row), 96) for row, (_, grids) in enumerate(ROWS)]
    return Pictures(*(jnp.concatenate(each) for each in zip(*buckets, strict=True)))


def on_device(*arrays: np.ndarray) -> list[jax.Array]:
    return [jnp.asarray(each) for each in arrays]


def positions_of(tokens: np.ndarray, valid: np.ndarray) -> Positions:
    return rope_positions(tokens == PICTURE, valid, [grids for _, grids in ROWS])


@pytest.mark.parametrize("side", ["left", "right"])
def test_positions_are_those_of_transformers(side: str, model: Any) -> None:
    tokens, valid = batch(side)
    theirs = inputs(tokens, valid)
    del theirs["pixel_values"]
    expected, delta = model.model.get_rope_index(**theirs)
    ours = positions_of(tokens, valid)
    np.testing.assert_array_equal(ours.positions, expected)
    np.testing.assert_array_equal(ours.delta, delta[:, 0])
    assert ours.delta[1] == 0, "a row without a picture"
    assert (ours.delta[[0, 2]] < 0).all()


@pytest.mark.parametrize("side", ["left", pytest.param("right", marks=SLOW)])
def test_logits_are_those_of_transformers(
    side: str, model: Any, config: QwenVLConfig, params: dict[str, Any]
) -> None:
    tokens, valid = batch(side)
    with torch.no_grad():
        theirs = model(**inputs(tokens, valid)).logits.numpy()[valid]
    positions = positions_of(tokens, valid).positions
    run = jax.jit(QwenVL(config).apply)
    row = on_device(tokens, tokens == PICTURE, valid)
    ours = run({"params": params}, pictures_of_rows(), *row, jnp.asarray(positions))
    close(np.asarray(ours)[valid], theirs, LOGITS)
    plain = np.broadcast_to(np.maximum(np.cumsum(valid, axis=1) - 1, 0), positions.shape)
    wrong = run({"params": params}, pictures_of_rows(), *row, jnp.asarray(plain))
    assert np.abs(np.asarray(wrong)[valid] - theirs).max() > 0.05 * np.abs(theirs).max()


@SLOW
def test_forty_greedy_tokens_are_those_of_transformers(
    model: Any, config: QwenVLConfig, params: dict[str, Any]
) -> None:
    tokens, valid = batch("left")
    with torch.no_grad():
        written = model.generate(**inputs(tokens, valid), max_new_tokens=40, do_sample=False)
    expected = written.numpy()[:, tokens.shape[1] :]
    module = QwenVL(config)
    embeddings = jax.jit(partial(module.apply, method="embed"))(
        {"params": params}, pictures_of_rows(), *on_device(tokens, tokens == PICTURE)
    )
    embedded = Embedded(embeddings, *map(jnp.asarray, positions_of(tokens, valid)))
    ours, count = continue_text(
        Decoder(config.decoder, unrolled=True),
        unroll(params["decoder"]),
        jnp.asarray(tokens),
        jnp.asarray(valid),
        jnp.zeros(0, jnp.int32),
        jax.random.split(jax.random.key(0), len(tokens)),
        embedded,
        limit=40,
    )
    assert count.tolist() == [40] * len(tokens)
    np.testing.assert_array_equal(ours, expected)
    assert all(len(set(row)) > 5 for row in expected.tolist())


def test_both_spellings_come_back_byte_by_byte(folders: Path, tmp_path: Path) -> None:
    theirs = load_file(folders / "theirs" / "model.safetensors")
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "config.json").write_bytes((folders / "theirs" / "config.json").read_bytes())
    renamed = {
        key if key == "lm_head.weight"
        else f"model.{key}" if key.startswith("visual.")
        else key.replace("model.", "model.language_model.", 1): value
        for key, value in theirs.items()
    }  # fmt: skip
    save_file(renamed, newer / "model.safetensors")
    convert("import", newer, tmp_path / "ours", tower=True)
    ours, other = (
        flatten(Imported(each).restore()) for each in (tmp_path / "ours", folders / "ours")
    )
    assert ours.keys() == other.keys()
    assert all(np.array_equal(ours[path], other[path]) for path in ours)
    assert any(path.startswith("tower/") for path in ours)
    for source, imported in ((folders / "theirs", folders / "ours"), (newer, tmp_path / "ours")):
        back = tmp_path / f"back-{source.name}"
        convert("export", imported, back)
        was, now = (load_file(each / "model.safetensors") for each in (source, back))
        assert was.keys() == now.keys()
        assert all(was[key].tobytes() == now[key].tobytes() for key in was)
        assert convert("verify", source, imported)["same"]
    opened = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        tmp_path / "back-theirs", output_loading_info=True
    )[1]
    assert not opened["missing_keys"]
    assert not opened["unexpected_keys"]


def test_pixels_are_those_of_transformers(config: QwenVLConfig) -> None:
    rng = np.random.default_rng(0)
    limits = PictureConfig(min_pixels=78_400, max_pixels=94_864)
    size = {"shortest_edge": limits.min_pixels, "longest_edge": limits.max_pixels}
    processor = pil.Qwen2VLImageProcessorPil(size=size)
    for shape in ((70, 42, 3), (301, 517, 3), (280, 280, 3), (640, 211)):
        picture = Image.fromarray(rng.integers(0, 256, shape, np.uint8))
        theirs = processor(images=[picture], return_tensors="np")
        ours, grid = patches_of(picture, config.tower, limits)
        assert [1, *grid] == theirs["image_grid_thw"][0].tolist()
        np.testing.assert_array_equal(ours, theirs["pixel_values"])
    two = [patches_of(picture, config.tower, limits)] * 2
    assert bucketed([two, []], config.tower).patches.shape == (2, 1024, 1176)


def test_sizes_are_those_of_transformers() -> None:
    rng = np.random.default_rng(1)
    for limits in (PictureConfig(), PictureConfig(min_pixels=78_400, max_pixels=94_864)):
        sides = [(70, 42), (42, 70), (14, 14), (1, 199), *rng.integers(1, 3000, (400, 2)).tolist()]
        for height, width in sides:
            if max(height, width) / min(height, width) <= 200:
                expected = pil.smart_resize(height, width, 28, limits.min_pixels, limits.max_pixels)
                assert resized(height, width, 28, limits) == expected


@SLOW
def test_a_bfloat16_tower_has_finite_gradients(config: QwenVLConfig, params: dict) -> None:
    pictures = bucket([(4, 4)], patches([(4, 4)]), 32)
    module = Tower(config.tower, dtype=jnp.bfloat16, remat="full")

    def loss(params: Any) -> jax.Array:
        ours, _ = module.apply({"params": params}, *pictures)
        return jnp.square(ours[0, :4].astype(jnp.float32)).mean()

    value, gradients = jax.jit(jax.value_and_grad(loss))(nn.unbox(params["tower"]))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize(
    ("tower", "parameters"), [(TOWER_3B, 668_684_288), (TOWER_7B, 676_550_144)], ids=["3B", "7B"]
)
def test_the_released_towers_have_the_published_number_of_parameters(
    tower: TowerConfig, parameters: int
) -> None:
    patches = jax.ShapeDtypeStruct((1, 4, 1176), jnp.float32)
    row, hw = (jax.ShapeDtypeStruct((1, 4, *rest), jnp.int32) for rest in ((), (2,)))
    shapes = module_shapes(Tower(tower), patches, row, hw, row)
    assert sum(map(math.prod, shapes.values())) == parameters
