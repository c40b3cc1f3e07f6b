// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
)

// Data is what the page's programs draw and look up: the network, operator by operator, and all that could have been
// placed. Times are in milliseconds.
type Data struct {
	// Backends are the names of those that were offered, in that order, which is that of their colours.
	Backends []string `json:"backends"`
	// Functions are the module's.
	Functions []string `json:"functions"`
	// Total is the sum of the parts' estimates.
	Total float64 `json:"total_ms"`
	// Guessed says that the plan is too old to tell who reads what: the lines go where paths meet again.
	Guessed bool     `json:"guessed,omitempty"`
	Regions []Region `json:"regions"`
	// Parts are the candidates that were chosen, in the order of their regions.
	Parts []Part `json:"parts"`
	// Nodes are all that are placed, function by function in ascending order, and behind them what callers give, as far
	// as something reads it.
	Nodes []Node `json:"nodes"`
	// Others are the candidates that were not chosen.
	Others []Other `json:"others"`
}

// Region is a region of the plan.
type Region struct {
	ID       int     `json:"id"`
	Function string  `json:"function"`
	Symbol   string  `json:"symbol,omitempty"`
	Backend  string  `json:"backend"`
	Text     string  `json:"text"`
	Count    int     `json:"operators"`
	Estimate float64 `json:"estimate_ms"`
	// Parts are places in Data.Parts.
	Parts []int `json:"parts"`
}

// Part is a candidate that was chosen.
type Part struct {
	// Region is a place in Data.Regions, Backend one in Data.Backends.
	Region    int    `json:"region"`
	Backend   int    `json:"backend"`
	Composite string `json:"composite,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	// Estimate is what it was placed with, Low and High enclose what it is of (90 %); both 0 where there is no interval.
	Estimate float64 `json:"estimate_ms"`
	Low      float64 `json:"low_ms,omitempty"`
	High     float64 `json:"high_ms,omitempty"`
	Evidence string  `json:"evidence"`
	// InPlace is what it took in its place in a whole network, the median of so many Profiles; 0 where it was not seen
	// there.
	InPlace  float64 `json:"in_place_ms,omitempty"`
	Profiles int     `json:"profiles,omitempty"`
	Why      string  `json:"why"`
	// Nodes are places in Data.Nodes, Others in Data.Others.
	Nodes  []int `json:"nodes"`
	Others []int `json:"others,omitempty"`
}

// Node is a node of the network.
type Node struct {
	// Name is how commands call it: "%12", "block%12".
	Name     string  `json:"name"`
	Operator string  `json:"operator"`
	Type     string  `json:"type,omitempty"`
	Span     string  `json:"span,omitempty"`
	Price    float64 `json:"price_ms"`
	// Part is a place in Data.Parts; -1 for what callers give.
	Part int `json:"part"`
	// Reads are places in Data.Nodes.
	Reads []int `json:"reads,omitempty"`
}

// Other is a candidate that was not chosen.
type Other struct {
	Fate    plan.Fate `json:"fate"`
	Name    string    `json:"name"`
	Backend string    `json:"backend"`
	Kernel  string    `json:"kernel,omitempty"`
	// Nodes are places in Data.Nodes.
	Nodes    []int   `json:"nodes"`
	Estimate float64 `json:"estimate_ms,omitempty"`
	Low      float64 `json:"low_ms,omitempty"`
	High     float64 `json:"high_ms,omitempty"`
	Verdict  string  `json:"verdict"`
}

// place is a node of a function.
type place struct {
	function string
	index    int
}

// builder makes Data of a plan.
type builder struct {
	plan *plan.Plan
	data *Data
	at   map[place]int
	// others are the places of candidates in Data.Others, by what tells them apart.
	others map[string]int
}

// newData takes from a plan what is drawn. The error is that of its costs, which do not add up.
func newData(p *plan.Plan) (*Data, error) {
	explanations, err := p.ExplainAll()
	if err != nil {
		return nil, err
	}
	b := &builder{plan: p, data: &Data{Backends: []string{}, Functions: []string{}, Regions: []Region{}, Parts: []Part{},
		Nodes: []Node{}, Others: []Other{}}, at: map[place]int{}, others: map[string]int{}}
	for _, backend := range p.Backends {
		b.data.Backends = append(b.data.Backends, backend.Name)
	}
	for _, f := range p.Module.Functions {
		b.data.Functions = append(b.data.Functions, f.Name)
	}
	b.nodes(explanations)
	b.regions(explanations)
	return b.data, nil
}

// nodes lists the nodes, and connects them.
func (b *builder) nodes(explanations []plan.Explanation) {
	type placed struct {
		plan.Node
		function int
		part     int
	}
	var all []placed
	reads := false
	for i := range explanations {
		e := &explanations[i]
		for _, n := range e.Nodes {
			all = append(all, placed{n, slices.Index(b.data.Functions, e.Function), i})
			reads = reads || len(n.Reads) > 0
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Or(a.function-b.function, a.Index-b.Index) })
	for i := range all {
		b.at[place{b.data.Functions[all[i].function], all[i].Index}] = i
	}
	for i := range all {
		n := &all[i]
		function := b.data.Functions[n.function]
		b.data.Nodes = append(b.data.Nodes, Node{Name: b.name(function, n.Index), Operator: n.Operator, Type: n.Type,
			Span: n.Span, Price: rounded(n.Price), Part: n.part})
	}
	for i := range all {
		n := &all[i]
		function := b.data.Functions[n.function]
		for _, v := range n.Reads {
			b.data.Nodes[i].Reads = append(b.data.Nodes[i].Reads, b.node(function, v))
		}
		// Of old plans no more is known than where the paths meet that begin at a node.
		if later, known := b.at[place{function, n.PostDominator}]; known && !reads {
			b.data.Guessed = true
			b.data.Nodes[later].Reads = append(b.data.Nodes[later].Reads, i)
		}
	}
}

// node is a node's place; one that is not placed is what a caller gives, and is added.
func (b *builder) node(function string, index int) int {
	at, known := b.at[place{function, index}]
	if !known {
		at = len(b.data.Nodes)
		b.at[place{function, index}] = at
		b.data.Nodes = append(b.data.Nodes, Node{Name: b.name(function, index), Operator: "(input)", Part: -1})
	}
	return at
}

// name is how commands call a node.
func (b *builder) name(function string, index int) string {
	name := "%" + strconv.Itoa(index)
	if function != "main" && len(b.data.Functions) > 1 {
		return function + name
	}
	return name
}

// regions lists the regions, their parts, and what else there was.
func (b *builder) regions(explanations []plan.Explanation) {
	total := 0.0
	for i := range b.plan.Regions {
		r := &b.plan.Regions[i]
		names := r.Operators()
		region := Region{ID: r.ID, Function: r.Function, Symbol: r.Symbol, Backend: r.Backend,
			Text: report.Operators(names), Count: len(names)}
		sum := 0.0
		for k := range r.Candidates {
			e := &explanations[len(b.data.Parts)] // there is one for each candidate, in this order
			region.Parts = append(region.Parts, len(b.data.Parts))
			part := Part{Region: i, Backend: slices.Index(b.data.Backends, e.Backend), Composite: e.Composite,
				Kernel: e.Kernel, Estimate: rounded(e.Estimate), Evidence: report.Evidence(e), Why: report.Why(e),
				InPlace: rounded(r.Candidates[k].Context), Profiles: r.Candidates[k].Profiles}
			part.Low, part.High = interval(e, &r.Candidates[k])
			for _, n := range e.Nodes {
				part.Nodes = append(part.Nodes, b.at[place{r.Function, n.Index}])
			}
			for k := range e.Others {
				part.Others = append(part.Others, b.other(r.Function, &e.Others[k]))
			}
			b.data.Parts = append(b.data.Parts, part)
			sum += e.Estimate
		}
		region.Estimate = rounded(sum)
		total += sum
		b.data.Regions = append(b.data.Regions, region)
	}
	b.data.Total = rounded(total)
}

// interval encloses what was seen of a candidate's time; 0 and 0 where there is none.
func interval(e *plan.Explanation, c *plan.Candidate) (low, high float64) {
	switch {
	case e.InPlace:
		return rounded(c.ContextLow), rounded(c.ContextHigh)
	case len(e.Cost.Samples) < 2 || e.Cost.Exact() || !e.Cost.Known() || e.Cost.Origin == cost.Bounded:
		return 0, 0
	}
	low, high = e.Cost.Interval()
	return rounded(low), rounded(high)
}

// other is the place of a candidate that was not chosen; several explanations may tell of it.
func (b *builder) other(function string, o *plan.Other) int {
	id := string(o.Fate) + " " + function + " " + o.Kernel + " " + o.Reason + " " +
		plan.RejectedID(o.Backend, o.Composite, o.Nodes)
	at, known := b.others[id]
	if known {
		return at
	}
	at = len(b.data.Others)
	b.others[id] = at
	other := Other{Fate: o.Fate, Name: report.Name(o), Backend: o.Backend, Kernel: o.Kernel, Nodes: []int{},
		Estimate: rounded(o.Estimate), Low: rounded(o.Low), High: rounded(o.High), Verdict: report.Verdict(o)}
	for _, v := range o.Nodes {
		other.Nodes = append(other.Nodes, b.node(function, v))
	}
	b.data.Others = append(b.data.Others, other)
	return at
}

// rounded leaves nanoseconds of milliseconds.
func rounded(ms float64) float64 { return math.Round(ms*1e6) / 1e6 }
