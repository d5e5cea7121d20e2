"""Blocks of text beyond paragraphs and headings: quotes, lists, labels with values, contents,
references, code, verse.

Each draws itself at the writing position, adds its Markdown, and returns whether it drew anything
(Writer.emit).
"""

from __future__ import annotations

import string
import textwrap

import numpy as np

from drawing.linebreak import JUSTIFIED, LEFT, RIGHT
from drawing.sheet import Rich, join
from drawing.writer import Writer

ROMAN = "i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx".split()
NUMBERINGS = "{n}. {n}. {n}) ({n}) {a}) ({a}) {a}. ({i}) {i}. {A}.".split()


def quote(w: Writer) -> bool:
    """An indented paragraph, at times with a bar at its side."""
    w.separate()
    inset = w.r.uniform(1, 3) * w.look.size
    top, column = w.y, w.column
    done = w.paragraph(
        w.r.randint(60, 500),
        style=w.r.choice(["regular", "italic"]),
        inset=(inset, w.r.choice([0, inset])),
    )
    if done and w.chance(0.25) and w.column == column:
        w.sheet.stroke(
            w.left + 0.3 * inset, top, w.y - w.look.gap * w.leading, 0.12 * w.look.size, 150
        )
    return done


# --- lists ---


def item_list(
    w: Writer,
    items: int | None = None,
    chars: tuple[int, int] = (12, 220),
    close: bool = False,
) -> bool:
    """A bulleted or numbered list, on some calls with nested items. chars: of an item; close:
    right under what stands before it."""
    if not close:
        w.separate()
    drawn: list[str] = []
    indent = w.r.uniform(0, 1.5) * w.look.size
    _list_items(w, drawn, items or w.r.randint(2, 7), chars, 0, indent)
    w.space(max(0.6, w.look.gap))
    return w.emit("\n".join(drawn))


def _list_items(
    w: Writer, drawn: list[str], count: int, chars: tuple[int, int], level: int, indent: float
) -> bool:
    """Draws items and adds their Markdown; False when the page is full."""
    look = w.look
    numbering = w.r.choice(NUMBERINGS) if w.chance(0.35) else ""
    first = w.r.choice([1, 1, 1, w.r.randint(2, 40)]) if "{n}" in numbering else 1
    gap = w.r.choice([0, 0, 0.2, 0.5])
    font = w.sheet.font()
    widest = w.bullets[level]
    if numbering:
        widest = "(viii)" if "{i}" in numbering else "(99)"
    marker_width = w.sheet.measure(w.sheet.rich(widest + " ", font))
    step = marker_width if w.chance(0.35) else max(marker_width, w.r.uniform(1.3, 2.4) * look.size)
    nested = level < 2 and w.chance(0.3)
    align = JUSTIFIED if look.align == JUSTIFIED and w.chance(0.5) else LEFT
    for k in range(count):
        letter = string.ascii_lowercase[k % 26]
        mark = w.bullets[level]
        if numbering:
            mark = numbering.format(n=first + k, a=letter, A=letter.upper(), i=ROMAN[k % 20])
        length = int(chars[0] * (chars[1] / chars[0]) ** w.r.random())
        text = w.prose(length) if length > 40 else w.r.choice([w.title, w.phrase])(1, 8)
        item = w.put(
            w.emphasised(text),
            font,
            inset=(indent + step, 0.0),
            marker=w.sheet.rich(mark, font),
            marker_x=indent,
            align=align,
            hyphenate=look.hyphenate,
        )
        if item is None:
            return False
        drawn.append("  " * level + (mark if numbering else "-") + " " + item)
        w.space(gap)
        if (
            nested
            and w.chance(0.4)
            and not _list_items(w, drawn, w.r.randint(1, 3), chars, level + 1, indent + step)
        ):
            return False
    return True


def definitions(w: Writer, count: int) -> bool:
    """Terms with their meaning, as in a glossary: a hanging paragraph each."""
    look = w.look
    hang = w.r.choice([1, 2] if look.gap < 0.3 else [0, 1, 2]) * look.size
    link = w.r.choice([" ", ": ", f" {w.clean('—')} ", ". "])
    font, head = w.sheet.font(), w.sheet.font(1.0, w.r.choice(["bold", "bold", "italic"]))
    for _ in range(count):
        term = w.sheet.rich(w.phrase(1, 3) + link, head)
        text = join(term, w.sheet.rich(w.prose(w.r.randint(30, 260)), font))
        drawn = w.put(text, font, indent=hang, align=look.align, hyphenate=look.hyphenate)
        if not w.emit(drawn):
            return False
        w.space(look.gap)
    return True


def references(w: Writer, count: int) -> bool:
    """A reference list, numbered [1] or 1. or by name."""
    font, italic = w.sheet.font(0.95), w.sheet.font(0.95, "italic")
    form = w.r.choice(["[{}]", "{}.", ""])
    step = font.width("[99] ") if form else 1.5 * w.look.size
    first = w.r.randint(1, 60)
    drawn = []
    for n in range(first, first + count):
        authors = ", ".join(w.value("person") for _ in range(w.r.randint(1, 3)))
        work = w.title(3, 12)
        rest = (
            f". {w.title(1, 4)}, {w.r.randint(1, 90)}({w.r.randint(1, 12)}): {w.r.randint(1, 400)}-"
            f"{w.r.randint(401, 999)}, {w.r.randint(1930, 2026)}."
        )
        parts = join(
            w.sheet.rich(authors + ". ", font), w.sheet.rich(work, italic), w.sheet.rich(rest, font)
        )
        mark = form.format(n)
        if mark:
            marker = w.sheet.rich(mark, font)
            item = w.put(parts, font, inset=(step, 0.0), marker=marker, align=w.look.align)
        else:
            item = w.put(parts, font, indent=step, align=w.look.align)
        if item is None:
            break
        drawn.append(f"{mark} {item}".strip())
        w.space(0.15)
    w.space(0.5)
    return w.emit(("\n" if form else "\n\n").join(drawn))


# --- lines with two ends ---


def pairs(
    w: Writer, count: int, kinds: tuple[str | None, ...] = (None,), layout: str | None = None
) -> bool:
    """Labels with values, a line each. layout: inline, tab, right, leader, underline, or blanks to
    be filled in: printed underscores or dots, which the Markdown keeps."""
    look = w.look
    w.separate()
    layout = layout or w.r.choice(
        ["inline", "tab", "tab", "right", "leader", "underline", "underline", "blanks"]
    )
    label_font = w.sheet.font(1.0, w.r.choice(["regular", "bold"]))
    font = w.sheet.font()
    colon = w.r.choice(["", ":", ":"]) if layout != "inline" else ":"
    tab = w.r.uniform(0.25, 0.5) * w.width
    leading = max(1.0, w.r.uniform(0.9, 1.3)) * w.leading
    drawn = []
    for _ in range(count):
        label, value = w.label() + colon, w.value(w.r.choice(kinds))
        if layout == "blanks" and w.chance(0.85):
            value = w.r.choice("___.") * w.r.randint(5, 40)
        head, tail = w.sheet.rich(label, label_font), w.sheet.rich(value, font)
        head_width, tail_width = w.sheet.measure(head), w.sheet.measure(tail)
        x = {
            "inline": head_width + 0.35 * look.size,
            "blanks": head_width + 0.35 * look.size,
            "tab": max(tab, head_width + 0.5 * look.size),
            "underline": max(tab, head_width + 0.5 * look.size),
        }.get(layout, w.width - tail_width)
        if x + tail_width > w.width or head_width + look.size > x and layout in ("right", "leader"):
            continue
        if not w.fits(leading):
            break
        w.sheet.line(head, w.left, w.y, leading)
        w.sheet.line(tail, w.left + x, w.y, leading)
        if layout == "leader":
            leader(w, w.left + head_width, w.left + x, w.y, leading)
        if layout == "underline":
            w.sheet.rule(
                w.left + x - 0.2 * look.size,
                w.right,
                w.sheet.baseline(w.y, leading) + 0.2 * look.size,
                1,
                90,
            )
        w.y += leading
        drawn.append(f"{label} {value}")
    w.space(look.gap or 0.5)
    return w.emit("\n".join(drawn))


def two_ends(w: Writer, left: str, right: str, style: str = "regular") -> bool:
    """One line with a text at each end of it."""
    head = w.sheet.rich(left, w.sheet.font(1.0, style))
    tail = w.sheet.rich(right, w.sheet.font())
    if w.sheet.measure(head) + w.sheet.measure(tail) + w.look.size > w.width:
        return False
    if not w.fits(w.leading):
        return False
    w.sheet.line(head, w.left, w.y, w.leading)
    w.sheet.line(tail, w.right, w.y, w.leading, RIGHT)
    w.y += w.leading
    return w.emit(f"{head.markdown} {tail.markdown}")


def leader(
    w: Writer, x0: float, x1: float, top: float, leading: float, spread: float | None = None
) -> None:
    """Dots from x0 to x1 on a line."""
    font = w.sheet.font()
    step = spread or font.width(".") * 1.4
    count = int((x1 - x0 - 0.6 * w.look.size) / step)
    if count > 1:
        xs = x1 - 0.3 * w.look.size - step * np.arange(1, count + 1)
        w.sheet.add(
            np.repeat(font.slots("."), count),
            xs.astype(np.float32),
            np.full(count, w.sheet.baseline(top, leading), np.float32),
        )


SUM_LABELS = """
Subtotal|Net|Tax|VAT|VAT 20%|Discount|Shipping|Paid|Zwischensumme|MwSt. 19 %|Rabatt|
Sous-total|TVA|Base|IVA|Imponibile|Totaal excl. btw
""".replace("\n", "").split("|")
TOTAL_LABELS = "Total|Total due|Amount due|Gesamtbetrag|Total TTC|Totale|Balance due".split("|")


def sums(w: Writer) -> bool:
    """Sums under a table as lines of their own, which a gap parts from it: labels and amounts in a
    narrow column up to the right edge, or on the left. Sums within the table's rules and at the
    distance of its rows are rows of it (tables.table)."""
    right, size = w.right, w.look.size
    reach = w.r.uniform(11, 18) * size
    if reach > w.width:
        return False
    w.space(0.3)
    layout = w.r.choice(["left", "ends", "ends", "flush"])
    colon = w.r.choice(["", ":", ":"])
    label_style = w.r.choice(["regular", "bold"])
    labels = w.r.sample(SUM_LABELS, w.r.randint(0, 3)) + [w.r.choice(TOTAL_LABELS)]
    drawn = []
    for label in labels:
        total = label in TOTAL_LABELS and w.chance(0.6)
        head_font = w.sheet.font(1.0, "bold" if total else label_style)
        tail_font = w.sheet.font(1.0, "bold" if total else "regular")
        head = w.sheet.rich(w.clean(label) + colon, head_font)
        tail = w.sheet.rich(w.value("amount"), tail_font)
        head_width, tail_width = w.sheet.measure(head), w.sheet.measure(tail)
        if head_width + tail_width + size > reach:
            continue
        if not w.fits(w.leading):
            break
        start = {"left": w.left, "ends": right - reach}.get(layout, right - tail_width - 0.4 * size)
        w.sheet.line(head, start, w.y, w.leading, RIGHT if layout == "flush" else LEFT)
        if layout == "left":
            w.sheet.line(tail, w.left + max(head_width + size, 0.6 * reach), w.y, w.leading)
        else:
            w.sheet.line(tail, right, w.y, w.leading, RIGHT)
        w.y += w.leading
        drawn.append(f"{head.markdown} {tail.markdown}")
    w.space(w.look.gap or 0.5)
    return w.emit("\n".join(drawn))


def contents(w: Writer, count: int) -> bool:
    """Entries of a table of contents: title, leader, page number."""
    look, font = w.look, w.sheet.font()
    numbered, dots = w.chance(0.5), w.chance(0.75)
    spread = font.width(".") * w.r.uniform(1.0, 3.0)
    bold_top = w.chance(0.5)
    page, part, sub, drawn = w.r.randint(1, 30), 0, 0, []
    for _ in range(count):
        level = 0 if part == 0 or w.chance(0.35) else 1
        part, sub = (part + 1, 0) if level == 0 else (part, sub + 1)
        page += w.r.randint(0, 14)
        number = f"{part}." + (str(sub) if level else "") if numbered else ""
        text = (number + " " if number else "") + w.title(1, 8)
        face = w.sheet.font(1.0, "bold") if bold_top and level == 0 else font
        head, tail = w.sheet.rich(text, face), w.sheet.rich(str(page), face)
        indent = level * 1.5 * look.size
        head_width, tail_width = w.sheet.measure(head), w.sheet.measure(tail)
        if indent + head_width + tail_width + 1.5 * look.size > w.width:
            continue
        if not w.fits(w.leading):
            break
        w.sheet.line(head, w.left + indent, w.y, w.leading)
        w.sheet.line(tail, w.right, w.y, w.leading, RIGHT)
        if dots:
            leader(w, w.left + indent + head_width, w.right - tail_width, w.y, w.leading, spread)
        w.y += w.leading
        drawn.append(f"{text} {page}")
    w.space(1)
    return w.emit("\n".join(drawn))


# --- code and verse ---


def code(w: Writer, count: int) -> bool:
    """Program text in the mono face, where the body is in another; lines that are too wide are left
    out."""
    look = w.look
    if look.body.kind in ("mono", "typewriter"):
        return False
    w.separate()
    font = w.sheet.font(w.r.uniform(0.8, 1.0), "regular", look.mono)
    leading = max(1.05, w.r.uniform(0.85, 1.0) * look.leading) * font.size
    pad = w.r.choice([0.0, 0.6]) * look.size
    lines: list[str] = []
    for line in w.texts.code(w.r, count):
        line = line.expandtabs(4).translate(w.sheet.replacements).rstrip()
        if w.sheet.measure(Rich(line, font.slots(line))) <= w.width - 2 * pad and (
            line or lines and lines[-1]
        ):
            lines.append(line)
    lines = textwrap.dedent("\n".join(lines)).split("\n")
    riches = [(line, Rich(line, font.slots(line))) for line in lines]
    riches = riches[: max(0, int((w.room - 2 * pad) // leading))]
    while riches and not riches[-1][0]:
        riches.pop()
    if not riches:
        return False
    height = len(riches) * leading + 2 * pad
    if pad:
        w.sheet.fill(w.left, w.y, w.right, w.y + height, min(look.paper, w.r.randint(222, 250)))
        if w.chance(0.5):
            w.sheet.frame(w.left, w.y, w.right, w.y + height, 1, 150)
    for i, (_, rich) in enumerate(riches):
        w.sheet.line(rich, w.left + pad, w.y + pad + i * leading, leading)
    w.y += height
    w.space(look.gap or 0.5)
    return w.emit("```\n" + "\n".join(line for line, _ in riches) + "\n```")


UNITS = ("-", "-", "- ", "=", "*", "* ", ".", "~", "#", "+", "-=", ". ")  # "_" is like a rule


def sign_line(w: Writer, joined: bool = False, align: int = LEFT) -> bool:
    """A line of one repeated sign, as typewriters and printers part what they write. joined: part of
    the block before."""
    font = w.sheet.font()
    unit = w.r.choice(UNITS)
    end = " x" if unit == "- " and w.chance(0.4) else ""
    wide = w.sheet.measure(w.sheet.rich(unit, font))
    most = int((w.width - w.sheet.measure(w.sheet.rich(end + " ", font))) / wide)
    if most < 5:
        return False
    count = min(most, w.r.choice([60, int(5 * 12 ** w.r.random())]))
    return w.lines([(unit * count).strip() + end], joined=joined, align=align)


def sentences(w: Writer) -> bool:
    """Short lines without a gap between them, none of which fills the measure: one block."""
    most = min(75, int(w.width / (0.62 * w.look.size)))
    if most < 34:
        return False
    texts = [w.prose(w.r.randint(30, most)) for _ in range(w.r.randint(2, 9))]
    done = w.lines(texts)
    w.space(max(0.5, w.look.gap))
    return done


def verse(w: Writer) -> bool:
    """A stanza: short lines that stay lines."""
    count = w.r.randint(2, 8)
    most = max(2, min(9, int(w.width / (3.2 * w.look.size))))
    texts = [w.title(min(3, most), most) for _ in range(count)]
    step = w.r.choice([0, 0, 1.5]) * w.look.size
    done = w.lines(
        texts,
        style=w.r.choice(["regular", "regular", "italic"]),
        indents=[step * (i % 2) for i in range(count)],
    )
    w.space(0.9)
    return done
