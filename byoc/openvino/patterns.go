// SPDX-License-Identifier: Apache-2.0

package openvino

import (
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// patterns are what the placement looks for: operators that do the work of networks with what OpenVINO fuses behind
// them, GELU and swish, and then every operator by itself. Their names begin with the Compiler attribute.
func patterns(compiler string) []byoc.Pattern {
	var all []byoc.Pattern
	for _, anchor := range anchors {
		all = append(all, fused(anchor)...)
	}
	all = append(all, pattern("gelu", relay.Gelu(relay.Wildcard()), "float32, static shapes"),
		pattern("swish", relay.Swish(relay.Wildcard()), "float32, static shapes"))
	for _, name := range names() {
		all = append(all, pattern(shortName(name), single(name), operators()[name].limits))
	}
	for i := range all {
		all[i].Composite = compiler + "." + all[i].Composite
	}
	return all
}

// anchors are the operators that others are fused behind.
var anchors = []string{
	"nn.conv2d", "nn.conv3d", "nn.conv1d", "nn.conv2d_transpose", "nn.conv3d_transpose", "nn.conv1d_transpose",
	"nn.dense", "nn.batch_matmul", "nn.matmul",
}

func shortName(op string) string {
	return strings.NewReplacer("nn.", "", "image.", "", ".", "_").Replace(op)
}

// pattern makes a pattern that is refused where one of its operators is; its name is without the Compiler attribute.
func pattern(name string, shape relay.Pattern, limits string) byoc.Pattern {
	return byoc.Pattern{Composite: name, Shape: shape, LimitsText: limits, Limits: checkMatch}
}

func checkMatch(g *relay.Graph, m *relay.Match) error {
	for _, v := range m.Nodes {
		if n := &g.Nodes[v]; n.Kind == relay.KindCall {
			if err := check(callOf(g, v)); err != nil {
				return err
			}
		}
	}
	return nil
}

// most is how many tensors a concatenation or stack may join to be a candidate by itself; inside a proposed region
// there is no limit.
const most = 16

// single is one operator, with the tuple that it reads or the field of the tuple that it gives.
func single(name string) relay.Pattern {
	switch name {
	case "concatenate", "stack":
		var forms []relay.Pattern
		for n := 1; n <= most; n++ {
			fields := make([]relay.Pattern, n)
			for i := range fields {
				fields[i] = relay.Wildcard()
			}
			forms = append(forms, relay.Op(name, relay.TuplePattern(fields...)))
		}
		return relay.Or(forms...)
	case "nn.batch_norm", "nn.dropout":
		return relay.TupleGetItem(relay.Op(name), 0)
	}
	return relay.Op(name)
}

// tail is something that OpenVINO fuses behind an operator.
type tail struct {
	name string
	on   func(p relay.Pattern) relay.Pattern
}

func activation(name, op string) tail {
	return tail{name, func(p relay.Pattern) relay.Pattern { return relay.Op(op, p) }}
}

// activations are the last of a fused pattern; the longer ones first.
var activations = []tail{
	{"_gelu", relay.Gelu},
	{"_swish", relay.Swish},
	activation("_relu", "nn.relu"), activation("_clip", "clip"), activation("_leaky_relu", "nn.leaky_relu"),
	activation("_sigmoid", "sigmoid"), activation("_tanh", "tanh"),
	{"", func(p relay.Pattern) relay.Pattern { return p }},
}

// additions are what may be added before the activation: a bias, which is smaller than what it is added to, and a
// residual value, which is as large.
var additions = []tail{
	{"_bias_sum", func(p relay.Pattern) relay.Pattern { return added(added(p, true), false) }},
	{"_bias", func(p relay.Pattern) relay.Pattern { return added(p, true) }},
	{"_sum", func(p relay.Pattern) relay.Pattern { return added(p, false) }},
	{"", func(p relay.Pattern) relay.Pattern { return p }},
}

// fused gives an anchor with everything that may follow it, the longest first; alone it is among the single operators.
func fused(anchor string) []byoc.Pattern {
	var all []byoc.Pattern
	for _, a := range additions {
		for _, t := range activations {
			if a.name+t.name != "" {
				all = append(all, pattern(shortName(anchor)+a.name+t.name, t.on(a.on(relay.Op(anchor))),
					operators()[anchor].limits))
			}
		}
	}
	return all
}

// added is p with a bias or a residual value added.
func added(p relay.Pattern, bias bool) relay.Pattern {
	add := relay.AnyOf([]string{"add", "nn.bias_add"}, p, relay.Wildcard())
	if !bias {
		add = relay.Op("add", p, relay.Wildcard())
	}
	return relay.Where(add, func(g *relay.Graph, id relay.NodeID) bool {
		n := &g.Nodes[id]
		whole, ok := n.Type.NumElements()
		smallest := whole
		for _, in := range n.Inputs {
			if size, known := g.Nodes[in].Type.NumElements(); known {
				smallest = min(smallest, size)
			}
		}
		return ok && (smallest < whole) == bias
	})
}
