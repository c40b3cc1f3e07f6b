// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/relay"
)

// mostUnnamed is the share of a region's time that layers may take whose names tell nothing. What they take is shared
// among all parts, which is an error of that size for each of them: the machine's noise is no less, and a fused
// operator of a few is more.
const mostUnnamed = 0.1

// scaled multiplies all times so that their sum is what the region took as a whole. The error says that too much of it
// is in layers of which nothing is known.
func scaled(s *trace.Inside, whole float64) (*trace.Inside, error) {
	sum, unnamed, longest := s.Call, 0.0, -1
	for i := range s.Steps {
		step := &s.Steps[i]
		sum += step.Milliseconds
		if len(step.Of) == 0 && len(step.From) == 0 {
			unnamed += step.Milliseconds
			if longest < 0 || step.Milliseconds > s.Steps[longest].Milliseconds {
				longest = i
			}
		}
	}
	if !(sum > 0) || !(whole > 0) {
		return nil, errors.New("its layers take no time")
	}
	if tellsTooLittle(unnamed, sum, mostUnnamed) {
		return nil, fmt.Errorf("%.0f%% of its time is in layers whose names tell of no operator (%s)", 100*unnamed/sum,
			s.Steps[longest].What)
	}
	scaled := *s
	scaled.Call *= whole / sum
	scaled.Steps = slices.Clone(s.Steps)
	for i := range scaled.Steps {
		scaled.Steps[i].Milliseconds *= whole / sum
	}
	return &scaled, nil
}

// tellsTooLittle says that layers whose names tell nothing take too much of a region's time.
func tellsTooLittle(unnamed, sum, most float64) bool { return unnamed > most*sum }

// absorb joins groups of which no layer tells with who does them. What stands pointwise behind a product is done by the
// product, where the engine tells of that; all else by the layer that wants its value, since engines that fuse several
// operators keep the name of the last one; at the region's end by the one that made its value.
func (a *attribution) absorb(inside *trace.Inside, groups []annotate.Group, together union) {
	// named and product are true of a lot where they are true of one group in it.
	named, product := make([]bool, len(groups)), make([]bool, len(groups))
	for i := range inside.Steps {
		if s := &inside.Steps[i]; !s.Reorder {
			for _, group := range s.Of {
				named[together.find(group)] = true
			}
		}
	}
	missing := make([]bool, len(groups))
	of := map[relay.NodeID]int{}
	for i := range groups {
		top := together.find(i)
		missing[i] = !named[top]
		product[top] = product[top] || a.any(groups[i].Nodes, isProduct)
		for _, v := range groups[i].Nodes {
			of[v] = i
		}
	}
	makers, readers := a.neighbours(groups, of)
	join := func(i, k int) {
		i, k = together.find(i), together.find(k)
		top := min(i, k)
		named[top], product[top] = named[i] || named[k], product[i] || product[k]
		together.join(i, k)
	}
	for i := range groups {
		if !missing[i] {
			continue
		}
		at := slices.IndexFunc(makers[i], func(k int) bool {
			top := together.find(k)
			return named[top] && product[top] && len(readers[k]) == 1
		})
		switch {
		case at >= 0 && !a.any(groups[i].Nodes, func(op string) bool { return !pointwise[op] }):
			join(i, makers[i][at])
		case len(readers[i]) > 0:
			join(i, readers[i][0])
		case len(makers[i]) > 0:
			join(i, makers[i][len(makers[i])-1])
		}
	}
}

// neighbours are, for each group, those whose values it reads and those that read its own, ascending.
func (a *attribution) neighbours(groups []annotate.Group, of map[relay.NodeID]int) (makers, readers [][]int) {
	makers, readers = make([][]int, len(groups)), make([][]int, len(groups))
	for i := range groups {
		for _, v := range groups[i].Nodes {
			for _, in := range a.set.Graph.Nodes[v].Inputs {
				if k, ok := of[in]; ok && k != i && !slices.Contains(makers[i], k) {
					makers[i] = append(makers[i], k)
					readers[k] = append(readers[k], i)
				}
			}
		}
		slices.Sort(makers[i])
	}
	return makers, readers
}

// any says whether a test is true of one of the operators among some nodes.
func (a *attribution) any(nodes []relay.NodeID, test func(op string) bool) bool {
	return slices.ContainsFunc(nodes, func(v relay.NodeID) bool {
		op := a.set.Graph.Nodes[v].Op
		return op != "" && test(op)
	})
}

// isProduct says that an operator is a convolution or a matrix product.
func isProduct(op string) bool {
	return strings.HasPrefix(op, "nn.conv") || op == "nn.dense" || op == "nn.matmul" || op == "nn.batch_matmul"
}

// pointwise are the operators that engines hang on a product or work into its weights.
var pointwise = map[string]bool{"add": true, "subtract": true, "multiply": true, "divide": true, "nn.bias_add": true,
	"nn.relu": true, "nn.leaky_relu": true, "nn.prelu": true, "clip": true, "sigmoid": true, "tanh": true}
