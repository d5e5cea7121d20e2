"""What DFlash2 adds to a DFlash drafter: convolutions along a block, and a candidate selector.

Convolution: each channel of a row is mixed with the same channel of the rows before it in its
block, with weights that the row itself chooses for each group of channels. It stands before and
after attention and MLP, and starts as the identity.

Candidate selector: of each row the K likeliest tokens are candidates; a low-rank score says how
well a candidate follows the token chosen before it, and the drafts are found by a walk along the
block. It starts with scores of zero: the walk then takes the likeliest token of each row, as DFlash
does.

Names and arithmetic are those of the published drafters (architecture DFlash2DraftModel).

Shapes: A blocks, B rows a block, Q = A * B, D hidden size, G groups of channels, V vocabulary,
R rank and K candidates of the selector.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from network.model import linear

Convolution = tuple[Tensor, Tensor, int]  # base kernel, kernel projection, B


def make_config(dflash: dict) -> dict:
    """The config of a DFlash2 drafter that starts from a DFlash drafter with this config."""
    config = {**dflash, "architectures": ["DFlash2DraftModel"]}
    config["dflash_config"] = {
        **dflash["dflash_config"],
        "block_size": config.pop("block_size", dflash["dflash_config"].get("block_size")),
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": min(256, dflash["hidden_size"] // 4),
        "selector_top_k": 16,
    }
    return config


def without_dflash2(config: dict) -> dict:
    """The config of the DFlash drafter that is left without these parts."""
    d = config["dflash_config"]
    parts = ("block_size", "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
    return {**config, "architectures": ["DFlashDraftModel"], "block_size": d["block_size"],
            "dflash_config": {name: value for name, value in d.items() if name not in parts}}


class GroupedConv(nn.Module):
    """The convolutions before (side 0) and after (side 1) attention or MLP. Tap t of a kernel is
    for the row t places before."""

    def __init__(self, hidden: int, taps: int, group: int, block: int):
        super().__init__()
        self.base_kernel = nn.Parameter(torch.empty(2, taps, hidden))
        self.kernel_projection = nn.Linear(hidden, 2 * taps * hidden // group, bias=False)
        self.block = block

    def parts(self) -> Convolution:
        return self.base_kernel, self.kernel_projection.weight, self.block


def convolve(x: Tensor, base: Tensor, chosen: Tensor) -> Tensor:
    """x [Q, D], base [taps, D], chosen [A, B, taps, G] -> [Q, D]; before a block stand zeros."""
    blocks, rows, taps, groups = chosen.shape
    grouped = x.view(blocks, rows, groups, -1)
    kernels = base.to(x.dtype).view(taps, groups, -1) + chosen[..., None]
    mixed = kernels[:, :, 0] * grouped
    for tap in range(1, taps):
        mixed = mixed + kernels[:, :, tap] * F.pad(grouped, (0, 0, 0, 0, tap, 0))[:, :rows]
    return mixed.view_as(x)


def convolve_input(x: Tensor, convolution: Convolution | None) -> tuple[Tensor, Tensor | None]:
    """x [Q, D] normed -> [Q, D], and what the rows of x choose for the output: [A, B, taps, G]"""
    if convolution is None:
        return x, None
    base, projection, block = convolution
    chosen = linear(x, projection).view(x.shape[0] // block, block, 2, base.shape[1], -1)
    before, after = chosen.unbind(2)
    return convolve(x, base[0], before), after


def convolve_output(x: Tensor, convolution: Convolution | None, chosen: Tensor | None) -> Tensor:
    return x if convolution is None else convolve(x, convolution[0][1], chosen)


def candidates(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """logits [..., V] -> ids and logits of the likeliest, [..., K] each. Ids ascend, so that
    argmax settles a tie as it does over the vocabulary."""
    ids = logits.topk(count).indices.sort().values
    return ids, logits.gather(-1, ids).float()


def edge_scores(unary: Tensor, projected: Tensor, predecessor: Tensor, successors: Tensor
                ) -> Tensor:
    """unary [..., K], projected and predecessor [..., R], successors [..., K, R] -> [..., K]"""
    return unary + (successors * (projected * predecessor)[..., None, :]).sum(-1)


@dataclass
class Walk:
    """Drafts, and the distribution that each was drawn from: what a lossless verifier needs."""
    tokens: Tensor         # [A, B - 1]
    candidates: Tensor     # [A, B - 1, K] ids
    probabilities: Tensor  # [A, B - 1, K]; all other tokens have none


class CandidateSelector(nn.Module):
    def __init__(self, vocabulary: int, hidden: int, rank: int, top_k: int):
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.empty(vocabulary, rank))
        self.successor_codebook = nn.Parameter(torch.empty(vocabulary, rank))
        self.hidden_projection = nn.Linear(hidden, rank, bias=False)
        self.top_k = top_k

    def walk(self, hidden: Tensor, head: Tensor, anchors: Tensor, temperature: float = 0.0,
             generator: torch.Generator | None = None) -> Walk:
        """hidden [A, B - 1, D] normed rows after the anchor; anchors [A] ids. Temperature 0 takes
        the best candidate after the one before it, otherwise one is drawn."""
        ids, unary = candidates(linear(hidden, head), self.top_k)
        projected = linear(hidden, self.hidden_projection.weight).float()
        tokens, probabilities, previous = [], [], anchors
        for row in range(hidden.shape[1]):
            scores = edge_scores(unary[:, row], projected[:, row],
                                 F.embedding(previous, self.predecessor_codebook),
                                 F.embedding(ids[:, row], self.successor_codebook))
            if temperature == 0:
                choice = scores.argmax(-1, keepdim=True)
                chances = torch.zeros_like(scores).scatter(-1, choice, 1.0)
            else:
                chances = (scores / temperature).softmax(-1)
                choice = torch.multinomial(chances, 1, generator=generator)
            previous = ids[:, row].gather(-1, choice)[:, 0]
            tokens.append(previous)
            probabilities.append(chances)
        return Walk(torch.stack(tokens, 1), ids, torch.stack(probabilities, 1))
