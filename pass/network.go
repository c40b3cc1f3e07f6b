// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// Network is a module that Partition has been through, with all that was learnt on the way: what the graph level
// searches in. Its methods belong to one goroutine.
type Network struct {
	// Placed is the operator level's placement. Where it would rest on lower bounds (Open) it is the cheapest by what
	// is believed instead.
	Placed *genome.Placement
	// Space has the candidates with their costs, each measured alone.
	Space *genome.Space
	// Hash is the module's.
	Hash string

	s *search
	// learnt is what was seen of main's values that candidates have rounded (byoc.Rounding), with their steps, as scales
	// has it; nil where that is not known.
	learnt map[relay.NodeID]rounding.Learnt
	scales *cost.Scales
	// solved is the key of the placement that the costs and bounds give, to which the prices belong.
	solved string
	// inContext is what computations took in place in the networks that Learn was told of.
	inContext map[cost.Key][]float64
}

// explore is Place that keeps what it knows. Nothing is written into the module: Module does that for any placement.
// cfg.Only must be "". measured is decided's. Errors: as Place's.
func explore(mod *bridge.Object, cfg Config, measured *slack) (n *Network, err error) {
	if cfg.Only != "" {
		return nil, &OptionError{"only", "leaves the graph level nothing to search"}
	}
	cfg.rounds = true
	err = bridge.OnThread(func() error {
		s, err := decided(mod, cfg, measured)
		if err != nil {
			return err
		}
		n = &Network{s: s}
		stop := clock(&s.timings.Hash)
		n.Hash, err = Hash(s.module.Object())
		stop()
		if err != nil {
			return err
		}
		return n.open()
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// open makes the space of what was learnt.
func (n *Network) open() (err error) {
	var functions []genome.Function
	chosen := make([][]int, len(n.s.functions))
	for i, f := range n.s.functions {
		g := genome.Function{Set: f.set, Tree: place.TreeOf(f.set.Graph), Costs: make([]float64, len(f.costs))}
		for k := range f.costs {
			if g.Costs[k] = f.costs[k].Estimate(); f.set.Candidates[k].Free {
				g.Costs[k] = 0
			}
		}
		functions = append(functions, g)
		chosen[i] = f.placement.Chosen
	}
	if n.Space, err = genome.NewSpace(n.s.backends, functions); err != nil {
		return err
	}
	n.Placed = n.Space.Place(chosen)
	n.solved = n.Placed.Key
	if !n.restsOnBounds(chosen) {
		return nil
	}
	if chosen, err = n.believed(); err != nil {
		return err
	}
	n.Placed = n.Space.Place(chosen)
	return nil
}

// Renew forgets what a search has made of the space's costs.
func (n *Network) Renew() {
	for i, f := range n.s.functions {
		for k := range f.costs {
			if n.Space.Functions[i].Costs[k] = f.costs[k].Estimate(); f.set.Candidates[k].Free {
				n.Space.Functions[i].Costs[k] = 0
			}
		}
	}
}

// Backends are those that were offered and can be used, in the order of their names in the Config.
func (n *Network) Backends() []byoc.Backend { return n.s.backends }

// Target is TVM's target string, as TVM was given it; Environment is what costs are valid for.
func (n *Network) Target() string                { return n.s.cfg.Target }
func (n *Network) Environment() cost.Environment { return n.s.env }

// Threads is how many threads the executable uses.
func (n *Network) Threads() int { return n.s.cfg.Threads }

// Key is the key of the network's records in the store, but for the placement.
func (n *Network) Key() cost.Key {
	var libraries []string
	for _, b := range n.s.backends {
		libraries = append(libraries, n.s.library(b))
	}
	key := cost.Key{Kind: cost.NetworkKind, Structure: n.Hash, Backend: strings.Join(namesOf(n.s.backends), ","),
		Environment: n.s.env}
	key.Library = strings.Join(libraries, ", ")
	return key
}

// Overhead is what the operator level adds to each candidate.
func (n *Network) Overhead() place.Overhead { return n.s.overhead() }

// Bounded says of each function's candidates whose costs are no more than lower bounds.
func (n *Network) Bounded() [][]bool {
	all := make([][]bool, len(n.s.functions))
	for i, f := range n.s.functions {
		all[i] = make([]bool, len(f.costs))
		for k := range f.costs {
			all[i][k] = f.costs[k].Origin == cost.Bounded
		}
	}
	return all
}

// named gives the functions of a placement, their regions with symbols.
func (n *Network) named(p *genome.Placement) []annotate.Function {
	list := make([]annotate.Function, len(n.s.functions))
	for i, f := range n.s.functions {
		list[i] = annotate.Function{Set: f.set, Regions: append([]annotate.Region(nil), p.Regions[i]...)}
	}
	for i := range list {
		for k := range list[i].Regions {
			n.rounded(i, &list[i].Regions[k])
		}
	}
	annotate.NameRegions(n.s.module, list)
	return list
}

// Module writes a placement into the module. The result is the caller's.
func (n *Network) Module(p *genome.Placement) (out *bridge.Object, err error) {
	err = bridge.OnThread(func() error {
		written, err := annotate.Module(n.s.module, n.named(p))
		if err != nil {
			return err
		}
		defer written.Release()
		if out, err = relay.InferType(written); err != nil {
			return fmt.Errorf("the annotated module is not well typed, which is a defect of Collage: %w", err)
		}
		return nil
	})
	return out, err
}

// Plan writes a placement down: its candidates with their costs, each measured alone, and what a search among whole
// networks has learnt about them (may be nil), which counts where no more than a bound is known. For another placement
// than the operator level's the bound is that of the operator level: no placement of these candidates has a smaller
// sum.
func (n *Network) Plan(p *genome.Placement, learnt *graphlevel.Result) (*plan.Plan, error) {
	var tables []*feedback.Table
	if learnt != nil {
		tables = learnt.Tables
	}
	named := n.named(p)
	decided := make([]*plan.Placed, len(n.s.functions))
	for i, f := range n.s.functions {
		placement, costs, options := f.placement, f.costs, f.options
		if p.Key != n.solved || n.restsOnBounds(p.Chosen) {
			sum := 0.0
			if tables != nil {
				costs, options = n.inPlace(i, tables[i])
			}
			for _, k := range p.Chosen[i] {
				sum += options[k].Cost
			}
			sum += f.borders.sum(p.Regions[i])
			placement = &place.Placement{Chosen: p.Chosen[i], Cost: sum, Prices: f.placement.Prices,
				LowerBound: f.placement.LowerBound, Gap: sum - f.placement.LowerBound}
		}
		placed := &plan.Placed{Set: f.set, Costs: costs, Options: options, Placement: placement, Excluded: f.excluded,
			Borders: f.borders.record()}
		for _, r := range named[i].Regions {
			placed.Groups = append(placed.Groups, plan.Group{Symbol: r.Symbol, Candidates: r.Candidates, Steps: r.Steps})
		}
		if tables != nil {
			placed.Context = tables[i].InPlace
			var err error
			if placed.Belief, err = learnt.Belief(i); err != nil {
				return nil, err
			}
		}
		decided[i] = placed
	}
	return n.s.written(n.Hash, decided)
}

// NetworkSpec says which regions a network is to have: what a worker needs beside the module.
type NetworkSpec struct {
	Functions []FunctionSpec `json:"functions"`
}

// FunctionSpec is one function of a NetworkSpec.
type FunctionSpec struct {
	Name string `json:"name"`
	// Shape is a hash of the function's graph (its operators and who reads whom), by which the worker knows that its
	// nodes have the same numbers.
	Shape   string       `json:"shape"`
	Regions []RegionSpec `json:"regions"`
	// Watched are annotate.Function's.
	Watched []relay.NodeID `json:"watched,omitempty"`
}

// RegionSpec is one region.
type RegionSpec struct {
	Symbol     string          `json:"symbol"`
	Backend    string          `json:"backend"`
	Compiler   string          `json:"compiler"`
	Candidates []CandidateSpec `json:"candidates"`
	// Steps are annotate.Region's.
	Steps map[relay.NodeID]rounding.Steps `json:"steps,omitempty"`
}

// CandidateSpec is one candidate of a region.
type CandidateSpec struct {
	Composite string         `json:"composite,omitempty"`
	Bare      bool           `json:"bare,omitempty"`
	Nodes     []relay.NodeID `json:"nodes"`
	// Precision is what it is computed in (byoc.PrecisionOf its backend).
	Precision byoc.Precision `json:"precision"`
}

// Spec describes a placement for a worker; named has its regions with their symbols, function by function.
func (n *Network) Spec(p *genome.Placement) (spec NetworkSpec, named [][]annotate.Region) {
	for i, f := range n.named(p) {
		g := n.s.functions[i].set.Graph
		of := FunctionSpec{Name: g.Name, Shape: graphShape(g), Regions: []RegionSpec{}}
		for _, r := range f.Regions {
			region := RegionSpec{Symbol: r.Symbol, Backend: r.Backend, Compiler: r.Compiler, Steps: r.Steps}
			for j, k := range r.Candidates {
				c := &f.Set.Candidates[k]
				region.Candidates = append(region.Candidates,
					CandidateSpec{Composite: c.Composite, Bare: c.Bare, Nodes: c.Nodes, Precision: r.Precisions[j]})
			}
			of.Regions = append(of.Regions, region)
		}
		spec.Functions = append(spec.Functions, of)
		named = append(named, f.Regions)
	}
	return spec, named
}

// graphShape hashes a graph's operators and who reads whom.
func graphShape(g *relay.Graph) string {
	h := sha256.New()
	for v := range g.Nodes {
		node := &g.Nodes[v]
		fmt.Fprintln(h, node.Kind, node.Op, node.Inputs, node.Index)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// errNoMain says that the graph level has nothing to run.
var errNoMain = errors.New("the module has no function main, so there is no network to run")

// main are the candidates of main; the error says that there is none.
func (n *Network) main() (*candidate.Set, error) {
	for _, f := range n.s.functions {
		if f.set.Graph.Name == "main" {
			return f.set, nil
		}
	}
	return nil, errNoMain
}

// WithPassContext is a Config with what a PassContext around the call says about what it leaves open.
func WithPassContext(cfg Config) (Config, error) {
	err := fromPassContext(&cfg)
	return cfg, err
}

// AsPythonError makes an error that is the caller's to mend a ValueError in Python.
func AsPythonError(err error) error { return asPythonError(err) }
