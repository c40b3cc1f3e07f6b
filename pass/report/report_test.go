// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func written(t *testing.T, p *plan.Plan, opts Options) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Summarise(p).WriteText(&b, opts))
	return b.Bytes()
}

// maker makes plans region by region.
type maker struct {
	plan.Plan
	node int
}

func newMaker(name string) *maker {
	return &maker{Plan: plan.Plan{Schema: plan.Schema,
		Module: plan.Module{Name: name, Hash: "5e1f", Functions: []plan.Function{{Name: "main"}}},
		Environment: cost.Environment{Target: "llvm -mcpu=skylake-avx512", Device: "a processor", TVM: "0.19.0",
			Threads: 2, Options: "O3"},
		Backends: []plan.Backend{{Name: "tvm", Library: "TVM", Version: "0.19.0"},
			{Name: "dnnl", Compiler: "dnnl", Library: "oneDNN", Version: "2.6.0"}},
		Estimate: plan.Estimate{Optimal: true}}}
}

// region adds a region of one candidate for each list of operators.
func (m *maker) region(backend string, ms float64, candidates ...[]string) {
	r := plan.Region{ID: len(m.Regions), Function: "main", Backend: backend}
	share := m.Backend(backend)
	if share.Compiler != "" {
		r.Symbol = fmt.Sprintf("tvmgen_default_%s_main_%d", backend, len(m.Regions))
	}
	for _, operators := range candidates {
		c := plan.Candidate{Key: fmt.Sprint(operators, ms), Milliseconds: ms}
		if share.Compiler != "" {
			c.Composite = "dnnl.pattern"
		}
		for _, op := range operators {
			n := plan.Node{Index: m.node, Operator: op, PostDominator: -1}
			if n.IsOperator() {
				share.Operators++
				m.Module.Functions[0].Operators++
			}
			c.Nodes = append(c.Nodes, n)
			m.node += 2
		}
		r.Candidates = append(r.Candidates, c)
		r.Milliseconds += ms
	}
	if len(r.Operators()) > 0 {
		share.Regions++
	}
	share.Milliseconds += r.Milliseconds
	m.Estimate.Milliseconds += r.Milliseconds
	m.Estimate.Bound = m.Estimate.Milliseconds
	m.Regions = append(m.Regions, r)
}

// small is a network with every kind of thing that a report shows.
func small() *plan.Plan {
	m := newMaker("workload:small")
	conv := []string{"nn.conv2d", "add", "nn.relu"}
	m.region("dnnl", 0.75, conv)
	m.region("tvm", 0.125, []string{"nn.softmax"})
	m.region("dnnl", 0.75, conv)
	m.region("tvm", 0, []string{"(tuple)"})
	m.region("tvm", 0.25, []string{"concatenate"})
	m.region("dnnl", 0.5, conv, conv, []string{"nn.max_pool2d"}, []string{"nn.dense", "add"})
	m.region("dnnl", 0.75, conv)
	m.Backends = append(m.Backends, plan.Backend{Name: "mkl", Compiler: "mkl", Unusable: "libmkl_rt.so is not there"})
	places := func(indices ...int) (at []plan.Place) {
		for _, i := range indices {
			at = append(at, plan.Place{Function: "main", Index: i})
		}
		return at
	}
	m.Candidates = plan.Candidates{Proposed: 41, Free: 1, Distinct: 17, Measured: 8, Stored: 5, Given: 2, Bounded: 2,
		Tested: 9, Wrong: 1, Failed: 4,
		Ties: 3,
		Failures: []plan.Failure{
			{Backend: "dnnl", Composite: "dnnl.conv3d", Operators: []string{"nn.conv3d"},
				Places: places(4, 8, 12, 16, 20),
				Failure: cost.Failure{Phase: "check", Kind: cost.KindWrongResult,
					Detail: "differs by 0.25 at [0, 1]\nsecond line"}},
			{Backend: "dnnl", Composite: "dnnl.dense", Operators: []string{"nn.dense"}, Places: places(40),
				Failure: cost.Failure{Phase: "build", Kind: cost.KindError, Detail: "no libdnnl.so.2"}},
			{Backend: "dnnl", Composite: "nn.relu", Operators: []string{"nn.relu"}, Places: places(42, 44),
				Failure: cost.Failure{Phase: "build", Kind: cost.KindError, Detail: "no libdnnl.so.2"}},
			{Backend: "tvm", Operators: []string{"nn.conv2d", "add"}, Places: places(30),
				Failure: cost.Failure{Phase: "run", Kind: cost.KindTimeout, Detail: "no answer within 60 s"}},
		},
		Refusals: []plan.Refusal{{Backend: "dnnl", Composite: "dnnl.softmax", Reason: "softmax over four dimensions",
			Places: places(3, 5)}}}
	m.Finalists = []plan.Finalist{
		{Name: "tvm", Samples: []float64{8, 8.5, 8.25, 9, 8}, Estimate: 9},
		{Name: "dnnl", Samples: []float64{5, 5.5, 5.25, 6, 5}, MaxError: 1.25e-6, Estimate: 5.5},
		{Name: "mkl", Failure: &cost.Failure{Phase: "build", Kind: cost.KindError, Detail: "no libmkl_rt.so"}},
		{Name: plan.PlacementName, Samples: []float64{4, 4.25, 4.5, 6.5, 4}, MaxError: 1.5e-6, Estimate: 4.625,
			Chosen: true, Regions: 4},
	}
	return &m.Plan
}

// shared is a network with a region that two backends share, placed without what reassociates.
func shared() *plan.Plan {
	m := newMaker("workload:shared")
	m.Backends = append(m.Backends, plan.Backend{Name: "native", Compiler: "dnnl", Library: "kernels", Version: "1"})
	conv := []string{"nn.conv2d", "add", "nn.relu"}
	m.region("dnnl", 0.75, conv, conv, []string{"nn.max_pool2d"}, conv)
	m.region("tvm", 0.125, []string{"nn.softmax"})
	m.region("native", 0.5, []string{"nn.dense"})
	// Three of the first region's four are native's.
	r := &m.Regions[0]
	r.Backend = "dnnl+native"
	for i, kernel := range []string{"strips", "strips", "", "winograd"} {
		c := &r.Candidates[i]
		c.Backend, c.Kernel = "dnnl", kernel
		if kernel != "" {
			c.Backend, c.Composite = "native", "native."+kernel+"_conv2d_bias_relu"
		}
	}
	m.Backends[1].Operators, m.Backends[1].Milliseconds = 1, 0.75
	m.Backends[2].Operators, m.Backends[2].Milliseconds, m.Backends[2].Regions = 10, 2.75, 2
	m.Regions[2].Candidates[0].Composite = "native.narrow_dense"
	m.Regions[2].Candidates[0].Kernel = "narrow"
	m.Constraints = &plan.Constraints{Exact: true}
	return &m.Plan
}

// large is a network whose regions do not fit on a screen: seventy kinds, each three times.
func large() *plan.Plan {
	m := newMaker("")
	for k := range 210 {
		m.region([]string{"tvm", "dnnl"}[k%2], float64(1+k%70)/8, []string{"nn.conv2d", "add", "nn.relu"})
	}
	m.Estimate.Optimal, m.Estimate.Bound = false, 0
	return &m.Plan
}

func TestText(t *testing.T) {
	golden(t, "small.txt", written(t, small(), Options{}))
	golden(t, "small-verbose.txt", written(t, small(), Options{Verbose: true}))
	golden(t, "large.txt", written(t, large(), Options{}))
}

func TestSharedRegionsSayWhoDoesWhat(t *testing.T) {
	golden(t, "shared.txt", written(t, shared(), Options{}))
	golden(t, "shared-verbose.txt", written(t, shared(), Options{Verbose: true}))
	s := Summarise(shared())
	require.True(t, s.Exact)
	require.Equal(t, map[string]int{"strips": 2, "winograd": 1, "narrow": 1}, s.Backends[2].Kernels)
	require.Equal(t, "winograd", s.Regions[0].Parts[3].Kernel)
	require.Equal(t, "native", s.Regions[0].Parts[3].Backend)
}

func TestVerboseLeavesNothingOut(t *testing.T) {
	got := string(written(t, large(), Options{Verbose: true}))
	for _, r := range large().Regions {
		require.Contains(t, got, fmt.Sprintf("nn.relu %%%d", r.Candidates[0].Nodes[2].Index))
	}
}

func TestTheLevelIsSaid(t *testing.T) {
	p := small()
	require.NotContains(t, string(written(t, p, Options{})), "level")
	p.Level = "operator"
	require.Contains(t, string(written(t, p, Options{})), "; placed at the operator level\n")
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Summarise(small()).WriteJSON(&b))
	golden(t, "small.json", b.Bytes())
	var back Summary
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, "dnnl", back.Reference)
	require.Equal(t, 20, back.Operators)
}

func TestRatiosArePaired(t *testing.T) {
	s := Summarise(small())
	// Round for round 0.8, 0.773, 0.857, 1.083, 0.8: one bad round does not count.
	require.InDelta(t, 0.8, s.Finalists[3].Ratio, 1e-9)
	require.Equal(t, 1.0, s.Finalists[1].Ratio)
	require.Equal(t, 4.25, s.Times.Measured)
	require.Zero(t, s.Finalists[2].Median)
}

// Who is hopeless runs in a few rounds alone: its ratio is about these, and it is nobody's reference.
func TestFewRoundsHaveARatio(t *testing.T) {
	p := small()
	p.Finalists[1].Samples = []float64{4, 6}
	s := Summarise(p)
	require.Equal(t, "tvm", s.Reference)
	require.InDelta(t, (0.5+6/8.5)/2, s.Finalists[1].Ratio, 1e-9)
	require.Contains(t, string(written(t, p, Options{})),
		"5 rounds, the networks taken in turn (dnnl in the first 2 alone); * is")
}

func TestPlacementAloneHasNoRatio(t *testing.T) {
	p := small()
	p.Finalists = p.Finalists[3:]
	s := Summarise(p)
	require.Empty(t, s.Reference)
	require.Zero(t, s.Finalists[0].Ratio)
	require.NotContains(t, string(written(t, p, Options{})), "time /")
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestWriteErrorsAreGivenBack(t *testing.T) {
	require.ErrorContains(t, Summarise(small()).WriteText(fullDisk{}, Options{}), "no space")
	require.ErrorContains(t, Summarise(small()).WriteJSON(fullDisk{}), "no space")
}
