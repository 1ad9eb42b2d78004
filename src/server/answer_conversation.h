#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/answer_set.h"
#include "server/served_model.h"
#include "text/chat_request.h"

// From a conversation, whichever API brought it, to the engine: there is no other way.
namespace gannet::server {

// Checks model, pictures and size of a conversation and makes its prompt, in which earlier answers with calls stand as
// they were generated, where that is known.
ApiResult<std::vector<int32_t>> conversation_prompt(const ServedModel& model, text::ChatRequest& chat);

// Refuses a form of the answer that this server cannot bring about; it must not be left out in silence.
ApiResult<void> check_form(const ServedModel& model, const text::ChatRequest& chat);
// Makes the constraint of one answer to `chat`, which must outlive the result; empty if the server has none.
std::function<Result<std::shared_ptr<TokenConstraint>>()> constraint_maker(const ServedModel& model,
                                                                           const text::ChatRequest& chat);

// Starts the answers to a conversation. `id`: of the response.
ApiResult<AnswerSet> answer_conversation(const ServedModel& model, text::ChatRequest& chat, const std::string& id);

}  // namespace gannet::server
