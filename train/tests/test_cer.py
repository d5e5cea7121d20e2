"""Tests of cer.py: each rule of the normalisation by an example, and the rates."""

import pytest

from cer import Errors, count_errors, count_normalised_errors, normalise


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("---\ntitle: x\n---\nBody", "Body"),
        ("a <!-- note\nof two lines --> b", "a b"),
        ("```python\nx = 1\n```", "x = 1"),
        ("![a picture](p.png) and [a link](http://a.b/c_(d))", "and a link"),
        ("<td>1</td><td>2 &lt; 3 &amp; 4</td>", "1 2 < 3 & 4"),
        ("| a | b |\n| --- | :--: |\n| 1 | 2 |", "a b 1 2"),
        ("## Title\n\n- one\n* two\n> three", "Title one two three"),
        ("above\n\n*****\n\nbelow", "above below"),
        (r"5 \* 3 \| 2", "5 * 3 2"),
        ("**bold** and _italic_ but snake_case", "bold and italic but snake_case"),
        ("“quoted” ‘so’ – and — − on", "\"quoted\" 'so' - and - - on"),
        ("• one\n▪ two", "one two"),
        ("ﬁne ½ ²", "fine 1⁄2 2"),
        ("a bro-\nken word, not A-\nB", "a broken word, not A- B"),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth"),
        ("  many \t\r\n\r\n spaces ", "many spaces"),
    ],
)
def test_normalise(text: str, plain: str) -> None:
    assert normalise(text) == plain


def test_raw_errors_count_marks_but_not_outer_space() -> None:
    assert count_errors("# Title\n", "Title").wrong == 2
    assert count_errors("abc\n\n", "abc").wrong == 0
    assert count_normalised_errors("# Title\n", "Title").wrong == 0


def test_rates() -> None:
    assert count_errors("abcd", "abxd").rate == 0.25
    assert count_errors("ab", "abcdef").rate == 2
    assert count_errors("", "").rate == 0
    assert count_errors("", "invented").rate == 1
    assert (Errors(1, 10) + Errors(0, 90)).rate == 0.01
