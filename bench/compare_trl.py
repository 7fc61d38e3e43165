#!/usr/bin/env python3
"""Puts a round of TRL's GRPOTrainer beside one of onering's.

    python bench/compare_trl.py --onering ./onering [--rounds 12] [--threads 2]

Needs torch, transformers, datasets and trl. A character model of 0.3M
parameters samples 8 prompts x 8 responses of 128 tokens and takes 8 optimizer
steps a round, on CPU, each side in a process of its own. Nothing that random
weights write is a right answer, so TRL's rewards are random numbers, and
onering, whose rewards are a verifier's, gets an entropy bonus: both run the
whole backward pass. Prints one JSON object: seconds to the end of the first
optimizer step, counted from the start of the process, and of the median round
after the first.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

PROMPTS, SAMPLES, TOKENS, STEPS = 8, 8, 128, 8
CHARACTERS = "0123456789+-=;cboxed{}\\"
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 112, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 320, "vocab_size": 32,
    "tie_word_embeddings": True, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "max_position_embeddings": 256, "initializer_range": 0.02, "eos_token_id": None, "bos_token_id": None,
    "pad_token_id": 0, "torch_dtype": "float32", "use_sliding_window": False,
}


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f)


def make_model(a, folder):
    config = os.path.join(folder, "config.json")
    write(config, CONFIG)
    model = os.path.join(folder, "model")
    subprocess.run([a.onering, "init", "--config", config, "--seed", "0", "--out", model], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    vocab = {"<pad>": 0, "<eos>": 1} | {c: i + 2 for i, c in enumerate(CHARACTERS)}
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    write(os.path.join(model, "tokenizer.json"), {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": c, **special} for i, c in enumerate(("<pad>", "<eos>"))],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": []},
    })
    # Without the name of an end token nothing ends a response; TRL needs one and is told not to sample it.
    write(os.path.join(model, "tokenizer_config.json"), {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"})
    return model


def problems(n):
    return [{"prompt": f"{100 + 7 * i % 900}+{100 + 11 * i % 900}=", "answer": "0"} for i in range(n)]


def trl_rounds(a):
    """Prints when steps ended, in seconds since the epoch."""
    import random
    import torch, transformers, datasets, trl
    torch.set_num_threads(a.threads)
    random.seed(0)
    ends = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.time())

    config = trl.GRPOConfig(
        output_dir=os.path.join(a.model, "trl"), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none",
        save_strategy="no", logging_steps=10**6, disable_tqdm=True, learning_rate=2e-4, lr_scheduler_type="constant",
        per_device_train_batch_size=PROMPTS * SAMPLES // STEPS, steps_per_generation=STEPS, num_generations=SAMPLES,
        max_completion_length=TOKENS, temperature=1.0, beta=0.0, loss_type="grpo", max_steps=a.rounds * STEPS, seed=0,
        generation_kwargs={"min_new_tokens": TOKENS},
    )
    trainer = trl.GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32), args=config,
        processing_class=transformers.AutoTokenizer.from_pretrained(a.model, eos_token="<eos>"), train_dataset=datasets.Dataset.from_list(problems(PROMPTS * a.rounds)),
        reward_funcs=lambda completions, **_: [random.random() for _ in completions], callbacks=[Clock()],
    )
    trainer.train()
    json.dump(ends, sys.stdout)


def of_trl(a, model):
    began = time.time()
    command = [sys.executable, os.path.abspath(__file__), "--model", model, "--rounds", str(a.rounds), "--threads", str(a.threads)]
    ends = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.splitlines()[-1])
    rounds = ends[STEPS - 1 :: STEPS]
    return {"first_step_seconds": ends[0] - began, "round_seconds": statistics.median(y - x for x, y in zip(rounds, rounds[1:]))}


def of_onering(a, model, folder):
    data, out = os.path.join(folder, "train.jsonl"), os.path.join(folder, "run")
    with open(data, "w") as f:
        f.writelines(json.dumps(p) + "\n" for p in problems(PROMPTS * a.rounds))
    settings = {
        "model.path": model, "data.train": data, "model.template": "no", "rollout.prompts_per_round": PROMPTS,
        "rollout.samples_per_prompt": SAMPLES, "rollout.max_new_tokens": TOKENS, "rollout.max_prompt_tokens": 16,
        "rollout.slots": PROMPTS * SAMPLES, "train.batch_size": PROMPTS * SAMPLES // STEPS, "train.rounds": a.rounds,
        "train.save_every": 0, "eval.suites": [], "objective.entropy_bonus": 0.001, "runtime.threads": a.threads, "optimizer.learning_rate": 2e-4,
    }
    command = [a.onering, "train", "--quiet", "--objective", "grpo", "--out", out]
    for key, value in settings.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    began = time.time()
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    metrics, first = os.path.join(out, "metrics.jsonl"), None
    while first is None and run.poll() is None:
        if os.path.exists(metrics) and os.path.getsize(metrics) > 0:
            first = time.time() - began
        time.sleep(0.002)
    if run.wait() != 0:
        sys.exit("onering failed")
    rounds = [r for r in map(json.loads, open(metrics)) if r["kind"] == "round"]
    for r in rounds:
        assert r["response_length/mean"] == TOKENS and r["grad_norm"] > 0, r
    spent = [sum(v for k, v in r.items() if k.startswith("seconds/")) for r in rounds]
    return {"first_step_seconds": first, "round_seconds": statistics.median(spent[1:])}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", help="the onering program")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--sides", default="onering,trl")
    p.add_argument("--model", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.model:
        return trl_rounds(a)
    if not a.onering:
        p.error("--onering is needed")
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(a, folder)
        sides = {"onering": lambda: of_onering(a, model, folder), "trl": lambda: of_trl(a, model)}
        result = {side: sides[side]() for side in a.sides.split(",")}
    if len(result) == 2:
        result["trl_over_onering"] = {k: result["trl"][k] / result["onering"][k] for k in result["onering"]}
    json.dump({"threads": a.threads, "rounds": a.rounds} | result, sys.stdout, indent=1)
    print()


main()
