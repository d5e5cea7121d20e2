"""Fixtures for text_tests: what Hugging Face tokenizers and Jinja2 make of the cases.

    pip install tokenizers jinja2 && python3 tests/text/fixtures.py     # rewrites tests/text/data
"""

import json
import pathlib
import random

import strings
import templates

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def text_or_hex(data):
    """JSON of a byte string: text where it is UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def decode_cases(tokenizer, seed, count):
    rng = random.Random(seed)
    size = tokenizer.get_vocab_size()
    cases = []
    for _ in range(count):
        ids = [rng.randrange(size if rng.random() < 0.8 else 256) for _ in range(rng.randrange(1, 12))]
        cases.append([ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids, skip_special_tokens=True)])
    return cases


def tokenizer_fixture(path, tokenizer_json, data, decodes):
    """Ids of the byte strings `data` by Hugging Face tokenizers; invalid bytes are replaced first."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_json))
    texts = [item.decode(errors="replace") for item in data]
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    fixture = {
        "made_by": f"tests/text/fixtures.py, tokenizers {tokenizers.__version__}",
        "tokenizer": str(tokenizer_json),
        "encode": [[text_or_hex(item), encoding.ids] for item, encoding in zip(data, encodings)],
        "decode": decode_cases(tokenizer, 7, decodes),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(fixture, file, ensure_ascii=False, separators=(",", ":"))


def template_fixture(path, sources):
    """What Jinja2 renders of the templates in templates.py and of `sources`."""
    import jinja2

    fixture = {"made_by": f"tests/text/fixtures.py, Jinja2 {jinja2.__version__}", **templates.fixture(sources)}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(fixture, file, ensure_ascii=False, separators=(",", ":"))
    return fixture


def added_tokens(tokenizer_json):
    return [token["content"] for token in json.loads(pathlib.Path(tokenizer_json).read_text())["added_tokens"]]


def main():
    data = HERE / "data"
    data.mkdir(exist_ok=True)
    mini = pathlib.Path("models/quire-mini/tokenizer.json")
    sample = strings.make(1, 5000, added_tokens(ROOT / mini))
    # Few long strings: the file stays small with more cases in it.
    sample = [item for i, item in enumerate(sample) if len(item) < 48 or i % 100 == 0][:2000]
    tokenizer_fixture(data / "tokenizer.json", mini, sample, 200)
    print(f"{len(sample)} strings, {(data / 'tokenizer.json').stat().st_size} bytes")
    made = template_fixture(data / "templates.json", [])
    print(f"{len(made['cases'])} renderings, {(data / 'templates.json').stat().st_size} bytes")


if __name__ == "__main__":
    main()
