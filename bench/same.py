#!/usr/bin/env python3
"""Says whether two builds of onering write the same bytes.

    go build -o /tmp/new ./cmd/onering
    git stash; go build -o /tmp/old ./cmd/onering; git stash pop
    python3 bench/same.py /tmp/old /tmp/new

Each build trains three rounds in several ways, supervised too, and exports the
graphs of a model. Every file is compared: weights, moments and graphs by their
bytes, metrics.jsonl without seconds, times and the machine's limits, state.json
without settings (a setting that one build lacks has its default). Files that tell
of the machine or the moment (log.txt, run.toml, report.html, .lock, SHA256SUMS)
are left out. Exit status 0: all the same. --skip NAME leaves one way out; a
change that is meant to alter filtered sampling skips "filtered".
"""
import argparse, json, pathlib, re, subprocess, sys, tempfile

SMALL = ["train", "--report=false", "-q", "--set", "train.rounds=3", "--set", "rollout.prompts_per_round=16", "--set", "train.batch_size=64", "--set", "train.save_steps=4", "--set", "train.keep_last=0"]
SET = lambda *pairs: [x for p in pairs for x in ("--set", p)]
WAYS = {
    "plain": SMALL,
    "default": ["train", "--report=false", "-q", "--set", "train.rounds=3"],
    "lora": SMALL + ["--lora"],
    "float16": SMALL + SET("model.dtype=float16"),
    "rescore": SMALL + SET("rollout.old_logp=rescore", "objective.kl_beta=0.01") + ["--objective=grpo"],
    "m2po": SMALL + ["--objective=m2po"],
    "remax": SMALL + ["--objective=remax"],
    "filtered": SMALL + SET("rollout.top_k=8", "rollout.top_p=0.9"),
    "min_p": SMALL + SET("rollout.min_p=0.1"),
    "sft": ["sft", "--report=false", "-q", "--model", "builtin:arithmetic", "--data", "DATA", "--batch-size", "16", "--save-steps", "4", "--keep-last", "0"],
    "sft-lora": ["sft", "--report=false", "-q", "--model", "builtin:arithmetic", "--data", "DATA", "--batch-size", "16", "--lora"],
    "graphs": ["export", "--model", "builtin:arithmetic"],
}
LEFT_OUT = {"log.txt", "run.toml", "report.html", ".lock", "SHA256SUMS", "written.json"}


def content(path):
    data = path.read_bytes()
    if path.name == "metrics.jsonl":
        lines = []
        for line in data.decode().splitlines():
            record = json.loads(line)
            lines.append({k: v for k, v in record.items() if not re.match(r"seconds|time$|limit/", k)})
        return json.dumps(lines)
    if path.name == "state.json":
        state = json.loads(data)
        for key in ("settings", "metrics_bytes", "alarms"):
            state.pop(key, None)
        return json.dumps(state, sort_keys=True)
    if path.name == "round.gob":
        return None  # holds metrics with their seconds
    return data


def files(folder):
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file() and p.name not in LEFT_OUT}


def compare(name, a, b):
    x, y = files(a), files(b)
    # A checkpoint that is due while the one before is still being written comes later.
    wrong = [f"{f} is only in one" for f in sorted(x.keys() ^ y.keys()) if not f.startswith("checkpoints/")]
    wrong += [f"{f} differs" for f in sorted(x.keys() & y.keys()) if content(x[f]) != content(y[f])]
    print(f"{name}: {len(x)} files" + ("" if not wrong else ": " + "; ".join(wrong[:5])))
    return not wrong and len(x) > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--skip", action="append", default=[], choices=WAYS)
    parser.add_argument("--only", action="append", choices=WAYS)
    args = parser.parse_args()
    fine = True
    with tempfile.TemporaryDirectory() as tmp:
        tmp = pathlib.Path(tmp)
        demonstrations = tmp / "data.jsonl"
        demonstrations.write_bytes(subprocess.run([args.old, "data", "arithmetic", "-n", "200"], check=True, capture_output=True).stdout)
        for name, command in WAYS.items():
            if name in args.skip or args.only and name not in args.only:
                continue
            folders = []
            for which, binary in (("old", args.old), ("new", args.new)):
                folder = tmp / name / which
                folders.append(folder)
                words = [str(demonstrations) if w == "DATA" else w for w in command]
                done = subprocess.run([binary, *words, "--out", str(folder)], capture_output=True, text=True)
                if done.returncode:
                    print(f"{name}: {binary} exits with {done.returncode}: {done.stderr.strip()[-500:]}")
                    fine = False
            fine = compare(name, *folders) and fine
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
