"""Parameters of open tools and fields of open JSON: keys, types, values and how a text says them.

A key is new in nearly every conversation: words of the open vocabulary, or one of many spellings of a usual kind
(place, date, text ...). Held-out keys never occur (`Parameters.free`).
"""
from __future__ import annotations

from dataclasses import dataclass, field

from . import words as W
from .base import Source, held_out
from .phrases import bare, patterns, spoken
from .toolcalls import PARAMETERS
from .vocabulary import Vocabulary

PATTERNS = patterns("parameters")

# first spelling in toolcalls.PARAMETERS -> more spellings
SPELLINGS = {
    "city": "municipality city_or_town place_name locality metro home_city site_city city_label nearest_city location_name spot position",
    "destination": "goal to_place end_point drop_off to_city going_to final_stop heading_to end_city finish",
    "origin": "source_city pickup from_place start_point start_city coming_from begin_at from departure_city starting_place",
    "recipient": "send_to addressed_to full_name contact_name who person_name customer_name user client guest_name participant attendee whom partner",
    "date": "deadline date_due scheduled_date calendar_day iso_date date_string start_date end_date target_date booking_date the_day event_date",
    "time": "clock_time time_of_day begins_at moment starting_at wake_time slot_time scheduled_time hhmm daytime",
    "weekday": "week_day dow on_day name_of_day day_name",
    "days": "day_count how_many_days total_days span_days stay_days number_of_days period_days",
    "minutes": "minute_count length_min duration_min time_minutes span_minutes how_long how_many_minutes run_minutes",
    "count": "amount_of_people num qty copies_wanted head_count number_of_items how_much size_of_group party_size persons pieces",
    "amount": "cost charge fee sum_total money payment cash figure budget_amount gross net",
    "title": "heading name_of_item caption banner_text title_line display_name short_title summary_line entry_title header",
    "text": "words memo remark comment letter full_text body_text message_text payload contents paragraph statement wording notes_text",
    "query": "search_text find_what look_for phrase lookup search_words pattern filter_text search_query wanted",
    "priority": "prio rank_level importance_level task_priority weight_class",
    "unit": "measure_in unit_name unit_system measured_in measurement_unit",
    "size": "dimension_class size_name item_size how_big",
    "color": "tint hue color_name paint tone colour_name",
    "language": "tongue idiom lang_name output_language spoken_language into_language locale_name",
    "currency": "money_code currency_code coin iso_currency paid_in currency_name",
    "id": "uid serial token_id record_id item_id lookup_key ref_no tag_number code_number unique_id",
    "file": "doc_path file_path input_file attachment source_file doc_name filename_in",
    "folder": "location_path base_dir working_dir parent_folder folder_path root",
    "room": "chamber room_name in_room where_in_house place_in_house",
    "category": "class_name grouping kind_of family branch_of subject_area theme_name field_name",
    "limit": "max_count upper_limit page_size at_most result_limit number_of_results cap",
    "urgent": "immediate express_mode silent_mode quietly confirm_first dry deep with_subfolders visible_to_all hidden",
    "tags": "word_list keywords_list entries elements members list_of_words parts things",
    "email": "mail_address email_address e_mail inbox mailbox contact_mail",
}
SAID = PATTERNS["said"]
STATED = PATTERNS["stated"]
LISTED = ["{k}: {v}", "- {k}: {v}", "{k} = {v}", "* {k}: {v}", "{k} is {v}", "{v} ({k})"]
SWITCHED = ["with {k} [set to |= |]{v}", "{k} {v}", "and {k} {v}", "{k}: {v}", "(set {k} to {v})"]
DESCRIBED = {"string": ["[The|Name of the|Text of the|Which] {k}", "{K}[ to use|]", "[What|Which] {k} it shall have", "A {k}", "{K} of the {o}", "The {k} of the {o}", ""],
             "integer": ["[The|Number:|Value of the] {k}", "{K} as a number", "{K}, [whole|integer]", "{K} of the {o}", ""],
             "number": ["The {k}", "{K} as a number", "{K}, may have a fraction", ""],
             "boolean": ["Whether {k}", "Turns {k} on or off", "{K} or not", "If {k} is wanted", ""],
             "array": ["List of {k}", "All {k}", "{K}, as a list", "Several {k}", ""], "object": ["The {k}", "Data of the {k}"]}


@dataclass
class Slot:
    """A parameter or field: `said` is what a text calls it."""
    key: str
    said: str
    description: str
    make: object                                    # Source -> value
    kind: str = "string"
    options: list[str] | None = None
    phrases: list[str] = field(default_factory=list)   # ways to say it that do not name it
    members: list["Slot"] = field(default_factory=list)
    items: str = "string"
    opaque: bool = False                            # the key says nothing, the description must

    def schema(self, rich: bool, first: bool) -> dict:
        s: dict = {"type": self.kind}
        if self.kind == "array":
            s["items"] = {"type": self.items}
        if self.kind == "object":
            s["properties"] = {m.key: m.schema(rich, first) for m in self.members}
            s["required"] = [m.key for m in self.members]
        if self.options:
            s["enum"] = self.options
        if (rich or self.opaque) and self.description:
            s = {"description": self.description, **s} if first else {**s, "description": self.description}
        return s

    def value(self, src: Source):
        if self.kind == "object":
            return {m.key: m.value(src) for m in self.members}
        return self.make(src)


def cased(words: str, style: int) -> str:
    """A key: snake, camel, as it is said, dashes, capitals."""
    parts = words.replace("_", " ").replace("-", " ").split()
    if style == 1:
        return parts[0] + "".join(map(W.capital, parts[1:]))
    if style == 2:
        return "-".join(parts)
    if style == 3:
        return "".join(map(W.capital, parts))
    return " ".join(parts) if style == 4 else "_".join(parts).upper() if style == 5 else "_".join(parts)


def shown(src: Source, v: object, plain: bool = False) -> str:
    """A value as a text has it; texts of several words in quotation marks, unless `plain`."""
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, list):
        return W.listing([str(x) for x in v])
    if isinstance(v, dict):
        return W.listing([f"{k.replace('_', ' ')} {shown(src, x)}" for k, x in v.items()])
    text = str(v)
    if isinstance(v, str) and not plain and (" " in text and src.chance(0.4) or src.chance(0.12)):
        mark = "'" if src.chance(0.2) and "'" not in text else '"'
        return f"{mark}{text}{mark}"
    return text


class Parameters:
    def __init__(self, vocabulary: Vocabulary):
        v = self.vocabulary = vocabulary
        # usual kinds with open values; half of the values are still usual ones
        self.values = {"city": v.place, "destination": v.place, "origin": v.place, "recipient": v.name, "date": v.date, "time": v.clock,
                       "title": v.title, "text": v.text, "query": v.title, "color": v.noun, "language": v.place, "id": v.ident,
                       "file": v.file, "folder": v.path, "room": v.thing, "category": v.thing, "email": v.mail,
                       "days": lambda s: s.number(1, 400), "minutes": lambda s: s.number(1, 999), "count": lambda s: s.number(1, 9999),
                       "amount": lambda s: v.decimal(s) if s.chance(0.5) else s.number(1, 99999),
                       "tags": lambda s: [v.noun(s) for _ in range(s.number(1, 4))]}
        self.forbidden = {"tool-key": 0.1, "json-key": 0.12}

    def free(self, key: str, role: str) -> bool:
        """May training use this key? Held out by its plain spelling, whatever the style."""
        return not held_out(f"{role}|{'_'.join(bare(key).split())}", self.forbidden[role])

    def usual(self, src: Source, role: str, style: int, strange: bool = False) -> Slot:
        """A kind of parameter that everyone knows, under one of its many names. strange: under a name that does not fit."""
        while True:
            p = src.pick(PARAMETERS)
            key = src.pick(p.keys + SPELLINGS.get(p.keys[0], "").split())
            if self.free(key, role):
                break
        make = self.values.get(p.keys[0], p.make) if src.chance(0.5) else p.make
        if strange:
            while not self.free(key := self.vocabulary.thing(src), role):
                pass
        return Slot(cased(key, style), key.replace("_", " "), p.description, make, p.kind, p.options, p.phrases)

    def open(self, src: Source, role: str, style: int, thing: str, nested: bool = True) -> Slot:
        """A parameter of any name and type. The key may say nothing; then the description does."""
        v = self.vocabulary
        while not self.free(said := v.thing(src), role):
            pass
        r = src.rng.random()
        members: list[Slot] = []
        options, items = None, "string"
        if r < 0.45:
            kind, make = "string", src.pick([v.string, v.string, v.name, v.title, v.text, v.ident, v.thing])
        elif r < 0.62:
            kind, make = "integer", v.integer
        elif r < 0.70:
            kind, make = "number", lambda s: v.decimal(s) if s.chance(0.6) else v.integer(s)
        elif r < 0.80:
            kind, make = "boolean", lambda s: s.chance(0.5)
        elif r < 0.90:
            kind = "string"
            chosen = [src.pick([v.noun, v.noun, v.thing, v.pseudo, lambda s: s.pick(v.adjectives)])(src) for _ in range(src.number(2, 5))]
            options = list(dict.fromkeys(chosen))
            make = lambda s: s.pick(options)
        elif r < 0.97 or not nested:
            kind, items = "array", "integer" if src.chance(0.2) else "string"
            one = v.integer if items == "integer" else src.pick([v.noun, v.pseudo, v.name, v.ident, v.thing])
            make = lambda s: [one(s) for _ in range(s.number(1, 4))]
        else:
            kind, make = "object", None
            members = [self.open(src, role, style, said, nested=False) for _ in range(2)]
            if len({m.key for m in members}) < 2 or any(m.kind == "array" for m in members):
                return self.open(src, role, style, thing, nested)
        form = src.pick(DESCRIBED[kind])
        description = spoken(src, form).format(k=said, K=W.capital(said), o=thing)
        key = cased(said, style)
        opaque = src.chance(0.08)
        if opaque and kind != "object":  # a name that says nothing
            key, description = src.pick([v.letters(src, 1, 4), f"arg{src.number(1, 9)}", f"{v.letters(src, 2, 3)}_{v.noun(src)}"]), f"The {said}"
            if not self.free(key, role):
                return self.open(src, role, style, thing, nested)
        if options and src.chance(0.3):
            description = (description + ": " if description else "One of ") + ", ".join(options)
        return Slot(key, said, description, make, kind, options, [], members, items, opaque)

    def several(self, src: Source, role: str, style: int, thing: str, n: int, usual: float) -> list[Slot]:
        """n of them, no two of which could be mixed up; one may have a name that does not fit its value."""
        slots: list[Slot] = [self.usual(src, role, style, True)] if n and src.chance(0.3 * usual) else []
        taken = {name for s in slots for name in (s.key.lower(), s.said, *s.phrases)}
        while len(slots) < n:
            s = self.usual(src, role, style) if src.chance(usual) else self.open(src, role, style, thing)
            names = {s.key.lower(), s.said, *s.phrases}
            if not names & taken:
                taken |= names
                slots.append(s)
        return slots

    def said(self, src: Source, slot: Slot, v: object) -> str:
        """The value in a request: a phrase that goes behind the verb."""
        if slot.phrases and src.chance(0.6):
            pattern = src.pick(slot.phrases)
            text = shown(src, v, plain='"' in pattern or src.chance(0.7))
        else:
            pattern = spoken(src, src.pick(SWITCHED if slot.kind == "boolean" else SAID))
            text = shown(src, v)
        return pattern.format(k=self.called(src, slot), v=text)

    def called(self, src: Source, slot: Slot) -> str:
        return slot.key if src.chance(0.15) else slot.said
