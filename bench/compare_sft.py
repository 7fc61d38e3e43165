#!/usr/bin/env python3
"""Compares `onering sft` with TRL's SFTTrainer and with a plain PyTorch loop.

    pip install torch transformers==5.23.0 trl==1.16.0
    python3 bench/compare_sft.py --onering ./onering --model DIR --data chats.jsonl

DIR is a model whose chat template has generation statements, so that all three take
the same tokens; rows are {"messages"}. Every step takes all rows, since the orders of
the rows differ. It prints the losses of each step, the largest differences, and how far
the weights are from those of the PyTorch loop after the last step.
"""
import argparse
import json
import subprocess
import tempfile

import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, SFTTrainer

BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.01, 1.0


def onering(args, rows, out):
    subprocess.run([args.onering, "sft", "--model", args.model, "--data", args.data, "--out", out, "--template", "chat", "-q",
                    "--epochs", str(args.steps), "--batch-size", str(rows), "--lr", str(args.lr), "--warmup", "0", "--floor", "0"], check=True)
    lines = [json.loads(l) for l in open(out + "/metrics.jsonl")]
    return [l for l in lines if l["kind"] == "step"]


def loop(args, rows):
    """Takes the steps in PyTorch: the mean cross entropy of the tokens in the masks."""
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    made = [tok.apply_chat_template(m, tokenize=True, return_dict=True, return_assistant_tokens_mask=True) for m in rows]
    width = max(len(x["input_ids"]) for x in made)
    ids, labels, attend = (torch.zeros(len(made), width, dtype=torch.long) for _ in range(3))
    labels -= 100
    for i, x in enumerate(made):
        n = len(x["input_ids"])
        ids[i, :n], attend[i, :n] = torch.tensor(x["input_ids"]), 1
        labels[i, :n] = torch.where(torch.tensor(x["assistant_masks"]) == 1, ids[i, :n], -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=BETAS, eps=EPS, weight_decay=DECAY)
    losses, norms = [], []
    for n in range(args.steps):
        optimizer.param_groups[0]["lr"] = args.lr * (1 - n / args.steps)
        logits = model(input_ids=ids, attention_mask=attend).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, norms, model


def trl(args, rows, out):
    config = SFTConfig(
        output_dir=out, per_device_train_batch_size=len(rows), num_train_epochs=args.steps, learning_rate=args.lr, lr_scheduler_type="linear",
        warmup_steps=0, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPS, weight_decay=DECAY, max_grad_norm=CLIP,
        assistant_only_loss=True, max_length=None, logging_steps=1, logging_first_step=True, report_to=[], use_cpu=not torch.cuda.is_available(),
        bf16=False, gradient_checkpointing=False, save_strategy="no", disable_tqdm=True, optim="adamw_torch")
    trainer = SFTTrainer(AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32), args=config,
                         train_dataset=Dataset.from_list([{"messages": m} for m in rows]), processing_class=AutoTokenizer.from_pretrained(args.model))
    trainer.train()
    return [x["loss"] for x in trainer.state.log_history if "loss" in x]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--onering", default="onering")
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--lr", type=float, default=1e-3)
    args = p.parse_args()
    rows = [json.loads(l)["messages"] for l in open(args.data)]
    with tempfile.TemporaryDirectory() as tmp:
        ours = onering(args, len(rows), tmp + "/ours")
        losses, norms, model = loop(args, rows)
        theirs = trl(args, rows, tmp + "/trl")
        tensors = load_file(tmp + "/ours/model.safetensors")
    print("step    onering         PyTorch         TRL       grad norm: onering  PyTorch")
    for i, x in enumerate(ours):
        print(f"{i + 1:4}  {x['loss']:.8f}  {losses[i]:.8f}  {theirs[i]:.8f}   {x['grad_norm']:.6f}  {norms[i]:.6f}")
    print(f"largest difference of a loss: {max(abs(x['loss'] - y) for x, y in zip(ours, losses)):.1e} to PyTorch, "
          f"{max(abs(x['loss'] - y) for x, y in zip(ours, theirs)):.1e} to TRL")
    print(f"largest relative difference of a gradient norm: {max(abs(x['grad_norm'] / y - 1) for x, y in zip(ours, norms)):.1e}")
    state = model.state_dict()
    worst = max((t.float() - state[n]).abs().max().item() for n, t in tensors.items())
    print(f"largest difference of a weight after the last step: {worst:.1e}")


if __name__ == "__main__":
    main()
