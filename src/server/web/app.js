"use strict";

// Everything that comes from the model or the server is shown through textContent, so that nothing in it is ever taken
// for markup.

const $ = (id) => document.getElementById(id);
const conversation = []; // messages of the conversation, as the API takes them
let running = null; // AbortController of the answer in progress

function element(parent, name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  parent.append(made);
  return made;
}

function headers() {
  const key = $("key").value;
  return key ? { Authorization: "Bearer " + key } : {};
}

// ---- the two tools: they run in this page

const TOOLS = [
  {
    type: "function",
    function: {
      name: "current_time",
      description: "The date and time now",
      parameters: { type: "object", properties: {} },
    },
  },
  {
    type: "function",
    function: {
      name: "calculate",
      description: "The value of an arithmetic expression with + - * / and parentheses",
      parameters: { type: "object", properties: { expression: { type: "string" } }, required: ["expression"] },
    },
  },
];

function calculate(text) {
  const tokens = String(text).match(/\d+(?:\.\d+)?|[-+*/()]|\S/g) || [];
  let at = 0;
  const wrong = () => new Error("cannot be calculated: " + text);
  function factor() {
    const token = tokens[at++];
    if (token === "-") return -factor();
    if (token === "(") {
      const value = sum();
      if (tokens[at++] !== ")") throw wrong();
      return value;
    }
    if (token === undefined || !/^\d/.test(token)) throw wrong();
    return Number(token);
  }
  function product() {
    let value = factor();
    while (tokens[at] === "*" || tokens[at] === "/") value = tokens[at++] === "*" ? value * factor() : value / factor();
    return value;
  }
  function sum() {
    let value = product();
    while (tokens[at] === "+" || tokens[at] === "-") value = tokens[at++] === "+" ? value + product() : value - product();
    return value;
  }
  const value = sum();
  if (at < tokens.length) throw wrong();
  return String(value);
}

function runTool(call) {
  try {
    if (call.function.name === "current_time") return new Date().toString();
    if (call.function.name === "calculate") return calculate(JSON.parse(call.function.arguments).expression);
    return "there is no such tool";
  } catch (error) {
    return "error: " + error.message;
  }
}

// ---- one answer

// Calls `take` with each event of a server-sent event stream, parsed.
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data && data !== "[DONE]") take(JSON.parse(data));
    }
  }
}

class AnswerView {
  constructor() {
    this.card = element($("chat"), "div", "message assistant");
    this.numbers = element(this.card, "div", "numbers");
    this.begin = performance.now();
    this.message = { role: "assistant", content: "", reasoning_content: "", tool_calls: [] };
    this.calls = [];
  }
  part(name, className) {
    const made = element(this.card, name, className);
    this.card.insertBefore(made, this.numbers);
    return made;
  }
  reason(text) {
    if (!this.thought) {
      this.details = this.part("details", "thinking");
      this.details.open = true;
      element(this.details, "summary", "", "Thinking");
      this.thought = element(this.details, "div", "thought");
    }
    this.message.reasoning_content += text;
    this.thought.append(text);
  }
  say(text) {
    if (!text) return;
    if (!this.text) {
      this.text = this.part("div", "text");
      if (this.details) this.details.open = false;
    }
    this.message.content += text;
    this.text.append(text);
  }
  call(delta) {
    if (!this.calls[delta.index]) {
      const card = this.part("div", "call");
      element(card, "span", "name", delta.function.name);
      this.calls[delta.index] = element(card, "span", "arguments", " ");
      this.message.tool_calls[delta.index] = {
        id: delta.id, type: "function", function: { name: delta.function.name, arguments: "" },
      };
    }
    const piece = delta.function.arguments || "";
    this.message.tool_calls[delta.index].function.arguments += piece;
    this.calls[delta.index].append(piece);
  }
  result(index, text) {
    element(this.calls[index].parentNode, "div", "result", "→ " + text);
  }
  fail(text) {
    this.part("div", "error").textContent = text;
  }
  count(usage) {
    if (!usage) return;
    const now = performance.now();
    if (this.first === undefined && usage.completion_tokens > 0) {
      this.first = now;
      this.already = usage.completion_tokens;
    }
    const seconds = (now - (this.first ?? now)) / 1000;
    const speed = seconds > 0 ? (usage.completion_tokens - this.already) / seconds : 0;
    const cached = usage.prompt_tokens_details?.cached_tokens || 0;
    this.numbers.textContent =
      `${usage.completion_tokens} tokens` + (speed > 0 ? `, ${speed.toFixed(1)} tokens/s` : "") +
      (this.first === undefined ? "" : `, first after ${((this.first - this.begin) / 1000).toFixed(2)} s`) +
      `, prompt ${usage.prompt_tokens}` + (cached ? ` (${cached} from cache)` : "");
  }
  take(chunk) {
    if (chunk.error) throw new Error(chunk.error.message);
    const delta = chunk.choices[0]?.delta;
    if (delta?.reasoning_content) this.reason(delta.reasoning_content);
    if (delta?.content) this.say(delta.content);
    for (const call of delta?.tool_calls || []) this.call(call);
    this.count(chunk.usage);
    const chat = $("chat");
    if (chat.scrollHeight - chat.scrollTop - chat.clientHeight < 200) chat.scrollTop = chat.scrollHeight;
  }
  finished() {
    if (this.details) this.details.open = false;
    const message = this.message;
    if (!message.tool_calls.length) delete message.tool_calls;
    if (!message.reasoning_content) delete message.reasoning_content;
    return message;
  }
}

function requestBody() {
  const system = $("system").value.trim();
  const body = {
    messages: system ? [{ role: "system", content: system }, ...conversation] : conversation,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    thinking: { type: $("thinking").checked ? "enabled" : "disabled" },
  };
  if ($("temperature").value !== "") body.temperature = Number($("temperature").value);
  if ($("max-tokens").value !== "") body.max_tokens = Number($("max-tokens").value);
  if ($("tools").checked) body.tools = TOOLS;
  return body;
}

// Streams one message of the assistant into the page.
async function ask() {
  const view = new AnswerView();
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers() },
      body: JSON.stringify(requestBody()),
      signal: running.signal,
    });
    if (!response.ok) {
      const error = await response.json().catch(() => null);
      throw new Error(error?.error?.message || "the server answered with status " + response.status);
    }
    await readEvents(response, (chunk) => view.take(chunk));
  } catch (error) {
    view.fail(error.name === "AbortError" ? "stopped" : error.message);
    return [null, view];
  }
  return [view.finished(), view];
}

const MOST_ROUNDS = 5; // of tool calls in one turn

async function send(text) {
  $("empty").hidden = true;
  element(element($("chat"), "div", "message user"), "div", "text", text);
  $("chat").scrollTop = $("chat").scrollHeight;
  const before = conversation.length;
  conversation.push({ role: "user", content: text });
  running = new AbortController();
  setBusy(true);
  for (let round = 0; round < MOST_ROUNDS; ++round) {
    const [message, view] = await ask();
    if (!message) {
      conversation.length = before; // a turn without an answer is not repeated to the model
      break;
    }
    conversation.push(message);
    if (!message.tool_calls) break;
    message.tool_calls.forEach((call, index) => {
      const result = runTool(call);
      view.result(index, result);
      conversation.push({ role: "tool", tool_call_id: call.id, content: result });
    });
  }
  running = null;
  setBusy(false);
}

function setBusy(busy) {
  $("send").hidden = busy;
  $("stop").hidden = !busy;
  $("clear").disabled = busy;
  if (!busy) $("input").focus();
}

// ---- the server's numbers

let lastStats = null;

function showStats(stats) {
  $("model").textContent = stats.ready ? stats.models[0] : "not ready";
  if (stats.needs_key && !$("key").value) $("model").textContent += " – needs an API key (Settings)";
  if (!stats.models) return;
  $("running").textContent = stats.running;
  $("waiting").textContent = stats.waiting;
  $("cache").value = stats.kv_cache_usage;
  $("cache-text").textContent =
    `${(100 * stats.kv_cache_usage).toFixed(0)} % + ${(100 * stats.kv_cache_kept).toFixed(0)} % kept`;
  $("hits").textContent =
    stats.prompt_tokens ? (100 * stats.prompt_tokens_cached / stats.prompt_tokens).toFixed(0) + " %" : "–";
  const now = performance.now();
  if (lastStats) {
    const seconds = (now - lastStats.at) / 1000;
    $("server-speed").textContent = ((stats.generation_tokens - lastStats.tokens) / seconds).toFixed(0);
  }
  lastStats = { at: now, tokens: stats.generation_tokens };
}

async function pollStats() {
  if (!document.hidden) {
    try {
      showStats(await (await fetch("/stats")).json());
    } catch {
      $("model").textContent = "the server does not answer";
      lastStats = null;
    }
  }
  setTimeout(pollStats, 1000);
}

// ---- the page

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function fit() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = input.scrollHeight + 2 + "px";
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("input").value.trim();
  if (!text || running) return;
  $("input").value = "";
  fit();
  send(text);
});
$("input").addEventListener("input", fit);
$("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("form").requestSubmit();
});
$("stop").addEventListener("click", () => running?.abort());
$("clear").addEventListener("click", () => {
  conversation.length = 0;
  document.querySelectorAll(".message").forEach((message) => message.remove());
  $("empty").hidden = false;
});
$("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
$("open-settings").addEventListener("click", () => {
  $("settings").hidden = !$("settings").hidden;
  $("open-settings").setAttribute("aria-expanded", String(!$("settings").hidden));
});
$("key").value = sessionStorage.getItem("key") || "";
$("key").addEventListener("change", () => sessionStorage.setItem("key", $("key").value));
setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
pollStats();
