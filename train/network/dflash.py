"""DFlash drafter: guesses a block of tokens in one pass from what the target model has computed.

A block is the newest known token, the anchor, and mask tokens after it. Row r guesses the token r
places after the anchor. All rows of a block see one another and, of every token of the page before
the anchor, the target's features: the residual stream after a few of its layers, mixed by `fc`.
Embedding and output head are the target's own. Config, names and arithmetic are those of the
published drafters (architecture DFlashDraftModel); positions are plain indices in the sequence,
also after an image. A config of architecture DFlash2DraftModel adds the parts in `dflash2.py`.

Shapes: N tokens of the target's batch, A blocks, B rows a block, Q = A * B, T taps, D hidden size,
E head size.
"""
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from network import checkpoint, dflash2
from network.dflash2 import CandidateSelector, GroupedConv, convolve_input, convolve_output
from network.model import compiled, linear, rotate

SHARPNESS = 3.0  # of a new drafter's attention: it must single out one of thousands of tokens
TILE = 128  # rows and columns of the score matrix that are computed or left out together

flex = compiled(flex_attention)


def default_taps(target_layers: int, count: int) -> list[int]:
    """Layers of the target whose outputs are the features, when a config names none."""
    if count == 1:
        return [target_layers // 2]
    return [round(1 + i * (target_layers - 4) / (count - 1)) for i in range(count)]


def make_config(target: dict, mask_token: int, layers: int = 3, block: int = 16,
                width: int | None = None, taps: list[int] | None = None, theta: float = 1e6) -> dict:
    """The config of a drafter for a target with this config; a quarter as wide in its attention.
    theta: all of a head turns, and only what turns little between a text and its image, thousands
    of tokens, can tell what an image token shows; with 1e4 that is a third of a head."""
    text = target["text_config"]
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "hidden_size": text["hidden_size"],
        "intermediate_size": width or text["intermediate_size"],
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": theta,
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
            "target_layer_ids": taps or default_taps(text["num_hidden_layers"], layers),
        },
        "vocab_size": text["vocab_size"],
        "max_position_embeddings": text["max_position_embeddings"],
        "tie_word_embeddings": target["tie_word_embeddings"],
    }


def is_dflash2(config: dict) -> bool:
    return config["architectures"] == ["DFlash2DraftModel"]


def block_size(config: dict) -> int:
    """B; older configs have it at the top."""
    return config["dflash_config"].get("block_size") or config["block_size"]


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
        """The tiles of scores that hold anything visible, and of these the full ones, where no mask is
        asked: nearly all of a long page."""
        queries = self.anchors.shape[0] * self.size
        if tokens % TILE or queries % TILE:
            raise ValueError(f"drafter: {tokens} tokens and {queries} rows of blocks; expected "
                             f"multiples of {TILE}: pad the batch, draw more or fewer anchors")
        rows, columns = queries // TILE, (tokens + queries) // TILE
        anchors, firsts = self.anchors.view(rows, -1), self.firsts.view(rows, -1)
        row = torch.arange(rows, device=anchors.device)[:, None]
        column = torch.arange(columns, device=anchors.device)
        begin, end = column * TILE, (column + 1) * TILE
        seen = (begin < anchors.amax(1, True)) & (end > firsts.amin(1, True))
        seen |= column == tokens // TILE + row
        full = (begin >= firsts.amax(1, True)) & (end <= anchors.amin(1, True))
        return BlockMask.from_kv_blocks(*listed(seen & ~full), *listed(full), BLOCK_SIZE=TILE,
                                        mask_mod=self.visible(tokens))


def listed(tiles: Tensor) -> tuple[Tensor, Tensor]:
    """tiles [rows, columns] -> how many are set in each row, and the columns with those set first,
    as a BlockMask wants them"""
    order = tiles.int().argsort(dim=-1, descending=True, stable=True)
    return tiles.sum(-1)[None, None].int(), order[None, None].int()


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


attention_input = compiled(convolve_input)


@compiled
def finish_layer(x, o, o_proj, norm, gate, up, down, eps: float, attention_conv, chosen, mlp_conv):
    x = x + convolve_output(linear(o.flatten(1), o_proj), attention_conv, chosen)
    h, chosen = convolve_input(rms_norm(x, norm, eps), mlp_conv)
    h = linear(F.silu(linear(h, gate)) * linear(h, up), down)
    return x + convolve_output(h, mlp_conv, chosen)


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
        self.attention_conv = self.mlp_conv = None
        if is_dflash2(c):
            d = c["dflash_config"]
            shape = hidden, d["conv_kernel_size"], d["conv_group_size"], block_size(c)
            self.attention_conv, self.mlp_conv = GroupedConv(*shape), GroupedConv(*shape)

    def keys_values(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        a = self.self_attn
        return keys_values(x, *turns, a.k_proj.weight, a.v_proj.weight, a.k_norm.weight, self.eps)

    def forward(self, x: Tensor, context: Tensor, block_turns, context_turns, blocks: Blocks,
                tiles: BlockMask | None) -> Tensor:
        """x [Q, D]; context [N, D] does not change from layer to layer."""
        a, m = self.self_attn, self.mlp
        h = rms_norm(x, self.input_layernorm.weight, self.eps)
        attention_conv = mlp_conv = chosen = None
        if self.attention_conv is not None:
            attention_conv, mlp_conv = self.attention_conv.parts(), self.mlp_conv.parts()
            h, chosen = attention_input(h, attention_conv)
        q = queries(h, *block_turns, a.q_proj.weight, a.q_norm.weight, self.eps)
        own, before = self.keys_values(h, block_turns), self.keys_values(context, context_turns)
        k, v = (torch.cat(pair) for pair in zip(before, own))
        o = block_attention(q, k, v, blocks, tiles)
        return finish_layer(x, o, a.o_proj.weight, self.post_attention_layernorm.weight,
                            m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight, self.eps,
                            attention_conv, chosen, mlp_conv)


class Drafter(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.config, hidden = config, config["hidden_size"]
        self.block = block_size(config)
        self.mask_token = config["dflash_config"]["mask_token_id"]
        self.taps = tuple(config["dflash_config"]["target_layer_ids"])
        self.fc = nn.Linear(len(self.taps) * hidden, hidden, bias=False)
        self.hidden_norm, self.norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config["num_hidden_layers"])])
        self.candidate_selector = None
        if is_dflash2(config):
            d = config["dflash_config"]
            self.candidate_selector = CandidateSelector(
                config["vocab_size"], hidden, d["selector_rank"], d["selector_top_k"])
        dim = config["head_dim"]
        self.register_buffer("frequencies", 1 / config["rope_theta"] ** (
            torch.arange(0, dim, 2).float() / dim), persistent=False)

    @torch.no_grad()
    def initialise(self) -> None:
        """Weights of a new drafter. Products that end in the residual stream start at zero;
        convolutions start as the identity, and the selector without a say."""
        for name, p in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "kernel_projection.weight",
                              "successor_codebook")):
                p.zero_()
            elif name.endswith("base_kernel"):
                p.zero_()[:, 0] = 1
            elif p.ndim == 2:
                p.normal_(std=p.shape[1] ** -0.5)
            elif name.endswith(("q_norm.weight", "k_norm.weight")):
                p.fill_(SHARPNESS ** 0.5)

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

    def guess(self, hidden: Tensor, head: Tensor, anchors: Tensor) -> Tensor:
        """hidden [A, B - 1, D] rows after the anchor, anchors [A] ids -> drafts [A, B - 1]"""
        if self.candidate_selector is None:
            return linear(hidden, head).argmax(-1)
        return self.candidate_selector.walk(hidden, head, anchors).tokens


PARTS = {"conv": "_conv.", "selector": "candidate_selector."}  # of DFlash2, and in their names


def altered(drafter: Drafter, layers: int | None = None, block: int | None = None,
            second: bool = False, without: Sequence[str] = ()) -> Drafter:
    """This drafter with its first `layers` only, with blocks of another size, with the parts of DFlash2
    (`second`), without those named of PARTS; without both it is a DFlash drafter. A part that is new
    or left out does nothing: until it is trained, the drafter drafts as it does without."""
    config = dict(drafter.config)
    if layers is not None:
        if layers > config["num_hidden_layers"]:
            raise ValueError(f"has {config['num_hidden_layers']} layers, {layers} of which cannot be "
                             "kept; expected at most as many")
        config |= dict(num_hidden_layers=layers, layer_types=["full_attention"] * layers)
    second = second or is_dflash2(config)
    if without and not second:
        raise ValueError(f"is a DFlash drafter, which has no {without[0]}; expected DFlash2")
    second = second and set(without) != set(PARTS)
    if second != is_dflash2(config):
        config = dflash2.make_config(config) if second else dflash2.without_dflash2(config)
    if block is not None:
        inner = {"dflash_config": {**config["dflash_config"], "block_size": block}}
        config |= inner if is_dflash2(config) else {"block_size": block}
    made = Drafter(config)
    made.initialise()
    names = made.state_dict().keys()
    made.load_state_dict({name: t for name, t in drafter.state_dict().items() if name in names
                          and not any(PARTS[part] in name for part in without)}, strict=False)
    return made


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
    if config.get("architectures") not in (["DFlashDraftModel"], ["DFlash2DraftModel"]):
        raise SystemExit(f"{path}: architectures {config.get('architectures')}; "
                         "expected ['DFlashDraftModel'] or ['DFlash2DraftModel']")
    refuse_unknown_arithmetic(path, config)
    drafter = Drafter(config)
    drafter.load_state_dict({name: t.float() for name, t in checkpoint.tensors_of(folder).items()})
    return drafter


def refuse_unknown_arithmetic(path: Path, config: dict) -> None:
    """Some published drafters compute what is not here; they would load and draft badly."""
    d = config["dflash_config"]
    for name, value, expected in (
            ("layer_types", set(config.get("layer_types") or ()), (set(), {"full_attention"})),
            ("dflash_config.input_embedding_scale", d.get("input_embedding_scale"), (None, 1)),
            ("dflash_config.output_multiplier", d.get("output_multiplier"), (None, 1)),
            ("dflash_config.final_logit_softcapping", d.get("final_logit_softcapping"), (None,))):
        if value not in expected:
            raise SystemExit(f"{path}: {name} {value}; expected {expected[-1]}, the only kind that "
                             "can be trained here")
