"""The ablation: its variants are runs of drafter.py, and its table says what was measured."""
import sys

import pytest
from drafting import tiny_config

import ablation
import drafter
from network import dflash, dflash2
from network.dflash import Drafter


@pytest.mark.parametrize("name", ablation.VARIANTS)
def test_variants_differ_in_what_they_are_named_after(name, monkeypatch, tmp_path) -> None:
    whole = Drafter(dflash2.make_config(dflash.make_config(tiny_config(), mask_token=4095, layers=5)))
    whole.initialise()
    dflash.save(whole, tmp_path / "whole")
    monkeypatch.setattr(sys, "argv", [
        "drafter.py", "--target", "t", "--from", str(tmp_path / "whole"), "--to", str(tmp_path / name),
        "--minutes", "1", *ablation.VARIANTS[name][1]])
    made = drafter.open_drafter(drafter.arguments())
    assert made.config["num_hidden_layers"] == len(made.layers) == {"-2": 2, "-3": 3}.get(name[-2:], 5)
    assert made.block == dflash.block_size(made.config) == (8 if name.endswith("-8") else 16)
    assert dflash.is_dflash2(made.config) == (name.split("-")[0] != "dflash")
    trained = {part for part, mark in dflash.PARTS.items() if any(
        mark in n and p.requires_grad for n, p in made.named_parameters())}
    assert trained == {"dflash": set(), "conv": {"conv"}, "selector": {"selector"}}.get(
        name.split("-")[0], {"conv", "selector"})
    dflash.save(made, tmp_path / name)
    assert dflash.load(tmp_path / name).config == made.config


def test_table_and_plot(tmp_path) -> None:
    result = dict(acceptance_length=dict(value=8.123, low=7.5, high=8.75), draft_us=412.4,
                  acceptance=[dict(value=0.9), dict(value=0.8)], tokens_per_second=dict(value=12000.4),
                  speedup=dict(value=3.456))
    lines = ablation.table({"dflash2": result}).splitlines()
    assert lines[-1] == "| DFlash2: both | 8.12 (7.50 to 8.75) | 412 | 12000 | 3.46 |"
    ablation.draw({"dflash2": result}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000
