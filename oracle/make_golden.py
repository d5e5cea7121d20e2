#!/usr/bin/env python3
"""Writes tests/golden: tiny models, pages, and what each model must compute on them.

    make_golden.py [--check] [--only CASE ...]    needs torch, transformers >= 5.17, numpy, Pillow and the DejaVu fonts

Everything is seeded. The same versions write the same files; `--check` writes nothing and prints the table of
differences only. For each case there are two fixtures, CASE.f32.safetensors and CASE.bf16.safetensors:

  f32    transformers, all in float32
  bf16   quire_numpy.py, which rounds where src/ops/ops.h says (transformers rounds in more places)

  prompt_ids [T], positions [3, T] (t, h, w), grid [2] (patch rows, columns)
  rows.patches, rows.image_tokens, rows.tokens    which rows of the probes below are kept
  pixel_values                  rows.pixel_values of [N, 3 * frames * patch * patch], always f32
  visual.patch_embed, visual.pos_embed, visual.blocks.I    rows.patches of [N, D of the encoder]
  visual.merger                                            rows.image_tokens of [N / 4, D]
  embed, layers.I.mixer, layers.I.mlp, layers.I            rows.tokens of [T, D]
  norm [1, D], logits [1, V], final_logits [1, V] of the last prompt token, and before the last generated one
  generated_ids [n], generated_gap [n]  greedy, and by how much each logit exceeds the next best. In f32
      no gap is under 0.005, far above what another order of sums moves; in bf16 such an order may turn a token
      whose gap is a few hundredths.

What each probe is: MODEL.md.
"""
import argparse
import json
import os
import struct
import sys
from collections import Counter

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import quire_numpy as spec  # noqa: E402

ROOT = os.path.dirname(HERE)
GOLDEN = os.path.join(ROOT, "tests", "golden")
F32 = np.float32


# --------------------------------------------------------------------------------------------- files
def write_safetensors(path, tensors, metadata=None):
    """tensors: {name: (dtype, array)}, dtype one of F32, BF16, I32. Bytes depend on nothing but the values."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, x) in tensors.items():
        x = np.asarray(x)
        if dtype == "BF16":
            raw = (spec.round_bf16(x).view(np.uint32) >> np.uint32(16)).astype("<u2").tobytes()
        else:
            raw = x.astype({"F32": "<f4", "I32": "<i4"}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1, ensure_ascii=False)
        f.write("\n")


# --------------------------------------------------------------------------------------------- pages
NOTICE = ["Notice", "The reading room opens at nine.", "Tea is served at four."]


def font(size, bold=False):
    return ImageFont.truetype(f"DejaVuSans{'-Bold' if bold else ''}.ttf", size)


def page_notice():
    image = Image.new("RGB", (448, 224), "white")
    draw = ImageDraw.Draw(image)
    draw.text((24, 20), NOTICE[0], "black", font(34, bold=True))
    draw.text((24, 90), NOTICE[1], "black", font(24))
    draw.text((24, 140), NOTICE[2], "black", font(24))
    return image


def page_label(width, height, text):
    """A small picture with all grey levels and colours, for the tiny models."""
    y, x = np.mgrid[:height, :width]
    rgb = np.stack([x * 255 // width, y * 255 // height, 255 - (x + y) * 255 // (width + height)], -1)
    image = Image.fromarray(rgb.astype(np.uint8))
    ImageDraw.Draw(image).text((width // 8, height // 4), text, "white", font(height // 3, bold=True))
    return image


PAGES = {"notice": page_notice, "label": lambda: page_label(128, 96, "Tea"),
         "stamp": lambda: page_label(64, 48, "No")}


# --------------------------------------------------------------------------------------- tiny models
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
           "<|video_pad|>", "<|mask|>"]
V = 300  # 256 bytes, 36 merges, 8 special tokens
ID = {name: V - len(SPECIAL) + i for i, name in enumerate(SPECIAL)}
TEMPLATE = """{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- else %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LONG_TEXT = " ".join(
    f"Line {i}: the harbour office opens at {i % 12 + 1} and the tea is served at {(i * 7) % 12 + 1}, says the notice."
    for i in range(1, 21))

# What the three models differ in. `text`, `vision`: their configurations. `names`: prefixes in the checkpoint.
COMMON_TEXT = dict(vocab_size=V, rms_norm_eps=1e-6, hidden_act="silu", attention_bias=False,
                   max_position_embeddings=2048, linear_conv_kernel_dim=4, eos_token_id=ID["<|endoftext|>"])
COMMON_VISION = dict(hidden_act="gelu_pytorch_tanh", in_channels=3, temporal_patch_size=2, spatial_merge_size=2)
TINY = {
    # Hv = 2 Hk, 3 query heads a key head, 5 layers whose kinds follow the interval.
    "tiny-a": dict(
        seed=9, tied=True, shards=1,
        text=dict(hidden_size=48, intermediate_size=64, num_hidden_layers=5, full_attention_interval=2,
                  num_attention_heads=3, num_key_value_heads=1, head_dim=64, linear_num_key_heads=1,
                  linear_num_value_heads=2, linear_key_head_dim=32, linear_value_head_dim=32,
                  rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25,
                                       mrope_section=[3, 3, 2], mrope_interleaved=True)),
        vision=dict(depth=2, hidden_size=64, num_heads=1, intermediate_size=64, num_position_embeddings=64,
                    patch_size=8, out_hidden_size=48),
        names=("model.language_model.", "model.visual.", "lm_head.")),
    # Hv = Hk, heads of 256, 2 query heads a key head, a head of its own, vision heads of 72, two shards.
    "tiny-b": dict(
        seed=1, tied=False, shards=2,
        text=dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3,
                  layer_types=["linear_attention", "linear_attention", "full_attention"],
                  num_attention_heads=2, num_key_value_heads=1, head_dim=256, linear_num_key_heads=2,
                  linear_num_value_heads=2, linear_key_head_dim=32, linear_value_head_dim=32,
                  rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25,
                                       mrope_section=[11, 11, 10], mrope_interleaved=True)),
        vision=dict(depth=1, hidden_size=72, num_heads=1, intermediate_size=88, num_position_embeddings=49,
                    patch_size=8, out_hidden_size=48),
        names=("language_model.model.", "visual.", "language_model.lm_head.")),
    # Hv = 3 Hk, as many key as query heads, full attention first, two vision heads, widths that are no multiples
    # of 16, some matrices stored as F32, rotary settings beside the other fields.
    "tiny-c": dict(
        seed=6, tied=True, shards=1, f32=("o_proj", "in_proj_z", "merger.linear_fc2"),
        text=dict(hidden_size=56, intermediate_size=72, num_hidden_layers=4,
                  layer_types=["full_attention", "linear_attention", "full_attention", "linear_attention"],
                  num_attention_heads=2, num_key_value_heads=2, head_dim=64, linear_num_key_heads=1,
                  linear_num_value_heads=3, linear_key_head_dim=24, linear_value_head_dim=40,
                  rope_theta=1e5, partial_rotary_factor=0.5, mrope_section=[6, 5, 5]),
        vision=dict(depth=2, hidden_size=48, num_heads=2, intermediate_size=72, num_position_embeddings=36,
                    patch_size=8, out_hidden_size=56),
        names=("model.", "visual.", "lm_head.")),
}


LETTER = """# Harbour Office

Dear Mrs Porter,

the boat will be ready on Monday.
Please bring the old contract.

| Item | Price |
| Paint | 40.50 |
| Rope | 12.00 |
"""


def tiny_tokenizer():
    """Bytes, and the merges of the most frequent pairs of a short text."""
    char_of = spec.Tokenizer.char_of_bytes()
    words = Counter(tuple(char_of[b] for b in w.encode())
                    for w in spec.split_pattern(PATTERN).findall(LONG_TEXT + "\n" + LETTER))
    vocab, merges = [char_of[b] for b in range(256)], []
    while len(vocab) < V - len(SPECIAL):
        pairs = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(list(best))
        vocab.append("".join(best))
        merged = Counter()
        for word, count in words.items():
            s, i = list(word), 0
            while i + 1 < len(s):
                if (s[i], s[i + 1]) == best:
                    s[i:i + 2] = ["".join(best)]
                i += 1
            merged[tuple(s)] += count
        words = merged
    return {
        "version": "1.0",
        "added_tokens": [dict(id=i, content=name, single_word=False, lstrip=False, rstrip=False, normalized=False,
                              special=True) for name, i in ID.items()],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
                  "vocab": {s: i for i, s in enumerate(vocab)}, "merges": merges},
    }


def tiny_config(m):
    return dict(architectures=["Qwen3_5ForConditionalGeneration"], model_type="qwen3_5", dtype="bfloat16",
                image_token_id=ID["<|image_pad|>"], video_token_id=ID["<|video_pad|>"],
                vision_start_token_id=ID["<|vision_start|>"], vision_end_token_id=ID["<|vision_end|>"],
                tie_word_embeddings=m["tied"],
                text_config=dict(model_type="qwen3_5_text", tie_word_embeddings=m["tied"], **COMMON_TEXT, **m["text"]),
                vision_config=dict(model_type="qwen3_5", **COMMON_VISION, **m["vision"]))


def draw_weight(name, shape, rng):
    """Scaled so that activations keep unit size, states remember some tokens and logits have clear winners."""
    normal = rng.standard_normal(shape).astype(F32)
    if name.endswith("A_log"):
        return np.log(rng.uniform(0.02, 0.8, shape)).astype(F32)
    if name.endswith("dt_bias"):
        return normal * F32(0.5) - F32(0.5)
    if "linear_attn.norm" in name or ("visual" in name and "norm" in name and name.endswith("weight")):
        return 1 + normal * F32(0.1)
    if len(shape) == 1:
        return normal * F32(0.1)  # biases, and norm weights, which are offsets from 1
    if "conv1d" in name:
        return normal * F32(0.6)
    if "embed" in name or "lm_head" in name:
        return normal
    # What layers add outweighs the embedding: else a tied head repeats its input for ever.
    adds = any(part in name for part in ("o_proj", "out_proj", "down_proj"))
    gain = 3.0 if adds else 2.0 if "in_proj_a" in name or "in_proj_b" in name else 1.4
    return normal * F32(gain / np.sqrt(np.prod(shape[1:])))


def write_tiny(name, m):
    """The directory of one tiny model. Its transformers twin is made from the same values."""
    path = os.path.join(GOLDEN, name)
    os.makedirs(path, exist_ok=True)
    write_json(os.path.join(path, "config.json"), tiny_config(m))
    write_json(os.path.join(path, "generation_config.json"), {"eos_token_id": [ID["<|im_end|>"], ID["<|endoftext|>"]]})
    p = m["vision"]["patch_size"]
    write_json(os.path.join(path, "preprocessor_config.json"), dict(
        image_processor_type="Qwen2VLImageProcessorFast", patch_size=p, temporal_patch_size=2, merge_size=2,
        image_mean=[0.5] * 3, image_std=[0.5] * 3, size=dict(shortest_edge=1024, longest_edge=1 << 20)))
    write_json(os.path.join(path, "tokenizer.json"), tiny_tokenizer())
    write_json(os.path.join(path, "tokenizer_config.json"), dict(
        tokenizer_class="PreTrainedTokenizerFast", eos_token="<|im_end|>", pad_token="<|endoftext|>",
        model_max_length=2048))
    with open(os.path.join(path, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(TEMPLATE)

    rng, tensors = np.random.default_rng(m["seed"]), {}
    for key, value in twin_of(name).state_dict().items():
        if key == "lm_head.weight" and m["tied"]:
            continue
        w = draw_weight(key, tuple(value.shape), rng)
        vector_f32 = key.endswith(("A_log", "linear_attn.norm.weight"))  # as published files store them
        dtype = "F32" if vector_f32 or any(s in key for s in m.get("f32", ())) else "BF16"
        for usual, prefix in zip(("model.language_model.", "model.visual.", "lm_head."), m["names"]):
            if key.startswith(usual):
                key = prefix + key[len(usual):]
                break
        tensors[key] = (dtype, w if vector_f32 else spec.round_bf16(w))
    if m["shards"] == 1:
        return write_safetensors(os.path.join(path, "model.safetensors"), tensors, {"format": "pt"})
    keys, index = list(tensors), {}
    for i in range(m["shards"]):
        file = f"model-{i + 1:05d}-of-{m['shards']:05d}.safetensors"
        part = keys[i * len(keys) // m["shards"]:(i + 1) * len(keys) // m["shards"]]
        write_safetensors(os.path.join(path, file), {k: tensors[k] for k in part}, {"format": "pt"})
        index |= {k: file for k in part}
    write_json(os.path.join(path, "model.safetensors.index.json"), dict(metadata={}, weight_map=index))


def twin_of(name):
    """transformers' model of a tiny configuration, in its own spelling."""
    c = json.loads(json.dumps(tiny_config(TINY[name])))
    text = c["text_config"]
    rope = {k: text.pop(k) for k in ("rope_theta", "partial_rotary_factor", "mrope_section") if k in text}
    if rope:
        text["rope_parameters"] = dict(rope_type="default", mrope_interleaved=True, **rope)
    return Qwen3_5ForConditionalGeneration(Qwen3_5Config(**c))


# ------------------------------------------------------------------------------------------- oracles
def load_transformers(path, name, model):
    if name not in TINY:
        return Qwen3_5ForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval()
    twin = twin_of(name).float()
    state = {}
    for key in twin.state_dict():
        ours = spec.canonical(key)
        state[key] = torch.from_numpy(np.array(model.w[ours]))
    twin.load_state_dict(state)
    return twin.eval()


def watch(hf, probe):
    """Forward hooks that give probe(name, rows) under Quire's names; remove() them in the end."""
    rows = lambda x: (x[0] if isinstance(x, tuple) else x).detach().float().reshape(-1, x[0].shape[-1]).numpy()
    visual, text, hooks = hf.model.visual, hf.model.language_model, []
    out = lambda module, name: hooks.append(
        module.register_forward_hook(lambda _, __, y: probe(name, rows(y))))
    into = lambda module, name: hooks.append(module.register_forward_pre_hook(
        lambda _, args, kwargs: probe(name, rows(args[0] if args else kwargs["hidden_states"])), with_kwargs=True))
    out(visual.patch_embed, "visual.patch_embed")
    into(visual.blocks[0], "visual.pos_embed")
    for i, block in enumerate(visual.blocks):
        out(block, f"visual.blocks.{i}")
    out(visual.merger, "visual.merger")
    into(text.layers[0], "embed")
    for i, layer in enumerate(text.layers):
        out(layer.linear_attn if hasattr(layer, "linear_attn") else layer.self_attn, f"layers.{i}.mixer")
        out(layer.mlp, f"layers.{i}.mlp")
        out(layer, f"layers.{i}")
    out(text.norm, "norm")
    return hooks


def run_transformers(hf, model, ids, pixels, grid, max_tokens, dtype):
    """The same dict as run_spec, by transformers."""
    probes = {}
    hf = hf.to(dtype)

    def keep_first(name, value):
        probes.setdefault(name, value)  # and give nothing back: a hook's result would replace the module's
    hooks = watch(hf, keep_first)
    ids = torch.tensor([ids])
    with torch.no_grad():
        r = hf.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=torch.from_numpy(pixels).to(dtype),
            image_grid_thw=torch.tensor([[1, *grid]]),
            mm_token_type_ids=(ids == model.config["image_token_id"]).int(), do_sample=False,
            max_new_tokens=max_tokens, eos_token_id=sorted(model.stop), pad_token_id=0, output_logits=True,
            return_dict_in_generate=True)
    for hook in hooks:
        hook.remove()
    logits = [x[0].float().numpy() for x in r.logits]
    top = [np.partition(x, -2)[-2:] for x in logits]
    probes["norm"] = probes["norm"][-1:]
    probes["logits"] = logits[0][None]
    return dict(probes=probes, final_logits=logits[-1][None], ids=r.sequences[0, ids.shape[1]:].tolist(),
                gap=np.array([b - a for a, b in top], F32))


def run_spec(model, ids, pixels, grid, max_tokens):
    probes, steps = {}, []

    def probe(name, value):
        value = np.atleast_2d(value)
        probes.setdefault(name, value)
        if name == "logits":
            steps.append(value)
    r = spec.generate(model, ids, pixels, grid, max_tokens, probe)
    return dict(probes=probes, final_logits=steps[-1], ids=r["ids"], gap=r["gap"])


def cosine_gap(x, y):
    x, y = x.astype(np.float64), y.astype(np.float64)
    return ((x - y) ** 2).sum() / ((x * x).sum() + (y * y).sum())


# --------------------------------------------------------------------------------------------- cases
CASES = {  # model directory (below the root), page, prompt, most generated tokens, rows kept of each probe
    "tiny-a": ("tests/golden/tiny-a", "stamp", "Read the stamp.", 64, None),
    "tiny-a-long": ("tests/golden/tiny-a", "label", LONG_TEXT, 64, 24),
    "tiny-b": ("tests/golden/tiny-b", "stamp", "Read the stamp.", 64, None),
    "tiny-c": ("tests/golden/tiny-c", "stamp", "What does it say?", 64, None),
    "mini-notice": ("models/quire-mini", "notice", "Convert this page to Markdown.", 512, 4),
}


def kept_rows(count, keep):
    return np.arange(count) if keep is None else np.unique(np.linspace(0, count - 1, keep).round().astype(int))


def write_fixture(case, dtype, model, ids, pixels, grid, result, keep):
    m2 = model.vision["spatial_merge_size"] ** 2
    rows = {"rows.patches": kept_rows(len(pixels), keep), "rows.image_tokens": kept_rows(len(pixels) // m2, keep),
            "rows.tokens": kept_rows(len(ids), keep)}
    out = {"prompt_ids": ("I32", ids), "grid": ("I32", grid),
           "positions": ("I32", spec.mrope_positions(np.array(ids), model.config["image_token_id"], grid,
                                                     model.vision["spatial_merge_size"])[0]),
           **{name: ("I32", r) for name, r in rows.items()}}
    few = kept_rows(len(pixels), 4)
    out["rows.pixel_values"], out["pixel_values"] = ("I32", few), ("F32", pixels[few])
    for name, value in result["probes"].items():
        if name.startswith("visual."):
            value = value[rows["rows.image_tokens" if name == "visual.merger" else "rows.patches"]]
        elif name not in ("norm", "logits"):
            value = value[rows["rows.tokens"]]
        out[name] = ("BF16" if dtype == "bf16" and name != "logits" else "F32", value)
    out["final_logits"] = ("F32", result["final_logits"])
    out["generated_ids"], out["generated_gap"] = ("I32", result["ids"]), ("F32", result["gap"])
    write_safetensors(os.path.join(GOLDEN, f"{case}.{dtype}.safetensors"), out)


def first_difference(x, y):
    return next((i for i, (a, b) in enumerate(zip(x, y)) if a != b), None if len(x) == len(y) else min(len(x), len(y)))


def make_case(case, write):
    directory, page, prompt, max_tokens, keep = CASES[case]
    path = os.path.join(ROOT, directory)
    models = {dtype: spec.Model(path, dtype) for dtype in ("f32", "bf16")}
    image = Image.open(os.path.join(GOLDEN, "pages", page + ".png"))
    pixels, grid = spec.preprocess(image, models["f32"])
    ids = spec.prompt_ids(models["f32"], len(pixels) // models["f32"].vision["spatial_merge_size"] ** 2, prompt)
    hf = load_transformers(path, os.path.basename(directory), models["f32"])
    theirs = run_transformers(hf, models["f32"], ids, pixels, grid, max_tokens, torch.float32)
    rounded = run_transformers(hf, models["f32"], ids, pixels, grid, max_tokens, torch.bfloat16)
    ours = {dtype: run_spec(m, ids, pixels, grid, max_tokens) for dtype, m in models.items()}
    if write:
        write_fixture(case, "f32", models["f32"], ids, pixels, grid, theirs, keep)
        write_fixture(case, "bf16", models["bf16"], ids, pixels, grid, ours["bf16"], keep)

    print(f"\n{case}: {len(ids)} prompt tokens, {len(theirs['ids'])} generated, {len(set(theirs['ids']))} of them "
          f"different, smallest gap {theirs['gap'].min():.4f}")
    print(f"  text: {models['f32'].tokenizer.decode(theirs['ids'])!r}")
    for name, a, b in (("f32: transformers, specification", theirs, ours["f32"]),
                       ("bf16: transformers, specification", rounded, ours["bf16"]),
                       ("specification: f32, bf16", ours["f32"], ours["bf16"])):
        gaps = {p: cosine_gap(a["probes"][p], b["probes"][p]) for p in b["probes"]}
        worst = max(gaps, key=gaps.get)
        at = first_difference(a["ids"], b["ids"])
        ids_note = "ids equal" if at is None else f"ids differ from token {at}, gap {a['gap'][at]:.3f}"
        print(f"  {name}: worst cosine gap {gaps[worst]:.1e} ({worst}), logits {gaps['logits']:.1e}; {ids_note}")
    assert theirs["gap"].min() > 0.005, "two tokens are nearly equal: take another seed"
    assert set(theirs["probes"]) == set(ours["f32"]["probes"]), "probe points differ"
    assert first_difference(theirs["ids"], ours["f32"]["ids"]) is None, "greedy ids differ in f32"


def main():
    ap = argparse.ArgumentParser(description="Writes tests/golden.")
    ap.add_argument("--check", action="store_true", help="write nothing")
    ap.add_argument("--only", nargs="*", choices=CASES, help="these cases")
    a = ap.parse_args()
    torch.manual_seed(0)
    os.makedirs(os.path.join(GOLDEN, "pages"), exist_ok=True)
    if not a.check:
        for name, draw in PAGES.items():
            draw().save(os.path.join(GOLDEN, "pages", name + ".png"), optimize=True)
        for name, m in TINY.items():
            write_tiny(name, m)
    for case in a.only or CASES:
        make_case(case, not a.check)


if __name__ == "__main__":
    main()
