"""Compiles kernels.cu and attention.cu, one after the other, for GPUs with NVRTC, which needs no GPU.

Usage: python3 compile.py [--check] LIBNVRTC [IMAGE...]

LIBNVRTC is libnvrtc.so.13 of the wheel nvidia-cuda-nvrtc 13.0.88; beside it must lie
libnvrtc-builtins. For bfloat16 and for float16 it writes TYPE.sm_NN.cubin.gz for each
architecture and TYPE.ptx.gz for others, which the driver compiles. source.sha256 is the
digest of both. With --check it writes nothing and fails where what is there differs. IMAGEs are
those to make, such as bfloat16.sm_90.cubin or float16.ptx; without one all are.
"""

import ctypes
import gzip
import hashlib
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
SOURCES = ["kernels.cu", "attention.cu"]
TYPES = ["bfloat16", "float16"]
ARCHITECTURES = [80, 86, 89, 90, 100, 120]
VERSION = (13, 0)  # drivers of CUDA 13.0 load its PTX, of ISA 9.0


def compile(lib, source, arch, half, kind):
    def call(name, *args):
        code = getattr(lib, name)(*args)
        if code and name != "nvrtcCompileProgram":
            sys.exit(f"{name}: error {code}")
        return code

    program = ctypes.c_void_p()
    call("nvrtcCreateProgram", ctypes.byref(program), source, b"kernels.cu", 0, None, None)
    options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"-DHALF=%d" % half]
    failed = call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    call("nvrtcGetProgramLog", program, log)
    if log.value.strip():
        print(arch, log.value.decode(), file=sys.stderr)
    if failed:
        sys.exit(1)
    call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    call(f"nvrtcGet{kind}", program, image)
    return image.raw


def main(argv):
    check = argv[:1] == ["--check"]
    path = pathlib.Path(argv[check])
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(builtins)  # NVRTC then finds it by its name
    lib = ctypes.CDLL(path)
    major, minor = ctypes.c_int(), ctypes.c_int()
    lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if (major.value, minor.value) != VERSION:
        sys.exit(f"NVRTC {major.value}.{minor.value}: want {VERSION[0]}.{VERSION[1]}")
    source = b"".join((HERE / name).read_bytes() for name in SOURCES)
    files = {"source.sha256": hashlib.sha256(source).hexdigest().encode() + b"\n"}
    images = [(f"{t}.sm_{a}.cubin", f"sm_{a}", h) for h, t in enumerate(TYPES) for a in ARCHITECTURES]
    images += [(f"{t}.ptx", "compute_80", h) for h, t in enumerate(TYPES)]
    for name, arch, half in images:
        if len(argv) == check + 1 or name in argv[check + 1 :]:
            files[name] = compile(lib, source, arch, half, "PTX" if name.endswith("ptx") else "CUBIN").rstrip(b"\0" if name.endswith("ptx") else b"")
    for name, data in files.items():
        made = HERE / name if name == "source.sha256" else HERE / (name + ".gz")
        zipped = made.suffix == ".gz"
        if not check:
            made.write_bytes(gzip.compress(data, mtime=0) if zipped else data)
        elif not made.exists() or (gzip.decompress(made.read_bytes()) if zipped else made.read_bytes()) != data:
            sys.exit(f"{name} is not what NVRTC makes of kernels.cu: run compile.py")


main(sys.argv[1:])
