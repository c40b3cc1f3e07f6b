// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/relay"
)

// merged is a region of lib of all of small: a composite function of the first convolution and its relu, and single
// operators.
func (s *small) merged() (*candidate.Set, annotate.Region) {
	set := &candidate.Set{Graph: s.g}
	for _, nodes := range [][]relay.NodeID{{s.conv, s.relu}, {s.pool}, {s.conv2}, {s.add}} {
		c := candidate.Candidate{Backend: "lib", Nodes: nodes, Root: nodes[len(nodes)-1], Key: "k"}
		if len(nodes) > 1 {
			c.Composite = "lib.conv2d_relu"
		}
		set.Candidates = append(set.Candidates, c)
	}
	r := s.region(s.conv, s.relu, s.pool, s.conv2, s.add)
	r.Candidates = []int{0, 1, 2, 3}
	return set, r
}

// recorded is what the runtime told about it: the second convolution was fused with the addition; the input and a
// result changed their layouts, and so did the pool's value for the convolution.
const recorded = `{"ms": 22, "call_ms": 2.5, "groups": ["lib.conv2d_relu", "nn.max_pool2d", "nn.conv2d", "add"], "steps": [
	{"ms": 1, "of": [0], "reorder": true}, {"ms": 8, "of": [0]}, {"ms": 2, "of": [1]}, {"ms": 0.5, "of": [2], "from": [1], "reorder": true},
	{"ms": 6, "of": [2, 3]}, {"ms": 2, "from": [2, 3], "reorder": true}]}`

// oneCall is the executable that is nothing but that region.
func oneCall() *trace.Executable {
	return &trace.Executable{Kernels: []string{"lib_0"}, Root: 3,
		Ops: []trace.Op{{Name: "@lib_0", Kernel: 0, Args: []int{-1}},
			{Name: "(get)", Kernel: -1, Args: []int{0}}, {Name: "(get)", Kernel: -1, Args: []int{0}, Index: 1},
			{Name: "(tuple)", Kernel: -1, Args: []int{1, 2}}}}
}

func insideOf(t *testing.T, text string) *trace.Inside {
	t.Helper()
	var inside trace.Inside
	require.NoError(t, json.Unmarshal([]byte(text), &inside))
	return &inside
}

func TestARegionIsTakenApart(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, r := s.merged()
	p, err := Attribute(set, []annotate.Region{r}, oneCall(),
		trace.Times{Kernels: []float64{22}, Inside: map[string]*trace.Inside{"lib_0": insideOf(t, recorded)}})
	require.NoError(t, err)
	assert.InDelta(t, 22, p.Total(), 1e-9, "no time is lost")
	require.Len(t, p.Parts, 3)
	conv := partWith(t, p, s.conv)
	assert.Equal(t, Part{Nodes: []relay.NodeID{s.conv, s.relu}, Milliseconds: 8, Border: 1, Crossing: 1}, conv)
	pool := partWith(t, p, s.pool)
	assert.Equal(t, Part{Nodes: []relay.NodeID{s.pool}, Milliseconds: 2, Border: 0.25}, pool,
		"a layout inside is no crossing")
	fused := partWith(t, p, s.add)
	assert.Equal(t, Part{Nodes: []relay.NodeID{s.conv2, s.add}, Milliseconds: 6, Border: 2.25, Crossing: 2}, fused)

	tensor := int64(8 * 8 * 8 * 4)
	require.Len(t, p.Borders, 2)
	assert.Equal(t, "", p.Borders[0].Backend, "the tuple of results is inline")
	assert.Equal(t, Border{Backend: "lib", Calls: 1, CallMilliseconds: 2.5, Ins: 1, InBytes: tensor, In: 1, Outs: 2,
		OutBytes: 2 * tensor,
		Out:      2}, p.Borders[1])

	// The candidates are charged with what is theirs: nothing of the crossing, and what was fused by what each takes
	// alone.
	costs := []float64{10, 3, 6, 3}
	table := NewTable(set, costs, make([]bool, 4), func(string) Traits { return Traits{Merges: true} })
	table.Observe(p, []int{0, 1, 2, 3}, 1)
	for k, want := range []float64{8, 2.25, 6.25 * 6 / 9, 6.25 * 3 / 9} {
		ms, ok := table.Seen(k)
		require.True(t, ok)
		assert.InDelta(t, want, ms, 1e-9, "candidate %d", k)
	}
	// Where neighbours do not merge, all that a region took is its candidate's; and a busy machine is counted out.
	table = NewTable(set, costs, make([]bool, 4), func(string) Traits { return Traits{} })
	table.Observe(p, []int{0, 1, 2, 3}, 0.5)
	ms, _ := table.Seen(0)
	assert.InDelta(t, 4.5, ms, 1e-9)
}

// What rounds a value is no operator of the network's: its time is that of who is the first to read it.
func TestRoundingBelongsToWhoReads(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, r := s.merged()
	r.Precisions = []byoc.Precision{byoc.INT8, byoc.F32, byoc.INT8, byoc.F32}
	r.Steps = map[relay.NodeID]rounding.Steps{s.x: rounding.Usual, s.pool: rounding.Usual}
	inside := insideOf(t, `{"ms": 22, "call_ms": 1, "groups": ["qnn.quantize", "qnn.dequantize", "lib.conv2d_relu",
		"nn.max_pool2d", "qnn.quantize", "qnn.dequantize", "nn.conv2d", "add"], "steps": [
		{"ms": 1, "of": [0]}, {"ms": 8, "of": [2]}, {"ms": 2, "of": [3]}, {"ms": 0.5, "of": [4]}, {"ms": 0.25, "of": [5]},
		{"ms": 6, "of": [6]}, {"ms": 3, "of": [7]}]}`)
	p, err := Attribute(set, []annotate.Region{r}, oneCall(),
		trace.Times{Kernels: []float64{22}, Inside: map[string]*trace.Inside{"lib_0": inside}})
	require.NoError(t, err)
	require.Len(t, p.Parts, 4)
	for v, want := range map[relay.NodeID]Part{
		s.conv:  {Nodes: []relay.NodeID{s.conv, s.relu}, Milliseconds: 9},
		s.pool:  {Nodes: []relay.NodeID{s.pool}, Milliseconds: 2},
		s.conv2: {Nodes: []relay.NodeID{s.conv2}, Milliseconds: 6.75},
		s.add:   {Nodes: []relay.NodeID{s.add}, Milliseconds: 3},
	} {
		assert.Equal(t, want, partWith(t, p, v))
	}
}

// What rounds a value for all who read it belongs to who makes it, at the end of the region, too.
func TestRoundingOfWhatIsGivenBelongsToWhoMakesIt(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, r := s.merged()
	r.Precisions = []byoc.Precision{byoc.F32, byoc.INT8, byoc.F32, byoc.INT8}
	r.Steps = map[relay.NodeID]rounding.Steps{s.pool: rounding.Usual, s.add: rounding.Usual}
	r.Given = []relay.NodeID{s.pool, s.add}
	inside := insideOf(t, `{"ms": 20, "call_ms": 1, "groups": ["lib.conv2d_relu", "nn.max_pool2d", "qnn.quantize",
		"qnn.dequantize", "nn.conv2d", "add", "qnn.quantize", "qnn.dequantize"], "steps": [
		{"ms": 8, "of": [0]}, {"ms": 2, "of": [1]}, {"ms": 0.5, "of": [2]}, {"ms": 0.25, "of": [3]},
		{"ms": 6, "of": [4]}, {"ms": 3, "of": [5]}, {"ms": 1, "of": [7]}]}`)
	p, err := Attribute(set, []annotate.Region{r}, oneCall(),
		trace.Times{Kernels: []float64{20}, Inside: map[string]*trace.Inside{"lib_0": inside}})
	require.NoError(t, err)
	require.Empty(t, p.Whole)
	require.Len(t, p.Parts, 4)
	for v, want := range map[relay.NodeID]Part{
		s.conv:  {Nodes: []relay.NodeID{s.conv, s.relu}, Milliseconds: 8},
		s.pool:  {Nodes: []relay.NodeID{s.pool}, Milliseconds: 2.75},
		s.conv2: {Nodes: []relay.NodeID{s.conv2}, Milliseconds: 6},
		s.add:   {Nodes: []relay.NodeID{s.add}, Milliseconds: 4},
	} {
		assert.Equal(t, want, partWith(t, p, v))
	}
}

func TestAnEngineThatSpeaksOfSomethingElseIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, r := s.merged()
	for name, wrong := range map[string]struct {
		change func(*trace.Inside)
		why    string
	}{
		"another name": {func(i *trace.Inside) { i.Groups[1] = "nn.avg_pool2d" },
			"nn.avg_pool2d where it has nn.max_pool2d"},
		"another order": {func(i *trace.Inside) {
			i.Groups[1], i.Groups[2] = i.Groups[2], i.Groups[1]
		}, "nn.conv2d where it has nn.max_pool2d"},
		"fewer":         {func(i *trace.Inside) { i.Groups = i.Groups[:3] }, "3 operators and patterns, it has 4"},
		"no such group": {func(i *trace.Inside) { i.Steps[4].Of = []int{4} }, "a step of operators that it has not"},
		"nor this one":  {func(i *trace.Inside) { i.Steps[5].From = []int{-1} }, "a step of operators that it has not"},
		"a reason":      {func(i *trace.Inside) { i.Steps, i.Why = nil, "it is too old" }, "it is too old"},
		"unnamed layers": {func(i *trace.Inside) {
			i.Layers, i.Steps = true, append(i.Steps, trace.Step{Milliseconds: 4, What: "Gelu x"})
		}, "15% of its time is in layers whose names tell of no operator (Gelu x)"},
		"layers in no time": {func(i *trace.Inside) {
			i.Layers, i.Call, i.Steps = true, 0, []trace.Step{{Of: []int{0}}}
		}, "its layers take no time"},
		"silence": {func(i *trace.Inside) { i.Steps = nil }, ""},
	} {
		inside := insideOf(t, recorded)
		wrong.change(inside)
		p, err := Attribute(set, []annotate.Region{r}, oneCall(),
			trace.Times{Kernels: []float64{22}, Inside: map[string]*trace.Inside{"lib_0": inside}})
		require.NoError(t, err, name)
		require.Len(t, p.Parts, 1, name)
		assert.Equal(t, 22.0, p.Parts[0].Milliseconds, name)
		for _, b := range p.Borders {
			assert.Equal(t, "", b.Backend, "%s: nothing was learnt about lib", name)
		}
		if wrong.why == "" {
			assert.Empty(t, p.Whole, "%s: an engine that has no clocks is nothing to be told", name)
			continue
		}
		require.Len(t, p.Whole, 1, name)
		assert.Equal(t, "lib_0", p.Whole[0].Symbol, name)
		assert.Contains(t, p.Whole[0].Why, wrong.why, name)
	}
}

func TestStepsOfNobodyAreShared(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, r := s.merged()
	inside := insideOf(t, recorded)
	inside.Steps = append(inside.Steps, trace.Step{Milliseconds: 3, Of: []int{}},
		trace.Step{Milliseconds: 6, Reorder: true})
	p, err := Attribute(set, []annotate.Region{r}, oneCall(),
		trace.Times{Kernels: []float64{20}, Inside: map[string]*trace.Inside{"lib_0": inside}})
	require.NoError(t, err)
	assert.InDelta(t, 22+9, p.Total(), 1e-9)
	assert.InDelta(t, 1+2, partWith(t, p, s.pool).Border-0.25, 1e-9)
	assert.InDelta(t, 2, partWith(t, p, s.pool).Crossing, 1e-9, "from an input to a result")
}

func TestBordersAreLearnt(t *testing.T) {
	t.Parallel()
	traits := map[string]Traits{"tvm": {Anything: true}, "lib": {Merges: true, Compiler: "lib"},
		"single": {Compiler: "single"},
		"lodger": {Merges: true, Compiler: "lib"}, "other": {Merges: true, Compiler: "other"},
		"far": {Merges: true, Compiler: "far", Declared: func(*relay.Type) (float64, float64) { return 3, 4 }}}
	b := NewBorders(func(backend string) Traits { return traits[backend] })
	small, large := relay.Tensor("float32", 8), relay.Tensor("float32", 1<<20)
	in, out := b.Cost("lib", large)
	assert.Greater(t, in, out, "calling it comes on top")
	assert.InDelta(t, 0.42, out, 0.01, "moving 4 MiB at 10 GB/s")
	less, _ := b.Cost("lib", small)
	assert.Less(t, less, in)
	for _, name := range []string{"tvm", "single"} {
		in, out = b.Cost(name, large)
		assert.Zero(t, in+out, name)
	}
	in, out = b.Cost("far", &relay.Type{Kind: relay.TypeTuple, Fields: []*relay.Type{small, large}})
	assert.Equal(t, []float64{6, 8}, []float64{in, out})

	b.Observe(&Profile{Borders: []Border{{Backend: "lib", Calls: 100, CallMilliseconds: 10, Ins: 200, InBytes: 1 << 30,
		In: 1000, Outs: 100,
		OutBytes: 1 << 30, Out: 500}, {Backend: "", Outs: 10, OutBytes: 1 << 20, Out: 1}}}, 2)
	in, out = b.Cost("lib", large)
	assert.InDelta(t, 2*1000.0/256+2*10.0/200, in, 0.05,
		"what was seen outweighs what was believed; calls are shared among the values")
	assert.InDelta(t, 2*500.0/256, out, 0.02)
	_, out = b.Cost("tvm", large)
	assert.Positive(t, out)

	// Those that share regions have the same borders, and what is seen of a region that both are in is seen of both.
	likewise, _ := b.Cost("lodger", large)
	assert.Equal(t, in, likewise)
	other, _ := b.Cost("other", large)
	assert.NotEqual(t, in, other)
	b.Observe(&Profile{Borders: []Border{{Backend: "lib+lodger", Ins: 1, InBytes: 1 << 40, In: 1e7}}}, 1)
	now, _ := b.Cost("lib", large)
	assert.InDelta(t, 1e7/float64(1<<18), now, 1)
	likewise, _ = b.Cost("lodger", large)
	assert.Equal(t, now, likewise)
	unmoved, _ := b.Cost("other", large)
	assert.Equal(t, other, unmoved)
}

// A region that two backends share is told about by one engine; each one's candidates get their own steps.
func TestASharedRegionIsTakenApart(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, r := s.merged()
	set.Candidates[0].Backend, set.Candidates[0].Composite = "lodger", "lodger.winograd_conv2d_relu"
	r.Backend = "lib+lodger"
	inside := insideOf(t, strings.Replace(recorded, "lib.conv2d_relu", "lodger.winograd_conv2d_relu", 1))
	p, err := Attribute(set, []annotate.Region{r}, oneCall(),
		trace.Times{Kernels: []float64{22}, Inside: map[string]*trace.Inside{"lib_0": inside}})
	require.NoError(t, err)
	require.Len(t, p.Parts, 3)
	assert.Equal(t, "lib+lodger", p.Borders[1].Backend)
	table := NewTable(set, []float64{16, 2, 3, 3}, make([]bool, 4), func(string) Traits { return Traits{Merges: true} })
	table.Observe(p, []int{0, 1, 2, 3}, 1)
	ms, seen := table.Seen(0)
	require.True(t, seen)
	assert.InDelta(t, 8, ms, 1e-9, "the lodger's step")
	ms, _ = table.Seen(1)
	assert.InDelta(t, 2.25, ms, 1e-9, "the host's")
}

// TestSharesAddUp: whatever engines tell, no time is lost.
func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	s := makeSmall()
	set, r := s.merged()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		inside := insideOf(t, recorded)
		inside.Steps = nil
		total := 0.0
		some := func() []int {
			var list []int
			for i := range 4 {
				if random.IntN(3) == 0 {
					list = append(list, i)
				}
			}
			return list
		}
		for range 1 + random.IntN(8) {
			step := trace.Step{Milliseconds: random.Float64(), Of: some(), Reorder: random.IntN(2) == 0}
			if step.Reorder {
				step.From = some()
			}
			total += step.Milliseconds
			inside.Steps = append(inside.Steps, step)
		}
		inside.Call = random.Float64()
		p, err := Attribute(set, []annotate.Region{r}, oneCall(),
			trace.Times{Kernels: []float64{99}, Inside: map[string]*trace.Inside{"lib_0": inside}})
		require.NoError(t, err)
		require.InDelta(t, total+inside.Call, p.Total(), 1e-9)
		seen := map[relay.NodeID]bool{}
		for _, part := range p.Parts {
			require.GreaterOrEqual(t, part.Border, part.Crossing)
			for _, v := range part.Nodes {
				require.False(t, seen[v], "a node in two parts")
				seen[v] = true
			}
		}
		require.Len(t, seen, 5)
	}
}
