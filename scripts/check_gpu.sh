#!/usr/bin/env bash
# On a machine with an H100 or H200: the tests of the CUDA kernels, the memory checkers over all but the longest, and nano
# on the GPU against nano on the processor; about two minutes. Programs built elsewhere will do:
#
#     scripts/check_gpu.sh [--racecheck] [BUILD]     # BUILD: folder with gannet and gannet-gpu-test, default build
#
# --racecheck adds that checker, which takes more than ten minutes and is known to report the ring of weights
# (docs/gpu.md). The last line is "N passed, N failed". Speed is another matter: gannet-gpu-test --bench, gannet bench --help.
set -uo pipefail
cd "$(dirname "$0")/.."

tools=(memcheck initcheck)
if [ "${1:-}" = --racecheck ]; then
  tools+=(racecheck)
  shift
fi
build=${1:-build}
passed=0
failed=0

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
# The checkers are a hundred times slower, so all run at once, each in several processes.
long='*Benchmark*:*Repeat*:*LongContexts*:*MoreThanHalfAMillion*:*ReleasedWidths*:*LargeChunk*'
shards=6
inspect() {  # inspect TOOL SHARD
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$2 "$sanitizer" --tool "$1" --error-exitcode 1 \
    "$build/gannet-gpu-test" --gtest_brief=1 --gtest_filter="-$long" >"$reports/$1.$2" 2>&1
}
all_passed() {  # all_passed TOOL: waits for its processes and shows the end of what the failing ones wrote
  local status=0
  for ((shard = 0; shard < shards; shard++)); do
    wait "${pids[$1.$shard]}" || { status=1; tail -n 25 "$reports/$1.$shard"; }
  done
  return $status
}
if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
  reports=$(mktemp -d)
  trap 'rm -rf "$reports"' EXIT
  declare -A pids
  for tool in "${tools[@]}"; do
    for ((shard = 0; shard < shards; shard++)); do
      inspect "$tool" $shard &
      pids[$tool.$shard]=$!
    done
  done
  for tool in "${tools[@]}"; do
    check "$tool" all_passed "$tool"
  done
else
  echo "compute-sanitizer is not here: no memory checks"
fi
check "nano, GPU against processor" python3 tests/gpu_check.py --gannet "$build/gannet"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
