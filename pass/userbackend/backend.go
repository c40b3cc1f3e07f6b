// SPDX-License-Identifier: Apache-2.0

// Package userbackend is for backends that are registered from outside of Go while the process runs, as Python does
// (python/collage/registration.py).
//
// What comes in: a description in JSON, the patterns of tvm.relay.dataflow_pattern that TVM matches, and one packed
// function that is called for everything that is code over there (predicates, probe, costs, proposals). What goes out:
// a byoc.Backend in the registry. Its code generator, relay.ext.<compiler>, is registered by whoever registers the
// backend.
package userbackend

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/propose"
	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// description is what a backend says of itself.
type description struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Kind        string `json:"kind"` // "operator" or "graph"
	Compiler    string `json:"compiler"`
	Merges      bool   `json:"merges_regions"`
	// Composites are the full names of the patterns; Bare says which of them stand without a Composite function.
	Composites []string `json:"composites"`
	Bare       bool     `json:"bare"`
	Rules      *rules   `json:"rules"`
	// Has are the things that the packed function answers: "probe", "cost", "border", "propose".
	Has []string `json:"has"`
	// Libraries are absolute paths.
	Libraries []string `json:"libraries"`
	// Source is a digest of the code that makes regions executable; it stands for a version where the probe tells none.
	Source string `json:"source"`
	// Worker is for the measuring workers (byoc.WorkerSetup).
	Worker json.RawMessage `json:"worker"`
}

// rules are which operators are supported and how they are combined: by a style of fusion, or, without one, into
// regions for an engine (byoc/propose).
type rules struct {
	Operators []string `json:"operators"`
	Style     string   `json:"style"`
	MaxDepth  int      `json:"max_depth"`
}

var styles = map[string]byoc.Style{"NoFusion": byoc.NoFusion, "TVMFusion": byoc.TVMFusion,
	"ArbitraryFusion": byoc.ArbitraryFusion}

// backend is a registered one.
type backend struct {
	description
	patterns []candidate.UserPattern
	// call is the packed function: a word that says what is asked, and arguments.
	call *bridge.Function

	lock  sync.Mutex
	probe *byoc.Probe // what was found; nil until somebody asks
}

func (b *backend) Name() string             { return b.description.Name }
func (b *backend) Description() string      { return b.description.Description }
func (b *backend) Compiler() string         { return b.description.Compiler }
func (b *backend) Patterns() []byoc.Pattern { return nil }
func (b *backend) TakesAnything() bool      { return false }
func (b *backend) MergesRegions() bool      { return b.Merges }
func (b *backend) Libraries() []string      { return slices.Clone(b.description.Libraries) }
func (b *backend) WorkerSetup() string      { return string(b.Worker) }
func (b *backend) has(what string) bool     { return slices.Contains(b.Has, what) }

func (b *backend) Level() byoc.Level {
	if b.Kind == "graph" {
		return byoc.GraphLevel
	}
	return byoc.OperatorLevel
}

// Install implements byoc.Backend.
func (b *backend) Install() error { return byoc.ExistingEmitter{}.Install(b) }

// Refresh implements byoc.Refresher.
func (b *backend) Refresh() {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.probe = nil
}

// Probe implements byoc.Backend.
func (b *backend) Probe() byoc.Probe {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.probe == nil {
		found := b.look()
		b.probe = &found
	}
	return *b.probe
}

func (b *backend) look() byoc.Probe {
	found := b.found()
	if found.Usable && found.Version == "" && b.Source != "" {
		found.Version = "source " + b.Source
	}
	return found
}

// found is what the probe says.
func (b *backend) found() byoc.Probe {
	found := byoc.Probe{Library: b.description.Name}
	if !b.has("probe") {
		found.Usable = true
		return found
	}
	text, err := b.ask("probe")
	if err == nil {
		err = json.Unmarshal([]byte(text), &found)
	}
	if err != nil {
		return byoc.Probe{Library: b.description.Name, Reason: "its probe failed: " + err.Error()}
	}
	return found
}

// ask calls the packed function for a text.
func (b *backend) ask(what string, args ...any) (string, error) {
	v, err := b.call.Invoke(append([]any{what}, args...)...)
	if err != nil {
		return "", err
	}
	return v.Str()
}

// Rules implements byoc.Ruler.
func (b *backend) Rules() *byoc.Rules {
	if b.description.Rules == nil || b.description.Rules.Style == "" {
		return nil
	}
	return &byoc.Rules{Supports: b.supports, Style: styles[b.description.Rules.Style],
		MaxDepth: b.description.Rules.MaxDepth}
}

func (b *backend) supports(g *relay.Graph, call relay.NodeID) error {
	if op := g.Nodes[call].Op; !slices.Contains(b.description.Rules.Operators, op) {
		return fmt.Errorf("it does not support %s", op)
	}
	return nil
}

// Matches implements byoc.Matcher.
func (b *backend) Matches(g *relay.Graph) ([]byoc.Proposal, error) {
	if len(b.patterns) == 0 || g.Handle(0) == nil {
		return nil, nil
	}
	flow := candidate.NewFlow(g, func(*relay.Node) candidate.OpPattern { return candidate.Opaque })
	flow.SharedConstants = true // they are bound inside
	var found []byoc.Proposal
	for _, p := range b.patterns {
		groups, err := flow.UserMatches(p)
		if err != nil {
			return nil, err
		}
		for _, group := range groups {
			found = append(found, byoc.Proposal{Composite: p.Composite, Bare: b.Bare, Nodes: flow.Placeable(group)})
		}
	}
	return found, nil
}

// Propose implements byoc.Proposer.
func (b *backend) Propose(g *relay.Graph, learnt []byoc.Learnt) []byoc.Proposal {
	if r := b.description.Rules; r != nil && r.Style == "" && learnt == nil {
		return propose.Regions(g, func(v relay.NodeID) bool { return b.supports(g, v) == nil }, propose.Limit)
	}
	return nil
}

// ProposeOrFail implements byoc.FallibleProposer.
func (b *backend) ProposeOrFail(g *relay.Graph, learnt []byoc.Learnt) ([]byoc.Proposal, error) {
	proposals := b.Propose(g, learnt)
	if !b.has("propose") {
		return proposals, nil
	}
	question, err := describeGraph(g, learnt)
	if err != nil {
		return nil, err
	}
	text, err := b.ask("propose", question)
	if err != nil {
		return nil, err
	}
	var groups [][]relay.NodeID
	if err := json.Unmarshal([]byte(text), &groups); err != nil {
		return nil, fmt.Errorf("propose gives lists of node numbers: %w", err)
	}
	for _, nodes := range groups {
		slices.Sort(nodes)
		proposals = append(proposals, byoc.Proposal{Bare: true, Nodes: slices.Compact(nodes)})
	}
	return proposals, nil
}

// CostFunction implements byoc.Coster.
func (b *backend) CostFunction() byoc.CostFunction {
	if !b.has("cost") {
		return nil
	}
	return func(g *relay.Graph, p byoc.Proposal) (float64, bool, error) {
		root := p.Nodes[len(p.Nodes)-1]
		c := &candidate.Candidate{Backend: b.Name(), Composite: p.Composite, Bare: p.Bare, Scope: g.Nodes[root].Scope,
			Nodes: p.Nodes, Root: root}
		c.Border(g)
		w, err := annotate.Workload(g, c, b)
		if err != nil {
			return 0, false, err
		}
		constants := make([]string, len(w.Constants))
		for i := range constants {
			constants[i] = w.Constants[i].Name
		}
		v, err := b.call.Invoke("cost", w.Function, constants)
		if err != nil || v.IsNil() {
			return 0, false, err
		}
		ms, err := v.Float()
		if math.IsNaN(ms) {
			return 0, false, errors.New("it is not a number")
		}
		return ms, true, err
	}
}

// BorderCost implements byoc.Borderer.
func (b *backend) BorderCost() byoc.BorderCost {
	if !b.has("border") {
		return nil
	}
	type pair struct{ in, out float64 }
	known := map[string]pair{}
	return func(t *relay.Type) (float64, float64) {
		p, ok := known[t.String()]
		if !ok {
			p = pair{math.NaN(), math.NaN()} // refused by the solver, with the value's name
			if text, err := b.ask("border", t.Shape, t.DType); err == nil {
				var ms []float64
				if json.Unmarshal([]byte(text), &ms) == nil && len(ms) == 2 {
					p = pair{ms[0], ms[1]}
				}
			}
			known[t.String()] = p
		}
		return p.in, p.out
	}
}
