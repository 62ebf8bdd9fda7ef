"""The launchers' shell scripts, with stand-ins for the commands of clouds and schedulers."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "launch"
SCRIPTS = sorted(
    [*LAUNCH.rglob("*.sh"), *LAUNCH.glob("*.sbatch"), *Path(__file__).parent.glob("*.sh")]
)
STOPPED = 75
REQUEST = ["--name", "t", "--project", "PROJECT", "--zone", "ZONE", "--type", "v5litepod-16"]
WHAT = ["--config", "configs/nano.py", "--workdir", "gs://BUCKET/runs/nano"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The launchers and a configuration, away from any virtual environment of the real one."""
    shutil.copytree(LAUNCH, tmp_path / "checkout" / "launch")
    (tmp_path / "checkout" / "configs").mkdir()
    (tmp_path / "checkout" / "configs" / "nano.py").touch()
    return tmp_path / "checkout"


def stand_in(tmp_path: Path, name: str, body: str) -> None:
    """A command that also notes how it was called, in `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f'#!/bin/bash\necho "{name} $*" >>{tmp_path}/calls\n{body}\n')
    (folder / name).chmod(0o755)


def start(tmp_path: Path, script: str, *words: str, **environment: str) -> "subprocess.Popen[str]":
    path = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    return subprocess.Popen(
        ["bash", f"launch/{script}", *words],
        cwd=tmp_path / "checkout",
        env=os.environ | path | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    tmp_path: Path, script: str, *words: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    process = start(tmp_path, script, *words, **environment)
    output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_shellcheck_finds_nothing() -> None:
    assert len(SCRIPTS) >= 9
    done = subprocess.run(["shellcheck", *SCRIPTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------- worker.sh


@pytest.mark.parametrize(
    ("preflight", "train", "called"),
    [(0, 0, 2), (0, STOPPED, 2), (2, 0, 1), (0, 1, 2), (0, 134, 2)],
)
def test_worker_tells_how_it_ended(
    checkout: Path, tmp_path: Path, preflight: int, train: int, called: int
) -> None:
    workdir = tmp_path / "run with spaces"
    stand_in(tmp_path, "tumorchain", f"[[ $1 == train ]] && exit {train}; exit {preflight}")
    done = run(tmp_path, "worker.sh", "--config", "c.py", f"--workdir={workdir}", "--config.a=1")
    assert done.returncode == (preflight or train), done.stderr
    words = f"--config c.py --workdir={workdir} --config.a=1"
    stopped = f"--preempted-exit-code {STOPPED}"
    expected = [f"tumorchain preflight {words}", f"tumorchain train {stopped} {words}"]
    assert calls(tmp_path) == expected[:called]


@pytest.mark.parametrize("during", ["preflight", "train"])
def test_worker_hands_its_signal_on_and_waits(checkout: Path, tmp_path: Path, during: str) -> None:
    workdir = tmp_path / "run"
    body = f"""[[ $1 == {during} ]] || exit 0
[[ $1 == train ]] && code=$3
trap 'sleep 0.5; touch {tmp_path}/saved; exit ${{code:-0}}' TERM
touch {tmp_path}/ready
while true; do sleep 0.1; done"""
    stand_in(tmp_path, "tumorchain", body)
    process = start(tmp_path, "worker.sh", "--workdir", str(workdir))
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)  # schedulers may repeat it
    process.communicate(timeout=60)
    assert process.returncode == STOPPED
    assert (tmp_path / "saved").exists()
    assert len(calls(tmp_path)) == ("preflight", "train").index(during) + 1


# -------------------------------------------------------------- slurm.sbatch


@pytest.mark.parametrize(
    ("code", "requeued"), [(0, False), (STOPPED, True), (2, False), (1, False)]
)
def test_job_that_was_stopped_is_queued_again(
    checkout: Path, tmp_path: Path, code: int, requeued: bool
) -> None:
    stand_in(tmp_path, "srun", f"exit {code}")
    stand_in(tmp_path, "scontrol", "exit 0")
    words = ["--config", "c.py", "--workdir", "a b"]
    done = run(tmp_path, "slurm.sbatch", *words, SLURM_JOB_ID="17")
    assert done.returncode == (0 if requeued else code)
    assert "--coordinator auto --config c.py --workdir a b" in calls(tmp_path)[0]
    assert calls(tmp_path)[1:] == ["scontrol requeue 17"] * requeued


def test_job_that_cannot_be_queued_again_fails(checkout: Path, tmp_path: Path) -> None:
    stand_in(tmp_path, "srun", f"exit {STOPPED}")
    stand_in(tmp_path, "scontrol", "exit 1")
    assert run(tmp_path, "slurm.sbatch", "a", SLURM_JOB_ID="17").returncode == STOPPED
    assert run(tmp_path, "slurm.sbatch").returncode == 2


# ---------------------------------------------------------------- tpu_vm.sh

GCLOUD = """case "$*" in
  *" list "*) {state} ;;
  *train.sh*) {train} ;;
esac"""


def once(tmp_path: Path, *lines: str) -> str:
    """Says the first line at the first call, the second at the second, the last for ever."""
    for number, line in enumerate(lines):
        (tmp_path / f"line{number}").write_text(line)
    (tmp_path / "n").write_text("0")
    count = f"n=$(cat {tmp_path}/n); echo $((n < {len(lines) - 1} ? n + 1 : n)) >{tmp_path}/n"
    return f'{count}; eval "$(cat {tmp_path}/line$n)"'


def verbs(tmp_path: Path) -> list[str]:
    """What was done, without the questions."""
    found = []
    for call in calls(tmp_path):
        if "train.sh" in call:
            found.append("train")
        elif "setup.sh" in call:
            found.append("setup")
        elif " list " not in call:
            found.append(call.split()[4])
    return found


def test_dry_run_prints_the_commands(checkout: Path, tmp_path: Path) -> None:
    words = [*REQUEST, *WHAT, "--spot", "--dry-run", "--config.init=a b"]
    done = run(tmp_path, "tpu_vm.sh", *words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    place = "--project=PROJECT --zone=ZONE"
    assert lines[0].strip() == (
        f"gcloud compute tpus queued-resources create t {place} --node-id=t "
        "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite --spot"
    )
    assert [line.split()[0] for line in lines] == ["gcloud", "tar", *["gcloud"] * 4]
    assert "--worker=all" in lines[2]
    assert "tpu_vm/setup.sh\\ BUCKET" in lines[3]
    assert "/mnt/BUCKET/runs/nano" in lines[4]
    assert "a\\ b" in lines[4]
    assert lines[5].strip() == (
        f"gcloud compute tpus queued-resources delete t {place} --force --quiet"
    )


def test_tpu_that_is_taken_away_is_asked_for_again(checkout: Path, tmp_path: Path) -> None:
    states = ["", "echo WAITING_FOR_RESOURCES", "echo ACTIVE", "echo SUSPENDING", "echo SUSPENDED"]
    state = once(tmp_path, *states, "", "echo ACTIVE")
    train = f"[[ $(cat {tmp_path}/n) == 6 ]] && exit 0; exit {STOPPED}"
    stand_in(tmp_path, "gcloud", GCLOUD.format(state=state, train=train))
    done = run(tmp_path, "tpu_vm.sh", *REQUEST, *WHAT, POLL_SECONDS="0")
    assert done.returncode == 0, done.stderr
    attempt = ["create", "scp", "setup", "train", "delete"]
    assert verbs(tmp_path) == attempt * 2
    assert "trained: gs://BUCKET/runs/nano/export" in done.stderr


@pytest.mark.parametrize(
    ("state", "train", "code", "done_before"),
    [
        ("echo ACTIVE", "exit 2", 2, ["scp", "setup", "train"]),
        ("echo ACTIVE", "exit 1", 1, ["scp", "setup", "train"] * 3),
        ("echo FAILED", "exit 0", 1, []),
        ("exit 1", "exit 0", 1, []),
    ],
)
def test_what_does_not_get_better_by_itself_ends_it(
    checkout: Path, tmp_path: Path, state: str, train: str, code: int, done_before: list[str]
) -> None:
    stand_in(tmp_path, "gcloud", GCLOUD.format(state=state, train=train))
    done = run(tmp_path, "tpu_vm.sh", *REQUEST, *WHAT, POLL_SECONDS="0")
    assert done.returncode == code, done.stderr
    assert verbs(tmp_path) == done_before


@pytest.mark.parametrize(
    ("states", "started"),
    [
        (["inactive", "active", "deactivating", "failed"], True),
        (["active", "active", "failed"], False),
    ],
)
def test_host_waits_for_its_service(
    checkout: Path, tmp_path: Path, states: list[str], started: bool
) -> None:
    state = once(tmp_path, *[f"echo {state}" for state in states])
    body = f"case $* in *ActiveState*) {state} ;; *ExecMainStatus*) echo {STOPPED} ;; esac"
    stand_in(tmp_path, "systemctl", body)
    stand_in(tmp_path, "sudo", "")
    stand_in(tmp_path, "journalctl", "exec sleep 60")
    done = run(tmp_path, "tpu_vm/train.sh", "--config.init=a b", POLL_SECONDS="0.1")
    assert done.returncode == STOPPED
    runs = [call for call in calls(tmp_path) if "systemd-run" in call]
    assert len(runs) == started
    assert all(run.endswith("bash launch/worker.sh --config.init=a b") for run in runs)
    assert (tmp_path / "n").read_text().strip() == str(len(states) - 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--frobnicate"], "command line: found --frobnicate"),
        ([*REQUEST, "--config"], "--config: found nothing"),
        (REQUEST, "--config: found none"),
        ([*REQUEST, *WHAT[:2]], "--workdir: found none"),
        ([*REQUEST, *WHAT, "--name", "No"], "--name: found No"),
        ([*REQUEST, *WHAT, "--type", "h100-8"], "--type: found h100-8"),
        ([*REQUEST, *WHAT, "--config", "none.py"], "--config: found none.py"),
        ([*REQUEST, *WHAT, "--workdir", "runs"], "--workdir: found runs"),
        ([*REQUEST, *WHAT, "--workdir", "gs://BUCKET"], "--workdir: found gs://BUCKET"),
    ],
)
def test_bad_usage_is_refused_in_one_line(
    checkout: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    stand_in(tmp_path, "gcloud", "exit 0")
    done = run(tmp_path, "tpu_vm.sh", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tpu_vm.sh: error: {message}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "calls").exists()
