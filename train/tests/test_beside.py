"""A drafter beside its model: what reaches the model, and that the rest does not."""
from argparse import Namespace

import pytest
import torch
from drafting import BLOCK, MINI, tiny_config, tiny_target, two_pages

from network import dflash, dflash2
from network.beside import Beside
from network.block_loss import draw_anchors, step_loss
from network.data import Text
from network.dflash import Drafter
from network.model import Batch, Model

BLOCKS = 16


@pytest.fixture
def target() -> Model:
    return tiny_target().requires_grad_(True)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return two_pages(Text(MINI))[0]


def new_drafter(second: bool) -> Drafter:
    torch.manual_seed(2)
    config = dflash.make_config(tiny_config(), mask_token=4095, layers=2, block=BLOCK)
    drafter = Drafter(dflash2.make_config(config) if second else config)
    drafter.initialise()
    for p in drafter.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return drafter


def beside(target: Model, ahead: float, updates: int, second: bool = False) -> Beside:
    return Beside(new_drafter(second), target, Namespace(
        ahead=ahead, blocks=BLOCKS, updates=updates, drafter_lr=1.0, decay_from=0.5))


def gradients_with(drafter: Beside, target: Model, batch: Batch) -> dict[str, torch.Tensor]:
    """Of one step of target.py."""
    loss, choices, features = target.loss(batch, drafter.taps, torch.float32)
    torch.manual_seed(3)
    further = drafter.learn(features, choices, batch, 0.0)
    torch.autograd.backward([loss, *features], [None, *further])
    return taken(target)


def taken(target: Model) -> dict[str, torch.Tensor]:
    gradients = {n: p.grad.clone() for n, p in target.named_parameters() if p.grad is not None}
    target.zero_grad()
    return gradients


@pytest.mark.parametrize("second", [False, True])
def test_the_model_feels_that_part_of_the_drafters_loss(target, batch, second) -> None:
    ahead = 0.25
    found = gradients_with(beside(target, ahead, 1, second), target, batch)

    drafter = new_drafter(second)
    loss, choices, features = target.loss(batch, drafter.taps, torch.float32)
    written = torch.full_like(batch.ids, -1)
    written[batch.label_rows] = choices
    torch.manual_seed(3)
    drafted, _, _ = step_loss(drafter, target, features, written, batch, draw_anchors(batch, BLOCKS))
    (loss + ahead * drafted).backward()
    expected = taken(target)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-5)

    target.loss(batch, dtype=torch.float32)[0].backward()
    alone = taken(target)
    below = "language_model.layers.0.mlp.up_proj.weight"  # below the taps, unlike the last norm
    assert not torch.allclose(alone[below], found[below], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(alone["language_model.norm.weight"], found["language_model.norm.weight"])


def test_nothing_reaches_the_model_at_zero(target, batch) -> None:
    drafter = beside(target, 0.0, 3)
    before = {n: p.detach().clone() for n, p in drafter.drafter.named_parameters()}
    found = gradients_with(drafter, target, batch)
    target.loss(batch, dtype=torch.float32)[0].backward()
    for name, gradient in taken(target).items():
        torch.testing.assert_close(found[name], gradient)
    assert all((p != before[n]).any() for n, p in drafter.drafter.named_parameters()
               if "fc" in n or "q_proj" in n)


def test_learns(target, batch) -> None:
    drafter, figures = beside(target, 0.1, 4), []
    drafter.updates.count = 200  # past the warm-up
    for _ in range(12):
        _, choices, features = target.loss(batch, drafter.taps, torch.float32)
        drafter.learn(features, choices, batch, 0.0)
        figures.append(drafter.figures())
    assert figures[-1]["drafter_loss"] < 0.8 * figures[0]["drafter_loss"]
