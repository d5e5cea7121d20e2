"""Pages as typewriters and mail programs make them: each function fills the frame of a writer with
one page."""

from __future__ import annotations

from collections.abc import Iterator

from drawing import blocks
from drawing.linebreak import CENTRED, LEFT
from drawing.sheet import Rich
from drawing.writer import Writer
from kinds.menus import address, fill, introduced_list, paragraph, rule, signs, some_list

# --- transcripts ---


def transcript(w: Writer) -> None:
    """A court reporter's page: numbered lines at a wide, even distance, as many as there is room
    for up to 25. Each is a line of the Markdown with its number first, empty ones too."""
    count = max(1, min(25, int(w.room / (1.15 * w.look.size))))
    pitch = min(2.4 * w.look.size, w.room / count)
    numbers = w.sheet.font()
    number_right = w.left + numbers.width("25") * 1.1
    left = number_right + w.r.uniform(1.5, 3) * w.look.size
    if w.chance(0.2):
        for x in (left - 0.8 * w.look.size, left - 0.5 * w.look.size)[: w.r.randint(1, 2)]:
            w.sheet.stroke(x, w.top, w.top + count * pitch, 1)
    drawn, top = [], w.y
    with w.frame(left, w.right, w.y, w.bottom):
        script = _transcript_lines(w, count)
        for number in range(1, count + 1):
            y = top + (number - 1) * pitch
            text = next(script, None)
            rich = w.sheet.rich(str(number), numbers)
            w.sheet.line(rich, number_right - w.sheet.measure(rich), y, pitch)
            for part, x in text or []:
                w.sheet.line(part, x, y, pitch)
            drawn.append(" ".join([str(number), *(part.markdown for part, _ in text or [])]))
    w.emit("\n".join(drawn))


Line = list[tuple[Rich, float]]  # the pieces of a line and where they stand


def _transcript_lines(w: Writer, count: int) -> Iterator[Line]:
    """The text of a transcript, line by line: its title page, or questions and answers."""
    if w.chance(0.4):
        yield from _case_title(w)
    form = w.r.choice(["questions", "speakers", "text"])
    made = 0
    least = w.r.choice([count, count, w.r.randint(2, count)])
    while made < least:
        kind = w.r.random()
        if kind < 0.08:
            lines = [[]]
        elif kind < 0.16:
            lines = [_centred(w, w.clean(w.phrase(1, 5).upper()))]
        elif form == "text":
            lines = _wrapped(w, w.prose(w.r.randint(60, 500)), w.r.choice([0, 5, 10]))
        else:
            who = w.r.choice(["Q.", "A."])
            if form == "speakers":
                who = (
                    w.clean(w.r.choice(["MR.", "MS.", "THE"]) + " " + w.phrase(1, 1).upper()) + ":"
                )
            lines = _wrapped(w, f"{who} {w.prose(w.r.randint(30, 300))}", w.r.choice([5, 5, 0]))
        made += len(lines)
        yield from lines


def _case_title(w: Writer) -> Iterator[Line]:
    """Parties on the left, a column of colons and a number on the right, dashes above and below."""
    font, em = w.sheet.font(), w.sheet.font().width("n")
    yield _centred(w, w.clean(w.phrase(2, 6).upper()))
    colon = w.left + w.r.uniform(0.45, 0.6) * w.width
    sign = w.r.choice(["- ", "-", "="])
    dashes = sign * int((colon - w.left) / w.sheet.measure(w.sheet.rich(sign, font)) - 1)
    dashes = w.sheet.rich(dashes.strip() + w.r.choice(["", " x"]), font)
    mark = w.sheet.rich(w.r.choice([":", ":", ")"]), font)
    numbered = w.r.randint(1, 3)  # the line with the case's number
    yield [(dashes, w.left)]
    for i in range(w.r.randint(3, 7)):
        text = w.value("person") + w.r.choice([",", "", "."])
        text = w.clean(w.r.choice([text.upper(), text, w.title(1, 2) + ",", "v."]))
        rich = w.sheet.rich(text, font)
        indent = w.r.choice([0, 0, 6, 12]) * em
        line: Line = []
        if w.left + indent + w.sheet.measure(rich) < colon - em:
            line.append((rich, w.left + indent))
        line.append((mark, colon))
        number = w.sheet.rich(w.clean("No. " + w.value("code")), font)
        if i == numbered and colon + 3 * em + w.sheet.measure(number) < w.right:
            line.append((number, colon + 3 * em))
        yield line
    yield [(dashes, w.left)]
    if w.chance(0.6):
        yield _centred(w, w.value("city"))
        yield _centred(w, w.value("date"))
        yield []


def _centred(w: Writer, text: str) -> Line:
    rich = w.sheet.rich(text, w.sheet.font())
    free = w.width - w.sheet.measure(rich)
    return [(rich, w.left + free / 2)] if free > 0 else []


def _wrapped(w: Writer, text: str, first_indent: int) -> list[Line]:
    """A paragraph line by line; first_indent: in letters."""
    font = w.sheet.font()
    indent = first_indent * font.width("n")
    rich = w.sheet.rich(w.clean(text), font)
    rich, lines = w.sheet.break_lines(rich, w.width, first_indent=indent)
    start, wrapped = 0, []
    for number, end in enumerate(lines.end):
        piece = rich.part(start, end)
        blanks = len(piece.chars) - len(piece.chars.lstrip())
        piece = piece.part(blanks, len(piece.chars))
        wrapped.append([(piece, w.left + (0.0 if number else indent))])
        start = end
    return wrapped


# --- mail and plain text ---


def mail(w: Writer) -> None:
    """A message: its headers, text, the message that it answers with "> " before each line."""
    fields = w.r.choice(
        [
            ("From", "To", "Date", "Subject"),
            ("From", "Sent", "To", "Cc", "Subject"),
            ("Von", "Gesendet", "An", "Betreff"),
            ("De", "À", "Date", "Objet"),
        ]
    )
    _mail_headers(w, fields)
    if w.chance(0.4):
        rule(w)
    w.lines([w.r.choice(["Hi ", "Dear ", "Hello ", "Hallo ", ""]) + w.value("person") + ","])
    w.space(0.8)
    for _ in range(w.r.randint(1, 3)):
        w.r.choice([paragraph, paragraph, paragraph, introduced_list, blocks.sentences])(w)
    w.separate()
    w.lines([w.r.choice(["Best,", "Regards,", "Thanks", "Gruß", "Cheers,"]), w.value("person")])
    w.space(0.8)
    if w.chance(0.4):
        w.lines(["--", w.value("company"), w.value("phone"), w.value("url")])
        w.space(0.8)
    form = w.r.choice(["quoted", "quoted", "forwarded", "none"])
    if form == "quoted" and not w.full:
        w.lines([w.clean(f"On {w.value('date')}, {w.value('person')} wrote:")])
        if w.chance(0.5):
            w.space(0.8)
            _quoted(w, joined=False)
        else:
            _quoted(w, joined=True)
        w.space(0.8)
    if form == "forwarded" and not w.full:
        w.lines(
            [w.r.choice(["-----Original Message-----", "---------- Forwarded message ---------"])]
        )
        w.space(w.r.choice([0.5, 0.8]))
        _mail_headers(w, fields)
    while not w.full:
        if not paragraph(w):
            return


def _mail_headers(w: Writer, fields: tuple[str, ...]) -> None:
    kinds = {"Date": "date", "Sent": "date", "Gesendet": "date"}
    texts = []
    for name in fields:
        if name in ("Subject", "Betreff", "Objet"):
            value = w.r.choice(["", "Re: ", "Fwd: "]) + w.title(1, 8)
        elif name in kinds:
            value = w.value("date") + " " + w.value("time")
        else:
            value = w.value("person")
            if w.chance(0.6):
                value += f" <{w.value('email')}>"
        texts.append(w.clean(f"{name}: {value}"))
    w.lines(texts)
    w.space(1)


def _quoted(w: Writer, joined: bool) -> None:
    """Lines of an older message, which stay lines."""
    mark = w.r.choice(["> ", "> ", "> > ", ">> "])
    font = w.sheet.font()
    width = min(w.width, 72 * font.width("n")) - w.sheet.measure(w.sheet.rich(mark, font))
    texts: list[str] = []
    for _ in range(w.r.randint(1, 3)):
        if texts:
            texts.append(mark.strip())
        rich = w.sheet.rich(w.prose(w.r.randint(40, 400)), font)
        rich, lines = w.sheet.break_lines(rich, width)
        start = 0
        for end in lines.end:
            texts.append(mark + rich.part(start, end).markdown.strip())
            start = end
    w.lines(texts, joined=joined)


def plain(w: Writer) -> None:
    """Plain text in a face of one width: titles underlined with signs, lists, lines of signs."""
    if w.chance(0.7):
        _underlined_title(w)
    fill(
        w,
        {
            paragraph: 5,
            introduced_list: 1.5,
            some_list: 1,
            _underlined_title: 1,
            signs: 0.8,
            blocks.sentences: 0.7,
            address: 0.3,
            blocks.verse: 0.3,
            lambda w: blocks.pairs(
                w, w.r.randint(2, 6), layout=w.r.choice(["inline", "blanks"])
            ): 0.8,
        },
    )


def _underlined_title(w: Writer) -> bool:
    title = w.title(1, 6)
    w.separate()
    done = w.lines([title, w.r.choice("==-~*") * len(title)])
    w.space(0.6)
    return done


# --- dialogue ---


def dialogue(w: Writer) -> None:
    """A play or an interview: who speaks, then the words, a paragraph each."""
    if w.chance(0.4):
        w.heading(w.r.choice([1, 2]))
    names = [w.r.choice([w.phrase(1, 1), w.value("person")]) for _ in range(w.r.randint(2, 4))]
    case, mark = w.r.choice(["upper", "as is"]), w.r.choice([":", ":", "."])
    if case == "upper":
        names = [w.clean(name.upper()) for name in names]
    marked = w.chance(0.5)  # names in bold or italics
    last = ""
    while not w.full:
        if w.chance(0.08):
            if not w.paragraph(w.r.randint(30, 200), style="italic"):
                return
            continue
        name = w.r.choice([name for name in names if name != last] or names)
        last = name
        text = w.prose(int(30 * 20 ** w.r.random()))
        if marked:
            done = w.paragraph(text=text, run_in=name + mark)
        else:
            done = w.paragraph(text=f"{name}{mark} {text}")
        if not done:
            return


# --- curriculum vitae ---


def vita(w: Writer) -> None:
    """Name and contacts, then sections of entries with dates at the right edge and lists."""
    align = w.r.choice([LEFT, CENTRED])
    w.headings[0].align = align
    w.heading(1, text=w.value("person"))
    contacts = [w.value(kind) for kind in ("street", "phone", "email")]
    link = w.clean(w.r.choice("|•–"))
    w.lines([f" {link} ".join(contacts)] if w.chance(0.6) else contacts, align=align)
    w.space(0.8)
    while not w.full:
        if not w.heading(2, words=(1, 2)):
            return
        if w.chance(0.4):
            w.sheet.rule(w.left, w.right, w.y, 1, w.r.choice([w.look.ink, 140]))
            w.y += 0.4 * w.leading
        for _ in range(w.r.randint(1, 3)):
            if w.full:
                return
            _entry(w)


def _entry(w: Writer) -> None:
    start = w.r.randint(1970, 2024)
    dates = w.clean(f"{start}{w.r.choice([' – ', '-', '–'])}{w.r.randint(start, 2026)}")
    done = blocks.two_ends(w, w.title(1, 5), dates, w.r.choice(["bold", "italic", "regular"]))
    if done and w.chance(0.6):
        w.lines([w.value("company") + ", " + w.value("city")], joined=True)
    if w.chance(0.7):
        blocks.item_list(w, w.r.randint(1, 5), (20, 140), close=True)
    else:
        w.space(0.3)
        w.paragraph(w.r.randint(60, 300))
