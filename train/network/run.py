"""What training programs share: processes and devices, and the course of a run by the clock."""
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from network.model import Batch

SAVE_MINUTES, LOG_STEPS = 4, 20


def join_processes() -> tuple[str, int, int]:
    """-> device of this process, its rank, and how many torchrun has started (1: without it)."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl")
    return device, rank, world


class Run:
    """A run of so many minutes, counted from the end of its first step: compilation is not training.
    All processes stop at the same step. The first writes the curve and calls `save`."""

    def __init__(self, minutes: float, folder: Path, save: Callable[[], None], device: str, rank: int,
                 world: int):
        self.seconds, self.save, self.device = 60 * minutes, save, device
        self.rank, self.world = rank, world
        self.step, self.done, self.waited = 0, 0.0, 0.0  # done: part of the time that has passed
        self.start = self.mark = self.saved = time.time()
        if rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            self.curve = open(folder / "curve.jsonl", "a")

    def next(self, loader: Iterator[Batch]) -> Batch:
        before = time.time()
        batch = next(loader)
        self.waited += time.time() - before
        return batch

    def end_step(self) -> bool:
        """Counts a step. True: this process should log now."""
        self.step += 1
        if self.step == 1:
            if self.device != "cpu":
                torch.cuda.synchronize()
            if self.rank == 0:
                print(f"first step after {time.time() - self.start:.0f} s", flush=True)
            self.start = self.mark = self.saved = time.time()
        self.done = (time.time() - self.start) / self.seconds
        if self.world > 1:
            if self.step % LOG_STEPS == 0:
                shared = torch.tensor(self.done, device=self.device)
                dist.broadcast(shared, 0)
                self.done = shared.item()
            else:
                self.done = min(self.done, 0.999)
        return self.rank == 0 and self.step % LOG_STEPS == 0

    def rate(self, a_step: float) -> float:
        """Of something that every process does so often a step, a second since the last log."""
        return a_step * self.world * LOG_STEPS / (time.time() - self.mark)

    def log(self, figures: dict[str, float]) -> None:
        now = time.time()
        waiting = round(self.waited / (now - self.mark), 2)
        self.write(figures | {"waiting": waiting})
        if now - self.saved > 60 * SAVE_MINUTES:
            self.save()
            self.saved = now
        self.waited, self.mark = 0.0, time.time()

    def write(self, figures: dict[str, float]) -> None:
        """One line of the curve."""
        minutes = round((time.time() - self.start) / 60, 2)
        line = json.dumps({"step": self.step, "minutes": minutes} | figures)
        print(line, flush=True)
        print(line, file=self.curve, flush=True)
