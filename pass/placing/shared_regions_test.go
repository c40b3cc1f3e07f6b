// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

func placeFamily(t *testing.T, cfg settings.Config) (*plan.Plan, error) {
	t.Helper()
	cfg.Backends, cfg.Target, cfg.Estimator = []string{"tvm", "host", "guest"}, "llvm", &rig.Costs{Rule: rig.FamilyCosts}
	_, p, err := network.Place(tvmtest.Parse(t, rig.Layers), cfg)
	return p, err
}

// compositesOf are the composites of a plan's regions outside of TVM.
func compositesOf(p *plan.Plan) (composites [][]string) {
	for i := range p.Regions {
		if r := &p.Regions[i]; r.Symbol != "" {
			var names []string
			for _, c := range r.Candidates {
				names = append(names, c.Composite)
			}
			composites = append(composites, names)
		}
	}
	return composites
}

func TestStepsOfTwoBackendsMixInOneRegion(t *testing.T) {
	rig.WithFamily(t, nil)
	mod := tvmtest.Parse(t, rig.Layers)
	out, p, err := network.Place(mod, settings.Config{Backends: []string{"tvm", "host", "guest"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.FamilyCosts}})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"guest.strassen_dense", "host.relu", "guest.strassen_dense", "host.relu", "host.tanh"}},
		compositesOf(p))
	r := &p.Regions[0]
	assert.Equal(t, "guest+host", r.Backend)
	assert.Equal(t, "tvmgen_default_family_main_0", r.Symbol)
	assert.Equal(t, []string{"guest", "host"}, r.Backends())
	assert.Equal(t, "guest", r.BackendOf(&r.Candidates[0]))
	assert.Equal(t, "strassen", r.Candidates[0].Kernel)
	assert.True(t, r.Candidates[0].Reassociates)
	for name, operators := range map[string]int{"host": 3, "guest": 2, "tvm": 1} {
		assert.Equal(t, operators, p.Backend(name).Operators, name)
		assert.Equal(t, 1, p.Backend(name).Regions, "%s has a part in one region", name)
	}
	assert.Equal(t, 4.0, p.Backend("guest").Milliseconds)
	require.NoError(t, p.Verify())
	assert.Len(t, rig.OperatorsOf(t, out), 2, "main and one region")

	text, err := p.Encode()
	require.NoError(t, err)
	read, err := plan.Decode(text)
	require.NoError(t, err)
	require.NoError(t, read.Verify())
	replayed, err := placing.Replay(mod, read, settings.Config{})
	require.NoError(t, err)
	assert.Equal(t, rig.OperatorsOf(t, out), rig.OperatorsOf(t, replayed))

	selector, err := plan.ParseSelector("nn.dense")
	require.NoError(t, err)
	explained, err := read.Explain(selector)
	require.NoError(t, err)
	assert.Equal(t, "guest", explained[0].Backend)
	assert.Equal(t, "strassen", explained[0].Kernel)

	for what, spoil := range map[string]func(p *plan.Plan){
		"another name":      func(p *plan.Plan) { p.Regions[0].Backend = "host" },
		"a stranger":        func(p *plan.Plan) { p.Regions[0].Candidates[0].Backend = "x" },
		"another's kernel":  func(p *plan.Plan) { p.Regions[0].Candidates[0].Backend = "host" },
		"another compiler":  func(p *plan.Plan) { p.Backends[1].Compiler = "other" },
		"no compiler":       func(p *plan.Plan) { p.Backends[1].Compiler, p.Backends[2].Compiler = "", "" },
		"nothing outlined":  func(p *plan.Plan) { p.Regions[0].Symbol = "" },
		"another's share":   func(p *plan.Plan) { p.Backends[1].Operators, p.Backends[2].Operators = 2, 3 },
		"a region too much": func(p *plan.Plan) { p.Backends[2].Regions = 2 },
	} {
		spoilt, err := plan.Decode(text)
		require.NoError(t, err)
		spoil(spoilt)
		assert.Error(t, spoilt.Validate(), what)
	}
}

func TestRulesNameKernels(t *testing.T) {
	rig.WithFamily(t, nil)
	p, err := placeFamily(t, settings.Config{Forbid: []string{"nn.dense=guest.strassen"}})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"guest.narrow_dense", "host.relu", "guest.narrow_dense", "host.relu", "host.tanh"}},
		compositesOf(p))
	require.Len(t, p.Candidates.Excluded, 2)
	assert.Equal(t, plan.Excluded{Function: "main", Backend: "guest", Composite: "guest.strassen_dense",
		Kernel: "strassen",
		Nodes:  p.Candidates.Excluded[0].Nodes, Constraint: "forbid nn.dense=guest.strassen"}, p.Candidates.Excluded[0])
	require.NoError(t, p.Verify())

	p, err = placeFamily(t, settings.Config{Pin: []string{"nn.dense=guest.narrow"}})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"guest.narrow_dense", "host.relu", "guest.narrow_dense", "host.relu", "host.tanh"}},
		compositesOf(p))

	// A backend and one of its kernels go together.
	p, err = placeFamily(t, settings.Config{Pin: []string{"nn.dense=guest", "nn.dense=guest.strassen"}})
	require.NoError(t, err)
	assert.Equal(t, "guest.strassen_dense", p.Regions[0].Candidates[0].Composite)
	p, err = placeFamily(t, settings.Config{Pin: []string{"nn.dense=guest"}, Forbid: []string{"nn.dense=guest.strassen"}})
	require.NoError(t, err)
	assert.Equal(t, "guest.narrow_dense", p.Regions[0].Candidates[0].Composite)

	for want, cfg := range map[string]settings.Config{
		`nn.dense=guest.strasen names an unknown kernel of guest, "strasen": did you mean "strassen"? (known: narrow, strassen)`: {Pin: []string{"nn.dense=guest.strasen"}},
		`nn.dense=guest.x names an unknown kernel of guest, "x" (known: narrow, strassen)`:                                       {Forbid: []string{"nn.dense=guest.x"}},
		`names the kernel "x", but the kernels of the backend host have no names`:                                                {Forbid: []string{"nn.dense=host.x"}},
		"names a backend that is not offered (offered: tvm, host, guest)":                                                        {Forbid: []string{"nn.dense=lib.x"}},
		"contradicts another pin: both select":                                                                                   {Pin: []string{"nn.dense=guest.narrow", "nn.dense=guest.strassen"}},
		"contradicts a prohibition":                                                                                              {Pin: []string{"nn.dense=guest.narrow"}, Forbid: []string{"nn.dense=guest"}},
		"pin nn.dense=guest cannot be kept together with the others: pin nn.dense=guest at": {Pin: []string{"nn.dense=guest"},
			Forbid: []string{"nn.dense=guest.narrow", "nn.dense=guest.strassen"}},
		"the option pin tanh=guest.narrow cannot be kept: no candidate on guest.narrow covers": {Pin: []string{"tanh=guest.narrow"}},
		"pin nn.dense=guest.strassen cannot be kept: no candidate on guest.strassen covers": {Exact: true,
			Pin: []string{"nn.dense=guest.strassen"}},
	} {
		_, err := placeFamily(t, cfg)
		var option *settings.OptionError
		require.ErrorAs(t, err, &option)
		assert.ErrorContains(t, err, want)
	}
}

func TestExactDoesWithoutWhatReassociates(t *testing.T) {
	rig.WithFamily(t, nil)
	free, err := placeFamily(t, settings.Config{})
	require.NoError(t, err)
	p, err := placeFamily(t, settings.Config{Exact: true})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"guest.narrow_dense", "host.relu", "guest.narrow_dense", "host.relu", "host.tanh"}},
		compositesOf(p))
	assert.Equal(t, &plan.Constraints{Exact: true}, p.Constraints)
	require.Len(t, p.Candidates.Excluded, 2)
	assert.Equal(t, placing.ExactConstraint, p.Candidates.Excluded[0].Constraint)
	assert.Equal(t, "strassen", p.Candidates.Excluded[0].Kernel)
	assert.Equal(t, free.Candidates.Proposed, p.Candidates.Proposed)
	require.NoError(t, p.Verify(), "proven among what is exact")

	only, err := placeFamily(t, settings.Config{Exact: true, Only: "guest"})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"guest.narrow_dense"}, {"guest.narrow_dense"}}, compositesOf(only))

	mod := tvmtest.Parse(t, rig.Layers)
	_, err = placing.Replay(mod, free, settings.Config{Exact: true})
	var replay *placing.ReplayError
	require.ErrorAs(t, err, &replay)
	assert.ErrorContains(t, err, "it has guest.strassen_dense (the kernel strassen) at %2 (nn.dense), which "+
		"associates its sums otherwise")
	_, err = placing.Replay(mod, p, settings.Config{Exact: true})
	require.NoError(t, err)
}

func TestSeveralBackendsGetAllTheyCanTake(t *testing.T) {
	rig.WithFamily(t, nil)
	p, err := placeFamily(t, settings.Config{Only: "guest, host"})
	require.NoError(t, err)
	require.Len(t, compositesOf(p), 1)
	for _, name := range []string{"guest", "host"} {
		assert.Positive(t, p.Backend(name).Operators, name)
	}
	assert.Equal(t, "guest", p.Regions[0].BackendOf(&p.Regions[0].Candidates[0]),
		"what both can take goes to the first")
	p, err = placeFamily(t, settings.Config{Only: "host+guest"})
	require.NoError(t, err)
	assert.Zero(t, p.Backend("guest").Operators)
	_, err = placeFamily(t, settings.Config{Only: "host,"})
	require.NoError(t, err)
	_, err = placeFamily(t, settings.Config{Only: " "})
	require.ErrorContains(t, err, "has an empty name in it")
	_, err = placeFamily(t, settings.Config{Only: "host,hots"})
	require.ErrorContains(t, err, `unknown backend "hots": did you mean "host"?`)
}

// Between two backends that share regions there is no border, whatever both declare; to TVM there is one.
func TestNoBorderBetweenBackendsThatShareRegions(t *testing.T) {
	rig.WithFamily(t, func(*relay.Type) (float64, float64) { return 0.25, 0.5 })
	p, err := placeFamily(t, settings.Config{})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"guest.strassen_dense", "host.relu", "guest.strassen_dense", "host.relu", "host.tanh"}},
		compositesOf(p))
	assert.InDelta(t, 0.25+0.25+0.5, p.Estimate.Transfers, 1e-9,
		"the input comes in, and the weights, once for both layers; tanh's value goes to TVM's softmax")
	assert.InDelta(t, 2+1+2+1+1+20+p.Estimate.Transfers, p.Estimate.Milliseconds, 1e-9)
	for _, b := range p.Borders {
		assert.Equal(t, "host", b.Backend, "the first that was offered speaks for both")
	}
	proof, err := p.Prove()
	require.NoError(t, err)
	assert.InDelta(t, p.Estimate.Milliseconds, proof.Milliseconds, 1e-9)

	// Other placements of the graph level: the file finds the same cost.
	n, err := network.Explore(tvmtest.Parse(t, rig.Layers), settings.Config{Backends: []string{"tvm", "host",
		"guest"}, Target: "llvm",
		Estimator: &rig.Costs{Rule: rig.FamilyCosts}}, nil)
	require.NoError(t, err)
	for name, placement := range map[string]*genome.Placement{"the family": n.Tuned("host", "guest"),
		"guest": n.Single("guest"),
		"host":  n.Single("host"), "tvm": n.Plain()} {
		require.NotNil(t, placement, name)
		other, err := n.Plan(placement, nil)
		require.NoError(t, err, name)
		_, err = other.Prove()
		require.NoError(t, err, name)
		if name == "guest" {
			assert.InDelta(t, 2*(0.25+0.25+0.5), other.Estimate.Transfers, 1e-9,
				"two regions, each with its weights, an input and a result")
		}
	}
}
