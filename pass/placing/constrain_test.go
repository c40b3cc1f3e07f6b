// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/rig"
	"github.com/collage-tvm/collage/pass/settings"
)

// placedWith partitions the layers with costs where lib is twice as fast as TVM.
func placedWith(t *testing.T, cfg settings.Config) (map[string]string, *plan.Plan, *rig.Costs, error) {
	t.Helper()
	e := &rig.Costs{Rule: rig.ByBackend(map[string]float64{"tvm": 2, "lib": 1})}
	cfg.Backends, cfg.Target, cfg.Estimator = []string{"tvm", "lib"}, "llvm", e
	out, p, err := network.Place(tvmtest.Parse(t, rig.Layers), cfg)
	if err != nil {
		assert.Nil(t, out)
		return nil, nil, e, err
	}
	return rig.OperatorsOf(t, out), p, e, nil
}

func TestPinsAndProhibitionsAreKept(t *testing.T) {
	rig.WithLibraries(t)
	_, free, all, err := placedWith(t, settings.Config{})
	require.NoError(t, err)
	require.Nil(t, free.Constraints)

	got, p, e, err := placedWith(t, settings.Config{Pin: []string{"nn.dense=tvm"}})
	require.NoError(t, err)
	assert.Equal(t, "nn.dense nn.relu nn.dense nn.relu nn.softmax", got["main"], "tanh stays on lib")
	assert.Equal(t, &plan.Constraints{Pin: []string{"nn.dense=tvm"}}, p.Constraints)
	assert.NotEmpty(t, p.Candidates.Excluded)
	assert.Equal(t, "pin nn.dense=tvm", p.Candidates.Excluded[0].Constraint)
	assert.Less(t, len(e.Requests), len(all.Requests), "what is ruled out is not measured")
	assert.Equal(t, free.Candidates.Proposed, p.Candidates.Proposed)
	require.NoError(t, p.Verify(), "proven among the placements that keep the pins")

	got, _, _, err = placedWith(t, settings.Config{Forbid: []string{"tanh=lib"}})
	require.NoError(t, err)
	assert.Equal(t, "tanh nn.softmax", got["main"])

	// By index: the second dense.
	dense := -1
	for _, r := range free.Regions {
		for _, c := range r.Candidates {
			for _, n := range c.Nodes {
				if n.Operator == "nn.dense" {
					dense = n.Index
				}
			}
		}
	}
	got, p, _, err = placedWith(t, settings.Config{Pin: []string{plan.Selector{Index: dense}.String() + "=tvm"}})
	require.NoError(t, err)
	assert.Equal(t, "nn.dense nn.relu nn.softmax", got["main"])
	selector, err := plan.ParseSelector("%" + "0")
	require.NoError(t, err)
	_, err = p.Explain(selector)
	assert.ErrorContains(t, err, "variable or a constant")
}

func TestRulesThatCannotBeKeptAreNamed(t *testing.T) {
	rig.WithLibraries(t)
	for want, cfg := range map[string]settings.Config{
		"the option pin nn.softmax=lib cannot be kept: no candidate on lib covers":           {Pin: []string{"nn.softmax=lib"}},
		"the option forbid nn.softmax=tvm cannot be kept: no other backend takes":            {Forbid: []string{"nn.softmax=tvm"}},
		"the option pin nn.conv2d=lib selects nothing in this network: its operators are nn": {Pin: []string{"nn.conv2d=lib"}},
		"names a backend that is not offered (offered: tvm, lib)":                            {Pin: []string{"nn.dense=dnnl"}},
		"is not SELECTOR=BACKEND":   {Forbid: []string{"nn.dense"}},
		"contradicts another pin":   {Pin: []string{"nn.dense=lib", "nn.dense=tvm"}},
		"contradicts a prohibition": {Pin: []string{"nn.dense=lib"}, Forbid: []string{"nn.dense=lib"}},
		"pin nn.dense=tvm cannot be kept together with the others: pin nn.dense=tvm at %4": {Pin: []string{"nn.relu=lib", "nn.dense=tvm"}},
		"nothing can be pinned": {Only: "lib", Pin: []string{"nn.dense=lib"}},
	} {
		_, _, e, err := placedWith(t, cfg)
		require.ErrorContains(t, err, want)
		var option *settings.OptionError
		assert.ErrorAs(t, err, &option)
		assert.Empty(t, e.Requests, "told before anything is measured")
	}
}
