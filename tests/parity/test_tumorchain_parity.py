"""A whole TumorChain, exported and put together from PyTorch's own parts, says the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.torch import load_file

from tumorchain_jax.convert.command import convert, text
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.layers.attention import one_sequence
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig, abstract_params
from tumorchain_jax.models.tumorchain.projector import pool_cells
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.weights.model_folder import export, load_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

# Largest difference of a logit, in float32.
TOLERANCE = 1e-4
CONFIG = TumorChainConfig(
    encoder=ViT3DConfig((8, 16, 16), (2, 4, 4), 16, 24, 2, 2),
    decoder=Qwen2Config(
        vocab_size=300,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=True,
        rope_theta=1e4,
    ),
    roi_slots=4,
)
ADAPTED = LoRA(
    (r"decoder/.*/(q|v|down)_proj",), 3, 5.0, True, ((".*/v_proj", 2),), ((".*/q_proj", 7.0),)
)
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


@pytest.fixture(scope="module", params=[None, ADAPTED], ids=["plain", "lora"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with nothing constant in it (`ours`), and its export (`theirs`)."""
    folder = tmp_path_factory.mktemp("tumorchain")
    config = TumorChainConfig(**{**vars(CONFIG), "lora": request.param})
    rng = np.random.default_rng(0)
    params = {
        path: rng.normal(float(path.endswith(("scale", "norm/weight"))), 0.1, leaf.shape)
        for path, leaf in abstract_params(config).items()
    }
    tokenizer = Tokenizer.train(["the liver and the spleen"], config.decoder.vocab_size)
    export(folder / "ours", config, PreprocessConfig((8, 16, 16)), "all", params, tokenizer)
    convert("export", folder / "ours", folder / "theirs")
    return folder


def test_round_trip_changes_no_byte(folders: Path, tmp_path: Path) -> None:
    ours, theirs = folders / "ours", folders / "theirs"
    assert convert("verify", ours, theirs)["same"]
    assert convert("verify", theirs, ours)["same"]
    convert("import", theirs, tmp_path / "back")
    for path in ours.iterdir():
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes(), path.name


def test_inspect_reads_both_folders(folders: Path) -> None:
    ours = convert("inspect", folders / "ours", None)
    theirs = convert("inspect", folders / "theirs", None)
    assert ours["parameters"] == theirs["parameters"]
    row = ours["parameters"]["decoder/layers/mlp/down_proj/kernel"]
    key = "model.layers.0.mlp.down_proj.weight"
    assert row == {"shape": [2, 32, 24], "from": f"language_model/model.safetensors: {key}"}
    assert ours["tensors"] == len(ours["parameters"]) < theirs["tensors"]
    assert text(ours).startswith("tumorchain (a checkpoint): ")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "language_model/config.json"])
def test_verify_reads_more_than_weights(name: str, folders: Path, tmp_path: Path) -> None:
    other = name if name == "config.json" else f"language_model/{Path(name).name}"
    theirs = shutil.copytree(folders / "theirs", tmp_path / "theirs")
    values = json.loads((theirs / other).read_text())
    (theirs / other).write_text(json.dumps({**values, "more": 1}))
    found = convert("verify", folders / "ours", theirs)
    assert (found["same"], found["different"]) == (False, [name])


def test_options_that_do_not_apply_are_refused(folders: Path, tmp_path: Path) -> None:
    for option in ({"dtype": "bfloat16"}, {"base": tmp_path}, {"adapter": tmp_path}):
        [name] = option
        with pytest.raises(InputError, match=f"--{name}: found .*, expected .* a TumorChain"):
            convert("export", folders / "ours", tmp_path / "theirs", **option)


def test_pytorch_says_the_same(folders: Path, m3d_vit: Callable[[ViT3DConfig], Any]) -> None:
    theirs = folders / "theirs"
    rng = np.random.default_rng(1)
    volume = rng.random((1, *CONFIG.encoder.image), np.float32)
    tokens = rng.integers(0, 256, (1, 20))
    visual_index = np.full((1, 20), -1)
    visual_index[0, 2:10] = np.arange(8)  # the global tokens
    roi = np.array([[[8, 9, 12, 0], [20, 21, 30, 33]]])
    valid = np.array([[[True, True, True, False], [True] * 4]])

    exported = load_model(folders / "ours")
    logits, organs = jax.jit(TumorChain(exported.model).apply)(
        {"params": unflatten(exported.params)},
        volume,
        jnp.asarray(tokens),
        jnp.asarray(visual_index),
        one_sequence(1, 20),
        jnp.asarray(roi),
        jnp.asarray(valid),
    )

    encoder = m3d_vit(CONFIG.encoder)
    encoder.load_state_dict(load_file(theirs / "encoder.safetensors"), strict=False)
    weights = load_file(theirs / "projector.safetensors")
    head = load_file(theirs / "organ_classifier.safetensors")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        theirs / "language_model", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    if (theirs / "adapter").is_dir():
        model = peft.PeftModel.from_pretrained(model, theirs / "adapter")
    with torch.no_grad():
        cells = encoder(torch.from_numpy(volume))
        pooled = torch.from_numpy(np.array(pool_cells(jnp.asarray(cells), CONFIG.encoder.cells, 2)))
        x = torch.cat([pooled, cells], dim=1)
        x = torch.relu(x @ weights["projector.0.weight"].T + weights["projector.0.bias"])
        visual_tokens = (x @ weights["projector.2.weight"].T + weights["projector.2.bias"])[0]
        embeddings = model.get_input_embeddings()(torch.from_numpy(tokens)).clone()
        embeddings[0, 2:10] = visual_tokens[:8]
        expected = model.eval()(inputs_embeds=embeddings).logits.numpy()
        means = torch.stack([visual_tokens[roi[0, i][valid[0, i]]].mean(dim=0) for i in range(2)])
        abnormal = (means @ head["fc.weight"].T + head["fc.bias"]).numpy()
    assert np.abs(np.asarray(logits) - expected).max() <= TOLERANCE
    assert np.abs(np.asarray(organs)[0] - abnormal).max() <= TOLERANCE


def test_tokenizer_is_the_same(folders: Path) -> None:
    folder = folders / "theirs" / "language_model"
    ours, theirs = (
        Tokenizer.load(folders / "ours"),
        transformers.AutoTokenizer.from_pretrained(folder),
    )
    text = "Where is the tumour? 12 mm in the liver."
    assert theirs(text)["input_ids"] == ours.encode(text)
    ends = json.loads((folder / "generation_config.json").read_text())
    assert ends["eos_token_id"] == ours.im_end
