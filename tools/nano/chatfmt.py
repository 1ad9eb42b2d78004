"""Renders a conversation into control tokens and text exactly as the server's chat encoder does.

Supports what the training data uses: system, user, assistant (with reasoning and tool calls) and tool messages, both
modes, efforts, tools and a JSON response format. `check_format.py` compares it with frozen cases of the official
encoder.
"""
from __future__ import annotations

import json
from dataclasses import dataclass

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK, DSML = "<think>", "</think>", "｜DSML｜"

# Control tokens of nano's vocabulary with the released spellings; ids are given out in this order after the merges.
CONTROL = [
    SYSTEM, USER, ASSISTANT, THINK, END_THINK, DSML, "<｜latest_reminder｜>", "<｜action｜>", "<｜query｜>",
    "<｜authority｜>", "<｜domain｜>", "<｜title｜>", "<｜read_url｜>", "<｜extracted_url｜>", "<｜deepseek_image｜>",
    "<｜ref｜>", "<｜/ref｜>", "<｜box｜>", "<｜/box｜>", "<｜point｜>", "<｜/point｜>", "<｜polygon｜>", "<｜/polygon｜>",
]

EFFORT_LINE = "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
# The wire text of the tools block; D stands for the DSML token.
TOOLS_TEXT = """## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<D calls>" block like the following:

<D calls>
<D invoke name="$TOOL_NAME">
<D parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</D parameter>
...
</D invoke>
<D invoke name="$TOOL_NAME2">
...
</D invoke>
</D calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <T>), you MUST output your complete reasoning inside <T>...</T> BEFORE any tool calls or final response.

Otherwise, output directly after </T> with tool calls or final response.

### Available Tool Schemas

"""
TOOLS_END = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
FORMAT_TEXT = "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"


@dataclass
class Piece:
    """A control token, or a run of text; answer = written by the assistant (None: it is the given header)."""
    text: str
    control: bool = False
    answer: bool = False
    turn: int = -1              # which assistant message


def dumps(value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _split(text: str, marks: dict[str, str], **kw) -> list[Piece]:
    """Text in which some marks stand for control tokens -> pieces."""
    pieces = [Piece(text, **kw)]
    for mark, token in marks.items():
        out = []
        for piece in pieces:
            if piece.control:
                out.append(piece)
                continue
            for i, part in enumerate(piece.text.split(mark)):
                if i:
                    out.append(Piece(token, True, piece.answer, piece.turn))
                out.append(Piece(part, False, piece.answer, piece.turn))
        pieces = out
    return pieces


def tools_pieces(tools: list[dict]) -> list[Piece]:
    """tools: OpenAI function objects; only name, description and parameters reach the prompt."""
    lines = [dumps({"name": t["name"], "description": t.get("description") or "",
                    "parameters": t.get("parameters") or {}}) for t in tools]
    head = _split(TOOLS_TEXT, {"<D ": "<\0 ", "</D ": "</\0 "})
    head = _split("".join(p.text for p in head), {"\0": DSML, "<T>": THINK, "</T>": END_THINK})
    return [*head, Piece("\n".join(lines) + TOOLS_END)]


def call_pieces(calls: list[dict], turn: int) -> list[Piece]:
    """calls: {"name", "arguments": dict} -> the block that invokes them."""
    out = ["\n\n<\0 calls>\n"]
    for call in calls:
        out.append(f'<\0 invoke name="{call["name"]}">\n')
        out.append("\n".join(
            f'<\0 parameter name="{k}" string="{"true" if isinstance(v, str) else "false"}">'
            f'{v if isinstance(v, str) else dumps(v)}</\0 parameter>' for k, v in call["arguments"].items()))
        out.append("\n</\0 invoke>\n")
    out.append("</\0 calls>")
    return _split("".join(out), {"\0": DSML}, answer=True, turn=turn)


def _merged(messages: list[dict]) -> list[dict]:
    """Tool results and user texts in a row become one user message with parts in order."""
    out: list[dict] = []
    for m in messages:
        if m["role"] in ("user", "tool"):
            text = m["content"] if m["role"] == "user" else f"<tool_result>{m['content']}</tool_result>"
            if out and out[-1]["role"] == "user":
                out[-1]["parts"].append(text)
            else:
                out.append({"role": "user", "parts": [text]})
        else:
            out.append(m)
    return out


def render(messages: list[dict], thinking: bool = False, effort: int = 75, tools: list[dict] | None = None,
           response_format: dict | None = None, generate: bool = False) -> list[Piece]:
    """The whole conversation. With `generate`, ends with the header after which the model answers.

    Without a tools block, reasoning of all but a final assistant message is left out, as it is when the server renders
    that message's prompt; a final assistant message is rendered as the model would have written it."""
    messages = list(messages)
    if (tools or response_format) and (not messages or messages[0]["role"] != "system"):
        messages.insert(0, {"role": "system", "content": ""})
    messages = _merged(messages)
    out = [Piece(BOS, True)]
    if thinking or messages[0]["role"] == "system":
        out.append(Piece(SYSTEM, True))
    if thinking:
        out.append(Piece(EFFORT_LINE.format(effort)))
    turn = 0
    for i, m in enumerate(messages):
        if m["role"] == "system":
            if i:
                out.append(Piece(SYSTEM, True))
            out.append(Piece(m["content"]))
            if i == 0 and tools:
                out += [Piece("\n\n"), *tools_pieces(tools)]
            if i == 0 and response_format:
                out.append(Piece("\n\n" + FORMAT_TEXT + dumps(response_format)))
        elif m["role"] == "user":
            out += [Piece(USER, True), Piece("\n\n".join(m["parts"]))]
        else:
            last = i + 1 == len(messages) and not generate
            reasoning = thinking and (last or bool(tools))
            out += [Piece(ASSISTANT, True), Piece(THINK if reasoning else END_THINK, True)]
            if reasoning:
                out += [Piece(m.get("reasoning", ""), False, True, turn), Piece(END_THINK, True, True, turn)]
            out.append(Piece(m.get("content") or "", False, True, turn))
            if m.get("calls"):
                out += call_pieces(m["calls"], turn)
            out.append(Piece(EOS, True, True, turn))
            turn += 1
    if generate:
        out += [Piece(ASSISTANT, True), Piece(THINK if thinking else END_THINK, True)]
    return joined(out)


def joined(pieces: list[Piece]) -> list[Piece]:
    """Joins neighbouring text: a maximal run between control tokens is encoded as a whole."""
    out: list[Piece] = []
    for p in pieces:
        if not p.control and out and not out[-1].control and out[-1].answer == p.answer:
            out[-1] = Piece(out[-1].text + p.text, False, p.answer, p.turn)
        elif p.text:
            out.append(p)
    return out


def prompt_text(pieces: list[Piece]) -> str:
    return "".join(p.text for p in pieces)
