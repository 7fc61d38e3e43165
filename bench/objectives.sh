#!/bin/sh
# Makes the tables of docs/bench.md: for each task a tuning sweep of 66 or 88 runs and a
# comparison of 110. Runs that are through are kept in runs/out/bench.
# Run from the repository's root; arguments name tasks, and none means all three.
set -eu
out=runs/out/bench
mkdir -p $out
go build -o $out/onering ./cmd/onering
onering=$out/onering

# The model of the task long: the embedded one, with room for longer responses, learns
# to write scratch before it answers.
if [ ! -e $out/scratch ]; then
	rm -rf $out/base $out/first
	cp -r data/arithmetic/model $out/base
	sed 's/"max_position_embeddings": 64/"max_position_embeddings": 128/' data/arithmetic/model/config.json >$out/base/config.json
	$onering data arithmetic -n 16000 --guess 0.73 --slip 0.02 --seed 11 | python3 bench/scratch.py --seed 11 >$out/first.jsonl
	$onering data arithmetic -n 12000 --guess 0.45 --slip 0.02 --seed 12 | python3 bench/scratch.py --seed 12 >$out/second.jsonl
	$onering sft --model $out/base --data $out/first.jsonl --out $out/first --template no --lr 2e-3 --seed 11
	$onering sft --model $out/first --data $out/second.jsonl --out $out/scratch --template no --lr 2e-3 --seed 12
fi

for task in "${@:-on-policy off-policy long}"; do
	for one in $task; do
		nice -n 10 $onering sweep -j "${JOBS:-2}" --out "$out/tune-$one" --markdown "runs/bench/tune-$one.toml" >"$out/tune-$one.md"
		python3 bench/tuned.py "$one" <"$out/tune-$one.md"
		nice -n 10 $onering sweep -j "${JOBS:-2}" --out "$out/$one" --update docs/bench.md "runs/bench/sweep-$one.toml"
	done
done
