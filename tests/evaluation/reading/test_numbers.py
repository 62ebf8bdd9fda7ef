import pytest

from tumorchain_jax.evaluation.reading.answer_part import Abstained
from tumorchain_jax.evaluation.reading.numbers import Quantity, read_number


@pytest.mark.parametrize(
    ("text", "quantity", "value"),
    [
        ("257.1cm^3", "volume", 257.1),
        ("1,234,567.8", "volume", 1234567.8),
        ("2.571x10^2", "volume", 257.1),
        ("0.2571 L", "volume", 257.1),
        ("257 \u00b1 12 mL", "volume", 257.0),
        ("between 200 and 300; answer: 257.1", "volume", 257.1),
        ("24mm", "length", 2.4),
        ("2.4 cm (24 mm)", "length", 2.4),
        ("minus 12.4 HU", "HU", -12.4),
        ("3:4", "ratio", 0.75),
        ("no", "count", 0.0),
        ("3 lesions, the largest of 2.4 cm", "count", 3.0),
        ("twelve", "count", 12.0),
    ],
)
def test_one_number(text: str, quantity: Quantity, value: float) -> None:
    assert read_number(text, quantity) == value


@pytest.mark.parametrize(
    ("text", "quantity", "why"),
    [
        ("answer: 250-260", "volume", "ambiguous"),
        ("3.5 cm", "volume", "no_number"),
        ("1.2 million", "volume", "no_number"),
        ("1e999", "volume", "no_number"),
        ("Segment 6", "volume", "no_number"),
        ("one of three", "count", "ambiguous"),
        ("two hundred", "count", "no_number"),
        ("I cannot see any lesion", "count", "refusal"),
        ("- 12", "HU", "ambiguous"),
        ("slice 48", "percent", "ambiguous"),
    ],
)
def test_abstentions(text: str, quantity: Quantity, why: str) -> None:
    assert read_number(text, quantity) == Abstained(why)
