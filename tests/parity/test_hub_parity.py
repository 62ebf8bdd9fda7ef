"""A checkpoint exported for the hub: transformers loads it, and its loop writes our tokens."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tumorchain_jax.convert.command import convert
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.inference.analyzer import TASKS, Analyzer
from tumorchain_jax.inference.hub_inputs import hub_inputs
from tumorchain_jax.phantoms.patient import make_patient
from tumorchain_jax.pretrained import NANO_CHECKPOINT
from tumorchain_jax.segmentation.factory import NO_SEGMENTER

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

QUESTIONS = (TASKS["position"], TASKS["report"], "Is the liver normal? <|im_end|>", "Größe?")
pytestmark = [
    pytest.mark.system(haste=True),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "nano"
    convert("export", NANO_CHECKPOINT, None, hub=folder)
    return folder


@pytest.fixture(scope="module")
def loaded(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(
            transformers.dynamic_module_utils,
            "HF_MODULES_CACHE",
            str(tmp_path_factory.mktemp("modules")),
        )
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            exported, trust_remote_code=True, output_loading_info=True
        )
        same = transformers.AutoModel.from_pretrained(exported, trust_remote_code=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    return SimpleNamespace(model=model.eval(), info=info, same=same, tokenizer=tokenizer)


def test_transformers_finds_every_tensor(loaded: SimpleNamespace) -> None:
    assert not any(
        loaded.info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
    )
    assert type(loaded.same).__name__ == type(loaded.model).__name__ == "TumorChainForCausalLM"


def test_loop_writes_our_tokens(loaded: SimpleNamespace) -> None:
    analyzer = Analyzer.load(segmenter=NO_SEGMENTER)
    encode = analyzer.checkpoint.tokenizer.encode
    looked: set[str] = set()
    for seed in (2, 5):
        patient = make_patient(seed)
        case = analyzer.prepare(patient.ct, patient.labels)
        answers = analyzer.run([(case, question) for question in QUESTIONS])
        inputs = {name: torch.from_numpy(array) for name, array in hub_inputs(case).items()}
        for question, answer in zip(QUESTIONS, answers, strict=True):
            found = loaded.model.answer(loaded.tokenizer, question, **inputs)
            assert [each["text"] for each in found["rounds"]] == [
                each.text for each in answer.trace.rounds
            ]
            assert [len(each["tokens"]) for each in found["rounds"]] == [
                each.tokens_out for each in answer.trace.rounds
            ]
            assert found["stop_reason"] == answer.trace.stop_reason
            for theirs, ours in zip(found["rounds"], answer.trace.rounds, strict=True):
                organs = [each.organ for each in ours.organs if each.outcome == "looked_at"]
                assert theirs["looked_at"] == organs
                assert theirs["tokens"] == encode(ours.text)
                looked.update(organs)
                for each in ours.organs:
                    if each.abnormal_probability is not None:
                        probability = found["abnormal"][each.organ]
                        assert probability == pytest.approx(each.abnormal_probability, abs=1e-4)
    assert len(looked) > 2


def test_chat_template_is_the_prompts(loaded: SimpleNamespace) -> None:
    chat = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Where?"}], add_generation_prompt=True, tokenize=False
    )
    template = Analyzer.load(segmenter=NO_SEGMENTER).checkpoint.model.template
    expected = template.system + template.open_user + "Where?" + template.close_user
    assert chat == expected + template.open_assistant


def test_card_says_what_is_there(exported: Path) -> None:
    card = (exported / "README.md").read_text("utf-8")
    head, body = card.removeprefix("---\n").split("\n---\n", 1)
    assert "library_name: transformers" in head.splitlines()
    assert "{" not in body.split("## Evaluation")[0].replace('found["rounds"]', "")
    fields: dict[str, Any] = json.loads((exported / "config.json").read_text())
    assert fields["auto_map"]["AutoModelForCausalLM"].startswith("modeling_tumorchain.")
    tokenizer = json.loads((exported / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_hub_refuses_what_is_no_checkpoint(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--hub: found another folder"):
        convert("export", exported, None, hub=tmp_path / "again")
    with pytest.raises(InputError, match="--hub: found with import"):
        convert("import", NANO_CHECKPOINT, None, hub=tmp_path / "again")
