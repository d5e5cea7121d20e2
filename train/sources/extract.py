"""Readers that turn the files of a package into documents: lists of plain paragraphs, markup
removed.

Every reader takes a path and yields documents. What a paragraph may be is decided later, in
texts.py.
"""

import gettext
import gzip
import html
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

Document = list[str]

SKIPPED_HTML = re.compile(
    r"<(script|style|pre|head|nav|footer|svg|math)\b.*?</\1\s*>|<!--.*?-->",
    re.S | re.I,
)
BLOCK_TAG = re.compile(
    r"</?(?:p|div|li|ul|ol|dl|dd|dt|h[1-6]|t[dhr]|table|br|hr|body|section|article|blockquote|"
    r"title|item|page|note|"
    r"para|listitem|sect[1-4]|simpara|steps|desc|term|screen|programlisting)\b[^>]*>",
    re.I,
)
TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<[!?][^<>]*>")
GROUP = 40  # paragraphs of a collection (a dictionary, sayings, a novel) that make up one document


def read(path: Path) -> str:
    data = (
        gzip.decompress(path.read_bytes()) if path.suffix in (".gz", ".dz") else path.read_bytes()
    )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def joined(paragraph: str) -> str:
    return " ".join(paragraph.split())


def grouped(paragraphs: list[str]) -> Iterator[Document]:
    for start in range(0, len(paragraphs), GROUP):
        yield paragraphs[start : start + GROUP]


def markup(path: Path) -> Iterator[Document]:
    """HTML, DocBook and Mallard pages."""
    text = SKIPPED_HTML.sub(" ", read(path))
    blocks = BLOCK_TAG.split(text)
    yield [joined(html.unescape(TAG.sub("", block))) for block in blocks]


def long_markup(path: Path) -> Iterator[Document]:
    """A whole book as one HTML page."""
    for document in markup(path):
        yield from grouped([paragraph for paragraph in document if len(paragraph) > 20])


def plain(path: Path) -> Iterator[Document]:
    """Plain text whose paragraphs are separated by empty lines."""
    yield from grouped([joined(paragraph) for paragraph in re.split(r"\n\s*\n", read(path))])


COARSE_FORTUNES = ("ethnic", "men-women", "witze", "warmduscher", "italia", "luttazzi")


def fortunes(path: Path) -> Iterator[Document]:
    """Sayings; the files that set out to offend are left out."""
    if path.name in COARSE_FORTUNES:
        return
    parts = re.split(r"\n%+\n", read(path))
    yield from grouped([joined(part) for part in parts])


def devil(path: Path) -> Iterator[Document]:
    text = read(path)
    yield from grouped(
        [joined(part) for part in re.split(r"\n\s*\n", text[text.find("ABASEMENT") :])]
    )


def gcide(path: Path) -> Iterator[Document]:
    """Entries of the GNU dictionary: definitions only, without pronunciation and etymology."""
    text = re.sub(r"\[[^\]]{0,80}\]|\\[^\\\n]{0,60}\\|[{}]", "", read(path))
    parts = [joined(part) for part in re.split(r"\n\s*\n|\n {3,8}(?=\d+\. |\()", text)]
    yield from grouped([re.sub(r"^\d+\. ", "", part) for part in parts if len(part) > 90])


def wordnet(path: Path) -> Iterator[Document]:
    """Explanations of senses, the references to other entries removed."""
    text = re.sub(r"\[(?:syn|ant|also)[^\]]*\]", "", read(path))
    parts = re.split(r"\n(?=\S)|\n\s+(?:n|v|adj|adv)? ?\d*: ", text)
    yield from grouped([joined(part) for part in parts if len(part) > 60])


def dictd(path: Path) -> Iterator[Document]:
    text = re.sub(r"[{}]|^ *<[a-z, ]+> ", "", read(path), flags=re.M)
    yield from grouped([joined(part) for part in re.split(r"\n\s*\n", text)])


ROFF_FONT = re.compile(r"\\f(?:\[[^\]]*\]|\(..|.)|\\s[-+]?\d|\\[&|^/,%:]|\\m\[[^\]]*\]")
ROFF_SIGNS = {
    r"\-": "-",
    r"\(aq": "'",
    r"\(dq": '"',
    r"\(cq": "’",
    r"\(oq": "‘",
    r"\(lq": "“",
    r"\(rq": "”",
    r"\e": "\\",
    r"\ ": " ",
    r"\(co": "©",
    r"\(bu": "•",
    r"\(em": "—",
    r"\(en": "–",
    r"\(Bq": "„",
    r"\(bq": "‚",
    r"\(Fo": "«",
    r"\(Fc": "»",
    r"\~": " ",
    r"\(ha": "^",
    r"\(ti": "~",
    r"\(ga": "`",
    r"\(rs": "\\",
    r"\.": ".",
    r"\(->": "→",
    r"\0": " ",
    r"\'": "'",
    r"\`": "`",
    r"\[aq]": "'",
    r"\[u201C]": "“",
    r"\[u201D]": "”",
    r"\[em]": "—",
    r"\[en]": "–",
}
ROFF_SIGN = re.compile("|".join(re.escape(sign) for sign in ROFF_SIGNS))
ROFF_BREAK = (
    ".PP",
    ".P",
    ".LP",
    ".TP",
    ".IP",
    ".SH",
    ".SS",
    ".HP",
    ".RS",
    ".RE",
    ".sp",
    ".br",
    ".Pp",
    ".It",
    ".Sh",
    ".TH",
)


def manual(path: Path) -> Iterator[Document]:
    """A manual page in roff."""
    paragraphs, lines, literal = [], [], False
    for line in read(path).splitlines():
        if line.startswith((".nf", ".EX", ".TS")):
            literal = True
        elif line.startswith((".fi", ".EE", ".TE")):
            literal = False
        if literal:
            continue
        name, _, rest = line.partition(" ")
        if not line.strip() or name in ROFF_BREAK:
            paragraphs.append(" ".join(lines))
            lines = []
        elif name in (".B", ".I", ".SM"):
            lines.append(rest.replace('"', ""))
        elif name in (".BR", ".RB", ".BI", ".IB", ".IR", ".RI"):
            quoted = re.findall(r'"([^"]*)"|(\S+)', rest)
            lines.append("".join(first or second for first, second in quoted))
        elif not line.startswith((".", "'")):
            lines.append(line)
    paragraphs.append(" ".join(lines))
    cleaned = [
        ROFF_SIGN.sub(lambda sign: ROFF_SIGNS[sign.group()], ROFF_FONT.sub("", text))
        for text in paragraphs
    ]
    yield [joined(text) for text in cleaned if not re.search(r"\\[(\[a-zA-Z*]", text)]


def translations(path: Path) -> Iterator[Document]:
    """The translated messages of a gettext catalogue."""
    yield from messages(path, translated=True)


def originals(path: Path) -> Iterator[Document]:
    """The English messages of a gettext catalogue."""
    yield from messages(path, translated=False)


CATALOGUE_MARK = re.compile(r"<(\w+)>[^<]*?text='([^']*)'[^<]*</\1>")


def messages(path: Path, translated: bool) -> Iterator[Document]:
    with path.open("rb") as file:
        catalogue = gettext.GNUTranslations(file)._catalog
    found = []
    for original, translation in catalogue.items():
        text = translation if translated else original
        if (
            isinstance(original, str)
            and original
            and isinstance(text, str)
            and text != original * translated
        ):
            found += [joined(part) for part in text.split("^")[-1].split("\n\n")]
    found = [CATALOGUE_MARK.sub(r"\2", text) for text in found]
    yield from grouped([text for text in found if len(text) > 60])


JSON_TEXT = re.compile(
    r'"(?:text|description|dynamic_line|str|messages?|story)": "((?:[^"\\]|\\.){60,})"|'
    r'^\s*"((?:[^"\\]|\\.){60,})",?$',
    re.M,
)


def json_text(path: Path) -> Iterator[Document]:
    """The long strings of game data in JSON."""
    found = [first or second for first, second in JSON_TEXT.findall(read(path))]
    yield [joined(text.replace('\\"', '"').replace("\\n", " ")) for text in found]


def endless_sky(path: Path) -> Iterator[Document]:
    """Conversations and descriptions between ` or " marks."""
    found = re.findall(r"`([^`\n]{50,})`", read(path)) + re.findall(
        r'(?:description|spaceport|dialog) "([^"\n]{50,})"', read(path)
    )
    yield [joined(text) for text in found]


def crawl(path: Path) -> Iterator[Document]:
    text = re.sub(r"^#.*$", "", read(path), flags=re.M)
    yield from grouped([joined(part) for part in re.split(r"\n\s*\n|%%%%", text) if len(part) > 60])


LYX_SIGNS = {
    "ldots": "…",
    "LyX": "LyX",
    "LaTeX": "LaTeX",
    "TeX": "TeX",
    "menuseparator": " → ",
    "endofsentence": ".",
    "breakableslash": "/",
    "nobreakdash": "-",
}


def lyx(path: Path) -> Iterator[Document]:
    """Body layouts of a LyX manual; those with insets (notes, formulas, indexes) are left out."""
    kinds = "Standard|Itemize|Enumerate|Description|Quote|Quotation"
    body = rf"\\begin_layout (?:{kinds})\n(.*?)\\end_layout"
    paragraphs = []
    for layout in re.findall(body, read(path), re.S):
        layout = re.sub(
            r"\\begin_inset Quotes \w+\n(?:status \w+\n*)?\\end_inset\n*",
            '"\n',
            layout,
        )
        if "\\begin_inset" in layout:
            continue
        layout = re.sub(r"\\SpecialChar (\S+)\n?", lambda sign: LYX_SIGNS.get(sign[1], ""), layout)
        lines = [line for line in layout.split("\n") if not line.startswith("\\")]
        paragraphs.append(
            joined("".join(lines))
        )  # lines are cut anywhere; a space between words is part of a line
    yield from grouped(paragraphs)


def r_strings(path: Path) -> Iterator[Document]:
    """The novels in an R data base: vectors of lines, where an empty line ends a paragraph."""
    data = path.read_bytes()
    while data:
        stream = zlib.decompressobj()
        raw = stream.decompress(data[4:])  # after the length of the unpacked chunk
        data = stream.unused_data
        lines, where = [], raw.find(b"\x00\x04\x00\x09")
        while 0 <= where <= len(raw) - 8:
            length = struct.unpack(">I", raw[where + 4 : where + 8])[0]
            lines.append(raw[where + 8 : where + 8 + length].decode("utf-8", "replace"))
            where = raw.find(b"\x00\x04\x00\x09", where + 8 + length)
        yield from grouped(
            [joined(part).replace("_", "") for part in "\n".join(lines).split("\n\n")]
        )


def php_novel(path: Path) -> Iterator[Document]:
    """The novel that a Faker text provider carries, without the wrapper and its licence text."""
    text = read(path)
    text = text[text.find("<<<") :]
    text = text[text.find("\n") + 1 : text.rfind("\nEOT")]
    one_line_each = len(text) > 150 * text.count("\n")
    parts = text.split("\n") if one_line_each else re.split(r"\n\s*\n", text)
    parts = [piece for part in parts for piece in pieces(joined(part).replace("_", ""))]
    yield from grouped(parts)


def pieces(paragraph: str, most: int = 2500) -> list[str]:
    """A very long paragraph cut at sentence ends."""
    found = []
    while len(paragraph) > most:
        cut = paragraph.rfind(". ", 200, most) + 1 or most
        found.append(paragraph[:cut])
        paragraph = paragraph[cut:].lstrip()
    return found + [paragraph]


def sword(path: Path) -> Iterator[Document]:
    """Verses of a SWORD Bible: compressed blocks, where each verse is a paragraph."""
    index, data = path.with_suffix(".bzs").read_bytes(), path.read_bytes()
    for at in range(0, len(index) - 11, 12):
        start, size, _ = struct.unpack("<III", index[at : at + 12])
        text = zlib.decompress(data[start : start + size]).decode("utf-8", "replace")
        text = re.sub(r"<note\b.*?</note>|<title\b.*?</title>", " ", text, flags=re.S)
        verses = re.split(r"<(?:verse|chapter|div|p|l|lb)\b[^>]*>", text)
        yield from grouped(
            [joined(TAG.sub("", verse)).replace(" ,", ",") for verse in paired(verses)]
        )


def paired(verses: list[str]) -> list[str]:
    """Verses joined to paragraphs of 200 characters or more."""
    found, current = [], ""
    for verse in verses:
        current += " " + verse
        if len(current) > 200:
            found.append(current)
            current = ""
    return found + [current]


def program(path: Path) -> Iterator[Document]:
    """Program text; the lines are the paragraphs, tabs are four spaces."""
    lines = [line.rstrip().expandtabs(4) for line in read(path).splitlines()]
    yield [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
