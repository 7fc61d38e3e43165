#!/usr/bin/env python3
"""Compares onering with transformers on a real model: SmolLM2-135M-Instruct.

    python bench/compare_smollm2.py --onering ./onering --model smollm2 --texts texts.jsonl

Needs torch and transformers. --model is the folder that bench/smollm2.py makes;
--texts has {"text"} on each line. In float32 on the CPU it compares

  chat    the rendered prompts of 20 chats and their ids
  greedy  48 greedy tokens after each of them, token for token
  logp    the log-probs of these responses, of responses that onering sampled at
          temperature 1 and of the responses' tokens in reverse order, with
          transformers' of the same ids
  ids     the ids of the first 500 texts that the vocabulary can express, and the
          text of the ids

and prints one JSON object. Exits with 1 if greedy tokens or ids differ or a
log-prob differs by more than 1e-4.
"""
import argparse, json, subprocess, sys

import torch, transformers

QUESTIONS = [
    "What is the capital of France?", "Tom has three apples and buys twenty-four more. How many apples does he have?", "Name three colours of the rainbow.",
    "Write a haiku about the sea.", "Why is the sky blue?", "Translate 'good morning' into Spanish.", "What is 17 + 25?", "Who wrote Romeo and Juliet?",
    "List the planets of the solar system.", "Explain photosynthesis to a child.", "Write a Python function that reverses a string.",
    "What is the boiling point of water in °C?", "Give me a recipe for pancakes.", "How many legs do two spiders have?", "Summarise: The cat sat on the mat. It slept all day.",
    "What does the word \"ubiquitous\" mean?", "Tell me a joke.", "日本の首都はどこですか?",
]
CHATS = [[{"role": "user", "content": q}] for q in QUESTIONS] + [
    [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "What is the opposite of hot?"}],
    [{"role": "user", "content": "I have a dog."}, {"role": "assistant", "content": "What is its name?"}, {"role": "user", "content": "Rex. What did I say that I have?"}],
]
TOKENS = 48


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def run(a, command, rows, *flags):
    text = "".join(json.dumps(r) + "\n" for r in rows)
    out = subprocess.run([a.onering, command, "--model", a.model, "-q", *(["--threads", str(a.threads)] if command != "tokenize" else []), *flags], input=text.encode(), stdout=subprocess.PIPE, check=command != "tokenize").stdout
    return [json.loads(line) for line in out.decode().split("\n") if line]


def log_probs(model, prompt, response):
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(response)[:, None])[:, 0].tolist()


def compare_ids(a, tokenizer):
    """The vocabulary lacks some control characters. onering refuses texts with them and transformers leaves them out,
    which its decoding shows; the 500 texts are others."""
    with open(a.texts, encoding="utf-8") as f:
        texts = list(dict.fromkeys(json.loads(line)["text"] for line in f))
    ids = [tokenizer(t, add_special_tokens=False).input_ids for t in texts]
    ours = run(a, "tokenize", [{"text": t} for t in texts])
    refused = [(t, i) for t, i, o in zip(texts, ids, ours, strict=True) if "error" in o]
    wrongly = [t for t, i in refused if tokenizer.decode(i, clean_up_tokenization_spaces=False) == t]
    rows = [(i, o["ids"]) for i, o in zip(ids, ours) if "error" not in o][:500]
    decoded = run(a, "tokenize", [{"ids": i} for i, _ in rows], "--decode")
    return {
        "texts": len(rows), "ids_equal": sum(i == o for i, o in rows),
        "decoded_equal": sum(d["text"] == tokenizer.decode(i, clean_up_tokenization_spaces=False) for d, (i, _) in zip(decoded, rows, strict=True)),
        "texts_refused": len(refused), "of_them_transformers_gives_back": len(wrongly),
    }


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", required=True, help="the onering program")
    p.add_argument("--model", required=True, help="the model's folder")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--texts", required=True, help="JSON lines with a text each")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(a.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).eval()

    rendered = [tokenizer.apply_chat_template(c, add_generation_prompt=True, tokenize=False) for c in CHATS]
    prompts = [tokenizer(t, add_special_tokens=False).input_ids for t in rendered]
    chats = run(a, "tokenize", [{"messages": c, "add_generation_prompt": True} for c in CHATS], "--chat")
    chat_equal = sum(o["text"] == t and o["ids"] == i for o, t, i in zip(chats, rendered, prompts, strict=True))

    greedy = run(a, "generate", [{"prompt_ids": i} for i in prompts], "--greedy", "--max-tokens", str(TOKENS))
    greedy_equal = 0
    for row, ids in zip(greedy, prompts, strict=True):
        theirs = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=TOKENS)[0, len(ids):].tolist()
        greedy_equal += row["ids"] == theirs
        say("greedy:", "equal" if row["ids"] == theirs else f"differs: onering {row['ids']}, transformers {theirs}")

    sampled = run(a, "generate", [{"prompt_ids": i} for i in prompts], "--seed", "1", "--max-tokens", str(TOKENS))
    pairs = [(i, r["ids"]) for rows in (greedy, sampled) for i, r in zip(prompts, rows)]
    pairs += [(i, r["ids"][::-1]) for i, r in zip(prompts, greedy)]
    scored = run(a, "score", [{"prompt_ids": i, "response_ids": r} for i, r in pairs])
    theirs = [log_probs(model, i, r) for i, r in pairs]
    differences = [abs(x - y) for o, t in zip(scored, theirs, strict=True) for x, y in zip(o["logp"], t, strict=True)]
    of_sampler = [abs(x - y) for o, t in zip(greedy + sampled, theirs) for x, y in zip(o["logp"], t, strict=True)]

    say("log-probs: largest difference", max(differences), "and of the sampler's", max(of_sampler))

    ids = compare_ids(a, tokenizer)
    json.dump({
        "chats": len(CHATS), "chats_equal": chat_equal, "greedy_equal": greedy_equal, "greedy_tokens": sum(len(r["ids"]) for r in greedy),
        "logp_tokens": len(differences), "logp_largest_difference": max(differences), "sampler_logp_largest_difference": max(of_sampler),
        **ids, "torch": torch.__version__, "transformers": transformers.__version__,
    }, sys.stdout, indent=1)
    print()
    fine = chat_equal == greedy_equal == len(CHATS) and ids["ids_equal"] == ids["decoded_equal"] == ids["texts"] == 500 and max(differences + of_sampler) <= 1e-4
    sys.exit(0 if fine else 1)


main()
