"""A sheet: the grey canvas of one page, its typography, and the setting of text on it.

A `Rich` is text ready to be set: the characters as the Markdown has them and, one for one, the
glyphs that show them. Styles mix by joining Riches, so a paragraph with bold words is broken into
lines like any other. All lengths are canvas pixels.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from drawing import glyphs
from drawing.glyphs import LIGATURES, Family, Font, Store
from drawing.linebreak import CENTRED, JUSTIFIED, LEFT, RIGHT, Lines, set_lines
from text.texts import CHARS

BASELINE = 0.80  # the baseline below the top of a line of leading 1, in ems
SUPERSCRIPTS = dict(zip("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
# What stands for a character that a face lacks, in picture and Markdown alike; accents are stripped
# if nothing is listed.
PLAIN = {
    "“": '"',
    "”": '"',
    "„": '"',
    "«": '"',
    "»": '"',
    "‘": "'",
    "’": "'",
    "‚": "'",
    "‹": "'",
    "›": "'",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "•": "*",
    "◦": "o",
    "▪": "*",
    "·": ".",
    "×": "x",
    "≈": "~",
    "≠": "!=",
    "≤": "<=",
    "≥": ">=",
    "→": "->",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "°": "o",
    "†": "*",
    "‡": "*",
    "©": "(c)",
    "®": "(R)",
    "™": "(TM)",
    "§": "S.",
    "¶": "",
    "½": "1/2",
    "¼": "1/4",
    "¾": "3/4",
    "±": "+/-",
    "÷": "/",
    "µ": "u",
    "ß": "ss",
    "æ": "ae",
    "Æ": "AE",
    "œ": "oe",
    "Œ": "OE",
    "ø": "o",
    "Ø": "O",
    "ł": "l",
    "Ł": "L",
    "đ": "d",
    "Đ": "D",
    "ı": "i",
    "ð": "d",
    "Ð": "D",
    "þ": "th",
    "Þ": "Th",
}


class Rich(NamedTuple):
    chars: str  # Markdown characters; ligatures as their own code points
    slots: np.ndarray  # int32 [len(chars)]

    @property
    def markdown(self) -> str:
        return plain(self.chars)

    def part(self, start: int, end: int) -> Rich:
        return Rich(self.chars[start:end], self.slots[start:end])


def plain(chars: str) -> str:
    """The text without ligature characters."""
    for ligature, letters in LIGATURES.items():
        chars = chars.replace(ligature, letters)
    return chars


def join(*parts: Rich) -> Rich:
    return Rich("".join(p.chars for p in parts), np.concatenate([p.slots for p in parts]))


@dataclass
class Look:
    """The typography of one page."""

    body: Family
    head: Family  # headings
    mono: Family
    size: float  # body text, canvas pixels
    leading: float = 1.2  # line distance / size
    align: int = JUSTIFIED
    hyphenate: bool = False
    dash_breaks: bool = False
    first_indent: float = 0.0  # of a paragraph, in ems; with gap 0
    hanging: float = 0.0  # indent of the other lines, in ems
    gap: float = 0.6  # between paragraphs, in lines
    tracking: float = 0.0  # letter-spacing in ems
    hinted: bool = False
    ligatures: bool = False
    ink: int = 0
    paper: int = 255
    weight: float = 1.0  # exponent of glyph coverage: below 1 bolder
    least: float = 6.0  # size of the smallest text, canvas pixels


class Sheet:
    """The canvas, and the glyphs to be blended onto it by `finish`."""

    def __init__(self, store: Store, look: Look, height: int, width: int):
        self.store, self.look = store, look
        self.height, self.width = height, width
        self.canvas = np.full((height, width), look.paper, np.uint8)
        self._slots: list[np.ndarray] = []
        self._xs: list[np.ndarray] = []
        self._ys: list[np.ndarray] = []
        self._inks: list[np.ndarray] = []
        self.fragile = False  # whether it has something that a coarse scan would wipe out
        self.afterwards: list[Callable[[np.ndarray], None]] = []  # done to the canvas with its text
        self.replacements = _Replacements(look)

    # --- text ---

    def clean(self, text: str) -> str:
        """The text in the characters that the page's faces have, without double spaces."""
        return " ".join(text.translate(self.replacements).split())

    def font(
        self,
        size: float = 1.0,
        style: str = "regular",
        family: Family | None = None,
        rise: float = 0.0,
    ) -> Font:
        """A font of this page; size and rise relative to the body size."""
        face = (family or self.look.body).face(style)
        return self.store.font(
            face,
            max(self.look.least, size * self.look.size),
            self.look.hinted,
            rise * self.look.size,
        )

    def rich(self, text: str, font: Font) -> Rich:
        """Text in one font; text must be clean."""
        text = self._ligated(text, font)
        return Rich(text, font.slots(text))

    def _ligated(self, text: str, font: Font) -> str:
        if self.look.ligatures and "f" in text:
            for ligature, letters in font.face.ligatures.items():
                text = text.replace(letters, ligature)
        return text

    def superscript(self, digits: str, size: float = 1.0) -> Rich:
        """Raised small digits; the Markdown has superscript characters."""
        font = self.font(0.62 * size, rise=0.36 * size)
        return Rich("".join(SUPERSCRIPTS[d] for d in digits), font.slots(digits))

    def advances(self, rich: Rich) -> np.ndarray:
        advances = self.store.advance[rich.slots]
        if self.look.tracking and not self.look.hinted:
            advances = advances + np.float32(self.look.tracking * self.look.size)
        return advances

    def measure(self, rich: Rich) -> float:
        return float(self.advances(rich).sum())

    def widths(self, texts: list[str], font: Font) -> np.ndarray:
        """The widths of many texts in one font, as `measure` gives them."""
        texts = [self._ligated(text, font) for text in texts]
        sums = np.cumsum(self.advances(Rich("", font.slots("".join(texts)))), dtype=np.float64)
        ends = np.cumsum([len(text) for text in texts])
        return np.diff(np.concatenate([[0.0], sums])[np.concatenate([[0], ends])])

    def break_lines(
        self,
        rich: Rich,
        width: float,
        align: int = LEFT,
        first_indent: float = 0.0,
        indent: float = 0.0,
        hyphen: float = 0.0,
        most_lines: int = 1 << 20,
    ) -> tuple[Rich, Lines]:
        """Lines of the given width. Words wider than the column are taken out; returns what is
        left, and the lines."""
        while True:
            lines = set_lines(
                self.store.index[rich.slots],
                self.advances(rich),
                width,
                first_indent,
                indent,
                align,
                hyphen,
                self.look.dash_breaks,
                most_lines,
            )
            at = lines.too_wide
            if at < 0:
                return rich, lines
            start = rich.chars.rfind(" ", 0, at) + 1
            end = rich.chars.find(" ", at) + 1 or len(rich.chars)
            rich = Rich(
                rich.chars[:start] + rich.chars[end:],
                np.concatenate([rich.slots[:start], rich.slots[end:]]),
            )

    def add(
        self, slots: np.ndarray, xs: np.ndarray, ys: np.ndarray, ink: int | None = None
    ) -> None:
        self._slots.append(slots)
        self._xs.append(xs)
        self._ys.append(ys)
        self._inks.append(np.full(len(slots), self.look.ink if ink is None else ink, np.uint8))

    def write(
        self, rich: Rich, x: float, baseline: float, align: int = LEFT, ink: int | None = None
    ) -> None:
        """One line of text from, about, or up to x."""
        advances = self.advances(rich)
        ends = np.cumsum(advances)
        if len(ends):
            x -= {RIGHT: ends[-1], CENTRED: ends[-1] / 2}.get(align, 0.0)
        baselines = np.full(len(ends), baseline, np.float32)
        self.add(rich.slots, (x - advances + ends).astype(np.float32), baselines, ink)

    def line(
        self,
        rich: Rich,
        x: float,
        top: float,
        leading: float,
        align: int = LEFT,
        ink: int | None = None,
        size: float | None = None,
    ) -> None:
        """One line of text by its top and height. size: of the text, None: body."""
        self.write(rich, x, self.baseline(top, leading, size), align, ink)

    def baseline(self, top: float, leading: float, size: float | None = None) -> float:
        """Baseline of a line of the given top and height for text of `size` pixels (None: body)."""
        size = size or self.look.size
        return round(top + (leading - size) / 2 + BASELINE * size)

    # --- shapes: drawn at once, beneath all text ---

    def fill(self, x0: float, y0: float, x1: float, y1: float, value: int) -> None:
        self.canvas[
            max(0, round(y0)) : max(0, round(y1)), max(0, round(x0)) : max(0, round(x1))
        ] = value

    def rule(
        self, x0: float, x1: float, y: float, thickness: float = 1, value: int | None = None
    ) -> None:
        y = round(y)
        self.fill(
            x0, y, x1, y + max(1, round(thickness)), self.look.ink if value is None else value
        )

    def stroke(
        self, x: float, y0: float, y1: float, thickness: float = 1, value: int | None = None
    ) -> None:
        x = round(x)
        self.fill(
            x, y0, x + max(1, round(thickness)), y1, self.look.ink if value is None else value
        )

    def frame(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        thickness: float = 1,
        value: int | None = None,
    ) -> None:
        thickness = max(1, round(thickness))
        self.rule(x0, x1, y0, thickness, value)
        self.rule(x0, x1, y1 - thickness, thickness, value)
        self.stroke(x0, y0, y1, thickness, value)
        self.stroke(round(x1) - thickness, y0, y1, thickness, value)

    def polyline(
        self, points: list[tuple[float, float]], thickness: int, value: int, closed: bool = False
    ) -> None:
        cv2.polylines(
            self.canvas, [np.round(points).astype(np.int32)], closed, value, thickness, cv2.LINE_AA
        )

    def finish(self) -> tuple[np.ndarray, int]:
        """Blends all glyphs. Returns the bounds of the text (left, top, right, bottom) and how many
        glyphs fell outside."""
        if not self._slots:
            return np.array(
                [self.width // 2, self.height // 2, self.width // 2, self.height // 2]
            ), 0
        bounds = self._blend()
        for change in self.afterwards:
            change(self.canvas)
        return bounds

    def _blend(self) -> tuple[np.ndarray, int]:
        curve = np.round(255 * (np.arange(256) / 255) ** self.look.weight).astype(np.uint8)
        store = self.store
        return glyphs.blend(
            self.canvas,
            np.concatenate(self._slots),
            np.concatenate(self._xs),
            np.concatenate(self._ys),
            np.concatenate(self._inks),
            curve,
            store.pool,
            store.offset,
            store.left,
            store.width,
            store.top,
            store.height,
        )


class _Replacements(dict):
    """A str.translate table to the characters that all faces of a page have; what no page may show
    goes."""

    def __init__(self, look: Look):
        super().__init__()
        families = (look.body, look.head, look.mono)
        self.lacks = frozenset().union(
            *(face.lacks for family in families for face in family.faces.values())
        )

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if char in CHARS and char not in self.lacks:
            self[code] = char
        else:
            stand_in = PLAIN.get(char) or unicodedata.normalize("NFD", char)[0]
            self[code] = stand_in if stand_in.isascii() and stand_in.isprintable() else ""
        return self[code]
