// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/border"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// Builder makes a plan, function by function.
type Builder struct {
	plan     *Plan
	failures map[[3]string]int  // (backend, composite, key) -> index into Failures
	refusals map[[3]string]int  // (backend, composite, reason) -> index into Refusals
	distinct map[[3]string]bool // (backend, composite, key) of what is not free
	total    float64
	bound    float64
	overhead float64
	// transfers is the part of total that borders cost.
	transfers float64
	// believed is the sum of the functions' beliefs; nil without one.
	believed *Believed
	// searched: every function's placement was searched for. proven: the prices prove every one.
	searched, proven bool
}

// NewBuilder begins a plan. The environment's Library is dropped: each backend has its own.
func NewBuilder(module Module, environment cost.Environment, backends []byoc.Backend) *Builder {
	environment.Library = ""
	p := &Plan{Schema: Schema, Module: module, Environment: environment}
	p.Module.Functions = slices.Clone(module.Functions)
	for _, b := range backends {
		p.Backends = append(p.Backends, NewBackend(b))
	}
	return &Builder{plan: p, failures: map[[3]string]int{}, refusals: map[[3]string]int{},
		distinct: map[[3]string]bool{}, searched: true, proven: true}
}

// Placed is one function with what was decided about it.
type Placed struct {
	Set *candidate.Set
	// Costs are those of Set.Candidates, in that order; those of free candidates are not looked at.
	Costs []cost.Cost
	// Options are what was solved, in the same order: their costs are what was placed with.
	Options []place.Option
	// Solution is what the solver gave. One without prices (a placement that nobody searched for) is recorded as not
	// proven.
	Solution *place.Solution
	// Excluded are candidates that the constraints ruled out; they are not in the set.
	Excluded []Excluded
	// Borders are what was charged between the options; nil for nothing.
	Borders *Borders
	// Belief is what a search among whole networks ended with; nil for nothing.
	Belief *Belief
	// Groups say which of the chosen candidates were joined into one region. A chosen candidate in none of them is a
	// region by itself, without a symbol.
	Groups []Group
	// Context, if not nil, is what candidate k took in place, in each network that was profiled with it; unknown
	// where it was in none.
	Context func(k int) cost.Cost
}

// Borders are the costs between the regions of one function.
type Borders struct {
	Values []Border
	// Flow says who reads what.
	Flow *border.Flow
	// Apart are those of the backends with borders whose neighbours do not share a region.
	Apart []string
}

// Belief is what is believed about one function at the end of a search among whole networks.
type Belief struct {
	// Costs are those of the candidates, in milliseconds, as the solver took them; Prices those of the nodes.
	Costs, Prices []float64
	// Bound is what no placement takes less than, in milliseconds.
	Bound float64
	// Flow, Ends, Inline and Side say what is paid between regions (package border).
	Flow   *border.Flow
	Ends   border.Ends
	Inline border.Side
	Side   func(backend string) border.Side
}

// Group is a region that is outlined.
type Group struct {
	// Symbol is the region's global_symbol.
	Symbol string
	// Candidates are indices into the set's candidates, all chosen and on one backend, or on backends that share
	// regions.
	Candidates []int
	// Steps are the region's (annotate.Region).
	Steps map[relay.NodeID]rounding.Steps
	// Shifts are the region's, too.
	Shifts map[relay.NodeID][]float32
}

// Add records one function.
func (b *Builder) Add(f *Placed) error {
	set := f.Set
	if len(f.Costs) != len(set.Candidates) || len(f.Options) != len(set.Candidates) {
		return fmt.Errorf("plan: function %s has %d candidates, %d costs and %d options",
			set.Graph.Name, len(set.Candidates), len(f.Costs), len(f.Options))
	}
	function := Function{Name: set.Graph.Name, Nodes: len(set.Graph.Nodes)}
	b.count(f)
	for _, r := range b.regions(f) {
		if err := r.addTo(b.plan.Backend); err != nil {
			return fmt.Errorf("plan: function %s has a region on %s, which was not offered: %w", function.Name,
				r.Backend, err)
		}
		function.Operators += len(r.Operators())
		r.ID = len(b.plan.Regions)
		b.plan.Regions = append(b.plan.Regions, r)
	}
	b.plan.Module.Functions = append(b.plan.Module.Functions, function)
	b.total += f.Solution.Cost
	if f.Belief != nil {
		b.believe(function, f.Belief)
	}
	if f.Borders != nil {
		for _, name := range f.Borders.Apart {
			if backend := b.plan.Backend(name); backend != nil {
				backend.Apart = true
			}
		}
		b.plan.Borders = append(b.plan.Borders, f.Borders.Values...)
		b.transfers += f.Solution.Cost
		for _, i := range f.Solution.Chosen {
			b.transfers -= f.Options[i].Cost
		}
	}
	prices := 0.0
	for _, y := range f.Solution.Prices {
		prices += y
	}
	// Where costs between neighbours play a part, the prices are not the whole proof (place.Problem).
	b.proven = b.proven && f.Solution.Prices != nil && round(prices) == round(f.Solution.Cost)
	for _, i := range f.Solution.Chosen {
		// A sum of lower bounds is nobody's cost.
		b.proven = b.proven && (f.Costs[i].Origin != cost.Bounded || set.Candidates[i].Free)
	}
	b.searched = b.searched && f.Solution.Prices != nil
	b.bound += max(prices, f.Solution.LowerBound)
	return nil
}

// LeaveOut records a backend that was asked for and cannot be used, and why.
func (b *Builder) LeaveOut(backend byoc.Backend, reason string) {
	entry := NewBackend(backend)
	entry.Unusable = reason
	b.plan.Backends = append(b.plan.Backends, entry)
}

// Tie records places where the order of the candidates is not clear.
func (b *Builder) Tie(places int) { b.plan.Candidates.Ties += places }

// Constrain records what the placement had to keep to.
func (b *Builder) Constrain(c Constraints) {
	if len(c.Pin)+len(c.Forbid) > 0 || c.Exact {
		b.plan.Constraints = &Constraints{Pin: slices.Clone(c.Pin), Forbid: slices.Clone(c.Forbid), Exact: c.Exact}
	}
}

// TestBounds records of how many computations both a cost and a lower bound are known, and how many of these bounds
// were wrong.
func (b *Builder) TestBounds(tested, wrong int) {
	b.plan.Candidates.Tested, b.plan.Candidates.Wrong = tested, wrong
}

// SetLevel records how far the search went (Plan.Level).
func (b *Builder) SetLevel(level string) { b.plan.Level = level }

// SetOverhead records what was added to each candidate's cost in Placed.Options.
func (b *Builder) SetOverhead(ms float64) { b.overhead = ms }

// believe adds what is believed about a function whose regions stand in the plan. What costs nothing is listed, too:
// whoever reads the plan can see that nothing is missing.
func (b *Builder) believe(f Function, belief *Belief) {
	if b.believed == nil {
		b.believed = &Believed{}
	}
	all := b.believed
	regions := b.plan.regionsOf(f, belief.Inline, belief.Side)
	paid := int64(0)
	belief.Flow.Each(regions, func(p border.Payment) {
		ps := belief.Ends.Of(p, regions)
		paid += ps
		all.Payments = append(all.Payments, Payment{Function: f.Name, Value: int(p.Value), Region: int(p.Region) - 1,
			Out:          p.Out,
			Milliseconds: float64(ps) / 1e9})
	})
	all.Transfers += float64(paid) / 1e9
	all.Milliseconds += float64(paid) / 1e9
	for i := range b.plan.Regions {
		if r := &b.plan.Regions[i]; r.Function == f.Name {
			for _, c := range r.Candidates {
				all.Milliseconds += c.Believed
			}
		}
	}
	for _, y := range belief.Prices {
		all.Proven += y
	}
	all.Bound += belief.Bound
}

// believes is what the plan's placement takes by what was believed. The bound is no more than that: a search may have
// found a cheaper placement than the solver.
func (b *Builder) believes() *Believed {
	all := *b.believed
	all.Milliseconds, all.Transfers, all.Proven = round(all.Milliseconds), round(all.Transfers), round(all.Proven)
	all.Bound = round(min(max(all.Bound, all.Proven), all.Milliseconds))
	all.Gap = round(all.Milliseconds - all.Bound)
	return &all
}

// Plan ends the plan and checks it.
func (b *Builder) Plan() (*Plan, error) {
	p := b.plan
	p.Estimate = Estimate{Milliseconds: round(b.total), Optimal: b.proven, Overhead: b.overhead,
		Transfers: round(max(0, b.transfers))}
	if b.searched {
		p.Estimate.Bound = round(b.bound)
		p.Estimate.Gap = round(b.total - b.bound)
	}
	for i := range p.Backends {
		p.Backends[i].Milliseconds = round(p.Backends[i].Milliseconds)
	}
	p.Candidates.Distinct = len(b.distinct)
	if b.believed != nil {
		p.GraphLevel = &GraphLevel{Networks: []Network{}, Believed: b.believes()}
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// round takes milliseconds to whole picoseconds, the solver's unit, so that sums print as what they are.
func round(ms float64) float64 {
	ms = math.Round(ms*1e9) / 1e9
	if ms == 0 {
		return 0 // not -0
	}
	return ms
}

// regions makes the regions in the order of their last nodes.
func (b *Builder) regions(f *Placed) []Region {
	g, set := f.Set.Graph, f.Set
	tree := g.PostDominators()
	reads := border.FlowOf(f.Set.Graph).Reads()
	grouped := map[int]bool{}
	groups := slices.Clone(f.Groups)
	for _, group := range groups {
		for _, i := range group.Candidates {
			grouped[i] = true
		}
	}
	for _, i := range f.Solution.Chosen {
		if !grouped[i] {
			groups = append(groups, Group{Candidates: []int{i}})
		}
	}
	last := func(group Group) relay.NodeID {
		root := relay.NoNode
		for _, i := range group.Candidates {
			root = max(root, set.Candidates[i].Root)
		}
		return root
	}
	slices.SortFunc(groups, func(a, b Group) int { return int(last(a) - last(b)) })
	regions := make([]Region, 0, len(groups))
	for _, group := range groups {
		chosen := slices.Clone(group.Candidates)
		slices.SortFunc(chosen, func(i, j int) int { return int(set.Candidates[i].Root - set.Candidates[j].Root) })
		r := Region{Function: g.Name, Symbol: group.Symbol, Backend: annotate.BackendNames(set, chosen),
			Rounded: roundedOf(group.Steps), Corrected: correctedOf(group.Shifts)}
		for _, i := range chosen {
			c := &set.Candidates[i]
			part := Candidate{Composite: c.Composite, Kernel: c.Kernel, Reassociates: c.Reassociates, Key: c.Key,
				Milliseconds: round(f.Options[i].Cost), Cost: f.Costs[i]}
			if c.Backend != r.Backend {
				part.Backend = c.Backend
			}
			if c.Free {
				part.Cost = cost.FromMilliseconds(0)
			}
			// The store has these; a plan is the same whenever and from whichever network its costs were measured.
			part.Cost.Taken, part.Cost.Computation = time.Time{}, ""
			if f.Belief != nil {
				part.Believed = round(f.Belief.Costs[i])
			}
			if f.Context != nil && !c.Free {
				if seen := f.Context(i); seen.Known() {
					part.Context = round(seen.Estimate())
					if low, high := seen.Interval(); len(seen.Samples) > 1 {
						part.ContextLow, part.ContextHigh, part.Profiles = round(low), round(high), len(seen.Samples)
					}
				}
			}
			for _, v := range c.Nodes {
				n := &g.Nodes[v]
				node := Node{Index: int(v), Operator: candidate.OperatorName(n), Span: SpanText(n.Span),
					PostDominator: int(tree.Parent(v))}
				if n.Type != nil {
					node.Type = n.Type.String()
				}
				if f.Solution.Prices != nil {
					node.Price = round(f.Solution.Prices[v])
				}
				node.Reads, node.Result = indices(reads[v]), g.ScopeRoot(v)
				if f.Belief != nil {
					node.Believed = round(f.Belief.Prices[v])
				}
				part.Nodes = append(part.Nodes, node)
			}
			r.Milliseconds += part.Milliseconds
			r.Candidates = append(r.Candidates, part)
		}
		r.Milliseconds = round(r.Milliseconds)
		if b.plan.deviceOf(&r) != "" {
			var nodes []relay.NodeID
			for _, i := range chosen {
				nodes = append(nodes, set.Candidates[i].Nodes...)
			}
			slices.Sort(nodes)
			r.Copies = copiesOf(g, nodes)
		}
		regions = append(regions, r)
	}
	return regions
}

// count records what became of a function's candidates.
func (b *Builder) count(f *Placed) {
	g, counts := f.Set.Graph, &b.plan.Candidates
	chosen := map[int]bool{}
	for _, i := range f.Solution.Chosen {
		chosen[i] = true
	}
	counts.Proposed += len(f.Set.Candidates) + len(f.Excluded)
	counts.Excluded = append(counts.Excluded, f.Excluded...)
	for i := range f.Set.Candidates {
		c, known := &f.Set.Candidates[i], f.Costs[i]
		if c.Free {
			counts.Free++
			known = cost.FromMilliseconds(0)
		} else if key := [3]string{c.Backend, c.Composite, c.Key}; !b.distinct[key] {
			b.distinct[key] = true
			counts.countOrigin(known)
		}
		switch {
		case known.Failure != nil:
			b.fail(g, c, known.Failure)
		case !chosen[i] && !math.IsInf(f.Options[i].Cost, 1):
			counts.Rejected = append(counts.Rejected, reject(f, i, known))
		}
	}
	for _, r := range f.Set.Refusals {
		key := [3]string{r.Backend, r.Composite, r.Reason}
		at, ok := b.refusals[key]
		if !ok {
			at = len(counts.Refusals)
			b.refusals[key] = at
			counts.Refusals = append(counts.Refusals,
				Refusal{Backend: r.Backend, Composite: r.Composite, Reason: r.Reason})
		}
		counts.Refusals[at].Places = append(counts.Refusals[at].Places, Place{Function: g.Name, Index: int(r.Node)})
	}
}

func (c *Candidates) countOrigin(known cost.Cost) {
	switch {
	case known.Failure == nil && len(known.Samples) == 0:
		c.Unknown++
	case known.Origin == cost.Measured:
		c.Measured++
	case known.Origin == cost.Stored:
		c.Stored++
	case known.Origin == cost.Bounded:
		c.Bounded++
	case known.Origin == cost.Context:
		c.InPlace++
	default:
		c.Given++
	}
}

// reject describes candidate i, which could have been placed.
func reject(f *Placed, i int, known cost.Cost) Rejected {
	c := &f.Set.Candidates[i]
	r := Rejected{Function: f.Set.Graph.Name, Backend: c.Backend, Composite: c.Composite, Kernel: c.Kernel,
		Nodes: indices(c.Nodes),
		Key:   c.Key, Milliseconds: round(f.Options[i].Cost), Origin: known.Origin}
	if known.Origin != cost.Bounded && len(known.Samples) > 1 {
		low, high := known.Interval()
		charged := f.Options[i].Cost - known.Estimate() // the overhead
		r.Low, r.High = round(low+charged), round(high+charged)
	}
	if f.Solution.Prices != nil {
		r.Slack = round(f.Solution.Slack(f.Options[i]))
	}
	if f.Belief != nil {
		r.Believed = round(f.Belief.Costs[i])
	}
	return r
}

func indices(nodes []relay.NodeID) []int {
	out := make([]int, len(nodes))
	for k, v := range nodes {
		out[k] = int(v)
	}
	return out
}

func (b *Builder) fail(g *relay.Graph, c *candidate.Candidate, failure *cost.Failure) {
	counts := &b.plan.Candidates
	key := [3]string{c.Backend, c.Composite, c.Key}
	at, ok := b.failures[key]
	if !ok {
		at = len(counts.Failures)
		b.failures[key] = at
		entry := Failure{Backend: c.Backend, Composite: c.Composite, Key: c.Key, Failure: *failure}
		entry.Failure.Detail = strings.TrimSpace(entry.Failure.Detail)
		for _, v := range c.Nodes {
			if n := &g.Nodes[v]; candidate.IsOperator(n) {
				entry.Operators = append(entry.Operators, n.Op)
			}
		}
		counts.Failures = append(counts.Failures, entry)
		counts.Failed++
	}
	counts.Failures[at].Places = append(counts.Failures[at].Places,
		Place{Function: g.Name, Index: int(c.Root), Nodes: indices(c.Nodes)})
}
