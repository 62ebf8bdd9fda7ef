"""A model with random weights and a real tokenizer, served in this process."""

import json
import shutil
import threading
from collections.abc import Iterator

import jax
import numpy as np
import pytest
import uvicorn
from transformers import PreTrainedTokenizerFast

from tumorchain_jax.bench.transformers_models import random_decoder
from tumorchain_jax.convert.importer import import_folder
from tumorchain_jax.inference.language_model import LanguageModel
from tumorchain_jax.models.language.qwen2.convert import TABLE, transformers_config
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.weight_map import from_ours
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.serve.app import make_app
from tumorchain_jax.serve.worker import Worker
from tumorchain_jax.weights.tensor_files import TensorWriter

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


class Served(uvicorn.Server):
    """A server in a thread, and its address."""

    def install_signal_handlers(self) -> None:
        """Signals are the main thread's."""

    def begin(self) -> str:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        while not self.started:
            self.thread.join(0.01)
        port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def finish(self) -> None:
        self.should_exit = True
        self.thread.join()


@pytest.fixture(scope="session")
def url(worker: Worker) -> Iterator[str]:
    server = Served(uvicorn.Config(make_app(worker, ""), port=0, log_level="error", lifespan="off"))
    yield server.begin()
    server.finish()


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture(scope="session")
def locked_url(worker: Worker) -> Iterator[str]:
    server = Served(
        uvicorn.Config(make_app(worker, KEY), port=0, log_level="error", lifespan="off")
    )
    yield server.begin()
    server.finish()
