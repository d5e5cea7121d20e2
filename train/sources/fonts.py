"""The typefaces of the page generator: which Debian packages hold them, and how they are cut to
CHARS.

Each face is subset to the characters that a page may show; layout tables go, the ligature glyphs
fi, fl, ff, ffi, ffl stay, and so does hinting where a face stays small with it (half of them).
fonts/index.json lists the faces; "chars" names the characters of CHARS that a face lacks. Faces of
other scripts go to fonts/scripts (see scripts.py).
"""

import json
import logging
from pathlib import Path

from fontTools.pens.recordingPen import DecomposingRecordingPen
from fontTools.ttLib import TTFont

from sources import scripts
from sources.subset import save_subset
from text.charset import ASCII, CHARS

STYLES = ("regular", "bold", "italic", "bolditalic")
LIGATURES = range(0xFB00, 0xFB05)
MOST_BYTES = 24_000  # of a face with hinting; a larger one is stored without

FOUR = "Regular Bold Italic BoldItalic"
OBLIQUE = "Regular Bold Oblique BoldOblique"
SHORT = "regular bold italic bolditalic"
TWO = "Regular Bold"

# Package, family, class, file name, and what replaces {} in it for regular, bold, italic and bold
# italic ("." where the family has no such face; "~" stands for a space).
FAMILIES = [
    ("fonts-liberation2", "Liberation Serif", "serif", "LiberationSerif-{}.ttf", FOUR),
    ("fonts-liberation2", "Liberation Sans", "sans", "LiberationSans-{}.ttf", FOUR),
    ("fonts-liberation2", "Liberation Mono", "mono", "LiberationMono-{}.ttf", FOUR),
    ("fonts-crosextra-carlito", "Carlito", "sans", "Carlito-{}.ttf", FOUR),
    ("fonts-crosextra-caladea", "Caladea", "serif", "Caladea-{}.ttf", FOUR),
    ("fonts-urw-base35", "Nimbus Roman", "serif", "NimbusRoman-{}.otf", FOUR),
    ("fonts-urw-base35", "Nimbus Sans", "sans", "NimbusSans-{}.otf", FOUR),
    ("fonts-urw-base35", "Nimbus Sans Narrow", "sans", "NimbusSansNarrow-{}.otf", OBLIQUE),
    ("fonts-urw-base35", "Nimbus Mono", "typewriter", "NimbusMonoPS-{}.otf", FOUR),
    ("fonts-urw-base35", "C059", "serif", "C059-{}.otf", "Roman Bold Italic BdIta"),
    ("fonts-urw-base35", "P052", "serif", "P052-{}.otf", "Roman Bold Italic BoldItalic"),
    (
        "fonts-urw-base35",
        "URW Bookman",
        "serif",
        "URWBookman-{}.otf",
        "Light Demi LightItalic DemiItalic",
    ),
    (
        "fonts-urw-base35",
        "URW Gothic",
        "sans",
        "URWGothic-{}.otf",
        "Book Demi BookOblique DemiOblique",
    ),
    ("fonts-urw-base35", "Z003", "display", "Z003-{}.otf", ". . MediumItalic ."),
    ("fonts-texgyre", "TeX Gyre Heros Condensed", "sans", "texgyreheroscn-{}.otf", SHORT),
    ("fonts-lmodern", "Latin Modern Roman", "serif", "lmroman10-{}.otf", SHORT),
    ("fonts-lmodern", "Latin Modern Roman 8", "serif", "lmroman8-{}.otf", "regular bold italic ."),
    (
        "fonts-lmodern",
        "Latin Modern Sans",
        "sans",
        "lmsans10-{}.otf",
        "regular bold oblique boldoblique",
    ),
    ("fonts-lmodern", "Latin Modern Mono", "typewriter", "lmmono10-{}.otf", "regular . italic ."),
    ("fonts-cmu", "CMU Concrete", "serif", "cmu{}.ttf", "norm . noti ."),
    ("fonts-cmu", "CMU Bright", "sans", "cmu{}.ttf", "nbmr nbsr nbmo nbso"),
    ("fonts-cmu", "CMU Typewriter", "typewriter", "cmun{}.ttf", "tt . it ."),
    ("fonts-ebgaramond", "EB Garamond", "serif", "EBGaramond12-{}.otf", "Regular Bold Italic ."),
    ("fonts-linuxlibertine", "Linux Libertine", "serif", "LinLibertine_{}.otf", "R RB RI ."),
    ("fonts-linuxlibertine", "Linux Biolinum", "sans", "LinBiolinum_{}.otf", "R RB RI ."),
    ("fonts-sil-gentiumplus", "Gentium Plus", "serif", "GentiumPlus-{}.ttf", FOUR),
    ("fonts-sil-charis", "Charis SIL", "serif", "CharisSIL-{}.ttf", "Regular . Italic ."),
    ("fonts-sil-andika", "Andika", "sans", "Andika-{}.ttf", TWO + " . ."),
    ("fonts-noto-core", "Noto Serif", "serif", "NotoSerif-{}.ttf", FOUR),
    ("fonts-noto-core", "Noto Sans", "sans", "NotoSans-{}.ttf", FOUR),
    ("fonts-noto-mono", "Noto Sans Mono", "mono", "NotoSansMono-{}.ttf", TWO + " . ."),
    ("fonts-dejavu-core", "DejaVu Sans", "sans", "DejaVuSans{}.ttf", " -Bold . ."),
    ("fonts-dejavu-core", "DejaVu Serif", "serif", "DejaVuSerif{}.ttf", " -Bold . ."),
    ("fonts-dejavu-core", "DejaVu Sans Mono", "mono", "DejaVuSansMono{}.ttf", " -Bold . ."),
    ("fonts-roboto-unhinted", "Roboto", "sans", "Roboto-{}.ttf", FOUR),
    ("fonts-roboto-unhinted", "Roboto Condensed", "sans", "RobotoCondensed-{}.ttf", TWO + " . ."),
    ("fonts-roboto-slab", "Roboto Slab", "serif", "RobotoSlab-{}.otf", TWO + " . ."),
    ("fonts-open-sans", "Open Sans", "sans", "OpenSans-{}.ttf", FOUR),
    ("fonts-lato", "Lato", "sans", "Lato-{}.ttf", FOUR),
    ("fonts-inter", "Inter", "sans", "Inter-{}.otf", FOUR),
    ("fonts-cantarell", "Cantarell", "sans", "Cantarell-{}.otf", TWO + " . ."),
    ("fonts-paratype", "PT Serif", "serif", "PTF{}F.ttf", "55 75 56 76"),
    ("fonts-paratype", "PT Sans", "sans", "PTS{}F.ttf", "55 75 56 76"),
    ("fonts-stix", "STIX", "serif", "STIX-{}.otf", FOUR),
    ("fonts-freefont-otf", "FreeSerif", "serif", "FreeSerif{}.otf", " Bold Italic BoldItalic"),
    ("fonts-vollkorn", "Vollkorn", "serif", "Vollkorn-{}.ttf", FOUR),
    ("fonts-junicode", "Junicode", "serif", "JunicodeTwoBeta-{}.otf", FOUR),
    ("fonts-adf-accanthis", "Accanthis", "serif", "AccanthisADFStd-{}.otf", FOUR),
    (
        "fonts-adf-baskervald",
        "Baskervald",
        "serif",
        "BaskervaldADFStd{}.otf",
        " -Bold -Italic -BoldItalic",
    ),
    ("fonts-adf-gillius", "Gillius", "sans", "GilliusADF-{}.otf", FOUR),
    ("fonts-adf-universalis", "Universalis", "sans", "UniversalisADFStd-{}.otf", FOUR),
    (
        "fonts-adf-romande",
        "Romande",
        "serif",
        "RomandeADFStd-{}.otf",
        "Regular DemiBold Italic DemiBoldItalic",
    ),
    ("fonts-gfs-didot", "GFS Didot", "serif", "GFSDidot{}.otf", " Bold Italic BoldItalic"),
    ("fonts-arkpandora", "Veranda", "sans", "Veranda{}.ttf", " Bd It BdIt"),
    ("fonts-clear-sans", "Clear Sans", "sans", "ClearSans-{}.ttf", FOUR),
    ("fonts-cabin", "Cabin", "sans", "Cabin-{}.otf", FOUR),
    ("fonts-quicksand", "Quicksand", "sans", "Quicksand-{}.ttf", TWO + " . ."),
    ("fonts-manrope", "Manrope", "sans", "Manrope-{}.ttf", TWO + " . ."),
    ("fonts-mplus", "M PLUS 1", "sans", "Mplus1-{}.otf", TWO + " . ."),
    ("fonts-go", "Go", "sans", "Go-{}.ttf", "Regular Bold Italic Bold-Italic"),
    ("fonts-go", "Go Mono", "mono", "Go-Mono{}.ttf", " -Bold . ."),
    ("fonts-hack", "Hack", "mono", "Hack-{}.ttf", TWO + " . ."),
    ("fonts-firacode", "Fira Code", "mono", "FiraCode-{}.ttf", TWO + " . ."),
    ("fonts-jetbrains-mono", "JetBrains Mono", "mono", "JetBrainsMono-{}.ttf", FOUR),
    ("fonts-inconsolata", "Inconsolata", "mono", "Inconsolata{}.otf", " . . ."),
    ("fonts-anonymous-pro", "Anonymous Pro", "mono", "Anonymous Pro{}.ttf", " ~B . ."),
    ("fonts-freefont-otf", "FreeMono", "typewriter", "FreeMono{}.otf", " Bold . ."),
    (
        "fonts-courier-prime",
        "Courier Prime",
        "typewriter",
        "Courier Prime{}.otf",
        " ~Bold ~Italic .",
    ),
    (
        "fonts-tlwg-typewriter-ttf",
        "Tlwg Typewriter",
        "typewriter",
        "TlwgTypewriter{}.ttf",
        " -Bold . .",
    ),
    ("fonts-ocr-b", "OCR-B", "typewriter", "OCRB{}.otf", " . . ."),
    (
        "fonts-goudybookletter",
        "Goudy Bookletter 1911",
        "serif",
        "GoudyBookletter1911{}.otf",
        " . . .",
    ),
    ("fonts-essays1743", "Essays 1743", "serif", "Essays1743{}.ttf", " . . ."),
    ("fonts-comfortaa", "Comfortaa", "display", "Comfortaa-{}.ttf", TWO + " . ."),
    ("fonts-lobstertwo", "Lobster Two", "display", "LobsterTwo-{}.otf", TWO + " . ."),
    ("fonts-league-spartan", "League Spartan", "display", "LeagueSpartan-{}.otf", TWO + " . ."),
    (
        "fonts-yanone-kaffeesatz",
        "Yanone Kaffeesatz",
        "display",
        "YanoneKaffeesatz-{}.otf",
        TWO + " . .",
    ),
    ("fonts-averia-serif-gwf", "Averia Serif", "display", "AveriaSerifGWF-{}.ttf", TWO + " . ."),
]
HELD_OUT = [
    ("fonts-oldstandard", "Old Standard", "serif", "OldStandard-{}.ttf", "Regular Bold Italic ."),
    ("fonts-gfs-artemisia", "GFS Artemisia", "serif", "GFSArtemisia{}.otf", " Bold It BoldIt"),
    ("fonts-adf-berenis", "Berenis", "serif", "BerenisADFPro-{}.otf", FOUR),
    ("fonts-karla", "Karla", "sans", "Karla-{}.otf", FOUR),
    ("fonts-adf-libris", "Libris", "sans", "LibrisADFStd-{}.otf", FOUR),
    ("fonts-tiresias", "Tiresias Infofont", "sans", "tiresias_infofont{}.ttf", " _bold _italic ."),
    ("fonts-mononoki", "Mononoki", "mono", "mononoki-{}.ttf", "Regular Bold Italic Bold-Italic"),
    ("fonts-league-mono", "League Mono", "mono", "LeagueMono-{}.otf", TWO + " . ."),
]


def packages() -> list[str]:
    return sorted({row[0] for row in FAMILIES + HELD_OUT} | scripts.packages())


def outline_of(font: TTFont, name: str) -> tuple:
    pen = DecomposingRecordingPen(font.getGlyphSet())
    font.getGlyphSet()[name].draw(pen)
    return tuple(pen.value)


def drawable(font: TTFont) -> list[str]:
    """The characters of CHARS that the face draws, each with ink, and unlike every character
    before it in CHARS.

    A dash drawn as a hyphen or a curly quote drawn as a straight one does not count: nobody
    can read it off the page.
    """
    names, seen, found = font.getBestCmap(), {outline_of(font, ".notdef")}, []
    for char in CHARS:
        if ord(char) not in names:
            continue
        outline = outline_of(font, names[ord(char)])
        if char == " " or (outline and (char in ASCII or outline not in seen)):
            found.append(char)
            seen.add(outline)
    return found


def cut(source: Path, target: Path) -> str:
    """Write the face, cut to CHARS, to target; return the characters of CHARS that it lacks."""
    font = TTFont(source)
    kept = drawable(font)
    lacking = "".join(char for char in CHARS if char not in kept)
    if set(lacking) & set(ASCII):
        raise SystemExit(
            f"fetch: {source.name} cannot draw {lacking!r}, expected all of ASCII; leave it out"
        )
    codes = [ord(char) for char in kept] + [
        code for code in LIGATURES if code in font.getBestCmap()
    ]
    save_subset(font, codes, target, hinting=True)
    if target.stat().st_size > MOST_BYTES:
        save_subset(TTFont(source), codes, target, hinting=False)
    return lacking


def build(roots: dict[str, Path], folder: Path) -> list[dict]:
    """Cut every face of the tables into folder. roots: package name to its unpacked tree."""
    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it reports every table that it drops
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.?tf"):
        old.unlink()
    faces = []
    for split, families in (("train", FAMILIES), ("held_out", HELD_OUT)):
        for package, family, kind, template, names in families:
            for style, name in zip(STYLES, names.split(" "), strict=True):
                if name == ".":
                    continue
                wanted = template.format(name.replace("~", " "))
                found = sorted(roots[package].rglob(wanted))
                if not found:
                    raise SystemExit(
                        f"fetch: package {package} has no file {wanted}; correct the table of fonts"
                    )
                target = f"{family.replace(' ', '')}-{style}{found[0].suffix}"
                lacking = cut(found[0], folder / target)
                faces.append(
                    {
                        "file": target,
                        "family": family,
                        "style": style,
                        "class": kind,
                        "split": split,
                        "chars": lacking,
                    }
                )
    (folder / "index.json").write_text(json.dumps(faces, ensure_ascii=False, indent=0))
    scripts.build(roots, folder / "scripts")
    return faces
