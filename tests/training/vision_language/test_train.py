"""The task `vision_language` against transformers and PEFT, and what it writes and refuses."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import peft
import pytest
import torch
import transformers
from PIL import Image
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch

from tumorchain_jax.cli.main import main
from tumorchain_jax.convert.adapter import Base
from tumorchain_jax.convert.command import convert
from tumorchain_jax.convert.imported import Imported
from tumorchain_jax.core.config import read_config
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten, unflatten
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.qwen_vl.model import QwenVL
from tumorchain_jax.models.weight_map import from_ours
from tumorchain_jax.parallel.mesh import make_mesh
from tumorchain_jax.training.registry import build_program
from tumorchain_jax.training.settings import check_settings
from tumorchain_jax.training.vision_language.init import open_init, start
from tumorchain_jax.training.vision_language.loss import AnswerLoss, Batch
from tumorchain_jax.training.vision_language.source import open_source
from tumorchain_jax.training.vision_language.train import build_task

SCRIPT = Path(__file__).with_name("tiny_vlm.py")
TINY = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
pil = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
pytestmark = [
    pytest.mark.program,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
SLOW = pytest.mark.system(haste=True)
TOLERANCE = 1e-4
WORDS = "Is this lesion benign or malignant? The margin is sharp, so it is: and not."
ROWS: list[tuple[list[str], list[tuple[str, str]]]] = [
    (["a.png"], [("user", "<image>Is it malignant?"), ("assistant", "The margin is sharp.")]),
    (["b.png"], [("user", "Is <image> benign?"), ("assistant", "So it is.")]),
    ([], [("system", "The lesion."), ("user", "Is it sharp?"), ("assistant", "And not.")]),
    (
        ["a.png", "c.png"],
        [
            ("user", "<image>Is it?"),
            ("assistant", "The"),
            ("user", "<image>or"),
            ("assistant", "so"),
        ],
    ),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight rows, of which the last four are the first in the other form, and their tokenizer."""
    folder = tmp_path_factory.mktemp("chats")
    rng = np.random.default_rng(0)
    for name, shape in (("a", (56, 84)), ("b", (61, 40, 3)), ("c", (30, 30))):
        Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(folder / f"{name}.png")
    lines = []
    for images, turns in ROWS:
        messages = [{"role": role, "content": text} for role, text in turns]
        lines.append({"images": images, "messages": messages})
    for images, turns in ROWS:
        names = {"system": "system", "user": "human", "assistant": "gpt"}
        said = [{"from": names[role], "value": text} for role, text in turns]
        lines.append({"images": images, "conversations": said})
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Tokenizer.train([WORDS] * 3, TINY.VOCABULARY).save(folder)
    return folder


@pytest.fixture(scope="module")
def theirs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The model of transformers, random, and the folder with it as `theirs` and imported `ours`."""
    folder, tokenizer = tmp_path_factory.mktemp("qwen"), Tokenizer.load(data)
    model = TINY.MODEL
    text = {
        "vocab_size": TINY.VOCABULARY,
        "hidden_size": model.decoder.hidden_size,
        "intermediate_size": model.decoder.intermediate_size,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 2, 2]},
    }
    tower = {"depth": 2, "hidden_size": 32, "intermediate_size": 24, "num_heads": 4}
    tower |= {"out_hidden_size": 48, "fullatt_block_indexes": [1], "window_size": 56}
    config = transformers.Qwen2_5_VLConfig(
        text_config=text | {"rms_norm_eps": 1e-6},
        vision_config=tower,
        tie_word_embeddings=False,
        image_token_id=tokenizer.image_pad,
        vision_start_token_id=tokenizer.vision_start,
        vision_end_token_id=tokenizer.vision_end,
        attn_implementation="eager",
    )
    found = transformers.Qwen2_5_VLForConditionalGeneration(config)
    torch.manual_seed(0)
    for name, parameter in found.named_parameters():
        spread = 0.1 if parameter.ndim == 1 else parameter[0].numel() ** -0.5
        torch.nn.init.normal_(parameter, float("norm" in name or "ln_q" in name), spread)
    found.save_pretrained(folder / "theirs")
    convert("import", folder / "theirs", folder / "ours", tower=True)
    return found, folder


def config_of(data: Path, init: Path | None = None) -> Any:
    config = TINY.get_config()
    config.data.folder, config.init = str(data), str(init or "")
    config.tokenizer = str(data)
    return config


def rows_for_torch(data: Path, numbers: list[int]) -> dict[str, Any]:
    """The same rows by transformers' own processor and chat template, labels on answers alone."""
    tokenizer = Tokenizer.load(data)
    backend = tokenizer.backend
    size = {"shortest_edge": TINY.LIMITS.min_pixels, "longest_edge": TINY.LIMITS.max_pixels}
    processor = pil.Qwen2VLImageProcessorPil(size=size)
    rows, labels, pixels, grids = [], [], [], []
    for number in numbers:
        images, turns = ROWS[number % len(ROWS)]
        opened = [Image.open(data / name) for name in images]
        seen = processor(images=opened, return_tensors="pt") if opened else None
        counts = iter((seen["image_grid_thw"].prod(dim=1) // 4).tolist() if seen else [])
        if seen:
            pixels.append(seen["pixel_values"])
            grids.append(seen["image_grid_thw"])
        row, label = [], []
        if turns[0][0] != "system":
            turns = [("system", "You are a helpful assistant."), *turns]
        for role, text in turns:
            for piece in re.split(r"(<image>)", text):
                pads = "<|image_pad|>" * next(counts) if piece == "<image>" else ""
                if pads:
                    text = text.replace("<image>", f"<|vision_start|>{pads}<|vision_end|>", 1)
            head = tokenizer.encode_template(f"<|im_start|>{role}\n")
            whole = tokenizer.encode_template(f"<|im_start|>{role}\n{text}<|im_end|>")
            newline = tokenizer.encode("\n")
            row += whole + newline
            learnt = len(whole) - len(head) if role == "assistant" else 0
            label += [-100] * (len(whole) - learnt) + whole[len(whole) - learnt :]
            label += [-100] * len(newline)
        rows.append(row)
        labels.append(label)
    assert backend.vocab_size <= TINY.VOCABULARY
    length = max(map(len, rows))
    tokens = torch.tensor([row + [tokenizer.pad] * (length - len(row)) for row in rows])
    valid = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    padded = [label + [-100] * (length - len(label)) for label in labels]
    return {
        "input_ids": tokens,
        "attention_mask": valid,
        "labels": torch.tensor(padded),
        "pixel_values": torch.cat(pixels),
        "image_grid_thw": torch.cat(grids),
        "mm_token_type_ids": ((tokens == tokenizer.image_pad) & (valid == 1)).int(),
    }


def close(ours: Any, theirs: Any, tolerance: float = TOLERANCE) -> None:
    theirs = np.asarray(theirs)
    assert np.abs(np.asarray(ours) - theirs).max() <= tolerance * max(np.abs(theirs).max(), 1e-3)


def test_loss_gradients_and_five_steps_are_those_of_transformers(
    data: Path, theirs: tuple[Any, Path], tmp_path: Path
) -> None:
    model, folder = theirs
    config = config_of(data, folder / "ours")
    mesh = make_mesh(dict(config.mesh), jax.devices()[:1])
    program = build_program(config, mesh)
    task = build_task(config, tmp_path, mesh, program)
    state, stream = task.initial(), task.batches_from(0)
    first: Batch = next(stream)
    loss = AnswerLoss(QwenVL(config.model))

    def share(params: Any) -> Any:
        return loss(params, {}, first, loss.totals(first), jax.random.key(0))[0]

    value, gradients = jax.jit(jax.value_and_grad(share))(state.params)
    model.train()
    decay = config.weight_decay
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=decay)
    names = dict(model.named_parameters())
    for step in range(TINY.STEPS):
        numbers = [int(re.search(r":(\d+)$", n)[1]) - 1 for n in task.describe_batch(step + 1)]
        batch = rows_for_torch(data, numbers)
        optimizer.zero_grad()
        output = model(**batch)
        output.loss.backward()
        if step == 0:
            close(value, output.loss.detach())
            table = Base(config.model.decoder, config.model.tower).table
            ours = from_ours(table, unflatten({k: np.asarray(v) for k, v in gradients.items()}))
            assert len(ours) == len(names)
            for key, gradient in ours.items():
                inner = key if key == "lm_head.weight" else f"model.{key}"
                inner = inner.replace("model.model.", "model.language_model.")
                close(gradient, names[inner].grad)
        state, metrics = program.step(state, first if step == 0 else next(stream))
        assert float(metrics["loss"]) == pytest.approx(output.loss.item(), rel=TOLERANCE)
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
        for group in optimizer.param_groups:
            group["lr"] = float(program.schedule(step))
        optimizer.step()
    assert float(metrics["loss"]) < float(value), "it learns"


def words(data: Path, workdir: Path, *more: str) -> list[str]:
    line = ["train", "--config", str(SCRIPT), "--workdir", str(workdir)]
    return [*line, f"--config.data.folder={data}", *more]


LORA = (
    "--config.model.lora.targets=('.*_proj','tower/(blocks|merger)/.*','tower/patch_embed')",
    "--config.model.lora.rank=3",
    "--config.model.lora.alpha=6.0",
    "--config.trainable=(('.*/lora_[ab]',True),('.*',False))",
    "--config.checkpoint.every=1",
)


@pytest.fixture(scope="module")
def trained(data: Path, theirs: tuple[Any, Path], tmp_path_factory: Any) -> Path:
    """A run of LoRA: two steps, and a third after a resume."""
    run = tmp_path_factory.mktemp("lora")
    start_from = (f"--config.init={theirs[1]}/ours", f"--config.tokenizer={data}", *LORA)
    for steps in (2, 3):
        line = words(data, run, f"--config.steps={steps}", "--config.decay=constant", *start_from)
        assert main(line) == 0
    return run


@SLOW
def test_lora_trains_the_adapters_alone_and_says_how_many_of_each_part(
    trained: Path, theirs: tuple[Any, Path], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    found = load_file(trained / "export" / "model.safetensors")
    before = Imported(theirs[1] / "ours")
    kept = {path: value for path, value in found.items() if "/lora_" not in path}
    assert kept.keys() == before.arrays.specs.keys()
    for path, value in leaves(before.restore()).items():
        np.testing.assert_array_equal(kept[path], value)
    assert all(np.any(value) for path, value in found.items() if path.endswith("/lora_b"))
    capsys.readouterr()
    line = words(data, trained, "--config.steps=3", "--config.decay=constant", *LORA)
    assert main([*line, f"--config.init={theirs[1]}/ours", f"--config.tokenizer={data}"]) == 0
    printed = capsys.readouterr().out
    counted = {
        part: sum(v.size for p, v in found.items() if "/lora_" in p and p.startswith(start))
        for part, start in (("merger", "tower/merger"), ("patch embedding", "tower/patch_embed"))
    }
    for part, count in counted.items():
        assert f"{part} {count:,} of " in printed


def leaves(tree: Any) -> dict[str, np.ndarray]:
    return {path: np.asarray(leaf) for path, leaf in flatten(tree).items()}


@SLOW
def test_exported_model_and_adapter_are_loaded_by_transformers_and_peft(
    trained: Path, theirs: tuple[Any, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert main(["convert", "export", "-i", f"{trained}/export", "-o", str(out)]) == 0
    assert main(["convert", "verify", "-i", f"{trained}/export", "-o", str(out)]) == 0
    kind = transformers.Qwen2_5_VLForConditionalGeneration
    model, info = kind.from_pretrained(out / "model", output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    before = theirs[1] / "theirs"
    ours, was = (load_torch(each / "model.safetensors") for each in (out / "model", before))
    assert ours.keys() == was.keys()
    assert all(torch.equal(ours[key], was[key]) for key in was)
    fields = model.config.get_text_config()
    assert fields.rope_parameters["mrope_section"] == [2, 2, 2]
    assert model.config.vision_config.window_size == 56
    # A missing or unexpected key is a warning, and so an error here.
    adapted = peft.PeftModel.from_pretrained(model, out / "adapter")
    loaded = peft.get_peft_model_state_dict(adapted)
    written = load_torch(out / "adapter" / "adapter_model.safetensors")
    assert loaded.keys() == written.keys()
    assert all(torch.equal(loaded[key], written[key]) for key in written)
    # And back: what was exported is imported as the same model and adapter.
    convert("import", out / "model", tmp_path / "base", tower=True)
    convert("import", out / "adapter", tmp_path / "adapter", base=tmp_path / "base")
    found = load_file(trained / "export" / "model.safetensors")
    for name in ("base", "adapter"):
        for path, value in leaves(Imported(tmp_path / name).restore()).items():
            np.testing.assert_array_equal(found[path], value)


@SLOW
def test_training_goes_on_from_an_imported_adapter_of_the_same_scale(
    trained: Path, theirs: tuple[Any, Path], data: Path, tmp_path: Path
) -> None:
    out, base = tmp_path / "out", theirs[1] / "ours"
    convert("export", trained / "export", out)
    convert("import", out / "adapter", tmp_path / "adapter", base=base)
    config = TINY.with_lora(config_of(data))
    config.init = f"{base},{tmp_path}/adapter"
    program = build_program(config, make_mesh(dict(config.mesh), jax.devices()[:1]))
    state = start(config, program)
    found = load_file(trained / "export" / "model.safetensors")
    for path, value in state.params.items():
        np.testing.assert_array_equal(found[path], value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[0]["images"].append("b.png"), "images: found 2, expected as many"),
        (lambda lines: lines[0].update(images=["../a.png"]), "without .. and not from the root"),
        (lambda lines: lines[0].update(images=["/a.png"]), "without .. and not from the root"),
        (lambda lines: lines[0].update(images=["out.png"]), "not links out of it"),
        (lambda lines: lines[0].update(images=["none.png"]), "none.png: picture"),
        (lambda lines: lines[0].update(images=["wide.png"]), "sides that differ 200-fold"),
        (lambda lines: lines[3].update(images=["a.png", "big.png"]), "found pictures of"),
        (lambda lines: lines[0]["messages"][0].update(content="<image><|image_pad|>"), "image_pad"),
        (lambda lines: lines[0]["messages"].pop(), "user and assistant in turns"),
        (lambda lines: lines[0]["messages"][1].update(loss=False), "no answer to learn"),
        (lambda lines: lines[0]["messages"][1].update(content="so " * 99), "at most 96"),
        (lambda lines: lines[0]["messages"][0].update(role="tool"), "one of system, user"),
        (lambda lines: lines.clear(), "found none, expected one or more"),
        (lambda lines: lines.__delitem__(slice(3)), "at least the 4 of a batch"),
    ],
)
def test_rows_that_cannot_be_trained_on_are_refused_in_one_line(
    change: Any, said: str, data: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(data, folder, ignore=shutil.ignore_patterns("run"))
    (folder / "out.png").symlink_to(data / "a.png")
    Image.new("L", (84, 84)).save(folder / "big.png")
    Image.new("L", (500, 2)).save(folder / "wide.png")
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()[:4]]
    change(lines)
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        open_source(config_of(folder), Tokenizer.load(folder))
    assert "\n" not in str(caught.value)


@SLOW
def test_damaged_picture_ends_a_training_in_one_line(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its header is sound, so that it is found when its pixels are read."""
    folder = tmp_path / "data"
    shutil.copytree(data, folder, ignore=shutil.ignore_patterns("run"))
    whole = (data / "b.png").read_bytes()
    (folder / "b.png").write_bytes(whole[: len(whole) // 2])
    assert main(words(folder, tmp_path / "run")) == 2
    error = capsys.readouterr().err
    assert "b.png: picture: found" in error
    assert error.count("\n") == 1


@SLOW
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--config.model.lora.rank=4", "--config.model.lora.alpha=8.0"], "lora_a"),
        (["--config.model.lora.alpha=7.0"], "scale of "),
        (["--config.model.decoder.rope_theta=1e5"], "decoder.rope_theta"),
        (["--config.data.patches=50"], "a multiple of 4"),
        (["--config.model.decoder.mrope_section=none"], "mrope_section"),
        (["--config.data.folder="], "a folder of rows and pictures"),
    ],
)
def test_settings_at_odds_with_the_model_are_refused_in_one_line(
    more: list[str], said: str, trained: Path, data: Path
) -> None:
    given = [f"--config.data.folder={data}", *LORA, f"--config.init={trained}/export", *more]
    config = read_config(SCRIPT, given)
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        open_all(config, data)
    assert "\n" not in str(caught.value)


def open_all(config: Any, data: Path) -> None:
    """What training opens before its first step."""
    check_settings(config)
    open_init(config)
    open_source(config, Tokenizer.load(data))


@SLOW
def test_eight_devices_give_the_losses_of_one(data: Path) -> None:
    meshes = [{}, {"fsdp": 8}, {"data": 2, "fsdp": 2, "tensor": 2, "rows": 1}]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(data), *map(json.dumps, meshes)],
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Involuntary full rematerialization" not in done.stderr
    one, *others = json.loads(done.stdout)
    assert len(set(one)) == TINY.STEPS
    for found in others:
        assert found == pytest.approx(one, rel=2e-5)
