"""Draws what `curve.jsonl` files of training runs hold, one after the other on one time axis.

    python train/curve.py RUN/curve.jsonl [RUN2/curve.jsonl ...] [--figures loss tokens_a_step] --to curve.png
"""
import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

TITLES = {"loss": "loss, nats a token", "accuracy": "tokens right, the text before them given",
          "tokens_a_step": "tokens a step, bonus included",
          "selector_loss": "loss of the selector, nats a token",
          "recall": "tokens that are candidates of the selector"}


def joined(files: list[Path]) -> list[dict]:
    """The rows of all runs, minutes counted on from run to run."""
    rows, before = [], 0.0
    for file in files:
        run = [json.loads(line) for line in file.read_text().splitlines()]
        rows += [row | {"minutes": row["minutes"] + before} for row in run]
        before = rows[-1]["minutes"]
    return rows


def draw(rows: list[dict], names: list[str], to: Path) -> None:
    shown = [name for name in names if any(name in row for row in rows)]
    figure, axes = plt.subplots(1, len(shown), figsize=(6 * len(shown), 4), squeeze=False)
    for axis, name in zip(axes[0], shown):
        series = {"training": name} | {kind: f"{kind}_{name}" for kind in ("small", "page")}
        for label, key in series.items():
            points = [(row["minutes"], row[key]) for row in rows if key in row]
            if points:
                label = label if label == "training" else f"held out, {label}"
                axis.plot(*zip(*points), label=label, linewidth=0.6 if label == "training" else 1.5)
        axis.set_xlabel("minutes")
        axis.set_title(TITLES[name], fontsize=10)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(to, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("curves", type=Path, nargs="+")
    parser.add_argument("--figures", nargs="+", choices=tuple(TITLES), default=list(TITLES),
                        help="(default: all)")
    parser.add_argument("--to", type=Path, required=True)
    args = parser.parse_args()
    draw(joined(args.curves), args.figures, args.to)


if __name__ == "__main__":
    main()
