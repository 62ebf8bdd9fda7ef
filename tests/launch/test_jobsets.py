"""The JobSets, against Kubernetes' schemas and against what they start."""

import re
from math import prod
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tumorchain_jax.cli.parser import build_parser

ROOT = Path(__file__).parents[2]
JOBSETS = sorted((ROOT / "launch" / "gke").glob("*.yaml"))
KUBERNETES = "1.34"


def jobset(path: Path) -> dict[str, Any]:
    (found,) = yaml.safe_load_all(path.read_text())
    return found


def parts(path: Path) -> tuple[dict, dict, dict, dict]:
    """The JobSet, its job's specification, its pod's, its container."""
    found = jobset(path)
    (replicated,) = found["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    return found, job, pod, container


@pytest.mark.parametrize("path", JOBSETS, ids=lambda path: path.name)
def test_what_kubernetes_knows_of_it_is_valid(path: Path) -> None:
    found, job, pod, _ = parts(path)
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert set(found["spec"]) == {"failurePolicy", "replicatedJobs"}
    meta = {"name": "tumorchain"}
    for api, kind, spec in (("v1", "Pod", pod), ("batch/v1", "Job", job)):
        document = {"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec}
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("path", JOBSETS, ids=lambda path: path.name)
def test_mistake_in_a_pod_would_be_seen(path: Path) -> None:
    _, _, pod, _ = parts(path)
    wrong = pod | {"terminationGracePeriodSecond": 5}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "t"}, "spec": wrong}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("path", JOBSETS, ids=lambda path: path.name)
def test_its_arguments_are_those_of_the_worker(path: Path) -> None:
    _, job, _, container = parts(path)
    assert container["command"] == ["bash", "launch/worker.sh"]
    for command in ("preflight", "train"):
        options, rest = build_parser()[0].parse_known_args([command, *_settled(container["args"])])
        assert (ROOT / options.config).is_file()
        assert all(word.startswith("--config.") for word in rest)
        assert options.coordinator == "auto" or options.processes == job["completions"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(options.workdir).startswith(tuple(mounts))
    assert job["parallelism"] == job["completions"]


def _settled(words: list[str]) -> list[str]:
    return [word.replace("$(JOB_COMPLETION_INDEX)", "0") for word in words]


@pytest.mark.parametrize("path", JOBSETS, ids=lambda path: path.name)
def test_preemption_starts_it_again_and_counts_for_nothing(path: Path) -> None:
    found, job, pod, container = parts(path)
    (rule,) = found["spec"]["failurePolicy"]["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    by_code, by_condition = job["podFailurePolicy"]["rules"]
    stopped = re.search(r"STOPPED=(\d+)", (ROOT / "launch" / "worker.sh").read_text())
    assert stopped is not None
    assert by_code["onExitCodes"]["values"] == [int(stopped[1])]
    assert by_code["onExitCodes"]["containerName"] == container["name"]
    assert by_condition["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert (job["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    assert pod["terminationGracePeriodSeconds"] >= 120


def test_tpu_slice_has_as_many_chips_as_its_hosts() -> None:
    _, job, pod, container = parts(ROOT / "launch" / "gke" / "tpu.yaml")
    topology = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    chips = container["resources"]["limits"]["google.com/tpu"]
    assert job["completions"] * chips == prod(map(int, topology.split("x"))) == 16


def test_gpu_coordinator_is_the_first_pod() -> None:
    found, _, _, container = parts(ROOT / "launch" / "gke" / "gpu.yaml")
    name, job = found["metadata"]["name"], found["spec"]["replicatedJobs"][0]["name"]
    assert f"--coordinator={name}-{job}-0-0.{name}:8482" in container["args"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    (ids,) = [env["value"] for env in container["env"] if env["name"] == "JAX_LOCAL_DEVICE_IDS"]
    assert ids.split(",") == [str(number) for number in range(gpus)]
