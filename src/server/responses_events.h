#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/answer_set.h"
#include "server/openai_json.h"
#include "server/text_logprobs.h"
#include "text/chat_request.h"

namespace gannet::server {

// Turns one answer into the items of a response and the events that tell of them. Whoever wants the response alone
// drops the events.
class ResponsesWriter {
 public:
  // `response`: the object as it is before anything was generated. `chat` says how the names of calls came about, and
  // whether its text shows log-probabilities. The tokenizer must outlive the object.
  ResponsesWriter(OrderedJson response, const text::ChatRequest& chat, const text::Tokenizer& tokenizer,
                  bool seals_reasoning);

  // In this order: begin(), take() for each step of the answer, then finish() or fail(). All append events.
  void begin(std::string& out);
  void take(const Answer& answer, const Answer::Step& step, std::string& out);
  void finish(const AnswerSet& answers, std::string& out);
  void fail(const ApiError& error, std::string& out);

  // The object; complete once finish() or fail() was called.
  const OrderedJson& response() const { return response_; }

 private:
  enum class Item { none, reasoning, message, function_call, custom_tool_call, tool_search_call };

  void take_delta(const Answer& answer, const text::Delta& delta, std::string& out);
  void open_text(Item kind, std::string& out);
  void open_call(const std::string& name, const std::string& call_id, std::string& out);
  void write_call_input(const std::string& arguments, std::string& out);
  void open(Item kind, OrderedJson item, std::string& out);
  void close(std::string_view status, std::string& out);
  void close_text(std::string& out);
  void close_call(std::string& out);
  OrderedJson text_part(const std::string& text, const OrderedJson& logprobs) const;
  // An event about the open item.
  OrderedJson item_event(const char* type) const;
  void write(OrderedJson event, std::string& out);
  void write_response(const char* type, std::string& out);

  OrderedJson response_;
  const std::map<std::string, std::pair<std::string, std::string>> namespaces_;
  const std::string search_name_;
  const std::vector<std::string> custom_tools_;
  const bool shows_reasoning_;
  const bool shows_logprobs_;
  const bool seals_reasoning_;
  const text::Tokenizer* tokenizer_;
  TextLogprobs tokens_;
  int64_t sequence_number_ = 0;
  Item open_ = Item::none;
  OrderedJson item_;                             // the open one
  std::string text_;                             // of the open item: its text, arguments or input
  OrderedJson logprobs_ = OrderedJson::array();  // of its text
};

}  // namespace gannet::server
