#!/usr/bin/env bash
# Trains on a TPU VM of any number of hosts, and resumes after preemption: asks for the TPU,
# installs this checkout on every host, trains, and asks again when the TPU was taken away.
#
#   launch/tpu_vm.sh --name NAME --project PROJECT --zone ZONE --type v5litepod-16 [--spot]
#       [--runtime VERSION] [--dry-run] --config FILE --workdir gs://BUCKET/FOLDER
#       [--config.a.b=value ...]
#
# FILE is relative to the checkout. The bucket is mounted on every host's /mnt/BUCKET, where data
# sets and imported weights may lie too; --workdir may also be the path of a folder that all hosts
# have mounted already. --dry-run prints the commands alone.
# Stopped and started again it finds the TPU and the training where they are. Exit codes: 0 trained,
# and the TPU is given back; 2 bad input or usage; 1 failed, and the TPU stays for inspection.
set -euo pipefail
readonly STOPPED=75 # of worker.sh
readonly MOST_FAILURES=3
readonly POLL_SECONDS=${POLL_SECONDS:-60}

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf 'tpu_vm.sh: %s\n' "$*" >&2; }

refuse() {
  say "error: $1: found $2, expected $3"
  exit 2
}

# ---------------------------------------------------------------- arguments
name="" project="" zone="" type="" runtime="" config="" workdir="" spot="" dry_run=""
overrides=()
while (($#)); do
  option=$1
  case $option in
    --spot) spot=yes ;;
    --dry-run) dry_run=yes ;;
    --config.*) overrides+=("$option") ;;
    --name | --project | --zone | --type | --runtime | --config | --workdir)
      [[ -n ${2:-} ]] || refuse "$option" nothing "a value"
      printf -v "${option#--}" '%s' "$2"
      shift
      ;;
    *) refuse "command line" "$option" "the options in the head of this file" ;;
  esac
  shift
done
for option in name project zone type config workdir; do
  [[ -n ${!option} ]] || refuse "--$option" none "a value"
done
[[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] || refuse --name "$name" "lower-case letters, digits, -"
[[ -f $root/$config ]] || refuse --config "$config" "a file of the checkout"
if [[ -z $runtime ]]; then
  case $type in
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v5p-*) runtime=v2-alpha-tpuv5 ;;
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    *) refuse --type "$type" "v5litepod-N, v5p-N or v6e-N, or --runtime beside it" ;;
  esac
fi
bucket="" folder=$workdir
case $workdir in
  gs://?*/?*) folder=/mnt/${workdir#gs://} bucket=${workdir#gs://} bucket=${bucket%%/*} ;;
  /*) ;;
  *) refuse --workdir "$workdir" "gs://BUCKET/FOLDER, or an absolute path on the hosts" ;;
esac
command -v gcloud >/dev/null || [[ -n $dry_run ]] || refuse gcloud "no such command" "Google's CLI"

# ----------------------------------------------------------------- commands
place=(--project="$project" --zone="$zone")

run() {
  if [[ -n $dry_run ]]; then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

# Of the request for the TPU; nothing where there is none.
state() {
  gcloud compute tpus queued-resources list "${place[@]}" --filter="name ~ /$name\$" \
    --format='value(state.state)'
}

ask_for_it() {
  run gcloud compute tpus queued-resources create "$name" "${place[@]}" --node-id="$name" \
    --accelerator-type="$type" --runtime-version="$runtime" ${spot:+--spot}
}

give_it_back() {
  run gcloud compute tpus queued-resources delete "$name" "${place[@]}" --force --quiet
}

on_every_host() {
  run gcloud compute tpus tpu-vm ssh "$name" "${place[@]}" --worker=all --command="$1"
}

install_on_every_host() {
  local archive
  archive=$(mktemp --suffix=.tgz)
  run tar -C "$root" --exclude=./.git --exclude=./.venv --exclude=./runs -czf "$archive" . &&
    run gcloud compute tpus tpu-vm scp "$archive" "$name:tumorchain.tgz" "${place[@]}" \
      --worker=all &&
    on_every_host "mkdir -p tumorchain && tar -C tumorchain -xzf tumorchain.tgz && \
bash tumorchain/launch/tpu_vm/setup.sh $bucket"
  local code=$?
  rm -f "$archive"
  return "$code"
}

train() {
  local words=(--config "$config" --workdir "$folder" --coordinator auto "${overrides[@]}")
  on_every_host "bash tumorchain/launch/tpu_vm/train.sh ${words[*]@Q}"
}

# --------------------------------------------------------------------- loop
if [[ -n $dry_run ]]; then
  ask_for_it
  install_on_every_host
  train
  give_it_back
  exit
fi

failures=0 before=""
while true; do
  now=$(state) || {
    say "error: the state of $name could not be asked for"
    exit 1
  }
  [[ $now == "$before" ]] || say "$name: ${now:-none}"
  before=$now
  case $now in
    "") ask_for_it ;;
    SUSPENDED) give_it_back ;; # preempted; what is left is the request
    FAILED)
      say "error: the request failed; see \`gcloud compute tpus queued-resources describe $name\`"
      exit 1
      ;;
    ACTIVE)
      code=0
      { install_on_every_host && train; } || code=$?
      case $code in
        0)
          say "trained: $workdir/export"
          give_it_back
          exit
          ;;
        2) exit 2 ;;
        "$STOPPED") ;; # the TPU is being taken away
        *)
          # Where it was taken away without a word, the state says so in a moment.
          sleep "$POLL_SECONDS"
          [[ $(state) == ACTIVE ]] || continue
          failures=$((failures + 1))
          if ((failures == MOST_FAILURES)); then
            say "error: failed $failures times, the last time with code $code; $name stays for inspection"
            exit 1
          fi
          ;;
      esac
      sleep "$POLL_SECONDS"
      ;;
    *) sleep "$POLL_SECONDS" ;; # in the queue, or on its way in or out
  esac
done
