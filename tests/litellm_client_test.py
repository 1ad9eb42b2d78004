#!/usr/bin/env python3
"""LiteLLM, unchanged, against `gannet serve`, by each of its ways to a server like this one.

usage: litellm_client_test.py [--gannet build/gannet] [--model nano] [unittest arguments]

Works with any checkpoint: it judges the protocol, not what the model says.
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import asks the network

import litellm
from gannet_process import PATIENCE, Server, parse_arguments, run_tests

litellm.suppress_debug_info = True
litellm.telemetry = False

KEY = "test-key"
HI = [{"role": "user", "content": "Say hello."}]
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
LONG = [{"role": "user", "content": "one two three four five " * 100}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


class ProviderTests:
    """What every provider must do; `provider` and `base` say which one, and behind what address."""

    provider = None
    base = ""
    server = None
    model = None

    def arguments(self, model="m", **arguments):
        return {
            "model": f"{self.provider}/{model}",
            "api_base": self.server.url + self.base,
            "api_key": KEY,
            "messages": HI,
            "max_tokens": 20,
            "temperature": 0,
            "timeout": PATIENCE,
            "max_retries": 0,
            **arguments,
        }

    def ask(self, **arguments):
        return litellm.completion(**self.arguments(**arguments))

    def ask_streaming(self, **arguments):
        """The chunks, put together as LiteLLM does it for its users."""
        arguments = self.arguments(stream=True, stream_options={"include_usage": True}, **arguments)
        chunks = list(litellm.completion(**arguments))
        return litellm.stream_chunk_builder(chunks, messages=arguments["messages"])

    def test_completion(self):
        answer = self.ask()
        message = answer.choices[0].message
        self.assertEqual((answer.object, answer.model, message.role), ("chat.completion", "m", "assistant"))
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertTrue(message.content or message.reasoning_content)
        self.assertGreater(answer.usage.prompt_tokens, 0)
        self.assertLessEqual(answer.usage.completion_tokens, 20)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)

    def test_stream_equals_whole(self):
        whole = self.ask()
        streamed = self.ask_streaming()
        for name in ("content", "reasoning_content"):
            left, right = (getattr(answer.choices[0].message, name, None) or "" for answer in (streamed, whole))
            self.assertEqual(left, right, name)
        self.assertEqual(streamed.choices[0].finish_reason, whole.choices[0].finish_reason)
        self.assertEqual(streamed.usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(streamed.usage.prompt_tokens, whole.usage.prompt_tokens)

    def test_tools(self):
        """nano has learnt to call; of a checkpoint of random numbers only the stream is judged."""

        def calls(answer):
            found = answer.choices[0].message.tool_calls or []
            return [(call.function.name, json.loads(call.function.arguments)) for call in found]

        whole = self.ask(messages=QUESTION, tools=TOOLS, max_tokens=200)
        streamed = self.ask_streaming(messages=QUESTION, tools=TOOLS, max_tokens=200)
        self.assertEqual(calls(streamed), calls(whole))
        self.assertEqual(streamed.choices[0].finish_reason, whole.choices[0].finish_reason)
        if self.model == "nano":
            self.assertEqual(whole.choices[0].finish_reason, "tool_calls")
            self.assertEqual(calls(whole), [("get_weather", {"city": "Oslo"})])

    def test_tool_results(self):
        first = self.ask(messages=QUESTION, tools=TOOLS, max_tokens=200).choices[0].message
        call_id = "call_1"
        if first.tool_calls:
            call_id = first.tool_calls[0].id
            turn = first.model_dump(exclude_none=True)
        else:
            function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
            call = {"id": call_id, "type": "function", "function": function}
            turn = {"role": "assistant", "content": None, "tool_calls": [call]}
        result = {"role": "tool", "tool_call_id": call_id, "content": "rain"}
        answer = self.ask(messages=[*QUESTION, turn, result], tools=TOOLS)
        self.assertIsNotNone(answer.choices[0].finish_reason)

    def test_cached_tokens(self):
        self.ask(messages=LONG, max_tokens=1)
        usage = self.ask(messages=LONG, max_tokens=1).usage
        self.assertGreater(usage.prompt_tokens_details.cached_tokens, 0)
        self.assertLess(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens)

    def test_errors(self):
        too_long = [{"role": "user", "content": "a " * 70_000}]
        for arguments, kind in (
            ({"messages": too_long}, litellm.ContextWindowExceededError),
            ({"model": "nowhere"}, litellm.NotFoundError),
            ({"api_key": "wrong"}, litellm.AuthenticationError),
            ({"temperature": 9}, litellm.BadRequestError),
            ({"top_p": 5}, litellm.BadRequestError),
        ):
            for stream in (False, True):
                with self.subTest(kind=kind.__name__, stream=stream), self.assertRaises(kind) as raised:
                    self.ask(stream=stream, **arguments)
                self.assertIs(type(raised.exception), kind)

    def test_cancellation(self):
        """A stream that the client leaves must not keep the engine busy."""

        async def leave_early():
            stream = await litellm.acompletion(
                **self.arguments(max_tokens=60_000, stream=True, extra_body={"ignore_eos": True})
            )
            async for _ in stream:
                break
            await stream.aclose()

        asyncio.run(leave_early())
        self.assertTrue(self.server.is_idle())
        self.assertIsNotNone(self.ask(max_tokens=1).choices[0].finish_reason)

    def test_several_at_once(self):
        async def run():
            return await asyncio.gather(*[litellm.acompletion(**self.arguments(max_tokens=4)) for _ in range(10)])

        messages = [answer.choices[0].message for answer in asyncio.run(run())]
        self.assertEqual(len({(message.content, message.reasoning_content) for message in messages}), 1)


class OpenAITest(ProviderTests, unittest.TestCase):
    provider = "openai"
    base = "/v1"

    def test_text_completion(self):
        answer = litellm.text_completion(
            model="text-completion-openai/m",
            api_base=self.server.url + "/v1",
            api_key=KEY,
            prompt="Once upon",
            max_tokens=5,
            temperature=0,
        )
        self.assertEqual(answer.object, "text_completion")
        self.assertIsInstance(answer.choices[0].text, str)

    def test_responses(self):
        answer = litellm.responses(
            model="openai/m", api_base=self.server.url + "/v1", api_key=KEY, input="Say hello.", max_output_tokens=20
        )
        self.assertIn(answer.status, ("completed", "incomplete"))


class HostedVllmTest(ProviderTests, unittest.TestCase):
    provider = "hosted_vllm"
    base = "/v1"


class AnthropicTest(ProviderTests, unittest.TestCase):
    provider = "anthropic"


def main():
    options, argv = parse_arguments(__doc__)
    server = Server(options.gannet, options.model, "--api-key", KEY, "--served-model-name", "m")
    ProviderTests.server = server
    ProviderTests.model = options.model
    # Its use of its libraries makes many warnings.
    failed = run_tests(f"litellm {importlib.metadata.version('litellm')}", argv, warnings="ignore")
    status, log = server.stop()
    if status != 0:
        print(f"the server ended with status {status}:\n{log}", file=sys.stderr)
    return 1 if failed or status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
