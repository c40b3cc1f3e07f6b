// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/relay"
)

// small is conv -> relu -> (pool in a region) -> conv -> add(with the relu) -> tuple of the two last.
type small struct {
	g                                    *relay.Graph
	x, conv, relu, pool, conv2, add, out relay.NodeID
}

func makeSmall() *small {
	s := &small{}
	m := relay.NewGraph("main")
	vector := relay.Tensor("float32", 1, 8, 8, 8)
	s.x = m.Var([]int64{1, 8, 8, 8}, "float32")
	w := m.Const([]int64{8, 8, 1, 1}, "float32")
	s.conv = m.Call("nn.conv2d", vector, nil, s.x, w)
	s.relu = m.Call("nn.relu", vector, nil, s.conv)
	s.pool = m.Call("nn.max_pool2d", vector, nil, s.relu)
	s.conv2 = m.Call("nn.conv2d", vector, nil, s.pool, w)
	s.add = m.Call("add", vector, nil, s.conv2, s.relu)
	s.out = m.Tuple(s.add, s.pool)
	s.g = m.Finish(s.out)
	return s
}

func (s *small) region(nodes ...relay.NodeID) annotate.Region {
	r := annotate.Region{Backend: "lib", Compiler: "lib", Symbol: "lib_0", Nodes: nodes}
	r.Border(s.g)
	return r
}

// executable is what TVM makes of it: layouts altered around the convolutions.
func executable() *trace.Executable {
	return &trace.Executable{Kernels: []string{"to", "conv_relu", "from", "lib_0", "to", "conv", "from", "add"},
		Root: 9, Ops: []trace.Op{
			{Name: "layout_transform", Kernel: 0, Args: []int{-1}},           // 0: of x
			{Name: "nn.contrib_conv2d_NCHWc", Kernel: 1, Args: []int{0, -1}}, // 1
			{Name: "nn.relu", Kernel: 1, Args: []int{1}},                     // 2
			{Name: "layout_transform", Kernel: 2, Args: []int{2}},
			// 3: of the relu, for the region and the add
			{Name: "@lib_0", Kernel: 3, Args: []int{3}}, // 4
			{Name: "layout_transform", Kernel: 4, Args: []int{4}},
			// 5: of the region, for the convolution
			{Name: "nn.contrib_depthwise_conv2d_NCHWc", Kernel: 5, Args: []int{5, -1}}, // 6
			{Name: "layout_transform", Kernel: 6, Args: []int{6}},
			// 7: of the convolution, for the add
			{Name: "add", Kernel: 7, Args: []int{7, 3}}, {Name: "(tuple)", Kernel: -1, Args: []int{8, 4}}, // 8, 9
		}}
}

func partWith(t *testing.T, p *Profile, v relay.NodeID) Part {
	t.Helper()
	for _, part := range p.Parts {
		for _, w := range part.Nodes {
			if w == v {
				return part
			}
		}
	}
	t.Fatalf("no part has %%%d", v)
	return Part{}
}

func TestKernelsBelongToNodes(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	p, err := Attribute(&candidate.Set{Graph: s.g}, []annotate.Region{s.region(s.pool)}, executable(),
		trace.Times{Kernels: []float64{1, 10, 2, 20, 4, 30, 6, 5}})
	require.NoError(t, err)
	assert.Zero(t, p.Rest)
	assert.InDelta(t, 78, p.Total(), 1e-9, "no time is lost")
	assert.InDelta(t, 13, p.Border(), 1e-9)

	conv := partWith(t, p, s.conv)
	assert.Equal(t, []relay.NodeID{s.conv, s.relu}, conv.Nodes, "fused by TVM")
	assert.Equal(t, 10.0, conv.Milliseconds)
	// All of the input's transform; a third of the one that the region and the add share.
	assert.InDelta(t, 1+2.0/3, conv.Border, 1e-9)
	pool := partWith(t, p, s.pool)
	assert.Equal(t, 20.0, pool.Milliseconds)
	assert.InDelta(t, 2.0/3+4.0/2, pool.Border, 1e-9)
	conv2 := partWith(t, p, s.conv2)
	assert.Equal(t, 30.0, conv2.Milliseconds)
	assert.InDelta(t, 4.0/2+6.0/2, conv2.Border, 1e-9)
	add := partWith(t, p, s.add)
	assert.Equal(t, []relay.NodeID{s.add}, add.Nodes)
	assert.InDelta(t, 6.0/2+2.0/3, add.Border, 1e-9)
}

func TestAConvolutionAlongOneAxisIsBuiltAsAlongTwo(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	kind := relay.Tensor("float32", 1, 8, 20)
	x := m.Var([]int64{1, 8, 20}, "float32")
	conv := m.Call("nn.conv1d", kind, nil, x, m.Const([]int64{8, 8, 1}, "float32"))
	relu := m.Call("nn.relu", kind, nil, conv)
	g := m.Finish(relu)
	p, err := Attribute(&candidate.Set{Graph: g}, nil, &trace.Executable{
		Kernels: []string{"to", "conv_relu", "from"}, Root: 4, Ops: []trace.Op{
			{Name: "expand_dims", Kernel: 0, Args: []int{-1}},
			{Name: "layout_transform", Kernel: 0, Args: []int{0}},
			{Name: "nn.contrib_conv2d_NCHWc", Kernel: 1, Args: []int{1, -1}},
			{Name: "nn.relu", Kernel: 1, Args: []int{2}},
			{Name: "squeeze", Kernel: 2, Args: []int{3}},
		}}, trace.Times{Kernels: []float64{1, 10, 2}})
	require.NoError(t, err)
	assert.Equal(t, []relay.NodeID{conv, relu}, partWith(t, p, conv).Nodes)
	assert.Equal(t, 10.0, partWith(t, p, conv).Milliseconds)
}

func TestWhatCannotBeAttributedIsTheRest(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	e := executable()
	e.Kernels = append(e.Kernels, "unknown")
	p, err := Attribute(&candidate.Set{Graph: s.g}, []annotate.Region{s.region(s.pool)}, e,
		trace.Times{Kernels: []float64{1, 10, 2, 20, 4, 30, 6, 5, 7}})
	require.NoError(t, err)
	assert.Equal(t, 7.0, p.Rest)
	assert.InDelta(t, 85, p.Total(), 1e-9)

	// Another operator than the one that was placed: what is behind it cannot be found any more.
	e = executable()
	e.Ops[6].Name = "mystery"
	p, err = Attribute(&candidate.Set{Graph: s.g}, []annotate.Region{s.region(s.pool)}, e,
		trace.Times{Kernels: []float64{1, 10, 2, 20, 4, 30, 6, 5}})
	require.NoError(t, err)
	assert.InDelta(t, 78, p.Total(), 1e-9)
	assert.Equal(t, 30.0+4, p.Rest, "the mystery, and the transform that it wanted")
	assert.Equal(t, 10.0, partWith(t, p, s.conv).Milliseconds, "found by another way")
}

func TestExecutablesThatContradictThemselves(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	regions := []annotate.Region{s.region(s.pool)}
	e := executable()
	_, err := Attribute(&candidate.Set{Graph: s.g}, regions, e, trace.Times{Kernels: []float64{1}})
	assert.EqualError(t, err, "feedback: 1 kernels were timed, the network has 8")
	e.Ops[3].Args = []int{5}
	_, err = Attribute(&candidate.Set{Graph: s.g}, regions, e, trace.Times{Kernels: make([]float64, 8)})
	assert.EqualError(t, err, "trace: operator 3 (layout_transform) reads 5, which does not stand before it")
	e = executable()
	e.Ops[3].Kernel = 8
	_, err = Attribute(&candidate.Set{Graph: s.g}, regions, e, trace.Times{Kernels: make([]float64, 8)})
	assert.EqualError(t, err, "trace: operator 3 (layout_transform) is in kernel 8, of which there are 8")
	e = executable()
	e.Root = 10
	_, err = Attribute(&candidate.Set{Graph: s.g}, regions, e, trace.Times{Kernels: make([]float64, 8)})
	assert.Error(t, err)
}

// set offers each operator on TVM and on lib, TVM's convolution with its relu, and lib's pool with what follows.
func (s *small) set() (*candidate.Set, []float64, []bool) {
	set := &candidate.Set{Graph: s.g}
	var costs []float64
	var bounded []bool
	add := func(backend, key string, cost float64, isBound bool, nodes ...relay.NodeID) {
		set.Candidates = append(set.Candidates,
			candidate.Candidate{Backend: backend, Nodes: nodes, Root: nodes[len(nodes)-1], Key: key,
				Free: key == ""})
		costs, bounded = append(costs, cost), append(bounded, isBound)
	}
	add("tvm", "conv", 12, false, s.conv)              // 0
	add("tvm", "relu", 4, false, s.relu)               // 1
	add("tvm", "conv relu", 16, false, s.conv, s.relu) // 2
	add("tvm", "pool", 25, false, s.pool)              // 3
	add("tvm", "conv", 12, false, s.conv2)             // 4
	add("tvm", "add", 5, false, s.add)                 // 5
	add("tvm", "", 0, false, s.out)                    // 6
	add("lib", "conv", 8, false, s.conv)               // 7
	add("lib", "pool", 10, false, s.pool)              // 8
	add("lib", "conv", 8, true, s.conv2)               // 9
	add("lib", "add", math.Inf(1), false, s.add)       // 10
	return set, costs, bounded
}

func TestTheTableKnowsWhatWasSeenAndGuessesTheRest(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, costs, bounded := s.set()
	table := NewTable(set, costs, bounded, func(backend string) Traits { return Traits{Anything: backend == "tvm"} })
	for k := range costs {
		ms, seen := table.Cost(k)
		assert.False(t, seen)
		if k == 9 {
			assert.Equal(t, 8*boundScale, ms, "nobody knows by how much it is above its bound")
		} else {
			assert.Equal(t, costs[k], ms)
		}
	}
	p := &Profile{Parts: []Part{{Nodes: []relay.NodeID{s.conv, s.relu}, Milliseconds: 9, Border: 3},
		{Nodes: []relay.NodeID{s.pool}, Milliseconds: 20, Border: 1},
		{Nodes: []relay.NodeID{s.conv2, s.add}, Milliseconds: 17}}}
	// Chosen were the single operators on TVM; TVM fused two and two of them.
	table.Observe(p, []int{0, 1, 4, 5, 6, 8}, 1)
	seen := func(k int) float64 {
		ms, ok := table.Seen(k)
		require.True(t, ok, "candidate %d", k)
		return ms
	}
	assert.InDelta(t, 12*12.0/16, seen(0), 1e-9, "shared by what they take alone")
	assert.InDelta(t, 12*4.0/16, seen(1), 1e-9)
	assert.InDelta(t, 12, seen(2), 1e-9, "not chosen, but it is what ran")
	assert.InDelta(t, 21, seen(8), 1e-9)
	assert.InDelta(t, 17*12.0/17, seen(4), 1e-9)
	_, ok := table.Seen(3)
	assert.False(t, ok, "the pool ran on lib")
	_, ok = table.Seen(6)
	assert.False(t, ok, "a tuple costs nothing")

	// lib took 21 in place and 10 alone; its convolution, never seen, is believed to be dearer in proportion, within
	// limits.
	ms, isSeen := table.Cost(7)
	assert.False(t, isSeen)
	assert.InDelta(t, 8*mostScale, ms, 1e-9)
	ms, _ = table.Cost(10)
	assert.True(t, math.IsInf(ms, 1))
	// TVM's pool: by TVM as a whole.
	ms, _ = table.Cost(3)
	assert.InDelta(t, 25*(9+3+12+12+5)/(12.0+4+16+12+5), ms, 1e-9)
	assert.Len(t, table.Costs(), len(costs))

	// All that is seen counts: one noisy profile is outvoted, whichever it is.
	p.Parts[1].Milliseconds = 9
	table.Observe(p, []int{0, 1, 4, 5, 6, 8}, 1)
	assert.InDelta(t, (10+21)/2.0, seen(8), 1e-9)
	table.Observe(p, []int{0, 1, 4, 5, 6, 8}, 1)
	p.Parts[1].Milliseconds = 500
	table.Observe(p, []int{0, 1, 4, 5, 6, 8}, 1)
	p.Parts[1].Milliseconds = 10
	table.Observe(p, []int{0, 1, 4, 5, 6, 8}, 1)
	assert.InDelta(t, 11, seen(8), 1e-9)
	assert.Equal(t, []float64{21, 10, 10, 501, 11}, table.InPlace(8).Samples)
	low, high := table.InPlace(8).Interval()
	assert.Equal(t, [2]float64{10, 501}, [2]float64{low, high}, "five profiles do not tell which of them is off")
	assert.False(t, table.InPlace(3).Known())
}

func TestARegionsTimeIsSharedAmongItsCandidates(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, costs, bounded := s.set()
	table := NewTable(set, costs, bounded, func(backend string) Traits { return Traits{Anything: backend == "tvm"} })
	// conv and relu on lib would be a region together with the pool: 12 ms for what takes 18 by itself.
	p := &Profile{Parts: []Part{{Nodes: []relay.NodeID{s.conv, s.relu, s.pool}, Milliseconds: 12}}}
	table.Observe(p, []int{7, 8}, 1)
	a, _ := table.Seen(7)
	b, _ := table.Seen(8)
	assert.InDelta(t, 12, a+b, 1e-9)
	assert.InDelta(t, 12*8.0/18, a, 1e-9)
}
