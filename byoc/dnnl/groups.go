// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"
	"strconv"

	"github.com/collage-tvm/collage/byoc/region"
)

// A region is made of groups: composite functions, and operators that stand by themselves. The runtime does not care;
// but who profiles a region wants to know which of them each operation does, so that the program says it
// (pass/graphlevel/feedback finds the candidates by the groups' order and names).

// union joins two ascending lists.
func union(a, b []int) []int {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// follow notes which groups make which values; what it gives is called when operations have been joined or replaced. It
// gives the groups of operations that are gone, and of which no other operation says that it does them, to the
// operation that makes their result, or the next one behind it that is still made.
func (l *lowering) follow() func() {
	before := slices.Clone(l.ops)
	of := make([][]int, len(before))
	for i, o := range before {
		of[i] = o.of
	}
	outs := make([]region.ValueID, len(before))
	ins := make([][]region.ValueID, len(before))
	for i, o := range before {
		outs[i], ins[i] = o.out, slices.Clone(o.in)
		for _, p := range o.post {
			ins[i] = append(ins[i], p.operand)
		}
	}
	return func() {
		maker := map[region.ValueID]*operation{}
		done := map[int]bool{}
		for _, o := range l.ops {
			for _, v := range append([]region.ValueID{o.out}, o.more...) {
				maker[v] = o
			}
			for _, group := range o.of {
				done[group] = true
			}
		}
		// An operation before the fusion is done by the one that makes its result now, else by whoever does the first
		// that reads it.
		by := make([]*operation, len(before))
		for i := len(before) - 1; i >= 0; i-- {
			by[i] = maker[outs[i]]
			for k := i + 1; k < len(before) && by[i] == nil; k++ {
				if slices.Contains(ins[k], outs[i]) {
					by[i] = by[k]
				}
			}
		}
		for i, o := range by {
			if o == nil {
				continue
			}
			for _, group := range of[i] {
				if !done[group] || len(o.of) == 0 {
					o.of = union(o.of, []int{group})
				}
			}
		}
	}
}

// groups writes the groups' names, and those of each operation.
func (w *writer) groups() {
	w.b.WriteString("\"groups\": [")
	for i, name := range w.l.groups {
		if i > 0 {
			w.b.WriteString(", ")
		}
		w.b.WriteString(strconv.Quote(name))
	}
	w.b.WriteString("], \"of\": [")
	for i, o := range w.l.ops {
		if i > 0 {
			w.b.WriteString(", ")
		}
		list := make([]int64, len(o.of))
		for k, group := range o.of {
			list[k] = int64(group)
		}
		w.numbers(list)
	}
	w.b.WriteByte(']')
}
