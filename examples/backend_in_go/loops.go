// SPDX-License-Identifier: Apache-2.0

// Package loops is a library of one C function, an addition and a ReLU in one go over memory, as a backend.
package loops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/csource"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

const library = `
static void loops_add_relu(const float* a, const float* b, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = a[i] + b[i] > 0 ? a[i] + b[i] : 0;
}`

// New is the backend.
func New() byoc.Backend {
	return byoc.Definition{
		Name:        "loops",
		Description: "an addition and a ReLU in one loop",
		Patterns: []byoc.Pattern{{
			Composite:  "loops.add_relu",
			Shape:      relay.Op("nn.relu", relay.Named("sum", relay.Op("add", relay.Wildcard(), relay.Wildcard()))),
			Limits:     sameShape,
			LimitsText: "float32, operands of one shape",
		}},
		Emit: csource.Emitter(library, statements),
	}.Backend()
}

// sameShape refuses sums that broadcast, and other types than the library knows.
func sameShape(g *relay.Graph, m *relay.Match) error {
	sum := &g.Nodes[m.Named["sum"]]
	if sum.Type.DType != "float32" {
		return errors.New("float32 only")
	}
	for _, operand := range sum.Inputs {
		if !slices.Equal(g.Nodes[operand].Type.Shape, sum.Type.Shape) {
			return errors.New("an operand is broadcast")
		}
	}
	return nil
}

// statements is the C code of a region: a call. A region is one match of the pattern, since the backend does not ask
// for neighbours to be merged (Definition.MergesRegions).
func statements(p *region.Program) (string, error) {
	sum, relu := p.Ops[0], p.Ops[1]
	a, b, y := sum.Args[0], sum.Args[1], relu.Results[0]
	size := relay.Elements(p.Values[y].Type.Shape)
	return fmt.Sprintf("loops_add_relu(%s, %s, %s, %d);", csource.Name(a), csource.Name(b), csource.Name(y), size), nil
}
