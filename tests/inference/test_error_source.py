import numpy as np
import pytest

from tumorchain_jax.anatomy.organs import DIGESTIVE, ORGANS
from tumorchain_jax.inference.error_source import blame, names_only

LIVER, COLON = 5, 20


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("liver", True),
        ("the liver", True),
        ("colon", False),
        ("liver and colon", False),
        ("", False),
    ],
)
def test_answer_is_right_if_it_names_the_organ_alone(answer: str, right: bool) -> None:
    assert names_only(answer, LIVER) is right


def test_decoder_is_to_blame_where_the_classifier_ranks_the_organ_first() -> None:
    abnormal = np.full(len(ORGANS), 0.2)
    abnormal[COLON], abnormal[1] = 0.8, 0.9  # the spleen does not count
    line = blame(abnormal, DIGESTIVE, COLON)
    assert "ranks the colon 1 of 5 (80% abnormal)" in line
    assert line.endswith("so the decoder is to blame.")
    abnormal[LIVER] = 0.81
    line = blame(abnormal, DIGESTIVE, COLON)
    assert "ranks the colon 2 of 5" in line
    assert line.endswith("so the encoder is to blame.")
    assert "the organ masks do not show the colon" in blame(abnormal, (LIVER,), COLON)
