"""The paper's experiments on nano, each with the same small budget, into one table.

    tumorchain experiments --config experiments --workdir runs/experiments

Rerun the same command to resume; `--only full without-iir` makes some runs, `--list` shows which
there are and which are done. All runs share the training patients, the pretrained
encoder and the test patients (from other seeds). What differs from `full`:

    without-iir       organs are not looked at again, in training and in evaluation (Table 1)
    without-cot       no chain of thought in what is learned (Table 1)
    without-both      neither (Table 1)
    alpha-A           the weight of the organ classifier's loss; `full` has 1 (Table 8)
    roi-global        an organ's tokens are pooled as the global ones are (Eq. 2 to the letter)
    history-latest    a round sees the latest answer and ROI alone (Eq. 7), not all (Eq. 3)
    roi-slots-L       at most L tokens for an organ; `full` has 32
    lora, full-finetuning
                      see below

Nano has no language model that was pretrained on text, so LoRA has nothing of that kind to adapt.
Here both start from the checkpoint of `full` with seed 0 and train, with the same number of steps,
on new patients (`config.adaptation`). `lora` freezes the decoder and trains adapters of rank 8 on
its attention projections; `full-finetuning` trains the whole decoder. Projector and classifier are
trained in both, as in all runs; the encoder, which the paper trains with them (section 3.3), is
frozen in all runs, as in `nano`. This does not show how adapting a pretrained Qwen2.5 compares.
"""

from pathlib import Path

from ml_collections import ConfigDict

from tumorchain_jax.core.config import read_config


def get_config() -> ConfigDict:
    """`nano` with fewer steps, and the fields of experiments alone."""
    config = read_config(Path(__file__).with_name("nano.py"), [])
    with config.unlocked():
        config.steps = 300
        config.seeds = 3  # of full and of without-...; the others have one
        config.test = ConfigDict({"phantoms": 200, "first_seed": 3_000_000})
        config.adaptation = ConfigDict(
            {
                "phantoms": 500,
                "first_seed": 4_000_000,
                "optimizer": "adamw",
                "learning_rate": 8e-4,
            }
        )
    return config
