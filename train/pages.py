"""The page generator: pages as people have them, with the Markdown that a reader should give.

    pages = Pages(folder)                        # folder: data/, as the fetch script makes it
    page = pages.draw(seed, (900_000, 1_050_000))

The Markdown says what cannot be read: a run of other scripts, of handwriting or of spoilt text is a
block "<!-- unreadable -->" at its place; a page that lies on a side or upside down is
"<!-- turned 90 -->" (180, 270) and nothing else, the angle by which it must be turned clockwise to
stand upright. A page of which nothing can be read stays upright: of noise nobody can tell. A row of
six or more of the same sign ("======", "- - - - - -") is three of it: nobody counts them.

As a program it draws pages to look at:

    python train/pages.py --sheet out.png --count 12 --kind invoice
    python train/pages.py --write DIR --count 100      # DIR/000000.png and DIR/000000.md, ...
"""

from __future__ import annotations

import argparse
import random
import re
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from drawing import design, furniture
from drawing.glyphs import Store, load_families, rounded_size
from drawing.scan import scan
from drawing.sheet import Sheet
from drawing.writer import Writer
from foreign import unreadable
from foreign.scripts import load_scripts
from kinds import table as kinds
from text.texts import Texts

TURNED = "turned"  # pages that lie on a side or upside down
TURNED_SHARE = 0.04
# Share of whole pages and of pieces that may have unreadable blocks, and of blocks on these. Not
# all kinds have blocks to choose from: 3 % of all pages get one.
PARTLY_UNREADABLE = 0.075, 0.12
UNREADABLE_BLOCKS = 0.25, 0.5
FRAGILE = 12.0  # a scan of text of this size wipes nothing out
SMALL = 300_000  # pixels below which a page is a piece of a page rather than a whole one
ATTEMPTS = 8
ALL_KINDS = [*kinds.KINDS, TURNED]
ROW_OF_SIGNS = re.compile(r"(((?:[^\w\s|`<>]|_){1,2}?) ?)\1{4,}\2")


@dataclass
class Page:
    image: np.ndarray  # uint8 [H, W], 255 white; H and W multiples of 32
    markdown: str
    kind: str
    body: float  # body text size, pixels of the image


class Pages:
    """Draws pages.

    split: "train", "held_out" (other text and other faces) or "open" (text that may be published).
    """

    def __init__(self, folder: str | Path, split: str = "train"):
        cv2.setNumThreads(1)  # a page is one core's work; many processes draw
        fonts = Path(folder) / "fonts"
        faces = "held_out" if split == "held_out" else "train"
        families = [family for family in load_families(fonts) if family.split == faces]
        if not families:
            raise ValueError(
                f"{fonts}/index.json: no faces of split {faces!r}; run the fetch script"
            )
        self.type = design.Type(families)
        self.scripts = load_scripts(fonts / "scripts", faces)
        self.texts = Texts(folder, split)
        self.store = Store()

    def draw(
        self,
        seed: int,
        pixels: tuple[int, int],
        body: tuple[float, float] | None = None,
        kind: str | None = None,
    ) -> Page:
        """The page of a seed: the same arguments give the same page.

        pixels: least and most H * W; body: least and most text size, None: as in training; kind:
        None: any, and only then may a page be turned or have a part that cannot be read.
        """
        if kind is not None and kind not in ALL_KINDS:
            raise ValueError(f"kind {kind!r}: expected one of {', '.join(ALL_KINDS)}")
        if self.store.full:
            self.store.clear()
        r = random.Random(seed)
        turned = kind == TURNED or kind is None and r.random() < TURNED_SHARE
        for _ in range(ATTEMPTS):
            page = self._attempt(r, pixels, body, None if turned else kind)
            if page is None:
                continue
            if turned and page.markdown not in ("", unreadable.MARKER):
                return _turn(page, r.randint(1, 3))
            if kind != TURNED:
                return page
        raise RuntimeError(
            f"seed {seed}, pixels {pixels}, body {body}, kind {kind}: no text fitted in {ATTEMPTS} "
            "attempts; ask for a larger page or smaller text"
        )

    def _attempt(
        self,
        r: random.Random,
        pixels: tuple[int, int],
        body: tuple[float, float] | None,
        kind: str | None,
    ) -> Page | None:
        """One try. None if a glyph met an edge, or if a page that should have text got none."""
        partly = r.random() if kind is None else 1.0
        area = r.uniform(*pixels)
        piece = area < SMALL
        kind = kind or kinds.choose(r, piece)
        recipe = kinds.KINDS[kind]
        shape = r.choice(recipe.shapes)
        plain = r.random() < 0.45  # as a PDF file of a common kind is rendered
        height, width = design.page_size(r, pixels, area, shape, plain)
        if body:
            size = r.uniform(*body)
        else:
            size = min(design.body_size(r), max(12.0, width / recipe.ems))
        scale = design.drawing_scale(r, size)
        stretch = r.uniform(-0.015, 0.015) if scale != 1 else 0.0
        canvas = round(height * scale * (1 + stretch)), round(width * scale * (1 - stretch))

        look = self.type.look(r, rounded_size(size * scale), kind, plain)
        size = look.size / scale
        sheet = Sheet(self.store, look, *canvas)
        left, right, top, bottom = design.margins(r, look.size, *canvas, shape, plain)
        writer = Writer(
            r,
            self.texts,
            self.texts.style(r),
            sheet,
            [(left, sheet.width - right)],
            top,
            sheet.height - bottom,
            design.headings(r),
            design.bullets(r, sheet),
            emphasis=r.choice([0, 0, 0.15, 0.4]),
            repeats=r.random() < 0.05,
            scripts=self.scripts,
            unreadable=UNREADABLE_BLOCKS[piece] if partly < PARTLY_UNREADABLE[piece] else 0.0,
            scale=scale,
        )
        if kind not in ("blank", "screen") and shape in ("portrait", "landscape", "wide"):
            furniture.around(writer)
        if r.random() < 0.65:
            writer.stop = writer.top + r.uniform(0.2, 1.0) * (writer.bottom - writer.top)
        notes = _room_for_notes(writer) if recipe.notes and r.random() < 0.3 else 0.0
        recipe.fill(writer)
        writer.footnotes(writer.bottom + 0.5 * writer.leading, writer.bottom + notes)

        ink, outside = sheet.finish()
        blocks = [] if kind == "blank" else unreadable.merged(writer.out + writer.foot)
        markdown = shorten_rows_of_signs("\n\n".join(blocks))
        if outside or (markdown == "") != (kind == "blank"):
            return None
        image = sheet.canvas
        if canvas != (height, width):
            method = cv2.INTER_AREA if scale > 1.4 else cv2.INTER_CUBIC
            image = cv2.resize(image, (width, height), interpolation=method)
        left, top, right, bottom = ink / scale
        margin = max(0.0, min(left, top, width - right, height - bottom))
        image = scan(image, r, min(size, FRAGILE) if sheet.fragile else size, margin, plain)
        if r.random() < 0.01:
            image = 255 - image
        return Page(image, markdown, kind, size)


def shorten_rows_of_signs(markdown: str) -> str:
    return ROW_OF_SIGNS.sub(lambda row: (3 * row[1]).rstrip(), markdown)


def _turn(page: Page, quarters: int) -> Page:
    """The page as it lies when it must be turned clockwise by so many quarters to stand upright;
    the Markdown says the angle and nothing else."""
    image = np.ascontiguousarray(np.rot90(page.image, quarters))
    return Page(image, f"<!-- turned {90 * quarters} -->", TURNED, page.body)


def _room_for_notes(w: Writer) -> float:
    """Gives the page footnotes, takes the room for them from its foot, and returns its height."""
    if w.bottom - w.top < 15 * w.leading or w.width < 12 * w.look.size:
        return 0.0
    w.notes = [w.prose(w.r.randint(40, 250)) for _ in range(w.r.randint(1, 3))]
    height = w.notes_height(w.notes) + 0.5 * w.leading
    w.bottom -= height
    return height


def contact_sheet(pages: list[Page], width: int = 1800) -> np.ndarray:
    """The pages side by side in rows, each at its own size, on grey."""
    gap, grey = 12, 128
    rows: list[list[np.ndarray]] = [[]]
    for page in pages:
        used = sum(image.shape[1] + gap for image in rows[-1])
        if used and used + page.image.shape[1] + gap > width:
            rows.append([])
        rows[-1].append(page.image)
    width = max(sum(image.shape[1] + gap for image in row) for row in rows) + gap
    strips = []
    for row in rows:
        strip = np.full((max(image.shape[0] for image in row) + gap, width), grey, np.uint8)
        x = gap
        for image in row:
            strip[gap : gap + image.shape[0], x : x + image.shape[1]] = image
            x += image.shape[1] + gap
        strips.append(strip)
    return np.concatenate(strips)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws pages to look at.")
    add = parser.add_argument
    add("--data", type=Path, default=Path(__file__).parent / "data")
    add("--split", default="open", choices=["train", "held_out", "open"])
    add("--sheet", type=Path, help="write one PNG or JPEG with all pages")
    add("--write", type=Path, help="write NUMBER.png and NUMBER.md of each page into this folder")
    add("--count", type=int, default=8)
    add("--seed", type=int, default=0, help="of the first page")
    add("--pixels", type=int, nargs=2, default=(900_000, 1_050_000), metavar=("LEAST", "MOST"))
    add("--body", type=float, nargs=2, metavar=("LEAST", "MOST"), help="text size in pixels")
    add("--kind", nargs="*", choices=ALL_KINDS, help="in turn; default: as in training")
    args = parser.parse_args()

    pages = Pages(args.data, args.split)
    body = tuple(args.body) if args.body else None
    drawn = []
    for i in range(args.count):
        kind = args.kind[i % len(args.kind)] if args.kind else None
        drawn.append(pages.draw(args.seed + i, tuple(args.pixels), body, kind))
    if args.write:
        args.write.mkdir(parents=True, exist_ok=True)
        for number, page in enumerate(drawn, args.seed):
            cv2.imwrite(str(args.write / f"{number:06}.png"), page.image)
            text = page.markdown + "\n" if page.markdown else ""
            (args.write / f"{number:06}.md").write_text(text, encoding="utf-8")
    if args.sheet:
        options = [] if args.sheet.suffix == ".png" else [cv2.IMWRITE_WEBP_QUALITY, 50]
        cv2.imwrite(str(args.sheet), contact_sheet(drawn), options)


if __name__ == "__main__":
    main()
