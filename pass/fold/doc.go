// SPDX-License-Identifier: Apache-2.0

// Package fold evaluates what a Relay program computes from constants alone, in Go.
//
// TVM's FoldConstant does the same by compiling and running a kernel for each operator, which takes 20 ms or so each
// time. Here comes a module (Module) or one expression after the other while a front end makes them (Expressions); out
// goes the same with constants in the place of what was evaluated. TVM's pass runs after it: what this package does not
// know (another operator, another type of data, an attribute that it cannot read, values for which TVM's result is
// whatever the processor makes of it) is left as it is, and results never depend on how much is known here.
//
// Values are what TVM 0.19's kernels give for x86-64: integers wrap around and are divided towards zero, comparisons
// and maxima treat NaN as TVM's do. Arithmetic, roots and conversions are rounded as IEEE 754 says; exp, log and the
// like are evaluated in float64 for float32, and left to TVM for float64. An integer that is divided by zero is an
// error: TVM's kernel would end the process.
package fold
