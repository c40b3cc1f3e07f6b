// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// WithFamily registers two backends that share regions: host takes dense layers, relu and tanh; guest does dense layers
// by two kernels, of which one associates sums otherwise. border is what both declare; nil for nothing.
func WithFamily(t *testing.T, border byoc.BorderCost) {
	t.Helper()
	WithLibraries(t)
	w := relay.Wildcard
	dense := func() relay.Pattern { return relay.Op("nn.dense", w(), w()) }
	require.NoError(t, byoc.Register(byoc.Definition{
		Name: "host", Description: "a library", Compiler: "family", Emit: Present{}, MergesRegions: true,
		SharesCompiler: true,
		BorderCost:     border,
		Patterns: []byoc.Pattern{
			{Composite: "host.dense", Shape: dense()},
			{Composite: "host.relu", Shape: relay.Op("nn.relu", w())},
			{Composite: "host.tanh", Shape: relay.Op("tanh", w())},
		},
	}.Backend()))
	require.NoError(t, byoc.Register(byoc.Definition{
		Name: "guest", Description: "kernels", Compiler: "family", Emit: Present{}, MergesRegions: true,
		SharesCompiler: true,
		BorderCost:     border,
		Patterns: []byoc.Pattern{
			{Composite: "guest.strassen_dense", Shape: dense(), Kernel: "strassen", Reassociates: true},
			{Composite: "guest.narrow_dense", Shape: dense(), Kernel: "narrow"},
		},
	}.Backend()))
}

// FamilyCosts: TVM is slow, the guest's kernels are faster than the host's dense layer, strassen most.
func FamilyCosts(r cost.Request) cost.Cost {
	ms := map[string]float64{"host.dense": 5, "guest.strassen_dense": 2, "guest.narrow_dense": 3,
		"": 20}[r.Candidate.Composite]
	if ms == 0 {
		ms = 1
	}
	return cost.FromMilliseconds(ms * float64(len(r.Candidate.Nodes)))
}

// Present is an emitter that is there.
type Present struct{}

func (Present) Install(byoc.Backend) error { return nil }
