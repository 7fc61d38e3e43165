#!/usr/bin/env python3
"""Measures the Unicode data of the reference tokenizer and writes it as JSON.

    pip install tokenizers==0.23.3
    python3 classes.py > classes.json        # then: go generate ./tokenize

Hugging Face `tokenizers` carries two versions of Unicode: a recent one in its
regular expressions and an old one in its NFC. Neither is written down, so both
are asked about every code point:

  L, N          what \\p{L} and \\p{N} match in a Split pre-tokenizer
  marks         what normalization moves (combining class not 0)
  decomposes    what NFD replaces
"""
import json

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFD = normalizers.NFD()


def matched(pattern):
    """Code points that pattern matches, by splitting runs of 4096 of them."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return [ord(piece) for i in range(0, len(POINTS), 4096)
            for piece, _ in split.pre_tokenize_str("".join(map(chr, POINTS[i:i + 4096])))]


def is_mark(point):
    """U+0345 has the highest class, 240, so any other mark must pass it."""
    text = "a\u0345" + chr(point) if point != 0x345 else "a\u0345\u0301"
    return NFD.normalize_str(text) != text and not decomposes(point)


def decomposes(point):
    return NFD.normalize_str(chr(point)) != chr(point)


def ranges(points):
    out = []
    for p in points:
        if out and p == out[-1][1] + 1:
            out[-1][1] = p
        else:
            out.append([p, p])
    return out


def main():
    sets = {
        "L": matched(r"\p{L}"),
        "N": matched(r"\p{N}"),
        "marks": [p for p in POINTS if is_mark(p)],
        "decomposes": [p for p in POINTS if decomposes(p)],
    }
    lines = ['"source": "tokenizers %s, testdata/classes.py"' % tokenizers.__version__]
    for name, points in sets.items():
        lines.append('"%s": {"count": %d, "ranges": %s}' % (name, len(points), json.dumps(ranges(points))))
    print("{" + ",\n".join(lines) + "}")


if __name__ == "__main__":
    main()
