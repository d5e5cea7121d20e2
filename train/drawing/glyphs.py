"""Glyphs: faces, a per-process store of glyph bitmaps, line breaking, and drawing onto a grey page.

Text is set with NumPy and numba instead of a drawing library: a page is one call that blends all
its glyphs. All lengths are pixels of the canvas; y grows downwards. Glyphs come in two ways:

- as PDF renderers draw them (hinted=False): fractional advances, four horizontal subpixel phases.
  FreeType draws each glyph of a face once, at 96 pixels per em; every size is an exact area average
  of that drawing.
- as screens draw them (hinted=True, and all from 64 pixels): FreeType's hinting at the size itself,
  at whole pixels.
"""

from __future__ import annotations

import io
import json
import string
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numba import njit
from PIL import Image, ImageDraw, ImageFont

from text.texts import CHARS

BREAK = 1  # the number of a glyph of no width, where a line may end
PHASES = 4  # horizontal subpixel positions
STORE_LIMIT = 256 << 20  # bytes of glyph bitmaps; near it the store is emptied between pages
MASTER = 96  # pixels per em of the drawing from which smaller sizes are averaged
LARGE = 64  # pixels from which glyphs stand at whole pixels and are drawn at their own size

LIGATURES = {"\ufb03": "ffi", "\ufb04": "ffl", "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl"}
ALPHABET = CHARS + "".join(LIGATURES)
UNKNOWN = len(ALPHABET)
INDEX = np.full(0x10000, UNKNOWN, np.int32)  # code point -> position in ALPHABET
INDEX[[ord(c) for c in ALPHABET]] = np.arange(len(ALPHABET))
OTHER = int(INDEX[ord("x")])  # stands for a character of another alphabet

COMMON = INDEX[
    [ord(c) for c in string.ascii_letters + string.digits + string.punctuation]
]  # drawn when a face is first used


class Bitmaps:
    """Glyph bitmaps, one after another in a pool. Number 0 stands for "not drawn yet", number 1
    (BREAK) for a space of no width.

    The arrays are large from the start: memory that is not written to is not taken.
    """

    def __init__(self, phases: int):
        self.phases = phases
        self.pool = np.zeros(STORE_LIMIT, np.uint8)  # each bitmap row-major
        self._allocate(1 << 18)
        self.clear()

    def clear(self) -> None:
        self.used = 0
        self.count = BREAK + 1

    def _allocate(self, glyphs: int) -> None:
        self.advance = np.zeros(glyphs, np.float32)
        self.index = np.zeros(glyphs, np.int32)  # in ALPHABET
        self.top, self.height = np.zeros((2, glyphs), np.int32)
        self.left, self.width = np.zeros((2, glyphs, self.phases), np.int32)
        self.offset = np.zeros((glyphs, self.phases), np.int64)  # in the pool
        self.index[BREAK] = INDEX[ord(" ")]

    def reserve(self, glyphs: int, size: int) -> None:
        """Makes room for so many more glyphs and bytes."""
        if self.count + glyphs > len(self.advance):
            names = ("advance", "index", "top", "height", "left", "width", "offset")
            old = [getattr(self, name) for name in names]
            self._allocate(2 * (self.count + glyphs))
            for name, array in zip(names, old):
                getattr(self, name)[: len(array)] = array
        if self.used + size > len(self.pool):
            self.pool = np.concatenate([self.pool, np.zeros(len(self.pool) + size, np.uint8)])

    def draw(
        self, font: ImageFont.FreeTypeFont, alphabet: str, chars: np.ndarray, rise: int = 0
    ) -> np.ndarray:
        """Draws characters (positions in the alphabet) with FreeType, the same bitmap for all
        phases; returns their numbers."""
        numbers = np.arange(self.count, self.count + len(chars))
        boxes = [
            font.getbbox(alphabet[i], anchor="ls") for i in chars
        ]  # left, top, right, bottom about the baseline
        widths = [max(0, box[2] - box[0]) + 2 for box in boxes]
        above, below = max(-box[1] for box in boxes), max(box[3] for box in boxes)
        strip = Image.new("L", (sum(widths), max(1, above + below)))
        draw = ImageDraw.Draw(strip)
        self.reserve(len(chars), strip.width * strip.height)
        x = 0
        for i, box, width in zip(chars, boxes, widths):
            draw.text((x - box[0], above), alphabet[i], fill=255, font=font, anchor="ls")
            x += width
        pixels = np.asarray(strip)
        x = 0
        for number, i, box, width in zip(numbers, chars, boxes, widths):
            bitmap = pixels[above + box[1] : above + box[3], x : x + width - 2]
            x += width
            self.pool[self.used : self.used + bitmap.size] = bitmap.ravel()
            self.offset[number], self.left[number], self.width[number] = (
                self.used,
                box[0],
                bitmap.shape[1],
            )
            self.top[number], self.height[number] = box[1] - rise, bitmap.shape[0]
            self.advance[number] = font.getlength(alphabet[i])
            self.index[number] = i if alphabet is ALPHABET else OTHER
            self.used += bitmap.size
        self.count += len(chars)
        return numbers

    def average(
        self, masters: Bitmaps, numbers: np.ndarray, master_size: float, size: float, rise: int = 0
    ) -> np.ndarray:
        """Glyphs at a size as area averages of larger ones; returns their numbers."""
        scale = master_size / size
        self.reserve(len(numbers), len(numbers) * self.phases * int(2 * size + 4) ** 2)
        slots = np.arange(self.count, self.count + len(numbers))
        self.advance[slots] = masters.advance[numbers] / scale
        self.index[slots] = masters.index[numbers]
        self.used = _average(
            masters.pool,
            masters.offset,
            masters.left,
            masters.width,
            masters.top,
            masters.height,
            numbers,
            scale,
            rise,
            slots,
            self.pool,
            self.used,
            self.offset,
            self.left,
            self.width,
            self.top,
            self.height,
        )
        self.count += len(numbers)
        return slots


MASTERS = Bitmaps(1)  # at MASTER pixels per em
HALVES = Bitmaps(1)  # at half of that


class Face:
    """One font file. `lacks`: the characters of CHARS that it cannot draw; alphabet: what it draws,
    if that is another script."""

    def __init__(self, path: Path, lacks: str = "", alphabet: str = ALPHABET):
        self.path = path
        self.lacks = frozenset(lacks)
        self.alphabet = alphabet
        self._masters = np.zeros(len(alphabet), np.int32)
        self._halves = np.zeros(len(alphabet), np.int32)

    @cached_property
    def _data(self) -> bytes:
        return self.path.read_bytes()

    def open(self, size: float) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(
            io.BytesIO(self._data), size, layout_engine=ImageFont.Layout.BASIC
        )

    @cached_property
    def _master_font(self) -> ImageFont.FreeTypeFont:
        return self.open(MASTER)

    def masters(self, chars: np.ndarray) -> np.ndarray:
        """The numbers in MASTERS of characters, drawing those that are new."""
        new = chars[self._masters[chars] == 0]
        if len(new):
            if self.alphabet is ALPHABET and not self._masters.any():
                new = np.union1d(new, COMMON)
            self._masters[new] = MASTERS.draw(self._master_font, self.alphabet, new)
        return self._masters[chars]

    def halves(self, chars: np.ndarray) -> np.ndarray:
        """The same in HALVES."""
        new = chars[self._halves[chars] == 0]
        if len(new):
            self._halves[new] = HALVES.average(MASTERS, self.masters(new), MASTER, MASTER / 2)
        return self._halves[chars]

    @cached_property
    def ligatures(self) -> dict[str, str]:
        """The ligatures that the face has, and their letters. It has one if the glyph differs from
        that of a character which no face has, and is not squeezed into the width of one letter."""
        font = self.open(64)
        missing = bytes(font.getmask("\uffff"))
        return {
            ligature: letters
            for ligature, letters in LIGATURES.items()
            if bytes(font.getmask(ligature)) not in (missing, b"")
            and font.getlength(ligature) > 0.6 * font.getlength(letters)
        }


@dataclass
class Family:
    """The faces of one type family by style: regular, and where they exist bold, italic,
    bolditalic."""

    name: str
    kind: str  # serif | sans | mono | typewriter | display
    split: str  # train | held_out
    faces: dict[str, Face] = field(default_factory=dict)

    def face(self, style: str) -> Face:
        """The face of a style, or the nearest one that the family has."""
        for name in (style, style.replace("bolditalic", "bold"), "regular"):
            if name in self.faces:
                return self.faces[name]
        return next(iter(self.faces.values()))


def load_families(folder: Path) -> list[Family]:
    """Families described by FOLDER/index.json (written by the fetch script)."""
    index = folder / "index.json"
    if not index.exists():
        raise FileNotFoundError(
            f"{index}: missing; expected the list of faces that the fetch script makes"
        )
    families: dict[str, Family] = {}
    for entry in json.loads(index.read_text(encoding="utf-8")):
        family = families.setdefault(
            entry["family"], Family(entry["family"], entry["class"], entry["split"])
        )
        family.faces[entry["style"]] = Face(folder / entry["file"], entry["chars"])
    return [families[name] for name in sorted(families)]


class Store(Bitmaps):
    """The glyphs of this process by font. A glyph is known by its number, its slot."""

    def __init__(self) -> None:
        super().__init__(PHASES)

    def clear(self) -> None:
        super().clear()
        self.fonts: dict[tuple, Font] = {}

    @property
    def full(self) -> bool:
        return self.used > STORE_LIMIT - (32 << 20)

    def font(self, face: Face, size: float, hinted: bool, rise: float = 0.0) -> Font:
        """A face at about a size (Font.size says which); `rise` lifts it above the baseline, for
        superscripts."""
        size = rounded_size(size)
        key = (face.path, size, hinted, round(rise))
        if key not in self.fonts:
            self.fonts[key] = Font(self, face, size, hinted, round(rise))
        return self.fonts[key]


def rounded_size(size: float) -> float:
    """The sizes that are rasterised: steps of 4 to 8 %, so that glyphs are used again."""
    step = 0.5 if size < 12 else 1 if size < 24 else 2 if size < 48 else 4
    return round(size / step) * step


class Font:
    """A face at one size: the slots of its characters in the store."""

    def __init__(self, store: Store, face: Face, size: float, hinted: bool, rise: int):
        self.store, self.face, self.size, self.hinted, self.rise = store, face, size, hinted, rise
        self.table = np.zeros(len(face.alphabet) + 1, np.int32)  # the last one: what is unknown

    @cached_property
    def _freetype(self) -> ImageFont.FreeTypeFont:
        return self.face.open(self.size)

    def slots(self, text: str) -> np.ndarray:
        """The slot of each character of CHARS, rasterising those that are new."""
        index = INDEX[np.frombuffer(text.encode("utf-16-le"), np.uint16)]
        slots = self.table[index]
        if not slots.all():
            if UNKNOWN in index:
                raise ValueError(
                    f"{text!r}: a character is not in texts.CHARS; clean the text first "
                    "(Sheet.clean)"
                )
            slots = self.numbered(index)
        return slots

    def numbered(self, index: np.ndarray) -> np.ndarray:
        """The slots of characters by their positions in the face's alphabet."""
        slots = self.table[index]
        if not slots.all():
            self._rasterise(index[slots == 0])
            slots = self.table[index]
        return slots

    def width(self, text: str) -> float:
        slots = self.slots(text)  # first: this may replace the store's arrays
        return float(self.store.advance[slots].sum())

    def _rasterise(self, index: np.ndarray) -> None:
        chars = np.unique(index)
        if self.hinted or self.size >= LARGE:
            self.table[chars] = self.store.draw(
                self._freetype, self.face.alphabet, chars, self.rise
            )
        elif self.size <= MASTER / 4:
            self.table[chars] = self.store.average(
                HALVES, self.face.halves(chars), MASTER / 2, self.size, self.rise
            )
        else:
            self.table[chars] = self.store.average(
                MASTERS, self.face.masters(chars), MASTER, self.size, self.rise
            )


@njit(cache=True)
def _average(
    pool,
    offsets,
    lefts,
    widths,
    tops,
    heights,
    numbers,
    scale,
    rise,
    slots,
    to_pool,
    used,
    to_offsets,
    to_lefts,
    to_widths,
    to_tops,
    to_heights,
):
    """Area averages of glyphs, `scale` (> 1) times smaller, at each subpixel phase. Returns the new
    end of the pool."""
    for number, slot in zip(numbers, slots):
        rows, columns, top, left = (
            heights[number],
            widths[number, 0],
            tops[number],
            lefts[number, 0],
        )
        first_row = int(np.floor(top / scale))
        height = int(np.ceil((top + rows) / scale)) - first_row if columns else 0
        to_tops[slot], to_heights[slot] = first_row - rise, height
        sums = np.zeros(
            (height, columns + 1), np.float32
        )  # over the source rows of each row; then summed along it
        at = offsets[number, 0]
        for y in range(top, top + rows):
            row = int(np.floor(y / scale))
            share = min(
                1.0, (row + 1) * scale - y
            )  # of the source row that lies in this row; the rest in the next
            for x in range(columns):
                value = float(pool[at])
                at += 1
                if value:
                    sums[row - first_row, x + 1] += share * value
                    if share < 1:
                        sums[row - first_row + 1, x + 1] += (1 - share) * value
        for row in range(height):
            for x in range(columns):
                sums[row, x + 1] += sums[row, x]
        phases = to_offsets.shape[1]
        for phase in range(phases):
            shift = left / scale + phase / phases  # where the source's left edge lies
            first = int(np.floor(shift))
            width = int(np.ceil(shift + columns / scale)) - first if columns else 0
            to_offsets[slot, phase], to_lefts[slot, phase], to_widths[slot, phase] = (
                used,
                first,
                width,
            )
            for row in range(height):
                before = 0.0
                for x in range(width):
                    edge = (
                        first + x + 1 - shift
                    ) * scale  # right edge of this pixel in source columns
                    if edge >= columns:
                        total = sums[row, columns]
                    else:
                        whole = int(edge)
                        total = sums[row, whole] + (edge - whole) * (
                            sums[row, whole + 1] - sums[row, whole]
                        )
                    to_pool[used] = int(min(255.0, (total - before) / (scale * scale) + 0.5))
                    before = total
                    used += 1
    return used


@njit(cache=True)
def blend(canvas, slots, xs, ys, inks, curve, pool, offsets, lefts, widths, tops, heights):
    """Blends glyphs over the canvas. xs: pen positions (fractional); ys: baselines; inks: grey
    values; curve[256]: coverage to opacity. Returns the bounds of the ink (left, top, right,
    bottom) and how many glyphs did not fit (these are not drawn)."""
    rows, columns = canvas.shape
    outside = 0
    bounds = np.array([columns, rows, 0, 0])
    for i in range(len(slots)):
        slot = slots[i]
        quarter = int(np.floor(xs[i] * PHASES + 0.5))
        phase = quarter % PHASES
        width, height = widths[slot, phase], heights[slot]
        if width == 0:
            continue
        left = quarter // PHASES + lefts[slot, phase]
        top = int(np.floor(ys[i] + 0.5)) + tops[slot]
        if left < 0 or top < 0 or left + width > columns or top + height > rows:
            outside += 1
            continue
        bounds[0], bounds[1] = min(bounds[0], left), min(bounds[1], top)
        bounds[2], bounds[3] = max(bounds[2], left + width), max(bounds[3], top + height)
        at = offsets[slot, phase]
        ink = int(inks[i])
        for y in range(top, top + height):
            for x in range(left, left + width):
                opacity = int(curve[pool[at]])
                at += 1
                if opacity:
                    canvas[y, x] = (
                        int(canvas[y, x]) * (255 - opacity) + ink * opacity + 127
                    ) // 255
    return bounds, outside
