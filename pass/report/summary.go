// SPDX-License-Identifier: Apache-2.0

// Package report shows a plan to people and to scripts.
//
// What comes in: a plan.Plan. What goes out: a Summary of it, as JSON (WriteJSON) or as text tables (WriteText): the
// regions with their operators, backends and estimated times; how many operators went where; what became of the
// candidates; and the finalists' measured times beside the estimates.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/plan"
)

// Summary is what a report says. All times are in milliseconds.
type Summary struct {
	Module    string `json:"module"`
	Target    string `json:"target"`
	Device    string `json:"device"`
	TVM       string `json:"tvm"`
	Threads   int    `json:"threads"`
	Operators int    `json:"operators"`
	// Level is as in the plan: how far the search went; "" in plans that do not say it.
	Level string `json:"level,omitempty"`
	// Precision is as in the plan: in which types parts were allowed to be computed, and how far outputs to be off.
	Precision *plan.Precision `json:"precision,omitempty"`
	// Frontier are the networks of the search that none is both faster and less far off than, the most exact first;
	// empty where errors were not taken.
	Frontier []FrontierPoint `json:"frontier,omitempty"`
	// Exact says that kernels which associate sums otherwise than a direct sum does were not offered.
	Exact bool `json:"exact,omitempty"`
	// Regions are in the plan's order. Those without operators (tuples, projections) are among them.
	Regions  []Region  `json:"regions"`
	Backends []Backend `json:"backends"`
	// Copies are what one call copies to devices and from there, by the kind of device; empty where all runs on the
	// processor.
	Copies     map[string]plan.Copies `json:"copies,omitempty"`
	Candidates Candidates             `json:"candidates"`
	// GraphLevel is what the search among whole networks did; nil where there was none.
	GraphLevel *plan.GraphLevel `json:"graph_level,omitempty"`
	// PlacedBy says what is known of the parts that were placed where whole networks were run; nil where none was.
	PlacedBy *PlacedBy `json:"placed_by,omitempty"`
	// Finalists are in the plan's order; empty where no whole network was run.
	Finalists []Finalist `json:"finalists,omitempty"`
	// Reference is the finalist that ratios are taken against: the fastest backend alone; "" where there is none.
	Reference string `json:"reference,omitempty"`
	Times     Times  `json:"times"`
}

// PlacedBy counts the parts that were placed, but for those that cost nothing, by what is known of how long they take.
type PlacedBy struct {
	// InPlace were timed within whole networks, Alone were measured by themselves and in no network, and of the Bounded
	// no more is known than a lower bound.
	InPlace int `json:"in_place"`
	Alone   int `json:"alone"`
	Bounded int `json:"bounded"`
}

// placedBy counts the parts of a plan; nil where no whole network was run.
func placedBy(p *plan.Plan) *PlacedBy {
	if p.GraphLevel == nil {
		return nil
	}
	by := &PlacedBy{}
	for i := range p.Regions {
		for _, c := range p.Regions[i].Candidates {
			switch {
			case c.Context > 0:
				by.InPlace++
			case c.Milliseconds == 0:
			case c.Cost.Origin == cost.Bounded:
				by.Bounded++
			default:
				by.Alone++
			}
		}
	}
	return by
}

// Region is one row of the first table.
type Region struct {
	ID        int      `json:"region"`
	Function  string   `json:"function"`
	Symbol    string   `json:"symbol,omitempty"`
	Backend   string   `json:"backend"`
	Operators []string `json:"operators"`
	Estimate  float64  `json:"estimate_ms"`
	// Parts are the candidates that were joined into the region.
	Parts []Part `json:"parts"`
	// Key is the same for regions that compute the same on the same backend.
	Key string `json:"-"`
}

// Part is one candidate of a region.
type Part struct {
	// Backend is the part's in a region that several share; "" where it is the region's.
	Backend string `json:"backend,omitempty"`
	// Composite is the pattern's name; "" for TVM. Kernel is what runs it, where that has a name.
	Composite string   `json:"composite,omitempty"`
	Kernel    string   `json:"kernel,omitempty"`
	Operators []string `json:"operators"`
	// Nodes are the indices of the operators, as in Operators.
	Nodes    []int   `json:"nodes"`
	Estimate float64 `json:"estimate_ms"`
}

// Backend is a backend's share.
type Backend struct {
	Name    string `json:"name"`
	Library string `json:"library"`
	Version string `json:"version"`
	// Declared says by whom its costs are declared; "" where they are measured.
	Declared string `json:"declared,omitempty"`
	// Unusable says why the backend was left out; "" for one that was offered.
	Unusable  string  `json:"unusable,omitempty"`
	Regions   int     `json:"regions"`
	Operators int     `json:"operators"`
	Estimate  float64 `json:"estimate_ms"`
	// Kernels counts the candidates that each of its kernels runs, by name; those without a name are not among them.
	Kernels map[string]int `json:"kernels,omitempty"`
}

// Candidates says what became of the candidates. Proposed, Free and Excluded count candidates, the others different
// computations (plan.Candidates).
type Candidates struct {
	Proposed int `json:"proposed"`
	Free     int `json:"free"`
	Distinct int `json:"distinct"`
	Given    int `json:"given"`
	Stored   int `json:"stored"`
	Measured int `json:"measured"`
	Bounded  int `json:"bounded"`
	Tested   int `json:"bounds_tested,omitempty"`
	Wrong    int `json:"bounds_wrong,omitempty"`
	InPlace  int `json:"in_place,omitempty"`
	Unknown  int `json:"unknown"`
	Failed   int `json:"failed"`
	Excluded int `json:"excluded"`
	Ties     int `json:"ties"`
	// Failures and Refusals are as in the plan.
	Failures []plan.Failure `json:"failures,omitempty"`
	Refusals []plan.Refusal `json:"refusals,omitempty"`
}

// Finalist is a whole network that was run.
type Finalist struct {
	Name string `json:"name"`
	// Origin and Regions are as in the plan: what the search called it, and what it has outside of TVM.
	Origin  string  `json:"origin,omitempty"`
	Regions int     `json:"regions"`
	Rounds  int     `json:"rounds"`
	Median  float64 `json:"median_ms,omitempty"`
	// LowerQuartile is the number that is compared, Low and High its 90 % confidence interval.
	LowerQuartile float64 `json:"lower_quartile_ms,omitempty"`
	Low           float64 `json:"low_ms,omitempty"`
	High          float64 `json:"high_ms,omitempty"`
	// Ratio is the median over the rounds that both ran in of this finalist's time divided by the reference's in the
	// same round: 0.8 is a fifth less time. 0 where there is no reference.
	Ratio    float64 `json:"ratio,omitempty"`
	MaxError float64 `json:"max_error"`
	// Error is as in the plan: how far its outputs are off in the measure of Summary.Precision.
	Error    float64 `json:"error,omitempty"`
	Estimate float64 `json:"estimate_ms,omitempty"`
	// Bytes, Resident and Peak are as in the plan: the executable's size, and what it takes of memory.
	Bytes    int64         `json:"bytes,omitempty"`
	Resident int64         `json:"resident_bytes,omitempty"`
	Peak     int64         `json:"peak_bytes,omitempty"`
	Failure  *cost.Failure `json:"failure,omitempty"`
	Chosen   bool          `json:"chosen"`
}

// Times are the three numbers that must not be taken for each other.
type Times struct {
	// Bound: no placement of these candidates has a smaller sum; 0 where nothing is proven.
	Bound float64 `json:"additive_bound_ms"`
	// Estimate: the sum of the placed parts, each measured by itself.
	Estimate float64 `json:"additive_estimate_ms"`
	// Measured: the median of the whole network's runs; 0 where it was not run.
	Measured float64 `json:"measured_ms"`
	// Context: the sum of the placed parts, each in its place in a whole network; 0 where not all of them were
	// profiled.
	Context float64 `json:"context_ms,omitempty"`
	Optimal bool    `json:"optimal"`
}

// Summarise takes from a plan what a report says.
func Summarise(p *plan.Plan) *Summary {
	s := &Summary{Module: p.Module.Name, Target: p.Environment.Target, Device: p.Environment.Device,
		TVM: p.Environment.TVM, Threads: p.Environment.Threads, Operators: p.Operators(),
		Times: Times{Bound: p.Estimate.Bound, Estimate: p.Estimate.Milliseconds, Optimal: p.Estimate.Optimal}}
	for i := range p.Regions {
		s.Regions = append(s.Regions, summariseRegion(&p.Regions[i]))
	}
	kernels := kernelsOf(p)
	for _, b := range p.Backends {
		s.Backends = append(s.Backends, Backend{Name: b.Name, Library: b.Library, Version: b.Version,
			Unusable: b.Unusable, Declared: b.Declared,
			Regions: b.Regions, Operators: b.Operators, Estimate: b.Milliseconds, Kernels: kernels[b.Name]})
	}
	s.Level, s.Precision, s.Copies = p.Level, p.Precision, p.Copies()
	s.Exact = p.Constraints != nil && p.Constraints.Exact
	c := p.Candidates
	s.Candidates = Candidates{Proposed: c.Proposed, Free: c.Free, Distinct: c.Distinct, Given: c.Given,
		Stored:   c.Stored,
		Measured: c.Measured, Bounded: c.Bounded, Tested: c.Tested, Wrong: c.Wrong, InPlace: c.InPlace,
		Unknown: c.Unknown, Failed: c.Failed, Excluded: len(c.Excluded), Ties: c.Ties,
		Failures: c.Failures, Refusals: c.Refusals}
	s.GraphLevel, s.PlacedBy = p.GraphLevel, placedBy(p)
	s.Times.Context = inContext(p)
	s.summariseFinalists(p)
	s.Frontier = frontier(p)
	return s
}

// kernelsOf counts the candidates of each backend's kernels.
func kernelsOf(p *plan.Plan) map[string]map[string]int {
	counts := map[string]map[string]int{}
	for i := range p.Regions {
		r := &p.Regions[i]
		for k := range r.Candidates {
			c := &r.Candidates[k]
			if c.Kernel == "" {
				continue
			}
			name := r.BackendOf(c)
			if counts[name] == nil {
				counts[name] = map[string]int{}
			}
			counts[name][c.Kernel]++
		}
	}
	return counts
}

// inContext is the sum of what the parts took in place; 0 where one of them was not seen there.
func inContext(p *plan.Plan) float64 {
	sum := 0.0
	for i := range p.Regions {
		for _, c := range p.Regions[i].Candidates {
			if c.Context == 0 && c.Milliseconds > 0 {
				return 0
			}
			sum += c.Context
		}
	}
	return sum
}

func summariseRegion(r *plan.Region) Region {
	row := Region{ID: r.ID, Function: r.Function, Symbol: r.Symbol, Backend: r.Backend, Estimate: r.Milliseconds,
		Operators: []string{}, Key: r.Backend}
	for _, c := range r.Candidates {
		part := Part{Backend: c.Backend, Composite: c.Composite, Kernel: c.Kernel, Estimate: c.Milliseconds,
			Operators: []string{}, Nodes: []int{}}
		row.Key += fmt.Sprintf(" %s %s", c.Composite, c.Key)
		for _, n := range c.Nodes {
			if n.IsOperator() {
				part.Operators = append(part.Operators, n.Operator)
				part.Nodes = append(part.Nodes, n.Index)
				row.Key += " " + n.Operator
			}
		}
		row.Operators = append(row.Operators, part.Operators...)
		row.Parts = append(row.Parts, part)
	}
	return row
}

func (s *Summary) summariseFinalists(p *plan.Plan) {
	finalists := p.Finalists
	alone := func(name string) bool { return name == "tvm" || p.Backend(name) != nil }
	var reference []float64
	best, rounds := math.Inf(1), 0
	for _, f := range finalists {
		rounds = max(rounds, len(f.Samples))
	}
	for _, f := range finalists {
		// One that ran in a few rounds is hopeless, and its quartile says less.
		if q := quartile(f.Samples); alone(f.Name) && f.Failure == nil && len(f.Samples) == rounds && q < best {
			best, reference, s.Reference = q, f.Samples, f.Name
		}
	}
	for _, f := range finalists {
		row := Finalist{Name: f.Name, Origin: f.Origin, Regions: f.Regions, Rounds: len(f.Samples),
			MaxError: f.MaxError, Error: f.Error, Estimate: f.Estimate,
			Bytes: f.Bytes, Resident: f.Resident, Peak: f.Peak, Failure: f.Failure, Chosen: f.Chosen}
		if f.Failure == nil && len(f.Samples) > 0 {
			row.Median = statistics.Median(f.Samples)
			row.LowerQuartile = quartile(f.Samples)
			row.Low, row.High = cost.Cost{Samples: f.Samples, Origin: cost.Measured}.Interval()
			if len(reference) > 0 {
				row.Ratio = statistics.Median(statistics.Ratios(f.Samples, reference))
			}
			if f.Chosen {
				s.Times.Measured = row.Median
			}
		}
		s.Finalists = append(s.Finalists, row)
	}
}

func quartile(samples []float64) float64 {
	return cost.Cost{Samples: samples, Origin: cost.Measured}.Estimate()
}

// WriteJSON writes the summary as indented JSON.
func (s *Summary) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}
