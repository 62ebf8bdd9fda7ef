"""LoRA adapters of all parts of Qwen2.5-VL, against PEFT: text, tower, merger, patch embedding."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tumorchain_jax.cli.main import main
from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.convert.verifier import verify
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.families import decoder_from_dict
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.qwen_vl.model import Pictures, QwenVL, QwenVLConfig
from tumorchain_jax.models.qwen_vl.plan import plan
from tumorchain_jax.models.qwen_vl.positions import rope_positions
from tumorchain_jax.models.qwen_vl.tower import TowerConfig

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

PICTURE, START, END = 60, 61, 62
TEXT = {
    "vocab_size": 71,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]},
}
TOWER = {"depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
TOWER |= {"out_hidden_size": 48, "fullatt_block_indexes": [1]}
SWIFT = (
    r"^(model\.language_model(?=\.).*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
    r"|model\.visual(?=\.)(?!.*merger).*\.(qkv|proj|gate_proj|up_proj|down_proj)"
    r"|model\.visual\.merger(?=\.).*\.(0|2))$"
)
"""Of ms-swift with all parts unfrozen; it catches the patch embedding, a Conv3d."""
FACTORY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FACTORY += ["qkv", "attn.proj"]
"""Of LLaMA-Factory with the tower unfrozen: its merger stays as it is."""
# What PEFT is asked for; whether names are of an older transformers; how many layers are adapted.
CASES: dict[str, tuple[dict[str, Any], bool, int]] = {
    "ms-swift": ({"target_modules": SWIFT}, False, 2 * 7 + 2 * 5 + 2 + 1),
    "LLaMA-Factory": ({"target_modules": FACTORY, "use_rslora": True}, False, 2 * 7 + 2 * 5),
    "all-linear": ({"target_modules": "all-linear"}, False, 2 * 7 + 2 * 5 + 2),
    "all-linear, older names": ({"target_modules": "all-linear"}, True, 2 * 7 + 2 * 5 + 2),
    "merger saved": (
        {
            "target_modules": ["q_proj", "qkv", "proj"],
            "modules_to_save": ["merger"],
            "alpha_pattern": {"qkv": 5},
            "rank_pattern": {r"blocks\.1\.attn\.proj": 6},
            "layers_to_transform": [1],
        },
        False,
        3,
    ),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]


class Case(NamedTuple):
    """PEFT's model, and the folder with `base` and `adapter`, published and imported."""

    model: Any
    base: Any
    folder: Path
    adapted: int


@pytest.fixture(scope="module")
def base(
    randomised: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Path]:
    config = transformers.Qwen2_5_VLConfig(
        text_config=TEXT,
        vision_config=TOWER,
        tie_word_embeddings=False,
        image_token_id=PICTURE,
        vision_start_token_id=START,
        vision_end_token_id=END,
        attn_implementation="eager",
    )
    model = randomised(transformers.Qwen2_5_VLForConditionalGeneration(config))
    folder = tmp_path_factory.mktemp("adapters")
    model.save_pretrained(folder / "base")
    import_folder(folder / "base", folder / "our-base", tower=True)
    return model, folder


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, base: tuple[Any, Path], tmp_path_factory: Any) -> Case:
    options, is_older, adapted = CASES[request.param]
    folder = tmp_path_factory.mktemp("adapter")
    model = peft.get_peft_model(
        copy.deepcopy(base[0]), peft.LoraConfig(r=4, lora_alpha=12, **options)
    )
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(parameter, float("ln_q" in name), 0.2)
    model.eval().save_pretrained(folder / "adapter")
    if is_older:
        path = folder / "adapter" / "adapter_model.safetensors"
        renamed = {
            key.replace(".model.language_model.", ".model.").replace(
                ".model.visual.", ".visual."
            ): value
            for key, value in load_file(path).items()
        }
        assert any(key.startswith("base_model.model.visual.") for key in renamed)
        save_file(renamed, path, metadata={"format": "pt"})
    import_folder(folder / "adapter", folder / "ours", base=base[1] / "our-base")
    return Case(model, base[0], folder, adapted)


def test_every_tensor_of_an_adapter_is_a_parameter(case: Case) -> None:
    ours = Imported(case.folder / "ours")
    keys = load_file(case.folder / "adapter" / "adapter_model.safetensors").keys()
    assert all(ours.entries[key].place for key in keys), "nothing is only carried"
    assert sum("lora_A" in key for key in keys) == case.adapted
    assert verify(case.folder / "adapter", case.folder / "ours").same


def test_exported_adapter_is_loaded_by_peft(case: Case, tmp_path: Path) -> None:
    export_folder(case.folder / "ours", tmp_path / "back")
    back, theirs = (
        load_file(folder / "adapter_model.safetensors")
        for folder in (tmp_path / "back", case.folder / "adapter")
    )
    assert back.keys() == theirs.keys()
    assert all(torch.equal(back[key], value) for key, value in theirs.items())
    if any(key.startswith("base_model.model.visual.") for key in back):
        return  # this transformers would not find those names either
    # A missing or unexpected key is a warning, and so an error here.
    again = peft.PeftModel.from_pretrained(copy.deepcopy(case.base), tmp_path / "back")
    loaded = peft.get_peft_model_state_dict(again)
    assert loaded.keys() == theirs.keys()
    assert all(torch.equal(loaded[key], value) for key, value in theirs.items())


def test_merged_weights_are_those_of_peft(
    case: Case, base: tuple[Any, Path], tmp_path: Path
) -> None:
    export_folder(base[1] / "our-base", tmp_path / "merged", adapter=case.folder / "ours")
    merged = type(case.base).from_pretrained(tmp_path / "merged").state_dict()
    expected = copy.deepcopy(case.model).merge_and_unload().state_dict()
    assert merged.keys() == expected.keys()
    for key, value in merged.items():
        assert (value - expected[key]).abs().max() <= 1e-6, key
    was = load_file(base[1] / "base" / "model.safetensors")
    now = load_file(tmp_path / "merged" / "model.safetensors")
    changed = [key for key in was if "visual" in key and not torch.equal(was[key], now[key])]
    assert len(changed) >= 2, "the tower changes"


@pytest.mark.program
@pytest.mark.parametrize("case", ["ms-swift"], indirect=True)
def test_logits_with_an_adapter_are_those_of_peft(case: Case, base: tuple[Any, Path]) -> None:
    grid, rng = (4, 6), np.random.default_rng(0)
    values = rng.normal(size=(24, 1176)).astype(np.float32)
    tokens = np.array([[3, 8, START, *[PICTURE] * 6, END, 5, 9, 11]], np.int32)
    with torch.no_grad():
        expected = case.model(
            input_ids=torch.from_numpy(tokens).long(),
            attention_mask=torch.ones(tokens.shape, dtype=torch.long),
            pixel_values=torch.from_numpy(values),
            image_grid_thw=torch.tensor([[1, *grid]]),
            mm_token_type_ids=torch.from_numpy(tokens == PICTURE).int(),
        ).logits.numpy()
    adapter = Imported(case.folder / "ours")
    params = unflatten(
        flatten(Imported(base[1] / "our-base").restore()) | flatten(adapter.restore())
    )
    values_of = adapter.config
    config = QwenVLConfig(
        TowerConfig.from_dict(values_of["tower"]),
        decoder_from_dict(values_of["decoder"]),
        LoRA.from_dict(values_of["lora"]),
    )
    valid = np.ones(tokens.shape, bool)
    pictures = Pictures(values[None], *(each[None] for each in plan([grid], 24)))
    places = rope_positions(tokens == PICTURE, valid, [[grid]]).positions
    arrays = (jnp.asarray(each) for each in (tokens, tokens == PICTURE, valid, places))
    ours = jax.jit(QwenVL(config).apply)({"params": params}, pictures, *arrays)
    assert np.abs(ours - expected).max() <= 1e-4 * np.abs(expected).max()


def test_adapter_whose_tower_would_be_dropped_is_refused(
    case: Case, base: tuple[Any, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_folder(base[1] / "base", tmp_path / "text")
    command = ["convert", "import", "-i", str(case.folder / "adapter"), "-o", f"{tmp_path}/out"]
    assert main([*command, "--base", str(tmp_path / "text")]) == 2
    error = capsys.readouterr().err
    assert "of a vision tower" in error
    assert "import the base with --tower" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="that with --tower"):
        export_folder(tmp_path / "text", tmp_path / "merged", adapter=case.folder / "ours")


def test_adapter_that_lacks_its_tower_is_refused(base: tuple[Any, Path], tmp_path: Path) -> None:
    """Cut out of the file, yet named by `target_modules`."""
    model = peft.get_peft_model(
        copy.deepcopy(base[0]), peft.LoraConfig(target_modules="all-linear")
    )
    model.save_pretrained(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    rest = {key: value for key, value in load_file(path).items() if "visual" not in key}
    save_file(rest, path, metadata={"format": "pt"})
    assert "visual" not in json.dumps([*rest])
    with pytest.raises(InputError, match=r"visual.*lora_A"):
        import_folder(tmp_path / "adapter", tmp_path / "ours", base=base[1] / "base")
