"""Times the attention of one decode step, in microseconds a layer: by products
of the heads of a group with its cache, and by the operator GroupQueryAttention, which the graphs of
onnxruntime-genai have. Prints a line per batch and context, with how fast the cache is read.

    python3 bench/attention.py [--heads 14 --groups 2 --width 64 --threads 2]
"""
import argparse
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

CONTRIB, LAYERS = "com.microsoft", 8


def tensor(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def products(o, B, S):
    rows = o.heads // o.groups
    nodes, ins, outs = [], [tensor("q", [B, o.groups, rows, o.width]), tensor("mask", [B, 1, 1, S])], []
    for i in range(LAYERS):
        ins += [tensor(f"k{i}", [B, o.groups, S, o.width]), tensor(f"v{i}", [B, o.groups, S, o.width])]
        nodes += [
            helper.make_node("FusedMatMul", ["q", f"k{i}"], [f"s{i}"], domain=CONTRIB, transB=1, alpha=o.width**-0.5),
            helper.make_node("Add", [f"s{i}", "mask"], [f"a{i}"]),
            helper.make_node("Softmax", [f"a{i}"], [f"p{i}"], axis=-1),
            helper.make_node("MatMul", [f"p{i}", f"v{i}"], [f"o{i}"]),
        ]
        outs.append(tensor(f"o{i}", [B, o.groups, rows, o.width]))
    return nodes, ins, outs


def operator(o, B, S):
    nodes, outs = [], []
    ins = [tensor("qkv", [B, 1, (o.heads + 2 * o.groups) * o.width]), tensor("seqlens", [B], TensorProto.INT32), tensor("total", [], TensorProto.INT32)]
    for i in range(LAYERS):
        cache = [B, o.groups, S, o.width]
        ins += [tensor(f"k{i}", cache), tensor(f"v{i}", cache)]
        nodes.append(helper.make_node(
            "GroupQueryAttention", ["qkv", "", "", f"k{i}", f"v{i}", "seqlens", "total"], [f"o{i}", f"new_k{i}", f"new_v{i}"],
            domain=CONTRIB, num_heads=o.heads, kv_num_heads=o.groups))
        outs += [tensor(f"o{i}", [B, 1, o.heads * o.width]), tensor(f"new_k{i}", cache), tensor(f"new_v{i}", cache)]
    return nodes, ins, outs


def measure(graph, S, threads):
    model = helper.make_model(helper.make_graph(graph[0], "attention", graph[1], graph[2]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid(CONTRIB, 1)])
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, fed, random = session.io_binding(), {}, np.random.default_rng(0)
    for x in session.get_inputs():
        if x.name in ("seqlens", "total"):
            value = np.full(x.shape, S - (x.name == "seqlens"), np.int32)
        else:
            value = random.standard_normal(x.shape, dtype=np.float32) * (x.name != "mask")
        fed[x.name] = ort.OrtValue.ortvalue_from_numpy(value)
        binding.bind_ortvalue_input(x.name, fed[x.name])
    for x in session.get_outputs():
        if x.name.startswith("new_"):  # onto the cache, as a decoder binds it
            binding.bind_ortvalue_output(x.name, fed[x.name[4:]])
        else:
            binding.bind_output(x.name)
    best = float("inf")
    for i in range(9):
        began = time.perf_counter()
        session.run_with_iobinding(binding)
        if i > 1:
            best = min(best, time.perf_counter() - began)
    return best / LAYERS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("heads", 14), ("groups", 2), ("width", 64), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=value)
    o = parser.parse_args()
    for B, S in ((1, 1024), (1, 3000), (16, 1024)):
        line = f"batch {B:2}, context {S}:"
        for name, graph in (("products", products), ("GroupQueryAttention", operator)):
            seconds = measure(graph(o, B, S), S, o.threads)
            line += f"  {name} {seconds * 1e6:.0f} us, {2 * 4 * B * o.groups * S * o.width / seconds / 1e9:.1f} GB/s"
        print(line, flush=True)


main()
