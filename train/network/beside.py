"""A drafter that learns beside its model, while that is trained itself.

A drafter can only read in the model's features what the model has put there for its own next token.
Here a part of the drafter's gradient goes on into the features, so that the model learns to show in
them what stands further ahead, too.
"""
import argparse
from pathlib import Path

import torch
from torch import Tensor

from network import dflash
from network.block_loss import step_loss
from network.dflash import Drafter
from network.model import Batch, Model
from network.optim import Optimizer, schedule


class Beside:
    """ahead: the part of the drafter's gradient that reaches the model; blocks, of each of `updates`
    updates with the features of one batch; lr: times the usual learning rates."""

    def __init__(self, drafter: Drafter, ahead: float, blocks: int, updates: int, lr: float,
                 decay_from: float):
        self.drafter, self.optimizer = drafter, Optimizer(drafter)
        self.ahead, self.blocks, self.updates = ahead, blocks, updates
        self.lr, self.decay_from = lr, decay_from

    @property
    def taps(self) -> tuple[int, ...]:
        return self.drafter.taps

    def learn(self, model: Model, features: list[Tensor], choices: Tensor, batch: Batch, step: int,
              done: float) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Updates the drafter. features, T of [N, D], and choices [R], the likeliest token of each
        label's row: what the model says of this batch. step, done: of the run, see `schedule`.
        -> what is to be added to the gradients of the features, and figures of the last update"""
        leaves = [f.detach().requires_grad_() for f in features]
        written = torch.full_like(batch.ids, -1)
        written[batch.label_rows] = choices.detach()
        figures = {}
        for update in range(self.updates):
            loss, figures = step_loss(self.drafter, model, leaves, written, batch, self.blocks)
            loss.backward()
            self.optimizer.step(self.lr * schedule(step * self.updates + update, done, warm_up=200,
                                                   decay_from=self.decay_from))
            figures = {"drafter_loss": loss.detach(), **figures}
        return [leaf.grad * (self.ahead / self.updates) for leaf in leaves], figures

    def save(self, folder: Path) -> None:
        dflash.save(self.drafter, folder)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--drafter", type=Path, metavar="DIR", help="a drafter of the model, which learns beside it")
    add("--drafter-to", type=Path, metavar="DIR", help="its directory")
    add("--ahead", type=float, default=0.1,
        help="the part of the drafter's gradient that reaches the model (%(default)s)")
    add("--drafter-lr", type=float, default=0.4, help="as --lr, for the drafter (%(default)s)")
    add("--blocks", type=int, default=1024, help="of its updates, a multiple of 8 (%(default)s)")
    add("--updates", type=int, default=4, help="with the features of one batch (%(default)s)")


def open_beside(args: argparse.Namespace, config: dict, device: str) -> Beside | None:
    """config: of the model."""
    if (args.drafter is None) != (args.drafter_to is None):
        raise SystemExit("--drafter and --drafter-to: give both or neither")
    if args.drafter is None:
        return None
    drafter, text = dflash.load(args.drafter), config["text_config"]
    width, layers = drafter.config["hidden_size"], text["num_hidden_layers"]
    if width != text["hidden_size"] or max(drafter.taps) >= layers:
        raise SystemExit(f"{args.drafter}: drafts for a model of hidden size {width} with features of "
                         f"layers {drafter.taps}; this model has {text['hidden_size']} and {layers} layers")
    return Beside(drafter.to(device), args.ahead, args.blocks, args.updates, args.drafter_lr,
                  args.decay_from)
