#include "base/version.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "cli/command.h"

namespace gannet::cli {
namespace {

using nlohmann::ordered_json;

#ifdef GANNET_WITH_CUDA
constexpr bool kWithCuda = true;
#else
constexpr bool kWithCuda = false;
#endif

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

Status print_version(bool json) {
  const std::vector<std::string> built = {name_of(Simd::avx2), name_of(Simd::avx512)};
  const std::string usable = name_of(detect_simd());
  if (json) {
    const ordered_json result = {{"version", kVersion},
                                 {"compiler", compiler()},
                                 {"simd", {{"built_in", built}, {"usable_here", usable}}},
                                 {"cuda", {{"built_in", kWithCuda}}}};
    fmt::print("{}\n", result.dump(2));
    return {};
  }
  fmt::print("gannet {}\n", kVersion);
  fmt::print("compiler  {}\n", compiler());
  fmt::print("SIMD      built in: {}; best that this machine has: {}\n", fmt::join(built, ", "), usable);
  fmt::print("CUDA      {}\n", kWithCuda ? "built in" : "not built in");
  return {};
}

}  // namespace

void add_version(Command& root) {
  const auto json = std::make_shared<bool>(false);
  auto command =
      root.subcommand("version", "Version, compiler, and the CUDA and SIMD variants built in and usable here");
  command.flag("--json", *json, "Machine-readable");
  command.example("gannet version");
  command.action([json] { return print_version(*json); });
}

}  // namespace gannet::cli
