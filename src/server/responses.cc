#include "server/responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/answer_conversation.h"
#include "server/responses_events.h"
#include "server/responses_object.h"
#include "text/protocol/fields.h"
#include "text/protocol/responses_body.h"

namespace gannet::server {
namespace {

using text::Fields;
using text::Json;

// Keeps a response for requests that go on from it.
struct Keeper {
  std::shared_ptr<ResponsesStore> store;  // null: it is not kept
  std::string input;                      // JSON text of the list of input items

  void keep(const OrderedJson& response) const {
    if (store == nullptr) return;
    std::string items = input.substr(0, input.size() - 1);
    for (const auto& item : response["output"]) items += (items.size() > 1 ? "," : "") + to_text(item);
    store->keep(response["id"].get<std::string>(), items + "]");
  }
};

// Tells how the answer goes; `out` gets the events. True at its end.
bool advance(AnswerSet& answers, ResponsesWriter& writer, const Keeper& keeper, std::string& out) {
  Answer& answer = answers[0];
  const auto step = answer.advance();
  writer.take(answer, step, out);
  if (answer.error()) {
    writer.fail(api_error(*answer.error()), out);
  } else if (answer.ended()) {
    writer.finish(answers, out);
    keeper.keep(writer.response());
  }
  return answer.ended();
}

class ResponsesStream : public StreamedAnswer {
 public:
  ResponsesStream(ResponsesWriter writer, AnswerSet answers, Keeper keeper)
      : writer_(std::move(writer)), answers_(std::move(answers)), keeper_(std::move(keeper)) {}

  void start(std::function<void()> wake) override { answers_.notify(wake); }
  std::string content_type() const override { return "text/event-stream"; }
  Headers headers() const override { return stream_headers(); }
  void keep_alive(std::string& out) override { out += kSsePing; }
  int64_t tokens() const override { return answers_.completion_tokens(); }

  bool pull(std::string& out) override {
    if (!std::exchange(begun_, true)) writer_.begin(out);
    return advance(answers_, writer_, keeper_, out);
  }

 private:
  ResponsesWriter writer_;
  AnswerSet answers_;
  Keeper keeper_;
  bool begun_ = false;
};

// A refusal that clients look for among the events.
class RefusedStream : public StreamedAnswer {
 public:
  explicit RefusedStream(std::string events) : events_(std::move(events)) {}

  void start(std::function<void()>) override {}
  std::string content_type() const override { return "text/event-stream"; }
  Headers headers() const override { return stream_headers(); }
  void keep_alive(std::string&) override {}
  bool pull(std::string& out) override {
    out += events_;
    return true;
  }

 private:
  std::string events_;
};

class ResponsesWhole : public WholeAnswer {
 public:
  ResponsesWhole(ResponsesWriter writer, AnswerSet answers, Keeper keeper)
      : writer_(std::move(writer)), answers_(std::move(answers)), keeper_(std::move(keeper)) {}

  void start(std::function<void()> wake) override { answers_.notify(wake); }
  int64_t tokens() const override { return answers_.completion_tokens(); }

  std::optional<HttpResponse> poll() override {
    std::string events;
    if (!advance(answers_, writer_, keeper_, events)) return std::nullopt;
    if (const auto& error = answers_[0].error()) return openai_error(api_error(*error));
    HttpResponse response;
    response.body = to_text(writer_.response());
    return response;
  }

 private:
  ResponsesWriter writer_;
  AnswerSet answers_;
  Keeper keeper_;
};

// Leaving one of these out would answer another question than was asked.
Status refuse_unsupported(const Fields& body) {
  GANNET_TRY(const bool background, body.flag_or("background", false));
  if (background) return invalid_input("background: true is not supported; leave it out and wait for the answer");
  for (const char* key : {"conversation", "prompt"}) {
    if (body.has(key)) {
      return invalid_input("{}: not supported, as nothing of the kind is stored here; send the whole input", key);
    }
  }
  return {};
}

// The items of "input"; a text is one message.
Json::Array input_items(const Json& body) {
  const Json* input = body.find("input");
  if (input == nullptr) return {};
  if (input->array() != nullptr) return *input->array();
  if (input->string() == nullptr) return {};
  return {Json(Json::Object{{"type", "message"}, {"role", "user"}, {"content", *input->string()}})};
}

// Puts the conversation behind previous_response_id in front of the input.
ApiResult<void> continue_previous(const ServedModel& model, Json& body) {
  const Json* previous = body.find("previous_response_id");
  if (previous == nullptr || previous->string() == nullptr || previous->string()->empty()) return {};
  auto items = model.responses->find(*previous->string());
  if (!items) {
    ApiError error = bad_request(
        fmt::format("previous_response_id: the response {} is not known here, or not any more; send the whole "
                    "conversation as input",
                    text::shown(*previous->string())),
        "previous_response_id");
    error.code = "previous_response_not_found";
    return tl::unexpected(std::move(error));
  }
  for (auto& item : input_items(body)) items->push_back(std::move(item));
  for (auto& [name, value] : *body.object()) {
    if (name == "input") {
      value = Json(*std::move(items));
      return {};
    }
  }
  body.object()->emplace_back("input", Json(*std::move(items)));
  return {};
}

bool includes(const Json& body, std::string_view wanted) {
  const Json* include = body.find("include");
  if (include == nullptr || include->array() == nullptr) return false;
  return std::any_of(include->array()->begin(), include->array()->end(),
                     [wanted](const Json& name) { return name.string() != nullptr && *name.string() == wanted; });
}

ApiResult<text::ChatRequest> read_chat(const ServedModel& model, Json& body) {
  const auto fields = Fields::of(body, "");
  if (!fields) return tl::unexpected(api_error(fields.error()));
  if (const auto status = refuse_unsupported(*fields); !status) return tl::unexpected(api_error(status.error()));
  GANNET_TRY_STATUS(continue_previous(model, body));
  auto chat = text::read_responses_request(body, model.conversion);
  if (!chat) return tl::unexpected(api_error(chat.error()));
  return *std::move(chat);
}

ApiResult<Reply> answer(const ServedModel& model, const HttpRequest& request) {
  auto body = text::parse_body(request.body);
  if (!body) return tl::unexpected(api_error(body.error()));
  GANNET_TRY(text::ChatRequest chat, read_chat(model, *body));
  if (includes(*body, "message.output_text.logprobs")) chat.sampling.logprobs = true;
  const auto store = Fields::of(*body, "").value().flag_or("store", true);
  if (!store) return tl::unexpected(api_error(store.error()));

  const std::string id = new_id("resp_");
  ResponsesWriter writer(response_object(model, *body, chat, id, *store), chat, *model.tokenizer,
                         includes(*body, "reasoning.encrypted_content"));
  auto answers = answer_conversation(model, chat, id);
  if (!answers) {
    if (!chat.stream || answers.error().code != "context_length_exceeded") return tl::unexpected(answers.error());
    std::string events;
    writer.begin(events);
    writer.fail(answers.error(), events);
    return std::make_unique<RefusedStream>(std::move(events));
  }
  Keeper keeper;
  if (*store) keeper = {model.responses, text::compact_json(Json(input_items(*body)))};
  if (chat.stream) {
    return std::make_unique<ResponsesStream>(std::move(writer), *std::move(answers), std::move(keeper));
  }
  return std::make_unique<ResponsesWhole>(std::move(writer), *std::move(answers), std::move(keeper));
}

}  // namespace

Reply openai_responses(const ServedModel& model, const HttpRequest& request) {
  auto reply = answer(model, request);
  return reply ? *std::move(reply) : Reply(openai_error(reply.error()));
}

}  // namespace gannet::server
