"""A run's records as a data set for others: JSON lines that Hugging Face `datasets` loads.

OUT/train.jsonl, OUT/test.jsonl    records of the patients of each side; `prepare` takes them
OUT/split.json                     the sides
OUT/README.md                      the card; its head tells `datasets` about the files
"""

import json
from pathlib import Path

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.files import atomic_directory
from tumorchain_jax.data.splits import SIDES, read_split
from tumorchain_jax.engine.run.outputs import CARD, SPLIT
from tumorchain_jax.engine.run.reading import check_complete
from tumorchain_jax.engine.run.verify import file_problems

HEAD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: train.jsonl
  - split: test
    path: test.jsonl
task_categories:
- visual-question-answering
---

"""


def export(folder: Path, output: Path) -> dict[str, int]:
    """Write a new folder; nothing of the reports but what records say goes with it.

    Returns:
        Side -> records.

    Raises:
        InputError: the run is not complete, a file of it was changed, or the output exists.
    """
    check_complete(folder)
    for problem in file_problems(folder):
        hint = "see `tumorchain engine verify`, or make the run again"
        raise InputError(folder, "files", problem, "what the run wrote", hint)
    split = read_split(folder)
    side_of = {name: side for side in SIDES for name in split[side]}
    counts = dict.fromkeys(SIDES, 0)
    with atomic_directory(output) as part:
        train, test = ((part / f"{side}.jsonl").open("wb") for side in SIDES)
        with (folder / "records.jsonl").open("rb") as records, train, test:
            files = dict(zip(SIDES, (train, test), strict=True))
            for line in records:
                side = side_of[json.loads(line)["patient"]]
                files[side].write(line)
                counts[side] += 1
        (part / SPLIT).write_bytes((folder / SPLIT).read_bytes())
        card = (folder / CARD).read_text("utf-8")
        (part / CARD).write_text(HEAD + card, "utf-8")
    return counts
