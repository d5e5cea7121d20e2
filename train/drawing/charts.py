"""Charts: bars, lines and sectors with the words and numbers in them. A chart is a picture: the
Markdown leaves out all that stands in it. Lengths are canvas pixels; a box is left, top, right,
bottom.
"""

from __future__ import annotations

import cv2
import numpy as np

from drawing.glyphs import Font
from drawing.linebreak import CENTRED, LEFT, RIGHT
from drawing.writer import Writer

Box = tuple[float, float, float, float]
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def chart(w: Writer, x0: int, y0: int, x1: int, y1: int) -> None:
    """A chart of any form that fills the box; only the plot where a box is small."""
    font = w.sheet.font(w.r.choice([0.6, 0.75, 0.85, 1.0]))
    box = (float(x0), float(y0), float(x1), float(y1))
    if w.chance(0.15):
        w.sheet.frame(*box, 1, w.r.choice([w.look.ink, 150]))
        box = (x0 + 4.0, y0 + 4.0, x1 - 4.0, y1 - 4.0)
    if w.chance(0.5):
        box = _title(w, font, box)
    if box[2] - box[0] < 8 * font.size or box[3] - box[1] < 6 * font.size:
        _bars(w, box, 1)
        return
    form = w.r.choice(["bars", "bars", "lines", "lines", "beams", "pie"])
    count = 1 if form == "beams" else w.r.randint(3, 6) if form == "pie" else w.r.randint(1, 4)
    greys = w.r.sample(range(20, 225, 25), count)
    if count > 1 and w.chance(0.7):
        box = _legend(w, font, box, greys)
    if form == "pie":
        _pie(w, font, box, greys)
    elif form == "beams":
        _beams(w, font, box, greys[0])
    else:
        labels = _categories(w)
        box = _axes(w, font, box, labels, form == "lines")
        draw = _bars if form == "bars" else _lines
        draw(w, box, len(labels), greys)


def _text(
    w: Writer, font: Font, text: str, x: float, middle: float, align: int, room: float
) -> float:
    """A word of the chart about a height; nothing if it is wider than the room. Returns its
    width."""
    rich = w.sheet.rich(text, font)
    width = w.sheet.measure(rich)
    if width > room:
        return 0.0
    w.sheet.line(rich, x, middle - font.size / 2, font.size, align, size=font.size)
    return width


def _title(w: Writer, font: Font, box: Box) -> Box:
    x0, y0, x1, y1 = box
    bold = w.sheet.font(1.15 * font.size / w.look.size, w.r.choice(["bold", "regular"]))
    x, align = w.r.choice([((x0 + x1) / 2, CENTRED), (x0 + 2, LEFT)])
    _text(w, bold, w.title(1, 6), x, y0 + 0.8 * bold.size, align, x1 - x0 - 4)
    return x0, y0 + 2 * bold.size, x1, y1


def _legend(w: Writer, font: Font, box: Box, greys: list[int]) -> Box:
    """Squares in the greys of the series, each with a name: to the right, or in a row below."""
    x0, y0, x1, y1 = box
    side, step = 0.7 * font.size, 1.5 * font.size
    if w.chance(0.5) and len(greys) * step < y1 - y0:
        left = x1 - 0.3 * (x1 - x0)
        y = y0 + w.r.random() * (y1 - y0 - len(greys) * step)
        for grey in greys:
            middle = y + step / 2
            w.sheet.fill(left, middle - side / 2, left + side, middle + side / 2, grey)
            _text(
                w, font, w.title(1, 3), left + 1.6 * side, middle, LEFT, x1 - left - 1.6 * side - 2
            )
            y += step
        return x0, y0, left - font.size, y1
    x, middle = x0 + font.size, y1 - 0.7 * font.size
    for grey in greys:
        room = x1 - x - 1.6 * side - 2
        width = _text(w, font, w.title(1, 2), x + 1.6 * side, middle, LEFT, room)
        if width:
            w.sheet.fill(x, middle - side / 2, x + side, middle + side / 2, grey)
        x += 1.6 * side + width + font.size
    return x0, y0, x1, y1 - 1.8 * font.size


def _scale(w: Writer, count: int) -> list[str]:
    """The numbers of an axis."""
    step, unit = (
        w.r.choice([1, 2, 5, 10, 20, 25, 50, 100, 250, 1000]),
        w.r.choice(["", "", "", "%"]),
    )
    if w.chance(0.2):
        return [f"{i * step / 10:.1f}{unit}" for i in range(count)]
    return [f"{i * step}{unit}" for i in range(count)]


def _categories(w: Writer) -> list[str]:
    """What stands under the columns of a chart."""
    count, form = w.r.randint(3, 12), w.r.random()
    if form < 0.3:
        first = w.r.randint(1950, 2026 - count)
        return [str(first + i) for i in range(count)]
    if form < 0.5:
        return MONTHS[:count]
    if form < 0.7:
        return [str(i + 1) for i in range(count)]
    return [w.title(1, 1) for _ in range(min(count, 6))]


def _axes(w: Writer, font: Font, box: Box, labels: list[str], grid: bool) -> Box:
    """Axes with numbers and names; returns the plot's box."""
    x0, y0, x1, y1 = box
    size = font.size
    if w.chance(0.3):  # what the axes measure
        _text(w, font, w.title(1, 3), x0 + 2, y0 + 0.6 * size, LEFT, x1 - x0)
        y0 += 1.5 * size
    if w.chance(0.3):
        _text(w, font, w.title(1, 3), (x0 + x1) / 2, y1 - 0.6 * size, CENTRED, x1 - x0)
        y1 -= 1.5 * size
    numbers = _scale(w, max(2, min(w.r.randint(4, 8), int((y1 - y0) / (2 * size)))))
    widest = max(w.sheet.measure(w.sheet.rich(number, font)) for number in numbers)
    left, bottom, top = x0 + widest + 0.6 * size, y1 - 1.5 * size, y0 + 0.6 * size
    for i, number in enumerate(numbers):
        y = bottom - i * (bottom - top) / (len(numbers) - 1)
        _text(w, font, number, left - 0.4 * size, y, RIGHT, widest + 1)
        w.sheet.rule(left, x1 if grid and i else left + 4, y, 1, 190)
    step = (x1 - left) / len(labels)
    for i, label in enumerate(labels):
        _text(w, font, label, left + (i + 0.5) * step, y1 - 0.7 * size, CENTRED, 0.9 * step)
    w.sheet.stroke(left, top, bottom, 1)
    w.sheet.rule(left, x1, bottom, 1)
    return left + 2, top, x1, bottom


def _bars(w: Writer, box: Box, count: int, greys: list[int] | None = None) -> None:
    left, top, right, bottom = box
    greys = greys or [w.r.randrange(40, 220)]
    step = (right - left) / count
    thickness = 0.7 * step / len(greys)
    for i in range(count):
        for k, grey in enumerate(greys):
            x = left + (i + 0.15) * step + k * thickness
            height = w.r.uniform(0.05, 1.0) * (bottom - top)
            w.sheet.fill(x, bottom - height, x + thickness, bottom, grey)


def _lines(w: Writer, box: Box, count: int, greys: list[int]) -> None:
    left, top, right, bottom = box
    step = (right - left) / count
    marks = w.chance(0.4)
    for grey in greys:
        level, points = w.r.random(), []
        for i in range(count):
            level = min(1.0, max(0.0, level + w.r.uniform(-0.25, 0.25)))
            points.append((left + (i + 0.5) * step, bottom - level * (bottom - top)))
        w.sheet.polyline(points, w.r.choice([1, 2]), grey)
        for x, y in points if marks else []:
            cv2.circle(w.sheet.canvas, (round(x), round(y)), 3, grey, -1, cv2.LINE_AA)


def _beams(w: Writer, font: Font, box: Box, grey: int) -> None:
    """Horizontal bars with their names on the left and, at times, their values at the end."""
    x0, y0, x1, y1 = box
    count = max(1, min(w.r.randint(2, 8), int((y1 - y0) / (1.4 * font.size))))
    step, left = (y1 - y0) / count, x0 + 0.35 * (x1 - x0)
    values = w.chance(0.5)
    for i in range(count):
        middle = y0 + (i + 0.5) * step
        room = left - x0 - 0.4 * font.size
        _text(w, font, w.title(1, 3), left - 0.4 * font.size, middle, RIGHT, room)
        end = left + w.r.uniform(0.05, 0.75) * (x1 - left)
        w.sheet.fill(left, middle - 0.3 * step, end, middle + 0.3 * step, grey)
        if values:
            number = f"{w.r.randint(1, 999)}"
            _text(w, font, number, end + 0.3 * font.size, middle, LEFT, x1 - end - 0.3 * font.size)
    w.sheet.stroke(left, y0, y1, 1)


def _pie(w: Writer, font: Font, box: Box, greys: list[int]) -> None:
    x0, y0, x1, y1 = box
    radius = 0.5 * min(x1 - x0, y1 - y0) - 0.5 * font.size
    if w.chance(0.6):
        radius -= 1.2 * font.size  # room for the shares around it
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    if radius < 4:
        return
    cuts = np.cumsum([w.r.uniform(0.3, 1) for _ in greys])
    cuts = np.concatenate([[0.0], cuts / cuts[-1]])
    for start, end, grey in zip(cuts, cuts[1:], greys):
        centre, axes = (round(x), round(y)), (round(radius), round(radius))
        cv2.ellipse(w.sheet.canvas, centre, axes, 0, 360 * start, 360 * end, grey, -1, cv2.LINE_AA)
        angle = np.pi * (start + end)
        share = f"{100 * (end - start):.0f}%"
        at = radius + 1.1 * font.size
        tx, ty = x + 1.15 * at * np.cos(angle), y + at * np.sin(angle)
        width = w.sheet.measure(w.sheet.rich(share, font))
        if x0 + width / 2 < tx < x1 - width / 2 and y0 + font.size / 2 < ty < y1 - font.size / 2:
            _text(w, font, share, float(tx), float(ty), CENTRED, width + 1)
