#!/usr/bin/env bash
# Runs one stage of the build and says what it is, how long it took, and how long it is since `make` began.
#
#   scripts/stage.sh "Rust tests" cargo-nextest nextest run ...
#
# LANCEMEM_STARTED (seconds since 1970) is set by the Makefile and shared by all stages of one run.
set -uo pipefail

label=$1
shift
now=$(date +%s)
started=${LANCEMEM_STARTED:-$now}

minutes_and_seconds() {
    printf '%dm%02ds' $(($1 / 60)) $(($1 % 60))
}

echo "== [$(minutes_and_seconds $((now - started)))] $label"
"$@"
status=$?
end=$(date +%s)
if [ "$status" -eq 0 ]; then
    verdict="done"
else
    verdict="FAILED (exit $status)"
fi
echo "== [$(minutes_and_seconds $((end - started)))] $label: $verdict after $(minutes_and_seconds $((end - now)))"
exit "$status"
