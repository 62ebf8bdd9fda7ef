"""A task file of lmms-eval, read as its `load_yaml_config` reads one."""

import importlib.util
from pathlib import Path
from typing import Any

import yaml

# Fields of its `TaskConfig` (0.7.3) that our tasks use.
KNOWN = {
    "task", "dataset_path", "dataset_kwargs", "test_split", "output_type", "doc_to_visual",
    "doc_to_text", "doc_to_target", "generation_kwargs", "process_results", "metric_list",
    "metadata",
}  # fmt: skip


def read_lmms_yaml(path: Path) -> dict[str, Any]:
    """Load the YAML; `!function module.name` is taken from the file beside it."""

    class Loader(yaml.SafeLoader):
        pass

    def function(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
        module, name = str(loader.construct_scalar(node)).rsplit(".", 1)
        spec = importlib.util.spec_from_file_location(module, path.parent / f"{module}.py")
        assert spec
        assert spec.loader
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return getattr(loaded, name)

    Loader.add_constructor("!function", function)
    values: dict[str, Any] = yaml.load(path.read_text(), Loader)
    assert not set(values) - KNOWN
    return values
