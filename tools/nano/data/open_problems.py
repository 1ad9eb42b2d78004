"""Word problems in open wordings: clauses put together from parts, things and people from the open vocabulary, the question
in front or behind, and sometimes a fact that does not matter. Held out like arithmetic.problems: by the list of operations.
"""
from __future__ import annotations

import re

from . import arithmetic as A
from . import words as W
from .arithmetic import Problem, compute, solved
from .base import Item, Source
from .open_sums import steps
from .phrases import apart, bare, known, patterns, spoken, tidy
from .vocabulary import Vocabulary

PATTERNS = patterns("problems")
# held-out wordings of lists that stand inside functions of arithmetic.py
INSIDE = """{A} has {a} {items}, {B} has {k} more.
{B} has {k} more {items} than {A}, who has {a}.
How many {items} do both have?
What is their total number of {items}?
{O} adds {c} {items}.
{N} gets {n} {items} that cost {p} {u} each.
{N} wants {n} {items} at {p} {u} each.
{He} hands over {q} {u}.
{He} adds a lamp for {q} {u}.
How many {u} are left over?
How many {u} does {he} get back?
How many {items} does each {unit} get?
How many {items} go to each {unit}?
{He} buys {b} more and puts all of them into {k} equal bags.
How many metres is it around a yard of {a} m by {b} m?""".splitlines()
CLAUSES = {"start": A.START, "gain": A.GAIN, "loss": A.LOSS, "double": A.DOUBLE, "now": A.NOW}
FORBIDDEN = frozenset(map(bare, INSIDE)).union(*(apart(tag, forms) for tag, forms in CLAUSES.items()))


def clauses(name: str, kind: str = "") -> list[str]:
    """The clauses of a heading, or those that also serve another kind of problem: its name stands behind them, "@KIND"."""
    lines = [(form.rstrip(), kinds.split()) for form, _, kinds in (line.partition(" @") for line in PATTERNS[name])]
    return [form for form, kinds in lines if not kind or kind in kinds]


START, GAIN, LOSS = clauses("start"), clauses("gain"), clauses("loss")
DOUBLE = PATTERNS["double"]
TIMES = PATTERNS["times"]
ASK = PATTERNS["ask"]
EXTRAS = PATTERNS["extras"]

GROUPS_MORE, GROUPS_LESS = clauses("gain", "groups") + PATTERNS["groups: more"], clauses("loss", "groups")
SHARING_START, SHARING_MORE, SHARING_LESS = clauses("start", "sharing"), clauses("gain", "sharing"), clauses("loss", "sharing")
MISSING_MORE = clauses("gain", "missing")
OWNERS_MORE, OWNERS_LESS = clauses("gain", "owners"), clauses("loss", "owners")


class Scene:
    """Names, things and pronouns of one problem."""

    def __init__(self, src: Source, v: Vocabulary):
        self.src, self.v = src, v
        if src.chance(0.5):
            self.N, self.M = src.sample(W.FIRST_NAMES, 2)
        else:
            self.N, self.M = W.capital(v.pseudo(src, 2)), v.name(src)
            while self.M == self.N:
                self.M = v.name(src)
        he, his, him = W.pronoun(self.N) if self.N in W.FIRST_NAMES else src.pick([("he", "his", "him"), ("she", "her", "her")])
        self.one, self.many = src.pick(W.COUNTABLE) if src.chance(0.35) else src.pick(v.countable)
        other = src.pick(v.countable)[1]
        self.box = src.pick("box bag basket shelf drawer chest table cupboard desk truck garden room sack trunk case crate".split())
        self.slots = dict(N=self.N, M=self.M, items=self.many, item=self.one, he=he, his=his, him=him, box=self.box, place=src.pick(W.PLACES),
                          others=other if other != self.many else "spoons")

    def say(self, options: list[str], **values) -> str:
        """A clause; pronouns begin with a capital where the sentence does."""
        src = self.src
        form = known(src, options, FORBIDDEN)
        slots = {**self.slots, "day": src.pick(W.DAYS), "month": src.pick(W.MONTHS), **values}
        text = form.format(**slots)
        text = re.sub(r"(?<=[.?!] )[a-z]", lambda m: m[0].upper(), W.capital(text))
        if re.match(r"What|How|In .*how|By how|Which", text):
            text = text.rstrip(".?") + "?"
        elif re.match(r"Find|Tell|Say|Give|Work out|Calculate", text):
            text = text.rstrip(".?") + "."
        return tidy(text)

    def noun(self, n: int) -> str:
        return self.one if n == 1 else self.many


class OpenProblems:
    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.makers = [self.changes] * 6 + [self.groups, self.shopping, self.comparison, self.sharing, self.packing, self.missing, self.two_owners,
                                            self.rate, self.ages, self.around]

    def text(self, s: Scene, sentences: list[str], ask: str) -> str:
        """In order; the question may come first, and a fact that does not matter in between."""
        src = s.src
        if src.chance(0.2):
            extra = s.say([src.pick(EXTRAS)], k=src.number(2, 90), h=src.number(6, 11))
            sentences = list(sentences)
            sentences.insert(src.number(1, len(sentences)), extra)
        if len(sentences) > 1 and src.chance(0.3):
            sentences = self.joined(src, sentences, s)
        body = " ".join(sentences)
        return tidy(f"{ask} {body}" if src.chance(0.12) else f"{body} {ask}")

    def joined(self, src: Source, sentences: list[str], s: Scene) -> list[str]:
        """Two neighbours as one sentence, where the second begins with a pronoun; without it where both speak of the same one."""
        at = src.number(1, len(sentences) - 1)
        a, b = sentences[at - 1], sentences[at]
        if b.split()[0] not in ("He", "She"):
            return sentences
        if a.split()[0] in (s.N, b.split()[0]) and src.chance(0.5):
            both = a[:-1] + src.pick([" and ", ", then ", ", ", " and later ", " but "]) + b.split(maxsplit=1)[1]
        else:
            both = a[:-1] + src.pick([", and ", " and then ", ", then ", ", and after that ", "; ", ", but "]) + b[0].lower() + b[1:]
        return [*sentences[:at - 1], both, *sentences[at + 1:]]

    def changes(self, src: Source, count: int | None = None) -> Problem:
        s = Scene(src, self.vocabulary)
        total = src.number(2, src.pick([20, 50, 100, 300, 500]))
        sentences, done, key = [s.say(START, n=total)], [], [str(total)]
        for _ in range(count or src.pick([1, 2, 2, 2, 3, 3, 4])):
            r = src.rng.random()
            if total < 2 or r < 0.42 and total < 800:
                n, op, forms = src.number(1, min(199, max(9, total))), "+", GAIN
            elif r < 0.86 or total > 240:
                n, op, forms = src.number(1, total - 1), "-", LOSS
            elif r < 0.94:
                n, op, forms = 2, "*", DOUBLE
            else:
                n, op, forms = src.number(3, 4), "*", TIMES
            sentences.append(s.say(forms, n=n))
            done.append(steps(op, total, n))
            key.append(op + str(n))
            total = compute(op, total, n)
        return Problem(self.text(s, sentences, s.say(ASK)), done, f"{s.N} has {total} {s.noun(total)}.", "changes|" + " ".join(key))

    def groups(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        a, b = src.number(2, 20), src.number(2, 20)
        total, box = a * b, src.pick("box/boxes bag/bags packet/packets basket/baskets shelf/shelves tray/trays row/rows jar/jars carton/cartons crate/crates sack/sacks".split()).split("/")
        slots = dict(a=a, b=b, b1=box[0], bs=box[1])
        first = s.say(PATTERNS["groups: first"], **slots)
        done, op = [steps("*", a, b)], src.pick("+-")
        c = src.number(1, min(99, total - 1))
        more = s.say(GROUPS_MORE if op == "+" else GROUPS_LESS, n=c)
        done.append(steps(op, total, c))
        total = compute(op, total, c)
        ask = s.say(PATTERNS["groups: ask"])
        noun, verb = s.noun(total), "is" if total == 1 else "are"
        return Problem(self.text(s, [first, more], ask), done, f"There {verb} {total} {noun}.", f"groups|{a}|{b}|{op}{c}")

    def shopping(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        n, price = src.number(2, 20), src.number(2, 30)
        cost, u = n * price, src.pick(["euros", "dollars", "pounds", "coins", "francs", "crowns", "cents"])
        slots = dict(n=n, p=price, u=u)
        first = s.say(PATTERNS["shopping: first"], **slots)
        done = [steps("*", n, price)]
        if src.chance(0.5):
            paid = cost + src.number(1, min(90, 999 - cost))
            more = s.say(PATTERNS["shopping: pays"], q=paid, u=u)
            ask = s.say(PATTERNS["shopping: change"], u=u)
            done.append(steps("-", paid, cost))
            return Problem(self.text(s, [first, more], ask), done, f"{s.N} has {paid - cost} {u} left.", f"shop|{n}|{price}|-{paid}")
        extra = src.number(1, 90)
        more = s.say(PATTERNS["shopping: more"], q=extra, u=u, thing=src.pick(["book", "lamp stand", "hat", "chair", "map", "cake", "bottle"]))
        ask = s.say(PATTERNS["shopping: total"], u=u)
        done.append(steps("+", cost, extra))
        return Problem(self.text(s, [first, more], ask), done, f"{s.N} pays {cost + extra} {u}.", f"shop|{n}|{price}|+{extra}")

    def comparison(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        op = src.pick("+-*")
        a = src.number(2, 200) if op != "*" else src.number(2, 90)
        k = src.number(1, 99) if op == "+" else src.number(1, a - 1) if op == "-" else src.number(2, 6)
        word = {"+": "{k} [more|extra|additional]", "-": "{k} [fewer|less]", "*": "{k} times as many"}[op]
        than = {"+": "than", "-": "than", "*": "as"}[op]
        text = s.say(["{N} [owns|holds|keeps|counts|bought|collected|sold] {a} {items}. {M} [owns|holds|keeps|counts|bought|collected|sold] " + word + f"[ {than} {{N}}| {than} that|].",
                      "{N} [owns|keeps|counts|found] {a} {items}[ and| while| but|,] {M} [owns|keeps|counts|found] " + word + f"[| {than} {{N}}].",
                      "{M} [owns|keeps|counts] " + word + f"[ {{items}}|] {than} {{N}}. {{N}} [owns|keeps|has|counts] {{a}}[ {{items}}|]."], a=a, k=k)
        b = compute(op, a, k)
        if src.chance(0.3):
            ask = s.say(PATTERNS["comparison: one"])
            return Problem(self.text(s, [text], ask), [steps(op, a, k)], f"{s.M} has {b} {s.noun(b)}.", f"cmp|{a}|{op}{k}")
        ask = s.say(PATTERNS["comparison: both"])
        return Problem(self.text(s, [text], ask), [steps(op, a, k), steps("+", a, b)], f"Together they have {a + b} {s.many}.", f"cmp|{a}|{op}{k}")

    def sharing(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        k, each = src.number(2, 12), src.number(1, 40)
        total = k * each
        unit = src.pick("friend/friends child/children neighbour/neighbours cousin/cousins bag/bags team/teams table/tables box/boxes guest/guests".split()).split("/")
        b = src.number(1, 60) if src.chance(0.5) or total < 3 else -src.number(1, total - 1)
        a, op = total + b, "-" if b > 0 else "+"
        first = s.say(SHARING_START, n=a)
        change = s.say(SHARING_LESS if op == "-" else SHARING_MORE, n=abs(b))
        split = s.say(PATTERNS["sharing: split"], k=k, us=unit[1])
        ask = s.say(PATTERNS["sharing: ask"], u=unit[0])
        return Problem(self.text(s, [first, change, split], ask), [steps(op, a, abs(b)), steps("/", total, k)], f"Each {unit[0]} gets {each} {s.noun(each)}.",
                       f"share|{a}|{op}{abs(b)}|{k}")

    def packing(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        size, boxes = src.number(2, 12), src.number(2, 60)
        total, box = size * boxes, src.pick("box/boxes bag/bags packet/packets basket/baskets tray/trays row/rows jar/jars carton/cartons".split()).split("/")
        text = s.say(PATTERNS["packing: first"], n=total, z=size, b1=box[0], bs=box[1])
        ask = s.say(PATTERNS["packing: ask"], bs=box[1])
        return Problem(self.text(s, [text], ask), [steps("/", total, size)], f"{boxes} {box[1]} are needed.", f"pack|{total}|{size}")

    def missing(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        goal, have = src.number(20, 500), 0
        have = src.number(1, goal - 2)
        text = s.say(PATTERNS["missing: first"], g=goal, h=have)
        extra, done, key = [], [], f"miss|{goal}|{have}"
        now = have
        if src.chance(0.5) and goal - have > 2:
            n = src.number(1, goal - have - 1)
            extra, done = [s.say(MISSING_MORE, n=n)], [steps("+", have, n)]
            now, key = have + n, f"{key}|{n}"
        ask = s.say(PATTERNS["missing: ask"])
        done.append(steps("-", goal, now))
        return Problem(self.text(s, [text, *extra], ask), done, f"{goal - now} {s.noun(goal - now)} are missing." if goal - now > 1 else f"1 {s.one} is missing.", key)

    def two_owners(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        a, b = src.number(2, 300), src.number(2, 300)
        text = s.say(PATTERNS["two_owners: first"], a=a, b=b)
        if src.chance(0.4) and a != b:
            more, less = (s.N, s.M) if a > b else (s.M, s.N)
            ask = s.say(PATTERNS["two_owners: difference"], x=more, y=less)
            return Problem(self.text(s, [text], ask), [steps("-", max(a, b), min(a, b))], f"{more} has {abs(a - b)} more {s.noun(abs(a - b))} than {less}.", f"diff|{a}|{b}")
        op = src.pick("+-")
        c = src.number(1, a - 1) if op == "-" else src.number(1, 99)
        change = s.say(OWNERS_LESS if op == "-" else OWNERS_MORE, n=c, he=s.N)
        now = compute(op, a, c)
        ask = s.say(PATTERNS["two_owners: both"])
        return Problem(self.text(s, [text, change], ask), [steps(op, a, c), steps("+", now, b)], f"Together they have {now + b} {s.many}.", f"two|{a}|{op}{c}|{b}")

    def rate(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        n, days, x = src.number(3, 90), src.number(2, 9), src.number(1, 99)
        per = src.pick("day/days hour/hours week/weeks minute/minutes month/months".split()).split("/")
        text = s.say(PATTERNS["rate: first"], n=n, t=days, per=per[0], pers=per[1])
        done, total, key = [steps("*", n, days)], n * days, f"rate|{n}|{days}"
        extra = []
        if src.chance(0.6):
            extra, key = [s.say(PATTERNS["rate: extra"], x=x)], f"{key}|{x}"
            done.append(steps("+", total, x))
            total += x
        ask = s.say(PATTERNS["rate: ask"])
        return Problem(self.text(s, [text, *extra], ask), done, f"That makes {total} {s.noun(total)}.", key)

    def ages(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        a, k, y, op = src.number(5, 60), src.number(1, 30), src.number(1, 20), src.pick("+-")
        k = min(k, a - 1)
        word = "older" if op == "+" else "younger"
        text = s.say([f"{{N}} is {{a}}[ years old|]. {{M}} is {{k}} years {word}[ than {{N}}| than that|].", f"{{M}} is {{k}} years {word} than {{N}}. {{N}} is {{a}}[ years old| years of age|]."], a=a, k=k)
        ask = s.say(PATTERNS["ages: ask"], y=y)
        b = compute(op, a, k)
        return Problem(self.text(s, [text], ask), [steps(op, a, k), steps("+", b, y)], f"{s.M} will be {b + y} years old.", f"age|{a}|{op}{k}|{y}")

    def around(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        a, b, thing = src.number(2, 90), src.number(2, 90), src.pick("garden field yard room park playground carpet table pool square meadow wall".split())
        u = src.pick(["m", "m", "cm", "km", "feet"])
        if src.chance(0.5):
            text = s.say(PATTERNS["around: size"], a=a, b=b, u=u, t=thing)
            ask = s.say(PATTERNS["around: way"], t=thing, u=u)
            if src.chance(0.3):
                text, ask = s.say(PATTERNS["around: at once"], a=a, b=b, u=u, t=thing), ""
            return Problem(self.text(s, [text], ask), [steps("+", a, b), steps("*", a + b, 2)], f"The way around is {2 * (a + b)} {u}.", f"fence|{a}|{b}")
        a, b = src.number(2, 40), src.number(2, 24)
        text = s.say(PATTERNS["around: area size"], a=a, b=b, u=u, t=thing)
        return Problem(self.text(s, [text], s.say(PATTERNS["around: area"])), [steps("*", a, b)], f"The area is {a * b} square {u}.", f"area|{a}|{b}")

    def item(self, src: Source) -> Item:
        def draw():
            p = src.pick(self.makers)(src)
            return p.key, p
        p = src.search(draw)
        text = p.text
        if src.chance(0.5):
            text = spoken(src, src.pick(PATTERNS["before"])) + " " + text
        if src.chance(0.4):
            text += " " + spoken(src, src.pick(PATTERNS["behind"]))
        return solved(src, text, p)
