"""Writes targets.json: what PEFT makes of adapter_config.json files, for TestTargets.

    pip install torch transformers peft==0.21.2
    python targets.py > targets.json

Each case has a config and, of the model that PEFT then builds: the modules with low-rank
products as "MODULE RANK SCALE": layers, and the tensors that modules_to_save names. An
error is null.
"""
import json
import tempfile
import warnings

import peft
import torch
import transformers
from peft.tuners.lora import LoraLayer
from peft.utils.other import ModulesToSaveWrapper

MODEL = dict(hidden_size=12, intermediate_size=14, num_hidden_layers=11, num_attention_heads=4, num_key_value_heads=2,
             head_dim=6, vocab_size=23, max_position_embeddings=16, tie_word_embeddings=False)

Q, QV = ["q_proj"], ["q_proj", "v_proj"]
UNSLOTH = r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense).*?(?:q_proj|v_proj|up_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense)\.(?:(?:q_proj|v_proj|up_proj)))"
CASES = [
    # target_modules
    {"target_modules": QV}, {"target_modules": "all-linear"}, {"target_modules": "All-Linear"}, {"target_modules": ["self_attn.q_proj"]},
    {"target_modules": ["attn.q_proj"]}, {"target_modules": ["proj"]}, {"target_modules": ["q_proj", "query_key_value", "wq"]},
    {"target_modules": ["model.layers.1.self_attn.q_proj", "layers.1.mlp.down_proj"]}, {"target_modules": ["q_proj", "lm_head"]},
    {"target_modules": r"q_proj"}, {"target_modules": r".*q_proj"}, {"target_modules": r"model\.layers\.1\..*_proj"}, {"target_modules": r".*\.[02]\.mlp\.(gate|up)_proj"},
    {"target_modules": r"^model.*v_proj$"}, {"target_modules": r".*q_proj|.*v_proj"}, {"target_modules": r"(?i).*Q_PROJ"}, {"target_modules": UNSLOTH},
    {"target_modules": r"model\.layers\.\d{,1}\.mlp\.up_proj"}, {"target_modules": r".*\.(?P<name>q|k)_proj\Z"}, {"target_modules": r".*[^v]_proj"},
    {"target_modules": []}, {"target_modules": ["nothing"]}, {"target_modules": r".*up_pro"}, {"target_modules": ["q_proj."]},
    # exclude_modules
    {"target_modules": QV, "exclude_modules": ["v_proj"]}, {"target_modules": "all-linear", "exclude_modules": r".*layers\.[1-9].*"}, {"target_modules": QV, "exclude_modules": ["layers.0.self_attn.q_proj", "proj"]},
    {"target_modules": QV, "exclude_modules": "v_proj"}, {"target_modules": ["q_proj"], "exclude_modules": ["q_proj"]},
    # layers_to_transform
    {"target_modules": QV, "layers_to_transform": [0, 10]}, {"target_modules": QV, "layers_to_transform": 1}, {"target_modules": QV, "layers_to_transform": []},
    {"target_modules": QV, "layers_to_transform": [1], "layers_pattern": "layers"}, {"target_modules": QV, "layers_to_transform": [1], "layers_pattern": ["h", "layers"]},
    {"target_modules": QV, "layers_to_transform": [1], "layers_pattern": ["layers", "h"]}, {"target_modules": QV, "layers_to_transform": [1], "layers_pattern": "layer."},
    {"target_modules": QV, "layers_to_transform": [1], "layers_pattern": "model.layers"}, {"target_modules": QV, "layers_to_transform": [1], "layers_pattern": "ayers"},
    {"target_modules": QV, "layers_to_transform": [1], "layers_pattern": "h|layers"}, {"target_modules": ["q_proj", "lm_head", "model.layers.3.self_attn.v_proj"], "layers_to_transform": [1]},
    {"target_modules": ".*q_proj", "layers_to_transform": [0]}, {"target_modules": QV, "layers_to_transform": [0], "layers_pattern": []},
    {"target_modules": ".*q_proj", "exclude_modules": r".*\.(?P<n>1|2)\.[^[]*", "layers_to_transform": None},
    # rank_pattern and alpha_pattern
    {"target_modules": QV, "rank_pattern": {"^v_proj": 2}}, {"target_modules": QV, "alpha_pattern": {"^v_proj": 2}}, {"target_modules": QV, "rank_pattern": {"v_proj": 2}},
    {"target_modules": Q, "rank_pattern": {"^model.layers.0.self_attn.q_proj": 2}}, {"target_modules": Q, "alpha_pattern": {"^model.layers.1": 2}}, {"target_modules": Q, "alpha_pattern": {"^model.layers.1.*": 2}},
    {"target_modules": QV, "rank_pattern": {"layers.1.self_attn.q_proj": 2, "q_proj": 3, r".*_proj": 5}}, {"target_modules": QV, "rank_pattern": {"_proj": 5, "proj": 5, "pro": 6}},
    {"target_modules": QV, "alpha_pattern": {"q_proj$": 2, "v_proj": 3, "v_proj$": 7}}, {"target_modules": QV, "alpha_pattern": {"q_proj|v_proj": 2.5}}, {"target_modules": QV, "alpha_pattern": {"self_attn": 2}},
    {"target_modules": QV, "rank_pattern": {r"layers\.[0-4]\.self_attn\.\w+": 2}, "alpha_pattern": {r"layers\.\d\.self_attn\.v_proj": 3}, "use_rslora": True},
    {"target_modules": QV, "alpha_pattern": {"v_proj": 0, "q_proj": -4}}, {"target_modules": QV, "rank_pattern": {"up_proj": 2}},
    # modules_to_save
    {"target_modules": Q, "modules_to_save": ["lm_head"]}, {"target_modules": QV, "modules_to_save": ["v_proj"]}, {"target_modules": Q, "modules_to_save": ["embed_tokens", "lm_head"]},
    {"target_modules": Q, "modules_to_save": ["0.input_layernorm"]}, {"target_modules": Q, "modules_to_save": ["model.norm"]}, {"target_modules": Q, "modules_to_save": ["0.mlp"]},
    {"target_modules": Q, "modules_to_save": ["score", "classifier"]}, {"target_modules": QV, "modules_to_save": ["1.self_attn.v_proj"]},
    {"target_modules": Q, "modules_to_save": ["9.post_attention_layernorm"]},
]


def number(x):
    return float(f"{x:.12g}")


def built(case):
    with tempfile.TemporaryDirectory() as d:
        json.dump({"peft_type": "LORA", "r": 4, "lora_alpha": 8, **case}, open(d + "/adapter_config.json", "w"))
        config = peft.LoraConfig.from_pretrained(d)
    model = peft.get_peft_model(transformers.LlamaForCausalLM(transformers.LlamaConfig(**MODEL)), config)
    products, saved = {}, []
    for name, m in model.named_modules():
        name = name.removeprefix("base_model.model.")
        if isinstance(m, LoraLayer) and "modules_to_save" not in name:
            key, layers = name, []
            if name.startswith("model.layers."):
                _, _, layer, key = name.split(".", 3)
                layers = [int(layer)]
            key += f" {m.r['default']} {number(m.scaling['default'])}"
            products[key] = products.get(key, []) + layers
        if isinstance(m, ModulesToSaveWrapper):
            saved += [f"{name}.{k}" for k in m.modules_to_save["default"].state_dict()]
    return {"products": products, "saved": sorted(saved)}


def main():
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    lines = []
    for case in CASES:
        try:
            want = built(case)
        except Exception:
            want = None
        lines.append(json.dumps({"config": case, "want": want}))
    print("[\n" + ",\n".join(lines) + "\n]")


main()
