"""Scripts that the model does not read: words and lines of them that look like text and mean
nothing. Their faces are in fonts/scripts (written by the fetch script)."""

from __future__ import annotations

import json
import random
import unicodedata
from functools import cached_property
from pathlib import Path

import numpy as np

from drawing.glyphs import BREAK, Face, Font
from drawing.sheet import Rich, join

EAST_ASIAN = ("chinese", "taiwanese", "japanese", "korean")
WITHOUT_SPACES = ("chinese", "taiwanese", "japanese", "thai", "lao", "khmer", "myanmar")
LEFTWARDS = ("arabic", "hebrew")
MATHEMATICS = "mathematics"  # signs for formulas
GAP = -1  # between words, where others have a position in the alphabet


class Script:
    """One script in one face."""

    def __init__(self, name: str, face: Face):
        self.name = name
        self.face = face
        self.spaced = name not in WITHOUT_SPACES
        self.leftwards = name in LEFTWARDS

    @cached_property
    def _letters(self) -> tuple[list[int], list[float]]:
        """Positions of what words are made of, and their weights: few letters are common."""
        letters = [i for i, char in enumerate(self.face.alphabet) if self._is_letter(char)]
        rank = 20 if self.name in EAST_ASIAN else 4
        return letters, list(np.cumsum([1 / (rank + i) for i in range(len(letters))]))

    def _is_letter(self, char: str) -> bool:
        if self.name == "arabic":
            return unicodedata.decomposition(char).startswith("<isolated>")
        return unicodedata.category(char) in ("Lo", "Ll", "Po", "Ps", "Pe", "Pi", "Pf", "Sm")

    @cached_property
    def _marks(self) -> list[int]:
        """Positions of vowel signs, which stand with a letter."""
        alphabet = self.face.alphabet
        return [i for i, c in enumerate(alphabet) if unicodedata.category(c) in ("Mn", "Mc")]

    @cached_property
    def _capitals(self) -> dict[int, int]:
        alphabet = self.face.alphabet
        found = {i: alphabet.find(char.upper()) for i, char in enumerate(alphabet)}
        return {i: capital for i, capital in found.items() if capital not in (-1, i)}

    def word(self, r: random.Random, length: int | None = None) -> list[int]:
        """A word as positions in the face's alphabet, in the order in which it is drawn."""
        letters, weights = self._letters
        if length is None:
            length = r.randint(1, 4) if self.name == "korean" else 1 + int(r.triangular(0, 11, 4))
        drawn = r.choices(letters, cum_weights=weights, k=length)
        if self.name == "arabic":
            return self._joined(drawn)[::-1]
        if self._marks:
            pairs = [[i, r.choice(self._marks)] if r.random() < 0.45 else [i] for i in drawn]
            return [i for pair in pairs for i in pair]
        if self._capitals and r.random() < 0.15:
            drawn[0] = self._capitals.get(drawn[0], drawn[0])
        return drawn

    def _joined(self, letters: list[int]) -> list[int]:
        """Arabic letters in the forms in which they join: the alphabet has, for each letter, its
        form alone, at the end, the start and the middle, the last two not for all letters."""
        alphabet = self.face.alphabet
        joins_next = [
            "<initial>" in unicodedata.decomposition(alphabet[i + 2 : i + 3] or " ")
            for i in letters
        ]
        drawn, joined = [], False
        for place, letter in enumerate(letters):
            onwards = joins_next[place] and place < len(letters) - 1
            drawn.append(letter + (1 if joined else 0) + (2 if onwards else 0))
            joined = onwards
        return drawn

    def rich(
        self, r: random.Random, font: Font, words: int, latin: Font, latin_words: list[str]
    ) -> Rich:
        """A run of words (of characters in scripts without spaces). latin_words: stand in between
        at random places, in the font `latin`."""
        if self.spaced:
            gap = latin.slots(" ")
            drawn = [i for _ in range(words) for i in (*self.word(r), GAP)][:-1]
        else:
            gap = np.array([BREAK], np.int32)
            drawn = [i for letter in self.word(r, words) for i in (letter, GAP)][:-1]
        index = np.array(drawn)
        slots = font.numbered(np.maximum(index, 0))
        slots[index == GAP] = gap
        rich = Rich("".join(" " if i == GAP else "x" for i in drawn), slots)
        for word in latin_words:
            at = rich.chars.find(" ", r.randrange(len(rich.chars))) + 1
            inserted = Rich(word + " ", np.concatenate([latin.slots(word), gap]))
            rich = join(rich.part(0, at), inserted, rich.part(at, len(rich.chars)))
        return rich


def load_scripts(folder: Path, split: str) -> list[Script]:
    """The scripts described by FOLDER/index.json, of one split."""
    index = folder / "index.json"
    if not index.exists():
        raise FileNotFoundError(
            f"{index}: missing; expected the list of faces of other scripts that the fetch script "
            "makes; run train/fetch.py"
        )
    return [
        Script(entry["script"], Face(folder / entry["file"], alphabet=entry["chars"]))
        for entry in json.loads(index.read_text(encoding="utf-8"))
        if entry["split"] == split
    ]
