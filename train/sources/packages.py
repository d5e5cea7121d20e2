"""Where the training text comes from: packages of Debian bookworm, the files in them, how they
are read.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sources import extract

GPL, FREE, PUBLIC = "GPL", "permissive", "public domain"


@dataclass(frozen=True)
class Source:
    package: str
    language: str
    name: str
    reader: Callable[[Path], Iterator[list[str]]]
    files: str  # paths in the package; * stands for any name, ** for any path
    licence: str
    most: int = 300_000  # characters kept


def each(
    package: str,
    name: str,
    reader: Callable,
    files: str,
    licence: str,
    languages: str,
    most: int = 170_000,
) -> list[Source]:
    """A source for each language; "da=da-DK" where {} in files is not the language code."""
    pairs = [(item.partition("=")[0], item.partition("=")[2] or item) for item in languages.split()]
    return [
        Source(package.format(code), language, name, reader, files.format(code), licence, most)
        for language, code in pairs
    ]


NOVEL = "usr/share/php/Faker/Provider/{}/Text.php"
WESNOTH = "usr/share/games/wesnoth/1.16/locale/{}/LC_MESSAGES/*.mo"
HANDBOOK = "usr/share/doc/debian-handbook/html/{}/*.html"
DICTD = "usr/share/dictd/*.dict.dz"
FORTUNES = "usr/share/games/fortunes/"
EUROPE = "de fr es it pt nl pl cs sv da fi hu tr ca"

TEXTS: list[Source] = [
    # books whose authors died long ago: also the only source of pages that are committed
    Source(
        "r-cran-janeaustenr",
        "en",
        "austen",
        extract.r_strings,
        "**/janeaustenr/data/Rdata.rdb",
        PUBLIC,
        4_200_000,
    ),
    Source("sword-text-web", "en", "bible", extract.sword, "**/ztext/*/?t.bz?", PUBLIC, 1_200_000),
    Source("sword-text-sparv", "es", "bible", extract.sword, "**/ztext/*/?t.bz?", PUBLIC, 400_000),
    Source("dict-devil", "en", "bierce", extract.devil, DICTD, PUBLIC),
    *each(
        "php-faker",
        "novel",
        extract.php_novel,
        NOVEL,
        PUBLIC,
        "en=en_US de=de_DE fr=fr_FR es=es_ES pt=pt_BR nl=nl_BE pl=pl_PL cs=cs_CZ hu=hu_HU ro=ro_RO",
        450_000,
    ),
    # essays, stories and games
    Source("anarchism", "en", "essays", extract.markup, "**/anarchism/html/*.html", GPL, 2_000_000),
    Source(
        "endless-sky-data",
        "en",
        "stories",
        extract.endless_sky,
        "**/endless-sky/data/*.txt",
        GPL,
        1_600_000,
    ),
    Source(
        "cataclysm-dda-data",
        "en",
        "survival",
        extract.json_text,
        "**/cataclysm-dda/json/**.json",
        GPL,
        1_500_000,
    ),
    Source(
        "wesnoth-1.16-data",
        "en",
        "fantasy",
        extract.originals,
        WESNOTH.format("de"),
        GPL,
        1_200_000,
    ),
    *each(
        "wesnoth-1.16-data",
        "fantasy",
        extract.translations,
        WESNOTH,
        GPL,
        EUROPE + " nb=nb_NO",
        200_000,
    ),
    Source(
        "crawl-common", "en", "dungeon", extract.crawl, "usr/share/crawl/dat/descript/*.txt", GPL
    ),
    *each(
        "crawl-common",
        "dungeon",
        extract.crawl,
        "usr/share/crawl/dat/descript/{}/*.txt",
        GPL,
        "de fr es it pl",
        120_000,
    ),
    Source("fortunes", "en", "sayings", extract.fortunes, FORTUNES + "*", FREE, 1_500_000),
    *each(
        "fortunes-{}", "sayings", extract.fortunes, FORTUNES + "{}/*", FREE, "de es it cs", 250_000
    ),
    # dictionaries
    Source("dict-gcide", "en", "gcide", extract.gcide, DICTD, GPL, 1_200_000),
    Source("dict-wn", "en", "wordnet", extract.wordnet, DICTD, FREE, 900_000),
    Source("dict-foldoc", "en", "foldoc", extract.dictd, DICTD, "GFDL", 800_000),
    Source("dict-jargon", "en", "jargon", extract.dictd, DICTD, PUBLIC, 700_000),
    # handbooks and help
    *each(
        "libreoffice-help-{}",
        "office",
        extract.markup,
        "usr/share/libreoffice/help/{}/text/**.html",
        "MPL",
        EUROPE,
        220_000,
    ),
    *each(
        "gnome-user-docs",
        "desktop",
        extract.markup,
        "usr/share/help/{}/gnome-help/*.page",
        "CC-BY-SA",
        "en=C de fr es it pt nl pl cs sv da fi hu tr ca ro",
        150_000,
    ),
    Source("gimp-help-en", "en", "images", extract.markup, "**/help/en/*.html", "GFDL"),
    *each(
        "debian-handbook",
        "handbook",
        extract.markup,
        HANDBOOK,
        GPL,
        "en=en-US de=de-DE fr=fr-FR es=es-ES it=it-IT pt=pt-BR nl=nl-NL pl=pl-PL sv=sv-SE da=da-DK "
        "tr=tr-TR nb=nb-NO",
    ),
    *each(
        "installation-guide-amd64",
        "installer",
        extract.markup,
        "usr/share/doc/installation-guide-amd64/{}/*.html",
        GPL,
        "en de fr cs da it nl pt sv",
        100_000,
    ),
    *each(
        "lyx-common",
        "writing",
        extract.lyx,
        "usr/share/lyx/doc/{}/*.lyx",
        GPL,
        "de fr es it cs hu nb",
        150_000,
    ),
    Source(
        "libreoffice-help-en-us",
        "en",
        "office",
        extract.markup,
        "**/help/en-US/text/**.html",
        "MPL",
        500_000,
    ),
    Source("lyx-common", "en", "writing", extract.lyx, "usr/share/lyx/doc/*.lyx", GPL),
    *each(
        "lilypond-doc-html-{}",
        "music",
        extract.long_markup,
        "**/Documentation/*-big-page.{}.html",
        "GFDL",
        "de fr es it",
        120_000,
    ),
    Source(
        "lilypond-doc-html",
        "en",
        "music",
        extract.long_markup,
        "**/Documentation/*-big-page.html",
        "GFDL",
        800_000,
    ),
    *each(
        "apache2-doc",
        "web",
        extract.markup,
        "usr/share/doc/apache2-doc/manual/{}/**.html",
        FREE,
        "en de fr es tr",
        160_000,
    ),
    *each(
        "kmymoney-common",
        "money",
        extract.markup,
        "usr/share/doc/HTML/{}/kmymoney/*.docbook",
        "GFDL",
        "en de it nl sv pt=pt_BR ca",
        160_000,
    ),
    *each(
        "manpages-{}",
        "manual",
        extract.manual,
        "usr/share/man/{}/man*/*.gz",
        GPL,
        "de fr es pl nl it cs da sv fi hu tr ro",
        140_000,
    ),
    Source("manpages-dev", "en", "manual", extract.manual, "usr/share/man/man*/*.gz", GPL, 700_000),
    Source("linux-doc-6.1", "en", "kernel", extract.markup, "**/html/**.html", GPL, 700_000),
    Source(
        "postgresql-doc-15", "en", "database", extract.markup, "**/html/*.html", FREE, 1_000_000
    ),
    Source("python3.11-doc", "en", "python", extract.markup, "**/html/*/*.html", FREE, 1_000_000),
    Source("octave-doc", "en", "numerics", extract.markup, "**/octave.html/*.html", GPL, 600_000),
    Source("maxima-doc", "en", "algebra", extract.markup, "usr/share/doc/**.html", GPL),
    Source(
        "debian-reference-en", "en", "reference", extract.markup, "**/debian-reference/*.html", GPL
    ),
    Source("debian-policy", "en", "policy", extract.markup, "**/policy.html/*.html", GPL),
    Source("abs-guide", "en", "shell", extract.markup, "**/abs-guide/html/*.html", PUBLIC),
]

PROGRAMS: list[Source] = [
    Source("gramps", "code", "python", extract.program, "**/gramps/gen/**.py", GPL, 200_000),
    Source("abs-guide", "code", "shell", extract.program, "**/examples/*.sh", PUBLIC, 150_000),
    Source("crawl-common", "code", "lua", extract.program, "**/dlua/**.lua", GPL, 120_000),
    Source("ruby-faker", "code", "ruby", extract.program, "**/lib/faker/**.rb", FREE, 120_000),
    Source("libeigen3-dev", "code", "cpp", extract.program, "**/Eigen/src/**.h", "MPL", 200_000),
    Source("librust-serde-dev", "code", "rust", extract.program, "**.rs", FREE, 120_000),
    Source("golang-github-spf13-cobra-dev", "code", "go", extract.program, "**.go", FREE, 120_000),
    Source("libmojolicious-perl", "code", "perl", extract.program, "**.pm", FREE, 110_000),
    Source("node-express", "code", "javascript", extract.program, "**.js", FREE, 110_000),
    Source(
        "node-lodash", "code", "javascript", extract.program, "**/lodash/[a-z]*.js", FREE, 110_000
    ),
    Source("libevent-dev", "code", "c", extract.program, "**.[ch]", FREE, 110_000),
    Source("php-symfony-console", "code", "php", extract.program, "**.php", FREE, 110_000),
    Source("wesnoth-1.16-data", "code", "lua", extract.program, "**/data/lua/**.lua", GPL, 120_000),
]

# Word lists, one word a line, or hunspell dictionaries ("word/flags" a line).
WORDS: list[tuple[str, str, str, int]] = [  # package, language, files, words kept
    ("wamerican-huge", "en", "usr/share/dict/american-english-huge", 130_000),
    ("wbritish-huge", "en", "usr/share/dict/british-english-huge", 16_000),
    ("wngerman", "de", "usr/share/dict/ngerman", 24_000),
    ("wfrench", "fr", "usr/share/dict/french", 16_000),
    ("wspanish", "es", "usr/share/dict/spanish", 16_000),
    ("witalian", "it", "usr/share/dict/italian", 16_000),
    ("wportuguese", "pt", "usr/share/dict/portuguese", 16_000),
    ("wdutch", "nl", "usr/share/dict/dutch", 16_000),
    ("wpolish", "pl", "usr/share/dict/polish", 16_000),
    ("wswedish", "sv", "usr/share/dict/swedish", 16_000),
    ("wdanish", "da", "usr/share/dict/danish", 16_000),
    ("wcatalan", "ca", "usr/share/dict/catalan", 10_000),
    ("wnorwegian", "nb", "usr/share/dict/bokmaal", 15_000),
    ("hunspell-cs", "cs", "usr/share/hunspell/cs_CZ.dic", 16_000),
    ("hunspell-hu", "hu", "usr/share/hunspell/hu_HU.dic", 16_000),
    ("hunspell-tr", "tr", "usr/share/hunspell/tr_TR.dic", 16_000),
]

NAMES = ("python3-fake-factory", "usr/lib/python3/dist-packages/faker/providers/**.py")


def patterns() -> dict[str, list[str]]:
    """For each package the patterns of the files that are needed from it."""
    wanted: dict[str, list[str]] = {}
    for source in TEXTS + PROGRAMS:
        wanted.setdefault(source.package, []).append(source.files)
    for package, _, files, _ in WORDS:
        wanted.setdefault(package, []).append(files)
    wanted.setdefault(NAMES[0], []).append("usr/lib/python3/dist-packages/faker/**")
    return wanted
