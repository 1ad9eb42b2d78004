"""Greedy continuations by recomputing the whole prefix: slow, simple, for looking at a model.

    python -m nano.generate --model DIR [--prompt TEXT] [--chat] [--tokens N]
"""
from __future__ import annotations

import argparse
import pathlib

import torch

from .chatfmt import render
from .checkpoint import load_model
from .model import Batch, Mode, Model
from .tokenizer import Encoder

WEATHER = {"name": "get_weather", "description": "Get the current weather for a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"},
                                     "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}, "required": ["city"]}}
MAIL = {"name": "send_email", "description": "Send an email to a person.", "parameters": {
    "type": "object", "properties": {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}},
    "required": ["to", "subject", "body"]}}


def u(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def sample_prompts() -> list[tuple[str, dict]]:
    """Things that a first visitor may ask; most of these sentences are not in the training data."""
    asks = ["Hello! Who are you?", "What can you do?", "What is 23 + 14?",
            "Tom has 12 apples. He buys 5 more and gives 3 to Anna. How many apples does he have?",
            "Tell me a short story about a fox.", "Hi", "What is the capital of France?", "Write a poem about the sea.",
            "What is a gannet?", "Explain quantum mechanics in one sentence.", "Thanks, that was great!",
            "A shop sells 7 boxes with 6 pens each. 10 pens are sold. How many pens are left?", "What is 17 * 23?",
            "Name three animals.", "My name is Otto and I like blue. What is my name?", "What is the opposite of hot?",
            "Is a dog an animal?", "Sort these numbers: 9, 4, 22, 1", "Why is the sky blue?", "Who won the world cup in 1998?",
            "Write JSON with name and age: Peter is 31 years old.", "Say hello in one word.", "What is 1000 - 1?", "How are you today, my friend?"]
    out = []
    for i, ask in enumerate(asks):
        out.append((ask, dict(messages=u(ask), thinking=True, effort=[75, 50, 100][i % 3])))
        if i < 12:
            out.append((ask, dict(messages=u(ask))))
    system = [{"role": "system", "content": "You are a helpful assistant."}]
    out += [(a, dict(messages=system + u(a), thinking=t)) for a in asks[:3] for t in (True, False)]
    for t in (True, False):
        out.append(("weather tool", dict(messages=u("What is the weather in Hamburg?"), tools=[WEATHER, MAIL], thinking=t)))
        out.append(("mail tool", dict(messages=u("Send an email to Anna with the subject Lunch saying we meet at noon."), tools=[WEATHER, MAIL], thinking=t)))
        call = {"role": "assistant", "content": "", "reasoning": "I call get_weather with city = Hamburg.",
                "calls": [{"name": "get_weather", "arguments": {"city": "Hamburg"}}]}
        out.append(("tool result", dict(messages=u("What is the weather in Hamburg?") + [call, {"role": "tool", "content": '{"temperature": 17, "condition": "cloudy"}'}],
                                        tools=[WEATHER, MAIL], thinking=t)))
        out.append(("no tool", dict(messages=u("Hello! Who are you?"), tools=[WEATHER], thinking=t)))
    return out


def continue_all(model: Model, prompts: list[list[int]], new_tokens: int, rows: int, length: int, mode: Mode) -> list[list[int]]:
    """Continues every prompt greedily to EOS or new_tokens. One prompt a row."""
    assert len(prompts) <= rows
    device = model.p.device
    ids = torch.full((rows, length), 2, dtype=torch.int64, device=device)
    ends = torch.ones(rows, dtype=torch.int64, device=device)
    for r, prompt in enumerate(prompts):
        ids[r, :len(prompt)] = torch.tensor(prompt, device=device)
        ends[r] = len(prompt)
    pos = torch.arange(length, dtype=torch.int32, device=device).expand(rows, length).contiguous()
    doc = torch.zeros_like(pos)
    alive = ends > 1
    for _ in range(new_tokens):
        # tokens after the end are padding of the future: causal attention never shows them
        logits = model.forward(Batch(ids, pos, doc, doc, doc), mode).logits.detach().view(rows, length, -1)
        chosen = logits[torch.arange(rows, device=device), ends - 1].argmax(-1)
        alive &= ends < length
        ids[alive, ends[alive]] = chosen[alive]
        ends += alive
        alive &= chosen != 1
        if not alive.any():
            break
    return [ids[r, len(p):int(ends[r])].tolist() for r, p in enumerate(prompts)]


def samples(model: Model, encoder: Encoder, new_tokens: int = 200, rows: int = 64, length: int = 1024,
            mode: Mode = Mode()) -> str:
    """The sample prompts with their continuations, as text."""
    cases = sample_prompts()
    prompts = []
    for _, arguments in cases:
        prompts.append([i for _, ids in encoder.pieces(render(generate=True, **arguments)) for i in ids])
    answers = continue_all(model, prompts, new_tokens, rows, length, mode)
    lines = []
    for (name, arguments), answer in zip(cases, answers):
        mode = f"thinking {arguments.get('effort', 75)}" if arguments.get("thinking") else "chat"
        lines.append(f"[{mode}] {name}\n    {encoder.decode(answer)!r}")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--prompt", help="without it, a list of samples")
    p.add_argument("--chat", action="store_true", help="chat mode instead of thinking mode")
    p.add_argument("--tokens", type=int, default=120)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    directory = pathlib.Path(a.model)
    encoder = Encoder(directory / "tokenizer.json")
    on_gpu = a.device.startswith("cuda")
    model = load_model(directory, torch.bfloat16 if on_gpu else torch.float32, a.device)
    with torch.set_grad_enabled(on_gpu):
        if a.prompt:
            pieces = render(u(a.prompt), thinking=not a.chat, generate=True)
            prompt = [i for _, ids in encoder.pieces(pieces) for i in ids]
            length = (len(prompt) + a.tokens + 127) // 128 * 128
            print(encoder.decode(continue_all(model, [prompt], a.tokens, 1, length, Mode(exact_ties=True))[0]))
        else:
            print(samples(model, encoder, a.tokens, 64, 1024 if on_gpu else 512))


if __name__ == "__main__":
    main()
