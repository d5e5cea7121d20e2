"""Trains quire-mini on pages drawn as it goes, and a drafter beside it.

    python train/target.py --from DIR --to DIR --minutes 28 [--part 0:1]
    python train/target.py ... --drafter DIR --drafter-to DIR [--ahead 0.1]
    torchrun --nproc-per-node 2 train/target.py ...       # one process for each GPU

DIR are model directories as published: bf16 weights in, bf16 weights out, every few minutes and at
the end, beside `curve.jsonl`. The optimizer starts fresh with a short warm-up, so a run can be cut in
parts: --part says which part of the curriculum (small crops first, whole pages last) this run is.
`--from` may hold only config.json and tokenizer files: then the model starts new.
"""
import argparse
import multiprocessing
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from network import beside, checkpoint
from network.data import Packer, PageBuffer, Sizes, Text, enlarge, least_pixels
from network.model import Batch, Model
from network.optim import Optimizer, schedule
from network.run import LOG_STEPS, Run, join_processes
from pages import Pages

HELD_OUT_SEED = 10 ** 9
SMALL, MEDIUM, LARGE = (50_000, 350_000), (350_000, 950_000), (950_000, 2_097_152)  # pixels


def shares(progress: float) -> tuple[float, float, float]:
    """Of the pages, how many are small, medium and large at this point of the curriculum."""
    if progress < 0.12:
        return 1, 0, 0
    if progress < 0.4:
        return 0.6, 0.3, 0.1
    if progress < 0.8:
        return 0.35, 0.25, 0.4
    return 0.2, 0.25, 0.55


class Draw:
    """Page number to page; called in the loader's processes. Of the pages that have fewer than `least`
    pixels a share is enlarged, as the image processor enlarges all of them; the rest keep their size:
    small pages cost less and teach as much about small type. shares() says how many of the pages are
    to be small, medium and large."""

    def __init__(self, folder: Path, split: str, shares: Callable[[], tuple[float, float, float]],
                 least: int, enlarged: float = 0.5):
        self.pages, self.shares = Pages(folder, split), shares
        self.least, self.enlarged = least, enlarged

    def __call__(self, number: int) -> tuple[np.ndarray, str] | None:
        r = random.Random(number)
        pixels = r.choices((SMALL, MEDIUM, LARGE), self.shares())[0]
        try:
            page = self.pages.draw(number, pixels)
        except Exception as error:  # one page must not end hours of training
            print(f"page {number} of {pixels} pixels left out: {error!r}", file=sys.stderr, flush=True)
            return None
        image = page.image
        if r.random() < self.enlarged:
            image = enlarge(image, self.least)
        return image, page.markdown


def held_out_batches(folder: Path, text: Text, sizes: Sizes, least: int) -> dict[str, Batch]:
    """One batch of small and one of whole pages of texts and fonts that training never sees."""
    pages, result = Pages(folder, "held_out"), {}
    for name, pixels in (("small", SMALL), ("page", (950_000, 1_300_000))):
        buffer, seed = PageBuffer(text, sizes), HELD_OUT_SEED
        while True:
            page = pages.draw(seed, pixels)
            if not buffer.add(enlarge(page.image, least), text.response(page.markdown)):
                break
            seed += 1
        result[name] = buffer.batch()
    return result


def evaluate(model: Model, batches: dict[str, Batch], device: str) -> dict[str, float]:
    """Teacher-forced loss (nats a token) and accuracy on each batch. Gradients stay on although
    nothing uses them: without them all that is compiled would be compiled again."""
    result = {}
    for name, batch in batches.items():
        batch = batch.to(device)
        loss, choices, _ = model.loss(batch)
        count = max(1, (batch.labels >= 0).sum().item())
        result[name + "_loss"] = round(loss.item() / count, 5)
        result[name + "_accuracy"] = round((choices == batch.labels).sum().item() / count, 5)
    return result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--from", dest="source", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--minutes", type=float, required=True, help="training time after the first step")
    parser.add_argument("--steps", type=int, default=10 ** 9, help="stop after so many steps")
    parser.add_argument("--part", default="0:1", help="part of the curriculum, FROM:TO of 0:1")
    parser.add_argument("--first", type=int, default=0, help="number of the first page")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1),
                        help="processes that draw pages, for each GPU")
    parser.add_argument("--tokens", type=int, default=Sizes.tokens, help="tokens of a batch and GPU")
    parser.add_argument("--lr", type=float, default=1.0, help="times the usual learning rates")
    parser.add_argument("--decay-from", type=float, default=0.6, help="of the run: rates fall from there")
    beside.add_arguments(parser)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    device, rank, world = join_processes()
    begin, end = map(float, args.part.split(":"))
    progress = multiprocessing.Value("d", begin)
    sizes = Sizes(args.tokens, args.tokens * 9 // 16 * 4, args.tokens // 2)
    text = Text(args.source)

    # The loader's processes are forked before this one touches the GPU.
    least = least_pixels(args.source)
    draw = Draw(args.data, "train", lambda: shares(progress.value), least)
    packer = Packer(draw, text, sizes, args.first, rank, world)
    loader = iter(torch.utils.data.DataLoader(packer, batch_size=None, num_workers=args.workers,
                                              prefetch_factor=2, pin_memory=device != "cpu"))
    config = checkpoint.config_of(args.source)
    torch.manual_seed(0)
    if list(args.source.glob("*.safetensors")):
        model = checkpoint.load(args.source).to(device)
    else:
        model = Model(config)
        model.initialise()
        model.to(device)
    optimizer = Optimizer(model)
    drafter = beside.open_beside(args, model, device)

    def save() -> None:
        checkpoint.save(model, config, args.to)
        if drafter is not None:
            drafter.save(args.drafter_to)

    held_out = held_out_batches(args.data, text, sizes, least) if rank == 0 else {}
    run = Run(args.minutes, args.to, save, device, rank, world)
    if rank == 0:
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                     "generation_config.json", "preprocessor_config.json"):
            if (args.source / name).exists() and args.source.resolve() != args.to.resolve():
                shutil.copy(args.source / name, args.to)
        count = sum(p.numel() for p in model.parameters())
        print(f"{count / 1e6:.1f} M parameters, {world} process(es) with {args.workers} drawing "
              f"pages each, {sizes.tokens} tokens a batch", flush=True)

    pages = 0  # since the last log
    batch = next(loader)
    while run.done < 1 and run.step < args.steps:
        batch = batch.to(device)
        loss, choices, features = model.loss(batch, drafter.taps if drafter else ())
        count = (batch.labels >= 0).sum()
        gradients = drafter.learn(features, choices, batch, run.done) if drafter else []
        torch.autograd.backward([loss / count, *features], [None, *gradients])
        pages += batch.pages
        following = run.next(loader)  # while the GPU works
        optimizer.step(args.lr * schedule(run.step, run.done, decay_from=args.decay_from))
        time_to_log = run.end_step()
        progress.value = begin + (end - begin) * min(run.done, 1.0)
        if time_to_log:
            figures = dict(progress=round(progress.value, 4), loss=round((loss / count).item(), 4),
                           accuracy=round(((choices == batch.labels).sum() / count).item(), 4),
                           tokens_per_second=round(run.rate(sizes.tokens)),
                           pages_per_second=round(run.rate(pages / LOG_STEPS), 1),
                           fill=round((count / sizes.labels).item(), 2))
            if drafter is not None:
                figures |= {name: round(f.item(), 4) for name, f in drafter.figures().items()}
            if run.step % (10 * LOG_STEPS) == 0:
                figures |= evaluate(model, held_out, device)
            run.log(figures)
            pages = 0
        batch = following
    if rank == 0:
        run.write(evaluate(model, held_out, device))
        run.save()
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
