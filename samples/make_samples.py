#!/usr/bin/env python3
"""Draws the sample pages of this folder and writes the Markdown that stands on each.

    apt-get install python3-pil python3-reportlab fonts-dejavu-core fonts-liberation
    samples/make_samples.py [FOLDER]

The pages are committed, since another version of FreeType may move a pixel; run this to change them. All text
was written for Quire. One list of blocks is drawn and turned into Markdown, so the two cannot disagree.
"""
import os
import random
import sys

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen import canvas

FONTS = "/usr/share/fonts/truetype/"
SANS = (FONTS + "dejavu/DejaVuSans.ttf", FONTS + "dejavu/DejaVuSans-Bold.ttf")
SERIF = (FONTS + "liberation/LiberationSerif-Regular.ttf", FONTS + "liberation/LiberationSerif-Bold.ttf")
ARIAL = (FONTS + "liberation/LiberationSans-Regular.ttf", FONTS + "liberation/LiberationSans-Bold.ttf")
REGULAR, BOLD = 0, 1
HEADING_SCALE = {1: 1.7, 2: 1.35, 3: 1.15}

# A block is (kind, content): heading1..3 and paragraph hold a string, bullets and numbers a list of items,
# pairs a list of (key, value), table a list of rows, the header first.
LETTER = [
    ("heading1", "The Green Hill Library"),
    ("pairs", [("Date", "March 12, 2026"), ("Reference", "1048"), ("Phone", "+44 131 555 0142")]),
    ("paragraph", "Dear Mrs. Walker,"),
    ("paragraph", "Thank you for your letter about the old map of the river. We have found the book that you "
                  "asked for, and it is in good order. The map is on page 27."),
    ("paragraph", "You can read it in our reading room on any day of the week. The room is open from 9 in the "
                  "morning until 5 in the evening, and you do not have to pay."),
    ("paragraph", "Please bring the following:"),
    ("bullets", ["this letter, or its number", "a pencil, but no pen", "a card with your name and address"]),
    ("paragraph", "If you would like a copy of the map, we can make one for you. It takes about three days "
                  "and the price is $4.50."),
    ("paragraph", "With kind regards,"),
    ("paragraph", "Thomas Wright"),
]
INVOICE = [
    ("heading1", "Invoice"),
    ("pairs", [("Invoice No", "2026-0317"), ("Date", "17 March 2026"), ("Due Date", "16 April 2026"),
               ("Customer", "Susan Taylor"), ("Address", "14 Church Street")]),
    ("table", [("Description", "Quantity", "Unit Price", "Amount"),
               ("Paper, white", "12", "4.20", "50.40"),
               ("Black ink", "3", "18.50", "55.50"),
               ("Glass lamp", "2", "31.00", "62.00"),
               ("Wooden chair", "4", "45.75", "183.00"),
               ("Small table", "1", "120.00", "120.00")]),
    ("pairs", [("Subtotal", "$470.90"), ("Tax", "$94.18"), ("Total", "$565.08")]),
    ("heading2", "Payment Terms"),
    ("paragraph", "Please pay the total within 30 days. Write the number of the invoice on your payment, "
                  "so that we can find your order."),
    ("paragraph", "Thank you for your order."),
]
ARTICLE = [
    ("heading1", "How a Page is Read"),
    ("paragraph", "A page of text is a picture before it is anything else. A camera or a printer makes small "
                  "points of light and dark, and a program has to find the words in them."),
    ("heading2", "From Points to Words"),
    ("paragraph", "The first part of the program looks at small squares of the page. Each square is "
                  "changed into a list of numbers which says what can be seen there."),
    ("paragraph", "The second part writes the text, one piece at a time. At every step it looks back at the "
                  "page and at all that it has written so far."),
    ("heading2", "What Can Go Wrong"),
    ("numbers", ["The letters are too small to be seen.", "The page is not straight.",
                 "The same line is read more than once."]),
    ("paragraph", "A good program knows when it is not sure. It should say so, and it should never "
                  "make up words that are not on the page."),
]
REPORT = [[
    ("heading1", "Report on the River Water"),
    ("pairs", [("Author", "Karen Hill"), ("Date", "May 4, 2026"), ("Version", "2")]),
    ("paragraph", "This report gives the results of the first part of the year. The water was tested in four "
                  "places, and each test was made by the same method."),
    ("heading2", "Results"),
    ("table", [("Section", "Period", "Quantity", "Rate"),
               ("North", "January", "1,204", "3.1%"),
               ("South", "February", "986", "2.7%"),
               ("East", "March", "1,410", "3.4%"),
               ("West", "April", "1,175", "2.9%")]),
    ("paragraph", "The rate was highest in March, after the heavy rain. In all other months it was below "
                  "the limit."),
], [
    ("heading2", "What Should Be Done"),
    ("bullets", ["Test the water again after heavy rain.", "Clean the old pipes in the east.",
                 "Keep a record of every test."]),
    ("paragraph", "The work on the pipes will take about six weeks. The cost has been agreed with the city, "
                  "and the money is in the plan for this year."),
    ("heading2", "Next Report"),
    ("paragraph", "The next report will be ready in October. It will cover the summer, when the river is "
                  "low and less water is to be had."),
]]
SCAN = [
    ("heading1", "Letter to the Club"),
    ("paragraph", "The next meeting of the club will be held in the great hall on Friday, June 19, at half "
                  "past seven in the evening."),
    ("paragraph", "The following will be discussed:"),
    ("numbers", ["The state of the garden and the walls", "The price of the new boat",
                 "The journey to the sea in August"]),
    ("paragraph", "If you are not able to be there, please write to us before that day. The hall is open "
                  "from six."),
    ("pairs", [("Phone", "+44 131 555 0163"), ("Date", "May 20, 2026")]),
]


class PictureSheet:
    """A white page of pixels."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.image = Image.new("L", (width, height), 255)
        self.draw = ImageDraw.Draw(self.image)

    def text(self, x, y, text, face, size):
        self.draw.text((x, y), text, fill=0, font=pil_font(face, size))

    def line(self, x0, y0, x1, y1):
        self.draw.line((x0, y0, x1, y1), fill=0)


class PdfSheet:
    """The current page of a PDF; one unit is a point. The text is real text in embedded fonts."""

    def __init__(self, pdf, width, height):
        self.pdf, self.width, self.height = pdf, width, height

    def text(self, x, y, text, face, size):
        name = os.path.splitext(os.path.basename(face))[0]
        if name not in pdfmetrics.getRegisteredFontNames():
            pdfmetrics.registerFont(TTFont(name, face))
        ascent = pil_font(face, size).getmetrics()[0]
        self.pdf.setFont(name, size)
        self.pdf.drawString(x, self.height - y - ascent, text)

    def line(self, x0, y0, x1, y1):
        self.pdf.setLineWidth(0.7)
        self.pdf.line(x0, self.height - y0, x1, self.height - y1)


def pil_font(face, size):
    return ImageFont.truetype(face, size, layout_engine=ImageFont.Layout.BASIC)


def wrap(text, face, size, width):
    font, lines = pil_font(face, size), [""]
    for word in text.split():
        longer = (lines[-1] + " " + word).strip()
        if font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def draw_table(sheet, rows, fonts, size, x0, x1, y):
    height, column = round(size * 1.6), (x1 - x0) / len(rows[0])
    sheet.line(x0, y, x1, y)
    for i, row in enumerate(rows):
        face = fonts[BOLD if i == 0 else REGULAR]
        for j, cell in enumerate(row):
            x = x0 + j * column + size * 0.35
            if i and j >= 2:  # numbers stand at the right
                x = x0 + (j + 1) * column - size * 0.35 - pil_font(face, size).getlength(cell)
            sheet.text(round(x), round(y + (height - 1.2 * size) / 2), cell, face, size)
        y += height
        sheet.line(x0, y, x1, y)
    for j in range(len(rows[0]) + 1):
        sheet.line(round(x0 + j * column), y - height * len(rows), round(x0 + j * column), y)
    return y


def draw_page(sheet, blocks, fonts, size, margin, leading=1.4):
    """Draws the blocks from top to bottom; fails when they do not fit."""
    x0, x1, y = margin, sheet.width - margin, margin

    def lines(text, face, scale, indent=0.0):
        nonlocal y
        s = round(size * scale)
        for line in wrap(text, face, s, x1 - x0 - indent):
            sheet.text(round(x0 + indent), round(y), line, face, s)
            y += round(s * leading)

    for kind, content in blocks:
        if kind.startswith("heading"):
            lines(content, fonts[BOLD], HEADING_SCALE[int(kind[-1])])
        elif kind == "paragraph":
            lines(content, fonts[REGULAR], 1)
        elif kind in ("bullets", "numbers"):
            for i, item in enumerate(content):
                mark = "\u2022" if kind == "bullets" else f"{i + 1}."
                offset = size * 1.9 - pil_font(fonts[REGULAR], size).getlength(mark + " ")
                sheet.text(round(x0 + offset), round(y), mark, fonts[REGULAR], size)
                lines(item, fonts[REGULAR], 1, size * 1.9)
        elif kind == "pairs":
            for key, value in content:
                sheet.text(x0, round(y), key + ":", fonts[BOLD], size)
                x = x0 + pil_font(fonts[BOLD], size).getlength(key + ": ")
                sheet.text(round(max(x, x0 + (x1 - x0) / 3)), round(y), value, fonts[REGULAR], size)
                y += round(size * leading)
        elif kind == "table":
            y = draw_table(sheet, content, fonts, size, x0, x1, y)
        y += round(size * 0.75)
    if y > sheet.height - margin / 2:
        sys.exit(f"a page of {sheet.height} is too short: its blocks need {y:.0f}")


def markdown(blocks):
    parts = []
    for kind, content in blocks:
        if kind.startswith("heading"):
            parts.append("#" * int(kind[-1]) + " " + content)
        elif kind == "paragraph":
            parts.append(content)
        elif kind == "bullets":
            parts.append("\n".join("- " + item for item in content))
        elif kind == "numbers":
            parts.append("\n".join(f"{i + 1}. {item}" for i, item in enumerate(content)))
        elif kind == "pairs":
            parts.append("\n".join(f"{key}: {value}" for key, value in content))
        elif kind == "table":
            rows = ["| " + " | ".join(row) + " |" for row in content]
            parts.append("\n".join([rows[0], "|" + " --- |" * len(content[0])] + rows[1:]))
    return "\n\n".join(parts) + "\n"


def photograph(page, seed):
    """What a phone would make of a printed page: a slight turn, uneven light, soft focus, noise."""
    rng = random.Random(seed)
    width, height = page.size
    page = page.rotate(0.4, Image.Resampling.BICUBIC, fillcolor=255)
    page = page.filter(ImageFilter.GaussianBlur(0.3))
    # Light falls from the upper left: paper from 252 down to 228.
    light = Image.new("L", (2, 2))
    light.putdata([252, 246, 242, 228])
    page = ImageChops.multiply(page, light.resize((width, height), Image.Resampling.BICUBIC))
    # Ink is never quite black, and the sensor adds noise to each channel.
    channels = []
    for tint in (1.0, 0.99, 0.96):
        noisy = bytes(min(255, max(0, round((20 + v * 235 / 255) * tint + rng.gauss(0, 2))))
                      for v in page.tobytes())
        channels.append(Image.frombytes("L", page.size, noisy))
    return Image.merge("RGB", channels)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))

    def save(name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def draw(blocks, width, height, fonts, size, margin):
        sheet = PictureSheet(width, height)
        draw_page(sheet, blocks, fonts, size, margin)
        return sheet.image

    for name, blocks, height, fonts, size in (("letter", LETTER, 992, SERIF, 24),
                                              ("invoice", INVOICE, 864, ARIAL, 22),
                                              ("article", ARTICLE, 1024, SANS, 22)):
        page = draw(blocks, 768, height, fonts, size, 36)
        page.save(os.path.join(folder, name + ".png"), optimize=True)
        save(name + ".md", markdown(blocks))

    scan = photograph(draw(SCAN, 768, 664, SANS, 26, 40), seed=1)
    scan.save(os.path.join(folder, "scan.jpg"), quality=85)
    save("scan.md", markdown(SCAN))

    width, height = 420, 560  # points
    pdf = canvas.Canvas(os.path.join(folder, "report.pdf"), pagesize=(width, height), invariant=True)
    pdf.setTitle("Report on the River Water")
    for blocks in REPORT:
        draw_page(PdfSheet(pdf, width, height), blocks, ARIAL, 13, 24)
        pdf.showPage()
    pdf.save()
    save("report.md", "\n".join(markdown(blocks) for blocks in REPORT))


if __name__ == "__main__":
    main()
