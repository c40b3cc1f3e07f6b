// SPDX-License-Identifier: Apache-2.0

// Package network is what the graph level searches in: a Network is a module that went through pass/placing, with its
// space, the placements that its seeds are, and the plan and the module of any placement.
package network

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
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
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

	Placing *placing.Module
	// Learnt is what was seen of main's values that candidates have rounded (byoc.Rounding), with their steps, as
	// scales has it; nil where that is not known.
	Learnt map[relay.NodeID]rounding.Learnt
	scales *cost.Scales
	// shifts are what may be taken off main's biases, by the products before them; none where that is not done.
	shifts map[relay.NodeID][]float32
	// weights is elementsOf, but for tests.
	weights func(g *relay.Graph, id relay.NodeID) ([]byte, error)
	// solved is the key of the placement that the costs and bounds give, to which the prices belong.
	solved string
	// inContext is what computations took in place in the networks that Learn was told of.
	inContext map[cost.Key][]float64
}

// Explore is Place that keeps what it knows. Nothing is written into the module: Module does that for any placement.
// cfg.Only must be "". measured is placing.Decided's. Errors: as Place's.
func Explore(mod *bridge.Object, cfg settings.Config, measured *placing.Slack) (n *Network, err error) {
	if cfg.Only != "" {
		return nil, &settings.OptionError{Option: "only", Reason: "leaves the graph level nothing to search"}
	}
	cfg.KnowsScales = true
	err = bridge.OnThread(func() error {
		s, err := placing.Decided(mod, cfg, measured)
		if err != nil {
			return err
		}
		hash, err := s.Hash()
		if err != nil {
			return err
		}
		n, err = New(s, hash)
		return err
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// New is a module that was placed, and has that hash, as a network.
func New(s *placing.Module, hash string) (*Network, error) {
	n := &Network{Placing: s, Hash: hash, weights: elementsOf}
	if err := n.open(); err != nil {
		return nil, err
	}
	return n, nil
}

// open makes the space of what was learnt.
func (n *Network) open() (err error) {
	var functions []genome.Function
	chosen := make([][]int, len(n.Placing.Functions))
	for i, f := range n.Placing.Functions {
		g := genome.Function{Set: f.Set, Tree: place.TreeOf(f.Set.Graph), Costs: make([]float64, len(f.Costs))}
		for k := range f.Costs {
			if g.Costs[k] = f.Costs[k].Estimate(); f.Set.Candidates[k].Free {
				g.Costs[k] = 0
			}
		}
		functions = append(functions, g)
		chosen[i] = f.Solution.Chosen
	}
	if n.Space, err = genome.NewSpace(n.Placing.Backends, functions); err != nil {
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
	for i, f := range n.Placing.Functions {
		for k := range f.Costs {
			if n.Space.Functions[i].Costs[k] = f.Costs[k].Estimate(); f.Set.Candidates[k].Free {
				n.Space.Functions[i].Costs[k] = 0
			}
		}
	}
}

// Backends are those that were offered and can be used, in the order of their names in the Config.
func (n *Network) Backends() []byoc.Backend { return n.Placing.Backends }

// Target is TVM's target string, as TVM was given it; Environment is what costs are valid for.
func (n *Network) Target() string                { return n.Placing.Config.Target }
func (n *Network) Environment() cost.Environment { return n.Placing.Env }

// Threads is how many threads the executable uses.
func (n *Network) Threads() int { return n.Placing.Config.Threads }

// Key is the key of the network's records in the store, but for the placement.
func (n *Network) Key() cost.Key {
	var libraries []string
	for _, b := range n.Placing.Backends {
		libraries = append(libraries, n.Placing.Library(b))
	}
	key := cost.Key{Kind: cost.NetworkKind, Structure: n.Hash,
		Backend:     strings.Join(settings.NamesOf(n.Placing.Backends), ","),
		Environment: n.Placing.Env}
	key.Library = strings.Join(libraries, ", ")
	return key
}

// Overhead is what the operator level adds to each candidate.
func (n *Network) Overhead() place.Overhead { return n.Placing.Overhead() }

// Bounded says of each function's candidates whose costs are no more than lower bounds.
func (n *Network) Bounded() [][]bool {
	all := make([][]bool, len(n.Placing.Functions))
	for i, f := range n.Placing.Functions {
		all[i] = make([]bool, len(f.Costs))
		for k := range f.Costs {
			all[i][k] = f.Costs[k].Origin == cost.Bounded
		}
	}
	return all
}

// named gives the functions of a placement, their regions with symbols.
func (n *Network) named(p *genome.Placement) []annotate.Function {
	list := make([]annotate.Function, len(n.Placing.Functions))
	for i, f := range n.Placing.Functions {
		list[i] = annotate.Function{Set: f.Set, Regions: append([]annotate.Region(nil), p.Regions[i]...)}
	}
	for i := range list {
		for k := range list[i].Regions {
			n.Rounded(i, &list[i].Regions[k])
			n.correct(p, i, &list[i].Regions[k])
		}
	}
	annotate.NameRegions(n.Placing.Relay, list)
	return list
}

// Module writes a placement into the module. The result is the caller's.
func (n *Network) Module(p *genome.Placement) (out *bridge.Object, err error) {
	err = bridge.OnThread(func() error {
		written, err := annotate.Module(n.Placing.Relay, n.named(p))
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
	decided := make([]*plan.Placed, len(n.Placing.Functions))
	for i, f := range n.Placing.Functions {
		placement, costs, options := f.Solution, f.Costs, f.Options
		if p.Key != n.solved || n.restsOnBounds(p.Chosen) {
			sum := 0.0
			if tables != nil {
				costs, options = n.inPlace(i, tables[i])
			}
			for _, k := range p.Chosen[i] {
				sum += options[k].Cost
			}
			sum += f.Borders.Sum(p.Regions[i])
			placement = &place.Solution{Chosen: p.Chosen[i], Cost: sum, Prices: f.Solution.Prices,
				LowerBound: f.Solution.LowerBound, Gap: sum - f.Solution.LowerBound}
		}
		placed := &plan.Placed{Set: f.Set, Costs: costs, Options: options, Solution: placement, Excluded: f.Excluded,
			Borders: f.Borders.Record()}
		for _, r := range named[i].Regions {
			placed.Groups = append(placed.Groups, plan.Group{Symbol: r.Symbol, Candidates: r.Candidates, Steps: r.Steps,
				Shifts: r.Shifts})
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
	return n.Placing.Written(n.Hash, decided)
}

// Spec says which regions a network is to have: what a worker needs beside the module.
type Spec struct {
	Functions []FunctionSpec `json:"functions"`
}

// FunctionSpec is one function of a Spec.
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
	// Steps and Given are annotate.Region's.
	Steps map[relay.NodeID]rounding.Steps `json:"steps,omitempty"`
	Given []relay.NodeID                  `json:"given,omitempty"`
	// Shifts are annotate.Region's.
	Shifts map[relay.NodeID][]float32 `json:"shifts,omitempty"`
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
func (n *Network) Spec(p *genome.Placement) (spec Spec, named [][]annotate.Region) {
	for i, f := range n.named(p) {
		g := n.Placing.Functions[i].Set.Graph
		of := FunctionSpec{Name: g.Name, Shape: graphShape(g), Regions: []RegionSpec{}}
		for _, r := range f.Regions {
			region := RegionSpec{Symbol: r.Symbol, Backend: r.Backend, Compiler: r.Compiler, Steps: r.Steps, Given: r.Given,
				Shifts: r.Shifts}
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

// Main are the candidates of main; the error says that there is none.
func (n *Network) Main() (*candidate.Set, error) {
	for _, f := range n.Placing.Functions {
		if f.Set.Graph.Name == "main" {
			return f.Set, nil
		}
	}
	return nil, errNoMain
}

// Narrow says that a placement has parts that are computed in a narrower type than the network's, or such that are
// computed otherwise than by TVM where the network itself is quantised.
func (n *Network) Narrow(p *genome.Placement) bool {
	for i, chosen := range p.Chosen {
		quantised := normalise.CameQuantised(n.Placing.Functions[i].Set.Graph)
		for _, k := range chosen {
			b := n.Placing.ByName[n.Placing.Functions[i].Set.Candidates[k].Backend]
			if byoc.PrecisionOf(b) != byoc.F32 || quantised && !b.TakesAnything() {
				return true
			}
		}
	}
	return false
}

// Whole says whether the network can be run as a whole by TVM's graph executor: straight-line code in main with shapes
// that are known. The error is a *NotWholeError.
func (n *Network) Whole() error { return placing.CheckWhole(n.Placing.Relay) }
