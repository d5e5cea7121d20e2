"""Pages to packed batches: prompt, tokens, patches, positions.

`Packer` is a stream of `Batch`es for torch's DataLoader: each of its processes draws pages and packs
them until one does not fit. All batches have the same shapes.
"""
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from network.model import PATCH, Batch

INSTRUCTION = "Convert this page to Markdown."
MULTIPLE = 2 * PATCH  # sides of a page are multiples of this
PADDING_PATCHES, PADDING_TOKENS = 1024, 2048  # longest pieces of padding: attention over it is quadratic


@dataclass(frozen=True)
class Sizes:
    """Shapes of a batch."""
    tokens: int = 65536
    patches: int = 147456
    labels: int = 32768

    def __post_init__(self):
        if self.patches % 4:
            raise ValueError(f"patches {self.patches}: expected a multiple of 4")


class Text:
    """Tokenizer, chat template and the fixed instruction of a model directory."""

    def __init__(self, folder: Path, instruction: str = INSTRUCTION):
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        template = AutoTokenizer.from_pretrained(folder)
        prompt = template.apply_chat_template(
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": instruction}]}],
            tokenize=False, add_generation_prompt=True)
        before, after = prompt.split("<|image_pad|>")
        self.before, self.after = self._encode(before), self._encode(after)
        self.stop = self.tokenizer.token_to_id("<|im_end|>")
        self.image = self.tokenizer.token_to_id("<|image_pad|>")

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def response(self, markdown: str) -> list[int]:
        return self._encode(markdown) + [self.stop]


def least_pixels(folder: Path) -> int:
    """Of a page as the image processor of a model directory hands it on."""
    config = json.loads((Path(folder) / "preprocessor_config.json").read_text(encoding="utf-8"))
    return config["size"]["shortest_edge"]


def enlarge(image: np.ndarray, least: int) -> np.ndarray:
    """As the image processor enlarges a page that has fewer than `least` pixels."""
    if image.size >= least:
        return image
    factor = math.sqrt(least / image.size)
    height, width = (math.ceil(side * factor / MULTIPLE) * MULTIPLE for side in image.shape)
    return cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC)


def patches_of(image: np.ndarray) -> np.ndarray:
    """[H, W] -> [H/16 * W/16, 256], the 2 x 2 patches of an image token one after the other."""
    rows, columns = image.shape[0] // PATCH, image.shape[1] // PATCH
    blocks = image.reshape(rows // 2, 2, PATCH, columns // 2, 2, PATCH)
    return blocks.transpose(0, 3, 1, 4, 2, 5).reshape(rows * columns, PATCH * PATCH)


def places_of(rows: int, columns: int) -> np.ndarray:
    """Row and column of each patch in the order of `patches_of`. -> [rows * columns, 2]"""
    grid = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), -1)
    grid = grid.reshape(rows // 2, 2, columns // 2, 2, 2)
    return grid.transpose(0, 2, 1, 3, 4).reshape(-1, 2)


def pieces(start: int, end: int, longest: int) -> list[int]:
    """Ends of pieces of at most `longest` that make up start..end."""
    return [min(i + longest, end) for i in range(start, end, longest)]


class PageBuffer:
    """Pages of one batch in the making."""

    def __init__(self, text: Text, sizes: Sizes):
        self.text, self.sizes = text, sizes
        self.pages: list[tuple[np.ndarray, list[int]]] = []
        self.tokens = self.patches = self.labels = 0

    def add(self, image: np.ndarray, response: list[int]) -> bool:
        """False: does not fit."""
        patches = image.size // PATCH ** 2
        tokens = self.length(patches, response)
        if (self.tokens + tokens >= self.sizes.tokens or self.patches + patches > self.sizes.patches
                or self.labels + len(response) > self.sizes.labels):
            return False
        self.pages.append((image, response))
        self.tokens, self.patches = self.tokens + tokens, self.patches + patches
        self.labels += len(response)
        return True

    def length(self, patches: int, response: list[int]) -> int:
        # the last token of a response predicts nothing
        return len(self.text.before) + patches // 4 + len(self.text.after) + len(response) - 1

    def batch(self) -> Batch:
        n, m, r = self.sizes.tokens, self.sizes.patches, self.sizes.labels
        patches = np.full((m, PATCH * PATCH), 255, np.uint8)
        place, grid = np.zeros((m, 2), np.int64), np.full((m, 2), 2, np.int64)
        image_rows = np.full(m // 4, n - 1, np.int64)
        ids, positions = np.zeros(n, np.int64), np.zeros((3, n), np.int64)
        offsets = np.zeros(n, np.int64)
        label_rows, labels = np.arange(r), np.full(r, -1, np.int64)
        starts, patch_starts = [0], [0]
        token, label = 0, 0
        before, after = self.text.before, self.text.after
        for image, response in self.pages:
            rows, columns = (side // PATCH for side in image.shape)
            first = patch_starts[-1]
            count = rows * columns
            patches[first:first + count] = patches_of(image)
            place[first:first + count] = places_of(rows, columns)
            grid[first:first + count] = rows, columns
            patch_starts.append(first + count)

            sequence = before + [self.text.image] * (count // 4) + after + response[:-1]
            end = token + len(sequence)
            ids[token:end] = sequence
            offsets[token:end] = np.arange(len(sequence))
            picture = token + len(before)
            image_rows[first // 4:(first + count) // 4] = np.arange(picture, picture + count // 4)
            positions[:, token:picture] = np.arange(len(before))
            merged = np.arange(count // 4)
            positions[0, picture:picture + count // 4] = len(before)
            positions[1, picture:picture + count // 4] = len(before) + merged // (columns // 2)
            positions[2, picture:picture + count // 4] = len(before) + merged % (columns // 2)
            rest = picture + count // 4
            positions[:, rest:end] = len(before) + max(rows, columns) // 2 + np.arange(end - rest)
            label_rows[label:label + len(response)] = np.arange(end - len(response), end)
            labels[label:label + len(response)] = response
            label += len(response)
            starts.append(end)
            token = end
        starts += pieces(token, n, PADDING_TOKENS)
        patch_starts += pieces(patch_starts[-1], m, PADDING_PATCHES)
        return Batch(
            patches=torch.from_numpy(patches), patch_place=torch.from_numpy(place),
            patch_grid=torch.from_numpy(grid), image_rows=torch.from_numpy(image_rows),
            patch_starts=torch.tensor(patch_starts, dtype=torch.int32), ids=torch.from_numpy(ids),
            positions=torch.from_numpy(positions), offsets=torch.from_numpy(offsets),
            starts=torch.tensor(starts, dtype=torch.int32), label_rows=torch.from_numpy(label_rows),
            labels=torch.from_numpy(labels), longest_image=max(np.diff(patch_starts)).item(),
            longest=max(np.diff(starts)).item(), pages=len(self.pages))


class Packer(torch.utils.data.IterableDataset):
    """draw(number) -> image, Markdown of page `number`, or None to leave it out. The loader's processes
    of all ranks deal the numbers from `first` on out among themselves: no page is drawn twice."""

    def __init__(self, draw: Callable[[int], tuple[np.ndarray, str] | None], text: Text, sizes: Sizes,
                 first: int = 0, rank: int = 0, world: int = 1):
        self.draw, self.text, self.sizes = draw, text, sizes
        self.first, self.rank, self.world = first, rank, world

    def __iter__(self) -> Iterator[Batch]:
        torch.set_num_threads(1)
        worker = torch.utils.data.get_worker_info()
        processes = worker.num_workers if worker else 1
        number = self.first + self.rank * processes + (worker.id if worker else 0)
        buffer = PageBuffer(self.text, self.sizes)
        while True:
            page = self.draw(number)
            number += self.world * processes
            if page is None:
                continue
            image, markdown = page
            response = self.text.response(markdown)
            if not buffer.add(image, response):
                if buffer.pages:
                    yield buffer.batch()
                    buffer = PageBuffer(self.text, self.sizes)
                buffer.add(image, response)  # a page that fits no batch is left out
