#!/bin/sh
# On a machine with a GPU, ONNX Runtime's CUDA build and CUDA's libraries at hand,
# and no network: the parity tests of the runtime, decoding and training steps of
# models of the shapes of Qwen2.5 1.5B and 7B with random weights, and the
# embedded training run. Each part is stopped at its time; all take at most nine
# minutes. Prints one JSON object, in which "ok" of a part says whether it
# passed; logs go to OUT.
#
# Usage: bench/gpu.sh [OUT]          run from the repository's root
#   DEVICE=cuda:0    what to run on; DEVICE=cpu tries the script itself
#   ONERING=PATH     an onering that is built; else it is built
#   ONNXRUNTIME_LIB  the library, where it is not found by itself
set -u
out=${1:-runs/out/gpu}
device=${DEVICE:-cuda:0}
mkdir -p "$out" || exit 1
onering=${ONERING:-$out/onering}
if [ -z "${ONERING:-}" ]; then
	go build -o "$onering" ./cmd/onering || exit 1
fi
tags=cuda
[ "$device" = cpu ] && tags=
export ONERING_OFFLINE=1

# part NAME SECONDS COMMAND... runs a command that prints JSON or nothing.
part() {
	name=$1 limit=$2
	shift 2
	start=$(date +%s)
	timeout "$limit" "$@" >"$out/$name.out" 2>"$out/$name.log"
	code=$?
	seconds=$(($(date +%s) - start))
	ok=false
	[ $code = 0 ] && ok=true
	result=$(grep '^{' "$out/$name.out" | tail -n 1)
	[ -s "$out/parts.json" ] && printf ',\n' >>"$out/parts.json"
	printf '  "%s": {"ok": %s, "exit": %d, "seconds": %d, "result": %s}' \
		"$name" $ok $code $seconds "${result:-null}" >>"$out/parts.json"
}

# The golden tests, on the device. A test that is skipped is no parity.
parity() {
	go test ${tags:+-tags=$tags} -count=1 -run 'Golden|Invariant|Crossing' -v ./runtime 2>&1 | tee "$out/parity.tests" >&2
	grep -q '^ok' "$out/parity.tests" || return 1
	passed=$(grep -c '^ *--- PASS' "$out/parity.tests")
	skipped=$(grep -c '^ *--- SKIP' "$out/parity.tests")
	printf '{"passed": %d, "skipped": %d}\n' "$passed" "$skipped"
	[ "$passed" -gt 0 ]
}

case ${2:-} in
parity)
	parity
	exit
	;;
esac

: >"$out/parts.json"
part doctor 30 "$onering" doctor --json --device "$device"
part parity 120 env DEVICE="$device" ONERING="$onering" sh "$0" "$out" parity
part decode-1.5b 60 "$onering" bench --device "$device" --config bench/qwen2.5-1.5b/config.json --part decode --batch 1,16,64 --context 256 --steps 16
part train-1.5b 90 "$onering" bench --device "$device" --config bench/qwen2.5-1.5b/config.json --part train --rows 4 --tokens 1024
part decode-7b 120 "$onering" bench --device "$device" --config bench/qwen2.5-7b/config.json --part decode --batch 16 --context 256 --steps 8
part training 100 "$onering" train --set runtime.device="\"$device\"" --set train.rounds=6 --out "$out/run-$(date +%s)" --json --quiet

printf '{\n  "device": "%s",\n  "date": "%s",\n' "$device" "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
cat "$out/parts.json"
printf '\n}\n'
! grep -q '"ok": false' "$out/parts.json"
