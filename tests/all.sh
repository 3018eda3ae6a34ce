#!/usr/bin/env bash
# All tests: all.sh PYTHON LOGS. Tests that start clusters keep time. Those that measure how long steps take run one after the other; of the
# rest, which mostly wait, three rows of about four minutes run at once. A cluster of 8 ranks takes a tenth of a core. What starts no cluster
# runs beside all of it at low priority, and asserts nothing about time.
set -u
python=$1 logs=$2
rc=0 started=() names=()

begin() { # NAME MARKERS [PREFIX...]: run in the background, into a log
  local name=$1 markers=$2
  shift 2
  "$@" "$python" -m pytest -q -m "$markers" > "$logs/$name.log" 2>&1 &
  started+=($!) names+=("$name")
}

trap 'kill "${started[@]}" 2> /dev/null; exit 130' INT TERM
begin "without clusters" "not cluster" nice -n 19
"$python" -m pytest -m "cluster and not beside" || rc=1
begin "row 1" "beside(row=1)"
begin "row 2" "beside(row=2)"
"$python" -m pytest -m "beside(row=3)" || rc=1
for k in "${!started[@]}"; do
  wait "${started[k]}" || rc=1
  echo "${names[k]}:"
  cat "$logs/${names[k]}.log"
done
exit $rc
