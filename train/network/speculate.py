"""Draft and verify in PyTorch: greedy decoding of pages with a drafter, to see what it is worth.

The target is computed over whole pages at every step, for many pages at once: right and simple, not
a way to serve. Each page has a slot in one packed batch: its prompt, then room for its text. Rows
never see what stands behind them, so whatever lies in a slot after the known text does no harm, and
one forward pass of the target both verifies a step's drafts and gives the features for the next.

Shapes: P pages, B rows a block, N tokens, D hidden size.
"""
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from network.data import PageBuffer, Sizes, Text
from network.dflash import Blocks, Drafter
from network.model import Batch, Model

PAGES_AT_ONCE = 128


@dataclass
class Figures:
    """Of all pages. The first token of a page comes with its prompt and belongs to no step."""
    pages: int = 0
    cut: int = 0     # pages that were not done when their room was full
    tokens: int = 0  # that the steps gave, bonus tokens and stop tokens included
    steps: int = 0
    accepted: list[int] = field(default_factory=list)  # [B - 1] steps that accepted draft r or more
    other: int = 0          # tokens that plain greedy decoding would have chosen otherwise,
    other_gap: float = 0.0  # and by how much its choice's logit is higher at most

    @property
    def acceptance_length(self) -> float:
        """Tokens a step, bonus included."""
        return self.tokens / max(1, self.steps)

    def by_position(self) -> list[float]:
        return [count / max(1, self.steps) for count in self.accepted]


class Slots:
    """Pages of one packed batch and the text known of each."""

    def __init__(self, pages: list[tuple[np.ndarray, int]], text: Text, block: int, sizes: Sizes,
                 device: str):
        buffer = PageBuffer(text, sizes)
        for image, room in pages:
            if not buffer.add(image, [text.stop] * (room + block)):
                raise ValueError("speculate: pages do not fit one batch; give fewer at once")
        batch = buffer.batch()
        self.batch: Batch = batch.to(device)
        ends = batch.starts[1:len(pages) + 1].long()
        self.room = torch.tensor([room for _, room in pages], device=device)
        self.firsts = batch.starts[:len(pages)].long().to(device)
        self.text_rows = ends.to(device) - (self.room + block - 1)  # row of each first text token
        self.known = torch.zeros_like(self.room)                  # tokens known of each text
        self.done = torch.zeros_like(self.room, dtype=torch.bool)  # stop token seen or room full

    def newest(self) -> Tensor:
        """[P] row of the newest known token: of the prompt's last one at first."""
        return self.text_rows + self.known - 1

    def text(self, page: int) -> list[int]:
        row = self.text_rows[page].item()
        return self.batch.ids[row:row + self.known[page].item()].tolist()


def rows_after(rows: Tensor, count: int) -> Tensor:
    """[P] -> [P, count]: rows, rows + 1, ..."""
    return rows[:, None] + torch.arange(count, device=rows.device)


@torch.no_grad()
def decode(target: Model, drafter: Drafter, slots: Slots, stop: int, dtype=torch.bfloat16
           ) -> Figures:
    batch, block = slots.batch, drafter.block
    embedding = target.language_model.embed_tokens.weight
    figures = Figures(pages=len(slots.room))
    accepted = torch.zeros(block - 1, dtype=torch.long, device=batch.ids.device)
    drafts = None  # [P, B - 1] of the step; none before the first token
    while not slots.done.all():
        running = ~slots.done
        hidden, features = target.hidden(batch, drafter.taps, dtype)
        width = 1 if drafts is None else block
        choice = target.logits(hidden[rows_after(slots.newest(), width)]).argmax(-1)  # [P, width]
        right = torch.zeros_like(choice[:, 1:]) if drafts is None else \
            (choice[:, :-1] == drafts).long().cumprod(1)
        new = right.sum(1) + 1
        stops = choice == stop
        new = torch.where(stops.any(1), torch.minimum(new, stops.long().argmax(1) + 1), new)
        new = torch.minimum(new, slots.room - slots.known) * running
        if drafts is not None:
            figures.tokens += new.sum().item()
            figures.steps += running.sum().item()
            accepted += ((right > 0) & (right.cumsum(1) <= new[:, None])).sum(0)
        fresh = torch.arange(width, device=new.device) < new[:, None]
        where = rows_after(slots.newest() + 1, width)
        batch.ids[where[fresh]] = choice[fresh]
        slots.known += new
        ended = (stops & fresh).any(1)
        slots.done |= ended | (slots.known >= slots.room)
        figures.cut += (slots.done & running & ~ended).sum().item()

        padding = -len(slots.room) % PAGES_AT_ONCE if batch.ids.is_cuda else 0
        anchors = torch.cat((slots.newest(), slots.newest()[-1:].expand(padding)))
        firsts = torch.cat((slots.firsts, slots.firsts[-1:].expand(padding)))
        rows = drafter(features, batch.offsets, batch.ids, embedding,
                       Blocks(anchors, firsts, block))[:len(slots.room), 1:]
        drafts = drafter.guess(rows, target.head, batch.ids[slots.newest()])
        batch.ids[rows_after(slots.newest() + 1, block - 1)] = drafts
    figures.accepted = accepted.tolist()
    figures.other, figures.other_gap = compare_with_greedy(target, slots, dtype)
    return figures


def compare_with_greedy(target: Model, slots: Slots, dtype: torch.dtype) -> tuple[int, float]:
    """Plain greedy text is one whose every token is the likeliest after those before it."""
    hidden, _ = target.hidden(slots.batch, (), dtype)
    other, gap = 0, 0.0
    for page in range(len(slots.room)):
        row, count = slots.text_rows[page].item(), slots.known[page].item()
        logits = target.logits(hidden[row - 1:row - 1 + count]).float()
        chosen = logits.gather(1, slots.batch.ids[row:row + count, None])[:, 0]
        differs = logits.argmax(-1) != slots.batch.ids[row:row + count]
        other += differs.sum().item()
        gap = max(gap, (logits.amax(-1) - chosen).max().item())
    return other, gap


def measure(target: Model, drafter: Drafter, pages: Iterable[tuple[np.ndarray, str]], text: Text,
            sizes: Sizes, device: str) -> Figures:
    """Decodes pages (image, Markdown); the Markdown says only how much room a page gets. `sizes` of
    the batches that pages are decoded in."""
    total = Figures(accepted=[0] * (drafter.block - 1))
    group: list[tuple[np.ndarray, int]] = []
    buffer = PageBuffer(text, sizes)

    def decode_group() -> None:
        slots = Slots(group, text, drafter.block, sizes, device)
        part = decode(target, drafter, slots, text.stop)
        for name in ("pages", "cut", "tokens", "steps", "other"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.accepted = [a + b for a, b in zip(total.accepted, part.accepted)]
        total.other_gap = max(total.other_gap, part.other_gap)

    for image, markdown in pages:
        room = len(text.response(markdown)) * 9 // 8 + 32
        if len(group) == PAGES_AT_ONCE or not buffer.add(image, [0] * (room + drafter.block)):
            decode_group()
            group, buffer = [], PageBuffer(text, sizes)
            buffer.add(image, [0] * (room + drafter.block))
        group.append((image, room))
    if group:
        decode_group()
    return total
