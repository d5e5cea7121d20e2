"""Fetches what the page generator needs: texts, words and typefaces, from packages of Debian
bookworm.

    python train/fetch.py [--to train/data] [--debs FOLDER]

Nothing is installed: each package is downloaded (to --debs, which may be kept for the next time,
or to a temporary folder), the files that are needed are unpacked, read, and deleted. About 785
MB are downloaded and 24 MB remain; it takes eight minutes and the download. Needs apt-get,
dpkg-deb, and the packages of requirements.txt.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from sources import fonts as fetch_fonts
from sources import packages as sources
from sources import texts as fetch_texts
from sources import words as fetch_words

REPOSITORY = Path(__file__).resolve().parent.parent
FONT_FILES = ["**.ttf", "**.ttc", "**.otf"]


def download(package: str, debs: Path) -> Path:
    """The .deb of a package in debs, downloaded when it is not there."""
    found = sorted(debs.glob(f"{package}_*.deb"))
    if not found:
        done = subprocess.run(
            ["apt-get", "-q", "download", package], cwd=debs, capture_output=True, text=True
        )
        found = sorted(debs.glob(f"{package}_*.deb"))
        if done.returncode or not found:
            raise SystemExit(
                f"fetch: apt-get download {package} failed, expected a package of Debian bookworm: "
                f"{done.stderr.strip()}; run apt-get update, or look the package up"
            )
    return found[-1]


def unpack(deb: Path, patterns: list[str], root: Path) -> Path:
    """Write the regular files of a package that match one of the patterns below root."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE
    ) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if member.isreg() and any(
                    fetch_texts.wanted(name, pattern) for pattern in patterns
                ):
                    archive.extract(member, root, filter="data")
    return root


def show(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def fetch(folder: Path, debs: Path, scratch: Path) -> None:
    wanted = sources.patterns()
    for package in fetch_fonts.packages():
        wanted.setdefault(package, []).extend(FONT_FILES)
    roots = {}
    for number, (package, patterns) in enumerate(sorted(wanted.items()), 1):
        show(f"package {number} of {len(wanted)}: {package}")
        roots[package] = unpack(download(package, debs), patterns, scratch / package)
    show("fonts (one to two minutes)")
    faces = fetch_fonts.build(roots, folder / "fonts")
    library = fetch_texts.build(roots, folder / "texts", REPOSITORY, show)
    show("words")
    words = fetch_words.build(roots, folder / "words", library)
    manifest = {
        "texts": library.manifest,
        "words": words,
        "faces": {
            split: sum(face["split"] == split for face in faces) for split in ("train", "held_out")
        },
        "families": len({face["family"] for face in faces}),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, ensure_ascii=False, indent=1))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    show(f"{folder}: {len(faces)} faces, {sum(words.values())} words, {size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Fetch texts, words and typefaces for the page generator."
    )
    parser.add_argument(
        "--to", type=Path, default=Path(__file__).resolve().parent / "data", help="folder to write"
    )
    parser.add_argument(
        "--debs", type=Path, help="folder for the packages, kept (default: temporary)"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        debs = arguments.debs or Path(scratch) / "debs"
        debs.mkdir(parents=True, exist_ok=True)
        fetch(arguments.to, debs.resolve(), Path(scratch))


if __name__ == "__main__":
    main()
