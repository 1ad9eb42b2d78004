#include "server/responses_events.h"

#include <algorithm>
#include <utility>

#include "text/protocol/sealed_reasoning.h"

namespace gannet::server {
namespace {

using text::Delta;

// The one argument of a tool that takes free text; other arguments show as the JSON that they are.
std::string free_text(const std::string& arguments) {
  const auto json = OrderedJson::parse(arguments, nullptr, false);
  const bool is_input = json.is_object() && json.size() == 1 && json.contains("input") && json.front().is_string();
  return is_input ? json.front().get<std::string>() : arguments;
}

OrderedJson usage_json_of(const AnswerSet& answers) {
  OrderedJson usage;
  usage["input_tokens"] = answers.prompt_tokens();
  usage["input_tokens_details"]["cached_tokens"] = answers.cached_tokens();
  usage["output_tokens"] = answers.completion_tokens();
  usage["output_tokens_details"]["reasoning_tokens"] = answers.reasoning_tokens();
  usage["total_tokens"] = answers.prompt_tokens() + answers.completion_tokens();
  return usage;
}

// The codes that clients of this API know.
std::string_view failure_code(const ApiError& error) {
  if (error.code == "context_length_exceeded") return "context_length_exceeded";
  if (error.status == 429) return "rate_limit_exceeded";
  return error.status >= 500 ? "server_error" : "invalid_prompt";
}

}  // namespace

ResponsesWriter::ResponsesWriter(OrderedJson response, const text::ChatRequest& chat, const text::Tokenizer& tokenizer,
                                 bool seals_reasoning)
    : response_(std::move(response)),
      namespaces_(chat.namespaces),
      search_name_(chat.tool_search_name),
      custom_tools_(chat.custom_tools),
      shows_reasoning_(chat.include_reasoning),
      shows_logprobs_(chat.sampling.logprobs),
      seals_reasoning_(seals_reasoning),
      tokenizer_(&tokenizer),
      tokens_(tokenizer) {}

void ResponsesWriter::begin(std::string& out) {
  write_response("response.created", out);
  write_response("response.in_progress", out);
}

void ResponsesWriter::take(const Answer& answer, const Answer::Step& step, std::string& out) {
  if (shows_logprobs_) tokens_.push(step.tokens);
  for (const auto& delta : step.deltas) take_delta(answer, delta, out);
}

void ResponsesWriter::take_delta(const Answer& answer, const Delta& delta, std::string& out) {
  switch (delta.kind) {
    case Delta::Kind::reasoning:
    case Delta::Kind::content: {
      const bool is_reasoning = delta.kind == Delta::Kind::reasoning;
      const auto tokens = tokens_.take(delta.text);  // none without logprobs
      if (is_reasoning && !shows_reasoning_) return;
      const Item kind = is_reasoning ? Item::reasoning : Item::message;
      if (open_ != kind) open_text(kind, out);
      text_ += delta.text;
      OrderedJson event = item_event(is_reasoning ? "response.reasoning_text.delta" : "response.output_text.delta");
      event["content_index"] = 0;
      event["delta"] = delta.text;
      if (!is_reasoning) {
        OrderedJson logprobs = token_logprobs_json(*tokenizer_, tokens);
        for (const auto& entry : logprobs) logprobs_.push_back(entry);
        event["logprobs"] = std::move(logprobs);
      }
      return write(std::move(event), out);
    }
    case Delta::Kind::tool_call:
      return open_call(delta.text, answer.call_ids()[static_cast<size_t>(delta.call)], out);
    case Delta::Kind::arguments:
      return write_call_input(delta.text, out);
  }
}

void ResponsesWriter::open_text(Item kind, std::string& out) {
  OrderedJson item;
  item["type"] = kind == Item::reasoning ? "reasoning" : "message";
  item["id"] = kind == Item::reasoning ? "rs_" : "msg_";
  item["status"] = "in_progress";
  if (kind == Item::message) {
    item["role"] = "assistant";
    item["phase"] = "final_answer";
  }
  item["content"] = OrderedJson::array();
  if (kind == Item::reasoning) item["summary"] = OrderedJson::array();
  open(kind, std::move(item), out);
  OrderedJson event = item_event("response.content_part.added");
  event["content_index"] = 0;
  event["part"] = text_part("", OrderedJson::array());
  write(std::move(event), out);
}

void ResponsesWriter::open_call(const std::string& name, const std::string& call_id, std::string& out) {
  OrderedJson item;
  Item kind = Item::function_call;
  if (name == search_name_) kind = Item::tool_search_call;
  if (std::find(custom_tools_.begin(), custom_tools_.end(), name) != custom_tools_.end()) kind = Item::custom_tool_call;
  item["type"] = kind == Item::function_call      ? "function_call"
                 : kind == Item::custom_tool_call ? "custom_tool_call"
                                                  : "tool_search_call";
  item["id"] = kind == Item::function_call ? "fc_" : kind == Item::custom_tool_call ? "ctc_" : "tsc_";
  item["status"] = "in_progress";
  item["call_id"] = call_id;
  if (kind == Item::tool_search_call) {
    item["execution"] = "client";
    item["arguments"] = OrderedJson::object();
  } else {
    const auto known = namespaces_.find(name);
    item["name"] = known == namespaces_.end() ? name : known->second.second;
    if (known != namespaces_.end()) item["namespace"] = known->second.first;
    item[kind == Item::function_call ? "arguments" : "input"] = "";
  }
  open(kind, std::move(item), out);
}

void ResponsesWriter::write_call_input(const std::string& arguments, std::string& out) {
  text_ += open_ == Item::custom_tool_call ? free_text(arguments) : arguments;
  if (open_ == Item::tool_search_call) return;
  OrderedJson event = item_event(open_ == Item::function_call ? "response.function_call_arguments.delta"
                                                              : "response.custom_tool_call_input.delta");
  event["delta"] = text_;
  write(std::move(event), out);
}

void ResponsesWriter::open(Item kind, OrderedJson item, std::string& out) {
  close("completed", out);
  open_ = kind;
  item_ = std::move(item);
  text_.clear();
  logprobs_ = OrderedJson::array();
  item_["id"] = fmt::format("{}{}_{}", item_["id"].get<std::string>(), response_["id"].get<std::string>(),
                            response_["output"].size());
  OrderedJson event;
  event["type"] = "response.output_item.added";
  event["item"] = item_;
  event["output_index"] = response_["output"].size();
  write(std::move(event), out);
}

void ResponsesWriter::close(std::string_view status, std::string& out) {
  if (open_ == Item::none) return;
  if (open_ == Item::reasoning || open_ == Item::message) {
    close_text(out);
  } else {
    close_call(out);
  }
  item_["status"] = status;
  OrderedJson event;
  event["type"] = "response.output_item.done";
  event["item"] = item_;
  event["output_index"] = response_["output"].size();
  write(std::move(event), out);
  response_["output"].push_back(std::move(item_));
  open_ = Item::none;
}

void ResponsesWriter::close_text(std::string& out) {
  const bool is_reasoning = open_ == Item::reasoning;
  OrderedJson text = item_event(is_reasoning ? "response.reasoning_text.done" : "response.output_text.done");
  text["content_index"] = 0;
  text["text"] = text_;
  if (!is_reasoning) text["logprobs"] = logprobs_;
  write(std::move(text), out);
  OrderedJson part = item_event("response.content_part.done");
  part["content_index"] = 0;
  part["part"] = text_part(text_, logprobs_);
  write(std::move(part), out);
  item_["content"].push_back(text_part(text_, logprobs_));
  if (is_reasoning && seals_reasoning_) item_["encrypted_content"] = text::seal_reasoning(text_);
}

void ResponsesWriter::close_call(std::string& out) {
  if (open_ == Item::tool_search_call) {
    item_["arguments"] = OrderedJson::parse(text_, nullptr, false);
    return;
  }
  const bool is_function = open_ == Item::function_call;
  OrderedJson event =
      item_event(is_function ? "response.function_call_arguments.done" : "response.custom_tool_call_input.done");
  if (is_function) event["name"] = item_["name"];
  event[is_function ? "arguments" : "input"] = text_;
  item_[is_function ? "arguments" : "input"] = text_;
  write(std::move(event), out);
}

OrderedJson ResponsesWriter::text_part(const std::string& text, const OrderedJson& logprobs) const {
  OrderedJson part;
  part["type"] = open_ == Item::reasoning ? "reasoning_text" : "output_text";
  if (open_ == Item::message) {
    part["annotations"] = OrderedJson::array();
    part["logprobs"] = logprobs;
  }
  part["text"] = text;
  return part;
}

OrderedJson ResponsesWriter::item_event(const char* type) const {
  OrderedJson event;
  event["type"] = type;
  event["item_id"] = item_["id"];
  event["output_index"] = response_["output"].size();
  return event;
}

void ResponsesWriter::write(OrderedJson event, std::string& out) {
  event["sequence_number"] = sequence_number_++;
  out += sse_event(event["type"].get<std::string>(), event);
}

void ResponsesWriter::write_response(const char* type, std::string& out) {
  OrderedJson event;
  event["type"] = type;
  event["response"] = response_;
  write(std::move(event), out);
}

void ResponsesWriter::finish(const AnswerSet& answers, std::string& out) {
  const auto reason = answers[0].message().finish_reason;
  const bool is_cut = reason == text::FinishReason::length || reason == text::FinishReason::content_filter;
  close(is_cut ? "incomplete" : "completed", out);
  response_["status"] = is_cut ? "incomplete" : "completed";
  response_["completed_at"] = unix_time();
  if (is_cut) {
    const bool is_length = reason == text::FinishReason::length;
    response_["incomplete_details"]["reason"] = is_length ? "max_output_tokens" : "content_filter";
  }
  response_["usage"] = usage_json_of(answers);
  write_response(is_cut ? "response.incomplete" : "response.completed", out);
}

void ResponsesWriter::fail(const ApiError& error, std::string& out) {
  close("incomplete", out);
  response_["status"] = "failed";
  response_["error"]["code"] = failure_code(error);
  response_["error"]["message"] = error.message;
  write_response("response.failed", out);
}

}  // namespace gannet::server
