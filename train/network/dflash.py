"""DFlash drafter: guesses a block of tokens in one pass from what the target model has computed.

A block is the newest known token, the anchor, and mask tokens after it. Row r guesses the token r
places after the anchor. All rows of a block see one another and, of every token of the page before
the anchor, the target's features: the residual stream after a few of its layers, mixed by `fc`.
Embedding and output head are the target's own. Config, names and arithmetic are those of the
published drafters (architecture DFlashDraftModel); positions are plain indices in the sequence,
also after an image.

Shapes: N tokens of the target's batch, A blocks, B rows a block, Q = A * B, T taps, D hidden size,
E head size.
"""
import json
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from network.model import compiled, linear, rotate

TILE = 128  # rows and columns of the score matrix that are computed or left out together

flex = compiled(flex_attention)


def default_taps(target_layers: int, count: int) -> list[int]:
    """Layers of the target whose outputs are the features, when a config names none."""
    if count == 1:
        return [target_layers // 2]
    return [round(1 + i * (target_layers - 4) / (count - 1)) for i in range(count)]


def make_config(target: dict, mask_token: int, layers: int = 3, block: int = 16) -> dict:
    """The config of a drafter for a target with this config; a quarter as wide in its attention."""
    text = target["text_config"]
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "hidden_size": text["hidden_size"],
        "intermediate_size": text["intermediate_size"],
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": text["rope_parameters"]["rope_theta"],
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "layer_types": ["full_attention"] * layers,
        "use_sliding_window": False,
        "sliding_window": None,
        "is_causal": False,
        "block_size": block,
        "num_target_layers": text["num_hidden_layers"],
        "dflash_config": {
            "mask_token_id": mask_token,
            "target_layer_ids": default_taps(text["num_hidden_layers"], layers),
        },
        "vocab_size": text["vocab_size"],
        "max_position_embeddings": text["max_position_embeddings"],
        "tie_word_embeddings": target["tie_word_embeddings"],
    }


@dataclass
class Blocks:
    """Where blocks stand in a packed batch of N tokens."""
    anchors: Tensor  # [A] token row of each anchor
    firsts: Tensor   # [A] first token row of the anchor's page
    size: int        # B

    def visible(self, tokens: int):
        """May query row q see key k? Keys are the N context rows, then the Q block rows."""
        anchors, firsts, size = self.anchors, self.firsts, self.size

        def mask(_batch, _head, q, k):
            block = q // size
            context = (k >= firsts[block]) & (k < anchors[block])
            own = (k >= tokens) & ((k - tokens) // size == block)
            return context | own
        return mask

    def tiles(self, tokens: int) -> BlockMask:
        """The tiles of scores that hold anything visible: a run over the context, then the own."""
        queries = self.anchors.shape[0] * self.size
        if tokens % TILE or queries % TILE:
            raise ValueError(f"drafter: {tokens} tokens and {queries} rows of blocks; expected "
                             f"multiples of {TILE}: pad the batch, draw more or fewer anchors")
        rows, columns = queries // TILE, (tokens + queries) // TILE
        low = self.firsts.view(rows, -1).amin(1) // TILE
        high = (self.anchors.view(rows, -1).amax(1) - 1).clamp(min=0) // TILE
        count = high - low + 2
        column = torch.arange(columns, device=low.device)
        own = tokens // TILE + torch.arange(rows, device=low.device)
        indices = torch.where(column == count[:, None] - 1, own[:, None], low[:, None] + column)
        indices = indices.clamp(max=columns - 1)
        return BlockMask.from_kv_blocks(count[None, None].int(), indices[None, None].int(),
                                        BLOCK_SIZE=TILE, mask_mod=self.visible(tokens))


def block_attention(q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, tiles: BlockMask | None
                    ) -> Tensor:
    """q [Q, heads, E], k and v [N + Q, kv heads, E] -> [Q, heads, E]"""
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    if tiles is not None:
        o = flex(q, k, v, block_mask=tiles, enable_gqa=True)
    else:
        rows = torch.arange(q.shape[2], device=q.device)
        columns = torch.arange(k.shape[2], device=q.device)
        mask = blocks.visible(k.shape[2] - q.shape[2])(0, 0, rows[:, None], columns)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return o[0].transpose(0, 1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm with a plain weight, unlike the target's."""
    return F.rms_norm(x, (x.shape[-1],), weight.to(x.dtype), eps)


@compiled
def mix_features(features, fc, norm, eps: float):
    return rms_norm(linear(features, fc), norm, eps)


@compiled
def keys_values(x, cos, sin, k_proj, v_proj, k_norm, eps: float):
    k = linear(x, k_proj).view(x.shape[0], -1, k_norm.shape[0])
    v = linear(x, v_proj).view(x.shape[0], -1, k_norm.shape[0])
    return rotate(rms_norm(k, k_norm, eps), cos, sin), v


@compiled
def queries(x, cos, sin, q_proj, q_norm, eps: float):
    q = linear(x, q_proj).view(x.shape[0], -1, q_norm.shape[0])
    return rotate(rms_norm(q, q_norm, eps), cos, sin)


@compiled
def finish_layer(x, o, o_proj, norm, gate, up, down, eps: float):
    x = x + linear(o.flatten(1), o_proj)
    h = rms_norm(x, norm, eps)
    return x + linear(F.silu(linear(h, gate)) * linear(h, up), down)


class Layer(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        hidden, inner, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        self.eps = c["rms_norm_eps"]
        self.input_layernorm = nn.RMSNorm(hidden)
        self.post_attention_layernorm = nn.RMSNorm(hidden)
        self.self_attn = nn.Module()
        self.self_attn.q_proj = nn.Linear(hidden, heads * dim, bias=False)
        self.self_attn.k_proj = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.self_attn.v_proj = nn.Linear(hidden, kv_heads * dim, bias=False)
        self.self_attn.o_proj = nn.Linear(heads * dim, hidden, bias=False)
        self.self_attn.q_norm, self.self_attn.k_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.mlp = nn.Module()
        self.mlp.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.mlp.up_proj = nn.Linear(hidden, inner, bias=False)
        self.mlp.down_proj = nn.Linear(inner, hidden, bias=False)

    def keys_values(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a = self.self_attn
        return keys_values(x, *turns, a.k_proj.weight, a.v_proj.weight, a.k_norm.weight, self.eps)

    def forward(self, x: Tensor, context: Tensor, block_turns, context_turns, blocks: Blocks,
                tiles: BlockMask | None) -> Tensor:
        """x [Q, D]; context [N, D] does not change from layer to layer."""
        a, m = self.self_attn, self.mlp
        h = rms_norm(x, self.input_layernorm.weight, self.eps)
        q = queries(h, *block_turns, a.q_proj.weight, a.q_norm.weight, self.eps)
        own, before = self.keys_values(h, block_turns), self.keys_values(context, context_turns)
        k, v = (torch.cat(pair) for pair in zip(before, own))
        o = block_attention(q, k, v, blocks, tiles)
        return finish_layer(x, o, a.o_proj.weight, self.post_attention_layernorm.weight,
                            m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight, self.eps)


class Drafter(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.config, hidden = config, config["hidden_size"]
        self.block = config["block_size"]
        self.mask_token = config["dflash_config"]["mask_token_id"]
        self.taps = tuple(config["dflash_config"]["target_layer_ids"])
        self.fc = nn.Linear(len(self.taps) * hidden, hidden, bias=False)
        self.hidden_norm, self.norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config["num_hidden_layers"])])
        dim = config["head_dim"]
        self.register_buffer("frequencies", 1 / config["rope_theta"] ** (
            torch.arange(0, dim, 2).float() / dim), persistent=False)

    def initialise(self) -> None:
        """Weights of a new drafter; products that end in the residual stream start at zero."""
        for name, p in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(p)
            elif p.ndim == 2:
                nn.init.normal_(p, std=p.shape[1] ** -0.5)

    def turns(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the rotary embedding at positions [n]. -> [n, 1, E] each"""
        angles = positions[:, None] * self.frequencies
        angles = torch.cat((angles, angles), -1)[:, None]
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(self, features: list[Tensor], offsets: Tensor, ids: Tensor, embedding: Tensor,
                blocks: Blocks) -> Tensor:
        """features: the taps, T of [N, D]; offsets, ids [N]; embedding: the target's [V, D].
        -> [A, B, D] normed, ready for the target's head; row 0 of a block means nothing."""
        features = torch.cat(features, -1)
        context = mix_features(features, self.fc.weight, self.hidden_norm.weight,
                               self.config["rms_norm_eps"])
        rows = torch.full((blocks.anchors.shape[0], blocks.size), self.mask_token,
                          device=ids.device)
        rows[:, 0] = ids[blocks.anchors]
        places = offsets[blocks.anchors][:, None] + torch.arange(blocks.size, device=ids.device)
        x = F.embedding(rows.flatten(), embedding).to(features.dtype)
        block_turns = self.turns(places.flatten(), x.dtype)
        context_turns = self.turns(offsets, x.dtype)
        tiles = blocks.tiles(ids.shape[0]) if x.is_cuda else None
        for layer in self.layers:
            x = layer(x, context, block_turns, context_turns, blocks, tiles)
        x = rms_norm(x, self.norm.weight, self.config["rms_norm_eps"])
        return x.view(*rows.shape, -1)


def save(drafter: Drafter, folder: Path) -> None:
    """config.json and model.safetensors (bf16) as published."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.detach().bfloat16().cpu().contiguous() for n, t in drafter.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(drafter.config, indent=2) + "\n")


def load(folder: Path) -> Drafter:
    path = folder / "config.json"
    if not path.exists():
        raise SystemExit(f"{path}: not found; expected a drafter as train/drafter.py writes it")
    config = json.loads(path.read_text())
    if config.get("architectures") != ["DFlashDraftModel"]:
        raise SystemExit(f"{path}: architectures {config.get('architectures')}; "
                         "expected ['DFlashDraftModel']")
    drafter = Drafter(config)
    drafter.load_state_dict({n: t.float() for n, t in
                             load_file(folder / "model.safetensors").items()})
    return drafter
