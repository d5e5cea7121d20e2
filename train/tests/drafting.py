"""What the tests of drafters share: a tiny target, its pages, and a drafter in plain loops."""
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from network.data import PageBuffer, Sizes, Text
from network.dflash import TILE
from network.model import Batch, Model

MINI = Path(__file__).parents[2] / "models" / "quire-mini"
HIDDEN, BLOCK = 64, 8
SIZES = Sizes(tokens=2 * TILE, patches=256, labels=128)


def tiny_config() -> dict:
    text = dict(
        vocab_size=4096, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=4,
        num_attention_heads=2, num_key_value_heads=1, head_dim=32, linear_num_key_heads=1,
        linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_conv_kernel_dim=4, rms_norm_eps=1e-6, max_position_embeddings=4096,
        layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        rope_parameters=dict(rope_theta=10000.0, partial_rotary_factor=0.25,
                             mrope_section=[2, 1, 1]))
    vision = dict(hidden_size=32, num_heads=2, intermediate_size=64, depth=1,
                  out_hidden_size=HIDDEN, num_position_embeddings=16)
    return dict(text_config=text, vision_config=vision, tie_word_embeddings=True)


def tiny_target() -> Model:
    torch.manual_seed(1)
    model = Model(tiny_config()).requires_grad_(False)
    model.initialise()
    for p in model.parameters():  # away from the zeros of a new model
        if p.ndim >= 2:
            torch.nn.init.normal_(p, std=p.shape[-1] ** -0.5)
    return model


def image(seed: int, height: int = 64, width: int = 96) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width), np.uint8)


def two_pages(text: Text) -> tuple[Batch, list[list[int]]]:
    responses = [list(range(100, 130)) + [text.stop], list(range(200, 205)) + [text.stop]]
    buffer = PageBuffer(text, SIZES)
    for seed, response in enumerate(responses):
        assert buffer.add(image(seed), response)
    return buffer.batch(), responses


def plain_convolution(w: dict, name: str, side: int, group: int, inputs: list, rows: list) -> list:
    """Channel by channel: `rows` of a block, mixed with weights that `inputs` choose."""
    base, projection = w[name + ".base_kernel"], w[name + ".kernel_projection.weight"]
    taps, width = base.shape[1:]
    mixed = []
    for i, chosen in enumerate(projection @ x for x in inputs):
        y = torch.zeros(width)
        for c in range(width):
            for t in range(min(i + 1, taps)):
                place = (side * taps + t) * (width // group) + c // group
                y[c] += (base[side, t, c] + chosen[place]) * rows[i - t][c]
        mixed.append(y)
    return mixed


def plain_forward(config: dict, w: dict, features: torch.Tensor, ids: list[int],
                  embedding: torch.Tensor) -> torch.Tensor:
    """One block after `features` [n, T * D], which belong to tokens 0..n-1; ids: anchor and masks.
    -> [B, D] final normed rows. Written token by token from the published descriptions."""
    heads, kv, dim = (config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    theta = config["rope_theta"]

    def norm(x, name):
        return w[name] * x / (x.pow(2).mean() + config["rms_norm_eps"]).sqrt()

    def rope(x, position):
        y = torch.empty_like(x)
        for i in range(dim // 2):
            angle = torch.tensor(position * theta ** (-2 * i / dim))
            y[i] = x[i] * angle.cos() - x[i + dim // 2] * angle.sin()
            y[i + dim // 2] = x[i + dim // 2] * angle.cos() + x[i] * angle.sin()
        return y

    def key_value(x, layer, position):
        a = f"layers.{layer}.self_attn."
        k = (w[a + "k_proj.weight"] @ x).view(kv, dim)
        v = (w[a + "v_proj.weight"] @ x).view(kv, dim)
        return [rope(norm(head, a + "k_norm.weight"), position) for head in k], v

    def convolution(name, side, inputs, rows):
        if name + ".base_kernel" not in w:
            return rows
        group = config["dflash_config"]["conv_group_size"]
        return plain_convolution(w, name, side, group, inputs, rows)

    context = [norm(w["fc.weight"] @ f, "hidden_norm.weight") for f in features]
    start = len(context)
    rows = [embedding[i] for i in ids]
    for layer in range(config["num_hidden_layers"]):
        p = f"layers.{layer}."
        normed = [norm(x, p + "input_layernorm.weight") for x in rows]
        inputs = convolution(p + "attention_conv", 0, normed, normed)
        cached = [key_value(c, layer, j) for j, c in enumerate(context)]
        cached += [key_value(x, layer, start + j) for j, x in enumerate(inputs)]
        attended = []
        for j, x in enumerate(inputs):
            q = (w[p + "self_attn.q_proj.weight"] @ x).view(heads, dim)
            outputs = []
            for h in range(heads):
                query = rope(norm(q[h], p + "self_attn.q_norm.weight"), start + j)
                g = h // (heads // kv)
                scores = torch.stack([query @ k[g] for k, _ in cached]) * dim ** -0.5
                outputs.append(sum(s * v[g] for s, (_, v) in zip(scores.softmax(0), cached)))
            attended.append(w[p + "self_attn.o_proj.weight"] @ torch.cat(outputs))
        attended = convolution(p + "attention_conv", 1, normed, attended)
        rows = [x + y for x, y in zip(rows, attended)]

        normed = [norm(x, p + "post_attention_layernorm.weight") for x in rows]
        mapped = []
        for x in convolution(p + "mlp_conv", 0, normed, normed):
            gate, up = w[p + "mlp.gate_proj.weight"] @ x, w[p + "mlp.up_proj.weight"] @ x
            mapped.append(w[p + "mlp.down_proj.weight"] @ (F.silu(gate) * up))
        mapped = convolution(p + "mlp_conv", 1, normed, mapped)
        rows = [x + y for x, y in zip(rows, mapped)]
    return torch.stack([norm(x, "norm.weight") for x in rows])
