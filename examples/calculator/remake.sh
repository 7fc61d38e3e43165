#!/usr/bin/env bash
# Remakes examples/calculator/model, in about two minutes on two cores: the embedded model
# learns from 32,000 demonstrations of a student who calls a calculator every second time, then
# from 16,000 of one who mostly guesses, sometimes shows the working and seldom calls.
# Run from the repository's root.
set -euo pipefail
model=examples/calculator/model
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/onering" ./cmd/onering
"$work/onering" data arithmetic -n 32000 --call 0.5 --guess 0.73 --slip 0.02 --seed 5 |
	"$work/onering" sft --model builtin:arithmetic --data - --out "$work/first" --lr 2e-3
"$work/onering" data arithmetic -n 16000 --call 0.12 --guess 0.73 --slip 0.02 --seed 6 |
	"$work/onering" sft --model "$work/first" --data - --out "$work/model" --lr 2e-3 --seed 7 --dtype float16
rm -rf "$model"
mkdir "$model"
cp "$work"/model/*.json "$work"/model/*.safetensors "$model/"
