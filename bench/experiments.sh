#!/bin/sh
# Remakes the tables of docs/experiments.md: 220 runs, about a quarter of an hour
# on two cores. Runs that are through are kept in runs/out/paper, so that a second
# call, or one after an interruption, does only what is left.
# Run from the repository's root.
set -eu
mkdir -p runs/out/paper
go build -o runs/out/paper/onering ./cmd/onering
for name in main ablations; do
	nice -n 10 runs/out/paper/onering sweep -j "${JOBS:-2}" --out "runs/out/paper/$name" \
		--update docs/experiments.md "runs/paper/sweep-$name.toml"
done
