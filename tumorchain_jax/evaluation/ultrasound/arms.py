"""`tumorchain bus arms`: train each arm on the folds, and ask about what it has not seen.

    WORKDIR/SEED/start-FOLD/          what every arm starts from; absent without common steps
    WORKDIR/SEED/ARM-FOLD/            a training; skipped where its export is there
    WORKDIR/SEED/ARM-FOLD/CONTROL.jsonl    replies about the fold; skipped where they are there

Folds come before arms, so a run that is stopped has whole folds to compare. The test part is not
touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ml_collections import ConfigDict

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.evaluation.ultrasound.ask_lesions import CONTROLS, Control, ask
from tumorchain_jax.evaluation.ultrasound.replies import Reply, read_replies
from tumorchain_jax.inference.vision_language_model import VisionLanguageModel
from tumorchain_jax.models.qwen_vl.plan import MERGE
from tumorchain_jax.training.registry import train
from tumorchain_jax.training.vision_language.init import open_tokenizer
from tumorchain_jax.training.vision_language.source import open_source
from tumorchain_jax.ultrasound.chains.messages import ARMS, Arm
from tumorchain_jax.ultrasound.chains.write import RECORDS, read_records

STEP = 32
"""Rows are padded to a multiple of so many positions and patches."""
Replies = Mapping[str, Reply]


@dataclass(frozen=True)
class Plan:
    """What is trained and asked.

    Attributes:
        data: folder that `bus chains` wrote.
        controls: asked besides the lesions' own pictures.
        common_steps: of a training on direct answers, one for each fold, that all arms start from;
            0: they start from what the configuration names.
    """

    data: Path
    workdir: Path
    arms: Sequence[Arm]
    seeds: Sequence[int]
    controls: Sequence[Control] = ()
    common_steps: int = 0


def run_arms(config: ConfigDict, plan: Plan) -> None:
    """Train and ask whatever is not there yet.

    Args:
        config: of the task `vision_language`; its rows, seed and the length of a row are set here.

    Raises:
        InputError: the configuration or the data cannot be used, or a folder is of another run.
        Stopped: a signal stopped a training.
    """
    for seed in plan.seeds:
        for fold in range(folds_of(plan.data)):
            own = config.copy_and_resolve_references()
            own.seed, own.data.folder = seed, str(plan.data)
            if plan.common_steps:
                common = own.copy_and_resolve_references()
                common.steps = plan.common_steps
                own.init = str(_trained(common, plan, "direct", fold, "start"))
            for arm in plan.arms:
                export = _trained(own, plan, arm, fold, arm)
                _asked(export, plan, arm, fold)


def _trained(config: ConfigDict, plan: Plan, arm: Arm, fold: int, name: str) -> Path:
    """Train unless the export is there; return its folder."""
    folder = plan.workdir / str(config.seed) / f"{name}-{fold}"
    if not (folder / "export" / "config.json").is_file():
        print(f"seed {config.seed}, fold {fold}, {name}", flush=True)
        own = config.copy_and_resolve_references()
        own.data.rows = f"{arm}-without-{fold}.jsonl"
        _fit_shapes(own)
        train(own, folder)
    return folder / "export"


def _fit_shapes(config: ConfigDict) -> None:
    """Make rows as long as the arm's need to be: the second look takes more than an answer."""
    tokenizer = open_tokenizer(config)
    rows = [tokens for tokens, _ in open_source(config, tokenizer).encoded]
    visual = max(int((tokens == tokenizer.image_pad).sum()) for tokens in rows)
    needed = max(map(len, rows)), visual * MERGE**2
    config.data.length, config.data.patches = (-(-each // STEP) * STEP for each in needed)


def _asked(export: Path, plan: Plan, arm: Arm, fold: int) -> None:
    outputs = {each: export.parent / f"{each}.jsonl" for each in ("none", *plan.controls)}
    missing = {control: path for control, path in outputs.items() if not path.is_file()}
    if missing:
        model = VisionLanguageModel.load(export)
        for control, path in missing.items():
            ask(model, plan.data, arm, fold, path, control)


def folds_of(data: Path) -> int:
    """How many folds the lesions of a folder were dealt to.

    Raises:
        InputError: there are no records, or fewer than two folds.
    """
    folds = 1 + max((values["fold"] for values, _ in read_records(data)), default=-1)
    if folds < 2:
        hint = "write them again with `tumorchain bus chains`"
        raise InputError(data / RECORDS, "fold", f"{folds} folds", "two or more", hint)
    return folds


def finished(workdir: Path, folds: int) -> dict[tuple[Arm, Control], dict[int, list[Replies]]]:
    """Replies that are there, of each arm and control: by fold, those of every seed that has it.

    Raises:
        InputError: a file is malformed.
    """
    found: dict[tuple[Arm, Control], dict[int, list[Replies]]] = {}
    for arm, control, fold, path in _files(workdir, folds):
        found.setdefault((arm, control), {}).setdefault(fold, []).append(read_replies(path))
    return found


def _files(workdir: Path, folds: int) -> Iterator[tuple[Arm, Control, int, Path]]:
    seeds = sorted((each for each in workdir.glob("[0-9]*")), key=lambda each: int(each.name))
    for arm in ARMS:
        for control in CONTROLS:
            for fold in range(folds):
                for seed in seeds:
                    path = seed / f"{arm}-{fold}" / f"{control}.jsonl"
                    if path.is_file():
                        yield arm, control, fold, path
