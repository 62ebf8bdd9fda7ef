import pytest

from tumorchain_jax.report.conclusion import parse_conclusion

CASES = {
    # after the reasoning
    "<think>Long.</think> Liver": "Liver",
    "<THINK>a</THINK>\n Two lesions. Both small. ": "Two lesions. Both small",
    "<think>a</think> x </think> y": "y",
    # the answer's tags
    "<think>a</think><Answer> B </Answer>": "B",
    "<answer>B": "B",
    "<ANSWER>B</answer> and more words.": "B",
    "<think>maybe <Answer>C</Answer></think>": "C",
    "<Answer>A</Answer> no: <Answer>B</Answer>": "B",
    # Conclusion:
    "Seen here. Conclusion: the spleen is enlarged.": "the spleen is enlarged",
    "CONCLUSION : one lesion.\nIt is small.\n\nNotes: none": "one lesion.\nIt is small",
    "**Conclusion:** **T2**.": "T2",
    "**Conclusion**: T2": "T2",
    "<think>Conclusion: A</think> Conclusion: B": "B",
    # the answer is
    "Thus, the answer is liver. It is so.": "liver",
    "thus, THE ANSWER IS: 2.3 cm.": "2.3 cm",
    "So the answer is A. Therefore, the answer is B.": "B",
    "Therefore, the answer is B. Liver, at the dome.": "B. Liver, at the dome",
    "Therefore, the answer is yes! Really.": "yes",
    # precedence
    "The answer is A. Conclusion: B <Answer>C</Answer>": "C",
    "The answer is A. Conclusion: B": "B",
    "<think>The answer is A.</think> A cyst.": "A cyst",
    # a marker with nothing after it does not count
    "Thus, the answer is cyst. Conclusion: ": "cyst",
    "<Answer></Answer> The answer is B": "B",
    "Conclusion: B\n\nConclusion:": "B",
    # cut before the answer, or no marker: the last sentence
    "<think>The liver is large. A cyst lies in it": "A cyst lies in it",
    "<think>The liver is large. A cyst.</think>": "A cyst",
    "One. Two! Is it three?": "Is it three?",
    "First line\nlast line": "last line",
    "A lesion of 2.3 cm": "A lesion of 2.3 cm",
    # broken off
    "Conclusion: swollen,": "swollen",
    "Conclusion: **swollen,** ": "swollen",
    # nothing
    "": "",
    " \n\t": "",
    "<think></think>": "",
    "...": "",
}


@pytest.mark.parametrize(("text", "conclusion"), CASES.items())
def test_conclusion(text: str, conclusion: str) -> None:
    assert parse_conclusion(text) == conclusion


@pytest.mark.parametrize(
    "piece",
    ["<think>", "<answer>", "conclusion", "conclusion:\n ", "the answer is ", "\n", ". ", "é\0"],
)
def test_long_texts_do_not_hang(piece: str) -> None:
    assert isinstance(parse_conclusion(piece * 20_000), str)
