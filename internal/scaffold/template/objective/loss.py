"""An objective of onering: a loss in PyTorch, which differentiates it.

    onering objectives check --set 'objective.command=["python3", "FILE"]'
    onering train --objective=command --set 'objective.command=["python3", "FILE"]'
"""
import json
import sys

import torch


def loss(logp, at, old, advantage, length):
    """One number for all tokens of a step, [T] each. `at` is logp as a constant: use it where
    you would write logp.detach(). length is the number of tokens of each token's response."""
    ratio = torch.exp(logp - old)
    clipped = ratio.clamp(0.8, 1.2)  # YOUR LOSS BEGINS HERE
    return -torch.minimum(ratio * advantage, clipped * advantage).sum() / max(len(logp), 1)


for line in sys.stdin:
    step = json.loads(line)
    rows = step["trajectories"]
    lengths = [len(r["logp"]) for r in rows]
    flat = lambda key: torch.tensor([x for r in rows for x in r[key]], dtype=torch.float64)
    each = lambda values: torch.tensor([v for v, n in zip(values, lengths) for _ in range(n)], dtype=torch.float64)
    logp = flat("logp").requires_grad_()
    value = loss(logp, flat("at"), flat("old_logp"), each([r["advantage"] for r in rows]), each(lengths))
    (gradient,) = torch.autograd.grad(value, logp)
    weights = [w.tolist() for w in gradient.split(lengths)] if rows else []
    print(json.dumps({"id": step["id"], "loss": value.item(), "weights": weights}), flush=True)
