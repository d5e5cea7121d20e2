"""A drafter that learns beside its model, while that is trained itself.

A drafter can only read in the model's features what the model has put there for its own next token.
Here a part of the drafter's gradient goes on into the features, so that the model learns to show in
them what stands further ahead, too.
"""
import argparse
from pathlib import Path

import torch
from torch import Tensor

from network import dflash, updates
from network.block_loss import choices_of_rows
from network.dflash import Drafter
from network.model import Batch, Model
from network.updates import Updates


class Beside:
    """ahead: the part of the drafter's gradient that reaches the model."""

    def __init__(self, drafter: Drafter, model: Model, args: argparse.Namespace):
        self.drafter, self.ahead = drafter, args.ahead
        self.updates = Updates(drafter, model, blocks=args.blocks, batches=args.updates,
                               lr=args.drafter_lr, decay_from=args.decay_from, ahead=args.ahead > 0)

    @property
    def taps(self) -> tuple[int, ...]:
        return self.drafter.taps

    def learn(self, features: list[Tensor], choices: Tensor, batch: Batch, done: float
              ) -> list[Tensor | None]:
        """Updates the drafter. features, T of [N, D], and choices [R], the likeliest token of each
        label's row: what the model says of this batch. done: the part of the run that has passed.
        -> what is to be added to the gradients of the features"""
        self.updates.learn(features, choices_of_rows(batch, choices), batch, done)
        if self.ahead == 0:
            return [torch.zeros_like(f) for f in features]
        return [f.grad * self.ahead for f in self.updates.copy.features]

    def figures(self) -> dict[str, Tensor]:
        """Of the last update."""
        return {"drafter_loss": self.updates.loss, **self.updates.figures}

    def save(self, folder: Path) -> None:
        dflash.save(self.drafter, folder)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--drafter", type=Path, metavar="DIR", help="a drafter of the model, which learns beside it")
    add("--drafter-to", type=Path, metavar="DIR", help="its directory")
    add("--ahead", type=float, default=0.1,
        help="the part of the drafter's gradient that reaches the model (%(default)s)")
    add("--drafter-lr", type=float, default=0.4, help="as --lr, for the drafter (%(default)s)")
    updates.add_arguments(parser)


def open_beside(args: argparse.Namespace, model: Model, device: str) -> Beside | None:
    if (args.drafter is None) != (args.drafter_to is None):
        raise SystemExit("--drafter and --drafter-to: give both or neither")
    if args.drafter is None:
        return None
    drafter, text = dflash.load(args.drafter), model.text
    width, layers = drafter.config["hidden_size"], text["num_hidden_layers"]
    if width != text["hidden_size"] or max(drafter.taps) >= layers:
        raise SystemExit(f"{args.drafter}: drafts for a model of hidden size {width} with features of "
                         f"layers {drafter.taps}; this model has {text['hidden_size']} and {layers} layers")
    return Beside(drafter.to(device), model, args)
