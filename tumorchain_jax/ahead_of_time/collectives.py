"""Count the collective traffic of a compiled program from its text (HLO).

A collective in a loop counts as often as the loop runs. The GPU's compiler writes the trip count
of a scan beside the loop; in a TPU's program the condition compares a counter to a constant. Any
other loop, such as that of generation, counts once.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
FUSED_SCATTER = "all-reduce-scatter"
"""How a TPU's reduce-scatter is named: a computation of an all-reduce and a slice."""

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> (.*) \{$")
_CALLED = re.compile(r"(calls|to_apply|body|condition)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_COUNTED = re.compile(r"compare\(%?[\w.\-]+, %?([\w.\-]+)\), direction=LT")
_KNOWN = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CONSTANT = r"%?{} = s32\[\]\S* constant\((\d+)\)"
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_SENT = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(-start)?\(")
_CHANNEL = re.compile(r"channel_id=(\d+)")
_OF_JAX = "1"
"""The channel of all collectives that a program asks for by name (`jax.lax.all_to_all`)."""
_SOURCE = re.compile(r'op_name="([^"]*)"')


@dataclass(frozen=True)
class Collective:
    """One instruction.

    Attributes:
        nbytes: of its result on one device.
        times: that a run of the program executes it.
        source: the operation of the model that it serves.
    """

    kind: str
    shape: str
    nbytes: int
    times: int
    source: str


@dataclass(frozen=True)
class _Computation:
    """Its lines, and the type of its result."""

    result: str
    lines: list[str]


@dataclass(frozen=True)
class _Call:
    caller: str
    times: int
    source: str


def collectives(text: str) -> list[Collective]:
    """Every collective of a compiled program (`Compiled.as_text()`)."""
    computations = _computations(text)
    calls = _calls(computations)
    times = _times(computations, calls)
    # A TPU spreads one transfer over the computations it hides behind: all have its channel.
    found: dict[str, Collective] = {}
    for name, computation in computations.items():
        for number, line in enumerate(computation.lines):
            sent = _SENT.search(line)
            if not sent or not times[name]:
                continue
            kind, shape, source = sent[2], _arrived(sent[1], bool(sent[3])), _source(line)
            channel = _CHANNEL.search(line)
            key = channel[1] if channel and channel[1] != _OF_JAX else f"{name} {number}"
            if name.startswith(FUSED_SCATTER):
                # One result, of all that it reduces.
                key, kind, shape = name, "reduce-scatter", computation.result
                source = next((call.source for call in calls[name]), source)
            found[key] = Collective(kind, shape, nbytes(shape), times[name], source)
    return [*found.values()]


def by_kind(found: Sequence[Collective]) -> dict[str, dict[str, int]]:
    """Number and bytes of each kind in one run."""
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for one in found:
        count[one.kind] += one.times
        size[one.kind] += one.times * one.nbytes
    return {kind: {"count": count[kind], "bytes": size[kind]} for kind in sorted(count)}


def nbytes(shape: str) -> int:
    """Size of the arrays in a type such as `(f32[2,3]{1,0}, pred[4])`."""
    total = 0
    for kind, sizes in _SHAPE.findall(shape):
        number = re.search(r"\d+", kind)
        bits = int(number[0]) if number else 8
        for size in filter(None, sizes.split(",")):
            bits *= int(size)
        total += bits // 8
    return total


def _computations(text: str) -> dict[str, _Computation]:
    """By name; the entry's is empty."""
    found: dict[str, _Computation] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if begun := _COMPUTATION.match(line):
            lines = []
            found["" if begun[1] else begun[2]] = _Computation(begun[3], lines)
        else:
            lines.append(line)
    return found


def _calls(computations: Mapping[str, _Computation]) -> dict[str, list[_Call]]:
    """Who calls each computation."""
    calls: dict[str, list[_Call]] = defaultdict(list)
    for caller, computation in computations.items():
        for line in computation.lines:
            called = dict(_called(line))
            condition, known = called.get("condition"), _KNOWN.search(line)
            trips = int(known[1]) if known else 1
            if condition and not known:
                trips = _trips(computations[condition])
            for name in called.values():
                calls[name].append(_Call(caller, trips, _source(line)))
    return calls


def _called(line: str) -> Iterator[tuple[str, str]]:
    yield from _CALLED.findall(line)
    if branches := _BRANCHES.search(line):
        for number, name in enumerate(branches[1].split(",")):
            yield f"branch {number}", name.strip().lstrip("%")


def _trips(condition: _Computation) -> int:
    lines = "\n".join(condition.lines)
    counted = _COUNTED.search(lines)
    constant = counted and re.search(_CONSTANT.format(re.escape(counted[1])), lines)
    return int(constant[1]) if constant else 1


def _times(
    computations: Mapping[str, _Computation], calls: Mapping[str, list[_Call]]
) -> dict[str, int]:
    """How often each computation runs; none calls itself."""
    times = {"": 1}

    def count(name: str) -> int:
        if name not in times:
            times[name] = sum(count(call.caller) * call.times for call in calls.get(name, ()))
        return times[name]

    return {name: count(name) for name in computations}


def _arrived(shape: str, started: bool) -> str:
    """The type of what arrives: the tuple of a `-start` also has what was sent."""
    if not started:
        return shape
    arrays = [f"{kind}[{sizes}]" for kind, sizes in _SHAPE.findall(shape)]
    return max(arrays, key=nbytes)


def _source(line: str) -> str:
    found = _SOURCE.search(line)
    return found[1] if found else ""
