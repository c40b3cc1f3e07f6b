// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/relay"
)

// Constraints say what a placement must keep to.
type Constraints struct {
	// Pin gives nodes the states of which the option that covers them must have one.
	Pin map[relay.NodeID][]State
	// Forbid gives nodes states that it must not have.
	Forbid map[relay.NodeID][]State
}

// Constraint is one of them.
type Constraint struct {
	Node relay.NodeID
	// States are ascending; those of a prohibition are listed one by one.
	States []State
	// Forbid says that the node must not be covered in any of the States; otherwise it must be in one of them.
	Forbid bool
}

func (c Constraint) String() string {
	states := make([]string, len(c.States))
	for i, s := range c.States {
		states[i] = fmt.Sprint(s)
	}
	if c.Forbid {
		return fmt.Sprintf("%%%d is forbidden on %s", c.Node, strings.Join(states, " and "))
	}
	return fmt.Sprintf("%%%d is pinned to %s", c.Node, strings.Join(states, " or "))
}

// Breaks says that an option in a state which covers the node breaks the constraint.
func (c Constraint) Breaks(state State) bool { return slices.Contains(c.States, state) == c.Forbid }

// List gives the constraints one by one, by node; pins first.
func (c Constraints) List() []Constraint {
	var list []Constraint
	for _, v := range slices.Sorted(maps.Keys(c.Pin)) {
		list = append(list, Constraint{Node: v, States: sorted(c.Pin[v])})
	}
	for _, v := range slices.Sorted(maps.Keys(c.Forbid)) {
		for _, s := range sorted(c.Forbid[v]) {
			list = append(list, Constraint{Node: v, States: []State{s}, Forbid: true})
		}
	}
	slices.SortStableFunc(list, func(a, b Constraint) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

func sorted(states []State) []State {
	states = slices.Clone(states)
	slices.Sort(states)
	return slices.Compact(states)
}

// ConstraintError says that the constraints leave no placement, where there is one without them.
type ConstraintError struct {
	// Conflict are constraints that cannot be kept together; without any one of them, the others can.
	Conflict []Constraint
	// Cause says what is left open under Conflict: an *UncoveredError, or the solver's error.
	Cause error
}

func (e *ConstraintError) Error() string {
	text := make([]string, len(e.Conflict))
	for i, c := range e.Conflict {
		text[i] = c.String()
	}
	if len(text) == 1 {
		return fmt.Sprintf("no placement keeps the constraint that %s: %v", text[0], e.Cause)
	}
	return fmt.Sprintf("no placement keeps these constraints together: %s: %v", strings.Join(text, "; "), e.Cause)
}

func (e *ConstraintError) Unwrap() error { return e.Cause }

// Apply gives the options with those ruled out that break a constraint: their costs are +Inf, so that indices stay what
// they were. Everything in this package takes the result. Errors: a plain one for a node that needs no cover, or one
// that is forbidden on all states that it is pinned to.
func (c Constraints) Apply(options []Option, tree *Tree) ([]Option, error) {
	list := c.List()
	for _, k := range list {
		if k.Node < 0 || int(k.Node) >= len(tree.Needs) || !tree.Needs[k.Node] {
			return nil, fmt.Errorf("placement: %s, but it is no node of the graph that needs cover", k)
		}
		forbidden := func(s State) bool { return slices.Contains(c.Forbid[k.Node], s) }
		if !k.Forbid && !slices.ContainsFunc(k.States, func(s State) bool { return !forbidden(s) }) {
			return nil, fmt.Errorf("placement: %s, and forbidden there", k)
		}
	}
	return apply(list, options), nil
}

func apply(list []Constraint, options []Option) []Option {
	of := map[relay.NodeID][]Constraint{}
	for _, k := range list {
		of[k.Node] = append(of[k.Node], k)
	}
	out := slices.Clone(options)
	for i := range out {
		for _, v := range out[i].Nodes {
			for _, k := range of[v] {
				if k.Breaks(out[i].State) {
					out[i].Cost = math.Inf(1)
				}
			}
		}
	}
	return out
}

// Solve places under the constraints with the exact solver for trees. Errors: as Solver's, if there is no placement
// even without the constraints; *ConstraintError naming those that leave none; as Apply's.
func (c Constraints) Solve(options []Option, tree *Tree) (*Solution, error) {
	return c.SolveWith(options, tree, func(options []Option) (*Solution, error) { return Solve(options, tree) })
}

// SolveWith places the options under the constraints with another solver, which must give an error where and only where
// there is no placement. Errors: as Solve's.
func (c Constraints) SolveWith(options []Option, tree *Tree, solve func([]Option) (*Solution, error)) (*Solution,
	error) {
	constrained, err := c.Apply(options, tree)
	if err != nil {
		return nil, err
	}
	p, err := solve(constrained)
	if err == nil {
		return p, nil
	}
	var malformed *OptionError
	if errors.As(err, &malformed) {
		return nil, err
	}
	if _, without := solve(options); without != nil {
		return nil, without
	}
	// Leave out one constraint after the other; those without which a placement is found are the conflict.
	conflict := c.List()
	for i := 0; i < len(conflict); {
		fewer := slices.Delete(slices.Clone(conflict), i, i+1)
		if _, e := solve(apply(fewer, options)); e != nil {
			conflict, err = fewer, e
		} else {
			i++
		}
	}
	return nil, &ConstraintError{Conflict: conflict, Cause: err}
}
