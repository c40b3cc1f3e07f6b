# SPDX-License-Identifier: Apache-2.0
#
# For scripts of several steps, to be sourced: says what is being done, and runs commands whose output matters only if
# they fail. The script sets `program`, its name in what is said, and `column`, how wide the first word is at least.
source scripts/offline.sh

say() { printf '%s: %-*s %s\n' "$program" "$column" "$1" "$2"; }

die() {
  printf '%s: error: %s\n' "$program" "$1" >&2
  exit 2
}

# What `quietly` installs, for what it says where that fails; without one it names the command.
subject=

# Runs a command, its output in the file $log, which matters only if it fails.
quietly() {
  if ! "$@" >"$log" 2>&1 </dev/null; then
    ! out_of_reach "$log" || die "${subject:+$subject: }$reach_advice (all of the output: $log)"
    tail -n 40 "$log" >&2
    [[ -z $subject ]] || die "$subject could not be installed (all of the output: $log)"
    die "this failed: $* (all of its output: $log)"
  fi
}
