"""A task of lmms-eval that a user copies: YAML, `utils.py`, questions, and slices as pictures.

lmms-eval sends pictures, never a whole CT, so a task is of one slice policy, named in its metadata.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tumorchain_jax import __version__
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.evaluation.slices.policy import SlicePolicy
from tumorchain_jax.evaluation.slices.sending import INTRODUCTION, MOST_TOKENS
from tumorchain_jax.llm.request import Image
from tumorchain_jax.scan.volume import Volume

SAMPLES = "samples.jsonl"
_YAML = """\
# Written by `tumorchain`, for lmms-eval: --include_path this folder, --tasks {task}
task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {samples}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.doc_to_visual
doc_to_text: !function utils.doc_to_text
doc_to_target: target
generation_kwargs:
  max_new_tokens: {tokens}
  temperature: 0
  do_sample: false
process_results: !function utils.process_results
metric_list:
  - metric: of_asked
    aggregation: !function utils.mean
    higher_is_better: true
  - metric: of_answered
    aggregation: !function utils.of_answered
    higher_is_better: true
  - metric: answered
    aggregation: !function utils.mean
    higher_is_better: true
metadata:
  version: 1.0
  written_by: tumorchain {version}
  slices: {policy}
"""

Scan = tuple[Volume, Sequence[Mapping[str, Any]]]
"""A CT, and the rows of its questions: `id`, `question`, `target` and what scoring needs."""


def write_task(
    output: Path, task: str, scans: Iterable[Scan], policy: SlicePolicy, utils: Path, answer: str
) -> int:
    """Write a task into a new folder; returns the number of questions.

    Args:
        task: its name.
        utils: file that becomes `utils.py`.
        answer: how to answer, which follows `INTRODUCTION`.

    Raises:
        InputError: the folder is there already.
    """
    order = ", then ".join(f"{count} {plane}" for plane, count in policy.planes)
    prompt = (INTRODUCTION + answer).format(order=order, level=policy.level, width=policy.width)
    count = 0
    with atomic_directory(output) as part:
        with (part / SAMPLES).open("w", encoding="utf-8") as file:
            for number, (ct, rows) in enumerate(scans):
                captions, names = _pictures(part, number, policy.parts(ct))
                for row in rows:
                    text = "\n".join([prompt, *captions, str(row["question"])])
                    file.write(json.dumps({**row, "input": text, "pictures": names}) + "\n")
                    count += 1
        said = {"task": task, "samples": SAMPLES, "policy": str(policy), "version": __version__}
        yaml = _YAML.format(**said, tokens=MOST_TOKENS)
        (part / f"{task}.yaml").write_text(yaml)
        (part / "utils.py").write_bytes(utils.read_bytes())
    return count


def _pictures(
    folder: Path, number: int, parts: Sequence[str | Image]
) -> tuple[list[str], list[str]]:
    """Write the pictures of a scan; returns their captions and their paths from the folder."""
    captions = [part for part in parts if isinstance(part, str)]
    images = [part for part in parts if isinstance(part, Image)]
    names = [f"pictures/{number:05d}/{place:03d}.png" for place in range(len(images))]
    for name, image in zip(names, images, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(image.data)
    return captions, names
