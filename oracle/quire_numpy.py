#!/usr/bin/env python3
"""Executable specification of the model that Quire runs: page image -> Markdown. NumPy and Pillow only.

    quire_numpy.py MODEL_DIR page.png [--dtype f32|bf16] [--max-tokens N] [--prompt TEXT]
                   [--dump probes.npz] [--recurrent] [--stats]

MODEL_DIR is a Hugging Face directory (config.json, preprocessor_config.json, tokenizer.json,
*.safetensors); every size comes from config.json.

Two precisions. `f32`: nothing is rounded between operations. `bf16`: exactly the rounding points of
src/ops/ops.h and MODEL.md, each a call of `A(...)` below; arithmetic between them is float32. Weights are
bf16 in both. An engine differs from this program only in the order of its sums.

Shapes in comments use the letters of MODEL.md: T tokens, D width, N patches, H and G query and key heads, E
head dim, Hk, Hv, Ek, Ev heads of Gated DeltaNet. A linear weight is [out, in]: y = x W^T.
"""
import argparse
import glob
import json
import math
import os
import re
import struct
import sys
import time
import unicodedata

import numpy as np
from PIL import Image

np.seterr(over="ignore")  # exp(-x) may overflow to inf inside sigmoid: the result 0 is right
F32 = np.float32


# ------------------------------------------------------------------------------------------ rounding
def round_bf16(x):
    """float32 -> the nearest bf16 (its upper 16 bits, ties to even) as float32."""
    bits = np.ascontiguousarray(x, F32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(F32))


def rounding(dtype):
    """A(x): rounds activations to the model's precision."""
    return round_bf16 if dtype == "bf16" else lambda x: np.asarray(x, F32)


# ---------------------------------------------------------------------------------------- checkpoint
def read_safetensors(path):
    """One file: u64 header length, JSON header {name: {dtype, shape, data_offsets}}, raw little-endian data."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
    raw = np.memmap(path, np.uint8, "r", offset=8 + n)
    out = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        data = raw[t["data_offsets"][0]:t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            x = (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(F32)
        else:
            x = data.view({"F32": "<f4", "F16": "<f2"}[t["dtype"]]).astype(F32)
        out[name] = x.reshape(t["shape"])
    return out


def canonical(name):
    """Checkpoints differ in prefix; here text tensors are `layers.0...`, vision tensors `visual...`."""
    for prefix in ("model.language_model.", "language_model.model.", "language_model.", "model."):
        if name.startswith(prefix):
            return name[len(prefix):]
    return name


class Model:
    """A checkpoint directory and the precision it runs in."""

    def __init__(self, path, dtype="f32"):
        def load(file):
            file = os.path.join(path, file)
            return json.load(open(file, encoding="utf-8")) if os.path.exists(file) else {}
        self.A = rounding(dtype)
        self.config, self.pre = load("config.json"), load("preprocessor_config.json")
        self.text, self.vision = self.config["text_config"], self.config["vision_config"]
        self.tokenizer = Tokenizer(load("tokenizer.json"))
        self.w = {}
        for file in sorted(glob.glob(os.path.join(glob.escape(path), "*.safetensors"))):
            for name, value in read_safetensors(file).items():
                # Matrices are used as bf16 however they are stored; vectors and convolution taps as f32.
                is_matrix = value.ndim >= 2 and "conv1d" not in name
                self.w[canonical(name)] = round_bf16(value) if is_matrix else value
        self.w.setdefault("lm_head.weight", self.w["embed_tokens.weight"])  # tied
        t = self.text
        interval = t.get("full_attention_interval", 4)
        self.layer_types = t.get("layer_types") or [
            "full_attention" if (i + 1) % interval == 0 else "linear_attention"
            for i in range(t["num_hidden_layers"])]
        self.stop = set()  # every eos named anywhere stops the decode
        for d in (self.config, t, load("generation_config.json")):
            eos = d.get("eos_token_id")
            self.stop |= set(eos if isinstance(eos, list) else [] if eos is None else [eos])


# ----------------------------------------------------------------------------------------- tokenizer
class Tokenizer:
    """Byte-level BPE: every byte is one printable character of the vocabulary (the GPT-2 map)."""

    @staticmethod
    def char_of_bytes():
        keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [b for b in range(256) if b not in keep]
        return {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(rest)}

    def __init__(self, j):
        self.char_of = self.char_of_bytes()
        self.byte_of = {c: b for b, c in self.char_of.items()}
        self.vocab = j["model"]["vocab"]
        self.special = {t["content"]: t["id"] for t in j["added_tokens"]}
        self.text_of = {i: s for s, i in self.vocab.items()}
        merges = [tuple(m if isinstance(m, list) else m.split(" ")) for m in j["model"]["merges"]]
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.nfc = "NFC" in json.dumps(j.get("normalizer"))
        self.split = split_pattern(next(p["pattern"]["Regex"] for p in j["pre_tokenizer"]["pretokenizers"]
                                        if p["type"] == "Split"))

    def decode(self, ids):
        """Special tokens vanish. One token may hold only part of a character, so bytes are joined first."""
        special = set(self.special.values())
        data = bytes(self.byte_of[c] for i in ids if i not in special for c in self.text_of.get(int(i), ""))
        return data.decode("utf-8", errors="replace")

    def encode(self, text):
        """Special tokens are cut out first; the rest goes NFC -> words -> bytes -> merges, lowest rank first."""
        ids = []
        for part in re.split("(" + "|".join(map(re.escape, self.special)) + ")", text):
            if part in self.special:
                ids.append(self.special[part])
                continue
            for word in self.split.findall(unicodedata.normalize("NFC", part) if self.nfc else part):
                s = [self.char_of[b] for b in word.encode("utf-8")]
                while len(s) > 1:
                    rank, i = min((self.rank.get((s[i], s[i + 1]), 1 << 30), i) for i in range(len(s) - 1))
                    if rank == 1 << 30:
                        break
                    s[i:i + 2] = [s[i] + s[i + 1]]
                ids += [self.vocab[x] for x in s]
        return ids


def split_pattern(pattern):
    r"""The pretokenizer of tokenizer.json for Python's `re`, which knows no \p{L}: the classes are written out."""
    def ranges(category):
        inside = [unicodedata.category(chr(c))[0] == category for c in range(sys.maxunicode + 1)]
        edges = np.flatnonzero(np.diff(np.array([0, *inside, 0])))
        return "".join(f"\\U{a:08x}-\\U{b - 1:08x}" for a, b in edges.reshape(-1, 2))

    def write_out(match):
        text = re.sub(r"\\p\{(\w)\}", lambda m: ranges(m[1]), match[0])
        return text if text[0] == "[" else f"[{text}]"
    return re.compile(re.sub(r"\[[^\]]*\]|\\p\{\w\}", write_out, pattern))


# ---------------------------------------------------------------------------------- image -> patches
def smart_resize(h, w, factor, min_pixels, max_pixels):
    """Both sides to multiples of `factor`, the area inside [min_pixels, max_pixels]. Python's round: half to even."""
    hb, wb = round(h / factor) * factor, round(w / factor) * factor
    if hb * wb > max_pixels:
        s = math.sqrt(h * w / max_pixels)
        hb = max(factor, math.floor(h / s / factor) * factor)
        wb = max(factor, math.floor(w / s / factor) * factor)
    elif hb * wb < min_pixels:
        s = math.sqrt(min_pixels / (h * w))
        hb, wb = math.ceil(h * s / factor) * factor, math.ceil(w * s / factor) * factor
    return hb, wb


def preprocess(image, model):
    """PIL image -> pixel values [N, 3 * frames * patch * patch], patch grid (height, width).
    Rows: merge blocks in raster order, inside one its patches in raster order. Columns: channel, frame, y, x."""
    p, m, frames = (model.vision[k] for k in ("patch_size", "spatial_merge_size", "temporal_patch_size"))
    size = model.pre["size"]  # the "edges" are pixel counts
    image = image.convert("RGB")
    h, w = smart_resize(image.height, image.width, p * m, size["shortest_edge"], size["longest_edge"])
    if (w, h) != image.size:
        image = image.resize((w, h), Image.BICUBIC)  # antialiased, a = -0.5, rounded to 8 bits
    x = np.asarray(image, F32) / F32(255)  # [h, w, 3]
    x = (x - np.array(model.pre["image_mean"], F32)) / np.array(model.pre["image_std"], F32)
    gh, gw = h // p, w // p
    x = x.reshape(gh // m, m, p, gw // m, m, p, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    x = np.repeat(x[:, :, :, :, :, None], frames, axis=5)  # a still image is equal frames
    return np.ascontiguousarray(x.reshape(gh * gw, -1)), (gh, gw)


# ------------------------------------------------------------------------------------ small functions
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(F32(math.sqrt(2 / math.pi)) * (x + F32(0.044715) * x * x * x)))


def gelu_erf(x):
    erf = np.frompyfunc(math.erf, 1, 1)(x * F32(math.sqrt(0.5))).astype(F32)
    return 0.5 * x * (1 + erf)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def rms(x, eps):
    return np.sqrt((x * x).mean(-1, keepdims=True) + F32(eps))


def weighted_mean(scores, v, A):
    """softmax(scores) v. The weights relative to the row's largest score are rounded, their sum is not."""
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return A(A(weight) @ v / weight.sum(-1, keepdims=True))


class Layer:
    """The weights under one prefix and the operations that take one. Each result is rounded."""

    def __init__(self, model, prefix):
        self.weights, self.prefix, self.A, self.eps = model.w, prefix, model.A, model.text["rms_norm_eps"]

    def w(self, name):
        return self.weights[self.prefix + name]

    def linear(self, x, name):
        bias = self.weights.get(f"{self.prefix}{name}.bias", F32(0))
        return self.A(x @ self.w(name + ".weight").T + bias)

    def rms_norm(self, x, name):
        """Zero-centred: the stored weight is an offset from 1."""
        return self.A(x / rms(x, self.eps) * (1 + self.w(name + ".weight")))

    def layer_norm(self, x, name):
        c = x - x.mean(-1, keepdims=True)
        return self.A(c / rms(c, 1e-6) * self.w(name + ".weight") + self.w(name + ".bias"))


# ------------------------------------------------------------------------------------ vision encoder
def merge_order(x, m):
    """[gh, gw, ...] in raster order -> [gh * gw, ...] in merge-block order."""
    gh, gw = x.shape[:2]
    return x.reshape(gh // m, m, gw // m, m, *x.shape[2:]).swapaxes(1, 2).reshape(gh * gw, *x.shape[2:])


def position_embedding(table, gh, gw):
    """[gh, gw, D]: a square table sampled bilinearly, corners on corners."""
    G = len(table)

    def taps(n):
        at = np.arange(n, dtype=F32) * F32((G - 1) / max(n - 1, 1))
        low = np.minimum(at.astype(int), G - 1)
        return low, np.minimum(low + 1, G - 1), (at - low).astype(F32)
    (y0, y1, fy), (x0, x1, fx) = taps(gh), taps(gw)
    fy, fx = fy[:, None, None], fx[None, :, None]
    row = lambda y: table[y[:, None], x0[None]] * (1 - fx) + table[y[:, None], x1[None]] * fx
    return row(y0) * (1 - fy) + row(y1) * fy


def rotate_patches(x, cos, sin):
    """x [N, heads, E], pairs (i, i + E/2) of the whole head; cos, sin [N, E/2]."""
    a, b = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def vision(pixels, grid, model, probe):
    """Pixel values [N, patch] -> image features [N / merge^2, D of the text model], one row an image token."""
    A, c, (gh, gw) = model.A, model.vision, grid
    D, heads, m = c["hidden_size"], c["num_heads"], c["spatial_merge_size"]
    E, G = D // heads, math.isqrt(c["num_position_embeddings"])
    top = Layer(model, "visual.")
    x = A(A(pixels) @ top.w("patch_embed.proj.weight").reshape(D, -1).T + top.w("patch_embed.proj.bias"))
    probe("visual.patch_embed", x)  # [N, D]
    x = A(x + merge_order(position_embedding(top.w("pos_embed.weight").reshape(G, G, D), gh, gw), m))
    probe("visual.pos_embed", x)

    # 2-D rotary embedding: the first half of the angles turns with the row, the second with the column.
    theta = (c.get("rope_parameters") or c).get("rope_theta", 10000.0)
    frequency = theta ** (-np.arange(0, E // 2, 2) / (E // 2))  # [E/4]
    r, q = np.meshgrid(np.arange(gh), np.arange(gw), indexing="ij")
    angle = merge_order(np.concatenate([r[..., None] * frequency, q[..., None] * frequency], -1), m)  # [N, E/2]
    cos, sin = np.cos(angle).astype(F32), np.sin(angle).astype(F32)

    for i in range(c["depth"]):
        block = Layer(model, f"visual.blocks.{i}.")
        q, k, v = block.linear(block.layer_norm(x, "norm1"), "attn.qkv").reshape(-1, 3, heads, E).swapaxes(0, 1)
        q, k = A(rotate_patches(q, cos, sin)), A(rotate_patches(k, cos, sin))
        o = [weighted_mean(q[:, h] @ k[:, h].T * F32(E ** -0.5), v[:, h], A) for h in range(heads)]  # no mask
        x = A(x + block.linear(np.concatenate(o, -1), "attn.proj"))
        hidden = block.linear(block.layer_norm(x, "norm2"), "mlp.linear_fc1")
        x = A(x + block.linear(A(gelu_tanh(hidden)), "mlp.linear_fc2"))
        probe(f"visual.blocks.{i}", x)

    # Merger: a norm for each patch, neighbours side by side, an MLP with the exact GELU.
    merger = Layer(model, "visual.merger.")
    hidden = merger.linear(merger.layer_norm(x, "norm").reshape(-1, D * m * m), "linear_fc1")
    x = merger.linear(A(gelu_erf(hidden)), "linear_fc2")
    probe("visual.merger", x)
    return x


# ----------------------------------------------------------------------------------------- positions
def mrope_positions(ids, image_token, grid, m):
    """(t, h, w) of every prompt token [3, T], and delta: the position of a later token is its index + delta.
    Text counts up on all three; an image at p gives t = p, h = p + row, w = p + column, then p += max(rows, cols)."""
    out, p, i = [], 0, 0
    while i < len(ids):
        if ids[i] == image_token:
            rows, cols = grid[0] // m, grid[1] // m
            r, c = np.divmod(np.arange(rows * cols), cols)
            out.append(np.stack([np.full_like(r, p), p + r, p + c]))
            p, i = p + max(rows, cols), i + rows * cols
        else:
            out.append(np.full((3, 1), p))
            p, i = p + 1, i + 1
    return np.concatenate(out, 1), p - len(ids)


def mrope_tables(pos, model):
    """pos [3, T] -> cos, sin [T, R/2]. Frequency i turns with h if i % 3 == 1, with w if i % 3 == 2, each below
    three times its section, else with t."""
    t = model.text
    rope = {**t, **(t.get("rope_parameters") or {})}
    R = int(t["head_dim"] * rope.get("partial_rotary_factor", 0.25))
    angle = pos[..., None] * rope["rope_theta"] ** (-np.arange(0, R, 2) / R)  # [3, T, R/2]
    out = angle[0].copy()
    for d in (1, 2):
        turned = slice(d, rope.get("mrope_section", [11, 11, 10])[d] * 3, 3)
        out[:, turned] = angle[d][:, turned]
    return model.A(np.cos(out).astype(F32)), model.A(np.sin(out).astype(F32))


def rotate_text(x, cos, sin, A):
    """The first R dims of x [T, heads, E] in pairs (i, i + R/2); products and sums are rounded."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([A(A(a * cos) - A(b * sin)), A(A(b * cos) + A(a * sin)), rest], -1)


# -------------------------------------------------------------------------------------- text decoder
def gdn_recurrent(q, k, v, g, beta, S):
    """The definition, token by token. q, k [T, Hv, Ek] (normalised, q scaled), v [T, Hv, Ev], g, beta [T, Hv],
    S [Hv, Ek, Ev]. All float32, whatever the model's precision."""
    out = np.empty_like(v)
    for t in range(len(q)):
        S = S * np.exp(g[t])[:, None, None]  # decay
        old = (k[t][:, None] @ S)[:, 0]  # read, after the decay
        S = S + k[t][:, :, None] * (beta[t][:, None] * (v[t] - old))[:, None]  # write the correction
        out[t] = (q[t][:, None] @ S)[:, 0]  # read what was written
    return out, S


def gdn_chunked(q, k, v, g, beta, S, C=64):
    """The same values, C tokens at a time (the WY form): one triangular solve a chunk, not C updates."""
    out = []
    for s in range(0, len(q), C):
        Q, K, V = (x[s:s + C].swapaxes(0, 1) for x in (q, k, v))  # [Hv, C, E]
        b = np.cumsum(g[s:s + C], 0).T[..., None]  # [Hv, C, 1]: log decay since the chunk's start
        write = beta[s:s + C].T[..., None]
        n = Q.shape[1]
        decay = np.exp(np.where(np.tri(n, dtype=bool), b - b.swapaxes(1, 2), -np.inf))  # from j to i >= j
        below = np.where(np.tri(n, k=-1, dtype=bool), write * (K @ K.swapaxes(1, 2)) * decay, 0)
        delta = np.linalg.solve(np.eye(n, dtype=F32) + below, write * (V - np.exp(b) * (K @ S)))
        out.append((np.exp(b) * (Q @ S) + (Q @ K.swapaxes(1, 2)) * decay @ delta).swapaxes(0, 1))
        S = np.exp(b[:, -1:]) * S + (np.exp(b[:, -1:] - b) * K).swapaxes(1, 2) @ delta
    return np.concatenate(out), S


class TextModel:
    """The decoder and the caches of one sequence: K and V of full attention; last convolution inputs and state
    of linear attention."""

    def __init__(self, model, recurrent=False):
        self.model, self.recurrent, self.length = model, recurrent, 0
        self.cache = [{} for _ in model.layer_types]

    def full_attention(self, x, w, cache, cos, sin):
        t, A, T = self.model.text, self.model.A, len(x)
        H, G, E = t["num_attention_heads"], t["num_key_value_heads"], t["head_dim"]
        q_gate = w.linear(x, "q_proj").reshape(T, H, 2 * E)  # for each head E of query, E of gate
        gate = q_gate[..., E:].reshape(T, H * E)
        q = rotate_text(w.rms_norm(q_gate[..., :E], "q_norm"), cos, sin, A)
        k = rotate_text(w.rms_norm(w.linear(x, "k_proj").reshape(T, G, E), "k_norm"), cos, sin, A)
        v = w.linear(x, "v_proj").reshape(T, G, E)
        K, V = self.append(cache, "k", k), self.append(cache, "v", v)  # [G, keys, E]
        q = q.reshape(T, G, H // G, E).transpose(1, 2, 0, 3)  # query head h reads key head h // (H / G)
        scores = q @ K.swapaxes(1, 2)[:, None] * F32(E ** -0.5)  # [G, H / G, T, keys]
        causal = np.arange(K.shape[1]) <= self.length + np.arange(T)[:, None]  # by index in the sequence
        o = weighted_mean(np.where(causal, scores, -np.inf), V[:, None], A)
        o = o.transpose(2, 0, 1, 3).reshape(T, H * E)
        return w.linear(A(o * A(sigmoid(gate))), "o_proj")

    def append(self, cache, name, new):
        """Adds rows [T, G, E] to a cache that grows by doubling; gives all of it [G, keys, E]."""
        end = self.length + len(new)
        if name not in cache or cache[name].shape[1] < end:
            grown = np.zeros((new.shape[1], 2 * end, new.shape[2]), F32)
            if name in cache:
                grown[:, :self.length] = cache[name][:, :self.length]
            cache[name] = grown
        cache[name][:, self.length:end] = new.swapaxes(0, 1)
        return cache[name][:, :end]

    def linear_attention(self, x, w, cache):
        t, A, T = self.model.text, self.model.A, len(x)
        Hk, Hv = t["linear_num_key_heads"], t["linear_num_value_heads"]
        Ek, Ev, W = t["linear_key_head_dim"], t["linear_value_head_dim"], t["linear_conv_kernel_dim"]
        qkv, z, b, a = (w.linear(x, f"in_proj_{name}") for name in ("qkv", "z", "b", "a"))
        # Causal convolution of each channel; the last tap meets the current token.
        rows = np.concatenate([cache.get("conv", np.zeros((W - 1, qkv.shape[1]), F32)), qkv])
        cache["conv"] = rows[-(W - 1):]
        taps = w.w("conv1d.weight")[:, 0]  # [channels, W]
        c = A(silu(sum(rows[j:j + T] * taps[:, j] for j in range(W))))
        q, k, v = np.split(c, [Hk * Ek, 2 * Hk * Ek], axis=1)
        q, k, v = q.reshape(T, Hk, Ek), k.reshape(T, Hk, Ek), v.reshape(T, Hv, Ev)
        q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + F32(1e-6)) for y in (q, k))
        q, k = np.repeat(q * F32(Ek ** -0.5), Hv // Hk, 1), np.repeat(k, Hv // Hk, 1)  # head h reads h // (Hv / Hk)
        g = -np.exp(w.w("A_log")) * np.logaddexp(F32(0), a + w.w("dt_bias"))  # log decay
        S = cache.get("state", np.zeros((Hv, Ek, Ev), F32))
        step = gdn_recurrent if T == 1 or self.recurrent else gdn_chunked
        o, cache["state"] = step(q, k, v, g, sigmoid(b), S)
        o = A(o)
        # The one norm whose weight is no offset.
        o = A(w.w("norm.weight") * (o / rms(o, w.eps)) * silu(z.reshape(T, Hv, Ev)))
        return w.linear(o.reshape(T, -1), "out_proj")

    def forward(self, x, pos, probe=lambda *_: None):
        """x [T, D] embeddings of the next tokens, pos [3, T] -> logits of the last one [V], float32."""
        A = self.model.A
        cos, sin = mrope_tables(pos, self.model)
        probe("embed", x)
        for i, kind in enumerate(self.model.layer_types):
            layer = Layer(self.model, f"layers.{i}.")
            h = layer.rms_norm(x, "input_layernorm")
            if kind == "full_attention":
                y = self.full_attention(h, Layer(self.model, f"layers.{i}.self_attn."), self.cache[i], cos, sin)
            else:
                y = self.linear_attention(h, Layer(self.model, f"layers.{i}.linear_attn."), self.cache[i])
            probe(f"layers.{i}.mixer", y)
            x = A(x + y)
            h = layer.rms_norm(x, "post_attention_layernorm")
            gate, up = layer.linear(h, "mlp.gate_proj"), layer.linear(h, "mlp.up_proj")
            y = layer.linear(A(A(silu(gate)) * up), "mlp.down_proj")
            probe(f"layers.{i}.mlp", y)
            x = A(x + y)
            probe(f"layers.{i}", x)
        self.length += len(x)
        last = Layer(self.model, "").rms_norm(x[-1:], "norm")
        probe("norm", last)
        logits = (last @ self.model.w["lm_head.weight"].T)[0]
        probe("logits", logits)
        return logits


# ---------------------------------------------------------------------------------- page -> Markdown
def prompt_ids(model, image_tokens, text):
    encode = model.tokenizer.encode
    return (encode("<|im_start|>user\n<|vision_start|>") + [model.config["image_token_id"]] * image_tokens +
            encode(f"<|vision_end|>{text}<|im_end|>\n<|im_start|>assistant\n"))


def generate(model, ids, pixels=None, grid=None, max_tokens=4096, probe=lambda *_: None, recurrent=False):
    """Greedy. -> dict(ids, gap: logit of each token minus the runner-up's, prob, stopped, seconds of each phase)."""
    start = time.perf_counter()
    features = None if pixels is None else vision(pixels, grid, model, probe)
    seen = time.perf_counter()
    ids, image_token = np.array(ids), model.config["image_token_id"]
    pos, delta = mrope_positions(ids, image_token, grid, model.vision["spatial_merge_size"])
    embed = model.w["embed_tokens.weight"]
    x = embed[ids]
    if features is not None:
        x[ids == image_token] = features  # image tokens carry what the encoder saw
    text = TextModel(model, recurrent)
    logits = text.forward(x, pos, probe)
    filled = time.perf_counter()
    out, gap, prob, stopped = [], [], [], False
    while len(out) < max_tokens and not stopped:
        if out:  # later tokens: index in the sequence + delta on all three streams
            logits = text.forward(embed[out[-1]][None], np.full((3, 1), text.length + delta))
        out.append(int(logits.argmax()))  # the lowest id wins a tie
        runner_up, best = np.partition(logits, -2)[-2:]
        gap.append(best - runner_up)
        prob.append(softmax(logits)[out[-1]])
        stopped = out[-1] in model.stop
    done = time.perf_counter()
    return dict(ids=out, gap=np.array(gap, F32), prob=np.array(prob, F32), stopped=stopped,
                seconds=(seen - start, filled - seen, done - filled))


def main():
    ap = argparse.ArgumentParser(description="Page image to Markdown: the specification of Quire.")
    ap.add_argument("model"), ap.add_argument("image")
    ap.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
    ap.add_argument("--max-tokens", type=int, default=4096)
    ap.add_argument("--prompt", default="Convert this page to Markdown.")
    ap.add_argument("--dump", help="write the values at every probe point to this .npz")
    ap.add_argument("--recurrent", action="store_true", help="prefill GDN token by token instead of in chunks")
    ap.add_argument("--stats", action="store_true", help="timings and probabilities to stderr")
    a = ap.parse_args()
    model, kept = Model(a.model, a.dtype), {}
    pixels, grid = preprocess(Image.open(a.image), model)
    ids = prompt_ids(model, len(pixels) // model.vision["spatial_merge_size"] ** 2, a.prompt)
    first = lambda name, value: kept.setdefault(name, value)
    r = generate(model, ids, pixels, grid, a.max_tokens, first if a.dump else lambda *_: None, a.recurrent)
    print(model.tokenizer.decode(r["ids"]))
    if a.dump:
        np.savez_compressed(a.dump, pixel_values=pixels, prompt_ids=ids, generated_ids=r["ids"], **kept)
    if a.stats:
        v, p, d = r["seconds"]
        print(f"{len(ids)} prompt tokens, {len(r['ids'])} generated, stopped {r['stopped']}; vision {v:.2f} s, prefill "
              f"{p:.2f} s, decode {1e3 * d / len(r['ids']):.2f} ms/token; mean probability {r['prob'].mean():.4f}",
              file=sys.stderr)


if __name__ == "__main__":
    main()
