"""Muon for the matrices of the layers, AdamW for everything else, and one schedule for both.

Muon: K. Jordan and others, 2024 (momentum, then an approximate polar factor by five Newton-Schulz
steps), updates scaled by sqrt(rows / columns) where that is above one.
"""
import torch
import torch.distributed as dist
from torch import Tensor, nn


def polar_factor(g: Tensor) -> Tensor:
    """[n, rows, columns] -> about the nearest orthogonal matrices."""
    x = g.bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for _ in range(5):
        y = x @ x.mT
        x = 3.4445 * x + (-4.7750 * y + 2.0315 * y @ y) @ x
    return x.mT if tall else x


class Muon:
    def __init__(self, parameters: list[nn.Parameter], momentum=0.95, weight_decay=0.02):
        self.by_shape: dict[tuple, list[nn.Parameter]] = {}
        for p in parameters:
            self.by_shape.setdefault(tuple(p.shape), []).append(p)
        self.moments = {shape: torch.zeros(len(ps), *shape, device=ps[0].device)
                        for shape, ps in self.by_shape.items()}
        self.momentum, self.weight_decay = momentum, weight_decay

    def step(self, lr: Tensor) -> None:
        for shape, parameters in self.by_shape.items():
            gradient, moment = torch.stack([p.grad for p in parameters]), self.moments[shape]
            moment.lerp_(gradient, 1 - self.momentum)
            scale = max(1, shape[0] / shape[1]) ** 0.5
            update = polar_factor(gradient.lerp(moment, self.momentum)).float() * (-scale * lr)
            data = [p.data for p in parameters]
            torch._foreach_mul_(data, 1 - lr * self.weight_decay)
            torch._foreach_add_(data, list(update.unbind(0)))


class Optimizer:
    """Muon takes the matrices that map features to features; embeddings, codebooks, the patch
    embedding and the narrow projections to gates and kernels have rows that mean something alone
    and go to AdamW."""

    def __init__(self, model: nn.Module, muon_lr=0.02, adam_lr=2e-3,
                 alone=("embed", "patch", "in_proj_a", "in_proj_b", "lm_head", "codebook",
                        "kernel_projection")):
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        matrices = [p for n, p in named if p.ndim == 2 and not any(x in n for x in alone)]
        taken = set(map(id, matrices))
        self.parameters = [p for _, p in named]
        self.rest = [p for p in self.parameters if id(p) not in taken]
        device, is_cuda = self.rest[0].device, self.rest[0].is_cuda
        # Rates are where the parameters are: a graph that was recorded with one rate runs with another.
        self.muon_lr = torch.tensor(muon_lr, device=device)
        self.adam_lr = torch.tensor(adam_lr, device=device)
        self.peaks = muon_lr, adam_lr
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(self.rest, lr=self.adam_lr, betas=(0.9, 0.98), weight_decay=0.0,
                                      fused=is_cuda, capturable=is_cuda)

    def set_rate(self, scale: float) -> None:
        """`scale` times the learning rates from now on."""
        self.muon_lr.fill_(scale * self.peaks[0])
        self.adam_lr.fill_(scale * self.peaks[1])

    def apply(self) -> None:
        """One update; gradients are averaged over processes."""
        if dist.is_initialized() and dist.get_world_size() > 1:
            flat = torch.cat([p.grad.flatten() for p in self.parameters])
            dist.all_reduce(flat, op=dist.ReduceOp.AVG)
            for p, g in zip(self.parameters, flat.split([p.numel() for p in self.parameters])):
                p.grad = g.view_as(p)
        nn.utils.clip_grad_norm_(self.rest, 1.0)
        self.adam.step()
        self.muon.step(self.muon_lr)
        for p in self.parameters:
            p.grad = None

    def step(self, scale: float) -> None:
        self.set_rate(scale)
        self.apply()


def schedule(step: int, done: float, warm_up=60, decay_from=0.6, floor=0.02) -> float:
    """Learning rate relative to its peak: warm-up, flat, then down a straight line to the end.
    done: part of the run that has passed, 0 to 1."""
    falling = min(1.0, max(floor, (1 - done) / (1 - decay_from)))
    return min(1.0, (step + 1) / warm_up) * falling
