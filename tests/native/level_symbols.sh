#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What is compiled for better processors (byoc/runtime/native/level_*.cc) must have nothing in it that the linker could
# take for the same function of another file: tests/native/level_symbols.sh LIBRARY
# DW.ref.* are data, the addresses of others' functions, which sanitized builds have.
found=$(nm --demangle --defined-only "$1" | awk '
  /\.o:$/ { level = /^level_.*\.o:$/; seen += level; next }
  level && $2 ~ /^[WVu]$/ && $3 !~ /^DW\.ref\./ { print }
  END { if (!seen) print "there are no files of levels in the library" }')
[ -z "$found" ] && exit
echo "$found"
exit 1
