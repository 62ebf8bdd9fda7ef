import json
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

from tumorchain_jax import NOTICE
from tumorchain_jax.cli.main import main
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.data.dataset import FORMAT, ModelScan, preprocess_values
from tumorchain_jax.data.schema import Record
from tumorchain_jax.data.splits import write_split
from tumorchain_jax.evaluation.ask import Asked
from tumorchain_jax.evaluation.logistic import held_out, learn_to_answer
from tumorchain_jax.evaluation.patients import Patients
from tumorchain_jax.evaluation.probe import BY_CLASSIFIER, WHICH_ORGAN, linear_probe
from tumorchain_jax.evaluation.probe_features import lesion_features
from tumorchain_jax.inference.case import PreparedCase
from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.language.tokenizer import Tokenizer
from tumorchain_jax.models.tumorchain.model import TumorChainConfig, abstract_params
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig
from tumorchain_jax.scan.preprocess import PreprocessConfig
from tumorchain_jax.weights.model_folder import ModelFolder, export, load_model

GRID = (8, 16, 16)
PREPROCESS = PreprocessConfig(GRID)
MODEL = TumorChainConfig(
    encoder=ViT3DConfig(GRID, (4, 8, 8), 16, 32, 1, 2),
    decoder=Qwen2Config(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        tie_word_embeddings=True,
    ),
    roi_slots=4,
)
LIVER, PANCREAS = 5, 7
HYPODENSE, HYPERDENSE = "hypodense", "hyperdense"
PATIENTS = range(24)
TEST = [f"patient-{number}" for number in PATIENTS if number % 3 == 2]
TRAIN = [f"patient-{number}" for number in PATIENTS if number % 3 != 2]
Answers = list[str]


def scan(number: int, lesion: bool = True) -> ModelScan:
    """A liver with a dark and a bright spot, in cells drawn by the number; one is the lesion.

    Only the mask tells which: it is the bright one in every second pair of patients.
    """
    rng = np.random.default_rng(number)
    image = rng.integers(110, 130, GRID).astype(np.uint8)
    lesions = np.zeros(GRID, np.uint8)
    for value, cell in zip((0, 255), rng.choice(8, 2, replace=False), strict=True):
        d, h, w = np.multiply(np.unravel_index(cell, (2, 2, 2)), (4, 8, 8))
        spot = np.s_[d : d + 4, h : h + 8, w : w + 8]
        image[spot] = value
        lesions[spot] = lesion and is_bright(number) == (value == 255)
    nothing = np.zeros(GRID, np.uint8)
    labels = np.full(GRID, LIVER, np.uint8)
    unknown = np.full(57, -1, np.int8)
    return ModelScan(image, labels, nothing, lesions, nothing, unknown[:5], unknown)


def is_bright(number: int) -> bool:
    return number % 4 > 1


def densities() -> Answers:
    return [HYPERDENSE if is_bright(number) else HYPODENSE for number in PATIENTS]


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "export"
    tokenizer = Tokenizer.train(["a lesion"], 300)
    rng = np.random.default_rng(0)
    shapes = abstract_params(MODEL).items()
    params = {path: rng.normal(scale=0.3, size=leaf.shape) for path, leaf in shapes}
    export(folder, MODEL, PREPROCESS, "all", params, tokenizer)
    return folder


def two_organs(number: int, organ: int, spot: bool = True) -> ModelScan:
    """A liver in the one half and a pancreas in the other, a bright spot in one cell of `organ`.

    There is no mask of the spot.
    """
    rng = np.random.default_rng(number)
    image = rng.integers(110, 130, GRID).astype(np.uint8)
    labels = np.full(GRID, PANCREAS, np.uint8)
    labels[:, :8] = LIVER
    d, w = rng.integers(2, size=2)
    h = 0 if organ == LIVER else 8
    image[4 * d : 4 * d + 4, h : h + 8, 8 * w : 8 * w + 8] = 255 if spot else 120
    nothing = np.zeros(GRID, np.uint8)
    unknown = np.full(57, -1, np.int8)
    return ModelScan(image, labels, nothing, nothing, nothing, unknown[:5], unknown)


class Others(Patients):
    """Eight patients whose tumours lie in turn in the liver and the pancreas."""

    def __init__(self, record: Callable[..., Record], first_seed: int = 900):
        self.record, self.seeds, self.source = record, (first_seed, 8), "others"

    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> Asked:
        organ, patient = self.organ(number), f"other-{number}"
        answers = {"density": HYPERDENSE, "tumor_position": "liver"}
        records = [
            self.record(patient, subtask, "q?", answer, scan=0, organ=organ)
            for subtask, answer in answers.items()
        ]
        return cast(PreparedCase, None), records

    def organ(self, number: int) -> int:
        return PANCREAS if number % 2 else LIVER

    def truth(self, number: int) -> ModelScan:
        return two_organs(1000 + number, self.organ(number))


@pytest.fixture
def write(tmp_path: Path, record: Callable[..., Record]) -> Callable[..., Path]:
    """Makes a data set whose patients are asked for the density of what is in their liver."""

    def make(
        answers: Answers, lesion: bool = True, organs: list[int] | None = None, spot: bool = True
    ) -> Path:
        folder = tmp_path / "data"
        folder.mkdir()
        manifest = {"format": FORMAT, "preprocess": preprocess_values(PREPROCESS)}
        if organs:
            manifest |= {"first_seed": 500, "count": len(organs)}
        (folder / "dataset.json").write_text(json.dumps(manifest))
        write_split(folder, {"train": TRAIN, "test": TEST})
        records = [
            record(f"patient-{n}", "density", "q?", answer, scan=n, organ=organ)
            for n, (answer, organ) in enumerate(zip(answers, organs or repeat(LIVER), strict=False))
        ]
        scans = [scan(number, lesion).to_bytes() for number in PATIENTS]
        if organs:
            scans = [two_organs(n, organ, spot).to_bytes() for n, organ in enumerate(organs)]
        lines = [each.to_json().encode() for each in records]
        for kind, blobs in {"scans": scans, "records": lines}.items():
            writer = ArrayRecordWriter(str(folder / f"{kind}-0.arrayrecord"), "group_size:1")
            for blob in blobs:
                writer.write(blob)
            writer.close()
        return folder

    return make


# ------------------------------------------------------------------ features


def visual_tokens(config: TumorChainConfig) -> np.ndarray:
    """Tokens that can be told apart."""
    rows = config.roi.visual_tokens
    return np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)


@pytest.mark.parametrize("source", ["encoder", "global"])
def test_features_are_the_tokens_under_the_mask(source: str) -> None:
    encoder = replace(MODEL.encoder, patch=(2, 4, 4))  # 4 x 4 x 4 cells, pooled 2 x 2 x 2
    config = replace(MODEL, encoder=encoder, roi_source=source, roi_slots=64)
    tokens = visual_tokens(config)
    size = np.array(GRID) // config.roi.grid
    nothing = scan(0, lesion=False)
    lesions, labels = np.zeros(GRID, np.uint8), np.zeros(GRID, np.uint8)
    # Three voxels of the first lesion in cell 0, one of the second in the last cell.
    lesions[0, 0, :3], lesions[-1, -1, -1] = 1, 2
    labels[:, :, : size[2]] = LIVER
    marked = replace(nothing, lesions=lesions, labels=labels)
    found = lesion_features(tokens, marked, LIVER, config.roi)
    cells = tokens[config.roi.offset :]
    first, last = cells[0], cells[-1]
    own = cells.reshape(*config.roi.grid, 3)[:, :, 0].reshape(-1, 3)
    expected = [(3 * first + last) / 4, np.maximum(first, last), own.mean(0), own.max(0)]
    np.testing.assert_allclose(found[:12], np.concatenate(expected), rtol=1e-5)
    np.testing.assert_array_equal(found[12:], [1, 0, 0, 0, 0])


def test_what_the_grid_does_not_show_is_zero() -> None:
    found = lesion_features(visual_tokens(MODEL), scan(0, lesion=False), 7, MODEL.roi)
    np.testing.assert_array_equal(found, [0] * 12 + [0, 1, 0, 0, 0])


# ---------------------------------------------------------------- classifier


@pytest.mark.program
def test_what_is_separable_is_learned() -> None:
    rng = np.random.default_rng(0)
    middles = 3 * rng.normal(size=(4, 6))
    truth = rng.integers(4, size=90)
    rows = np.concatenate([middles[truth] + 0.1 * rng.normal(size=(90, 6)), np.ones((90, 1))], 1)
    names = [f"T{number}" for number in truth]
    patients = [f"p{number}" for number in range(60)]
    assert learn_to_answer(rows[:60], names[:60], patients, rows[60:]) == names[60:]


@pytest.mark.program
def test_nothing_to_read_is_the_commonest_answer() -> None:
    noise = np.random.default_rng(0).normal(size=(60, 5))
    answers = ["N1" if number % 4 else "N0" for number in range(60)]
    said = learn_to_answer(noise, answers, list(map(str, range(60))), np.zeros((3, 5)))
    assert said == ["N1"] * 3


@pytest.mark.parametrize("answers", [["M0"], ["M0", "M0"]])
@pytest.mark.program
def test_one_answer_is_all_there_is(answers: Answers) -> None:
    rows = np.arange(len(answers), dtype=float)[:, None]
    patients = list(map(str, range(len(answers))))
    assert learn_to_answer(rows, answers, patients, np.array([[9.0]])) == ["M0"]


def test_patient_is_held_out_with_all_questions() -> None:
    patients = [f"p{number % 10}" for number in range(30)]
    held = held_out(patients)
    assert held.sum() == 6
    names = np.array(patients)
    assert not set(names[held]) & set(names[~held])
    np.testing.assert_array_equal(held_out(patients[::-1]), held[::-1])


# --------------------------------------------------------------------- whole


@pytest.fixture(scope="module")
def loaded(checkpoint: Path) -> ModelFolder:
    return load_model(checkpoint)


@pytest.mark.program
def test_mask_tells_which_spot_is_asked_for(loaded: ModelFolder, write: Callable) -> None:
    rows = linear_probe(loaded, write(densities()))
    truths = [densities()[int(name.split("-")[1])] for name in TEST]
    often = 100 * truths.count(HYPODENSE) / len(truths)
    assert set(rows) == {"density", WHICH_ORGAN, BY_CLASSIFIER}
    # Wilson's interval, as of all shares of fewer than 20 patients.
    expected = {"accuracy": 100.0, "ci95": [67.6, 100.0], "n": 8, "majority": often}
    assert rows["density"] == expected


@pytest.mark.program
def test_without_the_mask_the_spots_are_alike(loaded: ModelFolder, write: Callable) -> None:
    assert linear_probe(loaded, write(densities(), lesion=False))["density"]["accuracy"] <= 75


@pytest.mark.program
def test_test_patients_teach_nothing(loaded: ModelFolder, write: Callable) -> None:
    other = {HYPODENSE: HYPERDENSE, HYPERDENSE: HYPODENSE}
    answers = [other[a] if n % 3 == 2 else a for n, a in enumerate(densities())]
    assert linear_probe(loaded, write(answers))["density"]["accuracy"] == 0


@pytest.mark.program
@pytest.mark.parametrize("spot", [True, False])
def test_organ_is_found_by_what_its_tokens_hold(
    loaded: ModelFolder, write: Callable, spot: bool
) -> None:
    organs = [PANCREAS if is_bright(number) else LIVER for number in PATIENTS]
    row = linear_probe(loaded, write(densities(), organs=organs, spot=spot))[WHICH_ORGAN]
    assert row["n"] == len(TEST)
    assert row["majority"] == 50
    assert (row["accuracy"] == 100) == spot


@pytest.mark.program
def test_other_patients_are_scored_on(
    loaded: ModelFolder, write: Callable, record: Callable[..., Record]
) -> None:
    organs = [PANCREAS if is_bright(number) else LIVER for number in PATIENTS]
    folder = write(densities(), organs=organs)
    rows = linear_probe(loaded, folder, Others(record))
    assert rows[WHICH_ORGAN]["accuracy"] == 100
    assert [rows[name]["n"] for name in ("density", WHICH_ORGAN, BY_CLASSIFIER)] == [8, 8, 8]
    with pytest.raises(InputError, match="seeds: found seeds 520 to 527, expected others"):
        linear_probe(loaded, folder, Others(record, first_seed=520))


def test_side_without_tumours_is_refused(loaded: ModelFolder, write: Callable) -> None:
    folder = write(densities())
    for lists in ({"train": TRAIN + TEST, "test": []}, {"train": [], "test": TRAIN + TEST}):
        write_split(folder, lists)
        empty = next(side for side, names in lists.items() if not names)
        with pytest.raises(InputError, match=rf"split\.json: {empty}: found none"):
            linear_probe(loaded, folder)


def test_scans_of_another_window_are_refused(loaded: ModelFolder, write: Callable) -> None:
    other = replace(loaded, preprocess=replace(PREPROCESS, width=350.0))
    with pytest.raises(InputError, match=r"dataset\.json: preprocess: found"):
        linear_probe(other, write(densities()))


# -------------------------------------------------------------- command line


@pytest.mark.program
def test_command_prints_a_table_or_json(
    checkpoint: Path, write: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "--data", str(write(densities())), "-c", str(checkpoint), "--probe"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["density"]
    assert set(row) == {"accuracy", "ci95", "n", "majority"}
    (line,) = (line for line in text.splitlines() if line.startswith("density"))
    assert line.split()[1:] == [
        str(value) for value in (row["accuracy"], *row["ci95"], row["majority"], row["n"])
    ]
    assert text.startswith("A linear classifier on the checkpoint's tokens")
    assert text.endswith(f"{NOTICE}\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "--data: found none"),
        (["--phantoms", "3"], "--data: found none"),
        (["--data", "{empty}"], "empty: dataset.json: found none"),
        (["--data", "{empty}", "-c", "{empty}"], "empty: config.json: found none"),
        (["--data", "{empty}", "-o", "{empty}"], "not allowed with argument"),
        (["{empty}", "--data", "{empty}"], "--probe: found another source"),
        (["{empty}", "--phantoms", "2"], "empty: dataset.json: found none"),
    ],
)
def test_bad_input(
    words: list[str], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    words = [word.format(empty=tmp_path / "empty") for word in words]
    try:
        code = main(["evaluate", "--probe", *words])
    except SystemExit as stop:  # argparse
        code = stop.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.count("\n") == 1
    assert found in captured.err
