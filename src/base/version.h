#pragma once

namespace gannet {

// The same as in CMakeLists.txt.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace gannet
