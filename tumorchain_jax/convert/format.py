"""A format of weights: how a folder of it is detected, and what each conversion verb does to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tumorchain_jax.convert.verifier import Verdict
from tumorchain_jax.core.errors import InputError

Facts = dict[str, Any]


class Options(NamedTuple):
    """Options of a conversion.

    Attributes:
        dtype: of the tensors that are written; None: as they are.
        base: of an adapter: the folder of its model, or what was imported from that.
        adapter: an imported adapter, to be merged in an export.
        drop_head: import an image classifier without its head.
        tower: import a Qwen2.5-VL with its vision tower as parameters.
    """

    dtype: str | None = None
    base: Path | None = None
    adapter: Path | None = None
    drop_head: bool = False
    tower: bool = False


class Format(NamedTuple):
    """One kind of weights, ours and PyTorch's side of it.

    Attributes:
        name: for people.
        detect: whether a folder (or file) is of this format, on either side.
        inspect: what an import would make of a folder, or what an imported one holds.
        to_ours: import a folder to a new one; returns how many tensors that has.
        to_theirs: export a folder to a new one; returns how many tensors were written.
        verify: compare two folders, each of either side.
        dtypes: those that can be chosen.
        options: others that it takes.
    """

    name: str
    detect: Callable[[Path], bool]
    inspect: Callable[[Path, Options], Facts]
    to_ours: Callable[[Path, Path, Options], int]
    to_theirs: Callable[[Path, Path, Options], int]
    verify: Callable[[Path, Path], Verdict]
    dtypes: tuple[str, ...] = ("float32",)
    options: tuple[str, ...] = ()

    def check(self, options: Options) -> None:
        """Refuse an option that this format does not take.

        Raises:
            InputError: it names the option.
        """
        if options.dtype is not None and options.dtype not in self.dtypes:
            expected = f"{' or '.join(self.dtypes)}, as {self.name} has"
            raise InputError("command line", "--dtype", options.dtype, expected, "leave it out")
        for name in ("base", "adapter"):
            value = getattr(options, name)
            if value is not None and name not in self.options:
                expected = f"none for {self.name}"
                raise InputError("command line", f"--{name}", str(value), expected, "leave it out")
        for name in ("drop_head", "tower"):
            if getattr(options, name) and name not in self.options:
                flag, expected = f"--{name.replace('_', '-')}", f"none for {self.name}"
                raise InputError("command line", flag, "given", expected, "leave it out")
