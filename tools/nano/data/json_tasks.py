"""Writing JSON: fields out of a sentence, lists, and answers to a given schema."""
from __future__ import annotations

import json

from . import words as W
from .base import Item, Source, assistant, dress, user
from .recall import code, invented, person

# key spellings, phrase, value
FIELDS = [
    (["name", "full_name", "person"], "{v}", person, "string"),
    (["age", "years"], "{v} years old", lambda s: s.number(5, 95), "integer"),
    (["city", "town", "location"], "from {v}", lambda s: s.pick(W.CITIES), "string"),
    (["job", "profession", "occupation"], "working as a {v}", lambda s: s.pick(W.JOBS), "string"),
    (["color", "colour", "favourite_color"], "who likes {v}", lambda s: s.pick(W.COLOURS), "string"),
    (["pet", "animal"], "with a {v}", lambda s: s.pick(W.ANIMALS), "string"),
    (["instrument"], "playing the {v}", lambda s: s.pick(W.INSTRUMENTS), "string"),
    (["code", "id", "reference"], "with the code {v}", code, "string"),
    (["room", "room_number"], "in room {v}", lambda s: s.number(1, 400), "integer"),
    (["language"], "speaking {v}", lambda s: s.pick(W.LANGUAGES), "string"),
    (["children", "kids"], "with {v} children", lambda s: s.number(2, 7), "integer"),
    (["drink"], "drinking {v}", lambda s: s.pick(W.DRINKS), "string"),
]
ORDERS = [
    (["item", "product", "article"], "{v}", lambda s: s.pick(W.COUNTABLE)[1], "string"),
    (["quantity", "count", "amount"], "{v} pieces", lambda s: s.number(1, 99), "integer"),
    (["price", "cost"], "{v} euros each", lambda s: s.number(1, 200), "integer"),
    (["customer", "buyer"], "for {v}", person, "string"),
    (["order_id", "order", "reference"], "order {v}", code, "string"),
    (["city", "destination"], "to {v}", lambda s: s.pick(W.CITIES), "string"),
    (["day", "delivery_day"], "on {v}", lambda s: s.pick(W.DAYS), "string"),
    (["color", "colour"], "in {v}", lambda s: s.pick(W.COLOURS), "string"),
    (["shop", "store"], "from {v}", lambda s: invented(s), "string"),
]
ASKS = ["{t}\n\nWrite this as JSON with the keys {k}.", "Extract {k} as JSON: {t}", "Turn this into JSON with the keys {k}: {t}",
        "{t}\nGive me a JSON object with {k}.", "Make JSON with {k} from this text: {t}", "Return JSON with the fields {k}.\n\n{t}",
        "Text: {t}\nKeys: {k}\nAnswer in JSON.", "Please write a JSON object with the keys {k}. {t}"]
SCHEMA_ASKS = ["{t}", "Extract the data: {t}", "{t}\n\nAnswer in JSON.", "Fill the schema from this text: {t}", "Give me JSON for this: {t}"]


def fields(src: Source) -> tuple[list[tuple[str, object, str]], str]:
    """[(key, value, type)] and a sentence that says them."""
    pool = FIELDS if src.chance(0.6) else ORDERS
    chosen = [pool[0], *src.sample(pool[1:], src.number(1, 4))]
    rows, phrases = [], []
    for keys, phrase, make, kind in chosen:
        v = make(src)
        rows.append((src.wording("json-key", keys), v, kind))
        phrases.append(phrase.format(v=v))
    head, rest = phrases[0], phrases[1:]
    start = src.pick(["This is {h}, ", "{h}, ", "Here comes {h}, ", "We have {h}, "] if pool is FIELDS else
                     ["We sold {h}, ", "{h}, ", "Please send {h}, ", "The order is: {h}, "])
    return rows, W.capital(start.format(h=head)) + ", ".join(rest) + "."


def extraction(src: Source) -> Item:
    def draw():
        rows, text = fields(src)
        return "json|" + text, (rows, text)
    rows, text = src.search(draw)
    src.rng.shuffle(rows)
    content = json.dumps({k: v for k, v, _ in rows}, ensure_ascii=False)
    reasoning = "I take the values from the text: " + ", ".join(f"{k} is {v}" for k, v, _ in rows) + "."
    r = src.rng.random()
    if r < 0.3:
        schema = {"type": "object", "properties": {k: {"type": t} for k, _, t in rows}, "required": [k for k, _, _ in rows]}
        ask = src.wording("json-schema", SCHEMA_ASKS).format(t=text)
        item = Item("json", [user(ask)], response_format=schema)
    else:
        keys = W.listing([k for k, _, _ in rows])
        item = Item("json", [user(src.wording("json", ASKS).format(t=text, k=keys))],
                    response_format={"type": "json_object"} if r < 0.45 else None)
    item.messages.append(assistant(content, reasoning))
    return dress(src, item, thinking=0.4)


def lists(src: Source) -> Item:
    """Lists and simple objects from enumerations."""
    def draw():
        pool = src.pick([W.ANIMALS, W.COLOURS, W.CITIES, W.FIRST_NAMES, W.JOBS])
        chosen = src.sample(pool, src.number(2, 6))
        return "jsonlist|" + " ".join(chosen), chosen
    chosen = src.search(draw)
    text = W.listing(chosen)
    if src.chance(0.5):
        ask = src.wording("json-list", ["Write these as a JSON list: {t}.", "Make a JSON array of {t}.", "{t}: give me that as a JSON array.",
                                        "Turn {t} into a JSON list."])
        content = json.dumps(chosen, ensure_ascii=False)
    else:
        key = src.pick(["items", "names", "values", "list", "result", "entries"])
        ask = src.wording("json-obj", ["Write a JSON object with the key " + "{k} and the list {t}.", "Put {t} into JSON under the key {k}.",
                                       "JSON with {k}: {t}."]).replace("{k}", key)
        content = json.dumps({key: chosen}, ensure_ascii=False)
    item = Item("json", [user(W.capital(ask.format(t=text))), assistant(content, "I write the words as JSON.")])
    return dress(src, item, thinking=0.4)


def item(src: Source) -> Item:
    return extraction(src) if src.chance(0.8) else lists(src)
