"""Finding facts in long texts, with names, attributes, values and forms from the open vocabulary; documents as long as wanted."""
from __future__ import annotations

from . import words as W
from .base import Item, Source, assistant, dress, user
from .phrases import apart, known, patterns, spoken, tidy
from .recall import ATTRIBUTES, INTROS, QUESTIONS, STYLES, answer, person
from .vocabulary import Vocabulary

PATTERNS = patterns("recall")
CHARACTERS = 2.75      # a token of these texts has about so many
QUESTION = 32          # tokens of a question with its answer

LINES = PATTERNS["lines"]
ASKS = PATTERNS["asks"]
OPENING = ["[Here are|Here come|These are|I have|I send you|Look at|Read|Keep in mind|Please remember|Study|Store] [some|my|a few|the|these|many] [notes|lines|facts|records|entries|pieces of text|sentences|remarks][.|:]",
           "[Read|Study|Remember|Take in] [this|the following][ text| list| page| file|] [carefully|well|, please|][.|:]", "[Text|List|File|Page|Document|Log|Record|Memory]:", ""]
CLOSING = ["", "", "[Now|Here is|And now] [my|a|the] question[:|.]", "[That is all|That was the text|End of the text|This is the end].", "[Answer|Please answer] [from|by|with] the text[.|:]", "[Question|Q]:"]
CLAUSES = [tuple(line.split(" ; ")) for line in PATTERNS["clauses"]]
TELLS = PATTERNS["tells"]
RECALLS = PATTERNS["recalls"]
FORBIDDEN_ASKS, FORBIDDEN_LINES, FORBIDDEN_INTROS = apart("question", QUESTIONS), apart("fact", STYLES), apart("intro", INTROS)

Fact = tuple[str, str, str]


class OpenRecall:
    """filler: short lines of other text that stand between the facts."""

    def __init__(self, vocabulary: Vocabulary, filler: list[str]):
        self.vocabulary, self.filler = vocabulary, filler

    def line(self, src: Source) -> str:
        return src.pick(self.filler) if src.chance(0.7) else W.capital(src.pick(self.vocabulary.fragments)) + "."

    def subject(self, src: Source, things: bool) -> str:
        v = self.vocabulary
        if things:
            return src.pick([lambda: f"{v.noun(src)} {v.ident(src)}", lambda: f"the {v.thing(src)}", lambda: v.ident(src), lambda: v.place(src)])()
        return v.name(src) if src.chance(0.6) else person(src)

    def attribute(self, src: Source, usual: float) -> tuple[str, object]:
        """Its name and a maker of values."""
        v = self.vocabulary
        if src.chance(usual):
            a = src.pick(list(ATTRIBUTES))
            return a, ATTRIBUTES[a] if src.chance(0.6) else v.string
        make = src.pick([v.string, v.string, v.noun, v.name, v.ident, v.thing, lambda s: str(v.integer(s)), v.measure, v.date])
        return v.thing(src), make

    def text(self, src: Source, characters: int) -> tuple[list[str], list[tuple[int, Fact]]]:
        """Lines, and the facts among them with their places; no pair of subject and attribute twice."""
        usual, share, things = src.pick([0, 0.3, 0.7, 1, 1]), src.pick([0.1, 0.2, 0.4, 0.4, 0.6, 0.8]), src.chance(0.15)
        expected = max(2, int(characters * share / 40))
        subjects = [self.subject(src, things) for _ in range(max(2, expected // src.number(1, 6) + 1))]
        attributes = [self.attribute(src, usual) for _ in range(src.pick([3, 8, 20, 60]))]
        forms = [known(src, LINES, FORBIDDEN_LINES) for _ in range(src.pick([1, 2, 4, 12]))] if src.chance(0.7) else [f for f in STYLES]
        lines: list[str] = []
        facts: list[tuple[int, Fact]] = []
        seen: set[tuple[str, str]] = set()
        length = 0
        while length < characters or not facts:
            name, (a, make) = src.pick(subjects), src.pick(attributes)
            if facts and not src.chance(share) or (name, a) in seen and len(seen) > 1:
                line = self.line(src)
            else:
                seen.add((name, a))
                value = make(src)
                facts.append((len(lines), (name, a, value)))
                line = W.capital(tidy(src.pick(forms).format(N=name, a=a, v=value)))
            lines.append(line)
            length += len(line) + 1
        return lines, facts

    def item(self, src: Source, tokens: int, questions: int | None = None) -> Item:
        """About `tokens` tokens with the questions: the more, the longer the text; many about its beginning."""
        count = questions or src.number(1, 6 + tokens // 300)
        while True:
            lines, facts = self.text(src, int((tokens - QUESTION * count) * CHARACTERS))
            allowed = [f for f in facts if src.wants("recall|" + "|".join(f[1]), 0.2)]
            if allowed:
                break
        early = [f for f in allowed if f[0] < len(lines) / 5] or allowed
        asked = list(dict.fromkeys(src.pick(early if src.chance(0.4) else allowed)[1] for _ in range(count)))
        document = src.pick(["\n", "\n", "\n", " "]).join(lines)
        opening = known(src, OPENING, FORBIDDEN_INTROS) if src.chance(0.5) else src.wording("intro", INTROS)
        first = f"{tidy(opening)}\n\n{document}\n\n{spoken(src, src.pick(CLOSING))}".strip()
        messages: list[dict] = []
        if src.chance(0.15):
            messages = [user(first), assistant("I have read it. What would you like to know?", "The user gives me a text to remember.")]
        for i, (name, a, v) in enumerate(asked):
            q = W.capital(known(src, ASKS, FORBIDDEN_ASKS).format(N=name, a=a))
            if i == 0 and not messages:
                q = f"{first}\n{q}" if src.chance(0.4) else f"{first}\n\n{q}" if src.chance(0.7) else f"{q}\n\n{first}"
            messages += [user(q), assistant(answer(name, a, v), f"The text says that {answer(name, a, v)}")]
        return dress(src, Item("recall", messages, answer_weight=1.5, prompt_weight=0.05), thinking=0.4, system=0.3)

    def about_me(self, src: Source, talk) -> Item:
        """The user tells things about himself, in sentences of their own or several in one, and asks later, with other turns between."""
        while True:
            told = list({a: make(src) for a, make in (self.attribute(src, 0.5) for _ in range(src.number(0, 3)))}.items())
            clauses = [self.clause(src, form) for form in src.sample(CLAUSES, src.pick([0, 1, 1, 2]))]
            name = self.vocabulary.name(src)
            if (told or clauses) and src.wants("me|" + name + str(told) + "".join(c[0] for c in clauses)):
                break
        greeting = spoken(src, "[||Hello|Hi|Good morning|Hey]")
        hello = spoken(src, "[My name is|I'm|I am called|You can call me|People call me|I am] {N}").format(N=name)
        parts = [c[0] for c in clauses]
        if told and src.chance(0.4):
            parts.append(f"my {told[0][0]} is {told[0][1]}")
        separate = told[1:] if len(parts) > len(clauses) else told
        src.rng.shuffle(parts)
        parts.insert(0 if src.chance(0.7) else src.number(0, len(parts)), hello)
        said = W.capital(", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]) + "."
        start = greeting + src.pick(["! ", ", ", ". "]) if greeting else ""
        begin = said[0].lower() + said[1:] if start.endswith(", ") and not said.startswith("I") else said
        text = tidy(start + begin + " " + " ".join(spoken(src, src.pick(TELLS)).format(a=a, v=v) for a, v in separate))
        why = f"The user said: {said}"
        asks = [(spoken(src, "[What is|What's|Tell me|Say|Can you tell me|Could you repeat|Do you know] my name[?|?|, please?| again?]"), f"Your name is {name}.", why)]
        asks += [(c[1] + src.pick(["?", "?", ", please?", ""]), c[2], why) for c in clauses]
        asks += [(tidy(W.capital(spoken(src, src.pick(RECALLS)).format(a=a))), f"Your {a} is {v}.", f"The user said that the {a} is {v}.") for a, v in told]
        src.rng.shuffle(asks)
        messages: list[dict] = []
        if src.chance(0.3):             # asks at once
            q, reply, why = asks[0]
            asks = asks[1:]
            messages = [user(f"{text} {q}"), assistant(reply, why)]
        else:
            messages = [user(text), assistant(f"Nice to meet you, {name}!", f"The user is called {name}.")]
        for q, reply, why in asks:
            for _ in range(src.pick([0, 0, 1, 1, 2])):
                t = talk(src)
                messages += [user(t.question), assistant(t.answer, t.reasoning, aloud=t.aloud)]
            messages += [user(q), assistant(reply, why)]
        return dress(src, Item("recall", messages), thinking=0.5)

    def clause(self, src: Source, form: tuple[str, ...]) -> tuple[str, str, str]:
        """A fact in a clause, a question and its answer."""
        v = self.vocabulary
        makers = {"place": v.place, "job": lambda s: s.pick(W.JOBS) if s.chance(0.5) else v.noun(s), "name": v.name, "age": lambda s: s.number(5, 99), "year": lambda s: s.number(1920, 2020),
                  "noun": v.thing, "nouns": lambda s: s.pick(v.countable)[1], "instrument": lambda s: s.pick(W.INSTRUMENTS), "language": lambda s: s.pick(W.LANGUAGES), "clock": v.clock}
        value = makers[form[3]](src)
        told, answer = (f.replace("[a|an] {v}", W.article(str(value))).format(v=value) for f in (form[0], form[2]))
        return told, spoken(src, form[1]), answer
