"""Wordings of questions, and how many of each are asked of a case.

Every wording of a kind asks for the same answer; multiple choice takes its options from the same
organ's vocabulary. Which wordings, forms, options and order of letters a question gets is drawn
from its case and itself alone.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tumorchain_jax.data.schema import SUBTASKS
from tumorchain_jax.engine.agents.ask import NONE, Ask

Mix = Literal["plain", "paper"]
SHARES = {
    "lesion_attributes": 0.6001,
    "cot_report": 0.1871,
    "position": 0.1103,
    "tnm_prediction": 0.1025,
}
"""The paper's shares of the four tasks (Fig. 2)."""
MOST_OPTIONS = 4

_A = re.compile(r"\ba (?=[aeiou])")

WORDINGS: dict[str, tuple[str, ...]] = {
    "third": (
        "In which third of the scan does the middle of the {organ} lie?",
        "How high in this scan is the {organ} centred, counted in thirds?",
        "Name the third of the scan's height that holds the centre of the {organ}.",
        "Divide the scan from top to bottom into three: where is the {organ}?",
    ),
    "box": (
        "Give the box around the {organ} in fractions of the scan, z, y, x, first the lowest.",
        "Where does the {organ} lie? Answer with six fractions: lowest z, y, x, then highest.",
        "Which box bounds the {organ}? Write its two corners as fractions in the order z, y, x.",
    ),
    "tumour here": (
        "Is there a tumour in the {organ}?",
        "Do you see a tumour of the {organ}?",
        "Does this CT show a tumour of the {organ}?",
        "Look at the {organ}: does it hold a tumour?",
        "Would you say that the {organ} bears a tumour?",
    ),
    "lesion in part": (
        "Is there a lesion in {part}?",
        "Does {part} hold a lesion?",
        "Look at {part}: do you see a lesion?",
    ),
    "which organ": (
        "Where is the tumour in this CT?",
        "Which organ holds the tumour?",
        "Is there a tumour in the abdomen, and in which organ?",
        "In which organ do you see a tumour?",
        "Name the organ from which a tumour arises here.",
    ),
    "segment": (
        "In which part of the {organ} is the {lesion}?",
        "Where in the {organ} does the {lesion} lie?",
        "Name the part of the {organ} that holds the {lesion}.",
        "Which subdivision of the {organ} does the {lesion} occupy?",
        "Locate the {lesion} within the {organ}.",
        "To which part of the {organ} would you assign the {lesion}?",
    ),
    "in part": (
        "Does the {lesion} lie in {part}?",
        "Is {part} where the {lesion} is found?",
        "Would you place the {lesion} in {part}?",
    ),
    "shape": (
        "What is the shape of the {lesion}?",
        "How is the {lesion} shaped?",
        "Describe the shape of the {lesion}.",
        "Which word fits the outline of the {lesion} best?",
        "Look at the {lesion}: what form does it have?",
        "Name the shape that the {lesion} shows on this CT.",
    ),
    "boundary": (
        "How is the border of the {lesion}?",
        "What kind of margin does the {lesion} have?",
        "Describe the boundary of the {lesion}.",
        "How clearly is the {lesion} set off from what surrounds it?",
        "Look at the edge of the {lesion}: how is it defined?",
        "Name the type of border that the {lesion} shows on this CT.",
    ),
    "density": (
        "What is the density of the {lesion}?",
        "How dense is the {lesion}, compared with the organ?",
        "Describe the attenuation of the {lesion}.",
        "How does the {lesion} stand out in density?",
        "Look at the {lesion}: which density does it have?",
        "Name the density that the {lesion} shows on this CT.",
    ),
    "others": (
        "What else does the {lesion} show?",
        "Which further sign goes with the {lesion}?",
        "Besides shape, border and density: what is seen at the {lesion}?",
        "Name an accompanying feature of the {lesion}.",
        "Is there anything more to be seen at the {lesion}, and what?",
        "Look at the {lesion} again: which additional feature is there?",
    ),
    "is shape": (
        "Is the {lesion} {value}?",
        "Would you call the shape of the {lesion} {value}?",
        "Does the {lesion} have a {value} outline?",
        "Look at the {lesion}: is it {value} in shape?",
    ),
    "is boundary": (
        "Is the {lesion} {value}?",
        "Would you call the border of the {lesion} {value}?",
        "Does the {lesion} have a {value} margin?",
        "Look at the edge of the {lesion}: is it {value}?",
    ),
    "is density": (
        "Is the {lesion} {value}?",
        "Would you call the density of the {lesion} {value}?",
        "Does the {lesion} appear {value} on this CT?",
        "Look at the {lesion}: is it {value}?",
    ),
    "is others": (
        "Does the {lesion} show {value}?",
        "Is {value} seen at the {lesion}?",
        "Look at the {lesion}: does {value} go with it?",
        "Would you report {value} of the {lesion}?",
    ),
    "any shape": (
        "Does the {organ} hold a lesion of {value} shape?",
        "Is a lesion with a {value} outline seen in the {organ}?",
    ),
    "any boundary": (
        "Does the {organ} hold a {value} lesion?",
        "Is a lesion with a {value} border seen in the {organ}?",
        "Look for lesions of the {organ}: is any of them {value}?",
        "Would you report a {value} mass of the {organ}?",
    ),
    "any density": (
        "Does the {organ} hold a {value} lesion?",
        "Is a lesion of {value} attenuation seen in the {organ}?",
    ),
    "count": (
        "How many {things} are there in the {organ}?",
        "Count the {things} of the {organ}.",
        "What is the number of {things} that the {organ} holds?",
        "Look through the whole {organ}: how many {things} do you find?",
        "State how many {things} this CT shows in the {organ}.",
    ),
    "tumor": (
        "Which T category has the tumour of the {organ}?",
        "Give the T of the TNM stage for the tumour of the {organ}.",
        "How would the primary tumour of the {organ} be staged by AJCC?",
        "How far has the tumour of the {organ} grown, as a T category?",
        "Name the T stage that fits this tumour of the {organ}.",
    ),
    "node": (
        "Which N category has the tumour of the {organ}?",
        "Give the N of the TNM stage for the tumour of the {organ}.",
        "How are the regional nodes of the tumour of the {organ} staged by AJCC?",
        "Name the N stage that fits this tumour of the {organ}.",
    ),
    "metastasis": (
        "Which M category has the tumour of the {organ}?",
        "Give the M of the TNM stage for the tumour of the {organ}.",
        "How is distant spread of the tumour of the {organ} staged by AJCC?",
        "Name the M stage that fits this tumour of the {organ}.",
    ),
    "any tumor": (
        "Does the {organ} hold a primary tumour that takes a T category?",
        "Is there anything in the {organ} to give a T stage to?",
        "Would you assign a T category to the {organ}?",
        "Look at the {organ}: could its T be staged?",
    ),
    "any node": (
        "Does cancer of the {organ} involve regional lymph nodes here?",
        "Are metastases to the regional nodes of the {organ} present?",
        "Look at the lymph nodes near the {organ}: are any of them involved?",
        "Would you report lymph nodes of the {organ} as involved?",
        "Nodal disease of the {organ}: present?",
    ),
    "any metastasis": (
        "Does the patient have distant metastases from the {organ}?",
        "Has a tumour of the {organ} spread to distant organs?",
        "Look for distant spread from the {organ}: is there any?",
        "Would you report distant metastases of a tumour of the {organ}?",
        "Distant disease that comes from the {organ}: present?",
    ),
    "report": (
        "Report on the {organ}: findings, impression and conclusion.",
        "Describe the {organ} part by part and say whether it has a lesion.",
        "Write what this CT shows of the {organ}, and conclude.",
        "Go through the {organ} systematically and give your conclusion.",
        "What is found in the {organ}, and what does it mean?",
        "Dictate a reasoned report of the {organ}.",
        "Summarise the state of the {organ}, with the reasons for it.",
        "As a radiologist, how would you put the {organ} of this patient into words?",
        "List what is normal and what is not in the {organ}; end with a conclusion.",
        "Explain step by step what you conclude about the {organ}.",
    ),
    "whole report": (
        "Write a report with findings, impression and conclusion.",
        "Describe the abnormal findings of this CT and conclude.",
        "Read this CT organ by organ and give your conclusion.",
        "What does this CT show, and what does it mean?",
        "Dictate a reasoned report of this abdomen.",
        "Go through all digestive organs and summarise what you find.",
        "Explain step by step what you conclude about this patient.",
        "As a radiologist, how would you put this examination into words?",
    ),
}
"""Kind of question -> its wordings."""
REQUESTS = (
    "Give your reasons.", "Give your reasons first.", "Explain your answer.", "Think step by step.",
    "Reason first, then answer.", "Answer from the pictures alone.", "Justify what you say.",
    "Take your time.", "Say what you see, then answer.", "Be exact.",
    "Look at everything first.", "Go through it systematically.",
)  # fmt: skip
"""Sentences that may follow any question: they suit every case, and hint at no answer."""


@dataclass(frozen=True)
class Question:
    """A worded question: what is asked, in which words, with which options."""

    ask: Ask
    text: str
    choices: tuple[str, ...]

    @property
    def form(self) -> str:
        """`choice`, `box` or `open`."""
        return "choice" if self.choices else "box" if self.ask.kind == "box" else "open"


def without_request(text: str) -> str:
    """A question without the sentence of `REQUESTS` that may follow it."""
    return text.removesuffix(next(filter(text.endswith, REQUESTS), "")).rstrip()


def draw(*parts: object) -> int:
    """Draw a number of 64 bits that its parts alone decide."""
    key = "\t".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big")


def questions(case: str, asks: Sequence[Ask], mix: Mix, count: int) -> list[Question]:
    """Word the questions of a case.

    Args:
        mix: `plain`: each thing that can be asked in one wording; `paper`: the paper's shares.
        count: with `paper`, how many, if the case has enough to be asked.
    """
    if mix == "plain":
        return _plain(case, asks)
    pools: dict[str, list[Question]] = defaultdict(list)
    for ask in asks:
        for question in _wordings(case, ask):
            pools[ask.subtask].append(question)
    return _shared(case, pools, count)


def _plain(case: str, asks: Sequence[Ask]) -> list[Question]:
    chosen: list[Question] = []
    groups: dict[tuple[str, int, str], list[Ask]] = defaultdict(list)
    for ask in asks:
        lesion = dict(ask.words).get("lesion", "")
        any_organ = ask.normal and ask.kind.startswith("any ")
        groups[ask.kind, 0 if any_organ else ask.organ, lesion].append(ask)
    for group in groups.values():
        ask = _fair(case, group)
        options = list(_wordings(case, ask))
        chosen.append(options[draw(case, ask.kind, ask.organ, ask.words) % len(options)])
    return chosen


def _fair(case: str, group: Sequence[Ask]) -> Ask:
    """Draw one of several, each answer as likely as the other; of healthy organs only one."""
    answers = sorted({ask.answer for ask in group})
    key = case, group[0].kind, group[0].organ, group[0].words
    answer = answers[draw(*key, "answer") % len(answers)]
    same = [ask for ask in group if ask.answer == answer]
    return same[draw(*key, "which") % len(same)]


def _wordings(case: str, ask: Ask) -> Iterator[Question]:
    """Yield an ask in all its wordings, open and, where it has options, as multiple choice."""
    words = dict(ask.words)
    words.setdefault("things", "lesions")
    for wording in WORDINGS[ask.kind]:
        text = wording.format(**words)
        if ask.kind == "segment" and words["lesion"].endswith(f" in the {words['organ']}"):
            # "the lesion in the liver" is in the liver once.
            text = wording.format(**words | {"lesion": words["lesion"].split(" in the ")[0]})
        text = _A.sub("an ", text)
        # One for a wording, open or not, so that near duplicates are still found.
        place = draw(case, text, "request") % (2 * len(REQUESTS))
        text = f"{text} {REQUESTS[place]}" if place < len(REQUESTS) else text
        yield Question(ask, text, ())
        if len(ask.options) > 1:
            yield Question(ask, text, _choices(case, ask, text))


def _choices(case: str, ask: Ask, text: str) -> tuple[str, ...]:
    """Mix the answer with at most three other options, so that each letter is as likely."""
    wrong = [option for option in ask.options if option != ask.answer]
    wrong.sort(key=lambda option: draw(case, text, ask.words, option))
    options = wrong[: MOST_OPTIONS - 1]
    at = draw(case, text, ask.words, "letter") % (len(options) + 1)
    return (*options[:at], ask.answer, *options[at:])


def _shared(case: str, pools: dict[str, list[Question]], count: int) -> list[Question]:
    """Draw questions so that the tasks have the paper's shares, as far as each has enough."""
    sizes = {
        task: sum(len(pools[subtask]) for subtask in subtasks)
        for task, subtasks in SUBTASKS.items()
    }
    total = min([count, *(int(sizes[task] / share) for task, share in SHARES.items())])
    chosen: list[Question] = []
    for task, wanted in _quotas(case, total).items():
        chosen += _of_task(case, [pools[subtask] for subtask in SUBTASKS[task]], wanted)
    return chosen


def _quotas(case: str, total: int) -> dict[str, int]:
    """Share out a total; what a share has beyond whole numbers is drawn, so that many cases
    together have it."""
    quotas, done, before = {}, 0, draw(case, "quota") / 2**64
    for task, share in SHARES.items():
        before += share * total
        quotas[task] = int(before) - done
        done = int(before)
    return quotas


def _of_task(case: str, pools: Sequence[list[Question]], wanted: int) -> list[Question]:
    """Take turns among the subtasks, and among the answers of each."""
    queues = [_queue(case, pool) for pool in pools if pool]
    chosen: list[Question] = []
    turn = draw(case, "turn", wanted) % max(1, len(queues))
    while len(chosen) < wanted and any(queues):
        queue = queues[turn % len(queues)]
        turn += 1
        if queue:
            chosen.append(queue.pop())
    return chosen


def _queue(case: str, pool: list[Question]) -> list[Question]:
    """Order a pool at random, answers taking turns; the last is asked first."""
    by_answer: dict[str, list[Question]] = defaultdict(list)
    for question in pool:
        by_answer[question.ask.answer].append(question)
    for questions_ in by_answer.values():
        questions_.sort(key=lambda q: draw(case, q.text, q.choices))
    order = sorted(by_answer, key=lambda answer: (answer == NONE, draw(case, answer)))
    queue = []
    for rank in range(max(map(len, by_answer.values()))):
        queue += [by_answer[a][rank] for a in order if rank < len(by_answer[a])]
    return queue[::-1]
