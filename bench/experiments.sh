#!/bin/sh
# Remakes the tables of runs/results/experiments.md: 485 runs of four seconds of one core
# each, and a warm start of a minute. Runs that are through are kept in
# runs/out/paper, so that a second call, or one after an interruption, does only
# what is left.
# Run from the repository's root.
set -eu
out=runs/out/paper
mkdir -p $out
go build -o $out/onering ./cmd/onering
onering=$out/onering

# The second warm start: the first stage of the embedded one's
# (data/arithmetic/remake.sh), from another seed.
if [ ! -e $out/warm-start ]; then
	embedded=data/arithmetic/model
	rm -rf $out/random
	$onering init --config $embedded/config.json --seed 1 --out $out/random --tokenizer $embedded
	$onering data arithmetic -n 64000 --guess 0.6 --slip 0.05 --seed 1 >$out/demonstrations.jsonl
	nice -n 10 $onering sft --model $out/random --data $out/demonstrations.jsonl --out $out/warm-start --template no --lr 3e-3 --seed 1
fi

for name in main ablations confirm warm printed rate rate-fresh; do
	nice -n 10 $onering sweep -j "${JOBS:-2}" --out "$out/$name" \
		--update runs/results/experiments.md "runs/paper/sweep-$name.toml"
done
