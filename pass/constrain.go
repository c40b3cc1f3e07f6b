// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/relay"
)

// rules reads what the configuration pins and forbids.
func (s *search) rules() ([]plan.Rule, error) {
	var rules []plan.Rule
	read := func(option string, texts []string, forbid bool) error {
		for _, text := range texts {
			r, err := plan.ParseRule(text, forbid)
			if err != nil {
				return &OptionError{option, "is not readable: " + err.Error()}
			}
			if s.byName[r.Backend] == nil {
				return &OptionError{option, fmt.Sprintf("%s names a backend that is not offered (offered: %s)", text,
					strings.Join(namesOf(s.backends), ", "))}
			}
			rules = append(rules, r)
		}
		return nil
	}
	if err := read("pin", s.cfg.Pin, false); err != nil {
		return nil, err
	}
	return rules, read("forbid", s.cfg.Forbid, true)
}

// constrain takes the candidates that the configuration's pins and prohibitions rule out of the sets, before anything is
// measured. Errors are *OptionError: a rule that selects nothing, or rules that leave no placement.
func (s *search) constrain() error {
	rules, err := s.rules()
	if err != nil || len(rules) == 0 {
		return err
	}
	used := make([]bool, len(rules))
	for _, f := range s.functions {
		f.selected = map[relay.NodeID][]int{}
		for v := range f.set.Graph.Nodes {
			id := relay.NodeID(v)
			if !f.set.Graph.Placeable(id) {
				continue
			}
			n := &f.set.Graph.Nodes[v]
			shown := plan.Node{Index: v, Operator: candidate.OperatorName(n), Span: plan.SpanText(n.Span)}
			for i, r := range rules {
				if r.Selector.Selects(f.set.Graph.Name, len(s.functions) == 1, &shown) {
					f.selected[id] = append(f.selected[id], i)
					used[i] = true
				}
			}
		}
	}
	for i, r := range rules {
		if !used[i] {
			return ruleError(r, "selects nothing in this network: "+s.selectable())
		}
	}
	for _, f := range s.functions {
		if err := s.feasible(f, rules); err != nil {
			return err
		}
		f.exclude(rules)
	}
	return nil
}

// ruleError is an error about one rule.
func ruleError(r plan.Rule, reason string) error {
	option := "pin"
	if r.Forbid {
		option = "forbid"
	}
	return &OptionError{option, fmt.Sprintf("%s=%s %s", r.Selector, r.Backend, reason)}
}

// selectable names the operators of the network, the frequent ones first.
func (s *search) selectable() string {
	counts := map[string]int{}
	for _, f := range s.functions {
		for v := range f.set.Graph.Nodes {
			if n := &f.set.Graph.Nodes[v]; candidate.IsOperator(n) {
				counts[n.Op]++
			}
		}
	}
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "...")
	}
	return "its operators are " + strings.Join(names, ", ")
}

// broken is the first rule that a candidate breaks; -1 for none.
func (f *function) broken(c *candidate.Candidate, rules []plan.Rule) int {
	for _, v := range c.Nodes {
		for _, i := range f.selected[v] {
			if rules[i].Breaks(c.Backend) {
				return i
			}
		}
	}
	return -1
}

func (f *function) exclude(rules []plan.Rule) {
	kept := f.set.Candidates[:0:0]
	for k := range f.set.Candidates {
		c := &f.set.Candidates[k]
		i := f.broken(c, rules)
		if i < 0 {
			kept = append(kept, *c)
			continue
		}
		e := plan.Excluded{Function: f.set.Graph.Name, Backend: c.Backend, Composite: c.Composite, Constraint: rules[i].String()}
		for _, v := range c.Nodes {
			e.Nodes = append(e.Nodes, int(v))
		}
		f.excluded = append(f.excluded, e)
	}
	set := *f.set
	set.Candidates = kept
	f.set = &set
}

// feasible says which rules leave a function no placement, whatever its candidates cost.
func (s *search) feasible(f *function, rules []plan.Rule) error {
	tree := place.TreeOf(f.set.Graph)
	options := make([]place.Option, len(f.set.Candidates))
	for k := range options {
		c := &f.set.Candidates[k]
		options[k] = place.Option{Nodes: c.Nodes}
		if f.broken(c, rules) >= 0 {
			options[k].Cost = math.Inf(1)
		}
	}
	var uncovered *place.UncoveredError
	if _, err := place.Solve(options, tree); !errors.As(err, &uncovered) {
		return err
	}
	// Find the few that stand against each other.
	state := map[string]place.State{}
	for i, b := range s.backends {
		state[b.Name()] = place.State(i)
	}
	constraints := place.Constraints{Pin: map[relay.NodeID]place.State{}, Forbid: map[relay.NodeID][]place.State{}}
	for v, selecting := range f.selected {
		for _, i := range selecting {
			at := state[rules[i].Backend]
			pinned, ok := constraints.Pin[v]
			switch {
			case rules[i].Forbid:
				constraints.Forbid[v] = append(constraints.Forbid[v], at)
			case ok && pinned != at:
				return ruleError(rules[i], fmt.Sprintf("contradicts another pin: both select %s", f.nodeText(v)))
			default:
				constraints.Pin[v] = at
			}
		}
		if pinned, ok := constraints.Pin[v]; ok && slices.Contains(constraints.Forbid[v], pinned) {
			return ruleError(rules[selecting[0]], fmt.Sprintf("contradicts a prohibition: both select %s", f.nodeText(v)))
		}
	}
	for k := range options {
		options[k].Cost, options[k].State = 0, state[f.set.Candidates[k].Backend]
	}
	_, err := constraints.Solve(options, tree)
	var conflict *place.ConstraintError
	if !errors.As(err, &conflict) {
		return err // nobody takes it even without the rules: the solver will say so
	}
	return s.conflictError(f, rules, conflict)
}

// conflictError puts a conflict into the user's words.
func (s *search) conflictError(f *function, rules []plan.Rule, e *place.ConstraintError) error {
	var about []plan.Rule
	var texts []string
	for _, c := range e.Conflict {
		for _, i := range f.selected[c.Node] {
			r := rules[i]
			if r.Forbid != c.Forbid || r.Backend != s.backends[c.State].Name() {
				continue
			}
			if text := fmt.Sprintf("%s at %s", r, f.nodeText(c.Node)); !slices.Contains(texts, text) {
				about, texts = append(about, r), append(texts, text)
			}
		}
	}
	first := e.Conflict[0]
	reason := ""
	for _, r := range f.set.Refusals {
		if r.Node == first.Node && !first.Forbid && r.Backend == s.backends[first.State].Name() {
			reason = fmt.Sprintf(" (%s: %s)", r.Composite, r.Reason)
			break
		}
	}
	if len(texts) == 1 && !first.Forbid {
		return ruleError(about[0], fmt.Sprintf("cannot be kept: no candidate on %s covers %s and leaves the rest one%s", about[0].Backend,
			f.nodeText(first.Node), reason))
	}
	if len(texts) == 1 {
		return ruleError(about[0], fmt.Sprintf("cannot be kept: no other backend takes %s%s", f.nodeText(first.Node), reason))
	}
	if len(texts) > maxNamed {
		texts = append(texts[:maxNamed], "...")
	}
	return ruleError(about[0], fmt.Sprintf("cannot be kept together with the others: %s%s", strings.Join(texts, "; "), reason))
}

func (f *function) nodeText(v relay.NodeID) string {
	n := &f.set.Graph.Nodes[v]
	text := fmt.Sprintf("%%%d (%s)", v, candidate.OperatorName(n))
	if span := plan.SpanText(n.Span); span != "" {
		text += ", " + span
	}
	return text
}
