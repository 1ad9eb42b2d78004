#!/usr/bin/env bash
# Serves the shipped model, asks it one question through its own API, and goes on serving until Ctrl-C. Without a
# terminal on stdin it stops after the answer; the exit status says whether there was one. PORT chooses the port.
set -euo pipefail
cd "$(dirname "$0")/.."

gannet=${BUILD:-build}/gannet
port=${PORT:-8000}
url=http://127.0.0.1:$port
question=${QUESTION:-Hello! Who are you?}
deadline_s=120

if curl -s -o /dev/null "$url/live"; then
  echo "gannet: something answers at $url already; PORT=8001 make run takes another port" >&2
  exit 1
fi
answer=$(mktemp)
"$gannet" serve nano --port "$port" --log-level warning &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -f "$answer"' EXIT

for ((i = 0; i < deadline_s * 10; i++)); do
  kill -0 "$server" 2>/dev/null || { echo "gannet: the server did not start; its message is above" >&2; exit 1; }
  curl -fs -o /dev/null "$url/ready" && break
  sleep 0.1
done

printf '\n> %s\n' "$question"
printf '%s\n' "$question" | "$gannet" chat --url "$url" | tee "$answer"
grep -q '[[:alnum:]]' "$answer" || { echo "gannet: there was no answer" >&2; exit 1; }

cat <<EOF

The server is at $url. Ask it more:
  curl -N $url/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{"model": "nano", "stream": true, "messages": [{"role": "user", "content": "What is 23 + 14?"}]}'
EOF
if [ -t 0 ]; then
  echo "Ctrl-C stops it."
  wait "$server"
fi
