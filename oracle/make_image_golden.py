#!/usr/bin/env python3
"""Golden fixtures of image decoding, resizing and patching.

    python3 oracle/make_image_golden.py            # needs numpy and Pillow
    python3 oracle/make_image_golden.py --torch    # also compares Pillow's resize with torch's (prints the result)

Writes tests/golden/images/decode.safetensors: for each variant NAME the file's bytes, [n] u8; NAME.rgb, the
expected pixels, [height, width, 3] u8; NAME.tolerance, the largest difference allowed, [1] u8. Lossless files are
expected exactly; what Pillow decodes with a JPEG or WebP library of another version may differ by a few levels.
Writes tests/golden/images/resize.safetensors: NAME.in and NAME.out, [height, width, 3] u8, by Pillow's BICUBIC;
smart_resize, [n, 6] i64: height, width, min_pixels, max_pixels, result height, result width (factor 32);
patches.image, patches.rows: by the executable specification's formula.
Writes the decode files also as seeds to fuzz/corpus/image and EXIF blocks to fuzz/corpus/exif.
"""

import io
import json
import math
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

ROOT = Path(__file__).resolve().parent.parent
W, H = 21, 17
EXACT, JPEG = 0, 3


# ----------------------------------------------------------------------------------------------- the test picture
def rgb_picture():
    """Smooth colours, so that lossy formats stay close, with a dark corner that shows which way is up."""
    y, x = np.mgrid[0:H, 0:W]
    rgb = np.stack([x * 255 // (W - 1), y * 255 // (H - 1), (x + y) * 255 // (W + H - 2)], -1).astype(np.uint8)
    rgb[:5, :7] = (30, 20, 10)
    return rgb


RGB = rgb_picture()
GREY = np.asarray(Image.fromarray(RGB).convert("L"))
ALPHA = (np.mgrid[0:H, 0:W][1] * 255 // (W - 1)).astype(np.uint8)
GREY3 = np.repeat(GREY[:, :, None], 3, -1)
BITS = (GREY > 128).astype(np.uint8)


def on_white(rgb, alpha):
    a = alpha.astype(int)[:, :, None]
    return ((rgb.astype(int) * a + 255 * (255 - a) + 127) // 255).astype(np.uint8)


# --------------------------------------------------------------------------------------------- writers of our own
def pack(rows, bits):
    """[height, width] values to rows of whole bytes, high bits first."""
    out = []
    for row in rows:
        value = "".join(format(int(v), f"0{bits}b") for v in row)
        value += "0" * (-len(value) % 8)
        out.append(bytes(int(value[i:i + 8], 2) for i in range(0, len(value), 8)))
    return out


def samples_of(array, bits):
    """[height, width, channels] to PNG rows."""
    if bits == 16:
        return [row.astype(">u2").tobytes() for row in array]
    if bits == 8:
        return [row.astype(np.uint8).tobytes() for row in array]
    return pack(array[:, :, 0], bits)


def png(array, colour_type, bits, before=(), after=(), interlaced=False):
    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    array = array if array.ndim == 3 else array[:, :, None]
    height, width = array.shape[:2]
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x, y, dx, dy in passes:
        part = array[y::dy, x::dx]
        if part.size:
            data += b"".join(b"\0" + row for row in samples_of(part, bits))
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(*c) for c in before)
            + chunk(b"IDAT", zlib.compress(data, 9)) + b"".join(chunk(*c) for c in after) + chunk(b"IEND", b""))


def bmp(header_fields, pixels, palette=b"", masks=b""):
    width, height, bits, compression, colours = header_fields
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(pixels), 2835, 2835, colours, 0)
    offset = 14 + len(info) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + info + masks + palette + pixels


def bmp_rows(rows):
    return b"".join(row + b"\0" * (-len(row) % 4) for row in rows)


def exif(orientation, order="<"):
    mark = b"II" if order == "<" else b"MM"
    entries = [(0x010F, 2, 4, b"abc\0"), (0x0112, 3, 1, struct.pack(order + "HH", orientation, 0))]
    body = b"".join(struct.pack(order + "HHI", t, k, n) + v for t, k, n, v in entries)
    return mark + struct.pack(order + "HIH", 42, 8, len(entries)) + body + b"\0\0\0\0"


def turned(array, orientation):
    """What is stored so that a reader that applies `orientation` shows `array`."""
    inverse = {1: None, 2: Image.FLIP_LEFT_RIGHT, 3: Image.ROTATE_180, 4: Image.FLIP_TOP_BOTTOM,
               5: Image.TRANSPOSE, 6: Image.ROTATE_90, 7: Image.TRANSVERSE, 8: Image.ROTATE_270}[orientation]
    image = Image.fromarray(array)
    return np.asarray(image if inverse is None else image.transpose(inverse))


def saved(image, format, **options):
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def pillow_rgb(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        pixels = np.asarray(image)
        return on_white(pixels[:, :, :3], pixels[:, :, 3])
    return np.asarray(image.convert("RGB"))


# ------------------------------------------------------------------------------------------------------- variants
def png_variants():
    for bits in (1, 2, 4):
        values = GREY >> (8 - bits)
        grey = (values.astype(int) * 255 // (2**bits - 1)).astype(np.uint8)
        yield f"png_grey{bits}", png(values, 0, bits), np.repeat(grey[:, :, None], 3, -1)
    yield "png_grey8", png(GREY, 0, 8), GREY3
    deep = GREY.astype(np.uint16) * 251 + 77
    to8 = lambda v: ((v.astype(int) * 255 + 32767) // 65535).astype(np.uint8)
    yield "png_grey16", png(deep, 0, 16), np.repeat(to8(deep)[:, :, None], 3, -1)
    yield "png_rgb8", png(RGB, 2, 8), RGB
    deep_rgb = RGB.astype(np.uint16) * 253 + 99
    yield "png_rgb16", png(deep_rgb, 2, 16), to8(deep_rgb)
    grey_alpha = np.stack([GREY, ALPHA], -1)
    yield "png_grey_alpha8", png(grey_alpha, 4, 8), on_white(GREY3, ALPHA)
    yield "png_grey_alpha16", png(grey_alpha.astype(np.uint16) * 257, 4, 16), on_white(GREY3, ALPHA)
    rgba = np.concatenate([RGB, ALPHA[:, :, None]], -1)
    yield "png_rgba8", png(rgba, 6, 8), on_white(RGB, ALPHA)
    yield "png_rgba16", png(rgba.astype(np.uint16) * 257, 6, 16), on_white(RGB, ALPHA)
    palette = np.stack([np.arange(16) * 17, 255 - np.arange(16) * 17, np.full(16, 90)], -1).astype(np.uint8)
    index = GREY >> 4
    transparency = bytes(range(0, 160, 10))
    yield "png_palette4", png(index, 3, 4, [(b"PLTE", palette.tobytes())]), palette[index]
    yield ("png_palette8_alpha", png(index, 3, 8, [(b"PLTE", palette.tobytes()), (b"tRNS", transparency)]),
           on_white(palette[index], np.frombuffer(transparency, np.uint8)[index]))
    key = RGB[0, 0]
    yield ("png_colour_key", png(RGB, 2, 8, [(b"tRNS", key.astype(">u2").tobytes())]),
           np.where((RGB == key).all(-1, keepdims=True), 255, RGB).astype(np.uint8))
    yield "png_interlaced", png(RGB, 2, 8, interlaced=True), RGB
    yield "png_interlaced_grey1", png(BITS, 0, 1, interlaced=True), np.repeat(BITS[:, :, None] * 255, 3, -1)
    yield "png_exif6", png(turned(RGB, 6), 2, 8, [(b"eXIf", exif(6))]), RGB
    yield "png_exif8_at_end", png(turned(RGB, 8), 2, 8, after=[(b"eXIf", exif(8, ">"))]), RGB


def jpeg_variants():
    image = Image.fromarray(RGB)
    yield "jpeg_444", saved(image, "JPEG", quality=90, subsampling=0)
    yield "jpeg_420", saved(image, "JPEG", quality=90, subsampling=2)
    yield "jpeg_progressive", saved(image, "JPEG", quality=90, progressive=True)
    yield "jpeg_restart", saved(image, "JPEG", quality=90, restart_marker_blocks=1)
    yield "jpeg_grey", saved(image.convert("L"), "JPEG", quality=90)
    yield "jpeg_cmyk", saved(image.convert("CMYK"), "JPEG", quality=95)
    for orientation in range(1, 9):
        block = b"Exif\0\0" + exif(orientation, "<>"[orientation % 2])
        yield f"jpeg_exif{orientation}", saved(Image.fromarray(turned(RGB, orientation)), "JPEG", exif=block)


def webp_variants():
    image, alpha = Image.fromarray(RGB), Image.fromarray(np.concatenate([RGB, ALPHA[:, :, None]], -1))
    yield "webp_lossy", saved(image, "WEBP", quality=90)
    yield "webp_lossless", saved(image, "WEBP", lossless=True)
    yield "webp_lossy_alpha", saved(alpha, "WEBP", quality=90)
    yield "webp_lossless_alpha", saved(alpha, "WEBP", lossless=True, exact=True)
    yield "webp_exif", saved(Image.fromarray(turned(RGB, 6)), "WEBP", lossless=True, exif=exif(6))
    frames = dict(save_all=True, append_images=[Image.new("RGB", (W, H), "red")], duration=100)
    yield "webp_animated", saved(image, "WEBP", lossless=True, **frames)
    yield "webp_animated_alpha", saved(alpha, "WEBP", quality=90, **frames)


def tiff_variants():
    image = Image.fromarray(RGB)
    bilevel = Image.fromarray(BITS * 255).convert("1", dither=0)
    for name in ("raw", "packbits", "tiff_lzw", "tiff_adobe_deflate"):
        yield "tiff_" + name.removeprefix("tiff_"), saved(image, "TIFF", compression=name)
    for name in ("group3", "group4"):
        yield "tiff_" + name, saved(bilevel, "TIFF", compression=name)
    yield "tiff_white_is_zero", saved(bilevel, "TIFF", tiffinfo={262: 0})
    yield "tiff_jpeg", saved(image, "TIFF", compression="jpeg", quality=90)
    yield "tiff_grey", saved(image.convert("L"), "TIFF")
    yield "tiff_palette", saved(image.quantize(40), "TIFF")
    yield "tiff_grey_alpha", saved(Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(ALPHA)]), "TIFF")
    yield "tiff_rgba", saved(Image.fromarray(np.concatenate([RGB, ALPHA[:, :, None]], -1)), "TIFF")
    yield "tiff_cmyk", saved(image.convert("CMYK"), "TIFF", compression="tiff_lzw")
    yield "tiff_bigtiff", saved(image, "TIFF", big_tiff=True)
    yield "tiff_orientation5", saved(Image.fromarray(turned(RGB, 5)), "TIFF", tiffinfo={274: 5})


def bmp_variants():
    image = Image.fromarray(RGB)
    for mode in ("1", "L", "P", "RGB"):
        yield f"bmp_{mode.lower()}", saved(image.convert(mode), "BMP"), None
    palette = bytes(v for i in range(16) for v in (i * 17, 90, 255 - i * 17, 0))
    colours = np.stack([255 - np.arange(16) * 17, np.full(16, 90), np.arange(16) * 17], -1).astype(np.uint8)
    index = GREY >> 4
    yield "bmp_4bit", bmp((W, H, 4, 0, 16), bmp_rows(pack(index[::-1], 4)), palette), colours[index]
    yield "bmp_top_down", bmp((W, -H, 4, 0, 16), bmp_rows(pack(index, 4)), palette), colours[index]
    r, g, b = (RGB[:, :, c].astype(int) for c in range(3))
    expand = lambda v, bits: (v * 255 + (2**bits - 1) // 2) // (2**bits - 1)
    rgb555 = (r >> 3) << 10 | (g >> 3) << 5 | b >> 3
    rows = bmp_rows(row.astype("<u2").tobytes() for row in rgb555[::-1])
    yield ("bmp_555", bmp((W, H, 16, 0, 0), rows),
           np.stack([expand(r >> 3, 5), expand(g >> 3, 5), expand(b >> 3, 5)], -1).astype(np.uint8))
    rgb565 = (r >> 3) << 11 | (g >> 2) << 5 | b >> 3
    rows = bmp_rows(row.astype("<u2").tobytes() for row in rgb565[::-1])
    yield ("bmp_565", bmp((W, H, 16, 3, 0), rows, masks=struct.pack("<III", 0xF800, 0x07E0, 0x001F)),
           np.stack([expand(r >> 3, 5), expand(g >> 2, 6), expand(b >> 3, 5)], -1).astype(np.uint8))
    rgbx = np.concatenate([RGB[::-1, :, ::-1], np.zeros((H, W, 1), np.uint8)], -1)
    yield "bmp_32bit", bmp((W, H, 32, 0, 0), rgbx.tobytes()), RGB

    runs = b""
    for row in index[::-1]:  # a run of three, then the rest as single pixels, padded to 16 bits
        runs += bytes([3, row[3]]) + bytes([0, W - 3]) + bytes(row[3:]) + b"\0" * ((W - 3) % 2) + b"\0\0"
    expected = index.copy()
    expected[:, :3] = expected[:, 3:4]
    yield "bmp_rle8", bmp((W, H, 8, 1, 16), runs + b"\0\1", palette), colours[expected]
    runs = b""
    for row in index[::-1]:
        single = pack(row[None, 4:], 4)[0]
        runs += bytes([4, row[4] << 4 | row[5]]) + bytes([0, W - 4]) + single + b"\0" * (len(single) % 2) + b"\0\0"
    expected = index.copy()
    expected[:, 0:4:2], expected[:, 1:4:2] = index[:, 4:5], index[:, 5:6]
    yield "bmp_rle4", bmp((W, H, 4, 2, 16), runs + b"\0\1", palette), colours[expected]
    core = struct.pack("<IHHHH", 12, W, H, 1, 24)
    rows = bmp_rows(row[:, ::-1].tobytes() for row in RGB[::-1])
    yield "bmp_os2", b"BM" + struct.pack("<IHHI", 26 + len(rows), 0, 0, 26) + core + rows, RGB


def gif_variants():
    palette = Image.fromarray(RGB).quantize(200)
    yield "gif_plain", saved(palette, "GIF", interlace=0)
    yield "gif_interlaced", saved(palette, "GIF", interlace=1)
    yield "gif_two_colours", saved(Image.fromarray(BITS * 255).convert("1"), "GIF")
    yield "gif_transparent", saved(palette, "GIF", transparency=palette.getpixel((0, 0)))
    yield "gif_animated", saved(palette, "GIF", save_all=True, append_images=[Image.new("P", (W, H), 3)])
    noise = np.random.default_rng(5).integers(0, 256, (64, 70), dtype=np.uint8)  # fills the code table and clears it
    yield "gif_noise", saved(Image.fromarray(noise), "GIF", interlace=0)


def decode_fixtures():
    for name, data, expected in png_variants():
        assert np.abs(pillow_rgb(data).astype(int) - expected).max() <= 1 or "16" in name, name
        yield name, data, expected, EXACT
    for name, data in jpeg_variants():
        yield name, data, pillow_rgb(data), JPEG
    for name, data in webp_variants():
        yield name, data, pillow_rgb(data), EXACT if "lossless" in name else JPEG
    for name, data in tiff_variants():
        yield name, data, pillow_rgb(data), JPEG if "jpeg" in name else EXACT
    for name, data, expected in bmp_variants():
        yield name, data, pillow_rgb(data) if expected is None else expected, EXACT
    for name, data in gif_variants():
        yield name, data, pillow_rgb(data), EXACT


# ------------------------------------------------------------------------------------------------- resize, patches
RESIZES = [((61, 47), (32, 32)), ((13, 9), (41, 32)), ((1, 1), (32, 32)), ((1, 40), (32, 64)), ((40, 1), (64, 32)),
           ((200, 3), (64, 32)), ((32, 50), (32, 32)), ((50, 32), (32, 32)), ((48, 48), (16, 16)), ((31, 33), (37, 41)),
           ((600, 5), (32, 5)), ((5, 600), (5, 32)), ((2, 2), (7, 5)), ((40, 30), (39, 29))]


def smart_resize(h, w, factor, min_pixels, max_pixels):
    hb, wb = round(h / factor) * factor, round(w / factor) * factor
    if hb * wb > max_pixels:
        s = math.sqrt(h * w / max_pixels)
        hb, wb = max(factor, math.floor(h / s / factor) * factor), max(factor, math.floor(w / s / factor) * factor)
    elif hb * wb < min_pixels:
        s = math.sqrt(min_pixels / (h * w))
        hb, wb = math.ceil(h * s / factor) * factor, math.ceil(w * s / factor) * factor
    return hb, wb


def resize_fixtures():
    random = np.random.default_rng(11)
    for (w, h), to in RESIZES:
        source = random.integers(0, 256, (h, w, 3), dtype=np.uint8)
        if (w, h) == (31, 33):  # extremes, so that the cubic overshoots
            source = np.where(source > 127, 255, 0).astype(np.uint8)
        name = f"{w}x{h}_to_{to[0]}x{to[1]}"
        yield name + ".in", source
        yield name + ".out", np.asarray(Image.fromarray(source).resize(to, Image.BICUBIC))

    table = []
    limits = [(65536, 16777216), (65536, 1048576), (3136, 12845056)]
    sizes = [(2339, 1654), (1754, 1240), (3508, 2480), (7016, 4960), (100, 100), (48, 2000), (16, 3200), (80, 112)]
    sizes += [tuple(int(v) for v in np.exp(random.uniform(np.log(30), np.log(5000), 2))) for _ in range(40)]
    for h, w in sizes:
        if max(h, w) / min(h, w) <= 200:
            table += [(h, w, *limit, *smart_resize(h, w, 32, *limit)) for limit in limits]
    yield "smart_resize", np.array(table, np.int64)

    # Patch 4, merge 2, 2 frames; at most 400 pixels: 21 x 13 becomes 24 x 16.
    image = random.integers(0, 256, (13, 21, 3), dtype=np.uint8)
    P, M, T, size = 4, 2, 2, (24, 16)
    x = np.asarray(Image.fromarray(image).resize(size, Image.BICUBIC), np.float32) / np.float32(255)
    x = (x - np.array([0.5, 0.25, 0.4], np.float32)) / np.array([0.5, 0.3, 0.2], np.float32)
    gh, gw = size[1] // P, size[0] // P
    x = x.reshape(gh // M, M, P, gw // M, M, P, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    x = np.repeat(x[:, :, :, :, :, None], T, axis=5)
    yield "patches.image", image
    yield "patches.rows", np.ascontiguousarray(x.reshape(gh * gw, -1))


def compare_with_torch():
    """torchvision's two ways to resize 8-bit pictures: in 8 bits (CPUs with AVX2), or in floats and rounded."""
    import torch

    random = np.random.default_rng(3)
    y, x = np.mgrid[0:1754, 0:1240]
    page = np.where((x // 3 * 7 + y // 5 * 13) % 11 < 3, 20, 250)[:, :, None] + random.integers(-9, 10, (1754, 1240, 3))
    sources = {"noise": random.integers(0, 256, (1754, 1240, 3)), "page": np.clip(page, 0, 255)}
    for kind, pixels in sources.items():
        for to in ((736, 1056), (1248, 1760), (2000, 2400)):
            source = pixels.astype(np.uint8)
            pillow = np.asarray(Image.fromarray(source).resize(to, Image.BICUBIC)).astype(int)
            tensor = torch.from_numpy(source).permute(2, 0, 1)[None]
            resize = lambda t: torch.nn.functional.interpolate(t, size=to[::-1], mode="bicubic", antialias=True)
            for way, result in (("8-bit", resize(tensor)), ("float", resize(tensor.float()).round().clamp(0, 255))):
                difference = np.abs(result[0].permute(1, 2, 0).numpy().astype(int) - pillow)
                print(f"torch {torch.__version__} {way}, {kind} to {to}: largest difference {difference.max()}, "
                      f"{100 * (difference > 0).mean():.3f} % of values differ, {(difference > 1).sum()} by more than 1")


# --------------------------------------------------------------------------------------------------------- output
def write_safetensors(path, tensors):
    names = {np.dtype(np.uint8): "U8", np.dtype(np.int64): "I64", np.dtype(np.float32): "F32"}
    header, data = {"__metadata__": {"generator": "oracle/make_image_golden.py"}}, b""
    # The widest type first, so that every tensor is aligned.
    for name, array in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
        begin = len(data)
        data += np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, {len(tensors)} tensors")


def main():
    decode, corpus = {}, ROOT / "fuzz/corpus/image"
    corpus.mkdir(parents=True, exist_ok=True)
    for name, data, expected, tolerance in decode_fixtures():
        decode[name] = np.frombuffer(data, np.uint8)
        decode[name + ".rgb"] = expected
        decode[name + ".tolerance"] = np.array([tolerance], np.uint8)
        if name != "gif_noise":
            (corpus / name).write_bytes(data)
    images = ROOT / "tests/golden/images"
    write_safetensors(images / "decode.safetensors", decode)
    write_safetensors(images / "resize.safetensors", dict(resize_fixtures()))
    blocks = ROOT / "fuzz/corpus/exif"
    blocks.mkdir(parents=True, exist_ok=True)
    for order in "<>":
        (blocks / ("little" if order == "<" else "big")).write_bytes(exif(6, order))
    if "--torch" in sys.argv:
        compare_with_torch()


if __name__ == "__main__":
    main()
