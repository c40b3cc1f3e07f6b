// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// library is a backend with the given patterns; without any it takes everything, as TVM does.
type library struct {
	name, product, version string
	patterns               []byoc.Pattern
}

func (l library) Name() string             { return l.name }
func (l library) Description() string      { return "for tests" }
func (l library) Level() byoc.Level        { return byoc.OperatorLevel }
func (l library) Patterns() []byoc.Pattern { return l.patterns }
func (l library) TakesAnything() bool      { return l.patterns == nil }
func (l library) MergesRegions() bool      { return l.patterns != nil }
func (l library) Install() error           { return nil }
func (l library) Probe() byoc.Probe {
	return byoc.Probe{Usable: true, Library: l.product, Version: l.version, Path: "/not/in/the/plan"}
}
func (l library) Compiler() string {
	if l.patterns == nil {
		return ""
	}
	return l.name
}

// network is a convolution with bias and relu, a second convolution that the library refuses, and a sum.
func network() *relay.Graph {
	act := relay.Tensor("float32", 1, 8, 4, 4)
	m := relay.NewGraph("main")
	x := m.Var(act.Shape, "float32")
	conv := func(in relay.NodeID) relay.NodeID {
		return m.Call("nn.conv2d", act, nil, in, m.Const([]int64{8, 8, 3, 3}, "float32"))
	}
	a := m.Call("nn.relu", act, nil, m.Call("add", act, nil, conv(x), m.Const([]int64{8, 1, 1}, "float32")))
	b := m.Call("nn.softmax", act, nil, conv(a))
	return m.Finish(m.Call("concatenate", relay.Tensor("float32", 1, 16, 4, 4), nil, m.Tuple(a, b)))
}

// placed solves network with made-up costs: dnnl takes a quarter of the time, TVM a millisecond an operator.
func placed(t *testing.T, g *relay.Graph, backends []byoc.Backend) *Placed {
	return placedAt(t, g, backends, 0.25)
}

// placedAt is placed where dnnl takes that part of TVM's time.
func placedAt(t *testing.T, g *relay.Graph, backends []byoc.Backend, part float64) *Placed {
	t.Helper()
	set, err := candidate.Propose(g, backends, candidate.Options{OpPattern: func(op string) candidate.OpPattern {
		return map[string]candidate.OpPattern{"nn.conv2d": candidate.OutEWiseFusable, "add": candidate.Broadcast,
			"nn.softmax": candidate.OutEWiseFusable, "concatenate": candidate.Injective}[op]
	}})
	require.NoError(t, err)
	f := &Placed{Set: set}
	taken := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for i := range set.Candidates {
		c := &set.Candidates[i]
		ms := float64(c.Operators(g))
		if !c.Free { // the golden file is no test of relay's keys
			c.Key = "key of"
			for _, v := range c.Nodes {
				c.Key += " " + candidate.OperatorName(&g.Nodes[v])
			}
		}
		known := cost.Cost{Samples: []float64{ms + 0.25, ms, ms}, Origin: cost.Measured, Taken: taken}
		switch {
		case c.Free:
			known = cost.Cost{}
		case c.Backend == "dnnl" && c.Composite == "dnnl.conv2d_bias_relu":
			known = cost.Cost{Samples: []float64{ms * part}, Origin: cost.Stored, Taken: taken, MaxError: 1.5e-6}
		case c.Backend == "dnnl":
			known = cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindTimeout,
				Detail: "no answer within 60 s"}, taken)
		}
		o := place.Option{Nodes: c.Nodes, Rank: c.Rank}
		if !c.Free {
			o.Cost = known.Estimate()
		}
		f.Costs = append(f.Costs, known)
		f.Options = append(f.Options, o)
	}
	f.Solution, err = place.Solve(f.Options, place.TreeOf(g))
	require.NoError(t, err)
	for _, i := range f.Solution.Chosen {
		if set.Candidates[i].Backend == "dnnl" {
			f.Groups = append(f.Groups, Group{Symbol: "tvmgen_default_dnnl_main_0", Candidates: []int{i}})
		}
	}
	return f
}

func backends() []byoc.Backend {
	conv := relay.Op("nn.conv2d", relay.Wildcard(), relay.IsConstant())
	return []byoc.Backend{
		library{name: "tvm", product: "TVM", version: "0.19.0"},
		library{"dnnl", "oneDNN", "2.6.0", []byoc.Pattern{
			{Composite: "dnnl.conv2d_bias_relu", Shape: relay.Op("nn.relu", relay.Op("add", conv, relay.IsConstant()))},
			{Composite: "dnnl.conv2d", Shape: conv},
			{Composite: "dnnl.softmax", Shape: relay.Op("nn.softmax", relay.Wildcard()),
				Limits: func(*relay.Graph, *relay.Match) error { return errors.New("softmax over four dimensions") }},
		}},
	}
}

func example(t *testing.T) *Plan {
	t.Helper()
	b := NewBuilder(Module{Name: "workload:example", Hash: "5e1f"},
		cost.Environment{Target: "llvm -mcpu=skylake-avx512",
			Device: "a processor", Library: "dropped", TVM: "0.19.0", Threads: 2, Options: "O3"}, backends())
	require.NoError(t, b.Add(placed(t, network(), backends())))
	p, err := b.Plan()
	require.NoError(t, err)
	return p
}

func TestPlanIsWrittenAsBefore(t *testing.T) {
	t.Parallel()
	p := example(t)
	p.Level, p.Notes = "graph", []string{"2 networks were measured in the search."}
	p.Finalists = []Finalist{
		{Name: "tvm", Samples: []float64{5, 5.5}, Estimate: 6},
		{Name: "dnnl", Failure: &cost.Failure{Phase: "build", Kind: cost.KindError, Detail: "no"}},
		{Name: PlacementName, Origin: "feedback 1", Regions: p.Outlined(), Samples: []float64{4, 4.5}, MaxError: 1e-6,
			Estimate: 3.75, Chosen: true},
	}
	text, err := p.Encode()
	require.NoError(t, err)
	const golden = "testdata/plan.json"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, text, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(text))
	require.NotContains(t, string(text), "/not/in/the/plan")

	back, err := Decode(text)
	require.NoError(t, err)
	require.Equal(t, p, back)
	again, err := back.Encode()
	require.NoError(t, err)
	require.True(t, bytes.Equal(text, again))
}

func TestPlanCounts(t *testing.T) {
	t.Parallel()
	p := example(t)
	require.Equal(t, "6 operators: 3 on tvm, 3 on dnnl; 3.75 ms estimated", p.String())
	require.Equal(t, 1, p.Backend("dnnl").Regions)
	require.Nil(t, p.Backend("cudnn"))
	require.True(t, p.Estimate.Optimal)
	require.Zero(t, p.Estimate.Gap)
	c := p.Candidates
	require.Equal(t, 12, c.Proposed)
	require.Equal(t, 9, c.Distinct, "nn.conv2d stands at two places, on tvm and on dnnl")
	require.Equal(t, c.Distinct, c.Measured+c.Stored)
	require.Equal(t, 1, c.Stored)
	require.Equal(t, 1, c.Failed)
	require.Len(t, c.Failures, 1, "one computation that stands in two places")
	require.Len(t, c.Failures[0].Places, 2)
	require.Len(t, c.Refusals, 1)
	require.Len(t, c.Rejected, c.Proposed-4-2, "what was neither chosen nor failed")
	prices := map[int]float64{}
	for _, r := range p.Regions {
		for _, chosen := range r.Candidates {
			for _, n := range chosen.Nodes {
				prices[n.Index] = n.Price
			}
		}
	}
	for _, r := range c.Rejected {
		slack := r.Milliseconds
		for _, v := range r.Nodes {
			slack -= prices[v]
		}
		require.InDelta(t, slack, r.Slack, 1e-9, "%v", r)
		require.GreaterOrEqual(t, slack, -1e-9, "the prices would be no proof: %v", r)
	}
}

func TestPlacementThatNobodySearchedForIsNotProven(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Module{Hash: "5e1f"}, cost.Environment{}, backends())
	f := placed(t, network(), backends())
	f.Solution.Prices = nil
	require.NoError(t, b.Add(f))
	p, err := b.Plan()
	require.NoError(t, err)
	require.False(t, p.Estimate.Optimal)
	require.Zero(t, p.Estimate.Bound)
}

func TestSeveralFunctions(t *testing.T) {
	t.Parallel()
	b := NewBuilder(Module{Hash: "5e1f"}, cost.Environment{}, backends())
	require.NoError(t, b.Add(placed(t, network(), backends())))
	second := network()
	second.Name = "other"
	f := placed(t, second, backends())
	f.Groups[0].Symbol = "tvmgen_default_dnnl_other_0"
	require.NoError(t, b.Add(f))
	p, err := b.Plan()
	require.NoError(t, err)
	require.Equal(t, 12, p.Operators())
	require.Len(t, p.Candidates.Failures, 1)
	require.Equal(t, example(t).Candidates.Distinct, p.Candidates.Distinct)
}

func TestFileAppearsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "plan.json")
	p := example(t)
	require.NoError(t, p.WriteFile(path))
	back, err := ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, p, back)

	p.Module.Hash = ""
	require.ErrorContains(t, p.WriteFile(path), "hash is missing")
	again, err := ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, back, again, "a plan that cannot be written leaves the old one")
	require.ErrorContains(t, back.WriteFile(filepath.Join(folder, "no", "plan.json")), "writing the plan")
	require.NoError(t, os.Mkdir(filepath.Join(folder, "taken"), 0o755))
	require.ErrorContains(t, back.WriteFile(filepath.Join(folder, "taken")), "writing the plan")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing is left behind")
	_, err = ReadFile(filepath.Join(folder, "missing.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestWhatIsNoPlanIsRefused(t *testing.T) {
	t.Parallel()
	text, err := example(t).Encode()
	require.NoError(t, err)
	for name, c := range map[string]struct{ from, to, want string }{
		"newer schema":  {`"collage_plan": 3`, `"collage_plan": 4`, "use a newer one"},
		"older schema":  {`"collage_plan": 3`, `"collage_plan": 2`, "make the plan again"},
		"other json":    {`"collage_plan": 3`, `"another": 1`, "no field collage_plan"},
		"unknown field": {`"collage_plan": 3`, `"collage_plan": 3, "surprise": 1`, "surprise"},
		"wrong type":    {`"proposed": `, `"proposed": true, "x": `, "line "},
		"no json":       {`"collage_plan": 3,`, `"collage_plan" 3,`, "line 2"},
		"trailing":      {"\n}\n", "\n}\n{}", "after top-level value"},
	} {
		broken := strings.Replace(string(text), c.from, c.to, 1)
		require.NotEqual(t, string(text), broken, name)
		_, err := Decode([]byte(broken))
		require.ErrorContains(t, err, c.want, name)
	}
	_, err = Decode(nil)
	require.ErrorContains(t, err, "not a plan")
}

func TestPlansThatContradictThemselvesAreRefused(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(p *Plan){
		"hash is missing":             func(p *Plan) { p.Module.Hash = "" },
		"stands at place":             func(p *Plan) { p.Regions[0].ID = 7 },
		"the function \"x\" is not":   func(p *Plan) { p.Regions[0].Function = "x" },
		"the backend \"x\" is not":    func(p *Plan) { p.Regions[0].Backend = "x" },
		"stays inline":                func(p *Plan) { p.region("tvm").Symbol = "x" },
		"it holds nothing":            func(p *Plan) { p.Regions[0].Candidates = nil },
		"without nodes":               func(p *Plan) { p.Regions[0].Candidates[0].Nodes = nil },
		"candidates sum to":           func(p *Plan) { p.Regions[0].Milliseconds += 1e-3 },
		"costs -1 ms":                 func(p *Plan) { p.Regions[0].Candidates[0].Milliseconds = -1 },
		"candidate that failed":       func(p *Plan) { p.Regions[0].Candidates[0].Cost.Failure = &cost.Failure{} },
		"is in region 0 too":          func(p *Plan) { p.Regions[1].Candidates[0].Nodes = p.Regions[0].Candidates[0].Nodes },
		"has no operator name":        func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].Operator = "" },
		"not ascending nodes of main": func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].Index = 99 },
		"does not stand behind it":    func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].PostDominator = 0 },
		"post-dominator %11, which":   func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].PostDominator = 11 },
		"post-dominator %4294967305":  func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].PostDominator = 1<<32 + 9 },
		"has -1 nodes":                func(p *Plan) { p.Module.Functions[0].Nodes = -1 },
		"has 4294967296 nodes":        func(p *Plan) { p.Module.Functions[0].Nodes = 1 << 32 },
		"the regions sum to":          func(p *Plan) { p.Estimate.Milliseconds += 1 },
		"the prices sum to":           func(p *Plan) { p.Regions[0].Candidates[0].Nodes[0].Price += 1 },
		"says 9 operators":            func(p *Plan) { p.Backends[0].Operators = 9 },
		"9 operators, 6 are placed":   func(p *Plan) { p.Module.Functions[0].Operators = 9 },
		"are accounted for":           func(p *Plan) { p.Candidates.Measured++ },
		"2 regions outside of TVM": func(p *Plan) {
			p.Finalists = []Finalist{{Name: "dnnl", Samples: []float64{1}, Regions: 2, Chosen: true}}
		},
		"13 candidates were proposed": func(p *Plan) { p.Candidates.Proposed++ },
		"1 are listed":                func(p *Plan) { p.Candidates.Failed++ },
		"are not ascending nodes of main (%99)": func(p *Plan) {
			p.region("dnnl").Rounded = []Rounded{{Value: 99, Scale: 1}}
		},
		"are not ascending nodes of main (%0)": func(p *Plan) {
			p.region("dnnl").Rounded = []Rounded{{Value: 0, Scale: 1}, {Value: 0, Scale: 1}}
		},
		"by the scale 0 and the zero 3":   func(p *Plan) { p.region("dnnl").Rounded = []Rounded{{Value: 0, Zero: 3}} },
		"by the scale 1 and the zero 256": func(p *Plan) { p.region("dnnl").Rounded = []Rounded{{Scale: 1, Zero: 256}} },
		"rounds %0, but is not outlined":  func(p *Plan) { p.region("tvm").Rounded = []Rounded{{Scale: 1}} },
		"only a lower bound is known":     func(p *Plan) { p.Regions[0].Candidates[0].Cost.Origin = cost.Bounded },
		"backend \"tvm\" is named":        func(p *Plan) { p.Backends = append(p.Backends, p.Backends[0]) },
		"function \"main\" is named": func(p *Plan) {
			p.Module.Functions = append(p.Module.Functions,
				p.Module.Functions[0])
		},
		"finalist \"\" is named": func(p *Plan) { p.Finalists = []Finalist{{}} },
		"has no samples":         func(p *Plan) { p.Finalists = []Finalist{{Name: "tvm"}} },
		"failed and is marked": func(p *Plan) {
			p.Finalists = []Finalist{{Name: "tvm", Failure: &cost.Failure{}, Chosen: true}}
		},
		"2 finalists are marked": func(p *Plan) {
			p.Finalists = []Finalist{{Name: "tvm", Samples: []float64{1}, Regions: 1, Chosen: true},
				{Name: "dnnl", Samples: []float64{1}, Regions: 1, Chosen: true}}
		},
		"schema version 4": func(p *Plan) { p.Schema = 4 },
	} {
		p := example(t)
		require.NoError(t, p.Validate())
		spoil(p)
		require.ErrorContains(t, p.Validate(), want)
		_, err := p.Encode()
		require.Error(t, err)
	}
}

func TestVerifyNeedsNothingButThePlan(t *testing.T) {
	t.Parallel()
	p := example(t)
	require.NoError(t, p.Verify())
	for want, spoil := range map[string]func(p *Plan){
		"less than the prices": func(p *Plan) { p.Candidates.Rejected[0].Milliseconds = 0 },
		"the prices sum to": func(p *Plan) { // by less than Validate minds
			p.Regions[0].Candidates[0].Nodes[0].Price += 2e-9
		},
		"meets at %4, not at %9":        func(p *Plan) { p.region("dnnl").Candidates[0].Nodes[0].PostDominator = 9 },
		"not ascending nodes before it": func(p *Plan) { p.region("dnnl").Candidates[0].Nodes[0].Reads = []int{-1} },
		"not connected": func(p *Plan) { // of a plan that does not say what is read
			p.region("dnnl").Candidates[0].Nodes[0].PostDominator = 9
			for i := range p.Regions {
				for k := range p.Regions[i].Candidates {
					for j := range p.Regions[i].Candidates[k].Nodes {
						p.Regions[i].Candidates[k].Nodes[j].Reads = nil
					}
				}
			}
		},
		"\"x\", which is not": func(p *Plan) { p.Candidates.Rejected[0].Backend = "x" },
		"\"y\", which is not": func(p *Plan) { p.Candidates.Rejected[0].Function = "y" },
		"no node of it":       func(p *Plan) { p.Candidates.Rejected[0].Nodes = []int{99} },
		"nothing that proves": func(p *Plan) { p.Estimate = Estimate{Milliseconds: p.Estimate.Milliseconds} },
		"hash is missing":     func(p *Plan) { p.Module.Hash = "" },
	} {
		p := example(t)
		spoil(p)
		require.ErrorContains(t, p.Verify(), want)
	}
}

// Steps are the same when they were written down.
func TestRoundedValuesAreWrittenDown(t *testing.T) {
	t.Parallel()
	steps := map[relay.NodeID]rounding.Steps{7: {Scale: 0.5, Zero: 3}, 2: {Scale: 0.25}, 11: {Scale: 1, Zero: 255}}
	r := Region{Rounded: roundedOf(steps)}
	require.Equal(t, []Rounded{{2, 0.25, 0}, {7, 0.5, 3}, {11, 1, 255}}, r.Rounded)
	require.Equal(t, steps, r.Steps())
	require.Nil(t, (&Region{}).Steps())
}

// region is the first region on a backend.
func (p *Plan) region(backend string) *Region {
	for i := range p.Regions {
		if p.Regions[i].Backend == backend {
			return &p.Regions[i]
		}
	}
	return nil
}

// Plans that are older than the field do not say at which level they were made, and are read all the same.
func TestTheLevelOfAPlan(t *testing.T) {
	t.Parallel()
	p := example(t)
	require.Empty(t, p.Level)
	text, err := p.Encode()
	require.NoError(t, err)
	require.NotContains(t, string(text), `"level"`)
	for level, valid := range map[string]bool{"operator": true, "graph": true, "both": false} {
		p.Level = level
		if text, err = p.Encode(); !valid {
			require.ErrorContains(t, err, `the level is "both"; it is "operator" or "graph"`)
			continue
		}
		require.NoError(t, err)
		back, err := Decode(text)
		require.NoError(t, err)
		require.Equal(t, level, back.Level)
	}
}
