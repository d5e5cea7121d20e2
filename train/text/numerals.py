"""Digits, letters and numbers, from which values are made."""

import string
from random import Random

DIGITS = string.digits
SEPARATORS = [(",", "."), (".", ","), (" ", ","), ("’", "."), ("", "."), ("", ",")]


def digits(r: Random, count: int) -> str:
    return "".join(r.choices(DIGITS, k=count))


def capitals(r: Random, count: int) -> str:
    return "".join(r.choices(string.ascii_uppercase, k=count))


def grouped(text: str, size: int, separator: str = " ") -> str:
    """Cut into groups of size characters from the left."""
    return separator.join(text[i : i + size] for i in range(0, len(text), size))


def whole(r: Random, most: int = 7) -> int:
    """A whole number of 1 to most digits, each length as likely."""
    return r.randrange(10 ** r.randint(1, most))


def decimal(r: Random, places: int, most: int = 7) -> str:
    thousands, point = r.choice(SEPARATORS)
    text = f"{whole(r, most):,}".replace(",", thousands)
    return text + point + digits(r, places) if places else text
