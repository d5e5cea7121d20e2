"""Menus: pages as mixtures of blocks, and the blocks with the settings that most pages share."""

from __future__ import annotations

from collections.abc import Callable

from drawing import blocks, furniture, tables
from drawing.linebreak import CENTRED, LEFT
from drawing.writer import Writer

Block = Callable[[Writer], bool]


def fill(w: Writer, menu: dict[Block, float], failures: int = 3) -> None:
    """Blocks of the menu (with their weights) until the page is full."""
    blocks, weights = list(menu), list(menu.values())
    last = None
    while not w.full and failures:
        block = w.r.choices(blocks, weights)[0]
        if block is last and block in NOT_TWICE:
            block = paragraph
        failures -= not block(w)
        last = block


def paragraph(w: Writer) -> bool:
    if w.chance(0.02):
        return w.paragraph(w.r.randint(250, 900), style="bold")  # a short one is a heading
    return w.paragraph(style="italic" if w.chance(0.09) else "regular")


def run_in(w: Writer) -> bool:
    return w.paragraph(run_in=w.title(1, 4) + w.r.choice([".", ":", ""]))


def heading(w: Writer) -> bool:
    return w.heading(w.r.choice([2, 2, 3]))


def numbered_heading(w: Writer) -> bool:
    return w.heading(w.r.choice([1, 2, 2, 3]), number=True, words=(1, 6))


def boxed(w: Writer) -> bool:
    """A paragraph in a box."""
    pad = w.r.uniform(0.5, 1.2) * w.look.size
    top = w.y
    if w.room < 8 * w.leading:
        return False
    with w.frame(w.left + pad, w.right - pad, top + pad, w.bottom - pad):
        head = w.title(1, 4) + "." if w.chance(0.5) else ""
        if not w.paragraph(w.r.randint(40, 400), run_in=head):
            return False
        bottom = w.y - w.look.gap * w.leading + pad
    if w.chance(0.4):
        w.sheet.fill(w.left, top, w.right, bottom, w.look.paper - w.r.randint(8, 30))
    w.sheet.frame(w.left, top, w.right, bottom, 1, w.r.choice([w.look.ink, 140]))
    w.y = bottom
    w.space(0.7)
    return True


def some_list(w: Writer) -> bool:
    return blocks.item_list(w)


def some_table(w: Writer) -> bool:
    return tables.table(w)


def some_pairs(w: Writer) -> bool:
    return blocks.pairs(w, w.r.randint(2, 7))


def some_code(w: Writer) -> bool:
    return blocks.code(w, w.r.randint(2, 14))


# Two of these in a row would look like one.
NOT_TWICE = (some_list, some_pairs, some_code)


def figure(w: Writer) -> bool:
    """A picture with or without a caption."""
    if not furniture.picture(w, w.r.uniform(3, 12) * w.leading):
        return False
    if w.chance(0.7):
        text = (
            w.r.choice(["Figure", "Fig.", "Abb.", "Figura"])
            + f" {w.r.randint(1, 30)}"
            + w.r.choice([": ", ". "])
            + w.prose(w.r.randint(30, 160))
        )
        return w.paragraph(
            text=text,
            size=0.9,
            style=w.r.choice(["regular", "italic"]),
            align=w.r.choice([LEFT, CENTRED]),
        )
    return True


def rule(w: Writer) -> bool:
    w.sheet.rule(w.left, w.right, w.y, 1, w.r.choice([w.look.ink, 150]))
    w.space(0.5)
    return True


def address(w: Writer, align: int = LEFT) -> bool:
    lines = [w.value("company" if w.chance(0.5) else "person"), w.value("street"), w.value("city")]
    if w.chance(0.4):
        lines.append(w.value(w.r.choice(["phone", "email", "url"])))
    done = w.lines(lines, align=align)
    w.space(0.6)
    return done


def columns(w: Writer, count: int, menu: dict[Block, float]) -> None:
    """Sections of `count` columns, at times with blocks of the whole width in between."""
    left, right = w.columns[0][0], w.columns[-1][1]
    gutter = w.r.uniform(1.4, 3) * w.look.size
    width = (right - left - (count - 1) * gutter) / count
    narrow = [
        (left + i * (width + gutter), left + i * (width + gutter) + width) for i in range(count)
    ]
    bottom, stop = w.bottom, w.stop
    first = w.y
    if w.chance(0.3) and bottom - first > 20 * w.leading:
        w.bottom = first + w.r.uniform(0.35, 0.6) * (bottom - first)
        w.columns, w.column, w.top, w.stop = narrow, 0, first, w.bottom
        fill(w, menu)
        w.columns, w.column, w.y = [(left, right)], 0, w.bottom + 0.7 * w.leading
        w.top, w.bottom = w.y, bottom
        w.r.choice([heading, some_table, paragraph, figure])(w)
        first = w.y = w.y + 0.5 * w.leading
    w.columns, w.column, w.top, w.y, w.stop = narrow, 0, first, first, stop
    if bottom - first > 3 * w.leading:
        if w.chance(0.15):
            for i in range(1, count):
                w.sheet.stroke(narrow[i][0] - gutter / 2, first, bottom, 1, 130)
        fill(w, menu)
