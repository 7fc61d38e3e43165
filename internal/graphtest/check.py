"""Runs the official ONNX checker and strict shape inference over model files.

Usage: check.py FILE...; prints one line for each file that is wrong, and exits
with 1 if there is one. Needs the onnx package, version 1.18 or later (opset 23).
"""
import sys

import onnx

wrong = 0
for path in sys.argv[1:]:
    model = onnx.load(path)
    try:
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as e:
        print(f"{path}: {e}")
        wrong += 1
        continue

    # The outputs' stated shapes, against those inferred without the statements.
    def dims(value):
        return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]

    stated = {o.name: (o.type.tensor_type.elem_type, dims(o)) for o in model.graph.output}
    for o in model.graph.output:
        o.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    for o in inferred.graph.output:
        elem, want = stated[o.name]
        if not o.type.tensor_type.HasField("shape"):
            continue  # behind an operator of another domain, or sizes that are inputs
        got = dims(o)
        fits = len(got) == len(want) and elem == o.type.tensor_type.elem_type and all(
            g == w or not isinstance(g, int) or g == 0 for g, w in zip(got, want))
        if not fits:
            print(f"{path}: output {o.name} is stated as {elem} {want}, inferred as {o.type.tensor_type.elem_type} {got}")
            wrong += 1
sys.exit(wrong > 0)
