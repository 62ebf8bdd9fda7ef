#!/usr/bin/env bash
# launch/slurm.sbatch under a real Slurm: trains nano, cut short, in two tasks on this machine's
# CPUs; tells them to stop in the middle; they save, the job is queued again and goes on to the end.
#
#   bash tests/launch/slurm_on_one_machine.sh [FOLDER]    # default: a new one in /tmp
#
# Needs root, `apt-get install slurm-wlm munge`, and `tumorchain` on PATH or in .venv. Slurm's
# daemons run while this script does. Takes a quarter of an hour on two cores. Exit code 0: all seen.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
folder=${1:-$(mktemp -d /tmp/slurm.XXXX)}
host=$(hostname -s)
mkdir -p "$folder"/{state,spool,log}
export SLURM_CONF=$folder/slurm.conf

say() { printf '== %s %s\n' "$(date +%T)" "$*"; }

# ------------------------------------------------------------------- daemons
cat >"$SLURM_CONF" <<END
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE
END
install -d -o munge -g munge /run/munge
runuser -u munge -- munged
slurmctld
slurmd
stop_daemons() {
  kill "$(<"$folder/slurmd.pid")" "$(<"$folder/slurmctld.pid")" "$(</run/munge/munged.pid)"
}
trap stop_daemons EXIT
until [[ $(sinfo --noheader --format=%T) == idle ]]; do sleep 1; done
sinfo

# ----------------------------------------------------------------------- job
cd "$root"
export JAX_PLATFORMS=cpu JAX_COMPILATION_CACHE_DIR=$folder/compiled
job=$(sbatch --parsable --gpus-per-node=0 --ntasks-per-node=2 --output="$folder/log/job" \
  launch/slurm.sbatch --config configs/nano.py --workdir "$folder/run" \
  --config.data.phantoms=16 --config.pretrain.patch_stage.steps=10 --config.pretrain.scan_stage.steps=2 \
  --config.steps=60 --config.batch_size=2 --config.micro_batch_size=1 --config.log_every=1)
say "job $job"

state() { squeue --noheader --jobs="$job" --format=%T 2>/dev/null || true; }
steps() { cat "$folder/run/metrics.jsonl" 2>/dev/null | grep -c '"step"' || true; }

until (($(steps) >= 10)); do
  [[ -n $(state) ]] || { cat "$folder/log/job" && exit 1; }
  sleep 1
done
say "at step $(steps): scancel --signal=TERM $job"
scancel --signal=TERM "$job"
until [[ $(state) == PENDING ]]; do
  [[ -n $(state) ]] || { cat "$folder/log/job" && exit 1; }
  sleep 1
done
stopped=$(steps)
say "the job is $(state), $stopped steps are done, export: $(ls "$folder/run/export" 2>&1)"
[[ ! -e $folder/run/export ]]
((stopped >= 10 && stopped < 60))
scontrol show job "$job" | grep -E 'JobState|Restarts'

while [[ -n $(state) && $(state) != COMPLETED ]]; do sleep 1; done
say "the job ended"
cat "$folder/log/job"
scontrol show job "$job" | grep -E 'JobState|Restarts'
say "$(steps) steps in metrics.jsonl, export: $(ls -m "$folder/run/export")"
# Each step once: it went on from where it was.
[[ $(grep -o '"step": [0-9]*' "$folder/run/metrics.jsonl" | sort -u | wc -l) == 60 ]]
(($(steps) == 60))
[[ -e $folder/run/export/model.safetensors ]]
say "as it should be"
