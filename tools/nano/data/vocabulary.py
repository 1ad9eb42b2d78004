"""The open vocabulary: words of all of WordNet, invented names, letters, codes and numbers of every form.

What comes from here can only be copied, for no list of it could be learnt.
"""
from __future__ import annotations

import json
import pathlib

from . import words as W
from .base import Source

LOWER, UPPER, DIGITS = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
ONSETS = """b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kn kr l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str sw t
th tr tw v vl w wh x y z zh""".split() + [""]
VOWELS = "a e i o u a e i o u y ae ai au ea ee ei ia ie io oa oe oi oo ou ui".split()
CODAS = ["", "", "", "", "", "", "", "", "n", "n", "r", "l", "s", "b", "ck", "d", "ft", "g", "l", "ld", "lt", "m", "mp", "n", "nd", "ng", "nk", "nt", "p", "r", "rd", "rk", "rn",
         "s", "sk", "ss", "st", "t", "th", "tz", "v", "x", "z"]
UNITS = "km m cm mm kg g mg l ml h min s kWh W V A Hz MB GB TB px % °C mph ppm lb oz ft mi".split()
ENDINGS = "com org net example io dev info test shop".split()
FILES = "txt csv md json pdf png log xml yaml docx zip cc py html tar.gz".split()


class Vocabulary:
    """The lists of words.json, and makers of values."""

    def __init__(self, corpus: pathlib.Path):
        lists = json.loads((corpus / "words.json").read_text())
        self.countable = [tuple(p) for p in lists["nouns"]]         # singular, plural
        self.nouns = [p[0] for p in self.countable]
        self.verbs, self.adjectives, self.words = lists["verbs"], lists["adjectives"], lists["words"]
        self.phrases, self.names, self.fragments = lists["phrases"], lists["names"], lists["fragments"]

    # ---- words

    def noun(self, src: Source) -> str:
        return src.pick(self.nouns)

    def thing(self, src: Source) -> str:
        """One to three words for a thing."""
        r = src.rng.random()
        if r < 0.45:
            return self.noun(src)
        if r < 0.65:
            return f"{self.noun(src)} {self.noun(src)}"
        if r < 0.8:
            return f"{src.pick(self.adjectives)} {self.noun(src)}"
        return src.pick(self.phrases) if r < 0.93 else self.pseudo(src)

    def pseudo(self, src: Source, most: int = 3) -> str:
        """A word that does not exist but can be said."""
        return "".join(src.pick(ONSETS) + src.pick(VOWELS) + src.pick(CODAS) for _ in range(src.number(1, most)))

    # ---- texts

    def name(self, src: Source) -> str:
        """Of a person."""
        r = src.rng.random()
        if r < 0.2:
            return src.pick(W.FIRST_NAMES)
        first = src.pick(W.FIRST_NAMES) if src.chance(0.4) else W.capital(self.pseudo(src))
        if r < 0.45:
            return first
        last = src.pick(self.names) if src.chance(0.3) else W.capital(self.pseudo(src))
        if r > 0.93:
            return f"{src.pick(UPPER)}. {last}"
        return f"{first} {last}" if r < 0.88 else f"{first} {src.pick(UPPER)}. {last}"

    def place(self, src: Source) -> str:
        r = src.rng.random()
        if r < 0.35:
            return src.pick(W.CITIES)
        if r < 0.65:
            return src.pick(self.names)
        name = W.capital(self.pseudo(src))
        return name if r < 0.85 else f"{src.pick(['New', 'Old', 'North', 'South', 'Port', 'Lake', 'Mount', 'Saint'])} {name}"

    def title(self, src: Source) -> str:
        """A few words, as for headings and names of things."""
        r = src.rng.random()
        if r < 0.25:
            text = src.pick(self.phrases)
        elif r < 0.45:
            text = f"{src.pick(self.adjectives)} {src.pick(self.countable)[src.number(0, 1)]}"
        elif r < 0.6:
            text = f"the {self.noun(src)} of the {self.noun(src)}"
        elif r < 0.7:
            text = f"{self.noun(src)} and {self.noun(src)}"
        elif r < 0.8:
            text = f"{src.pick(self.words)} {src.pick(self.words)} {src.pick(self.words)}"
        elif r < 0.9:
            text = f"{self.noun(src)} {src.number(1, 3000)}"
        else:
            text = f"{self.name(src)}'s {self.noun(src)}"
        r = src.rng.random()
        return text.title().replace("'S", "'s") if r < 0.2 else W.capital(text) if r < 0.45 else text

    def text(self, src: Source) -> str:
        """Free text of three to twelve words: a piece of a gloss, or words that do not belong together."""
        r = src.rng.random()
        if r < 0.55:
            words = src.pick(self.fragments).replace(",", "").split()
            length = src.number(3, 12)
            start = src.number(0, max(0, len(words) - length))
            words = words[start:start + length]
        elif r < 0.75:
            words = [src.pick(self.words) for _ in range(src.number(2, 6))]
        elif r < 0.85:
            words = f"{src.pick(self.verbs)} the {self.noun(src)} at {self.clock(src)}".split()
        else:
            words = f"{self.name(src)} will {src.pick(self.verbs)} {src.number(2, 90)} {src.pick(self.countable)[1]}".split()
        text = " ".join(words)
        return W.capital(text) if src.chance(0.3) else text

    # ---- codes and the like

    def letters(self, src: Source, low: int = 3, high: int = 9) -> str:
        return "".join(src.pick(LOWER) for _ in range(src.number(low, high)))

    def ident(self, src: Source) -> str:
        """Order numbers, keys, hashes: letters of both cases, digits and dashes in every mixture."""
        r = src.rng.random()
        if r < 0.25:
            return "".join(src.pick(UPPER) for _ in range(src.number(1, 4))) + src.pick(["-", "", "_", "/", "#"]) + self.digits(src, 2, 7)
        if r < 0.4:
            return self.digits(src, 3, 10)
        if r < 0.55:
            return "".join(src.pick("0123456789abcdef") for _ in range(src.pick([6, 8, 8, 10, 12])))
        if r < 0.7:
            return "".join(src.pick(LOWER + UPPER + DIGITS) for _ in range(src.number(4, 10)))
        if r < 0.85:
            return "-".join("".join(src.pick(UPPER + DIGITS) for _ in range(src.number(2, 4))) for _ in range(src.number(2, 3)))
        return f"{self.noun(src)}{src.pick(['-', '_', '.', ''])}{self.digits(src, 1, 4)}"

    def digits(self, src: Source, low: int, high: int) -> str:
        return src.pick("123456789") + "".join(src.pick(DIGITS) for _ in range(src.number(low, high) - 1))

    def integer(self, src: Source) -> int:
        r = src.rng.random()
        if r < 0.06:
            return -src.number(1, 400)
        return src.number(0, 10 ** src.pick([1, 2, 2, 2, 3, 3, 4, 5, 6]) - 1)

    def decimal(self, src: Source) -> float:
        places = src.pick([1, 1, 2, 2, 3])
        return round(src.number(0, 10 ** src.pick([1, 2, 3, 4]) - 1) + src.number(1, 10 ** places - 1) / 10 ** places, places)

    def clock(self, src: Source) -> str:
        return f"{src.number(0, 23):02d}:{src.number(0, 59):02d}"

    def date(self, src: Source) -> str:
        y, m, d = src.number(1950, 2060), src.number(1, 12), src.number(1, 28)
        r = src.rng.random()
        if r < 0.6:
            return f"{y}-{m:02d}-{d:02d}"
        return f"{d} {W.MONTHS[m - 1]} {y}" if r < 0.75 else f"{W.MONTHS[m - 1]} {d}" if r < 0.87 else f"{d:02d}.{m:02d}.{y}"

    def mail(self, src: Source) -> str:
        who = src.pick([src.pick(W.FIRST_NAMES).lower(), self.pseudo(src, 2), f"{self.pseudo(src, 1)}.{self.pseudo(src, 2)}",
                        f"{self.noun(src)}{src.number(1, 99)}"])
        return f"{who}@{src.pick([self.pseudo(src, 2), self.noun(src)])}.{src.pick(ENDINGS)}"

    def file(self, src: Source) -> str:
        stem = src.pick([self.noun(src), self.pseudo(src, 2), f"{self.noun(src)}_{self.noun(src)}", f"{self.noun(src)}-{src.number(1, 2030)}",
                         self.letters(src)])
        return f"{stem}.{src.pick(FILES)}"

    def path(self, src: Source) -> str:
        folders = [src.pick([self.noun(src), self.noun(src), self.pseudo(src, 2), self.letters(src, 2, 4)]) for _ in range(src.number(1, 3))]
        path = src.pick(["/", "/", "", "~/", "./"]) + "/".join(folders)
        return f"{path}/{self.file(src)}" if src.chance(0.4) else path

    def link(self, src: Source) -> str:
        return f"https://{src.pick(['www.', '', ''])}{src.pick([self.noun(src), self.pseudo(src, 2)])}.{src.pick(ENDINGS)}/{self.noun(src)}"

    def measure(self, src: Source) -> str:
        n = self.decimal(src) if src.chance(0.25) else src.number(1, 10 ** src.pick([1, 2, 3]))
        return f"{n} {src.pick(UNITS)}"

    def phone(self, src: Source) -> str:
        return f"{src.pick(['+', '', ''])}{self.digits(src, 2, 4)} {self.digits(src, 3, 4)}" + (f" {self.digits(src, 3, 4)}" if src.chance(0.5) else "")

    def string(self, src: Source) -> str:
        """Any of the above."""
        makers = [self.title, self.title, self.text, self.name, self.name, self.place, self.noun, self.thing, self.ident, self.ident,
                  self.letters, self.pseudo, self.date, self.clock, self.mail, self.path, self.file, self.measure, self.phone, self.link,
                  lambda s: s.pick(self.words), lambda s: s.pick(self.words)]
        return src.pick(makers)(src)
