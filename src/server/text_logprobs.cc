#include "server/text_logprobs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/openai_json.h"

namespace gannet::server {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // what bytes that are no UTF-8 became

OrderedJson logprob_entry(const text::Tokenizer& tokenizer, const TokenLogprob& token, bool as_ids) {
  OrderedJson entry;
  const std::string text = token_display(tokenizer, token.id);
  entry["token"] = as_ids ? token_id_name(token.id) : text;
  entry["logprob"] = finite_logprob(token.logprob);
  entry["bytes"] = OrderedJson::array();
  for (const char byte : text) entry["bytes"].push_back(static_cast<unsigned char>(byte));
  return entry;
}

}  // namespace

void TextLogprobs::push(const std::vector<Token>& tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

std::vector<Token> TextLogprobs::take(std::string_view text) {
  std::vector<Token> taken;
  while (!text.empty() && !tokens_.empty()) {
    const Token& token = tokens_.front();
    std::string_view bytes;
    if (!tokenizer_->is_added(token.id)) bytes = tokenizer_->token_bytes(token.id);
    const std::string_view rest = bytes.substr(std::min(used_, bytes.size()));
    const auto end = std::mismatch(rest.begin(), rest.end(), text.begin(), text.end()).first;
    const auto same = static_cast<size_t>(end - rest.begin());
    if (same > 0 && used_ == 0) taken.push_back(token);
    used_ += same;
    text.remove_prefix(same);
    if (same < rest.size() && text.empty()) break;  // it goes on in the next piece
    if (same < rest.size() && text.starts_with(kReplacement)) text.remove_prefix(kReplacement.size());
    tokens_.pop_front();
    used_ = 0;
  }
  return taken;
}

OrderedJson token_logprobs_json(const text::Tokenizer& tokenizer, const std::vector<Token>& tokens, bool as_ids) {
  OrderedJson list = OrderedJson::array();
  for (const auto& token : tokens) {
    if (!token.logprob) continue;
    OrderedJson entry = logprob_entry(tokenizer, *token.logprob, as_ids);
    entry["top_logprobs"] = OrderedJson::array();
    for (const auto& other : token.top_logprobs) {
      entry["top_logprobs"].push_back(logprob_entry(tokenizer, other, as_ids));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace gannet::server
