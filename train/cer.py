"""Character error rate of Markdown against the Markdown that stands on the page.

raw         Levenshtein distance over the expected text's length, marks and line breaks included
normalised  the same after `normalise`: only what a reader would call text, no layout or typography

A rate is a share: 0.01 is one wrong, missing or surplus character in a hundred. It can exceed 1.
"""

import re
import unicodedata
from dataclasses import dataclass
from html import unescape

from rapidfuzz.distance import Levenshtein

PLAIN_FORMS = str.maketrans(
    {quote: "'" for quote in "‘’‚"}
    | {quote: '"' for quote in "“”„"}
    | {dash: "-" for dash in "\u2010\u2011\u2012–—−"}
    | {bullet: " " for bullet in "•●▪·\f"}
    | {invisible: None for invisible in "\u00ad\u200b\ufeff"}
)

# Applied in this order, before and after character entities are resolved.
MARKUP = [
    (re.compile(r"\A\s*---\n.*?\n---[ \t]*(?:\n|\Z)", re.S), ""),  # YAML front matter
    (re.compile(r"<!--.*?-->", re.S), " "),
    (re.compile(r"^\s*(?:```|~~~).*$", re.M), " "),  # code fences
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), " "),  # pictures
    (re.compile(r"\[([^\]]*)\]\((?:[^()\s]|\([^()]*\))*\)"), r"\1"),  # links keep their text
    (re.compile(r"</?[A-Za-z][^<>]{0,300}>"), " "),  # HTML tags
]
_RULE_CELL = r"[ \t]*:?-{2,}:?[ \t]*"
MARKS = [
    (re.compile(rf"^\s*\|?{_RULE_CELL}(?:\|{_RULE_CELL})*\|?[ \t]*$", re.M), " "),  # table rule
    (re.compile(r"^[ \t]*(?:#{1,6}|>+|[-*+])[ \t]+", re.M), ""),  # headings, quotes, bullets
    (re.compile(r"^[ \t]*([-*_])(?:[ \t]*\1){2,}[ \t]*$", re.M), " "),  # horizontal rules
    (re.compile(r"\\([\\`*_{}\[\]()#+\-.!|<>$&])"), r"\1"),  # escapes
    (re.compile(r"\|"), " "),
    (re.compile(r"\*\*|__|`"), ""),
    (re.compile(r"(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w)"), ""),  # emphasis
]
BROKEN_WORD = re.compile(r"(?<=[a-z])-\s*\n\s*(?=[a-z])")


def normalise(text: str) -> str:
    """The text without Markdown and HTML, in NFKC, with plain quotes and dashes, on one line."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for pattern, replacement in MARKUP:
        text = pattern.sub(replacement, text)
    text = unescape(text)
    for pattern, replacement in MARKS:
        text = pattern.sub(replacement, text)
    text = unicodedata.normalize("NFKC", text.translate(PLAIN_FORMS)).translate(PLAIN_FORMS)
    text = BROKEN_WORD.sub("", text)
    return " ".join(text.split())


@dataclass(frozen=True)
class Errors:
    """Wrong characters and the number of characters expected; sums of them are again a rate."""

    wrong: int
    expected: int

    @property
    def rate(self) -> float:
        return self.wrong / self.expected if self.expected else float(self.wrong > 0)

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(self.wrong + other.wrong, self.expected + other.expected)


def count_errors(expected: str, got: str) -> Errors:
    """Raw errors; white space at either end does not count."""
    expected, got = expected.strip(), got.strip()
    return Errors(Levenshtein.distance(expected, got), len(expected))


def count_normalised_errors(expected: str, got: str) -> Errors:
    return count_errors(normalise(expected), normalise(got))
