#!/usr/bin/env python3
"""Writes tests/golden/drafter: tiny DFlash and DFlash2 drafters and what they must compute. Needs numpy alone.

    make_drafter_golden.py

Weights are seeded and rounded to bf16; the arithmetic here is float64, plain loops over rows and heads. For
each drafter CASE: CASE/config.json and CASE/model.safetensors as published, and CASE.safetensors with

  embed [V, D]         embedding and head of the target
  features [C, n * D]  of the context, which is all that a drafter knows of a page
  ids [B]              anchor, then masks, at sequence indices C, C + 1, ...
  logits [B, V]        row 0 means nothing

Cases: a row of `full` sees all of the context and its whole block; a row of `sliding` sees the last tokens of the
context and the rows of its block up to itself; `dflash2` sees the last tokens of the context and its whole block,
has convolutions, and a candidate selector for which there are, of the rows r = 1 ... B - 1,

  candidates [B - 1, K]       ids of the largest logits, largest first
  greedy [B - 1]              the walk's drafts at temperature 0
  greedy_scores [B - 1, K]    of the candidates after the draft before them
  sampled [B - 1]             a walk that draws, and for a verifier
  sampled_q [B - 1, K]        the distribution over the candidates that each was drawn from
  temperature [1]             of that walk

Each draft of the greedy walk scores at least MARGIN more than the next best, and so do the last candidate and the
largest logit that is none, so that rounding to bf16 may move figures but no draft.
"""
import json
import os

import numpy as np

from make_golden import GOLDEN, write_safetensors

D, F, H, G, E, V, B, C = 32, 48, 4, 2, 8, 50, 6, 71
TAPS, MASK, EPS, THETA = [1, 3, 4], 49, 1e-6, 10000.0
CONV_TAPS, GROUP, R, K, TEMPERATURE, MARGIN = 2, 16, 8, 8, 1.5, 0.25
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


def convolve(side, normed, rows, base_kernel, kernel_projection):
    """Channels of `rows` [B, D] mixed with those of the rows before, with weights that `normed` chooses."""
    out = np.zeros_like(rows)
    for i in range(B):
        chosen = (kernel_projection @ normed[i]).reshape(2, CONV_TAPS, D // GROUP)
        for tap in range(min(i + 1, CONV_TAPS)):
            kernel = base_kernel[side, tap] + np.repeat(chosen[side, tap], GROUP)
            out[i] += kernel * rows[i - tap]
    return out


def walk(w, hidden, logits, anchor, choose):
    """Along the rows after the anchor; choose(scores [K]) -> place of the draft. -> candidates, drafts, scores"""
    s = {n.split(".")[1]: t for n, t in w.items() if n.startswith("candidate_selector")}
    candidates = np.argsort(-logits[1:], axis=-1, kind="stable")[:, :K]
    drafts, scores, previous = [], [], anchor
    for r, ids in enumerate(candidates, 1):
        projected = s["hidden_projection"] @ hidden[r]
        score = [logits[r, c] + (s["predecessor_codebook"][previous] * projected * s["successor_codebook"][c]).sum()
                 for c in ids]
        previous = ids[choose(np.array(score))]
        drafts.append(previous)
        scores.append(score)
    return candidates, np.array(drafts), np.array(scores)


def draft(w, embed, features, ids, layers):
    """-> normed rows [B, D], logits [B, V]"""
    context = rms_norm(features @ w["fc.weight"].T, w["hidden_norm.weight"])
    x = embed[ids].copy()
    for i, (window, causal) in enumerate(layers):
        p = {n.split(".", 2)[2]: t for n, t in w.items() if n.startswith(f"layers.{i}.")}
        a = {n.split(".")[1]: t for n, t in p.items() if n.startswith("self_attn")}
        convs = {n: (p[n + ".base_kernel"], p[n + ".kernel_projection.weight"])
                 for n in ("attention_conv", "mlp_conv") if n + ".base_kernel" in p}
        normed = u = rms_norm(x, p["input_layernorm.weight"])
        if convs:
            u = convolve(0, normed, u, *convs["attention_conv"])
        rows = [(C + r, u[r]) for r in range(B)]
        seen = [(j, context[j]) for j in range(C)] + rows
        keys = np.stack([heads(row, a["k_proj"], a["k_norm"], j) for j, row in seen])
        values = np.stack([(a["v_proj"] @ row).reshape(G, E) for _, row in seen])
        attended = np.zeros_like(x)
        for r, (index, row) in enumerate(rows):
            q = heads(row, a["q_proj"], a["q_norm"], index)
            allowed = [j for j in range(C + B)
                       if (j < C and (window == 0 or index - j < window)) or (j >= C and (not causal or j <= index))]
            out = []
            for h in range(H):
                score = keys[allowed, h // (H // G)] @ q[h] / np.sqrt(E)
                weight = np.exp(score - score.max())
                out.append(weight / weight.sum() @ values[allowed, h // (H // G)])
            attended[r] = a["o_proj"] @ np.concatenate(out)
        x += convolve(1, normed, attended, *convs["attention_conv"]) if convs else attended
        normed = h = rms_norm(x, p["post_attention_layernorm.weight"])
        if convs:
            h = convolve(0, normed, h, *convs["mlp_conv"])
        gate = h @ p["mlp.gate_proj.weight"].T
        h = (gate / (1 + np.exp(-gate)) * (h @ p["mlp.up_proj.weight"].T)) @ p["mlp.down_proj.weight"].T
        x += convolve(1, normed, h, *convs["mlp_conv"]) if convs else h
    x = rms_norm(x, w["norm.weight"])
    return x, x @ embed.T


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000).astype(np.uint32).view(np.float32).astype(np.float64)


def make_weights(r, layers, dflash2):
    shapes = {"fc.weight": (D, len(TAPS) * D), "hidden_norm.weight": (D,), "norm.weight": (D,)}
    for i in range(layers):
        p = f"layers.{i}."
        shapes |= {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,),
                   p + "self_attn.q_proj.weight": (H * E, D), p + "self_attn.k_proj.weight": (G * E, D),
                   p + "self_attn.v_proj.weight": (G * E, D), p + "self_attn.o_proj.weight": (D, H * E),
                   p + "self_attn.q_norm.weight": (E,), p + "self_attn.k_norm.weight": (E,),
                   p + "mlp.gate_proj.weight": (F, D), p + "mlp.up_proj.weight": (F, D),
                   p + "mlp.down_proj.weight": (D, F)}
    w = {n: bf16(1 + 0.2 * r.standard_normal(s) if len(s) == 1 else r.standard_normal(s) * s[1] ** -0.5)
         for n, s in shapes.items()}
    if dflash2:
        for i in range(layers):
            for conv in ("attention_conv", "mlp_conv"):
                p = f"layers.{i}.{conv}."
                identity = np.array([1.0, 0.0])[None, :, None]
                w[p + "base_kernel"] = bf16(identity + 0.3 * r.standard_normal((2, CONV_TAPS, D)))
                w[p + "kernel_projection.weight"] = bf16(
                    0.3 * r.standard_normal((2 * CONV_TAPS * D // GROUP, D)) * D ** -0.5)
        w["candidate_selector.predecessor_codebook"] = bf16(r.standard_normal((V, R)))
        w["candidate_selector.successor_codebook"] = bf16(r.standard_normal((V, R)))
        w["candidate_selector.hidden_projection.weight"] = bf16(r.standard_normal((R, D)) * D ** -0.5)
    return w


def select(w, hidden, logits, anchor, r):
    """Both walks, as tensors of the fixture."""
    candidates, greedy, greedy_scores = walk(w, hidden, logits, anchor, np.argmax)
    descending = -np.sort(-logits[1:], axis=-1)
    best = -np.sort(-greedy_scores, axis=-1)
    margin = min((descending[:, K - 1] - descending[:, K]).min(), (best[:, 0] - best[:, 1]).min())
    assert margin > MARGIN and (greedy != candidates[:, 0]).sum() >= 2, f"another seed, please: {margin}"

    def distribution(scores):
        chance = np.exp((scores - scores.max(-1, keepdims=True)) / TEMPERATURE)
        return chance / chance.sum(-1, keepdims=True)

    _, sampled, scores = walk(w, hidden, logits, anchor, lambda score: r.choice(K, p=distribution(score)))
    assert (sampled != greedy).any()
    return {"candidates": ("I32", candidates), "greedy": ("I32", greedy), "greedy_scores": ("F32", greedy_scores),
            "sampled": ("I32", sampled), "sampled_q": ("F32", distribution(scores)),
            "temperature": ("F32", [TEMPERATURE])}


def main():
    cases = {"full": (0, 0, False), "sliding": (1, 20, True), "dflash2": (27, 20, False)}
    for name, (seed, window, causal) in cases.items():
        layers, dflash2 = [(window, causal)] * 2, name == "dflash2"
        r = np.random.default_rng(seed)
        w = make_weights(r, len(layers), dflash2)
        embed = bf16(r.standard_normal((V, D)))
        features = bf16(r.standard_normal((C, len(TAPS) * D)))
        ids = np.array([7] + [MASK] * (B - 1))
        hidden, logits = draft(w, embed, features, ids, layers)
        config = {
            "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": D,
            "intermediate_size": F, "num_hidden_layers": len(layers), "num_attention_heads": H,
            "num_key_value_heads": G, "head_dim": E, "rms_norm_eps": EPS, "rope_theta": THETA, "rope_scaling": None,
            "attention_bias": False, "block_size": B, "num_target_layers": 6, "vocab_size": V,
            "dflash_config": {"mask_token_id": MASK, "target_layer_ids": TAPS}}
        if window:  # without another word a block is causal in sliding layers
            config |= {"layer_types": ["sliding_attention"] * 2, "sliding_window": window}
        fixture = {"embed": ("BF16", embed.astype(np.float32)), "features": ("F32", features), "ids": ("I32", ids),
                   "logits": ("F32", logits)}
        if dflash2:
            config |= {"architectures": ["DFlash2DraftModel"], "is_causal": False}
            config["dflash_config"] |= {"block_size": config.pop("block_size"), "conv_kernel_size": CONV_TAPS,
                                        "conv_group_size": GROUP, "selector_rank": R, "selector_top_k": K}
            fixture |= select(w, hidden, logits, ids[0], r)
        folder = os.path.join(FOLDER, name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            f.write(json.dumps(config, indent=1) + "\n")
        write_safetensors(os.path.join(folder, "model.safetensors"), {n: ("BF16", t.astype(np.float32)) for n, t in w.items()})
        write_safetensors(os.path.join(FOLDER, name + ".safetensors"), fixture)
        print(name, "logits", logits[1:].std())


if __name__ == "__main__":
    main()
