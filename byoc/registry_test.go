// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// library is a backend as a user would write one.
type library struct {
	name, description, compiler string
	level                       Level
	anything                    bool
	patterns                    []Pattern
}

func (l library) Name() string        { return l.name }
func (l library) Description() string { return l.description }
func (l library) Level() Level        { return l.level }
func (l library) Compiler() string    { return l.compiler }
func (l library) Patterns() []Pattern { return l.patterns }
func (l library) TakesAnything() bool { return l.anything }
func (l library) MergesRegions() bool { return false }
func (l library) Probe() Probe        { return Probe{Usable: true} }
func (l library) Install() error      { return nil }

func mylib() library {
	return library{
		name: "mylib", description: "a library", compiler: "mylib",
		patterns: []Pattern{{Composite: "mylib.relu", Shape: relay.Op("nn.relu")}},
	}
}

func TestRegisterAndLookup(t *testing.T) {
	defer Reset()()
	require.NoError(t, Register(mylib()))
	other := mylib()
	other.name, other.compiler = "another", "another"
	require.NoError(t, Register(other))

	b, err := Lookup("mylib")
	require.NoError(t, err)
	require.Equal(t, "mylib", b.Name())
	var names []string
	for _, b := range All() {
		names = append(names, b.Name())
	}
	require.Equal(t, []string{"another", "mylib"}, names)
}

func TestLookupSuggestsTheNearestName(t *testing.T) {
	defer Reset()()
	for _, name := range []string{"tvm", "dnnl", "cudnn", "tensorrt"} {
		b := mylib()
		b.name, b.compiler = name, name+"_c"
		require.NoError(t, Register(b))
	}
	for _, c := range []struct{ asked, nearest string }{
		{"dnn", "dnnl"}, {"DNNL", "dnnl"}, {"dnln", "dnnl"}, {"tensorr", "tensorrt"}, {"tmv", "tvm"},
		{"cuddn", "cudnn"}, {"openvino", ""}, {"", ""},
	} {
		_, err := Lookup(c.asked)
		var unknown *UnknownBackendError
		require.ErrorAs(t, err, &unknown)
		require.Equal(t, c.nearest, unknown.Nearest, "asked for %q", c.asked)
		require.Equal(t, []string{"cudnn", "dnnl", "tensorrt", "tvm"}, unknown.Known)
	}
	_, err := Lookup("dnn")
	require.EqualError(t, err, `unknown backend "dnn": did you mean "dnnl"? (known: cudnn, dnnl, tensorrt, tvm)`)
}

func TestRegisterRefusesWithTheFieldsName(t *testing.T) {
	for _, c := range []struct {
		fault string
		with  func(l *library)
		text  string
	}{
		{"name", func(l *library) { l.name = "My Lib" }, `Name: "My Lib" is not a backend name`},
		{"no name", func(l *library) { l.name = "" }, `Name: "" is not a backend name`},
		{"description", func(l *library) { l.description = " " }, "Description: must be one line"},
		{"two lines", func(l *library) { l.description = "a\nb" }, "Description: must be one line"},
		{"level", func(l *library) { l.level = 7 }, "Level: 7 is neither"},
		{"no patterns", func(l *library) { l.patterns = nil }, "Patterns: is empty"},
		{"patterns and anything", func(l *library) { l.anything = true }, "Patterns: a backend that takes anything"},
		{"no compiler", func(l *library) { l.compiler = "" }, "Compiler: is empty"},
		{"compiler", func(l *library) { l.compiler = "my-lib" }, `Compiler: "my-lib" cannot be part of a symbol`},
		{"composite", func(l *library) { l.patterns[0].Composite = "relu" },
			`Patterns[0].Composite: "relu" is not of the form`},
		{"no composite", func(l *library) { l.patterns[0].Composite = "" }, "Patterns[0].Composite: is empty"},
		{"shape", func(l *library) { l.patterns[0].Shape = nil }, "Patterns[0].Shape: of \"mylib.relu\" is nil"},
		{"kernel", func(l *library) { l.patterns[0].Kernel = "Wino Grad" },
			`Patterns[0].Kernel: of "mylib.relu" is "Wino Grad"`},
		{"limits text", func(l *library) {
			l.patterns[0].Limits = func(*relay.Graph, *relay.Match) error { return nil }
		}, "Patterns[0].LimitsText"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			defer Reset()()
			l := mylib()
			c.with(&l)
			require.ErrorContains(t, Register(l), c.text)
			require.Empty(t, All())
		})
	}
	defer Reset()()
	require.ErrorContains(t, Register(nil), "nil")
	require.NoError(t, Register(mylib()))
	require.ErrorContains(t, Register(mylib()), `Name: a backend named "mylib" is already registered`)
	twin := mylib()
	twin.name = "twin"
	require.ErrorContains(t, Register(twin), `Compiler: "mylib" already belongs to the backend "mylib"`)
}

func TestPluginPath(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(PluginDirEnv, dir)
	_, err := PluginPath("dnnl")
	require.ErrorContains(t, err, "libcollage_dnnl.so not found (looked in "+dir+")")
	require.ErrorContains(t, err, PluginDirEnv)

	file := filepath.Join(dir, "libcollage_dnnl.so")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	for _, name := range []string{"dnnl", "collage_dnnl", "libcollage_dnnl", "libcollage_dnnl.so"} {
		path, err := PluginPath(name)
		require.NoError(t, err, name)
		require.Equal(t, file, path, name)
	}

	require.NoError(t, os.Unsetenv(PluginDirEnv))
	require.NotEmpty(t, pluginDirs())
	require.NotContains(t, pluginDirs(), dir)
}

func TestMappedFile(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	exe, err = filepath.EvalSymlinks(exe)
	require.NoError(t, err)
	require.Equal(t, exe, mappedFile(filepath.Base(exe)))
	require.Empty(t, mappedFile("no such library.so"))
}

// guest shares its compiler where shares says so, and merges regions where merges does.
type guest struct {
	library
	shares, merges bool
}

func (g guest) SharesCompiler() bool { return g.shares }
func (g guest) MergesRegions() bool  { return g.merges }

func TestACompilerIsSharedByThoseWhoAgree(t *testing.T) {
	host := guest{mylib(), true, true}
	for _, c := range []struct {
		name  string
		first Backend
		guest Backend
		taken bool
	}{
		{"both agree", host, guest{mylib(), true, true}, false},
		{"the guest says no", host, guest{mylib(), false, true}, true},
		{"the guest does not merge", host, guest{mylib(), true, false}, true},
		{"the host says no", guest{mylib(), false, true}, guest{mylib(), true, true}, true},
		{"the host says nothing", mylib(), guest{mylib(), true, true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer Reset()()
			require.NoError(t, Register(c.first))
			second := c.guest.(guest)
			second.name = "second"
			err := Register(second)
			if c.taken {
				require.ErrorContains(t, err, `Compiler: "mylib" already belongs to the backend "mylib"`)
				return
			}
			require.NoError(t, err)
			require.True(t, ShareRegions(c.first, second))
			require.Len(t, All(), 2)
		})
	}
	other := guest{mylib(), true, true}
	other.compiler = "other"
	require.False(t, ShareRegions(host, other))
	require.False(t, ShareRegions(host, guest{mylib(), true, false}))
	noCompiler := guest{library{name: "tvm"}, true, true}
	require.False(t, ShareRegions(noCompiler, noCompiler), "TVM's share is inline")
}

// proposing is a library whose proposals name a kernel that no pattern does.
type proposing struct{ library }

func (proposing) Propose(*relay.Graph, []Learnt) []Proposal { return nil }
func (proposing) ProposedKernels() []string                 { return []string{"attention"} }

func TestKernelsAreThoseOfPatternsAndProposals(t *testing.T) {
	l := mylib()
	require.Empty(t, Kernels(l))
	relu := l.patterns[0]
	relu.Kernel = "fast"
	l.patterns = []Pattern{relu, relu}
	require.Equal(t, []string{"fast"}, Kernels(l))
	require.Equal(t, []string{"attention", "fast"}, Kernels(proposing{l}))
}
