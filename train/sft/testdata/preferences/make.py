"""Makes losses.json: losses over pairs of responses and their gradients by PyTorch's autograd.

    python make.py > losses.json

The formulas are those of the papers that loss.go names, written from the papers; TRL 1.16.0's
DPOTrainer, CPOTrainer, ORPOTrainer and KTOTrainer have the same ones, but that ORPO's -log p
counts the prompt there, too.
"""

import json
import torch
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


def case(name, settings, n, loss):
    return unpaired(name, settings, (n, n), loss)


def unpaired(name, settings, counts, loss):
    logp = [(-torch.rand(n) * 40 - 0.5).requires_grad_() for n in counts]
    reference = [x.detach() + torch.randn(len(x)) * 3 for x in logp]
    tokens = [torch.randint(1, 30, (n,)) for n in counts]
    mismatched = [-torch.rand(sum(counts)) * 50 for _ in range(2)]
    value = loss(logp, reference, [t.double() for t in tokens], mismatched)
    value.backward()
    rows = lambda xs: [x.tolist() for x in xs]
    return dict(name=name, settings=settings, logp=[x.tolist() for x in map(torch.Tensor.detach, logp)],
                reference=rows(reference), tokens=rows(tokens), mismatched=rows(mismatched),
                loss=value.item(), slopes=[x.grad.tolist() for x in logp])


def smoothed(x, e):
    return (-(1 - e) * F.logsigmoid(x) - e * F.logsigmoid(-x)).mean()


def ahead(l, r):
    return (l[0] - r[0]) - (l[1] - r[1])


def orpo(l, n, beta):
    a, b = l[0] / n[0], l[1] / n[1]
    odds = (a - torch.log1p(-a.exp())) - (b - torch.log1p(-b.exp()))
    return -l[0].sum() / n[0].sum() - beta * F.logsigmoid(odds).mean()


def kto(l, r, m, beta, d, u):
    z = (m[0] - m[1]).mean().clamp(min=0)
    good = d * (1 - torch.sigmoid(beta * (l[0] - r[0] - z)))
    bad = u * (1 - torch.sigmoid(beta * (z - l[1] + r[1])))
    return torch.cat([good, bad]).mean()


cases = [
    case("dpo", dict(loss="dpo", beta=0.1), 5, lambda l, r, n, m: smoothed(0.1 * ahead(l, r), 0)),
    case("conservative dpo", dict(loss="dpo", beta=0.5, label_smoothing=0.2), 3, lambda l, r, n, m: smoothed(0.5 * ahead(l, r), 0.2)),
    case("ipo", dict(loss="ipo", beta=0.1), 4,
         lambda l, r, n, m: (((l[0] - r[0]) / n[0] - (l[1] - r[1]) / n[1] - 1 / 0.2) ** 2).mean()),
    case("simpo", dict(loss="simpo", beta=2, margin=0.5), 4,
         lambda l, r, n, m: smoothed(2 * (l[0] / n[0] - l[1] / n[1]) - 0.5, 0)),
    case("orpo", dict(loss="orpo", beta=0.1), 4, lambda l, r, n, m: orpo(l, n, 0.1)),
    case("kto", dict(loss="kto", beta=0.1, desirable=1, undesirable=1.5), 4, lambda l, r, n, m: kto(l, r, m, 0.1, 1, 1.5)),
    case("kto, no divergence", dict(loss="kto", beta=0.1, desirable=1, undesirable=1), 1, lambda l, r, n, m: kto(l, r, m, 0.1, 1, 1)),
    unpaired("kto, single", dict(loss="kto", beta=0.1, desirable=1, undesirable=1.5), (4, 3), lambda l, r, n, m: kto(l, r, m, 0.1, 1, 1.5)),
    unpaired("kto, good ones alone", dict(loss="kto", beta=0.3, desirable=1.2, undesirable=1), (2, 0), lambda l, r, n, m: kto(l, r, m, 0.3, 1.2, 1)),
]
print(json.dumps(cases, indent=1))
