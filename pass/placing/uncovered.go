// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// UncoveredError says that the backends that were named cannot run all of a network.
type UncoveredError struct {
	Backends []string
	// Operators are what nobody takes, in the order of the network.
	Operators []UncoveredOperator
}

// UncoveredOperator is an operator that no backend takes.
type UncoveredOperator struct {
	Function string
	Index    relay.NodeID
	Operator string
	Span     relay.Span
	// Reasons say what each backend that looked at it has against it; empty where none has a pattern for it.
	Reasons []string
}

// maxNamed is how many operators, and how many places of each, an UncoveredError names.
const maxNamed = 8

func (e *UncoveredError) Error() string {
	byName := map[string][]UncoveredOperator{}
	for _, o := range e.Operators {
		byName[o.Operator] = append(byName[o.Operator], o)
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byName[b]), len(byName[a])), cmp.Compare(a, b))
	})
	var text strings.Builder
	fmt.Fprintf(&text, "the backends %s cannot run the whole network: nobody takes %d of its operators:",
		strings.Join(e.Backends, ", "), len(e.Operators))
	for i, name := range names {
		if i == maxNamed {
			fmt.Fprintf(&text, "\n  and %d further kinds", len(names)-i)
			break
		}
		fmt.Fprintf(&text, "\n  %s (%s)", name, placesOf(byName[name]))
		for _, reason := range byName[name][0].Reasons {
			fmt.Fprintf(&text, "; %s", reason)
		}
	}
	if !slices.Contains(e.Backends, "tvm") {
		text.WriteString("\nAdd tvm to the backends: it takes what the others leave.")
	}
	return text.String()
}

func placesOf(operators []UncoveredOperator) string {
	var places []string
	for i, o := range operators {
		if i == maxNamed/2 {
			places = append(places, fmt.Sprintf("%d more", len(operators)-i))
			break
		}
		place := fmt.Sprintf("%%%d in %s", o.Index, o.Function)
		if o.Span.Source != "" {
			place += ", " + o.Span.Source
			if o.Span.Line > 0 {
				place += fmt.Sprintf(":%d:%d", o.Span.Line, o.Span.Column)
			}
		}
		places = append(places, place)
	}
	return strings.Join(places, "; ")
}

// Exception is what Python is told: the first of the operators.
func (e *UncoveredError) Exception() bridge.Exception {
	said := bridge.Exception{Class: "BackendError"}
	if len(e.Operators) > 0 {
		said.Operator, said.Span = e.Operators[0].Operator, plan.SpanText(e.Operators[0].Span)
	}
	if len(e.Backends) == 1 {
		said.Backend = e.Backends[0]
	}
	return said
}

// uncovered says which of a function's operators are left over, and what stands against them.
func (s *Module) uncovered(f *Function, e *place.UncoveredError) *UncoveredError {
	g := f.Set.Graph
	nodes := e.Without
	if len(nodes) == 0 {
		nodes = e.Nodes
	}
	out := &UncoveredError{Backends: settings.NamesOf(s.Backends)}
	for _, v := range nodes {
		o := UncoveredOperator{Function: g.Name, Index: v, Operator: candidate.OperatorName(&g.Nodes[v]),
			Span: g.Nodes[v].Span}
		for _, r := range f.Set.Refusals {
			if r.Node == v {
				o.Reasons = append(o.Reasons, fmt.Sprintf("%s: %s", r.Backend, r.Reason))
			}
		}
		for k := range f.Set.Candidates {
			c := &f.Set.Candidates[k]
			if _, covers := slices.BinarySearch(c.Nodes, v); covers && f.Costs[k].Failed() {
				o.Reasons = append(o.Reasons, fmt.Sprintf("%s: %s", c.Backend, firstLine(f.Costs[k].Failure.String())))
			}
		}
		for _, e := range f.Excluded {
			if slices.Contains(e.Nodes, int(v)) {
				o.Reasons = append(o.Reasons, fmt.Sprintf("%s: ruled out by %s", e.Backend, e.Constraint))
			}
		}
		slices.Sort(o.Reasons)
		o.Reasons = slices.Compact(o.Reasons)
		out.Operators = append(out.Operators, o)
	}
	return out
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func mergeUncovered(list []*UncoveredError) *UncoveredError {
	out := &UncoveredError{Backends: list[0].Backends}
	for _, e := range list {
		out.Operators = append(out.Operators, e.Operators...)
	}
	return out
}
