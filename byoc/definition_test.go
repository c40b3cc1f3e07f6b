// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

func defineMylib() Definition {
	return Definition{
		Name: "my-lib", Description: "a library", Emit: ExistingEmitter{},
		Patterns: []Pattern{{Composite: "my_lib.relu", Shape: relay.Op("nn.relu")}},
	}
}

func TestDefinitionIsABackend(t *testing.T) {
	defer Reset()()
	d := defineMylib()
	require.NoError(t, Register(d.Backend()))
	b, err := Lookup("my-lib")
	require.NoError(t, err)
	require.Equal(t, "my_lib", b.Compiler())
	require.False(t, b.TakesAnything())
	require.False(t, b.MergesRegions())
	require.Len(t, b.Patterns(), 1)
	require.True(t, b.Probe().Usable)
	require.Nil(t, RulesOf(b))
	require.Nil(t, CostFunctionOf(b))
	require.Nil(t, BorderCostOf(b))
	require.Nil(t, PackParametersOf(b))
	require.Empty(t, b.(Proposer).Propose(nil, nil))
	require.ErrorContains(t, b.Install(), "no TVM is loaded")

	d.Name, d.Compiler, d.Patterns = "other", "", nil
	d.Propose = func(*relay.Graph, []Learnt) []Proposal { return []Proposal{{Nodes: []relay.NodeID{1}}} }
	d.Cost = func(*relay.Graph, Proposal) (float64, bool, error) { return 1, true, nil }
	d.BorderCost = func(*relay.Type) (float64, float64) { return 1, 2 }
	d.PackParameters = func(_ string, _ int, t Tensor) (Tensor, error) { return t, nil }
	d.Rules = &Rules{Supports: func(*relay.Graph, relay.NodeID) error { return nil }}
	require.NoError(t, Register(d.Backend()))
	b, err = Lookup("other")
	require.NoError(t, err)
	require.Len(t, b.(Proposer).Propose(nil, nil), 1)
	require.NotNil(t, RulesOf(b))
	require.NotNil(t, CostFunctionOf(b))
	require.NotNil(t, BorderCostOf(b))
	require.NotNil(t, PackParametersOf(b))

	// A second one in the same regions, whose composites may begin with its own name.
	host := defineMylib()
	host.Name, host.Compiler, host.MergesRegions, host.SharesCompiler = "host", "my_lib", true, true
	lodger := defineMylib()
	lodger.Name, lodger.Compiler, lodger.MergesRegions, lodger.SharesCompiler = "lodger", "my_lib", true, true
	lodger.Patterns[0].Composite = "lodger.relu"
	Remove(mustLookup(t, "my-lib"))
	require.NoError(t, Register(host.Backend()))
	require.NoError(t, Register(lodger.Backend()))
	lodger.SharesCompiler = false
	require.ErrorContains(t, Validate(lodger.Backend()), "holds lodger.relu, which does not begin")

	Remove(mylib()) // another one of that name, or none: nothing happens
	Remove(b)
	_, err = Lookup("other")
	var unknown *UnknownBackendError
	require.True(t, errors.As(err, &unknown))
}

func mustLookup(t *testing.T, name string) Backend {
	t.Helper()
	b, err := Lookup(name)
	require.NoError(t, err)
	return b
}

func TestDefinitionsFaultsNameTheField(t *testing.T) {
	for _, c := range []struct {
		fault string
		with  func(d *Definition)
		text  string
	}{
		{"name", func(d *Definition) { d.Name = "" }, "Name: "},
		{"emitter", func(d *Definition) { d.Emit = nil }, "Emit: is missing: csource.Emitter"},
		{"nothing to take", func(d *Definition) { d.Patterns = nil }, "Patterns: is empty, and so are rules"},
		{"foreign composite", func(d *Definition) { d.Compiler = "x" },
			"Patterns: holds my_lib.relu, which does not begin"},
		{"sharing without merging", func(d *Definition) { d.SharesCompiler = true },
			"SharesCompiler: needs MergesRegions"},
		{"rules without operators", func(d *Definition) { d.Rules = &Rules{} }, "Rules.Supports: is missing"},
		{"style", func(d *Definition) {
			d.Rules = &Rules{Style: 9, Supports: func(*relay.Graph, relay.NodeID) error { return nil }}
		}, "Rules.Style: is none of"},
		{"depth", func(d *Definition) {
			d.Rules = &Rules{MaxDepth: -1, Supports: func(*relay.Graph, relay.NodeID) error { return nil }}
		}, "Rules.MaxDepth: and Rules.Limit must not be negative"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			defer Reset()()
			d := defineMylib()
			c.with(&d)
			require.ErrorContains(t, Register(d.Backend()), c.text)
			require.Empty(t, All())
		})
	}
}

func TestLibraries(t *testing.T) {
	defer Reset()()
	dir := t.TempDir()
	t.Setenv(PluginDirEnv, dir)
	own := filepath.Join(dir, "libcollage_my_lib.so")
	other := filepath.Join(dir, "libother.so")
	for _, file := range []string{own, other} {
		require.NoError(t, os.WriteFile(file, nil, 0o644))
	}
	d := defineMylib()
	require.NoError(t, Register(d.Backend()))
	files, err := LibrariesFor("my_lib")
	require.NoError(t, err)
	require.Equal(t, []string{own}, files)
	files, err = LibrariesFor("nobody")
	require.NoError(t, err)
	require.Empty(t, files)

	d.Libraries = []string{other}
	files, err = Libraries(d.Backend())
	require.NoError(t, err)
	require.Equal(t, []string{other}, files)
	d.Libraries = []string{filepath.Join(dir, "gone.so")}
	_, err = Libraries(d.Backend())
	require.ErrorContains(t, err, "gone.so")
}
