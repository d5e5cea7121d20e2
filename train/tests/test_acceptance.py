"""Tests of acceptance.py: which pages make a group, its ratio, its interval, acceptance by position."""
import math

import numpy as np
import pytest

import acceptance


def page(name: str, tokens: int, steps: int, drafted=(), accepted=()) -> dict:
    return {"page": name, "draft_tokens": tokens, "draft_steps": steps, "drafted": list(drafted),
            "accepted": list(accepted)}


def test_groups_are_kinds_and_pages_without_a_step_do_not_count():
    pages = [page("dir/article-000.jpg", 8, 2), page("dir/article-001.jpg", 4, 2),
             page("dir/e-mail-000.jpg", 3, 1), page("dir/word-000.jpg", 0, 0)]
    groups = acceptance.by_kind(pages)
    assert {kind: len(members) for kind, members in groups.items()} == {
        "all": 3, "article": 2, "e-mail": 1}


def test_interval():
    ratio, low, high = acceptance.interval(np.array([6.0]), np.array([2.0]))
    assert ratio == 3 and math.isnan(low) and math.isnan(high)
    tokens, steps = np.full(50, 12.0), np.full(50, 4.0)
    assert acceptance.interval(tokens, steps) == (3, 3, 3)
    tokens = np.random.default_rng(0).normal(12, 4, 400)
    ratio, low, high = acceptance.interval(tokens, np.full(400, 4.0))
    assert ratio == pytest.approx(tokens.mean() / 4)
    assert high - low == pytest.approx(2 * 1.96 * tokens.std() / 4 / 20, rel=0.1)


def test_acceptance_by_position_counts_only_pages_with_such_a_draft():
    pages = [page("a-0.jpg", 5, 3, [3, 2], [2, 1]), page("a-1.jpg", 3, 1, [1], [1])]
    assert acceptance.acceptance_at(pages, 0) == 0.75
    assert acceptance.acceptance_at(pages, 1) == 0.5
    assert math.isnan(acceptance.acceptance_at(pages, 2))


def test_needs_pages_or_results(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["acceptance.py"])
    with pytest.raises(SystemExit):
        acceptance.parse_arguments()
    assert "--pages DIR or --results FILE" in capsys.readouterr().err
