// SPDX-License-Identifier: Apache-2.0

package blas

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

// Write is a region.Emitter. It writes a region of such products for blas_program.cc: lines of words, in which tensors go
// by the region's value numbers.
//
//	collage-blas 1
//	input <value>                the region's arguments, in order
//	constant <value>             its constants, in order
//	product <dtype> <result> <left> <right> <m> <n> <k> <batch> <left has a batch> <right has a batch>
//	        <left is transposed> <right is transposed> <alpha> <bias or -1> <residual or -1> <activation>
//	output <value>               its results, in order
func (of Products) Write(p *region.Program) ([]byte, []region.ValueID, error) {
	var text strings.Builder
	line := func(words ...any) { fmt.Fprintln(&text, words...) }
	line("collage-blas 1")
	for _, v := range p.Inputs {
		line("input", v)
	}
	e := &emission{of: of, p: p}
	if err := e.products(); err != nil {
		return nil, nil, err
	}
	for _, v := range append(slices.Clone(p.Outputs), e.read...) {
		if p.IsConstant(v) && !slices.Contains(e.constants, v) {
			e.constants = append(e.constants, v)
			line("constant", v)
		}
	}
	text.WriteString(strings.Join(e.lines, ""))
	for _, v := range p.Outputs {
		line("output", v)
	}
	return []byte(text.String()), e.constants, nil
}

// emission is one call of Write.
type emission struct {
	of Products
	p  *region.Program
	// lines are the products', and read what they read.
	lines     []string
	read      []region.ValueID
	constants []region.ValueID
}

// products writes each composite function of the region as one product.
func (e *emission) products() error {
	for at := 0; at < len(e.p.Ops); {
		index := e.p.Ops[at].CompositeIndex
		if index < 0 {
			return fmt.Errorf("%s cannot run %s outside of a composite function", e.of.Title, e.p.Ops[at].Name)
		}
		var ops []*region.Op
		for i := at; i < len(e.p.Ops); i++ {
			if e.p.Ops[i].CompositeIndex == index {
				if i != at+len(ops) {
					return fmt.Errorf("the operators of %s do not stand together", e.p.Composites[index])
				}
				ops = append(ops, &e.p.Ops[i])
			}
		}
		if err := e.product(e.p.Composites[index], ops); err != nil {
			return err
		}
		at += len(ops)
	}
	return nil
}

// product writes the operators of one composite function.
func (e *emission) product(composite string, ops []*region.Op) error {
	r := ruleByName()[strings.TrimPrefix(composite, e.of.Name+".")]
	if r == nil {
		return fmt.Errorf("the backend %s does not know the composite %q", e.of.Name, composite)
	}
	g := e.p.Graph
	byNode := map[relay.NodeID]*region.Op{}
	for _, op := range ops {
		byNode[op.Node] = op
	}
	root := ops[len(ops)-1]
	refusal := fmt.Errorf("its body is not what the name says")
	for _, m := range g.Match(r.pattern.Shape, root.Node) {
		if len(m.Nodes) != len(ops) || slices.ContainsFunc(m.Nodes,
			func(id relay.NodeID) bool { return byNode[id] == nil }) {
			continue
		}
		shape, err := r.read(g, m)
		if err != nil {
			refusal = err
			continue
		}
		e.write(shape, r.epilogue, m, byNode, root.Results[0])
		return nil
	}
	return fmt.Errorf("%s: %w", composite, refusal)
}

// write adds the line of a product.
func (e *emission) write(p *scaled, with epilogue, m *relay.Match, byNode map[relay.NodeID]*region.Op,
	result region.ValueID) {
	// argument is the value of what the call named by role reads as the node named by what.
	argument := func(role, what string) region.ValueID {
		id := m.Named[role]
		value := byNode[id].Args[slices.Index(e.p.Graph.Nodes[id].Inputs, m.Named[what])]
		e.read = append(e.read, value)
		return value
	}
	left := byNode[m.Named[roleProduct]].Args[0]
	right := byNode[m.Named[roleProduct]].Args[1]
	e.read = append(e.read, left, right)
	bias, sum, activation := region.ValueID(-1), region.ValueID(-1), "none"
	if with.bias {
		bias = argument(roleBiased, roleBias)
	}
	if with.sum {
		sum = argument(roleSummed, roleSum)
	}
	if with.activation != "" {
		activation = with.activation
	}
	flag := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	e.lines = append(e.lines, fmt.Sprintln("product", p.DType, result, left, right, p.M, p.N, p.K, p.Batch,
		flag(p.LeftBatch),
		flag(p.RightBatch), flag(p.LeftT), flag(p.RightT), strconv.FormatFloat(p.alpha, 'g', -1, 64), bias, sum,
		activation))
}
