"""Pages of running text: each function fills the frame of a writer with one page."""

from __future__ import annotations

import string

from drawing import blocks
from drawing.linebreak import CENTRED
from drawing.writer import Writer
from kinds.menus import (
    Block,
    address,
    boxed,
    columns,
    figure,
    fill,
    fill_or_columns,
    heading,
    introduced_list,
    numbered_heading,
    paragraph,
    rule,
    run_in,
    some_code,
    some_list,
    some_pairs,
    some_table,
)


def book(w: Writer) -> None:
    if w.chance(0.3):
        w.heading(1)
    if w.chance(0.08):
        w.columns = [(w.left, w.left + w.r.uniform(0.15, 0.6) * w.width)]
    w.emphasis = w.r.choice([0.0, 0.2])
    menu: dict[Block, float] = {paragraph: 12}
    if w.chance(0.25):
        menu[heading] = 1
    if w.chance(0.15):
        menu[blocks.quote] = 1
    if w.chance(0.1):
        menu[figure] = 0.7
    if w.chance(0.1):
        menu[introduced_list] = 1
    if w.chance(0.1):
        menu[stars] = 0.7
    fill(w, menu)


def stars(w: Writer) -> bool:
    """What parts the sections of a book, in the middle of the line."""
    w.space(0.5)
    done = w.lines([w.r.choice(["* * *", "***", "*", "* * * * *", "- - -", "---"])], align=CENTRED)
    w.space(0.5 + w.look.gap)
    return done


def report(w: Writer) -> None:
    if w.chance(0.4):
        w.heading(1)
    titles = w.r.choice([heading, numbered_heading])
    w.numbers = [w.r.randint(0, 9), w.r.randint(0, 9), 0]
    menu: dict[Block, float] = {
        paragraph: 6,
        titles: 2.5,
        introduced_list: 2,
        some_list: 0.7,
        some_table: 1.2,
        run_in: 0.8,
        blocks.sentences: 0.2,
        blocks.quote: 0.3,
        boxed: 0.4,
        some_code: 0.2,
        some_pairs: 0.3,
    }
    if w.chance(0.35):
        menu[figure] = 3
    fill_or_columns(w, menu, 0.1, 34)


def article(w: Writer) -> None:
    if w.chance(0.6):
        w.heading(1, words=(3, 12))
        if w.chance(0.6):
            w.lines(
                [", ".join(w.value("person") for _ in range(w.r.randint(1, 3)))],
                align=w.headings[0].align,
                style="italic",
            )
            w.space(0.8)
        if w.chance(0.4):
            inset = w.r.uniform(0, 4) * w.look.size
            w.paragraph(
                w.r.randint(150, 700),
                size=0.9,
                inset=(inset, inset),
                run_in=w.r.choice(["", "Abstract.", "Abstract —", "Résumé."]),
            )
    titles = w.r.choice([heading, numbered_heading])
    count = 2 if w.width < 40 * w.look.size or w.chance(0.85) else 3
    columns(
        w,
        count,
        {
            paragraph: 8,
            titles: 1.5,
            run_in: 0.6,
            introduced_list: 0.9,
            some_list: 0.3,
            figure: 2.0 if w.chance(0.25) else 0.01,
            some_table: 0.3,
        },
    )


def newsletter(w: Writer) -> None:
    w.heading(1, words=(1, 4))
    rule(w)
    count = 3 if w.width > 42 * w.look.size and w.chance(0.6) else 2
    menu: dict[Block, float] = {paragraph: 6, heading: 2, introduced_list: 0.6, address: 0.2}
    if w.chance(0.3):
        menu[figure] = 1.5
    columns(w, count, menu)


def index_page(w: Writer) -> None:
    """An index: terms with page numbers in narrow columns."""
    left, right = w.left, w.right
    count = max(1, min(w.r.choice([2, 2, 3]), int(w.width / (13 * w.look.size))))
    gutter = 2 * w.look.size
    width = (right - left - (count - 1) * gutter) / count
    w.columns = [
        (left + i * (width + gutter), left + i * (width + gutter) + width) for i in range(count)
    ]
    w.top = w.y
    letters = w.chance(0.5)
    while not w.full:
        if letters and not w.heading(3, text=w.r.choice(string.ascii_uppercase)):
            return
        entries = [
            w.phrase(1, 3)
            + ", "
            + ", ".join(str(w.r.randint(1, 480)) for _ in range(w.r.randint(1, 4)))
            for _ in range(w.r.randint(4, 24))
        ]
        if not w.lines(entries):
            return
        w.space(0.8)


def references(w: Writer) -> None:
    w.heading(
        w.r.choice([1, 2]),
        text=w.r.choice(
            ["References", "Bibliography", "Literatur", "Literature", "Références", "Sources"]
        ),
    )
    blocks.references(w, w.r.randint(4, 40))


def glossary(w: Writer) -> None:
    if w.chance(0.5):
        w.heading(1)
    blocks.definitions(w, w.r.randint(3, 40))


def verse(w: Writer) -> None:
    if w.chance(0.7):
        w.heading(w.r.choice([1, 2]), words=(1, 5))
    inset = w.r.choice([0, 0.1, 0.25]) * w.width
    w.columns = [(w.left + inset, w.right)]
    fill(w, {blocks.verse: 1})


def lists(w: Writer) -> None:
    if w.chance(0.6):
        w.heading(w.r.choice([1, 2]))
    if w.chance(0.5):
        blocks.item_list(w, w.r.randint(5, 30), w.r.choice([(8, 60), (12, 220)]))
        paragraph(w)
    fill(w, {some_list: 4, paragraph: 1, heading: 1})


def contents(w: Writer) -> None:
    if w.chance(0.8):
        w.heading(
            1,
            text=w.r.choice(
                [
                    "Contents",
                    "Table of Contents",
                    "Inhalt",
                    "Inhaltsverzeichnis",
                    "Sommaire",
                    "Indice",
                    "Index",
                ]
            ),
        )
    blocks.contents(w, w.r.randint(5, 60))


def program(w: Writer) -> None:
    """A page of program text, or text about a program."""
    if w.chance(0.5):
        blocks.code(w, w.r.randint(8, 90))
    else:
        if w.chance(0.6):
            w.heading(w.r.choice([1, 2]))
        w.emphasis = 0.4
        fill(w, {paragraph: 3, some_code: 3, heading: 1, some_list: 0.7})
