"""Writes the model beside it, as bitsandbytes 0.50.2 quantizes one, and the CRC of each matrix's
numbers: python make.py"""
import json, os, zlib
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from safetensors.torch import save_file

here = os.path.dirname(os.path.abspath(__file__))
config = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 11, "max_position_embeddings": 16, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
    "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "bfloat16"},
}
torch.manual_seed(1)
layer = "model.layers.0."
tensors = {"model.embed_tokens.weight": torch.randn(11, 64), "model.norm.weight": torch.ones(64)}
for name, n in {"self_attn.q_proj": 64, "self_attn.k_proj": 32, "self_attn.v_proj": 32}.items():
    tensors[layer + name + ".bias"] = torch.randn(n)
for name in ("input_layernorm", "post_attention_layernorm"):
    tensors[layer + name + ".weight"] = torch.ones(64)
tensors = {name: t.bfloat16() for name, t in tensors.items()}
crcs = {}
shapes = {"self_attn.q_proj": 64, "self_attn.k_proj": 32, "self_attn.v_proj": 32, "self_attn.o_proj": 64, "mlp.gate_proj": 64, "mlp.up_proj": 64, "mlp.down_proj": 64}
for name, rows in shapes.items():
    w = torch.randn(rows, 64) / 8
    w[3] = 0
    packed, state = quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=name.startswith("mlp"))
    name = layer + name + ".weight"
    tensors[name] = packed
    for end, t in state.as_dict(packed=True).items():
        tensors[name + "." + end] = t.contiguous()
    crcs[name] = zlib.crc32(dequantize_4bit(packed, state).float().numpy().tobytes())
save_file(tensors, os.path.join(here, "model.safetensors"))
for file, value in {"config.json": config, "crc.json": crcs}.items():
    with open(os.path.join(here, file), "w") as f:
        json.dump(value, f, indent=1)
