"""Linear probe: classify what the visual tokens of a lesion hold, given the lesion's true mask.

What the probe answers and the model does not is lost in the decoder; what neither answers may be
lost in the encoder. There is one logistic regression for each subtask about a tumour, fitted on the
training patients' tokens of the lesions (by the truth mask) and of the organ with the tumour. Of a
model with crops these are the tokens of the organ's crop. Masks of nodes and metastases are not
given: they would be the answer.

Shape letters: N questions, F features, C answers, K embedding.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from grain.sources import ArrayRecordDataSource
from jax import lax
from jaxtyping import Array, Bool, Float
from tqdm import tqdm

from tumorchain_jax.anatomy.organs import DIGESTIVE
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.data.dataset import ModelScan, read_records, shard_paths
from tumorchain_jax.data.leaks import check_split
from tumorchain_jax.data.schema import SUBTASKS, Record
from tumorchain_jax.data.splits import SIDES, read_split
from tumorchain_jax.evaluation.ask import BATCH_SIZE
from tumorchain_jax.evaluation.items import Item, make_item
from tumorchain_jax.evaluation.patients import check_preprocessing
from tumorchain_jax.evaluation.score import score
from tumorchain_jax.models.layers.apply import run
from tumorchain_jax.models.tumorchain.crops import Crops
from tumorchain_jax.models.tumorchain.model import TumorChain
from tumorchain_jax.models.tumorchain.roi_spec import RoiSpec
from tumorchain_jax.reasoning.organ_cells import coverage, organ_cells
from tumorchain_jax.weights.model_folder import ModelFolder

ABOUT_TUMOUR = (*SUBTASKS["lesion_attributes"], *SUBTASKS["tnm_prediction"])
PENALTIES = (1.0, 0.1, 0.01, 0.001)
"""On the sum of squared weights; chosen by held-out patients, the strongest of equals."""
HELD_OUT_ONE_IN = 5
STEPS = 100


def linear_probe(checkpoint: ModelFolder, folder: Path) -> dict[str, dict[str, Any]]:
    """Fit the probes on a data set's training patients and score them on its test patients.

    Returns:
        by subtask: `accuracy`, `ci95` and `n` as in `score`; `majority`, of always giving the
        most frequent answer of the training patients.

    Raises:
        InputError: the data set is empty, its split leaks, no patient of one side has a tumour, or
            the scans were not preprocessed as the checkpoint's were.
    """
    check_preprocessing(folder, checkpoint)
    sides = _records_by_side(folder)
    organs = {record.scan: record.organ for side in sides for record in side}
    features = _features(checkpoint, folder, organs)
    items: list[Item] = []
    commonest: list[Item] = []
    for subtask in ABOUT_TUMOUR:
        train, test = ([record for record in side if record.subtask == subtask] for side in sides)
        if not train or not test:
            continue
        seen, asked = (np.stack([features[r.scan] for r in records]) for records in (train, test))
        answers = [record.answer for record in train]
        said = learn_to_answer(seen, answers, [record.patient for record in train], asked)
        items += map(make_item, test, said)
        ((most, _),) = Counter(answers).most_common(1)
        commonest += [make_item(record, most) for record in test]
    majority = score(commonest)["subtasks"]
    return {
        subtask: {name: row[name] for name in ("accuracy", "ci95", "n")}
        | {"majority": majority[subtask]["accuracy"]}
        for subtask, row in score(items)["subtasks"].items()
    }


def probe_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Format what `linear_probe` returns as a table."""
    lines = [
        "A linear classifier on the checkpoint's tokens of the lesions (by the truth mask) and of "
        "their organ; nodes and metastases are not pointed out. Accuracy in percent",
        f"\n{'':<22}{'accuracy':>9}{'95 % from':>11}{'to':>7}{'majority':>10}{'n':>7}",
    ]
    for subtask, row in rows.items():
        low, high = row["ci95"]
        lines.append(
            f"{subtask:<22}{row['accuracy']:>9}{low:>11}{high:>7}{row['majority']:>10}{row['n']:>7}"
        )
    return "\n".join(lines)


def _records_by_side(folder: Path) -> list[list[Record]]:
    """Return the records about tumours of the training patients, and those of the test patients."""
    check_split(folder)
    split = read_split(folder)
    records = [record for record in read_records(folder) if record.subtask in ABOUT_TUMOUR]
    sides = [[record for record in records if record.patient in split[side]] for side in SIDES]
    for side, of_side in zip(SIDES, sides, strict=True):
        if not of_side:
            expected, hint = "patients with a tumour", "make a larger data set"
            raise InputError(folder / "split.json", side, "none", expected, hint)
    return sides


def _features(
    checkpoint: ModelFolder, folder: Path, organs: Mapping[int, int]
) -> dict[int, Float[np.ndarray, " F"]]:
    """Compute the features of each scan; `organs` maps a scan to its organ with a tumour."""
    config, params = checkpoint.model, jax.device_put(unflatten(checkpoint.params))
    encode = jax.jit(partial(run, TumorChain(config), method="encode"))
    source = ArrayRecordDataSource(shard_paths(folder, "scans"))
    features, order = {}, sorted(organs)
    for first in tqdm(range(0, len(order), BATCH_SIZE), "scans", unit=" batches", disable=None):
        numbers = order[first : first + BATCH_SIZE]
        scans = [ModelScan.from_bytes(source[number]) for number in numbers]
        images = np.stack([scan.image for scan in scans]).astype(np.float32) / 255
        # A last batch that is not full is filled up: another size would compile again.
        inputs = _filled(images), _crops(scans) if config.crop else None
        tokens = np.asarray(encode(params, *inputs), np.float32)
        for number, scan, visual_tokens in zip(numbers, scans, tokens, strict=False):
            features[number] = lesion_features(visual_tokens, scan, organs[number], config.roi)
    return features


def _filled(rows: np.ndarray) -> np.ndarray:
    return np.resize(rows, (BATCH_SIZE, *rows.shape[1:]))


def _crops(scans: Sequence[ModelScan]) -> Crops:
    images = np.stack([scan.crops for scan in scans]).astype(np.float32) / 255
    world = np.stack([scan.crop_world for scan in scans])
    return Crops(jnp.asarray(_filled(images)), jnp.asarray(_filled(world)))


def lesion_features(
    visual_tokens: Float[np.ndarray, "M K"], scan: ModelScan, organ: int, roi: RoiSpec
) -> Float[np.ndarray, " F"]:
    """Pool the tokens of the lesions' cells and of the organ's by mean and maximum; add the organ.

    The lesions' mean is weighted by their voxels. What the model's grid does not show is zero. Of
    an organ with a crop, cells and lesions are those of the crop, and with `roi_rank: evidence` its
    cells are all candidates.
    """
    table = organ_cells(scan.labels, roi, scan.cropped)
    view = int(table.view[organ])
    cells = roi.cell_tokens(visual_tokens, view)
    mask = scan.crop_lesions[view - 1] if view else scan.lesions
    lesions = coverage((mask > 0).astype(np.uint8), roi.grid)[1]
    own = np.bincount(table.cells[organ], table.valid[organ], len(cells))
    one_hot = np.equal(DIGESTIVE, organ)
    return np.concatenate([_pooled(cells, lesions), _pooled(cells, own), one_hot])


def _pooled(cells: Float[np.ndarray, "N K"], weights: np.ndarray) -> Float[np.ndarray, " 2*K"]:
    if not weights.any():
        return np.zeros(2 * cells.shape[1])
    mean = np.average(cells, axis=0, weights=weights)
    return np.concatenate([mean, cells[weights > 0].max(axis=0)])


def learn_to_answer(
    seen: Float[np.ndarray, "N F"],
    answers: Sequence[str],
    patients: Sequence[str],
    asked: Float[np.ndarray, "M F"],
) -> list[str]:
    """Fit logistic regression on the features `seen` and predict the answers to those `asked`.

    The penalty is chosen on a fifth of the `patients`, held out; then it is fitted on all.
    """
    middle, scale = seen.mean(axis=0), seen.std(axis=0)
    scale[scale < 1e-6] = 1  # a constant feature carries no information
    inputs, new = (
        jnp.pad((rows - middle) / scale, ((0, 0), (0, 1)), constant_values=1)
        for rows in (seen, asked)
    )
    names, numbers = np.unique(answers, return_inverse=True)
    targets = jax.nn.one_hot(numbers, len(names))
    held = jnp.asarray(held_out(patients))

    def held_out_loss(penalty: float) -> float:
        return float(_loss(_fit(inputs, targets, ~held, penalty), inputs, targets, held))

    weights = _fit(inputs, targets, jnp.ones_like(held), min(PENALTIES, key=held_out_loss))
    return names[np.argmax(new @ weights, axis=1)].tolist()


def held_out(patients: Sequence[str]) -> Bool[np.ndarray, " N"]:
    """Mark the questions that are held out to choose the penalty."""
    return np.isin(patients, np.unique(patients)[::HELD_OUT_ONE_IN])


@jax.jit
def _fit(
    inputs: Float[Array, "N F"],
    targets: Float[Array, "N C"],
    counts: Bool[Array, " N"],
    penalty: Float[Array, ""],
) -> Float[Array, "F C"]:
    """Fit the weights by L-BFGS; the last input is always one, and its weight is not penalised."""

    def penalised(weights: Float[Array, "F C"]) -> Float[Array, ""]:
        return _loss(weights, inputs, targets, counts) + penalty * jnp.sum(weights[:-1] ** 2)

    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(penalised)

    def step(_: Array, state: tuple[Array, Any]) -> tuple[Array, Any]:
        weights, memory = state
        value, grad = value_and_grad(weights, state=memory)
        update, memory = solver.update(
            grad, memory, weights, value=value, grad=grad, value_fn=penalised
        )
        return weights + update, memory

    start = jnp.zeros((inputs.shape[1], targets.shape[1]))
    return lax.fori_loop(0, STEPS, step, (start, solver.init(start)))[0]


def _loss(
    weights: Float[Array, "F C"],
    inputs: Float[Array, "N F"],
    targets: Float[Array, "N C"],
    counts: Bool[Array, " N"],
) -> Float[Array, ""]:
    """Mean cross entropy over the questions marked in `counts`."""
    losses = optax.softmax_cross_entropy(inputs @ weights, targets)
    return counts @ losses / jnp.maximum(counts.sum(), 1)
