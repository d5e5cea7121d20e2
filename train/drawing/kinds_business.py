"""Letters, invoices, forms, tables: each function fills the frame of a writer with one page."""

from __future__ import annotations

import math

from drawing import blocks, furniture, tables
from drawing.linebreak import CENTRED, LEFT, RIGHT
from drawing.menus import address, fill, heading, paragraph, rule, some_list, some_pairs
from drawing.tables import Column
from drawing.writer import Writer


def letter(w: Writer) -> None:
    w.stop = math.inf
    side = w.r.choice([LEFT, LEFT, RIGHT, CENTRED])
    if w.chance(0.25):
        furniture.logo(
            w, w.right - 3 * w.look.size if side == LEFT else w.left, w.y, 2.6 * w.look.size
        )
    address(w, side)
    w.space(w.r.uniform(0, 1.5))
    address(w)
    w.space(w.r.uniform(0, 1.5))
    w.lines(
        [w.r.choice(["", w.value("city").split(" ")[-1] + ", "]) + w.value("date")],
        align=w.r.choice([LEFT, RIGHT]),
    )
    w.space(1)
    if w.chance(0.5):
        w.lines([w.label() + ": " + w.title(1, 6)], style="bold")
        w.space(1)
    w.lines(
        [
            w.r.choice(
                ["Dear", "Dear", "Hello", "Sehr geehrte", "Madame", "Estimado", "Gentile", "Beste"]
            )
            + " "
            + w.value("person")
            + w.r.choice([",", ":", ""])
        ]
    )
    w.space(0.8)
    for _ in range(w.r.randint(1, 6)):
        if w.full or not w.paragraph(w.r.randint(60, 900)):
            return
    w.space(0.6)
    w.lines(
        [
            w.r.choice(
                [
                    "Yours sincerely,",
                    "Kind regards",
                    "Best wishes,",
                    "Mit freundlichen Grüßen",
                    "Cordialement,",
                    "Saludos,",
                ]
            )
        ]
    )
    if w.chance(0.6):
        furniture.signature(w, min(w.width, 9 * w.look.size))
    else:
        w.space(0.8)
    w.lines([w.value("person"), w.title(1, 3)])
    if w.chance(0.15):
        furniture.stamp(w)


def memo(w: Writer) -> None:
    w.heading(1, text=w.r.choice(["MEMO", "Memorandum", "Notice", "Protokoll", "Minutes"]))
    blocks.pairs(
        w, w.r.randint(3, 5), ("person", "date", "company", "code"), w.r.choice(["inline", "tab"])
    )
    rule(w)
    fill(w, {paragraph: 4, some_list: 1, heading: 0.5})


def invoice(w: Writer) -> None:
    w.stop = math.inf
    if w.chance(0.4):
        furniture.logo(w, w.right - 3.4 * w.look.size, w.y, 3 * w.look.size)
    w.lines([w.value("company")], style="bold", size=1.3)
    w.space(0.5)
    address(w)
    w.space(1.2)
    top = w.y
    if w.width > 28 * w.look.size and w.chance(0.6):
        half, left, right = w.left + 0.52 * w.width, w.left, w.right
        with w.frame(left, half - w.look.size, top, w.bottom):
            address(w)
            ends = [w.y]
        with w.frame(half, right, top, w.bottom):
            blocks.pairs(
                w,
                w.r.randint(2, 5),
                ("date", "code", "number", "person"),
                w.r.choice(["tab", "inline", "right"]),
            )
            ends.append(w.y)
        w.y = max(ends) + 0.8 * w.leading
    else:
        address(w)
        w.space(0.8)
    w.heading(
        w.r.choice([1, 2]),
        text=w.clean(
            w.r.choice(
                ["Invoice", "INVOICE", "Rechnung", "Facture", "Factura", "Quotation", "Order"]
            )
        )
        + " "
        + w.value("code"),
    )
    amount = RIGHT
    items = [
        Column("index", w.r.choice(["#", "Pos.", "No."]), LEFT),
        Column(
            w.r.choice(["phrase", "prose"]), w.r.choice(["Description", "Artikel", "Item"]), LEFT
        ),
        Column("number", w.r.choice(["Qty", "Menge", "Quantity"]), amount),
        Column("amount", w.r.choice(["Price", "Preis", "Unit price"]), amount),
        Column("amount", w.r.choice(["Amount", "Betrag", "Total"]), amount),
    ]
    drop = w.r.randrange(6)
    if drop < 5 and drop != 1:
        del items[drop]
    tables.table(w, rows=w.r.randint(1, 14), kinds=items, totals=w.chance(0.5))
    if w.chance(0.6) and w.width > 14 * w.look.size and w.room > 5 * w.leading:
        left, right = w.left, w.right
        with w.frame(left + w.r.choice([0, 0.4]) * w.width, right, w.y, w.bottom):
            blocks.pairs(w, w.r.randint(2, 4), ("amount", "percent"), w.r.choice(["right", "tab"]))
            end = w.y
        w.y = end
    if not w.full:
        w.paragraph(w.r.randint(40, 200), size=w.r.choice([0.85, 1.0]))
    if w.chance(0.15):
        furniture.stamp(w)


def receipt(w: Writer) -> None:
    align = w.r.choice([CENTRED, CENTRED, LEFT])
    w.lines([w.value("company")], style="bold", size=w.r.choice([1.0, 1.3]), align=align)
    w.lines([w.value("street"), w.value("city"), w.value("phone")], align=align, joined=True)
    w.space(0.8)
    w.lines([w.value("date") + " " + w.value("time"), w.label() + ": " + w.value("code")])
    w.space(0.6)
    if w.chance(0.6):
        rule(w)
    tables.receipt_lines(w, w.r.randint(2, 20))
    if w.chance(0.6):
        rule(w)
    blocks.pairs(w, w.r.randint(1, 4), ("amount", "percent"), "right")
    w.space(0.4)
    w.lines([w.title(2, 5), w.value("url")], align=align)


def form(w: Writer) -> None:
    w.heading(1, words=(2, 6))
    if w.chance(0.5):
        w.paragraph(w.r.randint(60, 300), size=0.9)
    fill(
        w,
        {
            lambda w: tables.form_grid(w, w.r.randint(2, 7)): 3,
            lambda w: tables.check_boxes(w, w.r.randint(1, 6)): 2,
            some_pairs: 3,
            heading: 1.5,
            paragraph: 0.5,
        },
    )


def statement(w: Writer) -> None:
    """An account statement: who and when, then dense lines of bookings."""
    w.heading(
        1, text=w.r.choice([None, None, "Account statement", "Kontoauszug", "Statement of account"])
    )
    blocks.pairs(
        w,
        w.r.randint(2, 6),
        ("person", "date", "code", "amount", "iban"),
        w.r.choice(["tab", "inline", "right"]),
    )
    kinds = [
        Column("date", w.r.choice(["Date", "Datum", "Fecha"]), LEFT),
        Column(
            w.r.choice(["phrase", "prose"]), w.r.choice(["Details", "Text", "Description"]), LEFT
        ),
    ]
    if w.chance(0.5):
        kinds.append(Column("code", w.r.choice(["Ref.", "Reference"]), LEFT))
    kinds += [
        Column("amount", name, RIGHT)
        for name in w.r.choice(
            [("Debit", "Credit", "Balance"), ("Amount", "Balance"), ("Soll", "Haben")]
        )
    ]
    tables.table(
        w, rows=w.r.randint(8, 60), kinds=kinds, totals=w.chance(0.5), size=w.r.choice([1.0, 0.9])
    )
    if not w.full:
        w.paragraph(w.r.randint(40, 300), size=0.9)


def data_tables(w: Writer) -> None:
    if w.chance(0.4):
        w.heading(w.r.choice([1, 2]))
    fill(
        w,
        {
            lambda w: tables.table(w, w.r.randint(2, 9), w.r.randint(2, 40)): 4,
            heading: 0.7,
            paragraph: 1,
        },
    )


def directory(w: Writer) -> None:
    fill(w, {address: 3, some_pairs: 3, heading: 1, rule: 0.5})
