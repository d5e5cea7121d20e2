"""Lists of words by language and of names: words/SPLIT.txt.xz and words/names.json.xz.

Words are written in bands of falling frequency as counted in the training text (each band is
half as frequent as the one before; within a band the order is alphabetic, which packs well).
Rare words are split like documents: 1 in 50 is held out. The open split has the words of the
open text and no names from packages.
"""

import ast
import json
import lzma
import re
from collections import Counter
from pathlib import Path
from zlib import crc32

from sources.packages import NAMES, WORDS
from sources.texts import Library, is_coarse
from text.charset import LATIN

WORD = re.compile(f"[A-Za-z{LATIN}]+(?:[’'-][A-Za-z{LATIN}]+)*")
COMMON = 30  # a word of the text that is at least so frequent stays in training
NAMES_OF_A_FILE = 400  # so that no country outweighs the others
FROM_TEXT = 12_000  # words of a language that its texts add to its list
NAME_LISTS = {
    "first": ("first_names", "first_names_male", "first_names_female"),
    "last": ("last_names", "last_names_male", "last_names_female"),
    "city": ("cities", "city_names", "towns", "municipalities", "large_cities", "known_cities"),
    "street": ("streets", "street_names", "street_names_male", "real_streets"),
}


def word_list(root: Path, files: str, most: int) -> list[str]:
    """The words of one list, spread evenly over it when it has more than most."""
    data = (root / files).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-2" if "hu" in files or "cs" in files else "iso-8859-1")
    words = [line.split("/")[0].split("\t")[0].strip() for line in text.splitlines()]
    words = [word for word in words if 1 < len(word) <= 28 and is_word(word)]
    ordered = sorted(words, key=lambda word: crc32(word.encode()))
    return ordered[:most]


def is_word(text: str) -> bool:
    return bool(WORD.fullmatch(text)) and not text.endswith("'s") and not is_coarse(text)


def bands(counts: Counter) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word].bit_length(), word))


def held_out(word: str, count: int) -> bool:
    return count < COMMON and crc32(word.encode()) % 50 == 0


def strings_in(path: Path) -> dict[str, list[str]]:
    """The lists of strings that a Faker provider assigns by name (some are dictionaries keyed by
    string).
    """
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            strings = [
                item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant)
            ]
            found[node.targets[0].id] = [text for text in strings if isinstance(text, str)]
    return found


def name_lists(root: Path) -> dict[str, list[str]]:
    names: dict[str, set[str]] = {kind: set() for kind in NAME_LISTS}
    for path in sorted(root.rglob("*.py")):
        for name, strings in strings_in(path).items():
            for kind, wanted in NAME_LISTS.items():
                if name in wanted:
                    found = sorted(
                        {text for text in strings if is_name(text)},
                        key=lambda text: crc32(text.encode()),
                    )
                    names[kind].update(found[:NAMES_OF_A_FILE])
    return {kind: sorted(found) for kind, found in names.items()}


def is_name(text: str) -> bool:
    return (
        2 < len(text) < 26
        and text[0].isupper()
        and all(WORD.fullmatch(part.strip(".")) for part in text.split(" "))
        and not is_coarse(text)
    )


def build(roots: dict[str, Path], folder: Path, library: Library) -> dict[str, int]:
    """Write the lists into folder; return the count of training words by language."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {split: count_words(library.documents[split]) for split in ("train", "open")}
    for package, language, files, most in WORDS:
        listed = counts["train"].setdefault(language, Counter())
        for word in word_list(roots[package], files, most):
            listed[word] += 1
    train, kept_out = {}, {}
    for language, words in counts["train"].items():
        kept_out[language] = Counter({word: n for word, n in words.items() if held_out(word, n)})
        train[language] = words - Counter({word: words[word] for word in kept_out[language]})
    for split, lists in (("train", train), ("held_out", kept_out), ("open", counts["open"])):
        with lzma.open(folder / f"{split}.txt.xz", "wt", encoding="utf-8", preset=9) as file:
            for language in sorted(lists):
                file.write(f"\f{language} words\n" + "\n".join(bands(lists[language])) + "\n")
    names = name_lists(roots[NAMES[0]])
    parts: dict[str, dict[str, list[str]]] = {"train": {}, "held_out": {}, "open": {}}
    for kind, found in names.items():
        parts["held_out"][kind] = [name for name in found if crc32(name.encode()) % 50 == 0]
        parts["train"][kind] = [name for name in found if crc32(name.encode()) % 50]
    with lzma.open(folder / "names.json.xz", "wt", encoding="utf-8") as file:
        json.dump(parts, file, ensure_ascii=False)
    return {language: len(words) for language, words in train.items()}


def count_words(documents: list[tuple[str, str, str]]) -> dict[str, Counter]:
    """How often each word occurs by language, for the FROM_TEXT most frequent ones."""
    counts: dict[str, Counter] = {}
    for language, _, text in documents:
        if language != "code":
            counts.setdefault(language, Counter()).update(WORD.findall(text))
    return {
        language: Counter(dict(found.most_common(FROM_TEXT))) for language, found in counts.items()
    }
