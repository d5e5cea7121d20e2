"""How text is cleaned and packages are read, on small examples."""

from pathlib import Path

import pytest

from sources import scripts
from sources.extract import manual, markup, program
from sources.texts import MOST_COPIES, Library, clean, clean_program, wanted
from sources.words import is_word


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        (
            "“Nothing,” she said — «rien», and the naïve clerk wrote\xa0it down.",
            "“Nothing,” she said — «rien», and the naïve clerk wrote it down.",
        ),
        (
            "• The o\ufb03ce of the ﬁrst clerk stood open until late at night .",
            "The office of the first clerk stood open until late at night.",
        ),
        ("This paragraph still has a <b>tag</b> that nobody took out of it.", None),
        ("The pigeon has eaten Ð³ÑƒÑÑŒ and other letters of no alphabet.", None),
        ("Too short a line.", None),
        ("Somebody in the crowd shouted that she was a cunt and ran away.", None),
    ],
)
def test_clean(paragraph: str, expected: str | None) -> None:
    assert clean(paragraph, "en") == expected


def test_untranslated_paragraphs_go() -> None:
    text = "The server has been configured and you have the right to use the disk."
    assert clean(text, "en") == text
    assert clean(text, "de") is None


def test_words() -> None:
    assert is_word("naïve") and is_word("well-being") and is_word("snigger")
    assert not is_word("clerk's") and not is_word("b2b") and not is_word("Kanake")


def test_copies_are_thinned_out() -> None:
    """Training keeps what stands in some help pages, and not what stands in all of them."""
    library = Library()
    common = "If you give this option then the program prints the name of each file, say page {}."
    pages = [common.format(number) for number in range(10)] + ["A page with words of its own."]
    library.documents["train"] = [("en", "manual", page) for page in pages]
    library.thin_out()
    assert [text for _, _, text in library.documents["train"]] == pages[:MOST_COPIES] + pages[10:]


def test_patterns() -> None:
    assert wanted("usr/share/man/de/man1/ls.1.gz", "usr/share/man/de/man*/*.gz")
    assert not wanted("usr/share/man/de/man1/ls.1.gz", "usr/share/man/*.gz")
    assert wanted("usr/share/doc/a/b/c.html", "**/c.html")
    assert not wanted("usr/share/doc/cxhtml", "usr/share/doc/c.html")


def test_manual(tmp_path: Path) -> None:
    page = tmp_path / "ls.1"
    page.write_text(
        ".TH LS 1\n.SH NAME\nls \\- list\n.PP\nSee\n.BR cat (1)\nand \\fIthe\\fP rest.\n"
    )
    (paragraphs,) = manual(page)
    assert [text for text in paragraphs if text] == ["ls - list", "See cat(1) and the rest."]


def test_markup(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text("<head><title>x</title></head><p>One &amp; <b>two</b></p><pre>code</pre>")
    (paragraphs,) = markup(page)
    assert [text for text in paragraphs if text] == ["One & two"]


def test_program(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("/* licence\n * text */\n\nint main(void)\n{\n\treturn 0;\n}\n")
    (lines,) = program(source)
    assert clean_program(lines) == ["int main(void)", "{", "    return 0;", "}"]


@pytest.mark.parametrize(
    ("program_text", "expected"),
    [
        ('def f():\n    """What it\n    does."""\n    return 1', "def f():\n    return 1"),
        ('t = """\nwords\n"""\nf(t)', 't = """\nwords\n"""\nf(t)'),
        ("a();\n/* b\n   c */\nd();\n", "a();\nd();"),
        ("#!/bin/sh\n# one\na\nb\nc\nd\ne\n# two\n# three\nf", "a\nb\nc\nd\ne\n# two\nf"),
        ("#include <a.h>\n// b\n#endif", "#include <a.h>\n#endif"),
        ("use A;\n\n=head1 NAME\n\nA\n\n=cut\n\nb;", "use A;\n\nb;"),
    ],
)
def test_prose_leaves_programs(program_text: str, expected: str) -> None:
    assert clean_program(program_text.split("\n")) == expected.split("\n")


def test_characters_of_scripts() -> None:
    assert len(scripts.characters("chinese", "a")) >= scripts.LARGE
    assert scripts.characters("chinese", "a") != scripts.characters("chinese", "b")
    for _, name, script, _ in scripts.FACES:
        chars = scripts.characters(script, name)
        assert len(chars) == len(set(chars)) > 20, script
    assert scripts.arabic_forms("ا") == ["\ufe8d", "\ufe8e"]
    assert scripts.is_split_sign("\u09cb") and not scripts.is_split_sign("\u09c0")
