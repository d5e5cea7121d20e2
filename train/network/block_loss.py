"""What a drafter learns of a batch of pages: blocks drawn at random tokens of the texts, and their loss.

Shapes: N tokens, A blocks, B rows a block, D hidden size, V vocabulary, K candidates of a selector.
"""
import torch
import torch.nn.functional as F
from torch import Tensor

from network.dflash import Blocks, Drafter
from network.dflash2 import candidates, edge_scores
from network.model import Batch, Model, compiled, linear

GAMMA = 7.0  # row r weighs exp(-(r - 1) / GAMMA): a wrong row makes those after it useless


def following_tokens(batch: Batch) -> Tensor:
    """[N] the token of the response after each row, -1 where there is none."""
    following = torch.full((batch.ids.shape[0] + 1,), -1, device=batch.ids.device)
    following[batch.label_rows.where(batch.labels >= 0, -1)] = batch.labels
    following[-1:].fill_(-1)
    return following[:-1]


def draw_blocks(batch: Batch, choices: Tensor, count: int, size: int) -> tuple[Blocks, Tensor]:
    """`count` blocks at random tokens of the responses, in ascending order; no token twice.
    choices [N]: the token that the target would write after each row.
    -> targets [A, B - 1]: its token for each row from 1 on; -1 where the text has ended, and after a
    row where the text goes on otherwise, since nobody knows what the target would write then."""
    tokens = batch.ids.shape[0]
    following = F.pad(following_tokens(batch), (0, size), value=-1)
    is_response = torch.zeros(tokens, dtype=torch.bool, device=batch.ids.device)
    is_response[1:] = (following[:tokens - 1] >= 0) & (following[1:tokens] >= 0)
    score = torch.rand(tokens, device=batch.ids.device) + is_response
    anchors = score.topk(count).indices.sort().values  # a batch of few tokens fills up with others
    rows = anchors[:, None] + torch.arange(size - 1, device=anchors.device)
    text, targets = following[rows], F.pad(choices, (0, size), value=-1)[rows]
    agree = F.pad(text == targets, (1, 0), value=True)[:, :-1]
    known = ((text >= 0) & agree).long().cumprod(1).bool() & is_response[anchors][:, None]
    return Blocks(anchors, anchors - batch.offsets[anchors], size), targets.where(known, -1)


def weighted_loss(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Cross entropy in nats a target; scores [A, B - 1, n], targets [A, B - 1], -1: does not count,
    weights [B - 1]."""
    losses = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-1,
                             reduction="none").view_as(targets)
    return (losses * weights).sum() / (targets >= 0).sum().clamp(min=1)


def right_in_a_row(guesses: Tensor, targets: Tensor) -> Tensor:
    """Sum over blocks of how many guesses are right before the first wrong one."""
    return (guesses == targets).long().cumprod(1).sum()


@compiled
def block_loss(hidden, head, targets, weights):
    """hidden [A, B - 1, D] -> loss, right guesses in a row"""
    logits = linear(hidden, head).float()
    return weighted_loss(logits, targets, weights), right_in_a_row(logits.argmax(-1), targets)


@compiled
def selected_block_loss(hidden, head, targets, weights, predecessors, predecessor_codebook,
                        successor_codebook, projection, top_k: int):
    """predecessors [A, B - 1]: the true token before each row. A row whose target is no candidate
    does not count for the selector. -> loss, loss of the selector, right guesses in a row, rows
    whose target is a candidate. A walk would make the same guesses up to the first wrong one."""
    logits = linear(hidden, head)
    ids, unary = candidates(logits, top_k)
    scores = edge_scores(unary, linear(hidden, projection).float(),
                         F.embedding(predecessors, predecessor_codebook),
                         F.embedding(ids, successor_codebook))
    is_target = ids == targets[..., None]
    places = is_target.int().argmax(-1).where(is_target.any(-1), -1)
    guesses = ids.gather(-1, scores.argmax(-1, keepdim=True))[..., 0]
    return (weighted_loss(logits.float(), targets, weights), weighted_loss(scores, places, weights),
            right_in_a_row(guesses, targets), (places >= 0).sum())


def choices_of_rows(batch: Batch, likeliest: Tensor) -> Tensor:
    """likeliest [R]: the token that the target would write after each label's row.
    -> [N] the same for every row, -1 where there is no label"""
    choices = torch.full_like(batch.ids, -1)
    choices[batch.label_rows] = likeliest
    return choices


@torch.no_grad()
def features_and_choices(drafter: Drafter, target: Model, batch: Batch, dtype=torch.bfloat16
                         ) -> tuple[list[Tensor], Tensor]:
    """What the target, which is not trained, tells the drafter of these pages.
    -> features, and [N] the token that it would write after each row of a response"""
    hidden, features = target.hidden(batch, drafter.taps, dtype)
    return features, choices_of_rows(batch, target.logits(hidden[batch.label_rows]).argmax(-1))


def step_loss(drafter: Drafter, target: Model, features: list[Tensor], choices: Tensor, batch: Batch,
              count: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Of so many new blocks; the target's embedding and head get no gradient. -> loss, and figures:
    tokens a step of a decoder that came to these anchors, bonus included; of a selector, its loss
    and the share of rows whose token is a candidate."""
    blocks, targets = draw_blocks(batch, choices, count, drafter.block)
    embedding, head = target.language_model.embed_tokens.weight.detach(), target.head.detach()
    hidden = drafter(features, batch.offsets, batch.ids, embedding, blocks)[:, 1:]
    weights = (-torch.arange(drafter.block - 1, device=hidden.device) / GAMMA).exp()
    selector, figures = drafter.candidate_selector, {}
    if selector is None:
        loss, right = block_loss(hidden, head, targets, weights)
    else:
        anchors = batch.ids[blocks.anchors, None]
        predecessors = torch.cat((anchors, targets[:, :-1].clamp(min=0)), 1)
        loss, selector_loss, right, found = selected_block_loss(
            hidden, head, targets, weights, predecessors, selector.predecessor_codebook,
            selector.successor_codebook, selector.hidden_projection.weight, selector.top_k)
        if selector.successor_codebook.requires_grad:
            loss = loss + selector_loss
        figures = {"selector_loss": selector_loss, "recall": found / (targets >= 0).sum()}
    return loss, {"tokens_a_step": 1 + right / (targets[:, 0] >= 0).sum(), **figures}
