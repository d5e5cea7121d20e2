"""Tests of the page generator; they need data/ (see README.md)."""

from pathlib import Path

import numpy as np
import pytest

import pages
from drawing.glyphs import Font
from foreign.scripts import load_scripts
from foreign.unreadable import MARKER, merged
from kinds import table as kinds
from text.texts import CHARS

DATA = Path(__file__).parents[1] / "data"
SMALL, LARGE = (90_000, 110_000), (900_000, 1_050_000)

pytestmark = pytest.mark.skipif(
    not (DATA / "fonts" / "index.json").exists(),
    reason="train/data is missing: run the fetch script",
)


@pytest.fixture(scope="module")
def generator() -> pages.Pages:
    return pages.Pages(DATA, "open")


@pytest.fixture(scope="module")
def sample(generator) -> list[pages.Page]:
    return [generator.draw(seed, LARGE if seed % 2 else SMALL) for seed in range(120)]


def test_a_seed_gives_the_same_page(generator):
    other = pages.Pages(DATA, "open")
    other.draw(99, SMALL)
    for seed in range(6):
        first, second = generator.draw(seed, SMALL), other.draw(seed, SMALL)
        assert first.markdown == second.markdown
        assert np.array_equal(first.image, second.image)


def test_sizes(sample):
    for seed, page in enumerate(sample):
        least, most = LARGE if seed % 2 else SMALL
        height, width = page.image.shape
        assert page.image.dtype == np.uint8
        assert height % 32 == 0 and width % 32 == 0
        assert least <= height * width <= most


def test_markdown_form(sample):
    allowed = set(CHARS) | {"\n"}
    for page in sample:
        text = page.markdown
        assert set(text) <= allowed
        assert not text.startswith("\n") and not text.endswith("\n")
        assert all(line == line.rstrip() for line in text.split("\n"))
        assert (text == "") == (page.kind == "blank")
        in_code = False
        for line in text.split("\n"):
            in_code ^= line == "```"
            if line.startswith("| ") and not in_code and " --- " not in line:
                assert line.endswith(" |")


def test_table_rows_have_equal_cells(generator):
    for seed in range(12):
        for block in generator.draw(seed, LARGE, kind="tables").markdown.split("\n\n"):
            lines = block.split("\n")
            if len(lines) > 1 and lines[1].startswith("| ---"):
                assert len({line.count("|") for line in lines}) == 1


def test_faces_have_what_they_draw(generator, monkeypatch):
    """A character that a face lacks is replaced before it is drawn."""
    slots, lacking = Font.slots, []

    def checked(font, text):
        lacking.extend(char for char in text if char in font.face.lacks)
        return slots(font, text)

    monkeypatch.setattr(Font, "slots", checked)
    for seed in range(300, 400):
        generator.draw(seed, SMALL)
    assert not lacking


def test_transcript_lines_are_numbered(generator):
    for seed in range(6):
        lines = generator.draw(seed, LARGE, kind="transcript").markdown.split("\n")
        assert [line.split(" ")[0] for line in lines] == [str(n + 1) for n in range(len(lines))]


def test_code_stands_out(generator):
    """Program text is in a fence only where the body is in another kind of face."""
    for seed in range(12):
        assert "```" not in generator.draw(seed, LARGE, kind="plain").markdown


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_every_kind_draws(generator, kind):
    page = generator.draw(5, LARGE, kind=kind)
    assert page.kind == kind
    ink = np.abs(page.image.astype(int) - np.median(page.image)) > 60
    assert kind == "blank" or ink.any()


def test_every_glyph_is_on_the_canvas(generator, monkeypatch):
    """`finish` counts glyphs outside and draws none of them; such pages must be rare and are drawn
    again."""
    outside = []
    finish = pages.Sheet.finish

    def counted(sheet):
        bounds, count = finish(sheet)
        outside.append(count > 0)
        return bounds, count

    monkeypatch.setattr(pages.Sheet, "finish", counted)
    for seed in range(200, 300):
        generator.draw(seed, SMALL)
    assert sum(outside) <= 5


def test_share_of_small_text(generator):
    """Most text is 12 to 17 pixels high, where pages of 10 to 12 points at about a megapixel
    lie."""
    characters = {"small": 0, "tiny": 0, "all": 0}
    for seed in range(150):
        page = generator.draw(seed, LARGE)
        characters["all"] += len(page.markdown)
        characters["small"] += len(page.markdown) * (12 <= page.body <= 17)
        characters["tiny"] += len(page.markdown) * (page.body < 12)
    assert characters["small"] >= 0.45 * characters["all"]
    assert 0 < characters["tiny"] <= 0.15 * characters["all"]


def test_asked_body_size(generator):
    for seed in range(20):
        assert 12.5 <= generator.draw(seed, LARGE, body=(13, 15)).body <= 15.5


def test_unknown_kind(generator):
    with pytest.raises(ValueError, match="expected one of"):
        generator.draw(1, SMALL, kind="papyrus")


def test_shares_of_what_cannot_be_read(generator):
    drawn = [generator.draw(seed, SMALL) for seed in range(1000, 2500)]
    whole = sum(page.markdown == MARKER for page in drawn) / len(drawn)
    partly = sum(MARKER in page.markdown for page in drawn) / len(drawn) - whole
    turned = sum(page.kind == "turned" for page in drawn) / len(drawn)
    blocks = {block for page in drawn for block in page.markdown.split("\n\n") if "<!--" in block}
    assert blocks <= {MARKER, *(f"<!-- turned {angle} -->" for angle in (90, 180, 270))}
    assert 0.02 <= whole <= 0.045
    assert 0.015 <= partly <= 0.045
    assert 0.025 <= turned <= 0.055


def test_unreadable_pages(generator):
    for seed in range(25):
        page = generator.draw(seed, SMALL, kind="unreadable")
        assert page.markdown == MARKER
        assert page.image.std() > 1


def test_neighbouring_markers_are_one():
    assert merged([MARKER, MARKER, "a", MARKER, "a", "a"]) == [MARKER, "a", MARKER, "a", "a"]


@pytest.mark.parametrize(
    "row, form",
    [
        ("======", "==="),
        ("=====", "====="),
        ("- - - - - - - x", "- - - x"),
        ("Name: ____________", "Name: ___"),
        ("-=-=-=-=-=-=-=", "-=-=-="),
        ("| --- | --- | --- | --- | --- | --- |", "| --- | --- | --- | --- | --- | --- |"),
        ("1111111 xxxxxxx", "1111111 xxxxxxx"),
    ],
)
def test_rows_of_signs_are_three(row, form):
    assert pages.shorten_rows_of_signs(row) == form


def test_turned_pages(generator):
    least, most = SMALL
    for seed in range(12):
        page = generator.draw(seed, SMALL, kind="turned")
        assert page.markdown in [f"<!-- turned {angle} -->" for angle in (90, 180, 270)]
        height, width = page.image.shape
        assert height % 32 == 0 and width % 32 == 0 and least <= height * width <= most


def returning(markdown: str, words: int = 6) -> int:
    """Runs of so many words that stood on the page before and now go on otherwise."""
    said = markdown.split()
    seen: dict[tuple[str, ...], str] = {}
    count = 0
    for i in range(len(said) - words):
        run, following = tuple(said[i : i + words]), said[i + words]
        count += seen.setdefault(run, following) != following
    return count


def test_phrases_return_on_pages_to_train_on_only(generator, monkeypatch):
    texts = [generator.draw(seed, LARGE, kind="book").markdown for seed in range(12)]
    monkeypatch.setattr(generator, "teaches", True)
    echoed = [generator.draw(seed, LARGE, kind="book").markdown for seed in range(12)]
    plain, echoed = (sum(map(returning, pages)) for pages in (texts, echoed))
    assert plain < 5 and echoed > 5 * plain + 5  # texts of the world repeat a little, too


def test_the_angle_is_clockwise(generator):
    page = generator.draw(3, SMALL, kind="letter")
    for quarters in (1, 2, 3):
        turned = pages._turn(page, quarters)
        assert turned.markdown == f"<!-- turned {90 * quarters} -->"
        assert np.array_equal(np.rot90(turned.image, -quarters), page.image)  # back, clockwise


def test_asked_kinds_are_upright_and_readable(generator):
    for seed in range(60):
        page = generator.draw(seed, SMALL, kind="snippet")
        assert page.kind == "snippet" and "<!--" not in page.markdown


def test_scripts_of_the_splits(generator):
    train, held_out = (load_scripts(DATA / "fonts" / "scripts", s) for s in ("train", "held_out"))
    assert not {s.face.path for s in train} & {s.face.path for s in held_out}
    east_asian = {"chinese", "japanese", "korean"}
    assert east_asian <= {s.name for s in train} and east_asian <= {s.name for s in held_out}


def test_arabic_letters_join():
    """Beh and alef: alone, at the start, at the end; alef joins to no next letter."""
    script = next(s for s in load_scripts(DATA / "fonts" / "scripts", "train") if s.leftwards)
    beh, alef = (script.face.alphabet.index(char) for char in "\ufe8f\ufe8d")
    drawn = [script.face.alphabet[i] for i in script._joined([beh, alef, beh])]
    assert drawn == ["\ufe91", "\ufe8e", "\ufe8f"]
