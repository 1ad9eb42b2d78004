#!/usr/bin/env python3
"""The official OpenAI client, unchanged, against `gannet serve`.

usage: openai_client_test.py [--gannet build/gannet] [--model nano] [unittest arguments]

Works with any checkpoint: it judges the protocol, not what the model says.
"""

import json
import sys
import time
import unittest
import urllib.request

import openai
from gannet_process import PATIENCE, Server, parse_arguments, run_tests

KEY = "test-key"
HI = [{"role": "user", "content": "Say hello."}]
NO_THINKING = {"thinking": {"type": "disabled"}}
THINKING = {"thinking": {"type": "enabled"}}
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


class OpenAIClientTest(unittest.TestCase):
    server = None
    model = None

    @classmethod
    def setUpClass(cls):
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key=KEY, max_retries=0, timeout=PATIENCE)

    def chat(self, **arguments):
        arguments.setdefault("model", "m")
        arguments.setdefault("messages", HI)
        arguments.setdefault("max_tokens", 8)
        arguments.setdefault("seed", 1)
        return self.client.chat.completions.create(**arguments)

    def test_models_list(self):
        models = self.client.models.list()
        self.assertEqual([model.id for model in models.data], ["m", "alias"])
        self.assertEqual(models.data[0].object, "model")
        self.assertGreater(models.data[0].max_model_len, 0)
        self.assertEqual(self.client.models.retrieve("alias").id, "alias")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4")

    def test_chat(self):
        answer = self.chat(extra_body=NO_THINKING)
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, "m")
        self.assertIsInstance(answer.choices[0].message.content, str)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertGreater(usage.prompt_tokens, 0)
        self.assertLessEqual(usage.completion_tokens, 8)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(usage.completion_tokens_details.reasoning_tokens, 0)
        self.assertEqual(answer._request_id, answer.id)

    def test_same_seed_same_answer(self):
        first = self.chat(extra_body=NO_THINKING, max_tokens=20)
        second = self.chat(extra_body=NO_THINKING, max_tokens=20)
        self.assertEqual(first.choices[0].message.content, second.choices[0].message.content)

    def test_stream_equals_whole(self):
        whole = self.chat(extra_body=NO_THINKING, max_tokens=20)
        stream = self.chat(
            extra_body=NO_THINKING, max_tokens=20, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        self.assertEqual({chunk.object for chunk in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-2].choices[0].finish_reason, whole.choices[0].finish_reason)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage, whole.usage)

    def test_reasoning_content(self):
        answer = self.chat(extra_body=THINKING, max_tokens=20)
        self.assertIsInstance(answer.choices[0].message.reasoning_content, str)
        self.assertGreater(answer.usage.completion_tokens_details.reasoning_tokens, 0)
        pieces = []
        for chunk in self.chat(extra_body=THINKING, max_tokens=20, stream=True):
            for choice in chunk.choices:
                pieces.append(getattr(choice.delta, "reasoning_content", None) or "")
        self.assertEqual("".join(pieces), answer.choices[0].message.reasoning_content)

    def test_effort(self):
        low = self.chat(reasoning_effort="low", max_tokens=1)
        none = self.chat(extra_body=NO_THINKING, max_tokens=1)
        self.assertGreater(low.usage.prompt_tokens, none.usage.prompt_tokens)

    def test_tools(self):
        without = self.chat(extra_body=NO_THINKING)
        answer = self.chat(tools=TOOLS, tool_choice="auto", parallel_tool_calls=True, extra_body=NO_THINKING)
        self.assertGreater(answer.usage.prompt_tokens, without.usage.prompt_tokens)
        for call in answer.choices[0].message.tool_calls or []:
            self.assertEqual(call.type, "function")
            json.loads(call.function.arguments)

    def ask_for_weather(self, **arguments):
        question = [{"role": "user", "content": "What is the weather in Oslo?"}]
        return self.chat(messages=question, tools=TOOLS, max_tokens=200, temperature=0, **arguments)

    def test_tool_calls(self):
        """nano has learnt to call; a checkpoint of random numbers has not, so there only the stream is judged."""
        choice = self.ask_for_weather().choices[0]
        calls = {}
        for chunk in self.ask_for_weather(stream=True):
            for delta in (call for streamed in chunk.choices for call in streamed.delta.tool_calls or []):
                name, arguments = calls.get(delta.index, ("", ""))
                calls[delta.index] = (name + (delta.function.name or ""), arguments + delta.function.arguments)
        whole = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
        self.assertEqual(list(calls.values()), whole)
        if self.model == "nano":
            self.assertEqual(choice.finish_reason, "tool_calls")
            self.assertEqual([(name, json.loads(text)) for name, text in whole], [("get_weather", {"city": "Oslo"})])

    def test_tool_results(self):
        history = HI + [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        ]
        answer = self.chat(messages=history, tools=TOOLS)
        self.assertIsNotNone(answer.choices[0].finish_reason)

    def test_several_answers_and_logprobs(self):
        answer = self.chat(n=2, logprobs=True, top_logprobs=3, extra_body=NO_THINKING)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1])
        entries = answer.choices[0].logprobs.content
        self.assertGreater(len(entries), 0)
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)

    def test_stop(self):
        whole = self.chat(extra_body=NO_THINKING, max_tokens=20).choices[0].message.content
        stop = whole[len(whole) // 2 :][:1]
        if not stop:
            self.fail(f"the model said nothing: {whole!r}")
        answer = self.chat(extra_body=NO_THINKING, max_tokens=20, stop=[stop])
        self.assertEqual(answer.choices[0].message.content, whole[: whole.index(stop)])
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_completions(self):
        answer = self.client.completions.create(model="alias", prompt="Once upon", max_tokens=5, seed=1, temperature=0)
        self.assertEqual(answer.object, "text_completion")
        self.assertIsInstance(answer.choices[0].text, str)
        several = self.client.completions.create(
            model="m", prompt=[[5, 6], [7, 8, 9]], max_tokens=3, n=2, logprobs=2, temperature=0
        )
        self.assertEqual([choice.index for choice in several.choices], [0, 1, 2, 3])
        self.assertEqual(several.usage.prompt_tokens, 5)
        self.assertEqual(several.choices[0].logprobs.token_logprobs, several.choices[1].logprobs.token_logprobs)
        streamed = self.client.completions.create(
            model="m", prompt="Once upon", max_tokens=5, seed=1, temperature=0, stream=True
        )
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed), answer.choices[0].text)

    def test_bad_request(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(temperature=9)
        self.assertEqual(raised.exception.param, "temperature")
        self.assertIn("temperature", raised.exception.message)
        with self.assertRaises(openai.BadRequestError):
            self.chat(messages=[{"role": "wizard", "content": "hi"}])
        with self.assertRaises(openai.BadRequestError):
            self.chat(stream=True, messages=[])

    def test_context_length(self):
        limit = self.client.models.list().data[0].max_model_len
        with self.assertRaises(openai.BadRequestError) as raised:
            self.client.completions.create(model="m", prompt=[5] * limit)
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        self.assertIn(f"maximum context length is {limit} tokens", raised.exception.message)

    def test_not_found(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.chat(model="gpt-4")
        self.assertEqual(raised.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="m", input="hi")

    def test_authentication(self):
        stranger = openai.OpenAI(base_url=self.server.url + "/v1", api_key="wrong", max_retries=0)
        with self.assertRaises(openai.AuthenticationError):
            stranger.models.list()

    def test_cancellation(self):
        """A stream that the client leaves must not keep the engine busy."""
        stream = self.chat(max_tokens=100_000, stream=True, extra_body={"ignore_eos": True, **NO_THINKING})
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        stream.close()
        begin = time.monotonic()
        self.chat(max_tokens=1, extra_body=NO_THINKING)
        self.assertLess(time.monotonic() - begin, PATIENCE / 2)

    def test_async_clients_at_once(self):
        import asyncio

        async def run():
            client = openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key=KEY, max_retries=0, timeout=PATIENCE)
            requests = [
                client.chat.completions.create(
                    model="m", messages=HI, max_tokens=4, seed=1, temperature=0, extra_body=NO_THINKING
                )
                for _ in range(20)
            ]
            return await asyncio.gather(*requests)

        answers = asyncio.run(run())
        self.assertEqual(len({answer.choices[0].message.content for answer in answers}), 1)

    def test_health(self):
        for path in ("/health", "/live", "/ready", "/version"):
            with urllib.request.urlopen(self.server.url + path, timeout=PATIENCE) as response:
                self.assertEqual(response.status, 200)


def main():
    options, argv = parse_arguments(__doc__)
    server = Server(options.gannet, options.model, "--api-key", KEY, "--served-model-name", "m", "--served-model-name", "alias")
    OpenAIClientTest.server = server
    OpenAIClientTest.model = options.model
    failed = run_tests(f"openai client {openai.__version__}", argv)
    status, log = server.stop()
    if status != 0:
        print(f"the server ended with status {status}:\n{log}", file=sys.stderr)
    return 1 if failed or status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
