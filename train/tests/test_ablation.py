"""The ablation: its variants are runs of drafter.py, and its table says what was measured."""
import sys

import pytest

import ablation
import drafter


@pytest.mark.parametrize("name", ablation.VARIANTS)
def test_variants_are_runs_of_the_drafter(name, monkeypatch) -> None:
    given = ["--target", "t", "--to", "d", "--minutes", "1", *ablation.SHAPE, *ablation.VARIANTS[name][1]]
    monkeypatch.setattr(sys, "argv", ["drafter.py", *given])
    args = drafter.arguments()
    assert args.width == 384 and args.taps == [1, 5, 9, 10]
    assert args.dflash2 == (not name.startswith("dflash") or name.startswith("dflash2"))
    assert args.block_size == (8 if name.endswith("-8") else 16)
    assert args.layers == {"2": 2, "3": 3}.get(name.split("-")[-1], 5)


def test_table_and_plot(tmp_path) -> None:
    result = dict(acceptance_length=dict(value=8.123, low=7.5, high=8.75), draft_us=412.4,
                  acceptance=[dict(value=0.9), dict(value=0.8)], tokens_per_second=dict(value=12000.4),
                  speedup=dict(value=3.456))
    lines = ablation.table({"dflash2": result}).splitlines()
    assert lines[-1] == "| DFlash2: both | 8.12 (7.50 to 8.75) | 412 | 12000 | 3.46 |"
    ablation.draw({"dflash2": result}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
