#!/usr/bin/env python3
"""Encodes the same text with Quire and with Hugging Face tokenizers, on one core, in one run.

    pip install tokenizers
    python3 bench/rivals/tokenizers_hf.py build/cpu/bench/tokenizer_bench [TOKENIZER_JSON ...]

The ids are compared before anything is timed. Turns alternate, so that a busy machine slows both.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import argparse  # noqa: E402
import pathlib  # noqa: E402
import random  # noqa: E402
import re  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/text"))

import strings  # noqa: E402
import tokenizers  # noqa: E402


def corpus(size):
    """Markdown and sentences of many scripts, words shuffled so that pieces differ."""
    rng = random.Random(3)
    latin = [word for sentence in strings.SENTENCES[:10] for word in sentence.split()]
    syllables = ["ta", "ri", "on", "es", "qu", "el", "in", "men", "tion", "ar", "th", "st", "ou", "ver", "a", "i"]
    parts, total = [], 0
    while total < size:
        kind = rng.random()
        if kind < 0.45:
            words = [rng.choice(latin) if rng.random() < 0.6 else "".join(rng.choices(syllables, k=rng.randrange(1, 5))) for _ in range(60)]
            part = " ".join(words) + ".\n\n"
        elif kind < 0.75:
            sentences = rng.choices(strings.SENTENCES, k=4)
            part = " ".join(word for s in sentences for word in rng.sample(s.split(), len(s.split()))) + "\n\n"
        elif kind < 0.95:
            part = rng.choice(strings.MARKDOWN) + "\n\n"
        else:
            part = " ".join(rng.choices(strings.EMOJI, k=5)) + f" {rng.random()} {rng.randrange(10**6)}\n\n"
        parts.append(part)
        total += len(part.encode())
    return "".join(parts)


def pieces_of(data):
    """As tokenizer_bench cuts them."""
    pieces = []
    while data:
        at = data.find(b"\n\n", 2000) if len(data) > 2000 else -1
        end = len(data) if at < 0 else at + 2
        pieces.append(data[:end].decode())
        data = data[end:]
    return pieces


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer_bench", type=pathlib.Path)
    parser.add_argument("tokenizers", nargs="*", type=pathlib.Path, default=[ROOT / "models/quire-mini/tokenizer.json"])
    parser.add_argument("--megabytes", type=float, default=2)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        text_file = pathlib.Path(folder) / "text"
        data = corpus(int(args.megabytes * 1e6)).encode()
        text_file.write_bytes(data)
        pieces = pieces_of(data)
        for path in args.tokenizers:
            start = time.perf_counter()
            rival = tokenizers.Tokenizer.from_file(str(path))
            load = time.perf_counter() - start
            ours = subprocess.run([args.tokenizer_bench, path, text_file, "--ids"], capture_output=True, text=True, check=True).stdout
            if [list(map(int, line.split())) for line in ours.split("\n")[:-1]] != [rival.encode(piece, add_special_tokens=False).ids for piece in pieces]:
                print(f"{path}: the ids differ")
                return 1
            theirs_best, ours_best, out = 0.0, 0.0, ""
            for _ in range(3):
                start = time.perf_counter()
                for piece in pieces:
                    rival.encode(piece, add_special_tokens=False)
                theirs_best = max(theirs_best, len(data) / (time.perf_counter() - start) / 1e6)
                out = subprocess.run([args.tokenizer_bench, path, text_file, "2"], capture_output=True, text=True, check=True).stdout
                ours_best = max(ours_best, float(re.search(r"best pass: ([\d.]+)", out)[1]))
            print(f"{path} ({len(data)} bytes, {len(pieces)} pieces, ids equal)\n  tokenizers {tokenizers.__version__}: load {load:.3f} s, {theirs_best:.1f} MB/s")
            print("  quire: " + ", ".join(out.strip().split("\n")) + f"\n  ratio: {ours_best / theirs_best:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
