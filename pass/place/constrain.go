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
	// Pin gives nodes the state that the option which covers them must have.
	Pin map[relay.NodeID]State
	// Forbid gives nodes states that it must not have.
	Forbid map[relay.NodeID][]State
}

// Constraint is one of them.
type Constraint struct {
	Node  relay.NodeID
	State State
	// Forbid says that the node must not be covered in State; otherwise it must be.
	Forbid bool
}

func (c Constraint) String() string {
	if c.Forbid {
		return fmt.Sprintf("%%%d is forbidden on %d", c.Node, c.State)
	}
	return fmt.Sprintf("%%%d is pinned to %d", c.Node, c.State)
}

// List gives the constraints one by one, by node; pins first.
func (c Constraints) List() []Constraint {
	var list []Constraint
	for _, v := range slices.Sorted(maps.Keys(c.Pin)) {
		list = append(list, Constraint{Node: v, State: c.Pin[v]})
	}
	for _, v := range slices.Sorted(maps.Keys(c.Forbid)) {
		states := slices.Clone(c.Forbid[v])
		slices.Sort(states)
		for _, s := range slices.Compact(states) {
			list = append(list, Constraint{Node: v, State: s, Forbid: true})
		}
	}
	slices.SortStableFunc(list, func(a, b Constraint) int { return cmp.Compare(a.Node, b.Node) })
	return list
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
// they were. Everything in this package takes the result. Errors: a plain one for a node that needs no cover, or one that
// is both pinned to and forbidden on a state.
func (c Constraints) Apply(options []Option, tree *Tree) ([]Option, error) {
	list := c.List()
	for _, k := range list {
		if k.Node < 0 || int(k.Node) >= len(tree.Needs) || !tree.Needs[k.Node] {
			return nil, fmt.Errorf("placement: %s, but it is no node of the graph that needs cover", k)
		}
		if pin, ok := c.Pin[k.Node]; ok && k.Forbid && pin == k.State {
			return nil, fmt.Errorf("placement: %%%d is both pinned to %d and forbidden there", k.Node, k.State)
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
				if (out[i].State == k.State) == k.Forbid {
					out[i].Cost = math.Inf(1)
				}
			}
		}
	}
	return out
}

// Solve places under the constraints with the exact solver for trees. Errors: as Solver's, if there is no placement
// even without the constraints; *ConstraintError naming those that leave none; as Apply's.
func (c Constraints) Solve(options []Option, tree *Tree) (*Placement, error) {
	return c.SolveWith(options, tree, func(options []Option) (*Placement, error) { return Solve(options, tree) })
}

// SolveWith places the options under the constraints with another solver, which must give an error where and only where
// there is no placement. Errors: as Solve's.
func (c Constraints) SolveWith(options []Option, tree *Tree, solve func([]Option) (*Placement, error)) (*Placement, error) {
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
