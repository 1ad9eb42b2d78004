#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for a number of inputs (RUNS, default 20000), always the same ones:
#   scripts/run_fuzzers.sh [TARGET...]
# For a long search: RUNS=-1 SEED=0 scripts/run_fuzzers.sh body_fuzz. Inputs that break something stay in build/fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${FUZZ_BUILD:-build/fuzz}
runs=${RUNS:-20000}
seed=${SEED:-1}
if ! command -v clang++-19 >/dev/null; then
  echo "gannet: the fuzz targets need clang++-19 and its libFuzzer (packages clang-19 libclang-rt-19-dev)" >&2
  exit 2
fi
cmake --preset fuzz -B "$build" -Wno-dev --log-level=WARNING >/dev/null
ninja -C "$build" fuzzers

targets=("$@")
[ ${#targets[@]} -gt 0 ] || for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
passed=0
failed=0
mkdir -p "$build/found"
for target in "${targets[@]}"; do
  corpus=$build/corpus/$target
  mkdir -p "$corpus"
  if "$build/$target" -runs="$runs" -seed="$seed" -timeout=10 -rss_limit_mb=4096 -max_len=8192 -verbosity=0 \
    -artifact_prefix="$build/found/$target-" "$corpus" "tests/fuzz/seeds/$target" >"$build/$target.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -n 40 "$build/$target.log"
    echo "gannet: $target failed; the input is in $build/found, the whole output in $build/$target.log" >&2
  fi
  # The next run begins at the seeds again, so that it tries the same inputs.
  [ "$seed" -eq 0 ] || rm -rf "$corpus"
done
echo "fuzzers: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
