"""Numbers that the paper reports, for comparison columns marked "paper"; nothing here was run.

Their inputs are not ours: real CTs, the paper's own questions, other judges. How a two-dimensional
model was shown a CT is not said. The tables carry no interval, no n and no failures.

As printed, four things do not add up (the tests recompute them):

- Table 2: the S_FC of TumorChain-3B and -7B are swapped (61.75 and 62.37 in print); swapped back,
  as here, .3 S_FC + .3 S_IC + .4 S_LRC gives all eleven CoT_e to 0.006.
- Table 1: the averages of RadFM (26.32) and M3D (32.84) are not those of their rows (27.18, 33.86).
- Table 9: the groups are of 2, 6, 3 and 1 subtasks: segment localisation is a lesion attribute. Its
  average is a mean of twelve subtasks before fine-tuning, and of four tasks after it.
- Section 4.3: "+5.64 %" is a ratio (4.51 points), "about 4 %" is in points.
"""

from collections.abc import Sequence
from statistics import fmean

from tumorchain_jax.data.schema import SUBTASKS


def _rows(table: str) -> dict[str, tuple[float, ...]]:
    rows = (line.split(" | ") for line in table.strip().splitlines())
    return {model: tuple(map(float, numbers.split())) for model, numbers in rows}


TABLE_1: dict[str, tuple[float, ...]] = _rows(
    """
Claude3-Haiku | 32.61 33.05 52.38 58.51 50.00 50.74 37.51 50.95 59.19 56.59 43.40 33.21
Gemini2.0-Flash | 43.27 17.69 46.81 35.97 38.22 39.11 40.22 52.86 34.03 42.21 49.06 56.08
GPT-5-Mini | 44.18 37.73 44.96 47.72 62.58 57.13 64.85 66.67 34.25 47.40 49.60 62.02
Qwen2.5-VL-7B | 29.57 32.52 27.41 43.96 57.51 49.36 46.73 58.02 34.17 37.49 51.15 60.54
InternVL-2.5-8B | 29.10 27.67 33.50 49.96 51.45 49.48 42.68 51.70 36.16 35.07 48.09 52.18
MiniCPM-V4.5-9B | 35.70 29.56 44.11 52.61 53.67 50.80 46.92 58.45 43.12 44.74 44.27 47.84
LLaVA-CoT-11B | 31.63 27.64 37.70 59.44 49.34 49.60 37.90 55.48 48.20 47.91 49.23 44.81
HealthGPT-3.8B | 30.58 22.80 45.87 51.35 45.77 47.27 31.24 40.13 45.68 49.02 39.69 39.20
Lingshu-7B | 25.28 32.58 24.90 51.70 60.61 53.40 45.21 63.63 30.35 42.79 56.49 54.30
MedVLM-R1-2B | 32.23 38.92 19.37 48.79 51.20 48.02 44.53 52.26 30.38 27.26 32.82 39.70
RadFM | 13.86 15.97 15.23 21.25 49.84 21.07 19.34 24.15 49.58 46.02 28.47 21.34
M3D-Phi-3-4B | 32.39 28.28 22.69 23.93 42.74 30.49 27.19 52.35 44.82 30.80 35.86 34.79
TumorChain-3B | 99.93 96.44 79.13 69.07 73.57 68.97 81.04 76.34 86.34 55.09 56.49 78.96
TumorChain-7B | 99.97 97.57 86.88 82.28 84.52 85.05 86.20 86.57 88.83 61.63 71.07 82.36
TumorChain-7B w/o CoT, IIR | 99.92 97.45 78.95 75.78 74.60 80.18 82.82 78.75 84.37 59.29 66.85 79.83
TumorChain-7B w/o CoT | 99.91 97.10 82.75 78.43 82.57 82.79 84.26 84.16 88.34 60.76 68.12 80.26
TumorChain-7B w/o IIR | 99.87 97.55 79.36 79.52 74.62 81.46 80.60 79.20 84.65 60.32 65.87 81.06
"""
)
"""Model -> accuracy of the twelve subtasks, in the order of `SUBTASKS`, percent."""
TABLE_1_AVERAGES: dict[str, float] = {
    "Claude3-Haiku": 46.51,
    "Gemini2.0-Flash": 41.29,
    "GPT-5-Mini": 51.59,
    "Qwen2.5-VL-7B": 44.04,
    "InternVL-2.5-8B": 42.25,
    "MiniCPM-V4.5-9B": 45.98,
    "LLaVA-CoT-11B": 44.91,
    "HealthGPT-3.8B": 40.72,
    "Lingshu-7B": 45.10,
    "MedVLM-R1-2B": 38.79,
    "RadFM": 26.32,
    "M3D-Phi-3-4B": 32.84,
    "TumorChain-3B": 76.78,
    "TumorChain-7B": 84.41,
    "TumorChain-7B w/o CoT, IIR": 79.90,
    "TumorChain-7B w/o CoT": 82.45,
    "TumorChain-7B w/o IIR": 80.34,
}
"""Averages as printed."""
TABLE_2: dict[str, tuple[float, ...]] = _rows(
    """
Claude3-Haiku | 59.31 43.66 30.80 43.21
Gemini2.0-Flash | 63.10 57.69 45.12 54.28
GPT-5-Mini | 64.22 66.42 55.09 61.23
Qwen2.5-VL-7B | 49.15 22.89 12.09 26.45
InternVL-2.5-8B | 56.66 57.92 47.05 53.19
MiniCPM-V4.5-9B | 60.51 58.52 45.44 53.89
HealthGPT-3.8B | 49.64 49.68 37.15 44.65
Lingshu-7B | 52.51 31.93 16.46 31.92
MedVLM-R1-2B | 40.25 36.05 21.23 31.38
TumorChain-3B | 62.37 49.99 35.68 47.98
TumorChain-7B | 61.75 62.60 52.57 58.33
"""
)
"""Model -> S_FC, S_IC, S_LRC and CoT_e, out of 100; the S_FC of the last two swapped back."""
TABLE_3: dict[str, tuple[float, ...]] = _rows(
    """
Claude3-Haiku | 38.70 31.53 34.81 35.01
Gemini2.0-Flash | 50.88 33.81 35.06 39.92
GPT-5-Mini | 49.29 35.57 29.87 38.24
Qwen2.5-VL-7B | 45.31 36.94 37.04 39.76
InternVL-2.5-8B | 50.06 31.35 44.20 41.87
MiniCPM-V4.5-9B | 50.14 33.69 42.86 42.23
HealthGPT-3.8B | 43.32 30.68 39.75 37.92
Lingshu-7B | 50.24 36.19 37.78 41.40
MedVLM-R1-2B | 56.41 38.27 33.33 42.67
RadFM | 50.19 39.82 30.87 40.29
M3D-Phi-3-4B | 29.53 23.22 23.70 25.48
TumorChain-7B | 73.30 53.31 45.93 57.51
"""
)
"""Model -> DeepTumorVQA v1: recognition, visual and medical reasoning, average; percent."""
TABLE_6: dict[str, tuple[float, ...]] = _rows(
    """
Claude3-Haiku | 34.70 56.13 44.08 17.11 39.77 38.36
Gemini2.0-Flash | 42.35 29.03 56.24 71.15 38.64 47.48
GPT-5-Mini | 44.48 35.71 59.76 76.85 65.12 56.38
Qwen2.5-VL-7B | 47.94 58.15 54.60 69.79 52.41 56.58
InternVL-2.5-8B | 48.89 49.20 48.89 55.84 52.54 51.07
MiniCPM-V4.5-9B | 46.07 43.29 45.69 50.26 47.59 46.58
HealthGPT-3.8B | 48.69 63.74 36.44 31.74 45.81 45.28
Lingshu-7B | 53.03 33.55 53.23 60.71 44.42 48.99
MedVLM-R1-2B | 38.58 42.78 37.18 54.79 34.90 41.65
RadFM | 11.34 15.42 2.50 35.20 13.71 15.63
M3D-Phi-3-4B | 21.51 28.76 9.51 52.57 17.72 26.01
TumorChain-3B | 69.89 72.20 67.39 91.63 64.34 73.09
TumorChain-7B | 83.45 78.43 68.65 93.45 88.71 82.54
"""
)
"""Model -> reports by organ: liver, pancreas, colon, stomach, esophagus, average; percent."""
TABLE_7: dict[str, tuple[float, ...]] = _rows(
    """
Claude3-Haiku | 32.67 32.62 18.40 27.90
Gemini2.0-Flash | 35.33 35.02 44.80 38.38
GPT-5-Mini | 41.20 42.48 73.60 52.43
Qwen2.5-VL-7B | 36.32 32.39 46.33 38.35
InternVL-2.5-8B | 34.52 35.86 52.75 41.04
MiniCPM-V4.5-9B | 40.02 45.20 52.93 46.05
HealthGPT-3.8B | 30.32 30.26 53.56 38.05
Lingshu-7B | 38.39 38.01 50.68 42.36
MedVLM-R1-2B | 35.98 36.73 69.85 47.52
RadFM | 31.97 34.11 55.71 40.60
M3D-Phi-3-4B | 24.82 24.88 19.68 23.13
TumorChain-7B | 55.41 62.45 84.33 67.40
"""
)
"""Model -> DeepTumorVQA by organ: liver, pancreas, colon, average; percent."""
TABLE_8 = {0.0: 80.79, 0.1: 81.40, 0.5: 82.53, 1.0: 84.41, 1.5: 79.16}
"""Weight of the classification loss -> average of Table 1, percent."""
TABLE_9: dict[str, tuple[tuple[float, ...], tuple[float, ...] | None]] = {
    "M3D-Phi-3-4B": ((30.36, 33.23, 37.16, 34.79, 32.84), (86.92, 61.78, 59.48, 61.18, 66.98)),
    "Lingshu-7B": ((28.93, 49.91, 43.21, 54.30, 45.10), (85.46, 77.36, 67.65, 65.98, 74.11)),
    "Qwen2.5-VL-7B": ((31.05, 47.17, 40.94, 60.54, 44.04), (91.02, 76.45, 62.37, 74.21, 76.01)),
    "TumorChain-7B": ((98.77, 85.25, 73.84, 82.36, 84.41), None),
}
"""Model -> position, attributes, TNM, report and average, before and after fine-tuning; percent."""
GROUPS = tuple(len(subtasks) for subtasks in SUBTASKS.values())
"""Subtasks in each task."""


def cot_e(s_fc: float, s_ic: float, s_lrc: float) -> float:
    """CoT_e of three level scores (the paper's weights)."""
    return 0.3 * s_fc + 0.3 * s_ic + 0.4 * s_lrc


def group_means(row: Sequence[float], groups: Sequence[int] = GROUPS) -> list[float]:
    """Mean of each task's subtasks in a row of Table 1."""
    means, begin = [], 0
    for size in groups:
        means.append(fmean(row[begin : begin + size]))
        begin += size
    return means
