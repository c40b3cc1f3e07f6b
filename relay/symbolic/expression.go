// SPDX-License-Identifier: Apache-2.0

package symbolic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Expression is a whole number that depends on the sizes of open dimensions: a polynomial of atoms with whole
// coefficients, in one form for each polynomial, so that equal ones have the same text. The zero value is 0. What would
// run over int64 is no expression of its own but an atom of which only the bounds are known; it equals itself alone.
type Expression struct {
	terms []term // by the text of their factors, none with the coefficient 0
}

type term struct {
	by      int64
	factors []*atom // by their names, with repetition
}

// atom is an open dimension, or what is computed of two expressions and is no polynomial of them (a quotient, a maximum).
// Its name says which it is: atoms of the same name are the same number. low and high bound it, inclusively.
type atom struct {
	name      string
	low, high int64
	operation operation
	of        []Expression // two; nil of an open dimension
}

// operation is what an atom does with two expressions. Its value is its name in texts.
type operation string

const (
	quotientOf operation = "floor_div"
	maximumOf  operation = "max"
	minimumOf  operation = "min"
	// What would run over: nobody computes it.
	sumTooLarge     operation = "sum"
	productTooLarge operation = "product"
	// broadcastOf is the size of two that are broadcast, one of which may be 0.
	broadcastOf operation = "broadcast"
)

// Unbounded is the upper bound of what has none.
const Unbounded = math.MaxInt64

// Constant is the expression of a number.
func Constant(value int64) Expression {
	if value == 0 {
		return Expression{}
	}
	return Expression{terms: []term{{by: value}}}
}

// Symbol is an open dimension of that name. It is low at least and high at most.
func Symbol(name string, low, high int64) Expression {
	return Expression{terms: []term{{by: 1, factors: []*atom{{name: name, low: low, high: high}}}}}
}

// Value is the number of an expression that depends on nothing.
func (e Expression) Value() (value int64, ok bool) {
	switch {
	case len(e.terms) == 0:
		return 0, true
	case len(e.terms) == 1 && len(e.terms[0].factors) == 0:
		return e.terms[0].by, true
	}
	return 0, false
}

// Equal says that two expressions are the same number whatever the open dimensions are.
func (e Expression) Equal(other Expression) bool {
	return slices.EqualFunc(e.terms, other.terms, func(a, b term) bool { return a.by == b.by && a.text() == b.text() })
}

func (t term) text() string {
	names := make([]string, len(t.factors))
	for i, f := range t.factors {
		names[i] = f.name
	}
	return strings.Join(names, "*")
}

// String is the expression as people write it: "2*batch*len + 1".
func (e Expression) String() string {
	if len(e.terms) == 0 {
		return "0"
	}
	var b strings.Builder
	for i := len(e.terms) - 1; i >= 0; i-- { // what has no factors comes last
		t := e.terms[i]
		by := t.by
		switch {
		case b.Len() > 0 && by < 0 && by != math.MinInt64:
			b.WriteString(" - ")
			by = -by
		case b.Len() > 0:
			b.WriteString(" + ")
		}
		switch text := t.text(); {
		case text == "":
			fmt.Fprint(&b, by)
		case by == 1:
			b.WriteString(text)
		default:
			fmt.Fprintf(&b, "%d*%s", by, text)
		}
	}
	return b.String()
}

// Bounds are the least and the greatest value that the expression may have; math.MinInt64 and Unbounded where there is
// none.
func (e Expression) Bounds() (low, high int64) {
	for _, t := range e.terms {
		l, h := t.by, t.by
		for _, f := range t.factors {
			l, h = productBounds(l, h, f.low, f.high)
		}
		low, high = saturatingSum(low, l), saturatingSum(high, h)
	}
	return low, high
}

func productBounds(a, b, c, d int64) (low, high int64) {
	all := []int64{saturatingProduct(a, c), saturatingProduct(a, d), saturatingProduct(b, c), saturatingProduct(b, d)}
	return slices.Min(all), slices.Max(all)
}

func saturatingSum(a, b int64) int64 {
	switch sum := a + b; {
	case a == math.MinInt64 || b == math.MinInt64 || a < 0 && b < 0 && sum >= 0:
		return math.MinInt64 // of lower bounds one that has none decides; an upper one is never MinInt64
	case a == Unbounded || b == Unbounded || a > 0 && b > 0 && sum < 0:
		return Unbounded
	default:
		return sum
	}
}

func saturatingProduct(a, b int64) int64 {
	product, ok := exactProduct(a, b)
	switch {
	case ok && a != Unbounded && b != Unbounded:
		return product
	case a == 0 || b == 0:
		return 0
	case (a < 0) == (b < 0):
		return Unbounded
	default:
		return math.MinInt64
	}
}

func exactProduct(a, b int64) (int64, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	if a == math.MinInt64 || b == math.MinInt64 {
		return 0, false
	}
	product := a * b
	return product, product/b == a
}

func exactSum(a, b int64) (int64, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}

// Plus is the sum of two expressions.
func (e Expression) Plus(other Expression) Expression {
	sum, ok := sumOf(slices.Concat(e.terms, other.terms))
	if !ok {
		return opaque(sumTooLarge, e, other, math.MinInt64, Unbounded)
	}
	return sum
}

// Minus is the difference of two expressions.
func (e Expression) Minus(other Expression) Expression { return e.Plus(other.Times(Constant(-1))) }

// Times is the product of two expressions.
func (e Expression) Times(other Expression) Expression {
	var terms []term
	fits := len(e.terms)*len(other.terms) <= mostTerms
	for _, a := range e.terms {
		if !fits {
			break
		}
		for _, b := range other.terms {
			by, ok := exactProduct(a.by, b.by)
			fits = fits && ok
			factors := slices.Concat(a.factors, b.factors)
			slices.SortFunc(factors, func(x, y *atom) int { return strings.Compare(x.name, y.name) })
			terms = append(terms, term{by, factors})
		}
	}
	product, ok := sumOf(terms)
	if !fits || !ok {
		l1, h1 := e.Bounds()
		l2, h2 := other.Bounds()
		low, high := productBounds(l1, h1, l2, h2)
		return opaque(productTooLarge, e, other, low, high)
	}
	return product
}

// mostTerms is of how many terms a product may be: sizes of tensors have a few. Without an end, a network could be written
// whose sizes take more memory than its weights.
const mostTerms = 64

// sumOf adds terms up; false where that runs over.
func sumOf(terms []term) (Expression, bool) {
	sorted := slices.Clone(terms)
	texts := make(map[string]int, len(sorted))
	var sum []term
	for _, t := range sorted {
		text := t.text()
		at, seen := texts[text]
		if !seen {
			texts[text] = len(sum)
			sum = append(sum, t)
			continue
		}
		by, ok := exactSum(sum[at].by, t.by)
		if !ok {
			return Expression{}, false
		}
		sum[at].by = by
	}
	sum = slices.DeleteFunc(sum, func(t term) bool { return t.by == 0 })
	slices.SortFunc(sum, func(a, b term) int { return strings.Compare(a.text(), b.text()) })
	if len(sum) > mostTerms {
		return Expression{}, false
	}
	return Expression{terms: sum}, true
}

// opaque is what two expressions give by an operation, as an atom that lies within bounds.
func opaque(operation operation, a, b Expression, low, high int64) Expression {
	e := Symbol(fmt.Sprintf("%s(%s, %s)", operation, a, b), low, high)
	made := e.terms[0].factors[0]
	made.operation, made.of = operation, []Expression{a, b}
	return e
}

// Over is the quotient of two expressions, rounded down. The divisor must not be 0, whatever the open dimensions are;
// false where nobody can say that, and where the numbers may be negative, which operators round in different ways.
func (e Expression) Over(divisor Expression) (Expression, bool) {
	if low, _ := e.Bounds(); low < 0 {
		return Expression{}, false
	}
	return e.overAsItRuns(divisor)
}

// overAsItRuns is Over of what is not negative where the network runs at all, whatever its bounds say.
func (e Expression) overAsItRuns(divisor Expression) (Expression, bool) {
	low, high := e.Bounds()
	low = max(0, low)
	least, most := divisor.Bounds()
	if least < 1 {
		return Expression{}, false
	}
	whole, rest := e.divide(divisor)
	if l, h := rest.Bounds(); l >= 0 && h < least {
		return whole, true
	}
	// Part of a quotient by a sum says less than all of it does.
	if l, _ := rest.Bounds(); l < 0 || len(divisor.terms) > 1 {
		whole, rest = Expression{}, e
	}
	if number, ok := rest.Value(); ok && least == most {
		return whole.Plus(Constant(number / least)), true
	}
	quotient := high
	if high != Unbounded {
		quotient = high / least
	}
	floor := int64(0)
	if most != Unbounded {
		floor = low / most
	}
	if len(whole.terms) > 0 { // the bounds are those of the whole quotient
		floor, quotient = 0, Unbounded
	}
	return whole.Plus(opaque(quotientOf, rest, divisor, floor, quotient)), true
}

// divide gives w and r with e = w * divisor + r: long division, by the divisor's leading term as long as that goes into
// what is left. r is nothing where the divisor goes into e.
func (e Expression) divide(divisor Expression) (whole, rest Expression) {
	lead, left := divisor.leading(), e.terms
	var wholes, rests []term
	for steps := 0; len(left) > 0; steps++ {
		t := Expression{left}.leading()
		factors, goes := without(t.factors, lead.factors)
		out := []term{t}
		if goes = goes && t.by%lead.by == 0; goes {
			one := term{t.by / lead.by, factors}
			wholes, out = append(wholes, one), Expression{[]term{one}}.Times(divisor).terms
		} else {
			rests = append(rests, t)
		}
		next, ok := sumOf(slices.Concat(left, Expression{out}.Times(Constant(-1)).terms))
		if left = next.terms; !ok || steps == mostTerms {
			return Expression{}, e
		}
	}
	whole, ok := sumOf(wholes)
	rest, ok2 := sumOf(rests)
	if !ok || !ok2 {
		return Expression{}, e
	}
	return whole, rest
}

// leading is the term that comes first by the number of its factors, and by their names where several have as many: an
// order that products keep, as long division needs it. The zero term of 0.
func (e Expression) leading() term {
	if len(e.terms) == 0 {
		return term{}
	}
	return slices.MinFunc(e.terms, func(a, b term) int {
		if by := cmp.Compare(len(b.factors), len(a.factors)); by != 0 {
			return by
		}
		return slices.CompareFunc(a.factors, b.factors, func(x, y *atom) int { return strings.Compare(x.name, y.name) })
	})
}

// without takes factors out of a product that has them.
func without(factors, out []*atom) ([]*atom, bool) {
	left := slices.Clone(factors)
	for _, f := range out {
		at := slices.IndexFunc(left, func(a *atom) bool { return a.name == f.name })
		if at < 0 {
			return nil, false
		}
		left = slices.Delete(left, at, at+1)
	}
	return left, true
}

// Max is the greater one of two expressions.
func Max(a, b Expression) Expression {
	if low, high := a.Minus(b).Bounds(); low >= 0 {
		return a
	} else if high <= 0 {
		return b
	}
	if a.isMinimumOf(b) { // max(min(x, y), x)
		return b
	} else if b.isMinimumOf(a) {
		return a
	}
	a, b = inOrder(a, b)
	l1, h1 := a.Bounds()
	l2, h2 := b.Bounds()
	return opaque(maximumOf, a, b, max(l1, l2), max(h1, h2))
}

// Min is the smaller one of two expressions.
func Min(a, b Expression) Expression {
	if low, high := a.Minus(b).Bounds(); low >= 0 {
		return b
	} else if high <= 0 {
		return a
	}
	if a.isMinimumOf(b) {
		return a
	} else if b.isMinimumOf(a) {
		return b
	}
	a, b = inOrder(a, b)
	l1, h1 := a.Bounds()
	l2, h2 := b.Bounds()
	return opaque(minimumOf, a, b, min(l1, l2), min(h1, h2))
}

func inOrder(a, b Expression) (Expression, Expression) {
	if a.String() > b.String() {
		return b, a
	}
	return a, b
}

// isMinimumOf says that e is the smaller one of other and something else.
func (e Expression) isMinimumOf(other Expression) bool {
	if len(e.terms) != 1 || e.terms[0].by != 1 || len(e.terms[0].factors) != 1 {
		return false
	}
	f := e.terms[0].factors[0]
	return f.operation == minimumOf && slices.ContainsFunc(f.of, other.Equal)
}
