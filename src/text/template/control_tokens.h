#pragma once

#include <array>
#include <string_view>

// Spellings of the control tokens (spec: text, section 1.1). Their ids depend on the tokenizer and are looked up.
namespace gannet::text::control {

inline constexpr std::string_view kBegin = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEnd = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkStart = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kImage = "<｜deepseek_image｜>";
// The same token in tokenizers made by the official package.
inline constexpr std::string_view kImageOtherSpelling = "<｜image｜>";

// What the model writes to point at places of a picture. These are control tokens also inside an assistant's text.
inline constexpr std::array<std::string_view, 8> kGrounding = {"<｜ref｜>",     "<｜/ref｜>",    "<｜box｜>",
                                                               "<｜/box｜>",    "<｜point｜>",   "<｜/point｜>",
                                                               "<｜polygon｜>", "<｜/polygon｜>"};

}  // namespace gannet::text::control
