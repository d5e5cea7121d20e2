"""Tests of what DFlash2 adds: convolutions, candidate selector, loss, files, start from DFlash."""
import json
import math

import pytest
import torch
import torch.nn.functional as F
from drafting import (
    BLOCK,
    HIDDEN,
    MINI,
    SIZES,
    image,
    plain_forward,
    tiny_config,
    tiny_target,
    two_pages,
)
from safetensors.torch import load_file

from drafter import freeze
from network import dflash, dflash2
from network.block_loss import (
    GAMMA,
    STEADY,
    blocks_at,
    draw_anchors,
    features_and_choices,
    following_tokens,
    step_loss,
    targets_of,
    worth,
)
from network.data import Text
from network.dflash import Drafter
from network.model import Batch, Model
from network.optim import Optimizer
from network.speculate import Slots, decode

DFLASH = dflash.make_config(tiny_config(), mask_token=4095, layers=2, block=BLOCK)


@pytest.fixture(scope="module")
def target() -> Model:
    return tiny_target()


@pytest.fixture(scope="module")
def text() -> Text:
    return Text(MINI)


@pytest.fixture(scope="module")
def batch(text: Text) -> Batch:
    return two_pages(text)[0]


def random_drafter(config: dict) -> Drafter:
    torch.manual_seed(2)
    drafter = Drafter(config)
    for p in drafter.parameters():
        torch.nn.init.normal_(p, mean=float(p.ndim == 1), std=0.2)
    return drafter


@pytest.fixture
def drafter() -> Drafter:
    drafter = random_drafter(dflash2.make_config(DFLASH))
    torch.nn.init.normal_(drafter.candidate_selector.successor_codebook, std=2.0)
    return drafter


def hidden_of(drafter: Drafter, target: Model, batch: Batch, blocks, dtype=torch.float32):
    _, features = target.hidden(batch, drafter.taps, dtype)
    with torch.no_grad():
        return drafter(features, batch.offsets, batch.ids, target.head, blocks)[:, 1:]


def test_names_and_config_are_the_published_ones(drafter, tmp_path) -> None:
    dflash.save(drafter, tmp_path)
    shapes = {n: list(t.shape) for n, t in load_file(tmp_path / "model.safetensors").items()}
    plain = {n: list(t.shape) for n, t in Drafter(DFLASH).state_dict().items()}
    added = {n: shape for n, shape in shapes.items() if n not in plain}
    expected = {"candidate_selector.predecessor_codebook": [4096, 16],
                "candidate_selector.successor_codebook": [4096, 16],
                "candidate_selector.hidden_projection.weight": [16, HIDDEN]}
    for i in range(2):
        for name in ("attention_conv", "mlp_conv"):
            expected[f"layers.{i}.{name}.base_kernel"] = [2, 2, HIDDEN]
            expected[f"layers.{i}.{name}.kernel_projection.weight"] = [2 * 2 * HIDDEN // 16, HIDDEN]
    assert added == expected
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["DFlash2DraftModel"] and "block_size" not in config
    assert config["is_causal"] is False and config["dflash_config"] == {
        "mask_token_id": 4095, "target_layer_ids": [1, 1], "block_size": BLOCK,
        "conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 16, "selector_top_k": 16}


def test_rank_follows_the_width() -> None:
    for hidden, rank in ((256, 64), (1024, 256), (2560, 256), (5120, 256)):
        config = dflash2.make_config(DFLASH | {"hidden_size": hidden})
        assert config["dflash_config"]["selector_rank"] == rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_starts_as_the_dflash_drafter_bit_for_bit(dtype, target, batch, tmp_path) -> None:
    dflash.save(random_drafter(DFLASH), tmp_path / "dflash")
    old = dflash.load(tmp_path / "dflash")
    dflash.save(dflash.altered(old, second=True), tmp_path / "dflash2")
    new = dflash.load(tmp_path / "dflash2")
    assert old.candidate_selector is None and new.candidate_selector is not None
    blocks = blocks_at(batch, draw_anchors(batch, 32), BLOCK)
    anchors, head = batch.ids[blocks.anchors], target.head
    hidden = [hidden_of(d, target, batch, blocks, dtype) for d in (old, new)]
    assert torch.equal(*hidden)
    assert torch.equal(*(d.guess(h, head, anchors) for d, h in zip((old, new), hidden)))


def test_candidates_settle_ties_as_argmax_does() -> None:
    logits = torch.randint(0, 4, (200, 50), generator=torch.Generator().manual_seed(0)).float()
    ids, values = dflash2.candidates(logits, 32)
    assert torch.equal(ids.gather(1, values.argmax(1, keepdim=True))[:, 0], logits.argmax(1))
    assert torch.equal(values.sort(1, descending=True).values, logits.topk(32).values)


def test_equals_a_plain_implementation_on_its_files(target, drafter, batch, tmp_path) -> None:
    dflash.save(drafter, tmp_path)
    loaded = dflash.load(tmp_path)
    tensors = {n: t.float() for n, t in load_file(tmp_path / "model.safetensors").items()}
    blocks = blocks_at(batch, draw_anchors(batch, 16), BLOCK)
    rows = hidden_of(loaded, target, batch, blocks)
    _, features = target.hidden(batch, loaded.taps, torch.float32)
    for i in (0, 7, 15):
        anchor, first = blocks.anchors[i].item(), blocks.firsts[i].item()
        before = torch.cat(features, -1)[first:anchor]
        ids = [batch.ids[anchor].item()] + [4095] * (BLOCK - 1)
        plain = plain_forward(loaded.config, tensors, before, ids, target.head)
        torch.testing.assert_close(rows[i], plain[1:], rtol=1e-4, atol=1e-4)


def plain_scores(w: dict, unary: dict[int, float], hidden: torch.Tensor, previous: int
                 ) -> dict[int, float]:
    """Score of each candidate of a row after the token `previous`."""
    projected = (w["candidate_selector.hidden_projection.weight"] @ hidden).tolist()
    before = w["candidate_selector.predecessor_codebook"][previous].tolist()
    scores = {}
    for token, value in unary.items():
        after = w["candidate_selector.successor_codebook"][token].tolist()
        scores[token] = value + sum(a * h * b for a, h, b in zip(before, projected, after))
    return scores


def plain_candidates(hidden: torch.Tensor, head: torch.Tensor, count: int) -> dict[int, float]:
    logits = (head @ hidden).tolist()
    return {i: logits[i] for i in sorted(range(len(logits)), key=lambda i: -logits[i])[:count]}


def saved_tensors(drafter: Drafter, folder) -> tuple[Drafter, dict]:
    dflash.save(drafter, folder)
    return dflash.load(folder), {n: t.float() for n, t in
                                 load_file(folder / "model.safetensors").items()}


def test_greedy_walk_equals_a_plain_one(target, drafter, tmp_path) -> None:
    drafter, w = saved_tensors(drafter, tmp_path)
    hidden, anchors = torch.randn(6, BLOCK - 1, HIDDEN), torch.randint(0, 4096, (6,))
    walk = drafter.candidate_selector.walk(hidden, target.head, anchors)
    changed = 0
    for block in range(6):
        previous = anchors[block].item()
        for r in range(BLOCK - 1):
            unary = plain_candidates(hidden[block, r], target.head, 16)
            scores = plain_scores(w, unary, hidden[block, r], previous)
            previous = max(scores, key=scores.get)
            changed += previous != max(unary, key=unary.get)
            assert walk.tokens[block, r] == previous
            assert set(walk.candidates[block, r].tolist()) == set(unary)
            chosen = walk.candidates[block, r] == previous
            assert torch.equal(walk.probabilities[block, r], chosen.float())
    assert changed > 10  # the selector has a say
    assert torch.equal(drafter.guess(hidden, target.head, anchors), walk.tokens)


def test_sampled_walk_draws_from_the_distribution_it_returns(target, drafter, tmp_path) -> None:
    drafter, w = saved_tensors(drafter, tmp_path)
    temperature, count = 1.7, 20_000
    hidden, anchor = torch.randn(2, HIDDEN), 77
    walk = drafter.candidate_selector.walk(
        hidden.expand(count, 2, HIDDEN), target.head, torch.full((count,), anchor), temperature,
        torch.Generator().manual_seed(5))

    def plain_distribution(row: int, previous: int) -> dict[int, float]:
        scores = plain_scores(w, plain_candidates(hidden[row], target.head, 16), hidden[row],
                              previous)
        total = sum(torch.tensor(s / temperature).exp() for s in scores.values())
        return {t: float(torch.tensor(s / temperature).exp() / total) for t, s in scores.items()}

    first = plain_distribution(0, anchor)
    for i in range(3):
        for row, expected in enumerate((first, plain_distribution(1, walk.tokens[i, 0].item()))):
            found = dict(zip(walk.candidates[i, row].tolist(), walk.probabilities[i, row].tolist()))
            assert found == pytest.approx(expected, abs=1e-4)
    for token, chance in first.items():
        share = (walk.tokens[:, 0] == token).float().mean().item()
        assert abs(share - chance) < 5 * (chance / count) ** 0.5 + 1e-4
    likely = max(first, key=first.get)
    after = walk.tokens[walk.tokens[:, 0] == likely, 1]
    for token, chance in plain_distribution(1, likely).items():
        share = (after == token).float().mean().item()
        assert abs(share - chance) < 5 * (chance / len(after)) ** 0.5 + 1e-4


def train(drafter: Drafter, target: Model, batch: Batch, steps: int) -> list[dict[str, float]]:
    optimizer, curve = Optimizer(drafter), []
    features, _ = features_and_choices(drafter, target, batch, torch.float32)
    truth = following_tokens(batch)  # a random target would never write this text
    for _ in range(steps):
        loss, _, figures = step_loss(drafter, target, features, truth, batch, draw_anchors(batch, 32))
        loss.backward()
        optimizer.step(1.0)
        curve.append({"loss": loss.item()} | {n: f.item() for n, f in figures.items()})
    return curve


def plain_worth(chances: list[float], row: int) -> float:
    """What one more certainty of `row` adds to the tokens a step, as a part of them."""
    def expected(certain: float) -> float:
        changed = chances[:row] + [certain] + chances[row + 1:]
        return 1 + sum(math.prod(changed[:r + 1]) for r in range(len(changed)))
    return (expected(1.0) - expected(0.0)) / expected(chances[row])


def new_drafter() -> Drafter:
    torch.manual_seed(3)
    drafter = Drafter(dflash2.make_config(DFLASH))
    drafter.initialise()
    return drafter


def test_loss_equals_a_plain_one_and_figures_a_walk(target, batch) -> None:
    drafter = new_drafter()
    train(drafter, target, batch, 3)  # to have some targets among the candidates
    w = drafter.state_dict()
    features, _ = features_and_choices(drafter, target, batch, torch.float32)
    anchors, truth = draw_anchors(batch, 16), following_tokens(batch)
    loss, tokens, figures = step_loss(drafter, target, features, truth, batch, anchors)
    targets, blocks = targets_of(batch, truth, anchors, BLOCK), blocks_at(batch, anchors, BLOCK)
    hidden = hidden_of(drafter, target, batch, blocks)
    unary_loss = selector_loss = 0.0
    rows = counted = 0
    for block in range(16):
        previous, unary_losses, chances = batch.ids[anchors[block]].item(), [], []
        for r, token in enumerate(targets[block].tolist()):
            if token < 0:
                break
            logits = target.head @ hidden[block, r]
            unary_losses.append(F.cross_entropy(logits, torch.tensor(token)).item())
            unary, chance = plain_candidates(hidden[block, r], target.head, 16), 0.0
            if token in unary:
                scores = plain_scores(w, unary, hidden[block, r], previous)
                total = torch.tensor(list(scores.values())).logsumexp(0)
                chance = (scores[token] - total).exp().item()
            chances.append(chance)
            previous = token
        for r, (unary, chance) in enumerate(zip(unary_losses, chances)):
            weight = plain_worth(chances, r) + STEADY * math.exp(-r / GAMMA)
            unary_loss += weight * unary
            rows += 1
            if chance > 0:
                selector_loss -= weight * math.log(chance)
                counted += 1
    walked = drafter.guess(hidden, target.head, batch.ids[blocks.anchors])
    right = (walked == targets).long().cumprod(1).sum()
    unary_loss, selector_loss = float(unary_loss / rows), float(selector_loss / counted)
    assert 5 < counted < rows and right > 0
    assert figures["recall"].item() == pytest.approx(counted / rows)
    assert figures["selector_loss"].item() == pytest.approx(selector_loss, rel=1e-4)
    assert loss.item() == pytest.approx(unary_loss + selector_loss, rel=1e-4)
    assert figures["tokens_a_step"] == 1 + right / (targets[:, 0] >= 0).sum()
    assert (tokens - 1).sum() == right


def test_worth_is_the_derivative_of_the_log_of_the_expected_tokens() -> None:
    chances = torch.rand(4, 7, dtype=torch.float64).requires_grad_()
    expected = 1 + chances.cumprod(1).sum(1)
    expected.log().sum().backward()
    torch.testing.assert_close(worth(chances.detach()), chances.grad)


@pytest.mark.parametrize("frozen", [[], ["conv"], ["selector"]])
def test_learns_and_leaves_frozen_parts_alone(frozen, target, batch) -> None:
    drafter = new_drafter()
    freeze(drafter, frozen)
    before = {n: p.detach().clone() for n, p in drafter.named_parameters()}
    curve = train(drafter, target, batch, 15)
    assert curve[-1]["loss"] < 0.6 * curve[0]["loss"] and curve[-1]["recall"] > 0.5
    names = {"conv": "_conv.", "selector": "candidate_selector."}
    for name, p in drafter.named_parameters():
        assert torch.equal(p, before[name]) == any(names[part] in name for part in frozen), name


def test_drafting_gives_the_text_of_plain_greedy_decoding(target, drafter, text) -> None:
    slots = Slots([(image(10), 12), (image(11, 32, 64), 9)], text, BLOCK, SIZES, "cpu")
    figures = decode(target, drafter, slots, text.stop, torch.float32)
    assert figures.other == 0 and figures.pages == 2 and figures.tokens > 0


@pytest.mark.parametrize("change", [
    {"architectures": ["Other"]}, {"layer_types": ["sliding_attention"] * 2},
    {"dflash_config": DFLASH["dflash_config"] | {"final_logit_softcapping": 20.0}}])
def test_refuses_what_it_cannot_compute(change, tmp_path) -> None:
    dflash.save(Drafter(DFLASH), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(DFLASH | change))
    with pytest.raises(SystemExit, match="expected"):
        dflash.load(tmp_path)
