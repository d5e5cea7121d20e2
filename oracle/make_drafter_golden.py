#!/usr/bin/env python3
"""Writes tests/golden/drafter: two tiny DFlash drafters and what they must compute. Needs numpy alone.

    make_drafter_golden.py

Weights are seeded and rounded to bf16; the arithmetic here is float64, plain loops over rows and heads. For
each drafter CASE: CASE/config.json and CASE/model.safetensors as published, and CASE.safetensors with

  embed [V, D]         embedding and head of the target
  features [C, n * D]  of the context, which is all that a drafter knows of a page
  ids [B]              anchor, then masks, at sequence indices C, C + 1, ...
  logits [B, V]        row 0 means nothing

Cases: a row of `full` sees all of the context and its whole block; a row of `sliding` sees the last tokens of the
context and the rows of its block up to itself.
"""
import json
import os

import numpy as np

from make_golden import GOLDEN, write_safetensors

D, F, H, G, E, V, B, C = 32, 48, 4, 2, 8, 50, 6, 71
TAPS, MASK, EPS, THETA = [1, 3, 4], 49, 1e-6, 10000.0
FOLDER = os.path.join(GOLDEN, "drafter")


def rms_norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def rope(x, index):
    """x [E] at a plain position, all dimensions turned, pairs (i, i + E/2)."""
    angle = index * THETA ** (-2 * np.arange(E // 2) / E)
    a, b = x[:E // 2], x[E // 2:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])


def heads(x, w, norm, index):
    """Projection of a row to heads, normalised and turned. -> [heads, E]"""
    return np.stack([rope(rms_norm(h, norm), index) for h in (w @ x).reshape(-1, E)])


def draft(w, embed, features, ids, layers):
    context = rms_norm(features @ w["fc.weight"].T, w["hidden_norm.weight"])
    x = embed[ids].copy()
    for i, (window, causal) in enumerate(layers):
        p = {n.split(".", 2)[2]: t for n, t in w.items() if n.startswith(f"layers.{i}.")}
        a = {n.split(".")[1]: t for n, t in p.items() if n.startswith("self_attn")}
        u = rms_norm(x, p["input_layernorm.weight"])
        rows = [(C + r, u[r]) for r in range(B)]
        seen = [(j, context[j]) for j in range(C)] + rows
        keys = np.stack([heads(row, a["k_proj"], a["k_norm"], j) for j, row in seen])
        values = np.stack([(a["v_proj"] @ row).reshape(G, E) for _, row in seen])
        for r, (index, row) in enumerate(rows):
            q = heads(row, a["q_proj"], a["q_norm"], index)
            allowed = [j for j in range(C + B)
                       if (j < C and (window == 0 or index - j < window)) or (j >= C and (not causal or j <= index))]
            out = []
            for h in range(H):
                score = keys[allowed, h // (H // G)] @ q[h] / np.sqrt(E)
                weight = np.exp(score - score.max())
                out.append(weight / weight.sum() @ values[allowed, h // (H // G)])
            x[r] += a["o_proj"] @ np.concatenate(out)
        h = rms_norm(x, p["post_attention_layernorm.weight"])
        gate = h @ p["mlp.gate_proj.weight"].T
        x += (gate / (1 + np.exp(-gate)) * (h @ p["mlp.up_proj.weight"].T)) @ p["mlp.down_proj.weight"].T
    return rms_norm(x, w["norm.weight"]) @ embed.T


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000).astype(np.uint32).view(np.float32).astype(np.float64)


def make_weights(r, layers):
    shapes = {"fc.weight": (D, len(TAPS) * D), "hidden_norm.weight": (D,), "norm.weight": (D,)}
    for i in range(layers):
        p = f"layers.{i}."
        shapes |= {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,),
                   p + "self_attn.q_proj.weight": (H * E, D), p + "self_attn.k_proj.weight": (G * E, D),
                   p + "self_attn.v_proj.weight": (G * E, D), p + "self_attn.o_proj.weight": (D, H * E),
                   p + "self_attn.q_norm.weight": (E,), p + "self_attn.k_norm.weight": (E,),
                   p + "mlp.gate_proj.weight": (F, D), p + "mlp.up_proj.weight": (F, D),
                   p + "mlp.down_proj.weight": (D, F)}
    return {n: bf16(1 + 0.2 * r.standard_normal(s) if len(s) == 1 else r.standard_normal(s) * s[1] ** -0.5)
            for n, s in shapes.items()}


def main():
    for number, (name, (window, causal)) in enumerate({"full": (0, False), "sliding": (20, True)}.items()):
        layers = [(window, causal)] * 2
        r = np.random.default_rng(number)
        w = make_weights(r, len(layers))
        embed = bf16(r.standard_normal((V, D)))
        features = bf16(r.standard_normal((C, len(TAPS) * D)))
        ids = np.array([7] + [MASK] * (B - 1))
        logits = draft(w, embed, features, ids, layers)
        config = {
            "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": D,
            "intermediate_size": F, "num_hidden_layers": len(layers), "num_attention_heads": H,
            "num_key_value_heads": G, "head_dim": E, "rms_norm_eps": EPS, "rope_theta": THETA, "rope_scaling": None,
            "attention_bias": False, "block_size": B, "num_target_layers": 6, "vocab_size": V,
            "dflash_config": {"mask_token_id": MASK, "target_layer_ids": TAPS}}
        if window:  # without another word a block is causal in sliding layers
            config |= {"layer_types": ["sliding_attention"] * 2, "sliding_window": window}
        folder = os.path.join(FOLDER, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            f.write(json.dumps(config, indent=1) + "\n")
        write_safetensors(os.path.join(folder, "model.safetensors"), {n: ("BF16", t.astype(np.float32)) for n, t in w.items()})
        write_safetensors(os.path.join(FOLDER, name + ".safetensors"), {
            "embed": ("BF16", embed.astype(np.float32)), "features": ("F32", features), "ids": ("I32", ids), "logits": ("F32", logits)})
        print(name, "logits", logits[1:].std())


if __name__ == "__main__":
    main()
