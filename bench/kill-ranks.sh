#!/usr/bin/env bash
# Kills one of four ranks of a training run on the embedded task at random instants,
# twenty times, resuming each time, and compares the end with a run that was not killed.
#
#   bench/kill-ranks.sh ONERING [FOLDER [TIMES]]
#
# Each kill must end all ranks within the timeout. Needs Open MPI and Linux.
set -euo pipefail
onering=$(realpath "$1")
folder=${2:-$(mktemp -d)}
times=${3:-20}
timeout=10 # distributed.timeout
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$folder"
settings=(--set train.rounds=8 --set train.save_steps=2 --set rollout.prompts_per_round=16 --set train.batch_size=32
	--set runtime.threads=1 --set "distributed.timeout=$timeout" --set eval.suites= --report=false --quiet --json)
train() { exec mpirun --oversubscribe --bind-to none -n 4 "$onering" train "$@" </dev/null; }
running() { [ -e "/proc/$1" ] && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; } # and no zombie

rm -rf "$folder/whole" "$folder/killed"
(train "${settings[@]}" --out "$folder/whole") >/dev/null 2>"$folder/whole.err"

ended=0 slowest=0
for i in $(seq "$times"); do
	if [ -d "$folder/killed/checkpoints" ]; then
		(train --resume --report=false --quiet --json --out "$folder/killed") >/dev/null 2>"$folder/$i.err" &
	else
		rm -rf "$folder/killed"
		(train "${settings[@]}" --out "$folder/killed") >/dev/null 2>"$folder/$i.err" &
	fi
	launcher=$!
	sleep "$((RANDOM % 3)).$((RANDOM % 10))"
	ranks=($(pgrep -P "$launcher" || true))
	if [ ${#ranks[@]} -eq 0 ]; then # the run is over: begin again
		wait "$launcher" || true
		echo "$i: the run was over"
		rm -rf "$folder/killed"
		continue
	fi
	victim=${ranks[$((RANDOM % ${#ranks[@]}))]}
	began=$(date +%s%N)
	kill -KILL "$victim" 2>/dev/null || true
	code=0
	wait "$launcher" || code=$?
	left=1
	while [ "$left" -gt 0 ] && [ $((($(date +%s%N) - began) / 1000000)) -lt $((timeout * 1000)) ]; do
		left=0
		for p in "${ranks[@]}"; do if running "$p"; then left=$((left + 1)); fi; done
	done
	took=$((($(date +%s%N) - began) / 1000000))
	echo "$i: killed one of ${#ranks[@]} ranks, ended with code $code after $took ms, $left processes left"
	if [ "$took" -lt $((timeout * 1000)) ] && [ "$left" -eq 0 ]; then ended=$((ended + 1)); fi
	if [ "$took" -gt "$slowest" ]; then slowest=$took; fi
done
if [ -d "$folder/killed/checkpoints" ]; then
	(train --resume --report=false --quiet --json --out "$folder/killed") >/dev/null 2>"$folder/end.err"
fi
echo "$ended of $times ended within ${timeout} s, the slowest after $slowest ms"
last=$(ls "$folder/whole/checkpoints" | tail -1)
cmp "$folder/whole/checkpoints/$last/model.safetensors" "$folder/killed/checkpoints/$last/model.safetensors"
echo "the resumed run ends with the same bytes at $last"
