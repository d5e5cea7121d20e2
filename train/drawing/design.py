"""The design of a page before it has text: its size, its margins and its type.

Lengths are pixels of the final image for `page_size`, `body_size` and `drawing_scale`, and pixels
of the canvas, which may be larger or smaller, for the rest.
"""

from __future__ import annotations

import random
from functools import lru_cache

import numpy as np

from drawing.glyphs import Family
from drawing.linebreak import CENTRED, JUSTIFIED, LEFT
from drawing.sheet import PLAIN, Look, Sheet
from drawing.writer import Heading

MULTIPLE = 32  # sides of a page are multiples of this

# Families that most documents are set in, or that look like these; drawn three times as often.
COMMON = """
Liberation Serif|Nimbus Roman|STIX|Caladea|Latin Modern Roman|CMU Concrete|Linux Libertine|
Liberation Sans|Nimbus Sans|Carlito|DejaVu Sans|Roboto|Open Sans|Noto Sans|Inter|Lato|
Noto Serif|DejaVu Serif|PT Serif|Nimbus Mono|Liberation Mono|DejaVu Sans Mono
""".replace("\n", "").split("|")

# Height / width of each shape, least and most.
ASPECTS = {
    "portrait": (1.27, 1.5),
    "landscape": (0.66, 0.8),
    "wide": (0.52, 0.78),
    "card": (0.5, 0.75),
    "receipt": (1.7, 3.2),
    "screen": (0.5, 0.8),
    "crop": (0.3, 1.6),
    "line": (0.16, 0.5),
}


@lru_cache(maxsize=256)
def _sizes(least: int, most: int) -> np.ndarray:
    """All heights and widths [n, 2] whose area is within bounds."""
    sides = range(MULTIPLE, most // MULTIPLE + 1, MULTIPLE)
    sizes = [
        (height, width)
        for height in sides
        for width in range(
            -(-least // (height * MULTIPLE)) * MULTIPLE, most // height + 1, MULTIPLE
        )
        if width and 0.15 < height / width < 6
    ]
    if not sizes:
        raise ValueError(
            f"pixels ({least}, {most}): no height and width that are multiples of {MULTIPLE} have "
            "such an area; expected bounds further apart"
        )
    return np.array(sizes)


def page_size(
    r: random.Random, pixels: tuple[int, int], area: float, shape: str, plain: bool
) -> tuple[int, int]:
    """Height and width within the bounds, near an area and an aspect of the shape. plain: an
    upright page is A4 or Letter."""
    sizes = _sizes(*pixels)
    low, high = ASPECTS[shape]
    aspect = low * (high / low) ** r.random()
    if plain and shape == "portrait":
        aspect = r.choice([297 / 210, 11 / 8.5])
    heights, widths = sizes[:, 0], sizes[:, 1]
    misfit = np.abs(np.log(heights / widths / aspect)) + 0.3 * np.abs(
        np.log(heights * widths / area)
    )
    height, width = sizes[int(misfit.argmin())]
    return int(height), int(width)


def body_size(r: random.Random) -> float:
    """Text size: most text has 12 to 17 px, as 10 to 12 points have on an A4 page of 1 Mpx."""
    sizes = [r.uniform(10, 12), r.uniform(12.3, 17), 17 * (40 / 17) ** r.random()]
    return r.choices(sizes, [3, 50, 47])[0]


def drawing_scale(r: random.Random, size: float) -> float:
    """Canvas pixels per image pixel, 0.7 to 2: half of the pages are drawn at their own size, and
    none with text below 11 px."""
    if r.random() < 0.5:
        return 1.0
    return max(r.choice([r.uniform(0.7, 1), 1 + r.random() ** 1.5]), min(1.0, 11 / size))


def margins(
    r: random.Random, size: float, height: int, width: int, shape: str, plain: bool
) -> tuple[float, float, float, float]:
    """Left, right, top and bottom: a few pixels for crops, else 0 to 18 % on each side by itself;
    on plain pages 8 to 15 %."""
    least = 3 + 0.25 * size
    if plain and shape in ("portrait", "landscape"):
        left = right = r.uniform(0.08, 0.15) * width
        top, bottom = r.uniform(0.06, 0.13) * height, r.uniform(0.06, 0.13) * height
    elif shape in ("crop", "line") or r.random() < 0.08:
        left, right, top, bottom = (least + r.uniform(0, 10) for _ in range(4))
    elif shape in ("receipt", "card", "screen"):
        sides = (width, width, height, height)
        left, right, top, bottom = (least + r.uniform(0, 0.08) * side for side in sides)
    else:
        base = r.uniform(0.02, 0.15)
        shares = [min(0.18, max(0.0, base + r.uniform(-0.06, 0.06))) for _ in range(4)]
        left, right = (max(least, share * width) for share in shares[:2])
        top, bottom = (max(least, share * height) for share in shares[2:])
        if r.random() < 0.5:
            right = left
    if width - left - right < 8 * size:
        left = right = least
    return left, right, top, bottom


# Shares of pages of a kind in faces of one width.
MONO_SHARES = {"receipt": 0.6, "transcript": 0.9, "mail": 0.4, "plain": 1.0}


class Type:
    """The type families at hand, and their choice for a page."""

    def __init__(self, families: list[Family]):
        weighted = [f for f in families for _ in range(3 if f.name in COMMON else 1)]
        self.by_kind = {
            kind: [family for family in weighted if family.kind == kind] or weighted
            for kind in ("serif", "sans", "mono", "typewriter", "display")
        }

    def look(self, r: random.Random, size: float, kind: str, plain: bool) -> Look:
        """The typography of a page of some kind. size: of the body text; plain: black on white, as
        PDF renderers draw it."""
        kinds, shares = ["serif", "sans", "mono", "typewriter", "display"], [48, 38, 4, 6, 4]
        body_kind = r.choices(kinds, shares)[0]
        if body_kind == "display" and size < 28:
            body_kind = "serif"  # small script faces are hard to read
        if kind in MONO_SHARES and r.random() < MONO_SHARES[kind]:
            body_kind = r.choice(["mono", "typewriter"])
        elif kind == "program" and body_kind in ("mono", "typewriter"):
            body_kind = "sans"  # program text must stand out
        body = head = r.choice(self.by_kind[body_kind])
        if r.random() < 0.4:
            head = r.choice(self.by_kind[r.choice(["sans", "serif", "display"])])
        align = r.choices([JUSTIFIED, LEFT, CENTRED], [50, 47, 3])[0]
        indented = align != CENTRED and r.random() < 0.4
        return Look(
            body=body,
            head=head,
            mono=r.choice(self.by_kind["mono"]),
            size=size,
            leading=r.uniform(1.0, 1.6),
            align=align,
            hyphenate=align == JUSTIFIED and r.random() < 0.25,
            dash_breaks=r.random() < 0.3,
            first_indent=r.uniform(1, 2) if indented else 0.0,
            hanging=r.uniform(1, 2) if not indented and r.random() < 0.15 else 0.0,
            gap=0.0 if indented else r.choice([0.4, 0.5, 0.8, 1.0]),
            tracking=_tracking(r),
            hinted=_hinted(r, body, kind, plain),
            ligatures=body_kind == "serif" and r.random() < 0.33,
            ink=0 if plain or r.random() < 0.6 else r.randint(0, 90),
            paper=255 if plain or r.random() < 0.6 else r.randint(225, 254),
            weight=1.0 if plain or r.random() < 0.3 else r.uniform(0.75, 1.15),
        )


def _hinted(r: random.Random, body: Family, kind: str, plain: bool) -> bool:
    """Whether glyphs are drawn as screens draw them; these show faces of the common kind."""
    share = 0.6 if kind == "screen" else 0.0 if plain else 0.06
    return body.name in COMMON and r.random() < share


def _tracking(r: random.Random) -> float:
    """Letter-spacing: most pages have none, a few so much that it is seen."""
    if r.random() < 0.03:
        return r.uniform(0.06, 0.15)
    return r.uniform(-0.01, 0.03) if r.random() < 0.3 else 0.0


def headings(r: random.Random) -> list[Heading]:
    """Three levels, each smaller than the one above."""
    case = r.choices(["as is", "upper", "small caps"], [80, 14, 6])[0]
    align = CENTRED if r.random() < 0.22 else LEFT
    band = r.random() < 0.05
    ink = r.choice([None, None, None, r.randint(30, 120)])
    levels = []
    for level, (least, most) in enumerate([(1.65, 2.4), (1.28, 1.55), (1.05, 1.2)], 1):
        styles = ["bold", "bold", "bolditalic" if level == 3 else "regular"]
        spaced = case != "as is" and r.random() < 0.4
        levels.append(
            Heading(
                size=r.uniform(least, most),
                style=r.choice(styles),
                align=align if level < 3 else LEFT,
                case=case if r.random() < 0.7 else "as is",
                tracking=r.uniform(0.04, 0.2) if spaced else 0.0,
                underline=r.random() < 0.08,
                band=band and level < 3,
                ink=ink,
            )
        )
    return levels


def bullets(r: random.Random, sheet: Sheet) -> list[str]:
    """The bullet of each level, of characters that the body face has."""
    sets = ["•◦▪", "•◦-", "•–-", "••–", "•-◦", "▪•◦", "–-·", "-*·", "*-*", "◦•-", "·-•"]
    lacks = sheet.look.body.face("regular").lacks
    return [PLAIN.get(mark, "-") if mark in lacks else mark for mark in r.choice(sets)]
