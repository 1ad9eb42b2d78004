#!/usr/bin/env python3
"""Requests that schemathesis makes of the server's own description (/openapi.json), right ones and wrong ones.

usage: openapi_test.py [--gannet build/gannet] [--model nano] [unittest arguments]

No request may get a 5xx, end the server or take more than PATIENCE, and every answer must be as described.
"""

import copy
import json
import sys
import unittest
import urllib.error
import urllib.request

import hypothesis
import requests
import schemathesis
from gannet_process import PATIENCE, Server, parse_arguments, run_tests
from schemathesis.generation import GenerationMode

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]
EXAMPLES = 10  # of each kind and operation
LONGEST = 3  # tokens of an answer
# Where an answer's length is limited, so that no request takes long.
LIMITS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
}
SHORT = {"n": 2, "min_tokens": 1, **dict.fromkeys([*LIMITS.values(), "max_completion_tokens"], LONGEST)}


def shorten(case):
    """Numbers like 3.0 are integers to JSON Schema, but not to the server."""
    case.body = with_integers(case.body)
    name = LIMITS.get(case.operation.path)
    if name is None or not isinstance(case.body, dict):
        return
    for field, most in SHORT.items():
        if isinstance(case.body.get(field), int):
            case.body[field] = min(case.body[field], most)
    case.body.setdefault(name, LONGEST)


def with_integers(value):
    if isinstance(value, dict):
        return {key: with_integers(member) for key, member in value.items()}
    if isinstance(value, list):
        return [with_integers(element) for element in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def narrow(description, vocabulary):
    """Leaves out what a schema cannot say, or hardly: which calls are answered, which names exist, what a grammar is.
    What remains gets past the checks and into the engine."""
    schemas = description["components"]["schemas"]

    def only(kinds, *wanted):
        kinds[:] = [kind for kind in kinds if kind["properties"].get("type", {}).get("const") in wanted]

    def visit(node):
        if isinstance(node, list):
            for element in node:
                visit(element)
        if not isinstance(node, dict):
            return
        if node.get("maximum") == 2**31 - 1:
            node["maximum"] = vocabulary - 1
        properties = node.get("properties", {})
        properties.pop("prefix", None)
        if "model" in properties:
            properties["model"] = {"const": "m"}
        for element in node.values():
            visit(element)

    visit(description)
    only(schemas["AssistantBlock"]["oneOf"], "text", "thinking")
    only(schemas["UserBlock"]["oneOf"], "text")
    only(schemas["ResponseItem"]["anyOf"], "message", "reasoning")
    user, assistant, _ = schemas["ChatMessage"]["oneOf"]
    del assistant["properties"]["tool_calls"]
    schemas["ChatMessage"]["oneOf"] = [user, assistant]
    sampling = schemas["Sampling"]["properties"]
    sampling["repetition_penalty"]["maximum"] = 2
    sampling["logit_bias"]["propertyNames"] = {"pattern": "^[1-9][0-9]{0,2}$"}
    structured = schemas["OpenAiOutput"]["properties"]["structured_outputs"]["properties"]
    structured["regex"] = {"enum": ["[a-z]+", "(yes|no)"]}
    structured["grammar"] = {"enum": ['root ::= "yes" | "no"']}
    chat = schemas["ChatCompletionRequest"]["allOf"][-1]
    chat["properties"]["logprobs"] = {"const": True}
    chat["required"].append("logprobs")
    chat["properties"]["response_format"]["oneOf"][-1]["properties"]["regex"] = structured["regex"]
    responses = schemas["ResponseRequest"]["allOf"][-1]
    responses["required"] = ["input"]
    del responses["properties"]["previous_response_id"]
    del schemas["CompletionRequest"]["allOf"][-1]["properties"]["best_of"]
    for request in (chat, responses):
        del request["properties"]["tool_choice"]["anyOf"][1:]
    message = schemas["MessageRequest"]["allOf"][-1]["properties"]
    message["tool_choice"]["properties"]["type"]["enum"].remove("tool")
    del message["tools"]["items"]["properties"]["defer_loading"]
    return description


class OpenApiTest(unittest.TestCase):
    server = None

    @classmethod
    def setUpClass(cls):
        cls.description = cls.get("/openapi.json")
        cls.session = requests.Session()

    @classmethod
    def tearDownClass(cls):
        cls.session.close()

    @classmethod
    def get(cls, path):
        with urllib.request.urlopen(cls.server.url + path, timeout=PATIENCE) as response:
            return json.load(response)

    def status(self, method, path):
        body = b"{}" if method == "POST" else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.server.url + path, data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def test_every_route_is_there(self):
        for path, operations in self.description["paths"].items():
            for method in operations:
                status = self.status(method.upper(), path.replace("{model}", "m"))
                self.assertIn(status, (200, 400), f"{method} {path}")

    def test_operation_ids_differ(self):
        ids = [one["operationId"] for operations in self.description["paths"].values() for one in operations.values()]
        self.assertEqual(len(ids), len(set(ids)))

    def try_operations(self, description, mode):
        """How many requests were answered with 200, by path."""
        schema = schemathesis.openapi.from_dict(description)
        checks = schemathesis.checks.CHECKS.get_by_names(CHECKS)
        answered = dict.fromkeys(description["paths"], 0)
        for result in schema.get_all_operations():
            operation = result.ok()

            @hypothesis.seed(1)
            @hypothesis.settings(
                max_examples=EXAMPLES,
                database=None,
                deadline=None,
                phases=[hypothesis.Phase.generate],
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def try_case(case):
                shorten(case)
                response = case.call_and_validate(
                    base_url=self.server.url, session=self.session, checks=checks, timeout=PATIENCE
                )
                answered[case.operation.path] += response.status_code == 200

            with self.subTest(operation=operation.label):
                try:
                    try_case()
                except hypothesis.errors.Unsatisfiable:
                    self.assertIs(mode, GenerationMode.NEGATIVE)  # nothing that could be wrong
        self.assertIsNone(self.server.process.poll())
        self.assertTrue(self.server.is_idle())
        return answered

    def test_right_requests(self):
        vocabulary = self.get("/tokenizer_info")["vocab_size"]
        description = narrow(copy.deepcopy(self.description), vocabulary)
        answered = self.try_operations(description, GenerationMode.POSITIVE)
        self.assertEqual([path for path, count in answered.items() if count == 0 and "{" not in path], [])

    def test_wrong_requests(self):
        self.try_operations(self.description, GenerationMode.NEGATIVE)


def main():
    options, argv = parse_arguments(__doc__)
    # What is not shortened ends at the context's end.
    server = Server(options.gannet, options.model, "--served-model-name", "m", "--max-model-len", "512")
    OpenApiTest.server = server
    failed = run_tests(f"schemathesis {schemathesis.__version__}", argv)
    status, log = server.stop()
    if status != 0:
        print(f"the server ended with status {status}:\n{log}", file=sys.stderr)
    return 1 if failed or status != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
