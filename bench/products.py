#!/usr/bin/env python3
"""Times the forms of a layer's matrix products on the CPU, beside torch's.

    python bench/products.py [--shape 0.5b,1.5b] [--tokens 512,1024,2048] [--threads 2] [--repeat 5]

Needs numpy, onnx, onnxruntime and torch. A weight is [out,in] and an input of the
graph, as in onering: ONNX Runtime packs no operand ahead of a run. forward is Y = X W^T,
dX is dY W, dW is C + dY^T X, written onto C. The forms of a product take turns, so
that a noisy machine is noisy for all. Prints GFLOP/s of the fastest run of each form;
what is computed is compared with numpy's before.

    Gemm        one Gemm, with transA or transB as the product has it
    swapped     the Gemm of the transposed result, which is transposed after
    turned A    the transposed operand is turned once by Transpose, then a plain Gemm
    turned B    the second operand is turned (its untransposed form is not packed so)
    MatMul      as turned, with MatMul; + C by Add
    Fused       com.microsoft FusedMatMul; + C by Add
    rows 256    Gemm over 256 rows of the first operand at a time; for dW as many tokens
    columns     Gemm over 1,024 columns of the result at a time
    torch       torch.matmul; addmm onto C
"""
import argparse, time

import numpy as np
import onnx, onnxruntime, torch
from onnx import TensorProto, helper

SHAPES = {  # in, out of the products of a layer, and of a slice of the head
    "0.5b": {"qkv": (896, 1152), "kv": (896, 128), "o": (896, 896), "up": (896, 4864), "down": (4864, 896), "head": (896, 8192), "head 8176": (896, 8176),
             "A": (896, 64), "B": (32, 4864), "A of down": (4864, 32)},
    "1.5b": {"q": (1536, 1536), "kv": (1536, 256), "up": (1536, 8960), "down": (8960, 1536), "head": (1536, 8192)},
}


class Form:
    """One form of a product as a session, bound to the buffers of its operands."""

    def __init__(self, threads, operands, shape, nodes, onto=None):
        ins = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in operands.items()]
        graph = helper.make_graph(nodes, "g", ins, [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], INITIALIZERS)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
        o = onnxruntime.SessionOptions()
        o.intra_op_num_threads = threads
        o.add_session_config_entry("session.disable_prepacking", "1")
        o.add_session_config_entry("session.intra_op.allow_spinning", "1")
        o.add_session_config_entry("optimization.disable_specified_optimizers", "GemmTransposeFusion;MatmulTransposeFusion;TransposeOptimizer")
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])
        self.bind = self.session.io_binding()
        # An OrtValue shares the array's memory: what is written onto is the form's own.
        held = {k: onnxruntime.OrtValue.ortvalue_from_numpy(v.copy() if k == onto else v) for k, v in operands.items()}
        for k, v in held.items():
            self.bind.bind_ortvalue_input(k, v)
        self.y = held[onto] if onto else onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
        self.bind.bind_ortvalue_output("y", self.y)

    def run(self):
        self.session.run_with_iobinding(self.bind)


INITIALIZERS = [helper.make_tensor("none", TensorProto.INT64, [0], [])]


def node(op, ins, out, **attrs):
    domain = "com.microsoft" if op == "FusedMatMul" else ""
    return helper.make_node(op, ins, [out], domain=domain, **attrs)


def turn(x, y):
    return node("Transpose", [x], y, perm=[1, 0])


def gemm(a, b, c, y, **attrs):
    return node("Gemm", [a, b] + ([c] if c else []), y, **attrs)


def split(n, size):
    return [min(size, n - i) for i in range(0, n, size)]


def parted(x, axis, sizes, make, joined):
    """The nodes that cut x along axis, make a piece of the result of each part, and join the pieces along the axis joined."""
    INITIALIZERS[:] = [helper.make_tensor("none", TensorProto.INT64, [len(sizes)], sizes)]
    parts, outs = [f"{x}{i}" for i in range(len(sizes))], [f"y{i}" for i in range(len(sizes))]
    return [helper.make_node("Split", [x, "none"], parts, axis=axis), *(make(p, o, i) for i, (p, o) in enumerate(zip(parts, outs))),
            node("Concat", outs, "y", axis=joined)]


def forms(kind, m, k, n):
    """The forms of a product by name: (nodes, the input that y is written onto). Operands are a, b and, for dW, c."""
    many, wide = split(m, 256), split(n, 1024)
    if kind == "forward":  # y [m,n] = a [m,k] b^T, b [n,k]
        f = {
            "Gemm": [gemm("a", "b", None, "y", transB=1)],
            "swapped": [gemm("b", "a", None, "t", transB=1), turn("t", "y")],
            "turned B": [turn("b", "t"), gemm("a", "t", None, "y")],
            "MatMul": [turn("b", "t"), node("MatMul", ["a", "t"], "y")],
            "Fused": [node("FusedMatMul", ["a", "b"], "y", transB=1)],
        }
        if len(many) > 1:
            f["rows 256"] = lambda: parted("a", 0, many, lambda p, o, i: gemm(p, "b", None, o, transB=1), 0)
        if len(wide) > 1:
            f["columns"] = lambda: parted("b", 0, wide, lambda p, o, i: gemm("a", p, None, o, transB=1), 1)
        return {k: (v, None) for k, v in f.items()}
    if kind == "dX":  # y [m,n] = a [m,k] b, b [k,n]
        f = {
            "Gemm": [gemm("a", "b", None, "y")],
            "swapped": [gemm("b", "a", None, "t", transA=1, transB=1), turn("t", "y")],
            "turned A": [turn("b", "bt"), gemm("bt", "a", None, "t", transB=1), turn("t", "y")],
            "turned B": [turn("b", "t"), gemm("a", "t", None, "y", transB=1)],
            "MatMul": [node("MatMul", ["a", "b"], "y")],
            "Fused": [node("FusedMatMul", ["a", "b"], "y", alpha=1.0)],
        }
        if len(many) > 1:
            f["rows 256"] = lambda: parted("a", 0, many, lambda p, o, i: gemm(p, "b", None, o), 0)
        return {k: (v, None) for k, v in f.items()}
    f = {  # y [m,n] = c + a^T b, a [k,m], b [k,n]
        "Gemm": ([gemm("a", "b", "c", "y", transA=1)], "c"),
        "swapped": ([gemm("b", "a", None, "t", transA=1), turn("t", "u"), node("Add", ["u", "c"], "y")], "c"),
        "turned A": ([turn("a", "t"), gemm("t", "b", "c", "y")], "c"),
        "turned B": ([turn("a", "t"), turn("b", "u"), gemm("t", "u", "c", "y", transB=1)], "c"),
        "swapped, turned": ([turn("b", "t"), gemm("t", "a", None, "u"), turn("u", "v"), node("Add", ["v", "c"], "y")], "c"),
        "MatMul": ([turn("a", "t"), node("MatMul", ["t", "b"], "u"), node("Add", ["u", "c"], "y")], "c"),
        "Fused": ([node("FusedMatMul", ["a", "b"], "u", transA=1), node("Add", ["u", "c"], "y")], "c"),
    }
    def blocks(size, turned):
        tokens = split(k, size)
        INITIALIZERS[:] = [helper.make_tensor("none", TensorProto.INT64, [len(tokens)], tokens)]
        nodes = [helper.make_node("Split", [x, "none"], [f"{x}{i}" for i in range(len(tokens))], axis=0) for x in "ab"]
        for i in range(len(tokens)):
            a = f"a{i}"
            if turned:
                nodes.append(turn(a, f"t{i}"))
                a = f"t{i}"
            nodes.append(gemm(a, f"b{i}", f"s{i}" if i else "c", "y" if i == len(tokens) - 1 else f"s{i + 1}", transA=int(not turned)))
        return nodes

    for size in 256, 512:
        if k > size:
            f[f"rows {size}"] = (lambda size=size: blocks(size, False), "c")
            f[f"rows {size}, turned"] = (lambda size=size: blocks(size, True), "c")
    return f


def sides(kind, tokens, wide_in, wide_out):
    if kind == "forward":
        return tokens, wide_in, wide_out
    return (tokens, wide_out, wide_in) if kind == "dX" else (wide_out, tokens, wide_in)


def measure(kind, m, k, n, threads, repeat, only):
    rng = np.random.default_rng(0)
    shapes = {"forward": ((m, k), (n, k)), "dX": ((m, k), (k, n)), "dW": ((k, m), (k, n))}[kind]
    a, b = (rng.standard_normal(s, np.float32) for s in shapes)
    operands = {"a": a, "b": b}
    if kind == "dW":
        operands["c"] = np.zeros((m, n), np.float32)
    ta, tb = torch.from_numpy(a), torch.from_numpy(b)
    tc = torch.zeros(m, n)
    theirs = {"forward": lambda: torch.matmul(ta, tb.T, out=tc), "dX": lambda: torch.matmul(ta, tb, out=tc), "dW": lambda: tc.addmm_(ta.T, tb)}[kind]
    want = {"forward": lambda: a @ b.T, "dX": lambda: a @ b, "dW": lambda: a.T @ b}[kind]()
    runs = {"torch": theirs}
    for name, (nodes, onto) in forms(kind, m, k, n).items():
        if only and name not in only:
            continue
        INITIALIZERS.clear()
        if callable(nodes):
            nodes = nodes()
        f = Form(threads, operands, (m, n), nodes, onto)
        f.run()
        if not np.allclose(f.y.numpy(), want, rtol=1e-3, atol=1e-2):
            raise SystemExit(f"{kind} {m} x {k} x {n}: {name} computes something else")
        runs[name] = f.run
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeat):
        for name, run in runs.items():
            for _ in range(2):  # the first warms the threads up
                began = time.perf_counter()
                run()
                best[name] = min(best[name], time.perf_counter() - began)
    return {name: 2e-9 * m * k * n / t for name, t in best.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", default="0.5b,1.5b")
    p.add_argument("--tokens", default="512,1024,2048")
    p.add_argument("--kind", default="forward,dX,dW")
    p.add_argument("--product", default="", help="only these, such as up,down")
    p.add_argument("--form", default="", help="only these, such as 'Gemm,turned A'")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=3)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    only = a.form.split(",") if a.form else []
    print(f"# ONNX Runtime {onnxruntime.__version__}, torch {torch.__version__}, {a.threads} threads")
    for shape in a.shape.split(","):
        for tokens in map(int, a.tokens.split(",")):
            for product, (wide_in, wide_out) in SHAPES[shape].items():
                if a.product and product not in a.product.split(","):
                    continue
                for kind in a.kind.split(","):
                    m, k, n = sides(kind, tokens, wide_in, wide_out)
                    found = measure(kind, m, k, n, a.threads, a.repeat, only)
                    print(f"{shape} {tokens:5} {product:9} {kind:8}", "  ".join(f"{name} {x:.0f}" for name, x in found.items()), flush=True)


if __name__ == "__main__":
    main()
