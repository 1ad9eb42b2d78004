#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gannet::text {

// Reasoning as `encrypted_content` of the Responses API carries it through a client that must not look inside: text in
// a form of our own (base64, not secret), so that a client that sends only this back still restores the history.
std::string seal_reasoning(std::string_view reasoning);
// nullopt for anything but a result of seal_reasoning(), such as what another server made.
std::optional<std::string> unseal_reasoning(std::string_view sealed);

}  // namespace gannet::text
