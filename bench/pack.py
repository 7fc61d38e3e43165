#!/usr/bin/env python3
"""Packs what the tables of a bench need into small archives, one for each folder of runs.

    python3 bench/pack.py DESTINATION

Of each finished run under runs/out/bench it takes run.toml, result.json and the metrics
that the tables show, and all sweep files that bench/tuned.py wrote. To go on from there,
on any machine, unpack the archives in the repository's root.
"""
import glob, io, json, os, sys, tarfile

KEEP = "kind step round reward grad_norm clipped entropy p/mean p/share_at_max ess_at_p_max target_ess clip_fraction delta/std log_ratio/mean response_length/mean frac_reward_zero_std".split()


def small(path, steps):
    """The metrics of one run, without the steps if steps is false."""
    lines = []
    for line in open(path):
        m = json.loads(line)
        if m["kind"] == "step" and not steps:
            continue
        m = {k: v for k, v in m.items() if k in KEEP or k.startswith(("eval/", "seconds/"))}
        for k, v in m.items():
            if isinstance(v, float) and not k.startswith("eval/"):  # rounding those would part ties
                m[k] = float(f"{v:.6g}")
        lines.append(json.dumps(m))
    return ("\n".join(lines) + "\n").encode()


def pack(archive, folder, steps):
    for result in sorted(glob.glob(f"{folder}/*/seed-*/result.json")):
        run = os.path.dirname(result)
        archive.add(f"{run}/run.toml")
        archive.add(result)
        data = small(f"{run}/metrics.jsonl", steps)
        info = tarfile.TarInfo(f"{run}/metrics.jsonl")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))


destination = sys.argv[1]
with tarfile.open(f"{destination}/tune.tar.gz", "w:gz") as tune:
    for path in glob.glob("runs/bench/sweep-*.toml") + glob.glob("runs/out/bench/*.md"):
        tune.add(path)
    for folder in sorted(glob.glob("runs/out/bench/*/")):
        name = os.path.basename(folder[:-1])
        if name.startswith("tune-"):
            pack(tune, folder[:-1], False)
        elif glob.glob(f"{folder}*/seed-*/result.json"):
            with tarfile.open(f"{destination}/{name}.tar.gz", "w:gz") as archive:
                pack(archive, folder[:-1], True)
