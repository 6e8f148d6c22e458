#!/usr/bin/env bash
# Puts every known bug back, one at a time, and prints who notices: stories, simulation, neither.
set -euo pipefail
cd "$(dirname "$0")/../rust/sim"

MUTANTS=${MUTANTS:-B2 B3 B4 B5 B6 B7 B8 B9 B10 B11 B12 B13 B19-checksum B19-cut B19-hole B20 B21 B22 B23 L1 L2}
cargo build --release --quiet
cargo test --release --quiet --test stories --no-run
target=${CARGO_TARGET_DIR:-target}

survived=0
echo "| mutant | stories that fail | first of them | median of lives until the simulation fails |"
echo "| --- | ---: | --- | --- |"
for mutant in $MUTANTS; do
    failed=$(LANCEMEM_MUTANT=$mutant PROPTEST_CASES=${PROPTEST_CASES:-20} timeout 300 \
        cargo test --release --quiet --test stories 2>/dev/null |
        sed -n 's/^    \([a-z_]*::[a-z_0-9:]*\)$/\1/p' | sort -u || true)
    count=$(printf '%s' "$failed" | grep -c . || true)
    lives=$(LANCEMEM_MUTANT=$mutant timeout "${HUNT_SECONDS:-600}" "$target/release/lancemem-sim" hunt || echo "no time")
    echo "| $mutant | $count | $(printf '%s' "$failed" | head -1) | $lives |"
    if [ "$count" -eq 0 ]; then survived=1; fi
done
exit $survived
