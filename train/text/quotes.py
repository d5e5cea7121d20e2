"""Quotation marks, dashes and dots: the same text in the typography of another house."""

import re

STRAIGHT = str.maketrans("‘’‚“”„«»‹›", "'''\"\"\"\"\"''")
TO_ASCII = STRAIGHT | {ord("–"): "-", ord("—"): "--", ord("…"): "..."}
PAIRS = {
    "curly": "“”‘’",
    "low": "„“‚‘",
    "angle": "«»‹›",
    "reversed": "»«›‹",
    "ascii": "\"\"''",
}
OPENING_DOUBLE = re.compile(r'(^|[\s(\[–—-])"(?=\S)')
OPENING_SINGLE = re.compile(r"(^|[\s(\[–—-])'(?=\S)")


def styles_of(language: str) -> list[str]:
    """The styles that texts in a language have, each as often as it is named; "kept" changes
    nothing.
    """
    if language == "de":
        return ["kept", "kept", "low", "reversed", "ascii"]
    if language in ("pl", "cs", "hu"):
        return ["kept", "kept", "low", "ascii"]
    if language in ("fr", "es", "it", "pt"):
        return ["kept", "kept", "curly", "angle", "ascii"]
    return ["kept", "kept", "curly", "curly", "ascii"]


def restyled(text: str, style: str) -> str:
    """The text with the marks of a style: "kept" or a key of PAIRS."""
    if style == "kept":
        return text
    if '"' not in text and "'" not in text and text.isascii():
        return text
    if style == "ascii":
        return text.translate(TO_ASCII)
    text = text.translate(STRAIGHT)
    left, right, inner_left, _ = PAIRS[style]
    text = OPENING_DOUBLE.sub(rf"\1{left}", text).replace('"', right)
    text = OPENING_SINGLE.sub(rf"\1{inner_left}", text) if style == "curly" else text
    text = text.replace("'", "’")
    return text.replace(" -- ", " – ").replace("--", "—").replace("...", "…")
