"""Formulas that say nothing: fractions, sums, integrals and roots of letters and signs, set in
boxes as a typesetter does. Lengths are canvas pixels."""

from __future__ import annotations

import string
from dataclasses import dataclass, field

import numpy as np

from drawing.glyphs import Font
from drawing.writer import Writer
from foreign.scripts import Script

OPERATORS = "=+−≤≥≠≈≡∈⊂→×·"
BIG = "∑∫∏"


@dataclass
class Box:
    """Glyphs and rules about a base line at y = 0; y grows downwards."""

    width: float = 0.0
    above: float = 0.0
    below: float = 0.0
    glyphs: list[tuple[np.ndarray, float, float]] = field(default_factory=list)  # slots, x, y
    rules: list[tuple[float, float, float]] = field(default_factory=list)  # left, right, y

    def place(self, other: Box, x: float, y: float) -> None:
        self.glyphs += [(slots, x + left, y + base) for slots, left, base in other.glyphs]
        self.rules += [(x + left, x + right, y + at) for left, right, at in other.rules]
        self.width = max(self.width, x + other.width)
        self.above = max(self.above, other.above - y)
        self.below = max(self.below, other.below + y)


class Setter:
    """Sets formulas in the faces of a page and one face of mathematical signs."""

    def __init__(self, w: Writer, signs: Script):
        self.w, self.r, self.signs = w, w.r, signs

    def _glyphs(self, text: str, font: Font, index: np.ndarray | None = None) -> Box:
        slots = font.slots(text) if index is None else font.numbered(index)
        width = float(self.w.sheet.store.advance[slots].sum())
        return Box(width, 0.75 * font.size, 0.25 * font.size, [(slots, 0.0, 0.0)])

    def _sign(self, choices: str, size: float) -> Box:
        alphabet = self.signs.face.alphabet
        known = [alphabet.index(char) for char in choices if char in alphabet]
        font = self.w.sheet.store.font(self.signs.face, size * self.w.look.size, False)
        return self._glyphs("", font, np.array([self.r.choice(known)]))

    def _letter(self, size: float) -> Box:
        if self.r.random() < 0.5:
            return self._sign(self.signs.face.alphabet[10:], size)
        style = self.r.choice(["italic", "italic", "regular"])
        text = self.r.choice([self.r.choice(string.ascii_letters), str(self.r.randint(0, 99))])
        return self._glyphs(text, self.w.sheet.font(size, style))

    def row(self, parts: int, size: float, depth: int) -> Box:
        """Terms with operators between them."""
        box, gap = Box(), 0.22 * size * self.w.look.size
        for number in range(parts):
            if number and self.r.random() < 0.75:
                box.place(self._sign(OPERATORS, size), box.width + gap, 0.0)
            box.place(self._term(size, depth), box.width + gap, 0.0)
        return box

    def _term(self, size: float, depth: int) -> Box:
        form = self.r.choice(["letter", "script", "fraction", "big", "root", "fraction"])
        em = size * self.w.look.size
        if depth == 0 or form == "letter":
            return self._letter(size)
        if form == "fraction":
            return self._fraction(size, depth)
        box = Box()
        if form == "root":
            inside = self.row(self.r.randint(1, 3), size, depth - 1)
            sign = self._sign("√", size * max(1.0, (inside.above + inside.below) / em))
            box.place(sign, 0.0, 0.8 * inside.below)
            box.place(inside, sign.width, 0.0)
            box.rules.append((sign.width, box.width, -inside.above - 1))
            return box
        if form == "big":
            sign = self._sign(BIG, 1.7 * size)
            box.place(sign, 0.0, 0.3 * em)
            for y in (-1.45 * em, 1.25 * em):
                limit = self.row(self.r.randint(1, 2), 0.6 * size, 0)
                box.place(limit, max(0.0, (sign.width - limit.width) / 2), y)
            box.place(self._letter(size), box.width + 0.15 * em, 0.0)
            return box
        box.place(self._letter(size), 0.0, 0.0)
        for y in self.r.choice([(-0.4,), (0.25,), (-0.45, 0.3)]):
            box.place(self.row(1, 0.65 * size, 0), box.width, y * em)
        return box

    def _fraction(self, size: float, depth: int) -> Box:
        parts = [self.row(self.r.randint(1, 4), 0.9 * size, depth - 1) for _ in range(2)]
        em, width = size * self.w.look.size, max(part.width for part in parts)
        box, axis = Box(), -0.3 * em
        upper, lower = parts
        box.place(upper, (width - upper.width) / 2, axis - upper.below - 0.12 * em)
        box.place(lower, (width - lower.width) / 2, axis + lower.above + 0.12 * em)
        box.rules.append((0.0, width, axis))
        return box


def formulas(w: Writer, signs: Script) -> None:
    """Displayed formulas, one below the other, in the frame of the writer."""
    setter, centred = Setter(w, signs), w.chance(0.7)
    size, failures = w.r.uniform(1.0, 1.4), 0
    while w.room > 3 * w.leading and failures < 4:
        box = setter.row(w.r.randint(2, 6), size, 2)
        if box.width > w.width or box.above + box.below > w.room or not box.rules:
            failures += 1
            continue
        left = w.left + (0.5 * (w.width - box.width) if centred else 0.0)
        baseline = round(w.y + box.above)
        for slots, x, y in box.glyphs:
            w.sheet.add(
                slots,
                np.float32(left + x) + _starts(w, slots),
                np.full(len(slots), round(baseline + y), np.float32),
            )
        for start, end, y in box.rules:
            w.sheet.rule(left + start, left + end, baseline + y, w.look.size / 14)
        w.y += box.above + box.below + 0.8 * w.leading


def _starts(w: Writer, slots: np.ndarray) -> np.ndarray:
    advances = w.sheet.store.advance[slots]
    return np.cumsum(advances) - advances
