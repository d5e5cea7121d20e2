"""Names, written for Quire, that values are made of: people, places, firms, units, months."""

FIRST = """Ada Alma Anton Ásta Beatriz Björn Carla Cem Chloé Dario Dóra Edith Elif Emil Esra
Fabian Fatima Felix Giulia Greta Hana Hugo Ida Ilse Inês Ivan Jana João Jürgen Kari Kemal Lars Léa
Lena Łukasz Maja Marek Mia Milan Nadia Nils Noor Olga Omar Oskar Paula Pavel Petra Quentin Rosa
Ruth Samir Sofia Søren Tamás Teresa Ulla Vera Viktor Wanda Wei Xenia Yara Yuki Zoë Zsófia Žofia
Şule""".split()
LAST = """Abbott Almeida Andersson Bakker Baranek Becker Bianchi Brandt Çelik Clarke Costa Dahl
Dubois Dvořák Eriksen Farkas Ferreira Fischer Fontaine Gallo García Grant Haas Hansen Horváth
Ibrahim Jansen Jørgensen Kaya Keller Klein Kowalczyk Kovács Laurent Lehtonen Lindqvist López
Marchetti Müller Nagy Nakamura Novák Nowak Núñez O’Brien Olsen Öztürk Peeters Pereira Petit Quinn
Rossi Ruiz Sánchez Schäfer Silva Singh Šimek Smit Sørensen Szabó Tanaka Vargas Virtanen Visser
Weiß Wójcik Yilmaz Zieliński""".split()
CITIES = """Aarhus Antwerp Basel Bergen Bologna Braga Bristol Brno Córdoba Cork Dresden Gdańsk
Genève Gent Graz Győr Izmir Kiel Košice Kraków Leeds Lille Linz Łódź Lyon Malmö Mannheim Murcia
Nantes Oulu Padova Plzeň Porto Poznań Rotterdam Salzburg Sevilla Tampere Trieste Uppsala Utrecht
Valencia Wien York Zürich""".split()
STREETS = """
Acacia~Avenue Bahnhofstraße Baker~Street Calle~Mayor Dorpsstraat Harbour~Road High~Street Hlavní
Kerkstraat King’s~Road Kirkegata Lange~Gasse Lindenallee Market~Square Mill~Lane Oak~Drive
Piazza~Garibaldi Quai~du~Nord Rua~das~Flores Rue~de~l’Église Storgatan Strandvej ulica~Długa
Via~Roma Wiesenweg
""".split()
STREETS = [name.replace("~", " ") for name in STREETS]
STEMS = """Acorn Alpha Arden Baltic Beacon Blue Borealis Cedar Delta Elm Fern Fjord Granite Harbor
Helix Indigo Juniper Kite Lumen Meridian Nordic North Oak Orbit Pine Polar Quartz River Silver
Solar Summit Terra Unity Vista Willow Zephyr""".split()
TRADES = """Analytics Bank Brewery Chemicals Components Consulting Energy Engineering Foods
Freight Glass Holdings Instruments Insurance Labs Logistics Marine Media Metals Optics Paper
Partners Pharma Press Rail Software Steel Systems Textiles Tools Travel Works""".split()
FORMS = [
    form.replace("~", " ")
    for form in """Ltd Ltd. Inc. LLC plc GmbH GmbH~&~Co.~KG AG S.A. SARL S.p.A. S.r.l. B.V. NV AB
    A/S AS Oy Kft. s.r.o. sp.~z~o.o. Lda. A.Ş.""".split()
]
DOMAINS = "com org net eu de fr es it pl nl cz se dk fi hu pt co.uk io info edu gov".split()
UNITS = """mm cm m km g kg t l ml kW kWh MHz GB MB V mA N bar Pa °C °F ppm dB rpm m² m³ µg µm h
min s""".split()
MONTHS = {
    "en": """January February March April May June July August September October November
    December""",
    "de": """Januar Februar März April Mai Juni Juli August September Oktober November Dezember""",
    "fr": """janvier février mars avril mai juin juillet août septembre octobre novembre
    décembre""",
    "es": """enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre
    diciembre""",
    "it": """gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre
    novembre dicembre""",
    "pt": """janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro
    dezembro""",
    "nl": """januari februari maart april mei juni juli augustus september oktober november
    december""",
    "pl": """stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października
    listopada grudnia""",
    "cs": """ledna února března dubna května června července srpna září října listopadu prosince""",
    "sv": """januari februari mars april maj juni juli augusti september oktober november
    december""",
    "da": """januar februar marts april maj juni juli august september oktober november december""",
    "fi": """tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta
    elokuuta syyskuuta lokakuuta marraskuuta joulukuuta""",
    "hu": """január február március április május június július augusztus szeptember október
    november december""",
    "tr": """Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık""",
}
MONTHS = {language: names.split() for language, names in MONTHS.items()}
WEEKDAYS = """Monday Tuesday Wednesday Thursday Friday Saturday Sunday Mon Tue Wed Thu Fri Sat
Sun Mo Di Mi Do Fr Sa So""".split()
ELEMENTS = """H He Li B C N O F Na Mg Al Si P S Cl K Ca Ti Cr Mn Fe Co Ni Cu Zn Br Ag Sn I Ba Pt
Au Hg Pb U""".split()
