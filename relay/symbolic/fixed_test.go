// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

// An expression at sizes is the number that it was made of, whatever it is made of.
func TestExpressionsAtSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		made := randomPair(r, 4)
		everywhere(func(sizes [3]int64) {
			named := map[string]int64{}
			for i, v := range variables {
				named[v.name] = sizes[i]
			}
			got, err := made.e.At(named)
			require.NoError(t, err, made.e)
			require.Equal(t, made.value(sizes), got, "%s at %v", made.e, sizes)
		})
	}
}

func TestSizesThatAreNotKnown(t *testing.T) {
	e := Symbol("a", 1, 9).Times(Symbol("b", 1, 9)).Plus(Max(Symbol("c", 1, 9), Symbol("a", 1, 9)))
	_, err := e.At(map[string]int64{"a": 2, "b": 3})
	require.EqualError(t, err, "the size c is not known")
	value, err := e.At(map[string]int64{"a": 2, "b": 3, "c": 7})
	require.NoError(t, err)
	require.Equal(t, int64(13), value)
	_, err = Symbol("a", 1, Unbounded).Times(Constant(1 << 40)).At(map[string]int64{"a": 1 << 40})
	require.ErrorContains(t, err, "too large")
	var names []string
	for _, d := range e.Dimensions() {
		names = append(names, d.Name)
	}
	require.Equal(t, []string{"a", "b", "c"}, names)
}

// encoder is a dense layer in a composite function on [1, len, 8], with a value that only running tells.
func encoder() (g *relay.Graph, dense, relu, found relay.NodeID) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, relay.AnyDim, 8}, "float32")
	rows := m.Call("reshape", float(relay.AnyDim, 8), map[string]any{"newshape": []int64{-1, 8}}, x)
	w := m.Const([]int64{16, 8}, "float32")
	a := m.LocalVar([]int64{relay.AnyDim, 8}, "float32")
	dense = m.Call("nn.dense", float(relay.AnyDim, 16), nil, a, w)
	relu = m.Call("nn.relu", float(relay.AnyDim, 16), nil, dense)
	composite := m.Function([]relay.NodeID{a}, relu, map[string]string{"Composite": "x.dense_relu"})
	called := m.CallFunction(composite, float(relay.AnyDim, 16), rows)
	found = m.Call("argwhere", whole(relay.AnyDim, 2), nil, called)
	return m.Finish(m.Tuple(called, found)), dense, relu, found
}

func TestAGraphAtSizes(t *testing.T) {
	g, dense, relu, found := encoder()
	a, err := Analyse(g, Inputs{"v0": {{}, {Name: "len", Least: 2, Most: 40}, {}}})
	require.NoError(t, err)
	require.Equal(t, []Dimension{{Name: "len", Least: 2, Most: 40}}, a.Open())
	require.Len(t, a.All(), 2)
	require.True(t, a.Follows(dense))
	require.False(t, a.Follows(found))
	_, err = a.Fixed(map[string]int64{"len": 7})
	require.ErrorContains(t, err, "is not known")
	fixed := a.FixedWhereKnown(map[string]int64{"len": 7})
	require.Equal(t, []int64{7, 16}, fixed.Nodes[dense].Type.Shape, "in a local function, too")
	require.Equal(t, []int64{7, 16}, fixed.Nodes[relu].Type.Shape)
	require.Equal(t, relay.AnyDim, fixed.Nodes[found].Type.Shape[0])
	require.Equal(t, relay.AnyDim, g.Nodes[dense].Type.Shape[0], "the graph itself stays as it was")
	named, ok := a.Named(relu)
	require.True(t, ok)
	require.Equal(t, []Dimension{{Name: "len", Least: 2, Most: 40}, {}}, named)
}

// What a size is of others is told where it is a sum of products of them, and of quotients of such by numbers.
func TestWhatSizesAreOf(t *testing.T) {
	a, b := Symbol("a", 1, 9), Symbol("b", 1, 9)
	of, quotients := a.products()
	require.Nil(t, of)
	require.Nil(t, quotients)
	of, quotients = a.Times(b).Times(Constant(2)).Plus(Constant(3)).products()
	require.Equal(t, []Product{{By: 3}, {By: 2, Sizes: []string{"a", "b"}}}, of)
	require.Nil(t, quotients)

	half, ok := a.Over(Constant(2))
	require.True(t, ok)
	quarter, ok := half.Plus(b).Over(Constant(2))
	require.True(t, ok)
	of, quotients = quarter.products()
	require.Equal(t, []Product{{By: 1, Sizes: []string{"floor_div(floor_div(a, 2) + b, 2)"}}}, of)
	require.Equal(t, []Quotient{{"floor_div(a, 2)", []Product{{By: 1, Sizes: []string{"a"}}}, 2},
		{"floor_div(floor_div(a, 2) + b, 2)", []Product{{By: 1, Sizes: []string{"b"}},
			{By: 1, Sizes: []string{"floor_div(a, 2)"}}}, 2}}, quotients)
	of, quotients = Max(a, b).Plus(half).products()
	require.Nil(t, of)
	require.Nil(t, quotients)
	share, ok := a.Times(b).Over(b.Plus(Constant(1)))
	require.True(t, ok)
	of, _ = share.products()
	require.Nil(t, of, "divided by what is open")
}

// What expressions are said to be of is what they are, whatever they are made of.
func TestQuotientsInTheirOrder(t *testing.T) {
	r, divided := rand.New(rand.NewPCG(7, 8)), 0
	for range 3000 {
		made := randomPair(r, 4)
		l := derivation{at: map[string]int{}}
		if !l.atoms(made.e) {
			continue
		}
		if len(l.list) > 0 {
			divided++
		}
		everywhere(func(sizes [3]int64) {
			known := map[string]int64{}
			for i, v := range variables {
				known[v.name] = sizes[i]
			}
			sum := func(products []Product) (sum int64) {
				for _, p := range products {
					product := p.By
					for _, name := range p.Sizes {
						require.Contains(t, known, name)
						product *= known[name]
					}
					sum += product
				}
				return sum
			}
			for _, d := range l.list {
				at, err := d.At(known)
				require.NoError(t, err)
				require.Equal(t, sum(d.Of)/d.By, at, d.Name)
				known[d.Name] = at
			}
			require.Equal(t, made.value(sizes), sum(made.e.asProducts()), made.e)
		})
	}
	require.Greater(t, divided, 20)
}

// halved is x [len, 8] with every second of its rows, and what y, which has as many, is added to them.
func halved(inputs Inputs) (*relay.Graph, relay.NodeID) {
	m := relay.NewGraph("main")
	x, y := m.Var([]int64{relay.AnyDim, 8}, "float32"), m.Var([]int64{relay.AnyDim, 8}, "float32")
	half := m.Call("strided_slice", float(relay.AnyDim, 8), map[string]any{"begin": []int64{0},
		"end": []int64{1 << 60}, "strides": []int64{2}, "axes": []int64{0}, "slice_mode": "end"}, x)
	sum := m.Call("add", float(relay.AnyDim, 8), nil, half, y)
	g := m.Finish(m.Tuple(half, sum))
	g.Attrs = map[string]string{SizesAttr: inputs.Text()}
	return g, sum
}

// A function that is given a quotient knows it for one that it computes itself, where it has what is divided.
func TestQuotientsFromOutside(t *testing.T) {
	length := Dimension{Name: "len", Least: 1, Most: 512}
	g, _ := halved(Inputs{"v0": {length, {}}, "v1": {{Name: "other"}, {}}})
	outside, err := AnalyseNamed(g)
	require.NoError(t, err)
	half, ok := outside.Named(g.Nodes[g.Root()].Inputs[0])
	require.True(t, ok)
	require.NotEmpty(t, half[0].Quotients)

	g, sum := halved(Inputs{"v0": {length, {}}, "v1": half})
	inside, err := AnalyseNamed(g)
	require.NoError(t, err)
	require.Equal(t, []Dimension{length}, inside.Open())
	require.True(t, inside.Told(sum))
	require.True(t, inside.Of(sum).Shape.Equal(inside.Of(g.Params[1]).Shape))
	derived := inside.Derived()
	require.True(t, derived[len(derived)-1].Extent)

	g, sum = halved(Inputs{"v0": {{Name: "more"}, {}}, "v1": half})
	inside, err = AnalyseNamed(g)
	require.NoError(t, err)
	require.Len(t, inside.Open(), 2, "nothing here is as long as what is divided")
	require.False(t, inside.Told(sum), "one of two sizes that are not known to be the same")
}

// A local function that is called twice has sizes of its own.
func TestFunctionsThatAreCalledTwice(t *testing.T) {
	m := relay.NewGraph("main")
	x := m.Var([]int64{relay.AnyDim, 8}, "float32")
	y := m.Var([]int64{relay.AnyDim, 8}, "float32")
	a := m.LocalVar([]int64{relay.AnyDim, 8}, "float32")
	f := m.Function([]relay.NodeID{a}, m.Call("nn.relu", float(relay.AnyDim, 8), nil, a), nil)
	one, two := m.CallFunction(f, float(relay.AnyDim, 8), x), m.CallFunction(f, float(relay.AnyDim, 8), y)
	analysis, err := Analyse(m.Finish(m.Tuple(one, two)), nil)
	require.NoError(t, err)
	first, second := analysis.Of(one), analysis.Of(two)
	require.False(t, first.Shape.Equal(second.Shape))
}

func TestWhatAFunctionSaysOfItsSizes(t *testing.T) {
	inputs := Inputs{"x": {{}, {Name: "2*len", Least: 2, Most: 80}}}
	g, _, _, _ := encoder()
	g.Attrs = map[string]string{SizesAttr: inputs.Text()}
	read, err := InputsOf(g)
	require.NoError(t, err)
	require.Equal(t, inputs, read)
	g.Attrs[SizesAttr] = "{"
	_, err = AnalyseNamed(g)
	require.ErrorContains(t, err, SizesAttr)
}

// Samples are within the bounds, and, as far as these allow, of sizes that differ from each other and from the last.
func TestSamples(t *testing.T) {
	for _, bounds := range [][2]int64{{1, Unbounded}, {1, 512}, {1, 16}, {3, 4}, {5, 5}, {200, 300}, {1000, 2000}} {
		dimensions := []Dimension{{Name: "a", Least: bounds[0], Most: bounds[1]}, {Name: "b", Least: bounds[0], Most: bounds[1]}}
		seen := map[int64]bool{}
		for number := range 12 {
			for _, size := range Sample(dimensions, number) {
				require.GreaterOrEqual(t, size, bounds[0])
				require.LessOrEqual(t, size, bounds[1])
				seen[size] = true
			}
		}
		require.GreaterOrEqual(t, int64(len(seen)), min(bounds[1]-bounds[0]+1, 5), "%v", bounds)
	}
	seen := map[int64]bool{}
	for number := range 100 {
		seen[Sample([]Dimension{{Name: "a"}}, number)["a"]] = true
	}
	require.Len(t, seen, 100)
	require.Equal(t, map[string]int64{"a": 1, "b": 3}, Least([]Dimension{{Name: "a"}, {Name: "b", Least: 3}}))
}

func TestPlacesInARowAreThemselves(t *testing.T) {
	t.Parallel()
	for dtype, want := range map[string][]byte{
		"int64":   {3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0},
		"int32":   {3, 0, 0, 0, 5, 0, 0, 0},
		"float32": {0, 0, 0x40, 0x40, 0, 0, 0xa0, 0x40},
	} {
		m := relay.NewGraph("main")
		stop := m.Var(nil, dtype)
		row := m.Call("arange", relay.Tensor(dtype, relay.AnyDim), nil, m.Scalar(3, dtype), stop, m.Scalar(2, dtype))
		unknown := m.Call("arange", relay.Tensor(dtype, relay.AnyDim), nil, stop, stop, m.Scalar(2, dtype))
		g := m.Finish(m.Tuple(row, unknown))
		assert.Equal(t, want, placesOf(g, row, 2), dtype)
		assert.Nil(t, placesOf(g, unknown, 2))
		assert.Nil(t, placesOf(g, stop, 2))
	}
}

// A region's input has the numbers that are known of it, whatever TVM's type says.
func TestNumbersThatTypesDoNotTellHaveNames(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	open := relay.Tensor("float32", relay.AnyDim, relay.AnyDim)
	x := m.Var([]int64{relay.AnyDim, 2, 4}, "float32")
	flat := m.Call("reshape", open, map[string]any{"newshape": []int64{0, 8}}, x)
	g := m.Finish(flat)
	a, err := Analyse(g, Inputs{g.Nodes[x].Name: {{Name: "len"}, {}, {}}})
	require.NoError(t, err)
	named, ok := a.Named(flat)
	require.True(t, ok)
	assert.Equal(t, []Product{{By: 8}}, named[1].Of)
	told, ok := a.Named(x)
	require.True(t, ok)
	assert.Empty(t, told[1].Of, "its type says that")

	inside := relay.NewGraph("region")
	y := inside.Var([]int64{relay.AnyDim, relay.AnyDim}, "float32")
	g = inside.Finish(inside.Call("nn.relu", open, nil, y))
	a, err = Analyse(g, Inputs{g.Nodes[y].Name: named})
	require.NoError(t, err)
	size, known := a.Of(y).Shape[1].Value()
	assert.True(t, known)
	assert.EqualValues(t, 8, size)
	assert.Len(t, a.Open(), 1)
}
