#include "text/unsampled_ids.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "text/template/control_tokens.h"

namespace gannet::text {
namespace {

constexpr std::array<std::string_view, 6> kTokens = {
    control::kBegin,      "<｜▁pad▁｜>",          control::kImage, control::kImageOtherSpelling,
    "<｜rl_image_pad｜>", "<｜rl_image_start｜>",
};
constexpr std::array<std::string_view, 2> kPlaceHolders = {"place▁holder", "place_holder"};

bool is_unsampled(std::string_view spelling) {
  return std::find(kTokens.begin(), kTokens.end(), spelling) != kTokens.end() ||
         std::any_of(kPlaceHolders.begin(), kPlaceHolders.end(),
                     [&](std::string_view part) { return spelling.find(part) != std::string_view::npos; });
}

}  // namespace

std::vector<int32_t> unsampled_ids(const Tokenizer& tokenizer, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const bool known = id < tokenizer.vocab_size();
    if (!known || (tokenizer.is_added(id) && is_unsampled(tokenizer.token_text(id)))) ids.push_back(id);
  }
  return ids;
}

}  // namespace gannet::text
