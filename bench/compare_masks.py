#!/usr/bin/env python3
"""Compares the tokens that `onering sft` learns with those of TRL's training templates.

    pip install torch transformers==5.23.0 trl==1.16.0
    python3 bench/compare_masks.py --onering ./onering --model DIR

DIR is a small model with a byte-level tokenizer; its copy gets each of TRL's chat
templates and the special tokens that they write. onering sees the original template,
transformers the one that TRL puts in its place for training. TRL learns a line break
before or after some turns; such tokens are counted apart.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile

import trl
from transformers import AutoTokenizer

TEMPLATES = ["qwen2_5", "qwen3", "qwen3_instruct_2507", "llama3", "phi3", "gemma"]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
           "<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<start_of_turn>", "<end_of_turn>"]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return dict({"role": "assistant", "content": text}, **more)


CONVERSATIONS = [
    [user("What is 2+2?"), assistant("It is 4.")],
    [user("Hi"), assistant("Hello!"), user("And then?"), assistant("Bye."), user("x"), assistant("xyx")],
    [user("q"), assistant("a", reasoning_content="long\nthoughts"), user("r"), assistant("b", reasoning_content="short")],
    [user("cafe\u0301 한국어"), assistant("naïve 中文🙂"), user("1"), assistant("1"), user("1"), assistant("1")],
]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--onering", default="onering")
    p.add_argument("--model", required=True)
    args = p.parse_args()
    folder = os.path.join(os.path.dirname(trl.__file__), "chat_templates")
    for name in TEMPLATES:
        with tempfile.TemporaryDirectory() as tmp:
            model = shutil.copytree(args.model, tmp + "/model")
            tok = AutoTokenizer.from_pretrained(model)
            tok.add_special_tokens({"additional_special_tokens": SPECIAL})
            tok.chat_template = open(f"{folder}/{name}.jinja").read()
            tok.save_pretrained(model)
            config = json.load(open(model + "/config.json"))
            data = tmp + "/data.jsonl"
            with open(data, "w") as f:
                f.writelines(json.dumps({"messages": m}) + "\n" for m in CONVERSATIONS)
            if len(tok) > config["vocab_size"]:  # weights are not looked at, so a new model of the size will do
                config["vocab_size"] = len(tok)
                shape = tmp + "/shape"
                os.makedirs(shape)
                json.dump(config, open(shape + "/config.json", "w"))
                tok.save_pretrained(shape)
                shutil.rmtree(model)
                subprocess.run([args.onering, "init", "--config", shape, "--out", model, "-q"], check=True, stdout=subprocess.DEVNULL)
            out = subprocess.run([args.onering, "sft", "--model", model, "--data", data, "--show", "9", "-q"], check=True, stdout=subprocess.PIPE, text=True)
            tokens = breaks = different = others = 0
            for line, messages in zip(out.stdout.splitlines(), CONVERSATIONS):
                ours = json.loads(line)
                made = tok.apply_chat_template(messages, chat_template=open(f"{folder}/{name}_training.jinja").read(), tokenize=True,
                                               return_dict=True, return_assistant_tokens_mask=True)
                others += list(made["input_ids"]) != ours["ids"]
                for i, mask, learn in zip(made["input_ids"], made["assistant_masks"], ours["learn"]):
                    tokens += 1
                    if bool(mask) != learn:
                        breaks += tok.decode([i]).strip("\n") == ""
                        different += tok.decode([i]).strip("\n") != ""
            print(f"{name:20} {tokens} tokens: {different} differ, {breaks} line breaks that only TRL learns, {others} conversations with other ids")


if __name__ == "__main__":
    main()
