#!/usr/bin/env python3
"""Writes turns.jsonl: which tokens of conversations an assistant has written.

    pip install transformers==5.23.0
    python3 turns.py

The ids and masks are those of apply_chat_template(return_assistant_tokens_mask=True)
with the tokenizer in qwen/ and a few more special tokens. Each template has
generation statements. With "strip" it is also kept without them, to find the same
tokens from what it writes; "plain" is another template for that, which writes earlier
turns anew, where the one with the statements does not.
"""
import json
import os
import re

from transformers import PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
ADDED = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>"]

CHATML = """\
{%- if tools %}{{- '<|im_start|>system\\n' + tools | tojson + '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
  {%- if m.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n' }}
    {%- generation %}
    {{- m.content or '' }}
    {%- for call in m.tool_calls or [] %}{{- '\\n<tool_call>' + call.function | tojson + '</tool_call>' }}{%- endfor %}
    {{- '<|im_end|>' }}
    {%- endgeneration %}
    {{- '\\n' }}
  {%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

LLAMA3 = """\
{%- for m in messages %}
  {%- if loop.first %}{{- bos_token }}{%- endif %}
  {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
  {%- if m.role == 'assistant' %}{%- generation %}{{- (m.content or '') | trim + '<|eot_id|>' }}{%- endgeneration %}
  {%- else %}{{- m.content | trim + '<|eot_id|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

LLAMA2 = """\
{%- for m in messages %}
  {%- if m.role == 'assistant' %}{%- generation %}{{- ' ' + (m.content or '') | trim + ' ' + '</s>' }}{%- endgeneration %}
  {%- else %}{{- '<s>[INST] ' + m.content | trim + ' [/INST]' }}{%- endif %}
{%- endfor %}"""

HEADER = """\
{%- for m in messages %}
  {%- if m.role == 'assistant' %}{%- generation %}{{- '<|im_start|>assistant\\n' + (m.content or '') + '<|im_end|>\\n' }}{%- endgeneration %}
  {%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

CLOSING = CHATML.replace("{%- if add_generation_prompt %}", "{%- if not add_generation_prompt %}{{- '</s>' }}{%- else %}", 1)

PLAIN_TEXT = """\
{%- for m in messages %}
  {{- m.role + ': ' }}
  {%- if m.role == 'assistant' %}{%- generation %}{{- m.content or '' }}{%- endgeneration %}
  {%- else %}{{- m.content }}{%- endif %}
  {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}"""

THINKING = """\
{%- for m in messages %}
  {%- if m.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n' }}
    {%- generation %}
    {{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' + (m.content or '') + '<|im_end|>' }}
    {%- endgeneration %}
    {{- '\\n' }}
  {%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

FORGETTING = """\
{%- set ns = namespace(user=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.user = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
  {%- if m.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if loop.index0 > ns.user %}{{- '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{%- endif %}
    {{- (m.content or '') + '<|im_end|>\\n' }}
  {%- else %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

TEMPLATES = {
    "chatml": (CHATML, "strip"), "llama3": (LLAMA3, "strip"), "llama2": (LLAMA2, "strip"), "header": (HEADER, ""), "closing": (CLOSING, "strip"),
    "plain_text": (PLAIN_TEXT, "strip"), "thinking": (THINKING, FORGETTING),
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return dict({"role": "assistant", "content": text}, **more)


CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5}}}
CONVERSATIONS = [
    [user("What is 2+2?"), assistant("It is 4.")],
    [{"role": "system", "content": "Be brief."}, user("Hi"), assistant("Hello!"), user("And then?"), assistant("Bye."), user("x"), assistant("xyx")],
    [user("q"), assistant("a", reasoning_content="long\nthoughts"), user("r"), assistant("b", reasoning_content="short"), user("s")],
    [user("Add 1 and 2.5."), assistant("", tool_calls=[CALL]), {"role": "tool", "content": "3.5"}, assistant("3.5"), user("Thanks"), assistant("x")],
    [user("cafe\u0301 한국어"), assistant("naïve cafe\u0301 \u212b 中文🙂"), user("y"), assistant("e\u0323\u0301")],
    [user("space"), assistant(" leading and trailing "), user("line"), assistant("two\n\nlines\n")],
    [assistant("I begin."), user("ok"), assistant("ok"), assistant("again")],
    [user("end"), assistant("a <|im_end|> inside <s>"), user(""), assistant("")],
    [user("1"), assistant("1"), user("1"), assistant("1"), user("1"), assistant("1")],
]


def main():
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(HERE, "qwen", "tokenizer.json"), bos_token="<|begin_of_text|>")
    tok.add_special_tokens({"additional_special_tokens": ADDED})
    with open(os.path.join(HERE, "turns.jsonl"), "w", encoding="utf-8") as out:
        for name, (template, plain) in TEMPLATES.items():
            for messages in CONVERSATIONS:
                if name == "plain_text" and any(m["role"] == "assistant" and not m["content"] for m in messages):
                    continue  # transformers counts the token around an empty statement
                made = tok.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                               return_assistant_tokens_mask=True, tools=None)
                if plain == "strip":
                    plain = re.sub(r"\{%-? (end)?generation %\}", "", template)
                out.write(json.dumps({
                    "name": name, "template": template, "plain": plain, "messages": messages, "ids": list(made["input_ids"]),
                    "mask": list(made["assistant_masks"]), "added": ADDED,
                }) + "\n")


if __name__ == "__main__":
    main()
