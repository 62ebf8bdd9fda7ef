"""A whole TumorChain, exported and put together from PyTorch's own parts, says the same."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.torch import load_file

from tumorchain_jax.convert.command import convert
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.layers.attention import one_sequence
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.tumorchain.model import TumorChain, TumorChainConfig, init_params
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


@pytest.fixture(params=[None, ADAPTED], ids=["plain", "lora"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Ours, with nothing constant in it."""
    config = TumorChainConfig(**{**vars(CONFIG), "lora": request.param})
    rng = np.random.default_rng(0)
    params = {
        path: np.asarray(leaf) + rng.normal(0, 0.1, leaf.shape).astype(np.float32)
        for path, leaf in init_params(config, jax.random.key(0)).items()
    }
    tokenizer = Tokenizer.train(["the liver and the spleen"], config.decoder.vocab_size)
    export(tmp_path / "ours", config, PreprocessConfig((8, 16, 16)), "all", params, tokenizer)
    return tmp_path / "ours"


def test_there_and_back_every_byte_is_the_same(checkpoint: Path, tmp_path: Path) -> None:
    convert("export", checkpoint, tmp_path / "theirs", None, None, None)
    assert convert("verify", checkpoint, tmp_path / "theirs", None, None, None)["same"]
    convert("import", tmp_path / "theirs", tmp_path / "back", None, None, None)
    for path in checkpoint.iterdir():
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes(), path.name


def test_pytorch_says_the_same(
    checkpoint: Path, tmp_path: Path, m3d_vit: Callable[[ViT3DConfig], Any]
) -> None:
    theirs = tmp_path / "theirs"
    convert("export", checkpoint, theirs, None, None, None)
    rng = np.random.default_rng(1)
    volume = rng.random((1, *CONFIG.encoder.image), np.float32)
    tokens = rng.integers(0, 256, (1, 20))
    visual_index = np.full((1, 20), -1)
    visual_index[0, 2:10] = np.arange(8)  # the global tokens
    roi = np.array([[[8, 9, 12, 0], [20, 21, 30, 33]]])
    valid = np.array([[[True, True, True, False], [True] * 4]])

    exported = load_model(checkpoint)
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


def test_the_tokenizer_is_the_same(checkpoint: Path, tmp_path: Path) -> None:
    convert("export", checkpoint, tmp_path / "theirs", None, None, None)
    folder = tmp_path / "theirs" / "language_model"
    ours, theirs = Tokenizer.load(checkpoint), transformers.AutoTokenizer.from_pretrained(folder)
    text = "Where is the tumour? 12 mm in the liver."
    assert theirs(text)["input_ids"] == ours.encode(text)
    ends = json.loads((folder / "generation_config.json").read_text())
    assert ends["eos_token_id"] == ours.im_end
