// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// variables are the open dimensions of the tests, with all sizes that they may have.
var variables = []struct {
	name      string
	low, high int64
}{{"batch", 1, 3}, {"len", 1, 5}, {"wide", 2, 4}}

func variable(i int) Expression {
	v := variables[i]
	return Symbol(v.name, v.low, v.high)
}

// everywhere calls f with each choice of sizes.
func everywhere(f func(sizes [3]int64)) {
	for a := variables[0].low; a <= variables[0].high; a++ {
		for b := variables[1].low; b <= variables[1].high; b++ {
			for c := variables[2].low; c <= variables[2].high; c++ {
				f([3]int64{a, b, c})
			}
		}
	}
}

// pair is an expression, and what it is by brute force.
type pair struct {
	e     Expression
	value func(sizes [3]int64) int64
}

func randomPair(r *rand.Rand, depth int) pair {
	if depth == 0 || r.IntN(4) == 0 {
		if r.IntN(2) == 0 {
			n := r.Int64N(9) - 2
			return pair{Constant(n), func([3]int64) int64 { return n }}
		}
		i := r.IntN(len(variables))
		return pair{variable(i), func(sizes [3]int64) int64 { return sizes[i] }}
	}
	a, b := randomPair(r, depth-1), randomPair(r, depth-1)
	switch r.IntN(6) {
	case 0:
		return pair{a.e.Plus(b.e), func(s [3]int64) int64 { return a.value(s) + b.value(s) }}
	case 1:
		return pair{a.e.Minus(b.e), func(s [3]int64) int64 { return a.value(s) - b.value(s) }}
	case 2:
		return pair{a.e.Times(b.e), func(s [3]int64) int64 { return a.value(s) * b.value(s) }}
	case 3:
		return pair{Max(a.e, b.e), func(s [3]int64) int64 { return max(a.value(s), b.value(s)) }}
	case 4:
		return pair{Min(a.e, b.e), func(s [3]int64) int64 { return min(a.value(s), b.value(s)) }}
	}
	quotient, ok := a.e.Over(b.e)
	if !ok {
		return a
	}
	return pair{quotient, func(s [3]int64) int64 { return a.value(s) / b.value(s) }}
}

// TestExpressionsAreWhatTheySay holds random expressions against arithmetic at all sizes: what lies outside of the bounds
// is wrong, so is what is said to be equal and is not, and what says that it is a number and is another one.
func TestExpressionsAreWhatTheySay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	equal, settled := 0, 0
	for range 3000 {
		p, q := randomPair(r, 4), randomPair(r, 3)
		low, high := p.e.Bounds()
		number, known := p.e.Value()
		same := p.e.Equal(q.e)
		if same {
			equal++
		}
		if known {
			settled++
		}
		everywhere(func(sizes [3]int64) {
			v := p.value(sizes)
			require.LessOrEqual(t, low, v, "%s at %v", p.e, sizes)
			require.GreaterOrEqual(t, high, v, "%s at %v", p.e, sizes)
			if known {
				require.Equal(t, v, number, "%s at %v", p.e, sizes)
			}
			if same {
				require.Equal(t, v, q.value(sizes), "%s at %v", p.e, sizes)
			}
		})
	}
	assert.Greater(t, equal, 30)
	assert.Greater(t, settled, 300)
}

// TestEqualPolynomialsHaveOneForm multiplies and adds up in another order.
func TestEqualPolynomialsHaveOneForm(t *testing.T) {
	batch, length := variable(0), variable(1)
	a := batch.Plus(length).Times(batch.Minus(length))
	b := batch.Times(batch).Minus(length.Times(length))
	assert.True(t, a.Equal(b), "%s, %s", a, b)
	assert.Equal(t, "-1*len*len + batch*batch", a.String())
	assert.True(t, a.Minus(b).Equal(Constant(0)))
	assert.Equal(t, "0", a.Minus(b).String())
}

func TestQuotients(t *testing.T) {
	batch, length := Symbol("batch", 1, Unbounded), Symbol("len", 1, Unbounded)
	for _, c := range []struct {
		of, by Expression
		want   string
	}{
		{batch.Times(length).Times(Constant(256)), length.Times(Constant(64)), "4*batch"},
		{length.Times(Constant(4)).Plus(Constant(3)), Constant(4), "len"},
		{length.Times(Constant(4)).Plus(Constant(7)), Constant(4), "len + 1"},
		{Constant(49), Constant(2), "24"},
		{length.Plus(Constant(1)), Constant(2), "floor_div(len + 1, 2)"},
		{batch.Plus(length), batch.Plus(length), "1"},
		{length.Times(Constant(256)).Plus(Constant(256)), length.Times(Constant(64)).Plus(Constant(64)), "4"},
		{batch.Plus(length).Times(batch.Minus(length)).Plus(Constant(3)).Plus(length.Times(length)), batch.Plus(length),
			"floor_div(batch*batch + 3, len + batch)"},
	} {
		got, ok := c.of.Over(c.by)
		require.True(t, ok)
		assert.Equal(t, c.want, got.String(), "%s over %s", c.of, c.by)
	}
	_, ok := length.Minus(Constant(2)).Over(Constant(2))
	assert.False(t, ok, "it may be negative, which is rounded in different ways")
	_, ok = length.Over(Symbol("n", 0, 5))
	assert.False(t, ok, "it may be 0")
}

// TestFactorsAreFound divides products by their factors, of one term and of several: it leaves the other factor.
func TestFactorsAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	sum := func() Expression {
		e := Constant(1 + r.Int64N(3))
		for range r.IntN(4) {
			product := Constant(1 + r.Int64N(5))
			for range 1 + r.IntN(2) {
				product = product.Times(variable(r.IntN(len(variables))))
			}
			e = e.Plus(product)
		}
		return e
	}
	several := 0
	for range 1000 {
		a, b := sum(), sum()
		if len(b.terms) > 1 {
			several++
		}
		got, ok := a.Times(b).Over(b)
		require.True(t, ok)
		require.True(t, got.Equal(a), "%s over %s is %s, got %s", a.Times(b), b, a, got)
	}
	assert.Greater(t, several, 500)
}

func TestWhatIsGreaterAnyway(t *testing.T) {
	length, table := Symbol("len", 1, Unbounded), Constant(512)
	assert.True(t, Max(length, Constant(1)).Equal(length))
	assert.True(t, Min(Symbol("len", 1, 512), table).Equal(Symbol("len", 1, 512)))
	cut := Min(length, table)
	assert.Equal(t, "min(512, len)", cut.String())
	assert.True(t, Max(cut, length).Equal(length))
	assert.True(t, Max(length, cut).Equal(length))
	assert.True(t, Min(cut, table).Equal(cut))
	low, high := cut.Bounds()
	assert.Equal(t, []int64{1, 512}, []int64{low, high})
}

// TestWhatRunsOver is no other number, and bounds nothing that it does not.
func TestWhatRunsOver(t *testing.T) {
	length := Symbol("len", 1, Unbounded)
	huge := Constant(math.MaxInt64)
	for _, e := range []Expression{huge.Plus(Constant(1)), huge.Times(Constant(2)), Constant(math.MinInt64).Minus(Constant(1)),
		length.Times(huge).Times(Constant(3))} {
		_, known := e.Value()
		assert.False(t, known, e.String())
		assert.True(t, e.Equal(e))
	}
	assert.False(t, huge.Plus(Constant(1)).Equal(huge.Plus(Constant(2))))
	_, high := length.Times(length).Plus(Constant(5)).Bounds()
	assert.Equal(t, int64(Unbounded), high)
	low, _ := Constant(0).Minus(length.Times(length)).Bounds()
	assert.Equal(t, int64(math.MinInt64), low)
}

// TestProductsEnd has a product with more terms than mostTerms, which stays one atom.
func TestProductsEnd(t *testing.T) {
	sum, other := Constant(0), Constant(0)
	for i := range 12 {
		sum = sum.Plus(Symbol(fmt.Sprint("a", i), 1, 2))
		other = other.Plus(Symbol(fmt.Sprint("b", i), 1, 2))
	}
	product := sum.Times(other)
	assert.Len(t, product.terms, 1)
	low, high := product.Bounds()
	assert.Equal(t, []int64{144, 576}, []int64{low, high})
}
