#!/usr/bin/env python3
"""Makes the tables of docs/lab/performance.md: measures, keeps the figures in
docs/lab/performance.json, and writes the tables from those between the page's markers.

    python bench/performance.py --onering ./onering [--parts decode,small] [--turns 2]
    python bench/performance.py --onering ./onering --parts round,genai --tokenizer Qwen2.5-0.5B --problems gsm8k.jsonl
    python bench/performance.py --check

Without --parts it measures all but the rounds, which takes ten minutes a turn, and genai;
the others take about 25 minutes in all. Each turn runs both sides, one after the
other, and a table has the range over the turns, or one figure where they agree.
--check measures nothing: it fails if the page is not what the figures give.
Needs what the compare scripts beside it need; --check and --render only Python.

decode     compare.py: steps and prompts beside transformers       3 turns   4 min
train      compare.py: forward and backward beside PyTorch         2         9 min
prompt     responses behind one copy of their prompt               2         2 min
small      compare_trl.py: a round of a small model                3         2 min
mixed      a long row among short ones                             2         1 min
limits     bench --round --roofline: the phases of a round         1         2 min
checkpoint a checkpoint beside a file of as many bytes             2         2 min
update     AdamW beside PyTorch's fused one                        2         2 min
attention  attention.py: products beside GroupQueryAttention       2         1 min
genai      compare_genai.py: steps of one row beside genai         3        10 min
products   products.py: the forms of a layer's products            1         2 min
round      compare_trl_round.py: a round at the shape of 0.5B      3        30 min
train_bfloat16, round_bfloat16: the same in bfloat16               1        15 min
llama      compare_llama.py: steps beside llama.cpp                2         8 min
serve      compare_serve.py: serve beside llama-server             1         3 min

--llama is a folder with llama.cpp's programs llama-batched-bench and llama-server; the
parts llama and serve need it, --tokenizer, and its script that makes GGUF files
(--gguf-script, with what it imports).
"""
import argparse, datetime, json, os, re, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE, FIGURES = (os.path.join(HERE, "..", "docs", "lab", name) for name in ("performance.md", "performance.json"))
SHAPE = os.path.join(HERE, "qwen2.5-0.5b")


def output(command):
    print("#", " ".join(command), file=sys.stderr, flush=True)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def script(name, *flags):
    return output([sys.executable, os.path.join(HERE, name), *flags])


def bench(a, *flags):
    return json.loads(output([a.onering, "bench", "--config", SHAPE, "--threads", str(a.threads), *flags]))


def compare(a, only, dtype="float32"):
    flags = ("--config", SHAPE, "--threads", str(a.threads), "--only", only, "--dtype", dtype)
    return {k: v[0] for k, v in json.loads(script("compare.py", "--onering", a.onering, *flags))["runs"].items()}


def decode(a):
    return compare(a, "decode")


def train(a, dtype="float32"):
    return compare(a, "train", dtype)


def prompt(a):
    flags = ("--part", "train", "--rows", "4", "--tokens", "278", "--prompt", "150")
    return {"apart": bench(a, *flags), "together": bench(a, *flags, "--group", "4")}


def small(a):
    r = json.loads(script("compare_trl.py", "--onering", a.onering, "--threads", str(a.threads)))
    return {"onering": r["onering"], "trl": r["trl"]}


# A step of the short rows, of those and a long one, of as many short ones, and of one short and one long row alone.
SHORT, WITH, MORE, ONE, LONG = "64x16", "64x16,3000", "64x17", "64", "3000"


def mixed(a):
    flags = [x for contexts in (SHORT, WITH, MORE, ONE, LONG) for x in ("--contexts", contexts)]
    steps = bench(a, "--part", "decode", "--batch", "1", "--context", "64", *flags)["decode"]
    return {name: steps[name]["step_ms"] for name in (SHORT, WITH, MORE, ONE, LONG)}


def limits(a):
    return bench(a, "--round", "--roofline", "--prompts", "2", "--updates", "2", "--length", "128", "--dir", a.dir or tempfile.gettempdir())


def file_seconds(folder, size):
    """The seconds in which a file of random bytes is written and synced, with nothing else done: 32 MiB at once, and again and again the same."""
    import time
    data = os.urandom(32 << 20)
    with tempfile.NamedTemporaryFile(dir=folder, buffering=0) as f:
        began = time.perf_counter()
        for at in range(0, size, len(data)):
            f.write(data[:size - at])
        os.fsync(f.fileno())
        return time.perf_counter() - began


def checkpoint(a):
    folder = a.dir or tempfile.gettempdir()
    # As little of a round as there can be: it is about what is saved after it.
    r = bench(a, "--round", "--prompts", "1", "--samples", "1", "--prompt-length", "8", "--length", "1", "--updates", "1", "--micro-tokens", "64", "--dir", folder)
    return {"bytes": r["checkpoint_bytes"], "checkpoint": [r[x]["checkpoint"]["seconds"] for x in ("cold", "warm")],
            "file": [file_seconds(folder, r["checkpoint_bytes"]) for _ in range(2)]}


def fused_adamw(a):
    """Runs in a process of its own: PyTorch's update of as many parameters as the shape has."""
    import time, torch
    torch.set_num_threads(a.threads)
    weights = [torch.zeros(1 << 24, requires_grad=True) for _ in range(16)]
    for w in weights:
        w.grad = torch.full_like(w, 1e-3)
    optimizer, spent = torch.optim.AdamW(weights, lr=1e-6, fused=True), {"update": [], "clip": []}
    for _ in range(4):
        for name, f in (("update", optimizer.step), ("clip", lambda: torch.nn.utils.clip_grad_norm_(weights, 1.0))):
            began = time.perf_counter()
            f()
            spent[name].append(time.perf_counter() - began)
    count = sum(w.numel() for w in weights)
    return {name: min(times) / count * 1e9 for name, times in spent.items()}


def update(a):
    ours = bench(a, "--part", "step", "--rows", "1", "--tokens", "8", "--repeat", "4")
    theirs = json.loads(output([sys.executable, os.path.abspath(__file__), "--threads", str(a.threads), "--fused-adamw"]))
    return {"onering": ours["optimizer_seconds"] / 494_032_768 * 1e9, "pytorch": theirs["update"], "pytorch_clip": theirs["clip"]}


def attention(a):
    line = re.compile(r"batch +(\d+), context (\d+): +products (\d+) us, ([\d.]+) GB/s +GroupQueryAttention (\d+) us, ([\d.]+) GB/s")
    return {f"{m[1]}x{m[2]}": [float(x) for x in m.groups()[2:]] for m in line.finditer(script("attention.py", "--threads", str(a.threads)))}


def genai(a):
    """Milliseconds of a step, by threads and context."""
    if not a.tokenizer:
        sys.exit("the part genai needs --tokenizer")
    found = {}
    for threads in sorted({1, a.threads}):
        steps = json.loads(script("compare_genai.py", "--onering", a.onering, "--tokenizer", a.tokenizer, "--threads", str(threads), "--turns", "1"))
        found[str(threads)] = {side: {context: ms[0] for context, ms in steps[side].items()} for side in ("onering", "genai")}
    return found


def products(a):
    found = []
    for line in script("products.py", "--shape", "0.5b", "--tokens", "2048", "--product", "qkv,o,up,down,head 8176", "--threads", str(a.threads)).splitlines():
        if m := re.search(r"^\S+ +\d+ (.+?) +(forward|dX|dW) +(.*)$", line):
            # That of graph.Outer for dW: the narrower operand is turned.
            own = "Gemm" if m[2] != "dW" else "turned A" if m[1] in ("o", "down") else "swapped, turned"
            found.append([m[2], {name: float(x) for name, x in (form.rsplit(" ", 1) for form in m[3].split("  "))}, own])
    return found


def round(a, dtype="float32"):
    if not a.tokenizer or not a.problems:
        sys.exit("the part round needs --tokenizer and --problems")
    flags = ["--dir", a.dir] if a.dir else []
    return json.loads(script("compare_trl_round.py", "--onering", a.onering, "--tokenizer", a.tokenizer, "--problems", a.problems,
                             "--threads", str(a.threads), "--pairs", "1", "--dtype", dtype, *flags))["turns"]


def files(a, folder):
    """Random weights as a model folder and as llama.cpp's files."""
    if not a.llama or not a.tokenizer or not a.gguf_script:
        sys.exit("the parts llama and serve need --llama, --tokenizer and --gguf-script")
    model = os.path.join(folder, "model")
    output([a.onering, "init", "--config", os.path.join(SHAPE, "config.json"), "--tokenizer", a.tokenizer, "--out", model])
    made = [os.path.join(folder, kind + ".gguf") for kind in ("f32", "q8_0")]
    for path in made:
        output([sys.executable, a.gguf_script, model, "--outfile", path, "--outtype", os.path.basename(path).split(".")[0]])
    return [model, *made]


def llama(a):
    with tempfile.TemporaryDirectory(dir=a.dir) as folder:
        _, f32, q8 = files(a, folder)
        return json.loads(script("compare_llama.py", "--onering", a.onering, "--llama", os.path.join(a.llama, "llama-batched-bench"), "--f32", f32, "--q8", q8, "--threads", str(a.threads), "--turns", "1"))["steps"]


def serve(a):
    with tempfile.TemporaryDirectory(dir=a.dir) as folder:
        model, *made = files(a, folder)
        found = {}
        for file, flags in zip(made, ((), ("--dtype", "bfloat16", "--base-dtype", "int8"))):
            x = json.loads(script("compare_serve.py", "--onering", a.onering, "--llama", os.path.join(a.llama, "llama-server"), "--model", model, "--gguf", file, "--threads", str(a.threads), *flags))
            found[os.path.basename(file)] = {side: turns[0] for side, turns in x.items()}
        return found


def span(values, unit="", digits=3):
    """The range of some numbers, to a number of digits."""
    def text(x):
        return f"{float(f'{x:.{digits}g}'):,g}" if x < 1e6 else f"{x:,.0f}"
    low, high = text(min(values)), text(max(values))
    return (low if low == high else f"{low} to {high}") + unit


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def table(head, rows):
    lines = [row(*head), "|---|" + "--:|" * (len(head) - 1)]
    return lines + [row(*r) for r in rows]


def beside(turns, ours, theirs, name, unit="", scale=1):
    """A row: ours, theirs and their ratio turn by turn."""
    x, y = [ours(t) * scale for t in turns], [theirs(t) * scale for t in turns]
    return name, span(x, unit), span(y, unit), span([b / c for b, c in zip(y, x)], digits=2)


def decode_table(turns):
    step = lambda side, rows: lambda t: t[side + "_decode"]["decode"][rows]["step_ms"]
    first = lambda side: lambda t: t[side + "_decode"]["prefill_seconds"]
    return table(("", "onering", "transformers", "ratio"), [
        beside(turns, step("onering", "8"), step("transformers", "8"), "a decode step of 8 sequences, context about 200", " ms"),
        beside(turns, step("onering", "32"), step("transformers", "32"), "a decode step of 32 sequences", " ms"),
        beside(turns, first("onering"), first("transformers"), "first token of a prompt of 512", " s"),
    ])


def train_table(turns):
    rows = []
    for key, name in (("onering_train", "onering"), ("onering_train_lean", "onering, fewer activations kept"), ("pytorch", "PyTorch"), ("pytorch_checkpointing", "PyTorch, checkpointing per layer")):
        x = [t[key] for t in turns]
        rows.append((name, span([r["seconds"] for r in x], " s"), span([r["forward_seconds"] for r in x], " s"), span([r["backward_seconds"] for r in x], " s"),
                     span([r["peak_bytes"] / 1e9 for r in x], " GB"), span([t["pytorch"]["seconds"] / t[key]["seconds"] for t in turns], digits=2)))
    return table(("4 x 512 tokens", "forward, weights, backward", "forward", "backward", "peak memory", "PyTorch's time by this one"), rows)


def prompt_table(turns):
    rows = [(name, span([t[key]["seconds"] for t in turns], " s"), span([t[key]["forward_seconds"] for t in turns], " s"), span([t[key]["backward_seconds"] for t in turns], " s"),
             span([t[key]["peak_bytes"] / 1e9 for t in turns], " GB")) for key, name in (("apart", "each with its prompt"), ("together", "behind one prompt"))]
    return table(("4 responses", "seconds", "forward", "backward", "peak memory"), rows) + [
        "", f"Ratio: {span([t['apart']['seconds'] / t['together']['seconds'] for t in turns], digits=3)}."]


def small_table(turns):
    return table(("", "onering", "TRL", "ratio"), [
        beside(turns, lambda t: t["onering"][key], lambda t: t["trl"][key], name, " s")
        for key, name in (("round_seconds", "a round"), ("first_step_seconds", "from the start of the program to the end of the first step"))])


def mixed_table(turns):
    names = ((SHORT, "16 rows of 64 tokens"), (MORE, "17 rows of 64"), (WITH, "16 rows of 64 and one of 3,000"), (ONE, "one row of 64"), (LONG, "one row of 3,000"))
    lines = table(("a decode step of", "ms"), [(name, span([t[key] for t in turns])) for key, name in names])
    more, alone = ([100 * (t[x] / t[y] - 1) for t in turns] for x, y in ((WITH, MORE), (LONG, ONE)))
    extra = [(t[WITH] - t[MORE]) / (t[LONG] - t[ONE]) for t in turns]
    return lines + ["", f"The long row makes the step of 17 rows {span(more, digits=2)} % longer, and that of a row alone {span(alone, digits=2)} %. "
                    f"In ms it adds {span(extra, digits=2)} times what its tokens cost alone."]


def limits_table(turns):
    names = ("rollout", "prefill", "forward", "backward", "optimizer")
    share = lambda phases, k: span([100 * t[phases][k]["limit_share"] for t in turns], " %", 2)
    rows = [(k, span([t["cold"][k]["seconds"] for t in turns], " s"), span([t["warm"][k]["seconds"] for t in turns], " s"), share("warm", k)) for k in names]
    rows.append(("checkpoint", span([t["cold"]["checkpoint"]["seconds"] for t in turns], " s"), span([t["warm"]["checkpoint"]["seconds"] for t in turns], " s"), ""))
    rows.append(("all", *(span([t[x]["seconds"] for t in turns], " s") for x in ("cold", "warm")), ""))
    end = f"{turns[0]['responses']} responses, {turns[0]['response_tokens']:,} tokens; peak memory {span([t['warm']['peak_bytes'] / 1e9 for t in turns], ' GB')}"
    end += f"; the checkpoint at {span([t['checkpoint_bytes'] / t['warm']['checkpoint']['seconds'] / 1e9 for t in turns], ' GB/s')}"
    peaks = [t["peaks"] for t in turns if t.get("peaks")]
    if peaks:
        end += f"; measured with it: a product at {span([p['gemm_flops_per_second'] / 1e9 for p in peaks], ' GFLOP/s')}, memory at {span([p['memory_bytes_per_second'] / 1e9 for p in peaks], ' GB/s')}"
    return table(("", "cold", "warm", "share of the limit, warm"), rows) + ["", end + "."]


def checkpoint_table(turns):
    rows = []
    for name, key, which in (("the first checkpoint of a program, with its sums, synced and renamed", "checkpoint", slice(1)), ("the second", "checkpoint", slice(1, 2)),
                             ("one file of as many bytes, written and synced", "file", slice(None))):
        rows.append((name, span([x for t in turns for x in t[key][which]], " s"), span([t["bytes"] / x / 1e9 for t in turns for x in t[key][which]], " GB/s")))
    return table((span([t["bytes"] / 1e9 for t in turns], " GB"), "seconds", "rate"), rows)


def update_table(turns):
    return table(("", "ns a parameter"), [
        ("onering, AdamW", span([t["onering"] for t in turns])), ("PyTorch, fused AdamW", span([t["pytorch"] for t in turns])),
        ("PyTorch, clip_grad_norm_ beside it", span([t["pytorch_clip"] for t in turns]))])


def attention_table(turns):
    def cell(key, i):
        return span([t[key][i] for t in turns], " us") + ", " + span([t[key][i + 1] for t in turns], " GB/s")
    rows = []
    for key in turns[0]:
        batch, context = key.split("x")
        rows.append((f"{batch} row{'s' * (batch != '1')}, context {int(context):,}", cell(key, 0), cell(key, 2)))
    return table(("", "products", "GroupQueryAttention"), rows)


def genai_table(turns):
    return table(("a step of one row", "onering", "onnxruntime-genai", "ratio"), [
        beside(turns, lambda t: t[threads]["onering"][context], lambda t: t[threads]["genai"][context],
               f"{threads} thread{'s' * (threads != '1')}, context {int(context):,}", " ms")
        for threads in turns[0] for context in turns[0][threads]["onering"]])


def llama_table(turns):
    sides = list(turns[0])
    cell = lambda side, context, rows: span([x for t in turns for x in t[side][context][rows]], "")
    return table(("ms a step", *sides), [
        (f"{rows} row{'s' * (rows != '1')}, context {int(context):,}", *(cell(side, context, rows) for side in sides))
        for context in turns[0][sides[0]] for rows in sorted(turns[0][sides[0]][context], key=int)])


def serve_table(turns):
    rows = []
    for file, name in (("f32.gguf", "float32 and F32"), ("q8_0.gguf", "bfloat16 with int8, and Q8_0")):
        x = [{side: t[file][side] for side in t[file]} for t in turns]
        at = lambda f: (lambda t: f(t["onering"]), lambda t: f(t["llama"]))
        for f, what, unit in ((lambda s: s["first_token"], "first token behind 1,000", " s"), (lambda s: s["first_token_next_turn"], "first token of the next turn", " s")):
            rows.append(beside(x, *at(f), f"{name}: {what}", unit))
        for what, f in [("one client", lambda s: s["tokens_per_second"])] + [(f"{n} clients", lambda s, n=n: s["clients"][n]) for n in x[0]["onering"]["clients"]]:
            ours, theirs = at(f)
            label, b, c, _ = beside(x, ours, theirs, f"{name}: tokens a second, {what}")
            rows.append((label, b, c, span([ours(t) / theirs(t) for t in x], digits=2)))
    return table(("", "onering", "llama-server", "ratio"), rows)


def products_table(turns):
    rows = []
    for kind, name in (("forward", "forward"), ("dX", "dX"), ("dW", "dW, onto the running sum")):
        found = [(forms, own) for t in turns for k, forms, own in t if k == kind]
        other = [max(x for form, x in forms.items() if form not in (own, "torch")) for forms, own in found]
        rows.append((name, span([f[own] for f, own in found]), span(other), span([f["torch"] for f, _ in found])))
    return table(("GFLOP/s", "onering's form", "the best other form", "torch"), rows)


def round_table(turns):
    o, t = [x["onering"][0] for x in turns], [x["trl"][0] for x in turns]
    seconds = lambda side, f: span([f(x) for x in side], " s")
    rest = lambda x: x["round"] - x["rollout"] - x["backward"] - x["optimizer"]
    pair = lambda f: span([f(y) / f(x) for x, y in zip(o, t)], digits=3)
    rows = [(name, seconds(o, f), seconds(t, g), ratio) for name, f, g, ratio in (
        ("a round, warm", lambda x: x["round"], lambda x: x["round"], pair(lambda x: x["round"])),
        ("rollout; TRL's with the old policy's log-probs", lambda x: x["rollout"], lambda x: x["rollout"], ""),
        ("backward", lambda x: x["backward"], lambda x: x["backward"], ""),
        ("optimizer", lambda x: x["optimizer"], lambda x: x["optimizer"], ""),
        ("the rest: forward passes", rest, rest, ""))]
    memory = span([x["peak_gb"] for x in o], " GB"), span([x["peak_gb"] for x in t], " GB"), pair(lambda x: x["peak_gb"])
    return table(("", "onering", "TRL", "ratio"), rows + [("peak memory", *memory)])


# The parts: what measures a turn, what makes the table, and how many turns.
PARTS = {
    "decode": (decode, decode_table, 3), "train": (train, train_table, 2), "prompt": (prompt, prompt_table, 2), "small": (small, small_table, 3),
    "mixed": (mixed, mixed_table, 2), "limits": (limits, limits_table, 1), "checkpoint": (checkpoint, checkpoint_table, 2), "update": (update, update_table, 2), "attention": (attention, attention_table, 2),
    "genai": (genai, genai_table, 3), "products": (products, products_table, 1), "round": (round, round_table, 3),
    "train_bfloat16": (lambda a: train(a, "bfloat16"), train_table, 1), "round_bfloat16": (lambda a: round(a, "bfloat16"), round_table, 1),
    "llama": (llama, llama_table, 2), "serve": (serve, serve_table, 1),
}


def machine(a):
    with open("/proc/cpuinfo") as f:
        said = dict(line.strip().replace("\t", "").split(":", 1) for line in f if ":" in line)
    cpu = said.get("model name", " unknown CPU").strip()
    if "cpu family" in said:  # the name may say little
        vectors = next((name for flag, name in (("avx512_bf16", "AVX-512 BF16"), ("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in said.get("flags", "").split()), "no AVX2")
        cpu += f" (family{said['cpu family']}, model{said['model']}, {vectors})"
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    import importlib.metadata as installed
    versions = {}
    for name in ("torch", "transformers", "trl"):
        try:
            versions[name] = installed.version(name)
        except installed.PackageNotFoundError:
            pass
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "threads": a.threads, "memory_gb": memory, "versions": versions,
            "date": datetime.date.today().isoformat(), "load": os.getloadavg()[0]}


def section(name, figures):
    """The lines between the markers of a part."""
    if name not in figures:
        return [f"Not measured yet: `python bench/performance.py --parts {name}`."]
    part = figures[name]
    m, n = part["machine"], len(part["turns"])
    with_ = ", ".join(f"{k} {v}" for k, v in m["versions"].items())
    caption = f"{m['cpu']}, {m['cores']} cores, {m['threads']} threads, {m['memory_gb']:.0f} GB; {with_}; {n} turn{'s' * (n > 1)}, {m['date']}, load {m['load']:.1f} before."
    return [*PARTS[name][1](part["turns"]), "", caption]


def render(page, figures):
    """The page with all tables made anew."""
    seen = []

    def body(match):
        seen.append(match[1])
        if match[1] not in PARTS:
            sys.exit(f"the page has a marker of {match[1]!r}; parts are {', '.join(PARTS)}")
        return "\n".join([f"<!-- table {match[1]} -->", *section(match[1], figures), "<!-- end -->"])
    page = re.sub(r"<!-- table (\w+) -->\n.*?<!-- end -->", body, page, flags=re.S)
    if missing := set(PARTS) - set(seen):
        sys.exit(f"the page has no marker of {', '.join(sorted(missing))}")
    return page


def read(path):
    with open(path) as f:
        return f.read()


def write(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.replace(path + ".new", path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--onering", help="the onering program")
    p.add_argument("--parts", default=",".join(k for k in PARTS if not k.startswith(("round", "genai", "llama", "serve"))))
    p.add_argument("--turns", type=int, default=0, help="turns of each part in place of its own number")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokenizer", help="for round, genai, llama and serve: folder with the tokenizer")
    p.add_argument("--problems", help="for round: JSON lines with a problem each")
    p.add_argument("--llama", help="for llama and serve: folder with llama.cpp's programs")
    p.add_argument("--gguf-script", help="for llama and serve: llama.cpp's convert_hf_to_gguf.py")
    p.add_argument("--dir", help="folder for models, runs and checkpoints (default the system's for temporary files)")
    p.add_argument("--render", action="store_true", help="measure nothing, and write the page from the figures")
    p.add_argument("--check", action="store_true", help="measure nothing, and fail if the page is not what the figures give")
    p.add_argument("--fused-adamw", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.fused_adamw:
        return print(json.dumps(fused_adamw(a)))
    figures = json.loads(read(FIGURES))
    if a.check:
        if render(read(PAGE), figures) != read(PAGE):
            sys.exit("docs/lab/performance.md is not what docs/lab/performance.json gives: run bench/performance.py --render")
        return
    names = [] if a.render else a.parts.split(",")
    if unknown := [n for n in names if n not in PARTS]:
        p.error(f"no part {', '.join(unknown)}: parts are {', '.join(PARTS)}")
    if names and not a.onering:
        p.error("--onering is needed")
    for name in names:
        measure, _, turns = PARTS[name]
        before = machine(a)
        figures[name] = {"machine": before, "turns": [measure(a) for _ in range(a.turns or turns)]}
        # A part that was measured is kept if the next one fails.
        write(FIGURES, json.dumps(figures, indent=1) + "\n")
        write(PAGE, render(read(PAGE), figures))
    write(PAGE, render(read(PAGE), figures))


main()
