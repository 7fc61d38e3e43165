"""Makes types.safetensors with the reference library: python make_types.py

torch 2.15.0, safetensors 0.8.0. Each float tensor holds the same numbers in its
own type: zeros, a rounding case, the extremes of F16, infinities.
"""
import torch
from safetensors.torch import save_file

values = [0.0, -0.0, 1.0, -1.5, 0.1, 6.103515625e-05, 5.960464477539063e-08, 65504.0, float("inf"), float("-inf"), 3.0, -2.0]
x = torch.tensor(values, dtype=torch.float64).reshape(3, 4)
save_file(
    {
        "f64": x,
        "f32": x.float(),
        "f16": x.half(),
        "bf16": x.bfloat16(),
        "i64": torch.tensor([-1, 2**40]),
        "i32": torch.tensor([-1, 7], dtype=torch.int32),
        "u8": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "f8": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
    },
    "types.safetensors",
    {"format": "pt", "note": "a <b> \"c\""},
)
