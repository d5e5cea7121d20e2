"""Single words: those of a language by how frequent they are, and words that do not exist."""

import math
from array import array
from collections.abc import Sequence
from itertools import accumulate
from random import Random

PSEUDO_SAMPLE = 12_000  # words of a language from which its pseudo-words are modelled
LONGEST_PSEUDO = 18
KEPT_OUT_SHARE = 0.3


class Words:
    """Words of one language by falling frequency; a draw takes a rank that is uniform on a log
    scale. kept_out: words that training does not know; where there are some, KEPT_OUT_SHARE of
    the draws are of them, each as likely.
    """

    def __init__(self, words: list[str], kept_out: Sequence[str] = ()):
        self.kept_out = kept_out
        self.text = "\n".join(words)
        self.log_count = math.log(len(words) + 1 - 1e-6)
        self.starts = array("i", accumulate((len(word) + 1 for word in words), initial=0))
        self.followers = followers(words[:: max(1, len(words) // PSEUDO_SAMPLE)])

    def draw(self, r: Random) -> str:
        if self.kept_out and r.random() < KEPT_OUT_SHARE:
            return r.choice(self.kept_out)
        rank = int(math.exp(r.random() * self.log_count)) - 1
        return self.text[self.starts[rank] : self.starts[rank + 1] - 1]

    def pseudo(self, r: Random) -> str:
        """A word that does not exist: each letter follows the two before it as in the language."""
        random, table = r.random, self.followers
        state = word = "^^"
        while True:
            letters = table[state]
            letter = letters[int(random() * len(letters))]
            if letter == "$":
                if len(word) > 3 or random() < 0.2:
                    return word[2:]
                state = word = "^^"
                continue
            word += letter
            state = word[-2:]
            if len(word) > LONGEST_PSEUDO:
                return word[2:]


def followers(words: list[str]) -> dict[str, str]:
    """For each pair of letters those seen after it; "^" stands before a word and "$" ends it."""
    table: dict[str, list[str]] = {}
    for word in words:
        previous, last = "^", "^"
        for letter in word + "$":
            table.setdefault(previous + last, []).append(letter)
            previous, last = last, letter
    return {state: "".join(letters[:400]) for state, letters in table.items()}
