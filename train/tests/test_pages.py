"""Tests of the page generator; they need data/ (see README.md)."""

from pathlib import Path

import numpy as np
import pytest

import pages
from drawing import kinds
from drawing.glyphs import Font
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
