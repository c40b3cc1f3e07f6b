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

# For packages in an environment of their own beside .venv: .venv-$program, by requirements-$program.txt.

# needed_apart TARGET WHAT: ends the script where WHAT is there already, and where there is no .venv; `make TARGET` runs
# the script.
needed_apart() {
  [[ -x .venv/bin/python ]] || die "there is no .venv; run make $1, or make setup first"
  local stamp=.venv-$program/collage-$program
  if [[ -f $stamp && $(<"$stamp") == "$(sha256sum <"scripts/requirements-$program.txt" | cut -d ' ' -f 1)" ]]; then
    say "$2" "is up to date"
    exit
  fi
}

# make_apart makes the environment.
make_apart() { [[ -x .venv-$program/bin/python ]] || .venv/bin/python -m venv ".venv-$program"; }

# sees_venv has the environment see the packages of .venv.
sees_venv() {
  local where='import sysconfig; print(sysconfig.get_path("purelib"))'
  .venv/bin/python -c "$where" >"$(".venv-$program/bin/python" -c "$where")/collage-venv.pth"
}

# install_apart [OPTION ...]: installs into the environment, with pip's options; $subject is what that is.
install_apart() {
  local requirements=scripts/requirements-$program.txt
  mkdir -p build
  log=build/$program.log
  quietly ".venv-$program/bin/python" -m pip install --no-input --disable-pip-version-check --require-hashes \
    --only-binary :all: "$@" --requirement "$requirements"
  sha256sum <"$requirements" | cut -d ' ' -f 1 >".venv-$program/collage-$program"
}
