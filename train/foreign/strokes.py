"""Strokes of a pen: handwriting that says nothing, and staves of music. Both fill the frame of a
writer."""

from __future__ import annotations

import cv2
import numpy as np

from drawing.writer import Writer

SUBPIXEL = 4  # bits of the fractions that cv2 draws with


def handwriting(w: Writer) -> None:
    """Lines of joined letters: loops and arcs between a base line and three heights."""
    noise = np.random.default_rng(w.r.getrandbits(32))
    letter = w.r.uniform(0.45, 0.9) * w.look.size  # width
    height = w.r.uniform(0.5, 0.9) * w.look.size  # of small letters
    pitch = max(w.leading, height * w.r.uniform(2.6, 3.6))
    slant, slope = w.r.uniform(-0.1, 0.6), w.r.uniform(-0.02, 0.02)
    loops = w.r.uniform(0.2, 1.1)
    thickness = max(1, round(w.look.size * w.r.uniform(0.05, 0.13)))
    ink = w.r.randint(0, 110)
    indent = w.r.uniform(0, 2) * w.look.size
    while w.room > pitch:
        baseline = w.y + 0.65 * pitch
        x = w.left + indent * w.r.random()
        end = w.left + w.width * (1.0 if w.chance(0.85) else w.r.uniform(0.2, 1))
        while x < end - 3 * letter:
            letters = min(w.r.randint(1, 10), int((end - x) / letter) - 1)
            path = _cursive(noise, letters, loops)
            points = np.stack(
                [
                    x + letter * path[:, 0] + slant * height * path[:, 1],
                    baseline - height * path[:, 1] + slope * (x - w.left),
                ],
                1,
            )
            points = np.clip(points, 2, [w.sheet.width - 3, w.sheet.height - 3])
            _draw(w.sheet.canvas, points, thickness, ink)
            x += (letters + w.r.uniform(0.7, 1.6)) * letter
        w.y += pitch


def _cursive(noise: np.random.Generator, letters: int, loops: float) -> np.ndarray:
    """The path of a word [n, 2]: x in letters from 0, y in heights of small letters above the base
    line. The pen goes up and down as it moves on, each stroke by its own height; loops: how far it
    swings back."""
    strokes = max(2, round(noise.uniform(1.3, 2.0) * letters))
    t = np.arange(12 * strokes + 1) / 12
    knots = np.arange(strokes + 1)
    tops = noise.choice([1.0, 1.0, 1.0, 1.0, 0.6, 2.2], strokes + 1)
    feet = noise.choice([0.0, 0.0, 0.0, 0.0, 0.25, -1.0], strokes + 1)
    swings = loops * noise.normal(0.25, 0.3, strokes + 1)
    top, foot, swing = (
        np.interp(t, knots, values + noise.normal(0, 0.07, strokes + 1))
        for values in (tops, feet, swings)
    )
    rise = 0.5 - 0.5 * np.cos(2 * np.pi * t)
    x = t + swing * np.sin(2 * np.pi * t)
    return np.stack([x * letters / strokes, foot + (top - foot) * rise], 1)


def _draw(canvas: np.ndarray, points: np.ndarray, thickness: int, ink: int) -> None:
    fixed = np.round(points * (1 << SUBPIXEL)).astype(np.int32)
    cv2.polylines(canvas, [fixed], False, ink, thickness, cv2.LINE_AA, SUBPIXEL)


def staves(w: Writer) -> None:
    """Music: five lines, bars, notes with stems and beams, ties."""
    gap = max(3.0, w.r.uniform(0.35, 0.6) * w.look.size)
    pitch = gap * w.r.uniform(9, 12)
    canvas, ink = w.sheet.canvas, w.look.ink
    while w.room > pitch:
        top = round(w.y + 0.25 * pitch)
        for line in range(5):
            w.sheet.rule(w.left, w.right, top + line * gap, 1, ink)
        bars = w.r.randint(2, 6)
        for bar in range(bars + 1):
            x = w.left + bar * (w.width - 1) / bars
            w.sheet.stroke(x, top, top + 4 * gap, max(1, gap / 8), ink)
            if bar < bars:
                _notes(w, canvas, x + gap, x + (w.width - 1) / bars - gap, top, gap)
        w.y += pitch


def _notes(
    w: Writer, canvas: np.ndarray, left: float, right: float, top: float, gap: float
) -> None:
    """The notes of one bar; neighbours are beamed now and then."""
    count = max(1, min(w.r.choice([1, 2, 3, 4, 4, 6, 8]), int((right - left) / (1.6 * gap))))
    ink, stem = w.look.ink, 3 * gap
    last = None
    for number in range(count):
        x = left + (number + 0.5) * (right - left) / count
        y = top + gap * w.r.randint(-1, 9) / 2
        filled = w.chance(0.8)
        axes = round(0.6 * gap), max(1, round(0.42 * gap))
        cv2.ellipse(
            canvas, (round(x), round(y)), axes, -20, 0, 360, ink, -1 if filled else 1, cv2.LINE_AA
        )
        up = -1 if y > top + 2 * gap else 1
        tip = y + up * stem
        side = x - up * 0.55 * gap
        w.sheet.stroke(side, min(y, tip), max(y, tip), max(1, gap / 8), ink)
        if last and last[2] == up and w.chance(0.4):
            a, b = (round(last[0]), round(last[1])), (round(side), round(tip))
            cv2.line(canvas, a, b, ink, max(2, round(0.4 * gap)), cv2.LINE_AA)
        last = side, tip, up
