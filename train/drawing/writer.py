"""The writing position on a sheet, and the blocks of running text: each draws itself and adds its
Markdown.

A block that does not fit is cut at a line; its Markdown is then what was drawn. All lengths are
canvas pixels unless a name says ems (multiples of the body size) or lines (multiples of the body's
line distance).
"""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from drawing.glyphs import Font
from drawing.linebreak import LEFT
from drawing.sheet import Look, Rich, Sheet, join
from foreign.scripts import Script
from text.texts import Style, Texts

LABELS = """
Invoice No|Date|Due date|Customer No|Account|Order|Ship to|Bill to|Phone|E-mail|
Reference|Payment terms|Item|Status|Department|Project|Version|Author|Weight|Height|
Policy No|Address|City|Country|Currency|Discount|Notes|Signature|Section|Period|Name|
First name|Surname|Date of birth|Nationality|Occupation|Employer|Title|Subject|From|To|
Cc|Rechnungsnummer|Datum|Kundennummer|Betrag|Anschrift|Geburtsdatum|Ort|Telefon|
Ansprechpartner|Fällig am|Facture n°|Nom|Prénom|Adresse|Téléphone|Montant|Échéance|
Fecha|Nombre|Dirección|Teléfono|Importe|Firma|Data|Indirizzo|Cognome|Importo|Naam|
Adres|Bedrag|Datum van afgifte|Serial|Quantity|Unit|Route|Gate|Seat|Passenger|
Diagnosis|Patient|Dose|Physician|Tax ID|VAT|IBAN|BIC|Beneficiary|Rate|Balance|Total|
Subtotal
""".replace("\n", "").split("|")

NOTE_SIZE = 0.85  # of footnotes, relative to the body


@dataclass
class Heading:
    """How headings of one level look on a page."""

    size: float  # relative to the body
    style: str
    align: int = LEFT
    case: str = "as is"  # as is | upper | small caps
    tracking: float = 0.0  # ems
    underline: bool = False
    band: bool = False  # light text on a dark band
    ink: int | None = None


@dataclass
class Writer:
    """One page in the making: where it is written, and its Markdown so far."""

    r: random.Random
    texts: Texts
    style: Style  # language, sources and mixture of the page's text
    sheet: Sheet
    columns: list[tuple[float, float]]  # left and right edge of each
    top: float
    bottom: float
    headings: list[Heading]
    bullets: list[str]
    stop: float = math.inf  # no new block starts below this
    emphasis: float = 0.0  # share of paragraphs with bold or italic words
    repeats: bool = False  # a page that says things again and again
    echoes: float = 0.0  # share of its texts in which phrases of the page come back and go on otherwise
    scripts: list[Script] = field(default_factory=list)  # that nobody is asked to read
    unreadable: float = 0.0  # share of blocks that cannot be read
    scale: float = 1.0  # canvas pixels per pixel of the image
    column: int = 0
    y: float = 0.0
    out: list[str] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)  # blocks at the page's foot, read last
    notes: list[str] = field(default_factory=list)  # footnotes still to be referred to
    drawn_notes: list[str] = field(default_factory=list)  # footnotes that have their mark
    numbers: list[int] = field(default_factory=lambda: [0, 0, 0])
    _last_prose: str = ""
    _said: list[str] = field(default_factory=list)  # words of its prose
    _phrases: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.y = self.top

    # --- position ---

    @property
    def look(self) -> Look:
        return self.sheet.look

    @property
    def leading(self) -> float:
        return self.look.leading * self.look.size

    @property
    def left(self) -> float:
        return self.columns[self.column][0]

    @property
    def right(self) -> float:
        return self.columns[self.column][1]

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def room(self) -> float:
        """Height left in this column."""
        return self.bottom - self.y

    @property
    def full(self) -> bool:
        last = self.column == len(self.columns) - 1
        return last and (self.y > self.stop or self.room < self.leading)

    def lines_left(self, leading: float) -> int:
        """Lines that fit here and in the columns to come."""
        whole_columns = len(self.columns) - 1 - self.column
        per_column = int((self.bottom - self.top + 0.01) // leading)
        return int((self.room + 0.01) // leading) + whole_columns * per_column

    def next_column(self) -> bool:
        if self.column == len(self.columns) - 1:
            return False
        self.column += 1
        self.y = self.top
        return True

    def space(self, lines: float) -> None:
        """Moves down, except at the top of a column."""
        if self.y > self.top:
            self.y += lines * self.leading

    def separate(self) -> None:
        """Room before a block that is not a paragraph, on pages whose paragraphs have none between
        them."""
        if self.look.gap < 0.3 and self.out:
            self.space(0.4)

    def fits(self, height: float) -> bool:
        """Whether a block of this height fits here, or in the next column, where the position then
        moves."""
        while self.room < height:
            if self.bottom - self.top < height or not self.next_column():
                return False
        return True

    @contextmanager
    def frame(self, left: float, right: float, top: float, bottom: float):
        """Writes into a part of the page meanwhile; the position is afterwards as before."""
        names = "columns", "column", "top", "bottom", "y", "stop"
        saved = {name: getattr(self, name) for name in names}
        self.columns, self.column = [(left, right)], 0
        self.top, self.bottom, self.y, self.stop = top, bottom, top, math.inf
        yield
        for name, value in saved.items():
            setattr(self, name, value)

    # --- text of the page ---

    def chance(self, share: float) -> bool:
        return self.r.random() < share

    def clean(self, text: str) -> str:
        return self.sheet.clean(text)

    def prose(self, chars: int) -> str:
        if self.repeats and self._last_prose and self.chance(0.5):
            return self._last_prose
        text = self.clean(self.texts.prose(self.r, max(30, chars), self.style))
        if self.repeats and self.chance(0.5):
            sentence = text[: text.find(". ") + 1] or text
            if len(sentence) > 300:
                sentence = sentence[:300].rsplit(" ", 1)[0]
            text = " ".join([sentence] * self.r.randint(2, 8))
        if self.echoes:
            text = self._echoed(text)
        self._last_prose = text
        return text

    def _echoed(self, text: str) -> str:
        """The text, with runs of its words replaced by runs that stand before it on the page or in
        itself: what follows a phrase cannot be known from where the phrase stood first."""
        words = text.split(" ")
        if self.chance(self.echoes):
            said = self._said + words
            for _ in range(self.r.randint(1, 1 + len(words) // 15)):
                start, at = self.r.randrange(len(said)), self.r.randrange(len(words))
                run = said[start : start + self.r.randint(2, 25)]
                words[at : at + len(run)] = run
        self._said += words
        return " ".join(words)

    def phrase(self, least: int, most: int) -> str:
        if self._phrases and self.chance(0.5 * self.echoes):
            return " ".join(self.r.choice(self._phrases).split(" ")[:most])
        text = self.clean(self.texts.phrase(self.r, least, most, self.style)) or "x"
        if self.echoes:
            self._phrases.append(text)
        return text

    def title(self, least: int, most: int) -> str:
        text = self.phrase(least, most)
        return self.clean(text[:1].upper() + text[1:])

    def value(self, kind: str | None = None) -> str:
        return self.clean(self.texts.value(self.r, kind)) or "0"

    def label(self) -> str:
        return self.clean(self.r.choice(LABELS)) if self.chance(0.6) else self.title(1, 3)

    # --- setting text ---

    def put(
        self,
        text: Rich,
        font: Font,
        *,
        leading: float | None = None,
        align: int = LEFT,
        first_indent: float = 0.0,
        indent: float = 0.0,
        inset: tuple[float, float] = (0.0, 0.0),
        hyphenate: bool = False,
        whole: bool = False,
        marker: Rich | None = None,
        marker_x: float = 0.0,
        ink: int | None = None,
        underline: bool = False,
        background: int | None = None,
    ) -> str | None:
        """Sets text at the writing position and over the columns to come; returns the Markdown of
        what was drawn, None if nothing.

        inset: free space left and right; whole: all of it must fit in this column; marker: set on
        the first line, marker_x from the column's edge; background: grey value of a band behind the
        lines."""
        leading = leading or self.look.leading * font.size
        most = int((self.room + 0.01) // leading) if whole else self.lines_left(leading)
        width = self.width - sum(inset)
        if most < 1 or width < 2 * font.size:
            return None
        hyphen = font.width("-") if hyphenate else 0.0
        text, lines = self.sheet.break_lines(text, width, align, first_indent, indent, hyphen, most)
        count = len(lines.end)
        end = int(lines.end[-1]) if count else 0
        if count == 0 or (whole and text.chars[end:].strip()):
            return None
        line_x, line_top = np.empty(count, np.float32), np.empty(count, np.float32)
        done = 0
        while done < count:
            here = min(count - done, int((self.room + 0.01) // leading))
            if here < 1:
                self.next_column()
                continue
            line_x[done : done + here] = self.left + inset[0]
            line_top[done : done + here] = self.y + leading * np.arange(here)
            self.y += leading * here
            done += here
        if background is not None:
            self.sheet.fill(
                self.left,
                line_top[0] - 0.15 * leading,
                self.right,
                line_top[-1] + 1.15 * leading,
                background,
            )
        baselines = np.round(line_top + self.sheet.baseline(0, leading, font.size))
        drawn = lines.line >= 0
        at = lines.line[drawn]
        self.sheet.add(text.slots[drawn], line_x[at] + lines.x[drawn], baselines[at], ink)
        ends = lines.hyphenated
        if ends.any():
            slots = np.repeat(font.slots("-"), ends.sum())
            self.sheet.add(slots, (line_x + lines.right)[ends] - hyphen, baselines[ends], ink)
        if marker is not None:
            self.sheet.write(marker, line_x[0] - inset[0] + marker_x, baselines[0], ink=ink)
        if underline:
            for left, right, baseline in zip(line_x + lines.left, line_x + lines.right, baselines):
                self.sheet.rule(
                    left, right, baseline + max(2, 0.14 * font.size), font.size / 16, ink
                )
        return text.part(0, end).markdown.strip()

    def emit(self, block: str | None) -> bool:
        """Adds a block to the Markdown; False if there is none."""
        if not block:
            return False
        self.out.append(block)
        return True

    def emphasised(self, text: str, size: float = 1.0, base: str = "regular") -> Rich:
        """Text in the body face, on some calls with words in bold, italics or the mono face."""
        font = self.sheet.font(size, base)
        words = text.split(" ")
        if len(words) < 4 or not self.chance(self.emphasis):
            return self.sheet.rich(text, font)
        start = self.r.randrange(len(words) - 1)
        end = min(len(words), start + self.r.randint(1, 5))
        other = self.r.choice(["bold", "italic", "italic", "bolditalic", "mono"])
        middle = " ".join(words[start:end])
        if other == "mono":
            span = self.sheet.font(0.9 * size, "regular", self.look.mono)
        else:
            span = self.sheet.font(size, other)
        parts = [self.sheet.rich(middle, span)]
        if start:
            parts.insert(0, self.sheet.rich(" ".join(words[:start]) + " ", font))
        if end < len(words):
            parts.append(self.sheet.rich(" " + " ".join(words[end:]), font))
        return join(*parts)

    # --- blocks ---

    def paragraph_length(self) -> int:
        """Log-uniform 30 to 3000 characters, and not much more than there is room for."""
        room = self.lines_left(self.leading) * self.width / (0.4 * self.look.size)
        return int(min(30 * 100 ** self.r.random(), room + 40))

    def paragraph(
        self,
        chars: int | None = None,
        text: str | None = None,
        style: str = "regular",
        size: float = 1.0,
        inset: tuple[float, float] = (0.0, 0.0),
        run_in: str = "",
        align: int | None = None,
    ) -> bool:
        """A paragraph; run_in: a bold or italic heading at its start. A waiting footnote gets its
        mark."""
        look = self.look
        text = text or self.prose(chars or self.paragraph_length())
        body = self.emphasised(text, size, style)
        if run_in:
            head = self.sheet.font(size, self.r.choice(["bold", "bold", "italic"]))
            body = join(self.sheet.rich(self.clean(run_in) + " ", head), body)
        mark_end = -1
        if self.notes and " " in text[:150] and self.chance(0.6):
            at = body.chars.find(" ", self.r.randrange(80))
            if at > 0:
                mark = self.sheet.superscript(str(len(self.drawn_notes) + 1), size)
                body = join(body.part(0, at), mark, body.part(at, len(body.chars)))
                mark_end = at + 1
        font = self.sheet.font(size, style)
        drawn = self.put(
            body,
            font,
            align=look.align if align is None else align,
            first_indent=look.first_indent * look.size,
            indent=look.hanging * look.size,
            inset=inset,
            hyphenate=look.hyphenate,
        )
        if drawn and mark_end > 0 and len(drawn) >= mark_end:
            self.drawn_notes.append(self.notes.pop(0))
        self.space(look.gap)
        return self.emit(drawn)

    def notes_height(self, notes: list[str]) -> float:
        """The height of footnotes at the page's foot, with the rule above them."""
        font = self.sheet.font(NOTE_SIZE)
        count = 1
        for note in notes:
            rich = self.sheet.rich("00 " + note, font)
            count += len(self.sheet.break_lines(rich, self.width)[1].end)
        return count * 1.1 * font.size

    def footnotes(self, top: float, bottom: float) -> None:
        """The notes that the text referred to, at the foot of the page; one block."""
        if not self.drawn_notes:
            return
        font = self.sheet.font(NOTE_SIZE)
        with self.frame(self.columns[0][0], self.columns[-1][1], top, bottom):
            self.sheet.rule(self.left, self.left + 0.3 * self.width, self.y - 0.3 * self.leading)
            gap = self.r.choice(["", " "])
            notes = []
            for number, note in enumerate(self.drawn_notes, 1):
                mark = self.sheet.superscript(str(number), NOTE_SIZE)
                text = join(mark, self.sheet.rich(gap + note, font))
                notes.append(self.put(text, font, leading=1.1 * font.size))
            self.emit("\n".join(note for note in notes if note))

    def heading(
        self,
        level: int,
        text: str | None = None,
        number: bool = False,
        words: tuple[int, int] = (1, 8),
    ) -> bool:
        look, heading = self.look, self.headings[level - 1]
        text = self.clean(text) if text else self.title(*words)
        if number:
            self.numbers[level - 1] += 1
            self.numbers[level:] = [0] * (3 - level)
            section = ".".join(str(max(1, n)) for n in self.numbers[:level])
            if level == 1 and self.chance(0.5):
                section += "."
            text = f"{section} {text}"
        font = self.sheet.font(heading.size, heading.style, look.head)
        if heading.case != "as is":
            text = self.clean(text.upper())
        if heading.case == "small caps":
            rich = self.small_caps(text, heading)
        else:
            rich = self.sheet.rich(text, font)
        if self.room < 1.3 * font.size + 2 * self.leading and not self.next_column():
            return False
        self.space(self.r.choice([0.3, 0.6, 1.0]))
        saved = look.tracking
        look.tracking = heading.tracking * heading.size
        inset = (0.4 * look.size, 0.4 * look.size) if heading.band else (0.0, 0.0)
        drawn = self.put(
            rich,
            font,
            leading=max(1.1, min(look.leading, 1.3)) * font.size,
            align=heading.align,
            inset=inset,
            whole=True,
            ink=look.paper if heading.band else heading.ink,
            underline=heading.underline,
            background=self.r.randrange(90) if heading.band else None,
        )
        look.tracking = saved
        if drawn:
            self.space(self.r.choice([0.2, 0.4, 0.6]))
        return self.emit(drawn and "#" * level + " " + drawn)

    def small_caps(self, text: str, heading: Heading) -> Rich:
        """Capitals, the first letter of each word larger; text is in capitals already."""
        large = self.sheet.font(heading.size, heading.style, self.look.head)
        small = self.sheet.font(0.8 * heading.size, heading.style, self.look.head)
        words = [
            join(self.sheet.rich(word[:1], large), self.sheet.rich(word[1:] + " ", small))
            for word in text.split(" ")
        ]
        whole = join(*words)
        return whole.part(0, len(whole.chars) - 1)

    def lines(
        self,
        texts: list[str],
        *,
        style: str = "regular",
        size: float = 1.0,
        align: int = LEFT,
        indents: list[float] | None = None,
        joined: bool = False,
    ) -> bool:
        """Lines that stay lines (addresses, verse, receipts); those that are too wide are left out.
        One block, or with `joined` more lines of the block before, which stands right above."""
        font = self.sheet.font(size, style)
        leading = self.look.leading * font.size
        if not joined:
            self.separate()
        drawn = []
        for i, text in enumerate(map(self.clean, texts)):
            rich = self.sheet.rich(text, font)
            indent = indents[i] if indents else 0.0
            if not text or self.sheet.measure(rich) + indent > self.width:
                continue
            if self.room < leading and not self.next_column():
                break
            line = self.put(rich, font, align=align, inset=(indent, 0.0), whole=True)
            if line is None:
                break
            drawn.append(line)
        if joined and self.out and drawn:
            self.out[-1] += "\n" + "\n".join(drawn)
            return True
        return self.emit("\n".join(drawn))
