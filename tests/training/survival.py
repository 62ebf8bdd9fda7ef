"""Stop a run again and again, and compare it to one that was not stopped.

    python tests/training/survival.py FOLDER SIGKILL|SIGTERM TIMES [SEED]

trains a tiny model in FOLDER/whole, and in FOLDER/SIGKILL, where the process gets that signal at so
many random moments; it saves after every step, so that many fall into a save. Says where each
ended, and whether losses and weights are the same bit for bit. As `survival.py train FOLDER` it is
the process that is stopped; several of them with PROCESS=HOST:PORT,N,I in the environment are one
run. MESH, in JSON, has the sizes of the mesh.
"""

import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tumorchain_jax.models.language.qwen2.model import Qwen2Config
from tumorchain_jax.models.tumorchain.model import TumorChainConfig
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig

NANO = Path(__file__).parents[2] / "configs" / "nano.py"
STEPS = 16
FIELDS = ("step", "loss", "text_loss", "organ_loss", "gradient_norm", "learning_rate")


def train_tiny(folder: Path) -> int:
    """What a user's command does, with a tiny model, in the folder's run."""
    from tumorchain_jax.core.errors import Stopped
    from tumorchain_jax.parallel.processes import join
    from tumorchain_jax.training.registry import train

    if word := os.environ.get("PROCESS"):
        address, count, index = word.split(",")
        join(address, int(count), int(index))
    config = runpy.run_path(str(NANO))["get_config"]()
    mesh = {"data": -1, "fsdp": 1} | json.loads(os.environ.get("MESH", "{}"))
    config.update_from_flattened_dict(
        {
            "model": TumorChainConfig(
                ViT3DConfig((8, 16, 16), (4, 8, 8), 16, 32, 1, 2),
                Qwen2Config(512, 16, 32, 2, 2, 1, 8, True),
                roi_slots=4,
            ),
            "data.folder": str(folder.parent / "data"),
            "data.phantoms": 6,
            "data.first_seed": 0,
            "data.length": 800,
            "pretrain.patch_stage.steps": 0,
            "pretrain.scan_stage.steps": 0,
            **{f"mesh.{axis}": size for axis, size in mesh.items()},
            "steps": STEPS,
            "batch_size": 2,
            "log_every": 1,
            "checkpoint.every": 1,
            "checkpoint.minutes": 0.01,  # all processes are asked
        }
    )
    try:
        train(config, folder)
    except Stopped as stopped:
        print(f"stopped {stopped}")
    return 0


def start(folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Training in a process of its own, with one cache of compiled programs for all."""
    settings = {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        [sys.executable, __file__, "train", str(folder)],
        env=os.environ | settings | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Its output, when it has ended well; it is killed if it does not end."""
    try:
        output, _ = process.communicate(timeout=600)
    finally:
        process.kill()
    if process.returncode:
        raise RuntimeError(output)
    return output


def logged(folder: Path) -> list[dict[str, Any]]:
    """What was seen at each step, without times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in FIELDS} for line in lines]


def weights(folder: Path) -> bytes:
    """As they were exported."""
    return (folder / "export" / "model.safetensors").read_bytes()


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Until the run has logged a step, or has ended."""
    path = folder / "metrics.jsonl"
    while process.poll() is None:
        if path.is_file() and f'"step": {step},' in path.read_text():
            return
        time.sleep(0.01)


def survive(folder: Path, name: str, times: int, seed: int) -> bool:
    """Whether a run that gets a signal so often ends as one that does not."""
    rng = random.Random(seed)
    if not (folder / "whole" / "export").exists():
        finish(start(folder / "whole"))
    run = folder / name
    for number in range(times):
        process = start(run)
        # Steps take a few hundredths of a second: a random step, and a random moment of it.
        wait_for_step(run, 1 + number * STEPS // times + rng.randrange(2), process)
        time.sleep(rng.uniform(0, 0.15))
        process.send_signal(signal.Signals[name])
        process.communicate()
        saved = [path.name for path in (run / "checkpoints").glob("*")]
        where = "in a save" if any("tmp" in name for name in saved) else "between saves"
        code = process.returncode
        print(f"{name} {number + 1}: step {last_step(run)}, {where}, exit {code}", flush=True)
    finish(start(run))
    return logged(run) == logged(folder / "whole") and weights(run) == weights(folder / "whole")


def last_step(folder: Path) -> int:
    """The last step of which a whole line is there."""
    lines = (folder / "metrics.jsonl").read_text().split("\n")
    return json.loads(lines[-2])["step"] if len(lines) > 1 else 0


if __name__ == "__main__":
    if sys.argv[1] == "train":
        sys.exit(train_tiny(Path(sys.argv[2])))
    same = survive(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int((*sys.argv, "0")[4]))
    print("the same bit for bit" if same else "NOT THE SAME")
    sys.exit(not same)
