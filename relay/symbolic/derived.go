// SPDX-License-Identifier: Apache-2.0

package symbolic

// Quotient is a polynomial, over the names of open dimensions and of quotients before it in a list, divided by a number
// and rounded down.
type Quotient struct {
	// Name is what expressions call it.
	Name string    `json:"name"`
	Of   []Product `json:"of"`
	By   int64     `json:"by"`
}

// Derived is a number that follows from open dimensions by divisions: a Quotient, or, where By is 1, a polynomial of
// such.
type Derived struct {
	Quotient
	// Extent says that a value has this size.
	Extent bool

	expression Expression
}

// Derived are the sizes of a function's values that are no polynomials of its open dimensions, and of which all that is
// divided in them is divided by numbers; what each is made of stands before it.
func (a *Analysis) Derived() []Derived {
	l := derivation{at: map[string]int{}}
	for i := range a.values {
		a.values[i].extents(func(e Expression) { l.extent(e) })
	}
	return l.list
}

// extents calls f with each size of a value, and of a tuple's fields.
func (v *Value) extents(f func(e Expression)) {
	for _, extent := range v.Shape {
		f(extent)
	}
	for i := range v.Fields {
		v.Fields[i].extents(f)
	}
}

// derivation collects a list of Derived; at is where each stands, by name, -1 for what is none.
type derivation struct {
	list []Derived
	at   map[string]int
}

func (l *derivation) extent(e Expression) {
	if e.isPolynomial() {
		return
	}
	name := e.String()
	if at, seen := l.at[name]; seen {
		if at >= 0 {
			l.list[at].Extent = true
		}
		return
	}
	l.at[name] = -1
	if l.atoms(e) {
		if at := l.at[name]; at >= 0 { // it is one of them by itself
			l.list[at].Extent = true
			return
		}
		l.append(Derived{Quotient{name, e.asProducts(), 1}, true, e})
	}
}

// atoms adds those of an expression; false where one of them is no quotient by a number.
func (l *derivation) atoms(e Expression) bool {
	for _, t := range e.terms {
		for _, f := range t.factors {
			if f.of != nil && !l.atom(f) {
				return false
			}
		}
	}
	return true
}

func (l *derivation) atom(f *atom) bool {
	if at, seen := l.at[f.name]; seen && at >= 0 {
		return true
	}
	by, number := f.of[1].Value()
	if f.operation != quotientOf || !number || by < 1 || !l.atoms(f.of[0]) {
		return false
	}
	l.append(Derived{Quotient{f.name, f.of[0].asProducts(), by}, false,
		Expression{terms: []term{{by: 1, factors: []*atom{f}}}}})
	return true
}

func (l *derivation) append(d Derived) {
	l.at[d.Name] = len(l.list)
	l.list = append(l.list, d)
}

// isPolynomial says that an expression is one of open dimensions.
func (e Expression) isPolynomial() bool {
	for _, t := range e.terms {
		for _, f := range t.factors {
			if f.of != nil {
				return false
			}
		}
	}
	return true
}

// asProducts are an expression's terms, over the names of what they are made of.
func (e Expression) asProducts() []Product {
	list := make([]Product, len(e.terms))
	for i, t := range e.terms {
		list[i].By = t.by
		for _, f := range t.factors {
			list[i].Sizes = append(list[i].Sizes, f.name)
		}
	}
	return list
}

// At is the number where open dimensions have these sizes, by name. Errors: as Expression.At's.
func (d *Derived) At(sizes map[string]int64) (int64, error) { return d.expression.At(sizes) }

// Dimensions are the open dimensions that it depends on, each once, by name.
func (d *Derived) Dimensions() []Dimension { return d.expression.Dimensions() }
