#!/usr/bin/env python3
"""The official OpenAI client, unchanged, against `gannet serve`.

usage: openai_client_test.py [--gannet build/gannet] [--model nano] [unittest arguments]

Works with any checkpoint: it judges the protocol, not what the model says.
"""

import enum
import json
import re
import sys
import unittest
import urllib.request

import openai
import pydantic
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
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]


class Sky(enum.Enum):
    clear = "clear"
    grey = "grey"


class Weather(pydantic.BaseModel):
    sky: Sky
    windy: bool


class ClientTest(unittest.TestCase):
    server = None
    model = None

    @classmethod
    def setUpClass(cls):
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key=KEY, max_retries=0, timeout=PATIENCE)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()


class OpenAIClientTest(ClientTest):
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
        self.assertTrue(answer._request_id)

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
        return self.chat(messages=QUESTION, tools=TOOLS, max_tokens=200, temperature=0, **arguments)

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

    def test_several_answers_streamed(self):
        whole = self.chat(n=3, temperature=1, extra_body=NO_THINKING)
        texts = {}
        for chunk in self.chat(n=3, temperature=1, extra_body=NO_THINKING, stream=True):
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        self.assertEqual([texts[index] for index in range(3)], [choice.message.content for choice in whole.choices])

    def sample(self, **arguments):
        """Ids of the tokens of each answer."""
        arguments["extra_body"] = {**NO_THINKING, "return_token_ids": True, **arguments.pop("extra_body", {})}
        return [choice.token_ids for choice in self.chat(**arguments).choices]

    def test_seeds(self):
        wild = {"temperature": 2, "max_tokens": 16}
        wild["extra_body"] = {"ignore_eos": True, "allowed_token_ids": list(range(40, 80))}
        several = self.sample(n=3, seed=5, **wild)
        self.assertEqual(len({tuple(ids) for ids in several}), 3)
        self.assertEqual(self.sample(seed=6, **wild), several[1:2])
        self.assertEqual(self.sample(n=3, seed=5, **wild), several)

    def test_logit_bias(self):
        [usual] = self.sample(temperature=0, max_tokens=3)
        [without] = self.sample(temperature=0, max_tokens=3, logit_bias={str(usual[0]): -100})
        self.assertNotIn(usual[0], without)
        other = usual[0] + 1
        self.assertEqual(self.sample(temperature=0, max_tokens=3, logit_bias={str(other): 100}), [[other] * 3])

    def test_penalties(self):
        # Of two tokens the one that was said more often loses in the end, whatever the model thinks of it.
        two = {"allowed_token_ids": [40, 41], "ignore_eos": True}
        [ids] = self.sample(temperature=0, max_tokens=60, frequency_penalty=2, extra_body=two)
        self.assertEqual(set(ids), {40, 41})
        # Logits above zero are divided: what was said once is a million times likelier, or a million times less.
        two["logit_bias"] = {40: 100, 41: 100}
        for penalty, kinds in ((1e-6, 1), (1e6, 2)):
            [ids] = self.sample(temperature=0, max_tokens=2, extra_body={**two, "repetition_penalty": penalty})
            self.assertEqual(len(set(ids)), kinds)
        for field, value in (("frequency_penalty", 3), ("presence_penalty", -3)):
            with self.assertRaises(openai.BadRequestError) as raised:
                self.chat(**{field: value})
            self.assertEqual(raised.exception.param, field)

    def test_parsed_answer(self):
        question = [{"role": "user", "content": "The weather, as JSON."}]
        arguments = {"model": "m", "messages": question, "max_tokens": 200, "temperature": 0, "extra_body": NO_THINKING}
        try:
            answer = self.client.chat.completions.parse(response_format=Weather, **arguments)
        except openai.LengthFinishReasonError:
            self.assertNotEqual(self.model, "nano")
            return
        self.assertIsInstance(answer.choices[0].message.parsed, Weather)

    def test_parsed_call(self):
        tool = openai.pydantic_function_tool(Weather, name="report_weather")
        answer = self.client.chat.completions.parse(
            model="m",
            messages=HI,
            tools=[tool],
            tool_choice={"type": "function", "function": {"name": "report_weather"}},
            max_tokens=400,
            temperature=0,
            extra_body=NO_THINKING,
        )
        for call in answer.choices[0].message.tool_calls or []:
            self.assertIsInstance(call.function.parsed_arguments, Weather)
        if self.model == "nano":
            self.assertEqual(len(answer.choices[0].message.tool_calls), 1)

    def test_json_object(self):
        question = [{"role": "user", "content": "The weather, as JSON."}]
        answer = self.chat(
            messages=question, response_format={"type": "json_object"}, max_tokens=200, extra_body=NO_THINKING
        )
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    def test_cached_tokens(self):
        long = [{"role": "user", "content": "six seven eight nine " * 100}]
        first, second = (self.chat(messages=long, max_tokens=1).usage for _ in range(2))
        self.assertEqual(first.prompt_tokens, second.prompt_tokens)
        self.assertGreater(second.prompt_tokens_details.cached_tokens, first.prompt_tokens_details.cached_tokens)
        self.assertEqual(second.prompt_cache_hit_tokens, second.prompt_tokens_details.cached_tokens)
        self.assertEqual(second.prompt_cache_hit_tokens + second.prompt_cache_miss_tokens, second.prompt_tokens)

    def block_tokens(self):
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=PATIENCE) as response:
            return int(re.search(r'block_size="(\d+)"', response.read().decode()).group(1))

    def test_next_turn_finds_the_answer(self):
        """Its prompt begins with the first one and what was answered: both are cached, but for less than a block."""
        if self.model != "nano":
            self.skipTest("texts of a random checkpoint have other tokens when they come back")
        block = self.block_tokens()
        padding = ["five six"] * 120
        while True:  # until the first prompt ends just before a block does
            question = [{"role": "user", "content": " ".join(padding) + " What is the weather in Oslo?"}]
            first = self.chat(messages=question, tools=TOOLS, max_tokens=200, temperature=0)
            if first.usage.prompt_tokens % block >= block - 4:
                break
            padding.append("six")
        whole = first.usage.prompt_tokens + first.usage.completion_tokens
        self.assertGreater(whole // block, first.usage.prompt_tokens // block)
        message = first.choices[0].message
        turn = message.model_dump(exclude_none=True)
        follow = [{"role": "user", "content": "And now?"}]
        if message.tool_calls:
            follow = [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls]
        second = self.chat(messages=[*question, turn, *follow], tools=TOOLS, max_tokens=1)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens)

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
        with openai.OpenAI(base_url=self.server.url + "/v1", api_key="wrong", max_retries=0) as stranger:
            with self.assertRaises(openai.AuthenticationError):
                stranger.models.list()

    def test_cancellation(self):
        """A stream that the client leaves must not keep the engine busy."""
        stream = self.chat(max_tokens=100_000, stream=True, extra_body={"ignore_eos": True, **NO_THINKING})
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                break
        stream.close()
        self.assertTrue(self.server.is_idle())
        self.assertEqual(len(self.chat(max_tokens=1, extra_body=NO_THINKING).choices), 1)

    def test_async_clients_at_once(self):
        import asyncio

        async def run():
            client = openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key=KEY, max_retries=0, timeout=PATIENCE)
            async with client:
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


def flat(tool):
    """A tool as the Responses API has it."""
    return {"type": "function", **tool["function"]}


class ResponsesTest(ClientTest):
    def ask(self, **arguments):
        return self.client.responses.create(
            **{"model": "m", "input": "Say hello.", "max_output_tokens": 40, "temperature": 0, **arguments}
        )

    def story(self, response):
        """What is the same in two answers to one question."""
        items = []
        for item in response.output:
            if item.type == "function_call":
                items.append((item.type, item.name, json.loads(item.arguments)))
            else:
                items.append((item.type, [part.text for part in item.content or []]))
        return response.status, items, response.usage.output_tokens

    def test_response(self):
        response = self.ask()
        self.assertTrue(response.id.startswith("resp_"))
        self.assertEqual((response.object, response.model), ("response", "m"))
        self.assertIn(response.status, ("completed", "incomplete"))
        self.assertEqual(response.output[0].type, "reasoning")
        usage = response.usage
        self.assertGreater(usage.output_tokens_details.reasoning_tokens, 0)
        self.assertEqual(usage.total_tokens, usage.input_tokens + usage.output_tokens)
        quiet = self.ask(reasoning={"effort": "none"})
        self.assertEqual(quiet.usage.output_tokens_details.reasoning_tokens, 0)
        self.assertIsInstance(quiet.output_text, str)

    def test_incomplete(self):
        response = self.ask(max_output_tokens=2, extra_body={"ignore_eos": True})
        self.assertEqual(response.status, "incomplete")
        self.assertEqual(response.incomplete_details.reason, "max_output_tokens")

    def test_stream_equals_whole(self):
        whole = self.ask()
        events = list(self.ask(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual([event.type for event in events[:2]], ["response.created", "response.in_progress"])
        self.assertEqual(events[-1].type, f"response.{whole.status}")
        self.assertEqual(self.story(events[-1].response), self.story(whole))
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        with self.client.responses.stream(model="m", input="Say hello.", max_output_tokens=40, temperature=0) as stream:
            kinds = {event.type for event in stream}
            self.assertEqual(kinds, {event.type for event in events})

    def test_tools(self):
        wanted = {"input": QUESTION, "tools": [flat(TOOLS[0])], "max_output_tokens": 200}
        whole = self.ask(**wanted)
        *_, last = self.ask(stream=True, **wanted)
        self.assertEqual(self.story(last.response), self.story(whole))
        calls = [item for item in whole.output if item.type == "function_call"]
        if self.model == "nano":
            self.assertEqual([(call.name, json.loads(call.arguments)) for call in calls], [("get_weather", {"city": "Oslo"})])
        if not calls:
            return
        outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"} for call in calls]
        items = [item.model_dump(exclude_none=True) for item in whole.output]
        again = self.ask(input=[*QUESTION, *items, *outputs], tools=wanted["tools"])
        stored = self.ask(input=outputs, previous_response_id=whole.id, tools=wanted["tools"])
        self.assertEqual(self.story(stored), self.story(again))

    def test_parsed_response(self):
        response = self.client.responses.parse(
            model="m",
            input="The weather, as JSON.",
            text_format=Weather,
            reasoning={"effort": "none"},
            max_output_tokens=200,
            temperature=0,
        )
        if response.status == "completed":
            self.assertIsInstance(response.output_parsed, Weather)
        else:
            self.assertNotEqual(self.model, "nano")

    def test_sealed_reasoning(self):
        arguments = {"store": False, "include": ["reasoning.encrypted_content"], "input": QUESTION}
        first = self.ask(**arguments, max_output_tokens=60)
        self.assertTrue(first.output[0].encrypted_content)
        items = [item.model_dump(exclude_none=True) for item in first.output]
        arguments["input"] = [*QUESTION, *items, *QUESTION]
        self.assertIn(self.ask(**arguments).status, ("completed", "incomplete"))
        with self.assertRaises(openai.BadRequestError) as raised:
            self.ask(previous_response_id=first.id)
        self.assertEqual(raised.exception.code, "previous_response_not_found")

    def test_bad_requests(self):
        for wrong, param in (
            ({"temperature": 9}, "temperature"),
            ({"input": []}, "input"),
            ({"background": True}, "background"),
            ({"max_output_tokens": -1}, "max_output_tokens"),
        ):
            with self.subTest(wrong=wrong), self.assertRaises(openai.BadRequestError) as raised:
                self.ask(**wrong)
            self.assertEqual(raised.exception.param, param)
        with self.assertRaises(openai.NotFoundError):
            self.ask(model="gpt-4")

    def test_context_length(self):
        limit = self.client.models.list().data[0].max_model_len
        too_long = "a " * limit
        with self.assertRaises(openai.BadRequestError) as raised:
            self.ask(input=too_long)
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        *_, last = self.ask(input=too_long, stream=True)
        self.assertEqual((last.type, last.response.error.code), ("response.failed", "context_length_exceeded"))

    def test_cancellation(self):
        stream = self.ask(max_output_tokens=60_000, stream=True, extra_body={"ignore_eos": True})
        for event in stream:
            if event.type.endswith(".delta"):
                break
        stream.close()
        self.assertTrue(self.server.is_idle())


def main():
    options, argv = parse_arguments(__doc__)
    server = Server(options.gannet, options.model, "--api-key", KEY, "--served-model-name", "m", "--served-model-name", "alias")
    ClientTest.server = server
    ClientTest.model = options.model
    failed = run_tests(f"openai client {openai.__version__}", argv)
    status, log = server.stop()
    if status != 0:
        print(f"the server ended with status {status}:\n{log}", file=sys.stderr)
    return 1 if failed or status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
