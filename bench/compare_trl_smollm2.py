#!/usr/bin/env python3
"""Puts a round of TRL's GRPOTrainer beside one of onering's on a real model.

    python bench/compare_trl_smollm2.py --onering ./onering --model smollm2 --data sums/train.jsonl [--rounds 3]

Needs torch, transformers, datasets and trl; --model is the folder that
bench/smollm2.py makes, --data the file that examples/sums/problems.py makes.
Both sides sample 8 prompts x 8 responses of at most 32 tokens at temperature
1 with the same system message, give 1 to a response whose last number is the
answer, and take 8 optimizer steps of GRPO a round, in float32 on the CPU, each
in a process of its own, one after the other. No text ends a response but the
end-of-sequence token, because TRL has no setting for more. Prints one JSON
object: the seconds of the median round after the first, the tokens that were
sampled and trained in a second of it, and the peak memory.
"""
import argparse, json, os, re, resource, statistics, subprocess, sys, tempfile, time

PROMPTS, SAMPLES, TOKENS, STEPS, RATE = 8, 8, 32, 8, 2e-5
SYSTEM = "You are a helpful assistant. Answer in one line with a calculation."


def reward(completions, answer, **_):
    numbers = [re.findall(r"\d+", c[0]["content"]) for c in completions]
    return [float(bool(n) and n[-1] == a) for n, a in zip(numbers, answer)]


def of_trl(a):
    """Runs in a process of its own and prints when each step ended and how long the responses were."""
    import datasets, torch, transformers, trl
    torch.set_num_threads(a.threads)
    ends, lengths = [], []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.time())

        def on_log(self, args, state, control, logs=None, **_):
            lengths.append(logs.get("completions/mean_length"))

    with open(a.data) as f:
        rows = [json.loads(line) for line in f][: PROMPTS * a.rounds]
    prompts = [{"prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": r["problem"]}], "answer": r["answer"]} for r in rows]
    config = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", save_strategy="no",
        logging_steps=STEPS, disable_tqdm=True, learning_rate=RATE, lr_scheduler_type="constant", per_device_train_batch_size=PROMPTS * SAMPLES // STEPS,
        steps_per_generation=STEPS, num_generations=SAMPLES, max_completion_length=TOKENS, temperature=1.0, top_p=1.0, top_k=0,
        beta=0.0, loss_type="grpo", max_steps=a.rounds * STEPS, seed=0,
    )
    trainer = trl.GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32), args=config, reward_funcs=reward,
        processing_class=transformers.AutoTokenizer.from_pretrained(a.model), train_dataset=datasets.Dataset.from_list(prompts), callbacks=[Clock()],
    )
    trainer.train()
    print(json.dumps({"ends": ends, "lengths": [x for x in lengths if x is not None], "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))


def trl_side(a):
    command = [sys.executable, os.path.abspath(__file__), "--worker", *sys.argv[1:]]
    r = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    rounds = r["ends"][STEPS - 1 :: STEPS]
    return result([y - x for x, y in zip(rounds, rounds[1:])], r["lengths"][1:], r["peak"])


def onering_side(a):
    out = os.path.join(tempfile.mkdtemp(), "run")
    settings = {
        "model.path": a.model, "model.template": "chat", "model.system": SYSTEM, "data.train": a.data,
        "reward.name": "regex", "reward.pattern": r"(\d+)", "reward.search": True, "reward.compare": True,
        "rollout.prompts_per_round": PROMPTS, "rollout.samples_per_prompt": SAMPLES, "rollout.max_new_tokens": TOKENS,
        "rollout.max_prompt_tokens": 80, "rollout.slots": PROMPTS * SAMPLES, "train.batch_size": PROMPTS * SAMPLES // STEPS, "train.rounds": a.rounds,
        "train.save_every": 0, "optimizer.learning_rate": RATE, "runtime.threads": a.threads,
    }
    command = [a.onering, "train", "--quiet", "--objective", "grpo", "--out", out]
    for key, value in settings.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode != 0:
        sys.exit("onering failed")
    with open(os.path.join(out, "metrics.jsonl")) as f:
        rounds = [r for r in map(json.loads, f) if r["kind"] == "round"][1:]
    spent = [sum(v for k, v in r.items() if k.startswith("seconds/")) for r in rounds]
    return result(spent, [r["response_length/mean"] for r in rounds], usage.ru_maxrss)


def result(spent, lengths, peak):
    rate = [n * PROMPTS * SAMPLES / s for n, s in zip(lengths, spent, strict=True)]
    return {"round_seconds": statistics.median(spent), "response_length": statistics.mean(lengths), "tokens_per_second": statistics.median(rate),
            "peak_memory_gb": peak * 1024 / 1e9}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", required=True, help="the onering program")
    p.add_argument("--model", required=True, help="the model's folder")
    p.add_argument("--data", required=True, help="problems and answers")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.worker:
        return of_trl(a)
    before = os.getloadavg()[0]
    ours = onering_side(a)
    theirs = trl_side(a)
    json.dump({"threads": a.threads, "rounds": a.rounds, "load_before": before, "load_after": os.getloadavg()[0], "onering": ours, "trl": theirs,
               "trl_over_onering": {k: theirs[k] / ours[k] for k in ours}}, sys.stdout, indent=1)
    print()


main()
