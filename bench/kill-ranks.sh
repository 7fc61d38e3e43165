#!/usr/bin/env bash
# Kills one of four ranks of a training run on the embedded task at random instants,
# twenty times, resuming each time. Whenever the run comes to its end it must end with
# the bits of one that was not killed; then it begins again.
#
#   bench/kill-ranks.sh ONERING [FOLDER [TIMES [SIGNAL]]]
#
# A rank that is killed must end all ranks within the timeout of ten seconds. With SIGNAL
# = STOP the heartbeat has to find it, and a rank that is stopped while MPI starts is
# found after 15 seconds: 30 seconds. Exits with 1 if one took longer, or if an end differs.
# Needs Open MPI and Linux.
set -euo pipefail
onering=$(realpath "$1")
folder=${2:-$(mktemp -d)}
times=${3:-20}
signal=${4:-KILL}
timeout=10 # distributed.timeout
within=$((timeout * 1000))
[ "$signal" = KILL ] || within=30000
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$folder"
settings=(--set train.rounds=8 --set train.save_steps=2 --set rollout.prompts_per_round=16 --set train.batch_size=32
	--set runtime.threads=1 --set "distributed.timeout=$timeout" --set eval.suites= --report=false --quiet --json)
train() { exec mpirun --oversubscribe --bind-to none -n 4 "$onering" train "$@" </dev/null; }
now() { echo $(($(date +%s%N) / 1000000)); }
running() { [ -e "/proc/$1" ] && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; } # and no zombie

rm -rf "$folder/whole" "$folder/killed"
began=$(now)
(train "${settings[@]}" --out "$folder/whole") >/dev/null 2>"$folder/whole.err"
span=$(($(now) - began)) # within which a run is killed
last=$(ls "$folder/whole/checkpoints" | tail -1)

start() { # begins the run, or resumes it, in the background
	if [ -d "$folder/killed/checkpoints" ]; then
		(train --resume --report=false --quiet --json --out "$folder/killed") >/dev/null 2>"$folder/$1.err" &
	else
		rm -rf "$folder/killed"
		(train "${settings[@]}" --out "$folder/killed") >/dev/null 2>"$folder/$1.err" &
	fi
	launcher=$!
}
compare() { # the end of a run that was killed and resumed
	if ! cmp "$folder/whole/checkpoints/$last/model.safetensors" "$folder/killed/checkpoints/$last/model.safetensors"; then
		echo "a resumed run ends with other bits"
		exit 1
	fi
	whole=$((whole + 1))
	rm -rf "$folder/killed"
}

killed=0 ended=0 slowest=0 whole=0
while [ "$killed" -lt "$times" ]; do
	start $((killed + 1))
	instant=$((RANDOM % span))
	for ((began = $(now); $(now) - began < instant; )); do
		running "$launcher" || break
		sleep 0.02
	done
	ranks=($(pgrep -P "$launcher" -x "$(basename "$onering")" || true))
	if [ ${#ranks[@]} -lt 4 ]; then # they are not all there yet, or no longer
		wait "$launcher"
		compare
		continue
	fi
	victim=${ranks[$((RANDOM % 4))]}
	began=$(now)
	kill -"$signal" "$victim" 2>/dev/null || true
	killed=$((killed + 1))
	code=0
	wait "$launcher" || code=$?
	left=1
	while [ "$left" -gt 0 ] && [ $(($(now) - began)) -lt "$within" ]; do
		left=0
		for p in "${ranks[@]}"; do if running "$p"; then left=$((left + 1)); fi; done
	done
	took=$(($(now) - began))
	echo "$killed: after $instant ms $signal to one of 4 ranks, ended with code $code after $took ms, $left processes left"
	if [ "$took" -lt "$within" ] && [ "$left" -eq 0 ]; then ended=$((ended + 1)); fi
	if [ "$took" -gt "$slowest" ]; then slowest=$took; fi
done
if [ -d "$folder/killed/checkpoints" ]; then
	start end
	wait "$launcher"
	compare
fi
echo "$ended of $times ended within $within ms, the slowest after $slowest ms; $whole resumed runs ended with the same bits at $last"
[ "$ended" -eq "$times" ]
