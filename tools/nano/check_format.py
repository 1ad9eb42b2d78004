"""Compares chatfmt with frozen cases of the official chat encoder.

    python -m nano.check_format --cases chat_encode.jsonl

Each line of the file holds a request body and the prompt it must become. Requests outside the supported subset
(images, prefixes, reminders, strict schemas, several system messages, ...) are counted and skipped.
"""
from __future__ import annotations

import argparse
import json
import re

from .chatfmt import prompt_text, render

KNOWN = {"model", "messages", "tools", "thinking", "reasoning_effort", "response_format", "stream", "max_tokens",
         "temperature", "top_p", "seed", "tool_choice"}


# Numbers beyond 64 bits, signed zeros, lone surrogates and billing lines get special treatment that no training
# conversation needs.
SPECIAL = re.compile(r"\d{17}|-0\b|NaN|Infinity|\\\\ud8|\\u0000|billing-header")


class Unsupported(Exception):
    pass


def plain_content(content) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    raise Unsupported("content parts")


def convert(case: dict) -> dict:
    """A Chat Completions body -> arguments of render()."""
    body = json.loads(case["body"])
    if SPECIAL.search(case["body"]):
        raise Unsupported("special value")
    if case.get("opts", {}).keys() - {"default_thinking"} or body.keys() - KNOWN or case.get("encoder") == "v4":
        raise Unsupported("options")
    messages, order = [], {}
    for i, m in enumerate(body["messages"]):
        if m["role"] == "system":
            if i or not plain_content(m["content"]):
                raise Unsupported("system")
            messages.append({"role": "system", "content": plain_content(m["content"])})
        elif m["role"] == "user":
            messages.append({"role": "user", "content": plain_content(m["content"])})
        elif m["role"] == "tool":
            messages.append({"role": "tool", "content": plain_content(m["content"]), "id": m["tool_call_id"]})
        elif m["role"] == "assistant" and not m.keys() - {"role", "content", "reasoning_content", "tool_calls"}:
            calls = []
            for n, call in enumerate(m.get("tool_calls") or []):
                order[call["id"]] = n
                arguments = json.loads(call["function"]["arguments"])
                if not isinstance(arguments, dict):
                    raise Unsupported("arguments")
                calls.append({"name": call["function"]["name"], "arguments": arguments})
            messages.append({"role": "assistant", "content": plain_content(m.get("content")), "calls": calls,
                             "reasoning": m.get("reasoning_content") or ""})
        else:
            raise Unsupported(m["role"])
    tools = []
    for t in body.get("tools") or []:
        if t.get("type") != "function" or t["function"].get("strict") or "namespace" in t:
            raise Unsupported("tool kind")
        tools.append(t["function"])
    if body.get("tool_choice", "auto") != "auto":
        raise Unsupported("tool choice")
    form = body.get("response_format")
    if form and form["type"] not in ("json_object", "text"):
        raise Unsupported("response format")
    ids = [m.get("id") for m in messages if m["role"] == "tool"]
    if [order.get(i, 0) for i in ids] != list(range(len(ids))) and len(ids) > 1:
        raise Unsupported("unsorted results")
    effort = {None: 75, "high": 75, "max": 100, "low": 50}[case.get("effort")]
    return dict(messages=messages, thinking=case["thinking"], effort=effort, tools=tools,
                response_format=form if form and form["type"] == "json_object" else None)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cases", required=True)
    a = p.parse_args()
    same = different = skipped = 0
    for line in open(a.cases, encoding="utf-8"):
        case = json.loads(line)
        if case["api"] != "chat" or not case["ok"]:
            continue
        try:
            arguments = convert(case)
        except (Unsupported, KeyError, ValueError, TypeError):
            skipped += 1
            continue
        got = prompt_text(render(generate=True, **arguments))
        if got == case["prompt"]:
            same += 1
        else:
            different += 1
            print(f"{case['id']}:\n  want {case['prompt'][-300:]!r}\n  got  {got[-300:]!r}")
    print(f"{same} equal, {different} different, {skipped} outside the subset")
    raise SystemExit(1 if different or not same else 0)


if __name__ == "__main__":
    main()
