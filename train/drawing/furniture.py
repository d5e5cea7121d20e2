"""What stands on a page and is left out of the Markdown: running heads and feet, page numbers,
rules, pictures, charts, stamps."""

from __future__ import annotations

import cv2
import numpy as np

from drawing.charts import chart
from drawing.linebreak import CENTRED, LEFT, RIGHT
from drawing.writer import Writer


def picture(w: Writer, height: float, width: float | None = None, x: float | None = None) -> bool:
    """A photograph, a chart, a drawing or a logo of this height at the writing position."""
    if not w.fits(height):
        return False
    width = width or w.width * w.r.choice([1.0, w.r.uniform(0.4, 0.9)])
    x = w.left + (w.width - width) * w.r.choice([0.0, 0.5, 1.0]) if x is None else x
    box = round(x), round(w.y), round(x + width), round(w.y + height)
    if width > 20 and height > 20:
        w.r.choice([chart, chart, _photograph, _drawing])(w, *box)
    w.y += height
    w.space(0.4)
    return True


def _photograph(w: Writer, x0: int, y0: int, x1: int, y1: int) -> None:
    """Cloudy noise at several scales, grey values as in a photograph."""
    noise = np.random.default_rng(w.r.getrandbits(32))
    shape = (y1 - y0, x1 - x0)
    image = np.zeros(shape, np.float32)
    for cells in (3, 8, 24):
        coarse = noise.random(
            (max(2, shape[0] * cells // max(shape)), max(2, shape[1] * cells // max(shape))),
            np.float32,
        )
        image += cv2.resize(coarse, shape[::-1], interpolation=cv2.INTER_CUBIC) / cells**0.6
    low, high = w.r.uniform(0, 120), w.r.uniform(130, 250)
    image = cv2.normalize(image, None, low, high, cv2.NORM_MINMAX).astype(np.uint8)
    for _ in range(w.r.randint(0, 4)):
        centre = w.r.randrange(shape[1]), w.r.randrange(shape[0])
        axes = w.r.randint(4, max(5, shape[1] // 3)), w.r.randint(4, max(5, shape[0] // 3))
        cv2.ellipse(
            image, centre, axes, w.r.randrange(180), 0, 360, w.r.randrange(256), -1, cv2.LINE_AA
        )
    target = w.sheet.canvas[max(0, y0) : y1, max(0, x0) : x1]
    target[:] = image[: target.shape[0], : target.shape[1]]
    if w.chance(0.3):
        w.sheet.frame(x0, y0, x1, y1, 1, 0)


def _drawing(w: Writer, x0: int, y0: int, x1: int, y1: int) -> None:
    """Boxes, circles and lines between them."""
    canvas = w.sheet.canvas[max(0, y0) : y1, max(0, x0) : x1]
    height, width = canvas.shape
    for _ in range(w.r.randint(3, 9)):
        a = w.r.randrange(width), w.r.randrange(height)
        b = w.r.randrange(width), w.r.randrange(height)
        grey, shape = w.r.randrange(200), w.r.random()
        if shape < 0.4:
            cv2.rectangle(canvas, a, b, grey, w.r.choice([1, 2, -1]), cv2.LINE_AA)
        elif shape < 0.7:
            cv2.circle(
                canvas,
                a,
                w.r.randint(3, max(4, min(width, height) // 3)),
                grey,
                w.r.choice([1, 2, -1]),
                cv2.LINE_AA,
            )
        else:
            cv2.line(canvas, a, b, grey, w.r.choice([1, 2]), cv2.LINE_AA)


def logo(w: Writer, x: float, y: float, side: float) -> None:
    """A mark in a square, or a dark shape with a short name in it."""
    grey, canvas = w.r.randrange(110), w.sheet.canvas
    centre, radius = (round(x + side / 2), round(y + side / 2)), max(2, round(side / 2) - 1)
    shape = w.r.random()
    if shape < 0.45:
        if shape < 0.15:
            cv2.circle(canvas, centre, radius, grey, -1, cv2.LINE_AA)
        else:
            w.sheet.fill(x, y, x + side, y + side, grey)
        font = w.sheet.font(w.r.uniform(0.7, 1.1), "bold", w.look.head)
        name = w.sheet.rich(w.r.choice([w.title(1, 1), w.clean(w.title(1, 1).upper())]), font)
        if w.sheet.measure(name) < 0.9 * side:
            top = y + side / 2 - font.size / 2
            ink = w.look.paper
            w.sheet.line(name, x + side / 2, top, font.size, CENTRED, ink, font.size)
    elif shape < 0.65:
        cv2.circle(canvas, centre, radius, grey, -1, cv2.LINE_AA)
        cv2.circle(canvas, centre, radius // 2, w.look.paper, -1, cv2.LINE_AA)
    elif shape < 0.8:
        points = [(x + side / 2, y), (x + side, y + side), (x, y + side)]
        cv2.fillPoly(canvas, [np.round(points).astype(np.int32)], grey, cv2.LINE_AA)
    else:
        w.sheet.fill(x, y, x + side, y + side, grey)
        w.sheet.fill(x + 0.3 * side, y + 0.3 * side, x + side, y + 0.5 * side, w.look.paper)


def stamp(w: Writer) -> None:
    """A round stamp of rings and strokes, paler than text, in the free room below the text."""
    radius = min(3.5 * w.leading, 0.45 * w.room, 0.3 * w.width)
    if radius < w.look.size:
        return
    x = w.r.uniform(w.left + radius, w.right - radius)
    y = w.r.uniform(w.y + radius, w.bottom - radius)
    grey, canvas = w.r.randint(90, 190), w.sheet.canvas
    centre, outer = (round(x), round(y)), round(radius)
    cv2.circle(canvas, centre, outer, grey, 2, cv2.LINE_AA)
    cv2.circle(canvas, centre, round(0.75 * radius), grey, 1, cv2.LINE_AA)
    for angle in np.linspace(0, 2 * np.pi, w.r.randint(12, 40)):
        a = (round(x + 0.8 * radius * np.cos(angle)), round(y + 0.8 * radius * np.sin(angle)))
        b = (round(x + 0.95 * radius * np.cos(angle)), round(y + 0.95 * radius * np.sin(angle)))
        cv2.line(canvas, a, b, grey, 1, cv2.LINE_AA)


def signature(w: Writer, width: float) -> None:
    """A scrawl at the writing position, two and a half lines high."""
    height = 2.5 * w.leading
    if w.room < height:
        w.space(0.8)
        return
    steps = w.r.randint(8, 16)
    points = [
        (
            w.left + (i + w.r.uniform(-0.4, 0.6)) * width / steps,
            w.y + height * (0.5 + w.r.uniform(-0.35, 0.35)),
        )
        for i in range(1, steps)
    ]
    t = np.linspace(0, len(points) - 1, 8 * len(points))
    at = np.arange(len(points))
    smooth = np.stack(
        [np.interp(t, at, [p[0] for p in points]), np.interp(t, at, [p[1] for p in points])], 1
    )
    smooth = cv2.blur(smooth.astype(np.float32), (1, 7))
    smooth[:, 0] = np.clip(smooth[:, 0], w.left, w.right)
    w.sheet.polyline(
        [tuple(p) for p in smooth], max(1, round(w.look.size / 14)), w.r.randrange(110)
    )
    w.y += height


PAGE_NUMBERS = ["{}", "{}", "- {} -", "Page {}", "Page {} of 300", "Seite {}", "p. {}", "{}/300"]


def running_lines(w: Writer, top: bool | None = None) -> None:
    """A running head or foot in the page's margins: a page number, a title, a date, an address, up
    to three of them on one line. It takes its room from the frame. top: head or foot, None: any."""
    sheet = w.sheet
    size = w.r.choice([0.7, 0.75, 0.85, 1.0])
    family = w.r.choice([None, None, None, w.look.head])
    small = sheet.font(size, w.r.choice(["regular", "regular", "italic"]), family)
    top = w.chance(0.5) if top is None else top
    height = w.r.uniform(1.8, 2.6) * w.leading
    if w.bottom - w.top < 6 * height:
        return
    if top:
        y = w.top
        w.top += height
        w.y = w.top
    else:
        w.bottom -= height
        y = w.bottom + height - 1.2 * w.leading
    left, right = w.columns[0][0], w.columns[-1][1]
    leading = 1.2 * w.look.size
    ends, centre = [(left, LEFT), (right, RIGHT)], ((left + right) / 2, CENTRED)
    places = w.r.choice([[w.r.choice([*ends, centre])], ends, ends, [ends[0], centre, ends[1]]])
    number = w.r.choice(PAGE_NUMBERS).format(w.r.randint(1, 299))
    texts = [number if w.chance(0.8) else w.value("date")]
    texts += [
        w.title(1, 6) if w.chance(0.6) else w.value(w.r.choice(["date", "company", "url", "code"]))
        for _ in places[1:]
    ]
    w.r.shuffle(texts)
    for text, (x, align) in zip(texts, places):
        rich = sheet.rich(text, small)
        if sheet.measure(rich) < (right - left) / len(places) - w.look.size:
            sheet.line(rich, x, y, leading, align, size=small.size)
    if w.chance(0.4):
        sheet.rule(
            left, right, y + (1.3 if top else -0.2) * leading, 1, w.r.choice([w.look.ink, 140])
        )


def holes(w: Writer) -> None:
    """Two or four punched holes in the left margin, if there is room: dark discs."""
    radius = max(3, round(0.008 * w.sheet.height))
    if w.columns[0][0] < 3 * radius + 4:
        return
    grey, x = w.r.randrange(120), round(0.5 * w.columns[0][0])
    for share in w.r.choice([(0.36, 0.64), (0.12, 0.36, 0.64, 0.88)]):
        cv2.circle(
            w.sheet.canvas, (x, round(share * w.sheet.height)), radius, grey, -1, cv2.LINE_AA
        )


def around(w: Writer) -> None:
    """What pages have around their text: running heads and feet, now and then punched holes."""
    if w.chance(0.03):
        holes(w)
    for top in w.r.choice([(), (True,), (False,), (True, False)]):
        running_lines(w, top)
