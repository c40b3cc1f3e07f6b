// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/cost"
)

// Difference is what is different between two plans: "from" the first "to" the second.
type Difference struct {
	// SameModule says that both are for the same module. Only then can places be compared: Moves, Costs and Only are
	// empty otherwise.
	SameModule bool `json:"same_module"`
	// Identical says that both decide the same: every operator is on the same backend in the same candidate and region.
	// Costs may differ.
	Identical bool `json:"identical_placement"`
	// Fields are what the plans are for and were made with: the environment, the backends, the constraints, the level;
	// and what each proves of its placement.
	Fields   []FieldChange `json:"fields"`
	Estimate [2]Estimate   `json:"estimate"`
	Shares   []ShareChange `json:"backends"`
	// Moves are operators that are placed otherwise, in the order of the first plan.
	Moves []Move `json:"moves"`
	// Costs are candidates of both plans with another estimate, the greatest difference first.
	Costs []CostChange `json:"costs"`
	// Fates are computations of both plans that failed in one of them only.
	Fates []FateChange `json:"failures"`
	// Only counts the candidates that only the first and only the second plan has.
	Only [2]int `json:"only"`
}

// FieldChange is a property that differs.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// ShareChange is a backend's share in both plans.
type ShareChange struct {
	Backend   string     `json:"backend"`
	Operators [2]int     `json:"operators"`
	Regions   [2]int     `json:"regions"`
	Estimate  [2]float64 `json:"estimate_ms"`
}

// Move is a group of operators that went from one candidate to another.
type Move struct {
	Function  string   `json:"function"`
	Nodes     []int    `json:"nodes"`
	Operators []string `json:"operators"`
	From      Side     `json:"from"`
	To        Side     `json:"to"`
	// Exchange is what the first plan says that its network would take more with the candidate of the second
	// (Rejected.Exchange); nil where it says nothing.
	Exchange *float64 `json:"exchange_ms,omitempty"`
}

// Side is where operators are in one of the plans.
type Side struct {
	Backend   string `json:"backend"`
	Composite string `json:"composite,omitempty"`
	// Nodes are all that the candidate covers, Estimate is what the candidate costs.
	Nodes    []int   `json:"nodes"`
	Estimate float64 `json:"estimate_ms"`
	Region   int     `json:"region"`
}

// Backends says that the operators went to another backend; otherwise they are grouped in another way.
func (m *Move) Backends() bool { return m.From.Backend != m.To.Backend }

// CostChange is a computation whose estimate differs; places that compute the same are one.
type CostChange struct {
	Backend   string     `json:"backend"`
	Composite string     `json:"composite,omitempty"`
	Operators []string   `json:"operators"`
	Places    []Place    `json:"places"`
	Estimate  [2]float64 `json:"estimate_ms"`
	// Chosen says in which of the plans it is placed, at one of the places at least.
	Chosen [2]bool `json:"chosen"`
}

// FateChange is a computation that failed in one plan and not in the other.
type FateChange struct {
	Backend   string        `json:"backend"`
	Composite string        `json:"composite,omitempty"`
	Operators []string      `json:"operators"`
	From      *cost.Failure `json:"from,omitempty"`
	To        *cost.Failure `json:"to,omitempty"`
}

// Diff compares two plans.
func Diff(a, b *Plan) *Difference {
	d := &Difference{SameModule: a.Module.Hash == b.Module.Hash, Estimate: [2]Estimate{a.Estimate, b.Estimate},
		Fields: fieldChanges(a, b), Shares: shareChanges(a, b), Moves: []Move{}, Costs: []CostChange{},
		Fates: []FateChange{}}
	if !d.SameModule {
		return d
	}
	d.Moves = moves(a, b)
	d.Identical = len(d.Moves) == 0 && sameRegions(a, b)
	d.costs(a, b)
	d.fates(a, b)
	return d
}

func fieldChanges(a, b *Plan) []FieldChange {
	changes := []FieldChange{}
	add := func(field, from, to string) {
		if from != to {
			changes = append(changes, FieldChange{field, from, to})
		}
	}
	add("module", a.Module.Name, b.Module.Name)
	add("module hash", a.Module.Hash, b.Module.Hash)
	ea, eb := a.Environment, b.Environment
	add("target", ea.Target, eb.Target)
	add("device", ea.Device, eb.Device)
	add("TVM", ea.TVM, eb.TVM)
	add("threads", fmt.Sprint(ea.Threads), fmt.Sprint(eb.Threads))
	add("options", ea.Options, eb.Options)
	for _, name := range backendNames(a, b) {
		add("backend "+name, libraryText(a.Backend(name)), libraryText(b.Backend(name)))
	}
	ca, cb := constraintsOf(a), constraintsOf(b)
	add("pinned", strings.Join(ca.Pin, ", "), strings.Join(cb.Pin, ", "))
	add("exact", exactText(ca), exactText(cb))
	add("forbidden", strings.Join(ca.Forbid, ", "), strings.Join(cb.Forbid, ", "))
	pa, pb := precisionOf(a), precisionOf(b)
	add("precision", pa.Allowed, pb.Allowed)
	add("error allowed", limitText(pa), limitText(pb))
	add("price of errors", pa.Lagrangian.text(), pb.Lagrangian.text())
	add("calibration", calibrationText(pa), calibrationText(pb))
	add("calibration method", pa.Method, pb.Method)
	add("biases", pa.biasesText(), pb.biasesText())
	add("scales", scalesText(a, b), scalesText(b, a))
	add("level", a.Level, b.Level)
	add("proven", provenText(a), provenText(b))
	return changes
}

// biasesText says whether biases are corrected.
func (p *Precision) biasesText() string {
	if p.Biases == nil || !p.Biases.Corrected {
		return "as they are"
	}
	return "corrected"
}

// provenText says how near to the cheapest a plan proves its placement to be, by the costs of candidates alone, and by
// what a search among whole networks ended with.
func provenText(p *Plan) string {
	proof, err := p.Prove()
	text := "nothing"
	switch {
	case errors.Is(err, ErrNotProven):
	case err != nil:
		return "its proof does not hold: " + err.Error()
	default:
		text = proof.text()
	}
	if proof.Believed != nil {
		text += "; in place: " + proof.Believed.text()
	}
	return text
}

func (p Proof) text() string {
	if p.Gap() == 0 {
		return "the cheapest"
	}
	return fmt.Sprintf("within %.3g ms of the cheapest", p.Gap())
}

// precisionOf is what a plan says of its budget of errors; that of none is float32's tolerance.
func precisionOf(p *Plan) Precision {
	if p.Precision == nil {
		return Precision{Allowed: "f32"}
	}
	return *p.Precision
}

func limitText(p Precision) string {
	if p.MaxError == 0 {
		return ""
	}
	return fmt.Sprintf("%g (%s)", p.MaxError, cost.MeasureText(p.Measure))
}

func calibrationText(p Precision) string {
	switch {
	case p.MaxError == 0:
		return ""
	case p.Calibration == "":
		return "random inputs"
	}
	return p.Calibration
}

// scalesText says how many values a plan has rounded by scales of its own, how many of them by other ones than another
// plan has, and the first of these.
func scalesText(p, other *Plan) string {
	steps := func(p *Plan) map[Rounded]bool {
		all := map[Rounded]bool{}
		for i := range p.Regions {
			for _, v := range p.Regions[i].Rounded {
				all[v] = true
			}
		}
		return all
	}
	mine, theirs := steps(p), steps(other)
	var own []Rounded
	for v := range mine {
		if !theirs[v] {
			own = append(own, v)
		}
	}
	text := fmt.Sprintf("%d values", len(mine))
	if len(own) == 0 {
		return text
	}
	first := slices.MinFunc(own, func(a, b Rounded) int { return cmp.Compare(a.Value, b.Value) })
	return fmt.Sprintf("%s, %d by other steps: %%%d by %g", text, len(own), first.Value, first.Scale)
}

func exactText(c Constraints) string {
	if c.Exact {
		return "yes"
	}
	return "no"
}

func constraintsOf(p *Plan) Constraints {
	if p.Constraints == nil {
		return Constraints{}
	}
	return *p.Constraints
}

func libraryText(b *Backend) string {
	if b == nil {
		return ""
	}
	if b.Unusable != "" {
		return "left out: " + b.Unusable
	}
	return strings.Join(append([]string{b.Library, b.Version}, b.Features...), " ")
}

// backendNames are those of both plans, the first one's first.
func backendNames(a, b *Plan) []string {
	var names []string
	for _, p := range []*Plan{a, b} {
		for _, backend := range p.Backends {
			if !slices.Contains(names, backend.Name) {
				names = append(names, backend.Name)
			}
		}
	}
	return names
}

func shareChanges(a, b *Plan) []ShareChange {
	var changes []ShareChange
	for _, name := range backendNames(a, b) {
		change := ShareChange{Backend: name}
		for i, p := range []*Plan{a, b} {
			if s := p.Backend(name); s != nil {
				change.Operators[i], change.Regions[i], change.Estimate[i] = s.Operators, s.Regions, s.Milliseconds
			}
		}
		changes = append(changes, change)
	}
	return changes
}

// spot is where a node is placed.
type spot struct {
	region    *Region
	candidate *Candidate
}

func (s spot) side() Side {
	side := Side{Backend: s.region.BackendOf(s.candidate), Composite: s.candidate.Composite,
		Estimate: s.candidate.Milliseconds,
		Region:   s.region.ID}
	for _, n := range s.candidate.Nodes {
		side.Nodes = append(side.Nodes, n.Index)
	}
	return side
}

func (p *Plan) spots() map[at]spot {
	spots := map[at]spot{}
	for i := range p.Regions {
		r := &p.Regions[i]
		for k := range r.Candidates {
			for _, n := range r.Candidates[k].Nodes {
				spots[at{r.Function, n.Index}] = spot{r, &r.Candidates[k]}
			}
		}
	}
	return spots
}

// moves gives the nodes that are in another candidate, those that went from one to one together. Tuples and projections
// that nothing else goes with are left out.
func moves(a, b *Plan) []Move {
	now := b.spots()
	found := []Move{}
	for i := range a.Regions {
		r := &a.Regions[i]
		for k := range r.Candidates {
			from := spot{r, &r.Candidates[k]}
			var order []*Candidate
			together := map[*Candidate]*Move{}
			for _, n := range r.Candidates[k].Nodes {
				to, ok := now[at{r.Function, n.Index}]
				if !ok || same(from, to) {
					continue
				}
				m := together[to.candidate]
				if m == nil {
					m = &Move{Function: r.Function, From: from.side(), To: to.side(), Operators: []string{}}
					m.Exchange = a.exchangeOf(r.Function, to)
					together[to.candidate] = m
					order = append(order, to.candidate)
				}
				m.Nodes = append(m.Nodes, n.Index)
				if n.IsOperator() {
					m.Operators = append(m.Operators, n.Operator)
				}
			}
			for _, to := range order {
				if m := together[to]; len(m.Operators) > 0 {
					found = append(found, *m)
				}
			}
		}
	}
	return found
}

// same says that two candidates are the same choice.
func same(a, b spot) bool {
	return a.region.BackendOf(a.candidate) == b.region.BackendOf(b.candidate) &&
		a.candidate.Composite == b.candidate.Composite &&
		slices.EqualFunc(a.candidate.Nodes, b.candidate.Nodes, func(x, y Node) bool { return x.Index == y.Index })
}

// sameRegions says that the same candidates are joined into regions.
func sameRegions(a, b *Plan) bool {
	return slices.EqualFunc(a.Regions, b.Regions, func(x, y Region) bool {
		return x.Function == y.Function && slices.EqualFunc(x.Candidates, y.Candidates, func(c, d Candidate) bool {
			return same(spot{&x, &c}, spot{&y, &d})
		})
	})
}

// known is what a plan knows of one candidate.
type known struct {
	place     Place
	operators []string
	backend   string
	composite string
	key       string
	estimate  float64
	chosen    bool
	bounded   bool
}

// candidates are all that could have been placed, by what they are and where.
func (p *Plan) candidates() (order []string, all map[string]known) {
	all = map[string]known{}
	names := map[at]string{}
	put := func(k known) {
		id := fmt.Sprint(k.place.Function, " ", k.backend, " ", k.composite, " ", k.place.Nodes)
		order = append(order, id)
		all[id] = k
	}
	for i := range p.Regions {
		r := &p.Regions[i]
		for k := range r.Candidates {
			c := &r.Candidates[k]
			side := spot{r, c}.side()
			for _, n := range c.Nodes {
				names[at{r.Function, n.Index}] = n.Operator
			}
			put(known{place: Place{r.Function, side.Nodes[len(side.Nodes)-1], side.Nodes}, operators: c.Operators(),
				backend: side.Backend, composite: c.Composite, key: c.Key, estimate: c.Milliseconds, chosen: true})
		}
	}
	for _, r := range p.Candidates.Rejected {
		if len(r.Nodes) == 0 {
			continue
		}
		var operators []string
		for _, v := range r.Nodes {
			if n := (Node{Operator: names[at{r.Function, v}]}); n.Operator != "" && n.IsOperator() {
				operators = append(operators, n.Operator)
			}
		}
		put(known{place: Place{r.Function, r.Nodes[len(r.Nodes)-1], r.Nodes}, operators: operators, backend: r.Backend,
			composite: r.Composite, key: r.Key, estimate: r.Milliseconds, bounded: r.Origin == cost.Bounded})
	}
	return order, all
}

func (d *Difference) costs(a, b *Plan) {
	orderA, knownA := a.candidates()
	_, knownB := b.candidates()
	index := map[string]int{}
	for _, id := range orderA {
		x := knownA[id]
		y, both := knownB[id]
		if !both {
			d.Only[0]++
			continue
		}
		if x.estimate == y.estimate || x.bounded || y.bounded {
			continue
		}
		group := fmt.Sprint(x.backend, " ", x.composite, " ", x.key, " ", x.estimate, " ", y.estimate)
		k, ok := index[group]
		if !ok {
			k = len(d.Costs)
			index[group] = k
			d.Costs = append(d.Costs, CostChange{Backend: x.backend, Composite: x.composite, Operators: x.operators,
				Estimate: [2]float64{x.estimate, y.estimate}})
		}
		c := &d.Costs[k]
		c.Places = append(c.Places, x.place)
		c.Chosen = [2]bool{c.Chosen[0] || x.chosen, c.Chosen[1] || y.chosen}
	}
	d.Only[1] = len(knownB) - (len(knownA) - d.Only[0])
	weight := func(c CostChange) float64 {
		return float64(len(c.Places)) * math.Abs(c.Estimate[1]-c.Estimate[0])
	}
	slices.SortStableFunc(d.Costs, func(x, y CostChange) int { return cmp.Compare(weight(y), weight(x)) })
}

func (d *Difference) fates(a, b *Plan) {
	type id struct{ backend, composite, key string }
	tried := func(p *Plan) map[id]*Failure {
		all := map[id]*Failure{}
		for i := range p.Regions {
			for k := range p.Regions[i].Candidates {
				c := &p.Regions[i].Candidates[k]
				all[id{p.Regions[i].BackendOf(c), c.Composite, c.Key}] = nil
			}
		}
		for _, r := range p.Candidates.Rejected {
			all[id{r.Backend, r.Composite, r.Key}] = nil
		}
		for i := range p.Candidates.Failures {
			f := &p.Candidates.Failures[i]
			all[id{f.Backend, f.Composite, f.Key}] = f
		}
		return all
	}
	inA, inB := tried(a), tried(b)
	for _, f := range a.Candidates.Failures {
		if other, both := inB[id{f.Backend, f.Composite, f.Key}]; both && other == nil {
			d.Fates = append(d.Fates, FateChange{f.Backend, f.Composite, f.Operators, &f.Failure, nil})
		}
	}
	for _, f := range b.Candidates.Failures {
		if other, both := inA[id{f.Backend, f.Composite, f.Key}]; both && other == nil {
			d.Fates = append(d.Fates, FateChange{f.Backend, f.Composite, f.Operators, nil, &f.Failure})
		}
	}
}
