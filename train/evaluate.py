"""Character error rate of a model on page images, read by the `quire` program itself.

    python train/evaluate.py --quire build/cpu/quire --model models/quire-mini --set held_out

Sets:
  held_out   drawn pages whose text, fonts and seeds are never trained on; body of 12 to 28 pixels
  open       the same from text that is free for anyone
  control    random letters and digits at 20 pixels: nothing on these pages can be guessed
  blank      blank and nearly blank pages: any text is invented
  real:DIR   pictures and PDFs in DIR that have NAME.gt.md or NAME.gt.txt beside them;
             --names FILE picks some, one file name a line

The same set and options give the same pages. In the table `all` is the raw error rate over all
characters, `median` that of the page in the middle, `norm` the normalised rate (see cer.py).
"""

import argparse
import csv
import difflib
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cer import Errors, count_errors, count_normalised_errors

BODY_BUCKETS = [(12, 14), (14, 16), (16, 18), (18, 21), (21, 28)]  # pixels of body text
PAGE_AREAS = [(100_000, 300_000), (300_000, 700_000), (700_000, 1_048_576)]  # pixels of a page
FIRST_SEED = 1_000_000_000  # far from the seeds of training
DATA = Path(__file__).parent / "data"


@dataclass
class Case:
    """A page or document to read, and the Markdown that stands on it."""

    path: Path
    expected: str
    kind: str
    body: float | None = None  # pixels


@dataclass
class Reading:
    """What the program made of a case."""

    case: Case
    text: str
    pages: list[dict]  # the page records of NAME.json
    raw: Errors
    normalised: Errors

    def looped(self) -> bool:
        return any(page.get("reason") in ("repetition", "length") for page in self.pages)

    def failed(self) -> bool:
        return any(page["status"] == "failed" for page in self.pages)


# ---- The sets


def draw_pages(split: str, count: int, folder: Path, kind: str | None = None) -> list[Case]:
    """Equal shares for each bucket of body sizes and each range of page areas; kind None: all."""
    from pages import Pages  # here, because real pages need neither fonts nor texts

    drawn = Pages(DATA, split)
    cases, seed = [], FIRST_SEED
    for i in range(count):
        area, body = PAGE_AREAS[i % len(PAGE_AREAS)], BODY_BUCKETS[i % len(BODY_BUCKETS)]
        page = drawn.draw(seed, area, body, kind)
        while page.kind == "turned":  # quire turns it and gives its text, which is not known here
            seed += 1
            page = drawn.draw(seed, area, body, kind)
        seed += 1
        path = folder / f"{i:05}.png"
        cases.append(save_case(path, page.image, page.markdown, page.kind, page.body))
        show_progress("drawn", i + 1, count)
    return cases


def draw_control_pages(count: int, folder: Path) -> list[Case]:
    """Clean 768x1024 pages: five left-aligned paragraphs of about 300 characters, 20 pixels."""
    width, height, size, margin, leading = 768, 1024, 20, 40, 27
    fonts = [ImageFont.truetype(file, size) for file in control_fonts()]
    cases = []
    for i in range(count):
        r = random.Random(FIRST_SEED + i)
        font = fonts[i % len(fonts)]
        image = Image.new("L", (width, height), 255)
        draw = ImageDraw.Draw(image)
        paragraphs, y = [], margin
        for _ in range(5):
            lines = wrap(random_words(r, 300), font, width - 2 * margin)
            for line in lines:
                draw.text((margin, y), line, font=font, fill=0)
                y += leading
            y += leading // 2
            paragraphs.append(" ".join(lines))
        text, path = "\n\n".join(paragraphs), folder / f"{i:05}.png"
        cases.append(save_case(path, np.asarray(image), text, font.getname()[0], size))
        show_progress("drawn", i + 1, count)
    return cases


def control_fonts() -> list[Path]:
    """Four regular faces of different families, serif and sans before mono, held-out ones first."""
    folder = DATA / "fonts"
    faces = [f for f in json.loads((folder / "index.json").read_text()) if f["style"] == "regular"]
    faces = [f for f in faces if f["class"] in ("serif", "sans", "mono")]
    faces.sort(key=lambda f: (f["split"] != "held_out", f["class"] == "mono", f["family"]))
    families = {face["family"]: folder / face["file"] for face in reversed(faces)}
    return list(reversed(families.values()))[:4]


def random_words(r: random.Random, chars: int) -> list[str]:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    words, length = [], 0
    while length < chars:
        words.append("".join(r.choices(alphabet, k=r.randint(2, 9))))
        length += len(words[-1]) + 1
    return words


def wrap(words: list[str], font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def save_case(path: Path, image: np.ndarray, expected: str, kind: str, body: float) -> Case:
    cv2.imwrite(str(path), image)
    path.with_suffix(".gt.md").write_text(expected, encoding="utf-8")
    return Case(path, expected, kind, body)


def find_real_pages(folder: Path, names: list[str] | None, count: int | None) -> list[Case]:
    kinds = {}
    if (folder / "index.tsv").exists():
        with (folder / "index.tsv").open(encoding="utf-8", newline="") as index:
            for row in csv.DictReader(index, delimiter="\t"):
                kinds[row["file"]] = row.get("kind", "real")
    cases = []
    for path in sorted(folder.iterdir()):
        if names is not None and path.name not in names:
            continue
        for truth in (path.with_suffix(".gt.md"), path.with_suffix(".gt.txt")):
            if truth.exists() and truth != path:
                expected = truth.read_text(encoding="utf-8", errors="replace")
                cases.append(Case(path.resolve(), expected, kinds.get(path.name, "real")))
                break
    missing = set(names or []) - {case.path.name for case in cases}
    if missing:
        sys.exit(f"{folder}: no file with a ground truth is named {', '.join(sorted(missing))}")
    return cases[:count]


# ---- Reading and measuring


def read_pages(quire: str, options: list[str], cases: list[Case], folder: Path) -> list[Reading]:
    """One run of the program over all cases; its records hold the text of each page."""
    command = [quire, "parse", "--format", "json", "-o", str(folder), *options]
    command += [str(case.path) for case in cases]
    code = subprocess.run(command).returncode
    if code not in (0, 1):  # 1: some page was truncated or failed, which is a result
        sys.exit(f"{quire} parse ended with code {code}; its message stands above")
    records = {}
    for file in folder.glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        records[record["input"]["path"]] = record["pages"]
    readings = []
    for case in cases:
        pages = records[str(case.path)]
        text = "\n\n".join(page["text"].strip() for page in pages if page.get("text", "").strip())
        readings.append(Reading(case, text, pages, count_errors(case.expected, text),
                                count_normalised_errors(case.expected, text)))
    return readings


def rate(errors: Iterable[Errors]) -> float:
    return sum(errors, Errors(0, 0)).rate


def summary(readings: list[Reading]) -> dict:
    return {
        "pages": len(readings),
        "cer": rate(r.raw for r in readings),
        "median": statistics.median(r.raw.rate for r in readings),
        "cer_normalised": rate(r.normalised for r in readings),
        "perfect": sum(r.raw.wrong == 0 for r in readings),
        "loops": sum(r.looped() for r in readings),
        "failed": sum(r.failed() for r in readings),
        "text_on_blank": sum(bool(r.text) for r in readings if not r.case.expected.strip()),
    }


def grouped(readings: list[Reading]) -> dict[str, list[Reading]]:
    """All pages, then those of each bucket of body sizes, then those of each kind."""
    groups = {"all": readings}
    for low, high in BODY_BUCKETS:
        members = [r for r in readings if r.case.body and low <= r.case.body < high]
        groups[f"body {low}-{high} px"] = members
    for kind in sorted({r.case.kind for r in readings}):
        groups[kind] = [r for r in readings if r.case.kind == kind]
    return {name: group for name, group in groups.items() if group}


def print_table(groups: dict[str, list[Reading]]) -> None:
    print(f"{'':<24} pages      all   median     norm  perfect  loops  failed  text on blank")
    for name, group in groups.items():
        s = summary(group)
        print(
            f"{name:<24} {s['pages']:>5} {s['cer']:>8.4f} {s['median']:>8.4f}"
            f" {s['cer_normalised']:>8.4f}  {s['perfect']:>7}  {s['loops']:>5}  {s['failed']:>6}"
            f"  {s['text_on_blank']:>13}"
        )


def print_each(readings: list[Reading]) -> None:
    print(f"\n{'file':<58} chars     raw     norm  status")
    for r in sorted(readings, key=lambda r: r.raw.rate):
        status = ", ".join(sorted({page.get("reason", page["status"]) for page in r.pages}))
        print(
            f"{r.case.path.name:<56} {r.raw.expected:>7} {r.raw.rate:>7.4f}"
            f"  {r.normalised.rate:>7.4f}  {status}"
        )


def mark_differences(expected: str, got: str) -> str:
    """The expected text word by word; where the other differs, [expected → got]."""
    old, new = (re.findall(r"\n+|[^\s]+", text) for text in (expected, got))
    parts = []
    for tag, i, j, k, m in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        before, after = " ".join(old[i:j]), " ".join(new[k:m])
        if tag != "equal":
            before = f"[{shorten(before)} → {shorten(after)}]"
        parts.append(before)
    return re.sub(r" ?(\n+) ?", r"\1", " ".join(parts))


def shorten(text: str, most: int = 400) -> str:
    """The text on one line, its middle left out where it is long."""
    text = text.replace("\n", "⏎")
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def write_worst(readings: list[Reading], count: int, file: Path) -> None:
    with file.open("w", encoding="utf-8") as out:
        for r in sorted(readings, key=lambda r: -r.raw.rate)[:count]:
            body = f", body {r.case.body:.1f} px" if r.case.body else ""
            out.write(f"==== {r.case.path}: {r.case.kind}{body}, ")
            out.write(f"{r.raw.rate:.4f} of {r.raw.expected} characters\n\n")
            out.write(mark_differences(r.case.expected.strip(), r.text) + "\n\n")


def page_result(r: Reading) -> dict:
    keys = ("status", "reason", "width", "height", "tokens", "image_tokens", "mean_logprob")
    return {
        "file": r.case.path.name,
        "kind": r.case.kind,
        "body": r.case.body,
        "wrong": r.raw.wrong,
        "expected": r.raw.expected,
        "cer": r.raw.rate,
        "cer_normalised": r.normalised.rate,
        "pages": [{key: page[key] for key in keys if key in page} for page in r.pages],
    }


def show_progress(what: str, done: int, count: int) -> None:
    if sys.stderr.isatty() or done == count:
        end = "\n" if done == count else ""
        print(f"\r{what} {done} of {count}", end=end, file=sys.stderr, flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quire", default="build/cpu/quire", help="the program (default: %(default)s)")
    add("--model", default="models/quire-mini", help="model directory (default: %(default)s)")
    add("--set", default="held_out", dest="name", help="see above (default: %(default)s)")
    add("--pages", type=int, metavar="N", help="how many pages (default: 100; real: all)")
    add("--names", type=Path, metavar="FILE", help="real: only the files named in FILE")
    add("--device", default="auto", help="as of quire parse (default: %(default)s)")
    add("--max-tokens", type=int, default=4096, help="most tokens a page (default: %(default)s)")
    add("--folder", type=Path, metavar="DIR", help="keep pages and records in this new folder")
    add("--json", type=Path, metavar="FILE", help="write the figures and every page's result")
    add("--worst", type=int, metavar="K", help="write DIR/worst.txt: the K worst pages, marked")
    arguments = parser.parse_args()
    if arguments.worst and not arguments.folder:
        parser.error("--worst: needs --folder DIR to write to")
    return arguments


def make_cases(arguments: argparse.Namespace, folder: Path) -> list[Case]:
    count = arguments.pages or 100
    if arguments.name.startswith("real:"):
        names = None
        if arguments.names:
            lines = arguments.names.read_text(encoding="utf-8").splitlines()
            names = [line for line in lines if line and not line.startswith("#")]
        return find_real_pages(Path(arguments.name.removeprefix("real:")), names, arguments.pages)
    if arguments.name in ("held_out", "open"):
        return draw_pages(arguments.name, count, folder)
    if arguments.name == "control":
        return draw_control_pages(count, folder)
    if arguments.name == "blank":
        return draw_pages("held_out", count, folder, kind="blank")
    sys.exit(f"--set {arguments.name}: expected held_out, open, control, blank or real:DIR")


def main() -> None:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        images, records = folder / "pages", folder / "records"
        try:
            images.mkdir(parents=True)
            records.mkdir()
        except FileExistsError as error:
            sys.exit(f"{error.filename}: exists already; name a new --folder")
        started = time.monotonic()
        cases = make_cases(arguments, images)
        if not cases:
            sys.exit(f"--set {arguments.name}: no page in it")
        drawn = time.monotonic()
        options = ["--model", arguments.model, "--device", arguments.device]
        options += ["--max-tokens", str(arguments.max_tokens)]
        readings = read_pages(arguments.quire, options, cases, records)
        seconds = {"draw": drawn - started, "read": time.monotonic() - drawn}

        groups = grouped(readings)
        print(f"{arguments.model} on {arguments.name}")
        print_table(groups)
        if arguments.name.startswith("real:"):
            print_each(readings)
        print(f"{seconds['draw']:.1f} s to draw the pages, {seconds['read']:.1f} s to read them")
        if arguments.json:
            result = {
                "model": arguments.model,
                "set": arguments.name,
                "seconds": seconds,
                "groups": {name: summary(group) for name, group in groups.items()},
                "pages": [page_result(r) for r in readings],
            }
            text = json.dumps(result, indent=1, ensure_ascii=False)
            arguments.json.write_text(text, encoding="utf-8")
        if arguments.worst:
            write_worst(readings, arguments.worst, folder / "worst.txt")


if __name__ == "__main__":
    main()
