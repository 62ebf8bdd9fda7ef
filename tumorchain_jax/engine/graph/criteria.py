"""Criteria of T, N and M in the knowledge graph, read by a machine.

A criterion joins conditions by `;`, all of which must hold: `20 < largest_mm <= 40` or
`large_vessel = no`. A category with several criteria holds if one of them does.
"""

import operator
import re
from collections.abc import Callable

from tumorchain_jax.anatomy.organs import display_name
from tumorchain_jax.anatomy.staging import Extent
from tumorchain_jax.core.errors import InputError
from tumorchain_jax.engine.graph.load import KnowledgeGraph

_VALUES: dict[str, Callable[[Extent], float | str]] = {
    "largest_mm": lambda extent: max(extent.diameters_mm),
    "tumours": lambda extent: len(extent.diameters_mm),
    "depth": lambda extent: extent.depth,
    "small_vessel": lambda extent: "yes" if extent.small_vessel else "no",
    "large_vessel": lambda extent: "yes" if extent.large_vessel else "no",
    "nodes": lambda extent: extent.nodes,
    "metastases": lambda extent: len(extent.metastases),
    "peritoneum": lambda extent: "yes" if extent.peritoneum else "no",
}
_COMPARE: dict[str, Callable[[float, float], bool]] = {"<": operator.lt, "<=": operator.le}
_WORDS = re.compile(r"(?P<name>\w+) (?P<sign>=|!=) (?P<value>[\w ]+)")
_RANGE = re.compile(
    r"(?:(?P<low>\d+) (?P<above><=?) )?(?P<name>\w+)(?: (?P<below><=?) (?P<high>\d+))?"
)


def holds(criterion: str, extent: Extent) -> bool:
    """Tell whether all conditions of a criterion hold.

    Raises:
        InputError: a condition cannot be read.
    """
    return all(_condition_holds(condition.strip(), extent) for condition in criterion.split(";"))


def categories(graph: KnowledgeGraph, extent: Extent) -> tuple[str, ...]:
    """Return the T, N and M categories of an extent by the graph's criteria, in its order."""
    organ = display_name(extent.organ)
    found = [
        edge.object.removeprefix(f"{organ} ")
        for edge in graph.edges
        if edge.relation == "staged_as"
        and edge.object.rsplit(" ", 1)[0] == organ
        and holds(edge.subject, extent)
    ]
    return tuple(dict.fromkeys(found))


def _condition_holds(condition: str, extent: Extent) -> bool:
    match = _WORDS.fullmatch(condition) or _RANGE.fullmatch(condition)
    if not match or match["name"] not in _VALUES:
        names = ", ".join(_VALUES)
        raise InputError(
            "criterion",
            "condition",
            condition,
            f"a comparison of one of {names}",
            "such as `20 < largest_mm <= 40`",
        )
    value = _VALUES[match["name"]](extent)
    said = match.groupdict()
    if "sign" in said:
        return (str(value) == said["value"]) == (said["sign"] == "=")
    number = float(value)
    low = said["low"] is None or _COMPARE[said["above"]](float(said["low"]), number)
    return low and (said["high"] is None or _COMPARE[said["below"]](number, float(said["high"])))
