"""Close the loop with a real model: reports -> an endpoint as an agent -> records.

    tumorchain serve --port 8123 &
    python tests/system/close_the_loop.py URL/v1 smollm2-135m extractor,reasoner 10 [TOKENS]

TOKENS, of a reply, are the engine's own 2048 unless given: a reply of many steps that is cut off
has no form, and its chain is set aside whatever it says. Prints what was accepted, what was set
aside, and how many claims of accepted records are false: a claim is true if the statements that the
report was made from hold every fact that it names.
"""

import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tumorchain_jax.engine.agents.pipeline import Settings, process
from tumorchain_jax.engine.agents.traces import verify
from tumorchain_jax.engine.case import Case, CaseResult, Document
from tumorchain_jax.engine.facts import Fact
from tumorchain_jax.engine.language.agents import open_backends
from tumorchain_jax.engine.language.model import SAMPLING
from tumorchain_jax.phantoms.reports.draft import Draft
from tumorchain_jax.phantoms.reports.patients import draw_patient
from tumorchain_jax.phantoms.reports.styles import STYLES
from tumorchain_jax.phantoms.reports.writer import write_radiology

FIRST_SEED = 910_000


def report(seed: int) -> Draft:
    """A report with its truth, all open styles in turn."""
    names = [name for name, style in STYLES.items() if not style.held_out]
    return write_radiology(draw_patient(seed), STYLES[names[seed % len(names)]], seed)


def false_claims(result: CaseResult, draft: Draft) -> tuple[int, int]:
    """Number of claims in accepted records, and of those that the truth does not hold."""
    truth = {_statement(each) for each in draft.statements}
    facts = {fact.id: fact for fact in result.facts}
    claims = [c for trace in result.traces for step in trace.steps for c in step.claims]
    wrong = [c for c in claims if any(_statement(facts[id]) not in truth for id in c.facts)]
    return len(claims), len(wrong)


def _statement(said: Fact | object) -> tuple[object, ...]:
    names = ("organ", "attribute", "value", "unit", "polarity", "certainty", "time")
    return tuple(getattr(said, name) for name in names)


def main(url: str, model: str, agents: str, count: int, tokens: int) -> None:
    """Work on `count` cases, one attempt and one repair each, and print what came of it."""
    started = time.monotonic()
    accepted = claims = wrong = problems = rules = 0
    rejected: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "endpoints.toml"
        limits = "concurrency = 1\ntimeout_s = 1500\ndeadline_s = 3000\n"
        table = f'url = "{url}"\nmodel = "{model}"\n{limits}'
        file.write_text(f"[endpoint.a]\n{table}")
        chosen = dict.fromkeys(agents.split(","), "llm:a")
        sampling = replace(SAMPLING, max_tokens=tokens)
        journal = Path(folder) / "replies"
        options = {"draws": 1, "sampling": sampling, "tell": print}
        with open_backends(chosen, file, journal, **options) as backends:
            for seed in range(FIRST_SEED, FIRST_SEED + count):
                draft = report(seed)
                document = Document("radiology", draft.text, draft.style.language)
                case = Case(f"case-{seed}", f"p-{seed}", (f"s-{seed}",), (document,))
                result = process(case, Settings(drafts=1, agents=backends.agents))
                found, false = false_claims(result, draft)
                accepted, claims = accepted + len(result.records), claims + found
                wrong, problems = wrong + false, problems + len(verify(result, case))
                rules += len(process(case).records)
                rejected.update(each.organ for each in result.rejected)
                done = f"{len(result.records)} records, {len(result.rejected)} chains set aside"
                told = "; ".join(backends.doubts.lines())
                print(
                    f"{seed}: {done}, {false} of {found} claims false; so far: {told}", flush=True
                )
            spent = backends.clients.spent if backends.clients else None
            lines = backends.doubts.lines()
    print(f"{count} cases, {agents} by {model}, {time.monotonic() - started:.0f} s")
    print(f"accepted: {accepted} records ({rules} by rules alone), {claims} claims, {wrong} false")
    print(f"verify: {problems} problems; chains set aside: {rejected.total()}")
    print(f"paid: {spent}")
    print("\n".join(lines))


if __name__ == "__main__":
    limit = int(sys.argv[5]) if sys.argv[5:] else SAMPLING.max_tokens
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), limit)
