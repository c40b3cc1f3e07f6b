// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/internal/nearest"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// rules reads what the configuration pins and forbids.
func (s *Module) rules() ([]plan.Rule, error) {
	var rules []plan.Rule
	read := func(option string, texts []string, forbid bool) error {
		for _, text := range texts {
			r, err := plan.ParseRule(text, forbid)
			if err != nil {
				return &settings.OptionError{Option: option, Reason: "is not readable: " + err.Error()}
			}
			if s.ByName[r.Backend] == nil {
				return &settings.OptionError{Option: option,
					Reason: fmt.Sprintf("%s names a backend that is not offered (offered: %s)", text,
						strings.Join(settings.NamesOf(s.Backends), ", "))}
			}
			if known := s.kernels(r.Backend); r.Kernel != "" && !slices.Contains(known, r.Kernel) {
				return &settings.OptionError{Option: option, Reason: text + " names " + unknownKernel(r.Backend, r.Kernel, known)}
			}
			rules = append(rules, r)
		}
		return nil
	}
	if err := read("pin", s.Config.Pin, false); err != nil {
		return nil, err
	}
	return rules, read("forbid", s.Config.Forbid, true)
}

// kernels are the names of a backend's kernels: those that its patterns name, and those of its candidates.
func (s *Module) kernels(backend string) []string {
	known := byoc.Kernels(s.ByName[backend])
	for _, f := range s.Functions {
		for k := range f.Set.Candidates {
			if c := &f.Set.Candidates[k]; c.Backend == backend && c.Kernel != "" {
				known = append(known, c.Kernel)
			}
		}
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// unknownKernel says that a backend has no kernel of a name, and what there is instead.
func unknownKernel(backend, kernel string, known []string) string {
	switch near := nearest.Word(kernel, known); {
	case len(known) == 0:
		return fmt.Sprintf("the kernel %q, but the kernels of the backend %s have no names: name the backend alone",
			kernel, backend)
	case near != "":
		return fmt.Sprintf("an unknown kernel of %s, %q: did you mean %q? (known: %s)", backend, kernel, near,
			strings.Join(known, ", "))
	}
	return fmt.Sprintf("an unknown kernel of %s, %q (known: %s)", backend, kernel, strings.Join(known, ", "))
}

// ExactConstraint is what plans say of candidates that Config.Exact rules out.
const ExactConstraint = "exact"

// breaks is the constraint that a candidate breaks, as plans say it; "" for none.
func (s *Module) breaks(f *Function, c *candidate.Candidate, rules []plan.Rule) string {
	if s.Config.Exact && c.Reassociates {
		return ExactConstraint
	}
	if i := f.broken(c, rules); i >= 0 {
		return rules[i].String()
	}
	return ""
}

// constrain takes the candidates that the configuration rules out of the sets, before anything is measured: by Exact,
// and by pins and prohibitions. Errors are *OptionError: a rule that selects nothing, or rules that leave no placement.
func (s *Module) constrain() error {
	rules, err := s.rules()
	if err != nil {
		return err
	}
	used := make([]bool, len(rules))
	for _, f := range s.Functions {
		f.selected = map[relay.NodeID][]int{}
		for v := range f.Set.Graph.Nodes {
			id := relay.NodeID(v)
			if !f.Set.Graph.Placeable(id) {
				continue
			}
			n := &f.Set.Graph.Nodes[v]
			shown := plan.Node{Index: v, Operator: candidate.OperatorName(n), Span: plan.SpanText(n.Span)}
			for i, r := range rules {
				if r.Selector.Selects(f.Set.Graph.Name, len(s.Functions) == 1, &shown) {
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
	for _, f := range s.Functions {
		if len(rules) > 0 {
			if err := s.feasible(f, rules); err != nil {
				return err
			}
		}
		s.exclude(f, rules)
	}
	return nil
}

// ruleError is an error about one rule.
func ruleError(r plan.Rule, reason string) error {
	option := "pin"
	if r.Forbid {
		option = "forbid"
	}
	return &settings.OptionError{Option: option, Reason: fmt.Sprintf("%s=%s %s", r.Selector, r.Goal(), reason)}
}

// selectable names the operators of the network, the frequent ones first.
func (s *Module) selectable() string {
	counts := map[string]int{}
	for _, f := range s.Functions {
		for v := range f.Set.Graph.Nodes {
			if n := &f.Set.Graph.Nodes[v]; candidate.IsOperator(n) {
				counts[n.Op]++
			}
		}
	}
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]),
			cmp.Compare(a, b))
	})
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "...")
	}
	return "its operators are " + strings.Join(names, ", ")
}

// broken is the first rule that a candidate breaks; -1 for none.
func (f *Function) broken(c *candidate.Candidate, rules []plan.Rule) int {
	for _, v := range c.Nodes {
		for _, i := range f.selected[v] {
			if rules[i].Breaks(c.Backend, c.Kernel) {
				return i
			}
		}
	}
	return -1
}

// exclude takes the candidates out of a function's set that break a constraint.
func (s *Module) exclude(f *Function, rules []plan.Rule) {
	if len(rules) == 0 && !s.Config.Exact {
		return
	}
	kept := f.Set.Candidates[:0:0]
	for k := range f.Set.Candidates {
		c := &f.Set.Candidates[k]
		constraint := s.breaks(f, c, rules)
		if constraint == "" {
			kept = append(kept, *c)
			continue
		}
		e := plan.Excluded{Function: f.Set.Graph.Name, Backend: c.Backend, Composite: c.Composite, Kernel: c.Kernel,
			Constraint: constraint}
		for _, v := range c.Nodes {
			e.Nodes = append(e.Nodes, int(v))
		}
		f.Excluded = append(f.Excluded, e)
	}
	set := *f.Set
	set.Candidates = kept
	f.Set = &set
}

// feasible says which rules leave a function no placement, whatever its candidates cost.
func (s *Module) feasible(f *Function, rules []plan.Rule) error {
	tree := place.TreeOf(f.Set.Graph)
	options := make([]place.Option, len(f.Set.Candidates))
	for k := range options {
		c := &f.Set.Candidates[k]
		options[k] = place.Option{Nodes: c.Nodes}
		if s.breaks(f, c, rules) != "" {
			options[k].Cost = math.Inf(1)
		}
	}
	var uncovered *place.UncoveredError
	if _, err := place.Solve(options, tree); !errors.As(err, &uncovered) {
		return err
	}
	// Find the few that stand against each other. A candidate's state is its backend with its kernel.
	ways := s.waysOf(f, rules)
	constraints := place.Constraints{Pin: map[relay.NodeID][]place.State{}, Forbid: map[relay.NodeID][]place.State{}}
	for v, selecting := range f.selected {
		for _, i := range selecting {
			at := ways.of(rules[i])
			pinned, ok := constraints.Pin[v]
			if rules[i].Forbid {
				constraints.Forbid[v] = append(constraints.Forbid[v], at...)
				continue
			}
			if ok {
				at = slices.DeleteFunc(at, func(s place.State) bool { return !slices.Contains(pinned, s) })
			}
			if len(at) == 0 {
				return ruleError(rules[i], fmt.Sprintf("contradicts another pin: both select %s", f.nodeText(v)))
			}
			constraints.Pin[v] = at
		}
		forbidden := func(s place.State) bool { return slices.Contains(constraints.Forbid[v], s) }
		if pinned, ok := constraints.Pin[v]; ok &&
			!slices.ContainsFunc(pinned, func(s place.State) bool { return !forbidden(s) }) {
			return ruleError(rules[selecting[0]],
				fmt.Sprintf("contradicts a prohibition: both select %s", f.nodeText(v)))
		}
	}
	for k := range options {
		c := &f.Set.Candidates[k]
		options[k].State = ways.state[way{c.Backend, c.Kernel}]
		if options[k].Cost = 0; s.Config.Exact && c.Reassociates {
			options[k].Cost = math.Inf(1)
		}
	}
	_, err := constraints.Solve(options, tree)
	var conflict *place.ConstraintError
	if !errors.As(err, &conflict) {
		return err // nobody takes it even without the rules: the solver will say so
	}
	return ways.conflictError(f, rules, conflict)
}

// way is a backend with one of its kernels; "" for what has no name.
type way struct{ backend, kernel string }

// ways number the ways in which a function's candidates run.
type ways struct {
	list  []way
	state map[way]place.State
}

// waysOf numbers the ways of a function's candidates, and those that the rules name.
func (s *Module) waysOf(f *Function, rules []plan.Rule) *ways {
	w := &ways{state: map[way]place.State{}}
	add := func(one way) {
		if _, known := w.state[one]; !known {
			w.state[one] = place.State(len(w.list))
			w.list = append(w.list, one)
		}
	}
	for _, r := range rules {
		add(way{r.Backend, r.Kernel})
	}
	for k := range f.Set.Candidates {
		add(way{f.Set.Candidates[k].Backend, f.Set.Candidates[k].Kernel})
	}
	return w
}

// of are the ways that a rule pins to or forbids.
func (w *ways) of(r plan.Rule) []place.State {
	var states []place.State
	for i, one := range w.list {
		if r.Breaks(one.backend, one.kernel) == r.Forbid {
			states = append(states, place.State(i))
		}
	}
	return states
}

// conflictError puts a conflict into the user's words.
func (w *ways) conflictError(f *Function, rules []plan.Rule, e *place.ConstraintError) error {
	var about []plan.Rule
	var texts []string
	for _, c := range e.Conflict {
		for _, i := range f.selected[c.Node] {
			r := rules[i]
			if r.Forbid != c.Forbid || c.Forbid && !slices.Contains(w.of(r), c.States[0]) {
				continue
			}
			if text := fmt.Sprintf("%s at %s", r, f.nodeText(c.Node)); !slices.Contains(texts, text) {
				about, texts = append(about, r), append(texts, text)
			}
		}
	}
	first := e.Conflict[0]
	reason := ""
	for _, r := range f.Set.Refusals {
		if r.Node == first.Node && !first.Forbid && r.Backend == about[0].Backend {
			reason = fmt.Sprintf(" (%s: %s)", r.Composite, r.Reason)
			break
		}
	}
	if len(texts) == 1 && !first.Forbid {
		return ruleError(about[0], fmt.Sprintf("cannot be kept: no candidate on %s covers %s and leaves the rest one%s",
			about[0].Goal(),
			f.nodeText(first.Node), reason))
	}
	if len(texts) == 1 {
		return ruleError(about[0], fmt.Sprintf("cannot be kept: %s takes %s%s", nobodyElse(about[0]),
			f.nodeText(first.Node), reason))
	}
	if len(texts) > maxNamed {
		texts = append(texts[:maxNamed], "...")
	}
	return ruleError(about[0], fmt.Sprintf("cannot be kept together with the others: %s%s", strings.Join(texts, "; "),
		reason))
}

func nobodyElse(r plan.Rule) string {
	if r.Kernel != "" {
		return "no other backend or kernel"
	}
	return "no other backend"
}

func (f *Function) nodeText(v relay.NodeID) string {
	n := &f.Set.Graph.Nodes[v]
	text := fmt.Sprintf("%%%d (%s)", v, candidate.OperatorName(n))
	if span := plan.SpanText(n.Span); span != "" {
		text += ", " + span
	}
	return text
}
