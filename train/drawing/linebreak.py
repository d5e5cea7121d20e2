"""Line breaking: where the lines of a paragraph end and where its glyphs stand. Lengths are
pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from drawing.glyphs import ALPHABET, LIGATURES

# What a character is to the line breaker.
CONSONANT, VOWEL, OTHER, SPACE, DASH = range(5)


def _character_class(char: str) -> int:
    if char == " ":
        return SPACE
    if char in "-–—":
        return DASH
    if not char.isalpha() or char in LIGATURES or char in "ªº":
        return OTHER
    vowels = "aeiouyàáâãäåæèéêëìíîïòóôõöøùúûüýÿāăąēĕėęěĩīĭįıōŏőœũūŭůűųŷ"
    return VOWEL if char.lower() in vowels else CONSONANT


CLASS = np.array([_character_class(c) for c in ALPHABET], np.int8)
LETTER_H = ALPHABET.index("h")

LEFT, JUSTIFIED, CENTRED, RIGHT = range(4)


@njit(cache=True)
def _break_after_dash(classes, start, i):
    """Whether a line that begins at start may end after character i: a dash between letters."""
    if classes[i] != DASH or i < start + 2 or i + 2 >= len(classes):
        return False
    return classes[i - 1] <= VOWEL and classes[i + 1] <= VOWEL


@njit(cache=True)
def _hyphen_point(index, advance, classes, word, overflow, room):
    """Where to hyphenate the word that begins at `word`, or -1.

    overflow: its first character that does not fit; room: what is left before it, less the hyphen.
    The rule is a plain one for all languages: before a consonant that a vowel follows, with a vowel
    before it, and at least two letters before and three after; pairs with h (ch, sh, th, ph) stay
    together."""
    end = word
    while end < len(index) and classes[end] != SPACE:
        end += 1
    while end > word and classes[end - 1] == OTHER:  # a comma or full stop
        end -= 1
    for i in range(word, end):
        if classes[i] > VOWEL:
            return -1
    fit = overflow
    while fit > word and room < 0:
        fit -= 1
        room += advance[fit]
    for k in range(min(fit, end - 3), word + 1, -1):
        if classes[k] == CONSONANT and classes[k + 1] == VOWEL and index[k] != LETTER_H:
            for i in range(word, k):
                if classes[i] == VOWEL:
                    return k
    return -1


class Lines(NamedTuple):
    """A paragraph in lines: arrays over its characters, then over its lines."""

    x: np.ndarray  # pen position of each character
    line: np.ndarray  # its line, -1: not drawn
    left: np.ndarray  # extent of each line
    right: np.ndarray
    end: np.ndarray  # index after the line's last character
    hyphenated: np.ndarray  # whether the line ends in a hyphen
    too_wide: int  # index within a word wider than the column, -1: none; else the rest is void


@njit(cache=True)
def set_lines(
    index, advance, width, first_indent, indent, align, hyphen, dash_breaks, most_lines
) -> Lines:
    """Breaks a paragraph into lines and places its characters.

    index, advance: position in ALPHABET and advance of each character; hyphen: the hyphen's
    advance, 0 for no hyphenation; dash_breaks: lines may break after a dash; most_lines: where to
    stop (the last line has no hyphen)."""
    characters = len(index)
    x, line = np.zeros(characters, np.float32), np.full(characters, -1, np.int32)
    most = min(most_lines, characters)
    lefts, rights = np.zeros(most, np.float32), np.zeros(most, np.float32)
    ends, hyphenated = np.zeros(most, np.int32), np.zeros(most, np.bool_)
    classes = CLASS[index]
    count, start = 0, 0
    while start < characters and count < most:
        left = first_indent if count == 0 else indent
        room = width - left

        # Take characters while they fit; remember the last place for a break.
        total, end, resume, total_at_end = 0.0, -1, -1, 0.0
        i = start
        while i < characters:
            if classes[i] == SPACE:
                if i > start:
                    end, resume, total_at_end = i, i + 1, total
            elif total + advance[i] > room + 0.01:
                break
            elif dash_breaks and _break_after_dash(classes, start, i):
                end, resume, total_at_end = i + 1, i + 1, total + advance[i]
            total += advance[i]
            i += 1

        if i == characters:
            end, resume, total_at_end = characters, characters, total
        elif hyphen > 0 and count < most - 1 and (end < 0 or total_at_end < 0.95 * room):
            word = max(start, resume)
            k = _hyphen_point(index, advance, classes, word, i, room - total - hyphen)
            if k > 0:
                hyphenated[count] = True
                end, resume, total_at_end = k, k, advance[start:k].sum() + hyphen
        if end < 0:
            return Lines(x, line, lefts, rights, ends, hyphenated, i)

        gap, at = 0.0, left
        if align == JUSTIFIED and resume < characters:
            spaces = (classes[start:end] == SPACE).sum()
            gap = (room - total_at_end) / max(1, spaces)
            if gap > 0.35 * room / (spaces + 1):
                gap = 0.0  # such a line would fall apart
        elif align == CENTRED:
            at = left + (room - total_at_end) / 2
        elif align == RIGHT:
            at = left + room - total_at_end
        lefts[count] = at
        for j in range(start, end):
            x[j], line[j] = at, count
            at += advance[j] + (gap if classes[j] == SPACE else 0.0)
        rights[count] = at + (hyphen if hyphenated[count] else 0.0)
        ends[count] = end
        count += 1
        start = resume
        while start < characters and classes[start] == SPACE:
            start += 1
    return Lines(x, line, lefts[:count], rights[:count], ends[:count], hyphenated[:count], -1)
