"""The kinds of page: how often each is drawn, on which shapes, and by which function."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from drawing.writer import Writer
from foreign import unreadable
from kinds import business, plain, small, text


@dataclass(frozen=True)
class Kind:
    fill: Callable[[Writer], None]
    large: float  # share of whole pages, per cent
    small: float  # share of pieces of pages
    shapes: tuple[str, ...]  # design.ASPECTS
    ems: int = 12  # ems that the width holds at least
    notes: bool = False  # may have footnotes


ANY = ("portrait", "portrait", "portrait", "portrait", "landscape", "crop")
TALL = ("portrait",)
MOSTLY_TALL = ("portrait", "portrait", "landscape")
TALL_OR_CROP = ("portrait", "portrait", "landscape", "crop")

KINDS = {
    "book": Kind(text.book, 14, 10, ANY, notes=True),
    "report": Kind(text.report, 15, 6, ANY, notes=True),
    "article": Kind(text.article, 26, 0, TALL, 38),
    "newsletter": Kind(text.newsletter, 4, 0, TALL, 32),
    "letter": Kind(business.letter, 8, 2, TALL, 22),
    "memo": Kind(business.memo, 3, 1, TALL, 22),
    "invoice": Kind(business.invoice, 6, 2, TALL, 34),
    "statement": Kind(business.statement, 4, 1, MOSTLY_TALL, 36),
    "tables": Kind(business.data_tables, 7, 8, TALL_OR_CROP, 26),
    "form": Kind(business.form, 5, 2, MOSTLY_TALL, 26),
    "directory": Kind(business.directory, 2, 3, ANY),
    "receipt": Kind(business.receipt, 2, 4, ("receipt",), 14),
    "lists": Kind(text.lists, 4, 5, ANY),
    "contents": Kind(text.contents, 2, 2, TALL, 22),
    "index": Kind(text.index_page, 1, 0, TALL, 24),
    "glossary": Kind(text.glossary, 2, 2, ANY),
    "references": Kind(text.references, 2, 2, ("portrait", "portrait", "crop")),
    "verse": Kind(text.verse, 2, 3, ANY),
    "program": Kind(
        text.program, 4, 4, ("portrait", "portrait", "landscape", "crop", "screen"), 30
    ),
    "title": Kind(small.title_page, 1.5, 1, MOSTLY_TALL),
    "sparse": Kind(small.sparse, 1.5, 1, ("portrait", "portrait", "landscape", "wide")),
    "transcript": Kind(plain.transcript, 2.5, 2, ("portrait", "portrait", "crop"), 32),
    "mail": Kind(plain.mail, 3, 2, ("portrait", "portrait", "screen", "crop"), 26),
    "plain": Kind(plain.plain, 3, 2, ANY, 30),
    "dialogue": Kind(plain.dialogue, 2, 2, ANY, 20),
    "vita": Kind(plain.vita, 1.5, 0.5, TALL, 30),
    "slide": Kind(small.slide, 3, 2, ("wide",)),
    "screen": Kind(small.screen, 3, 4, ("screen", "wide", "crop")),
    "card": Kind(small.card, 1, 5, ("card",)),
    "strings": Kind(small.strings, 3, 8, ("crop", "card", "portrait")),
    "word": Kind(small.word, 0.5, 10, ("line", "line", "card")),
    "snippet": Kind(small.snippet, 5, 32, ("crop", "crop", "crop", "card", "screen")),
    "unreadable": Kind(unreadable.page, 5, 3, ANY, 20),
    "blank": Kind(small.blank, 3, 3, ("portrait", "crop", "card")),
}


def choose(r: random.Random, piece: bool) -> str:
    """A kind for a whole page or a piece of one."""
    shares = [kind.small if piece else kind.large for kind in KINDS.values()]
    return r.choices(list(KINDS), shares)[0]
