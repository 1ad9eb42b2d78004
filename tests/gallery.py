#!/usr/bin/env python3
"""The gallery of README.md: five exchanges with nano, asked of a running server at temperature 0.

    tests/gallery.py [--gannet build/gannet]             # prints it
    tests/gallery.py --write                             # and puts it between README.md's two gallery comments

Other processors round otherwise in the last place, so now and then a word differs there; no test compares.
"""

import json
import pathlib
import random
import sys
import textwrap
import urllib.request

from gannet_process import PATIENCE, ROOT, Server, parse_arguments

MARKS = ("<!-- gallery: made by tests/gallery.py --write -->\n", "<!-- end of gallery -->\n")
WIDTH = 110
INDENT = " " * 8  # behind the speaker
DOCUMENT_LINES = 120

WEATHER = {
    "name": "get_weather",
    "description": "Current weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
MAIL = {
    "name": "send_mail",
    "description": "Send a mail to somebody",
    "parameters": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "subject": {"type": "string"}},
        "required": ["to", "subject"],
    },
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "city": {"type": "string"},
    },
    "required": ["name", "age", "city"],
}


def document(fact):
    """A fact in the middle of lines about other people and things."""
    lines = (ROOT / "models" / "nano" / "eval" / "lines.txt").read_text().splitlines()
    lines = random.Random(7).sample([line for line in lines if "Rosa" not in line], DOCUMENT_LINES)
    lines.insert(len(lines) // 3, fact)
    return "\n".join(lines)


def say(content):
    return [{"role": "user", "content": content}]


class Gallery:
    def __init__(self, url):
        self.url = url

    def ask(self, messages, **options):
        body = json.dumps({"messages": messages, "temperature": 0, **options}).encode()
        request = urllib.request.Request(self.url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            answer = json.load(response)
        return answer["choices"][0]["message"], answer["usage"]["prompt_tokens"]

    def plain(self, title, text, **options):
        message, _ = self.ask(say(text), **options)
        return [f"**{title}**", *block(("user", text), *spoken(message))]

    def recall(self):
        fact, question = "The phone number of Rosa Bond is 974 858.", "Tell me the phone number of Rosa Bond."
        message, tokens = self.ask(say(f"Keep the following in mind.\n\n{document(fact)}\n\n{question}"))
        shown = f"Keep the following in mind. … {fact} … {question}"
        return [f"**A fact out of {tokens:,} tokens** (the window holds 128)", *block(("user", shown), *spoken(message))]

    def tools(self):
        messages = say("What is the weather in Lisbon?")
        options = {"tools": [{"type": "function", "function": tool} for tool in (MAIL, WEATHER)]}
        call, _ = self.ask(messages, **options)
        lines = [("user", messages[0]["content"]), *spoken(call)]
        if call.get("tool_calls"):
            result = '{"temperature": 21, "condition": "sunny"}'
            messages += [call, {"role": "tool", "tool_call_id": call["tool_calls"][0]["id"], "content": result}]
            answer, _ = self.ask(messages, **options)
            lines += [("tool", result), *spoken(answer)]
        return ["**A tool call** (`send_mail` and `get_weather` are declared)", *block(*lines)]

    def structure(self):
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
        text = "This is Anna, 31 years old, from Paris."
        return self.plain("JSON by a schema", text, response_format=form)

    def markdown(self):
        parts = [
            self.plain("A sum", "Lena has 14 boxes with 23 shells each. She gives 57 shells away. How many are left?"),
            self.recall(),
            self.tools(),
            self.structure(),
            self.plain("A story", "Tell me a short story about a seal.", thinking={"type": "disabled"}),
        ]
        return "\n\n".join("\n".join(part) for part in parts) + "\n"


def spoken(message):
    """What an assistant's message says, as pairs of speaker and text."""
    if message.get("reasoning_content"):
        yield "thinks", message["reasoning_content"]
    for call in message.get("tool_calls") or []:
        yield "calls", f"{call['function']['name']}({call['function']['arguments']})"
    if message.get("content"):
        yield "nano", message["content"]


def wrapped(text):
    """Long lines broken between words; the text's own line breaks stay."""
    return [part for line in text.splitlines() for part in textwrap.wrap(line, WIDTH - len(INDENT)) or [""]]


def block(*pairs):
    return ["", "```", *(f"{who + ':':8}" + ("\n" + INDENT).join(wrapped(text)) for who, text in pairs), "```"]


def main():
    options, rest = parse_arguments(__doc__)
    server = Server(options.gannet, options.model)
    text = Gallery(server.url).markdown()
    server.stop()
    sys.stdout.write(text)
    if "--write" in rest:
        readme = pathlib.Path(ROOT / "README.md")
        before, old = readme.read_text().split(MARKS[0])
        readme.write_text(before + MARKS[0] + "\n" + text + "\n" + MARKS[1] + old.split(MARKS[1])[1])


if __name__ == "__main__":
    main()
