"""Curriculum of pretraining: patients with large lesions first, smaller ones step by step."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from ml_collections import ConfigDict


@dataclass(frozen=True)
class Curriculum:
    """The least size of a scan's largest lesion, which falls linearly over the first steps.

    Attributes:
        from_mm, to_mm: at step 0 and, if that is still one of the curriculum, at step `steps`.
        steps: of the curriculum; later steps have no least size.
        first: the step of the curriculum that counts as 0, where others were before.
    """

    from_mm: float
    to_mm: float
    steps: int
    first: int = 0

    def least_mm(self, step: int) -> float:
        """The least size, mm; 0 after the curriculum."""
        share = (self.first + step) / self.steps
        return self.from_mm + (self.to_mm - self.from_mm) * share if share < 1 else 0.0

    def admits(self, lesion_mm: Float[np.ndarray, " N"], step: int) -> Bool[np.ndarray, " N"]:
        """Whether each scan may be drawn at a step, by the size of its largest lesion.

        Scans without a lesion always may, and so may the one with the largest lesion of all.
        """
        least = min(self.least_mm(step), float(lesion_mm.max()))
        return (lesion_mm == 0) | (lesion_mm >= least)


def curriculum_of(config: ConfigDict, first: int = 0) -> Curriculum | None:
    """Read `config.pretrain.curriculum`, which counts the steps of both stages.

    Args:
        first: the steps of earlier stages.

    Returns:
        None where no step is left of it.
    """
    fields, stages = config.pretrain.curriculum, config.pretrain
    steps = round(fields.share * (stages.patch_stage.steps + stages.scan_stage.steps))
    return Curriculum(fields.from_mm, fields.to_mm, steps, first) if steps > first else None
