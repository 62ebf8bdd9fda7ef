"""Servers in this process: of a language model with random weights, and of nano."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from ct_clients import ask, by_path, serving
from transformers import PreTrainedTokenizerFast

from tumorchain_jax.bench.transformers_models import random_decoder
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.inference.analyzer import Analyzer
from tumorchain_jax.inference.language_model import LanguageModel
from tumorchain_jax.models.language.qwen2.convert import TABLE, transformers_config
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.weight_map import from_ours
from tumorchain_jax.phantoms.patient import make_patient, write_patient
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.segmentation.factory import NO_SEGMENTER
from tumorchain_jax.serve.app import make_app
from tumorchain_jax.serve.ct.app import make_ct_app
from tumorchain_jax.serve.ct.cases import Cases
from tumorchain_jax.serve.ct.desk import Desk
from tumorchain_jax.serve.ct.limits import Limits
from tumorchain_jax.serve.ct.store import Store
from tumorchain_jax.serve.worker import Worker
from tumorchain_jax.weights.tensor_files import TensorWriter

LIMITS = replace(Limits(), waiting=12, upload=8 << 20, inline=16 << 20, scans=3)
KEY = "a-key-of-more-than-sixteen"
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = tmp_path_factory.mktemp("published")
    shutil.copy(NANO_CHECKPOINT / "tokenizer.json", folder / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(0)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=False,
        attention_bias=False,
    )
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(0, 0.6, x.shape).astype(np.float32), random_decoder(config)
    )
    theirs = from_ours(TABLE, params)
    with (folder / "model.safetensors").open("w+b") as stream:
        writer = TensorWriter(stream, {key: (x.dtype, x.shape) for key, x in theirs.items()})
        for key, values in theirs.items():
            writer.write(key, 0, values)
    (folder / "config.json").write_text(json.dumps(transformers_config(config)))
    imported = folder / "imported"
    import_folder(folder, imported)
    return LanguageModel.load(imported)


@pytest.fixture(scope="session")
def worker(language_model: LanguageModel) -> Iterator[Worker]:
    worker = Worker(language_model, "tiny", waiting=2, context=400)
    worker.start()
    yield worker
    worker.stop()


@pytest.fixture(scope="session")
def url(worker: Worker) -> Iterator[str]:
    with serving(make_app(worker, "")) as address:
        yield address


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture(scope="session")
def locked_url(worker: Worker) -> Iterator[str]:
    with serving(make_app(worker, KEY)) as address:
        yield address


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two patients under a root; a secret beside it."""
    folder = tmp_path_factory.mktemp("scans")
    (folder / "secret.nii").write_text("not for clients")
    for seed in (1, 2):
        write_patient(make_patient(seed), folder / "root" / f"p{seed}")
    (folder / "root" / "out.nii").symlink_to(folder / "secret.nii")
    return folder / "root"


@pytest.fixture(scope="session")
def analyzer() -> Analyzer:
    """Scans without a label map have no organs: segmenting is not what is tested here."""
    return Analyzer.load(batch_size=4, max_rounds=2, segmenter=NO_SEGMENTER)


@pytest.fixture(scope="session")
def served(analyzer: Analyzer, root: Path) -> Iterator[SimpleNamespace]:
    """A server of CTs; on another address, with the same desk, it asks for a key."""
    desk, store = Desk(analyzer, Cases(analyzer, LIMITS), LIMITS), Store(root, 3600.0, 1 << 30)
    desk.start()
    open_app = make_ct_app(desk, store, "nano", "")
    with serving(open_app) as url, serving(make_ct_app(desk, store, "nano", KEY)) as locked:
        yield SimpleNamespace(url=url, locked=locked, desk=desk, store=store)
    desk.stop()
    store.close()
    assert not store.folder.exists()


@pytest.fixture
def ct_url(served: SimpleNamespace) -> str:
    return served.url


@pytest.fixture(scope="session")
def answer(served: SimpleNamespace) -> dict[str, Any]:
    """The reply to a question about the first patient."""
    return ask(served.url, **by_path(1)).json()
