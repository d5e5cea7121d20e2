"""Trains a DFlash or DFlash2 drafter for a model, on pages drawn as it goes, and measures it.

    python train/drafter.py --target DIR --to DIR --minutes 10 --measure 100
    python train/drafter.py --target DIR --from DFLASH_DIR --dflash2 --to DIR --minutes 10
    torchrun --nproc-per-node 2 train/drafter.py ...       # one process for each GPU

The target is frozen. It reads the page and the text that stands on it, as if it had written that
text itself; blocks start at random tokens of the text and where right drafts ended, and each row of
a block learns the token that the target itself would write at its place, up to the first that the
text has otherwise. The
selector of DFlash2 learns to choose among the candidates of a row when it knows the token before.
With --written DIR the texts are the target's own: pages NAME.png in DIR, with records
that `quire parse --format json -o DIR DIR` writes of them.

The drafter is written as published ones are (config.json, model.safetensors in bf16), every few
minutes and at the end, beside `curve.jsonl`. --measure N decodes N held-out pages with the result,
by drafting and verifying; with --minutes 0 it measures the drafter in --to.
"""
import argparse
import json
import os
import random
import time
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.distributed as dist

from network import checkpoint, dflash, updates
from network.block_loss import features_and_choices
from network.data import Packer, Sizes, Text, enlarge, least_pixels
from network.dflash import PARTS, Drafter
from network.model import Model
from network.run import Run, join_processes
from network.speculate import measure
from network.updates import Updates
from pages import Pages
from target import HELD_OUT_SEED, Draw

SHARES = 0.1, 0.6, 0.3  # of small, medium and large pages, see target.py
MEASURED_PIXELS = (350_000, 1_048_576)


class Written:
    """Pages with the texts that the target wrote of them; those below `least` pixels are enlarged, as
    they were when it read them."""

    def __init__(self, folder: Path, least: int):
        self.pages, self.least = [], least
        for record in sorted(folder.glob("*.json")):
            page = json.loads(record.read_text(encoding="utf-8"))["pages"][0]
            if page["status"] == "ok":
                self.pages.append((record.with_suffix(".png"), page["text"]))
        if not self.pages:
            raise SystemExit(f"{folder}: no page with status ok; expected NAME.png and the "
                             "NAME.json that `quire parse --format json` writes of it")
        random.Random(0).shuffle(self.pages)

    def __call__(self, number: int) -> tuple[np.ndarray, str]:
        path, markdown = self.pages[number % len(self.pages)]
        image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        if image is None or image.shape[0] % 32 or image.shape[1] % 32:
            raise SystemExit(f"{path}: expected a picture whose sides are multiples of 32 pixels")
        return enlarge(image, self.least), markdown


class Repeated:
    """The first `count` pages again and again."""

    def __init__(self, draw: Draw, count: int):
        self.draw, self.count = draw, count

    def __call__(self, number: int) -> tuple[np.ndarray, str]:
        return self.draw(number % self.count)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="the model to draft for")
    add("--to", type=Path, required=True, help="the drafter's directory")
    add("--from", dest="source", type=Path, help="go on from this drafter")
    add("--data", type=Path, default=Path(__file__).parent / "data")
    add("--minutes", type=float, default=0, help="training time after the first step")
    add("--measure", type=int, default=0, metavar="N", help="decode N held-out pages")
    add("--written", type=Path, metavar="DIR", help="train on the target's own texts")
    add("--overfit", type=int, metavar="N", help="train on the first N pages only")
    add("--first", type=int, default=500_000_000, help="number of the first page")
    add("--dflash2", action="store_true",
        help="give a new drafter, or the DFlash drafter of --from, the parts of DFlash2")
    add("--without", choices=tuple(PARTS), action="append", default=[],
        help="let a part of DFlash2 do nothing, to see what it is worth; without both it is DFlash")
    add("--layers", type=int, help="of a new drafter (5), or the first ones of --from")
    add("--block-size", type=int, help="the anchor and its drafts (16, or that of --from)")
    add("--width", type=int, help="of a new drafter's MLP (default: that of the target)")
    add("--taps", type=int, nargs="+", help="layers whose outputs are its features")
    add("--theta", type=float, default=1e6, help="of its rotary embedding (%(default)s)")
    updates.add_arguments(parser)
    add("--decay-from", type=float, default=0.1, help="of the run: rates fall from there")
    add("--tokens", type=int, default=Sizes.tokens, help="of a batch and GPU (%(default)s)")
    add("--lr", type=float, default=1.0, help="times the usual learning rates")
    add("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1),
        help="processes that draw pages, for each GPU")
    args = parser.parse_args()
    if args.minutes == 0 and args.measure == 0:
        parser.error("nothing to do: give --minutes M, --measure N or both")
    return args


def open_drafter(args: argparse.Namespace) -> Drafter:
    if not args.minutes:
        return dflash.load(args.to)
    if args.source:
        drafter = dflash.load(args.source)
    else:
        target = checkpoint.config_of(args.target)
        mask = Text(args.target).tokenizer.token_to_id("<|mask|>")
        if mask is None:
            raise SystemExit(f"{args.target}/tokenizer.json: has no token <|mask|>; a drafter "
                             "needs a token that no text contains")
        drafter = Drafter(dflash.make_config(target, mask, args.layers or 5, args.block_size or 16,
                                            args.width, args.taps, args.theta))
        drafter.initialise()
    try:
        drafter = dflash.altered(drafter, args.layers, args.block_size, args.dflash2, args.without)
    except ValueError as error:
        raise SystemExit(f"{args.source or 'a new drafter'}: {error}") from None
    freeze(drafter, args.without)
    return drafter


def freeze(drafter: Drafter, parts: list[str]) -> None:
    for name, p in drafter.named_parameters():
        if any(PARTS[part] in name for part in parts):
            p.requires_grad_(False)


def train(args: argparse.Namespace, drafter: Drafter, target: Model, loader, device: str,
          rank: int, world: int) -> None:
    learner = Updates(drafter, target, blocks=args.blocks, batches=args.updates, lr=args.lr,
                      decay_from=args.decay_from)
    torch.manual_seed(rank)
    run = Run(args.minutes, args.to, lambda: dflash.save(drafter, args.to), device, rank, world)
    batch = next(loader)
    while run.done < 1:
        batch = batch.to(device)
        learner.learn(*features_and_choices(drafter, target, batch), batch, run.done)
        batch = run.next(loader)
        if run.end_step():
            run.log({"loss": round(learner.loss.item(), 4),
                     **{name: round(figure.item(), 4) for name, figure in learner.figures.items()},
                     "blocks_per_second": round(run.rate(args.blocks * args.updates))})
    if rank == 0:
        run.save()


def measure_held_out(args: argparse.Namespace, drafter: Drafter, target: Model, sizes: Sizes,
                     device: str) -> None:
    pages, least = Pages(args.data, "held_out"), least_pixels(args.target)
    drawn = (pages.draw(HELD_OUT_SEED + i, MEASURED_PIXELS) for i in range(args.measure))
    start = time.time()
    figures = measure(target, drafter, ((enlarge(page.image, least), page.markdown) for page in drawn),
                      Text(args.target), sizes, device)
    row = asdict(figures) | dict(acceptance_length=round(figures.acceptance_length, 3),
                                 seconds=round(time.time() - start, 1))
    print(f"{figures.pages} pages, {figures.tokens} tokens in {figures.steps} steps: acceptance "
          f"length {figures.acceptance_length:.2f} of {drafter.block}")
    print("steps that accepted draft 1, 2, ...: "
          + " ".join(f"{share:.2f}" for share in figures.by_position()))
    print(f"{figures.other} tokens differ from plain greedy decoding, by at most "
          f"{figures.other_gap:.3g} logits; {figures.cut} pages ran out of room; "
          f"{row['seconds']} s")
    (args.to / "acceptance.json").write_text(json.dumps(row, indent=1) + "\n")


def main() -> None:
    args = arguments()
    device, rank, world = join_processes()

    loader = None
    sizes = Sizes(args.tokens, args.tokens * 9 // 16 * 4, args.tokens // 2)
    if args.minutes:  # its processes are forked before this one touches the GPU
        least = least_pixels(args.target)
        draw = Written(args.written, least) if args.written else \
            Draw(args.data, "train", lambda: SHARES, least, enlarged=1.0)
        if args.overfit:
            draw = Repeated(draw, args.overfit)
        packer = Packer(draw, Text(args.target), sizes, args.first, rank, world)
        loader = iter(torch.utils.data.DataLoader(
            packer, batch_size=None, num_workers=args.workers, prefetch_factor=2,
            pin_memory=device != "cpu"))

    torch.manual_seed(0)
    target = checkpoint.load(args.target).to(device).requires_grad_(False)
    drafter = open_drafter(args).to(device)
    if loader is not None:
        if rank == 0:
            count = sum(p.numel() for p in drafter.parameters() if p.requires_grad)
            print(f"{count / 1e6:.2f} M parameters to train, features of layers {drafter.taps}, "
                  f"{world} process(es), {args.blocks} blocks a batch", flush=True)
        train(args, drafter, target, loader, device, rank, world)
    if args.measure and rank == 0:
        measure_held_out(args, drafter, target, sizes, device)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
