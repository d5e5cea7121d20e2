"""Filler Latin whose next word cannot be known: the words of the usual texts in all their
variants, in random order, with words of other Latin texts and misspellings among them.
"""

import string
from random import Random

OPENINGS = [
    "Lorem ipsum dolor sit amet, ",
    "Lorem ipsum dolor sit amet, ",
    "Lorem ipsum ",
    "Dolor sit amet ",
    "Sed ut perspiciatis ",
]
OPENING_SHARE = 0.15  # of the blocks
OTHER_SHARE = 0.25  # of the words are of another text or altered by one letter

LOREM = """lorem ipsum dolor sit amet consectetur consetetur adipiscing adipisicing sadipscing
elit elitr sed diam do nonumy nonummy eiusmod eirmod tempor invidunt incididunt ut labore laoreet
et dolore dolores magna aliqua aliquyam aliquam erat volutpat voluptua at vero eos accusam
accusamus justo iusto duo ea rebum stet clita kasd gubergren no takimata sanctus est enim ad
minim veniam quis nostrud nostrum exercitation exercitationem ullamco laboris laboriosam nisi
aliquip aliquid ex commodo commodi consequat consequatur duis aute autem irure in reprehenderit
hendrerit voluptate vulputate velit esse cillum molestie illum eu feugiat fugiat nulla pariatur
facilisis excepteur sint occaecat cupidatat cupiditate non proident provident sunt culpa qui
officia deserunt mollit mollitia anim animi id laborum curabitur pretium tincidunt lacus gravida
orci a odio nullam varius turpis pharetra eros bibendum nec luctus felis sollicitudin vestibulum
ante primis faucibus ultrices posuere cubilia proin sodales integer tellus cras blandit mauris
pulvinar fermentum massa semper risus pellentesque habitant morbi tristique senectus netus
malesuada fames ac egestas vivamus dignissim praesent luptatum zzril delenit augue nam liber
soluta nobis eleifend option congue nihil imperdiet doming quod mazim placerat facer possim assum
perspiciatis unde omnis iste natus error voluptatem accusantium doloremque laudantium totam rem
aperiam eaque ipsa quae ab illo inventore veritatis quasi architecto beatae vitae dicta explicabo
nemo aspernatur aut odit fugit""".split()

OTHER_LATIN = """gallia divisa partes tres quarum unam incolunt belgae aliam aquitani tertiam
lingua nostra appellantur hi institutis legibus inter se differunt fortissimi propterea cultu
atque humanitate provinciae longissime absunt minimeque mercatores saepe commeant arma virumque
cano troiae primus oris italiam fato profugus laviniaque venit litora multum ille terris iactatus
alto superum saevae memorem iram musa mihi causas memora numine laeso regina deum tot volvere
casus insignem pietate virum adire labores tantaene animis caelestibus irae quousque tandem
abutere catilina patientia quamdiu etiam furor tuus eludet quem finem effrenata iactabit audacia
tempora mores senatus intellegit consul videt hic tamen vivit immo vero publici consilii
particeps notat designat oculis caedem unumquemque nostrum principio creavit deus caelum terram
autem erat inanis vacua tenebrae super faciem abyssi spiritus ferebatur aquas dixitque fiat lux
facta vidit quod esset bona divisit lucem beatus procul negotiis prisca gens mortalium paterna
rura bobus exercet suis solutus omni faenore carpe diem quam credula postero ira odi et amo quare
fortasse requiris nescio fieri sentio excrucior nox perpetua dormienda da basia mille deinde
centum pacta sunt servanda habeas corpus prima facie mutatis mutandis fide ultra vires stare
decisis nolo contendere actus reus mens rea ratio decidendi alia sine qua non quid pro quo res
ipsa loquitur pendente lite historia naturalis animalium genera plantarum foliis ovatis floribus
albis radice perenni caule erecto ramoso glabro pubescente calyce quinquefido
corolla staminibus""".split()


def opening(r: Random) -> str:
    """What a block of filler Latin starts with: mostly nothing."""
    return r.choice(OPENINGS) if r.random() < OPENING_SHARE else ""


def word(r: Random) -> str:
    if r.random() >= OTHER_SHARE:
        return r.choice(LOREM)
    return r.choice(OTHER_LATIN) if r.random() < 0.4 else misspelt(r, r.choice(LOREM))


def misspelt(r: Random, word: str) -> str:
    """The word with one letter replaced, added, left out or doubled."""
    at = r.randrange(len(word))
    letter = r.choice(string.ascii_lowercase)
    form = r.randrange(4)
    if form == 0 or len(word) < 3:
        return word[:at] + letter + word[at + 1 :]
    if form == 1:
        return word[:at] + letter + word[at:]
    return word[:at] + word[at + 1 :] if form == 2 else word[:at] + word[at] + word[at:]
