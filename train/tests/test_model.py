"""The packed model on the CPU: a page gives the same logits alone and among others, weights survive
the way to disk, and a batch holds what its pages say."""
import numpy as np
import pytest
import torch

from network import checkpoint
from network.data import PageBuffer, Sizes, patches_of, places_of
from network.model import Model

CONFIG = {
    "model_type": "qwen3_5", "tie_word_embeddings": True,
    "text_config": {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6,
        "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                            "mrope_section": [2, 1, 1]}},
    "vision_config": {
        "hidden_size": 32, "depth": 2, "num_heads": 2, "intermediate_size": 48,
        "out_hidden_size": 32, "num_position_embeddings": 16, "in_channels": 3,
        "temporal_patch_size": 2}}
SIZES = Sizes(tokens=96, patches=96, labels=48)


class Prompt:
    before, after, image, stop = [60, 61], [62], 63, 59


@pytest.fixture
def model() -> Model:
    torch.manual_seed(1)
    model = Model(CONFIG)
    model.initialise()
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return model


def pages() -> list[tuple[np.ndarray, list[int]]]:
    r = np.random.default_rng(2)
    return [(r.integers(0, 256, shape, np.uint8), r.integers(0, 59, count).tolist() + [Prompt.stop])
            for shape, count in (((64, 32), 9), ((32, 96), 1), ((64, 64), 14))]


def logits_of_labels(model: Model, chosen: list) -> torch.Tensor:
    buffer = PageBuffer(Prompt, SIZES)
    for image, response in chosen:
        assert buffer.add(image, response)
    batch = buffer.batch()
    x, _ = model.hidden(batch, dtype=torch.float32)
    return model.logits(x[batch.label_rows[batch.labels >= 0]])


def test_a_page_does_not_see_its_neighbours(model):
    together = logits_of_labels(model, pages())
    alone = torch.cat([logits_of_labels(model, [page]) for page in pages()])
    assert torch.allclose(together, alone, atol=1e-5)
    assert together.std() > 0.1


def test_a_page_sees_its_image_and_its_past(model):
    image, response = pages()[0]
    before = logits_of_labels(model, [(image, response)])
    touched = image.copy()
    touched[40, 20] ^= 255
    assert not torch.allclose(before, logits_of_labels(model, [(touched, response)]))
    changed = response[:3] + [(response[3] + 1) % 59] + response[4:]
    after = logits_of_labels(model, [(image, changed)])
    assert torch.equal(before[:4], after[:4])
    assert not torch.allclose(before[4], after[4])


def test_weights_survive_the_way_to_disk(model, tmp_path):
    for p in model.parameters():
        p.data = p.data.bfloat16().float()
    checkpoint.save(model, CONFIG, tmp_path)
    loaded = checkpoint.load(tmp_path)
    for (name, a), b in zip(model.named_parameters(), loaded.parameters()):
        tolerance = 1e-2 if name == "visual.patch.weight" else 0  # a sixth of it is stored in bf16
        assert torch.allclose(a, b, rtol=tolerance, atol=0), name


def test_a_page_that_does_not_fit_is_refused():
    buffer = PageBuffer(Prompt, SIZES)
    image, response = pages()[2]
    assert buffer.add(image, response) and buffer.add(image, response)
    assert not buffer.add(image, response * 3)
    assert not buffer.add(np.zeros((512, 512), np.uint8), response)
    batch = buffer.batch()
    assert batch.pages == 2
    assert batch.labels[batch.labels >= 0].tolist() == response * 2
    assert batch.starts[-1] == SIZES.tokens and batch.patch_starts[-1] == SIZES.patches


def test_patches_come_in_merge_order():
    image = np.arange(64 * 96, dtype=np.uint32).reshape(64, 96).astype(np.uint8)
    places = places_of(4, 6)
    assert places[:5].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]
    for patch, (row, column) in zip(patches_of(image), places):
        assert (patch == image[16 * row:16 * row + 16, 16 * column:16 * column + 16].ravel()).all()
