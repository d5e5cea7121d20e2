#!/usr/bin/env python3
"""Times what an engine does that builds the metadata of a decode step with tensor operations, for each group of caches.

    pip install torch
    python3 bench/rivals/metadata.py > metadata.json
    quire bench --shape qwen3.5-4b --metadata --rival metadata.json
    python3 bench/rivals/metadata.py --device cpu --batch 1 --steps 4

Prints one JSON line for each (batch, context). README.md says what is built and what is fair.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PAGE = 64
VIEWS = {"view", "slice", "select", "expand", "unsqueeze", "squeeze", "t", "transpose", "as_strided", "alias"}


class Group:
    """Layers that share a block table: buffers that a captured model reads, written anew for every step."""

    def __init__(self, requests, most, rows, context, steps, device):
        pages = -(-(context + steps) // PAGE)
        self.block_table = torch.randperm(most * pages, device=device, dtype=torch.int32).view(most, pages)
        self.requests, self.rows = requests, rows
        self.cu_seqlens = torch.zeros(most + 1, dtype=torch.int32, device=device)
        self.seq_lens = torch.zeros(most, dtype=torch.int32, device=device)
        self.positions = torch.zeros(most * rows, dtype=torch.int64, device=device)
        self.slot_mapping = torch.zeros(most * rows, dtype=torch.int64, device=device)

    def build(self, query_start, computed, request_of_row, row_in_window):
        """Twelve operations."""
        requests, rows = self.requests, self.requests * self.rows
        lengths = query_start[1:] - query_start[:-1]
        torch.cumsum(lengths, 0, dtype=torch.int32, out=self.cu_seqlens[1 : requests + 1])
        self.cu_seqlens[requests + 1 :].fill_(rows)  # requests that are not there have no rows
        torch.add(computed, lengths, out=self.seq_lens[:requests])
        self.seq_lens[requests:].zero_()
        first = torch.index_select(computed, 0, request_of_row)
        positions = torch.add(row_in_window, first, out=self.positions[:rows])
        page = self.block_table[request_of_row, positions // PAGE]
        torch.add(positions % PAGE, page, alpha=PAGE, out=self.slot_mapping[:rows])
        self.slot_mapping[rows:].fill_(-1)


class Metadata:
    """A step's metadata for all groups, from arrays of the host."""

    def __init__(self, groups, requests, rows, context, steps, device):
        most = 1 << requests.bit_length()  # the step is captured for so many
        self.device = device
        self.groups = [Group(requests, most, rows, context, steps, device) for _ in range(groups)]
        self.host = [torch.arange(requests + 1, dtype=torch.int32) * rows, torch.full((requests,), context, dtype=torch.int32)]
        if device.type == "cuda":
            self.host = [array.pin_memory() for array in self.host]
        self.request_of_row = torch.arange(requests, device=device).repeat_interleave(rows)
        self.row_in_window = torch.arange(rows, device=device).repeat(requests)

    def build(self):
        query_start, computed = (array.to(self.device, non_blocking=True) for array in self.host)
        for group in self.groups:
            group.build(query_start, computed, self.request_of_row, self.row_in_window)


class Count(TorchDispatchMode):
    """Operations that compute or copy: on a GPU each is a launch, or more."""

    operations = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.operations += function.overloadpacket.__name__ not in VIEWS
        return function(*args, **(kwargs or {}))


def host_seconds(metadata, device):
    """Until everything is asked for. The device has nothing else to do, so that nobody waits for room in its queue."""
    begin = time.perf_counter()
    metadata.build()
    seconds = time.perf_counter() - begin
    if device.type == "cuda":
        torch.cuda.synchronize()
    return seconds


def gpu_seconds(metadata):
    """Of a step whose operations all wait in the queue when the first of them begins."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(2e7))  # cycles, 10 ms: longer than the host takes
    begin.record()
    metadata.build()
    waiting = not begin.query()
    end.record()
    torch.cuda.synchronize()
    return 1e-3 * begin.elapsed_time(end) if waiting else None


@torch.inference_mode()
def measure(batch, context, arguments, device):
    warmup = 4
    metadata = Metadata(arguments.groups, batch, arguments.window, context, warmup + arguments.steps, device)
    for _ in range(warmup):
        host_seconds(metadata, device)
    host = [host_seconds(metadata, device) for _ in range(arguments.steps)]
    cuda = device.type == "cuda"
    gpu = [s for s in (gpu_seconds(metadata) for _ in range(arguments.steps)) if s is not None] if cuda else []
    with Count() as count:
        metadata.build()
    return {
        "rival": "metadata in PyTorch",
        "shape": arguments.shape,
        "batch": batch,
        "context": context,
        "window": arguments.window,
        "groups": arguments.groups,
        "operations_per_step": count.operations,
        "host_us_per_step": round(1e6 * statistics.median(host), 2),
        "gpu_us_per_step": round(1e6 * statistics.median(gpu), 2) if gpu else None,
        "steps": arguments.steps,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="qwen3.5-4b", help="whose rows these are for `quire bench --rival`: the metadata is the same for all")
    parser.add_argument("--groups", type=int, default=38, help="of caches; 38: 24 of Gated DeltaNet, 8 of attention, 6 of a drafter")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 12, 32])
    parser.add_argument("--context", type=int, nargs="+", default=[1024, 4096], help="tokens that each sequence holds")
    parser.add_argument("--window", type=int, default=1, help="rows of a sequence")
    parser.add_argument("--steps", type=int, default=200, help="that are timed; the median counts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    for context in arguments.context:
        for batch in arguments.batch:
            print(json.dumps(measure(batch, context, arguments, device)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
