"""The characters that a page may show: ASCII, the Latin letters of Europe's languages, and the
signs of print.
"""

import string

ASCII = string.ascii_letters + string.digits + string.punctuation + " "
LATIN = "".join(
    chr(code)
    for code in [*range(0xC0, 0x180), *range(0x218, 0x21C)]
    if code not in (0xD7, 0xF7, 0x132, 0x133, 0x138, 0x13F, 0x140, 0x149, 0x17F)
)
QUOTES = "‘’‚“”„«»‹›"
SIGNS = "–—…•◦▪·†‡§¶©®™¡¿ªº€£¥°±×÷−≤≥≠≈→½¼¾¹²³⁰⁴⁵⁶⁷⁸⁹µ☐☑☒"
CHARS: str = ASCII + LATIN + QUOTES + SIGNS
