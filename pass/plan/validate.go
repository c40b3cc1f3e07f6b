// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/cost"
)

// SchemaError says that a plan was written for another version of the schema.
type SchemaError struct{ Found int }

func (e *SchemaError) Error() string {
	if e.Found > Schema {
		return fmt.Sprintf("the plan has schema version %d; this program reads version %d: use a newer one", e.Found,
			Schema)
	}
	return fmt.Sprintf("the plan has schema version %d; this program reads version %d: make the plan again", e.Found,
		Schema)
}

// sumTolerance is how far a sum in a plan may be from its parts, in milliseconds: all are whole picoseconds, and a
// plan has at most a few million of them.
const sumTolerance = 1e-6

// maxNodes is more nodes than a function can have that was placed: a hundred times those of the largest network known.
// What judges plans makes tables of that length.
const maxNodes = 1 << 22

// Validate says what is wrong with a plan: what is missing, contradicts itself or does not add up. A plan that is
// valid need not fit a module; its hash says which one it is for.
func (p *Plan) Validate() error {
	if p.Schema != Schema {
		return &SchemaError{Found: p.Schema}
	}
	if p.Module.Hash == "" {
		return errors.New("plan: the module's hash is missing")
	}
	if !slices.Contains([]string{"", "operator", "graph"}, p.Level) {
		return fmt.Errorf("plan: the level is %q; it is \"operator\" or \"graph\"", p.Level)
	}
	if p.Precision != nil {
		for i := range p.Precision.Corners {
			if err := p.Precision.Corners[i].validate(); err != nil {
				return err
			}
		}
		if err := p.Precision.Lagrangian.validate(); err != nil {
			return err
		}
	}
	functions := map[string]Function{}
	for _, f := range p.Module.Functions {
		if _, twice := functions[f.Name]; twice || f.Name == "" {
			return fmt.Errorf("plan: the function %q is named twice or has no name", f.Name)
		}
		if f.Nodes < 0 || f.Nodes > maxNodes {
			return fmt.Errorf("plan: the function %q has %d nodes", f.Name, f.Nodes)
		}
		functions[f.Name] = f
	}
	shares := map[string]*Backend{}
	for _, b := range p.Backends {
		if _, twice := shares[b.Name]; twice || b.Name == "" {
			return fmt.Errorf("plan: the backend %q is named twice or has no name", b.Name)
		}
		shares[b.Name] = &Backend{}
	}
	covered := map[at]int{}
	symbols := map[string]bool{}
	total, prices := 0.0, 0.0
	for i := range p.Regions {
		r := &p.Regions[i]
		if r.ID != i {
			return fmt.Errorf("plan: region %d stands at place %d", r.ID, i)
		}
		if err := p.validateRegion(r, functions, covered); err != nil {
			return fmt.Errorf("plan: region %d: %w", i, err)
		}
		if r.Symbol != "" {
			if symbols[r.Symbol] {
				return fmt.Errorf("plan: region %d: the symbol %s is used twice", i, r.Symbol)
			}
			symbols[r.Symbol] = true
		}
		if err := r.addTo(func(name string) *Backend { return shares[name] }); err != nil {
			return fmt.Errorf("plan: region %d: %w", i, err)
		}
		total += r.Milliseconds
		for _, c := range r.Candidates {
			for _, n := range c.Nodes {
				prices += n.Price
			}
		}
	}
	for _, b := range p.Backends {
		s := shares[b.Name]
		if s.Operators != b.Operators || s.Regions != b.Regions || !near(s.Milliseconds, b.Milliseconds) {
			return fmt.Errorf("plan: backend %s says %d operators in %d regions, %v ms; its regions say %d in %d, %v ms",
				b.Name, b.Operators, b.Regions, b.Milliseconds, s.Operators, s.Regions, round(s.Milliseconds))
		}
	}
	e := p.Estimate
	if !near(total+e.Transfers, e.Milliseconds) {
		return fmt.Errorf("plan: the estimate is %v ms, the regions sum to %v ms, with %v ms between them",
			e.Milliseconds, round(total), e.Transfers)
	}
	if e.Optimal && (!near(prices, e.Bound) || !near(e.Milliseconds-e.Bound, e.Gap)) {
		return fmt.Errorf("plan: the bound is %v ms and the gap %v ms, but the prices sum to %v ms", e.Bound, e.Gap,
			round(prices))
	}
	if !e.Optimal && e.Bound != 0 && !near(e.Milliseconds-e.Bound, e.Gap) {
		return fmt.Errorf("plan: the estimate is %v ms and the bound %v ms, but the gap %v ms", e.Milliseconds, e.Bound,
			e.Gap)
	}
	if err := p.validateBorders(functions, covered); err != nil {
		return err
	}
	if err := p.validateBelieved(); err != nil {
		return err
	}
	return p.validateRest()
}

// at is a node of a function.
type at struct {
	function string
	index    int
}

func near(a, b float64) bool { return math.Abs(a-b) <= sumTolerance }

func (p *Plan) validateRegion(r *Region, functions map[string]Function, covered map[at]int) error {
	f, ok := functions[r.Function]
	if !ok {
		return fmt.Errorf("the function %q is not listed", r.Function)
	}
	if len(r.Candidates) == 0 {
		return errors.New("it holds nothing")
	}
	names := r.Backends()
	if all := strings.Join(names, "+"); all != r.Backend {
		return fmt.Errorf("it is on %q, its candidates on %q", r.Backend, all)
	}
	compiler := ""
	for i, name := range names {
		backend := p.Backend(name)
		if backend == nil {
			return fmt.Errorf("the backend %q is not listed", name)
		}
		if i > 0 && (backend.Compiler != compiler || compiler == "") {
			return fmt.Errorf("%s and %s cannot share it: they have different compilers", names[0], name)
		}
		compiler = backend.Compiler
	}
	if compiler == "" && r.Symbol != "" {
		return fmt.Errorf("it is outlined as %s, but what is on %s stays inline", r.Symbol, r.Backend)
	}
	if len(names) > 1 && r.Symbol == "" {
		return fmt.Errorf("%s share it, but it is not outlined", r.Backend)
	}
	for i, v := range r.Rounded {
		switch {
		case v.Value < 0 || v.Value >= f.Nodes || i > 0 && v.Value <= r.Rounded[i-1].Value:
			return fmt.Errorf("the values that it rounds are not ascending nodes of %s (%%%d)", f.Name, v.Value)
		case !(v.Scale >= 0x1p-126 && v.Scale <= math.MaxFloat32/256) || v.Zero < 0 || v.Zero > 255:
			return fmt.Errorf("it rounds %%%d by the scale %v and the zero %d, which are none of bytes", v.Value, v.Scale,
				v.Zero)
		case r.Symbol == "":
			return fmt.Errorf("it rounds %%%d, but is not outlined", v.Value)
		}
	}
	sum, last := 0.0, -1
	for _, c := range r.Candidates {
		if len(c.Nodes) == 0 {
			return errors.New("it holds a candidate without nodes")
		}
		if math.IsNaN(c.Milliseconds) || c.Milliseconds < 0 || math.IsInf(c.Milliseconds, 0) {
			return fmt.Errorf("a candidate costs %v ms", c.Milliseconds)
		}
		if c.Cost.Failure != nil {
			return fmt.Errorf("it holds a candidate that failed: %s", c.Cost.Failure)
		}
		if c.Cost.Origin == cost.Bounded && p.Estimate.Optimal {
			return errors.New("it holds a candidate of which only a lower bound is known")
		}
		before := -1
		for _, n := range c.Nodes {
			if n.Index <= before || n.Index >= f.Nodes {
				return fmt.Errorf("the nodes of a candidate are not ascending nodes of %s (%%%d)", f.Name, n.Index)
			}
			if n.Operator == "" {
				return fmt.Errorf("%%%d has no operator name", n.Index)
			}
			if n.PostDominator != -1 && (n.PostDominator <= n.Index || n.PostDominator >= f.Nodes) {
				return fmt.Errorf("%%%d has the post-dominator %%%d, which does not stand behind it", n.Index,
					n.PostDominator)
			}
			here := at{r.Function, n.Index}
			if other, twice := covered[here]; twice {
				return fmt.Errorf("%%%d is in region %d too", n.Index, other)
			}
			covered[here] = r.ID
			before = n.Index
		}
		if before <= last {
			return errors.New("its candidates are not in the order of their last nodes")
		}
		last = before
		sum += c.Milliseconds
	}
	if !near(sum, r.Milliseconds) {
		return fmt.Errorf("its estimate is %v ms, its candidates sum to %v ms", r.Milliseconds, round(sum))
	}
	return nil
}

// listed counts the candidates that are listed one by one: all of them, unless nothing is known about some.
func (p *Plan) listed() int {
	n := len(p.Candidates.Rejected) + len(p.Candidates.Excluded)
	for i := range p.Regions {
		n += len(p.Regions[i].Candidates)
	}
	for i := range p.Candidates.Failures {
		n += len(p.Candidates.Failures[i].Places)
	}
	return n
}

// validateRest checks what is there for the reader.
func (p *Plan) validateRest() error {
	operators := 0
	for _, b := range p.Backends {
		operators += b.Operators
	}
	if operators != p.Operators() {
		return fmt.Errorf("plan: the functions have %d operators, %d are placed", p.Operators(), operators)
	}
	c := &p.Candidates
	if known := c.Given + c.Stored + c.Measured + c.Bounded + c.InPlace + c.Unknown; known != c.Distinct {
		return fmt.Errorf("plan: there are %d different computations, the costs of %d are accounted for", c.Distinct,
			known)
	}
	if c.Tested < 0 || c.Wrong < 0 || c.Wrong > c.Tested || c.Tested > c.Distinct {
		return fmt.Errorf("plan: of %d different computations the bounds of %d were tested, and those of %d found wrong", c.Distinct, c.Tested, c.Wrong)
	}
	if c.Failed != len(c.Failures) {
		return fmt.Errorf("plan: %d computations failed, %d are listed", c.Failed, len(c.Failures))
	}
	if listed := p.listed(); c.Unknown == 0 && (p.Estimate.Optimal || len(p.Borders) > 0 || p.believed() != nil) &&
		listed != c.Proposed {
		return fmt.Errorf("plan: %d candidates were proposed, %d are listed", c.Proposed, listed)
	}
	names, chosen := map[string]bool{}, 0
	for _, f := range p.Finalists {
		if f.Name == "" || names[f.Name] {
			return fmt.Errorf("plan: the finalist %q is named twice or has no name", f.Name)
		}
		names[f.Name] = true
		if f.Chosen {
			chosen++
			if outlined := p.Outlined(); f.Failure == nil && f.Regions != outlined {
				return fmt.Errorf("plan: %s was kept, which has %d regions outside of TVM; the plan's are %d", f.Name,
					f.Regions, outlined)
			}
		}
		if f.Failure != nil {
			if f.Chosen {
				return fmt.Errorf("plan: the finalist %s failed and is marked as chosen", f.Name)
			}
			continue
		}
		if bad := slices.ContainsFunc(f.Samples,
			func(s float64) bool { return math.IsNaN(s) || math.IsInf(s, 0) || s < 0 }); bad ||
			len(f.Samples) == 0 {
			return fmt.Errorf("plan: the finalist %s has no samples, or one that is no time", f.Name)
		}
	}
	if chosen > 1 {
		return fmt.Errorf("plan: %d finalists are marked as chosen", chosen)
	}
	return nil
}
