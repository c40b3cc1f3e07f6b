// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/tvmtest"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// parse parses Relay text and reads it.
func parse(t testing.TB, text string) *relay.Module {
	t.Helper()
	m, err := relay.Read(tvmtest.Parse(t, text))
	require.NoError(t, err)
	return m
}

// rule places the matches of a pattern on a backend.
type rule struct {
	backend, composite string
	pattern            relay.Pattern
}

var w = relay.Wildcard

var rules = []rule{
	{"lib", "lib.conv_bias_relu", relay.Op("nn.relu", relay.Op("add", relay.Op("nn.conv2d", w(), w()), w()))},
	{"lib", "lib.conv", relay.Op("nn.conv2d", w(), w())},
	{"lib", "lib.half", relay.Op("multiply", w(), relay.IsConstant())},
	{"other", "", relay.Op("exp", w())},
	{"lib", "", relay.Op("tanh", w())},
	{"single", "", relay.Op("sqrt", w())},
}

// place gives each operator to the first rule that matches, from the end of the function, and the rest to TVM.
func place(g *relay.Graph) (*candidate.Set, []int) {
	set := &candidate.Set{Graph: g}
	var chosen []int
	covered := map[relay.NodeID]bool{}
	add := func(backend, composite string, nodes []relay.NodeID) {
		root := nodes[len(nodes)-1]
		c := candidate.Candidate{Backend: backend, Composite: composite, Bare: composite == "",
			Scope: g.Nodes[root].Scope,
			Nodes: nodes, Root: root}
		c.Inputs, c.Constants = g.Boundary(nodes)
		chosen = append(chosen, len(set.Candidates))
		set.Candidates = append(set.Candidates, c)
		for _, v := range nodes {
			covered[v] = true
		}
	}
	for v := relay.NodeID(len(g.Nodes) - 1); v >= 0; v-- {
		if covered[v] || !g.Placeable(v) {
			continue
		}
		taken := false
		for _, r := range rules {
			ms := g.Match(r.pattern, v)
			if len(ms) > 0 && !taken {
				add(r.backend, r.composite, ms[0].Nodes)
				taken = true
			}
		}
		if !taken {
			add("tvm", "", []relay.NodeID{v})
		}
	}
	return set, chosen
}

// annotated places a module and writes the regions into it.
func annotated(t testing.TB, m *relay.Module) *bridge.Object {
	t.Helper()
	var functions []Function
	for _, g := range m.Functions {
		if g.Attrs["Compiler"] != "" {
			continue
		}
		set, chosen := place(g)
		regions := Regions(set, chosen, libraries)
		assertNoCycle(t, g, regions)
		functions = append(functions, Function{Set: set, Regions: regions})
	}
	out, err := Module(m, functions)
	require.NoError(t, err)
	typed, err := relay.InferType(out)
	require.NoError(t, err, "%s", out.Text())
	return typed
}

func assertNoCycle(t testing.TB, g *relay.Graph, regions []Region) {
	if tt, ok := t.(*testing.T); ok {
		assertAcyclic(tt, g, regions)
	}
}

// programs are placed by the rules above; testdata has what becomes of them.
var programs = map[string]string{
	"chain": `def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(4, 4, 3, 3), float32], %b: Tensor[(4, 1, 1), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, 3]);
  %1 = nn.relu(add(%0, %b));
  %2 = tanh(multiply(%1, 0.5f));
  nn.softmax(%2)
}`,
	"several outputs": `def @main(%x: Tensor[(8), float32]) {
  %0 = tanh(%x);
  %1 = tanh(%0);
  %2 = tanh(%1);
  (%0, nn.relu(%1), %2)
}`,
	"no cycle": `def @main(%x: Tensor[(8), float32]) {
  %0 = tanh(%x);
  %1 = nn.relu(%0);
  %2 = multiply(%0, 2f);
  (tanh(add(%1, %2)), %2)
}`,
	"two compilers": `def @main(%x: Tensor[(8), float32]) {
  %0 = tanh(exp(%x));
  (sqrt(sqrt(%0)), exp(%0))
}`,
	"branches": `def @main(%c: bool, %x: Tensor[(8), float32]) {
  %0 = tanh(%x);
  if (%c) {
    tanh(tanh(%0))
  } else {
    let %y = exp(%0);
    add(%y, tanh(%y))
  }
}`,
	"functions": `def @main(%x: Tensor[(8), float32]) {
  @helper(tanh(%x))
}
def @helper(%x: Tensor[(8), float32]) -> Tensor[(8), float32] {
  %0 = fn (%y: Tensor[(8), float32]) { tanh(add(%y, %x)) };
  %0(tanh(%x))
}
def @tvmgen_default_lib_main_0(%x: Tensor[(8), float32], Compiler="lib", Primitive=1, Inline=1, global_symbol="tvmgen_default_lib_main_0") -> Tensor[(8), float32] {
  tanh(%x)
}`,
}

func TestModuleGoldens(t *testing.T) {
	t.Parallel()
	for name, text := range programs {
		t.Run(name, func(t *testing.T) {
			m := parse(t, text)
			before := m.Object().Text()
			out, err := relay.Read(annotated(t, m))
			require.NoError(t, err)
			var got strings.Builder
			for _, g := range out.Functions {
				got.WriteString(g.String())
			}
			path := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got.String()), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err, "run go test ./pass/annotate -update and review the diff")
			assert.Equal(t, string(want), got.String())
			assert.Equal(t, before, m.Object().Text(), "the module that was read stays as it was")
		})
	}
}

// With all regions put back into place by TVM, the module is the one that was annotated.
func TestInliningGivesBackTheModule(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"chain", "two compilers"} {
		m := parse(t, programs[name])
		out := annotated(t, m)
		read, err := relay.Read(out)
		require.NoError(t, err)
		var symbols []any
		for _, g := range read.Functions {
			if g.Attrs["Compiler"] != "" {
				symbols = append(symbols, read.GlobalVar(g.Name))
			}
		}
		require.NotEmpty(t, symbols)
		v, err := bridge.Global("relay._transform.InlineCompilerFunctionsBoundTo", symbols)
		require.NoError(t, err)
		pass, err := v.Object()
		require.NoError(t, err)
		v, err = bridge.Global("transform.RunPass", pass, out)
		require.NoError(t, err)
		inlined, err := v.Object()
		require.NoError(t, err)
		inlined, err = relay.InferType(inlined)
		require.NoError(t, err)
		equal, err := relay.StructuralEqual(m.Object(), inlined)
		require.NoError(t, err)
		assert.True(t, equal, "%s", inlined.Text())
	}
}

func TestSpansAreKept(t *testing.T) {
	t.Parallel()
	m := parse(t, programs["chain"])
	g := m.Function("main")
	lines := map[string]int{}
	for _, n := range g.Nodes {
		if n.Op != "" {
			lines[n.Op] = n.Span.Line
		}
	}
	require.Positive(t, lines["nn.softmax"])
	out, err := relay.Read(annotated(t, m))
	require.NoError(t, err)
	seen := 0
	for _, h := range out.Functions {
		for _, n := range h.Nodes {
			if n.Op != "" {
				assert.Equal(t, lines[n.Op], n.Span.Line, n.Op)
				seen++
			}
		}
	}
	assert.Equal(t, 6, seen)
	// The call of a region has the span of the operator whose value it gives.
	for _, n := range out.Function("main").Nodes {
		if n.Kind == relay.KindCall && n.Op == "" {
			assert.Equal(t, lines["tanh"], n.Span.Line)
		}
	}
}

func TestNothingToDoGivesTheSameFunctions(t *testing.T) {
	t.Parallel()
	m := parse(t, `def @main(%x: Tensor[(8), float32]) { nn.relu(%x) }`)
	set, chosen := place(m.Function("main"))
	out, err := Module(m, []Function{{Set: set, Regions: Regions(set, chosen, libraries)}})
	require.NoError(t, err)
	again, err := relay.Read(out)
	require.NoError(t, err)
	assert.True(t, again.Function("main").Function().Same(m.Function("main").Function()))
}

// loadFunction reads a workload's function as a worker would.
func loadFunction(t *testing.T, text string) *relay.Graph {
	v, err := bridge.Global("node.LoadJSON", text)
	require.NoError(t, err)
	o, err := v.Object()
	require.NoError(t, err)
	g, err := relay.ReadFunction("main", o)
	require.NoError(t, err)
	return g
}

func TestWorkload(t *testing.T) {
	t.Parallel()
	// 64x64x3x3 floats are a weight; the bias of 64 and the half are small.
	m := parse(t, `def @main(%x: Tensor[(1, 64, 8, 8), float32]) {
  %0 = nn.conv2d(%x, meta[relay.Constant][0], padding=[1, 1, 1, 1], channels=64, kernel_size=[3, 3]);
  nn.relu(add(%0, meta[relay.Constant][1]))
}`+constants(t, []int64{64, 64, 3, 3}, []int64{64, 1, 1}))
	g := m.Function("main")
	set, chosen := place(g)
	require.Len(t, chosen, 1)
	work, err := Workload(g, &set.Candidates[0], libraries["lib"])
	require.NoError(t, err)
	assert.Equal(t, "lib", work.Compiler)
	require.Len(t, work.Constants, 1)
	assert.Equal(t, "c0", work.Constants[0].Name)
	assert.Equal(t, []int64{64, 64, 3, 3}, work.Constants[0].Shape)
	assert.Equal(t, "float32", work.Constants[0].DType)
	assert.Less(t, len(work.Function), 20_000, "the weight is not in the JSON")
	f := loadFunction(t, work.Function)
	assert.Equal(t, "lib", f.Attrs["Compiler"])
	names := []string{}
	for _, p := range f.Params {
		names = append(names, f.Nodes[p].Name)
	}
	assert.Equal(t, []string{"i0", "c0"}, names)

	own := set.Candidates[0]
	own.OwnConstants = true
	work, err = Workload(g, &own, libraries["lib"])
	require.NoError(t, err)
	require.Empty(t, work.Constants)
	require.Len(t, loadFunction(t, work.Function).Params, 1, "the weight is inside")

	onTVM := set.Candidates[0]
	onTVM.Backend, onTVM.Composite = "tvm", ""
	work, err = Workload(g, &onTVM, library{})
	require.NoError(t, err)
	f = loadFunction(t, work.Function)
	assert.Empty(t, f.Attrs["Compiler"])
	operators := 0
	for _, n := range f.Nodes {
		if n.Op != "" {
			operators++
		}
		assert.NotEqual(t, relay.KindFunction, n.Kind, "TVM's candidates have no Composite")
	}
	assert.Equal(t, 3, operators)
}

// constants is the metadata section of Relay text with tensors of those shapes that hold 1, 2, 3 and so on.
func constants(t *testing.T, shapes ...[]int64) string {
	t.Helper()
	needed := os.Getenv("COLLAGE_TEST_LIBTVM")
	if needed == "" {
		t.Skip("COLLAGE_TEST_LIBTVM names no libtvm")
	}
	require.NoError(t, bridge.Load(needed))
	list := make([]any, len(shapes))
	for i, shape := range shapes {
		data, err := bridge.Empty(shape, bridge.Float32, bridge.CPU())
		require.NoError(t, err)
		items := int64(1)
		for _, extent := range shape {
			items *= extent
		}
		var bytes []byte
		for k := range items {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(float32(k+1)))
		}
		require.NoError(t, data.CopyFromBytes(bytes))
		c, err := relay.NewConstant(data)
		require.NoError(t, err)
		list[i] = c
	}
	array, err := bridge.NewArray(list...)
	require.NoError(t, err)
	dict, err := bridge.NewMap("relay.Constant", array)
	require.NoError(t, err)
	v, err := bridge.Global("node.SaveJSON", dict)
	require.NoError(t, err)
	text, err := v.Str()
	require.NoError(t, err)
	return "\n#[metadata]\n" + text
}

func TestATupleInputIsTakenApart(t *testing.T) {
	t.Parallel()
	m := parse(t, `def @main(%x: Tensor[(2, 4), float32], %y: Tensor[(2, 4), float32]) {
  %0 = (%x, %y);
  (concatenate(%0, axis=0), concatenate(%0, axis=1))
}`)
	g := m.Function("main")
	for v, n := range g.Nodes {
		if n.Op != "concatenate" {
			continue
		}
		c := candidate.Candidate{Backend: "tvm", Nodes: []relay.NodeID{relay.NodeID(v)}, Root: relay.NodeID(v)}
		c.Inputs, c.Constants = g.Boundary(c.Nodes)
		work, err := Workload(g, &c, library{})
		require.NoError(t, err)
		assert.Len(t, loadFunction(t, work.Function).Params, 2)
	}
}

// BenchmarkAnnotate annotates a chain of n convolutions, half of them on a library.
func BenchmarkAnnotate(b *testing.B) {
	for _, n := range []int{50, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(4, 4, 3, 3), float32]) {\n")
			last := "%x"
			for i := range n {
				fmt.Fprintf(&text, "  %%%d = nn.conv2d(%s, %%w, padding=[1, 1, 1, 1], channels=4, kernel_size=[3, "+
					"3]);\n", 2*i, last)
				fmt.Fprintf(&text, "  %%%d = nn.softmax(%%%d);\n", 2*i+1, 2*i)
				last = fmt.Sprintf("%%%d", 2*i+1)
			}
			fmt.Fprintf(&text, "  %s\n}", last)
			m := parse(b, text.String())
			for b.Loop() {
				read, err := relay.Read(m.Object())
				require.NoError(b, err)
				set, chosen := place(read.Function("main"))
				_, err = Module(read, []Function{{Set: set, Regions: Regions(set, chosen, libraries)}})
				require.NoError(b, err)
			}
		})
	}
}
