#!/usr/bin/env python3
"""Puts a run of two ranks beside two runs of one that each do half of it at the same time.

    python3 bench/ranks.py --onering ./onering --tokenizer SmolLM2-135M [--pairs 3]

Each rank has one thread and trains the shape of --config with random weights;
--tokenizer is a folder with a tokenizer; --vocab makes room for a larger one than the
shape's. All prompts and
responses have one length, and a hash of each response is its reward, so that the
halves are equal and nothing is left out. `--config embedded` trains the embedded
task instead, and needs no tokenizer. The sides take turns. --set passes settings to
both sides, --mpirun other words to start two ranks with. Before, `onering doctor
--mpi` measures how fast two ranks send. Needs Open MPI, nothing else may run.

Prints one JSON object. "overhead" is the seconds of the ranks over those of the slower
half, less 1; "beyond_bytes" leaves out the bytes of the reductions over the measured
bandwidth. "steps" is the same of the optimizer steps alone, without sampling.
"""
import argparse, json, os, subprocess, sys, tempfile, zlib

THIS = os.path.abspath(__file__)
SHAPE = os.path.join(os.path.dirname(THIS), "smollm2-135m", "config.json")


def grader():
    """Is the program behind the reward."""
    for line in sys.stdin:
        group = json.loads(line)
        rewards = [zlib.crc32(r["text"].encode()) / 2**32 for r in group["responses"]]
        print(json.dumps({"id": group["id"], "rewards": rewards}), flush=True)


def settings(a, folder):
    """Returns what both sides have, and the prompts and the batch of a half."""
    common = {"train.rounds": a.rounds, "train.save_every": 0, "eval.suites": [], "runtime.threads": 1, "rollout.invariant": a.invariant}
    if a.config == "embedded":
        return common | {"train.rounds": a.rounds}, 32, 32
    with open(a.config) as f:
        config = json.load(f)
    config["eos_token_id"] = None  # nothing ends a response
    config["vocab_size"] = max(config["vocab_size"], a.vocab)
    shape, model, data = (os.path.join(folder, x) for x in ("config.json", "model", "train.jsonl"))
    with open(shape, "w") as f:
        json.dump(config, f)
    with open(data, "w") as f:
        f.writelines(json.dumps({"prompt": f"Problem {i}: " + "what comes then? " * 12, "answer": "0"}) + "\n" for i in range(100, 100 + 2 * a.prompts))
    subprocess.run([a.onering, "init", "--config", shape, "--tokenizer", a.tokenizer, "--seed", "0", "--out", model], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    generation = os.path.join(model, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    return common | {
        "model.path": model, "model.template": "no", "data.train": data, "reward.name": "command", "reward.command": [sys.executable, THIS, "--grader"],
        "rollout.samples_per_prompt": a.samples, "rollout.max_new_tokens": a.tokens, "rollout.max_prompt_tokens": 256, "rollout.slots": a.prompts * a.samples,
        "train.shuffle": "prompts", "optimizer.learning_rate": 1e-6, "objective.name": "grpo",
    }, a.prompts, a.prompts * a.samples // a.steps


def start(a, common, prompts, batch, out, launcher=()):
    command = [*launcher, a.onering, "train", "--quiet", "--out", out]
    for key, value in (common | {"rollout.prompts_per_round": prompts, "train.batch_size": batch}).items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    for pair in a.set:
        command += ["--set", pair]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def seconds(out):
    """Returns the seconds of a run by phase, and what its steps say of the ranks."""
    with open(os.path.join(out, "metrics.jsonl")) as f:
        records = [json.loads(line) for line in f]
    rounds, steps = ([r for r in records if r["kind"] == kind] for kind in ("round", "step"))
    assert all(r["grad_norm"] > 0 and r.get("left_out", 0) == 0 for r in steps) or not os.path.exists(os.path.join(os.path.dirname(out), "model")), "a response was not trained"
    phases = {}
    for r in rounds:
        for key, value in r.items():
            if key.startswith("seconds/"):
                name = key.removeprefix("seconds/")
                phases[name] = phases.get(name, 0) + value
    whole = sum(phases.values())
    result = {"seconds": whole, "step_seconds": whole - phases.get("rollout", 0) - phases.get("other", 0), "steps": len(steps), "phases": phases}
    for key in ("ranks/sent_bytes", "ranks/predicted_bytes", "ranks/early_bytes"):
        if key in steps[0]:
            result[key.removeprefix("ranks/")] = sum(r[key] for r in steps)
    return result


def finish(processes):
    for p in processes:
        if p.wait() != 0:
            sys.exit(f"{' '.join(p.args)}: failed with {p.returncode}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", help="the onering program")
    p.add_argument("--config", default=SHAPE, help="config.json of the shape, or embedded")
    p.add_argument("--tokenizer", help="folder with the tokenizer")
    p.add_argument("--vocab", type=int, default=0, help="the least size of the vocabulary")
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--halves-first", type=int, default=0, choices=(0, 1))
    p.add_argument("--prompts", type=int, default=2, help="prompts of a half in a round")
    p.add_argument("--samples", type=int, default=4)
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--steps", type=int, default=1, help="optimizer steps of a round")
    p.add_argument("--invariant", action="store_true", help="rollout.invariant")
    p.add_argument("--set", action="append", default=[], help="a setting of both sides, KEY=VALUE")
    p.add_argument("--mpirun", default="mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2")
    p.add_argument("--dir", help="folder for the model and the runs (default the system's for temporary files)")
    p.add_argument("--grader", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.grader:
        return grader()
    if not a.onering or a.config != "embedded" and not a.tokenizer:
        p.error("--onering and --tokenizer are needed")
    a.onering, mpirun = os.path.abspath(a.onering), a.mpirun.split()
    doctor = subprocess.run([*mpirun, a.onering, "doctor", "--mpi", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    links = json.loads(doctor.stdout)["links"]
    bandwidth = min(l["ring_gigabytes_per_second"] for l in links) * 1e9
    pairs = []
    with tempfile.TemporaryDirectory(dir=a.dir) as folder:
        common, prompts, batch = settings(a, folder)
        for i in range(a.pairs):
            pair = {}
            for side in ("ranks", "halves")[:: 1 if i % 2 == a.halves_first else -1]:
                outs = [os.path.join(folder, f"{side}-{i}-{k}") for k in range(1 if side == "ranks" else 2)]
                if side == "ranks":
                    finish([start(a, common, 2 * prompts, 2 * batch, outs[0], mpirun)])
                else:
                    finish([start(a, common, prompts, batch, out) for out in outs])
                pair[side] = [seconds(out) for out in outs]
            ranks, halves = pair["ranks"][0], pair["halves"]
            assert all(h["steps"] == ranks["steps"] for h in halves)
            assert ranks["sent_bytes"] == ranks["predicted_bytes"]
            bytes_seconds = ranks["sent_bytes"] / bandwidth
            pair["bytes_seconds"] = bytes_seconds
            for name, key in (("all", "seconds"), ("steps", "step_seconds")):
                slower = max(h[key] for h in halves)
                pair[name] = {"overhead": ranks[key] / slower - 1, "beyond_bytes": (ranks[key] - bytes_seconds) / slower - 1}
            pairs.append(pair)
            print(json.dumps(pair), file=sys.stderr)
    json.dump({"arguments": {k: v for k, v in vars(a).items() if k in ("config", "vocab", "rounds", "prompts", "samples", "tokens", "steps", "set")}, "links": links, "load": os.getloadavg()[0], "pairs": pairs}, sys.stdout, indent=1)
    print()


main()
