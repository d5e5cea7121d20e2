"""Averages the weights of two models, or two drafters, of which one was trained from the other.

    python train/average.py models/quire-mini out/mini --part 0.75 --to out/averaged

The result is the second one's directory with every weight --part of the way from the first to the
second: a run has learnt things that hold and things of its last pages, and some of the way back it
may read better than either. Whether it does, evaluate.py says; a drafter is averaged like its model.
"""
import argparse
import shutil
from pathlib import Path

from safetensors.torch import save_file

from network.checkpoint import files_of, tensors_of


def average(first: Path, second: Path, part: float, to: Path) -> None:
    """Products and sums in f64, rounded once to the type of the second."""
    before, after = tensors_of(first), files_of(second)
    shapes = {name: tensor.shape for tensors in after.values() for name, tensor in tensors.items()}
    for name in sorted(before.keys() | shapes.keys()):
        if name not in before or name not in shapes or before[name].shape != shapes[name]:
            found = [list(it[name]) if name in it else "missing"
                     for it in ({n: t.shape for n, t in before.items()}, shapes)]
            raise SystemExit(f"{name}: {found[0]} in {first}, {found[1]} in {second}; expected two "
                             "directories with tensors of the same names and shapes")
    to.mkdir(parents=True, exist_ok=True)
    for file in second.iterdir():
        if file.suffix != ".safetensors" and file.is_file():
            shutil.copy(file, to)
    for file, tensors in after.items():
        save_file({name: (before[name].double() * (1 - part) + tensor.double() * part).to(tensor.dtype)
                   for name, tensor in tensors.items()}, to / file.name, metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, help="a model or drafter")
    parser.add_argument("second", type=Path, help="what was trained from it")
    parser.add_argument("--part", type=float, default=0.75, help="of the second in the average (%(default)s)")
    parser.add_argument("--to", type=Path, required=True, help="a new directory")
    args = parser.parse_args()
    if not 0 <= args.part <= 1:
        raise SystemExit(f"--part {args.part}: expected a number from 0, the first, to 1, the second")
    if args.to.exists():
        raise SystemExit(f"--to {args.to}: exists already; name a new directory")
    try:
        average(args.first, args.second, args.part, args.to)
    except OSError as error:
        raise SystemExit(f"{error.filename}: {error.strerror}") from None


if __name__ == "__main__":
    main()
