// SPDX-License-Identifier: Apache-2.0

// Package trace is what workers tell about a network that was built and run: its operators with the kernels that they
// were fused into (Executable), and how long each kernel, and each step within a region, took (Times).
//
// What comes in: a worker's JSON. What goes out: the same, checked (Executable.Validate). Package measure asks for it,
// package feedback makes costs of it; neither knows the other.
package trace

import "fmt"

// Op is an operator of a built network.
type Op struct {
	// Name is the operator's ("nn.contrib_conv2d_NCHWc"), "@" and the symbol for the call of a region, "(tuple)", or
	// "(get)".
	Name string `json:"op"`
	// Kernel is the kernel that it is a part of, an index into the kernels in the order in which they run; -1 for
	// tuples.
	Kernel int `json:"kernel"`
	// Args are what it reads: indices of operators before it; -1 for an input or a constant.
	Args []int `json:"args"`
	// Index is the field that "(get)" takes.
	Index int `json:"index,omitempty"`
}

// Executable says what the kernels of a built network are. Only its function main is looked at: what TVM calls from
// there stands in it.
type Executable struct {
	Ops []Op `json:"ops"`
	// Root is the operator whose value is the network's; -1 where that is an input.
	Root int `json:"root"`
	// Kernels are the kernels' names.
	Kernels []string `json:"kernels"`
}

// Validate says what is wrong with an executable that somebody else wrote down.
func (e *Executable) Validate() error {
	for i, op := range e.Ops {
		if op.Kernel < -1 || op.Kernel >= len(e.Kernels) {
			return fmt.Errorf("trace: operator %d (%s) is in kernel %d, of which there are %d", i, op.Name, op.Kernel,
				len(e.Kernels))
		}
		for _, a := range op.Args {
			if a < -1 || a >= i {
				return fmt.Errorf("trace: operator %d (%s) reads %d, which does not stand before it", i, op.Name, a)
			}
		}
	}
	if e.Root < -1 || e.Root >= len(e.Ops) {
		return fmt.Errorf("trace: the root %d is none of %d operators", e.Root, len(e.Ops))
	}
	return nil
}

// Times are what a network's kernels took in place.
type Times struct {
	// Kernels are in milliseconds, in the order of Executable.Kernels.
	Kernels []float64
	// Inside has what engines told about their regions, by symbol. May be nil.
	Inside map[string]*Inside
}

// Inside is what an engine tells about the time within one of its regions (byoc/runtime/dnnl_times.h). An engine that
// tells nothing leaves it empty.
type Inside struct {
	// Groups are the names of what the region is made of, in the order of annotate.Groups.
	Groups []string `json:"groups"`
	Steps  []Step   `json:"steps"`
	// Call is what calling the region took beside its steps, in milliseconds.
	Call float64 `json:"call_ms"`
	// Layers says that the engine was given the region as a whole model and that the steps are its own layers, of which
	// is known what their names tell (byoc/runtime/layer_steps.h): groups that no step names are done by a neighbour's.
	Layers bool `json:"layers"`
	// Why says why there are no steps; "" where there are, or where the engine does not say.
	Why string `json:"why"`
}

// Step is one thing that an engine does in a region.
type Step struct {
	Milliseconds float64 `json:"ms"`
	// Of are the groups that it does, indices into Groups. For a reorder, who wants its result; nil for the region's
	// own results.
	Of []int `json:"of"`
	// Reorder says that it brings a value into another layout; From are the groups that made the value, nil for an
	// input of the region.
	Reorder bool  `json:"reorder"`
	From    []int `json:"from"`
	// What it is, for people.
	What string `json:"what"`
}
