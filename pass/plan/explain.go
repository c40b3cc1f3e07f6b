// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/place"
)

// Explanation says why operators are where they are: the candidate that was chosen for them, and everything else that
// could have been. All of it comes from the plan alone.
type Explanation struct {
	Function string `json:"function"`
	// Selected are the nodes that were asked for; all are among Nodes.
	Selected []int `json:"selected"`
	// Nodes are what the chosen candidate covers, with their prices.
	Nodes []Node `json:"nodes"`
	// Region and Symbol are the region that the candidate is part of.
	Region    int       `json:"region"`
	Symbol    string    `json:"symbol,omitempty"`
	Backend   string    `json:"backend"`
	Composite string    `json:"composite,omitempty"`
	Kernel    string    `json:"kernel,omitempty"`
	Key       string    `json:"key,omitempty"`
	Estimate  float64   `json:"estimate_ms"`
	Cost      cost.Cost `json:"cost"`
	// InPlace says that Estimate is what was believed in place (Plan.PlacedInPlace, Plan.Exchanged); Context is what
	// was seen there, in milliseconds, the middle of so many Profiles where there were several, 0 where it was in no
	// network.
	InPlace  bool    `json:"in_place,omitempty"`
	Context  float64 `json:"context_ms,omitempty"`
	Profiles int     `json:"profiles,omitempty"`
	// Others are the candidates that cover a selected node and were not chosen: those that could have been placed, the
	// closest first, then those that failed, were ruled out or were refused.
	Others []Other `json:"others"`
}

// Fate says why a candidate was not chosen.
type Fate string

// The fates.
const (
	// FateDearer: it could have been placed, but not in a cheapest placement; or it is in one that is as cheap.
	FateDearer Fate = "dearer"
	// FateBounded: its cost is not known, but it is at least Estimate.
	FateBounded Fate = "bounded"
	// FateFailed, FateExcluded and FateRefused: it could not be placed at all.
	FateFailed   Fate = "failed"
	FateExcluded Fate = "excluded"
	FateRefused  Fate = "refused"
)

// Other is a candidate that was not chosen.
type Other struct {
	Fate      Fate   `json:"fate"`
	Backend   string `json:"backend"`
	Composite string `json:"composite,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	// Nodes are what it covers; of a refused match only the last is known.
	Nodes     []int    `json:"nodes"`
	Operators []string `json:"operators"`
	// Estimate is what it costs; where it is bounded, what it costs at least. 0 where it could not be placed. InPlace
	// says that it is what was believed in place (Plan.PlacedInPlace, Plan.Exchanged): where it is bounded, a guess by
	// the bounds of its like.
	Estimate float64     `json:"estimate_ms,omitempty"`
	InPlace  bool        `json:"in_place,omitempty"`
	Low      float64     `json:"low_ms,omitempty"`
	High     float64     `json:"high_ms,omitempty"`
	Origin   cost.Origin `json:"origin,omitempty"`
	// Regret is by how much it would have had to be cheaper so that some cheapest placement takes it (place.Regret); 0
	// for one that is in a placement as cheap as the plan's. nil where the plan was not searched for, where no
	// placement can hold it, and where the plan is not the cheapest by these costs, since borders or what was measured
	// decided.
	Regret *float64 `json:"regret_ms,omitempty"`
	// Exchange is what the network would take more with it, borders included (Rejected.Exchange).
	Exchange *float64 `json:"exchange_ms,omitempty"`
	// Reason says why it could not be placed.
	Reason string `json:"reason,omitempty"`
}

// Explain says why the nodes that the selector means are where they are: one explanation for each chosen candidate that
// covers one, in the plan's order. The error says that there is no such node.
func (p *Plan) Explain(s Selector) ([]Explanation, error) {
	x, err := p.explainer()
	if err != nil {
		return nil, err
	}
	only := len(p.Module.Functions) == 1
	out := x.explain(func(function string, n *Node) bool { return s.Selects(function, only, n) })
	if out == nil {
		return nil, p.noSuchNode(s)
	}
	return out, nil
}

// ExplainAll says why all nodes are where they are: one explanation for each chosen candidate, in the plan's order.
func (p *Plan) ExplainAll() ([]Explanation, error) {
	x, err := p.explainer()
	if err != nil {
		return nil, err
	}
	return x.explain(func(string, *Node) bool { return true }), nil
}

// explain has an explanation for each chosen candidate that covers a selected node, in the plan's order; nil for none.
func (x *explainer) explain(selects func(function string, n *Node) bool) (out []Explanation) {
	for i := range x.plan.Regions {
		r := &x.plan.Regions[i]
		for k := range r.Candidates {
			c := &r.Candidates[k]
			var selected []int
			for j := range c.Nodes {
				if selects(r.Function, &c.Nodes[j]) {
					selected = append(selected, c.Nodes[j].Index)
				}
			}
			if selected == nil {
				continue
			}
			nodes, estimate := slices.Clone(c.Nodes), c.Milliseconds
			if x.inPlace {
				estimate = c.Believed
				for j := range nodes {
					nodes[j].Price = nodes[j].Believed
				}
			}
			out = append(out, Explanation{Function: r.Function, Selected: selected, Nodes: nodes,
				Region: r.ID,
				Symbol: r.Symbol, Backend: r.BackendOf(c), Composite: c.Composite, Kernel: c.Kernel, Key: c.Key,
				Estimate: estimate, InPlace: x.inPlace, Context: c.Context, Profiles: c.Profiles,
				Cost: c.Cost, Others: x.others(r.Function, selected)})
		}
	}
	return out
}

// Closest are the candidates that could have been placed and were not, over the whole plan, with which the network
// would take the least more (Exchanged), or else with the least regrets: at most n. Those that cost nothing are left
// out. It is empty for a plan that was not searched for.
func (p *Plan) Closest(n int) ([]Rival, error) {
	x, err := p.explainer()
	if err != nil || !p.Estimate.Optimal && !x.inPlace {
		return nil, err
	}
	var rivals []Rival
	for i := range p.Candidates.Rejected {
		if o := x.rejected(i); o.Estimate > 0 && o.short() != nil && (o.Exchange != nil || !x.exchanged) {
			rivals = append(rivals, Rival{Function: p.Candidates.Rejected[i].Function, Other: o})
		}
	}
	slices.SortStableFunc(rivals, func(a, b Rival) int { return closer(&a.Other, &b.Other) })
	return rivals[:min(n, len(rivals))], nil
}

// closer compares two candidates by how far they were from being taken. With borders counted, those come behind of which
// no more than a bound is known: what is believed of them is a guess.
func closer(a, b *Other) int {
	guess := func(o *Other) int {
		if o.Exchange != nil && o.Fate == FateBounded {
			return 1
		}
		return 0
	}
	return cmp.Or(guess(a)-guess(b), cmp.Compare(orInfinite(a.short()), orInfinite(b.short())))
}

// short is how far it was from being taken: with borders where the plan has that; nil where nothing says it.
func (o *Other) short() *float64 {
	if o.Exchange != nil {
		return o.Exchange
	}
	return o.Regret
}

// Rival is a candidate of a function that was not chosen.
type Rival struct {
	Function string `json:"function"`
	Other
}

// explainer has what explanations are made from.
type explainer struct {
	plan      *Plan
	operators map[at]string
	// inPlace says that costs are those that were believed in place (Plan.PlacedInPlace, Plan.Exchanged), exchanged
	// that the plan has what the network would take more with other candidates.
	inPlace, exchanged bool
	// regret of each rejected candidate; nil where there is none.
	regret []*float64
	// covering are the candidates that were not chosen, by the nodes that they cover, each list in the plan's order; nil
	// until somebody asks (index).
	covering map[at][]candidateAt
}

// candidateAt is where in the plan's lists a candidate stands that was not chosen: the list (rejected, failed, excluded,
// refused, in that order), its entry, and the entry's place, where it has several.
type candidateAt struct{ list, entry, place int }

// index fills covering.
func (x *explainer) index() {
	x.covering = map[at][]candidateAt{}
	add := func(function string, nodes []int, one candidateAt) {
		for _, v := range nodes {
			x.covering[at{function, v}] = append(x.covering[at{function, v}], one)
		}
	}
	all := &x.plan.Candidates
	for i := range all.Rejected {
		add(all.Rejected[i].Function, all.Rejected[i].Nodes, candidateAt{0, i, 0})
	}
	for i := range all.Failures {
		for k, place := range all.Failures[i].Places {
			add(place.Function, place.Nodes, candidateAt{1, i, k})
		}
	}
	for i := range all.Excluded {
		add(all.Excluded[i].Function, all.Excluded[i].Nodes, candidateAt{2, i, 0})
	}
	for i := range all.Refusals {
		for k, place := range all.Refusals[i].Places {
			add(place.Function, []int{place.Index}, candidateAt{3, i, k})
		}
	}
}

// other is a candidate that was not chosen.
func (x *explainer) other(one candidateAt) Other {
	all := &x.plan.Candidates
	switch one.list {
	case 0:
		return x.rejected(one.entry)
	case 1:
		f := &all.Failures[one.entry]
		return Other{Fate: FateFailed, Backend: f.Backend, Composite: f.Composite, Nodes: f.Places[one.place].Nodes,
			Operators: f.Operators, Reason: f.Failure.String()}
	case 2:
		e := &all.Excluded[one.entry]
		return Other{Fate: FateExcluded, Backend: e.Backend, Composite: e.Composite, Kernel: e.Kernel, Nodes: e.Nodes,
			Operators: x.names(e.Function, e.Nodes), Reason: e.Constraint}
	}
	r := &all.Refusals[one.entry]
	place := r.Places[one.place]
	return Other{Fate: FateRefused, Backend: r.Backend, Composite: r.Composite, Nodes: []int{place.Index},
		Operators: x.names(place.Function, []int{place.Index}), Reason: r.Reason}
}

// believedApart is how many milliseconds apart costs in place are that are not written as the same number.
const believedApart = 1e-6

// PlacedInPlace says that the plan was placed by the costs of its candidates in place and by borders
// (GraphLevel.Believed). What Explain and Closest say of costs is then by those in place; what borders take is in it
// where the plan is Exchanged.
func (p *Plan) PlacedInPlace() bool { return p.Level == "operator" && p.believed() != nil }

func (p *Plan) explainer() (*explainer, error) {
	x := &explainer{plan: p, operators: map[at]string{}, regret: make([]*float64, len(p.Candidates.Rejected))}
	for i := range p.Regions {
		for _, c := range p.Regions[i].Candidates {
			for _, n := range c.Nodes {
				x.operators[at{p.Regions[i].Function, n.Index}] = n.Operator
			}
		}
	}
	if x.exchanged = p.Exchanged(); x.exchanged {
		x.inPlace = true
		return x, nil
	}
	if x.inPlace = p.PlacedInPlace(); !p.Estimate.Optimal && !x.inPlace {
		return x, nil
	}
	for _, f := range p.Module.Functions {
		if err := p.checkIndices(f); err != nil {
			return nil, err
		}
		options, tree, placement := p.problemBy(f, x.inPlace)
		regret, err := place.Regret(options, tree)
		if err != nil {
			return nil, fmt.Errorf("plan: function %s: %w", f.Name, err)
		}
		if x.inPlace && slices.ContainsFunc(regret[:len(placement.Chosen)], func(r float64) bool { return r > believedApart }) {
			continue // borders, or what was measured in the end, decided for something dearer
		}
		k := len(placement.Chosen) // the rejected ones stand behind the chosen ones, in the plan's order
		for i := range p.Candidates.Rejected {
			if p.Candidates.Rejected[i].Function != f.Name {
				continue
			}
			if !math.IsInf(regret[k], 1) {
				exact := round(regret[k])
				x.regret[i] = &exact
			}
			k++
		}
	}
	return x, nil
}

func (x *explainer) names(function string, nodes []int) []string {
	names := make([]string, 0, len(nodes))
	for _, v := range nodes {
		if name := x.operators[at{function, v}]; name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (x *explainer) rejected(i int) Other {
	r := &x.plan.Candidates.Rejected[i]
	o := Other{Fate: FateDearer, Backend: r.Backend, Composite: r.Composite, Kernel: r.Kernel, Nodes: r.Nodes,
		Operators: x.names(r.Function, r.Nodes), Estimate: r.Milliseconds, Low: r.Low, High: r.High, Origin: r.Origin,
		Regret: x.regret[i], Exchange: r.Exchange}
	if r.Origin == cost.Bounded {
		o.Fate = FateBounded
	}
	if x.inPlace {
		o.Estimate, o.Low, o.High, o.InPlace = r.Believed, 0, 0, true
	}
	return o
}

// others are the candidates that cover one of the selected nodes.
func (x *explainer) others(function string, selected []int) []Other {
	if x.covering == nil {
		x.index()
	}
	var found []candidateAt
	for _, v := range selected {
		found = append(found, x.covering[at{function, v}]...)
	}
	slices.SortFunc(found, func(a, b candidateAt) int {
		return cmp.Or(a.list-b.list, a.entry-b.entry, a.place-b.place)
	})
	out, rejected := []Other{}, 0
	for _, one := range slices.Compact(found) {
		out = append(out, x.other(one))
		if one.list == 0 {
			rejected++
		}
	}
	slices.SortStableFunc(out[:rejected], func(a, b Other) int {
		return cmp.Or(closer(&a, &b), cmp.Compare(a.Estimate, b.Estimate))
	})
	return out
}

func orInfinite(v *float64) float64 {
	if v == nil {
		return math.Inf(1)
	}
	return *v
}

// noSuchNode says what there is instead.
func (p *Plan) noSuchNode(s Selector) error {
	if s.Index >= 0 {
		for _, f := range p.Module.Functions {
			if s.Function == f.Name || s.Function == "" && (f.Name == "main" || len(p.Module.Functions) == 1) {
				if s.Index >= f.Nodes {
					return fmt.Errorf("there is no node %s: function %s has the nodes %%0 to %%%d", s, f.Name,
						f.Nodes-1)
				}
				return fmt.Errorf("%s is a variable or a constant: it is nowhere placed", s)
			}
		}
		names := make([]string, len(p.Module.Functions))
		for i, f := range p.Module.Functions {
			names[i] = f.Name
		}
		return fmt.Errorf("there is no node %s: the functions are %s", s, strings.Join(names, ", "))
	}
	counts := map[string]int{}
	for i := range p.Regions {
		for _, name := range p.Regions[i].Operators() {
			counts[name]++
		}
	}
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]),
			cmp.Compare(a, b))
	})
	const shown = 12
	more := ""
	if len(names) > shown {
		names, more = names[:shown], ", ..."
	}
	return fmt.Errorf("nothing in the plan is called %q: give a node (%%12), a span, or one of its operators (%s%s)",
		s.Name,
		strings.Join(names, ", "), more)
}
