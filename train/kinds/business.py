"""Letters, invoices, forms, tables: each function fills the frame of a writer with one page."""

from __future__ import annotations

import math

from drawing import blocks, furniture, tables
from drawing.linebreak import CENTRED, LEFT, RIGHT
from drawing.tables import Column
from drawing.writer import Writer
from kinds.menus import (
    address,
    closing,
    fill,
    heading,
    introduced_list,
    paragraph,
    rule,
    side_by_side,
    signs,
    small_print,
    some_list,
    some_pairs,
    some_table,
)

SALUTATIONS = "Dear|Dear|Hello|Sehr geehrte|Madame|Estimado|Gentile|Beste".split("|")
CLOSINGS = (
    "Yours sincerely,|Kind regards|With kind regards,|Best wishes,|Mit freundlichen Grüßen|"
    "Cordialement,|Saludos,"
).split("|")


def letter(w: Writer) -> None:
    w.stop = math.inf
    if w.chance(0.25):
        small_print(w)
    _letter_head(w)
    w.space(1)
    if w.chance(0.5):
        w.lines([w.label() + ": " + w.title(1, 6)], style="bold")
        w.space(1)
    w.lines([w.r.choice(SALUTATIONS) + " " + w.value("person") + w.r.choice([",", ":", ""])])
    w.space(0.8)
    list_at = w.r.choice([0, 0, 1]) if w.chance(0.55) else -1
    for i in range(w.r.randint(1, 5)):
        if i == list_at:
            introduced_list(w)
        if w.full or not w.paragraph(w.r.randint(60, 700)):
            return
    w.space(0.6)
    w.lines([w.r.choice(CLOSINGS)])
    if w.chance(0.6):
        furniture.signature(w, min(w.width, 9 * w.look.size))
    else:
        w.space(0.8)
    w.lines([w.value("person"), w.title(1, 3)])
    if w.chance(0.15):
        furniture.stamp(w)


def _letter_head(w: Writer) -> None:
    """Who writes to whom, and when: one below the other, or side by side."""
    side = w.r.choice([LEFT, LEFT, RIGHT, CENTRED])
    if w.chance(0.3):
        size = w.r.uniform(2.6, 4) * w.look.size
        furniture.logo(w, w.left + w.r.choice([0.0, 0.5, 1.0]) * (w.width - size), w.y, size)
        w.y += size + 0.5 * w.leading
    if w.chance(0.3):
        w.heading(1, text=w.value("company"))
    if w.chance(0.2):
        some_pairs(w)
    elif w.width > 30 * w.look.size and w.chance(0.4):
        right = w.r.choice([_dates, some_pairs, lambda w: address(w, RIGHT)])
        side_by_side(w, address, right, w.r.uniform(0.5, 0.6))
    else:
        address(w, side)
    w.space(w.r.uniform(0.3, 1.5))
    if w.chance(0.7):
        address(w)
        w.space(w.r.uniform(0, 1.5))
    place = w.r.choice(["", w.value("city").split(" ")[-1] + ", "])
    w.lines([place + w.value("date")], align=w.r.choice([LEFT, RIGHT]))


def _dates(w: Writer) -> bool:
    """A date and a reference or two, set to the right."""
    lines = [w.value("date")]
    lines += [w.label() + ": " + w.value("code") for _ in range(w.r.randint(0, 2))]
    return w.lines(lines, align=RIGHT)


def memo(w: Writer) -> None:
    w.heading(1, text=w.r.choice(["MEMO", "Memorandum", "Notice", "Protokoll", "Minutes"]))
    blocks.pairs(
        w, w.r.randint(3, 5), ("person", "date", "company", "code"), w.r.choice(["inline", "tab"])
    )
    rule(w)
    fill(w, {paragraph: 4, introduced_list: 1.2, some_list: 0.6, heading: 0.5, some_table: 0.3})


INVOICE_TITLES = "Invoice|INVOICE|Rechnung|Facture|Factura|Quotation|Order|Receipt".split("|")


def invoice(w: Writer) -> None:
    w.stop = math.inf
    if w.chance(0.25):
        small_print(w)
    title = w.clean(w.r.choice(INVOICE_TITLES))
    if w.chance(0.4):
        w.heading(1, text=title + w.r.choice(["", " " + w.value("code")]))
        _invoice_facts(w)
        if w.chance(0.4):
            address(w)
    else:
        _invoice_sender(w)
        w.space(1.2)
        if w.width > 28 * w.look.size and w.chance(0.6):
            side_by_side(w, address, _invoice_facts, 0.52)
        else:
            address(w)
        w.space(0.6)
        w.heading(w.r.choice([1, 2]), text=title + " " + w.value("code"))
    if w.chance(0.2):
        closing(w)
    rows = w.r.choice([w.r.randint(1, 6), w.r.randint(1, 14)])
    totals = w.chance(0.35)
    tables.table(w, rows=rows, kinds=_invoice_columns(w), totals=totals)
    if not totals and w.chance(0.85):
        blocks.sums(w)
        w.space(w.r.choice([0.0, 0.5]))
    if not w.full and w.chance(0.5):
        w.heading(w.r.choice([2, 3]))
    if not w.full:
        w.r.choice([closing, paragraph, introduced_list])(w)
    if not w.full and w.chance(0.5):
        closing(w)
    if w.chance(0.15):
        furniture.stamp(w)


def _invoice_sender(w: Writer) -> None:
    """The seller's name and address, at times with a logo at the right edge."""
    edge = w.right
    if w.chance(0.4):
        side = 3 * w.look.size
        furniture.logo(w, w.right - side, w.y, side)
        edge -= 1.3 * side
    with w.frame(w.left, edge, w.y, w.bottom):
        w.lines([w.value("company")], style="bold", size=1.3)
        w.space(0.5)
        address(w)
        end = w.y
    w.y = end


def _invoice_facts(w: Writer) -> bool:
    kinds = ("date", "code", "number", "person", "company", "street")
    return blocks.pairs(w, w.r.randint(2, 6), kinds, w.r.choice(["tab", "tab", "inline", "right"]))


def _invoice_columns(w: Writer) -> list[Column]:
    number = w.r.choice([RIGHT, RIGHT, LEFT, CENTRED])
    text = w.r.choice(["phrase", "phrase", "prose"])
    columns = [
        Column("index", w.r.choice(["#", "Pos.", "No."]), LEFT),
        Column(text, w.r.choice(["Description", "Artikel", "Item"]), LEFT),
        Column("number", w.r.choice(["Qty", "Menge", "Quantity"]), number),
        Column("amount", w.r.choice(["Price", "Preis", "Unit price"]), RIGHT),
        Column("amount", w.r.choice(["Amount", "Betrag", "Total"]), RIGHT),
    ]
    drop = w.r.choice([None, 0, 0, 0, 2, 3])
    if drop is not None:
        del columns[drop]
    return columns


def receipt(w: Writer) -> None:
    align = w.r.choice([CENTRED, CENTRED, LEFT])
    part = w.r.choice([rule, signs, signs, lambda w: w.space(0.5)])
    w.lines([w.value("company")], style="bold", size=w.r.choice([1.0, 1.3]), align=align)
    w.lines([w.value("street"), w.value("city"), w.value("phone")], align=align, joined=True)
    w.space(0.8)
    w.lines([w.value("date") + " " + w.value("time"), w.label() + ": " + w.value("code")])
    if part is signs and w.chance(0.5):
        blocks.sign_line(w, joined=True)
        w.space(0.6)
    else:
        part(w)
    tables.receipt_lines(w, w.r.randint(2, 20))
    part(w)
    blocks.pairs(w, w.r.randint(1, 4), ("amount", "percent"), "right")
    part(w)
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
            some_pairs: 2,
            lambda w: blocks.pairs(w, w.r.randint(1, 6), layout="blanks"): 1.5,
            signs: 0.3,
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
        w.r.choice([closing, blocks.sums, paragraph])(w)


def data_tables(w: Writer) -> None:
    if w.chance(0.4):
        w.heading(w.r.choice([1, 2]))
    fill(
        w,
        {
            lambda w: tables.table(w, w.r.randint(2, 9), w.r.randint(2, 40)): 4,
            heading: 0.7,
            paragraph: 0.7,
            closing: 0.6,
            some_list: 0.3,
            blocks.sums: 0.2,
        },
    )


def directory(w: Writer) -> None:
    fill(w, {address: 3, some_pairs: 3, heading: 1, rule: 0.5})
