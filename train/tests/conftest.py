"""Tests import as the programs in train/ do."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
