#include "base/version.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "base/cuda.h"
#include "base/device.h"
#include "cli/command.h"
#include "cli/output.h"

namespace gannet::cli {
namespace {

using nlohmann::ordered_json;

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string version_json(const std::vector<std::string>& simd, const CudaSupport& cuda) {
  const ordered_json result = {
      {"version", kVersion},
      {"compiler", compiler()},
      {"simd", {{"built_in", simd}, {"usable_here", name_of(detect_simd())}}},
      {"cuda", {{"built_in", cuda.built_in}, {"usable_here", cuda.usable}, {"obstacle", cuda.obstacle}}}};
  return result.dump(2) + "\n";
}

std::string version_text(const std::vector<std::string>& simd, const CudaSupport& cuda) {
  return fmt::format(
      "gannet {}\n"
      "compiler  {}\n"
      "SIMD      built in: {}; best that this machine has: {}\n"
      "CUDA      {}; {}\n",
      kVersion, compiler(), fmt::join(simd, ", "), name_of(detect_simd()), cuda.built_in ? "built in" : "not built in",
      cuda.usable.empty() ? "not usable here: " + cuda.obstacle : cuda.usable);
}

Status print_version(bool json) {
  const std::vector<std::string> simd = {name_of(Simd::avx2), name_of(Simd::avx512)};
  const CudaSupport cuda = cuda_support();
  return write_output(json ? version_json(simd, cuda) : version_text(simd, cuda));
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
