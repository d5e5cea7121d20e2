"""A new vocabulary for a model: byte-level BPE trained on the Markdown of drawn pages.

    python train/vocabulary.py --from DIR --to DIR [--pages 6000]

Pre-tokenization is the Qwen3.5 family's, special tokens keep their ids. A token that both vocabularies
hold keeps its embedding; a new one begins as the mean of the embeddings of its old spelling. Training
(`target.py`) goes on from there.
"""
import argparse
import json
import shutil
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from network import checkpoint
from pages import Pages

FIRST_SEED = 800_000_000  # pages that training does not reach
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
         r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train(markdown: list[str], size: int, special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(markdown, trainers.BpeTrainer(
        vocab_size=size - len(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    return tokenizer


def embedding_for(new: Tokenizer, old: Tokenizer, rows: torch.Tensor) -> tuple[torch.Tensor, int]:
    """-> embedding of the new vocabulary, and how many of its tokens the old one had."""
    shared, result = 0, torch.empty_like(rows)
    known = old.get_vocab()
    for token, row in new.get_vocab().items():
        if token in known:
            shared += 1
            result[row] = rows[known[token]]
        else:
            text = new.decode([row])
            spelled = old.encode(text, add_special_tokens=False).ids
            result[row] = rows[spelled].mean(0) if spelled else rows.mean(0)
    return result, shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--from", dest="source", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--pages", type=int, default=6000)
    args = parser.parse_args()

    old = Tokenizer.from_file(str(args.source / "tokenizer.json"))
    special = sorted(old.get_added_tokens_decoder().items())
    size = checkpoint.config_of(args.source)["text_config"]["vocab_size"]
    if [i for i, _ in special] != list(range(size - len(special), size)):
        raise SystemExit(f"{args.source}/tokenizer.json: special tokens {special}; expected the last "
                         f"ids below {size}")
    pages, markdown = Pages(args.data), []
    for i in range(args.pages):
        markdown.append(pages.draw(FIRST_SEED + i, (100_000, 600_000)).markdown)
        if (i + 1) % 500 == 0:
            print(f"{i + 1} pages, {sum(map(len, markdown)) / 1e6:.1f} M characters", flush=True)
    new = train(markdown, size, [t.content for _, t in special])

    model = checkpoint.load(args.source)
    embedding = model.language_model.embed_tokens.weight
    rows, shared = embedding_for(new, old, embedding.data)
    embedding.data.copy_(rows)
    checkpoint.save(model, checkpoint.config_of(args.source), args.to)
    for name in ("tokenizer_config.json", "chat_template.jinja", "generation_config.json",
                 "preprocessor_config.json"):
        shutil.copy(args.source / name, args.to)
    new.save(str(args.to / "tokenizer.json"))
    held = [pages.draw(FIRST_SEED + args.pages + i, (100_000, 600_000)).markdown for i in range(200)]
    characters = sum(map(len, held))
    print(json.dumps({"tokens shared": shared, "characters a token": {
        name: round(characters / sum(len(t.encode(m).ids) for m in held), 3)
        for name, t in (("old", old), ("new", new))}}))


if __name__ == "__main__":
    main()
