"""JSON with open keys, types and values: out of texts in many forms, by a schema or by a list of keys.

What is asked for is sometimes a part of what the text tells. Keys that are held out (json_tasks.py) do not occur.
"""
from __future__ import annotations

import json

from . import words as W
from .base import Item, Source, assistant, dress, user
from .json_tasks import ASKS, FIELDS, ORDERS, SCHEMA_ASKS
from .open_parameters import LISTED, Parameters, Slot, cased, shown
from .phrases import apart, known, patterns, spoken, tidy
from .vocabulary import Vocabulary

PATTERNS = patterns("json")

# first key in json_tasks -> more keys, and more phrases for the value
KNOWN = {
    "name": ("who full person_name called first_and_last_name individual named member_name contact", []),
    "age": ("age_in_years how_old years_of_age years_old age_years current_age", ["aged {v}", "who is {v} years old", "now {v}", "{v} years of age"]),
    "city": ("home_town place lives_in residence home_city hometown origin_city where", ["living in {v}", "who lives in {v}", "born in {v}", "at home in {v}", "of {v}"]),
    "job": ("work trade career position employed_as job_title role_at_work", ["a {v} by trade", "who works as a {v}", "employed as a {v}", "{v} by profession"]),
    "color": ("favourite_colour best_colour liked_colour preferred_color", ["whose favourite colour is {v}", "fond of {v}", "with a liking for {v}"]),
    "pet": ("pet_kind companion house_animal owns_animal creature", ["who keeps a {v}", "owner of a {v}", "and a {v} as a pet"]),
    "instrument": ("plays musical_instrument music instrument_played", ["who plays the {v}", "a player of the {v}", "learning the {v}"]),
    "code": ("identifier key ref code_number badge_code serial", ["code {v}", "under the code {v}", "known as {v}", "with id {v}"]),
    "room": ("room_no office_number which_room chamber", ["room {v}", "sitting in room {v}", "staying in room {v}", "to be found in room {v}"]),
    "language": ("speaks tongue spoken_language mother_tongue lang", ["who speaks {v}", "a speaker of {v}", "whose language is {v}", "fluent in {v}"]),
    "children": ("child_count number_of_children offspring how_many_children", ["who has {v} children", "and {v} children", "parent of {v}"]),
    "drink": ("beverage orders_drink favourite_drink drinks", ["who drinks {v}", "having {v}", "fond of drinking {v}"]),
    "item": ("goods thing_bought what ordered_item merchandise ware things commodity article_name", []),
    "quantity": ("number how_many pieces units qty volume items_count", ["{v} of them", "{v} units", "{v} in number", "a set of {v}"]),
    "price": ("unit_price euros each_costs price_each piece_price", ["at {v} euros apiece", "{v} euros a piece", "costing {v} euros each", "for {v} euros each"]),
    "customer": ("client ordered_by for_whom purchaser recipient", ["ordered by {v}", "bought by {v}", "the customer is {v}", "to be given to {v}"]),
    "order_id": ("order_number order_ref order_code number_of_order", ["with order number {v}", "order number {v}", "under {v}", "ref {v}"]),
    "day": ("weekday on_day day_of_delivery arrival_day", ["due on {v}", "for {v}", "arriving on {v}", "by {v}"]),
    "shop": ("seller vendor supplier bought_at merchant", ["bought at {v}", "sold by {v}", "by the shop {v}", "made by {v}"]),
}
OF_ORDERS = {"city": ("delivery_city ship_to target_city delivered_to", ["delivered to {v}", "bound for {v}", "going to {v}"]),
             "color": ("shade hue colour_wanted", ["coloured {v}", "of {v} colour", "painted {v}"])}
STARTS = {True: ["[This is|Here is|Meet|Here comes|We have|I met|Let me introduce|There is|Welcome|Today we see|I know|Our guest is|Next comes|Note:] {h}, ", "{h}, "],
          False: ["[We sold|I ordered|Please send|They bought|We need|Here is an order of|The list says|We shipped|Sold:|Order:|Please pack|I would buy|To deliver:|Wanted:] {h}, ", "{h}, "]}
SENTENCES = PATTERNS["sentences"]
RUNNING = PATTERNS["running"]
INTROS = ["[Here is|This is|We have|There is|I found|Look at|Consider|Take] [a |the |one |our |]{s} ", "The {s} ", "[About|On] the {s}: ", "{S}: ", "Record of {s} "]
CLAUSES = [tuple(line.split(" ; ")) for line in PATTERNS["clauses"]]
OPEN_CLAUSES = [tuple(line.split(" ; ")) for line in PATTERNS["openclauses"]]
NOT = ["not ", "not ", "never ", "not yet "]
SWITCH = {True: ["true", "yes", "on"], False: ["false", "no", "off"]}

TASKS = PATTERNS["tasks"]
FILLS = ["[Extract|Collect|Take|Get|Read] [the data|all data|the values|the fields|what is needed|the facts][.|:| from this:| from the text:]", "[Answer|Reply|Respond] [in|with|as] JSON[.|:| only.]",
         "[Fill|Complete|Use] [the|this] [schema|form|format|object][.|:| with this:| from this text:]", "[Put|Bring|Turn] this into [the given form|JSON|the schema|the format][.|:]", "",
         "[JSON|As JSON|Data|To JSON|Parse this|Structure this|Convert|For the database]:", "[What does this say|What is in here]? [JSON, please.|Answer by the schema.]",
         "[Please|Now] [parse|read|convert|structure|store|process] [this|the following|this text][.|:]"]
FORBIDDEN = apart("json", ASKS) | apart("json-schema", SCHEMA_ASKS)


class OpenJson:
    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary, self.parameters = vocabulary, Parameters(vocabulary)

    # ---- what a text tells: slots with values, and the text

    def record(self, src: Source) -> tuple[list[tuple[Slot, object]], str]:
        """Any keys: the text names them."""
        v, style = self.vocabulary, src.pick([0, 0, 0, 1, 1, 2, 3, 4, 5])
        subject = v.thing(src)
        slots = [s for s in self.parameters.several(src, "json-key", style, subject, src.number(1, 6), src.pick([0, 0.2, 0.5])) if not s.opaque]
        rows = [(s, s.value(src)) for s in slots]
        told = list(rows)
        if src.chance(0.4):
            src.rng.shuffle(told)
        r = src.rng.random()
        if r < 0.4:
            form = SENTENCES if src.chance(0.5) else [src.pick(SENTENCES)]
            lines = [W.capital(spoken(src, src.pick(form)).format(k=s.said, K=W.capital(s.said), v=self.show(src, x))) for s, x in told]
            text = (f"There is {W.article(subject)}. " if src.chance(0.3) else f"About the {subject}. " if src.chance(0.2) else "") + " ".join(lines)
        elif r < 0.75:
            form = RUNNING if src.chance(0.5) else [src.pick(RUNNING)]
            parts = [spoken(src, src.pick(form)).format(k=s.said, v=self.show(src, x)) for s, x in told]
            text = spoken(src, src.pick(INTROS)).format(s=subject, S=W.capital(subject)) + src.pick([", ", " "]).join(parts) + "."
        else:
            line, separator = src.pick(LISTED[:4]), src.pick(["\n", "\n", "; ", ", "])
            text = separator.join(line.format(k=s.said if src.chance(0.7) else s.key, v=self.show(src, x, True)) for s, x in told)
        return rows, tidy(text)

    def show(self, src: Source, x: object, plain: bool = False) -> str:
        return src.pick(SWITCH[x]) if isinstance(x, bool) else shown(src, x, plain)

    def familiar(self, src: Source) -> tuple[list[tuple[Slot, object]], str]:
        """People and orders: the text does not name the keys, which have many spellings."""
        v, people, style = self.vocabulary, src.chance(0.55), src.pick([0, 0, 0, 0, 1, 2])
        pool = FIELDS if people else ORDERS
        open_value = {"name": v.name, "city": v.place, "code": v.ident, "order_id": v.ident, "customer": v.name, "shop": v.name, "room": v.integer,
                      "price": v.integer, "quantity": v.integer, "item": lambda s: s.pick(v.countable)[1], "language": v.place, "pet": v.noun,
                      "instrument": v.noun, "drink": v.noun, "job": v.noun}
        rows, parts, odd = [], [], False
        for keys, phrase, make, kind in [pool[0], *src.sample(pool[1:], src.number(1, 5))]:
            more, phrases = OF_ORDERS[keys[0]] if not people and keys[0] in OF_ORDERS else KNOWN[keys[0]]
            while not self.parameters.free(key := src.pick(keys + more.split()), "json-key"):
                pass
            x = open_value[keys[0]](src) if keys[0] in open_value and src.chance(0.5) else make(src)
            if kind == "integer":
                x = abs(x)
            strange = not odd and src.chance(0.12)
            if strange:  # a key that does not fit: what is left over belongs to it
                odd = True
                while not self.parameters.free(key := v.noun(src), "json-key"):
                    pass
            rows.append((Slot(cased(key, style), key, "", make, kind, opaque=strange), x))
            parts.append(src.pick([phrase, *phrases]).format(v=x) if phrases and src.chance(0.6) else phrase.format(v=x))
        start = spoken(src, src.pick(STARTS[people])).format(h=parts[0])
        return rows, W.capital(start) + ", ".join(parts[1:]) + "."

    def flowing(self, src: Source) -> tuple[list[tuple[Slot, object]], str]:
        """A thing with a name, told in sentences of several facts each: values end where the sentence goes on, lists, and "not" for false."""
        v, style = self.vocabulary, src.pick([0, 0, 0, 0, 1, 2])
        makers = {"name": v.name, "place": v.place, "year": lambda s: s.number(1100, 2030), "number": lambda s: s.number(2, 10 ** s.number(1, 4)), "color": lambda s: s.pick(W.COLOURS),
                  "material": lambda s: s.pick(W.MATERIALS), "clock": v.clock, "date": v.date, "title": v.title, "ident": lambda s: "ABKNRTX"[s.number(0, 6)] + v.ident(s),
                  "noun": v.noun, "places": v.place, "nouns": lambda s: s.pick(v.countable)[1], "names": v.name, "languages": lambda s: s.pick(W.LANGUAGES)}
        kind = v.noun(src)
        name = src.pick([v.name, v.place, lambda s: W.capital(v.noun(s)), lambda s: W.capital(v.pseudo(s))])(src)
        rows: list[tuple[Slot, object]] = []
        said, used = [], {kind, "name"}
        if (key := kind if src.chance(0.6) else "name") and self.parameters.free(key, "json-key"):
            rows.append((Slot(cased(key, style), key, "", None), name))
        for _ in range(src.number(1, 5)):
            clause, key, others, value, kind_of = self.clause(src, makers)
            if used & {key, *others} or not self.parameters.free(key, "json-key"):
                continue
            used |= {key, *others}
            said.append(clause)
            rows.append((Slot(cased(key, style), key, "", None, kind_of), value))
        sentences, again = [], src.pick(["It", f"The {kind}", name, "It"])
        while said:
            n = min(len(said), src.pick([1, 2, 2, 3]))
            part, said = said[:n], said[n:]
            start = again if sentences else src.pick([f"The {kind} {name}", f"The {kind} {name}", f"{name}, {W.article(kind)},", f"Our {kind} {name}", f"The {kind} called {name}"])
            sentences.append(f"{start} {part[0] if n == 1 else src.pick([', ', ' and ']).join(part) if n == 2 and src.chance(0.1) else ', '.join(part[:-1]) + ' and ' + part[-1]}.")
        return (rows, " ".join(sentences)) if sentences else self.flowing(src)

    def clause(self, src: Source, makers: dict) -> tuple[str, str, list[str], object, str]:
        """What is said of a thing, with its key, all keys that it could have, value and type."""
        v = self.vocabulary
        if src.chance(0.45):
            form, make = src.pick(OPEN_CLAUSES)
            one, many = src.pick(v.countable)
            adjective = src.pick(v.adjectives)
            others = [one, many, adjective]
            key = {"count": src.pick([many, f"number of {many}", f"{one} count"]), "list": many, "adjective": src.pick([adjective, f"is {adjective}"])}.get(make, one)
            make = {"count": "number", "list": src.pick(["places", "nouns", "names"]), "adjective": "switch", "string": src.pick(["name", "place", "ident", "noun", "title"])}.get(make, make)
        else:
            form, keys, make = src.pick(CLAUSES)
            one = many = adjective = ""
            others = keys.split()
            key = src.pick(others)
        kind, value = "string", None
        form = spoken(src, form)
        if make == "switch":
            kind, value = "boolean", src.chance(0.5)
            form = form.split(" / ")[not value] if " / " in form else form
        elif "{l}" in form:
            kind, value = "array", list(dict.fromkeys(makers[make](src) for _ in range(src.number(2, 4))))
        else:
            kind, value = "integer" if make in ("number", "year") else "string", makers[make](src)
        text = form.format(v=value, l=W.listing(value) if kind == "array" else "", k=one, K=W.article(one) if one else "", ks=many, a=adjective, n="" if value else src.pick(NOT))
        return text, key, others, value, kind

    # ---- tasks

    def item(self, src: Source) -> Item:
        def draw():
            make = src.rng.choices([self.record, self.familiar, self.flowing], [0.45, 0.3, 0.25])[0]
            rows, text = make(src)
            return "json|" + text, (rows, text, make == self.flowing)
        rows, text, natural = src.search(draw)
        if not rows:
            return self.item(src)
        if src.chance(0.6):
            src.rng.shuffle(rows)
        if len({s.key for s, _ in rows}) < len(rows):
            return self.item(src)
        if len(rows) > 2 and src.chance(0.3) and not any(s.opaque for s, _ in rows):
            rows = rows[:-1] if src.chance(0.7) else rows[:1]
        content = json.dumps({s.key: x for s, x in rows}, ensure_ascii=False)
        reasoning = "I take the values from the text: " + ", ".join(f"{s.key} is {shown(src, x, True)}" for s, x in rows) + "."
        r = src.rng.random()
        schema: dict = {"type": "object", "properties": {s.key: s.schema(src.chance(0.15), False) for s, _ in rows}}
        if src.chance(0.85):
            schema["required"] = [s.key for s, _ in rows]
        if src.chance(0.15):
            schema["additionalProperties"] = False
        typed = self.needs_types(rows, natural)
        if r < 0.45 or typed and r < 0.9:
            ask, form = known(src, FILLS, FORBIDDEN), schema
        elif r < 0.55 or typed:
            ask = spoken(src, "[Answer with JSON|Reply in JSON|Give me an object|Return JSON] [that follows|by|according to|matching] this schema: ") + json.dumps(schema)
            form = None
        else:
            keys = [f'"{s.key}"' if src.chance(0.1) else s.key for s, _ in rows]
            ask = known(src, TASKS, FORBIDDEN).format(k=W.listing(keys) if src.chance(0.75) else ", ".join(keys))
            form = {"type": "json_object"} if src.chance(0.3) else None
        item = Item("json", [user(self.placed(src, ask, text)), assistant(content, reasoning)], response_format=form)
        return dress(src, item, thinking=0.4)

    @staticmethod
    def needs_types(rows: list[tuple[Slot, object]], natural: bool = False) -> bool:
        """Could the values be meant in another type, if no schema says it? natural: "not" and lists can be taken in one way only."""
        return any(isinstance(x, (bool, list, dict)) and not natural or isinstance(x, str) and x.strip("-+").replace(".", "").isdigit() for _, x in rows)

    def placed(self, src: Source, ask: str, text: str) -> str:
        """Task and text in either order; never in a form that is held out."""
        r = src.rng.random()
        if r < 0.25:
            mark = src.pick(["Text: ", "Data: ", "Input: ", "Record: ", "Source: "])
            text = mark + text
        elif r < 0.3:
            text = f'"{text}"'
        if not ask:
            return text
        gap = src.pick(["\n\n", "\n", " "])
        if ask.endswith(":") or src.chance(0.45):
            return ask + gap + text
        return text + gap + ask

    def example(self, src: Source) -> Item:
        """An object to a schema, with no text that gives the values."""
        v, style = self.vocabulary, src.pick([0, 0, 1, 2])
        subject = v.thing(src)
        slots = self.parameters.several(src, "json-key", style, subject, src.number(1, 5), 0.4)
        schema = {"type": "object", "properties": {s.key: s.schema(src.chance(0.3), False) for s in slots}, "required": [s.key for s in slots]}
        ask = spoken(src, "[Make up|Invent|Give me|Write|Create] [an example of a|a sample|some|a] {s}[.|, please.| in JSON.]").format(s=subject)
        item = Item("json", [user(tidy(ask)), assistant(json.dumps({s.key: s.value(src) for s in slots}, ensure_ascii=False), "I follow the schema.")],
                    response_format=schema, graded=False, answer_weight=0.4)
        return dress(src, item, thinking=0.3)
