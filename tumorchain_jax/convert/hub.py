"""Export of a checkpoint as a repository of the Hugging Face Hub.

config.json, generation_config.json   for transformers, with `auto_map`
model.safetensors                     all tensors; LoRA adapters are merged
modeling_tumorchain.py                the model and its loop in PyTorch
tokenizer.json, tokenizer_config.json, chat_template.jinja
README.md                             the model card
evaluation.json, ...                  as in the checkpoint: see `weights/measured.py`
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tumorchain_jax.anatomy.organs import NAMES, ORGANS, display_name
from tumorchain_jax.convert.checkpoint_parts import File, layer_of
from tumorchain_jax.convert.hub_card import model_card
from tumorchain_jax.convert.tumorchain import (
    ADAPTER,
    is_ours,
    open_ours,
    parts,
    write_json,
)
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.core.json_fields import read_json
from tumorchain_jax.models.families import language_model
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.reasoning.interleaved import LoopConfig
from tumorchain_jax.weights.measured import copy_measured
from tumorchain_jax.weights.tensor_files import Tensor, TensorWriter

MODELING = "modeling_tumorchain.py"
PREFIXES = {
    "language_model/model.safetensors": "language_model.",
    "encoder.safetensors": "encoder.",
    "projector.safetensors": "",
    "organ_classifier.safetensors": "organ_classifier.",
    "crop_embedding.safetensors": "crop_embedding.",
}
"""File of the export for PyTorch -> what its keys begin with in the repository."""
EMBEDDING, HEAD = "language_model.model.embed_tokens.weight", "language_model.lm_head.weight"
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<<SYSTEM>>{% endif %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<<OPEN>>' }}{% endif %}"
)


def export_hub(source: Path, output: Path) -> int:
    """Write a checkpoint as a repository that transformers loads with `trust_remote_code`.

    Returns:
        how many tensors were written.

    Raises:
        InputError: the folder is no checkpoint, or is damaged; its encoder is not M3D-CLIP's, of
            which alone there is a PyTorch twin; the output is there.
    """
    if not is_ours(source):
        expected = "a checkpoint as training exports it"
        raise InputError(source, "--hub", "another folder", expected, "name a checkpoint")
    config, found = open_ours(source)
    if not isinstance(config.encoder, ViT3DConfig):
        kind, expected = type(config.encoder).__name__, "M3D-CLIP's encoder"
        hint = "use export without --hub, whose parts plain PyTorch loads"
        raise InputError(source, "encoder", kind, expected, hint)
    with atomic_directory(output) as part:
        count = _write_tensors(source, part, config, found)
        tokenizer = Tokenizer.load(source, config.template.special_tokens)
        fields = _config(config, read_json(source / "config.json"))
        write_json(part / "config.json", fields)
        ends = {"eos_token_id": tokenizer.im_end, "pad_token_id": tokenizer.pad}
        write_json(part / "generation_config.json", ends | {"do_sample": False})
        backend = tokenizer.backend
        backend.chat_template = _chat_template(config)
        backend.eos_token = config.template.special_tokens.im_end
        backend.pad_token = config.template.special_tokens.pad
        backend.save_pretrained(part)
        _name_tokenizer_class(part / "tokenizer_config.json")
        code = files("tumorchain_jax.convert").joinpath("hub_files", MODELING)
        (part / MODELING).write_bytes(code.read_bytes())
        copy_measured(source, part)
        (part / "README.md").write_text(model_card(source, config, fields), "utf-8")
    return count


def _write_tensors(
    source: Path, part: Path, config: TumorChainConfig, found: dict[str, Tensor]
) -> int:
    kept = [each for each in parts(source, config) if not each.file.startswith(ADAPTER)]
    specs = {PREFIXES[each.file] + key: spec for each in kept for key, spec in each.specs.items()}
    tied = HEAD not in specs
    if tied:
        specs[HEAD] = specs[EMBEDDING]
    with (part / "model.safetensors").open("w+b") as stream:
        writer = TensorWriter(stream, specs)
        for each in kept:
            _write_part(each, writer, config, found)
    return len(specs)


def _write_part(
    each: File, writer: TensorWriter, config: TumorChainConfig, found: dict[str, Tensor]
) -> None:
    for path, made_of in each.sources.items():
        for layer, key in enumerate(made_of.keys):
            values = layer_of(found[path], layer, made_of.stacked)
            module = path.removesuffix("/kernel")
            if f"{module}/lora_a" in found and path.endswith("/kernel"):
                assert config.lora is not None
                low = (
                    layer_of(found[f"{module}/{name}"], layer, made_of.stacked)
                    for name in ("lora_a", "lora_b")
                )
                values = values + np.float32(config.lora.scale_of(module)) * np.matmul(*low)
            name, stored = PREFIXES[each.file] + key, made_of.transform.from_ours(values)
            writer.write(name, 0, stored)
            if name == EMBEDDING and config.decoder.tie_word_embeddings:
                writer.write(HEAD, 0, stored)


def _config(config: TumorChainConfig, ours: dict[str, Any]) -> dict[str, Any]:
    """Make `config.json`."""
    text = language_model(config.decoder).transformers_config(config.decoder)
    template, loop = config.template, LoopConfig(1)
    where = MODELING.removesuffix(".py")
    values = config.to_dict()
    return {
        "architectures": ["TumorChainForCausalLM"],
        "model_type": "tumorchain",
        "auto_map": {
            "AutoConfig": f"{where}.TumorChainConfig",
            "AutoModel": f"{where}.TumorChainForCausalLM",
            "AutoModelForCausalLM": f"{where}.TumorChainForCausalLM",
        },
        "dtype": "float32",
        "tie_word_embeddings": False,
        "vocab_size": config.decoder.vocab_size,
        # The head is a tensor of its own in the repository.
        "text_config": text | {"tie_word_embeddings": False},
        "encoder": {k: v for k, v in values["encoder"].items() if k != "kind"},
        "projector": values["projector"],
        "global_pool": config.global_pool,
        "roi_source": config.roi_source,
        "roi_slots": config.roi_slots,
        "roi_rank": config.roi_rank,
        "crop": values.get("crop"),
        "preprocess": ours["preprocess"],
        "template": {
            **template.special_tokens._asdict(),
            "system": template.system,
            "open_user": template.open_user,
            "close_user": template.close_user,
            "open_assistant": template.open_assistant,
            "after_answer": template.after_answer,
        },
        "loop": {
            "global_tokens": config.roi.global_tokens,
            "max_rounds": loop.max_rounds,
            "tokens_per_round": loop.tokens_per_round,
            "organs_per_round": loop.organs_per_round,
            "history": ours["history"],
            "initial_roi": bool(ours.get("initial_roi", False)),
        },
        "organs": {
            "names": list(ORGANS),
            "display": [display_name(label) for label in range(len(ORGANS))],
            "labels_by_name": {name: list(labels) for name, labels in NAMES.items()},
        },
    }


def _chat_template(config: TumorChainConfig) -> str:
    """Write the pieces of the family's template as Jinja; for text without visual tokens."""
    template = config.template
    pieces = {"<<SYSTEM>>": template.system, "<<OPEN>>": template.open_assistant}
    text = TEMPLATE
    for name, piece in pieces.items():
        quoted = piece.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        as_value = "{{ '" + quoted + "' }}" if name == "<<SYSTEM>>" else quoted
        text = text.replace(name, as_value)
    return text


def _name_tokenizer_class(path: Path) -> None:
    """Name a class that transformers 4 knows as well as 5."""
    fields = json.loads(path.read_text())
    write_json(path, fields | {"tokenizer_class": "PreTrainedTokenizerFast"})
