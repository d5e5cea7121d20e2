"""Tests of the drafter: arithmetic, targets of its blocks, files, and draft-and-verify decoding."""
import json

import cv2
import numpy as np
import pytest
import torch
from drafting import BLOCK, MINI, SIZES, image, plain_forward, tiny_config, tiny_target, two_pages
from safetensors.torch import load_file

from drafter import Written
from network import dflash
from network.block_loss import (
    blocks_at,
    draw_anchors,
    features_and_choices,
    following_tokens,
    go_on,
    step_loss,
    targets_of,
)
from network.data import PageBuffer, Text
from network.dflash import TILE, Blocks, Drafter
from network.model import Batch, Model
from network.optim import Optimizer
from network.speculate import Slots, decode


@pytest.fixture(scope="module")
def target() -> Model:
    return tiny_target()


@pytest.fixture
def drafter() -> Drafter:
    torch.manual_seed(2)
    drafter = Drafter(dflash.make_config(tiny_config(), mask_token=4095, layers=2, block=BLOCK))
    for p in drafter.parameters():
        torch.nn.init.normal_(p, mean=float(p.ndim == 1), std=0.2)
    return drafter


@pytest.fixture(scope="module")
def text() -> Text:
    return Text(MINI)


@pytest.fixture
def batch(text: Text) -> tuple[Batch, list[list[int]]]:
    return two_pages(text)


def test_taps_of_published_drafters() -> None:
    assert dflash.default_taps(32, 5) == [1, 8, 15, 22, 29]
    assert dflash.default_taps(64, 5) == [1, 16, 31, 46, 61]
    assert dflash.default_taps(36, 5) == [1, 9, 17, 25, 33]
    assert dflash.default_taps(32, 8) == [1, 5, 9, 13, 17, 21, 25, 29]
    assert dflash.default_taps(12, 3) == [1, 5, 9]


def test_blocks_start_in_responses_and_aim_at_what_follows(batch) -> None:
    packed, responses = batch
    anchors = draw_anchors(packed, 40)
    targets = targets_of(packed, following_tokens(packed), anchors, BLOCK)
    assert anchors.tolist() == sorted(set(anchors.tolist()))
    found = {}
    columns = (anchors.tolist(), blocks_at(packed, anchors, BLOCK).firsts.tolist(), targets.tolist())
    for anchor, first, row in zip(*columns):
        if row[0] >= 0:
            assert first == max(s for s in packed.starts.tolist() if s <= anchor)
            found[packed.ids[anchor].item()] = row
    expected = {}
    for response in responses:
        for i, token in enumerate(response[:-1]):
            after = response[i + 1:i + BLOCK]
            expected[token] = after + [-1] * (BLOCK - 1 - len(after))
    assert found == expected


def test_blocks_aim_at_what_the_target_writes_as_long_as_the_text_agrees(batch) -> None:
    packed, (response, _) = batch
    choices = following_tokens(packed)
    said = {response[10]: 7, response[20]: 8}  # instead of these the target would write others
    for token, other in said.items():
        choices[choices == token] = other
    anchors = draw_anchors(packed, 40)
    targets = targets_of(packed, choices, anchors, BLOCK)
    seen = 0
    for anchor, row in zip(packed.ids[anchors].tolist(), targets.tolist()):
        if anchor not in response[:-1] or row[0] < 0:
            continue
        after = response[response.index(anchor) + 1:][:BLOCK - 1]
        end = next((i for i, token in enumerate(after) if token in said), len(after) - 1) + 1
        expected = [said.get(token, token) for token in after[:end]]
        assert row == expected + [-1] * (BLOCK - 1 - end)
        seen += end < len(after)
    assert seen > 10


def test_blocks_go_on_where_a_decoder_does_until_the_text_ends(batch) -> None:
    packed, (response, other) = batch
    place = {token: row for row, token in enumerate(packed.ids.tolist())}
    anchors = torch.tensor(sorted(place[token] for token in (*response[:20:4], other[1], other[4])))
    tokens = torch.tensor([1, 7, 3, 16, 13, 1, 1])
    moved = go_on(packed, anchors, tokens)
    assert moved.tolist() == sorted(moved.tolist())
    stays = {a + t for a, t in zip(anchors.tolist(), tokens.tolist())} - {place[other[4]] + 1}
    assert stays <= set(moved.tolist())  # the stop token is no anchor
    usable = {place[token] for token in response[:-1] + other[:-1]}
    assert set(moved.tolist()) <= usable and len(moved) == len(anchors)


def test_the_target_chooses_for_each_row_of_a_response(target, drafter, batch) -> None:
    packed, _ = batch
    features, choices = features_and_choices(drafter, target, packed, torch.float32)
    hidden, taps = target.hidden(packed, drafter.taps, torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(features, taps))
    rows = following_tokens(packed) >= 0
    assert torch.equal(choices[rows], target.logits(hidden[rows]).argmax(-1))


def test_equals_a_plain_implementation_on_its_files(target, drafter, batch, tmp_path) -> None:
    packed, responses = batch
    dflash.save(drafter, tmp_path)
    loaded = dflash.load(tmp_path)
    tensors = {n: t.float() for n, t in load_file(tmp_path / "model.safetensors").items()}
    _, features = target.hidden(packed, loaded.taps, torch.float32)
    blocks = blocks_at(packed, draw_anchors(packed, 16), BLOCK)
    with torch.no_grad():
        rows = loaded(features, packed.offsets, packed.ids, target.head, blocks)
        for i in (0, 7, 15):
            anchor, first = blocks.anchors[i].item(), blocks.firsts[i].item()
            before = torch.cat(features, -1)[first:anchor]
            ids = [packed.ids[anchor].item()] + [4095] * (BLOCK - 1)
            plain = plain_forward(loaded.config, tensors, before, ids, target.head)
            torch.testing.assert_close(rows[i], plain, rtol=1e-4, atol=1e-4)


def test_tiles_hold_all_that_is_visible() -> None:
    tokens, block = 9 * TILE, 16
    anchors = torch.tensor([3, 90, 127, 128, 129, 200, 299, 300, 310, 311, 400, 401, 512, 600, 638,
                            639, 1000, 1023, 1024, 1025, 1026, 1100, 1101, 1102])
    starts = torch.tensor([0, 129, 300, 305])
    firsts = starts[torch.searchsorted(starts, anchors, right=True) - 1]
    blocks = Blocks(anchors, firsts, block)
    queries = len(anchors) * block
    rows, columns = torch.arange(queries), torch.arange(tokens + queries)
    visible = blocks.visible(tokens)(0, 0, rows[:, None], columns)
    needed = visible.view(queries // TILE, TILE, -1, TILE).any(3).any(1)
    tiles = blocks.tiles(tokens)
    given = tiles.to_dense()[0, 0].bool()
    assert (given | ~needed).all()
    assert not given[:, tokens // TILE:].logical_xor(needed[:, tokens // TILE:]).any()
    full = visible.view(queries // TILE, TILE, -1, TILE).all(3).all(1)
    for row, count in enumerate(tiles.full_kv_num_blocks[0, 0].tolist()):
        columns = tiles.full_kv_indices[0, 0, row, :count]
        assert full[row, columns].all() and full[row].sum() == count
        assert not set(columns.tolist()) & set(
            tiles.kv_indices[0, 0, row, :tiles.kv_num_blocks[0, 0, row]].tolist())
    assert tiles.full_kv_num_blocks[0, 0].tolist() == [0, 0, 4]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gpu_attention_equals_the_dense_mask() -> None:
    tokens, block = 16 * TILE, 16
    anchors = torch.randint(0, tokens, (32,)).sort().values
    starts = torch.tensor([0, 150, 333])
    firsts = starts[torch.searchsorted(starts, anchors, right=True) - 1]
    blocks = Blocks(anchors.cuda(), firsts.cuda(), block)
    results = []
    inputs = [torch.randn(n, heads, 64, device="cuda", dtype=torch.bfloat16)
              for n, heads in ((512, 4), (tokens + 512, 2), (tokens + 512, 2))]
    assert blocks.tiles(tokens).full_kv_num_blocks.sum() > 0
    for tiles in (blocks.tiles(tokens), None):
        leaves = [x.clone().requires_grad_() for x in inputs]
        o = dflash.block_attention(*leaves, blocks, tiles)
        (o.float() ** 2).sum().backward()
        results.append([o] + [x.grad for x in leaves])
    for fast, plain in zip(*results):
        gap = (fast.float() - plain.float()).norm() / plain.float().norm()
        assert gap < 0.01


def test_learns(target, batch) -> None:
    torch.manual_seed(3)
    packed, _ = batch
    drafter = Drafter(dflash.make_config(tiny_config(), mask_token=4095, layers=2, block=BLOCK))
    drafter.initialise()
    optimizer = Optimizer(drafter)
    curve = []
    features, _ = features_and_choices(drafter, target, packed, torch.float32)
    truth = following_tokens(packed)  # a random target would never write this text
    for _ in range(25):
        loss, _, figures = step_loss(drafter, target, features, truth, packed, draw_anchors(packed, 32))
        loss.backward()
        optimizer.step(1.0)
        curve.append((loss.item(), figures["tokens_a_step"].item()))
    assert curve[0][0] > 2 and curve[-1][0] < 0.2 * curve[0][0]
    assert curve[0][1] < 1.5 and curve[-1][1] > 4


def test_reads_pages_with_the_text_that_the_target_wrote(tmp_path) -> None:
    for name, status in (("a", "ok"), ("b", "truncated")):
        cv2.imwrite(str(tmp_path / f"{name}.png"), image(0))
        record = {"pages": [{"status": status, "text": f"text of {name}"}]}
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    assert Written(tmp_path, 100_000)(7)[0].size >= 100_000
    picture, markdown = Written(tmp_path, 0)(7)
    assert markdown == "text of a" and np.array_equal(picture, image(0))


def greedy(target: Model, text: Text, picture: np.ndarray, count: int) -> list[int]:
    """Plain greedy decoding, one token a pass."""
    tokens: list[int] = []
    while len(tokens) < count and text.stop not in tokens:
        buffer = PageBuffer(text, SIZES)
        buffer.add(picture, tokens + [0])
        packed = buffer.batch()
        hidden, _ = target.hidden(packed, (), torch.float32)
        last = packed.starts[1].item() - 1
        tokens.append(target.logits(hidden[last]).argmax().item())
    return tokens


class KnowsTheText:
    """In place of a drafter: drafts the right tokens, but for a wrong one at some places."""
    taps, block = (1,), BLOCK

    def __init__(self, slots: Slots, texts: list[list[int]], wrong: set[int]):
        self.slots, self.texts, self.wrong = slots, texts, wrong

    def __call__(self, features, offsets, ids, embedding, blocks) -> torch.Tensor:
        return torch.zeros(len(self.texts), BLOCK, 1)

    def guess(self, hidden, head, anchors) -> torch.Tensor:
        drafts = torch.zeros(len(self.texts), BLOCK - 1, dtype=torch.long)
        for page, tokens in enumerate(self.texts):
            known = self.slots.known[page].item()
            assert anchors[page] == tokens[known - 1]
            for r in range(BLOCK - 1):
                place = known + r
                token = tokens[place] if place < len(tokens) else 0
                drafts[page, r] = token + 1 if place in self.wrong else token
        return drafts


def test_drafting_gives_the_text_of_plain_greedy_decoding(target, drafter, text) -> None:
    pictures, rooms = [image(10), image(11, 32, 64)], [20, 13]
    texts = [greedy(target, text, p, room) for p, room in zip(pictures, rooms)]

    slots = Slots(list(zip(pictures, rooms)), text, BLOCK, SIZES, "cpu")
    figures = decode(target, drafter, slots, text.stop, torch.float32)
    assert [slots.text(i) for i in range(2)] == texts
    assert figures.other == 0 and figures.tokens == sum(map(len, texts)) - 2

    slots = Slots(list(zip(pictures, rooms)), text, BLOCK, SIZES, "cpu")
    teller = KnowsTheText(slots, texts, {5, 6})
    figures = decode(target, teller, slots, text.stop, torch.float32)
    assert [slots.text(i) for i in range(2)] == texts
    # first tokens; then 1-4 and 5, 6 after a wrong draft each, then the rest in blocks of 8
    assert figures.steps == 2 + 2 + (2 + 1) and figures.tokens == 31
    assert figures.accepted[0] == 5 and figures.cut == 2


def test_a_stop_token_ends_a_page(target, text) -> None:
    picture = image(12)
    tokens = greedy(target, text, picture, 12)
    stop = tokens[6]
    expected = tokens[:tokens.index(stop) + 1]
    slots = Slots([(picture, 12)], text, BLOCK, SIZES, "cpu")
    teller = KnowsTheText(slots, [tokens], set())
    figures = decode(target, teller, slots, stop, torch.float32)
    assert slots.text(0) == expected and figures.cut == 0
    assert figures.tokens == len(expected) - 1
