"""Short questions with one right answer: capitals, opposites, plurals, lists, copying, sorting and the like."""
from __future__ import annotations

from . import words as W
from .base import Item, Source, Turn, casual, conversation

# kind -> (table, questions, answer, reasoning)
TABLES: dict[str, tuple[dict, list[str], str, str]] = {
    "capital": (W.CAPITALS, ["What is the capital of {k}?", "Which city is the capital of {k}?", "Capital of {k}?",
                             "Name the capital of {k}.", "Tell me the capital of {k}.", "Do you know the capital of {k}?"],
                "The capital of {k} is {v}.", "The user asks for the capital of {k}. It is {v}."),
    "country": ({v: k for k, v in W.CAPITALS.items()},
                ["Which country has the capital {k}?", "{k} is the capital of which country?", "Of which country is {k} the capital?"],
                "{k} is the capital of {v}.", "{k} is the capital of {v}."),
    "opposite": ({**W.OPPOSITES, **{v: k for k, v in W.OPPOSITES.items()}},
                 ["What is the opposite of {k}?", "Opposite of {k}?", "Give me the opposite of {k}.",
                  "Tell me the opposite of the word {k}.", "Which word is the opposite of {k}?"],
                 "The opposite of {k} is {v}.", "The user wants the opposite of {k}. It is {v}."),
    "plural": (W.PLURALS, ["What is the plural of {k}?", "Plural of {k}?", "How do you write the plural of {k}?",
                           "Give me the plural of {k}.", "One {k}, two what?"],
               "The plural of {k} is {v}.", "The user wants the plural of {k}. It is {v}."),
    "past": (W.PAST, ["What is the past tense of {k}?", "Past tense of {k}?", "Give me the past tense of {k}.",
                      "How do you say {k} in the past tense?"],
             "The past tense of {k} is {v}.", "The user wants the past tense of {k}. It is {v}."),
    "baby": (W.BABY, ["What is a young {k} called?", "What do you call a baby {k}?", "What is the name of a young {k}?"],
             "A young {k} is called a {v}.", "A young {k} is a {v}."),
    "sound": (W.SOUNDS, ["What sound does a {k} make?", "How does a {k} sound?", "What does a {k} do when it makes a sound?"],
              "A {k} {v}.", "A {k} {v}."),
    "colour": (W.COLOUR_OF, ["What colour is {k}?", "Which colour has {k}?", "Tell me the colour of {k}.", "What color is {k}?"],
               "The colour of {k} is {v}.", "The user asks for the colour of {k}. It is {v}."),
    "number": ({w: str(i) for i, w in enumerate(W.SMALL_NUMBERS)},
               ["Write {k} as a number.", "Which number is {k}?", "Write the number {k} in digits."],
               "{k} is {v}.", "The number {k} in digits is {v}."),
}

KINDS = {"animals": W.ANIMALS, "colours": W.COLOURS, "cities": W.CITIES, "jobs": W.JOBS, "instruments": W.INSTRUMENTS,
         "sports": W.SPORTS, "drinks": W.DRINKS, "fruits": "apple pear plum orange lemon banana cherry grape".split(),
         "vehicles": W.VEHICLES, "months": W.MONTHS, "days": W.DAYS, "materials": W.MATERIALS}


def lookup(src: Source) -> Turn:
    """Facts are learned, not inferred: a held-out item is a pair of fact and wording."""
    def draw():
        kind = src.pick(list(TABLES))
        table, asks, *_ = TABLES[kind]
        k, ask = src.pick(list(table)), src.wording("know-" + kind, asks)
        return f"{kind}|{k}|{ask}", (kind, k, ask)
    kind, k, ask = src.search(draw)
    table, _, answer, reasoning = TABLES[kind]
    return Turn(casual(src, ask.format(k=k)), W.capital(answer.format(k=k, v=table[k])), reasoning.format(k=k, v=table[k]))


def is_a(src: Source) -> Turn:
    """Is a fox an animal?"""
    singular = {"animals": "animal", "colours": "colour", "cities": "city", "jobs": "job", "instruments": "instrument",
                "sports": "sport", "drinks": "drink", "fruits": "fruit", "vehicles": "vehicle"}

    def draw():
        kind, other = src.pick(list(singular)), src.pick(list(singular))
        word = src.pick(KINDS[kind])
        claim = kind if src.chance(0.5) else other
        return f"isa|{word}|{claim}", (word, kind, claim)
    word, kind, claim = src.search(draw)
    name = word if kind in ("colours", "cities", "sports", "drinks") else W.article(word)
    ask = src.wording("isa", ["Is {n} {c}?", "Would you say that {n} is {c}?", "True or false: {n} is {c}.",
                              "Tell me whether {n} is {c}."])
    c, real = W.article(singular[claim]), W.article(singular[kind])
    yes = claim == kind or word in KINDS[claim]
    answer = f"Yes, {name} is {c}." if yes else f"No, {name} is not {c}. It is {real}."
    return Turn(W.capital(ask.format(n=name, c=c)), answer, f"{W.capital(name)} is {real}.")


def copy(src: Source) -> Turn:
    """Repeats, shouts, takes the first or last word: exact copying of arbitrary words."""
    pool = W.ADJECTIVES + W.ANIMALS + W.MATERIALS + W.PLACES + W.COLOURS + W.JOBS + W.FIRST_NAMES

    def draw():
        chosen = src.sample(pool, src.number(2, 8))
        return "copy|" + " ".join(chosen), chosen
    chosen = src.search(draw)
    text = " ".join(chosen)
    kind = src.number(0, 6)
    if kind == 0:
        ask = src.wording("repeat", ["Repeat after me: {t}", "Say this: {t}", "Write exactly this: {t}", "Copy this text: {t}",
                                     "Please repeat: {t}", "Repeat the following words: {t}", "Say exactly: {t}"])
        return Turn(ask.format(t=text), text, "I repeat the text exactly.")
    if kind == 1:
        ask = src.wording("first", ["What is the first word of: {t}", "Give me the first word of this text: {t}",
                                    "Which word comes first here? {t}"])
        return Turn(ask.format(t=text), f"The first word is {chosen[0]}.", f"The text starts with {chosen[0]}.")
    if kind == 2:
        ask = src.wording("last", ["What is the last word of: {t}", "Give me the last word of this text: {t}",
                                   "Which word comes last here? {t}"])
        return Turn(ask.format(t=text), f"The last word is {chosen[-1]}.", f"The text ends with {chosen[-1]}.")
    if kind == 3:
        ask = src.wording("words", ["How many words are in this text: {t}", "Count the words: {t}", "How many words? {t}"])
        steps = ", ".join(f"{i + 1} {w}" for i, w in enumerate(chosen))
        return Turn(ask.format(t=text), f"There are {len(chosen)} words.", f"I count: {steps}.")
    if kind == 4:
        ask = src.wording("bullets", ["Make a list of these: {t}", "Write these words as a list: {t}", "Put each word on a line: {t}"])
        return Turn(ask.format(t=", ".join(chosen)), "\n".join("- " + w for w in chosen), "I write one word on each line.")
    if kind == 5:
        ask = src.wording("comma", ["Join these words with commas: {t}", "Put commas between these words: {t}"])
        return Turn(ask.format(t=text), ", ".join(chosen), "I put a comma after each word but the last.")
    ask = src.wording("reverse", ["Say these words in reverse order: {t}", "Reverse the order of the words: {t}"])
    return Turn(ask.format(t=text), " ".join(reversed(chosen)), f"The last word is {chosen[-1]}. I go backwards.")


def choose(src: Source) -> Turn:
    """Picks the odd ones, the members of a kind, or items of a list."""
    kinds = [k for k in KINDS if k not in ("months", "days")]

    def draw():
        a, b = src.sample(kinds, 2)
        bad = src.sample([w for w in KINDS[b] if w not in KINDS[a]], src.number(1, 3))
        good = src.sample(KINDS[a], src.number(1, 3))
        mixed = good + bad
        src.rng.shuffle(mixed)
        return "choose|" + a + "|" + " ".join(mixed), (a, [m for m in mixed if m in good], mixed)
    kind, good, mixed = src.search(draw)
    ask = src.wording("choose", ["Which of these are {k}? {t}", "Find the {k} in this list: {t}.", "Pick out the {k}: {t}.",
                                 "Here is a list: {t}. Which ones are {k}?"])
    verb = "is" if len(good) == 1 else "are"
    return Turn(ask.format(k=kind, t=", ".join(mixed)), f"{W.capital(W.listing(good))} {verb} in the group {kind}.",
                f"I look for {kind}: {W.listing(good)}.")


def name_some(src: Source) -> Turn:
    kind, n = src.pick(list(KINDS)), src.number(2, 5)
    chosen = src.sample(KINDS[kind], n)
    ask = src.wording("name-some", ["Name {n} {k}.", "Tell me {n} {k}.", "Give me {n} {k}.", "List {n} {k}.", "Can you name {n} {k}?"])
    count = src.pick([str(n), W.SMALL_NUMBERS[n]])
    return Turn(ask.format(n=count, k=kind), W.capital(W.listing(chosen)) + ".",
                f"The user wants {n} {kind}.", graded=False, answer_weight=0.3)


def calendar(src: Source) -> Turn:
    names, label = (W.DAYS, "day") if src.chance(0.5) else (W.MONTHS, "month")
    i, step = src.number(0, len(names) - 1), src.pick([-1, 1, 1, 2, 3])
    word = names[i]
    answer = names[(i + step) % len(names)]
    if step == 1:
        ask = src.wording("after", ["Which {l} comes after {w}?", "What {l} follows {w}?", "What is the {l} after {w}?"])
        return Turn(ask.format(l=label, w=word), f"{answer} comes after {word}.", f"After {word} comes {answer}.",
                    graded=False)
    if step == -1:
        ask = src.wording("before", ["Which {l} comes before {w}?", "What {l} is before {w}?", "What is the {l} before {w}?"])
        return Turn(ask.format(l=label, w=word), f"{answer} comes before {word}.", f"Before {word} comes {answer}.",
                    graded=False)
    ask = src.wording("later", ["Which {l} is {n} {l}s after {w}?", "It is {w}. Which {l} is it in {n} {l}s?"])
    path = ", ".join(names[(i + s) % len(names)] for s in range(1, step + 1))
    return Turn(ask.format(l=label, w=word, n=step), f"It is {answer}.", f"After {word} come {path}.", graded=False)


def order(src: Source) -> Turn:
    """Sorting and comparing numbers."""
    n = src.number(2, 6)

    def draw():
        numbers = src.sample(range(0, 100 if src.chance(0.7) else 1000), n)
        return "order|" + " ".join(map(str, numbers)), numbers
    numbers = src.search(draw)
    text = ", ".join(map(str, numbers))
    kind = src.number(0, 3)
    if n == 2 and kind < 3:
        a, b = numbers
        ask = src.wording("bigger", ["Which is bigger, {a} or {b}?", "Which number is larger: {a} or {b}?", "Is {a} or {b} bigger?"])
        return Turn(ask.format(a=a, b=b), f"{max(a, b)} is bigger.", f"{max(a, b)} is more than {min(a, b)}.")
    if kind == 0:
        ask = src.wording("sort", ["Sort these numbers: {t}", "Put these numbers in order: {t}", "Sort from small to large: {t}."])
        return Turn(ask.format(t=text), ", ".join(map(str, sorted(numbers))), "I go from the smallest to the largest.")
    if kind == 1:
        ask = src.wording("largest", ["What is the largest of these numbers: {t}?", "Find the biggest number: {t}.", "Which is the largest? {t}"])
        return Turn(ask.format(t=text), f"The largest number is {max(numbers)}.", f"The largest is {max(numbers)}.")
    if kind == 2:
        ask = src.wording("smallest", ["What is the smallest of these numbers: {t}?", "Find the smallest number: {t}.", "Which is the smallest? {t}"])
        return Turn(ask.format(t=text), f"The smallest number is {min(numbers)}.", f"The smallest is {min(numbers)}.")
    a, b = src.number(0, 20), src.number(1, 9)
    ask = src.wording("count", ["Count from {a} to {b}.", "Please count from {a} to {b}.", "Write the numbers from {a} to {b}."])
    return Turn(ask.format(a=a, b=a + b), ", ".join(map(str, range(a, a + b + 1))), f"I start at {a} and stop at {a + b}.")


MAKERS = [lookup, lookup, lookup, is_a, copy, copy, choose, name_some, calendar, order]


def turn(src: Source) -> Turn:
    return src.pick(MAKERS)(src)


def item(src: Source) -> Item:
    turns = [turn(src)]
    while src.chance(0.45) and len(turns) < 5:
        turns.append(turn(src))
    return conversation(src, "knowledge", turns)
