// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/lazy"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// Forecast is what there is to decide about a module, before anything is measured.
type Forecast struct {
	// Environment is what costs would be valid for.
	Environment cost.Environment
	// Backends may be used; Absent cannot be used here, and would be left out.
	Backends []Foreseen
	Absent   []*settings.UnusableError
	// Operators are those that are placed.
	Operators int
	// Store is the file of costs, and StoreFound says that it is there.
	Store      string
	StoreFound bool
}

// Foreseen is what is there of one backend.
type Foreseen struct {
	Backend byoc.Backend
	// Library names its library with its version and what of the machine it uses.
	Library string
	// Operators are those that some candidate of it has, Candidates how many it has, those apart that rules leave none of.
	Operators, Candidates int
	// Computations are the different ones among the candidates, so many are measured at most; Known are those whose cost
	// the store has.
	Computations, Known int
}

// Foresee reads a module and finds the candidates that Decided would, and what the store knows of them. It measures
// nothing and writes nothing, the store neither. Errors are those of Decided before it measures.
func Foresee(mod *bridge.Object, cfg settings.Config) (f *Forecast, err error) {
	err = bridge.OnThread(func() error {
		s, err := proposed(mod, cfg)
		if err != nil {
			return err
		}
		if err := s.constrain(); err != nil {
			return err
		}
		f, err = s.forecast()
		return err
	})
	return f, err
}

func (s *Module) forecast() (*Forecast, error) {
	f := &Forecast{Environment: s.Env, Absent: s.absent}
	known, err := s.stored(f)
	if err != nil {
		return nil, err
	}
	all := s.computations()
	for _, b := range s.Backends {
		one := Foreseen{Backend: b, Library: s.Library(b)}
		counted := make([]bool, len(all.requests))
		for i, of := range s.Functions {
			takes := make([]bool, len(of.Set.Graph.Nodes))
			for k := range of.Set.Candidates {
				c := &of.Set.Candidates[k]
				if c.Backend != b.Name() {
					continue
				}
				one.Candidates++
				for _, v := range c.Nodes {
					takes[v] = takes[v] || candidate.IsOperator(&of.Set.Graph.Nodes[v])
				}
				at := all.Of[i][k]
				if at == lazy.Free || counted[at] {
					continue
				}
				counted[at] = true
				one.Computations++
				if known[all.requests[at].Key] {
					one.Known++
				}
			}
			for _, is := range takes {
				if is {
					one.Operators++
				}
			}
		}
		f.Backends = append(f.Backends, one)
	}
	for _, of := range s.Functions {
		for v := range of.Set.Graph.Nodes {
			if of.Set.Graph.Placeable(relay.NodeID(v)) && candidate.IsOperator(&of.Set.Graph.Nodes[v]) {
				f.Operators++
			}
		}
	}
	return f, nil
}

// stored are the keys whose costs the store has. The file is read and not opened, which would make it.
func (s *Module) stored(f *Forecast) (map[cost.Key]bool, error) {
	var err error
	if f.Store, err = cost.StorePath(s.Config.Store); err != nil {
		return nil, err
	}
	file, err := cost.ReadFile(f.Store)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w (db verify says more)", err)
	}
	f.StoreFound = true
	known := map[cost.Key]bool{}
	entries := slices.DeleteFunc(file.Entries(), func(e cost.Entry) bool {
		return e.Expired() || e.Cost.Failed() && s.Config.RetryFailures
	})
	for _, e := range entries {
		known[e.Key] = true
	}
	return known, nil
}
