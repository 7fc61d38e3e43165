#!/usr/bin/env python3
"""Writes configs.jsonl: what transformers makes of config.json in many spellings.

    pip install torch transformers==5.23.0
    python3 configs.py

The first line has the config.json of each family on which the others build: "set" are the members that a line
states beside it or in place of its, "absent" those that it leaves out; "generation" is a
generation_config.json. "model" is the model that AutoConfig and AutoModelForCausalLM make of them: names and shapes of its weights, rotary frequencies, the layers
without them, epsilon, whether the head is tied, and the ids at which generation stops. "error" is there in its
place where transformers refuses them or cannot run the model.
"""
import hashlib
import importlib
import json
import logging
import os
import tempfile
import warnings

import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
CLASS = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM", "smollm3": "SmolLM3ForCausalLM"}
ABSENT = object()


def base(family):
    return {
        "architectures": [CLASS[family]], "model_type": family, "vocab_size": 40, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 5,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu", "max_position_embeddings": 96, "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0, "tie_word_embeddings": False, "eos_token_id": 3, "bos_token_id": 1, "pad_token_id": None, "torch_dtype": "float32",
    }


# What a line says beside the base, for every family.
EDITS = [
    {}, {"num_key_value_heads": ABSENT}, {"num_key_value_heads": None}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1}, {"num_key_value_heads": 3},
    {"num_key_value_heads": ABSENT, "num_attention_heads": 32}, {"num_key_value_heads": ABSENT, "num_attention_heads": 8}, {"num_key_value_heads": ABSENT, "num_attention_heads": 64},
    {"head_dim": ABSENT}, {"head_dim": None}, {"head_dim": 6}, {"head_dim": ABSENT, "hidden_size": 26}, {"head_dim": 7},
    {"rope_theta": ABSENT}, {"rope_theta": None}, {"rope_theta": 1000000}, {"rope_theta": ABSENT, "rope_parameters": {}}, {"rope_theta": ABSENT, "rope_parameters": None},
    {"rope_theta": ABSENT, "rope_parameters": {"rope_theta": 700.0}}, {"rope_theta": ABSENT, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    {"rope_theta": ABSENT, "rope_parameters": {"rope_type": "default"}}, {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    {"rope_parameters": {"rope_type": "default"}}, {"rope_scaling": None}, {"rope_scaling": {}}, {"rope_scaling": {"type": "default"}},
    {"rope_scaling": LLAMA3}, {"rope_theta": ABSENT, "rope_scaling": LLAMA3}, {"rope_scaling": {**LLAMA3, "rope_theta": 300.0}},
    {"rope_parameters": LLAMA3}, {"rope_theta": ABSENT, "rope_parameters": {**LLAMA3, "rope_theta": 300.0}}, {"rope_scaling": {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 40}},
    {"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}}, {"rope_scaling": {k.replace("rope_type", "type"): v for k, v in LLAMA3.items()}},
    {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "original_max_position_embeddings"}}, {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}},
    {"rope_scaling": LLAMA3, "original_max_position_embeddings": 30}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, {"rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 700.0}}}, {"partial_rotary_factor": 0.5}, {"rope_parameters": {"rope_theta": 700.0, "partial_rotary_factor": 0.5}},
    {"rms_norm_eps": ABSENT}, {"rms_norm_eps": 1e-6}, {"rms_norm_eps": None}, {"tie_word_embeddings": ABSENT}, {"tie_word_embeddings": True}, {"tie_word_embeddings": None},
    {"attention_bias": ABSENT}, {"attention_bias": False}, {"attention_bias": True}, {"mlp_bias": True}, {"attention_bias": True, "mlp_bias": True}, {"attention_bias": None},
    {"hidden_act": ABSENT}, {"hidden_act": "gelu"}, {"hidden_act": "swish"}, {"hidden_act": None}, {"max_position_embeddings": ABSENT}, {"max_position_embeddings": 100000},
    {"no_rope_layers": [1, 0, 0, 1, 1]}, {"no_rope_layers": [1, 0, 0, 1, 1, 0, 1]}, {"no_rope_layers": []}, {"no_rope_layers": [1, 0]}, {"no_rope_layers": None, "no_rope_layer_interval": 2},
    {"no_rope_layer_interval": 2}, {"no_rope_layer_interval": 1}, {"no_rope_layer_interval": None}, {"no_rope_layers": [1, 1, 1, 1, 1], "no_rope_layer_interval": 2},
    {"use_sliding_window": False, "sliding_window": 4}, {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}, {"use_sliding_window": True, "sliding_window": None},
    {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 5}, {"sliding_window": 4}, {"layer_types": ["full_attention"] * 5}, {"layer_types": ["full_attention"] * 4},
    {"layer_types": ["full_attention"] * 4 + ["sliding_attention"], "sliding_window": 4}, {"layer_types": None},
    {"eos_token_id": ABSENT}, {"eos_token_id": None}, {"eos_token_id": [5, 3]}, {"eos_token_id": []}, {"eos_token_id": 39}, {"eos_token_id": 40}, {"eos_token_id": -1},
    {"eos_token_id": ABSENT, "vocab_size": 2}, {"eos_token_id": ABSENT, "vocab_size": 128300}, {"pad_token_id": 2}, {"pad_token_id": ABSENT}, {"pad_token_id": ABSENT, "vocab_size": 128300}, {"pad_token_id": -1}, {"pad_token_id": 40},
    {"torch_dtype": "bfloat16"}, {"torch_dtype": ABSENT, "dtype": "bfloat16"}, {"torch_dtype": ABSENT}, {"torch_dtype": "float32", "dtype": "bfloat16"}, {"torch_dtype": "torch.bfloat16"}, {"torch_dtype": "int8"},
    {"architectures": ABSENT}, {"architectures": None}, {"architectures": []}, {"model_type": ABSENT}, {"architectures": ["AnotherForCausalLM"]}, {"transformers_version": "4.57.0", "use_cache": False, "pretraining_tp": 1},
    {"pretraining_tp": 2}, {"attention_dropout": 0.0}, {"attention_dropout": 0.1}, {"initializer_range": 0.1}, {"auto_map": {"AutoModelForCausalLM": "modeling.Other"}}, {"output_hidden_states": True}, {"max_window_layers": 2},
    {"vocab_size": ABSENT}, {"hidden_size": ABSENT}, {"intermediate_size": ABSENT}, {"num_hidden_layers": ABSENT}, {"num_attention_heads": ABSENT},
]
# config.json with a generation_config.json.
GENERATION = [
    ({}, {"eos_token_id": 7}), ({}, {"eos_token_id": [9, 7]}), ({}, {}), ({}, {"eos_token_id": None}), ({"eos_token_id": ABSENT}, {}), ({"eos_token_id": ABSENT}, {"eos_token_id": [9, 7]}), ({"eos_token_id": None}, {"pad_token_id": 0}),
]


def describe(folder):
    """The model that transformers makes of a folder."""
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        params = {n: list(p.shape) for n, p in AutoModelForCausalLM.from_config(config).named_parameters()}
    name = CLASS[config.model_type].removesuffix("ForCausalLM")
    rotary = getattr(importlib.import_module(f"transformers.models.{config.model_type}.modeling_{config.model_type}"), name + "RotaryEmbedding")(config)
    types = getattr(config, "layer_types", None) or []
    if set(types) - {"full_attention"}:
        return {"window": True}
    has = os.path.exists(os.path.join(folder, "generation_config.json"))  # else from_pretrained reads the ids of config.json, without defaults
    generation = GenerationConfig.from_pretrained(folder, config_file_name="generation_config.json" if has else "config.json", _from_model_config=not has)
    eos = generation.eos_token_id
    listing = "\n".join(f"{n} {'x'.join(map(str, s))}" for n, s in sorted(params.items()))
    return {
        "params": hashlib.sha256(listing.encode()).hexdigest()[:16], "tensors": len(params), "eps": config.rms_norm_eps, "tied": bool(config.tie_word_embeddings), "positions": config.max_position_embeddings,
        "frequencies": [float(x) for x in rotary.inv_freq], "attention_scaling": float(rotary.attention_scaling),
        "unturned": [not x for x in (config.model_type == "smollm3" and config.no_rope_layers) or [1] * config.num_hidden_layers][:config.num_hidden_layers],
        "activation": config.hidden_act, "eos": eos if isinstance(eos, list) or eos is None else [eos],
    }


def main():
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with open(os.path.join(HERE, "configs.jsonl"), "w", encoding="utf-8") as out:
        out.write(json.dumps({family: base(family) for family in CLASS}) + "\n")
        for family in CLASS:
            for edit, generation in [(e, None) for e in EDITS] + GENERATION:
                config = {**base(family), **edit}
                config = {k: v for k, v in config.items() if v is not ABSENT}
                row = {"family": family, "set": {k: v for k, v in edit.items() if v is not ABSENT}, "absent": [k for k, v in edit.items() if v is ABSENT]}
                with tempfile.TemporaryDirectory() as folder:
                    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
                    if generation is not None:
                        row["generation"] = generation
                        json.dump(generation, open(os.path.join(folder, "generation_config.json"), "w"))
                    try:
                        row["model"] = describe(folder)
                    except Exception as e:
                        row["error"] = f"{type(e).__name__}: {e}".split("\n")[0][:120].replace(folder, "FOLDER")
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
