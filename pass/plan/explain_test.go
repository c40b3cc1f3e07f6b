// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
)

func explained(t *testing.T, p *Plan, selector string) []Explanation {
	t.Helper()
	s, err := ParseSelector(selector)
	require.NoError(t, err)
	list, err := p.Explain(s)
	require.NoError(t, err)
	return list
}

func TestExplainSaysHowMuchFasterALoserWouldHaveHadToBe(t *testing.T) {
	t.Parallel()
	p := example(t)
	list := explained(t, p, "%2")
	require.Len(t, list, 1)
	e := list[0]
	assert.Equal(t, "dnnl.conv2d_bias_relu", e.Composite)
	assert.Equal(t, []int{2}, e.Selected)
	assert.Len(t, e.Nodes, 3)
	// All three on TVM take 3 ms in any grouping, on dnnl 0.75: any of them would have to be 2.25 ms faster.
	var fates []Fate
	for _, o := range e.Others {
		fates = append(fates, o.Fate)
		if o.Fate == FateDearer {
			require.NotNil(t, o.Regret)
			assert.InDelta(t, 2.25, *o.Regret, 1e-9, "%v", o)
		}
	}
	assert.Equal(t, []Fate{FateDearer, FateDearer, FateFailed}, fates)
	assert.Equal(t, "timeout in run: no answer within 60 s", e.Others[2].Reason)

	// The slack of the same candidates is no more than that, and for some of them less.
	for _, r := range p.Candidates.Rejected {
		if r.Milliseconds > 0 {
			assert.LessOrEqual(t, r.Slack, 2.25)
		}
	}

	assert.Equal(t, FateRefused, explained(t, p, "nn.softmax")[0].Others[0].Fate)
	assert.Len(t, explained(t, p, "nn.conv2d"), 2)
	assert.Equal(t, []int{7}, explained(t, p, "main%7")[0].Selected)
}

// What a regret says is so: a loser that is faster by more makes the whole cheaper, one that is faster by less does
// not.
func TestRegretIsTheTruth(t *testing.T) {
	t.Parallel()
	p := example(t)
	x, err := p.explainer()
	require.NoError(t, err)
	options, tree, placement := p.problem(p.Module.Functions[0])
	checked := 0
	for i := range p.Candidates.Rejected {
		regret, option := x.regret[i], len(placement.Chosen)+i
		if regret == nil { // the tuple alone: nothing takes the concatenation without it
			assert.Equal(t, []int{9}, p.Candidates.Rejected[i].Nodes)
			continue
		}
		for _, by := range []float64{*regret - 1e-6, *regret + 1e-6} {
			changed := slices.Clone(options)
			changed[option].Cost -= by
			if by < 0 || changed[option].Cost < 0 {
				continue
			}
			again, err := place.Solve(changed, tree)
			require.NoError(t, err)
			saved := max(0, by-*regret)
			assert.InDelta(t, placement.Cost-saved, again.Cost, 1e-9, "%v", options[option])
			checked++
		}
	}
	assert.Positive(t, checked)
}

// A plan of the operator level that is not the cheapest by its parts in place was decided by borders, or by what was
// measured: no loser is told by how much it was too dear.
func TestNoRegretsWhereOtherThingsDecided(t *testing.T) {
	t.Parallel()
	for name, slower := range map[string]float64{"the cheapest": 1, "not the cheapest": 100} {
		p := example(t)
		p.Level, p.GraphLevel = "operator", &GraphLevel{Believed: &Believed{}}
		require.True(t, p.PlacedInPlace())
		for i := range p.Regions {
			for k := range p.Regions[i].Candidates {
				c := &p.Regions[i].Candidates[k]
				c.Believed = slower * c.Milliseconds
			}
		}
		for i := range p.Candidates.Rejected {
			p.Candidates.Rejected[i].Believed = p.Candidates.Rejected[i].Milliseconds
		}
		closest, err := p.Closest(5)
		require.NoError(t, err)
		assert.Equal(t, slower > 1, len(closest) == 0, name)
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Selector{
		"%12": {Index: 12}, "block%3": {Function: "block", Index: 3}, "nn.relu": {Index: -1, Name: "nn.relu"},
		"a%b": {Index: -1, Name: "a%b"}, " x:1:2 ": {Index: -1, Name: "x:1:2"},
	} {
		got, err := ParseSelector(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "  ", "%", "%x", "%-1"} {
		_, err := ParseSelector(text)
		assert.Error(t, err, text)
	}
	n := &Node{Index: 4, Operator: "nn.relu", Span: "model.onnx:12:3"}
	for text, want := range map[string]bool{"nn.relu": true, "model.onnx": true, "model.onnx:12:3": true,
		"model": false,
		"%4":    true, "main%4": true, "other%4": false, "%5": false, "nn": false} {
		s, err := ParseSelector(text)
		require.NoError(t, err)
		assert.Equal(t, want, s.Selects("main", false, n), text)
	}
	assert.False(t, Selector{Index: 4}.Selects("block", false, n))
	assert.True(t, Selector{Index: 4}.Selects("block", true, n))

	p := example(t)
	for text, want := range map[string]string{
		"%99": "there is no node %99: function main has the nodes %0 to %10", "%0": "%0 is a variable or a constant",
		"other%2": "the functions are main", "nn.dense": `one of its operators (nn.conv2d, add, concatenate, nn.relu, nn.softmax)`,
	} {
		s, err := ParseSelector(text)
		require.NoError(t, err)
		_, err = p.Explain(s)
		assert.ErrorContains(t, err, want)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	r, err := ParseRule("model.onnx:a=b = dnnl", false)
	require.NoError(t, err)
	assert.Equal(t, Rule{Selector: Selector{Index: -1, Name: "model.onnx:a=b"}, Backend: "dnnl"}, r)
	assert.Equal(t, "pin model.onnx:a=b=dnnl", r.String())
	assert.True(t, r.Breaks("tvm", ""))
	assert.False(t, r.Breaks("dnnl", ""))
	r.Forbid = true
	assert.False(t, r.Breaks("tvm", ""))
	assert.True(t, r.Breaks("dnnl", ""))
	r, err = ParseRule("nn.conv2d = native.winograd ", false)
	require.NoError(t, err)
	assert.Equal(t, Rule{Selector: Selector{Index: -1, Name: "nn.conv2d"}, Backend: "native", Kernel: "winograd"}, r)
	assert.Equal(t, "pin nn.conv2d=native.winograd", r.String())
	for _, of := range []struct {
		backend, kernel string
		meant           bool
	}{{"native", "winograd", true}, {"native", "narrow", false}, {"native", "", false},
		{"dnnl", "winograd", false}} {
		r.Forbid = false
		assert.Equal(t, !of.meant, r.Breaks(of.backend, of.kernel), "pinned: %v", of)
		r.Forbid = true
		assert.Equal(t, of.meant, r.Breaks(of.backend, of.kernel), "forbidden: %v", of)
	}
	for _, text := range []string{"", "nn.relu", "nn.relu=", "=dnnl", "%x=tvm", "nn.relu=dnnl.", "nn.relu=.winograd"} {
		_, err := ParseRule(text, false)
		assert.Error(t, err, text)
	}
}

// Whatever number is changed in a plan, either it does not read any more or its proof does not check. (Numbers that no
// decision depends on are left alone: samples, slacks, intervals, what finalists took.)
func TestTamperedPlansAreRefused(t *testing.T) {
	t.Parallel()
	spoils := map[string]func(p *Plan){
		"a cheaper loser":        func(p *Plan) { p.Candidates.Rejected[2].Milliseconds = 0.5 },
		"a loser that is gone":   func(p *Plan) { p.Candidates.Rejected = p.Candidates.Rejected[1:] },
		"a loser of other nodes": func(p *Plan) { p.Candidates.Rejected[4].Nodes = []int{2, 4, 5, 7, 8, 9, 10} },
		"a loser out of bounds":  func(p *Plan) { p.Candidates.Rejected[0].Nodes = []int{-1} },
		"a loser elsewhere":      func(p *Plan) { p.Candidates.Rejected[0].Function = "x" },
		"a price":                func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].Price += 1e-9 },
		"prices that were moved": func(p *Plan) { movePrice(p) },
		"a cheaper winner": func(p *Plan) {
			p.Regions[0].Candidates[0].Milliseconds -= 0.25
			p.Regions[0].Milliseconds -= 0.25
			p.Backends[1].Milliseconds -= 0.25
			p.Estimate.Milliseconds -= 0.25
		},
		"a region that is gone": func(p *Plan) { p.Regions = p.Regions[:3] },
		"a gap":                 func(p *Plan) { p.Estimate.Gap = 1 },
		"another tree":          func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].PostDominator = 9 },
	}
	for what, spoil := range spoils {
		p := example(t)
		require.NoError(t, p.Verify())
		spoil(p)
		assert.Error(t, p.Verify(), what)
	}
}

func movePrice(p *Plan) {
	nodes := p.Regions[0].Candidates[0].Nodes
	nodes[0].Price -= 0.5
	nodes[1].Price += 0.5
}

func TestBoundedCandidatesAreExplained(t *testing.T) {
	t.Parallel()
	p := example(t)
	for i := range p.Candidates.Rejected {
		if r := &p.Candidates.Rejected[i]; len(r.Nodes) == 3 {
			r.Origin, r.Low, r.High = cost.Bounded, 0, 0
			p.Candidates.Bounded++
			p.Candidates.Measured--
		}
	}
	require.NoError(t, p.Verify())
	found := false
	for _, o := range explained(t, p, "%5")[0].Others {
		found = found || o.Fate == FateBounded
	}
	assert.True(t, found)
}
