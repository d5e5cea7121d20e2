"""The text of pages: characters, lengths, splits, repeatability and speed, on the fetched data
folder.
"""

import time
from pathlib import Path
from random import Random

import pytest

from sources.texts import COMMENT
from text import lorem
from text.texts import CHARS, Texts
from text.words import KEPT_OUT_SHARE

FOLDER = Path(__file__).resolve().parents[1] / "data"
SPLITS = ("train", "held_out", "open")

pytestmark = pytest.mark.skipif(
    not (FOLDER / "manifest.json").exists(),
    reason="no data folder; make it with: python train/fetch.py",
)


@pytest.fixture(scope="module")
def loaded() -> dict[str, Texts]:
    return {split: Texts(FOLDER, split) for split in SPLITS}


def draws(texts: Texts, seed: int, count: int) -> list[str]:
    """Paragraphs, phrases, values and lines of programs in equal parts."""
    r = Random(seed)
    found = []
    while len(found) < count:
        style = texts.style(r)
        found.append(texts.prose(r, r.choice([30, 80, 300, 1000]), style))
        found.append(texts.phrase(r, 1, 6, style))
        found.append(texts.value(r))
        found.append("".join(texts.code(r, 3)))
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_only_known_characters(loaded: dict[str, Texts], split: str) -> None:
    seen = set().union(*draws(loaded[split], 1, 20_000))
    assert seen <= set(CHARS), f"unknown characters {sorted(seen - set(CHARS))}"


@pytest.mark.parametrize("split", SPLITS)
def test_same_seed_same_text(loaded: dict[str, Texts], split: str) -> None:
    assert draws(loaded[split], 7, 400) == draws(loaded[split], 7, 400)
    assert draws(loaded[split], 7, 400) != draws(loaded[split], 8, 400)


def test_lengths(loaded: dict[str, Texts]) -> None:
    texts, r = loaded["train"], Random(2)
    reached = []
    for _ in range(4000):
        style, chars = texts.style(r), r.randint(30, 3000)
        text = texts.prose(r, chars, style)
        assert 1 <= len(text) <= chars
        assert text == " ".join(text.split()), "spaces are single and none is at an end"
        reached.append(len(text) / chars)
        low = r.randint(1, 5)
        assert low <= len(texts.phrase(r, low, low + 3, style).split(" ")) <= low + 3
        lines = texts.code(r, 12)
        assert 1 <= len(lines) <= 12 and all(len(line) <= 100 for line in lines)
    assert sum(reached) / len(reached) > 0.8


def test_splits_share_no_text(loaded: dict[str, Texts]) -> None:
    """No paragraph that is held out, and no piece of 80 characters from its middle, is in the
    training text.
    """
    for split in ("held_out", "open"):
        other, r = loaded[split], Random(3)
        end = max(region.end for region in other.regions)
        paragraphs = [text for text in other.text[:end].split("\n") if len(text) > 160]
        for text in r.sample(paragraphs, 100):
            assert text not in loaded["train"].text
    pieces = [text[40:120] for text in r.sample(paragraphs, 100)]
    assert sum(piece in loaded["train"].text for piece in pieces) <= 1


@pytest.mark.parametrize("split", ["held_out", "open"])
def test_single_words_of_the_other_splits(loaded: dict[str, Texts], split: str) -> None:
    """They are training words by frequency and, for a part, words that training may not have."""
    words, r = loaded[split].words["en"], Random(5)
    drawn = [words.draw(r) for _ in range(20_000)]
    kept_out = set(words.kept_out)
    share = sum(word in kept_out for word in drawn) / len(drawn)
    assert share > 0.9 * KEPT_OUT_SHARE
    assert drawn.count("the") > 200
    if split == "held_out":
        assert share < 1.1 * KEPT_OUT_SHARE
        assert kept_out.isdisjoint(loaded["train"].words["en"].text.split("\n"))


def test_filler_latin_is_no_known_text() -> None:
    """Three words in a row of the usual text come up by chance only, one word in eight is none
    of its words.
    """
    r = Random(6)
    words = [lorem.word(r) for _ in range(50_000)]
    usual = "consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore"
    runs = [" ".join(words[at : at + 3]) for at in range(len(words) - 2)]
    assert sum(run in usual for run in runs) < 5
    assert sum(word not in lorem.LOREM for word in words) > len(words) / 8
    assert {"consetetur", "consectetur", "nonumy", "eiusmod", "elitr", "elit"} <= set(words)


def test_programs_are_no_prose(loaded: dict[str, Texts]) -> None:
    texts, r = loaded["train"], Random(8)
    lines = [line for _ in range(2000) for line in texts.code(r, 12) if line]
    comments = [line for line in lines if COMMENT.match(line)]
    assert len(comments) < len(lines) / 6
    following = [
        a for a, b in zip(lines, lines[1:], strict=False) if a in comments and b in comments
    ]
    assert len(following) < len(lines) / 500  # only where one piece ends and the next starts


def test_speed(loaded: dict[str, Texts]) -> None:
    texts, r = loaded["train"], Random(4)
    styles = [texts.style(r) for _ in range(1000)]
    start = time.perf_counter()
    for style in styles:
        texts.prose(r, 1000, style)
    assert (time.perf_counter() - start) / len(styles) < 2e-3  # 0.25 ms on an idle core


def test_unknown_split() -> None:
    with pytest.raises(ValueError, match="held_out"):
        Texts(FOLDER, "test")
