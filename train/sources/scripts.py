"""Faces of scripts that the model does not read: which Debian packages hold them, and which
characters of each are kept.

scripts/index.json lists the faces: their script, their split, and the characters that they have,
the common ones first. Of the large scripts a face has a random few hundred of the common
characters. The glyphs are drawn one by one, without the rules of a layout engine: Arabic keeps the
forms that its letters take within words, Indic scripts their letters and vowel signs.
"""

import json
import random
import unicodedata
from pathlib import Path

from fontTools.ttLib import TTFont

from sources.subset import save_subset

LARGE = 420  # characters kept of a script that has thousands

CYRILLIC = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъё"  # by falling frequency, as the next ones
GREEK = "αοιετσνηυρπκμλωςδγχθφβξζψάέίόήύώ"
HEBREW = "יוהלאתרמבשנקדעחפגכצטזסםןךףץ"
ARABIC = "اليمونترةبدهعسفحكقجشطصخضذثزغظءأإىئ"
KANA = "、。" + "".join(map(chr, range(0x3042, 0x3094))) + "".join(map(chr, range(0x30A2, 0x30F4)))
MATHEMATICS = "=+−∑∫∏√∞∂∇αβγδεζηθλμνξπρστφχψωΓΔΘΛΞΠΣΦΨΩ≤≥≠≈≡∈∉⊂⊆∪∩∀∃→⇒↦×·±⊕⊗∥⟨⟩ℝℕℤℂ∘∗†ℓ"

CHINESE = "的，一是。不了在人有我他这中大来上国个到说们、为子和你地出道也时年得就那要下以生：“”"
TAIWANESE = "的，一是。不了在人有我他這中大來上國個到說們、為子和你地出道也時年得就那要下以生「」"
HANGUL = "이다의에는을가고하지로사기한도리자어인시나부"

# Rows of the national standards: pages of 94 characters in common use; and what comes first.
STANDARDS = {
    "chinese": ("gb2312", range(0xB0, 0xD8), CHINESE),
    "taiwanese": ("big5", range(0xA4, 0xC6), TAIWANESE),
    "japanese": ("euc_jp", range(0xB0, 0xCF), KANA),
    "korean": ("euc_kr", range(0xB0, 0xC8), HANGUL),
}
ALPHABETS = {
    "cyrillic": CYRILLIC + CYRILLIC.upper(),
    "greek": GREEK + GREEK.upper(),
    "hebrew": HEBREW,
    "mathematics": MATHEMATICS,
}
KHMER_SPLIT_SIGNS = "ើឿៀោៅ"
# First and last code point of scripts of which all letters and signs are kept.
BLOCKS = {
    "devanagari": (0x0904, 0x094D),
    "bengali": (0x0985, 0x09CD),
    "gurmukhi": (0x0A05, 0x0A4D),
    "gujarati": (0x0A85, 0x0ACD),
    "tamil": (0x0B85, 0x0BCD),
    "telugu": (0x0C05, 0x0C4D),
    "kannada": (0x0C85, 0x0CCD),
    "malayalam": (0x0D05, 0x0D4D),
    "sinhala": (0x0D85, 0x0DDF),
    "thai": (0x0E01, 0x0E4C),
    "lao": (0x0E81, 0x0ECD),
    "myanmar": (0x1000, 0x103A),
    "georgian": (0x10D0, 0x10F0),
    "armenian": (0x0561, 0x0586),
    "ethiopic": (0x1200, 0x1357),
    "khmer": (0x1780, 0x17D1),
}

# Package, file, script, split.
NOTO, FREE = "fonts-noto-core", "fonts-freefont-otf"
FACES = [
    ("fonts-wqy-zenhei", "wqy-zenhei.ttc", "chinese", "train"),
    ("fonts-arphic-uming", "uming.ttc", "chinese", "train"),
    ("fonts-arphic-uming", "uming.ttc", "taiwanese", "train"),
    ("fonts-arphic-ukai", "ukai.ttc", "chinese", "held_out"),
    ("fonts-ipafont-mincho", "ipam.ttf", "japanese", "train"),
    ("fonts-wqy-zenhei", "wqy-zenhei.ttc", "japanese", "train"),
    ("fonts-ipafont-gothic", "ipag.ttf", "japanese", "held_out"),
    ("fonts-nanum", "NanumMyeongjo.ttf", "korean", "train"),
    ("fonts-nanum", "NanumGothic.ttf", "korean", "train"),
    ("fonts-nanum", "NanumBarunGothic.ttf", "korean", "held_out"),
    ("fonts-liberation2", "LiberationSerif-Regular.ttf", "cyrillic", "train"),
    ("fonts-liberation2", "LiberationSans-Regular.ttf", "cyrillic", "train"),
    ("fonts-liberation2", "LiberationSans-Bold.ttf", "cyrillic", "train"),
    ("fonts-dejavu-core", "DejaVuSans.ttf", "cyrillic", "train"),
    ("fonts-paratype", "PTF55F.ttf", "cyrillic", "held_out"),
    ("fonts-liberation2", "LiberationSerif-Regular.ttf", "greek", "train"),
    ("fonts-gfs-didot", "GFSDidot.otf", "greek", "train"),
    ("fonts-dejavu-core", "DejaVuSans.ttf", "greek", "train"),
    (FREE, "FreeSerif.otf", "greek", "held_out"),
    (NOTO, "NotoNaskhArabic-Regular.ttf", "arabic", "train"),
    (NOTO, "NotoSansArabic-Regular.ttf", "arabic", "train"),
    ("fonts-dejavu-core", "DejaVuSans.ttf", "arabic", "train"),
    (FREE, "FreeSerif.otf", "arabic", "held_out"),
    (NOTO, "NotoSerifHebrew-Regular.ttf", "hebrew", "train"),
    (NOTO, "NotoSansHebrew-Regular.ttf", "hebrew", "train"),
    (FREE, "FreeSerif.otf", "hebrew", "held_out"),
    (NOTO, "NotoSansDevanagari-Regular.ttf", "devanagari", "train"),
    (NOTO, "NotoSerifDevanagari-Regular.ttf", "devanagari", "held_out"),
    (NOTO, "NotoSansThai-Regular.ttf", "thai", "train"),
    (NOTO, "NotoSerifThai-Regular.ttf", "thai", "held_out"),
    (NOTO, "NotoSansBengali-Regular.ttf", "bengali", "train"),
    (NOTO, "NotoSansGurmukhi-Regular.ttf", "gurmukhi", "train"),
    (NOTO, "NotoSerifGujarati-Regular.ttf", "gujarati", "train"),
    (NOTO, "NotoSerifTamil-Regular.ttf", "tamil", "train"),
    (NOTO, "NotoSansTelugu-Regular.ttf", "telugu", "train"),
    (NOTO, "NotoSansKannada-Regular.ttf", "kannada", "train"),
    (NOTO, "NotoSansMalayalam-Regular.ttf", "malayalam", "train"),
    (NOTO, "NotoSansSinhala-Regular.ttf", "sinhala", "train"),
    (NOTO, "NotoSansLao-Regular.ttf", "lao", "train"),
    (NOTO, "NotoSansMyanmar-Regular.ttf", "myanmar", "train"),
    (NOTO, "NotoSerifGeorgian-Regular.ttf", "georgian", "train"),
    (NOTO, "NotoSerifArmenian-Regular.ttf", "armenian", "train"),
    (NOTO, "NotoSansEthiopic-Regular.ttf", "ethiopic", "train"),
    (NOTO, "NotoSansKhmer-Regular.ttf", "khmer", "train"),
    ("fonts-stix", "STIXGeneral-Regular.otf", "mathematics", "train"),
    (NOTO, "NotoSansMath-Regular.ttf", "mathematics", "train"),
    (FREE, "FreeSerif.otf", "mathematics", "held_out"),
]


def packages() -> set[str]:
    return {row[0] for row in FACES}


def characters(script: str, seed: str) -> str:
    """The characters of a script, common ones first; the seed draws from the large ones and says
    which are common where no list does."""
    if script in STANDARDS:
        encoding, rows, first = STANDARDS[script]
        codes = [bytes([row, cell]) for row in rows for cell in range(0xA1, 0xFF)]
        drawn = random.Random(seed).sample(codes, LARGE + 40)
        decoded = [code.decode(encoding, "ignore") for code in drawn]
        return first + "".join(char for char in decoded if char and char not in first)[:LARGE]
    if script == "arabic":
        return "".join(form for letter in ARABIC for form in arabic_forms(letter))
    if script in ALPHABETS:
        return "".join(dict.fromkeys(ALPHABETS[script]))  # one capital for both forms of sigma
    first, last = BLOCKS[script]
    letters = [char for char in map(chr, range(first, last + 1)) if not is_split_sign(char)]
    random.Random(seed).shuffle(letters)  # any letters may be the common ones
    return "".join(letters)


def is_split_sign(char: str) -> bool:
    """Whether this is a vowel sign with parts on two sides of its letter: by itself it is drawn
    with a circle in the letter's place."""
    is_sign = unicodedata.category(char) in ("Mc", "Mn")
    return char in KHMER_SPLIT_SIGNS or is_sign and unicodedata.decomposition(char) != ""


def arabic_forms(letter: str) -> list[str]:
    """The forms of a letter alone, at the end, the start and the middle of a joined group; letters
    that join to no next one have only the first two."""
    forms = {}
    for code in range(0xFE80, 0xFEF5):
        place, _, plain = unicodedata.decomposition(chr(code)).partition(" ")
        if plain == f"{ord(letter):04X}":
            forms[place.strip("<>")] = chr(code)
    return [forms[name] for name in ("isolated", "final", "initial", "medial") if name in forms]


def build(roots: dict[str, Path], folder: Path) -> list[dict]:
    """Cut every face of the table into folder. roots: package name to its unpacked tree."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.?tf"):
        old.unlink()
    faces = []
    for package, name, script, split in FACES:
        found = sorted(roots[package].rglob(name))
        if not found:
            raise SystemExit(
                f"fetch: package {package} has no file {name}; correct the table of scripts"
            )
        font = TTFont(found[0], fontNumber=0)
        has = font.getBestCmap()
        kept = "".join(char for char in characters(script, name + script) if ord(char) in has)
        suffix = ".ttf" if found[0].suffix == ".ttc" else found[0].suffix
        target = f"{script}-{found[0].stem}{suffix}"
        save_subset(font, [ord(char) for char in kept], folder / target, hinting=False)
        faces.append({"file": target, "script": script, "split": split, "chars": kept})
    (folder / "index.json").write_text(json.dumps(faces, ensure_ascii=False, indent=0))
    return faces
