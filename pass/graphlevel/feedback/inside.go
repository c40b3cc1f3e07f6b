// SPDX-License-Identifier: Apache-2.0

package feedback

import (
	"errors"
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/trace"
	"github.com/collage-tvm/collage/relay"
)

// errSilent says that an engine does not time its steps, which is nothing that went wrong.
var errSilent = errors.New("its engine does not time its steps")

// apart makes parts of a region's groups, as far as the engine does them one by one, where it tells that. For engines
// that time steps of their own the steps and the call count then, and not the kernel as a whole: on a busy machine long
// times are disturbed more than short ones. Layers are timed in another run than the kernel, with clocks in between
// that take time themselves: their times are scaled so that their sum is the kernel's. The error says why nothing was
// done, where the engine does not tell or speaks of something else.
func (a *attribution) apart(r *annotate.Region, whole float64) error {
	inside := a.times.Inside[r.Symbol]
	switch {
	case inside == nil || len(inside.Steps) == 0 && inside.Why == "":
		return errSilent
	case len(inside.Steps) == 0:
		return errors.New(inside.Why)
	}
	groups := annotate.Groups(a.set, r)
	if err := fits(inside, groups); err != nil {
		return err
	}
	if inside.Layers {
		scaled, err := scaled(inside, whole)
		if err != nil {
			return err
		}
		inside = scaled
	}
	together := newUnion(len(groups))
	for i := range inside.Steps {
		if s := &inside.Steps[i]; !s.Reorder {
			for _, group := range s.Of {
				together.join(s.Of[0], group)
			}
		}
	}
	for i := range groups {
		switch {
		case len(groups[i].Nodes) > 0:
		case groups[i].Given || i+1 == len(groups): // what rounds a value for all, and who makes it
			together.join(i-1, i)
		default: // what rounds a value, and who is the first to read it
			together.join(i, i+1)
		}
	}
	if inside.Layers {
		a.absorb(inside, groups, together)
	}
	part := make([]int, len(groups)) // the part of each group, of those that stand for several
	for i := range groups {
		top := together.find(i)
		if top == i {
			part[i] = a.add(Part{})
		}
		at := &a.p.Parts[part[top]]
		part[i] = part[top]
		at.Nodes = append(at.Nodes, groups[i].Nodes...)
	}
	for _, i := range part {
		slices.Sort(a.p.Parts[i].Nodes)
		a.p.Parts[i].Nodes = slices.Compact(a.p.Parts[i].Nodes)
		for _, v := range a.p.Parts[i].Nodes {
			a.partOf[v] = i
		}
	}
	b := a.border(r.Backend)
	a.steps(inside, part, b)
	b.Calls++
	count := func(values []relay.NodeID, n *int, bytes *int64) {
		for _, v := range values {
			*n, *bytes = *n+1, *bytes+bytesOf(a.set.Graph, v)
		}
	}
	count(r.Inputs, &b.Ins, &b.InBytes)
	count(r.Outputs, &b.Outs, &b.OutBytes)
	return nil
}

// fits says what is wrong where an engine does not speak of these groups.
func fits(s *trace.Inside, groups []annotate.Group) error {
	if len(s.Groups) != len(groups) {
		return fmt.Errorf("its engine tells of %d operators and patterns, it has %d", len(s.Groups), len(groups))
	}
	for i, name := range s.Groups {
		if groups[i].Name != name {
			return fmt.Errorf("its engine tells of %s where it has %s", name, groups[i].Name)
		}
	}
	outside := func(i int) bool { return i < 0 || i >= len(groups) }
	for _, step := range s.Steps {
		if slices.ContainsFunc(step.Of, outside) || slices.ContainsFunc(step.From, outside) {
			return fmt.Errorf("its engine tells of a step of operators that it has not (%s)", step.What)
		}
	}
	return nil
}

// steps gives the steps' times to the parts of the groups, and to the backend's border.
func (a *attribution) steps(inside *trace.Inside, part []int, b *Border) {
	of := func(groups []int) []int {
		var list []int
		for _, group := range groups {
			list = append(list, part[group])
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	unknown := 0.0
	for i := range inside.Steps {
		s := &inside.Steps[i]
		to, from := of(s.Of), of(s.From)
		switch {
		case !s.Reorder && len(to) == 0:
			unknown += s.Milliseconds
		case !s.Reorder:
			a.p.Parts[to[0]].Milliseconds += s.Milliseconds
		case len(to) == 0 && len(from) == 0: // from an input to a result
			b.In += s.Milliseconds
			a.share(of(every(len(part))), s.Milliseconds, true)
		case len(from) == 0:
			b.In += s.Milliseconds
			a.share(to, s.Milliseconds, true)
		case len(to) == 0:
			b.Out += s.Milliseconds
			a.share(from, s.Milliseconds, true)
		default:
			a.share(to, s.Milliseconds/2, false)
			a.share(from, s.Milliseconds/2, false)
		}
	}
	if unknown > 0 {
		a.share(of(every(len(part))), unknown, false)
	}
	b.CallMilliseconds += inside.Call
}

// share adds to the border of several parts, the same for each.
func (a *attribution) share(parts []int, ms float64, crossing bool) {
	for _, i := range parts {
		a.p.Parts[i].Border += ms / float64(len(parts))
		if crossing {
			a.p.Parts[i].Crossing += ms / float64(len(parts))
		}
	}
}

func every(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// union says what belongs together; the least of each lot stands for it.
type union []int

func newUnion(n int) union { return every(n) }

func (u union) find(i int) int {
	for u[i] != i {
		i = u[i]
	}
	return i
}

func (u union) join(i, j int) {
	i, j = u.find(i), u.find(j)
	u[max(i, j)] = min(i, j)
}
