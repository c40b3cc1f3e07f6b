// SPDX-License-Identifier: Apache-2.0

// Package plan is the record of a placement: what was placed where, at what cost, with the prices that prove it, and
// what was left out and why.
//
// What comes in: graphs with their candidates, costs and placement (Builder), or a file (ReadFile, Decode). What
// goes out: a Plan, and its JSON, the same byte for byte for the same plan. A plan holds all that is needed to
// place again without measuring.
package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/relay"
)

// Schema is the version of the schema that this package reads and writes. Up to version 2 the regions were those of
// Collage's own placement, whatever was kept.
const Schema = 3

// Plan is the whole record. All times are in milliseconds; all node indices are those of relay.Graph, read from the
// normalised module whose hash the plan carries.
type Plan struct {
	Schema int    `json:"collage_plan"`
	Module Module `json:"module"`
	// Level is how far the search went ("operator" or "graph", settings.Level); "" in plans that are older than this
	// field.
	Level string `json:"level,omitempty"`
	// Environment is what the costs are valid for. Its Library is "": each backend has its own.
	Environment cost.Environment `json:"environment"`
	// Backends are those that were offered, in the order in which they were named.
	Backends []Backend `json:"backends"`
	// Constraints are what the placement had to keep to; nil for nothing.
	Constraints *Constraints `json:"constraints,omitempty"`
	// Precision says how far outputs were allowed to be off; nil where only the tolerance of candidates held.
	Precision *Precision `json:"precision,omitempty"`
	// Doubt is by how much plain TVM's outputs were off another engine's, as a share of the greatest, where outputs could
	// be off plain TVM's by more because of that (measure.Doubtful); 0 where they could not.
	Doubt float64 `json:"doubt,omitempty"`
	// Estimate is what the costs say about the whole.
	Estimate Estimate `json:"estimate"`
	// Borders are what it costs to bring values to backends and away from them; empty where that costs nothing.
	Borders []Border `json:"borders,omitempty"`
	// Regions are in the order of the functions, within one in the order of their last nodes. They are those of the
	// network that was kept, whichever finalist that is.
	Regions []Region `json:"regions"`
	// Candidates says what became of the candidates.
	Candidates Candidates `json:"candidates"`
	// GraphLevel says what was measured of whole networks, and what is believed since, at either level; nil where none
	// was run.
	GraphLevel *GraphLevel `json:"graph_level,omitempty"`
	// Timeline says when the graph level found what; nil where it was not searched.
	Timeline *Timeline `json:"timeline,omitempty"`
	// Finalists are whole networks that were built and run in turn; empty where none were (a plan that is only
	// decided has none, so that the same input gives the same plan).
	Finalists []Finalist `json:"finalists,omitempty"`
	// Points are the sizes of open dimensions at which the finalists were run, whose samples are means over these; empty
	// where no dimension is open, or none has a domain.
	Points []cost.Point `json:"points,omitempty"`
	// Notes are what its user was told of the run beside the tables, what could not be learnt, too, but
	// not what came of the time there was. They decide nothing.
	Notes []string `json:"notes,omitempty"`
}

// Module says which module was placed.
type Module struct {
	// Name is what the user called it (a path, "workload:bert_full"); may be "".
	Name string `json:"name,omitempty"`
	// Hash is a structural hash of the normalised module, constants by content.
	Hash string `json:"hash"`
	// Functions are the global functions that were placed.
	Functions []Function `json:"functions"`
}

// Constraints are what the user asked of the placement. Rules are "SELECTOR=BACKEND" or "SELECTOR=BACKEND.KERNEL"
// (Rule). The proof holds among the placements that keep to them.
type Constraints struct {
	// Pin: what is selected goes to that backend, or that kernel of it; Forbid: it does not.
	Pin    []string `json:"pin,omitempty"`
	Forbid []string `json:"forbid,omitempty"`
	// Exact: no kernel that associates its sums otherwise than a direct sum does (byoc.Pattern.Reassociates).
	Exact bool `json:"exact,omitempty"`
}

// Precision says in which types parts were allowed to be computed, and how far the network's outputs to be off.
type Precision struct {
	// Allowed, MaxError and Measure are settings.Precision's.
	Allowed  string  `json:"allowed"`
	MaxError float64 `json:"max_error"`
	Measure  string  `json:"measure"`
	// MeasureDigest tells the file of a measure of the user's own from what it was before (measure.OwnMeasure); "" for
	// the other measures.
	MeasureDigest string `json:"measure_sha256,omitempty"`
	// Searched is on how many inputs errors were taken by which the search decided, HeldOut on how many that it did not
	// see, by which it was decided what may be kept.
	Searched int `json:"searched_inputs"`
	HeldOut  int `json:"held_out_inputs"`
	// Scaled is on how many inputs the scales of bytes were found (Region.Rounded); 0 where none were.
	Scaled int `json:"scale_inputs,omitempty"`
	// Method is how they were made of what was seen there (rounding.Method); "" where none were. Methods are those that
	// were compared for it, on Compared inputs: none where the user named one.
	Method   string             `json:"calibration_method,omitempty"`
	Methods  []cost.ScaleMethod `json:"methods,omitempty"`
	Compared int                `json:"compared_inputs,omitempty"`
	// Biases is what came of taking off biases what rounded weights are off by; nil where that was not tried.
	Biases *cost.Biases `json:"biases,omitempty"`
	// Calibration tells the data that these inputs were samples of from other data (calibration.Taken); "" for random
	// inputs.
	Calibration string `json:"calibration,omitempty"`
	// Lagrangian is what placing by time and a price for errors was worth in the end, as far as errors are believed;
	// nil where that was not done.
	Lagrangian *Lagrangian `json:"lagrangian,omitempty"`
	// Corners are those of time against error, as both are believed, the most exact one first; none where nobody asked
	// for them (collage plan --frontier).
	Corners []Corner `json:"corners,omitempty"`
}

// Function is one global function of the module.
type Function struct {
	Name string `json:"name"`
	// Nodes is the number of nodes of its graph; Operators the number of operator calls that were placed.
	Nodes     int `json:"nodes"`
	Operators int `json:"operators"`
}

// Backend is one of the backends that were offered, and its share.
type Backend struct {
	Name string `json:"name"`
	// Compiler is the Compiler attribute of its regions; "" for TVM, whose share stays inline.
	Compiler string `json:"compiler"`
	// Library and Version are what the probe found.
	Library  string   `json:"library"`
	Version  string   `json:"version"`
	Features []string `json:"features,omitempty"`
	// Device is the kind of device that its regions run on (byoc.Remote); "" for the processor.
	Device string `json:"device,omitempty"`
	// Hardware is what its driver calls that device, and the driver's version; "" where that is not known.
	Hardware string `json:"hardware,omitempty"`
	// Declared says by whom its costs are declared (byoc.Declaration); "" where they are measured.
	Declared string `json:"declared,omitempty"`
	// Unusable says why the backend was left out; "" for one that was offered.
	Unusable string `json:"unusable,omitempty"`
	// Regions and Operators count what was placed on it; Milliseconds is the sum of its candidates' estimates. A region
	// that it shares counts as one of its own. For TVM a region is one group of operators that is fused as one.
	Regions      int     `json:"regions"`
	Operators    int     `json:"operators"`
	Milliseconds float64 `json:"estimate_ms"`
	// Apart says that neighbours on it are regions of their own; only where the plan has Borders of it.
	Apart bool `json:"regions_apart,omitempty"`
}

// Estimate is what the candidates' costs say about the whole network. It is a sum of parts measured alone, no bound
// on the time of the whole.
type Estimate struct {
	// Milliseconds is the sum of the regions' costs, and of Transfers.
	Milliseconds float64 `json:"total_ms"`
	// Transfers is what it takes to bring values from one region to another, from the caller and to it, where that
	// costs anything (Plan.Borders).
	Transfers float64 `json:"transfers_ms,omitempty"`
	// Bound is what no placement of these candidates can cost less than: where Optimal, the sum of the prices.
	Bound float64 `json:"bound_ms"`
	// Gap is Milliseconds less Bound; 0 where the placement is proven to be the cheapest.
	Gap float64 `json:"gap_ms"`
	// Optimal says that the plan itself holds the proof: the prices are there and sum to Milliseconds. A placement that
	// was not searched for ("everything that oneDNN can take") has Optimal false, no prices, no bound and no gap.
	Optimal bool `json:"optimal"`
	// Overhead is what each candidate that costs something was charged beside its own time (place.Overhead); it is in
	// all the times above, in those of the candidates, and in the prices.
	Overhead float64 `json:"overhead_ms,omitempty"`
}

// Region is a group of operators that goes to one backend as one, or to several that share it.
type Region struct {
	// ID is the region's place in Plan.Regions.
	ID       int    `json:"id"`
	Function string `json:"function"`
	// Symbol is the name of the function that the region becomes ("tvmgen_default_dnnl_main_0"); "" for TVM's
	// share, which stays inline.
	Symbol string `json:"symbol,omitempty"`
	// Backend is its candidates' backend; of a region that several share, their names, sorted and joined with "+"
	// ("dnnl+native"): then each candidate has its own.
	Backend string `json:"backend"`
	// Milliseconds is the sum of the candidates' estimates.
	Milliseconds float64 `json:"estimate_ms"`
	// Candidates are those that were joined into the region, in ascending order of their last nodes.
	Candidates []Candidate `json:"candidates"`
	// Rounded are the values that who reads them in the region reads rounded to bytes, ascending
	// (annotate.Region.Steps); empty where the backend rounds nothing by scales of its own.
	Rounded []Rounded `json:"rounded,omitempty"`
	// Corrected are the products, ascending, behind which biases have the mean taken off of what rounded weights are off
	// by.
	Corrected []Corrected `json:"corrected,omitempty"`
	// Copies are what a call of it copies to its device and from there; nil where it runs on the processor.
	Copies *Copies `json:"copies,omitempty"`
}

// Corrected is a product, by its node, and what is taken off each channel's bias behind it.
type Corrected struct {
	Operator int       `json:"operator"`
	Shift    []float32 `json:"shift"`
}

// correctedOf writes shifts down.
func correctedOf(shifts map[relay.NodeID][]float32) (list []Corrected) {
	for _, v := range slices.Sorted(maps.Keys(shifts)) {
		list = append(list, Corrected{int(v), shifts[v]})
	}
	return list
}

// Shifts are the region's, as annotate.Region has them; nil for none.
func (r *Region) Shifts() map[relay.NodeID][]float32 {
	if len(r.Corrected) == 0 {
		return nil
	}
	shifts := map[relay.NodeID][]float32{}
	for _, c := range r.Corrected {
		shifts[relay.NodeID(c.Operator)] = c.Shift
	}
	return shifts
}

// Rounded is a value, by its node, that is rounded to bytes from 0 to 255: number = (byte - Zero) * Scale.
type Rounded struct {
	Value int     `json:"value"`
	Scale float64 `json:"scale"`
	Zero  int     `json:"zero"`
}

// roundedOf writes steps down.
func roundedOf(steps map[relay.NodeID]rounding.Steps) (list []Rounded) {
	for _, v := range slices.Sorted(maps.Keys(steps)) {
		list = append(list, Rounded{int(v), steps[v].Scale, steps[v].Zero})
	}
	return list
}

// Steps are the region's, as annotate.Region has them; nil for none.
func (r *Region) Steps() map[relay.NodeID]rounding.Steps {
	if len(r.Rounded) == 0 {
		return nil
	}
	steps := map[relay.NodeID]rounding.Steps{}
	for _, v := range r.Rounded {
		steps[relay.NodeID(v.Value)] = rounding.Steps{Scale: v.Scale, Zero: v.Zero}
	}
	return steps
}

// Candidate is one that was chosen.
type Candidate struct {
	// Backend is its backend in a region that several share; "" where it is the region's (Region.BackendOf).
	Backend string `json:"backend,omitempty"`
	// Composite is the pattern's name; "" for TVM.
	Composite string `json:"composite,omitempty"`
	// Kernel and Reassociates are the pattern's (byoc.Pattern).
	Kernel       string `json:"kernel,omitempty"`
	Reassociates bool   `json:"reassociates,omitempty"`
	// Key is the structural key of the computation; "" where nothing was to be measured.
	Key string `json:"key,omitempty"`
	// Milliseconds is the number that was placed with.
	Milliseconds float64   `json:"estimate_ms"`
	Cost         cost.Cost `json:"cost"`
	// Believed is what it was believed to take at the end of a search among whole networks, as Milliseconds is what it
	// takes by what is known of it alone; 0 where there was no such search.
	Believed float64 `json:"believed_ms,omitempty"`
	// Context is what it took in its place in a whole network (cost.Context), in milliseconds, its share of what was
	// spent on layouts and borders included; 0 where it was not profiled there. Where it was in several networks it
	// is the median of so many Profiles, and ContextLow and ContextHigh enclose it (cost.Cost.Interval).
	Context     float64 `json:"context_ms,omitempty"`
	ContextLow  float64 `json:"context_low_ms,omitempty"`
	ContextHigh float64 `json:"context_high_ms,omitempty"`
	Profiles    int     `json:"profiles,omitempty"`
	// Nodes are ascending; the last one is the exit, or one of several where others are read outside, too.
	Nodes []Node `json:"nodes"`
}

// Node is one covered node.
type Node struct {
	Index int `json:"index"`
	// Operator is its name; for nodes that are no operator calls what they are, in parentheses: "(tuple)".
	Operator string `json:"operator"`
	// Type is the type of its value, as Relay writes it.
	Type string `json:"type,omitempty"`
	// Span is where the front end says that it comes from ("conv1/BiasAdd", "model.onnx:12:3").
	Span string `json:"span,omitempty"`
	// PostDominator is the index of its immediate post-dominator; -1 for the last node of a scope.
	PostDominator int `json:"post_dominator"`
	// Price is what the node costs in this placement.
	Price float64 `json:"price_ms"`
	// Believed is what it costs in this placement by what was believed at the end of a search among whole networks
	// (GraphLevel.Believed).
	Believed float64 `json:"believed_ms,omitempty"`
	// Reads are the nodes whose values it reads, ascending: placed ones, and what callers give; no constants. Result
	// says that its value is that of a scope. Plans before this was drawn have both only where the plan says what is paid
	// between regions (Borders, Believed), or its function has candidates with several exits.
	Reads  []int `json:"reads,omitempty"`
	Result bool  `json:"result,omitempty"`
}

// Border is what it takes, in milliseconds, to bring a value to a region of a backend and away from one: it is paid
// once by the region that makes the value and once by each other region that reads it (package border). What is not
// listed costs nothing. Of the backends that share regions the first that was offered speaks for all.
type Border struct {
	Function string  `json:"function"`
	Value    int     `json:"value"`
	Backend  string  `json:"backend"`
	In       float64 `json:"in_ms"`
	Out      float64 `json:"out_ms"`
}

// Candidates says how many candidates there were and what became of them, so that nothing is left out silently.
type Candidates struct {
	// Proposed counts all candidates; Free those among them that cost nothing by rule.
	Proposed int `json:"proposed"`
	Free     int `json:"free"`
	// Distinct counts the different computations among those that are neither free nor excluded: what had to be
	// measured at most. The same convolution at ten places is one computation on each backend.
	Distinct int `json:"distinct"`
	// Given, Stored, Measured, Bounded and Unknown say of how many of these computations the cost came from where.
	// Bounded ones were not measured, since a lower bound left them no chance; of Unknown ones nothing is known.
	Given    int `json:"given"`
	Stored   int `json:"stored"`
	Measured int `json:"measured"`
	Bounded  int `json:"bounded"`
	// InPlace counts those that were seen in their place in a whole network, and not measured alone.
	InPlace int `json:"in_place,omitempty"`
	Unknown int `json:"unknown,omitempty"`
	// Tested counts the computations of which both a cost and a lower bound are known, Wrong those that take less than
	// their bound: all bounds are lowered then, until none is above what is known.
	Tested int `json:"bounds_tested,omitempty"`
	Wrong  int `json:"bounds_wrong,omitempty"`
	// Failed counts the computations, of all origins, that cannot be placed: the length of Failures.
	Failed int `json:"failed"`
	// Ties counts the places where candidates were measured again and again and their order is still not clear: the
	// placement may be off by the noise there.
	Ties int `json:"ties,omitempty"`
	// Failures are the candidates that failed, one entry for each computation.
	Failures []Failure `json:"failures,omitempty"`
	// Refusals are matches that a backend's limits turned down, one entry for each reason.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Excluded are the candidates that the constraints rule out.
	Excluded []Excluded `json:"excluded,omitempty"`
	// Rejected are the candidates that could have been placed and were not.
	Rejected []Rejected `json:"rejected,omitempty"`
}

// Failure is a computation that a backend could not do.
type Failure struct {
	Backend   string       `json:"backend"`
	Composite string       `json:"composite,omitempty"`
	Operators []string     `json:"operators"`
	Key       string       `json:"key"`
	Failure   cost.Failure `json:"failure"`
	Places    []Place      `json:"places"`
}

// Refusal is a limit of a backend that was met.
type Refusal struct {
	Backend   string  `json:"backend"`
	Composite string  `json:"composite"`
	Reason    string  `json:"reason"`
	Places    []Place `json:"places"`
}

// Place is where in a function something is.
type Place struct {
	Function string `json:"function"`
	// Index is the last of the covered nodes, Nodes are all of them, where they are known.
	Index int   `json:"index"`
	Nodes []int `json:"nodes,omitempty"`
}

// Excluded is a candidate that a constraint rules out.
type Excluded struct {
	Function  string `json:"function"`
	Backend   string `json:"backend"`
	Composite string `json:"composite,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	Nodes     []int  `json:"nodes"`
	// Constraint is the one that it breaks: "pin nn.conv2d=dnnl", or "exact".
	Constraint string `json:"constraint"`
}

// Rejected is a candidate that was not chosen.
type Rejected struct {
	Function  string `json:"function"`
	Backend   string `json:"backend"`
	Composite string `json:"composite,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	Nodes     []int  `json:"nodes"`
	// Key is the structural key of the computation; "" where nothing was to be measured.
	Key string `json:"key,omitempty"`
	// Milliseconds is what it was placed with: its estimate, or, where Origin is cost.Bounded, what it takes at least.
	Milliseconds float64     `json:"estimate_ms"`
	Origin       cost.Origin `json:"origin"`
	// Low and High are the interval of the estimate; both 0 for one that is exact.
	Low  float64 `json:"low_ms,omitempty"`
	High float64 `json:"high_ms,omitempty"`
	// Slack is how much Milliseconds is above the prices of its nodes: if it became cheaper by less, the placement
	// would stay the same. Explain has the exact number.
	Slack float64 `json:"slack_ms"`
	// Believed: see Candidate.
	Believed float64 `json:"believed_ms,omitempty"`
	// Exchange is what the network would take more with it in the place of those chosen candidates that it overlaps, by
	// what was believed and with what is paid between the regions that form then; what is left of these is covered as
	// cheaply as its own costs allow. Below 0 it would take less: what was measured decided. nil where no network has
	// it, and where that was not looked at.
	Exchange *float64 `json:"exchange_ms,omitempty"`
}

// Finalist is a whole network that was built and run.
type Finalist struct {
	// Name is a backend's name for what that backend (with TVM for the rest) does alone, "collage" (PlacementName) for
	// the placement that was kept, "operator level", "open parts", "graph level", "graph level 2", ... for placements
	// that were not.
	Name string `json:"name"`
	// Origin is what the search called it ("feedback 2", "placed again"); "" for one that has no other name.
	Origin string `json:"origin,omitempty"`
	// Regions counts what it has outside of TVM.
	Regions int `json:"regions"`
	// Samples are latencies of one run of the network. Where the finalists ran in turn, sample i of all comes from the
	// same round, so differences are paired; one that the search had found to be hopeless has those of the first rounds
	// only. Where the search's own samples decided (pass.Partition), each ran beside plain TVM.
	Samples []float64 `json:"samples_ms,omitempty"`
	// MaxError is the greatest absolute difference from plain TVM's outputs.
	MaxError float64 `json:"max_error,omitempty"`
	// Error is how far its outputs are off on inputs that the search has not seen, in the measure of Plan.Precision; 0
	// where that was not taken.
	Error float64 `json:"error,omitempty"`
	// Estimate is the sum of the parts for this finalist; 0 where it is not known.
	Estimate float64 `json:"estimate_ms,omitempty"`
	// Bytes is the executable's size, Resident by how much a process grows that loads and runs it, Peak by how much it
	// had grown at most on the way; 0 where that was not measured.
	Bytes    int64 `json:"bytes,omitempty"`
	Resident int64 `json:"resident_bytes,omitempty"`
	Peak     int64 `json:"peak_bytes,omitempty"`
	// Failure says why there are no samples.
	Failure *cost.Failure `json:"failure,omitempty"`
	// Chosen marks the one that was kept.
	Chosen bool `json:"chosen,omitempty"`
}

// PlacementName is the name of the finalist that is Collage's own placement.
const PlacementName = "collage"

// Kept is the finalist that was kept, whose regions are the plan's; nil where no whole network was run.
func (p *Plan) Kept() *Finalist {
	i := slices.IndexFunc(p.Finalists, func(f Finalist) bool { return f.Chosen })
	if i < 0 {
		return nil
	}
	return &p.Finalists[i]
}

// Outlined counts the regions outside of TVM.
func (p *Plan) Outlined() int {
	n := 0
	for i := range p.Regions {
		if p.Regions[i].Symbol != "" {
			n++
		}
	}
	return n
}

// BackendOf is the backend of one of the region's candidates.
func (r *Region) BackendOf(c *Candidate) string { return cmp.Or(c.Backend, r.Backend) }

// Backends are the names of the backends that have a part in the region, sorted.
func (r *Region) Backends() []string {
	var names []string
	for i := range r.Candidates {
		names = append(names, r.BackendOf(&r.Candidates[i]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// addTo adds the region to the shares of its backends, by name; it says which of them there is none of.
func (r *Region) addTo(share func(backend string) *Backend) error {
	operators := map[string]int{}
	for i := range r.Candidates {
		c := &r.Candidates[i]
		name := r.BackendOf(c)
		of := share(name)
		if of == nil {
			return fmt.Errorf("the backend %q is not listed", name)
		}
		of.Milliseconds += c.Milliseconds
		n := len(c.Operators())
		of.Operators += n
		operators[name] += n
	}
	for name, n := range operators {
		if n > 0 {
			share(name).Regions++
		}
	}
	return nil
}

// Operators are the names of the region's operators in order; tuples and projections are left out.
func (r *Region) Operators() []string {
	var names []string
	for i := range r.Candidates {
		names = append(names, r.Candidates[i].Operators()...)
	}
	return names
}

// Operators are the names of the candidate's operators in order.
func (c *Candidate) Operators() []string {
	var names []string
	for _, n := range c.Nodes {
		if n.IsOperator() {
			names = append(names, n.Operator)
		}
	}
	return names
}

// Name says in messages what the candidate is: its pattern, and the kernel where that has a name.
func (c *Candidate) Name() string {
	switch {
	case c.Composite == "":
		return "a group of operators"
	case c.Kernel == "":
		return c.Composite
	}
	return fmt.Sprintf("%s (the kernel %s)", c.Composite, c.Kernel)
}

// IsOperator says that the node is an operator call.
func (n *Node) IsOperator() bool { return !strings.HasPrefix(n.Operator, "(") }

// Backend returns the backend of that name; nil where it was not offered.
func (p *Plan) Backend(name string) *Backend {
	i := slices.IndexFunc(p.Backends, func(b Backend) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Backends[i]
}

// Operators is the number of operators that were placed.
func (p *Plan) Operators() int {
	n := 0
	for _, f := range p.Module.Functions {
		n += f.Operators
	}
	return n
}

// speaker is the index of the backend that speaks for the borders of one: the first that shares regions with it.
func (p *Plan) speaker(name string) int {
	i := slices.IndexFunc(p.Backends, func(b Backend) bool { return b.Name == name })
	if i < 0 || p.Backends[i].Compiler == "" {
		return i
	}
	return slices.IndexFunc(p.Backends, func(b Backend) bool { return b.Compiler == p.Backends[i].Compiler })
}

// String is the placement in one line: "116 operators: 14 on tvm, 102 on dnnl; 41.2 ms estimated".
func (p *Plan) String() string {
	shares := make([]string, len(p.Backends))
	for i, b := range p.Backends {
		shares[i] = fmt.Sprintf("%d on %s", b.Operators, b.Name)
	}
	text := fmt.Sprintf("%d operators: %s", p.Operators(), strings.Join(shares, ", "))
	if p.Estimate.Optimal || p.Estimate.Milliseconds > 0 {
		text += fmt.Sprintf("; %.3g ms estimated", p.Estimate.Milliseconds)
	}
	return text
}

// NewBackend describes a backend by its probe.
func NewBackend(b byoc.Backend) Backend {
	probe := b.Probe()
	entry := Backend{Name: b.Name(), Compiler: b.Compiler(), Library: probe.Library, Version: probe.Version,
		Features: slices.Clone(probe.Features)}
	if device := byoc.DeviceOf(b); device != byoc.Host {
		entry.Device, entry.Hardware = device, b.(byoc.Remote).Hardware()
	}
	if d := byoc.DeclarationOf(b); d != nil {
		entry.Declared = d.Source
	}
	return entry
}
