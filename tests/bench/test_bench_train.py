"""Both sides of the training benchmark do the same: at a tiny size their losses agree."""

import pytest

from tumorchain_jax.bench import transformers_models
from tumorchain_jax.bench.train import bench_train
from tumorchain_jax.cli.main import main
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

TINY = TumorChainConfig(
    encoder=ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
    decoder=Qwen2Config(512, 16, 32, 2, 2, 1, 8, True),
    roi_slots=4,
)


@pytest.mark.system(haste=True)
@pytest.mark.usefixtures("one_process")
def test_both_train_alike() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("monai")
    values = bench_train(TINY, rows=1, length=512, repeats=1)
    assert values["same losses (to 0.0001), share"] == 1.0, values
    assert values["last loss"] < values["first loss"]
    parts = [value for name, value in values.items() if name.endswith(("ward, s", "optimizer, s"))]
    assert len(parts) == 5
    assert sum(parts) == pytest.approx(values["step, s"])


def test_without_monai_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(transformers_models, "find_spec", lambda name: None)
    assert main(["bench", "train"]) == 2
    assert "tumorchain-jax[parity]" in capsys.readouterr().err
