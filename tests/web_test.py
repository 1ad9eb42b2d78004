#!/usr/bin/env python3
"""The page at "/" in headless Chromium.

usage: web_test.py [--gannet build/gannet] [--model nano] [unittest arguments]
"""

import pathlib
import shutil
import sys
import tempfile
import unittest

from gannet_process import PATIENCE, Server, parse_arguments, run_tests
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
KEY = "web-key"


@unittest.skipUnless(CHROMIUM and DRIVER, "Chromium and its driver are not installed, and this system has no package for them")
class WebTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(OPTIONS.gannet, OPTIONS.model, "--api-key", KEY, "--served-model-name", "web-model")
        cls.profile = tempfile.TemporaryDirectory()
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                         "--window-size=1100,800", f"--user-data-dir={cls.profile.name}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(options=options, service=Service(DRIVER))
        cls.browser.set_page_load_timeout(PATIENCE)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.stop()
        cls.profile.cleanup()

    def setUp(self):
        self.browser.get_log("browser")
        self.browser.get(self.server.url)
        self.browser.execute_script("sessionStorage.clear()")
        self.browser.get(self.server.url)
        self.wait(lambda: "web-model" in self.find("model").text)

    def find(self, name):
        return self.browser.find_element(By.ID, name)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition):
        return WebDriverWait(self.browser, PATIENCE).until(lambda _: condition())

    def fill(self, name, text):
        field = self.find(name)
        field.clear()
        field.send_keys(text)

    def open_settings(self, key=KEY):
        self.find("open-settings").click()
        self.fill("key", key)

    def send(self, text):
        self.find("input").send_keys(text)
        self.find("send").click()

    def ended(self):
        return self.find("send").is_displayed()

    def test_answers(self):
        self.open_settings()
        self.fill("max-tokens", "24")
        self.send("Hello! Who are you?")
        self.wait(lambda: self.all(".assistant .numbers") and "tokens" in self.all(".assistant .numbers")[0].text)
        self.wait(self.ended)
        self.assertEqual(self.all(".user .text")[0].text, "Hello! Who are you?")
        self.assertTrue(self.all(".assistant .text, .assistant .thought, .assistant .call"))
        self.assertFalse(self.all(".error"))
        self.assertRegex(self.all(".numbers")[0].text, r"\d+ tokens.*prompt \d+")
        self.send("And again?")
        self.wait(lambda: len(self.all(".assistant")) == 2 and self.ended())
        self.find("clear").click()
        self.assertFalse(self.all(".message"))

    def test_shows_thinking(self):
        self.open_settings()
        self.find("thinking").click()
        self.fill("max-tokens", "40")
        self.send("What is 23 + 14?")
        self.wait(lambda: self.all(".thinking .thought"))
        self.wait(self.ended)
        self.assertTrue(self.all(".thinking .thought")[0].get_attribute("textContent"))

    def test_shows_calls_and_runs_them(self):
        script = """
            const view = new AnswerView();
            view.call({index: 0, id: "c", function: {name: "calculate", arguments: ""}});
            view.call({index: 0, function: {arguments: '{"expression": "2*(3+4)"}'}});
            view.result(0, runTool(view.finished().tool_calls[0]));"""
        self.browser.execute_script(script)
        call = self.all(".call")[0].text
        self.assertIn("calculate", call)
        self.assertIn('{"expression": "2*(3+4)"}', call)
        self.assertIn("→ 14", call)
        for expression, value in (("1+2*3", "7"), ("-(2-5)/3", "1"), ("2*", None), ("alert(1)", None)):
            result = self.browser.execute_script(
                "try { return calculate(arguments[0]) } catch { return null }", expression)
            self.assertEqual(result, value, expression)

    def test_stops(self):
        # An answer that goes on until it is stopped, however slow this browser is.
        self.browser.execute_script("""
            const send = window.fetch;
            window.fetch = (url, options) => {
                if (!options?.body) return send(url, options);
                const body = {...JSON.parse(options.body), ignore_eos: true, max_tokens: 500000};
                return send(url, {...options, body: JSON.stringify(body)});
            };""")
        self.open_settings()
        self.send("Count to a thousand.")
        self.wait(lambda: self.all(".assistant .text")[-1:] and self.all(".assistant .text")[-1].text)
        self.find("stop").click()
        self.wait(self.ended)
        self.assertEqual(self.all(".error")[0].text, "stopped")

    def test_shows_errors(self):
        self.assertIn("needs an API key", self.find("model").text)
        self.open_settings("wrong")
        self.send("hi")
        self.wait(lambda: self.all(".error"))
        self.assertIn("API key", self.all(".error")[0].text)

    def test_takes_nothing_for_markup(self):
        attack = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>"
        self.browser.execute_script(
            "const view = new AnswerView(); view.reason(arguments[0]); view.say(arguments[0]); view.fail(arguments[0]);",
            attack)
        self.assertEqual(self.all(".assistant .text")[0].text, attack)
        self.assertFalse(self.all("main img, main script"))
        self.assertIsNone(self.browser.execute_script("return window.hit"))
        inline = """
            const script = document.createElement("script");
            script.textContent = "window.hit = 1";
            document.body.append(script);
            return window.hit"""
        self.assertIsNone(self.browser.execute_script(inline), "the policy must forbid scripts in the page")

    def test_loads_nothing_from_elsewhere(self):
        loaded = self.browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        self.assertTrue(loaded)
        for url in loaded:
            self.assertTrue(url.startswith(self.server.url + "/"), url)
        severe = [line for line in self.browser.get_log("browser") if line["level"] == "SEVERE"]
        self.assertEqual([line for line in severe if "401" not in line["message"]], [])

    def test_shows_the_servers_numbers_and_changes_its_theme(self):
        self.wait(lambda: self.find("running").text == "0" and self.find("waiting").text == "0")
        self.wait(lambda: "%" in self.find("cache-text").text)
        self.wait(lambda: self.find("server-speed").text.isdigit())
        theme = "return document.documentElement.dataset.theme"
        before = self.browser.execute_script(theme)
        self.find("theme").click()
        self.assertNotEqual(self.browser.execute_script(theme), before)


if __name__ == "__main__":
    OPTIONS, ARGUMENTS = parse_arguments(__doc__)
    sys.exit(run_tests("web_test", ARGUMENTS) != 0)
