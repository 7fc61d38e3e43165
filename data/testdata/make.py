"""Makes the Arrow and Parquet files of this folder and what is in them.

    pip install pyarrow==26.0.1 polars==2.1.0 && python make.py

The files of one table begin with its name up to the first dot, and TABLE.jsonl
holds its rows as pyarrow has them, one JSON object a line.
"""

import base64
import datetime
import decimal
import json
import math
import os
import struct

import polars
import pyarrow as pa
import pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def plain(v):
    """A Python value of pyarrow as JSON: the conventions of object.go."""
    if isinstance(v, float):
        return "NaN" if math.isnan(v) else v if math.isfinite(v) else "Infinity" if v > 0 else "-Infinity"
    if isinstance(v, bytes):
        try:
            return v.decode()
        except UnicodeDecodeError:
            return base64.b64encode(v).decode()
    if isinstance(v, decimal.Decimal):
        return float(v)
    if isinstance(v, datetime.datetime):
        return iso(v)
    if isinstance(v, datetime.date):
        return v.isoformat()
    if isinstance(v, datetime.time):
        return clean(v.isoformat())
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return v


def clean(s):
    return s.rstrip("0") if "." in s else s


def iso(t):
    s = clean(t.replace(tzinfo=None).isoformat())
    if t.tzinfo is None:
        return s
    o = t.strftime("%z")
    return s + ("Z" if o == "+0000" else o[:3] + ":" + o[3:])


def shortest(v, code):
    """The shortest decimal that is v in a format of module struct, as a Python float."""
    if v is None or not math.isfinite(v):
        return v
    return next(x for x in (float(f"{v:.{p}g}") for p in range(1, 18)) if struct.pack(code, x) == struct.pack(code, v))


def write_rows(name, table):
    # Python has no float32: to_pylist gives all the digits of the float64.
    narrow = {f.name: code for f in table.schema for t, code in [(pa.float16(), "<e"), (pa.float32(), "<f")] if f.type == t}
    with open(name + ".jsonl", "w") as f:
        for row in table.to_pylist():
            row |= {k: shortest(row[k], code) for k, code in narrow.items()}
            f.write(json.dumps(plain(row), ensure_ascii=False) + "\n")


def stream(name, table, batch, **kw):
    with pa.OSFile(name, "wb") as f, pa.ipc.new_stream(f, table.schema, options=pa.ipc.IpcWriteOptions(**kw)) as w:
        w.write_table(table, max_chunksize=batch)


def file(name, table, batch, **kw):
    with pa.OSFile(name, "wb") as f, pa.ipc.new_file(f, table.schema, options=pa.ipc.IpcWriteOptions(**kw)) as w:
        w.write_table(table, max_chunksize=batch)


D, T = datetime.date, datetime.datetime
UTC = datetime.timezone.utc

# Problems as people have them: strings, lists with nulls and empty ones, ints.
N = 40
problems = pa.table({
    "problem": pa.array([None if i == 7 else f"What is ${i} \\cdot {i}$? é 日" + " x" * (i % 9) for i in range(N)]),
    "answer": pa.array([None if i % 11 == 3 else [] if i % 11 == 5 else [None] if i % 11 == 6 else [str(i * i), f"{i}^2", None][: 1 + i % 3] for i in range(N)], pa.list_(pa.string())),
    "level": pa.array([None if i % 5 == 4 else i % 5 + 1 for i in range(N)], pa.int64()),
    "score": pa.array([i / 4 if i else math.nan for i in range(N)]),
    "split": pa.array(["train" if i % 3 else "test" for i in range(N)]),
})
write_rows("problems", problems)
for codec in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]:
    pq.write_table(problems, f"problems.{codec}.parquet", compression=codec, row_group_size=17)
pq.write_table(problems, "problems.v2.zstd.parquet", compression="zstd", data_page_version="2.0", data_page_size=64, use_dictionary=False)
pq.write_table(problems, "problems.v2.dict.snappy.parquet", compression="snappy", data_page_version="2.0", data_page_size=64, row_group_size=17)
pq.write_table(problems, "problems.delta.parquet", use_dictionary=False, version="2.6", data_page_size=64,
               column_encoding={"problem": "DELTA_BYTE_ARRAY", "answer.list.element": "DELTA_LENGTH_BYTE_ARRAY", "level": "DELTA_BINARY_PACKED", "score": "BYTE_STREAM_SPLIT"})
pq.write_table(problems, "problems.checksums.parquet", write_page_checksum=True, write_page_index=True, data_page_size=64)
stream("problems.stream.arrow", problems, 7)
stream("problems.v4.stream.arrow", problems, 7, metadata_version=pa.ipc.MetadataVersion.V4)
stream("problems.legacy.arrow", problems, 7, use_legacy_format=True)
stream("problems.lz4.stream.arrow", problems, 7, compression="lz4")
file("problems.zstd.arrow", problems, 7, compression="zstd")
file("problems.arrow", problems, 7)

# The same values in the types that other writers prefer.
variant = problems.cast(pa.schema([
    ("problem", pa.large_string()),
    ("answer", pa.large_list(pa.large_string())),
    ("level", pa.int8()),
    ("score", pa.float32()),
    ("split", pa.dictionary(pa.int8(), pa.string())),
]))
stream("problems.large.stream.arrow", variant, 9)
pq.write_table(variant, "problems.large.parquet")
views = problems.set_column(0, "problem", problems["problem"].cast(pa.string_view()))
stream("problems.view.stream.arrow", views, 9)
# The first message of a file of polars is not framed; the schema stands in the footer.
polars.from_arrow(problems).write_ipc("problems.polars.arrow", compression="zstd")

# Every type that a column can have.
kinds = pa.table({
    "null": pa.nulls(3),
    "bool": pa.array([True, None, False]),
    "i8": pa.array([-128, None, 127], pa.int8()),
    "i16": pa.array([-32768, None, 32767], pa.int16()),
    "i32": pa.array([-2**31, None, 2**31 - 1], pa.int32()),
    "i64": pa.array([-2**63, None, 2**63 - 1], pa.int64()),
    "u8": pa.array([0, None, 255], pa.uint8()),
    "u16": pa.array([0, None, 65535], pa.uint16()),
    "u32": pa.array([0, None, 2**32 - 1], pa.uint32()),
    "u64": pa.array([0, None, 2**64 - 1], pa.uint64()),
    "f16": pa.array([1.5, None, -0.000061035], pa.float16()),
    "f32": pa.array([0.1, None, math.inf], pa.float32()),
    "f64": pa.array([142.0, None, 1e-300]),
    "bin": pa.array([b"\xff\x00", None, b"text"]),
    "fixed": pa.array([b"\x80ab", None, b"abc"], pa.binary(3)),
    "dec": pa.array([decimal.Decimal("-1.50"), None, decimal.Decimal("123456.78")], pa.decimal128(12, 2)),
    "dec9": pa.array([decimal.Decimal("-0.05"), None, decimal.Decimal("0.00")], pa.decimal128(4, 2)),
    "date": pa.array([D(1969, 12, 31), None, D(2024, 2, 29)]),
    "ms": pa.array([T(1969, 12, 31, 23, 59, 59, 999000), None, T(2024, 1, 2, 3, 4, 5)], pa.timestamp("ms")),
    "us": pa.array([T(2024, 1, 2, 3, 4, 5, 6, UTC), None, T(1900, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
    "time": pa.array([datetime.time(1, 2, 3, 456), None, datetime.time(23, 59)], pa.time64("us")),
    "struct": pa.array([{"a": 1, "b": {"c": ["x", None]}}, None, {"a": None, "b": None}],
                       pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.list_(pa.string()))]))])),
    "lists": pa.array([[[1, None], [], None], None, []], pa.list_(pa.list_(pa.int64()))),
    "messages": pa.array([[{"role": "user", "content": "q"}, None], [], [{"role": None, "content": "é"}]],
                         pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
    "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "mapped": pa.array([[(1, ["a", "b"]), (2, None)], [], None], pa.map_(pa.int64(), pa.list_(pa.string()))),
})
write_rows("kinds", kinds)
stream("kinds.stream.arrow", kinds, 2)
file("kinds.arrow", kinds, 2)
pq.write_table(kinds, "kinds.parquet")
pq.write_table(kinds, "kinds.v2.parquet", data_page_version="2.0", compression="zstd", store_schema=False)

kinds_v1 = kinds.drop(["u64"])
write_rows("kinds_v1", kinds_v1)
pq.write_table(kinds_v1, "kinds_v1.parquet", version="1.0", store_schema=False)

arrow_only = pa.table({
    "fixed_list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2)),
    "dict_list": pa.array([["a", "b"], None, ["a"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "date64": pa.array([D(2024, 2, 29), None, D(1970, 1, 1)], pa.date64()),
    "t32": pa.array([datetime.time(1, 2, 3), None, datetime.time(0)], pa.time32("s")),
    "dec256": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-2.5")], pa.decimal256(50, 1)),
    "binview": pa.array([b"a longer text than twelve", None, b"b"], pa.binary_view()),
})
write_rows("arrow_only", arrow_only)
stream("arrow_only.stream.arrow", arrow_only, 2)
file("arrow_only.arrow", arrow_only, 3)

# Types that are refused by name.
refused = {
    "view_list": pa.array([["a"], None, []], pa.list_view(pa.string())),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", None])),
    "union": pa.UnionArray.from_dense(pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, 2]), pa.array(["s"])]),
    "months": pa.array([(1, 2, 3), None, (0, 0, 0)], pa.month_day_nano_interval()),
}
for name, column in refused.items():
    stream(f"refused.{name}.arrow", pa.table({name: column}), 3)

# Small files that state very much: a page of 64 MiB in few bytes, a row with a
# list of 8 million numbers or nulls, a row with 320 MiB of text, and what is
# merely well compressed: 2 million rows of one value.
pq.write_table(pa.table({"problem": ["a" * (64 << 20)], "answer": ["1"]}), "bomb.page.parquet", compression="zstd", use_dictionary=False, write_statistics=False)
many = pa.table({"answer": pa.array([[None] * (8 << 20)], pa.list_(pa.int8()))})
pq.write_table(many, "bomb.list.parquet", compression="zstd", write_statistics=False)
file("bomb.list.arrow", many, 1, compression="zstd")
file("bomb.texts.arrow", pa.table({"answer": pa.array([["a" * (32 << 20)] * 10])}), 1, compression="zstd")
pq.write_table(pa.table({"problem": pa.array(["p"] * (2 << 20)), "answer": pa.nulls(2 << 20, pa.string())}), "bomb.levels.parquet", compression="zstd", write_statistics=False)

# No rows at all: the pages of the columns are nowhere.
pq.write_table(problems.slice(0, 0), "rowless.parquet")
