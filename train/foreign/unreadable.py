"""What a reader of Latin script cannot read: other scripts, handwriting, text that is too small,
blurred, faded or covered with noise, music, formulas.

A run of it is one block of the Markdown, MARKER, whatever it is. Pictures, charts, stamps and
signatures are no text and have no marker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import cv2
import numpy as np

from drawing.linebreak import CENTRED, JUSTIFIED, LEFT, RIGHT
from drawing.writer import Writer
from foreign.formulas import formulas
from foreign.scripts import EAST_ASIAN, MATHEMATICS, Script
from foreign.strokes import handwriting, staves

MARKER = "<!-- unreadable -->"
Draw = Callable[[Writer], None]
Change = Callable[[np.ndarray, int, float, np.random.Generator], None]


def block(w: Writer) -> bool:
    """A block that cannot be read, among others that can."""
    if w.room < 2.5 * w.leading and not w.next_column():
        return False
    w.separate()
    most = max(3 * w.leading, 0.6 * (w.bottom - w.top))
    height = min(w.room, most, w.r.uniform(2.5, 20) * w.leading)
    east_asian = w.chance(0.4)
    if not _fill(w, height, _foreign(w, east_asian) if w.chance(0.55) else _other(w)):
        return False
    w.space(max(0.7, w.look.gap))
    return w.emit(MARKER)


def page(w: Writer) -> None:
    """A page of which nothing can be read; half of them are Chinese, Japanese or Korean."""
    kind = w.r.random()
    draw = _foreign(w, kind < 0.5) if kind < 0.75 else _other(w)
    if w.chance(0.2) and w.width > 24 * w.look.size:
        middle, gutter = (w.left + w.right) / 2, w.look.size
        w.columns = [(w.left, middle - gutter), (middle + gutter, w.right)]
        w.top = w.y
    drawn = False
    while True:
        drawn |= _fill(w, min(w.room, max(0.0, w.stop - w.y) + 4 * w.leading), draw)
        if not w.next_column():
            break
    if drawn:
        w.emit(MARKER)


def merged(blocks: list[str]) -> list[str]:
    """The blocks of a page, with one marker for markers in a row."""
    return [text for text, before in zip(blocks, ["", *blocks]) if not text == before == MARKER]


def _fill(w: Writer, height: float, draw: Draw) -> bool:
    """Draws into a height at the writing position, and leaves out what the Markdown got; whether
    anything was drawn."""
    top, before, notes = w.y, len(w.out), w.notes
    w.notes = []  # text that cannot be read refers to no footnote
    with w.frame(w.left, w.right, top, top + height):
        draw(w)
        end = min(w.y, w.bottom)
    del w.out[before:]
    w.notes, w.y = notes, end
    return end > top


def _other(w: Writer) -> Draw:
    signs = [script for script in w.scripts if script.name == MATHEMATICS]
    draws: dict[Draw, float] = {
        handwriting: 3,
        _tiny: 2.5,
        partial(_spoilt, change=_blurred): 2,
        partial(_spoilt, change=_faded): 1,
        partial(_spoilt, change=_noisy): 1.5,
        staves: 1.2,
    }
    if signs:
        draws[partial(formulas, signs=w.r.choice(signs))] = 2
    return w.r.choices(list(draws), list(draws.values()))[0]


# --- text that was readable before ---


def _text(w: Writer) -> None:
    """Headings and paragraphs to the end of the frame."""
    while not w.full:
        if not (w.heading(w.r.choice([2, 3])) if w.chance(0.15) else w.paragraph()):
            return


def _tiny(w: Writer) -> None:
    """Paragraphs of 4 to 6 pixels in the image."""
    look = w.look
    saved = look.size, look.least
    look.size, look.least = w.r.uniform(4, 6) * w.scale, 2.5
    while not w.full and w.paragraph():
        pass
    look.size, look.least = saved
    w.sheet.fragile = True


def _spoilt(w: Writer, change: Change) -> None:
    """Text that is changed, after it is drawn, until nobody can read it."""
    top = w.y
    _text(w)
    rows = slice(max(0, round(top - 0.2 * w.leading)), round(min(w.y, w.bottom)))
    columns = slice(max(0, round(w.left)), round(w.right))
    noise = np.random.default_rng(w.r.getrandbits(32))
    paper, size = w.look.paper, w.look.size
    w.sheet.fragile = True
    w.sheet.afterwards.append(lambda canvas: change(canvas[rows, columns], paper, size, noise))


def _blurred(area: np.ndarray, paper: int, size: float, noise: np.random.Generator) -> None:
    sigma = size * noise.uniform(0.3, 0.6)
    area[:] = cv2.GaussianBlur(area, (0, 0), sigma, borderType=cv2.BORDER_REPLICATE)


def _faded(area: np.ndarray, paper: int, size: float, noise: np.random.Generator) -> None:
    """Less contrast than the noise on it."""
    contrast, deviation = noise.uniform(0.015, 0.035), noise.uniform(7, 14)
    pale = paper - 25 + contrast * (area.astype(np.float32) - paper)
    pale += deviation * noise.standard_normal(area.shape, np.float32)
    area[:] = np.clip(pale, 0, 255)


def _noisy(area: np.ndarray, paper: int, size: float, noise: np.random.Generator) -> None:
    """Specks of a few pixels, dark and light, over most of it."""
    grain = max(1.0, size * noise.uniform(0.06, 0.25))
    shape = [max(1, round(side / grain)) for side in area.shape]
    field = cv2.resize(
        noise.random(shape, np.float32), area.shape[::-1], interpolation=cv2.INTER_LINEAR
    )
    dark, light = np.quantile(field[::3, ::3], [noise.uniform(0.3, 0.4), noise.uniform(0.62, 0.7)])
    area[field < dark] = noise.integers(0, 90)
    area[field > light] = paper


# --- other scripts ---


def _foreign(w: Writer, east_asian: bool) -> Draw:
    names = {script.name for script in w.scripts if script.name != MATHEMATICS}
    name = w.r.choice(sorted(n for n in names if (n in EAST_ASIAN) == east_asian))
    script = w.r.choice([script for script in w.scripts if script.name == name])
    if name in ("japanese", "taiwanese") and w.chance(0.3):
        return partial(_vertical, script=script)
    return partial(_horizontal, script=script)


def _horizontal(w: Writer, script: Script) -> None:
    """Headings, paragraphs, lists and grids of one script; on some pages with Latin words in it."""
    latin = w.r.choice([0.0, 0.0, 0.03, 0.1])
    heading, grid = w.r.choice([0.0, 0.1, 0.25]), w.r.choice([0.0, 0.0, 0.15, 0.6])
    short = w.r.choice([0.0, 0.1, 0.8])  # share of lines that stand by themselves
    failures = 0
    while not w.full and failures < 3:
        form = w.r.random()
        if form < heading:
            done = _run(w, script, w.r.randint(3, 16), w.r.uniform(1.2, 2.2), 0.0)
        elif form < heading + grid:
            done = _grid(w, script)
        else:
            chars = w.r.randint(4, 40) if w.chance(short) else w.paragraph_length()
            done = _run(w, script, chars, 1.0, latin)
        failures += not done


def _run(w: Writer, script: Script, chars: int, size: float, latin: float) -> bool:
    """A paragraph of about so many Latin characters' length. latin: share of Latin words."""
    font = w.sheet.store.font(script.face, size * w.look.size, False)
    words = max(1, round(chars / (6 if script.spaced else 2)))
    count = sum(w.chance(latin) for _ in range(words)) if latin else 0
    latin_words = [w.value("number") if w.chance(0.4) else w.phrase(1, 1) for _ in range(count)]
    latin_words = [word for word in latin_words if 0.7 * len(word) * font.size < 0.4 * w.width]
    rich = script.rich(w.r, font, words, w.sheet.font(size), latin_words)
    align = JUSTIFIED if w.look.align == JUSTIFIED or script.name in EAST_ASIAN else LEFT
    if script.leftwards:
        align = RIGHT
    elif size > 1 or w.look.align == CENTRED:
        align = w.look.align if w.look.align != JUSTIFIED else LEFT
    drawn = w.put(
        rich,
        font,
        leading=max(1.3, w.look.leading) * font.size,
        align=align,
        first_indent=0.0 if script.leftwards else w.look.first_indent * w.look.size,
    )
    w.space(max(w.look.gap, 0.3 if size > 1 else 0.0))
    return drawn is not None


def _grid(w: Writer, script: Script) -> bool:
    """A table of short words, with numbers in some of its cells."""
    font, numbers = w.sheet.store.font(script.face, w.look.size, False), w.sheet.font()
    columns = max(1, min(w.r.randint(2, 6), int(w.width / (6 * w.look.size))))
    step, pitch = w.width / columns, w.r.uniform(1.6, 2.2) * w.look.size
    rows = min(w.r.randint(3, 12), int(w.room / pitch))
    if rows < 2:
        return False
    numeric = [w.chance(0.4) and column > 0 for column in range(columns)]
    ruled, top = w.r.choice(["all", "rows", "none"]), w.y
    for row in range(rows):
        for column in range(columns):
            if numeric[column] and row:
                rich = w.sheet.rich(w.value("number"), numbers)
            else:
                words = 1 if script.spaced else w.r.randint(2, 5)
                rich = script.rich(w.r, font, words, numbers, [])
            if w.sheet.measure(rich) > step - 0.8 * w.look.size:
                break  # numbers do not stand by themselves
            x = w.left + column * step + 0.4 * w.look.size
            w.sheet.line(rich, x, top + row * pitch, pitch)
        if ruled != "none":
            w.sheet.rule(w.left, w.right, top + row * pitch)
    w.y = top + rows * pitch
    if ruled != "none":
        w.sheet.rule(w.left, w.right, w.y - 1)
    if ruled == "all":
        for column in range(columns + 1):
            w.sheet.stroke(w.left + column * (w.width - 1) / columns, top, w.y)
    w.space(0.6)
    return True


def _vertical(w: Writer, script: Script) -> None:
    """Columns from right to left, each read downwards."""
    font = w.sheet.store.font(script.face, w.look.size, False)
    step, pitch = 1.05 * font.size, max(1.4, w.look.leading) * font.size
    most = int(w.room / step)
    x = w.right - font.size
    stops = "、。，"
    if most < 3:
        return
    while x > w.left:
        count = most if w.chance(0.8) else w.r.randint(1, most)
        index = np.array(script.word(w.r, count))
        is_stop = np.array([script.face.alphabet[i] in stops for i in index])
        ys = w.y + step * np.arange(count) + 0.88 * font.size - 0.5 * font.size * is_stop
        xs = np.full(count, x) + 0.6 * font.size * is_stop
        w.sheet.add(font.numbered(index), xs.astype(np.float32), ys.astype(np.float32))
        x -= pitch
    w.y += most * step
