// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"slices"

	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// shapes are the kinds of networks, by name, in the order in which they are reported.
var shapes = []struct {
	name string
	// grow adds one repeating part of the network to its open ends.
	grow func(b *builder)
}{
	{"chain", func(b *builder) { b.set(b.call("nn.conv2d", b.x)) }},
	{"resnet", residualBlock},
	{"nasnet-a", cell},
	{"bert", layer},
}

// builder makes a network part by part. x is the value that the next part reads; before is the one before it.
type builder struct {
	*relay.GraphMaker
	x, before relay.NodeID
	operators int
}

var tensor = relay.Tensor("float32", 1, 64, 56, 56)

func (b *builder) call(op string, inputs ...relay.NodeID) relay.NodeID {
	b.operators++
	return b.Call(op, tensor, nil, inputs...)
}

func (b *builder) set(v relay.NodeID) { b.before, b.x = b.x, v }

// residualBlock is ResNet's: three convolutions with bias and activation, and a sum with what came in.
func residualBlock(b *builder) {
	v := b.x
	for i := range 3 {
		v = b.call("nn.bias_add", b.call("nn.conv2d", v))
		if i < 2 {
			v = b.call("nn.relu", v)
		}
	}
	b.set(b.call("nn.relu", b.call("add", v, b.x)))
}

// separable is NasNet's: relu, depthwise, pointwise, twice.
func (b *builder) separable(v relay.NodeID) relay.NodeID {
	for range 2 {
		v = b.call("nn.conv2d", b.call("nn.conv2d", b.call("nn.relu", v)))
	}
	return v
}

// cell is NasNet-A's normal cell: five sums of branches over the two values before it, joined.
func cell(b *builder) {
	left, right := b.call("nn.conv2d", b.call("nn.relu", b.x)), b.call("nn.conv2d", b.call("nn.relu", b.before))
	sums := []relay.NodeID{
		b.call("add", b.separable(left), left),
		b.call("add", b.separable(right), b.separable(left)),
		b.call("add", b.call("nn.avg_pool2d", left), right),
		b.call("add", b.call("nn.avg_pool2d", right), b.call("nn.avg_pool2d", right)),
		b.call("add", b.separable(right), b.separable(right)),
	}
	b.operators++
	b.set(b.call("concatenate", b.Tuple(sums...)))
}

// layer is one of BERT's, before-norm: attention with a skip, two dense with a skip.
func layer(b *builder) {
	norm := func(v relay.NodeID) relay.NodeID {
		mean := b.call("mean", v)
		centred := b.call("subtract", v, mean)
		deviation := b.call("sqrt", b.call("variance", v, mean))
		return b.call("add", b.call("multiply", b.call("divide", centred, deviation)))
	}
	project := func(v relay.NodeID) relay.NodeID {
		return b.call("transpose", b.call("reshape", b.call("add", b.call("nn.dense", v))))
	}
	in := norm(b.x)
	scores := b.call("divide", b.call("nn.batch_matmul", project(in), project(in)))
	mixed := b.call("nn.batch_matmul", b.call("nn.softmax", scores), project(in))
	out := b.call("add", b.call("nn.dense", b.call("reshape", b.call("transpose", mixed))))
	sum := b.call("add", out, b.x)
	hidden := b.call("nn.relu", b.call("add", b.call("nn.dense", norm(sum))))
	b.set(b.call("add", b.call("add", b.call("nn.dense", hidden)), sum))
}

// network is a graph made ready for placement.
type network struct {
	operators int
	tree      *place.Tree
	reads     [][]relay.NodeID
	options   []place.Option
}

// grown is a network of a shape with at least the given number of operators, and its options.
func grown(grow func(*builder), operators int) *network {
	b := &builder{GraphMaker: relay.NewGraph("main")}
	b.x = b.Var([]int64{1, 64, 56, 56}, "float32")
	b.before = b.x
	for b.operators < operators {
		grow(b)
	}
	g := b.Finish(b.x)
	n := &network{operators: b.operators, tree: place.TreeOf(g), reads: place.ReadsOf(g)}
	n.propose(g)
	return n
}

const (
	backends = 2
	depth    = 6 // the greatest number of operators in an option
)

// propose gives each operator an option by itself on each backend and, for each operator as the exit, the groups of up
// to depth operators that grow from it against the edges by one operator at a time whose uses are all inside: once
// along one way as deep as it goes, and once nearest operators first, so that groups have branches and holes in the
// order of the nodes. There are as many options for each operator in a large network as in a small one. Costs are
// random, from a fixed seed; a group mostly costs less than its operators do.
func (n *network) propose(g *relay.Graph) {
	r := rand.New(rand.NewPCG(uint64(n.operators), 4))
	alone := make([][backends]float64, len(g.Nodes))
	for v := range alone {
		work := 0.02 + r.ExpFloat64()*0.2
		for s := range backends {
			alone[v][s] = work * (0.6 + 0.8*r.Float64())
		}
	}
	for v, needs := range n.tree.Needs {
		if !needs {
			continue
		}
		exit := relay.NodeID(v)
		groups := n.groups(g, exit, func(inside []relay.NodeID) relay.NodeID { return slices.Max(inside) })
		for _, group := range n.groups(g, exit, func(inside []relay.NodeID) relay.NodeID { return inside[0] }) {
			if !slices.ContainsFunc(groups, func(o []relay.NodeID) bool { return slices.Equal(o, group) }) {
				groups = append(groups, group)
			}
		}
		for s := range backends {
			for _, group := range groups {
				cost := 0.0
				for _, u := range group {
					cost += alone[u][s]
				}
				if len(group) > 1 {
					cost *= 0.7 + 0.4*r.Float64()
				}
				n.options = append(n.options, place.Option{Nodes: group, Cost: cost, State: place.State(s)})
			}
		}
	}
}

// groups are the exit by itself, and with each further operator that next picks of those that only the group uses.
func (n *network) groups(g *relay.Graph, exit relay.NodeID, next func([]relay.NodeID) relay.NodeID) [][]relay.NodeID {
	group := []relay.NodeID{exit}
	groups := [][]relay.NodeID{slices.Clone(group)}
	for len(group) < depth {
		var inside []relay.NodeID
		for _, v := range group {
			for _, u := range n.reads[v] {
				outside := func(c relay.NodeID) bool { return !slices.Contains(group, c) }
				if !slices.Contains(group, u) && !slices.ContainsFunc(g.Consumers(u), outside) {
					inside = append(inside, u)
				}
			}
		}
		if len(inside) == 0 {
			break
		}
		group = append(group, next(inside))
		groups = append(groups, slices.Sorted(slices.Values(group)))
	}
	return groups
}
