#!/usr/bin/env bash
# Puts every known bug of the core back, one at a time, and writes who notices to docs/mutants.md.
#
#   MUTANTS="B2 B7" scripts/mutants.sh    only these; the page then has only these
#
# Fails where a bug that is back passes every story.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
page=${PAGE:-$root/docs/mutants.md}

declare -A bug=(
    [B1]="no proof of ownership after a long sleep" [B2]="the fence is put behind the last file, not behind what is covered"
    [B3]="a flush covers entries of the next MemTable" [B4]="the replay does not end at its own sentinel"
    [B5]="a lost answer counts as somebody else's entry" [B6]="409 with nothing behind it counts as 412"
    [B7]="a claim writes no sentinel" [B8]="the wait counts batches of one MemTable"
    [B9]="a durable put does not wait" [B10]="a stopped job serves reads"
    [B11]="a replay queues what it read" [B12]="a replay starts at the first entry"
    [B13]="the queue changes places across a freeze" [B19-checksum]="no check of the checksum"
    [B19-cut]="no check of the end mark" [B19-hole]="no check for holes"
    [B20]="a slot is empty while its key is replaced" [B21]="the claim comes before the checks"
    [B22]="appends go on behind a failure" [B23]="a drain raises the epoch"
    [L1]="a sentinel goes on to the next position after 409" [L2]="a fenced job appends after its close"
)
order="B1 B2 B3 B4 B5 B6 B7 B8 B9 B10 B11 B12 B13 B19-checksum B19-cut B19-hole B20 B21 B22 B23 L1 L2"
MUTANTS=${MUTANTS:-$order}

cd rust/sim
cargo build --release --quiet --locked
stories=(cargo test --release --quiet --locked --no-fail-fast --test stories --test sleepers)
"${stories[@]}" --no-run
target=${CARGO_TARGET_DIR:-target}

rows=""
survived=0
for mutant in $MUTANTS; do
    failed=$(LANCEMEM_MUTANT=$mutant PROPTEST_CASES=${PROPTEST_CASES:-20} timeout 300 \
        "${stories[@]}" 2>/dev/null | sed -n 's/^    \([a-z_]*\(::[a-z_0-9]*\)*\)$/\1/p' | sort -u || true)
    count=$(printf '%s' "$failed" | grep -c . || true)
    # The story that is named after the bug, where one is; else the first.
    first=$(printf '%s\n' "$failed" | { grep -m1 -E "${NAMED:-^(known_bugs|takeover|lost_answers|fencing|damage|recovery)::}" || printf '%s\n' "$failed" | head -1; })
    case $first in
        *::* | "") ;;
        *) first="sleepers::$first" ;;
    esac
    lives=$(LANCEMEM_MUTANT=$mutant timeout "${HUNT_SECONDS:-600}" "$target/release/lancemem-sim" hunt || echo "no time")
    rows+="| $mutant | ${bug[$mutant]} | $lives | $count | \`$first\` |"$'\n'
    echo "$mutant: $count stories, simulation $lives" >&2
    if [ "$count" -eq 0 ]; then
        survived=1
    fi
done

cat >"$page" <<EOF
# Mutants

What \`make mutants\` found at commit $(git -C "$root" rev-parse --short HEAD): every bug of the core in the catalogue of
[guarantees.md](guarantees.md#bugs-that-others-shipped), put back alone (\`mutant!\`, switched on by
\`LANCEMEM_MUTANT\` in a build with \`--cfg lancemem_mutants\`), and who notices. *Lives* is the median, over nine
hunts, of the seeds that the simulation needs until it fails. *Stories* counts the tests of \`rust/core/tests\` and
\`rust/sim/tests\` that fail; one of them is named.

| switch | bug | lives | stories | one of them |
| --- | --- | ---: | ---: | --- |
${rows%$'\n'}
EOF
exit $survived
