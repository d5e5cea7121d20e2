"""Strings that a byte-level BPE tokenizer may get wrong, made from a seed."""

import random
import unicodedata

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; it wasn't late, we'll say, and they'd agree it's fine.",
    "Die Bürger müssen größere Straßen überqueren.", "L'été dernier, j'ai vu où naît la rivière.",
    "El niño comió piñas; ¿qué más quería?", "A manhã começou fria, mas o avô já não se queixava.",
    "Žluťoučký kůň pěl ďábelské ódy.", "Zażółć gęślą jaźń.", "Pijamalı hasta yağız şoföre çabucak güvendi. İIıi",
    "Mọi người đều bình đẳng trước pháp luật.", "Быстрая лиса прыгает через ленивую собаку. Ёлка, её.",
    "Η γρήγορη αλεπού πηδάει πάνω από το σκυλί. Ώρα καλή.", "השועל המהיר קפץ מעל הכלב. שָׁלוֹם",
    "الثعلب السريع يقفز فوق الكلب. مُحَمَّدٌ", "تیز لومڑی کتے کے اوپر کودتی ہے۔", "तेज़ लोमड़ी कुत्ते के ऊपर कूदती है।", "দ্রুত শিয়াল কুকুরের উপর লাফায়।",
    "வேகமான நரி நாயின் மேல் குதிக்கிறது.", "వేగవంతమైన నక్క కుక్కపై దూకుతుంది.", "ವೇಗದ ನರಿ ನಾಯಿಯ ಮೇಲೆ ಹಾರುತ್ತದೆ.", "വേഗതയുള്ള കുറുക്കൻ നായയുടെ മുകളിലൂടെ ചാടുന്നു.",
    "สุนัขจิ้งจอกกระโดดข้ามสุนัข", "ຫມາຈອກໂດດຂ້າມຫມາ", "မြေခွေးသည် ခွေးကို ကျော်ခုန်သည်။", "កញ្ជ្រោងលោតពីលើឆ្កែ", "སྦྱང་ཀི་མྱུར་པོ།",
    "敏捷的棕色狐狸跳过了懒狗。今天是2024年1月5日,天气很好!", "敏捷的棕色狐狸跳過了懶狗。", "素早い茶色の狐が、のろまな犬を飛び越えた。ガギグゲゴ ヴァイオリン",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다.", "ፈጣን ቀበሮ በውሻ ላይ ይዘላል።", "ქართული ანბანი", "Հայերեն այբուբեն", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ", "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ",
    "x² + y³ = z⁴, ½ of ⅞, №5, ①②③, Ⅷ, ٣٤٥, १२३, 〇一二三, 𝟘𝟙𝟚", "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ≤ ∞ → ∑ᵢ aᵢ ≠ ∅", "€5.00 £3,50 ¥1000 ₹20 — “quoted” ‘single’ «guillemets» … • † ‡",
]

MARKDOWN = [
    "# Heading\n\nSome *emphasis*, **strong** and `code`.\n\n- item one\n- item two\n  - nested\n\n1. first\n2. second\n",
    "| Name | Qty | Price |\n|:-----|----:|------:|\n| Bolt M8 | 12 | 0.35 |\n| Nut | 1,200 | 0.05 |\n",
    "```python\ndef f(x):\n\treturn [i ** 2 for i in range(x)]  # squares\n```\n",
    "<table>\n  <tr><td colspan=\"2\">A &amp; B</td></tr>\n</table>\n", "$$\\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}$$\n",
    "![figure](images/a_b-c.png \"title\") [link](https://example.org/a?b=c&d=%20#e)\n", "> quoted\n> text\n\n---\n\n***\n",
    "{\"key\": [1, 2.5e-3, null, true], \"nested\": {\"a\\n\": \"\\u00e9\"}}\r\n", "INVOICE NO. 2024-0017\t\tTOTAL:   1.234,56 EUR\r\n\r\n\r\nThank you!",
]

EMOJI = [
    "😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷🇯🇵", "1️⃣#️⃣", "❤️", "🧑🏿‍🚀", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "☺︎", "🫨🪿", "👨🏻‍🤝‍👨🏿",
]

SPACES = [" ", "  ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\u00a0", "\u0085", "\u2003", "\u2028", "\u2029", "\u3000", "\u1680", "\u202f",
          "\u200b", "\ufeff", "\u180e", "\x1c", "\x1f"]
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'\u017f", "\u2019s", "'", "''", "'l", "'v", "'\u212a"]


def marks():
    return [chr(c) for c in range(0x110000) if unicodedata.category(chr(c))[0] == "M"] + [
        # Marks of Unicode 15 to 17, unknown to older libraries.
        chr(c) for c in (0x897, 0x1ACF, 0x1ADD, 0x1AEB, 0x10D69, 0x10EFC, 0x10EFD, 0x113CE, 0x1612F, 0x1E5EE, 0x11F41, 0x1E4EC)]


def random_code_point(rng):
    """Any scalar value, the planes that have characters most of the time."""
    while True:
        top = rng.choice([0x80, 0x600, 0x3000, 0x10000, 0x10000, 0x20000, 0x20000, 0x40000, 0x110000])
        code = rng.randrange(top)
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def block_text(rng):
    """Neighbouring code points, as a script's letters, marks, digits and gaps are, with spaces between."""
    start = ord(random_code_point(rng)) & ~0x3F
    pool = [chr(c) for c in range(start, start + 0x80) if c < 0x110000 and not 0xD800 <= c < 0xE000]
    return "".join(rng.choice(pool) if rng.random() < 0.85 else rng.choice([" ", "\n", "a", "1", ".", "'s"]) for _ in range(rng.randrange(1, 40)))


def mark_stack(rng, all_marks):
    base = rng.choice(["e", "a", "o", "\u1100\u1161", "\uac00\u11a8", "か", "\u0938", "\u05e9", "\u0627", "\u0415", " ", "", "\U000105d2", "\u0dd9"])
    common = ["\u0301", "\u0300", "\u0323", "\u0345", "\u0334", "\u3099", "\u0327", "\u0307", "\u093c", "\u11a8", "\u1161"]
    return base + "".join(rng.choice(common if rng.random() < 0.6 else all_marks) for _ in range(rng.randrange(1, 7)))


def long_word(rng):
    unit = rng.choice(["a", "ab", "the", "0", "=", "-", "_.", "\n", " ", "\t ", "你好", "é", "e\u0301", "🙂", "xyzzy", "\r\n", "'s"])
    kind = rng.random()
    if kind < 0.5:
        return unit * rng.randrange(20, 400)
    alphabet = rng.choice(["abcdefghijklmnopqrstuvwxyz", "етоанирс", "的一是不了人我在有他", "01", "!?.,;:", "가나다라마바사"])
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(30, 600)))


def special_text(rng, added):
    pieces = added + ["<|im_start|", "<|", "|>", "<|im_<|im_end|>", "<think", "</", "<|IM_END|>"]
    return "".join(rng.choice(pieces) if rng.random() < 0.5 else rng.choice(["user\n", " ", "", "text", "\n\n", "é", "ﬁ", "e\u0301"])
                   for _ in range(rng.randrange(1, 10)))


def random_bytes(rng):
    kind = rng.random()
    if kind < 0.3:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40)))
    text = bytearray(rng.choice(SENTENCES + EMOJI).encode())
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(text))
        if kind < 0.6:
            text[at] = rng.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF8, 0xFF, rng.randrange(256)])
        elif len(text) > 1:
            del text[at]
    return bytes(text)


def mixed(rng):
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.3:
            parts.append(rng.choice(rng.choice(SENTENCES).split()))
        elif kind < 0.5:
            parts.append("".join(rng.choice(SPACES) for _ in range(rng.randrange(1, 5))))
        elif kind < 0.6:
            word = rng.choice(CONTRACTIONS)
            parts.append("".join(rng.choice([c.upper(), c.lower(), c]) for c in word))
        elif kind < 0.7:
            parts.append(rng.choice(EMOJI))
        elif kind < 0.8:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 9))))
        elif kind < 0.9:
            parts.append(chr(rng.choice([*range(0x20), *range(0x7F, 0xA1)])))
        else:
            parts.append(random_code_point(rng))
    return "".join(parts)


def make(seed, count, added):
    """`count` byte strings; every kind has its share. `added`: the tokenizer's added tokens as text."""
    rng = random.Random(seed)
    all_marks = marks()
    kinds = [
        lambda: rng.choice(SENTENCES) + rng.choice(SPACES) + rng.choice(SENTENCES),
        lambda: unicodedata.normalize(rng.choice(["NFD", "NFKD", "NFC"]), rng.choice(SENTENCES)),
        lambda: "".join(rng.choice(MARKDOWN) for _ in range(rng.randrange(1, 4))),
        lambda: block_text(rng), lambda: block_text(rng), lambda: mixed(rng), lambda: mixed(rng),
        lambda: "".join(mark_stack(rng, all_marks) for _ in range(rng.randrange(1, 5))),
        lambda: "".join(random_code_point(rng) for _ in range(rng.randrange(1, 20))),
        lambda: "".join(rng.choice(EMOJI) for _ in range(rng.randrange(1, 6))),
        lambda: special_text(rng, added), lambda: random_bytes(rng), lambda: random_bytes(rng), lambda: long_word(rng),
    ]
    fixed = ["", " ", "\n", "a", "\u0301", "\u0000", "\u017f", "'\u017f", "\U0010ffff", "\ufffd"] + SENTENCES + MARKDOWN + EMOJI
    strings = [s.encode() for s in fixed]
    while len(strings) < count:
        value = kinds[len(strings) % len(kinds)]()
        strings.append(value if isinstance(value, bytes) else value.encode())
    return strings[:count]


def every_code_point():
    """All scalar values, once in a row with their neighbours and once each between marks that NFC would reorder or join."""
    rows, between = [], []
    for start in range(0, 0x110000, 64):
        chars = [chr(c) for c in range(start, start + 64) if not 0xD800 <= c < 0xE000]
        rows.append("".join(chars).encode())
        between.append("".join("e" + c + "\u0345\u0301 " for c in chars).encode())
    assigned = [i for i in range(len(rows)) if i * 64 < 0x34000 or 0xE0000 <= i * 64 < 0xE0200]
    return [row for row in rows if row] + [between[i] for i in assigned if between[i]]
