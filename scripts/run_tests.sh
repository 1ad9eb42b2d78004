#!/usr/bin/env bash
# Runs every test program of the build and the end-to-end tests; the last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build}
passed=0
failed=0
skipped=0

count() {  # count NAME PASSED FAILED SKIPPED
  printf '%-24s %5d passed, %d failed, %d skipped\n' "$1" "$2" "$3" "$4"
  passed=$((passed + $2))
  failed=$((failed + $3))
  skipped=$((skipped + $4))
}

for program in "$build"/src/*_test; do
  name=$(basename "$program")
  result=$build/$name.json
  rm -f "$result"
  "$program" --gtest_brief=1 --gtest_output="json:$result"
  status=$?
  tests=$(grep -m1 -o '"tests": [0-9]*' "$result" 2>/dev/null | grep -o '[0-9]*')
  failures=$(grep -m1 -o '"failures": [0-9]*' "$result" 2>/dev/null | grep -o '[0-9]*')
  if [ -z "$tests" ] || { [ "$status" -ne 0 ] && [ "${failures:-0}" -eq 0 ]; }; then
    count "$name" 0 1 0  # it crashed before it could report
  else
    without=$(grep -c '"result": "SKIPPED"' "$result")
    count "$name" $((tests - failures - without)) "$failures" "$without"
  fi
done

venv=$build/venv
if ! cmp -s tests/requirements.txt "$venv/requirements.txt"; then
  echo "gannet: installing the Python clients that the end-to-end tests use"
  rm -rf "$venv"
  python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt &&
    cp tests/requirements.txt "$venv/requirements.txt"
fi
for script in tests/*_test.py; do
  log=$build/$(basename "$script" .py).log
  "$venv/bin/python" "$script" --gannet "$build/gannet" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  ran=$(grep -o '^Ran [0-9]* test' "$log" | grep -o '[0-9]*')
  bad=$(grep -oE '(failures|errors)=[0-9]+' "$log" | grep -o '[0-9]*' | awk '{s += $1} END {print s + 0}')
  if [ -z "$ran" ] || [ "$ran" -eq 0 ] || { [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
    count "$(basename "$script")" 0 1 0
  else
    without=$(grep -oE 'skipped=[0-9]+' "$log" | grep -o '[0-9]*' | awk '{s += $1} END {print s + 0}')
    count "$(basename "$script")" $((ran - bad - without)) "$bad" "$without"
  fi
done

echo "gannet: building and running the fuzz targets"
FUZZ_BUILD=$build/fuzz scripts/run_fuzzers.sh 2>&1 | tee "$build/fuzzers.log"
count run_fuzzers.sh "$(grep -oE '^fuzzers: [0-9]+' "$build/fuzzers.log" | grep -o '[0-9]*' || echo 0)" \
  "$(grep -oE '[0-9]+ failed$' "$build/fuzzers.log" | tail -1 | grep -o '[0-9]*' || echo 1)" 0

[ "$skipped" -eq 0 ] || echo "$skipped tests were skipped; they say why above"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
