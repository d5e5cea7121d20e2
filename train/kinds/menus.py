"""Menus: pages as mixtures of blocks, and the blocks with the settings that most pages share."""

from __future__ import annotations

from collections.abc import Callable

from drawing import blocks, furniture, tables
from drawing.linebreak import CENTRED, LEFT
from drawing.writer import Writer
from foreign import unreadable

Block = Callable[[Writer], bool]


def fill(w: Writer, menu: dict[Block, float], failures: int = 3) -> None:
    """Blocks of the menu (with their weights) until the page is full."""
    blocks, weights = list(menu), list(menu.values())
    last = None
    while not w.full and failures:
        block = w.r.choices(blocks, weights)[0]
        if w.unreadable and w.chance(w.unreadable):
            block = unreadable.block
        elif block in NOT_TWICE and (block is last or block in LISTS and last in LISTS_AT_END):
            block = paragraph
        failures -= not block(w)
        last = block


def fill_or_columns(
    w: Writer, menu: dict[Block, float], share: float, least_ems: float
) -> None:
    """As `fill`; a share of the pages that are at least so wide get two columns."""
    if w.chance(share) and w.width > least_ems * w.look.size:
        columns(w, 2, menu)
    else:
        fill(w, menu)


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


def introduced_list(w: Writer) -> bool:
    """A list under the sentence or the heading that introduces it, with any gap or none."""
    if w.chance(0.25):
        return w.heading(w.r.choice([2, 3])) and blocks.item_list(w, close=True)
    text = w.prose(w.r.randint(30, 200)).rstrip(" .,;:!?") + w.r.choice([":", ":", ":", "."])
    column = w.column
    if not w.paragraph(text=text):
        return False
    closer = w.r.choice([0.0, 0.5, 1.0]) * w.look.gap * w.leading if w.column == column else 0.0
    w.y -= closer
    chars = w.r.choice([(8, 50), (12, 220)])
    if w.full or not blocks.item_list(w, w.r.randint(2, 6), chars, close=w.chance(0.6)):
        w.y += closer
    return True


def some_table(w: Writer) -> bool:
    """A table, and often something right under it."""
    if not tables.table(w, totals=w.chance(0.1)):
        return False
    if w.full or w.chance(0.5):
        return True
    follower = w.r.choice([closing, closing, blocks.sums, blocks.item_list, paragraph])
    follower(w)
    return True


def closing(w: Writer) -> bool:
    """A sentence or a remark, as under a table."""
    size, style = w.r.choice([0.85, 1.0, 1.0]), w.r.choice(["regular", "regular", "italic"])
    return w.paragraph(w.r.randint(30, 130), size=size, style=style)


def some_pairs(w: Writer) -> bool:
    return blocks.pairs(w, w.r.randint(2, 7))


def some_code(w: Writer) -> bool:
    """Program text, where it can be told from the rest."""
    return blocks.code(w, w.r.randint(2, 14)) or paragraph(w)


# Two of these in a row would look like one.
LISTS = (some_list, introduced_list)
LISTS_AT_END = (*LISTS, some_table)
NOT_TWICE = (*LISTS, some_pairs, some_code, blocks.sentences, blocks.sums)


def figure(w: Writer) -> bool:
    """A picture with or without a caption."""
    if not furniture.picture(w, w.r.uniform(4, 15) * w.leading):
        return False
    if w.chance(0.7):
        text = (
            w.r.choice(["Figure", "Fig.", "Abb.", "Figura"])
            + f" {w.r.randint(1, 30)}"
            + w.r.choice([": ", ". "])
            + w.prose(w.r.randint(30, 160))
        )
        done = w.paragraph(
            text=text,
            size=0.9,
            style=w.r.choice(["regular", "italic"]),
            align=w.r.choice([LEFT, CENTRED]),
        )
        w.separate()
        return done
    return True


def rule(w: Writer) -> bool:
    w.sheet.rule(w.left, w.right, w.y, 1, w.r.choice([w.look.ink, 150]))
    w.space(0.5)
    return True


def side_by_side(w: Writer, left: Block, right: Block, share: float) -> None:
    """Two blocks next to each other: the left one is read first. share: of the width, the left
    one's."""
    top, bottom, edges = w.y, w.bottom, (w.left, w.right)
    middle = w.left + share * w.width
    with w.frame(edges[0], middle - 0.8 * w.look.size, top, bottom):
        left(w)
        end = w.y
    with w.frame(middle, edges[1], top, bottom):
        right(w)
        end = max(end, w.y)
    w.y = end


def small_print(w: Writer) -> None:
    """A few lines of small type at the foot of the page, as on business letters: a paragraph, or
    short lines in blocks side by side. They take their room from the frame and are read last."""
    size = w.r.uniform(0.72, 0.85)
    count = w.r.choice([2, 3]) if w.width > 34 * w.look.size and w.chance(0.6) else 1
    lines = w.r.randint(2, 4) if count == 1 else 3
    height = (lines + 0.1) * w.look.leading * w.sheet.font(size).size
    if w.room < 6 * height:
        return
    w.bottom -= height + w.leading
    left, right = w.left, w.right
    if w.chance(0.5):
        grey = w.r.choice([w.look.ink, 140])
        w.sheet.rule(left, right, w.bottom + 0.6 * w.leading, 1, grey)
    before, align = len(w.out), w.r.choice([LEFT, LEFT, CENTRED])
    top, step = w.bottom + w.leading, (right - left) / count
    for i in range(count):
        gutter = w.look.size if count > 1 else 0.0
        with w.frame(left + i * step, left + (i + 1) * step - gutter, top, top + height):
            if count == 1:
                w.paragraph(w.r.randint(80, 400), size=size, align=align)
            else:
                w.lines([w.value(kind) for kind in w.r.sample(SMALL_PRINT, lines)], size=size)
    w.foot += w.out[before:]
    del w.out[before:]


SMALL_PRINT = ("company", "street", "city", "phone", "email", "url", "iban", "vat", "code")


def signs(w: Writer) -> bool:
    """A line of one repeated sign between blocks."""
    w.space(0.5)
    done = blocks.sign_line(w, align=w.r.choice([LEFT, LEFT, LEFT, CENTRED]))
    w.space(max(0.5, w.look.gap))
    return done


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
    gutter = (1 + 2 * w.r.random() ** 2) * w.look.size
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
