"""The vision-language model of the Qwen3.5 family in PyTorch, for training on packed pages.

Pages of any size lie one after the other in one row of tokens and one row of patches, so that nothing
is spent on padding; `Batch` says where each begins. Parameter names are those of the published
checkpoints (`checkpoint.py` loads and saves them); dimensions come from their config.json alone.

Shapes: N tokens, M patches, R rows with a label, S sequences (pages), D hidden size.
Equations: transformers, models/qwen3_5; the Gated DeltaNet kernel is flash-linear-attention's.
Pages are grey. The patch embedding sees one channel of one frame; the published convolution's six
slices (3 channels, 2 frames) are summed on loading, which is exact for grey images.
"""
import math
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if torch.cuda.is_available():
    from torch.nn.attention.varlen import varlen_attn

    from network.delta_rule import gated_delta_rule

    compiled = torch.compile(dynamic=False)
else:
    from network.delta_rule import gated_delta_rule_reference as gated_delta_rule

    def compiled(function):
        return function

PATCH = 16


@dataclass
class Batch:
    """Pages packed back to back. The last sequence is padding up to N tokens: no label, no image."""
    patches: Tensor      # [M, 256] uint8 grey, in merge order: the 4 patches of an image token in a row
    patch_place: Tensor  # [M, 2] row and column of a patch in its image
    patch_grid: Tensor   # [M, 2] rows and columns of patches of that image
    patch_starts: Tensor  # [S' + 1] int32: first patch of each image, and M
    image_rows: Tensor   # [M / 4] token row of each image token; padding goes to row N - 1
    ids: Tensor          # [N] token ids
    positions: Tensor    # [3, N] time, height and width positions of the rotary embedding
    offsets: Tensor      # [N] distance from the start of the sequence
    starts: Tensor       # [S + 1] int32: first token of each sequence, and N
    label_rows: Tensor   # [R] rows whose next token is known and counts
    labels: Tensor       # [R] that token; -1: padding
    longest_image: int   # patches
    longest: int         # tokens
    pages: int

    def to(self, device) -> "Batch":
        def move(value):
            return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value
        return Batch(**{f.name: move(getattr(self, f.name)) for f in fields(self)})

    def pin_memory(self) -> "Batch":
        def pin(value):
            return value.pin_memory() if isinstance(value, Tensor) else value
        return Batch(**{f.name: pin(getattr(self, f.name)) for f in fields(self)})


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm whose weight is stored as its distance from one."""
    return F.rms_norm(x, (x.shape[-1],), (1 + weight).to(x.dtype), eps)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight.to(x.dtype), bias.to(x.dtype), 1e-6)


def affine(layer: nn.Linear | nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return layer.weight, layer.bias


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of the first dimensions of x [N, heads, E]; cos and sin [N, 1, <= E]."""
    turned, rest = x[..., :cos.shape[-1]], x[..., cos.shape[-1]:]
    left, right = turned.chunk(2, -1)
    turned = turned * cos + torch.cat((-right, left), -1) * sin
    return torch.cat((turned, rest), -1)


def attention(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, causal: bool) -> Tensor:
    """Attention within each sequence; q [N, heads, E], k and v [N, kv heads, E]."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if q.is_cuda:
        return varlen_attn(q, k, v, starts, starts, longest, longest,
                           window_size=(-1, 0) if causal else (-1, -1))
    parts = []
    bounds = starts.tolist()
    for a, b in zip(bounds, bounds[1:]):
        heads_first = [t[a:b].transpose(0, 1)[None] for t in (q, k, v)]
        parts.append(F.scaled_dot_product_attention(*heads_first, is_causal=causal)[0].transpose(0, 1))
    return torch.cat(parts)


# The text below the layers' norms and products is compiled: memory traffic between them is what
# a small model spends its time on. The functions take tensors only, so that one compilation serves
# every layer.

@compiled
def delta_inputs(x, offsets, norm, qkv, z, b, a, conv, a_log, dt_bias, eps: float):
    """-> q k v [N, channels] after convolution and SiLU, log decay and beta [N, heads], z."""
    h = rms_norm(x, norm, eps)
    mixed, conv = linear(h, qkv), conv[:, 0].to(x.dtype)  # [channels, W]
    width = conv.shape[1]
    y = mixed * conv[:, width - 1]
    for back in range(1, width):
        earlier = F.pad(mixed, (0, 0, back, 0))[:mixed.shape[0]]
        y = y + torch.where(offsets[:, None] >= back, earlier, 0) * conv[:, width - 1 - back]
    decay = -a_log.float().exp() * F.softplus(linear(h, a).float() + dt_bias)
    return F.silu(y), decay, linear(h, b).sigmoid(), linear(h, z)


@compiled
def delta_output(x, o, z, norm, out, eps: float):
    """Gated norm of each head, output product, residual."""
    o32 = o.float()
    o32 = o32 * torch.rsqrt(o32.pow(2).mean(-1, keepdim=True) + eps)
    gated = (norm * o32.to(o.dtype) * F.silu(z.view_as(o).float())).to(o.dtype)
    return x + linear(gated.flatten(1), out)


@compiled
def attention_inputs(x, cos, sin, norm, q_proj, k_proj, v_proj, q_norm, k_norm, eps: float,
                     heads: int, kv_heads: int):
    h = rms_norm(x, norm, eps)
    q, gate = linear(h, q_proj).view(x.shape[0], heads, -1).chunk(2, -1)
    k = linear(h, k_proj).view(x.shape[0], kv_heads, -1)
    v = linear(h, v_proj).view(x.shape[0], kv_heads, -1)
    q, k = rms_norm(q, q_norm, eps), rms_norm(k, k_norm, eps)
    return rotate(q, cos, sin), rotate(k, cos, sin), v.contiguous(), gate.flatten(1)


@compiled
def attention_output(x, o, gate, out):
    return x + linear(o.flatten(1) * gate.sigmoid(), out)


@compiled
def mlp(x, norm, gate, up, down, eps: float):
    h = rms_norm(x, norm, eps)
    return x + linear(F.silu(linear(h, gate)) * linear(h, up), down)


class DeltaNet(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        self.heads_k, self.heads_v = c["linear_num_key_heads"], c["linear_num_value_heads"]
        self.dim_k, self.dim_v = c["linear_key_head_dim"], c["linear_value_head_dim"]
        keys, values, hidden = self.heads_k * self.dim_k, self.heads_v * self.dim_v, c["hidden_size"]
        channels = 2 * keys + values
        self.split = [keys, keys, values]
        self.in_proj_qkv = nn.Linear(hidden, channels, bias=False)
        self.in_proj_z = nn.Linear(hidden, values, bias=False)
        self.in_proj_b = nn.Linear(hidden, self.heads_v, bias=False)
        self.in_proj_a = nn.Linear(hidden, self.heads_v, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, c["linear_conv_kernel_dim"], groups=channels,
                                bias=False)
        step = torch.exp(torch.rand(self.heads_v) * math.log(100) + math.log(0.001))  # 0.001 to 0.1
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # inverse of softplus
        self.A_log = nn.Parameter(torch.empty(self.heads_v).uniform_(1, 16).log())
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(self.dim_v))
        self.out_proj = nn.Linear(values, hidden, bias=False)
        self.eps = c["rms_norm_eps"]

    def forward(self, x: Tensor, norm: Tensor, batch: Batch) -> Tensor:
        y, decay, beta, z = delta_inputs(
            x, batch.offsets, norm, self.in_proj_qkv.weight, self.in_proj_z.weight,
            self.in_proj_b.weight, self.in_proj_a.weight, self.conv1d.weight, self.A_log,
            self.dt_bias, self.eps)
        q, k, v = y.split(self.split, -1)
        o = gated_delta_rule(
            q.reshape(-1, self.heads_k, self.dim_k), k.reshape(-1, self.heads_k, self.dim_k),
            v.reshape(-1, self.heads_v, self.dim_v), decay, beta, batch.starts)
        return delta_output(x, o, z, self.norm.weight, self.out_proj.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        self.heads, self.kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        dim, hidden = c["head_dim"], c["hidden_size"]
        self.q_proj = nn.Linear(hidden, 2 * self.heads * dim, bias=False)  # query and gate, by head
        self.k_proj = nn.Linear(hidden, self.kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(self.heads * dim, hidden, bias=False)
        self.q_norm, self.k_norm = Norm(dim), Norm(dim)
        self.eps = c["rms_norm_eps"]

    def forward(self, x: Tensor, norm: Tensor, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v, gate = attention_inputs(
            x, cos, sin, norm, self.q_proj.weight, self.k_proj.weight, self.v_proj.weight,
            self.q_norm.weight, self.k_norm.weight, self.eps, self.heads, self.kv_heads)
        o = attention(q, k, v, batch.starts, batch.longest, causal=True)
        return attention_output(x, o, gate, self.o_proj.weight)


class Norm(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))


class MLP(nn.Module):
    def __init__(self, hidden: int, intermediate: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)


class Layer(nn.Module):
    def __init__(self, c: dict, kind: str):
        super().__init__()
        if kind == "linear_attention":
            self.linear_attn = DeltaNet(c)
        else:
            self.self_attn = Attention(c)
        self.mlp = MLP(c["hidden_size"], c["intermediate_size"])
        self.input_layernorm = Norm(c["hidden_size"])
        self.post_attention_layernorm = Norm(c["hidden_size"])
        self.kind, self.eps = kind, c["rms_norm_eps"]

    def forward(self, x: Tensor, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        norm = self.input_layernorm.weight
        if self.kind == "linear_attention":
            x = self.linear_attn(x, norm, batch)
        else:
            x = self.self_attn(x, norm, batch, cos, sin)
        return mlp(x, self.post_attention_layernorm.weight, self.mlp.gate_proj.weight,
                   self.mlp.up_proj.weight, self.mlp.down_proj.weight, self.eps)


@compiled
def block_inputs(x, cos, sin, norm, qkv, heads: int):
    """norm, qkv: weight and bias, as everywhere in the encoder."""
    q, k, v = linear(layer_norm(x, *norm), *qkv).view(x.shape[0], 3, heads, -1).unbind(1)
    return rotate(q, cos, sin), rotate(k, cos, sin), v.contiguous()


@compiled
def block_output(x, o, proj, norm, fc1, fc2):
    x = x + linear(o.flatten(1), *proj)
    h = F.gelu(linear(layer_norm(x, *norm), *fc1), approximate="tanh")
    return x + linear(h, *fc2)


@compiled
def embed_patches(x, place, grid, patch, pos_embed):
    """Patch product, and the learned positions, a square grid, stretched over each image."""
    side = math.isqrt(pos_embed.shape[0])
    where = place * (side - 1) / (grid - 1)  # [M, 2]
    low = where.floor().long()
    part, high = where - low, (low + 1).clamp(max=side - 1)
    total = 0
    for row, row_weight in ((low[:, 0], 1 - part[:, 0]), (high[:, 0], part[:, 0])):
        for column, weight in ((low[:, 1], 1 - part[:, 1]), (high[:, 1], part[:, 1])):
            total = total + pos_embed[row * side + column] * (row_weight * weight)[:, None]
    return linear(x, *patch) + total.to(x.dtype)


class VisionBlock(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        hidden, self.heads = c["hidden_size"], c["num_heads"]
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn = nn.Module()
        self.attn.qkv, self.attn.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.mlp = nn.Module()
        self.mlp.linear_fc1 = nn.Linear(hidden, c["intermediate_size"])
        self.mlp.linear_fc2 = nn.Linear(c["intermediate_size"], hidden)

    def forward(self, x: Tensor, batch: Batch, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = block_inputs(x, cos, sin, affine(self.norm1), affine(self.attn.qkv), self.heads)
        o = attention(q, k, v, batch.patch_starts, batch.longest_image, causal=False)
        return block_output(x, o, affine(self.attn.proj), affine(self.norm2),
                            affine(self.mlp.linear_fc1), affine(self.mlp.linear_fc2))


class Vision(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        hidden, merged = c["hidden_size"], 4 * c["hidden_size"]
        self.patch = nn.Linear(PATCH * PATCH, hidden)
        self.pos_embed = nn.Embedding(c["num_position_embeddings"], hidden)
        self.blocks = nn.ModuleList([VisionBlock(c) for _ in range(c["depth"])])
        self.merger = nn.Module()
        self.merger.norm = nn.LayerNorm(hidden)
        self.merger.linear_fc1 = nn.Linear(merged, merged)
        self.merger.linear_fc2 = nn.Linear(merged, c["out_hidden_size"])
        self.head_dim = hidden // c["num_heads"]

    def forward(self, batch: Batch, dtype: torch.dtype) -> Tensor:
        """-> image tokens [M / 4, D of the text]"""
        x = batch.patches.to(dtype) / 127.5 - 1
        x = embed_patches(x, batch.patch_place, batch.patch_grid, affine(self.patch),
                          self.pos_embed.weight)
        quarter = torch.arange(0, self.head_dim // 2, 2, device=x.device) / (self.head_dim // 2)
        angles = (batch.patch_place[..., None] / 10000 ** quarter).flatten(1)  # rows, then columns
        angles = torch.cat((angles, angles), -1)[:, None]
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        for block in self.blocks:
            x = block(x, batch, cos, sin)
        x = layer_norm(x, *affine(self.merger.norm)).view(x.shape[0] // 4, -1)
        x = F.gelu(linear(x, *affine(self.merger.linear_fc1)))
        return linear(x, *affine(self.merger.linear_fc2))


class Model(nn.Module):
    """config: the published config.json as a dict."""

    def __init__(self, config: dict):
        super().__init__()
        text = self.text = config["text_config"]
        self.visual = Vision(config["vision_config"])
        self.language_model = nn.Module()
        self.language_model.embed_tokens = nn.Embedding(text["vocab_size"], text["hidden_size"])
        self.language_model.layers = nn.ModuleList([Layer(text, k) for k in text["layer_types"]])
        self.language_model.norm = Norm(text["hidden_size"])
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(text["hidden_size"], text["vocab_size"], bias=False)
        rope = text["rope_parameters"]
        turned = int(text["head_dim"] * rope["partial_rotary_factor"])
        self.register_buffer("frequencies", 1 / rope["rope_theta"] ** (
            torch.arange(0, turned, 2).float() / turned), persistent=False)
        axis = torch.zeros(turned // 2, dtype=torch.long)  # of each frequency: time, height, width
        for d in (1, 2):
            axis[d:3 * rope["mrope_section"][d]:3] = d
        self.register_buffer("axis", axis, persistent=False)

    def initialise(self) -> None:
        """Weights of a new model; products that end in the residual stream start at zero."""
        to_residual = ("out_proj.weight", "o_proj.weight", "down_proj.weight", "attn.proj.weight",
                       "linear_fc2.weight")
        for name, p in self.named_parameters():
            if p.ndim >= 2 and "conv1d" not in name:
                nn.init.normal_(p, std=0.02)
            if name.endswith(to_residual) and "merger" not in name or name.endswith(".bias"):
                nn.init.zeros_(p)

    @property
    def head(self) -> Tensor:
        """[V, D]"""
        return self.lm_head.weight if hasattr(self, "lm_head") else \
            self.language_model.embed_tokens.weight

    def hidden(self, batch: Batch, taps: tuple[int, ...] = (), dtype=torch.bfloat16
               ) -> tuple[Tensor, list[Tensor]]:
        """Residual stream after the last layer, before the norm [N, D], and after layers `taps`."""
        x = self.language_model.embed_tokens(batch.ids).to(dtype)
        x = x.index_copy(0, batch.image_rows, self.visual(batch, dtype))
        angles = batch.positions[self.axis].t() * self.frequencies  # [N, turned / 2]
        angles = torch.cat((angles, angles), -1)[:, None]
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        kept = {}
        for i, layer in enumerate(self.language_model.layers):
            x = layer(x, batch, cos, sin)
            if i in taps:
                kept[i] = x
        return x, [kept[i] for i in taps]

    def logits(self, hidden: Tensor) -> Tensor:
        normed = rms_norm(hidden, self.language_model.norm.weight, self.text["rms_norm_eps"])
        return linear(normed, self.head)

    def loss(self, batch: Batch, taps: tuple[int, ...] = (), dtype=torch.bfloat16
             ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Sum of the labels' cross entropy (nats), the likeliest token of each label's row [R], and the
        residual stream after layers `taps`, of [N, D] each."""
        x, features = self.hidden(batch, taps, dtype)
        loss, choices = label_loss(x.index_select(0, batch.label_rows), self.language_model.norm.weight,
                                   self.head, batch.labels, self.text["rms_norm_eps"])
        return loss, choices, features


@compiled
def label_loss(x, norm, head, labels, eps: float):
    logits = linear(rms_norm(x, norm, eps), head).float()
    return F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum"), logits.argmax(-1)
