"""Text for pages: paragraphs, phrases, values and program code, drawn so that a reader cannot
guess what comes next.

The data folder holds texts/SPLIT.txt.xz and words/SPLIT.txt.xz. Both are sections that start
with a line "\\fLANGUAGE SOURCE": a document with one paragraph per line, or words by falling
frequency, one per line. Program code is a document of the language "code". The splits share no
document. A Texts takes about 250 MB, holds few objects and so stays shared between processes
after a fork.
"""

import json
import lzma
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from text import lorem, quotes
from text.charset import ASCII, CHARS
from text.numerals import DIGITS
from text.values import Values
from text.words import Words

__all__ = ["ASCII", "CHARS", "Style", "Texts"]

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ENGLISH_SHARE = 0.6  # of the pages
SOURCE_POWER = 0.6  # a source is drawn in proportion to its size to this power

# A page has one temper, and its temper says how often a block is of each kind.
KINDS = ("running", "words", "pseudo", "random", "foreign", "values", "court")
TEMPERS = {
    "reading": (0.50, (0.84, 0.06, 0.04, 0.01, 0.03, 0.02, 0.00)),
    "mixed": (0.27, (0.25, 0.24, 0.18, 0.09, 0.14, 0.09, 0.01)),
    "words": (0.07, (0.00, 1.00, 0.00, 0.00, 0.00, 0.00, 0.00)),
    "pseudo": (0.05, (0.00, 0.00, 1.00, 0.00, 0.00, 0.00, 0.00)),
    "random": (0.03, (0.00, 0.00, 0.00, 1.00, 0.00, 0.00, 0.00)),
    "foreign": (0.03, (0.10, 0.05, 0.00, 0.00, 0.85, 0.00, 0.00)),
    "values": (0.03, (0.10, 0.10, 0.05, 0.05, 0.00, 0.70, 0.00)),
    "court": (0.02, (0.10, 0.00, 0.00, 0.00, 0.00, 0.10, 0.80)),
}
TEMPER_NAMES = list(TEMPERS)
TEMPER_SHARES = [share for share, _ in TEMPERS.values()]

UNUSUAL_VALUES = """code reference email url version hex formula docket statute finance
science""".split()  # that may stand in a sentence
SENTENCE_ENDS = re.compile(r"[.!?][”\"’')]? (?=[A-ZÀ-Þ“\"„«])")
BLOCK_MARKS = "#>*+-=|~ "  # what Markdown would read as something else at the start of a paragraph
STRIPPED = " ,;:.-–—…!?()[]\"'“”„‚‘’«»‹›*/"


@dataclass(frozen=True)
class Style:
    """What one page is written in."""

    language: str
    temper: str
    sources: tuple[int, ...]  # numbers of the regions that running text comes from
    quotes: str  # "kept" or a key of quotes.PAIRS
    spice: float  # share of the words of running text that something unforeseen replaces
    accents: bool  # whether random letters have accents


@dataclass(frozen=True)
class Region:
    """The documents of one language and one source: a stretch of the whole text."""

    language: str
    source: str
    start: int
    end: int


def sections(path: Path) -> list[tuple[str, str, str]]:
    """The (language, source, body) sections of a data file."""
    if not path.exists():
        raise FileNotFoundError(
            f"texts: {path} is missing; make it: python train/fetch.py --to {path.parent.parent}"
        )
    found = []
    for section in lzma.open(path, "rt", encoding="utf-8").read().split("\f")[1:]:
        head, _, body = section.partition("\n")
        language, _, source = head.partition(" ")
        found.append((language, source, body))
    return found


def word_lists(folder: Path, split: str) -> dict[str, Words]:
    """The words of each language.

    The lists of held_out and open are short, and what is frequent in them is odd. So single
    words of these splits are training words, drawn by their frequency, and only a part of them
    (words.KEPT_OUT_SHARE) is of their own list, each word as likely.
    """

    def lists(name: str) -> dict[str, list[str]]:
        bodies = sections(folder / f"{name}.txt.xz")
        return {language: body.split("\n")[:-1] for language, _, body in bodies}

    own = {} if split == "train" else lists(split)
    return {
        language: Words(words, kept_out=own.get(language, []))
        for language, words in lists("train").items()
    }


class Texts:
    """Draws the text of pages. folder: the data folder; split: "train", "held_out" or "open"."""

    def __init__(self, folder: str | Path, split: str = "train"):
        if split not in ("train", "held_out", "open"):
            raise ValueError(
                f"texts: split {split!r} is unknown, expected 'train', 'held_out' or 'open'"
            )
        folder = Path(folder)
        self._load_documents(folder / "texts" / f"{split}.txt.xz")
        self.words = word_lists(folder / "words", split)
        self.word_languages = list(self.words)
        with lzma.open(folder / "words" / "names.json.xz", "rt", encoding="utf-8") as file:
            self.values = Values(json.load(file)[split])

    def _load_documents(self, path: Path) -> None:
        documents = sorted(sections(path), key=lambda section: section[:2])
        pieces, regions, at = [], [], 0
        for language, source, body in documents:
            if not regions or (regions[-1].language, regions[-1].source) != (language, source):
                regions.append(Region(language, source, at, at))
            pieces.append(body)
            at += len(body)
            regions[-1] = Region(language, source, regions[-1].start, at)
        self.text = "".join(pieces)
        self.regions = [region for region in regions if region.language != "code"]
        self.code_regions = [region for region in regions if region.language == "code"]
        self.by_language: dict[str, list[int]] = {}
        for number, region in enumerate(self.regions):
            self.by_language.setdefault(region.language, []).append(number)
        self.shares = [(region.end - region.start) ** SOURCE_POWER for region in self.regions]
        self.languages = sorted(self.by_language)
        others = sum(
            sum(self.shares[n] for n in self.by_language[name])
            for name in self.languages
            if name != "en"
        )
        self.language_shares = [
            ENGLISH_SHARE
            if name == "en"
            else (1 - ENGLISH_SHARE) * sum(self.shares[n] for n in self.by_language[name]) / others
            for name in self.languages
        ]

    # ------------------------------------------------------------------ what a page is written in
    def style(self, r: Random) -> Style:
        language = r.choices(self.languages, self.language_shares)[0]
        own = self.by_language[language]
        sources = r.choices(own, [self.shares[n] for n in own], k=r.choice([1, 1, 2, 3]))
        spice = r.choice([0.0, 0.0, 0.005, 0.01, 0.02, 0.05, 0.1])
        temper = r.choices(TEMPER_NAMES, TEMPER_SHARES)[0]
        marks = r.choice(quotes.styles_of(language))
        return Style(language, temper, tuple(sources), marks, spice, r.random() < 0.25)

    # ------------------------------------------------------------------ paragraphs
    def prose(self, r: Random, chars: int, style: Style) -> str:
        """One paragraph of whole words and at most chars characters (30 to 3000)."""
        chars = max(30, min(3000, int(chars)))
        kind = r.choices(KINDS, TEMPERS[style.temper][1])[0]
        repeated = chars >= 80 and r.random() < 0.03
        wanted = chars // r.randint(2, 8) if repeated else chars
        if kind == "running":
            text = self._spiced(r, self._running(r, wanted, r.choice(style.sources)), style)
        elif kind == "words":
            text = self._sentences(r, wanted, self._word_maker(r, style))
        elif kind == "pseudo":
            text = self._sentences(r, wanted, self._words_of(r, style).pseudo)
        elif kind == "random":
            text = self._random_strings(r, wanted, style)
        elif kind == "foreign":
            text = self._foreign(r, wanted)
        elif kind == "court":
            text = self._court(r, wanted, style)
        else:
            text = self._value_list(r, wanted)
        text = quotes.restyled(text, style.quotes)
        if repeated:
            text = " ".join([text] * max(2, chars // (len(text) + 1)))
        return whole_words(text.lstrip(BLOCK_MARKS) or text, chars)

    def _running(self, r: Random, chars: int, number: int) -> str:
        """Running text of a region, from anywhere in it or from the start of a paragraph or
        sentence.
        """
        region, text = self.regions[number], self.text
        start = region.start + int(r.random() * max(1, region.end - region.start - chars))
        form = r.random()
        if form < 0.4:
            start = text.find("\n", start, region.end) + 1 or region.start
        elif form < 0.75:
            found = SENTENCE_ENDS.search(text, start, min(region.end, start + 600))
            start = found.end() if found else text.find(" ", start, region.end) + 1 or region.start
        else:
            start = text.find(" ", start, region.end) + 1 or region.start
        end = min(start + chars, region.end)
        if end - start < 30:
            start, end = region.start, min(region.start + chars, region.end)
        piece = text[start:end]
        if end < region.end and text[end] not in " \n":  # cut inside a word
            cut = max(piece.rfind(" "), piece.rfind("\n"))
            piece = piece[:cut] if cut > 0 else piece
        if (
            r.random() < 0.5 and len(piece) > 80
        ):  # end with a paragraph or a sentence where one ends late enough
            last = max(piece.rfind("\n"), piece.rfind(". ") + 1)
            if last > len(piece) * 0.6:
                piece = piece[:last]
        return piece.strip().replace("\n", " ")

    def _spiced(self, r: Random, text: str, style: Style) -> str:
        if style.spice == 0.0:
            return text
        words = text.split(" ")
        count = int(len(words) * style.spice * 2 * r.random() + r.random())
        for _ in range(count):
            at = r.randrange(len(words))
            words[at] = self._spice(r, words[at], style)
        if style.spice >= 0.1 and r.random() < 0.2:
            words = [upper(word) for word in words]
        return " ".join(words)

    def _spice(self, r: Random, word: str, style: Style) -> str:
        form = r.randrange(16)
        if form < 3:
            return self._words_of(r, style).draw(r)
        if form < 5:
            return self.values.draw(
                r, r.choice(("number", "amount", "percent", "date", "time", "measure"))
            )
        if form < 7:
            return self.values.draw(r, r.choice(("person", "city", "company", "street")))
        if form == 7:
            return self.values.draw(r, r.choice(UNUSUAL_VALUES))
        if form < 10:
            return self._words_of(r, style).pseudo(r)
        if form == 10:
            return upper(word)
        if form == 11:
            return f'"{word.strip(STRIPPED) or "–"}"'
        if form == 12:
            return f"({word.strip(STRIPPED) or self.values.draw(r, 'number')})"
        if form == 13:
            return (word.rstrip(STRIPPED) or word) + r.choice(
                [";", ":", " –", "—", " —", ",", "…", "!", "?"]
            )
        if form == 14:
            return word + r.choice("¹²³⁴⁵⁶⁷⁸⁹*†‡")
        return self.random_string(r, r.randint(1, 10), r.randrange(4), style.accents)

    def _words_of(self, r: Random, style: Style) -> Words:
        return self.words.get(style.language) or self.words[r.choice(self.word_languages)]

    def _word_maker(self, r: Random, style: Style) -> Callable[[Random], str]:
        """What draws the words of a block: one language, or now and then all of them."""
        if r.random() < 0.12:
            return lambda r: self.words[r.choice(self.word_languages)].draw(r)
        return self._words_of(r, style).draw

    def _sentences(self, r: Random, chars: int, draw: Callable[[Random], str]) -> str:
        """Words with the look of sentences, of a list, or bare."""
        form = r.random()
        comma, stop = (0.08, 0.08) if form < 0.7 else (0.5, 0.02) if form < 0.8 else (0.0, 0.0)
        names = 0.04 if form < 0.8 else r.choice([0.0, 0.0, 1.0])
        random, words, length, starts = r.random, [], 0, form < 0.85
        while length < chars:
            word = draw(r)
            if starts or (names and random() < names):
                word = word[0].upper() + word[1:]
            mark = random()
            starts = mark < stop
            if starts:
                word += "." if mark < stop * 0.8 else r.choice("!?:;")
                starts = word[-1] not in ":;"
            elif mark < stop + comma:
                word += ","
            length += len(word) + 1
            words.append(word)
        return " ".join(words)

    def random_string(self, r: Random, length: int, form: int, accents: bool = False) -> str:
        """length random characters. form: 0 lower case, 1 upper, 2 mixed, 3 with digits."""
        return "".join(r.choices(alphabet(form, accents), k=length))

    def _random_strings(self, r: Random, chars: int, style: Style) -> str:
        """Words of 1 to 12 random characters, all of one form or each word of its own."""
        form = r.randrange(6)
        lengths = [r.randint(1, 12) for _ in range(chars // 6 + 1)]
        letters = self.random_string(r, sum(lengths), min(form, 3), style.accents)
        words, at = [], 0
        for length in lengths:
            word = letters[at : at + length]
            if form >= 4:
                case = r.randrange(4)
                word = (
                    word.lower()
                    if case == 0
                    else word.upper()
                    if case == 1
                    else word.capitalize()
                    if case == 2
                    else word
                )
            words.append(word)
            at += length
        if r.random() < 0.5:
            for _ in range(len(words) // 6):
                at = r.randrange(len(words))
                words[at] += r.choice(".,;:!?-)%")
        return " ".join(words)

    def _foreign(self, r: Random, chars: int) -> str:
        if r.random() < 0.35:
            return lorem.opening(r) + self._sentences(r, chars, lorem.word)
        others = [name for name in self.languages if name != "en"] or self.languages
        return self._running(r, chars, r.choice(self.by_language[r.choice(others)]))

    def _court(self, r: Random, chars: int, style: Style) -> str:
        """What one person says before a court, with a case or a law named in it."""
        words = self._running(r, chars, r.choice(style.sources)).split(" ")
        for _ in range(r.randint(0, 2)):
            kind = r.choice(("docket", "statute", "party", "person"))
            words.insert(r.randrange(len(words) + 1), self.values.draw(r, kind))
        return f"{self.values.draw(r, 'speaker')} {' '.join(words)}"

    def _value_list(self, r: Random, chars: int) -> str:
        kind = r.choice(
            [
                None,
                None,
                None,
                "number",
                "amount",
                "code",
                "date",
                "address",
                "person",
                "phone",
                "hex",
            ]
        )
        separator = r.choice([" ", ", ", "; ", " · ", " / ", ", "])
        items, length = [], 0
        while length < chars:
            items.append(self.values.draw(r, kind))
            length += len(items[-1]) + len(separator)
        return separator.join(items)

    # ------------------------------------------------------------------ short pieces
    def phrase(self, r: Random, lo: int, hi: int, style: Style) -> str:
        """lo to hi words without marks at the ends: headings, list items, cells."""
        count = r.randint(lo, hi)
        kind = r.choices(KINDS, TEMPERS[style.temper][1])[0]
        if kind == "running":
            kind = r.choices(["running", "words", "names"], [0.7, 0.2, 0.1])[0]
        if kind in ("running", "foreign"):
            number = r.choice(style.sources)
            if kind == "foreign":
                number = r.choice(self.by_language[r.choice(self.languages)])
            words = self._running(r, 24 * count + 30, number).split(" ")
            words = [word for word in words if word.strip(STRIPPED)][:count]
        elif kind == "words":
            draw = self._word_maker(r, style)
            words = [draw(r) for _ in range(count)]
        elif kind == "pseudo":
            words = [self._words_of(r, style).pseudo(r) for _ in range(count)]
        elif kind == "random":
            form = r.randrange(4)
            words = [
                self.random_string(r, r.randint(1, 10), form, style.accents) for _ in range(count)
            ]
        elif kind == "names":
            words = self.values.draw(
                r, r.choice(("person", "company", "city", "party", "counsel"))
            ).split(" ")
        else:
            words = " ".join(self.values.draw(r) for _ in range((count + 1) // 2)).split(" ")
        words = words[:count]
        while len(words) < count:
            words.append(self._words_of(r, style).draw(r))
        if r.random() < 4 * style.spice:
            words[r.randrange(count)] = self.values.draw(
                r, r.choice(("number", "code", "reference"))
            ).split(" ")[0]
        words[0] = words[0].lstrip(STRIPPED) or self._words_of(r, style).draw(r)
        words[-1] = words[-1].rstrip(STRIPPED) or self._words_of(r, style).draw(r)
        text = " ".join(words)
        return text.translate(quotes.TO_ASCII) if style.quotes == "ascii" else text

    def value(self, r: Random, kind: str | None = None) -> str:
        """A number, name, address or code; kind: a key of values.Values.kinds, None: any."""
        return self.values.draw(r, kind)

    def code(self, r: Random, lines: int) -> list[str]:
        """At most `lines` lines of a program, as indented there less what is common to all."""
        region = r.choice(self.code_regions)
        start = region.start + int(r.random() * (region.end - region.start))
        start = self.text.rfind("\n", region.start, start) + 1 or region.start
        found = self.text[start : min(region.end, start + 100 * lines)].split("\n")[:lines]
        while found and not found[0].strip():
            found.pop(0)
        while found and not found[-1].strip():
            found.pop()
        if not found:
            return self.code(r, lines)
        indent = min(len(line) - len(line.lstrip(" ")) for line in found if line.strip())
        return [line[indent:].rstrip() for line in found]


@cache
def alphabet(form: int, accents: bool) -> str:
    letters = LETTERS + ("àâäáãåçéèêëíìîïñóòôöõøúùûüýčďěłńřšťůžąęśźżőűğşăț" if accents else "")
    return [
        letters,
        letters.upper(),
        letters + letters.upper(),
        letters + letters.upper() + DIGITS * 2,
    ][form]


def upper(text: str) -> str:
    """Upper case, where every letter stays one that a page may show."""
    return text.replace("ß", "SS").upper().replace("\u039c", "µ")


def whole_words(text: str, chars: int) -> str:
    """At most chars characters of text, cut between words (inside one that is longer than that)."""
    if len(text) > chars:
        cut = text.rfind(" ", 0, chars + 1)
        text = text[:cut] if cut > 0 else text[:chars]
    return text.rstrip(" ,;–—-") or text[:chars]
