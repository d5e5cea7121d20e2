"""Tables, boxed forms, receipts and check boxes: blocks whose text stands in cells. Lengths are
canvas pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drawing.glyphs import Font
from drawing.linebreak import CENTRED, LEFT, RIGHT, Lines
from drawing.sheet import Rich
from drawing.writer import Writer

NUMBERS = ("number", "amount", "percent")
SHORT = ("date", "time", "code", "person", "company", "city", "phone", "email")
TOTALS = ("Total", "Total due", "Sum", "Summe", "Gesamt", "Balance", "Totale")
SUBTOTALS = ("Subtotal", "Tax", "VAT", "Discount", "Shipping", "Zwischensumme", "MwSt.", "TVA")


@dataclass
class Column:
    kind: str  # a kind of texts.value(), "phrase", "prose" or "index"
    header: str
    align: int
    header_align: int | None = None  # None: as the cells
    width: float = 0.0  # with padding


@dataclass
class Rules:
    """How a table is drawn."""

    rows: bool  # a rule under each row
    columns: bool
    outer: bool
    header: bool  # a rule under the header
    zebra: bool
    header_fill: int | None  # grey value behind the header


def _rules(w: Writer) -> Rules:
    style = w.r.choice(
        ["grid", "grid", "rows", "rows", "header", "header", "booktabs", "none", "zebra", "outer"]
    )
    fill = w.r.choice([None, None, None, w.r.randint(200, 240), w.r.randint(0, 80)])
    return Rules(
        rows=style in ("grid", "rows"),
        columns=style == "grid",
        outer=style in ("grid", "outer", "booktabs"),
        header=style not in ("none", "zebra"),
        zebra=style == "zebra" or w.chance(0.06),
        header_fill=fill if style != "booktabs" else None,
    )


def _cell_text(w: Writer, kind: str, row: int) -> str:
    if w.chance(0.04):
        return w.r.choice(["", "-", w.clean("–") or "-", "n/a"])
    if kind == "index":
        return str(row + 1)
    if kind == "phrase":
        return w.title(1, 4)
    if kind == "prose":
        return w.title(4, 16)
    return w.value(kind)


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _columns(w: Writer, count: int) -> list[Column]:
    kinds = [w.r.choice(["phrase", "phrase", "phrase", "index", "code", "date", "person", "prose"])]
    for _ in range(count - 1):
        number, short = w.r.choice(NUMBERS), w.r.choice(SHORT)
        kinds.append(w.r.choice([number, number, short, "phrase", "prose"]))
    numeric = w.r.choice([RIGHT, RIGHT, CENTRED, LEFT])
    other = w.r.choice([LEFT, LEFT, LEFT, CENTRED])
    columns = []
    for kind in kinds:
        header = w.label() if w.chance(0.5) else w.title(1, 3)
        align = numeric if kind in NUMBERS else other
        columns.append(Column(kind, header.replace("|", "/"), align))
    if w.chance(0.25):
        for column in columns:
            column.align = w.r.choice([LEFT, RIGHT])
    return columns


Cell = tuple[Rich, Lines]  # a cell's text, and its lines


class _Table:
    """One table: its columns, and the drawing of its rows at the writing position."""

    def __init__(self, w: Writer, columns: list[Column], size: float):
        self.w, self.columns, self.rules = w, columns, _rules(w)
        self.font, self.bold = w.sheet.font(size), w.sheet.font(size, "bold")
        least = 0.25 if self.rules.columns else 0.45  # between columns without rules
        self.pad = w.r.uniform(least, 0.75) * w.look.size
        self.leading = 1.15 * self.font.size
        self.extra = w.r.uniform(0.1, 0.9) * self.font.size  # height of a row beyond its lines
        self.left = self.right = 0.0
        fill = self.rules.header_fill
        self.header_ink = w.look.paper if fill is not None and fill < 120 else None

    def _measure(self, texts: list[str], font: Font) -> np.ndarray:
        """The widths of columns that would just hold the texts."""
        return self.w.sheet.widths(texts, font) + 2 * self.pad + 1

    def set_widths(self, rows: list[list[str]]) -> bool:
        """Column widths from the texts; too wide ones wrap. False if the table cannot fit."""
        room = self.w.width
        headers = self._measure([column.header for column in self.columns], self.bold)
        for i, column in enumerate(self.columns):
            cells = self._measure([row[i] for row in rows], self.font)
            column.width = float(max(headers[i], cells.max()))
        if sum(column.width for column in self.columns) > room and not self._wrap(rows, room):
            return False
        total = sum(column.width for column in self.columns)
        widest = max(column.width for column in self.columns)
        if self.w.chance(0.25) and widest * len(self.columns) <= room:  # columns of equal width
            for column in self.columns:
                column.width = widest
            total = widest * len(self.columns)
        target = self.w.r.choice([total, min(room, total * self.w.r.uniform(1, 1.5)), room])
        for column in self.columns:
            column.width += (target - total) / len(self.columns)
        return True

    def drop_column(self, rows: list[list[str]]) -> None:
        """Takes out the widest column but the first."""
        i = max(range(1, len(self.columns)), key=lambda i: self.columns[i].width)
        for row in [self.columns, *rows]:
            del row[i]

    def place(self) -> None:
        """The table's left and right edge in the column where it is drawn."""
        width = sum(column.width for column in self.columns)
        self.left = self.w.left + self.w.r.choice([0.0, 0.0, 0.5]) * (self.w.width - width)
        self.right = self.left + width

    def _wrap(self, rows: list[list[str]], room: float) -> bool:
        """Narrows the columns of running text, none below its longest word."""
        wrapped, least = [], {}
        for i, column in enumerate(self.columns):
            if column.kind in ("phrase", "prose"):
                words = [word for row in rows for word in row[i].split()]
                cells = self._measure(words or [""], self.font)
                header = self._measure(column.header.split() or [""], self.bold)
                wrapped.append(column)
                least[id(column)] = float(max(cells.max(), header.max()))
            else:
                room -= column.width
        if not wrapped or room < sum(least.values()):
            return False
        most = room
        while sum(column.width for column in wrapped) > room:
            most *= 0.92
            for column in wrapped:
                column.width = max(least[id(column)], min(column.width, most))
        return True

    def cells(self, texts: list[str], font: Font) -> list[Cell]:
        """The texts of a row, broken into lines."""
        sheet = self.w.sheet
        return [
            sheet.break_lines(sheet.rich(text, font), column.width - 2 * self.pad)
            for text, column in zip(texts, self.columns)
        ]

    def height(self, cells: list[Cell]) -> float:
        return max(1, max(len(lines.end) for _, lines in cells)) * self.leading + self.extra

    def draw(self, cells: list[Cell], ink: int | None = None, header: bool = False) -> str:
        """Draws a row, moves below it, and returns its Markdown."""
        w, x, texts = self.w, self.left, []
        first = w.sheet.baseline(w.y + self.extra / 2, self.leading, self.font.size)
        for (rich, lines), column in zip(cells, self.columns):
            free = column.width - 2 * self.pad - lines.right
            align = column.align
            if header and column.header_align is not None:
                align = column.header_align
            shift = x + self.pad + {LEFT: 0.0, RIGHT: 1.0, CENTRED: 0.5}[align] * free
            drawn = lines.line >= 0
            at = lines.line[drawn]
            xs = (shift[at] + lines.x[drawn]).astype(np.float32)
            baselines = np.round(first + self.leading * at).astype(np.float32)
            w.sheet.add(rich.slots[drawn], xs, baselines, ink)
            texts.append(rich.markdown)
            x += column.width
        w.y += self.height(cells)
        return _markdown_row(texts)

    def draw_group(self, start: int, end: int, text: str) -> str:
        """A row with one header over the columns start .. end - 1."""
        w = self.w
        x0 = self.left + sum(column.width for column in self.columns[:start])
        x1 = x0 + sum(column.width for column in self.columns[start:end])
        middle, top = (x0 + x1) / 2, w.y + self.extra / 2
        rich = w.sheet.rich(text, self.bold)
        w.sheet.line(rich, middle, top, self.leading, CENTRED, self.header_ink, self.bold.size)
        w.y += self.leading + self.extra
        if not self.rules.columns:
            w.sheet.rule(x0 + self.pad, x1 - self.pad, w.y - 1, 1, self.header_ink)
        return _markdown_row([text if i == start else "" for i in range(len(self.columns))])

    def totals(self) -> list[list[Cell]]:
        """Last rows with sums, in the columns, pitch and rules of the table."""
        r, rows = self.w.r, []
        widest = max(range(len(self.columns) - 1), key=lambda i: self.columns[i].width)
        place = r.choice([0, widest, len(self.columns) - 2])
        labels = r.sample(SUBTOTALS, r.choice([0, 0, 1, 2])) + [r.choice(TOTALS)]
        for label in labels:
            texts = [""] * len(self.columns)
            texts[place] = self.w.clean(label)
            if self._measure([texts[place]], self.bold)[0] > self.columns[place].width:
                texts[place], texts[widest] = "", texts[place]
            texts[-1] = self.w.value(self.columns[-1].kind)
            rows.append(self.cells(texts, self.bold if label is labels[-1] else self.font))
        return rows

    def draw_rules(self, top: float, header_top: float, edges: list[float]) -> None:
        """top: of the table; header_top: of the row of column headers; edges: below each row."""
        sheet, rules, left, right = self.w.sheet, self.rules, self.left, self.right
        thickness = self.w.r.choice([1, 1, 1, 2]) * max(1, self.w.look.size / 20)
        grey = self.w.r.choice([self.w.look.ink, self.w.look.ink, 120, 180])
        if rules.header:
            sheet.rule(left, right, edges[0] - 1, thickness, grey)
        for y in edges[1:] if rules.rows else []:
            sheet.rule(left, right, y, thickness, grey)
        if rules.outer:
            sheet.rule(left, right, top, thickness, grey)
            sheet.rule(left, right, edges[-1], thickness, grey)
        if rules.columns:
            x = left
            for column in self.columns[:-1]:
                x += column.width
                sheet.stroke(x, header_top, edges[-1], thickness, grey)
            sheet.stroke(left, top, edges[-1], thickness, grey)
            sheet.stroke(right, top, edges[-1], thickness, grey)


def table(
    w: Writer,
    columns: int | None = None,
    rows: int | None = None,
    kinds: list[Column] | None = None,
    size: float | None = None,
    totals: bool = False,
) -> bool:
    """A table; rows that do not fit are left out.

    columns: how many, or kinds: which; size: of the text, relative to the body; totals: last rows
    with sums."""
    w.separate()
    most = max(2, int(w.width / (6 * w.look.size)))
    columns = min(columns or w.r.randint(2, 7), most)
    size = size or w.r.choice([1.0, 1.0, 0.9])
    rows = min(rows or w.r.randint(2, 12), max(1, int(w.room / (1.2 * size * w.look.size))))
    layout = _Table(w, kinds or _columns(w, columns), size)
    texts = []
    for row in range(rows):
        cells = [_cell_text(w, column.kind, row) for column in layout.columns]
        cells[0] = cells[0] or "-"  # so that every row shows
        texts.append([cell.replace("|", "/") for cell in cells])
    while not layout.set_widths(texts):
        if len(layout.columns) == 2:
            return False
        layout.drop_column(texts)

    cols, rules = layout.columns, layout.rules
    header_font = layout.bold if w.chance(0.75) else layout.font
    header = layout.cells([column.header for column in cols], header_font)
    body = [layout.cells(row, layout.font) for row in texts]
    if not rules.rows and any(len(lines.end) > 1 for row in body for _, lines in row):
        # Else nothing tells where a row of several lines ends.
        layout.extra = max(layout.extra, 0.5 * layout.font.size)
    group = _group(layout) if len(cols) > 2 and w.chance(0.12) else None
    group_height = layout.leading + layout.extra if group else 0.0
    head_height = group_height + layout.height(header)
    if not w.fits(head_height + layout.height(body[0]) + 1):
        return False
    layout.place()
    top = w.y
    if rules.header_fill is not None:
        w.sheet.fill(layout.left, top, layout.right, top + head_height, rules.header_fill)
    lines = [layout.draw_group(*group)] if group else []
    if w.chance(0.3):
        align = w.r.choice([LEFT, LEFT, CENTRED])
        for column in cols:
            column.header_align = align
    lines.append(layout.draw(header, layout.header_ink, header=True))
    lines.insert(1, "|" + " --- |" * len(cols))
    edges = [w.y]
    if totals and cols[-1].kind in NUMBERS:
        body += layout.totals()
    for number, row in enumerate(body):
        height = layout.height(row)
        if w.y + height > w.bottom:
            break
        if rules.zebra and number % 2:
            w.sheet.fill(layout.left, w.y, layout.right, w.y + height, min(w.look.paper, 232))
        lines.append(layout.draw(row))
        edges.append(w.y)
    layout.draw_rules(top, top + group_height, edges)
    closed = rules.rows or rules.outer or rules.zebra  # where the table ends is seen
    w.space(w.r.choice([0.4, 0.6, w.look.gap + 0.6] if closed else [0.9, w.look.gap + 0.8]))
    return w.emit("\n".join(lines))


def _group(layout: _Table) -> tuple[int, int, str] | None:
    """A header over several columns: first column, one past the last, text; None if too wide."""
    w, columns = layout.w, layout.columns
    start = w.r.randint(0, len(columns) - 2)
    end = w.r.randint(start + 2, len(columns))
    text = w.title(1, 4).replace("|", "/")
    room = sum(column.width for column in columns[start:end])
    fits = w.sheet.measure(w.sheet.rich(text, layout.bold)) < 0.9 * room
    return (start, end, text) if fits else None


def receipt_lines(w: Writer, count: int, kinds: tuple[str, ...] = ("amount",)) -> bool:
    """Article, sometimes a quantity, and a price at the right edge; a line each."""
    font = w.sheet.font()
    w.separate()
    drawn = []
    for _ in range(count):
        text = w.title(1, 4)
        if w.chance(0.3):
            text = f"{w.r.randint(1, 12)} {w.clean(w.r.choice(['x', '×', 'Stk']))} {text}"
        price = w.value(w.r.choice(kinds)) + w.r.choice(["", "", " A", " B"])
        head, tail = w.sheet.rich(text, font), w.sheet.rich(price, font)
        if w.sheet.measure(head) + w.sheet.measure(tail) + w.look.size > w.width:
            continue
        if not w.fits(w.leading):
            break
        w.sheet.line(head, w.left, w.y, w.leading)
        w.sheet.line(tail, w.right, w.y, w.leading, RIGHT)
        w.y += w.leading
        drawn.append(f"{text} {price}")
    w.space(0.5)
    return w.emit("\n".join(drawn))


def form_grid(w: Writer, rows: int) -> bool:
    """Boxes with a small label above the value; a line "label value" each, row by row."""
    small, font = (
        w.sheet.font(0.72),
        w.sheet.font(1.0, w.r.choice(["regular", "bold"]), w.r.choice([w.look.body, w.look.mono])),
    )
    label_leading, leading = 1.25 * small.size, 1.25 * font.size
    height = label_leading + leading + 0.3 * w.look.size
    grey = w.r.choice([w.look.ink, 110])
    w.separate()
    drawn = []
    for _ in range(rows):
        if not w.fits(height + 2):
            break
        cuts = sorted(w.r.uniform(0.2, 0.8) for _ in range(w.r.choice([0, 1, 1, 2])))
        edges = [w.left + cut * w.width for cut in [0.0, *cuts, 1.0]]
        for x0, x1 in zip(edges, edges[1:]):
            label, value = w.sheet.rich(w.label(), small), w.sheet.rich(w.value(), font)
            w.sheet.frame(x0, w.y, x1 + 1, w.y + height + 1, 1, grey)
            if max(w.sheet.measure(label), w.sheet.measure(value)) > x1 - x0 - w.look.size:
                continue
            x = x0 + 0.4 * w.look.size
            w.sheet.line(label, x, w.y + 0.1 * w.look.size, label_leading, size=small.size)
            filled = w.chance(0.85)
            if filled:
                w.sheet.line(
                    value, x, w.y + label_leading + 0.1 * w.look.size, leading, size=font.size
                )
            drawn.append(f"{label.markdown} {value.markdown}" if filled else label.markdown)
        w.y += height
    w.space(0.6)
    return w.emit("\n".join(drawn))


def check_boxes(w: Writer, rows: int) -> bool:
    """Lines with drawn boxes, empty, ticked or crossed: ☐ ☑ ☒ in the Markdown."""
    font, side = w.sheet.font(), round(0.75 * w.look.size)
    w.separate()
    columns = w.r.choice([1, 1, 2, 3, 4])
    most_words = 6 if columns == 1 else 2
    drawn = []
    for _ in range(rows):
        if not w.fits(1.2 * w.leading):
            break
        line = []
        for column in range(columns):
            x = w.left + column * w.width / columns
            rich = w.sheet.rich(w.title(1, most_words), font)
            if w.sheet.measure(rich) + 1.8 * w.look.size > w.width / columns:
                continue
            state = w.r.choice("☐☐☑☒")
            _draw_box(
                w, x, w.sheet.baseline(w.y, w.leading) - side + round(0.06 * side), side, state
            )
            w.sheet.line(rich, x + 1.3 * w.look.size, w.y, w.leading)
            line.append(f"{state} {rich.markdown}")
        w.y += 1.2 * w.leading
        if line:
            drawn.append(" ".join(line))
    w.space(0.5)
    return w.emit("\n".join(drawn))


def _draw_box(w: Writer, x: float, y: float, side: int, state: str) -> None:
    x = round(x) + 1
    thickness = max(1, side // 12)
    w.sheet.frame(x, y, x + side, y + side, thickness)
    a, b = x + 0.2 * side, x + 0.8 * side
    if state == "☒":
        w.sheet.polyline([(a, y + 0.2 * side), (b, y + 0.8 * side)], thickness, w.look.ink)
        w.sheet.polyline([(a, y + 0.8 * side), (b, y + 0.2 * side)], thickness, w.look.ink)
    elif state == "☑":
        w.sheet.polyline(
            [(a, y + 0.5 * side), (x + 0.42 * side, y + 0.78 * side), (b, y + 0.15 * side)],
            thickness,
            w.look.ink,
        )
