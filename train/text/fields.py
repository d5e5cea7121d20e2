"""Values of single fields of work: law, finance and science."""

from random import Random

from text.numerals import capitals, decimal, digits, whole

ROLES = """Plaintiff Defendant Petitioner Respondent Appellant Appellee Claimant Debtor Intervenor
Plaintiff-Appellant Defendant-Appellee Kläger Beklagte Antragsteller Requérant Demandante
Ricorrente""".split()
BENCH = """THE~COURT THE~CLERK THE~WITNESS THE~DEFENDANT CHIEF~JUSTICE JUSTICE JUDGE Q. A.
THE~INTERPRETER THE~REPORTER""".split()
SPEAKERS = ["MR.", "MR.", "MS.", "MRS.", "DR.", "BY MR.", "JUSTICE", "JUDGE", "CHIEF JUSTICE"]
COURTS = """Supreme~Court~of~the~United~States Court~of~Appeals High~Court District~Court
Court~of~Justice Bundesgerichtshof Landgericht Cour~de~cassation Tribunal~Supremo
Corte~di~cassazione Hoge~Raad County~Court Court~of~Chancery""".split()
BENCH, COURTS = ([name.replace("~", " ") for name in names] for names in (BENCH, COURTS))
CODES = "U.S.C. C.F.R. BGB ZPO StGB HGB GG ABGB C.civ. UCC ILCS RSA".split()
REPORTERS = "U.S. F.2d F.3d S.Ct. F.Supp. A.2d N.E.2d BGHZ Cal.App.4th".split()
RULES = "Fed. R. Civ. P.|Fed. R. Evid.|Sup. Ct. R.|Rule|Art.|Article|Section|Sec.|Clause".split("|")
SCALES = "m mn bn k million billion Mio. Mrd. thousand".split()
MONEY = "EUR USD GBP CHF $ € £ ¥ US$ €m $m".split()
FIGURES = """EBITDA EBIT Revenue Net~income Free~cash~flow Total~assets Equity Goodwill
Umsatz Rückstellungen Cash Debt Capex Dividend EPS Gross~margin Net~interest~income
Chiffre~d’affaires Trade~receivables Deferred~tax Inventories""".split()
FIGURES = [figure.replace("~", " ") for figure in FIGURES]
QUANTITIES = """mg/l g/mol kJ/mol m/s m/s² W/m² kg/m³ µmol mmol/l cm² mL µL nm eV keV MeV GHz kPa
mmHg Hz/s rad/s N/m mol K J T Wb lx cd dB(A) µg/m³ kWh/a % ppb""".split()


def docket(r: Random) -> str:
    """The number under which a court keeps a case."""
    year = f"{r.randint(0, 99):02}"
    return r.choice(
        [
            f"No. {year}-{whole(r, 4)}",
            f"Nos. {year}-{whole(r, 4)} and {year}-{whole(r, 4)}",
            f"Case No. {r.randint(1, 9)}:{year}-cv-{digits(r, 5)}-{capitals(r, 3)}",
            f"Civil Action No. {year}-{whole(r, 4)} ({capitals(r, 3)})",
            f"Docket No. {capitals(r, 2)}-{digits(r, 6)}",
            f"Case C-{r.randint(1, 799)}/{year}",
            f"Az. {r.randint(1, 29)} {r.choice('OSUCT')} {r.randint(1, 999)}/{year}",
            f"{r.choice(['I', 'II', 'V', 'X'])} ZR {r.randint(1, 399)}/{year}",
            f"[20{year}] EWHC {whole(r, 4)} (Ch)",
            f"N° {digits(r, 2)}-{digits(r, 2)}.{digits(r, 3)}",
        ]
    )


def statute(r: Random) -> str:
    """A place in a law or in a collection of judgments."""
    number, part = r.randint(1, 1999), f"({r.choice('abcdef')})"
    return r.choice(
        [
            f"§ {r.randint(1, 99)}{part}",
            f"§§ {number}–{number + r.randint(1, 30)}",
            f"§ {number} Abs. {r.randint(1, 6)} {r.choice(CODES)}",
            f"{r.randint(1, 50)} {r.choice(CODES)} § {number}{r.choice(['', part, part + '(1)'])}",
            f"{r.choice(RULES)} {r.randint(1, 99)}{part}({r.randint(1, 9)})",
            f"{r.choice(RULES)} {r.randint(1, 99)}.{r.randint(1, 20)}",
            f"{r.randint(1, 600)} {r.choice(REPORTERS)} {number} ({r.randint(1880, 2030)})",
            f"{r.randint(1, 600)} {r.choice(REPORTERS)} at {number}",
            f"Ex. {r.choice('ABCDEFGH')}-{r.randint(1, 99)} at ¶ {r.randint(1, 99)}",
            f"¶¶ {r.randint(1, 40)}–{r.randint(41, 90)}",
        ]
    )


def party(r: Random, last_names: list[str]) -> str:
    """The parties of a case, or one of them in its role."""
    first, second = r.choice(last_names), r.choice(last_names)
    role = r.choice(ROLES)
    return r.choice(
        [
            f"{first} v. {second}",
            f"{first.upper()} v. {second.upper()}",
            f"{first} et al. v. {second}",
            f"In re {first}",
            f"{role} {first}",
            f"{first.upper()}, {role},",
            f"{role.upper()}",
            r.choice(COURTS),
            r.choice(COURTS).upper(),
        ]
    )


def counsel(r: Random, first_names: list[str], last_names: list[str]) -> str:
    """Who speaks or pleads, as a transcript names them."""
    last = r.choice(last_names)
    name = f"{r.choice(first_names)} {r.choice('ABCDEFGHJKLMNPRSTW')}. {last}"
    role = r.choice(ROLES)
    return r.choice(
        [
            f"{name.upper()}, ESQ.",
            f"{name.upper()}, ESQ., for the {role}",
            f"{name}, Esq., on behalf of the {role}",
            f"ORAL ARGUMENT OF {name.upper()}",
            f"{name}, Attorney for {role}",
            f"{r.choice(['MR.', 'MS.', 'MRS.', 'DR.'])} {last.upper()}",
            r.choice(BENCH),
        ]
    )


def speaker(r: Random, last_names: list[str]) -> str:
    """What stands before the words of a speaker in a transcript."""
    if r.random() < 0.25:
        mark = r.choice(BENCH)
        return mark if mark.endswith(".") else mark + ":"
    title = r.choice(SPEAKERS)
    return f"{title} {r.choice(last_names).upper()}:"


def finance(r: Random) -> str:
    """A line or a figure of an annual report or of a market page."""
    number = decimal(r, r.randint(0, 2), 4)
    year = r.randint(1998, 2032)
    return r.choice(
        [
            f"{r.choice(FIGURES)} {r.choice(MONEY)} {number} {r.choice(SCALES)}",
            f"{r.choice(FIGURES)} {year}",
            f"{r.choice(MONEY)} {number} {r.choice(SCALES)}",
            f"{r.choice('+-−±')}{r.randint(1, 400)} bps",
            f"{r.randint(0, 12)}.{digits(r, 3)}% Senior Notes due {year}",
            f"FY{year % 100:02}/{(year + 1) % 100:02}",
            f"Q{r.randint(1, 4)}/{year}",
            f"H{r.randint(1, 2)} {year} (unaudited)",
            f"({number})",
            f"{number}x",
            f"{capitals(r, 2)}{digits(r, 9)}{r.randint(0, 9)}",
            f"{capitals(r, r.randint(2, 4))}.{r.choice(['N', 'L', 'DE', 'PA', 'O'])} {number}",
            r.choice(["n/a", "n.m.", "–", "—", "k. A."]),
            f"{number} p.a.",
        ]
    )


def science(r: Random) -> str:
    """A measured or computed quantity."""
    unit, places = r.choice(QUANTITIES), r.randint(0, 3)
    number, error = decimal(r, places, 3), decimal(r, places, 1)
    share = f"0.{digits(r, r.randint(2, 4))}"
    return r.choice(
        [
            f"{number} ± {error} {unit}",
            f"({number} ± {error}) {unit}",
            f"{number} {unit}",
            f"{number}–{decimal(r, places, 3)} {unit}",
            f"p {r.choice('<=>≤')} {share}",
            f"n = {whole(r, 4)}",
            f"R² = {share}",
            f"{r.choice('rtFzd')}({r.randint(1, 99)}) = {r.choice(['', '−', '-'])}{number}",
            f"95{r.choice(['', ' '])}% CI [{share}, {number}]",
            f"pH {r.randint(0, 14)}.{digits(r, 1)}",
            f"{r.choice(['≈', '~', '≤', '≥', '<', '>'])} {number} {unit}",
            f"{r.randint(-80, 400)} °C",
            f"{number} · 10{r.choice(['²', '³', '⁴', '⁵', '⁶', '⁹'])} {unit}",
            f"{r.choice('ABCGHKPRST')}. {r.choice(['coli', 'aureus', 'alba', 'minor'])}",
            f"{r.randint(1, 40)}-{r.choice(['methyl', 'hydroxy', 'chloro', 'ethyl', 'amino'])}"
            f"{r.choice(['benzene', 'pentane', 'phenol', 'butanol', 'pyridine'])}",
        ]
    )
