"""Close the loop with a real model: reports -> an endpoint as an agent -> records.

    tumorchain serve --port 8123 &
    python tests/system/close_the_loop.py URL/v1 smollm2-135m extractor,reasoner 10 [TOKENS]

TOKENS, of a reply, are the engine's own 2048 unless given: a reply of many steps that is cut off
has no form, and its chain is set aside whatever it says. Prints what was accepted, what was set
aside, and how many claims of accepted records are false, as `tumorchain engine score` tells it.
"""

import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tumorchain_jax.engine.agents.pipeline import Settings, process
from tumorchain_jax.engine.agents.traces import verify
from tumorchain_jax.engine.language.agents import open_backends
from tumorchain_jax.engine.language.model import SAMPLING
from tumorchain_jax.engine.measure.agents import judge_records
from tumorchain_jax.engine.measure.cases import case_of
from tumorchain_jax.engine.measure.matching import compare
from tumorchain_jax.phantoms.reports.cases import make_case
from tumorchain_jax.phantoms.reports.styles import STYLES

FIRST_SEED = 910_000


def main(url: str, model: str, agents: str, count: int, tokens: int) -> None:
    """Work on `count` cases, one attempt and one repair each, and print what came of it."""
    started = time.monotonic()
    accepted = claims = wrong = problems = rules = 0
    rejected: Counter[str] = Counter()
    names = [name for name, style in STYLES.items() if not style.held_out]
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
                report = make_case(seed, STYLES[names[seed % len(names)]])
                case = case_of(report)
                result = process(case, Settings(drafts=1, agents=backends.agents))
                counts = judge_records(result, compare(result.facts, report.statements))
                found, false = counts.claims, counts.false.total()
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
