// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/relay"
)

// The packed functions by which TVM's own passes can be given a backend's patterns (python/collage/patterns.py).
const (
	// TableFunction takes a typed module and a backend's name, and gives the array [composite, pattern, bare,
	// composite, ...] of tvm.relay.dataflow_pattern. The patterns say what must stand there; what the backend's limits
	// allow in this module TableAccepts knows.
	TableFunction = "collage.backend.table"
	// TableAccepts takes a place in the table that was given last and an expression of that module, and says whether
	// the backend takes a match of that pattern which ends there.
	TableAccepts = "collage.backend.table_accepts"
)

// table is what TableFunction gave last.
var table = struct {
	sync.Mutex
	module     *relay.Module
	composites []string
	accepted   map[string]map[uintptr]bool // by composite and expression
}{}

func giveTable(args []bridge.Value) (any, error) {
	if len(args) != 2 {
		return nil, fmt.Errorf("TypeError: %s takes a module and the name of a backend", TableFunction)
	}
	mod, err := args[0].Object()
	if err != nil {
		return nil, err
	}
	name, err := args[1].Str()
	if err != nil {
		return nil, err
	}
	b, err := byoc.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	m, err := relay.Read(mod)
	if err != nil {
		return nil, err
	}
	accepted := map[string]map[uintptr]bool{}
	for _, g := range m.Functions {
		set, err := candidate.Propose(g, []byoc.Backend{b}, candidate.Options{})
		if err != nil {
			return nil, err
		}
		for i := range set.Candidates {
			c := &set.Candidates[i]
			if accepted[c.Composite] == nil {
				accepted[c.Composite] = map[uintptr]bool{}
			}
			accepted[c.Composite][g.Handle(c.Root).Pointer()] = true
		}
	}
	var entries []any
	var composites []string
	for _, p := range b.Patterns() {
		pattern, err := relay.DFPattern(p.Shape)
		if err != nil {
			return nil, fmt.Errorf("pattern %s: %w", p.Composite, err)
		}
		entries = append(entries, p.Composite, pattern, p.Bare)
		composites = append(composites, p.Composite)
	}
	table.Lock()
	defer table.Unlock()
	if table.module != nil {
		table.module.Release()
	}
	table.module, table.composites, table.accepted = m, composites, accepted
	return entries, nil
}

func tableAccepts(args []bridge.Value) (any, error) {
	if len(args) != 2 {
		return nil, fmt.Errorf("TypeError: %s takes a place and an expression", TableAccepts)
	}
	i, err := args[0].Int()
	if err != nil {
		return nil, err
	}
	expr, err := args[1].Object()
	if err != nil {
		return nil, err
	}
	table.Lock()
	defer table.Unlock()
	if i < 0 || int(i) >= len(table.composites) {
		return nil, fmt.Errorf("ValueError: the table has no pattern %d", i)
	}
	return table.accepted[table.composites[i]][expr.Pointer()], nil
}
