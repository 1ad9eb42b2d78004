"""Finding a fact in a long text: lists of facts about many people, and single facts hidden in prose."""
from __future__ import annotations

from . import words as W
from .base import Item, Source, assistant, dress, user

ONSETS = "b br d dr f g gr h j k kr l m n p pr r s st t tr v w z sh th fl cl".split()
VOWELS = "a e i o u a e i o ai ea".split()
CODAS = ["", "", "n", "r", "l", "s", "m", "k", "nd", "rt", "x"]


def syllable(src: Source) -> str:
    return src.pick(ONSETS) + src.pick(VOWELS) + src.pick(CODAS)


def invented(src: Source, syllables: int = 2) -> str:
    return W.capital("".join(syllable(src) for _ in range(syllables)))


def person(src: Source) -> str:
    """A first name, an invented one, or both a first and a last name."""
    r = src.rng.random()
    if r < 0.35:
        return src.pick(W.FIRST_NAMES)
    if r < 0.75:
        return invented(src)
    return f"{src.pick(W.FIRST_NAMES)} {invented(src, 1 if src.chance(0.5) else 2)}"


def code(src: Source) -> str:
    return "".join(src.pick("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(2)) + "-" + str(src.number(10, 999))


# attribute -> value
ATTRIBUTES = {
    "favourite colour": lambda s: s.pick(W.COLOURS), "home town": lambda s: s.pick(W.CITIES), "pet": lambda s: s.pick(W.ANIMALS),
    "job": lambda s: s.pick(W.JOBS), "instrument": lambda s: s.pick(W.INSTRUMENTS), "sport": lambda s: s.pick(W.SPORTS),
    "favourite drink": lambda s: s.pick(W.DRINKS), "favourite food": lambda s: s.pick(W.FOODS),
    "birth month": lambda s: s.pick(W.MONTHS), "free day": lambda s: s.pick(W.DAYS), "vehicle": lambda s: s.pick(W.VEHICLES),
    "room number": lambda s: str(s.number(1, 999)), "lucky number": lambda s: str(s.number(1, 99)), "code": code,
    "team": lambda s: s.pick(W.COLOURS) + " " + s.pick(W.ANIMALS), "best friend": lambda s: s.pick(W.FIRST_NAMES),
    "language": lambda s: s.pick(W.LANGUAGES), "phone number": lambda s: f"{s.number(100, 999)} {s.number(100, 999)}",
    "street": lambda s: f"{s.pick(W.PLACES)} street".capitalize(), "password": lambda s: syllable(s) + str(s.number(10, 99)),
}
STYLES = ["{N}'s {a} is {v}.", "The {a} of {N} is {v}.", "{N} - {a}: {v}.", "{a} of {N}: {v}", "As for {N}, the {a} is {v}."]
QUESTIONS = ["What is {N}'s {a}?", "What is the {a} of {N}?", "{N}'s {a}?", "Tell me the {a} of {N}.", "Please look up the {a} of {N}.",
             "Which {a} does the text give for {N}?", "Do you remember the {a} of {N}?", "Find the {a} of {N}.",
             "Which {a} has {N}?", "Can you tell me {N}'s {a}?"]
INTROS = ["Here are some notes.", "Read this list.", "Please remember these facts.", "These are my notes:", "Data:", "Some facts about people:",
          "Keep the following in mind.", "I will give you a list of facts.", "Read the following text carefully.", "Notes:"]
OUTROS = ["", "", "Now answer my questions.", "Now a question.", "Question:", "I have a question about this."]


def facts_text(src: Source, filler: list[str], count: int, share: float) -> tuple[list[str], list[tuple[str, str, str]]]:
    """`count` lines, a share of them facts; no pair of person and attribute twice."""
    lines, facts, seen = [], [], set()
    people = [person(src) for _ in range(max(2, int(count * share / src.number(1, 5)) + 1))]
    style = src.wording("fact", STYLES)
    for _ in range(count):
        if not src.chance(share):
            lines.append(src.pick(filler))
            continue
        name, attribute = src.pick(people), src.pick(list(ATTRIBUTES))
        if (name, attribute) in seen:
            lines.append(src.pick(filler))
            continue
        seen.add((name, attribute))
        v = ATTRIBUTES[attribute](src)
        facts.append((name, attribute, v))
        line = style if src.chance(0.8) else src.wording("fact", STYLES)
        lines.append(W.capital(line.format(N=name, a=attribute, v=v)))
    return lines, facts


def answer(name: str, attribute: str, v: str) -> str:
    return f"{name}'s {attribute} is {v}."


class Recall:
    """filler: short lines of other text that stand between the facts."""

    def __init__(self, filler: list[str]):
        self.filler = filler

    def item(self, src: Source, tokens: int, questions: int = 6) -> Item:
        """About `tokens` tokens of text before the first question (a line is about 13)."""
        count = max(3, tokens // 13)
        share = src.pick([0.15, 0.3, 0.5, 0.8]) if count > 12 else 0.8
        while True:
            lines, facts = facts_text(src, self.filler, count, share)
            facts = [f for f in facts if src.wants("recall|" + "|".join(f), 0.2)]
            if facts:
                break
        separator = src.pick(["\n", "\n", " "])
        document = separator.join(lines)
        asked = [src.pick(facts) for _ in range(src.number(1, questions))]
        asked = list(dict.fromkeys(asked))
        first = f"{src.wording('intro', INTROS)}\n\n{document}\n\n{src.pick(OUTROS)}".strip()
        messages = []
        if src.chance(0.2):
            messages = [user(first), assistant("I have read it. What would you like to know?", "The user gives me a text to remember.")]
        for i, (name, attribute, v) in enumerate(asked):
            q = src.wording("question", QUESTIONS).format(N=name, a=attribute)
            if i == 0 and not messages:
                q = f"{first}\n{q}" if src.chance(0.8) else f"{q}\n\n{first}"
            messages += [user(q), assistant(answer(name, attribute, v), f"The text says that {answer(name, attribute, v)}")]
        item = Item("recall", messages, answer_weight=1.5, prompt_weight=0.05)
        return dress(src, item, thinking=0.4, system=0.3)

    def about_me(self, src: Source) -> Item:
        """The user tells things about himself in one turn and asks later, with other turns between."""
        name = person(src)
        chosen = src.sample([a for a in ATTRIBUTES if a != "best friend"], src.number(1, 3))
        told = [(a, ATTRIBUTES[a](src)) for a in chosen]
        if not src.wants("me|" + name + str(told)):
            return self.about_me(src)
        hello = src.wording("me", ["My name is {N}.", "I am {N}.", "Hi, my name is {N}.", "Hello! I'm {N}.", "You can call me {N}."]).format(N=name)
        tell = " ".join(src.wording("my", ["My {a} is {v}.", "By the way, my {a} is {v}.", "Also, my {a} is {v}."]).format(a=a, v=v)
                        for a, v in told)
        messages = [user(f"{hello} {tell}"), assistant(f"Nice to meet you, {name}!", f"The user is called {name}.")]
        if src.chance(0.5):
            said, reply, why = src.pick([("Thanks!", "You are welcome!", "The user thanks me."),
                                         ("How are you?", "I am doing well, thank you! How can I help you?", "The user asks how I am."),
                                         ("Ok.", "How can I help you?", "The user agrees."), ("Nice.", "How can I help you?", "The user agrees.")])
            messages += [user(said), assistant(reply, why)]
        if src.chance(0.5):
            q = src.wording("my-name", ["What is my name?", "Do you know my name?", "Who am I?", "What am I called?", "Do you remember my name?"])
            messages += [user(q), assistant(f"Your name is {name}.", f"The user said: {hello}")]
        for a, v in told:
            q = src.wording("my-what", ["What is my {a}?", "Do you remember my {a}?", "Tell me my {a}.", "What did I say about my {a}?"])
            messages += [user(q.format(a=a)), assistant(f"Your {a} is {v}.", f"The user said that the {a} is {v}.")]
        return dress(src, Item("recall", messages), thinking=0.5)
