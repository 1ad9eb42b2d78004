"""Tool calls with invented tools: names, keys, descriptions and wordings are put together anew for every conversation.

The model shall read a schema rather than remember a tool, so a tool is built from an action (verb and object), a style
of naming and parameters from a common pool, and the request names the action and the values in its own words.
"""
from __future__ import annotations

import json
from dataclasses import dataclass

from . import words as W
from .base import Item, Source, assistant, dress, held_out, user
from .recall import code, invented, person, syllable

# verb/object of what a tool does | other ways to ask for it
ACTIONS = """get/weather forecast|see the weather|check the forecast
get/weather|see the weather|check the forecast
get/current weather|see the weather now|check the weather now
get/current time|tell the time|check the clock
send/email|write a mail|mail something
send/message|text someone|drop a message
create/event|add something to the calendar|plan an event
set/alarm|wake someone|put an alarm
set/timer|start a countdown|time something
book/table|reserve a table|get a table
book/flight|reserve a flight|get a plane ticket
book/hotel room|reserve a room|find a bed for the night
search/products|look for goods|find things to buy
search/web|look something up online|find pages
search/books|look for books|find something to read
search/recipes|find something to cook|look for a dish
convert/currency|change money|exchange money
convert/units|change units|express in other units
translate/text|say something in another language|put into another language
play/song|start some music|put on a track
play/video|show a film|start a clip
turn on/lights|switch the lamps on|make it bright
set/temperature|change the heating|make it warmer or colder
lock/door|close and lock up|secure the entrance
open/garage|let the car in|raise the garage door
find/restaurant|look for a place to eat|suggest where to eat
find/route|get directions|show the way
calculate/route cost|work out the travel cost|price a trip
calculate/tax|work out the tax|get the tax amount
get/stock price|check a share|look up a share price
get/exchange rate|check the rate|look up the rate
get/news|show headlines|read the news
get/time|tell the time|check the clock
order/pizza|get a pizza|have food brought
order/taxi|call a cab|get a ride
track/parcel|see where a package is|follow a shipment
add/task|put on the to-do list|note something to do
delete/task|remove from the list|cross something off
list/files|show the files|see what is in a folder
read/file|show a document|open a document
write/file|save a document|store text
delete/file|remove a document|throw a document away
create/note|write down a note|jot something down
create/user|add an account|register someone
update/user|change an account|edit a profile
find/contact|look up a person|get someone's details
call/contact|phone someone|ring someone
schedule/meeting|set up a meeting|arrange a meeting
cancel/meeting|call off a meeting|drop a meeting
cancel/order|stop an order|take back an order
check/stock|see what is in store|look at the stock
create/invoice|bill someone|write a bill
pay/invoice|settle a bill|pay a bill
rate/film|give a film a mark|score a film
water/garden|give the plants water|start the sprinkler
feed/pet|give the animal food|fill the bowl
measure/distance|find how far it is|get the distance
generate/password|make a password|get a new password
generate/report|make a report|put a report together
start/machine|switch a machine on|run a machine
stop/machine|switch a machine off|halt a machine
count/words|see how long a text is|get the word count
resize/image|make a picture smaller|change a picture's size
query/database|ask the database|look up records
run/test|start the tests|try the code
restart/server|bring the server up again|reboot the server
open/ticket|report a problem|file a ticket
close/ticket|mark a problem as solved|end a ticket
rent/car|hire a car|get a car for some days
renew/passport|extend a passport|get a new passport
print/document|put on paper|make a hard copy
scan/barcode|read a barcode|look at a barcode
publish/post|put a post online|share a post
follow/channel|subscribe to a channel|watch a channel
compare/prices|see which is cheaper|look at several prices
donate/money|give money|support someone
lookup/definition|explain a word|find the meaning""".splitlines()


# What such a tool usually takes (first spellings of the parameters below), and how people ask for it as a question.
NATURAL = dict(line.split(": ") for line in """get/weather forecast: city date days unit
get/weather: city unit date
get/current weather: city unit
get/current time: city
send/email: recipient title text
send/message: recipient text
create/event: title date time
set/alarm: time weekday
set/timer: minutes
book/table: city date time count
book/flight: origin destination date
book/hotel room: city date days count
search/products: query category limit
search/web: query limit
search/books: query language limit
search/recipes: query tags
convert/currency: amount currency
translate/text: text language
play/song: title
turn on/lights: room color
set/temperature: temperature room
lock/door: room
find/restaurant: city category
find/route: origin destination
get/exchange rate: currency
get/news: category limit
get/time: city
order/pizza: size count address
order/taxi: origin destination time
track/parcel: id
add/task: title date priority
delete/task: id
list/files: folder recursive
read/file: file
write/file: file text
delete/file: file
create/note: title text
create/user: recipient email
find/contact: recipient
call/contact: recipient
schedule/meeting: title date time recipient
cancel/meeting: id
cancel/order: id
check/stock: query
create/invoice: recipient amount
pay/invoice: id amount
generate/report: title date
count/words: text
print/document: file count
open/ticket: title priority
close/ticket: id
rent/car: city days
lookup/definition: query language""".splitlines())
AS_QUESTION = {
    "get/weather": ["What is the weather {p}?", "How is the weather {p}?", "What's the weather like {p}?", "Tell me the weather {p}."],
    "get/current weather": ["What is the weather {p} now?", "How is the weather {p}?", "What's the weather like {p}?", "What is the weather {p}?"],
    "get/current time": ["What time is it {p}?", "What is the time {p}?", "Tell me the time {p}."],
    "get/weather forecast": ["What is the weather {p}?", "How is the weather {p}?", "What's the weather like {p}?", "What will the weather be {p}?"],
    "get/time": ["What time is it {p}?", "What is the time {p}?"],
    "get/news": ["What is new {p}?", "What are the headlines {p}?"],
    "get/stock price": ["What is the stock price {p}?", "How much is the share {p}?"],
    "get/exchange rate": ["What is the exchange rate {p}?"],
    "track/parcel": ["Where is my parcel {p}?", "Where is my package {p}?"],
    "find/route": ["How do I get there {p}?", "What is the best way {p}?"],
    "find/restaurant": ["Where can I eat {p}?"],
    "list/files": ["Which files are there {p}?"],
    "check/stock": ["What do we have in stock {p}?"],
    "search/books": ["Which books are there {p}?"],
    "lookup/definition": ["What does the dictionary say {p}?"],
}


# Verbs and things that make further tools, every pair of them: names that can only be read, not remembered.
VERBS = """get set find add remove create delete update list check start stop open close send move copy rename archive restore export
import merge split sort filter count measure scan print sign approve reject assign share lock unlock enable disable book cancel
renew order track rate review plan record replay load save clean repair inspect test build deploy sync fetch push pull read write
show hide draw paint mix heat cool fill empty weigh pack ship buy sell rent lend""".split()
THINGS = """account album alert article asset backup badge balance banner basket battery bill block board booking branch budget
bug camera campaign card cart case catalogue channel chapter chart claim class client clip comment company contract course cover
customer dashboard device diary discount door draft drive employee engine entry event exam fan feed field flag form gate gift group
guest heater invoice item job journal key label lamp lesson library licence link list loan log machine map meal member memo menu
model monitor motor network offer page parcel patient payment permit photo plan plant playlist policy pool poster prescription
printer product profile project pump quiz receipt record region rental report request reward robot role rota route rule sample
score screen seat section sensor server shelf shift shop signal site sketch slide slot snapshot song stage statement station
stream student subscription supplier survey switch table tag team template tent theme thread ticket token tool topic tour track
trade trip truck tutorial valve vehicle vendor video visit voucher warehouse watch widget window workshop zone""".split()


@dataclass
class Parameter:
    keys: list[str]                 # spellings
    description: str
    phrases: list[str]              # how a request says it
    make: object                    # Source -> value
    kind: str = "string"
    options: list[str] | None = None


def clock(src: Source) -> str:
    return f"{src.number(0, 23):02d}:{src.pick(['00', '15', '30', '45'])}"


def date(src: Source) -> str:
    return f"20{src.number(24, 29)}-{src.number(1, 12):02d}-{src.number(1, 28):02d}"


def phrase(src: Source) -> str:
    """A few words of free text."""
    forms = [lambda: f"{src.pick(W.ADJECTIVES)} {src.pick(W.ANIMALS)}", lambda: f"see you on {src.pick(W.DAYS)}",
             lambda: f"buy {src.number(2, 20)} {src.pick(W.COUNTABLE)[1]}", lambda: f"call {src.pick(W.FIRST_NAMES)}",
             lambda: f"meet at the {src.pick(W.PLACES)}", lambda: f"the {src.pick(W.COLOURS)} {src.pick(W.VEHICLES)}",
             lambda: f"{src.pick(W.FIRST_NAMES)} likes {src.pick(W.FOODS)}", lambda: invented(src)]
    return src.pick(forms)()


PARAMETERS = [
    Parameter(["city", "location", "place", "town", "where", "city_name"], "Name of the city", ["in {v}", "for {v}", "at {v}"], lambda s: s.pick(W.CITIES)),
    Parameter(["destination", "to", "target_city", "dest", "arrival"], "Where to go", ["to {v}", "going to {v}", "with destination {v}"], lambda s: s.pick(W.CITIES)),
    Parameter(["origin", "from_city", "start", "departure"], "Where to start", ["from {v}", "starting in {v}", "leaving {v}"], lambda s: s.pick(W.CITIES)),
    Parameter(["recipient", "to_person", "receiver", "addressee", "contact", "person", "name"], "Name of the person", ["for {v}", "to {v}", "with {v}"], person),
    Parameter(["date", "day", "on_date", "when", "due_date"], "Date as YYYY-MM-DD", ["on {v}", "for {v}", "dated {v}"], date),
    Parameter(["time", "at", "hour", "start_time", "at_time"], "Time as HH:MM", ["at {v}", "for {v} o'clock", "with time {v}"], clock),
    Parameter(["weekday", "day_of_week"], "Day of the week", ["on {v}", "next {v}"], lambda s: s.pick(W.DAYS)),
    Parameter(["days", "num_days", "duration_days", "nights", "length"], "Number of days", ["for {v} days", "over {v} days", "lasting {v} days"], lambda s: s.number(1, 30), "integer"),
    Parameter(["minutes", "duration", "mins", "length_minutes"], "Duration in minutes", ["for {v} minutes", "lasting {v} minutes", "of {v} minutes"], lambda s: s.number(1, 120), "integer"),
    Parameter(["count", "quantity", "number", "n", "how_many", "people", "guests"], "How many", ["with a count of {v}", "for {v} people", "{v} times"], lambda s: s.number(1, 50), "integer"),
    Parameter(["amount", "value", "sum", "total", "price"], "Amount of money", ["with amount {v}", "of {v}", "worth {v}"],
              lambda s: s.number(1, 900) if s.chance(0.6) else s.number(1, 900) + 0.5, "number"),
    Parameter(["title", "subject", "headline", "label", "topic"], "Title", ["titled \"{v}\"", "with the title \"{v}\"", "called \"{v}\""], phrase),
    Parameter(["text", "body", "content", "message", "note"], "Text", ["saying \"{v}\"", "with the text \"{v}\"", "that says \"{v}\""], phrase),
    Parameter(["query", "q", "search_term", "keywords", "term"], "What to look for", ["about \"{v}\"", "for \"{v}\"", "with the words \"{v}\""], phrase),
    Parameter(["priority", "level", "urgency", "importance"], "Priority", ["with {v} priority", "priority {v}", "marked {v}"], lambda s: s.pick(["low", "normal", "high"]), "string", ["low", "normal", "high"]),
    Parameter(["unit", "units", "scale"], "Unit", ["in {v}", "using {v}"], lambda s: s.pick(["celsius", "fahrenheit", "metres", "miles"]), "string", ["celsius", "fahrenheit", "metres", "miles"]),
    Parameter(["size", "format_size"], "Size", ["in size {v}", "size {v}", "a {v} one"], lambda s: s.pick(["small", "medium", "large"]), "string", ["small", "medium", "large"]),
    Parameter(["color", "colour", "shade"], "Colour", ["in {v}", "coloured {v}", "with the colour {v}"], lambda s: s.pick(W.COLOURS)),
    Parameter(["language", "lang", "target_language"], "Language", ["in {v}", "using {v}", "into {v}"], lambda s: s.pick(W.LANGUAGES)),
    Parameter(["currency", "target_currency", "cur"], "Currency code", ["in {v}", "into {v}", "using {v}"], lambda s: s.pick(W.CURRENCIES)),
    Parameter(["id", "order_id", "ticket_id", "ref", "reference", "code", "key", "identifier"], "Identifier", ["with id {v}", "number {v}", "with the code {v}"], code),
    Parameter(["file", "path", "filename", "file_name", "document"], "File name", ["named {v}", "in the file {v}", "with the file {v}"],
              lambda s: f"{s.pick(W.ANIMALS)}_{s.number(1, 99)}.{s.pick(['txt', 'csv', 'md', 'json', 'pdf'])}"),
    Parameter(["folder", "directory", "dir"], "Folder", ["in the folder {v}", "from the folder {v}"], lambda s: "/" + s.pick(W.PLACES) + "/" + s.pick(W.TOPICS)),
    Parameter(["room", "area", "zone"], "Room", ["in the {v}", "for the {v}"], lambda s: s.pick(["kitchen", "bedroom", "hall", "office", "garden", "cellar", "bathroom", "attic"])),
    Parameter(["category", "kind", "genre", "type", "section"], "Category", ["in the category {v}", "of the kind {v}", "under {v}"], lambda s: s.pick(W.TOPICS)),
    Parameter(["limit", "max_results", "max", "top"], "Largest number of results", ["with at most {v} results", "limited to {v}", "showing {v} results"], lambda s: s.number(1, 50), "integer"),
    Parameter(["urgent", "notify", "silent", "confirm", "dry_run", "recursive", "public"], "Whether to do so", ["with {k} set to {v}", "{k} {v}"], lambda s: s.chance(0.5), "boolean"),
    Parameter(["tags", "items", "names", "ingredients", "labels"], "List of words", ["with {k} {v}", "with the {k} {v}"],
              lambda s: s.sample(W.FOODS + W.MATERIALS + W.TOPICS, s.number(1, 3)), "array"),
    Parameter(["email", "address", "mail"], "Email address", ["at {v}", "using the address {v}"], lambda s: f"{s.pick(W.FIRST_NAMES).lower()}@{syllable(s)}.example"),
    Parameter(["temperature", "degrees", "target"], "Degrees", ["to {v} degrees", "at {v} degrees"], lambda s: s.number(5, 35), "integer"),
]
# Names that any tool may give to a number, a word, a choice or a switch.
NUMBERS = """width height depth weight speed volume age floor page score year duration_hours distance_km port rank batch retries
timeout offset capacity pages seats points rooms copies level_number chapter percent ratio brightness pressure rate step lines
stars channel_number shelf_number rows columns""".split()
WORDS = """author brand model version owner manager team branch supplier customer department material flavour animal vehicle job
sport instrument drink food host region server_name project client group username nickname brand_name sender teacher driver user
tool_name label_text source topic_name station shop product device_name""".split()
CHOICES = {"mode": "fast slow auto manual", "format": "pdf csv json xml html", "status": "open closed pending done",
           "order": "asc desc", "quality": "draft good best", "frequency": "daily weekly monthly yearly", "direction": "left right up down",
           "visibility": "public private hidden", "method": "card cash transfer", "season": "spring summer autumn winter",
           "role": "admin editor viewer guest", "severity": "minor major critical", "layout": "list grid table", "gender": "male female other",
           "transport": "bus train car plane", "state": "on off", "theme": "dark light", "plan": "free basic pro", "stage": "test live"}
SWITCHES = """force verbose overwrite archived active enabled draft_only include_tax with_breakfast express gift_wrap return_trip
anonymous repeat shuffle compressed encrypted refundable""".split()


def free_parameter(src: Source) -> Parameter:
    """A parameter whose name belongs to no known kind; the request has to say the name."""
    def name(options) -> str:
        fitting = [o for o in options if held_out("tool-key|" + o, 0.1) == (src.split == "wording")]
        return src.pick(fitting or list(options))
    said = ["with {k} {v}", "with a {k} of {v}", "and {k} {v}", "with the {k} {v}", "whose {k} is {v}", "{k} {v}"]
    r = src.rng.random()
    if r < 0.35:
        key, top = name(NUMBERS), src.pick([10, 100, 999])
        return Parameter([key], spoken(key).capitalize(), said, lambda s: s.number(1, top), "integer")
    if r < 0.7:
        key = name(WORDS)
        make = src.pick([person, phrase, lambda s: s.pick(W.ANIMALS), lambda s: s.pick(W.MATERIALS), lambda s: s.pick(W.JOBS), invented, code])
        return Parameter([key], f"The {spoken(key)}", said, make)
    if r < 0.88:
        key = name(CHOICES)
        options = CHOICES[key].split()
        return Parameter([key], f"The {key} to use", [*said, "in the {k} {v}", "using {v} {k}"], lambda s: s.pick(options), "string", options)
    key = name(SWITCHES)
    return Parameter([key], f"Whether {spoken(key)}", ["with {k} set to {v}", "{k} {v}", "with {k} = {v}"], lambda s: s.chance(0.5), "boolean")


def spoken(key: str) -> str:
    return key.replace("_", " ")


NEUTRAL = ["with {k} {v}", "{k}: {v}", "using {k} = {v}", "where {k} is {v}"]
DESCRIPTIONS = ["{V} {o}.", "{V} the {o}", "{V} {o} with the given data.", "Use this to {v} {o}.", "Tool to {v} {o}.", "A function that can {v} {o}.",
                "Lets you {v} {o}", "Call this when the user wants to {v} {o}.", "{V} {o} (internal service)", "{V} one {o}.",
                "Function: {v} {o}", "Makes it possible to {v} {o}.", "Use it to {v} {o}.", "For requests to {v} {o}.", ""]
REQUESTS = ["{V} {o} {p}.", "Please {v} {o} {p}.", "Can you {v} {o} {p}?", "I want you to {v} {o} {p}.", "Could you {v} {o} {p}?",
            "I need to {v} {o} {p}.", "{V} the {o} {p}, please.", "Would you {v} {o} {p}?", "Hi! {V} {o} {p}.", "Use a tool to {v} {o} {p}.",
            "Help me {v} {o} {p}.", "My request: {v} {o} {p}.", "I'd like to {v} {o} {p}.", "Please {v} the {o} {p}.", "{V} this {o} {p}.",
            "Now {v} {o} {p}.", "Can you please {v} the {o} {p}?", "I would like to {v} {o} {p}.", "Let us {v} {o} {p}.", "Go ahead and {v} {o} {p}.",
            "It is time to {v} {o} {p}.", "Next, {v} {o} {p}.", "We have to {v} {o} {p}.", "Try to {v} {o} {p}.", "You should {v} {o} {p}.",
            "{V} {o} for me {p}.", "Is it possible to {v} {o} {p}?", "{v} {o} {p}"]
OTHER_REQUESTS = ["{o} {p}.", "Please {o} {p}.", "Can you {o} {p}?", "I want you to {o} {p}.", "Could you {o} {p}?", "I would like you to {o} {p}.", "Help me to {o} {p}.",
                  "I need to {o} {p}.", "I want to {o} {p}.", "Let us {o} {p}.", "Now {o} {p}.", "Would you {o} {p}?", "I'd like to {o} {p}."]


def styled(src: Source, words: list[str], style: int) -> str:
    """A tool name in one of the usual styles, perhaps with a module in front."""
    if style == 0:
        return "_".join(words)
    if style == 1:
        return words[0] + "".join(map(str.capitalize, words[1:]))
    if style == 2:
        return "-".join(words)
    if style == 3:
        return "".join(map(str.capitalize, words))
    if style == 4:
        return src.pick(["api", "app", "srv", "tools", "home", "core"]) + "_" + "_".join(words)
    return "_".join([*words[1:], words[0]])


@dataclass
class Tool:
    name: str
    verb: str
    thing: str
    synonyms: list[str]
    questions: list[str]
    description: str
    parameters: list[tuple[str, str, Parameter]]    # key, the key in words, kind
    required: list[str]

    def schema(self, rich: bool, strict: bool, listed: bool) -> dict:
        """The OpenAI function object. rich: parameters are described; strict, listed: details that clients differ in."""
        properties = {}
        for key, _, p in self.parameters:
            s: dict = {"type": p.kind}
            if p.kind == "array":
                s["items"] = {"type": "string"}
            if p.options:
                s["enum"] = p.options
            if rich:
                s = {"description": p.description, **s} if strict else {**s, "description": p.description}
            properties[key] = s
        parameters: dict = {"type": "object", "properties": properties}
        if self.required or listed:
            parameters["required"] = self.required
        if strict:
            parameters["additionalProperties"] = False
        return {"name": self.name, "description": self.description, "parameters": parameters}


def composed(src: Source) -> tuple[str, str, str, list[str]]:
    """A tool from a free verb and thing: (action, verb, thing, synonyms). Pairs are held out like the other actions."""
    while True:
        verb, thing = src.pick(VERBS), src.pick(THINGS)
        if src.chance(0.3):
            thing = f"{src.pick(THINGS)} {thing}"
        head = f"{verb}/{thing}"
        if held_out("action|" + head, 0.12) == (src.split == "wording"):
            return head, verb, thing, []


def make_tools(src: Source, n: int, usual_only: bool = False) -> list[Tool]:
    """n tools with different actions, named in one style (a real tool set is consistent). usual_only: real-life tools
    with the parameters that one expects."""
    known = [a for a in ACTIONS if held_out("action|" + a.split("|")[0], 0.12) == (src.split == "wording")]
    if usual_only:
        known = [a for a in known if a.split("|")[0] in NATURAL]
    style = src.pick([0, 0, 0, 1, 1, 2, 3, 4, 5])
    camel = not usual_only and src.chance(0.2)
    tools = []
    for action in src.sample(known if len(known) >= n else ACTIONS, n):
        head, *synonyms = action.split("|")
        verb, thing = head.split("/")
        r = 1.0 if usual_only else src.rng.random()
        if r < 0.06:  # an object nobody has heard of
            head, thing, synonyms = "", syllable(src) + syllable(src), []
        elif r < 0.5:
            head, verb, thing, synonyms = composed(src)
        name = styled(src, verb.split() + thing.split(), style)
        if any(t.name == name for t in tools):
            return make_tools(src, n, usual_only)
        description = src.wording("tool-description", DESCRIPTIONS).format(V=W.capital(verb), v=verb, o=thing)
        parameters, used = [], set()
        if head in NATURAL and (usual_only or src.chance(0.55)):
            usual = [p for name in NATURAL[head].split() for p in PARAMETERS if p.keys[0] == name]
            chosen = usual[:src.number(1, len(usual))]
        else:
            chosen = src.sample(PARAMETERS, src.pick([0, 1, 1, 2, 2, 2, 3, 3, 4]))
            chosen = [free_parameter(src) if src.chance(0.35) else p for p in chosen]
        for p in chosen:
            key = src.wording("tool-key", p.keys, 0.1)
            if key not in used:
                used.add(key)
                words = key.split("_")
                shape = words[0] + "".join(map(str.capitalize, words[1:])) if camel else key
                parameters.append((shape, spoken(key), p))
        required = [k for k, _, _ in parameters if src.chance(0.7)]
        tools.append(Tool(name, verb, thing, synonyms, AS_QUESTION.get(head, []), description, parameters, required))
    return tools


def shown(v: object) -> str:
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, dict):
        return json.dumps(v, ensure_ascii=False)
    return W.listing([str(x) for x in v]) if isinstance(v, list) else str(v)


def call(src: Source, tool: Tool) -> tuple[str, dict]:
    """A request in words and the call that answers it."""
    arguments, phrases = {}, []
    for key, words, p in tool.parameters:
        if key not in tool.required and src.chance(0.5):
            continue
        v = p.make(src)
        arguments[key] = v
        pattern = src.pick(NEUTRAL) if src.chance(0.35) else src.pick(p.phrases)
        phrases.append(pattern.format(k=words, v=shown(v)))
    src.rng.shuffle(phrases)
    said = (" and " if src.chance(0.15) else " ").join(phrases)
    if tool.questions and said and src.chance(0.5):
        text = src.wording("tool-question", tool.questions).format(p=said)
    elif tool.synonyms and src.chance(0.3):
        text = src.wording("tool-other", OTHER_REQUESTS).format(o=src.pick(tool.synonyms), p=said)
    else:
        text = src.wording("tool-request", REQUESTS).format(V=W.capital(tool.verb), v=tool.verb, o=tool.thing, p=said)
    text = text.replace(" .", ".").replace(" ?", "?").replace(" ,", ",")
    return W.capital(text), {"name": tool.name, "arguments": arguments}


def call_reasoning(calls: list[dict]) -> str:
    parts = []
    for c in calls:
        values = ", ".join(f"{k} = {shown(v)}" for k, v in c["arguments"].items())
        parts.append(f"I call {c['name']}" + (f" with {values}." if values else "."))
    return " ".join(parts)


RESULTS = {
    "status": lambda s: s.pick(["open", "closed", "sent", "ready", "pending", "paid", "delivered", "active"]),
    "temperature": lambda s: s.number(-10, 40), "price": lambda s: s.number(1, 999), "total": lambda s: s.number(1, 999),
    "result": lambda s: s.pick([s.number(0, 999), s.pick(W.ADJECTIVES)]), "name": person, "city": lambda s: s.pick(W.CITIES),
    "id": code, "message": phrase, "count": lambda s: s.number(0, 99), "colour": lambda s: s.pick(W.COLOURS),
    "rate": lambda s: s.number(1, 99) / 10, "distance": lambda s: s.number(1, 900), "time": clock, "date": date,
    "condition": lambda s: s.pick(["sunny", "cloudy", "rainy", "windy", "snowy", "clear", "foggy"]),
    "day": lambda s: s.pick(W.DAYS), "language": lambda s: s.pick(W.LANGUAGES),
}


def result(src: Source) -> tuple[str, str, str]:
    """(tool output, answer, reasoning)"""
    r = src.rng.random()
    if r < 0.12:
        why = src.pick(["not found", "no connection", "access denied", "invalid value", "timeout", "already exists", "service is down"])
        form = src.pick(['{{"error": "{w}"}}', "Error: {w}", '{{"status": "error", "message": "{w}"}}', "error: {w}"])
        return form.format(w=why), f"The tool reported an error: {why}.", f"The tool failed: {why}."
    if r < 0.3:
        text = phrase(src) if src.chance(0.5) else f"{src.pick(W.ADJECTIVES)}, {src.number(1, 99)}"
        return text, f"The result is: {text}.", "The tool gave a text."
    if r < 0.42:
        done = src.pick(["ok", "done", "success", '{"status": "ok"}', '{"success": true}', '{"ok": true}', "OK"])
        return done, "Done.", "The tool has done it."
    values = {}
    for key in src.sample(list(RESULTS), src.number(1, 4)):
        values[key] = RESULTS[key](src)
    facts = W.listing([f"the {k} is {v}" for k, v in values.items()])
    return json.dumps(values, ensure_ascii=False), W.capital(facts) + ".", "The tool says that " + facts + "."


def request(src: Source, tools: list[Tool], parallel: bool) -> tuple[str, list[dict]] | None:
    """A request that belongs to the split: held out by values, whatever tool and wording carry them."""
    def draw():
        text, c = call(src, src.pick(tools))
        calls = [c]
        if parallel:
            text2, c2 = call(src, src.pick(tools))
            text = text + " " + src.pick(["Then ", "Also ", "And "]) + text2[0].lower() + text2[1:]
            calls.append(c2)
        return "tool|" + json.dumps([c["arguments"] for c in calls], sort_keys=True), (text, calls)
    for _ in range(200):
        key, (text, calls) = draw()
        has_values = any(c["arguments"] for c in calls)
        # a call without values has nothing to hold out: it is for training only
        if src.wants(key) if has_values else src.split == "train":
            return text, calls
    return None


def single_call(src: Source) -> Item:
    """One request to one of a few usual tools."""
    tools = make_tools(src, src.number(1, 3), usual_only=True)
    asked = request(src, tools, parallel=False)
    if asked is None:
        return single_call(src)
    text, calls = asked
    style = (src.chance(0.6), src.chance(0.2), src.chance(0.7))
    item = Item("tool", [user(text), assistant("", call_reasoning(calls), calls)], tools=[t.schema(*style) for t in tools],
                prompt_weight=0.05, answer_weight=1.5)
    return dress(src, item, thinking=0.6, system=0.35)


def session(src: Source, small_talk, parallel: float = 0.12) -> Item:
    """A conversation with tools: calls, results, answers, sometimes a turn that needs no tool. parallel: share of requests
    that ask for two things at once."""
    n = src.pick([1, 1, 2, 2, 3, 3, 4, 5, 6])
    tools = make_tools(src, n, usual_only=src.split != "wording" and src.chance(0.35))
    style = (src.chance(0.6), src.chance(0.2), src.chance(0.7))
    messages: list[dict] = []
    for _ in range(src.pick([1, 1, 2, 3, 4, 5])):
        if src.chance(0.15):
            t = small_talk(src)
            messages += [user(t.question), assistant(t.answer, t.reasoning)]
            continue
        asked = request(src, tools, src.chance(parallel))
        if asked is None:  # these tools take no values that could be held out
            return session(src, small_talk, parallel)
        text, calls = asked
        messages += [user(text), assistant("", call_reasoning(calls), calls)]
        if src.chance(0.85):
            outputs = [result(src) for _ in calls]
            messages += [{"role": "tool", "content": o[0]} for o in outputs]
            messages.append(assistant(" ".join(o[1] for o in outputs), " ".join(o[2] for o in outputs)))
        else:
            break
    item = Item("tool", messages, tools=[t.schema(*style) for t in tools], prompt_weight=0.05, answer_weight=1.5)
    return dress(src, item, thinking=0.6, system=0.35)
