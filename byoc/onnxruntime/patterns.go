// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// layered are the operators that get a bias and an activation, by what the patterns are called.
var layered = map[string][]string{
	"conv1d": {"nn.conv1d"}, "conv2d": {"nn.conv2d"}, "conv3d": {"nn.conv3d"},
	"conv1d_transpose": {"nn.conv1d_transpose"}, "conv2d_transpose": {"nn.conv2d_transpose"},
	"conv3d_transpose": {"nn.conv3d_transpose"}, "dense": {"nn.dense", "nn.matmul"},
	"batch_matmul": {"nn.batch_matmul"},
}

// layerOrder fixes the order of the patterns.
var layerOrder = []string{"conv1d", "conv2d", "conv3d", "conv1d_transpose", "conv2d_transpose", "conv3d_transpose",
	"dense", "batch_matmul"}

// activations are what follows such an operator.
var activations = []struct {
	name  string
	shape func(p relay.Pattern) relay.Pattern
}{
	{"gelu", relay.Gelu},
	{"swish", relay.Swish},
	{"relu", on("nn.relu")}, {"clip", on("clip")}, {"leaky_relu", on("nn.leaky_relu")},
	{"prelu", func(p relay.Pattern) relay.Pattern { return relay.Op("nn.prelu", p, relay.Wildcard()) }},
	{"sigmoid", on("sigmoid")}, {"tanh", on("tanh")}, {"", func(p relay.Pattern) relay.Pattern { return p }},
}

func on(op string) func(relay.Pattern) relay.Pattern {
	return func(p relay.Pattern) relay.Pattern { return relay.Op(op, p) }
}

// mostJoined is how many tensors a pattern of concatenate or stack joins; more are taken by proposed regions only.
const mostJoined = 12

// patterns are what the backend takes beside the regions that it proposes: single operators, and those that the engine
// fuses. They stand bare in a region; the engine finds out by itself what it fuses. Their names begin with prefix, and
// refused says why a match is none.
func patterns(prefix string, refused func(g *relay.Graph, nodes []relay.NodeID) error) []byoc.Pattern {
	var all []byoc.Pattern
	add := func(name, text string, shape relay.Pattern) {
		all = append(all, byoc.Pattern{Composite: prefix + "." + name, Shape: shape, Bare: true, LimitsText: text,
			Limits: func(g *relay.Graph, m *relay.Match) error { return refused(g, m.Nodes) }})
	}
	for _, layer := range layerOrder {
		for _, bias := range []bool{true, false} {
			for _, sum := range []bool{true, false} {
				for _, activation := range activations {
					switch {
					case !bias && !sum && activation.name == "": // the single operator, below
						continue
					case sum && !slices.Contains([]string{"relu", "clip", ""}, activation.name), bias &&
						layer == "batch_matmul":
						continue
					}
					name, p := layer, relay.AnyOf(layered[layer])
					if bias {
						name += "_bias"
						b := relay.IsConstant()
						p = relay.Or(relay.Op("add", p, b), relay.Op("nn.bias_add", p, b))
					}
					if sum {
						name += "_sum"
						p = relay.Op("add", p, relay.Wildcard())
					}
					if activation.name != "" {
						name, p = name+"_"+activation.name, activation.shape(p)
					}
					add(name, "as the operators inside", p)
				}
			}
		}
	}
	add("gelu", "float32", relay.Gelu(relay.Wildcard()))
	for _, op := range operators() {
		name, shape := op[strings.LastIndexByte(op, '.')+1:], relay.Op(op)
		switch op {
		case "concatenate", "stack":
			var counts []relay.Pattern
			for n := 1; n <= mostJoined; n++ {
				fields := make([]relay.Pattern, n)
				for i := range fields {
					fields[i] = relay.Wildcard()
				}
				counts = append(counts, relay.TuplePattern(fields...))
			}
			shape = relay.Op(op, relay.Or(counts...))
		case "nn.batch_norm":
			shape = relay.TupleGetItem(shape, 0)
		}
		add(name, rules()[op].limits, shape)
	}
	return all
}

// refusalOfNodes says why operators cannot be run.
func refusalOfNodes(g *relay.Graph, nodes []relay.NodeID) error {
	for _, id := range nodes {
		if g.Nodes[id].Kind != relay.KindCall {
			continue
		}
		if err := refusal(g, id); err != nil {
			return err
		}
	}
	return nil
}
