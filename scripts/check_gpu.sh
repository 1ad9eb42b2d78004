#!/usr/bin/env bash
# On a machine with an H100 or H200: the tests of the CUDA kernels, the memory checkers over all but the longest, and nano
# on the GPU against nano on the processor. Programs built elsewhere will do:
#
#     scripts/check_gpu.sh [BUILD]          # BUILD: folder with gannet and gannet-gpu-test, default build
#
# The last line is "N passed, N failed". Speed is another matter: gannet-gpu-test --bench, gannet bench --help.
set -uo pipefail
cd "$(dirname "$0")/.."

build=${1:-build}
passed=0
failed=0
pids=()

check() {  # check NAME COMMAND...
  local name=$1
  shift
  if "$@"; then
    passed=$((passed + 1))
    echo "ok   $name"
  else
    failed=$((failed + 1))
    echo "FAIL $name"
  fi
}

check "kernels" "$build/gannet-gpu-test" --gtest_brief=1
# The checkers are a hundred times slower, so all three run at once. racecheck is known to report the ring of weights
# (docs/gpu.md).
long='*Benchmark*:*Repeat*:*LongContexts*:*MoreThanHalfAMillion*:*ReleasedWidths*:*LargeChunk*'
tools=(memcheck racecheck initcheck)
if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
  reports=$(mktemp -d)
  trap 'rm -rf "$reports"' EXIT
  for tool in "${tools[@]}"; do
    "$sanitizer" --tool "$tool" --error-exitcode 1 "$build/gannet-gpu-test" --gtest_brief=1 --gtest_filter="-$long" \
      >"$reports/$tool" 2>&1 &
    pids+=($!)
  done
  for i in "${!tools[@]}"; do
    check "${tools[$i]}" wait "${pids[$i]}"
    tail -n 25 "$reports/${tools[$i]}"
  done
else
  echo "compute-sanitizer is not here: no memory checks"
fi
check "nano, GPU against processor" python3 tests/gpu_check.py --gannet "$build/gannet"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
