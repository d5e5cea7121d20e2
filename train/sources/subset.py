"""Cuts a face to some of its characters."""

from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont


def save_subset(font: TTFont, codes: list[int], target: Path, hinting: bool) -> None:
    """Write the glyphs of some code points to target, without layout tables."""
    options = subset.Options(
        layout_features=[], hinting=hinting, desubroutinize=False, name_IDs=[1, 2]
    )
    options.drop_tables += ["GPOS", "GSUB", "GDEF", "BASE", "MATH", "kern"]
    options.drop_tables += ["EBDT", "EBLC", "EBSC", "VORG", "vhea", "vmtx", "morx", "mort"]
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=codes)
    cutter.subset(font)
    font.save(target)
