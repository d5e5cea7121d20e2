"""What a scanner, a copier, a fax, a camera or a JPEG file does to a page. Grey images, uint8 [H,
W], 255 white.

Strength is bounded by the size of the text: at 12 px only what leaves it readable.
"""

from __future__ import annotations

import random
from functools import lru_cache

import cv2
import numpy as np

NOISE_SIDE = 1536


NOISE_UNIT = 24  # grey levels of one standard deviation in the stored field


@lru_cache(maxsize=1)
def _noise() -> np.ndarray:
    """Normal noise around 128, one field per process, read at random places."""
    noise = np.random.default_rng(1).standard_normal((NOISE_SIDE, NOISE_SIDE), np.float32)
    return np.clip(128 + NOISE_UNIT * noise, 0, 255).round().astype(np.uint8)


def _field(r: random.Random, height: int, width: int) -> np.ndarray:
    noise = _noise()
    if height > NOISE_SIDE or width > NOISE_SIDE:
        noise = cv2.copyMakeBorder(
            noise, 0, max(0, height - NOISE_SIDE), 0, max(0, width - NOISE_SIDE), cv2.BORDER_WRAP
        )
    y, x = r.randint(0, noise.shape[0] - height), r.randint(0, noise.shape[1] - width)
    return noise[y : y + height, x : x + width]


def _add(image: np.ndarray, noise: np.ndarray, deviation: float) -> np.ndarray:
    """Adds noise of so many grey levels standard deviation."""
    share = deviation / NOISE_UNIT
    return cv2.addWeighted(image, 1, noise, share, -128 * share)


def scan(
    image: np.ndarray, r: random.Random, body: float, margin: float, plain: bool
) -> np.ndarray:
    """One page as some machine gives it; about half of the pages come back as they are, of plain
    ones three in four. body: text size in pixels; margin: the free pixels around all text, which
    bound how far the page may turn."""
    clean = 75 if plain else 27
    machine = r.choices(
        [None, _soften, _copy, _fax, _photo],
        [clean, *(share * (100 - clean) / 55 for share in (17, 20, 6, 12))],
    )[0]
    if machine is not None:
        image = machine(image, r, body, margin)
        if r.random() < 0.25:
            image = _jpeg(image, r, body)
    elif r.random() < 0.05:
        image = _jpeg(image, r, body)
    return image


def _blur(image: np.ndarray, r: random.Random, body: float) -> np.ndarray:
    most = min(1.2, max(0.0, (body - 8) / 18))
    sigma = r.uniform(0, most)
    return cv2.GaussianBlur(image, (0, 0), sigma) if sigma > 0.25 else image


def _add_noise(image: np.ndarray, r: random.Random, most: float) -> np.ndarray:
    return _add(image, _field(r, *image.shape), r.uniform(0.5, most))


def _tone(image: np.ndarray, r: random.Random, body: float) -> np.ndarray:
    """Paper and ink values, and a gamma, through a table; small text keeps more contrast."""
    ink, paper = r.uniform(0, 80 if body >= 16 else 40), r.uniform(190 if body >= 16 else 210, 255)
    gamma = r.uniform(0.8, 1.25)
    table = ink + (paper - ink) * (np.arange(256) / 255) ** gamma
    return cv2.LUT(image, np.round(table).astype(np.uint8))


def _gradient(image: np.ndarray, r: random.Random, depth: float) -> np.ndarray:
    """Uneven light: a smooth factor between 1 - depth and 1."""
    coarse = np.array([[r.uniform(1 - depth, 1) for _ in range(4)] for _ in range(4)], np.float32)
    light = cv2.resize(
        np.round(255 * coarse).astype(np.uint8), image.shape[::-1], interpolation=cv2.INTER_LINEAR
    )
    return cv2.multiply(image, light, scale=1 / 255)


def _turn(
    image: np.ndarray, r: random.Random, margin: float, most: float, border: int
) -> np.ndarray:
    """Rotation by up to `most` degrees, less where text would leave the page."""
    height, width = image.shape
    bound = np.degrees(max(0.0, margin - 2) / (max(height, width) / 2))
    angle = r.uniform(-1, 1) * min(most, bound)
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), angle, 1.0)
    return cv2.warpAffine(image, matrix, (width, height), **_warp_options(r, border))


def _warp_options(r: random.Random, border: int) -> dict[str, int]:
    """border: grey value of what comes in from outside."""
    interpolation = cv2.INTER_CUBIC if r.random() < 0.2 else cv2.INTER_LINEAR
    return {"flags": interpolation, "borderMode": cv2.BORDER_CONSTANT, "borderValue": border}


def _soften(image: np.ndarray, r: random.Random, body: float, margin: float) -> np.ndarray:
    """Clean print from another renderer: other tones, a little blur or sharpening."""
    if r.random() < 0.6:
        image = _tone(image, r, body)
    if r.random() < 0.5:
        image = _blur(image, r, body)
    elif r.random() < 0.3:
        image = cv2.addWeighted(image, 1.5, cv2.GaussianBlur(image, (0, 0), 1), -0.5, 0)
    if r.random() < 0.3:
        image = _add_noise(image, r, 4)
    return image


def _copy(image: np.ndarray, r: random.Random, body: float, margin: float) -> np.ndarray:
    """A flat-bed scan or a photocopy."""
    if r.random() < 0.15:
        back = cv2.GaussianBlur(cv2.flip(image, 1), (0, 0), 1.5)
        depth = r.uniform(0.04, 0.12)
        image = cv2.subtract(
            image,
            cv2.convertScaleAbs(cv2.bitwise_not(np.roll(back, r.randint(5, 40), 0)), alpha=depth),
        )
    if r.random() < 0.7:
        image = _turn(image, r, margin, 2.0, int(image[0, 0]))
    image = _tone(_blur(image, r, body), r, body)
    if r.random() < 0.5:
        image = _gradient(image, r, 0.15)
    if r.random() < 0.25:
        image = _edge_shadow(image, r, margin)
    if r.random() < 0.8:
        image = _add_noise(image, r, 9)
    if r.random() < 0.2:
        image = _speckle(image, r, body)
    return image


def _edge_shadow(image: np.ndarray, r: random.Random, margin: float) -> np.ndarray:
    """A dark band that fades inwards at the left or right edge, as at a book's spine."""
    width = image.shape[1]
    reach = min(width // 8, int(margin) + 20)
    factor = np.linspace(r.uniform(0.3, 0.8), 1, reach)
    image = image.copy()
    edge = image[:, :reach] if r.random() < 0.5 else image[:, : -reach - 1 : -1]
    edge[:] = edge * factor
    return image


def _speckle(image: np.ndarray, r: random.Random, body: float) -> np.ndarray:
    """Specks of dust: single pixels, dark and light."""
    image = image.copy()
    height, width = image.shape
    count = int(height * width * r.uniform(0.00005, 0.0003 if body < 18 else 0.0008))
    noise = np.random.default_rng(r.getrandbits(32))
    image[noise.integers(0, height, count), noise.integers(0, width, count)] = noise.choice(
        np.array([0, 40, 255], np.uint8), count
    )
    return image


def _fax(image: np.ndarray, r: random.Random, body: float, margin: float) -> np.ndarray:
    """Black and white only. Small text is thresholded at twice the size and reduced again, large
    text at a coarse resolution; text below 14 px would not survive."""
    if body < 14:
        return _soften(image, r, body, margin)
    if r.random() < 0.6:
        image = _turn(image, r, margin, 1.0, int(image[0, 0]))
    height, width = image.shape
    scale = 2.0 if body < 18 else min(1.0, r.uniform(16, 24) / body)
    size = round(width * scale), round(height * scale)
    work = cv2.resize(image, size, interpolation=cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA)
    ink, paper = float(work.min()), float(np.median(work[::4, ::4]))
    work = _add(work, _field(r, size[1], size[0]), r.uniform(0, 8 if body < 16 else 18))
    share = r.uniform(0.62, 0.78) if body < 18 else r.uniform(0.5, 0.7)  # keeps thin strokes
    threshold = ink + share * (paper - ink)
    _, work = cv2.threshold(work, threshold if paper > ink + 30 else 127, 255, cv2.THRESH_BINARY)
    work = _speckle(work, r, body)
    return cv2.resize(
        work, (width, height), interpolation=cv2.INTER_AREA if scale > 1 else cv2.INTER_LINEAR
    )


def _photo(image: np.ndarray, r: random.Random, body: float, margin: float) -> np.ndarray:
    """A photograph of the page: it lies a little askew on a table, unevenly lit."""
    height, width = image.shape
    inset = 0.025 if body >= 14 else 0.01
    inset = min(inset + margin / max(height, width), 0.05)
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    directions = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], np.float32)
    moved = corners + directions * np.array(
        [[r.uniform(0, inset) * width, r.uniform(0, inset) * height] for _ in range(4)], np.float32
    )
    matrix = cv2.getPerspectiveTransform(corners, moved)
    table = r.choice([int(image[0, 0]), r.randrange(40, 200)])
    image = cv2.warpPerspective(image, matrix, (width, height), **_warp_options(r, table))
    image = _gradient(_tone(_blur(image, r, body), r, body), r, 0.35)
    if r.random() < 0.3:
        image = _add(image, cv2.blur(_field(r, height, width), (5, 5)), r.uniform(5, 25))
    return _add_noise(image, r, 8)


def _jpeg(image: np.ndarray, r: random.Random, body: float) -> np.ndarray:
    quality = r.randint(30 if body >= 16 else 50, 90)
    return cv2.imdecode(
        cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_GRAYSCALE
    )
