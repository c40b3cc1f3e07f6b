// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

// made reads a plan that pass/plan's tests write.
func made(t *testing.T, name string) *plan.Plan {
	t.Helper()
	p, err := plan.ReadFile("../plan/testdata/" + name)
	require.NoError(t, err)
	return p
}

func explanations(t *testing.T, p *plan.Plan, selector string, opts Options) []byte {
	t.Helper()
	s, err := plan.ParseSelector(selector)
	require.NoError(t, err)
	list, err := p.Explain(s)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, WriteExplanations(&b, list, opts))
	return b.Bytes()
}

func TestExplanations(t *testing.T) {
	p := made(t, "plan.json")
	golden(t, "explain-conv.txt", explanations(t, p, "%2", Options{}))
	golden(t, "explain-softmax.txt", explanations(t, p, "nn.softmax", Options{}))
	p.Candidates.Excluded = append(p.Candidates.Excluded,
		plan.Excluded{Function: "main", Backend: "dnnl", Composite: "dnnl.sum",
			Nodes: []int{9, 10}, Constraint: "forbid concatenate=dnnl"})
	p.Candidates.Rejected[0].Origin = cost.Bounded
	golden(t, "explain-slow.txt", explanations(t, made(t, "slow-library.json"), "nn.conv2d", Options{}))
	golden(t, "explain-ruled-out.txt", explanations(t, p, "concatenate", Options{}))

	// Many of them share a table.
	s, err := plan.ParseSelector("nn.conv2d")
	require.NoError(t, err)
	list, err := made(t, "plan.json").Explain(s)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, WriteExplanations(&b, append(list, list...), Options{}))
	rivals, err := made(t, "plan.json").Closest(3)
	require.NoError(t, err)
	b.WriteString("\n")
	require.NoError(t, WriteClosest(&b, rivals))
	golden(t, "explain-many.txt", b.Bytes())
}

// Where borders decided, each candidate is told by what the network would take more with it.
func TestExplanationsWithBorders(t *testing.T) {
	p := made(t, "plan.json")
	p.Level, p.GraphLevel = "graph", &plan.GraphLevel{Believed: &plan.Believed{}}
	for i := range p.Regions {
		for k := range p.Regions[i].Candidates {
			c := &p.Regions[i].Candidates[k]
			c.Believed = c.Milliseconds * 1.5
		}
	}
	p.Candidates.Rejected[4].Origin = cost.Bounded
	for i, more := range []float64{0.02, -0.003, 0.0000125, 0.4, -0.5} {
		p.Candidates.Rejected[i].Believed, p.Candidates.Rejected[i].Exchange = 0.01*float64(i+1), &more
	}
	rivals, err := p.Closest(10)
	require.NoError(t, err)
	require.Len(t, rivals, 5, "the others were not looked at")
	var text bytes.Buffer
	require.NoError(t, WriteClosest(&text, rivals))
	node := p.Candidates.Rejected[0].Nodes[0]
	text.WriteString("\n")
	text.Write(explanations(t, p, fmt.Sprintf("%%%d", node), Options{}))
	golden(t, "explain-exchanged.txt", text.Bytes())

	// Another plan has what was not taken.
	other := made(t, "slow-library.json")
	var told bytes.Buffer
	require.NoError(t, WriteDifference(&told, plan.Diff(p, other), [2]string{"a.json", "b.json"}, Options{}))
	golden(t, "diff-exchanged.txt", told.Bytes())
}

func TestDifference(t *testing.T) {
	a, b := made(t, "plan.json"), made(t, "slow-library.json")
	other := made(t, "plan.json")
	other.Module.Hash, other.Module.Name = "beef", "workload:other"
	for name, pair := range map[string][2]*plan.Plan{"diff.txt": {a, b}, "diff-same.txt": {a, a},
		"diff-module.txt": {a, other}} {
		var text bytes.Buffer
		require.NoError(t, WriteDifference(&text, plan.Diff(pair[0], pair[1]), [2]string{"a.json", "b.json"},
			Options{}))
		golden(t, name, text.Bytes())
	}
}
