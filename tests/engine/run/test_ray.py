"""The same run on two nodes of a Ray cluster: the same bytes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import kill_runs
import pytest

from tumorchain_jax.cli.main import main

ray = pytest.importorskip("ray", reason="no ray here: the extra `ray`")
pytestmark = pytest.mark.system(haste=True)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster of two nodes on this machine, with one worker each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    try:
        nodes = Cluster(initialize_head=True, head_node_args=node)
        nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        pytest.skip("this machine is too busy for the 30 s in which Ray wants a node to start")
    yield nodes.address
    nodes.shutdown()


def test_two_nodes_give_the_bytes_of_one_machine(
    make_cases: Callable[..., Path], cluster: str, tmp_path: Path
) -> None:
    words = ["engine", "run", "-i", str(make_cases(24)), "-o"]
    assert main([*words, f"{tmp_path}/one", "--workers", "1"]) == 0
    assert main([*words, f"{tmp_path}/two", "--ray", cluster]) == 0
    ray.init(cluster, log_to_driver=False)
    assert sum(node["Alive"] for node in ray.nodes()) == 2
    ray.shutdown()
    assert kill_runs.compare(tmp_path / "one", tmp_path / "two") == {
        "lost": 0, "doubled": 0, "other files": 0,
    }  # fmt: skip
