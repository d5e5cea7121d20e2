"""Weights of an average lie between; directories that do not match are refused before anything is written."""
import pytest
import torch
from safetensors.torch import load_file, save_file

from average import average


def write(folder, **files) -> None:
    folder.mkdir()
    for name, tensors in files.items():
        save_file(tensors, folder / f"{name}.safetensors")


def test_weights_are_so_far_from_the_first_to_the_second(tmp_path):
    x, y = torch.tensor([1.0, -2.0, 0.5]).bfloat16(), torch.tensor([[4.0, 8.0]])
    write(tmp_path / "first", all={"x": x, "y": y})  # cut into files otherwise
    write(tmp_path / "second", one={"x": x + 4}, two={"y": y * 2})
    (tmp_path / "second" / "config.json").write_text("{}")
    average(tmp_path / "first", tmp_path / "second", 0.75, tmp_path / "to")
    written = sorted(path.name for path in (tmp_path / "to").iterdir())
    assert written == ["config.json", "one.safetensors", "two.safetensors"]
    assert load_file(tmp_path / "to" / "one.safetensors")["x"].equal(x + 3)
    assert load_file(tmp_path / "to" / "two.safetensors")["y"].equal(y * 1.75)


@pytest.mark.parametrize("other", [{"x": torch.ones(3)}, {"z": torch.ones(2)},
                                   {"x": torch.ones(2), "z": torch.ones(2)}])
def test_other_tensors_are_refused(tmp_path, other):
    write(tmp_path / "first", all={"x": torch.ones(2)})
    write(tmp_path / "second", all=other)
    with pytest.raises(SystemExit, match="expected two directories with tensors of the same names"):
        average(tmp_path / "first", tmp_path / "second", 0.5, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_a_folder_without_weights_and_a_damaged_file_are_named(tmp_path):
    write(tmp_path / "first", all={"x": torch.ones(2)})
    write(tmp_path / "second", all={"x": torch.ones(2)})
    file = tmp_path / "second" / "all.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    for second, message in ((tmp_path / "none", "no .*safetensors there"), (file.parent, "damaged or cut short")):
        with pytest.raises(SystemExit, match=message):
            average(tmp_path / "first", second, 0.5, tmp_path / "to")
