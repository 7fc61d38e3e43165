#!/usr/bin/env python3
"""Puts a round of TRL's GRPOTrainer beside one of onering's at the shape of a real model.

    python bench/compare_trl_round.py --onering ./onering --tokenizer Qwen2.5-0.5B --problems gsm8k.jsonl [--pairs 3]

Needs torch, transformers, datasets and trl. --config is the shape, whose weights
are random; --tokenizer a folder with a tokenizer of that vocabulary, --problems
JSON lines with a problem each. Both sides sample --prompts x --samples responses
at temperature 1, all of --tokens tokens because nothing ends one, give each a
number that a hash of its text decides, so that every response has an advantage,
and take --steps optimizer steps of GRPO a round, on the CPU, in float32 or with
--dtype bfloat16, which is TRL's default, with weights of float32. Each
turn is a process of its own, the sides take turns, and every round has the same
prompts. TRL runs without a reference model, with fused AdamW, padding to the
longest, and without checkpointing unless --checkpointing asks for it;
--accumulate cuts its steps where memory is short. Prints one JSON object: by
side and turn the seconds of the last round, those of its phases, and the peak
memory, and the ratios.
"""
import argparse, json, os, subprocess, sys, tempfile, time, zlib

THIS = os.path.abspath(__file__)
SHAPE = os.path.join(os.path.dirname(THIS), "qwen2.5-0.5b", "config.json")


def score(text):
    return zlib.crc32(text.encode()) / 2**32


def grader():
    """Is the program behind onering's reward."""
    for line in sys.stdin:
        group = json.loads(line)
        print(json.dumps({"id": group["id"], "rewards": [score(r["text"]) for r in group["responses"]]}), flush=True)


def make_model(a, folder):
    with open(a.config) as f:
        config = json.load(f)
    config["eos_token_id"] = None  # nothing ends a response, and the tokenizer names no end token either
    shape, model = os.path.join(folder, "config.json"), os.path.join(folder, "model")
    with open(shape, "w") as f:
        json.dump(config, f)
    subprocess.run([a.onering, "init", "--config", shape, "--tokenizer", a.tokenizer, "--seed", "0", "--out", model], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    generation = os.path.join(model, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    names = os.path.join(model, "tokenizer_config.json")
    with open(names) as f:
        config = json.load(f)
    config.pop("eos_token", None)
    with open(names, "w") as f:
        json.dump(config, f)
    return model


def problems(a):
    with open(a.problems) as f:
        rows = [json.loads(line) for line, _ in zip(f, range(a.prompts))]
    texts = [r.get("problem") or r.get("question") for r in rows]
    if len(texts) < a.prompts or not all(texts):
        sys.exit(f"{a.problems}: want {a.prompts} lines with a problem or a question each")
    return texts


def of_trl(a):
    """Runs in a process of its own and prints the seconds of the last round."""
    import datasets, torch, transformers, trl
    torch.set_num_threads(a.threads)
    total, last = {}, {}
    began = time.perf_counter()

    def timed(phase, f):
        def g(*args, **kwargs):
            t = time.perf_counter()
            try:
                return f(*args, **kwargs)
            finally:
                total[phase] = total.get(phase, 0) + time.perf_counter() - t
        return g

    class Clock(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, *_, **__):
            self.began = time.perf_counter()

        def on_optimizer_step(self, *_, **__):
            total["optimizer"] = total.get("optimizer", 0) + time.perf_counter() - self.began

        def on_step_end(self, args, state, control, **_):
            nonlocal began, last
            if state.global_step % a.steps == 0:
                now = time.perf_counter()
                last = dict(total, round=now - began)
                print(json.dumps(last), file=sys.stderr)
                began = now
                total.clear()

    size = a.prompts * a.samples // a.steps
    config = trl.GRPOConfig(
        output_dir=os.path.join(a.worker, "trl"), use_cpu=True, bf16=a.dtype == "bfloat16", gradient_checkpointing=a.checkpointing, report_to="none", save_strategy="no",
        logging_steps=10**6, disable_tqdm=True, learning_rate=1e-6, lr_scheduler_type="constant", optim="adamw_torch_fused",
        per_device_train_batch_size=size // a.accumulate, gradient_accumulation_steps=a.accumulate, steps_per_generation=a.steps * a.accumulate,
        num_generations=a.samples, max_completion_length=a.tokens, temperature=1.0, top_p=1.0, top_k=0, beta=0.0, loss_type="grpo",
        max_steps=a.rounds * a.steps, seed=0, generation_kwargs={"min_new_tokens": a.tokens},
    )
    trainer = trl.GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(a.worker, dtype=torch.float32), args=config,
        processing_class=transformers.AutoTokenizer.from_pretrained(a.tokenizer), train_dataset=datasets.Dataset.from_list([{"prompt": p} for p in problems(a)]),
        reward_funcs=lambda completions, **_: [score(c) for c in completions], callbacks=[Clock()],
    )
    trainer._generate_and_score_completions = timed("rollout", trainer._generate_and_score_completions)
    trainer._get_per_token_logps_and_entropies = timed("log_probs", trainer._get_per_token_logps_and_entropies)
    trainer.accelerator.backward = timed("backward", trainer.accelerator.backward)
    trainer.train()
    # The log-probs of the old policy are part of TRL's rollout, those of the new one of its loss.
    print(json.dumps(last))


def run(command, **kwargs):
    """Returns what a process printed, and its peak memory in GB."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **kwargs) as p:
        out = p.stdout.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        sys.exit(f"{' '.join(command)}: failed with {p.returncode}")
    return out, usage.ru_maxrss * 1024 / 1e9


def trl_side(a, model, _):
    out, peak = run([sys.executable, THIS, *sys.argv[1:], "--worker", model])
    return dict(json.loads(out.splitlines()[-1]), peak_gb=peak)


def onering_side(a, model, folder):
    data = os.path.join(folder, "train.jsonl")
    with open(data, "w") as f:
        f.writelines(json.dumps({"prompt": p, "answer": "0"}) + "\n" for p in problems(a))
    out = tempfile.mkdtemp(dir=folder)
    settings = {
        "model.path": model, "model.dtype": a.dtype, "model.template": "no", "data.train": data, "reward.name": "command", "reward.command": [sys.executable, THIS, "--grader"],
        "rollout.prompts_per_round": a.prompts, "rollout.samples_per_prompt": a.samples, "rollout.max_new_tokens": a.tokens,
        "rollout.max_prompt_tokens": 1024, "rollout.slots": a.prompts * a.samples, "train.batch_size": a.prompts * a.samples // a.steps,
        "train.rounds": a.rounds, "train.shuffle": "prompts", "train.save_every": 0, "eval.suites": [], "optimizer.learning_rate": 1e-6, "runtime.threads": a.threads,
    }
    command = [a.onering, "train", "--quiet", "--objective", "grpo", "--out", os.path.join(out, "run")]
    for key, value in settings.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    _, peak = run(command)
    with open(os.path.join(out, "run", "metrics.jsonl")) as f:
        records = [json.loads(line) for line in f]
    rounds = [r for r in records if r["kind"] == "round"]
    assert len(rounds) == a.rounds and all(r["response_length/mean"] == a.tokens and r["grad_norm"] > 0 for r in rounds), "a response ended early, or nothing was learned"
    assert all(r.get("left_out", 0) == 0 for r in records if r["kind"] == "step"), "a response was not trained"
    phases = {k.removeprefix("seconds/"): v for k, v in rounds[-1].items() if k.startswith("seconds/")}
    return dict(phases, round=sum(phases.values()), peak_gb=peak)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", help="the onering program")
    p.add_argument("--config", default=SHAPE, help="config.json of the shape")
    p.add_argument("--tokenizer", help="folder with the tokenizer")
    p.add_argument("--problems", help="JSON lines with a problem each")
    p.add_argument("--pairs", type=int, default=3)
    p.add_argument("--rounds", type=int, default=2, help="rounds of a turn, of which the last counts")
    p.add_argument("--prompts", type=int, default=8)
    p.add_argument("--samples", type=int, default=4)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="type that both compute in")
    p.add_argument("--accumulate", type=int, default=1, help="parts that TRL cuts a step into")
    p.add_argument("--checkpointing", action="store_true", help="have TRL compute activations again")
    p.add_argument("--sides", default="onering,trl")
    p.add_argument("--dir", help="folder for the model and the runs (default the system's for temporary files)")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    p.add_argument("--grader", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.grader:
        return grader()
    if not a.onering or not a.tokenizer or not a.problems:
        p.error("--onering, --tokenizer and --problems are needed")
    if a.prompts * a.samples % (a.steps * a.accumulate):
        p.error(f"{a.prompts} x {a.samples} responses cannot be cut into {a.steps} steps of {a.accumulate} parts")
    if a.worker:
        return of_trl(a)
    turns = {side: [] for side in a.sides.split(",")}
    with tempfile.TemporaryDirectory(dir=a.dir) as folder:
        model = make_model(a, folder)
        for i in range(a.pairs):
            for side in list(turns)[:: 1 if i % 2 == 0 else -1]:
                turns[side].append({"onering": onering_side, "trl": trl_side}[side](a, model, folder))
                print(side, json.dumps(turns[side][-1]), file=sys.stderr)
    result = {k: getattr(a, k) for k in ("prompts", "samples", "tokens", "steps", "threads", "checkpointing", "accumulate", "dtype")}
    result |= {"load": os.getloadavg()[1], "turns": turns}
    if len(turns) == 2:
        pairs = list(zip(turns["onering"], turns["trl"]))
        result["trl_over_onering"] = [t["round"] / o["round"] for o, t in pairs]
        result["memory_onering_over_trl"] = [o["peak_gb"] / t["peak_gb"] for o, t in pairs]
    json.dump(result, sys.stdout, indent=1)
    print()


main()
