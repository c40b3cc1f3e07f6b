// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// seedPlans are the golden plans, one with borders and one without a proof.
func seedPlans(t testing.TB) [][]byte {
	var texts [][]byte
	for _, path := range []string{"testdata/plan.json", "testdata/slow-library.json"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		texts = append(texts, text)
	}
	for _, change := range []func(p *Plan){
		func(p *Plan) {
			for i := range p.Regions {
				for k := range p.Regions[i].Candidates {
					c := &p.Regions[i].Candidates[k]
					for j := range c.Nodes {
						if j > 0 {
							c.Nodes[j].Reads = []int{c.Nodes[j-1].Index}
						}
					}
				}
			}
			last := p.Regions[0].Candidates[0].Nodes
			p.Borders = []Border{{Function: "main", Value: last[len(last)-1].Index, Backend: p.Backends[1].Name,
				In: 0.5, Out: 0.25}}
		},
		func(p *Plan) {
			p.Estimate.Optimal, p.Estimate.Bound = false, p.Estimate.Bound/2
			p.Estimate.Gap = p.Estimate.Milliseconds - p.Estimate.Bound
			for i := range p.Regions {
				for k := range p.Regions[i].Candidates {
					for j := range p.Regions[i].Candidates[k].Nodes {
						p.Regions[i].Candidates[k].Nodes[j].Price /= 2
					}
				}
			}
		},
	} {
		p, err := Decode(texts[0])
		require.NoError(t, err)
		change(p)
		text, err := p.Encode()
		require.NoError(t, err)
		texts = append(texts, text)
	}
	return texts
}

// exercise does with a plan all that can be done without a module, and says whether it verifies.
func exercise(t *testing.T, text []byte) (p *Plan, verified bool) {
	p, err := Decode(text)
	if err != nil {
		require.Nil(t, p)
		return nil, false
	}
	encoded, err := p.Encode()
	require.NoError(t, err)
	again, err := Decode(encoded)
	require.NoError(t, err)
	twice, err := again.Encode()
	require.NoError(t, err)
	require.Equal(t, string(encoded), string(twice))

	d := Diff(p, again)
	require.True(t, d.SameModule && d.Identical)
	require.Empty(t, d.Fields)
	require.Empty(t, d.Moves)
	for _, selector := range []string{"%0", "%7", "main%2", "nn.conv2d", "x%1", "conv1/BiasAdd"} {
		s, err := ParseSelector(selector)
		require.NoError(t, err)
		_, _ = p.Explain(s)
	}
	_, _ = p.Closest(3)
	_ = p.String()

	proof, err := p.Prove()
	if err != nil {
		require.Zero(t, proof)
		return p, false
	}
	requireTrueProof(t, p, proof)
	return p, true
}

// requireTrueProof asks, by trying all, whether a proof is true: each placed node is covered once, the placement costs
// what the proof says, and no other choice among the candidates is cheaper than its bound. Plans with borders, and such
// with too many candidates to try, are held to their sums only.
func requireTrueProof(t *testing.T, p *Plan, proof Proof) {
	require.InDelta(t, p.Estimate.Milliseconds, proof.Milliseconds, 1e-6)
	require.LessOrEqual(t, proof.Bound, proof.Milliseconds+1e-6)
	if p.Estimate.Optimal && len(p.Borders) == 0 {
		require.InDelta(t, 0, proof.Gap(), 1e-6)
	}
	least := 0.0
	for _, f := range p.Module.Functions {
		type option struct {
			nodes []int
			ms    float64
		}
		var options []option
		placed := map[int]bool{}
		for _, r := range p.Regions {
			for _, c := range r.Candidates {
				if r.Function != f.Name {
					continue
				}
				o := option{ms: c.Milliseconds}
				for _, n := range c.Nodes {
					require.False(t, placed[n.Index])
					placed[n.Index] = true
					o.nodes = append(o.nodes, n.Index)
				}
				options = append(options, o)
			}
		}
		for _, r := range p.Candidates.Rejected {
			if r.Function == f.Name {
				options = append(options, option{r.Nodes, r.Milliseconds})
			}
		}
		if len(p.Borders) > 0 || len(options) > 24 || len(placed) > 24 {
			return
		}
		// The first node that is open is covered by each candidate in turn.
		var nodes []int
		for v := range placed {
			nodes = append(nodes, v)
		}
		slices.Sort(nodes)
		best := math.Inf(1)
		var cover func(open map[int]bool, sum float64)
		cover = func(open map[int]bool, sum float64) {
			i := slices.IndexFunc(nodes, func(v int) bool { return open[v] })
			if i < 0 {
				best = min(best, sum)
				return
			}
			for _, o := range options {
				if !slices.Contains(o.nodes, nodes[i]) ||
					slices.ContainsFunc(o.nodes, func(v int) bool { return !open[v] }) {
					continue
				}
				for _, v := range o.nodes {
					open[v] = false
				}
				cover(open, sum+o.ms)
				for _, v := range o.nodes {
					open[v] = true
				}
			}
		}
		cover(placed, 0)
		least += best
	}
	require.LessOrEqual(t, proof.Bound, least+1e-6, "there is a cheaper placement than the proof says")
}

// FuzzDecode reads any text as a plan.
func FuzzDecode(f *testing.F) {
	for _, text := range seedPlans(f) {
		f.Add(text)
		for _, change := range [][2]string{{`"nodes": 11,`, `"nodes": -1,`},
			{`"nodes": 11,`, `"nodes": 4611686018427387904,`},
			{`"post_dominator": 9`, `"post_dominator": 99`}, {`"post_dominator": 9`, `"post_dominator": 4294967305`}} {
			f.Add(bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) { exercise(t, text) })
}

// oddValues are what FuzzTamperedPlan puts in a plan's places.
var oddValues = []any{nil, true, "", "main", "dnnl", "tvm", -1, 0, 1, 2, 9, 10, 1 << 31, 1 << 62, 1e-9, 1e-7, -1e-9,
	0.25, 1e300, -1.0,
	[]any{}, []any{0}, []any{2, 3, 4}, []any{9, 2}, map[string]any{}}

// FuzzTamperedPlan changes values of good plans, a few at a time: four bytes say where, and by what.
func FuzzTamperedPlan(f *testing.F) {
	texts := seedPlans(f)
	f.Add(byte(0), []byte{0, 0, 0, 0})
	f.Add(byte(2), []byte{0, 40, 2, 9, 1, 0, 2, 9})
	f.Add(byte(1), []byte{0, 200, 1, 3})
	f.Fuzz(func(t *testing.T, which byte, changes []byte) {
		var tree any
		require.NoError(t, json.Unmarshal(texts[int(which)%len(texts)], &tree))
		for changes = changes[:min(len(changes), 32)]; len(changes) >= 4; changes = changes[4:] {
			places := placesOf(&tree)
			where := int(binary.BigEndian.Uint16(changes))
			at := places[where%len(places)]
			switch changes[2] % 5 {
			case 0, 1: // an odd value
				at.put(copyOf(t, oddValues[int(changes[3])%len(oddValues)])) // a copy, which no later change gets into
			case 2: // a little more or less
				if number, ok := at.get().(float64); ok {
					at.put(number + []float64{1, -1, 1e-9, -1e-9, 1e-6, -1e-6, 0.5, 1e-3}[changes[3]%8])
				}
			case 3: // the value of another place
				at.put(copyOf(t, places[(where+1+int(changes[3]))%len(places)].get()))
			case 4: // one element more or less
				if list, ok := at.get().([]any); ok && len(list) > 0 {
					if i := int(changes[3]/2) % len(list); changes[3]%2 == 0 {
						at.put(append(slices.Clone(list), copyOf(t, list[i])))
					} else {
						at.put(slices.Delete(slices.Clone(list), i, i+1))
					}
				}
			}
		}
		text, err := json.Marshal(tree)
		require.NoError(t, err)
		exercise(t, text)
	})
}

// copyOf is a value that shares nothing with the tree that it is from.
func copyOf(t *testing.T, value any) (copied any) {
	text, err := json.Marshal(value)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &copied))
	return copied
}

// treePlace is a place in a JSON tree.
type treePlace struct {
	get func() any
	put func(any)
}

// placesOf lists all places of a tree but its top, in a fixed order.
func placesOf(top *any) []treePlace {
	var places []treePlace
	var walk func(node any)
	walk = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			var names []string
			for name := range n {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				places = append(places, treePlace{func() any { return n[name] }, func(v any) { n[name] = v }})
				walk(n[name])
			}
		case []any:
			for i := range n {
				places = append(places, treePlace{func() any { return n[i] }, func(v any) { n[i] = v }})
				walk(n[i])
			}
		}
	}
	walk(*top)
	return places
}

// FuzzRule reads pins, prohibitions and selectors: what is read is written as it was meant.
func FuzzRule(f *testing.F) {
	for _, text := range []string{"nn.conv2d=dnnl", "%12=tvm", "block%3 = dnnl", "conv1/BiasAdd=tvm", "a=b=c", "%=x",
		"%-1=x", "=", "%+5=x",
		"m.onnx:12:3=tvm", "%99999999999999999999=tvm", "nn.conv2d=native.winograd", "a=b.", "a=.b", "a=b.c.d"} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, forbid bool) {
		r, err := ParseRule(text, forbid)
		if err != nil {
			return
		}
		require.NotEmpty(t, r.Backend)
		require.NotContains(t, r.Backend, "=", "the last one divides: spans may hold others")
		require.Equal(t, forbid, r.Forbid)
		require.Equal(t, forbid, r.Breaks(r.Backend, r.Kernel))
		require.True(t, r.Selector.Index >= 0 || r.Selector.Name != "")
		again, err := ParseRule(r.Selector.String()+"="+r.Goal(), forbid)
		require.NoError(t, err)
		require.Equal(t, r, again)
		if r.Selector.Index >= 0 {
			only := &Node{Index: r.Selector.Index}
			require.True(t, r.Selector.Selects(r.Selector.Function, true, only))
			require.False(t, r.Selector.Selects(r.Selector.Function, true, &Node{Index: r.Selector.Index + 1}))
			return
		}
		require.True(t, r.Selector.Selects("any", false, &Node{Operator: r.Selector.Name}))
		require.True(t, r.Selector.Selects("any", false, &Node{Operator: "x", Span: r.Selector.Name}))
		require.True(t, r.Selector.Selects("any", false,
			&Node{Operator: "x", Span: r.Selector.Name + ":" + strconv.Itoa(3) + ":4"}))
	})
}
