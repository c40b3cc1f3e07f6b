// SPDX-License-Identifier: Apache-2.0

package onednn

import (
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// Form is how a kernel beside oneDNN's takes an operator: under composites of its own, within limits of its own.
type Form struct {
	// Composite is the name without epilogue ("native.winograd_conv2d"); Kernel, Reassociates and Grouped are as in
	// byoc.Pattern.
	Composite, Kernel     string
	Reassociates, Grouped bool
	// Without are activations ("tanh") whose epilogues are left out.
	Without []string
	// Limits says what of the layers that have passed the operator's own limits the kernel cannot do; LimitsText says
	// it in words, which are put behind those of the operator.
	Limits     func(g *relay.Graph, m *relay.Match, l Layer) error
	LimitsText string
}

// Convolutions offers a convolution operator with each epilogue, and without, in that form. upsampled takes the
// upsampling by nearest neighbours along that makes what is convolved.
func (f Form) Convolutions(op string, dims int, upsampled bool, layouts ...[2]string) []*Rule {
	c := convolution{op: op, composite: f.Composite, dims: dims, upsampled: upsampled, layouts: layouts}
	var all []*Rule
	for _, e := range f.epilogues() {
		all = append(all, f.limit(c.fused(e)))
	}
	return all
}

// Dense offers nn.dense with each epilogue, and without, in that form.
func (f Form) Dense() []*Rule {
	var all []*Rule
	for _, e := range f.epilogues() {
		all = append(all, f.limit(fusedDense(f.Composite, e)))
	}
	return all
}

// Of offers what a rule of a single operator matches in that form.
func (f Form) Of(r *Rule) *Rule {
	made := *r
	made.Composite, made.Bare = f.Composite, false
	return f.limit(&made)
}

func (f Form) epilogues() []epilogue {
	return slices.DeleteFunc(append(epilogues(true), epilogue{}), func(e epilogue) bool {
		return slices.Contains(f.Without, e.activation)
	})
}

// limit gives a rule the form's kernel and limits. They hold where operators are placed; the code generator writes what
// is correct, and the runtime does by oneDNN what the kernel cannot.
func (f Form) limit(r *Rule) *Rule {
	r.Kernel, r.Reassociates, r.Grouped, r.Own = f.Kernel, f.Reassociates, f.Grouped, true
	limits, correct := r.Limits, r.Correct
	if correct == nil {
		correct = limits
	}
	r.Correct = correct
	if f.LimitsText != "" {
		r.LimitsText += ", " + f.LimitsText
	}
	r.Limits = func(g *relay.Graph, m *relay.Match) error {
		if err := limits(g, m); err != nil {
			return err
		}
		l, err := r.Read(g, m)
		if err != nil || f.Limits == nil {
			return err
		}
		return f.Limits(g, m, l)
	}
	return r
}

// Patterns are what the placement knows of rules.
func Patterns(rules []*Rule) []byoc.Pattern {
	all := make([]byoc.Pattern, len(rules))
	for i, r := range rules {
		all[i] = r.Pattern
	}
	return all
}
