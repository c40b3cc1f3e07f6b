// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// groupLimit bounds how many groups the rules may make for one target; arbitrary fusion of a wide graph is exponential
// in the depth.
const groupLimit = 1 << 14

// option is a group on a target.
type option struct {
	group *candidate.Group
	// target is nil for what is left to the host: variables, constants, tuples, projections, control flow.
	target *target
	// rule is the full name, target first; the prototype sorts by it.
	rule string
	// nodes are the group's nodes that must be placed, ascending.
	nodes []relay.NodeID
	// operators counts the calls of operators.
	operators int

	workload *workload // made when first needed
	// seconds is the cost; +Inf where the estimator says that it cannot be done.
	seconds float64
	known   bool
}

func (f *function) option(g *candidate.Group, t *target) *option {
	o := &option{group: g, target: t, nodes: f.flow.Placeable(g)}
	name := hostName
	if t != nil {
		name = t.name
	} else {
		o.known = true
	}
	o.rule = candidate.NestNames(name, g.Rule)
	for _, v := range o.nodes {
		if candidate.IsOperator(&f.graph.Nodes[v]) {
			o.operators++
		}
	}
	return o
}

const hostName = "host"

// identity says which options the prototype takes for the same: it compares nodes and the functions inside with their
// attributes, but not the target, so two of TVM's own are one.
func (o *option) identity() string {
	var text []byte
	write := func(s candidate.NodeSet) {
		for _, v := range s.Nodes() {
			text = binary.BigEndian.AppendUint32(text, uint32(v))
		}
		text = append(text, 0xff, 0xff, 0xff, 0xff)
	}
	write(o.group.Nodes)
	if o.external() {
		text = append(append(text, o.target.kind...), 0)
	}
	for _, p := range o.group.Parts {
		write(p.Nodes)
		text = append(append(text, p.Composite...), 0)
	}
	return string(text)
}

// external says that the option is a function of an external code generator.
func (o *option) external() bool { return o.target != nil && o.target.external }

// function is one global function being partitioned.
type function struct {
	graph *relay.Graph
	// flow is the graph as the rules of this package's own search see it, strict as the prototype does.
	flow, strict *candidate.Flow
	// legacy are the options that the prototype searches over, before it prunes; all are those of a complete search.
	legacy, all []*option
	// truncated says that groupLimit kept options out of all.
	truncated bool
}

// collect makes the options of a function on all targets and the host.
func (f *function) collect(targets []*target) error {
	for _, t := range targets {
		same := map[string]*option{}
		// The prototype's flow makes the prototype's options; only where a constant is shared can the other make more.
		singles, err := t.matches(f.strict)
		if err != nil {
			return err
		}
		legacy := t.rules
		legacy.Limit = 4 * groupLimit
		groups, _ := f.strict.Combine(singles, legacy)
		for _, g := range groups {
			if f.strict.Legal(g, legacy.MaxDepth) {
				o := f.option(g, t)
				same[o.identity()] = o
				f.legacy = append(f.legacy, o)
			}
		}
		if singles, err = t.again(f.flow, singles); err != nil {
			return err
		}
		full := t.rules
		full.Complete, full.Limit = true, groupLimit
		groups, complete := f.flow.Combine(singles, full)
		f.truncated = f.truncated || !complete
		for _, g := range groups {
			if f.flow.Legal(g, full.MaxDepth) {
				o := f.option(g, t)
				if twin := same[o.identity()]; twin != nil {
					o = twin // what is known of one is known of the other
				}
				f.all = append(f.all, o)
			}
		}
	}
	for i := range f.graph.Nodes {
		v := relay.NodeID(i)
		if mustBeLowered(f.graph, v) {
			continue
		}
		o := f.option(f.strict.Single(v, candidate.OperatorName(&f.graph.Nodes[v])), nil)
		f.legacy = append(f.legacy, o)
		if f.graph.Placeable(v) {
			f.all = append(f.all, o)
		}
	}
	f.leaveRest()
	return nil
}

// matches are the groups that a target starts from.
func (t *target) matches(flow *candidate.Flow) (groups []*candidate.Group, err error) {
	if !t.external {
		return flow.Singles(), nil
	}
	err = t.within(func() error {
		for _, p := range t.patterns {
			found, err := flow.UserMatches(p)
			if err != nil {
				return err
			}
			groups = append(groups, found...)
		}
		return nil
	})
	return groups, err
}

// again makes the groups for another flow of the same graph, without asking TVM where that cannot matter.
func (t *target) again(flow *candidate.Flow, groups []*candidate.Group) ([]*candidate.Group, error) {
	constants := slices.ContainsFunc(flow.Graph.Nodes, func(n relay.Node) bool { return n.Kind == relay.KindConstant })
	if t.external && constants {
		return t.matches(flow)
	}
	return groups, nil
}

// leaveRest leaves to TVM what no target takes, as it stands: TVM's prototype gives up there.
func (f *function) leaveRest() {
	covered := candidate.NewNodeSet(len(f.graph.Nodes))
	for _, o := range f.all {
		covered = covered.Or(o.group.Nodes)
	}
	for i := range f.graph.Nodes {
		if v := relay.NodeID(i); f.graph.Placeable(v) && !covered.Has(v) {
			f.all = append(f.all, f.option(f.strict.Single(v, ""), nil))
		}
	}
}

// mustBeLowered says that a node is a call that some target must take.
func mustBeLowered(g *relay.Graph, v relay.NodeID) bool {
	n := &g.Nodes[v]
	if n.Kind != relay.KindCall {
		return false
	}
	if n.Op != "" {
		return !special(n.Op)
	}
	primitive := g.Nodes[n.Callee].FuncAttrs["Primitive"]
	return primitive != "" && primitive != "0"
}

// opAttributes remembers what TVM knows of an operator: it is fixed for the life of the process.
var opAttributes sync.Map // [2]string -> float64

// opAttribute is an operator's attribute as a number; otherwise where it has none.
func opAttribute(op, name string, otherwise int) int {
	key := [2]string{op, name}
	if v, ok := opAttributes.Load(key); ok {
		return v.(int)
	}
	result := otherwise
	if v, err := bridge.Global("ir.GetOp", op); err == nil {
		if o, err := v.Object(); err == nil {
			if v, err := bridge.Global("ir.OpGetAttr", o, name); err == nil && !v.IsNil() {
				if n, err := v.Int(); err == nil {
					result = int(n)
				} else if list, err := v.Object(); err == nil {
					result = anyTrue(list)
					list.Release()
				}
			}
			o.Release()
		}
	}
	opAttributes.Store(key, result)
	return result
}

func anyTrue(list *bridge.Object) int {
	items, err := list.Items()
	if err != nil {
		return 0
	}
	for _, item := range items {
		if n, err := item.Int(); err == nil && n != 0 {
			return 1
		}
	}
	return 0
}

// special says that an operator is no computation, or one that the virtual machine does by itself.
func special(op string) bool {
	return op == "device_copy" || op == "shape_of" || op == "vm.shape_of" ||
		opAttribute(op, "TNonComputational", 0) != 0
}

// kindOf is the fusion kind of a call: opaque where the result's shape depends on data.
func kindOf(n *relay.Node) candidate.OpPattern {
	if !candidate.IsStatic(n.Type) && opAttribute(n.Op, "TShapeDataDependent", 0) != 0 {
		return candidate.Opaque
	}
	return candidate.OpPattern(opAttribute(n.Op, "TOpPattern", int(candidate.Opaque)))
}

func impossible(seconds float64) bool {
	return math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0
}
