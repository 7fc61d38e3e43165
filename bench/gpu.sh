#!/bin/sh
# On a machine with a GPU and no network: the parity tests of the runtime;
# decoding, scoring and training steps of models of the shapes of Qwen2.5 1.5B and
# 7B with random weights in bfloat16, the larger with AdamW's moments on the host;
# the embedded training run in float32 and in bfloat16; and PyTorch's figures for
# the same shapes. Each part is killed at its time, and the times sum to 595 s.
#
# Prints one JSON object: of each part "ok", whether it passed; "seconds", all that
# it took; "gpu_mib", the most memory in use on the GPU by nvidia-smi, whoever used
# it; "result", what it printed. A part that cannot be tried is "skipped" with the
# reason, and "ok" is null. Logs go to OUT: a benchmark logs each figure as it is
# there, so they have those of a part that was stopped, too.
#
# Usage: bench/gpu.sh [OUT]          run from the repository's root
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
mkdir -p "$out" || exit 1
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

# entry NAME OK REST adds a part to the result.
entry() {
	[ -s "$out/parts.json" ] && printf ',\n' >>"$out/parts.json"
	printf '  "%s": {"ok": %s, %s}' "$1" "$2" "$3" >>"$out/parts.json"
	echo "$1: ok $2" >&2
}

# part NAME SECONDS COMMAND... runs a command that prints JSON or nothing.
part() {
	name=$1 limit=$2 watch=
	shift 2
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
	(cd runtime && "$tests" -test.v -test.run 'Golden|Invariant|Repeat|Half|Offload|LossScale|Adapter|CUDA' -test.skip 'CUDA(Driver|Report|Memory)|PipCUDA') >"$out/parity.tests" 2>&1
	code=$?
	cat "$out/parity.tests" >&2
	grep -E '^( {4})?--- (FAIL|SKIP)|^panic' "$out/parity.tests" >&2
	passed=$(grep -c '^ *--- PASS' "$out/parity.tests")
	failed=$(grep -c '^ *--- FAIL' "$out/parity.tests")
	skipped=$(grep -cE '^( {4})?--- SKIP' "$out/parity.tests")
	printf '{"passed": %d, "failed": %d, "skipped": %d}\n' "$passed" "$failed" "$skipped"
	[ $code = 0 ] && [ "$passed" -gt 0 ] && [ "$skipped" = 0 ]
}

case ${2:-} in
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
: >"$out/parts.json"

# bench NAME SECONDS SHAPE FLAGS...
bench() {
	name=$1 limit=$2 shape=$3
	shift 3
	part "$name-$shape" "$limit" "$onering" bench --device "$device" --dtype "$dtype" --config "bench/$shape/config.json" "$@"
}

# pytorch SECONDS SHAPE FLAGS...
pytorch() {
	limit=$1 shape=$2
	shift 2
	# find_spec looks without importing, which takes long.
	why=$("$python" -c 'from importlib.util import find_spec
print(*["no " + m for m in ("torch", "transformers") if not find_spec(m)], sep=", ")' 2>/dev/null) || why="no such program"
	if [ -n "$why" ]; then
		entry "pytorch-$shape" null "\"skipped\": \"$python: $why\""
		return
	fi
	part "pytorch-$shape" "$limit" "$python" bench/compare_gpu.py --device "$device" --dtype "$dtype" --config "bench/$shape/config.json" "$@"
}

# training DTYPE SECONDS
training() {
	part "training-$1" "$2" "$onering" train --set runtime.device="\"$device\"" --set model.dtype="\"$1\"" --set train.rounds=6 --out "$out/run-$1-$(date +%s)" --json --quiet
}

part doctor 15 "$onering" doctor --json --device "$device"
part parity 150 env DEVICE="$device" RUNTIME_TEST="$tests" sh "$0" "$out" parity
bench decode 40 "$small" --part decode --batch 1,16,64,256 --context 256 --steps $steps
bench step 50 "$small" --part score,step --rows 4 --tokens 1024 --repeat $repeat
pytorch 60 "$small" --batch 64 --context 256 --steps $steps --rows 4 --tokens 1024 --repeat $repeat
training float32 40
training "$dtype" 40
bench decode 45 "$large" --part decode --batch 16,64 --context 256 --steps $steps
bench step 110 "$large" --part score,step --offload --offload-weights --rows 4 --tokens 1024 --repeat 1
pytorch 45 "$large" --batch 64 --context 256 --steps $steps --rows 4 --tokens 1024 --repeat 1

printf '{\n  "device": "%s",\n  "dtype": "%s",\n  "date": "%s",\n' "$device" "$dtype" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
cat "$out/parts.json"
printf '\n}\n'
! grep -q '"ok": false' "$out/parts.json"
