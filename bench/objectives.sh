#!/bin/sh
# Makes the tables of runs/results/bench.md: for each task a tuning sweep, bench/tuned.py, and a
# comparison with each variant's best rate on other seeds. A task without a tuning sweep
# has its rates in the comparison. Runs that are through are kept in runs/out/bench, so
# that a second call does only what is left.
#
#   bench/objectives.sh [TASK...]     the tasks to run, by default all
#   bench/objectives.sh tables        puts the tables of what was run into runs/results/bench.md
#   bench/objectives.sh models        makes only what runs/bench/*.toml begin with
#
# Run it from the repository's root. From the environment it takes
#
#   JOBS      runs at a time, of one thread each (2)
#   ONERING   the program (built here if unset)
#   LIMIT     seconds after which it stops; give the same command again to go on
#   OUT       folder for small archives of the results (bench/pack.py), which are all
#             that `tables` needs: unpack them in the repository's root of any machine
set -eu
out=runs/out/bench
mkdir -p $out
began=$(date +%s)
onering=${ONERING:-$out/onering}
[ -n "${ONERING:-}" ] || go build -o $onering ./cmd/onering

# The model of the task long: the embedded one, with room for longer responses, learns
# to write scratch before it answers.
scratch() {
	rm -rf $out/base $out/first
	cp -r data/arithmetic/model $out/base
	sed 's/"max_position_embeddings": 64/"max_position_embeddings": 128/' data/arithmetic/model/config.json >$out/base/config.json
	$onering data arithmetic -n 16000 --guess 0.73 --slip 0.02 --seed 11 | python3 bench/scratch.py --seed 11 >$out/first.jsonl
	$onering data arithmetic -n 12000 --guess 0.45 --slip 0.02 --seed 12 | python3 bench/scratch.py --seed 12 >$out/second.jsonl
	$onering sft --model $out/base --data $out/first.jsonl --out $out/first --template no --lr 2e-3 --seed 11
	$onering sft --model $out/first --data $out/second.jsonl --out $out/scratch --template no --lr 2e-3 --seed 12
}

# The model of the task chain: a new one of the embedded model's size, which learns running
# totals from a student who mostly forgets to carry.
totals() {
	rm -rf $out/totals-files $out/totals-base $out/totals-sft
	python3 bench/chain.py $out/totals-files
	$onering init --config $out/totals-files --seed 1 --out $out/totals-base
	$onering sft --model $out/totals-base --data $out/totals-files/demonstrations.jsonl --out $out/totals-sft --template no --lr 2e-3 --held-out 0.02 --seed 1
	mkdir -p $out/totals
	cp $out/totals-sft/*.json $out/totals-sft/*.safetensors $out/totals
}

# The teacher of on-policy-more is a policy that off-policy.toml has trained.
teacher() {
	rm -rf $out/teacher $out/teacher-run
	$onering train --config runs/bench/off-policy.toml --objective vespo --set optimizer.learning_rate=2.5e-4 \
		--set train.seed=100 --set data.seed=100 --out $out/teacher-run
	cp -r $out/teacher-run/checkpoints/step-000096 $out/teacher
}

# sweep NAME FOLDER writes the table of runs/bench/NAME.toml to $out/FOLDER.md, with
# what failed in $out/FOLDER.log. It fails if the time is over before the last run.
sweep() {
	left=$((began + ${LIMIT:-1000000} - $(date +%s)))
	[ $left -gt 0 ] || return 1
	rm -f "$out/$2.md"
	nice -n 10 timeout -s INT -k 30 $left "$onering" sweep -j "${JOBS:-2}" --out "$out/$2" --markdown "runs/bench/$1.toml" >"$out/$2.new" 2>"$out/$2.log" || true
	[ -s "$out/$2.new" ] || { tail -n 3 "$out/$2.log"; return 1; } # runs that failed are rows of the table
	mv "$out/$2.new" "$out/$2.md"
	echo "$(($(date +%s) - began)) s: $2"
}

# tune TASK writes the comparison of a task that has a tuning sweep.
tune() {
	[ -e "runs/bench/tune-$1.toml" ] || return 0
	sweep "tune-$1" "tune-$1" && python3 bench/tuned.py "$1" <"$out/tune-$1.md"
}

if [ "${1:-}" = tables ]; then
	for file in runs/bench/sweep-*.toml; do
		task=$(basename "$file" .toml | sed 's/^sweep-//')
		[ ! -d "$out/$task" ] || "$onering" sweep -j "${JOBS:-2}" --out "$out/$task" --update runs/results/bench.md "$file"
	done
	exit
fi

[ -e $out/scratch/config.json ] || scratch
[ -e $out/teacher/config.json ] || teacher
case " $* " in *" models "* | *" chain"*) [ -e $out/totals/config.json ] || totals ;; esac
[ "${1:-}" != models ] || exit 0
[ $# -gt 0 ] || set -- long on-policy exponent off-policy off-policy-more on-policy-more long-more two-rewards
through=yes
for task in "$@"; do
	if ! tune "$task" || ! sweep "sweep-$task" "$task"; then
		through=no
		break
	fi
done
[ -z "${OUT:-}" ] || python3 bench/pack.py "$OUT"
[ $through = yes ] || { echo "objectives.sh: stopped before the end: give the same command again"; exit 3; }
