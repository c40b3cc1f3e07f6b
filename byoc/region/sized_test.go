// SPDX-License-Identifier: Apache-2.0

package region

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
	"github.com/collage-tvm/collage/relay/symbolic"
)

// heads is a region of x [batch, len, 8], seen as rows and as heads.
func heads(least int64) *relay.Graph {
	m := relay.NewGraph("r")
	open := relay.AnyDim
	x := m.Var([]int64{open, open, 8}, "float32")
	rows := m.Call("reshape", tensor(open, 8), map[string]any{"newshape": []int64{-1, 8}}, x)
	dense := m.Call("nn.dense", tensor(open, 8), nil, rows, m.Const([]int64{8, 8}, "float32"))
	sum := m.Call("add", tensor(open, open, 8), nil, x, m.Call("nn.relu", tensor(open, open, 8), nil, x))
	g := m.Finish(m.Tuple(dense, sum))
	g.Attrs = map[string]string{symbolic.SizesAttr: symbolic.Inputs{"v0": {{Name: "batch", Least: least, Most: 30},
		{Name: "len", Least: least}, {}}}.Text()}
	return g
}

// shapes is an emitter that tells an engine of all shapes and strides.
func shapes(p *Program) ([]byte, []ValueID, error) {
	var text strings.Builder
	var constants []ValueID
	for i, v := range p.Values {
		step := int64(1)
		for d := len(v.Type.Shape) - 1; d >= 0; d-- {
			fmt.Fprintf(&text, "%d:%d ", v.Type.Shape[d], step)
			step *= v.Type.Shape[d]
		}
		text.WriteString("-0.5 0.05 v07;")
		if v.Constant != relay.NoNode {
			constants = append(constants, ValueID(i))
		}
	}
	return []byte(text.String()), constants, nil
}

func written(t *testing.T, text []byte) sized {
	t.Helper()
	var out sized
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// at is the text for sizes, as the runtime chooses it.
func (s *sized) at(sizes ...int64) string {
	for _, t := range s.Texts {
		if all := s.all(sizes); !slices.ContainsFunc(t.Ones, func(i int) bool { return all[i] != 1 }) {
			return t.at(all)
		}
	}
	return "none"
}

// all are sizes with their quotients, as the runtime works them out.
func (s *sized) all(sizes []int64) []int64 {
	all := slices.Clone(sizes)
	for _, q := range s.Quotients {
		all = append(all, polynomialAt(q.Of, all)/q.By)
	}
	return all
}

// What is written for all sizes is at each of them what would be written for that.
func TestATextForAllSizes(t *testing.T) {
	p, err := OpenFromGraph(heads(1), "r")
	require.NoError(t, err)
	require.True(t, p.Open)
	text, fixed, constants, err := emitSized(p, shapes)
	require.NoError(t, err)
	require.Len(t, constants, 1)
	require.NotEqual(t, relay.NoNode, fixed.Values[constants[0]].Constant)
	out := written(t, text)
	require.Equal(t, [][2]int{{0, 0}, {0, 1}}, out.Sizes)
	require.Len(t, out.Texts, 1, "a size of 1 is nothing special here")
	a, err := symbolic.AnalyseNamed(p.Graph)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		batch, length := 1+r.Int64N(30), 1+r.Int64N(5000)
		g, err := a.Fixed(map[string]int64{"batch": batch, "len": length})
		require.NoError(t, err)
		one, err := FromGraph(g, "r")
		require.NoError(t, err)
		want, _, err := shapes(one)
		require.NoError(t, err)
		require.Equal(t, string(want), out.at(batch, length))
	}
}

// strided is a region of x [batch, 4, height, width] whose windows are two apart, twice, and three apart along the width,
// with the places that are left as rows behind one more.
func strided() *relay.Graph {
	m := relay.NewGraph("r")
	open := relay.AnyDim
	x := m.Var([]int64{open, 4, open, open}, "float32")
	window := func(v relay.NodeID, along int64) relay.NodeID {
		return m.Call("nn.conv2d", tensor(open, 4, open, open), map[string]any{"strides": []int64{2, along},
			"padding": []int64{1, 1, 1, 1}, "dilation": []int64{1, 1}, "groups": int64(1), "data_layout": "NCHW",
			"kernel_layout": "OIHW", "channels": int64(4), "kernel_size": []int64{3, 3}}, v,
			m.Const([]int64{4, 4, 3, 3}, "float32"))
	}
	v := window(m.Call("nn.relu", tensor(open, 4, open, open), nil, window(x, 3)), 1)
	rows := m.Call("reshape", tensor(open, 4, open), map[string]any{"newshape": []int64{0, 0, -1}}, v)
	more := m.Call("nn.pad", tensor(open, 4, open), map[string]any{
		"pad_width": []any{[]int64{0, 0}, []int64{0, 0}, []int64{1, 0}},
		"pad_mode":  "constant"}, rows, m.Const(nil, "float32"))
	g := m.Finish(more)
	g.Attrs = map[string]string{symbolic.SizesAttr: symbolic.Inputs{"v0": {{Name: "batch", Most: 30}, {},
		{Name: "height", Least: 1}, {Name: "width", Least: 1, Most: 60}}}.Text()}
	return g
}

// Where windows are two or three apart, how many there are is a quotient of a size.
func TestATextForAllSizesOfWhatIsDivided(t *testing.T) {
	p, err := OpenFromGraph(strided(), "r")
	require.NoError(t, err)
	text, _, constants, err := emitSized(p, shapes)
	require.NoError(t, err)
	require.Len(t, constants, 3)
	out := written(t, text)
	require.NotEmpty(t, out.Quotients)
	a, err := symbolic.AnalyseNamed(p.Graph)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		batch, height, width := 1+r.Int64N(30), 1+r.Int64N(3000), 1+r.Int64N(60)
		g, err := a.Fixed(map[string]int64{"batch": batch, "height": height, "width": width})
		require.NoError(t, err)
		one, err := FromGraph(g, "r")
		require.NoError(t, err)
		want, _, err := shapes(one)
		require.NoError(t, err)
		require.Equal(t, string(want), out.at(batch, height, width), "%d x %d x %d", batch, height, width)
	}
}

// A size that is a product of others is one at all of them.
func TestSizesOfOtherSizes(t *testing.T) {
	build := func(batchIsThere bool) *relay.Graph {
		m := relay.NewGraph("r")
		open := relay.AnyDim
		rows := m.Var([]int64{open, 8}, "float32")
		x := m.Var([]int64{open, open, 8}, "float32")
		flat := m.Call("reshape", tensor(open, 8), map[string]any{"newshape": []int64{-1, 8}}, x)
		g := m.Finish(m.Call("add", tensor(open, 8), nil, rows, flat))
		first := symbolic.Dimension{Name: "batch", Most: 30}
		if !batchIsThere {
			first = symbolic.Dimension{Name: "2*batch", Least: 2, Of: []symbolic.Product{{By: 2, Sizes: []string{"batch"}}}}
		}
		g.Attrs = map[string]string{symbolic.SizesAttr: symbolic.Inputs{
			"v0": {{Name: "batch*len", Of: []symbolic.Product{{By: 1, Sizes: []string{"batch", "len"}}}}, {}},
			"v1": {first, {Name: "len"}, {}}}.Text()}
		return g
	}
	p, err := OpenFromGraph(build(true), "r")
	require.NoError(t, err)
	text, _, _, err := emitSized(p, shapes)
	require.NoError(t, err)
	out := written(t, text)
	require.Equal(t, [][2]int{{1, 0}, {1, 1}}, out.Sizes)
	require.True(t, strings.HasPrefix(out.at(3, 5), "8:1 15:8 "), out.at(3, 5))

	p, err = OpenFromGraph(build(false), "r")
	require.NoError(t, err)
	a, err := symbolic.AnalyseNamed(p.Graph)
	require.NoError(t, err)
	require.Len(t, a.Open(), 3, "what is of a size that no input has is a size of its own")
}

// An engine that is told other things where a size is 1 gets texts of their own.
func TestSizesOfOneAreApart(t *testing.T) {
	emit := func(p *Program) ([]byte, []ValueID, error) {
		text, constants, err := shapes(p)
		x := p.Values[p.Inputs[0]].Type.Shape
		if x[1] == 1 {
			text = append(text, "one word"...)
		}
		if x[0] == 1 && x[1] == 1 {
			text = append(text, " in all"...)
		}
		return text, constants, err
	}
	p, err := OpenFromGraph(heads(1), "r")
	require.NoError(t, err)
	text, _, _, err := emitSized(p, emit)
	require.NoError(t, err)
	out := written(t, text)
	require.Len(t, out.Texts, 3)
	require.True(t, strings.HasSuffix(out.at(1, 1), "one word in all"))
	require.True(t, strings.HasSuffix(out.at(5, 1), "one word"))
	require.NotContains(t, out.at(1, 5), "word")

	p, err = OpenFromGraph(heads(2), "r")
	require.NoError(t, err)
	text, _, _, err = emitSized(p, emit)
	require.NoError(t, err)
	require.Len(t, written(t, text).Texts, 1, "there is no such size")
}

// An engine that is told other things where a quotient is 1 gets texts of their own for that, too.
func TestQuotientsOfOneAreApart(t *testing.T) {
	emit := func(p *Program) ([]byte, []ValueID, error) {
		text, constants, err := shapes(p)
		for i := range p.Ops {
			if shape := p.Values[p.Ops[i].Results[0]].Type.Shape; shape[len(shape)-1] == 1 {
				text = fmt.Appendf(text, "op%c ", 'a'+i)
			}
		}
		return text, constants, err
	}
	p, err := OpenFromGraph(strided(), "r")
	require.NoError(t, err)
	text, _, _, err := emitSized(p, emit)
	require.NoError(t, err)
	out := written(t, text)
	require.Greater(t, len(out.Texts), 2)
	a, err := symbolic.AnalyseNamed(p.Graph)
	require.NoError(t, err)
	for batch := int64(1); batch < 4; batch++ {
		for height := int64(1); height < 12; height++ {
			for width := int64(1); width < 20; width++ {
				g, err := a.Fixed(map[string]int64{"batch": batch, "height": height, "width": width})
				require.NoError(t, err)
				one, err := FromGraph(g, "r")
				require.NoError(t, err)
				want, _, err := emit(one)
				require.NoError(t, err)
				require.Equal(t, string(want), out.at(batch, height, width), "%d x %d x %d", batch, height, width)
			}
		}
	}
}

// Of six dimensions that may all be 1 not all ways are told apart, which matters where the engine does.
func TestManySizesThatMayBeOne(t *testing.T) {
	m := relay.NewGraph("r")
	shape := slices.Repeat([]int64{relay.AnyDim}, 6)
	g := m.Finish(m.Call("nn.relu", tensor(shape...), nil, m.Var(shape, "float32")))
	var named []symbolic.Dimension
	for i := range shape {
		named = append(named, symbolic.Dimension{Name: string(rune('a' + i))})
	}
	g.Attrs = map[string]string{symbolic.SizesAttr: symbolic.Inputs{"v0": named}.Text()}
	p, err := OpenFromGraph(g, "r")
	require.NoError(t, err)
	words := ""
	emit := func(p *Program) ([]byte, []ValueID, error) {
		text := fmt.Append(nil, p.Values[p.Inputs[0]].Type.Shape)
		if p.Values[p.Inputs[0]].Type.Shape[2] == 1 {
			text = append(text, words...)
		}
		return text, nil, nil
	}
	text, _, _, err := emitSized(p, emit)
	require.NoError(t, err)
	out := written(t, text)
	require.Len(t, out.Texts, 1)
	require.Equal(t, "[1 2 1 4 1 6]", out.at(1, 2, 1, 4, 1, 6))
	words = "one"
	_, _, _, err = emitSized(p, emit)
	require.ErrorContains(t, err, "in more than 32 ways")
}

func TestWhatCannotBeWrittenForAllSizes(t *testing.T) {
	of := func(change func(p *Program, text []byte) ([]byte, error)) error {
		p, err := OpenFromGraph(heads(1), "r")
		require.NoError(t, err)
		_, _, _, err = emitSized(p, func(p *Program) ([]byte, []ValueID, error) {
			text, constants, err := shapes(p)
			require.NoError(t, err)
			text, err = change(p, text)
			return text, constants, err
		})
		return err
	}
	length := func(p *Program) int64 { return p.Values[p.Inputs[0]].Type.Shape[1] }
	require.ErrorContains(t, of(func(p *Program, text []byte) ([]byte, error) {
		if length(p) > 80 {
			text = append(text, "long"...)
		}
		return text, nil
	}), "another form")
	require.ErrorContains(t, of(func(p *Program, text []byte) ([]byte, error) {
		return fmt.Append(text, length(p)/3), nil
	}), "no polynomial")
	require.ErrorContains(t, of(func(p *Program, text []byte) ([]byte, error) {
		return fmt.Append(text, length(p)*length(p)*length(p)*length(p)), nil
	}), "no polynomial")
	require.ErrorContains(t, of(func(p *Program, text []byte) ([]byte, error) {
		if p.Values[p.Inputs[0]].Type.Shape[0] == 30 { // the greatest
			text = append(text, "many"...)
		}
		return text, nil
	}), "another form")
	err := of(func(*Program, []byte) ([]byte, error) { return nil, &OpError{Op: 1, Err: errors.New("too long")} })
	var about *OpError
	require.ErrorAs(t, err, &about)
	require.Equal(t, 1, about.Op)
	require.ErrorContains(t, err, "too long (where batch is ")
}

// Of two free dimensions, with numbers that polynomials of them are, fit finds these polynomials.
func TestFit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	monomials := monomialsOf(2, []int{0, 1})
	require.Len(t, monomials, 8)
	for range 50 {
		var terms [][]int64
		for _, m := range monomials {
			if factor := r.Int64N(7) - 3; factor != 0 {
				terms = append(terms, append([]int64{factor * (1 + r.Int64N(1000))}, m...))
			}
		}
		var samples []*sample
		for range len(monomials) + extraSamples {
			sizes := []int64{1 + r.Int64N(500), 1 + r.Int64N(500)}
			samples = append(samples, &sample{all: sizes, numbers: []int64{polynomialAt(terms, sizes)}})
		}
		got, err := fit(samples, 0, monomials)
		require.NoError(t, err)
		for range 10 {
			sizes := []int64{r.Int64N(9000), r.Int64N(9000)}
			require.Equal(t, polynomialAt(terms, sizes), polynomialAt(got, sizes))
		}
	}
	monomials = monomialsOf(2, []int{1})
	require.Equal(t, [][]int64{{0, 0}, {0, 1}, {0, 2}}, monomials)
	var samples []*sample
	for _, size := range []int64{1, 2, 3, 4} {
		samples = append(samples, &sample{all: []int64{1, size}, numbers: []int64{size}})
	}
	terms, err := fit(samples, 0, monomials)
	require.NoError(t, err)
	require.Equal(t, [][]int64{{1, 0, 1}}, terms)
	samples[3].numbers[0]++
	_, err = fit(samples, 0, monomials)
	require.ErrorContains(t, err, "do not agree")
}
