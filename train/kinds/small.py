"""Small and sparse pages: each function fills the frame of a writer with one page."""

from __future__ import annotations

import string

from drawing import blocks, furniture, tables
from drawing.linebreak import CENTRED, LEFT, RIGHT
from drawing.writer import Writer
from kinds.menus import (
    address,
    closing,
    figure,
    fill,
    fill_or_columns,
    heading,
    introduced_list,
    paragraph,
    run_in,
    some_code,
    some_list,
    some_pairs,
    some_table,
)


def title_page(w: Writer) -> None:
    w.y += w.r.uniform(0.05, 0.35) * (w.bottom - w.y)
    align = w.r.choice([CENTRED, CENTRED, LEFT])
    for level in w.headings:
        level.align = align
    w.heading(1, words=(2, 9))
    if w.chance(0.6):
        w.lines([w.title(2, 6)], style="italic", size=1.2, align=align)
    w.y += w.r.uniform(1, 6) * w.leading
    w.lines([w.value("person") for _ in range(w.r.randint(1, 3))], align=align)
    w.y += w.r.uniform(1, 8) * w.leading
    w.lines([w.value("company"), w.value("city"), w.value("date")][w.r.randrange(3) :], align=align)


def sparse(w: Writer) -> None:
    """A page with a few lines between its running head and foot."""
    w.y += w.r.choice([0.0, w.r.uniform(0, 0.6)]) * w.room
    w.stop = w.y + 1
    some = w.r.choice([paragraph, paragraph, heading, some_list, some_pairs, address, closing])
    some(w)
    if w.chance(0.4):
        paragraph(w)


def card(w: Writer) -> None:
    align = w.r.choice([LEFT, CENTRED, RIGHT])
    if w.chance(0.4):
        w.sheet.frame(
            2, 2, w.sheet.width - 2, w.sheet.height - 2, w.r.choice([1, 2]), w.r.choice([0, 120])
        )
    w.lines([w.value("person")], style="bold", size=w.r.choice([1.0, 1.4]), align=align)
    w.lines([w.title(1, 3)], style=w.r.choice(["regular", "italic"]), align=align, joined=True)
    w.space(w.r.uniform(0.5, 1.5))
    kinds = ["company", "street", "city", "phone", "email", "url", "code", "date"]
    w.lines([w.value(kind) for kind in w.r.sample(kinds, w.r.randint(2, 6))], align=align)


def slide(w: Writer) -> None:
    w.heading(1, words=(1, 7))
    w.space(0.8)
    menu = {some_list: 3, introduced_list: 1.5, paragraph: 1, some_table: 0.7}
    if w.chance(0.4):
        menu[figure] = 4
    fill_or_columns(w, menu, 0.2, 30)


def screen(w: Writer) -> None:
    """A window with a title bar and a page in it."""
    w.look.hinted = True
    if w.chance(0.4):
        bar = w.top - 0.2 * w.look.size
        if bar > 10:
            w.sheet.fill(0, 0, w.sheet.width, bar, w.r.randint(150, 235))
            for i in range(3):
                w.sheet.fill(
                    8 + i * 0.9 * bar,
                    0.35 * bar,
                    8 + i * 0.9 * bar + 0.4 * bar,
                    0.75 * bar,
                    w.r.randrange(90, 210),
                )
    fill(
        w,
        {
            paragraph: 4,
            heading: 2,
            some_list: 1,
            introduced_list: 1.2,
            some_pairs: 1.5,
            some_table: 1,
            some_code: 1,
        },
    )


def strings(w: Writer) -> None:
    """Lines that nobody can guess: random characters, numbers, codes."""
    count = int(w.lines_left(w.leading) * w.r.uniform(0.3, 1)) or 1
    alphabet = w.r.choice(
        [
            string.ascii_letters,
            string.ascii_lowercase,
            string.ascii_uppercase + string.digits,
            string.ascii_letters + string.digits,
            string.digits + ".,-/",
            string.ascii_letters + string.digits + "-_/.:+*@#%&()",
        ]
    )
    most = max(2, int(w.width / (0.75 * w.look.size)))
    made = []
    for _ in range(count):
        if w.chance(0.2):
            made.append(w.value())
            continue
        words, room = [], w.r.randint(2, most)
        while room > 0:
            word = "".join(w.r.choices(alphabet, k=min(room, w.r.randint(1, 12))))
            words.append(word)
            room -= len(word) + 1
        made.append(w.clean(" ".join(words)))
    w.lines(made)


def word(w: Writer) -> None:
    """A word or a line or two, large or small, somewhere on the canvas."""
    lines = [
        w.r.choice([w.phrase(1, 1), w.phrase(1, 4), w.value(), w.prose(40)])
        for _ in range(w.r.choice([1, 1, 1, 2, 3]))
    ]
    free = w.room - (len(lines) + 0.5) * w.leading
    if free > 0:
        w.y += w.r.random() * free
    w.lines(
        lines,
        style=w.r.choice(["regular", "regular", "bold", "italic"]),
        align=w.r.choice([LEFT, CENTRED, RIGHT]),
    )


def snippet(w: Writer) -> None:
    """A piece of any page."""
    fill(
        w,
        {
            paragraph: 5,
            heading: 1.2,
            some_list: 0.6,
            introduced_list: 1.2,
            some_pairs: 1.2,
            some_table: 1.5,
            blocks.sums: 0.2,
            blocks.sentences: 0.3,
            figure: 0.2,
            run_in: 0.5,
            some_code: 0.4,
            address: 0.6,
            blocks.verse: 0.3,
            lambda w: tables.receipt_lines(w, w.r.randint(1, 6)): 0.3,
            lambda w: tables.check_boxes(w, w.r.randint(1, 4)): 0.3,
            lambda w: blocks.definitions(w, w.r.randint(1, 3)): 0.3,
            lambda w: blocks.contents(w, w.r.randint(2, 6)): 0.3,
            lambda w: tables.form_grid(w, w.r.randint(1, 3)): 0.2,
            lambda w: blocks.references(w, w.r.randint(1, 4)): 0.2,
        },
    )


def blank(w: Writer) -> None:
    """Nothing to read: an empty sheet, or specks, a rule, punched holes, a stamp, a page number."""
    if w.chance(0.35):
        return
    if w.chance(0.3):
        furniture.running_lines(w)
        return
    if w.chance(0.3):
        w.sheet.rule(
            w.left, w.right, w.r.uniform(w.top, w.bottom), w.r.choice([1, 2]), w.r.randrange(180)
        )
    if w.chance(0.3):
        furniture.holes(w)
    if w.chance(0.2):
        furniture.stamp(w)
    if w.chance(0.2):
        furniture.picture(w, 0.5 * w.room)
