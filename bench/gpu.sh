#!/bin/sh
# On a machine with a GPU and no network, in three parts of ten minutes at most:
#   1  the parity tests of the runtime; the embedded training run in float32 and in
#      bfloat16
#   2  decoding, scoring and training steps of a model of the shape of Qwen2.5-1.5B
#      with random weights in bfloat16, and PyTorch's figures for the same
#   3  the same for 7B, with what AdamW needs on the host; a whole round of 1.5B
# Each command is killed at its time.
#
# Prints one JSON object: of each command "ok", whether it passed; "seconds", all that
# it took; "gpu_mib", the most memory in use on the GPU by nvidia-smi, whoever used
# it; "result", what it printed. One that cannot be tried is "skipped" with the
# reason, and "ok" is null. "copy_bytes_per_second" is the best of the copies within
# the GPU that were timed before and after each decoding, and "shares" how much of
# that the median steps reach, by the bytes of weights and cache that they cannot but
# read. Logs go to OUT: a benchmark logs each figure as it is there, so they have those
# of a command that was stopped, too.
#
# A part that is started again leaves out what has passed; remove OUT/entries to
# measure anew. What is printed has all that is in OUT, of whatever part.
#
# Usage: bench/gpu.sh [OUT] [PART...]     run from the repository's root; without
#                                         PART all three
#   DEVICE=cuda:0      what to run on; DEVICE=cpu tries the script itself, on tiny
#                      shapes and in float16
#   ONERING=PATH       an onering that is built; else it is built, with Go
#   RUNTIME_TEST=PATH  the tests, built with
#                      go test -c -tags=cuda -o PATH ./runtime
#                      else they are built, with Go
#   ONNXRUNTIME_LIB    ONNX Runtime's CUDA build, libonnxruntime.so.* or its folder,
#                      where it is not found by itself; beside it must lie
#                      libonnxruntime_providers_cuda.so and _shared.so. CUDA 13 and
#                      cuDNN 9 are found where the loader, LD_LIBRARY_PATH or pip's
#                      nvidia packages of python3 have them
#   PYTHON=python3     one with torch and transformers, for PyTorch's figures
#   SMALL, LARGE       folders beside this script with the config.json of the shapes
#   DTYPE=bfloat16     what to compute in
set -u
out=${1:-runs/out/gpu}
[ $# -gt 0 ] && shift
device=${DEVICE:-cuda:0}
python=${PYTHON:-python3}
case $device in
cpu) small=${SMALL:-tiny} large=${LARGE:-tiny-untied} dtype=${DTYPE:-float16} tags= steps=4 repeat=1 ;;
*) small=${SMALL:-qwen2.5-1.5b} large=${LARGE:-qwen2.5-7b} dtype=${DTYPE:-bfloat16} tags=cuda steps=32 repeat=3 ;;
esac
case $device in
cuda:*) gpu=${device#cuda:} ;;
*) gpu=0 ;;
esac
mkdir -p "$out/entries" || exit 1
out=$(cd "$out" && pwd)
# path PATH makes it one that holds from any folder.
path() { case $1 in /* | "") echo "$1" ;; *) echo "$PWD/$1" ;; esac; }
onering=$(path "${ONERING:-$out/onering}")
tests=$(path "${RUNTIME_TEST:-$out/runtime.test}")
if [ -n "${ONNXRUNTIME_LIB:-}" ]; then
	ONNXRUNTIME_LIB=$(path "$ONNXRUNTIME_LIB")
	export ONNXRUNTIME_LIB
fi
export ONERING_OFFLINE=1

# Sampling is what the GPU holds, in MiB, a line each time.
sampling() {
	while :; do
		nvidia-smi -i "$gpu" --query-gpu=memory.used --format=csv,noheader,nounits
		sleep 0.2
	done
}

# entry NAME OK REST adds a command to the result.
entry() {
	printf '  "%s": {"ok": %s, %s}' "$1" "$2" "$3" >"$out/entries/$1"
	echo "$1: ok $2" >&2
}

# part NAME SECONDS COMMAND... runs a command that prints JSON or nothing, unless it has
# passed before.
part() {
	name=$1 limit=$2 watch=
	shift 2
	grep -q '"ok": true' "$out/entries/$name" 2>/dev/null && return
	if command -v nvidia-smi >/dev/null; then
		sampling >"$out/$name.mib" 2>/dev/null &
		watch=$!
	fi
	start=$(date +%s)
	timeout -s KILL "$limit" "$@" >"$out/$name.out" 2>"$out/$name.log"
	code=$?
	rest=$(printf '"exit": %d, "seconds": %d' $code $(($(date +%s) - start)))
	if [ -n "$watch" ]; then
		kill "$watch"
		wait "$watch" 2>/dev/null
		mib=$(grep -x '[0-9]*' "$out/$name.mib" | sort -n | tail -n 1)
		rest="$rest${mib:+, \"gpu_mib\": $mib}"
	fi
	ok=true
	if [ $code != 0 ]; then
		ok=false
		why="killed after $limit s"
		[ $code = 137 ] || why=$(tail -n 1 "$out/$name.log" | LC_ALL=C tr -cd ' -~' | cut -c 1-500 | sed 's/[\\"]/\\&/g')
		rest="$rest, \"error\": \"$why\""
	fi
	result=$(grep '^{' "$out/$name.out" | tail -n 1)
	entry "$name" $ok "$rest, \"result\": ${result:-null}"
}

# The tests on the device. One that is skipped, or skips a device, is no parity (a
# case may be: one model has no numbers for weight decay). Those that compile a
# library to stand for CUDA's need Go and no GPU.
parity() {
	(cd runtime && "$tests" -test.v -test.run 'Golden|Kernel|Attend|Choose|Invariant|Repeat|Half|Offload|LossScale|Adapter|CUDA' -test.skip 'CUDA(Driver|Report|Memory)|PipCUDA') >"$out/parity.tests" 2>&1
	code=$?
	cat "$out/parity.tests" >&2
	grep -E '^( {4})?--- (FAIL|SKIP)|^panic' "$out/parity.tests" >&2
	passed=$(grep -c '^ *--- PASS' "$out/parity.tests")
	failed=$(grep -c '^ *--- FAIL' "$out/parity.tests")
	skipped=$(grep -cE '^( {4})?--- SKIP' "$out/parity.tests")
	printf '{"passed": %d, "failed": %d, "skipped": %d}\n' "$passed" "$failed" "$skipped"
	[ $code = 0 ] && [ "$passed" -gt 0 ] && [ "$skipped" = 0 ]
}

case ${1:-} in
parity)
	parity
	exit
	;;
esac

if [ -z "${ONERING:-}" ]; then
	go build -o "$onering" ./cmd/onering || exit 1
fi
if [ -z "${RUNTIME_TEST:-}" ]; then
	go test -c ${tags:+-tags=$tags} -o "$tests" ./runtime || exit 1
fi

# bench NAME SECONDS SHAPE FLAGS...
bench() {
	name=$1 limit=$2 shape=$3
	shift 3
	part "$name-$shape" "$limit" "$onering" bench --device "$device" --dtype "$dtype" --config "bench/$shape/config.json" "$@"
}

# lacking NAME MODULES... enters that a command is skipped where Python lacks modules.
lacking() {
	name=$1
	shift
	# find_spec looks without importing, which takes long.
	why=$("$python" -c 'import sys
from importlib.util import find_spec
print(*["no " + m for m in sys.argv[1:] if not find_spec(m)], sep=", ")' "$@" 2>/dev/null) || why="no such program"
	[ -n "$why" ] && entry "$name" null "\"skipped\": \"$python: $why\""
}

# pytorch SECONDS SHAPE FLAGS...
pytorch() {
	limit=$1 shape=$2
	shift 2
	lacking "pytorch-$shape" torch transformers && return
	part "pytorch-$shape" "$limit" "$python" bench/compare_gpu.py --device "$device" --dtype "$dtype" --config "bench/$shape/config.json" "$@"
}

# training DTYPE SECONDS
training() {
	part "training-$1" "$2" "$onering" train --set runtime.device="\"$device\"" --set model.dtype="\"$1\"" --set train.rounds=6 --out "$out/run-$1-$(date +%s)" --json --quiet
}

# copying NAME times copies of 1 GiB within the GPU, or on a CPU of 64 MiB.
copying() {
	lacking "copy-$1" torch && return
	part "copy-$1" 30 "$python" -c '
import json, sys, time, torch
device = sys.argv[1]
a = torch.empty((64 if device == "cpu" else 1024) << 20, dtype=torch.uint8, device=device)
b, best, wait = torch.empty_like(a), 0, torch.cuda.synchronize if device != "cpu" else lambda: None
for _ in range(6):
    wait()
    began = time.perf_counter()
    for _ in range(8): b.copy_(a)
    wait()
    best = max(best, 16 * a.numel() / (time.perf_counter() - began))
print(json.dumps({"copy_bytes_per_second": best}))' "$device"
}

# decoding SECONDS SHAPE ROWS: steps at three contexts, between two copies.
decoding() {
	seconds=$1 of=$2 rows=$3
	set --
	for context in $contexts; do
		for r in $(echo "$rows" | tr , ' '); do set -- "$@" --contexts "${context}x$r"; done
	done
	copying "before-$of"
	bench decode "$seconds" "$of" --part decode --batch "$rows" --context 256 --steps $steps "$@"
	copying "after-$of"
}

case $device in
cpu) few=1,2 many=1,2 contexts="300 500" round="--prompts 2 --samples 2 --length 20 --slots 4" ;;
*) few=1,16,64 many=1,16,64,256 contexts="1024 3000" round="--prompts 64 --samples 8 --slots 256" ;;
esac
for which in "${@:-1 2 3}"; do
	for n in $which; do
		case $n in
		1)
			part doctor 15 "$onering" doctor --json --device "$device"
			part parity 400 env DEVICE="$device" RUNTIME_TEST="$tests" sh "$0" "$out" parity
			training float32 60
			training "$dtype" 60
			;;
		2)
			decoding 240 "$small" $many
			bench step 60 "$small" --part score,step --rows 4 --tokens 1024 --repeat $repeat
			pytorch 200 "$small" --batch $few --context 256 --steps $steps --rows 4 --tokens 1024 --repeat $repeat --static
			;;
		3)
			decoding 120 "$large" $few
			bench step 160 "$large" --part score,step --offload all --rows 4 --tokens 1024 --repeat 1
			bench round 200 "$small" --round $round
			pytorch 60 "$large" --batch 64 --context 256 --steps $steps --rows 4 --tokens 1024 --repeat 1
			;;
		*)
			echo "bench/gpu.sh: part $n: must be 1, 2 or 3" >&2
			exit 2
			;;
		esac
	done
done

{
	printf '{\n  "device": "%s",\n  "dtype": "%s",\n  "date": "%s"' "$device" "$dtype" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
	for f in "$out"/entries/*; do
		printf ',\n'
		cat "$f"
	done
	printf '\n}\n'
} >"$out/result.json"
"$python" bench/gpu_shares.py "$out/result.json" || cat "$out/result.json"
! grep -q '"ok": false' "$out/result.json"
