"""Acceptance of a drafter on held-out pages, kind by kind, measured by the `quire` program itself.

    python train/acceptance.py --pages DIR --each 4      # draws the pages into DIR if it is new
    python train/acceptance.py --results FILE...         # tabulates `quire bench --spec --json FILE`

The pages are JPEG files KIND-NUMBER.jpg whose text, fonts and seeds are never trained on, the same
for the same options. The program reads each of them plainly and with drafts, greedily and at
temperature 0.7. Acceptance length is tokens a step, the target's own among them, over all steps of
the pages; in brackets stand 95 % of what as many pages give that are drawn from these (bootstrap).
On a machine without these tools: draw the pages here, run `quire bench --spec --pages DIR --json
FILE` there, and tabulate the file here.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np

from evaluate import DATA, FIRST_SEED, show_progress
from pages import ALL_KINDS, TURNED

PIXELS = 350_000, 1_048_576  # of a page
NO_TEXT = ("blank", "unreadable", TURNED)  # kinds with nothing or one line to write
DRAWS = 10_000
SEED_STEP = 100_000  # between kinds


def draw_pages(folder: Path, each: int, kinds: list[str]) -> None:
    from pages import Pages  # loads texts and fonts

    drawn = Pages(DATA, "held_out")
    folder.mkdir(parents=True)
    for k, kind in enumerate(kinds):
        first = 2 * FIRST_SEED + SEED_STEP * ALL_KINDS.index(kind)
        for i in range(each):
            page = drawn.draw(first + i, PIXELS, kind=kind)
            cv2.imwrite(str(folder / f"{kind}-{i:03}.jpg"), page.image, [cv2.IMWRITE_JPEG_QUALITY, 90])
            show_progress("drawn", k * each + i + 1, len(kinds) * each)


def measure(arguments: argparse.Namespace, temperature: float, file: Path) -> None:
    command = [arguments.quire, "bench", "--spec", "--model", arguments.model, "--draft",
               arguments.draft, "--device", arguments.device, "--pages", str(arguments.pages),
               "--temperature", str(temperature), "--json", str(file)]
    if arguments.max_tokens:
        command += ["--max-tokens", str(arguments.max_tokens)]
    code = subprocess.run(command).returncode
    if code not in (0, 1):  # 1: some text differs, which the table says
        sys.exit(f"{arguments.quire} bench --spec ended with code {code}; its message stands above")


def interval(tokens: np.ndarray, steps: np.ndarray) -> tuple[float, float, float]:
    """Ratio of the sums over pages, and the middle 95 % of its bootstrap; NaN for a single page."""
    ratio = tokens.sum() / steps.sum()
    if len(steps) < 2:
        return ratio, float("nan"), float("nan")
    drawn = np.random.default_rng(1).integers(0, len(steps), (DRAWS, len(steps)))
    low, high = np.quantile(tokens[drawn].sum(1) / steps[drawn].sum(1), (0.025, 0.975))
    return ratio, low, high


def by_kind(pages: list[dict]) -> dict[str, list[dict]]:
    """Pages that took a step with drafts: all, then those of each kind."""
    pages = [page for page in pages if page["draft_steps"] > 0]
    groups = {"all": pages}
    for page in pages:
        groups.setdefault(Path(page["page"]).name.rsplit("-", 1)[0], []).append(page)
    return groups


def acceptance_at(pages: list[dict], place: int) -> float:
    """Share of the steps with a draft at this place that accepted it."""
    drafted = sum(page["drafted"][place] for page in pages if place < len(page["drafted"]))
    accepted = sum(page["accepted"][place] for page in pages if place < len(page["drafted"]))
    return accepted / drafted if drafted else float("nan")


def print_table(result: dict) -> None:
    print(f"\n{result['draft']} for {result['model']}, temperature {result['temperature']}, windows "
          f"of {result['window']}, {result['device']}")
    print(f"{result['equal_texts']} of {result['pages_read']} texts are those without drafts")
    places = (0, 1, 3, 7, 14)
    print(f"{'kind':<14} pages  tokens  {'acceptance length':<21}"
          + "".join(f"  draft {place + 1:>2}" for place in places))
    for kind, pages in by_kind(result["pages"]).items():
        tokens, steps = (np.array([page[name] for page in pages], float)
                         for name in ("draft_tokens", "draft_steps"))
        ratio, low, high = interval(tokens, steps)
        bracket = f"({low:.2f} to {high:.2f})" if low == low else ""
        shares = "".join(f"  {acceptance_at(pages, place):>8.2f}" for place in places)
        print(f"{kind:<14} {len(pages):>5} {int(tokens.sum()):>7}  {ratio:>5.2f} {bracket:<15}{shares}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pages", type=Path, metavar="DIR", help="pages to read, drawn if DIR does not exist")
    add("--each", type=int, default=2, metavar="N", help="pages of each kind (default: %(default)s)")
    add("--kind", nargs="*", choices=ALL_KINDS, help="kinds (default: all that hold text)")
    add("--draw-only", action="store_true", help="draw the pages and stop")
    add("--results", type=Path, nargs="+", metavar="FILE", help="tabulate these and stop")
    add("--quire", default="build/cpu/quire", help="the program (default: %(default)s)")
    add("--model", default="models/quire-mini", help="(default: %(default)s)")
    add("--draft", default="models/quire-mini-dflash2", help="(default: %(default)s)")
    add("--device", default="auto", help="as of quire parse (default: %(default)s)")
    add("--temperature", type=float, nargs="+", default=[0.0, 0.7], help="(default: 0 and 0.7)")
    add("--max-tokens", type=int, help="of a page")
    add("--json", type=Path, metavar="DIR", help="keep the program's results in DIR")
    arguments = parser.parse_args()
    if not arguments.results and not arguments.pages:
        parser.error("nothing to measure: give --pages DIR or --results FILE")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if arguments.results:
        for file in arguments.results:
            print_table(json.loads(file.read_text(encoding="utf-8")))
        return
    if not arguments.pages.exists():
        kinds = arguments.kind or [kind for kind in ALL_KINDS if kind not in NO_TEXT]
        draw_pages(arguments.pages, arguments.each, kinds)
    if arguments.draw_only:
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.json or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"temperature-{t}.json" for t in arguments.temperature]
        for temperature, file in zip(arguments.temperature, files):
            measure(arguments, temperature, file)
        for file in files:
            print_table(json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
