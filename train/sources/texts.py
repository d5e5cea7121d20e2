"""Cleans the text of the sources, keeps whole documents apart by split, and writes
texts/SPLIT.txt.xz.

A document is held out when the hash of its text says so (1 in 50); of sources in the public
domain 3 in 50 more are set apart as "open". A paragraph that occurs twice is kept once, a run of
words that training would learn by heart three times. What shares a run of words with text kept
out of training is taken from training.
"""

import lzma
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np

from sources.packages import PROGRAMS, PUBLIC, TEXTS, Source
from text.charset import CHARS

SPLITS = ("open", "held_out", "train")
LEAST, MOST = 40, 4000  # characters of a paragraph
LONGEST_CODE_LINE = 100
SHARED = 7  # words in a row that training text may not have in common with text kept out of it
REPEATED, MOST_COPIES = 8, 3  # a run of so many words occurs at most so often in training
SIDE_FILES = (".dat", ".bzs", ".bzv", ".u8")  # indexes beside the files that hold the text

REPLACED = str.maketrans(
    {
        "\xa0": " ",
        "\u202f": " ",
        "\u2009": " ",
        "\u2002": " ",
        "\u2003": " ",
        "\u200a": " ",
        "\u2007": " ",
        "\u00ad": None,
        "\u200b": None,
        "\u200c": None,
        "\u200d": None,
        "\ufeff": None,
        "\u2060": None,
        "‐": "-",
        "‑": "-",
        "―": "—",
        "‒": "–",
        "′": "'",
        "″": '"',
        "‛": "'",
        "‟": '"',
        "`": "'",
        "´": "'",
        "ﬁ": "fi",
        "ﬂ": "fl",
        "ﬀ": "ff",
        "ﬃ": "ffi",
        "ﬄ": "ffl",
        "⋅": "·",
        "∙": "·",
        "●": "•",
        "⇒": "→",
        "➜": "→",
        "ŀ": "l·",
        "Ŀ": "L·",
        "ſ": "s",
        "ĳ": "ij",
        "Ĳ": "IJ",
        "ŉ": "'n",
        "Ω": "Ω",
        "μ": "µ",
        "∼": "~",
        "⁄": "/",
    }
)
ALLOWED = re.compile("[" + re.escape(CHARS) + "]*")
# What betrays a rest of markup, of a program or of a list of links.
REST = re.compile(
    "|".join(
        [
            r"</?\w+[^<>]*>|[<>].*[<>].*[<>]|&\w+;|\{[^}]*\}|\{\{|\}\}|\[\[|\]\]",
            r"\\[a-zA-Z]{2,}|\$\{|\$[a-z_]+\b|@\w+\{|%\([a-z]|%[sd1-9]\b",
            r"__|==|\^|~~|\*\*|::.*::|\|.*\|.*\||^\.\.|^\W*$|^(?:Next|Previous|Up|Prev):",
            r"@.*@|gmail|\bat gnome dot\b|\[at\]|\(at\)|@gnome|Project Gutenberg|\bISO-8859",
            r"[a-zà-ÿ][ÃÂÅÄ]",  # UTF-8 read as Latin-1
        ]
    )
)
ENGLISH = re.compile(r"\b(?:the|and|this|that|which|from|your|you|with|are|was|have)\b", re.I)
LOOSE_MARK = re.compile(r" ([.,])(?= |$)")  # where a tag stood before the mark
BULLET = re.compile(r"^(?:[-–—*•◦▪·#>+=]+ )+")
SPACED_LETTERS = re.compile(r"(?:\b\w ){6}")


# Words of hatred and the coarsest ones. A word list, a program and a text lose what has one.
COARSE = re.compile(
    r"\b(?:nigg(?:er|a)|faggot|kikes?\b|wetback|gooks?\b|spics?\b|trann(?:y|ies)\b|towelhead|"
    r"raghead|cunt|cocksuck|neger(?:s|n|in|innen)?\b|kanaken?\b|schwuchtel|fotze|"
    r"wichser|ficken|gefickt|bougnoule|youpin|nègre|négro|enculé|salopes?\b|maric[óo]n|sudaca|"
    r"frocio|vaffanculo|caralho|kurw|pierdol|jeban|czarnuch|buzerant|neekeri|vittu|baszd|orospu|"
    r"siktir)|fuck"
)


def is_coarse(text: str) -> bool:
    return COARSE.search(text.lower()) is not None


def clean(paragraph: str, language: str) -> str | None:
    """The paragraph in the characters that a page may show, or None when it is no running text."""
    text = (
        unicodedata.normalize("NFC", paragraph)
        .replace("``", '"')
        .replace("''", '"')
        .translate(REPLACED)
    )
    text = " ".join(text.replace("¶", " ").split())
    text = LOOSE_MARK.sub(r"\1", BULLET.sub("", text))
    if not LEAST <= len(text) <= MOST or not ALLOWED.fullmatch(text) or REST.search(text):
        return None
    if is_coarse(text):
        return None
    words = text.split(" ")
    letters = sum(map(str.isalpha, text)) + len(words) - 1
    if (
        len(words) < 6
        or letters < 0.82 * len(text)
        or max(map(len, words)) > 45
        or SPACED_LETTERS.search(text)
    ):
        return None
    if sum(len(word) < 3 for word in words) > 0.6 * len(words):
        return None
    if language != "en" and len(ENGLISH.findall(text)) > 0.05 * len(words):
        return None  # a paragraph that was left untranslated
    return text


TRIPLE_QUOTED = re.compile(
    r"""(?P<docstring>^[ ]*[rRuUbB]?("{3}|'{3})(?:(?!\2).)*\2[ ]*$\n?)|("{3}|'{3}).*?\3""",
    re.S | re.M,
)
LONG_COMMENT = re.compile(
    "|".join(
        [
            r"^[ ]*/\*(?:(?!\*/).)*\*/[ ]*$\n?",  # C and its kin
            r"^[ ]*--\[\[.*?\]\]",  # Lua
            r"^=[a-z].*?(?:^=(?:cut|end)\b[^\n]*|\Z)",  # Perl and Ruby
        ]
    ),
    re.S | re.M,
)
COMMENT = re.compile(r"\s*(?://|/?\*|--|#(?!\[|(?:include|define|undef|if|el|end|pragma|error)))")
BETWEEN_COMMENTS = 5  # lines of program at least between two lines that are only comment


def clean_program(lines: list[str]) -> list[str]:
    """Lines of a program that fit a page. What is prose goes: docstrings, comments of more than a
    line, comments that are close to another, and those above the program (the licence).
    """
    text = TRIPLE_QUOTED.sub(lambda found: "" if found["docstring"] else found[0], "\n".join(lines))
    text = LONG_COMMENT.sub(lambda found: "" if "\n" in found[0].strip() else found[0], text)
    kept: list[str] = []
    since_comment = 0  # lines of program
    for line in text.split("\n"):
        if not line.isascii():
            line = line.translate(REPLACED)
        is_comment = COMMENT.match(line)
        if (
            (is_comment and since_comment < BETWEEN_COMMENTS)
            or len(line) > LONGEST_CODE_LINE
            or not ALLOWED.fullmatch(line)
            or is_coarse(line)
            or (not line and (not kept or not kept[-1]))
        ):
            continue
        since_comment = 0 if is_comment else since_comment + bool(line)
        kept.append(line)
    return kept if not kept or kept[-1] else kept[:-1]


def split_of(text: str, source: Source) -> str:
    share = crc32(text.encode()) % 50
    if share == 0:
        return "held_out"
    return "open" if share <= 3 and source.licence == PUBLIC else "train"


def documents_of(source: Source, root: Path) -> list[list[str]]:
    """The cleaned documents of a source in an order that has nothing to do with their content."""
    found = []
    for path in sorted(root.rglob("*")):
        if (
            not wanted(str(path.relative_to(root)), source.files)
            or not path.is_file()
            or path.suffix in SIDE_FILES
        ):
            continue
        for document in source.reader(path):
            if source.language == "code":
                document = clean_program(document)
            else:
                cleaned = (clean(paragraph, source.language) for paragraph in document)
                document = [paragraph for paragraph in cleaned if paragraph]
            if sum(map(len, document)) > 150:
                found.append(document)
    if not found:
        raise SystemExit(
            f"fetch: {source.package} gave no {source.name} text in {source.language}, expected "
            f"files like {source.files}; correct sources.py"
        )
    return sorted(found, key=lambda document: crc32("\n".join(document).encode()) // 50)


def wanted(path: str, pattern: str) -> bool:
    """Whether a path is one of a pattern, where * stands for any name and ** for any path."""
    return pattern_of(pattern).fullmatch(path) is not None


@cache
def pattern_of(files: str) -> re.Pattern:
    text = re.sub(r"[.+]", r"\\\g<0>", files).replace("?", "[^/]")
    return re.compile(text.replace("**", "\0").replace("*", "[^/]*").replace("\0", ".*"))


def repository_programs(repository: Path) -> list[list[str]]:
    """Quire's own programs: the code that may stand on committed pages."""
    paths = sorted(
        path
        for pattern in ("train/**/*.py", "src/**/*.cpp", "src/**/*.h", "src/**/*.cu", "oracle/*.py")
        for path in repository.glob(pattern)
    )
    return [
        clean_program([line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()])
        for path in paths
    ]


def runs_of_words(paragraph: str, length: int) -> list[int]:
    """Hashes of all runs of length words."""
    words = paragraph.split(" ")
    return [hash(tuple(words[at : at + length])) for at in range(len(words) - length + 1)]


class Library:
    """Collects the documents of all sources by split and writes them."""

    def __init__(self) -> None:
        self.documents: dict[str, list[tuple[str, str, str]]] = {
            split: [] for split in SPLITS
        }  # language, name, text
        self.manifest: list[dict] = []
        self.seen: set[int] = set()

    def add(self, source: Source, documents: list[list[str]]) -> None:
        by_split: dict[str, list[list[str]]] = {split: [] for split in SPLITS}
        for document in documents:
            by_split[split_of("\n".join(document), source)].append(document)
        counts = Counter()
        for split in SPLITS:
            most = source.most if split == "train" else source.most // 15
            for document in by_split[split]:
                if counts[split] >= most:
                    break
                text = "\n".join(document if source.language == "code" else self.unseen(document))
                if len(text) > 100:
                    counts[split] += len(text)
                    self.documents[split].append((source.language, source.name, text))
        self.manifest.append(
            {
                "source": source.name,
                "language": source.language,
                "package": source.package,
                "licence": source.licence,
                "characters": dict(counts),
            }
        )

    def unseen(self, document: list[str]) -> list[str]:
        kept = []
        for paragraph in document:
            key = hash(paragraph)
            if key not in self.seen:
                self.seen.add(key)
                kept.append(paragraph)
        return kept

    def thin_out(self) -> None:
        """Drop from training each paragraph with REPEATED words in a row that MOST_COPIES
        paragraphs before it have: help texts and licences would be learnt by heart.
        """
        paragraphs = [
            paragraph
            for language, _, text in self.documents["train"]
            if language != "code"
            for paragraph in text.split("\n")
        ]
        every_run = np.fromiter(
            (run for text in paragraphs for run in runs_of_words(text, REPEATED)), np.int64
        )
        runs, counts = np.unique(every_run, return_counts=True)
        copies = dict.fromkeys(runs[counts > MOST_COPIES].tolist(), 0)

        def is_new(paragraph: str) -> bool:
            frequent = {run for run in runs_of_words(paragraph, REPEATED) if run in copies}
            if any(copies[run] >= MOST_COPIES for run in frequent):
                return False
            copies.update((run, copies[run] + 1) for run in frequent)
            return True

        self.keep_paragraphs(is_new)

    def keep_paragraphs(self, wanted: Callable[[str], bool]) -> None:
        """Keep of the training text, programs apart, the paragraphs that are wanted."""
        documents = []
        for language, name, text in self.documents["train"]:
            if language != "code":
                text = "\n".join(paragraph for paragraph in text.split("\n") if wanted(paragraph))
            if text:
                documents.append((language, name, text))
        self.documents["train"] = documents

    def separate(self) -> None:
        """Take from training each paragraph with SHARED words in a row of kept-out text."""
        kept_out: set[int] = set()
        for split in ("open", "held_out"):
            for language, _, text in self.documents[split]:
                if language != "code":
                    for paragraph in text.split("\n"):
                        kept_out.update(runs_of_words(paragraph, SHARED))
        self.keep_paragraphs(lambda text: kept_out.isdisjoint(runs_of_words(text, SHARED)))

    def add_own_programs(self, repository: Path) -> None:
        for lines in repository_programs(repository):
            self.documents["open"].append(("code", "quire", "\n".join(lines)))

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for split, documents in self.documents.items():
            documents.sort(key=lambda document: document[:2])
            with lzma.open(folder / f"{split}.txt.xz", "wt", encoding="utf-8", preset=9) as file:
                for language, name, text in documents:
                    file.write(f"\f{language} {name}\n{text}\n")


def build(
    roots: dict[str, Path], folder: Path, repository: Path, show: Callable[[str], None]
) -> Library:
    """Read every source and write folder/SPLIT.txt.xz. roots: package name to its unpacked tree."""
    library = Library()
    for source in TEXTS + PROGRAMS:
        show(f"texts: {source.language} {source.name}")
        library.add(source, documents_of(source, roots[source.package]))
    library.add_own_programs(repository)
    library.thin_out()
    library.separate()
    library.write(folder)
    return library
