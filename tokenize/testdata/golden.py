#!/usr/bin/env python3
"""Writes the small tokenizers and their goldens beside this file.

    pip install tokenizers==0.23.3 jinja2
    python3 golden.py QWEN       # a folder with Qwen2's vocab.json and merges.txt

qwen/ has the first merges of Qwen2 and its pipeline; deepseek/ the same in the
layout of DeepSeek-R1-Distill-Qwen: BOS by a post-processor, merges as strings,
added tokens beyond ASCII, a template that drops the thinking of former turns.
golden.jsonl are what tokenizers and jinja2 make of texts, ids and messages.
"""
import json
import os
import random
import sys

import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
MERGES = 1500
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")

QWEN_CHAT = """\
{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nReason step by step; put the answer in \\\\boxed{}.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

DEEPSEEK_CHAT = """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}\
{% set ns = namespace(system='', first=true, tool=false) %}
{%- for message in messages %}
  {%- if message['role'] == 'system' %}
    {%- if ns.first %}{% set ns.system = message['content'] %}{% set ns.first = false %}
    {%- else %}{% set ns.system = ns.system + '\\n\\n' + message['content'] %}{% endif %}
  {%- endif %}
{%- endfor %}
{{- bos_token }}{{ ns.system }}
{%- for message in messages %}
  {%- if message['role'] == 'user' %}{% set ns.tool = false %}{{ '<｜User｜>' + message['content'] }}{% endif %}
  {%- if message['role'] == 'assistant' and message['content'] is not none and 'tool_calls' not in message %}
    {%- set content = message['content'] %}
    {%- if '</think>' in content %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
    {{- '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}
  {%- endif %}
  {%- if message['role'] == 'tool' %}{% set ns.tool = true %}{{ '<tool>' ~ message.content|trim ~ '</tool>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt and not ns.tool %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}
"""

QWEN_ADDED = [("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True), ("<tool_call>", False)]
DEEPSEEK_ADDED = [("<｜end▁of▁sentence｜>", True), ("<｜User｜>", False), ("<｜Assistant｜>", False),
                  ("<｜begin▁of▁sentence｜>", True), ("<think>", False), ("</think>", False)]

# Other ways to cut a text, over the same vocabulary.
LLAMA_PATTERN = PATTERN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def split(**pattern):
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def sequence(*stages):
    return {"type": "Sequence", "pretokenizers": list(stages)}


PIPELINES = {
    "gpt2": BYTE_LEVEL,
    "llama3": sequence(split(Regex=LLAMA_PATTERN), dict(BYTE_LEVEL, use_regex=False)),
    "deepseek-llm": sequence(split(Regex="[\r\n]"), split(Regex=r"\s?\p{L}+"), split(Regex=r"\s?\p{P}+"), split(Regex="[一-龥가-힣]+"),
                             {"type": "Digits", "individual_digits": True}, dict(BYTE_LEVEL, use_regex=False)),
    "strings": sequence(split(String="ab"), {"type": "Digits", "individual_digits": False}, BYTE_LEVEL),
}


def write_tokenizer(source, name, added, chat, bos, eos, strings):
    vocab = json.load(open(os.path.join(source, "vocab.json"), encoding="utf-8"))
    lines = open(os.path.join(source, "merges.txt"), encoding="utf-8").read().split("\n")
    merges = [l.split(" ") for l in lines if l and not l.startswith("#version")][:MERGES]
    keep = {t: i for t, i in vocab.items() if i < 256 + MERGES}
    assert all("".join(m) in keep for m in merges)
    first = len(keep)
    post = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    if bos:
        special = {"SpecialToken": {"id": bos, "type_id": 0}}
        a = {"Sequence": {"id": "A", "type_id": 0}}
        post = {"type": "TemplateProcessing", "single": [special, a], "pair": [special, a, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {bos: {"id": bos, "ids": [first + [t for t, _ in added].index(bos)], "tokens": [bos]}}}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    model = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": first + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": s} for i, (t, s) in enumerate(added)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}, byte_level]},
        "post_processor": post, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": keep,
                  "merges": [" ".join(m) for m in merges] if strings else merges},
    }
    config = {"tokenizer_class": "LlamaTokenizerFast" if bos else "Qwen2Tokenizer", "eos_token": eos, "pad_token": eos}
    if bos:
        config.update(bos_token={"__type": "AddedToken", "content": bos}, eos_token={"__type": "AddedToken", "content": eos})
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(model, f, ensure_ascii=False)
    if strings:  # the newer place of a chat template
        with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
            f.write(chat)
    else:
        config["chat_template"] = chat
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, ensure_ascii=False, indent=1)
    return Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), bos


TEXTS = [
    "", " ", "\n", "a", "Hello, world!", "  two  spaces  ", "tab\tand\nnewline\r\n\r\n  x", "a\n \n b", " \n\n ", "x   ",
    "it's IT'S we'LL they'VE I'd 'ſ 'S 're'", "12345 3.14 ٣٤ Ⅷ ½ ²", "$\\frac{1}{2}+\\sqrt{x^2}$ so \\boxed{42}.", "foo(bar)[0] += 1; // comment",
    "naïve café cafe\u0301 A\u030a \u212b \ufb01", "한국어 한국어 각", "हिन्दी क\u093c का", "ภาษาไทยที่", "日本語テスト、。か\u3099",
    "中文数学：求 $x$ 的值。", "🙂👩‍👩‍👧🇫🇷", "\u0000\u0007\u001c\u200b\ufeff\u180e\u00a0\u0085\u2028\u3000x", "a\u0301\u0328 a\u0328\u0301 q\u0307\u0323",
    "a\U0001e4ef\u0301 \U00011935\U00011930 e\u1dfa\u0301 \u0c15\u0c3c\u0c4d",  # marks that old NFC data lack
    "e" + "\u0301\u0323" * 20,  # more marks than the stream-safe format allows
    "\U000105c9\U00016d40\U0001e5d0\U0001ccf0 \ua7cb",  # letters and a digit of Unicode 16
    "<|im_start|>user\nhi<|im_end|>", "x<tool_call>y</tool_call>", "<|im_start", "<｜User｜>hi<｜Assistant｜><think>\nhm</think>", "<|im_end|><|endoftext|>",
    "word" * 200, "ab" * 30, "=" * 100, " " * 50 + "x", "\n" * 20, "'" * 7,
]

CONVERSATIONS = [
    [("user", "What is 2+2?")],
    [("system", "Be brief."), ("user", "Hi\n")],
    [("system", "A"), ("user", "B"), ("assistant", "<think>\nlong\n</think>\n\nC"), ("user", "D é 中")],
    [("user", "q"), ("assistant", "a"), ("tool", " 1 "), ("tool", "2"), ("user", "<b> & 'x' \"y\" \\n {{ z }}")],
    [("user", "a"), ("system", "late"), ("assistant", "")],
]


def main(source):
    rng = random.Random(20)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    made = {
        "qwen": write_tokenizer(source, "qwen", QWEN_ADDED, QWEN_CHAT, None, "<|endoftext|>", False) + (QWEN_CHAT,),
        "deepseek": write_tokenizer(source, "deepseek", DEEPSEEK_ADDED, DEEPSEEK_CHAT, "<｜begin▁of▁sentence｜>",
                                    "<｜end▁of▁sentence｜>", True) + (DEEPSEEK_CHAT,),
    }
    texts = TEXTS + ["".join(rng.choice(TEXTS)[-12:] for _ in range(4)) for _ in range(40)]
    with open(os.path.join(HERE, "golden.jsonl"), "w", encoding="utf-8") as out:
        def put(**record):
            out.write(json.dumps(record) + "\n")
        base = json.load(open(os.path.join(HERE, "qwen", "tokenizer.json"), encoding="utf-8"))
        for name, stage in PIPELINES.items():
            tok = Tokenizer.from_str(json.dumps(dict(base, pre_tokenizer=stage, normalizer={"type": "Sequence", "normalizers": []})))
            put(tokenizer=name, kind="pipeline", stage=stage, texts=TEXTS, all_ids=[tok.encode(t).ids for t in TEXTS])
        for name, (tok, bos, chat) in made.items():
            def decoded(ids):
                return dict(decoded=tok.decode(ids, skip_special_tokens=False), skipped=tok.decode(ids, skip_special_tokens=True))
            for text in texts:
                ids = tok.encode(text).ids
                put(tokenizer=name, kind="encode", text=text, ids=ids, **decoded(ids))
            size = tok.get_vocab_size()
            for n in range(60):
                ids = [rng.randrange(256) if rng.random() < .7 else rng.randrange(size + 20) for _ in range(n % 12)]
                put(tokenizer=name, kind="decode", ids=ids, **decoded(ids))
            for turns in CONVERSATIONS:
                for prompt in (False, True):
                    messages = [dict(role=r, content=c) for r, c in turns]
                    text = env.from_string(chat).render(messages=messages, add_generation_prompt=prompt, tools=None, bos_token=bos or "")
                    put(tokenizer=name, kind="chat", messages=messages, prompt=prompt, text=text,
                        ids=tok.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    main(sys.argv[1])
