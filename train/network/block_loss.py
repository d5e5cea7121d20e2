"""What a drafter learns of a batch of pages: blocks drawn at random tokens of the texts, and their loss.

Shapes: N tokens, A blocks, B rows a block, D hidden size, V vocabulary, K candidates of a selector.
"""
import torch
import torch.nn.functional as F
from torch import Tensor

from network.dflash import Blocks, Drafter
from network.dflash2 import candidates, edge_scores
from network.model import Batch, Model, compiled, linear

GAMMA, STEADY = 7.0, 0.2  # part of a row's weight that does not depend on what was guessed


def following_tokens(batch: Batch) -> Tensor:
    """[N] the token of the response after each row, -1 where there is none."""
    following = torch.full((batch.ids.shape[0] + 1,), -1, device=batch.ids.device)
    following[batch.label_rows.where(batch.labels >= 0, -1)] = batch.labels
    following[-1:].fill_(-1)
    return following[:-1]


def can_anchor(following: Tensor) -> Tensor:
    """[N] following tokens -> [N] tokens of a response that are not its last"""
    return F.pad(following[:-1] >= 0, (1, 0)) & (following >= 0)


def draw_anchors(batch: Batch, count: int) -> Tensor:
    """[A] rows of random tokens of the responses, in ascending order; no token twice."""
    usable = can_anchor(following_tokens(batch))
    score = torch.rand(usable.shape, device=usable.device) + usable
    return score.topk(count).indices.sort().values  # a batch of few tokens fills up with others


def go_on(batch: Batch, anchors: Tensor, tokens: Tensor) -> Tensor:
    """[A] anchors of a decoder whose steps gave so many `tokens` [A]: hard places come more often than
    easy ones, as they do for it. Where a text has ended a new one is drawn. -> [A] ascending"""
    usable, last = can_anchor(following_tokens(batch)), batch.ids.shape[0] - 1
    moved = (anchors + tokens).clamp(max=last)
    same_text = moved - batch.offsets[moved] == anchors - batch.offsets[anchors]
    return torch.where(usable[moved] & same_text, moved, draw_anchors(batch, len(anchors))).sort().values


def targets_of(batch: Batch, choices: Tensor, anchors: Tensor, size: int) -> Tensor:
    """choices [N]: the token that the target would write after each row.
    -> [A, B - 1]: its token for each row from 1 on; -1 where the text has ended, and after a row
    where the text goes on otherwise, since nobody knows what the target would write then."""
    following = F.pad(following_tokens(batch), (0, size), value=-1)
    rows = anchors[:, None] + torch.arange(size - 1, device=anchors.device)
    text, targets = following[rows], F.pad(choices, (0, size), value=-1)[rows]
    agree = F.pad(text == targets, (1, 0), value=True)[:, :-1]
    usable = can_anchor(following)[anchors]
    known = ((text >= 0) & agree).long().cumprod(1).bool() & usable[:, None]
    return targets.where(known, -1)


def blocks_at(batch: Batch, anchors: Tensor, size: int) -> Blocks:
    return Blocks(anchors, anchors - batch.offsets[anchors], size)


def worth(chances: Tensor) -> Tensor:
    """chances [A, B - 1]: of each draft to be right when all before it are -> by each of them, the
    derivative of the log of the tokens that a step is expected to give."""
    after = [torch.ones_like(chances[:, 0])]  # tokens from this draft on, if it is right
    for chance in reversed(chances.unbind(1)[1:]):
        after.append(1 + chance * after[-1])
    after = torch.stack(after[::-1], 1)
    reached = F.pad(chances[:, :-1].cumprod(1), (1, 0), value=1.0)
    return reached * after / (1 + chances[:, :1] * after[:, :1])


def row_losses(scores: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy in nats; scores [A, B - 1, n], targets [A, B - 1], -1: none, and its loss is 0."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-1,
                           reduction="none").view_as(targets)


def weights_of(losses: Tensor, targets: Tensor) -> Tensor:
    """[A, B - 1] losses -> what a row counts for: less behind rows that are likely to be wrong."""
    rows = torch.arange(targets.shape[1], device=targets.device)
    return worth((-losses.detach()).exp() * (targets >= 0)) + STEADY * (-rows / GAMMA).exp()


def mean(losses: Tensor, weights: Tensor, targets: Tensor) -> Tensor:
    return (losses * weights).sum() / (targets >= 0).sum().clamp(min=1)


def right_in_a_row(guesses: Tensor, targets: Tensor) -> Tensor:
    """[A] how many guesses are right before the first wrong one."""
    return (guesses == targets).long().cumprod(1).sum(1)


@compiled
def block_loss(hidden, head, targets):
    """hidden [A, B - 1, D] -> loss, right guesses in a row [A]"""
    logits = linear(hidden, head).float()
    losses = row_losses(logits, targets)
    return (mean(losses, weights_of(losses, targets), targets),
            right_in_a_row(logits.argmax(-1), targets))


@compiled
def selected_block_loss(hidden, head, targets, predecessors, predecessor_codebook,
                        successor_codebook, projection, top_k: int):
    """predecessors [A, B - 1]: the true token before each row. A row whose target is no candidate
    does not count for the selector. -> loss, loss of the selector, right guesses in a row [A], rows
    whose target is a candidate. A walk would make the same guesses up to the first wrong one."""
    logits = linear(hidden, head)
    ids, unary = candidates(logits, top_k)
    scores = edge_scores(unary, linear(hidden, projection).float(),
                         F.embedding(predecessors, predecessor_codebook),
                         F.embedding(ids, successor_codebook))
    is_target = ids == targets[..., None]
    places = is_target.int().argmax(-1).where(is_target.any(-1), -1)
    guesses = ids.gather(-1, scores.argmax(-1, keepdim=True))[..., 0]
    losses = row_losses(scores, places)
    weights = weights_of(losses, places)
    return (mean(row_losses(logits.float(), targets), weights, targets), mean(losses, weights, places),
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
              anchors: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Of blocks at these anchors [A]; the target's embedding and head get no gradient. -> loss, tokens
    that a decoder's step would give at each anchor [A], and figures: their mean, bonus included; of a
    selector, its loss and the share of rows whose token is a candidate."""
    targets = targets_of(batch, choices, anchors, drafter.block)
    blocks = blocks_at(batch, anchors, drafter.block)
    embedding, head = target.language_model.embed_tokens.weight.detach(), target.head.detach()
    hidden = drafter(features, batch.offsets, batch.ids, embedding, blocks)[:, 1:]
    selector, figures = drafter.candidate_selector, {}
    if selector is None:
        loss, right = block_loss(hidden, head, targets)
    else:
        predecessors = torch.cat((batch.ids[anchors, None], targets[:, :-1].clamp(min=0)), 1)
        loss, selector_loss, right, found = selected_block_loss(
            hidden, head, targets, predecessors, selector.predecessor_codebook,
            selector.successor_codebook, selector.hidden_projection.weight, selector.top_k)
        if selector.successor_codebook.requires_grad:
            loss = loss + selector_loss
        figures = {"selector_loss": selector_loss, "recall": found / (targets >= 0).sum()}
    tokens_a_step = 1 + right.sum() / (targets[:, 0] >= 0).sum()
    return loss, 1 + right, {"tokens_a_step": tokens_a_step, **figures}
