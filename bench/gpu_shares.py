"""Prints the result of bench/gpu.sh with the share of the GPU's bandwidth that decoding
reaches: the bytes of a step in 16 bits that no kernel can leave out, which are those of the
layers, the head and the rows' keys and values, over the time of the median step and the
speed of the best copy of the sitting. A share above 1 says that no copy was at its best."""
import json
import sys

result = json.load(open(sys.argv[1]))
copies = [x["result"]["copy_bytes_per_second"] for name, x in result.items() if name.startswith("copy-") and x["ok"]]
if copies:
    result["copy_bytes_per_second"] = max(copies)
for name, x in list(result.items()):
    if not name.startswith("decode-") or not x["result"] or not copies:
        continue
    c = json.load(open(f"bench/{name.removeprefix('decode-')}/config.json"))
    d, f, layers, heads, kv = (c[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"))
    width = c.get("head_dim") or d // heads
    weights = layers * d * (2 * heads * width + 2 * kv * width + 3 * f) + c["vocab_size"] * d
    shares = {}
    for batch, step in x["result"]["decode"].items():
        context, _, rows = batch.rpartition("x")
        context, rows = int(context or 256), int(rows)
        read = 2 * (weights + rows * context * layers * 2 * kv * width)
        shares[f"{context}x{rows}"] = round(read / (step["median_ms"] / 1e3) / max(copies), 3)
    result.setdefault("shares", {})[name] = shares
print(json.dumps(result, indent=1))
