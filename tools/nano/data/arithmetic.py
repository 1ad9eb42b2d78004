"""Sums and word problems. In thinking mode the steps are shown in the reasoning, in chat mode in the answer.

Intermediate results stay within 0..999, and products of two-digit numbers are split, since a small model works digit by
digit. Held-out items are held out by their operands (sums) or by their whole list of operations (word problems).
"""
from __future__ import annotations

from . import words as W
from .base import Item, Source, Turn, casual, conversation, dress, user, assistant


def product_steps(a: int, b: int) -> str:
    """23 * 14 = 23 * 10 + 23 * 4 = 230 + 92 = 322"""
    if b < 10 and (a < 13 or a % 10 == 0):
        return f"{a} * {b} = {a * b}"
    if b < 10:
        tens, ones = a // 10 * 10, a % 10
        return f"{a} * {b} = {tens} * {b} + {ones} * {b} = {tens * b} + {ones * b} = {a * b}"
    tens, ones = b // 10 * 10, b % 10
    if not ones:
        return f"{a} * {b} = {a * b}"
    return f"{a} * {b} = {a} * {tens} + {a} * {ones} = {a * tens} + {a * ones} = {a * b}"


def step(op: str, a: int, b: int) -> str:
    if op == "*":
        return product_steps(a, b)
    return f"{a} {op} {b} = {compute(op, a, b)}"


def compute(op: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[op]


SUM_ASKS = ["What is {e}?", "What is {e}?", "{e}", "{e} = ?", "{e}=", "Calculate {e}.", "How much is {e}?", "What's {e}?",
            "Please calculate {e}.", "Work out {e}.", "Compute {e}.", "Can you tell me what {e} is?", "Solve {e}.",
            "Hi! What is {e}?", "Hello, how much is {e}?", "Do you know what {e} is?", "What do I get for {e}?",
            "Evaluate {e}.", "Result of {e}?", "The answer to {e}, please.", "I want to know {e}.", "Can you calculate {e}?", "Could you work out {e}?",
            "Please solve {e}.", "How much does {e} make?", "Quick: {e}", "Say what {e} is.", "Nano, what is {e}?", "Tell me {e}.", "I need the result of {e}.", "{e}?",
            "What does {e} make?", "Find {e}.", "Give me {e}."]
WORD_FORMS = {"+": ["{a} plus {b}", "the sum of {a} and {b}", "{a} and {b} together"],
              "-": ["{a} minus {b}", "the difference of {a} and {b}"],
              "*": ["{a} times {b}", "the product of {a} and {b}", "{a} multiplied by {b}"],
              "/": ["{a} divided by {b}"]}


def operands(src: Source) -> tuple[str, int, int]:
    op = src.pick("+++---**/")
    if op == "+":
        top = src.pick([20, 100, 100, 100, 500])
        return op, src.number(0, top), src.number(0, top - 1)
    if op == "-":
        top = src.pick([20, 100, 100, 999])
        a = src.number(1, top)
        return op, a, src.number(0, a)
    if op == "*":
        if src.chance(0.6):
            return op, src.number(0, 12), src.number(0, 12)
        if src.chance(0.5):
            return op, src.number(11, 99), src.number(2, 9)
        a = src.number(11, 49)
        return op, a, src.number(11, min(99, 999 // a))
    b = src.number(1, 12)
    return op, b * src.number(0, 20), b


def sum_turn(src: Source) -> Turn:
    def draw():
        op, a, b = operands(src)
        low, high = (min(a, b), max(a, b)) if op in "+*" else (a, b)
        return f"sum|{op}|{low}|{high}", (op, a, b)
    op, a, b = src.search(draw)
    result = compute(op, a, b)
    sign = src.pick(["*", "x", "×"]) if op == "*" else op
    plain = f"{a} {sign} {b}" if src.chance(0.85) else f"{a}{sign}{b}"
    expression = src.wording("form" + op, WORD_FORMS[op]).format(a=a, b=b) if src.chance(0.2) else plain
    ask = src.wording("sum", SUM_ASKS).format(e=expression)
    # the answer is the same sentence in both modes; only a product needs steps, which chat mode shows as well
    reasoning = step(op, a, b) + "."
    return Turn(casual(src, W.capital(ask)), f"{a} {op} {b} = {result}.", reasoning)


def sums(src: Source) -> Item:
    turns = [sum_turn(src)]
    while src.chance(0.4) and len(turns) < 5:
        turns.append(sum_turn(src))
    return conversation(src, "sum", turns)


# ---- word problems -----------------------------------------------------------------------------------------------------

START = ["{N} has {n} {items}.", "{N} has {n} {items}.", "There are {n} {items} in {N}'s basket.", "{N} owns {n} {items}.",
         "{N} starts with {n} {items}.", "{N} has collected {n} {items}.", "In the morning {N} has {n} {items}.",
         "{N} keeps {n} {items} in a box.", "{N} brings {n} {items} to school.", "At first {N} has {n} {items}.",
         "{N} counts {n} {items}.", "{N} begins with {n} {items}.", "On the table {N} has {n} {items}.", "{N} got {n} {items} from {M}.",
         "There are {n} {items} on {N}'s shelf.", "{N} stores {n} {items}.", "{N} had {n} {items}.", "Yesterday {N} had {n} {items}."]
GAIN = ["{He} buys {n} more.", "{He} gets {n} more from {M}.", "{M} gives {him} {n} more.", "{He} finds {n} {items}.",
        "Then {he} buys {n} more {items}.", "{He} receives another {n} {items}.", "{M} brings {him} {n} {items}.",
        "A friend gives {him} {n} more {items}.", "{He} wins {n} {items} in a game.", "{He} adds {n} {items}.",
        "Later {he} picks up {n} more.", "{He} is given {n} extra {items}.", "{He} collects {n} more {items}.", "{M} sends {him} {n} more.",
        "{He} makes {n} more {items}.", "Then {M} hands {him} {n} {items}.", "{He} takes {n} more from the shop.", "{He} borrows {n} {items} from {M}.",
        "For {his} birthday {he} gets {n} {items}.", "{He} found {n} more.", "{M} gave {him} {n} more {items}.", "{He} bought {n} more {items}.",
        "The number grows by {n}.", "{He} adds another {n}."]
LOSS = ["{He} gives {n} to {M}.", "{He} loses {n} of them.", "{He} sells {n}.", "{He} gives away {n} {items}.",
        "Then {he} sells {n} {items} to {M}.", "{M} takes {n} of them.", "{He} throws away {n} {items}.",
        "{He} uses {n} of them.", "{He} hands {n} {items} to {M}.", "{He} leaves {n} of them at home.",
        "Later {he} drops {n} and they are gone.", "{N} lends {n} {items} to {M}.", "{He} donates {n} {items}.", "{He} gave {n} to {M}.",
        "{He} lost {n} {items}.", "{He} sold {n} of them.", "{M} borrows {n} {items}.", "{He} returns {n} {items} to the shop.", "{n} of them break.",
        "{n} {items} go missing.", "{He} sends {n} {items} to {M}.", "{He} trades {n} away.", "The number falls by {n}.", "{M} steals {n} {items}."]
EATS = ["{He} eats {n} of them.", "{He} eats {n} {items}.", "{He} and {M} eat {n} of them.", "{M} eats {n} {items}."]
TIMES = ["Then {his} number of {items} grows to {n} times as many.", "{He} works hard and now has {n} times as many.",
         "{M} has {n} times as many {items}. {He} gets all of them instead of {his} own."]
DOUBLE = ["Then {his} {items} double.", "{He} doubles the number of {items}.", "The next day {he} has twice as many."]
SHARE = ["{He} shares them equally among {n} friends and asks how many each one gets.",
         "{He} puts them into {n} equal bags."]
NOW = ["How many {items} does {N} have now?", "How many {items} does {N} have in the end?", "How many does {he} have now?",
       "How many {items} are left?", "How many {items} has {N} now?", "What is the number of {items} {N} has at the end?",
       "How many {items} does {he} have?", "How many {items} does that make?", "How many {items} remain?", "Tell me how many {items} {N} has now.",
       "How many does {N} have in total?", "How many {items} does {he} own after that?", "With how many {items} does {N} end up?",
       "How many {items} are there now?", "What number of {items} does {N} have now?", "How many {items} does {N} have left?"]


class Problem:
    """Text, steps and final sentence of a word problem."""

    def __init__(self, text: str, steps: list[str], answer: str, key: str):
        self.text, self.steps, self.answer, self.key = text, steps, answer, key


def changes(src: Source, count: int) -> Problem:
    """One owner, one kind of thing, `count` changes."""
    n_name, m_name = src.sample(W.FIRST_NAMES, 2)
    one, many = src.pick(W.COUNTABLE)
    he, his, him = W.pronoun(n_name)
    total = src.number(2, src.pick([20, 50, 100, 300]))
    slots = dict(N=n_name, M=m_name, items=many, he=he, He=W.capital(he), his=his, him=him)
    sentences = [src.wording("start", START).format(n=total, **slots)]
    steps, key = [], [str(total)]
    for i in range(count):
        r = src.rng.random()
        if r < 0.42 and total < 800:
            n = src.number(1, min(199, max(9, total)))
            op, text = "+", src.wording("gain", GAIN)
        elif r < 0.86 or total > 300:
            if total < 2:
                n, op, text = src.number(2, 20), "+", src.wording("gain", GAIN)
            else:
                n = src.number(1, total - 1)
                op = "-"
                text = src.wording("eats", EATS) if one in FOOD_ONES and src.chance(0.4) else src.wording("loss", LOSS)
        elif r < 0.95:
            n, op, text = 2, "*", src.wording("double", DOUBLE)
        else:
            n, op, text = src.number(3, 4), "*", src.wording("times", TIMES[:2])
        sentences.append(text.format(n=n, **slots))
        steps.append(step(op, total, n))
        key.append(op + str(n))
        total = compute(op, total, n)
    text = joined(src, sentences)
    ask = src.wording("now", NOW).format(**slots)
    noun = one if total == 1 else many
    return Problem(f"{text} {ask}", steps, f"{n_name} has {total} {noun}.", "changes|" + " ".join(key))


FOOD_ONES = W.FOOD


def joined(src: Source, sentences: list[str]) -> str:
    """Now and then two changes stand in one sentence."""
    if len(sentences) >= 3 and src.chance(0.3):
        a, b = sentences[1], sentences[2]
        for start in ("He ", "She "):
            if a.startswith(start) and b.startswith(start):
                sentences = [sentences[0], a[:-1] + " and " + b[len(start):]] + sentences[3:]
                break
    return " ".join(sentences)


def groups(src: Source) -> Problem:
    """Boxes of things, then more or fewer."""
    name, other = src.sample(W.FIRST_NAMES, 2)
    one, many = src.pick(W.COUNTABLE)
    he, _, _ = W.pronoun(name)
    box = src.pick(["box/boxes", "bag/bags", "packet/packets", "basket/baskets", "shelf/shelves", "tray/trays", "row/rows"]).split("/")
    a, b = src.number(2, 12), src.number(2, 12)
    start = src.wording("groups", [
        "{N} has {a} {boxes} with {b} {items} each.", "There are {a} {boxes} with {b} {items} in each.",
        "{N} fills {a} {boxes} with {b} {items} each.", "{N} buys {a} {boxes}. Each {box} holds {b} {items}.",
        "In a room there are {a} {boxes} of {b} {items} each.", "{N} sees {a} {boxes}, and every {box} has {b} {items}.",
        "{N} has {a} {boxes}. In every {box} there are {b} {items}.", "{N} packs {b} {items} into each of {a} {boxes}.",
        "Each of {a} {boxes} contains {b} {items}.", "A shop has {a} {boxes} with {b} {items} in every {box}.",
        "{a} {boxes} stand in a hall. Each one holds {b} {items}.", "{N} carries {a} {boxes} of {b} {items} each."])
    total, steps = a * b, [step("*", a, b)]
    text = start.format(N=name, a=a, b=b, box=box[0], boxes=box[1], items=many)
    if src.chance(0.5):
        c = src.number(1, 50)
        more = src.wording("groups-more", ["{O} brings {c} more {items}.", "Then {c} more {items} come.", "{O} adds {c} {items}.",
                                           "Another {c} {items} lie on the table.", "{O} puts {c} more {items} there.",
                                           "{c} {items} are added.", "{O} finds another {c} {items}.", "{O} buys {c} extra {items}."])
        op = "+"
    else:
        c = src.number(1, total - 1)
        more = src.wording("groups-less", ["{O} takes {c} {items}.", "Then {c} {items} are sold.", "{O} uses {c} of them.",
                                           "{c} of the {items} are broken.", "{O} carries {c} {items} away.", "{c} {items} get lost.",
                                           "{O} gives {c} {items} away.", "{O} removes {c} of them."])
        op = "-"
    steps.append(step(op, total, c))
    total = compute(op, total, c)
    ask = src.wording("groups-ask", ["How many {items} are there now?", "How many {items} are there in all?",
                                     "How many {items} are there in the end?", "What is the number of {items} now?",
                                     "How many {items} does that make?", "How many {items} are there altogether?",
                                     "Tell me the number of {items}.", "How many {items} can one count now?"])
    noun, verb = (one, "is") if total == 1 else (many, "are")
    return Problem(f"{text} {more.format(O=other, c=c, items=many)} {ask.format(items=many)}", steps,
                   f"There {verb} {total} {noun}.", f"groups|{a}|{b}|{op}{c}")


def shopping(src: Source) -> Problem:
    """n things at a price each; change from a note, or the total with something else."""
    name = src.pick(W.FIRST_NAMES)
    he, his, him = W.pronoun(name)
    one, many = src.pick(W.COUNTABLE)
    n, price = src.number(2, 12), src.number(2, 15)
    cost = n * price
    unit = src.pick(["euros", "dollars", "pounds", "coins"])
    steps = [step("*", n, price)]
    text = src.wording("shop", ["{N} buys {n} {items} for {p} {u} each.", "A {item} costs {p} {u}. {N} buys {n} {items}.",
                                "{N} wants {n} {items} at {p} {u} each.", "At the market {N} takes {n} {items} for {p} {u} each.",
                                "One {item} costs {p} {u}, and {N} needs {n} {items}.", "{N} orders {n} {items}. Each one costs {p} {u}.",
                                "{N} pays {p} {u} for each of {n} {items}.", "The price of one {item} is {p} {u}. {N} takes {n} of them.",
                                "In a shop {N} chooses {n} {items} for {p} {u} each.", "{N} gets {n} {items} that cost {p} {u} each."])
    text = text.format(N=name, n=n, p=price, u=unit, item=one, items=many).replace("A " + one, W.capital(W.article(one)))
    if src.chance(0.55):
        paid = cost + src.number(1, 60)
        more = src.wording("pays", ["{He} pays with {q} {u}.", "{He} has {q} {u}.", "{He} gives the seller {q} {u}.", "{He} hands over {q} {u}.",
                                    "{He} came with {q} {u}.", "{He} puts {q} {u} on the counter."])
        ask = src.wording("change", ["How many {u} does {he} get back?", "How much money is left?", "How many {u} does {he} have left?",
                                        "How much change does {he} get?", "What is the change?", "How many {u} remain?",
                                        "How many {u} are left over?"])
        steps.append(step("-", paid, cost))
        answer, key = f"{name} has {paid - cost} {unit} left.", f"-{paid}"
        more = more.format(He=W.capital(he), q=paid, u=unit)
    else:
        extra = src.number(1, 60)
        more = src.wording("extra", ["{He} also buys a book for {q} {u}.", "{He} also pays {q} {u} for a bag.", "The way home costs {q} {u}.",
                                     "A drink costs {him} {q} {u} more.", "Then {he} spends {q} {u} more.", "{He} adds a lamp for {q} {u}.",
                                     "The bus costs {q} {u}."])
        ask = src.wording("total", ["How many {u} does {he} spend in all?", "How much does {he} pay together?", "What does it cost in total?", "How many {u} is that together?",
                                       "How much money does {he} spend?", "What is the whole price?", "How many {u} does {he} need?"])
        steps.append(step("+", cost, extra))
        answer, key = f"{name} pays {cost + extra} {unit}.", f"+{extra}"
        more = more.format(He=W.capital(he), he=he, him=him, q=extra, u=unit)
    return Problem(f"{text} {more} {ask.format(u=unit, he=he)}", steps, answer, f"shop|{n}|{price}|{key}")


def comparison(src: Source) -> Problem:
    """B has k more (fewer, times) than A; together?"""
    a_name, b_name = src.sample(W.FIRST_NAMES, 2)
    one, many = src.pick(W.COUNTABLE)
    a = src.number(2, 99)
    kind = src.pick(["more", "fewer", "times"])
    if kind == "more":
        k = src.number(1, 99)
        text = src.wording("cmp-more", ["{A} has {a} {items}. {B} has {k} more than {A}.", "{A} owns {a} {items} and {B} owns {k} more than {A}.",
                                        "{B} has {k} more {items} than {A}, who has {a}.", "{A} found {a} {items}. {B} found {k} more than that.",
                                        "{A} has {a} {items}, {B} has {k} more."])
        op = "+"
    elif kind == "fewer":
        k = src.number(1, a - 1)
        text = src.wording("cmp-fewer", ["{A} has {a} {items}. {B} has {k} fewer than {A}.", "{A} owns {a} {items} and {B} owns {k} fewer than {A}.",
                                         "{B} has {k} fewer {items} than {A}, who has {a}.", "{A} found {a} {items}. {B} found {k} fewer than that.",
                                         "{A} has {a} {items}, {B} has {k} fewer."])
        op = "-"
    else:
        a, k = src.number(2, 40), src.number(2, 5)
        text = src.wording("cmp-times", ["{A} has {a} {items}. {B} has {k} times as many.", "{A} owns {a} {items} and {B} owns {k} times as many as {A}.",
                                         "{B} has {k} times as many {items} as {A}, who has {a}.", "{A} found {a} {items}. {B} found {k} times as many.",
                                         "{A} has {a} {items}, {B} has {k} times as many."])
        op = "*"
    b = compute(op, a, k)
    steps = [step(op, a, k), step("+", a, b)]
    ask = src.wording("together", ["How many {items} do they have together?", "How many {items} do {A} and {B} have in all?", "How many do they have altogether?",
                                   "How many {items} is that together?", "How many {items} do both have?", "What is their total number of {items}?",
                                   "How many {items} do the two own together?"])
    slots = dict(A=a_name, B=b_name, a=a, k=k, items=many)
    return Problem(f"{text.format(**slots)} {ask.format(**slots)}", steps, f"Together they have {a + b} {many}.",
                   f"cmp|{a}|{op}{k}")


def sharing(src: Source) -> Problem:
    """Some are added or taken, the rest is shared."""
    name = src.pick(W.FIRST_NAMES)
    he, his, him = W.pronoun(name)
    one, many = src.pick(W.COUNTABLE)
    k, each = src.number(2, 9), src.number(1, 25)
    total = k * each
    if src.chance(0.5):
        b = src.number(1, 60)
        a, op = total + b, "-"
        change = src.wording("share-less", ["{He} keeps {b} for {him}self and shares the rest among {k} friends.",
                                            "{He} loses {b} and shares the rest equally among {k} children.",
                                            "{b} of them are bad, and {he} shares the others among {k} friends.",
                                            "{He} gives {b} away and puts the rest into {k} equal bags.",
                                            "{He} takes {b} out and divides the rest among {k} children."])
    else:
        b = src.number(1, max(1, total - 1)) if total > 1 else 0
        a, op = total - b, "+"
        change = src.wording("share-more", ["{He} gets {b} more and shares all of them among {k} friends.",
                                            "{He} buys {b} more and puts all of them into {k} equal bags.",
                                            "{He} finds {b} more and divides them equally among {k} children.",
                                            "{He} adds {b} and shares everything among {k} friends.",
                                            "{He} collects {b} more and deals all of them out to {k} children."])
    steps = [step(op, a, b), step("/", total, k)]
    text = f"{name} has {a} {many}. " + change.format(He=W.capital(he), he=he, him=him, b=b, k=k)
    unit = "bag" if "bags" in change else "child" if "children" in change else "friend"
    ask = src.wording("each", ["How many {items} does each {unit} get?", "How many {items} are there for each {unit}?", "How many for each {unit}?",
                               "How many {items} does one {unit} get?", "What does each {unit} get?", "How many {items} go to each {unit}?"])
    noun = one if each == 1 else many
    return Problem(f"{text} {ask.format(items=many, unit=unit)}", steps, f"Each {unit} gets {each} {noun}.", f"share|{a}|{op}{b}|{k}")


def measures(src: Source) -> Problem:
    """Distances, times and areas."""
    name = src.pick(W.FIRST_NAMES)
    he, _, _ = W.pronoun(name)
    kind = src.number(0, 2)
    if kind == 0:
        speed, hours, extra = src.number(3, 60), src.number(2, 9), src.number(1, 60)
        text = src.wording("speed", ["{N} rides {v} km an hour for {t} hours. Then {he} goes another {x} km. How far does {he} go in all?",
                                     "A car drives {t} hours at {v} km an hour and then {x} km more. How many km does it drive?",
                                     "{N} travels for {t} hours at {v} km per hour, then {x} km more. How many km is that?"])
        steps = [step("*", speed, hours), step("+", speed * hours, extra)]
        return Problem(text.format(N=name, he=he, v=speed, t=hours, x=extra), steps, f"The distance is {speed * hours + extra} km.",
                       f"speed|{speed}|{hours}|{extra}")
    if kind == 1:
        pages, days, left = src.number(3, 40), src.number(2, 9), src.number(1, 90)
        text = src.wording("pages", ["{N} reads {v} pages a day for {t} days. {x} pages are left. How many pages has the book?",
                                     "A book is read at {v} pages a day. After {t} days {x} pages remain. How many pages has the book?",
                                     "{N} reads {v} pages every day. After {t} days there are {x} pages left. How long is the book in pages?"])
        steps = [step("*", pages, days), step("+", pages * days, left)]
        return Problem(text.format(N=name, v=pages, t=days, x=left), steps, f"The book has {pages * days + left} pages.",
                       f"pages|{pages}|{days}|{left}")
    a, b = src.number(2, 30), src.number(2, 30)
    text = src.wording("fence", ["A garden is {a} m long and {b} m wide. How long is the fence around it?",
                                 "A field is {a} m by {b} m. What is its perimeter?", "How many metres is it around a yard of {a} m by {b} m?"])
    steps = [step("+", a, b), step("*", a + b, 2)]
    return Problem(text.format(a=a, b=b), steps, f"The way around is {2 * (a + b)} m.", f"fence|{a}|{b}")


def ages(src: Source) -> Problem:
    a_name, b_name = src.sample(W.FIRST_NAMES, 2)
    a, k, years = src.number(3, 60), src.number(1, 30), src.number(1, 20)
    text = src.wording("ages", ["{A} is {a} years old. {B} is {k} years older. How old will {B} be in {y} years?",
                                "{A} is {a} and {B} is {k} years older than {A}. How old is {B} in {y} years?",
                                "{B} is {k} years older than {A}, who is {a}. What is the age of {B} after {y} years?"])
    steps = [step("+", a, k), step("+", a + k, years)]
    return Problem(text.format(A=a_name, B=b_name, a=a, k=k, y=years), steps, f"{b_name} will be {a + k + years} years old.",
                   f"age|{a}|{k}|{years}")


TWO_STEP = [groups, shopping, comparison, sharing, measures, ages]
PREFIXES = ["", "", "", "", "", "Solve this: ", "Here is a problem: ", "Please help me with this. ", "Hi! ", "Question: ",
            "Can you solve this? ", "A small problem: ", "Think about this: ", "Help me with my homework: "]
SUFFIXES = ["", "", "", "", "", "", " Show your steps.", " Explain your answer.", " Think step by step.", " Answer with one sentence."]


def problem(src: Source, two_step: bool = False) -> Problem:
    def draw():
        if src.chance(0.5):
            p = changes(src, 2 if two_step else src.pick([1, 2, 2, 2, 3, 4]))
        else:
            p = src.pick(TWO_STEP)(src)
        return p.key, p
    return src.search(draw)


def problems(src: Source, two_step: bool = False, family: str = "word problem") -> Item:
    p = problem(src, two_step)
    return solved(src, src.pick(PREFIXES) + p.text + src.pick(SUFFIXES), p, family)


def solved(src: Source, text: str, p: Problem, family: str = "word problem") -> Item:
    """The conversation: steps in the reasoning or, without thinking, in front of the answer."""
    item = dress(src, Item(family, [user(text)]), thinking=0.65)
    steps = ". ".join(p.steps) + "."
    if item.thinking:
        reasoning = steps if item.effort <= 60 else f"I go step by step. {steps}"
        if item.effort > 90:
            reasoning += f" So the answer is: {p.answer}"
        item.messages.append(assistant(p.answer, reasoning))
    else:
        item.messages.append(assistant(f"{steps} {p.answer}"))
    return item
