"""Updates of a drafter with what its target says of a batch of pages.

An update is a thousand small kernels, which take longer to be asked for than to run: where one process
trains on a GPU, they are recorded once and run again as one graph.
"""
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from network.block_loss import step_loss
from network.dflash import Drafter
from network.model import Batch, Model
from network.optim import Optimizer

WARM_UP = 3  # updates before the recording: everything has been compiled by then


class Updates:
    """blocks: of an update; ahead: whether the gradients of the features are kept, too."""

    def __init__(self, drafter: Drafter, target: Model, blocks: int, ahead: bool = False):
        self.drafter, self.target, self.blocks, self.ahead = drafter, target, blocks, ahead
        self.records = target.head.is_cuda and not dist.is_initialized()
        self.optimizer = Optimizer(drafter)
        self.features: list[Tensor] = []
        self.batch: Batch | None = None  # what a drafter sees of it is copied, for the graph
        self.choices: Tensor | None = None
        self.loss: Tensor | None = None  # of the last update, and figures of it, see step_loss
        self.figures: dict[str, Tensor] = {}
        self.count, self.graph = 0, None

    @torch.no_grad()
    def begin(self, features: list[Tensor], choices: Tensor, batch: Batch) -> None:
        """features, T of [N, D], and choices [N], the token that the target would write after each row:
        of the batch that the next updates learn from."""
        seen = dict(ids=batch.ids, offsets=batch.offsets, label_rows=batch.label_rows, labels=batch.labels)
        if self.batch is None:
            self.features = [f.detach().clone() for f in features]
            self.choices = choices.clone()
            self.batch = replace(batch, **{name: tensor.clone() for name, tensor in seen.items()})
            if self.ahead:
                for f in self.features:
                    f.requires_grad_().grad = torch.zeros_like(f)
            return
        self.choices.copy_(choices)
        for name, tensor in seen.items():
            getattr(self.batch, name).copy_(tensor)
        for mine, theirs in zip(self.features, features):
            mine.copy_(theirs)
            if self.ahead:
                mine.grad.zero_()

    def update(self, scale: float) -> None:
        """One, at `scale` times the learning rates, with new blocks."""
        self.optimizer.set_rate(scale)
        if self.graph is not None:
            self.graph.replay()
        elif not self.records:
            self._update()
        elif self.count < WARM_UP:
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                self._update()
            torch.cuda.current_stream().wait_stream(beside)
        else:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._update()
            self.graph = graph
            graph.replay()
        self.count += 1

    def _update(self) -> None:
        loss, figures = step_loss(self.drafter, self.target, self.features, self.choices, self.batch,
                                  self.blocks)
        loss.backward()
        self.optimizer.apply()
        self.loss = loss.detach()
        self.figures = {name: figure.detach() for name, figure in figures.items()}
