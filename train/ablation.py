"""What each part of a drafter is worth: drafters that lose something and learn to do without it.

    python train/ablation.py --target models/quire-mini --drafter models/quire-mini-dflash2 --to DIR --minutes 4
    python train/ablation.py --target models/quire-mini --to DIR --quire build/cuda/quire --pages DIR

The first trains each variant of a DFlash2 drafter with drafter.py, on the same pages and for the same time,
the whole one, too; those that share a GPU share it evenly. The second lets `quire` measure those in --to on
pages (acceptance.py draws some): acceptance length with what 95 % of as many pages give, tokens a second of
the steps, how much faster than plain decoding, and the microseconds that drafting adds to a step of one
sequence. It writes results.json, table.md and ablation.png there.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DFLASH = ["--without", "conv", "--without", "selector"]
VARIANTS = {  # name: what it is in the table, arguments of drafter.py
    "dflash": ("DFlash", DFLASH),
    "conv": ("DFlash + convolution", ["--without", "selector"]),
    "selector": ("DFlash + selector", ["--without", "conv"]),
    "dflash2": ("DFlash2: both", []),
    "dflash-8": ("DFlash, blocks of 8", [*DFLASH, "--block-size", "8"]),
    "dflash2-8": ("DFlash2, blocks of 8", ["--block-size", "8"]),
    "dflash2-2": ("DFlash2, first 2 layers", ["--layers", "2"]),
    "dflash2-3": ("DFlash2, first 3 layers", ["--layers", "3"]),
}
CONTEXT = 1024  # tokens that a sequence holds when its steps are timed


def train(args: argparse.Namespace) -> None:
    """All variants at once, each in a process of its own with its log beside its folder."""
    processors = os.cpu_count() or 2
    workers = max(1, processors // len(args.variants) - 1)

    def run(number: int, name: str) -> None:
        command = [sys.executable, str(Path(__file__).parent / "drafter.py"), "--target", str(args.target),
                   "--from", str(args.drafter), "--to", str(args.to / name), "--minutes", str(args.minutes),
                   "--workers", str(workers), "--tokens", str(args.tokens), "--lr", str(args.lr),
                   *VARIANTS[name][1]]
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(number % args.gpus)}
        start = time.time()
        with open(args.to / f"{name}.log", "w") as log:
            code = subprocess.run(command, stdout=log, stderr=log, env=environment).returncode
        print(f"{name}: {'done' if code == 0 else f'ended with code {code}, see {log.name}'} after "
              f"{time.time() - start:.0f} s", flush=True)

    args.to.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(args.variants)) as pool:
        list(pool.map(run, *zip(*enumerate(args.variants))))


def bench(args: argparse.Namespace, file: Path, *options: str) -> dict:
    command = [args.quire, "bench", "--model", str(args.target), "--device", args.device, "--json", str(file),
               *options]
    code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    if code not in (0, 1):  # 1: some text differs, which the file says
        sys.exit(f"{' '.join(command)} ended with code {code}; its message stands above")
    return json.loads(file.read_text(encoding="utf-8"))


def step_us(args: argparse.Namespace, window: int, *options: str) -> float:
    result = bench(args, args.to / "step.json", "--batch", "1", "--context", str(CONTEXT), "--window",
                   str(window), *options)
    return 1000 * result["rows"][0]["ms_a_step"]


def measure(args: argparse.Namespace, name: str) -> dict:
    """What `quire` says of a variant."""
    draft = ["--draft", str(args.to / name)]
    result = bench(args, args.to / f"{name}.json", "--spec", *draft, "--pages", str(args.pages),
                   "--max-tokens", str(args.max_tokens))
    window = result["window"]
    added = step_us(args, window, *draft, "--accept", str(window // 2)) - step_us(args, window)
    print(f"{name}: {result['acceptance_length']['value']:.2f} tokens a step", flush=True)
    return {name: result[name] for name in ("acceptance_length", "acceptance", "tokens_per_second", "speedup",
                                            "device", "pages_read", "equal_texts")} | {"draft_us": added}


def table(results: dict[str, dict]) -> str:
    lines = ["| drafter | acceptance length | drafting, us a step | tokens/s | times plain decoding |",
             "| --- | --- | --- | --- | --- |"]
    for name, r in results.items():
        length = r["acceptance_length"]
        lines.append(f"| {VARIANTS[name][0]} | {length['value']:.2f} ({length['low']:.2f} to {length['high']:.2f}) "
                     f"| {r['draft_us']:.0f} | {r['tokens_per_second']['value']:.0f} "
                     f"| {r['speedup']['value']:.2f} |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, dict], to: Path) -> None:
    import matplotlib  # a machine that measures need not have it
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, (bars, curves) = plt.subplots(1, 2, figsize=(12, 4.5))
    titles = [VARIANTS[name][0] for name in results]
    lengths = [r["acceptance_length"] for r in results.values()]
    values = [length["value"] for length in lengths]
    bars.barh(titles, values, color="tab:blue",
              xerr=[[length["value"] - length["low"] for length in lengths],
                    [length["high"] - length["value"] for length in lengths]], capsize=3)
    bars.invert_yaxis()
    bars.set_title("tokens a step, bonus included; 95 % bootstrap intervals over pages", fontsize=10)
    for title, r in zip(titles, results.values()):
        shares = [place["value"] for place in r["acceptance"]]
        curves.plot(range(1, len(shares) + 1), shares, "." + ("-" if len(shares) > 7 else "--"), label=title)
    curves.set_title("steps that accept draft 1, 2, ...", fontsize=10)
    curves.set_ylim(0, 1)
    curves.grid(alpha=0.3)
    curves.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(to, dpi=80)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="the model to draft for")
    add("--drafter", type=Path, help="the DFlash2 drafter that variants are made of")
    add("--to", type=Path, required=True, help="a folder for all of it")
    add("--variants", nargs="+", choices=tuple(VARIANTS), default=list(VARIANTS), help="(default: all)")
    add("--minutes", type=float, default=0, help="train so long after the first step")
    add("--lr", type=float, default=0.3, help="times the usual learning rates (%(default)s)")
    add("--gpus", type=int, default=1, help="that the runs are dealt out to (%(default)s)")
    add("--tokens", type=int, default=32768, help="of a batch (%(default)s)")
    add("--quire", help="measure with this program")
    add("--pages", type=Path, metavar="DIR", help="pages to measure on")
    add("--device", default="auto", help="as of quire bench (%(default)s)")
    add("--max-tokens", type=int, default=4096, help="of a page (%(default)s)")
    args = parser.parse_args()
    if args.minutes == 0 and not args.quire:
        parser.error("nothing to do: give --minutes M to train, --quire PROGRAM and --pages DIR to measure")
    if args.minutes and not args.drafter:
        parser.error("--minutes: nothing to start from; give --drafter DIR")
    if args.quire and not args.pages:
        parser.error("--quire: nothing to read; give --pages DIR")
    return args


def main() -> None:
    args = arguments()
    if args.minutes:
        train(args)
    if args.quire:
        results = {name: measure(args, name) for name in args.variants}
        (args.to / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        text = table(results)
        print(text)
        (args.to / "table.md").write_text(text)
        draw(results, args.to / "ablation.png")


if __name__ == "__main__":
    main()
