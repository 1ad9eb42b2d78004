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
from .phrases import apart, known, spoken, tidy
from .vocabulary import Vocabulary

FORBIDDEN = frozenset().union(*(apart(tag, forms) for tag, forms in [
    ("start", A.START), ("gain", A.GAIN), ("loss", A.LOSS), ("double", A.DOUBLE), ("now", A.NOW)])) | frozenset(
    """_ gets _ _ that cost _ _ each|_ wants _ _ at _ _ each|_ hands over _ _|_ adds a lamp for _ _|how many _ are left over|how many _ does _ get back
_ has _ _ _ has _ more|_ has _ more _ than _ who has _|how many _ do both have|what is their total number of _|how many _ are there now
how many _ does each _ get|how many _ go to each _|_ buys _ more and puts all of them into _ equal bags
how many metres is it around a yard of _ m by _ m""".replace("\n", "|").split("|"))

WHEN = "[|||In the morning |At noon |On {day} |Last week |This week |One day |In {month} |At the weekend |Later |Then |After that |Next |Soon |In the evening |A day later |Meanwhile ]"
START = ["[|||In the morning |At first |In the beginning |Yesterday |Today |Last {month} |On {day} ]{N} [has|had|owns|keeps|holds|counts|counted|possesses|has got|has saved|has gathered|starts with|starts out with|began with] {n} {items}.",
         "[In|Inside|On|Under|Behind|Beside] {N}'s {box} [there are|there were|lie|are|one can see] {n} {items}.",
         "{N} [bought|made|picked|found|received|won|ordered|inherited|was given|drew|packed] {n} {items}[ from {M}| at the {place}| in {month}|].",
         "{N} [is the owner of|takes care of|looks after|works with|carries around|is in charge of|arrives with|comes with|travels with] {n} {items}.",
         "[A|One|The] {place} [has|had|owns|keeps|stores] {n} {items}, and [all of them belong to {N}|{N} owns them all|they are {N}'s].",
         "[There are|There were] {n} {items} [at|in] the {place} of {N}.", "{N}'s [collection|stock|pile|set|store] [holds|has|counts|consists of] {n} {items}.",
         "{n} {items} [belong to|are owned by|are in the hands of] {N}."]
GAIN = [WHEN + "{he} [buys|gets|gains|receives|picks up|wins|earns|gathers|orders|discovers|makes|takes in|is handed] [another {n}|{n} more|{n} further|{n} extra|{n} new|{n} additional] {items}[| from {M}| at the {place}].",
        WHEN + "{M} [gives|hands|lends|sells|passes|offers|leaves] {him} [another {n}|{n}|{n} more|{n} extra|{n} of {his} own] {items}.",
        WHEN + "{n} [more|new|other|further] {items} [arrive|come in|are delivered|turn up|are added|are put with them|join them].",
        "[The number|The count|The stock|The pile|The total|The collection] [goes up|rises|increases|is raised|climbs] by {n}.",
        WHEN + "{he} [buys|gets|receives|picks up|wins|makes|gathers] {n} more[| of them| of these].", "[Thanks to {M}|With {M}'s help] {he} gets {n} more {items}.",
        "{M} [comes by and brings|visits and leaves|drops off|mails {him}] {n} {items}."]
LOSS = [WHEN + "{he} [gives|hands|passes|sells|sends|lends|mails] {n} [|of them |of the {items} |{items} ]to {M}.", WHEN + "{he} [loses|breaks|drops|spoils|uses up|uses|gives away|throws out|burns|parts with|removes|wastes] {n} [{items}|of them|of the {items}].",
        WHEN + "{M} [takes|grabs|borrows|collects|carries off|buys|picks out] {n} [{items}|of them|of the {items}].", WHEN + "{n} [{items}|of them|of the {items}] [are lost|are stolen|are sold|break|disappear|fall apart|get damaged|are taken away|vanish].",
        "[The number|The count|The stock|The pile|The total|The collection] [goes down|drops|sinks|shrinks|decreases|is reduced] by {n}.",
        "{he} [decides|has|needs|agrees] to [give up|part with|hand over|sell] {n} of them."]
DOUBLE = ["[Then|Later|Soon|] the number of {items} doubles.", "[After a while|Soon|Next week] {he} has [double the number|two times as many|twice that many].", "{he} [manages to double|doubles] the {items}."]
TIMES = ["[Soon|Then|After a year|Later] {he} has {n} times as many[| {items}].", "[The number|The stock|The collection] [is multiplied by {n}|becomes {n} times as large|grows to {n} times its size]."]
ASK = ["How many {items} [does {N} have|has {N} got|does {N} own|does {N} keep|does {N} hold|are with {N}|belong to {N}] [now|in the end|at the end|finally|after all this|afterwards|at last]?",
       "[Tell me|Say|Work out|Find out|Calculate|Can you say|Please tell me|I wonder] [how many {items} {N} has|how many {items} are left|the number of {items}|how many {items} that makes] [now|in the end|at the end|after this].",
       "How many {items} [is {N} left with|can {N} count now|remain|remain with {N}|are there in the end|stay|will {N} have then]?", "With how many {items} [is {N} left|does {N} go home|does {N} finish]?",
       "[What is|What's|Find|Give me] [the final number|the new number|the total|the final count] of {items}[?| of {N}?| in the end?]", "How many [are there now|remain|are left in total|is that now|does that leave|does {N} have left]?"]
EXTRAS = ["{M} is {k} years old.", "The {place} is {k} km away.", "{M} has {k} {others}.", "The {box} is {k} cm wide.", "It is {k} degrees outside.", "{N} also has {k} {others}.",
          "The {box} weighs {k} kg.", "{N} lives in house number {k}.", "{M} also sees {k} {others}.", "The {place} opens at {h} o'clock.", "They met {k} days ago.", "The trip takes {k} minutes."]
PREFIXES = ["", "", "", "", "", "[Solve|Answer|Work out|Look at|Think about|Try] [this|the following|this one][:| problem:| task:] ", "[Question|Problem|Exercise|Task|A riddle|Maths|Homework|Word problem][:|.] ",
            "[Hello|Hi|Hey|Good morning][!|, nano!] ", "[Can|Could] you [help me with|work out|answer] this? ", "I need [help|your help] [here|with this]. "]
SUFFIXES = ["", "", "", "", "", "", " [Show|Write down|Give] [the steps|your steps|all steps|how you get there].", " [Explain|Reason] [briefly|step by step|it].", " [Just the number|One sentence], please.", " Thank you!"]


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

    def say(self, patterns: list[str], **values) -> str:
        """A clause; pronouns begin with a capital where the sentence does."""
        src = self.src
        form = known(src, patterns, FORBIDDEN)
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
        if len(sentences) > 2 and src.chance(0.15):
            a, b = sentences[-2], sentences[-1]
            if b.split()[0] in ("He", "She"):
                sentences[-2:] = [a[:-1] + src.pick([", and ", " and then ", ", then ", ", and after that "]) + b[0].lower() + b[1:]]
        body = " ".join(sentences)
        return f"{ask} {body}" if src.chance(0.12) else f"{body} {ask}"

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
        first = s.say(["{N} [has|owns|fills|packs|carries|prepares|stacks|sells|orders] {a} {bs} [with|of|holding|containing] {b} {items} [each|in each|apiece].",
                       "[There are|There were|One sees|{N} counts] {a} {bs}[ in the {place}|]. [Each|Every] {b1} [has|holds|contains|is filled with] {b} {items}.",
                       "[Each|Every] {b1} [holds|has|takes|contains] {b} {items}[, and there are {a} {bs}|. {N} has {a} {bs}|, and {N} owns {a} {bs}].",
                       "{N} puts {b} {items} [into each of|in every one of] {a} {bs}."], **slots)
        done, op = [steps("*", a, b)], src.pick("+-")
        c = src.number(1, min(99, total - 1))
        more = s.say(GAIN[2:3] + ["{M} [puts|places|lays|brings] {n} [more|further|extra] {items} [there|with them|into the room]."] if op == "+" else LOSS[2:4], n=c)
        done.append(steps(op, total, c))
        total = compute(op, total, c)
        ask = s.say(["How many {items} [are there in all|are there then|are there in total|is that in all|remain in the end|does that make in the end|can be counted now]?",
                     "[What is|Tell me|Find|Say] the [total|final|whole|new] number of {items}.", "How many {items} [altogether|in total|in the end]?"])
        noun, verb = s.noun(total), "is" if total == 1 else "are"
        return Problem(self.text(s, [first, more], ask), done, f"There {verb} {total} {noun}.", f"groups|{a}|{b}|{op}{c}")

    def shopping(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        n, price = src.number(2, 20), src.number(2, 30)
        cost, u = n * price, src.pick(["euros", "dollars", "pounds", "coins", "francs", "crowns", "cents"])
        slots = dict(n=n, p=price, u=u)
        first = s.say(["{N} [buys|takes|orders|chooses|needs|picks|gets] {n} {items} [for|at|at a price of] {p} {u} [each|apiece|a piece].",
                       "[One|A single|Each|Every] {item} [costs|is|is sold for|sells for] {p} {u}[, and|.] {N} [buys|takes|needs|orders|wants] {n} [{items}|of them].",
                       "[The price of one {item} is|For one {item} one pays] {p} {u}. {N} [buys|takes|gets] {n} [{items}|of them].", "{N} pays {p} {u} [for each of|apiece for] {n} {items}."], **slots)
        done = [steps("*", n, price)]
        if src.chance(0.5):
            paid = cost + src.number(1, min(90, 999 - cost))
            more = s.say(["{he} [pays with|has|brought|gives the seller|starts with|lays down|had saved] {q} {u}.", "In {his} pocket {he} has {q} {u}."], q=paid, u=u)
            ask = s.say(["How [many {u}|much money] [does {he} have left|does {he} keep|are left in the end|stays with {N}|is the change|will {N} have left|comes back]?",
                         "[What|How much] change [does {N} get|does {he} receive|is there]?", "[Tell me|Find|Work out] the change."], u=u)
            done.append(steps("-", paid, cost))
            return Problem(self.text(s, [first, more], ask), done, f"{s.N} has {paid - cost} {u} left.", f"shop|{n}|{price}|-{paid}")
        extra = src.number(1, 90)
        more = s.say(["{he} also [buys|pays for|takes|orders] [a|one] {thing} for {q} {u}.", "[The way there|The bus home|A drink|A bag|The delivery|Wrapping] costs [another|] {q} {u}[| more].",
                      "{he} [spends|pays] [another|a further] {q} {u} [on food|at the {place}|for a taxi]."], q=extra, u=u, thing=src.pick(["book", "lamp stand", "hat", "chair", "map", "cake", "bottle"]))
        ask = s.say(["How [many {u}|much] [does {N} spend in all|does {he} pay in total|is that altogether|does all of it cost|must {N} pay|does {N} need]?",
                     "[What is|Find|Tell me] the [total|whole|full] [price|cost|sum]."], u=u)
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
            ask = s.say(["How many {items} [belong to|are with|are owned by] {M}?", "How many {items} does {M} [own|have|count]?", "[What|Which] number of {items} does {M} have?"])
            return Problem(self.text(s, [text], ask), [steps(op, a, k)], f"{s.M} has {b} {s.noun(b)}.", f"cmp|{a}|{op}{k}")
        ask = s.say(["How many {items} [are there in total|do they have together|do {N} and {M} own together|do the two have in all|is that altogether|are that for both]?",
                     "[Find|Tell me|What is] [the total|the sum of both|the number of all {items}]."])
        return Problem(self.text(s, [text], ask), [steps(op, a, k), steps("+", a, b)], f"Together they have {a + b} {s.many}.", f"cmp|{a}|{op}{k}")

    def sharing(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        k, each = src.number(2, 12), src.number(1, 40)
        total = k * each
        unit = src.pick("friend/friends child/children neighbour/neighbours cousin/cousins bag/bags team/teams table/tables box/boxes guest/guests".split()).split("/")
        b = src.number(1, 60) if src.chance(0.5) or total < 3 else -src.number(1, total - 1)
        a, op = total + b, "-" if b > 0 else "+"
        first = s.say(START[:2] + START[2:3] + START[6:7], n=a)
        change = s.say(LOSS[1:2] + LOSS[3:4] if op == "-" else GAIN[:2], n=abs(b))
        split = s.say(["{he} [shares|divides|splits|spreads] [all of them|what there is now|them all|the {items}] [equally |evenly |fairly |]among {k} {us}.",
                       "[All of them|The {items}] are [shared|divided|split] [equally|evenly] among {k} {us}.", "{k} {us} [get|receive] the same number of [them|{items}]."], k=k, us=unit[1])
        ask = s.say(["How many {items} [are there for each {u}|does one {u} get|does every {u} receive|will each {u} have]?", "[What is|How big is] the share of [one|each|every] {u}?",
                     "How many [for each|per|for one] {u}?"], u=unit[0])
        return Problem(self.text(s, [first, change, split], ask), [steps(op, a, abs(b)), steps("/", total, k)], f"Each {unit[0]} gets {each} {s.noun(each)}.",
                       f"share|{a}|{op}{abs(b)}|{k}")

    def packing(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        size, boxes = src.number(2, 12), src.number(2, 60)
        total, box = size * boxes, src.pick("box/boxes bag/bags packet/packets basket/baskets tray/trays row/rows jar/jars carton/cartons".split()).split("/")
        text = s.say(["{N} [has|must pack|wants to pack|owns|sorts] {n} {items}. [Each|Every|One] {b1} [holds|takes|has room for|can hold] {z} {items}.",
                      "{n} {items} [are packed|are put|go] into {bs}, {z} [in each|in every one|per {b1}]."], n=total, z=size, b1=box[0], bs=box[1])
        ask = s.say(["How many {bs} [are needed|does {N} need|are filled|will be full|are there]?", "[Find|Tell me|What is] the number of {bs}."], bs=box[1])
        return Problem(self.text(s, [text], ask), [steps("/", total, size)], f"{boxes} {box[1]} are needed.", f"pack|{total}|{size}")

    def missing(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        goal, have = src.number(20, 500), 0
        have = src.number(1, goal - 2)
        text = s.say(["{N} [wants|needs|plans to have|would like to own|must collect|hopes for] {g} {items} [and|but] [has|owns|found] [only |]{h}[| so far| of them].",
                      "{N} [has|owns|found] {h} {items}. [The goal is|{he} wants|{he} needs] {g}."], g=goal, h=have)
        extra, done, key = [], [], f"miss|{goal}|{have}"
        now = have
        if src.chance(0.5) and goal - have > 2:
            n = src.number(1, goal - have - 1)
            extra, done = [s.say(GAIN[:2] + GAIN[4:5], n=n)], [steps("+", have, n)]
            now, key = have + n, f"{key}|{n}"
        ask = s.say(["How many [more |]{items} [are missing|does {N} still need|are still missing|must {N} still find|are lacking]?", "[What|How much] is still missing?"])
        done.append(steps("-", goal, now))
        return Problem(self.text(s, [text, *extra], ask), done, f"{goal - now} {s.noun(goal - now)} are missing." if goal - now > 1 else f"1 {s.one} is missing.", key)

    def two_owners(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        a, b = src.number(2, 300), src.number(2, 300)
        text = s.say(["{N} [has|owns|counts|keeps] {a} {items}, [and|while|but] {M} [has|owns|counts|keeps] {b}.", "{N} [has|owns|keeps] {a} {items}. {M} [has|owns|keeps] {b}[ of them| {items}|]."], a=a, b=b)
        if src.chance(0.4) and a != b:
            more, less = (s.N, s.M) if a > b else (s.M, s.N)
            ask = s.say(["How many more {items} does {x} have than {y}?", "[What is|Find] the difference between [them|the two|{x} and {y}]?", "By how many {items} is {x} ahead of {y}?"], x=more, y=less)
            return Problem(self.text(s, [text], ask), [steps("-", max(a, b), min(a, b))], f"{more} has {abs(a - b)} more {s.noun(abs(a - b))} than {less}.", f"diff|{a}|{b}")
        op = src.pick("+-")
        c = src.number(1, a - 1) if op == "-" else src.number(1, 99)
        change = s.say(LOSS[1:2] + LOSS[5:] if op == "-" else GAIN[4:5], n=c, he=s.N)
        now = compute(op, a, c)
        ask = s.say(["How many {items} [do they have together|are there in total|do both of them own|do {N} and {M} have in all] [now|then|in the end]?"])
        return Problem(self.text(s, [text, change], ask), [steps(op, a, c), steps("+", now, b)], f"Together they have {now + b} {s.many}.", f"two|{a}|{op}{c}|{b}")

    def rate(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        n, days, x = src.number(3, 90), src.number(2, 9), src.number(1, 99)
        per = src.pick("day/days hour/hours week/weeks minute/minutes month/months".split()).split("/")
        text = s.say(["{N} [makes|sells|reads|paints|collects|cleans|packs|counts|repairs] {n} {items} [a|per|every|each] {per}[. {he} works for|, for] {t} {pers}.",
                      "[Every|Each] {per} {N} [makes|sells|paints|collects|packs] {n} {items}. [That goes on for|{he} does so for|It lasts] {t} {pers}."], n=n, t=days, per=per[0], pers=per[1])
        done, total, key = [steps("*", n, days)], n * days, f"rate|{n}|{days}"
        extra = []
        if src.chance(0.6):
            extra, key = [s.say(["[Before that|At the start|Already before] {he} had {x} {items}.", "{M} puts {x} {items} with them.", "After that {he} [does|gets] {x} more."], x=x)], f"{key}|{x}"
            done.append(steps("+", total, x))
            total += x
        ask = s.say(["How many {items} [is that|are that|are there] [in total|in all|altogether|in the end]?", "[What is|Find|Tell me] the [total|whole] number of {items}."])
        return Problem(self.text(s, [text, *extra], ask), done, f"That makes {total} {s.noun(total)}.", key)

    def ages(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        a, k, y, op = src.number(5, 60), src.number(1, 30), src.number(1, 20), src.pick("+-")
        k = min(k, a - 1)
        word = "older" if op == "+" else "younger"
        text = s.say([f"{{N}} is {{a}}[ years old|]. {{M}} is {{k}} years {word}[ than {{N}}| than that|].", f"{{M}} is {{k}} years {word} than {{N}}. {{N}} is {{a}}[ years old| years of age|]."], a=a, k=k)
        ask = s.say(["[How old|What age] will {M} be [in|after] {y} years?", "In {y} years, how old will {M} be?", "[Tell me|Find] the age of {M} in {y} years."], y=y)
        b = compute(op, a, k)
        return Problem(self.text(s, [text], ask), [steps(op, a, k), steps("+", b, y)], f"{s.M} will be {b + y} years old.", f"age|{a}|{op}{k}|{y}")

    def around(self, src: Source) -> Problem:
        s = Scene(src, self.vocabulary)
        a, b, thing = src.number(2, 90), src.number(2, 90), src.pick("garden field yard room park playground carpet table pool square meadow wall".split())
        u = src.pick(["m", "m", "cm", "km", "feet"])
        if src.chance(0.5):
            text = s.say(["A {t} [is|measures] {a} {u} by {b} {u}.", "A {t} is {a} {u} long and {b} {u} wide.", "{N} has a {t} of {a} {u} by {b} {u}."], a=a, b=b, u=u, t=thing)
            ask = s.say(["[How long is the way around it|What is its perimeter|How far is it around it|How long is its edge]?"])
            return Problem(self.text(s, [text], ask), [steps("+", a, b), steps("*", a + b, 2)], f"The way around is {2 * (a + b)} {u}.", f"fence|{a}|{b}")
        a, b = src.number(2, 40), src.number(2, 24)
        text = s.say(["A {t} is {a} {u} long and {b} {u} wide.", "{N} has a {t} of {a} by {b} {u}."], a=a, b=b, u=u, t=thing)
        return Problem(self.text(s, [text], s.say(["[What is its area|How large is its area|How big is it]?"])), [steps("*", a, b)], f"The area is {a * b} square {u}.", f"area|{a}|{b}")

    def item(self, src: Source) -> Item:
        def draw():
            p = src.pick(self.makers)(src)
            return p.key, p
        p = src.search(draw)
        text = spoken(src, src.pick(PREFIXES)) + p.text + spoken(src, src.pick(SUFFIXES))
        return solved(src, text, p)
