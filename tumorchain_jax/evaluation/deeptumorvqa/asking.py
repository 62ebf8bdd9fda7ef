"""How a question is put to a model that is not ours, and what slices cannot answer."""

from tumorchain_jax.evaluation.deeptumorvqa.fixed import Format
from tumorchain_jax.evaluation.deeptumorvqa.questions import Question
from tumorchain_jax.evaluation.deeptumorvqa.subtypes import UNITS, Subtype
from tumorchain_jax.evaluation.slices.policy import SlicePolicy

ANSWER = """ Reason briefly; then
write the answer alone between <answer> and </answer>."""
"""How to answer about slices; follows the introduction of `slices/sending.py`."""
_LETTER = "Answer with one letter."
_FREE = {"binary": "Answer yes or no.", "categorical": "Answer in a few words."}
_IN_3D = {
    "HU": "values in HU",
    "ratio": "values in HU",
    "volume": "a volume in 3D",
    "percent": "a volume in 3D",
    "length": "a size in 3D",
    "count": "a number of lesions in 3D",
}
_GRADED_BY_HU = ("hepatic steatosis grading", "pseudocyst determination")
_HEIGHT = "largest lesion slice"


def asked_text(question: Question, form: Format) -> str:
    """Put a question with its options, or with the unit and kind of its free answer."""
    if form == "mc":
        options = [f"{letter}: {text}" for letter, text in question.options.items()]
        return "\n".join([question.question, *options, _LETTER])
    if question.subtype.quantity is not None:
        unit = UNITS[question.subtype.quantity]
        return f"{question.question}\nAnswer with one number{f' in {unit}' if unit else ''}."
    return f"{question.question}\n{_FREE[question.subtype.kind]}"


def not_answerable(subtype: Subtype, policy: SlicePolicy) -> str:
    """Return why 8-bit slices of this policy cannot answer a subtype; "" if they can.

    It goes by what is asked, never by the truth.
    """
    if subtype.name == _HEIGHT:
        return "" if policy.shows_heights else "a height in the scan"
    if subtype.name in _GRADED_BY_HU:
        return _IN_3D["HU"]
    return _IN_3D[subtype.quantity] if subtype.quantity else ""
