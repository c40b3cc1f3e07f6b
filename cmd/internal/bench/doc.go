// SPDX-License-Identifier: Apache-2.0

// Package bench measures what can be compared: single operators on each backend, and whole networks beside the engines
// that people use.
//
// What comes in: a model and options, in the Python host's process. What goes out: a report that can be written as a
// text table, as JSON and as a picture (SVG), with the machine and how busy it was in it. Nothing is decided here and
// nothing is placed.
package bench
