// SPDX-License-Identifier: Apache-2.0

package place

import (
	"math"
	"slices"
)

// Overhead keeps noise from cutting. Costs are measured, each with an error of microseconds, and of a great many ways
// to cut a network the cheapest by such numbers is one whose errors happen to be low; it tends to have many small
// options. Each option is made dearer by what starting it costs in a network and what the measuring of it by itself
// does not show: then one more option has to be worth that much.
//
// If P is the cheapest placement with an overhead of h for each option and Q the cheapest without any, then P costs, in
// the costs as they were given, at most h * (options in Q - options in P) more than Q, options of cost 0 not counted.
type Overhead struct {
	// Option is added to the cost of each option, in milliseconds, at least 0.
	Option float64
	// State is added instead to options of that state, where it is set: entering another library may cost more than
	// calling one more of TVM's kernels.
	State map[State]float64
}

// DefaultOverhead is what the paper adds for each kernel: 0.01 ms.
const DefaultOverhead = 0.01

// Apply gives the options with their overheads added. Those that cost nothing (a tuple, a projection: no kernel
// runs) stay free. Solve, Verify, Regret and everything else take the result; plans must record it, since prices and
// proof are those of the result.
func (o Overhead) Apply(options []Option) []Option {
	out := slices.Clone(options)
	for i := range out {
		if out[i].Cost > 0 {
			out[i].Cost += o.of(&out[i])
		}
	}
	return out
}

// Of is the sum of the overheads of the chosen options, in milliseconds: what a placement of the result costs more than
// the options as they were given.
func (o Overhead) Of(options []Option, chosen []int) float64 {
	sum := 0.0
	for _, i := range chosen {
		if options[i].Cost > 0 && !math.IsInf(options[i].Cost, 1) {
			sum += o.of(&options[i])
		}
	}
	return sum
}

func (o Overhead) of(option *Option) float64 {
	if ms, ok := o.State[option.State]; ok {
		return ms
	}
	return o.Option
}
