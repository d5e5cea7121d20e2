"""Updates of a drafter with what its target says of batches of pages.

An update is a thousand small kernels, which take longer to be asked for than to run: where one process
trains on a GPU, they are recorded once and run again as one graph.
"""
import argparse
from collections import deque
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from network.block_loss import draw_anchors, go_on, step_loss
from network.dflash import Drafter
from network.model import Batch, Model
from network.optim import Optimizer, schedule

WARM_UP = 3  # updates before the recording: everything has been compiled by then


@dataclass
class Lesson:
    """What a drafter learns of a batch of N tokens. The first update learns at random anchors, later
    ones where a decoder would be a step later."""
    features: list[Tensor]  # T of [N, D]
    choices: Tensor         # [N] the token that the target would write after each row
    batch: Batch
    anchors: Tensor         # [A] of the next update


class Updates:
    """blocks: of an update. batches: that each step learns from, the newest ones. lr, decay_from: see
    `schedule`. ahead: whether the gradients of the features are kept, too."""

    def __init__(self, drafter: Drafter, target: Model, *, blocks: int, batches: int, lr: float,
                 decay_from: float, ahead: bool = False):
        self.drafter, self.target, self.blocks, self.ahead = drafter, target, blocks, ahead
        self.lr, self.decay_from = lr, decay_from
        self.records = target.head.is_cuda and not dist.is_initialized()
        self.optimizer = Optimizer(drafter)
        # The target costs more than an update of the drafter, and a batch is a dozen pages: learnt
        # from in a row, it would be learnt by heart.
        self.recent: deque[Lesson] = deque(maxlen=batches)
        self.copy: Lesson | None = None  # of what an update reads of a lesson, for the graph
        self.loss: Tensor | None = None  # of the last update, and figures of it, see step_loss
        self.figures: dict[str, Tensor] = {}
        self.count, self.graph = 0, None

    def learn(self, features: list[Tensor], choices: Tensor, batch: Batch, done: float) -> None:
        """Of a new batch, see Lesson, and of those before it; of the new one last.
        done: the part of the run that has passed."""
        self.recent.append(Lesson([f.detach() for f in features], choices, batch,
                                  draw_anchors(batch, self.blocks)))
        for lesson in self.recent:
            self._put(lesson)
            self._update(self.lr * schedule(self.count, done, warm_up=200, decay_from=self.decay_from))
            lesson.anchors.copy_(self.copy.anchors)
            self.count += 1

    @torch.no_grad()
    def _put(self, lesson: Lesson) -> None:
        if self.copy is None:
            tensors = {name: t.clone() for name, t in seen(lesson.batch).items()}
            self.copy = Lesson([f.clone() for f in lesson.features], lesson.choices.clone(),
                               replace(lesson.batch, **tensors), lesson.anchors.clone())
            for f in self.copy.features if self.ahead else ():
                f.requires_grad_().grad = torch.zeros_like(f)
            return
        mine, theirs = seen(self.copy.batch), seen(lesson.batch)
        for name in mine:
            mine[name].copy_(theirs[name])
        self.copy.choices.copy_(lesson.choices)
        self.copy.anchors.copy_(lesson.anchors)
        for f, new in zip(self.copy.features, lesson.features):
            f.copy_(new)
            if self.ahead:
                f.grad.zero_()

    def _update(self, scale: float) -> None:
        self.optimizer.set_rate(scale)
        if self.graph is not None:
            self.graph.replay()
        elif not self.records:
            self._run()
        elif self.count < WARM_UP:
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                self._run()
            torch.cuda.current_stream().wait_stream(beside)
        else:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._run()
            self.graph = graph
            graph.replay()

    def _run(self) -> None:
        it = self.copy
        loss, tokens, figures = step_loss(self.drafter, self.target, it.features, it.choices, it.batch,
                                          it.anchors)
        loss.backward()
        self.optimizer.apply()
        it.anchors.copy_(go_on(it.batch, it.anchors, tokens))
        self.loss = loss.detach()
        self.figures = {name: figure.detach() for name, figure in figures.items()}


def seen(batch: Batch) -> dict[str, Tensor]:
    """What an update reads of a batch."""
    return {name: getattr(batch, name) for name in ("ids", "offsets", "label_rows", "labels")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--blocks", type=int, default=1024, help="of an update, a multiple of 8 (%(default)s)")
    add("--updates", type=int, default=6,
        help="with the features of one batch, one each step (%(default)s)")
