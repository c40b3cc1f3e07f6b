// SPDX-License-Identifier: Apache-2.0

// Package bound says what a candidate takes at least, so that what cannot win need not be measured.
//
// What comes in: a graph, a candidate, and a Machine (how fast this one computes and reads at best). What goes out: the
// Work that no implementation can do without, and from both a lower bound on the latency (a roofline). The bounds must
// be true: where it is not certain that something has to be computed or moved, it is not counted.
package bound

import (
	"strings"

	"golang.org/x/sys/cpu"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// Work is what every implementation of a candidate has to do.
type Work struct {
	// Flops are floating point operations (a multiplication and an addition are two), after the best known savings by
	// fast algorithms.
	Flops float64
	// Bytes are those of inputs, constants and outputs that must be moved.
	Bytes float64
}

// In is the same work as operations and bytes of float32 that take as long where it is done in another precision: twice
// as many numbers of bfloat16, and four times as many bytes, fit into a vector or a cache line, and a tile of AMX
// multiplies eight times as many as a vector.
func (w Work) In(precision byoc.Precision) Work {
	numbers, tile := 1.0, false
	switch precision {
	case byoc.BF16:
		numbers, tile = 2, cpu.X86.HasAMXBF16
	case byoc.INT8:
		numbers, tile = 4, cpu.X86.HasAMXInt8
	}
	faster := numbers
	if tile {
		faster *= 8
	}
	return Work{Flops: w.Flops / faster, Bytes: w.Bytes / numbers}
}

// Of is the work of a candidate. Types must have been inferred; what has no static type counts nothing.
func Of(g *relay.Graph, c *candidate.Candidate) Work { return workOf(g, c, false) }

// Direct is the work of a candidate by the algorithms that its operators spell out: convolutions by direct sums,
// padding and repeated values included. Who knows a better algorithm does with less.
func Direct(g *relay.Graph, c *candidate.Candidate) Work { return workOf(g, c, true) }

func workOf(g *relay.Graph, c *candidate.Candidate, direct bool) Work {
	a := analysis{g: g, direct: direct, inside: map[relay.NodeID]bool{}, used: map[relay.NodeID]float64{},
		moved: map[relay.NodeID]float64{}, varies: map[relay.NodeID]bool{}}
	for _, v := range c.Nodes {
		a.inside[v] = true
	}
	for _, v := range c.Inputs {
		a.varies[v] = true
	}
	for _, v := range c.Nodes {
		for _, in := range g.Nodes[v].Inputs {
			a.varies[v] = a.varies[v] || a.varies[in]
		}
	}
	// From the results backwards: which share of each value has an influence on them.
	for _, v := range c.Results() {
		a.used[v] = 1
	}
	var w Work
	for i := len(c.Nodes) - 1; i >= 0; i-- {
		v := c.Nodes[i]
		if a.used[v] == 0 || !a.varies[v] {
			continue // not certainly needed, or folded when it is compiled
		}
		n := &g.Nodes[v]
		if candidate.IsOperator(n) && a.used[v] == 1 {
			w.Flops += a.flops(v)
		}
		a.spread(v)
	}
	read := append([]relay.NodeID(nil), c.Inputs...)
	if c.OwnConstants && !direct {
		w.Flops = 0 // the constants may say that much of it need not be done
	} else {
		read = append(read, c.Constants...)
	}
	for _, v := range read {
		w.Bytes += a.moved[v] * bytes(g.Nodes[v].Type)
	}
	for _, v := range c.Results() {
		w.Bytes += a.written(v)
	}
	return w
}

// analysis looks at one candidate.
type analysis struct {
	g *relay.Graph
	// direct counts what the operators spell out, and not the least that any algorithm needs.
	direct bool
	inside map[relay.NodeID]bool
	// used is the share of a value's elements that the result depends on for certain; of several readers the one that
	// needs the most counts.
	used map[relay.NodeID]float64
	// moved is the share that some operator has to read: what is only given on in another shape is not.
	moved map[relay.NodeID]float64
	// varies: the value depends on an input, so that it is computed at each call.
	varies map[relay.NodeID]bool
}

func (a *analysis) use(v relay.NodeID, share float64) {
	a.used[v] = max(a.used[v], share)
	a.moved[v] = max(a.moved[v], share)
}

// pass hands on what a node's readers need of it to the values that it is made of.
func (a *analysis) pass(v relay.NodeID) {
	for _, in := range a.g.Nodes[v].Inputs {
		a.used[in] = max(a.used[in], a.used[v])
		a.moved[in] = max(a.moved[in], a.moved[v])
	}
}

// spread says what a node needs of its inputs, given that its own value is needed.
func (a *analysis) spread(v relay.NodeID) {
	n := &a.g.Nodes[v]
	share := a.used[v]
	switch {
	case n.Kind == relay.KindTuple || candidate.IsOperator(n) && isReshape(n.Op):
		a.pass(v)
	case !candidate.IsOperator(n):
		// A projection: what is not taken of the tuple need not be computed.
	case isConvolution(n.Op), isPooling(n.Op):
		if share < 1 {
			return
		}
		for i, in := range n.Inputs {
			if i == 0 {
				a.use(in, a.windowShare(v))
			} else {
				a.use(in, 1)
			}
		}
	case elementwise[n.Op]:
		for _, in := range n.Inputs {
			a.use(in, share)
		}
	case wholly[n.Op] && share == 1:
		for _, in := range n.Inputs {
			a.use(in, 1)
		}
	}
}

// written is how many bytes of the result must be written. A result that is an input in another shape is not.
func (a *analysis) written(root relay.NodeID) float64 {
	n := &a.g.Nodes[root]
	switch {
	case !a.inside[root] || !a.varies[root]:
		return 0
	case n.Kind == relay.KindTuple:
		sum, seen := 0.0, map[relay.NodeID]bool{}
		for _, in := range n.Inputs {
			if !seen[in] {
				seen[in] = true
				sum += a.written(in)
			}
		}
		return sum
	case !candidate.IsOperator(n):
		return 0
	case isReshape(n.Op):
		return a.written(n.Inputs[0])
	case n.Op == "copy" || n.Op == "split":
		return 0 // a view will do
	}
	return bytes(n.Type)
}

func bytes(t *relay.Type) float64 {
	if t == nil || t.Kind != relay.TypeTensor {
		return 0
	}
	size := map[string]float64{"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4,
		"float16":  2,
		"bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1}[t.DType]
	return size * elements(t.Shape)
}

func elements(shape []int64) float64 {
	n := 1.0
	for _, d := range shape {
		if d < 0 {
			return 0
		}
		n *= float64(d)
	}
	return n
}

func isReshape(op string) bool {
	switch op {
	case "reshape", "squeeze", "expand_dims", "nn.batch_flatten", "reverse_reshape", "contrib_reverse_reshape":
		return true
	}
	return false
}

func isConvolution(op string) bool {
	return strings.HasPrefix(op, "nn.conv1d") || strings.HasPrefix(op, "nn.conv2d") ||
		strings.HasPrefix(op, "nn.conv3d") ||
		strings.HasPrefix(op, "nn.contrib_conv2d_NCHWc") || op == "nn.contrib_depthwise_conv2d_NCHWc"
}

func isPooling(op string) bool {
	switch op {
	case "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d":
		return true
	}
	return false
}

func set(names string) map[string]bool {
	out := map[string]bool{}
	for _, name := range strings.Fields(names) {
		out[name] = true
	}
	return out
}

// elementwise operators need of each input the same share that is needed of the result. (Broadcast inputs are needed
// whole, if anything.)
var elementwise = set(`add subtract multiply divide maximum minimum power floor_divide mod
	nn.bias_add nn.relu nn.leaky_relu nn.prelu nn.gelu clip sigmoid tanh exp log log2 log10 sqrt rsqrt erf negative abs sin cos tan atan
	floor ceil round cast fast_exp fast_tanh fast_erf nn.fast_softmax nn.softmax nn.log_softmax`)

// wholly are operators of whose inputs each element has an influence on the result.
var wholly = set(`nn.dense nn.matmul nn.batch_matmul nn.batch_norm nn.layer_norm nn.instance_norm nn.group_norm nn.lrn
	nn.l2_normalize nn.global_avg_pool2d nn.global_max_pool2d nn.global_avg_pool1d nn.global_avg_pool3d
	sum mean max min prod variance argmax argmin concatenate stack transpose layout_transform nn.pad broadcast_to repeat tile`)
