"""Partition rules: one ordered list from logical axes to mesh axes.

tensor     attention heads, the MLP's inner size and the vocabulary (Megatron's cut)
fsdp       the other axis of every matrix, gathered where it is used
data, fsdp scans of a batch; where logits are made, fsdp cuts the vocabulary instead
sequence   positions of a row and cells of a scan; in attention it cuts heads instead, whose
           rows are then whole (DeepSpeed-Ulysses)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from tumorchain_jax.core.errors import InputError

AnyMesh = Mesh | AbstractMesh
MeshAxes = str | tuple[str, ...] | None
Rules = Sequence[tuple[str, MeshAxes]]
LogicalAxes = Mapping[str, tuple[Sequence[str | None], Sequence[int]]]
"""Path of a parameter -> the logical names of its axes, and its shape."""
Heads = Mapping[str, tuple[str, int]]
"""Name of an attention -> the logical axis of its heads among the activations, their number."""

BATCH = ("data", "fsdp")
RULES: Rules = (
    # Axes of parameters.
    ("layers", None),
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
    ("embed", "fsdp"),
    ("qkv", None),  # the encoder's three in one: to cut it would cut across q, k and v
    ("patch", None),
    ("norm", None),
    ("lora_rank", None),
    ("classes", None),
    ("crops", None),
    ("place", None),
    ("channels", None),  # of convolutions: small enough to be whole on every device
    # Axes of activations, which also have `mlp`.
    ("batch", BATCH),
    ("length", "sequence"),
    ("cells", "sequence"),
    ("attention_heads", ("tensor", "sequence")),
    ("projected_heads", "tensor"),
    ("scored_batch", "data"),
    ("scored_vocab", ("tensor", "fsdp")),
)
"""Every logical axis of every model, parameters' and activations', and what cuts it."""


def rules_for(heads: Heads, mesh: AnyMesh) -> Rules:
    """Rules for a model on a mesh: key/value heads too few to be cut are on every device.

    Their projections are cut all the same, and gathered before attention.
    """
    of_keys = [count for name, count in heads.values() if name == "projected_heads"]
    if all(count % mesh.shape["tensor"] == 0 for count in of_keys):
        return RULES
    return [(name, None if name == "projected_heads" else axes) for name, axes in RULES]


@contextmanager
def on_mesh(mesh: Mesh, rules: Rules = RULES) -> Iterator[None]:
    """Trace programs in this block with activations partitioned over the mesh by the rules."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(rules):
        yield


def param_shardings(
    named: LogicalAxes,
    heads: Heads,
    mesh: AnyMesh,
    rules: Rules = RULES,
) -> dict[str, NamedSharding]:
    """Shardings of a model's parameters by path.

    Args:
        named: the logical axes and the shape of each parameter.
        heads: the model's numbers of heads, which are an axis of no parameter.

    Raises:
        InputError: a logical axis has no rule; a rule is for an axis that no model has; a mesh axis
            would cut two axes of one parameter, or does not divide the one that it cuts.
    """
    known = {name for axes, _ in named.values() for name in axes} | {name for name, _ in RULES}
    if unknown := [name for name, _ in rules if name not in known]:
        found, expected = f"a rule for {unknown[0]}", "logical axes of a model"
        raise InputError("config", "partition rules", found, expected, "remove the rule")
    for what, (name, count) in heads.items():
        _check_cut(what, [_mesh_axes(what, name, rules)], [count], mesh)
    shardings = {}
    for path, (axes, shape) in named.items():
        spec = [_mesh_axes(path, name, rules) for name in axes]
        _check_cut(path, spec, shape, mesh)
        shardings[path] = NamedSharding(mesh, PartitionSpec(*spec))
    return shardings


def state_shardings(state: Any, shardings: Mapping[str, NamedSharding]) -> Any:
    """Shardings of a `TrainState`: moments lie with their parameters, statistics on all devices.

    Args:
        state: shapes are enough.
        shardings: of the parameters by path.
    """
    whole = NamedSharding(next(iter(shardings.values())).mesh, PartitionSpec())

    def place(keys: Sequence[Any], leaf: Any) -> NamedSharding:
        for key in reversed(keys):
            path = str(getattr(key, "key", ""))
            # Optax has the moments of a parameter under the parameter's own key.
            if path in shardings and leaf.shape == state.trained[path].shape:
                return shardings[path]
        return whole

    return state._replace(
        step=whole,
        trained={path: shardings[path] for path in state.trained},
        frozen={path: shardings[path] for path in state.frozen},
        optimizer=jax.tree_util.tree_map_with_path(place, state.optimizer),
        statistics=jax.tree.map(lambda leaf: whole, state.statistics),
    )


def rows_of(mesh: Mesh) -> NamedSharding:
    """The sharding of a batch: its rows over data and fsdp, each row on one device."""
    return NamedSharding(mesh, PartitionSpec(BATCH))


def _mesh_axes(path: str, name: str | None, rules: Rules) -> MeshAxes:
    if name is None:
        return None
    for logical, axes in rules:
        if logical == name:
            return axes
    raise InputError("config", path, f"a logical axis {name} without a rule", "one", "add a rule")


def _names(axes: MeshAxes) -> tuple[str, ...]:
    return () if axes is None else (axes,) if isinstance(axes, str) else axes


def _check_cut(path: str, spec: Sequence[MeshAxes], shape: Sequence[int], mesh: AnyMesh) -> None:
    taken = [name for axes in spec for name in _names(axes)]
    if unknown := [name for name in taken if name not in mesh.shape]:
        found, expected = f"mesh axis {unknown[0]}", f"one of {', '.join(mesh.shape)}"
        raise InputError("config", path, found, expected, "fix the rules")
    if len(taken) != len({*taken}):
        raise InputError("config", path, f"cut twice: {spec}", "once", "fix the rules")
    for axes, size in zip(spec, shape, strict=True):
        parts = prod(mesh.shape[name] for name in _names(axes))
        if size % parts:
            found, expected = f"an axis of {size}", f"a multiple of {parts} ({axes} of the mesh)"
            raise InputError("config", path, found, expected, "change the mesh")
