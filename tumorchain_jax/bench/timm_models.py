"""timm's models as references, without torchvision.

timm imports torchvision for its pictures and data sets, which its models do not need; the wheel of
a package index does not load beside the CPU build of PyTorch. While timm is imported, modules of
that name are there whose every attribute is a class without content.
"""

import importlib.abc
import importlib.machinery
import sys
from functools import cache
from types import ModuleType
from typing import Any


class _Names(type):
    """A class whose attributes are their own names."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Empty(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Names(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        module = _Empty(spec.name)
        module.__path__ = []  # a package
        return module

    def exec_module(self, module: ModuleType) -> None:
        return


@cache
def import_timm() -> ModuleType:
    """Import timm."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        import timm
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
    return timm


def make(architecture: str, seed: int = 0, **args: Any) -> Any:
    """A model with random weights, none of them constant, in evaluation mode."""
    import torch

    torch.manual_seed(seed)
    model = import_timm().create_model(architecture, pretrained=False, **args)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not tensor.is_floating_point():
                continue
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2.0)
            elif tensor.ndim == 1:
                tensor.add_(torch.randn_like(tensor) * 0.2)
            else:
                tensor.add_(torch.randn_like(tensor) * 0.02)
    return model.eval()
