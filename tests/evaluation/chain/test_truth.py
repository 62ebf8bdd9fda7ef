import pytest

from tumorchain_jax.evaluation.chain.f1 import weigh
from tumorchain_jax.evaluation.chain.facts import Facts, LesionFacts
from tumorchain_jax.evaluation.chain.reader import triples_in
from tumorchain_jax.evaluation.chain.truth import Truth, truth_of

FACTS = Facts(
    in_view=(5, 1, 7, 6, 20),
    organ=6,
    lesions=(
        LesionFacts("gastric body", 42.4, "medium"),
        LesionFacts("gastric antrum", 20.0, "small"),
    ),
    density="hypodense",
    shape="round",
    border="ill-defined",
    depth="fat",
    nodes=2,
    metastases=(5,),
    suspected=6,
    stage=("T3", "N1", "M1"),
)  # fmt: skip
TRUTH = truth_of(FACTS)


def test_truth_of_facts() -> None:
    assert set(map(str, TRUTH.required)) == {
        "(stomach, has, lesion)", "(stomach, has, gastric body)", "(stomach, has, 2)",
        "(stomach, has, 42 mm)", "(stomach, has, hypodense)", "(stomach, has, round)",
        "(stomach, has, ill-defined)", "(stomach, has, fat)", "(spleen, lacks, abnormality)",
        "(pancreas, lacks, abnormality)", "(colon, lacks, abnormality)",
        "(liver, has, metastasis)", "(lymph nodes, has, enlarged nodes)", "(lymph nodes, has, 2)",
        "(stomach, suggests, tumour)", "(tumour, stage, T3)", "(tumour, stage, N1)",
        "(tumour, stage, M1)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("The mass in the stomach is hypodense.", "right"),
        ("The mass in the stomach is hyperdense.", "wrong"),
        ("A mass in the gastric antrum.", "right"),
        ("A mass in the gastric fundus.", "wrong"),
        ("The largest lesion of the stomach has 40 mm.", "right"),
        ("The largest lesion of the stomach has 60 mm.", "wrong"),
        ("The stomach is normal.", "wrong"),
        ("A mass in the colon.", "wrong"),
        ("No mass in the colon.", "right"),
        ("No metastases.", "wrong"),
        ("There is no tumour.", "wrong"),
        ("N2.", "wrong"),
        ("The stomach lies in the upper third.", "unverified"),
    ],
)
def test_worth_of_a_statement(text: str, worth: str) -> None:
    assert {TRUTH.worth(triple) for triple in triples_in(text)} >= {worth}


def test_a_reference_leaves_open_what_it_does_not_speak_of() -> None:
    truth = Truth(tuple(triples_in("The stomach shows a round lesion.")))
    (cyst,) = triples_in("A cyst in the left kidney.")
    (density, *_) = [t for t in triples_in("A dark lesion in the stomach.") if t.kind == "density"]
    assert truth.worth(cyst) == truth.worth(density) == "unverified"
    (lesion, *_) = triples_in("A lesion in the colon.")
    assert truth.worth(lesion) == "wrong"


def test_lungs_of_an_open_side() -> None:
    truth = Truth(tuple(triples_in("Metastases in the left lung.")))
    said = {str(t): truth.worth(t) for t in triples_in("Metastases in the lungs.")}
    assert said == {"(lungs, has, metastasis)": "right"}


def test_weights_follow_harm() -> None:
    truth = truth_of(Facts((6,), 6, (LesionFacts("gastric body", 30.0, "small"),), "hypodense",
                           "round", "ill-defined", suspected=6))  # fmt: skip
    right = "One hypodense, round, ill-defined lesion of 30 mm in the gastric body."
    right += " No enlarged lymph nodes. Tumour of the stomach. No metastases."
    assert weigh(triples_in(right), truth).f1 == 100
    changed = weigh(triples_in(right.replace("round", "irregular")), truth)
    # Lesion 1, six attributes .25, nodes .5, tumour 1, spread .5; one attribute wrong and missing.
    assert (changed.right, changed.wrong, changed.missing) == (4.25, 0.25, 0.25)
    assert changed.f1 == pytest.approx(100 * 8.5 / 9)
    missed = weigh(triples_in("The stomach is normal. There is no tumour."), truth)
    assert missed.wrong == 2  # what is denied is a tumour, twice
    assert missed.f1 == 0
