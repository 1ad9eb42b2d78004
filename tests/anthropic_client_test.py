#!/usr/bin/env python3
"""The official Anthropic client, unchanged, against `gannet serve`.

usage: anthropic_client_test.py [--gannet build/gannet] [--model nano] [unittest arguments]

Works with any checkpoint: it judges the protocol, not what the model says.
"""

import asyncio
import json
import sys
import unittest

import anthropic
from gannet_process import PATIENCE, Server, parse_arguments, run_tests

KEY = "test-key"
HI = [{"role": "user", "content": "Say hello."}]
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
NO_THINKING = {"type": "disabled"}
THINKING = {"type": "enabled", "budget_tokens": 1024}
TOOLS = [
    {
        "name": "get_weather",
        "description": "The weather in a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]
GREEDY = {"temperature": 0}  # the client has no argument for it any more


def arguments_of(**arguments):
    return {
        "model": "m",
        "messages": HI,
        "max_tokens": 20,
        "thinking": NO_THINKING,
        "extra_body": GREEDY,
        **arguments,
    }


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def types_of(message):
    return [block.type for block in message.content]


class AnthropicClientTest(unittest.TestCase):
    server = None
    model = None

    @classmethod
    def setUpClass(cls):
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key=KEY, max_retries=0, timeout=PATIENCE)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def ask(self, **arguments):
        return self.client.messages.create(**arguments_of(**arguments))

    def ask_streaming(self, **arguments):
        """The events, as the client gives them, and the message that it made of them."""
        with self.client.messages.stream(**arguments_of(**arguments)) as stream:
            return list(stream), stream.get_final_message()

    def assert_same(self, left, right):
        """Equal but for what is new with each answer: ids, and how much the cache had."""

        def content(message):
            return [block.to_dict() | {"id": "", "signature": ""} for block in message.content]

        self.assertEqual(content(left), content(right))
        self.assertEqual(left.stop_reason, right.stop_reason)
        self.assertEqual(left.stop_sequence, right.stop_sequence)
        self.assertEqual(left.usage.output_tokens, right.usage.output_tokens)

    def test_message(self):
        message = self.ask()
        self.assertTrue(message.id.startswith("msg_"))
        self.assertEqual((message.type, message.role, message.model), ("message", "assistant", "m"))
        self.assertLessEqual(set(types_of(message)), {"text"})
        self.assertIn(message.stop_reason, ("end_turn", "max_tokens"))
        self.assertIsNone(message.stop_sequence)
        self.assertGreater(message.usage.input_tokens + message.usage.cache_read_input_tokens, 0)
        self.assertLessEqual(message.usage.output_tokens, 20)
        self.assertTrue(message._request_id)

    def test_stream_equals_whole(self):
        whole = self.ask()
        events, final = self.ask_streaming()
        self.assert_same(final, whole)
        types = [event.type for event in events]
        self.assertEqual(types[0], "message_start")
        self.assertEqual(types[-2:], ["message_delta", "message_stop"])
        self.assertEqual("".join(event.text for event in events if event.type == "text"), text_of(whole))
        raw = self.client.messages.create(**arguments_of(stream=True))
        deltas = [event.delta.text for event in raw if event.type == "content_block_delta"]
        self.assertEqual("".join(deltas), text_of(whole))

    def test_thinking(self):
        whole = self.ask(thinking=THINKING, max_tokens=60)
        self.assertEqual(types_of(whole)[0], "thinking")
        self.assertTrue(whole.content[0].signature)
        events, final = self.ask_streaming(thinking=THINKING, max_tokens=60)
        self.assert_same(final, whole)
        self.assertTrue(final.content[0].signature)
        thoughts = [event.thinking for event in events if event.type == "thinking"]
        self.assertEqual("".join(thoughts), whole.content[0].thinking)
        self.assertNotIn("thinking", types_of(self.ask(thinking=NO_THINKING)))
        adaptive = self.ask(thinking={"type": "adaptive"}, output_config={"effort": "low"}, max_tokens=1)
        self.assertEqual(adaptive.stop_reason, "max_tokens")

    def test_thinking_goes_back_and_forth(self):
        first = self.ask(thinking=THINKING, max_tokens=60)
        history = HI + [{"role": "assistant", "content": first.content or "Hello."}] + HI
        second = self.ask(thinking=THINKING, messages=history)
        self.assertIsNotNone(second.stop_reason)

    def test_tools(self):
        """nano has learnt to call; of a checkpoint of random numbers only the stream is judged."""
        for thinking in (THINKING, NO_THINKING):
            wanted = {"messages": QUESTION, "tools": TOOLS, "thinking": thinking, "max_tokens": 200}
            whole = self.ask(**wanted)
            events, final = self.ask_streaming(**wanted)
            self.assert_same(final, whole)
            pieces = [event.partial_json for event in events if event.type == "input_json"]
            calls = [block for block in whole.content if block.type == "tool_use"]
            self.assertEqual(bool(pieces), bool(calls))
            if self.model == "nano":
                self.assertEqual(whole.stop_reason, "tool_use")
                self.assertEqual([(call.name, call.input) for call in calls], [("get_weather", {"city": "Oslo"})])

    def test_forced_tool(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
            message = self.ask(tools=TOOLS, tool_choice=choice, max_tokens=300)
            if message.stop_reason == "tool_use":
                self.assertEqual(message.content[-1].name, "get_weather")
                self.assertIsInstance(message.content[-1].input["city"], str)
            else:  # a call that never ended
                self.assertEqual(message.stop_reason, "max_tokens")
        message = self.ask(messages=QUESTION, tools=TOOLS, tool_choice={"type": "none"})
        self.assertNotIn("tool_use", types_of(message))

    def test_tool_results(self):
        first = self.ask(messages=QUESTION, tools=TOOLS, thinking=THINKING, max_tokens=200)
        content = [block for block in first.content if block.type != "tool_use"]
        call = next((block for block in first.content if block.type == "tool_use"), None)
        if call is None:
            call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}
        call_id = call["id"] if isinstance(call, dict) else call.id
        for result in ("rain", [{"type": "text", "text": "rain"}]):
            block = {"type": "tool_result", "tool_use_id": call_id, "content": result, "is_error": False}
            history = QUESTION + [{"role": "assistant", "content": [*content, call]}, {"role": "user", "content": [block]}]
            second = self.ask(messages=history, tools=TOOLS, thinking=THINKING, max_tokens=100)
            self.assertIn(second.stop_reason, ("end_turn", "max_tokens", "tool_use"))
            self.assertGreater(second.usage.cache_read_input_tokens, 0)

    def test_tool_result_without_its_call(self):
        block = {"type": "tool_result", "tool_use_id": "toolu_unknown", "content": "rain"}
        with self.assertRaises(anthropic.BadRequestError) as raised:
            self.ask(messages=[{"role": "user", "content": [block]}], tools=TOOLS)
        self.assertIn("tool_use_id", raised.exception.message)

    def test_system(self):
        plain = self.client.messages.count_tokens(model="m", messages=HI).input_tokens
        marked = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
        blocks = self.client.messages.count_tokens(model="m", messages=HI, system=[marked]).input_tokens
        text = self.client.messages.count_tokens(model="m", messages=HI, system="Be brief.").input_tokens
        self.assertGreater(text, plain)
        self.assertEqual(blocks, text)
        several = [marked, {"type": "text", "text": "Answer in English."}]
        self.assertIsNotNone(self.ask(system=several).stop_reason)

    def test_count_tokens(self):
        wanted = {"messages": QUESTION, "tools": TOOLS, "system": "Be brief.", "thinking": THINKING}
        counted = self.client.messages.count_tokens(model="m", **wanted).input_tokens
        usage = self.ask(**wanted, max_tokens=1).usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)

    def test_cached_tokens(self):
        long = [{"role": "user", "content": "one two three four five " * 100}]
        first = self.ask(messages=long, max_tokens=1).usage
        second = self.ask(messages=long, max_tokens=1).usage
        self.assertGreater(second.cache_read_input_tokens, 0)
        self.assertEqual(
            first.input_tokens + first.cache_read_input_tokens, second.input_tokens + second.cache_read_input_tokens
        )

    def test_stop_sequences(self):
        whole = text_of(self.ask())
        stop = whole[len(whole) // 2 :][:1]
        if not stop.strip():
            stop = whole.strip()[:1]
        message = self.ask(stop_sequences=[stop])
        self.assertEqual(text_of(message), whole[: whole.index(stop)])
        self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", stop))
        _, final = self.ask_streaming(stop_sequences=[stop])
        self.assert_same(final, message)

    def test_max_tokens(self):
        message = self.ask(max_tokens=3, extra_body={**GREEDY, "ignore_eos": True})
        self.assertEqual((message.stop_reason, message.usage.output_tokens), ("max_tokens", 3))

    def test_structured_output(self):
        schema = {
            "type": "object",
            "properties": {"sunny": {"type": "boolean"}, "wind": {"enum": ["none", "some"]}},
            "required": ["sunny", "wind"],
            "additionalProperties": False,
        }
        question = [{"role": "user", "content": "The weather, as JSON."}]
        wanted = {"format": {"type": "json_schema", "schema": schema}}
        message = self.ask(messages=question, output_config=wanted, max_tokens=200)
        if message.stop_reason == "end_turn":
            answer = json.loads(text_of(message))
            self.assertEqual(list(answer), ["sunny", "wind"])
            self.assertIsInstance(answer["sunny"], bool)
            self.assertIn(answer["wind"], ("none", "some"))
        elif self.model == "nano":
            self.fail(message)

    def test_bad_requests(self):
        for wrong, part in (
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
            ({"max_tokens": -1}, "max_tokens"),
            ({"extra_body": {"temperature": 9}}, "temperature"),
            ({"stop_sequences": [""]}, "stop_sequences[0]"),
            ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
            ({"thinking": {"type": "perhaps"}}, "thinking.type"),
        ):
            for stream in (False, True):
                with self.subTest(wrong=wrong, stream=stream), self.assertRaises(anthropic.BadRequestError) as raised:
                    self.ask(stream=stream, **wrong)
                self.assertEqual(raised.exception.body["type"], "error")
                self.assertEqual(raised.exception.type, "invalid_request_error")
                self.assertIn(part, raised.exception.body["error"]["message"])
                self.assertEqual(raised.exception.body["request_id"], raised.exception.request_id)

    def test_too_long(self):
        limit = self.client.models.list().data[0].max_model_len
        with self.assertRaises(anthropic.BadRequestError) as raised:
            self.ask(messages=[{"role": "user", "content": "a " * limit}])
        self.assertRegex(raised.exception.body["error"]["message"], rf"prompt is too long: \d+ tokens > {limit} maximum")

    def test_unknown_model(self):
        with self.assertRaises(anthropic.NotFoundError) as raised:
            self.ask(model="claude")
        self.assertEqual(raised.exception.type, "not_found_error")
        self.assertEqual(self.ask(model="alias", max_tokens=1).type, "message")

    def test_authentication(self):
        with anthropic.Anthropic(base_url=self.server.url, api_key="wrong", max_retries=0) as stranger:
            with self.assertRaises(anthropic.AuthenticationError) as raised:
                stranger.messages.create(**arguments_of())
        self.assertEqual(raised.exception.type, "authentication_error")
        with anthropic.Anthropic(base_url=self.server.url, auth_token=KEY, max_retries=0) as bearer:
            self.assertEqual(bearer.messages.create(**arguments_of(max_tokens=1)).type, "message")

    def test_cancellation(self):
        """A stream that the client leaves must not keep the engine busy."""
        endless = arguments_of(max_tokens=60_000, extra_body={"ignore_eos": True})
        with self.client.messages.stream(**endless) as stream:
            for event in stream:
                if event.type == "content_block_delta":
                    break
        self.assertTrue(self.server.is_idle())
        self.assertEqual(self.ask(max_tokens=1).type, "message")

    def test_async_clients_at_once(self):
        async def run():
            client = anthropic.AsyncAnthropic(base_url=self.server.url, api_key=KEY, max_retries=0, timeout=PATIENCE)
            async with client:
                return await asyncio.gather(*[client.messages.create(**arguments_of(max_tokens=4)) for _ in range(20)])

        messages = asyncio.run(run())
        self.assertEqual(len({text_of(message) for message in messages}), 1)


def main():
    options, argv = parse_arguments(__doc__)
    names = ["--served-model-name", "m", "--served-model-name", "alias"]
    server = Server(options.gannet, options.model, "--api-key", KEY, *names)
    AnthropicClientTest.server = server
    AnthropicClientTest.model = options.model
    failed = run_tests(f"anthropic client {anthropic.__version__}", argv)
    status, log = server.stop()
    if status != 0:
        print(f"the server ended with status {status}:\n{log}", file=sys.stderr)
    return 1 if failed or status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
