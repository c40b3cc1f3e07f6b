// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/builtin"
	"github.com/collage-tvm/collage/pass/settings"
)

// far is a backend on another device.
type far struct {
	byoc.Backend
	name, device string
	usable       bool
}

func (f far) Name() string     { return f.name }
func (f far) Compiler() string { return f.name }
func (f far) Device() string   { return f.device }
func (f far) Memory() int64    { return 0 }
func (f far) Hardware() string { return "" }

func (f far) Know(*byoc.CopyCosts) {}

func (f far) MeasureCopies(int64) (to, from []float64, err error) { return nil, nil, nil }

func (f far) Probe() byoc.Probe {
	return byoc.Probe{Usable: f.usable, Reason: "it is not plugged in", Remedy: "plug it in"}
}

func TestBackendsOfDevices(t *testing.T) {
	defer byoc.Reset()()
	require.NoError(t, builtin.RegisterAll())
	like, err := byoc.Lookup("openvino")
	require.NoError(t, err)
	for _, b := range []far{{like, "far_a", "abacus", true}, {like, "far_b", "abacus", false}, {like, "far_c", "abacus", true},
		{like, "near_a", "slide-rule", false}, {like, "near_b", "slide-rule", false}} {
		require.NoError(t, byoc.Register(b))
	}
	with := func(names []string, devices ...string) []string {
		all, err := settings.WithDevices(names, devices)
		require.NoError(t, err)
		return all
	}
	named := append(make([]string, 0, 8), "tvm", "far_c") // with room behind
	require.Equal(t, named, with(named))
	require.Equal(t, named, with(named, "cpu"))
	require.Equal(t, []string{"tvm", "far_c", "far_a"}, with(named, "cpu", " abacus "), "what is named keeps its place")
	require.Equal(t, make([]string, 6), named[2:8], "what was given stays as it is")
	require.Equal(t, []string{"tvm", "near_a"}, with([]string{"tvm"}, "slide-rule"), "who asked is told why not")
	said := &byoc.Declaration{Source: "a file"}
	require.NoError(t, byoc.Declare("near_b", said))
	require.Equal(t, []string{"tvm", "near_b"}, with([]string{"tvm"}, "slide-rule"),
		"that of which costs are declared need not be here")
	require.Equal(t, "near_b", settings.DeclaredAmong([]string{"tvm", "unheard-of", " near_b"}))
	require.NoError(t, byoc.Declare("far_a", said))
	require.Equal(t, []string{"tvm", "far_a"}, with([]string{"tvm"}, "abacus"),
		"a device that is described has what its description has")
	byoc.Withdraw("far_a", said)
	byoc.Withdraw("near_b", said)
	require.Empty(t, settings.DeclaredAmong([]string{"tvm", "near_b"}))
	_, err = settings.WithDevices(named, []string{"abacas"})
	var wrong *settings.OptionError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "devices", wrong.Option)
	require.Contains(t, wrong.Reason, `has "abacas", on which no backend runs (known: abacus, cpu, cuda, opencl, slide-rule)`)

	config := settings.Config{Backends: []string{"tvm"}, Devices: []string{"abacus"}}
	require.NoError(t, config.Validate())
	config.Devices = []string{"abacas"}
	require.ErrorAs(t, config.Validate(), &wrong)
	config.Only = "tvm"
	require.NoError(t, config.Validate(), "only leaves devices out of account")
	config.Strict = true
	require.ErrorContains(t, config.CheckStrict(), "backends, devices: no effect")
}
