// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/plan"
)

func TestOperatorsOfKernels(t *testing.T) {
	nodes := func(names ...string) (list []plan.Node) {
		for _, name := range names {
			list = append(list, plan.Node{Operator: name})
		}
		return list
	}
	p := &plan.Plan{Regions: []plan.Region{
		{Backend: "dnnl+native", Candidates: []plan.Candidate{
			{Backend: "native", Kernel: "winograd", Nodes: nodes("nn.conv2d", "nn.relu")},
			{Backend: "dnnl", Kernel: "winograd", Nodes: nodes("nn.conv2d")},
			{Backend: "native", Kernel: "strips", Nodes: nodes("add", "(tuple)")}}},
		{Backend: "native", Candidates: []plan.Candidate{{Kernel: "winograd", Nodes: nodes("nn.conv2d")},
			{Nodes: nodes("nn.softmax")}}},
	}}
	assert.Equal(t, map[string]int{"winograd": 3, "strips": 1}, KernelOperators(p, "native"))
	assert.Equal(t, []string{"add", "nn.conv2d", "nn.relu", "nn.softmax"}, OperatorsOf(p))
}

// withoutOf is a network that takes so many milliseconds as it was kept, searched again, and without two kernels.
func withoutOf(name string, kept, again, winograd, strips float64) WithoutNetwork {
	cell := someCell(Ours, kept, false)
	n := WithoutNetwork{Name: name, Chosen: "collage", Shares: map[string]int{"native": 5}, Kept: &cell}
	for _, row := range []WithoutRow{{NetworkCell: someCell("searched again", again, false)},
		{Kernel: "winograd", Operators: 3, NetworkCell: someCell("without winograd", winograd, false)},
		{Kernel: "strips", Operators: 2, NetworkCell: someCell("without strips", strips, false)}} {
		row.NetworkCell.Kept, row.Shares = "collage", map[string]int{"dnnl": 5}
		n.Rows = append(n.Rows, row)
	}
	n.compare()
	return n
}

// A kernel earns something where the network is slower without it than what was kept, and than what so short a search
// finds with all kernels.
func TestWhatKernelsEarn(t *testing.T) {
	r := &WithoutReport{Backend: "native", Machine: someReport().Machine, Threads: 2, Rounds: 8, TurnMS: 300,
		SearchSeconds: 15, Networks: []WithoutNetwork{withoutOf("clear", 1, 1, 2, 1), withoutOf("short", 1, 1.5, 1.5, 1.6),
			{Name: "nothing", Chosen: "dnnl", Rows: []WithoutRow{}}, {Name: "broken", Failure: "it is none"}}}
	same := someCell(withoutNative, 1, true)
	r.Networks = append(r.Networks, withoutOf("dnnl", 1, 1, 2, 2))
	r.Networks[4].Alone = &same // which is as fast as what was kept
	r.Networks[4].compare()
	r.summarise([]string{"norm", "strips", "winograd"})
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	golden(t, "without.txt", text.String())
	require.Len(t, r.Kernels, 3)
	assert.Equal(t, []string{"clear"}, r.Kernels[2].Earns)
	assert.Equal(t, []string{"short"}, r.Kernels[1].Earns)
	assert.Equal(t, []string{"clear", "short", "dnnl"}, r.Kernels[1].Kept)
	assert.Empty(t, r.Kernels[0].Kept)

	var picture bytes.Buffer
	require.NoError(t, r.WritePicture(&picture))
	assert.Contains(t, picture.String(), "without winograd")
	assert.NotContains(t, picture.String(), "without norm")
	assert.Error(t, (&WithoutReport{}).WritePicture(io.Discard), "there is nothing to draw")
}
