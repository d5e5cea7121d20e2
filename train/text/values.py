"""Short facts as documents show them: numbers, amounts, dates, names, addresses, codes, in many
national forms.
"""

import string
from collections.abc import Callable
from functools import partial
from random import Random

from text import fields
from text.names import (
    CITIES,
    DOMAINS,
    ELEMENTS,
    FIRST,
    FORMS,
    LAST,
    MONTHS,
    STEMS,
    STREETS,
    TRADES,
    UNITS,
    WEEKDAYS,
)
from text.numerals import DIGITS, capitals, decimal, digits, grouped, whole

# Country code, count of digits after the check digits, in an IBAN (letters within it are left out).
IBANS = [
    ("DE", 18),
    ("FR", 23),
    ("ES", 20),
    ("NL", 10),
    ("BE", 12),
    ("AT", 16),
    ("PL", 24),
    ("PT", 21),
    ("CH", 17),
    ("CZ", 20),
    ("DK", 14),
    ("FI", 14),
    ("SE", 20),
    ("HU", 24),
    ("NO", 11),
    ("TR", 22),
]
CODE_LETTERS = string.ascii_uppercase + string.digits
CURRENCIES = "EUR USD CHF GBP SEK PLN kr zł Kč Ft TL DKK".split()
NUMBER_MARKS = "No. Nr. N° # Ref. Order INV PO SN Art.".split()
TITLES = "Dr. Prof. Mr Mrs. Ms Herr Frau M. Mme Sr.".split()


class Values:
    """Draws values. names: lists by kind ("first", "last", "city", "street", "company") beside
    those written here.
    """

    def __init__(self, names: dict[str, list[str]] | None = None):
        names = names or {}
        self.first = FIRST + names.get("first", [])
        self.last = LAST + names.get("last", [])
        self.cities = CITIES + names.get("city", [])
        self.streets = STREETS + names.get("street", [])
        self.companies = names.get("company", [])
        self.kinds: dict[str, Callable[[Random], str]] = {
            "number": self.number,
            "amount": self.amount,
            "percent": self.percent,
            "date": self.date,
            "time": self.time,
            "code": self.code,
            "person": self.person,
            "company": self.company,
            "city": self.city,
            "street": self.street,
            "address": self.address,
            "email": self.email,
            "url": self.url,
            "phone": self.phone,
            "iban": self.iban,
            "vat": self.vat,
            "isbn": self.isbn,
            "measure": self.measure,
            "formula": self.formula,
            "version": self.version,
            "path": self.path,
            "range": self.range,
            "coordinates": self.coordinates,
            "reference": self.reference,
            "hex": self.hex,
            "docket": fields.docket,
            "statute": fields.statute,
            "party": partial(fields.party, last_names=self.last),
            "counsel": partial(fields.counsel, first_names=self.first, last_names=self.last),
            "speaker": partial(fields.speaker, last_names=self.last),
            "finance": fields.finance,
            "science": fields.science,
        }
        self.order = list(self.kinds)
        common = {
            "number": 6,
            "amount": 4,
            "date": 4,
            "code": 3,
            "person": 3,
            "percent": 2,
            "company": 2,
        }
        self.shares = [common.get(kind, 1) for kind in self.order]

    def draw(self, r: Random, kind: str | None = None) -> str:
        if kind is None:
            kind = r.choices(self.order, self.shares)[0]
        return self.kinds[kind](r)

    def number(self, r: Random) -> str:
        form = r.randrange(8)
        if form < 3:
            return str(whole(r, 5))
        if form < 5:
            return decimal(r, r.randint(1, 3), 5)
        if form == 5:
            return decimal(r, 0, 8)
        if form == 6:
            return r.choice(["-", "−", "+", "±", "~", "≈", "<", "≤"]) + decimal(
                r, r.randint(0, 2), 4
            )
        return f"({decimal(r, r.randint(0, 2), 6)})"

    def amount(self, r: Random) -> str:
        text = decimal(r, r.choice([0, 2, 2, 2]), 6)
        form = r.randrange(5)
        if form == 0:
            return r.choice("$$£€¥") + text
        if form == 1:
            return f"{text} {r.choice('€€€$£')}"
        if form == 2:
            return f"{text} {r.choice(CURRENCIES)}"
        if form == 3:
            return f"{r.choice(['EUR', 'USD', 'CHF', 'GBP', 'US$', 'CA$', 'R$'])} {text}"
        return f"{r.choice(['-', '−', ''])}{r.choice('$€£')}{text}"

    def percent(self, r: Random) -> str:
        return decimal(r, r.randint(0, 2), 2) + r.choice(["%", "%", " %", "%", " percent"])

    def date(self, r: Random) -> str:
        day, month, year = r.randint(1, 28), r.randint(1, 12), r.randint(1890, 2039)
        form = r.randrange(12)
        if form == 0:
            return f"{year}-{month:02}-{day:02}"
        if form == 1:
            return f"{day:02}/{month:02}/{r.choice([f'{year}', f'{year % 100:02}'])}"
        if form == 2:
            return f"{month}/{day}/{r.choice([f'{year}', f'{year % 100:02}'])}"
        if form == 3:
            return f"{day:02}.{month:02}.{r.choice([f'{year}', f'{year % 100:02}'])}"
        if form == 4:
            return f"{day}. {month}. {year}"
        if form == 5:
            return f"{MONTHS['en'][month - 1]} {day}, {year}"
        if form == 6:
            return f"{day} {MONTHS['en'][month - 1][:3]} {year}"
        if form == 7:
            return f"{r.choice(WEEKDAYS)}, {day} {MONTHS['en'][month - 1]}"
        if form == 8:
            return f"{MONTHS['en'][month - 1]} {year}"
        if form == 9:
            return r.choice(
                [
                    f"{year}",
                    f"{year}–{year % 100 + 1:02}",
                    f"Q{r.randint(1, 4)} {year}",
                    f"{year}-W{r.randint(1, 52):02}",
                ]
            )
        language = r.choice(list(MONTHS))
        separator = (
            ". "
            if language in ("de", "cs", "da", "fi")
            else " de "
            if language in ("es", "pt")
            else " "
        )
        between = " de " if language in ("es", "pt") else " "
        return f"{day}{separator}{MONTHS[language][month - 1]}{between}{year}"

    def time(self, r: Random) -> str:
        hour, minute, second = r.randrange(24), r.randrange(60), r.randrange(60)
        return r.choice(
            [
                f"{hour:02}:{minute:02}",
                f"{hour}:{minute:02}",
                f"{hour:02}:{minute:02}:{second:02}",
                f"{hour % 12 or 12}:{minute:02} {r.choice('am pm AM PM a.m. p.m.'.split())}",
                f"{hour}.{minute:02} Uhr",
                f"{hour}h{minute:02}",
                f"{hour:02}:{minute:02}–{(hour + 1) % 24:02}:{minute:02}",
                f"20{digits(r, 2)}-05-{r.randint(10, 28)}T{hour:02}:{minute:02}:{second:02}Z",
            ]
        )

    def code(self, r: Random) -> str:
        form = r.randrange(7)
        if form == 0:
            return "".join(r.choices(CODE_LETTERS, k=r.randint(4, 12)))
        if form == 1:
            return "-".join(
                "".join(r.choices(CODE_LETTERS, k=r.randint(2, 5))) for _ in range(r.randint(2, 4))
            )
        if form == 2:
            return (
                "".join(r.choices(string.ascii_uppercase, k=r.randint(1, 4)))
                + r.choice(["-", "", " ", "/"])
                + digits(r, r.randint(2, 8))
            )
        if form == 3:
            return digits(r, r.randint(5, 14))
        if form == 4:
            return f"{r.choice(NUMBER_MARKS)} {digits(r, r.randint(3, 8))}"
        if form == 5:
            return "".join(r.choices(string.ascii_letters + DIGITS, k=r.randint(5, 16)))
        parts = [digits(r, r.randint(1, 3)), digits(r, r.randint(2, 3)), digits(r, r.randint(1, 4))]
        return ".".join(parts) + capitals(r, r.randint(0, 1))

    def person(self, r: Random) -> str:
        first, last = r.choice(self.first), r.choice(self.last)
        form = r.randrange(10)
        if form < 6:
            return f"{first} {last}"
        return [
            f"{last}, {first}",
            f"{first[0]}. {last}",
            f"{r.choice(TITLES)} {last}",
            f"{first} {r.choice(string.ascii_uppercase)}. {last}",
        ][form - 6]

    def company(self, r: Random) -> str:
        form = r.randrange(5)
        if form == 0 and self.companies:
            return r.choice(self.companies)
        if form == 1:
            joint = r.choice(["&", "and", "+", "und", "et"])
            return f"{r.choice(self.last)} {joint} {r.choice(self.last)} {r.choice(FORMS)}"
        if form == 2:
            return f"{r.choice(self.last)} {r.choice(TRADES)}"
        return f"{r.choice(STEMS)} {r.choice(TRADES)}{r.choice(['', ' ' + r.choice(FORMS)])}"

    def city(self, r: Random) -> str:
        return r.choice(self.cities)

    def street(self, r: Random) -> str:
        name, house = (
            r.choice(self.streets),
            f"{r.randint(1, 299)}{r.choice(['', '', '', 'a', 'B', '/2'])}",
        )
        return (
            f"{house} {name}"
            if name.endswith(("Avenue", "Street", "Road", "Lane", "Drive", "Square"))
            else f"{name} {house}"
        )

    def address(self, r: Random) -> str:
        city = r.choice(self.cities)
        post = r.choice(
            [
                f"{digits(r, 5)} {city}",
                f"{digits(r, 4)} {city}",
                f"{digits(r, 2)}-{digits(r, 3)} {city}",
                f"{digits(r, 3)} {digits(r, 2)} {city}",
                f"{digits(r, 4)} {capitals(r, 2)} {city}",
                f"{city}, {capitals(r, 2)} {digits(r, 5)}",
                f"{city} {capitals(r, 2)}{r.randint(1, 29)} {digits(r, 1)}{capitals(r, 2)}",
            ]
        )
        return f"{self.street(r)}, {post}"

    def host(self, r: Random) -> str:
        name = r.choice(
            [
                r.choice(STEMS).lower(),
                f"{r.choice(STEMS)}-{r.choice(TRADES)}".lower(),
                "".join(r.choices(string.ascii_lowercase, k=r.randint(3, 9))),
            ]
        )
        return f"{name}.{r.choice(DOMAINS)}"

    def email(self, r: Random) -> str:
        first, last = (plain(r.choice(names)) for names in (self.first, self.last))
        local = r.choice(
            [
                f"{first}.{last}",
                f"{first[:1]}{last}",
                f"{first}_{last}",
                f"{first}{r.randint(1, 99)}",
                "info",
                "office",
                "sales",
                "kontakt",
                f"{last}-{digits(r, 3)}",
            ]
        )
        return f"{local}@{self.host(r)}"

    def url(self, r: Random) -> str:
        path = "/".join(
            "".join(r.choices(string.ascii_lowercase + "-" + DIGITS, k=r.randint(2, 9))).strip("-")
            or "a"
            for _ in range(r.randint(0, 3))
        )
        tail = (
            r.choice(["", "", ".html", ".pdf", "/", f"?id={whole(r, 5)}", f"#{digits(r, 2)}"])
            if path
            else ""
        )
        return (
            r.choice(["https://", "http://", "www.", "https://www.", ""])
            + self.host(r)
            + ("/" + path if path else "")
            + tail
        )

    def phone(self, r: Random) -> str:
        return r.choice(
            [
                f"+{r.randint(1, 99)} {digits(r, 3)} {digits(r, 3)} {digits(r, 4)}",
                f"({digits(r, 3)}) {digits(r, 3)}-{digits(r, 4)}",
                f"0{digits(r, 3)}/{digits(r, 6)}",
                f"0{digits(r, 2)} {digits(r, 7)}",
                f"0{digits(r, 1)} {grouped(digits(r, 8), 2)}",
                f"0{digits(r, 1)}.{grouped(digits(r, 8), 2, '.')}",
                f"+{r.randint(30, 49)} (0){digits(r, 2)} {digits(r, 6)}-{digits(r, 2)}",
                f"{digits(r, 3)}-{digits(r, 3)}-{digits(r, 4)}",
                f"+{r.randint(30, 49)}{digits(r, 9)}",
                f"{digits(r, 3)} {digits(r, 3)} {digits(r, 3)}",
            ]
        )

    def iban(self, r: Random) -> str:
        country, count = r.choice(IBANS)
        text = country + digits(r, 2 + count)
        return grouped(text, 4) if r.random() < 0.7 else text

    def vat(self, r: Random) -> str:
        return r.choice(
            [
                f"DE{digits(r, 9)}",
                f"ATU{digits(r, 8)}",
                f"FR{digits(r, 2)} {digits(r, 9)}",
                f"GB {digits(r, 3)} {digits(r, 4)} {digits(r, 2)}",
                f"NL{digits(r, 9)}B{digits(r, 2)}",
                f"PL {digits(r, 10)}",
                f"ES{r.choice(string.ascii_uppercase)}{digits(r, 8)}",
                f"CHE-{grouped(digits(r, 9), 3, '.')}",
                f"{digits(r, 2)}-{digits(r, 7)}",
                f"{digits(r, 3)}/{digits(r, 4)}/{digits(r, 4)}",
            ]
        )

    def isbn(self, r: Random) -> str:
        last = r.choice(DIGITS + "X")
        return r.choice(
            [
                f"ISBN 978-{digits(r, 1)}-{digits(r, 4)}-{digits(r, 4)}-{digits(r, 1)}",
                f"{digits(r, 1)}-{digits(r, 3)}-{digits(r, 5)}-{last}",
                f"ISSN {digits(r, 4)}-{digits(r, 3)}{last}",
                f"doi:10.{digits(r, 4)}/{digits(r, 5)}.{digits(r, 3)}",
                f"978{digits(r, 10)}",
            ]
        )

    def measure(self, r: Random) -> str:
        number = decimal(r, r.randint(0, 2), 4)
        if r.random() < 0.2:
            unit = r.choice(["mm", "cm", "px", "m"])
            return f"{whole(r, 3)} {r.choice('×x')} {whole(r, 3)} {unit}"
        if r.random() < 0.15:
            return f"{r.randint(1, 30)}{r.choice('½¼¾')} {r.choice(['in', 'ft', 'cups', 'lb'])}"
        return number + r.choice([" ", " ", ""]) + r.choice(UNITS)

    def formula(self, r: Random) -> str:
        form = r.randrange(3)
        if form == 0:
            return "".join(
                r.choice(ELEMENTS) + r.choice(["", "", "2", "3", "4"])
                for _ in range(r.randint(2, 5))
            )
        if form == 1:
            return f"{r.choice('abcnkxyz')} {r.choice('=≤≥<>≈≠')} {decimal(r, r.randint(0, 2), 3)}"
        left = r.choice("xyabkn") + r.choice(["²", "³", "", "¹"])
        right = f"{r.randint(1, 99)}{r.choice('xyabkn')} = {r.randint(0, 999)}"
        return f"{left} {r.choice('+−×÷·')} {right}"

    def version(self, r: Random) -> str:
        return (
            r.choice(["v", "", "", "Version "])
            + ".".join(str(r.randint(0, 30)) for _ in range(r.randint(2, 4)))
            + r.choice(["", "", "-rc1", "b", "+3"])
        )

    def path(self, r: Random) -> str:
        parts = [
            "".join(r.choices(string.ascii_lowercase + "_", k=r.randint(2, 9))).strip("_") or "x"
            for _ in range(r.randint(2, 4))
        ]
        if r.random() < 0.3:
            return f"{r.choice('CDE')}:\\" + "\\".join(parts)
        return (
            r.choice(["/", "~/", "./", ""])
            + "/".join(parts)
            + r.choice(["", ".txt", ".py", ".conf", ".tar.gz", ".xml"])
        )

    def range(self, r: Random) -> str:
        low = whole(r, 4)
        text = f"{low}{r.choice(['–', '-', ' – ', ' to ', '…'])}{low + whole(r, 3) + 1}"
        return r.choice(["", "", "pp. ", "S. ", "§ ", "Art. "]) + text

    def coordinates(self, r: Random) -> str:
        return r.choice(
            [
                f"{r.randint(0, 89)}°{r.randint(10, 59)}'{r.randint(10, 59)}\" {r.choice('NS')}",
                f"{r.randint(-89, 89)}.{digits(r, 4)}, {r.randint(-179, 179)}.{digits(r, 4)}",
                f"{r.randint(-40, 250)} °{r.choice('CF')}",
            ]
        )

    def reference(self, r: Random) -> str:
        number = r.randint(1, 99)
        return r.choice(
            [
                f"[{number}]",
                f"({r.choice(self.last)}, {r.randint(1950, 2030)})",
                f"§ {number}",
                f"§{number}({r.choice('abcd')})",
                f"Fig. {number}",
                f"Table {number}.{r.randint(1, 9)}",
                f"{number}.{r.randint(1, 9)}.{r.randint(1, 9)}",
                f"vol. {number}",
                f"{r.choice(self.last)} et al.",
            ]
        )

    def hex(self, r: Random) -> str:
        text = "".join(r.choices("0123456789abcdef", k=r.choice([2, 4, 6, 8, 12, 16, 32])))
        return r.choice([f"0x{text}", text, f"#{text[:6]}", grouped(text, 2, ":"), text.upper()])


PLAIN = str.maketrans(
    "ÁÀÂÄÃÅÇČĆÉÈÊËĚÍÎÏŁÑŃÓÔÖÕØŘŚŠŞÚÛÜŮÝŻŹŽáàâäãåçčćéèêëěíîïıłñńóôöõøřśšşúûüůýżźž",
    "AAAAAACCCEEEEEIIILNNOOOOORSSSUUUUYZZZaaaaaaccceeeeeiiiilnnooooorsssuuuuyzzz",
)


def plain(name: str) -> str:
    """The form of a name in an e-mail address: lower case, no accents, no space."""
    return (
        "".join(char for char in name.translate(PLAIN).lower() if char.isascii() and char.isalnum())
        or "post"
    )
