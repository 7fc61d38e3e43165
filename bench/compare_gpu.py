#!/usr/bin/env python3
"""PyTorch's and transformers' figures for a shape on a GPU, beside onering bench's.

    python bench/compare_gpu.py --config bench/qwen2.5-1.5b/config.json [--device cuda:0] [--dtype bfloat16]

Needs torch and transformers in the Python that runs it. Weights are random:
speed does not depend on them. Prints one JSON object.

decode      ms per token of generate, greedy, at each batch size after a prompt of
            --context tokens, and seconds to the first token of a prompt of
            --tokens; weights in --dtype, the default settings of transformers.
            With --static its static cache too, for which it compiles the model
score       seconds for the log-probs of --rows x --tokens tokens, no gradients
train       seconds forward and backward over as many, with gradient
            checkpointing per layer, and of the update: clipping by the norm and
            fused AdamW. Weights, gradients and moments are in float32 and the
            products in --dtype, by autocast, as onering has them

Every time is the fewest of --repeat after one that warms up, read when the GPU is
done. Memory is the most that was allocated for tensors and the most that PyTorch
reserved; on a CPU the most that the process has had resident until then.
"""
import argparse, gc, json, os, resource, sys, time


class Bench:
    def __init__(self, a):
        import torch, transformers

        self.a, self.torch, self.transformers = a, torch, transformers
        self.device = torch.device(a.device)
        self.dtype = getattr(torch, a.dtype)
        self.cuda = self.device.type == "cuda"
        torch.manual_seed(0)

    def model(self, dtype):
        """A model made where it runs: on a host's cores 7B random numbers take minutes."""
        if self.cuda:
            self.torch.cuda.reset_peak_memory_stats(self.device)
        c = self.transformers.AutoConfig.from_pretrained(os.path.dirname(self.a.config) if os.path.isfile(self.a.config) else self.a.config)
        c.dtype = dtype
        with self.torch.device(self.device):
            return self.transformers.AutoModelForCausalLM.from_config(c, dtype=dtype, attn_implementation="sdpa")

    def ids(self, m, *shape):
        return self.torch.randint(0, m.config.vocab_size, shape, device=self.device)

    def now(self):
        if self.cuda:
            self.torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def memory(self):
        if self.cuda:
            m = self.torch.cuda
            return {"peak_allocated_bytes": m.max_memory_allocated(self.device), "peak_reserved_bytes": m.max_memory_reserved(self.device)}
        return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def fastest(self, f):
        times = []
        for _ in range(1 + self.a.repeat):  # the first warms up
            t = self.now()
            f()
            times.append(self.now() - t)
        return min(times[1:])

    def decode(self):
        m = self.model(self.dtype).eval()
        # Never stop early: the time of a step is what is asked for.
        m.generation_config.eos_token_id = None
        out = {"decode": {}}
        kinds = {"decode": {}}
        if self.a.static:
            out["decode_static"], kinds["decode_static"] = {}, {"cache_implementation": "static"}
        with self.torch.inference_mode():
            for kind, options in kinds.items():
                for b in self.a.batch:
                    seconds = self.step(m, b, options)
                    out[kind][str(b)] = {"step_ms": seconds * 1e3, "tokens_per_second": b / seconds}
            ids = self.ids(m, 1, self.a.tokens)
            first = lambda: m.generate(ids, attention_mask=self.torch.ones_like(ids), max_new_tokens=1, do_sample=False, pad_token_id=0)
            out["prefill_seconds"] = self.fastest(first)
        return out | self.memory()

    def step(self, m, b, options):
        """Seconds of a token of b sequences, from the end of the first to that of the last."""
        ids, n, best = self.ids(m, b, self.a.context), 1 + self.a.steps, None
        goes_on = self.torch.zeros(b, dtype=self.torch.bool, device=self.device)
        for i in range(2):  # the first warms up, and compiles
            count, times = 0, []

            def clock(*_, **__):
                nonlocal count
                count += 1
                if count in (1, n):
                    times.append(self.now())
                return goes_on

            m.generate(ids, attention_mask=self.torch.ones_like(ids), max_new_tokens=n, do_sample=False, pad_token_id=0,
                       stopping_criteria=self.transformers.StoppingCriteriaList([clock]), **options)
            assert count == n, f"{count} of {n} tokens"
        return (times[1] - times[0]) / self.a.steps

    def logp(self, m, ids):
        # Each weight is used once a pass: keeping what it was cast to takes memory alone.
        with self.torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != self.torch.float32, cache_enabled=False):
            logits = m(ids[:, :-1], use_cache=False).logits
            return -self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(self.a.rows, self.a.tokens)

    def score(self):
        m = self.model(self.torch.float32).eval()
        ids = self.ids(m, self.a.rows, self.a.tokens + 1)
        with self.torch.no_grad():
            seconds = self.fastest(lambda: self.logp(m, ids))
        tokens = self.a.rows * self.a.tokens
        return {"tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds} | self.memory()

    def train(self):
        m = self.model(self.torch.float32).train()
        m.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        optimizer = self.torch.optim.AdamW(m.parameters(), lr=1e-6, betas=(0.9, 0.95), eps=1e-8, weight_decay=0, fused=True)
        ids = self.ids(m, self.a.rows, self.a.tokens + 1)
        w = self.torch.randn(self.a.rows, self.a.tokens, device=self.device) / 1000
        best, updates = None, []
        for i in range(1 + self.a.repeat):  # the first warms up
            optimizer.zero_grad()
            t0 = self.now()
            loss = (w * self.logp(m, ids)).sum()
            t1 = self.now()
            loss.backward()
            t2 = self.now()
            self.torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            optimizer.step()
            updates.append(self.now() - t2)
            if i == 1 or i > 1 and t2 - t0 < best["seconds"]:
                best = {"forward_seconds": t1 - t0, "backward_seconds": t2 - t1, "seconds": t2 - t0}
        tokens = self.a.rows * self.a.tokens
        return {"tokens": tokens} | best | {"tokens_per_second": tokens / best["seconds"], "optimizer_seconds": min(updates[1:])} | self.memory()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", required=True, help="config.json of the shape, such as bench/qwen2.5-1.5b/config.json")
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    p.add_argument("--only", default="decode,score,train")
    p.add_argument("--batch", default="64")
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--steps", type=int, default=32)
    p.add_argument("--rows", type=int, default=4)
    p.add_argument("--tokens", type=int, default=1024)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--static", action="store_true", help="decode with the static cache as well; compiling takes its time")
    a = p.parse_args()
    a.batch = [int(b) for b in a.batch.split(",")]
    parts = {"decode": "rollout", "score": "score", "train": "train"}  # named as onering bench names them
    a.only = a.only.split(",")
    if not set(a.only) <= set(parts):
        p.error(f"--only: must be some of {', '.join(parts)}")
    bench = Bench(a)
    name = bench.torch.cuda.get_device_name(bench.device) if bench.cuda else a.device
    result = {"device": name, "dtype": a.dtype, "torch": bench.torch.__version__, "transformers": bench.transformers.__version__}
    failed = False
    for part in a.only:
        try:
            figures = getattr(bench, part)()
        except Exception as e:  # what the other parts measured is printed all the same
            figures = {"error": f"{type(e).__name__}: {e}"}
            # That PyTorch runs out of memory is a finding.
            failed |= not isinstance(e, bench.torch.OutOfMemoryError)
        result[parts[part]] = figures
        print(part, json.dumps(figures), file=sys.stderr)
        gc.collect()
        if bench.cuda:
            bench.torch.cuda.empty_cache()
    print(json.dumps(result))
    sys.exit(failed)


main()
